/* engine_memory.c - how much memory caches and buffers take, before and after the weights have their places.
 *
 * In host memory: --ram is for the caches, swapped state and snapshots. With a limit of the device's memory the caches lie there: they
 * may take a quarter of it while the weights are placed (more where slots, blocks or the context are asked for), and what is left in
 * the end; only then is too little an error. --ram is for the rest. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_impl.h"
#include "ops/scratch.h"

enum { BACKTRACK = 6, VIEW_BYTES = 64 << 20, REPLAY_ROWS = 256 /* larger steps take so long that the host's calls do not matter */ };

/* Tokens that may be rolled back: a block's, and the token behind it. */
static int32_t backtrack(const by_engine *e) {
    int32_t least = e->opts.backtrack ? e->opts.backtrack : BACKTRACK;
    return e->n_drafts + 1 > least ? e->n_drafts + 1 : least;
}

static int64_t free_memory(void) {
    long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (int64_t)pages * size : (int64_t)1 << 30;
}

/* What can be had now: MemAvailable counts the page cache, too. */
static int64_t available_memory(void) {
    static const char name[] = "MemAvailable:";
    long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && kib == 0 && fgets(line, sizeof line, f))
        if (strncmp(line, name, sizeof name - 1) == 0) kib = strtoll(line + sizeof name - 1, NULL, 10);
    if (f) fclose(f);
    return kib > 0 && kib < INT64_MAX / 1024 ? (int64_t)kib * 1024 : free_memory();
}

/* The memory given, which is a most: what is not there is not planned with. */
static int64_t host_memory(const by_engine_opts *o) {
    int64_t there = o->ram_bytes ? available_memory() : 0;
    return o->ram_bytes == 0 ? free_memory() / 4 : o->ram_bytes < there ? o->ram_bytes : there;
}

static int64_t cache_bytes(const by_kv_layout *l, const by_kv_opts *pool) {
    return (pool->n_slots + 1) * l->slot_bytes + (l->block_bytes ? ((int64_t)pool->n_blocks + 1) * l->block_bytes : 0);
}

/* Tokens of a sequence that the caches should hold. */
static int64_t longest(const by_engine *e) { return e->opts.max_context ? e->opts.max_context : e->model->cfg.max_positions; }

/* Slots and blocks as asked for, or as many as fit, which may be none. room: bytes of the device for caches; 0 = they share the host's
 * memory with swapped state. pool->n_slots > 0: that many. Returns the bytes that there were. */
static int64_t choose_sizes(by_engine *e, int64_t room, const by_kv_layout *layout, by_kv_opts *pool) {
    by_engine_opts *o = &e->opts;
    int64_t ram = host_memory(o), space = room ? room - layout->block_bytes : ram;
    bool chosen = pool->n_slots > 0 || o->state_slots;
    double ratio = o->slots_ratio > 0 ? o->slots_ratio : 1.2;
    if (pool->n_slots == 0) pool->n_slots = o->state_slots ? o->state_slots : (int32_t)(ratio * o->sched.max_seqs) + 1;
    if (pool->n_slots > 2 * BY_LIMIT_SEQS) pool->n_slots = 2 * BY_LIMIT_SEQS;
    int64_t slots = (pool->n_slots + 1) * layout->slot_bytes;
    while (!chosen && pool->n_slots > 1 && slots > space / 4) { /* fewer sequences at once rather than none */
        pool->n_slots = pool->n_slots / 2 > 1 ? pool->n_slots / 2 : 1;
        slots = (pool->n_slots + 1) * layout->slot_bytes;
    }
    int64_t per_seq = by_kv_blocks_for(longest(e)), left = space > slots ? space - slots : 0;
    e->host_bytes_max = room ? ram : left / 4; /* swapped state and snapshots */
    if (!room) left -= e->host_bytes_max;
    int64_t blocks = layout->block_bytes ? left / layout->block_bytes : 1;
    /* All can run below the watermark. More holds what has been released, which is what who gives host memory wants. */
    double most = ceil((double)(per_seq * o->sched.max_seqs) / o->sched.watermark);
    if ((room || !o->ram_bytes) && (double)blocks > most) blocks = (int64_t)most;
    if (blocks > INT32_MAX / 2) blocks = INT32_MAX / 2;
    pool->n_blocks = (int32_t)(o->kv_blocks ? o->kv_blocks : blocks);
    return space;
}

static by_status size_caches(by_engine *e, int64_t room, const by_kv_layout *layout, by_kv_opts *pool, by_err *err) {
    int64_t space = choose_sizes(e, room, layout, pool), want = longest(e), blocks = pool->n_blocks;
    if (blocks < 1)
        return BY_FAIL(err, BY_ENOMEM, "%d state slots and a KV block need %lld bytes of memory, there are %lld", pool->n_slots,
                       (long long)((pool->n_slots + 1) * layout->slot_bytes + layout->block_bytes), (long long)space);
    e->max_context = want;
    if (layout->block_bytes && blocks * BY_KV_BLOCK_TOKENS < want) {
        e->max_context = blocks * BY_KV_BLOCK_TOKENS;
        if (e->opts.max_context)
            return BY_FAIL(err, BY_ENOMEM, "a context of %lld tokens needs %lld KV blocks, the memory given holds %lld",
                           (long long)want, (long long)by_kv_blocks_for(want), (long long)blocks);
    }
    return BY_OK;
}

by_runner_opts by_engine_runner_opts(const by_engine *e) {
    const by_engine_opts *o = &e->opts;
    by_runner_opts run = {.max_rows = o->sched.max_rows, .max_seqs = e->max_seqs,
                          .max_logits = e->max_seqs * (1 + e->n_drafts) + o->sched.all_rows,
                          .max_context = e->max_context, .trunc = o->trunc, .n_drafts = e->n_drafts, .marks = true,
                          .replay_rows = o->eager ? 0 : o->replay_rows ? o->replay_rows : REPLAY_ROWS,
                          .all_draft_rows = by_device_draws(e->dev)}; /* one call, one wait; rejection needs what all were drawn from */
    if (run.max_logits > run.max_rows) run.max_logits = run.max_rows;
    return run;
}

static int32_t most_edits(int32_t n_draws) {
    int64_t n = (int64_t)n_draws * BY_SPEC_EDITS_FAR;
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

static int64_t draw_bytes(const by_engine *e) {
    int32_t n = by_engine_runner_opts(e).max_logits;
    return by_device_draws(e->dev) ? by_scratch_draws(n, e->model->cfg.vocab_size, most_edits(n), BY_SPEC_TOP_FAR) : 0;
}

by_status by_engine_reserve_draws(by_engine *e, by_err *err) {
    int32_t n = by_engine_runner_opts(e).max_logits;
    if (!by_device_draws(e->dev)) return BY_OK;
    int64_t logits = (int64_t)n * e->model->cfg.vocab_size * 4; /* what the host looks at itself; of many rows a part, the rest on demand */
    BY_TRY(by_mem_view_room(by_runner_logits(e->runner).mem, (size_t)(logits < VIEW_BYTES ? logits : VIEW_BYTES), err));
    return by_device_draw_room(e->dev, n, e->model->cfg.vocab_size, most_edits(n), BY_SPEC_TOP_FAR, err);
}

/* Buffers of steps with the longest context there may be, and what the operators take on a device with memory
 * of its own. */
static int64_t buffer_bytes(const by_engine *e) {
    by_runner_opts run = by_engine_runner_opts(e);
    run.max_context = longest(e);
    int64_t scratch = by_device_draws(e->dev) ? by_runner_scratch_bytes(e->model, &run) : 0, draws = draw_bytes(e);
    if (draws > scratch) scratch = draws; /* one after the other */
    return by_runner_bytes(e->model, &run) + scratch;
}

by_status by_engine_reserve_memory(by_engine *e, int64_t *bytes, by_err *err) {
    by_kv_layout layout;
    by_kv_opts pool = {0};
    int64_t limit = by_device_room_get(e->dev).limit;
    if (limit == 0) return BY_OK;
    BY_TRY(by_model_kv_layout(&layout, e->model, backtrack(e), err));
    choose_sizes(e, limit / 4, &layout, &pool);
    int64_t least = e->opts.kv_blocks ? pool.n_blocks : e->opts.max_context ? by_kv_blocks_for(e->opts.max_context) : 1;
    if (pool.n_blocks < least) pool.n_blocks = (int32_t)least; /* more than a quarter, then */
    *bytes += cache_bytes(&layout, &pool) + buffer_bytes(e);
    return BY_OK;
}

by_status by_engine_size_caches(by_engine *e, by_kv_layout *layout, by_kv_opts *pool, by_err *err) {
    by_device_room room = by_device_room_get(e->dev);
    int64_t left = room.limit ? room.limit - room.used - buffer_bytes(e) : 0;
    if (room.limit && left < 1)
        return BY_FAIL(err, BY_ENOMEM, "device memory: %lld bytes hold the weights (%lld) and no caches", (long long)room.limit,
                       (long long)room.used);
    *pool = (by_kv_opts){0};
    BY_TRY(by_model_kv_layout(layout, e->model, backtrack(e), err));
    if (room.limit) choose_sizes(e, room.limit / 4, layout, pool); /* slots as planned; what is left over is for more blocks */
    return size_caches(e, left, layout, pool, err);
}

by_status by_engine_create_caches(by_engine *e, const by_kv_layout *layout, const by_kv_opts *pool, by_err *err) {
    by_status status = by_kv_create(&e->kv, e->dev, layout, pool, err);
    if (status != BY_ENOMEM || by_device_room_get(e->dev).limit) return status;
    return by_err_prefix(err, "%d KV blocks (--kv-blocks) and %d state slots (--state-slots) need %lld bytes, the host has %lld free: ",
                         pool->n_blocks, pool->n_slots, (long long)cache_bytes(layout, pool), (long long)available_memory());
}
