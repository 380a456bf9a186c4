/* engine_cache.c - blocks, slots, prefix hits, swaps and snapshots: the scheduler's pool over the real caches.
 *
 * Decisions are made here on the scheduler thread; the copies that follow from them are queued on the job being made and
 * run on the device thread, in order with the steps. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine_impl.h"

by_move *by_moves_add(by_moves *m) {
    if (m->n == m->cap) {
        int32_t cap = m->cap ? m->cap * 2 : 16;
        by_move *fresh = by_realloc(BY_MEM_KV, m->items, (size_t)cap * sizeof *fresh);
        if (!fresh) return NULL;
        m->items = fresh;
        m->cap = cap;
    }
    m->items[m->n] = (by_move){0};
    return &m->items[m->n++];
}

static int64_t layout_slot(const by_engine *e) { return by_kv_layout_of(e->kv)->slot_bytes; }
static int64_t layout_block(const by_engine *e) { return by_kv_layout_of(e->kv)->block_bytes; }

/* ---- snapshots ---- */

static by_snapshot *find_snapshot(by_engine *e, const by_kv_key *key) {
    for (int32_t i = 0; i < e->n_snapshots; i++) {
        by_snapshot *s = &e->snapshots[i];
        if (s->used && s->ready && memcmp(&s->key, key, sizeof *key) == 0) return s;
    }
    return NULL;
}

/* An empty place, or the least recently used one that nobody restores from. */
static by_snapshot *place_for_snapshot(by_engine *e) {
    by_snapshot *best = NULL;
    bool room = e->host_bytes + layout_slot(e) <= e->host_bytes_max;
    for (int32_t i = 0; i < e->n_snapshots; i++) {
        by_snapshot *s = &e->snapshots[i];
        if (s->busy || (!s->bytes && !room)) continue;
        if (!best || s->used < best->used) best = s;
    }
    if (!best) return NULL;
    if (!best->bytes) {
        best->bytes = by_alloc(BY_MEM_KV, (size_t)layout_slot(e));
        if (!best->bytes) return NULL;
        e->host_bytes += layout_slot(e);
    }
    return best;
}

/* Drops snapshots, least recently used first, until n_bytes more fit. A swap lets a sequence go on, a snapshot only saves time.
 * Where even that is not enough a swap may still be due: see by_engine.must_swap. */
static bool make_host_room(by_engine *e, int64_t n_bytes) {
    while (e->host_bytes + n_bytes > e->host_bytes_max) {
        by_snapshot *oldest = NULL;
        for (int32_t i = 0; i < e->n_snapshots; i++) {
            by_snapshot *s = &e->snapshots[i];
            if (s->bytes && !s->busy && (!oldest || s->used < oldest->used)) oldest = s;
        }
        if (!oldest) return e->must_swap;
        e->stats.n_snapshots_dropped += oldest->ready;
        by_free(oldest->bytes);
        *oldest = (by_snapshot){0};
        e->host_bytes -= layout_slot(e);
    }
    return true;
}

static bool takes_snapshots(const by_engine *e) {
    return e->opts.prefix_cache && e->n_snapshots > 0 &&
           (e->opts.restore == BY_RESTORE_AUTO || e->opts.restore == BY_RESTORE_FULL || e->opts.restore == BY_RESTORE_LOAD);
}

/* Saves the slot of s when the job brings its computed tokens to n_tokens (a multiple of the block size) or just beyond: what drafts
 * wrote behind them lies where the ring has room to spare. */
void by_engine_want_snapshot(by_engine *e, by_seq *s, int64_t n_tokens, by_job *job, int32_t row) {
    if (!takes_snapshots(e) || s->request->opts.prompt_logprobs) return;
    /* Behind the boundary the rings are right from the cut on only: rows in front of keep_from never went there, and what lies in
     * the slot is another request's. BY_RESTORE_LOAD takes the rings in front of the boundary alone. */
    if (e->opts.restore != BY_RESTORE_LOAD && s->keep_from > 0 && n_tokens < s->sched.cut) return;
    int64_t n = n_tokens / BY_KV_BLOCK_TOKENS;
    if (n < 1 || (n <= s->n_keys && find_snapshot(e, &s->keys[n - 1]))) return;
    by_snapshot *place = place_for_snapshot(e);
    by_move *m = place ? by_moves_add(&job->after) : NULL;
    if (!m) return;
    *m = (by_move){.kind = BY_COPY_SNAPSHOT, .from_slot = s->kv.slot, .seq = s, .n_tokens = n_tokens, .row = row,
                   .was_ready = place->ready, .was_used = place->used};
    place->used = ++e->tick;
    place->ready = false;
    place->busy = 1;
    m->saved.bytes = place->bytes;
    s->in_flight++;
}

/* Keys of the full blocks that the known tokens fill. */
static void extend_keys(by_engine *e, by_seq *s, int64_t n_tokens) {
    int32_t n = (int32_t)(n_tokens / BY_KV_BLOCK_TOKENS);
    if (!s->keys || n <= s->n_keys) return;
    by_kv_key_chain(s->keys + s->n_keys, s->n_keys ? &s->keys[s->n_keys - 1] : &e->root, s->tokens, s->n_keys, n - s->n_keys);
    s->n_keys = n;
}

static by_snapshot *snapshot_at(by_engine *e, const unsigned char *bytes) {
    for (int32_t i = 0; i < e->n_snapshots; i++)
        if (e->snapshots[i].bytes == bytes) return &e->snapshots[i];
    return NULL;
}

/* After a job: its sequences are no longer held by its copies; snapshots get their keys, which the last token's commit has
 * made known. */
void by_engine_moves_done(by_engine *e, by_job *job) {
    by_moves *both[] = {&job->before, &job->after};
    for (int b = 0; b < 2; b++) {
        for (int32_t k = 0; k < both[b]->n; k++) {
            by_move *m = &both[b]->items[k];
            m->seq->in_flight--;
            if (m->kind != BY_COPY_SNAPSHOT && m->kind != BY_COPY_RESTORE) continue;
            by_snapshot *s = snapshot_at(e, m->saved.bytes);
            s->busy--;
            if (m->kind == BY_COPY_RESTORE) continue;
            if (m->missed) { /* the old one is whole, unless another of its key has come meanwhile */
                s->ready = m->was_ready && !find_snapshot(e, &s->key);
                s->used = s->ready ? m->was_used : 0;
                continue;
            }
            e->stats.n_snapshots_replaced += m->was_ready;
            bool taken = m->status == BY_OK;
            if (taken && !m->seq->ended) extend_keys(e, m->seq, m->n_tokens);
            int64_t n = m->n_tokens / BY_KV_BLOCK_TOKENS;
            s->ready = taken && n <= m->seq->n_keys && !find_snapshot(e, &m->seq->keys[n - 1]);
            if (s->ready) s->key = m->seq->keys[n - 1];
            else s->used = 0;
            e->stats.n_snapshots += s->ready;
        }
    }
}

/* ---- prefix hits ---- */

static int64_t even_down(int64_t n) { return n > 0 ? n & ~(int64_t)1 : 0; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* First position with decoder rows of a prompt of len tokens; hs = where a snapshot is to be taken (its rings must be exact
 * too), 0 = none. */
static int64_t keep_from(const by_engine *e, const by_seq *s, int64_t len, int64_t hs) {
    if (e->opts.trunc == BY_TRUNC_OFF || e->model->boundary < 0 || s->request->opts.prompt_logprobs) return 0;
    int64_t ring = by_kv_layout_of(e->kv)->ring_len;
    int64_t from = e->opts.keep ? len - (e->opts.keep > ring ? e->opts.keep : ring) : (hs ? hs : len) - e->keep_exact;
    return from > 0 ? from : 0;
}

/* Longest run of leading blocks that the pool still has, at most `most`. */
static int32_t match(const by_engine *e, const by_seq *s, int32_t most) {
    int32_t n = 0;
    while (n < most && by_kv_block_find(e->kv, &s->keys[n]) > 0) n++;
    return n;
}

/* The snapshot that saves most, at or below `blocks` blocks; *at is its number of blocks. */
static by_snapshot *best_snapshot(by_engine *e, const by_seq *s, int32_t blocks, int32_t *at) {
    for (int32_t n = blocks; n > 0; n--) {
        by_snapshot *found = find_snapshot(e, &s->keys[n - 1]);
        if (!found) continue;
        *at = n;
        return found;
    }
    return NULL;
}

/* Where computing starts after a hit of h tokens without a full snapshot; -1 = the hit is of no use. */
static int64_t replay_start(const by_engine *e, const by_seq *s, int64_t h) {
    int64_t len = s->n_prompt;
    if (e->opts.restore == BY_RESTORE_REPLAY || e->opts.restore == BY_RESTORE_LOAD) {
        int64_t w = e->model->cfg.window, keep = e->opts.keep ? e->opts.keep : e->keep_exact;
        return h <= w ? -1 : even_down(least(h - w, len - keep));
    }
    int64_t from = s->keep_from ? s->keep_from : h - e->keep_exact; /* where decoder inputs must be exact */
    return even_down(least(h, from) - e->encoder_reach);
}

static void use_blocks(by_engine *e, by_seq *s, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t b = by_kv_block_find(e->kv, &s->keys[i]);
        by_kv_block_retain(e->kv, b);
        s->kv.blocks[s->kv.n_blocks++] = b;
    }
    s->n_published = n;
}

static void reuse_prefix(by_engine *e, by_seq *s) {
    const by_kv_layout *l = by_kv_layout_of(e->kv);
    int64_t hs = takes_snapshots(e) ? (int64_t)(s->n_prompt - 1) / BY_KV_BLOCK_TOKENS * BY_KV_BLOCK_TOKENS : 0;
    e->stats.n_prompt_tokens += (uint64_t)s->n_prompt;
    s->keep_from = keep_from(e, s, s->n_prompt, hs);
    s->sched.cut = hs;
    if (!e->opts.prefix_cache || s->request->opts.prompt_logprobs || !by_kv_block_mem(e->kv)) return;
    int32_t hit = match(e, s, (s->n_prompt - 1) / BY_KV_BLOCK_TOKENS), at = 0;
    if (hit == 0) return;
    int64_t start = -1;
    by_snapshot *snap = NULL;
    if (e->opts.restore != BY_RESTORE_EXACT_REPLAY && e->opts.restore != BY_RESTORE_REPLAY) {
        int32_t limit = hit;
        if (e->opts.restore == BY_RESTORE_LOAD) limit = (int32_t)(least(s->keep_from, hit * BY_KV_BLOCK_TOKENS) / BY_KV_BLOCK_TOKENS);
        snap = best_snapshot(e, s, limit, &at);
    }
    if (e->opts.restore == BY_RESTORE_FULL && !snap) return;
    if (e->opts.restore != BY_RESTORE_FULL) start = replay_start(e, s, (int64_t)hit * BY_KV_BLOCK_TOKENS);
    int64_t snap_at = (int64_t)at * BY_KV_BLOCK_TOKENS;
    if (snap && snap_at >= start) {
        by_move *m = by_moves_add(&e->making->before);
        if (!m) return;
        use_blocks(e, s, at);
        snap->used = ++e->tick;
        snap->busy++;
        size_t part = e->opts.restore == BY_RESTORE_LOAD ? (size_t)(e->model->boundary * l->ring_bytes) : (size_t)l->slot_bytes;
        *m = (by_move){.kind = BY_COPY_RESTORE, .to_slot = s->kv.slot, .seq = s, .saved = {.bytes = snap->bytes, .n_bytes = part}};
        s->in_flight++;
        s->sched.n_done = snap_at;
        e->stats.n_snapshot_hits++;
        e->stats.n_snapshot_hit_tokens += (uint64_t)snap_at;
    } else if (start >= 0) {
        use_blocks(e, s, hit);
        s->sched.n_done = start;
        s->valid_from = start;
        s->store_from = (int64_t)hit * BY_KV_BLOCK_TOKENS;
    } else {
        return;
    }
    int32_t cached = s->kv.n_blocks * BY_KV_BLOCK_TOKENS;
    pthread_mutex_lock(&s->request->lock);
    s->request->info.n_cached = cached;
    s->request->info.n_replayed = cached - (int32_t)s->sched.n_done;
    pthread_mutex_unlock(&s->request->lock);
    e->stats.n_hit_tokens += (uint64_t)cached;
    e->stats.n_replayed_rows += (uint64_t)(cached - s->sched.n_done);
}

/* ---- the scheduler's pool ---- */

static by_seq *seq_of(const by_sched_seq *s) { return (by_seq *)(uintptr_t)s; }

static int64_t pool_blocks_free(void *ctx) {
    by_engine *e = ctx;
    return by_kv_block_mem(e->kv) ? by_kv_blocks_free(e->kv) : INT32_MAX;
}

static int64_t pool_blocks_total(void *ctx) {
    by_engine *e = ctx;
    return by_kv_block_mem(e->kv) ? by_kv_n_blocks(e->kv) : INT32_MAX;
}

static int64_t pool_blocks_for(void *ctx, int64_t n_tokens) {
    by_engine *e = ctx;
    return by_kv_block_mem(e->kv) ? by_kv_blocks_for(n_tokens) : 0;
}

static int64_t pool_blocks_held(void *ctx, const by_sched_seq *s) {
    (void)ctx;
    return seq_of(s)->kv.n_blocks;
}

static bool pool_admit(void *ctx, by_sched_seq *sched) {
    by_engine *e = ctx;
    by_seq *s = seq_of(sched);
    if (s->parent) return false; /* it starts with its parent's state, not by itself */
    /* Room for its sisters too, unless it would be alone. */
    int32_t free_slots = by_kv_slots_free(e->kv);
    if (free_slots < s->request->opts.best_of && free_slots < by_kv_n_slots(e->kv)) return false;
    if (by_kv_seq_init(&s->kv, e->kv, s->sched.n_max, NULL) < 0) return false;
    s->holds = true;
    extend_keys(e, s, s->n_prompt);
    reuse_prefix(e, s);
    pthread_mutex_lock(&s->request->lock);
    if (s->request->info.start_us == 0) s->request->info.start_us = by_clock_ns() / 1000;
    pthread_mutex_unlock(&s->request->lock);
    return true;
}

static bool pool_grow(void *ctx, by_sched_seq *sched, int64_t n_tokens) {
    by_engine *e = ctx;
    by_seq *s = seq_of(sched);
    int64_t need = pool_blocks_for(e, n_tokens) - s->kv.n_blocks;
    if (need > pool_blocks_free(e)) return false;
    return by_kv_seq_reserve(&s->kv, e->kv, n_tokens, NULL) == BY_OK;
}

static bool pool_swap_out(void *ctx, by_sched_seq *sched) {
    by_engine *e = ctx;
    by_seq *s = seq_of(sched);
    size_t bytes = (size_t)(layout_slot(e) + s->kv.n_blocks * layout_block(e));
    int32_t *fresh = by_alloc(BY_MEM_KV, (size_t)s->kv.cap_blocks * 4);
    unsigned char *to = make_host_room(e, (int64_t)bytes) ? by_alloc(BY_MEM_KV, bytes) : NULL;
    by_move *m = fresh && to ? by_moves_add(&e->making->before) : NULL;
    if (!m) {
        by_free(fresh);
        by_free(to);
        return false;
    }
    e->host_bytes += (int64_t)bytes;
    /* The old table goes with the move: a job in flight may still read it. */
    s->swap = (by_saved){.bytes = to, .n_blocks = s->kv.n_blocks, .n_bytes = bytes};
    s->in_flight++;
    *m = (by_move){.kind = BY_COPY_SWAP_OUT, .from_slot = s->kv.slot, .seq = s,
                   .saved = {.bytes = to, .blocks = s->kv.blocks, .n_blocks = s->kv.n_blocks}};
    for (int32_t i = s->kv.n_blocks; i-- > 0;) by_kv_block_release(e->kv, s->kv.blocks[i]);
    by_kv_slot_release(e->kv, s->kv.slot);
    s->kv.blocks = fresh;
    s->kv.slot = s->kv.n_blocks = 0;
    s->n_published = 0; /* its blocks come back under other numbers */
    return true;
}

static bool pool_swap_in(void *ctx, by_sched_seq *sched) {
    by_engine *e = ctx;
    by_seq *s = seq_of(sched);
    int32_t n = s->swap.n_blocks;
    if (by_kv_slots_free(e->kv) < 1 || n > pool_blocks_free(e)) return false;
    by_move *m = by_moves_add(&e->making->before);
    int32_t *table = by_alloc(BY_MEM_KV, (size_t)(n ? n : 1) * 4);
    if (!m || !table) {
        if (m) e->making->before.n--;
        by_free(table);
        return false;
    }
    s->kv.slot = by_kv_slot_acquire(e->kv);
    while (s->kv.n_blocks < n) {
        s->kv.blocks[s->kv.n_blocks] = by_kv_block_acquire(e->kv);
        table[s->kv.n_blocks] = s->kv.blocks[s->kv.n_blocks];
        s->kv.n_blocks++;
    }
    s->in_flight++;
    *m = (by_move){.kind = BY_COPY_SWAP_IN, .to_slot = s->kv.slot, .seq = s,
                   .saved = {.bytes = s->swap.bytes, .blocks = table, .n_blocks = n, .n_bytes = s->swap.n_bytes}};
    e->host_bytes -= (int64_t)s->swap.n_bytes;
    s->swap = (by_saved){0}; /* the bytes belong to the move, which frees them */
    return true;
}

by_sched_pool by_engine_pool(by_engine *e) {
    return (by_sched_pool){.ctx = e, .blocks_free = pool_blocks_free, .blocks_for = pool_blocks_for,
                           .blocks_held = pool_blocks_held, .admit = pool_admit, .grow = pool_grow,
                           .swap_out = pool_swap_out, .swap_in = pool_swap_in,
                           .draft_rows = by_engine_draft_rows, .blocks_total = pool_blocks_total};
}

/* Gives a choice the state that its parent has after the job: full blocks shared, the last one and the slot copied. */
bool by_engine_fork(by_engine *e, by_seq *child, by_job *job) {
    by_seq *p = child->parent;
    int32_t full = (int32_t)(p->sched.n_done / BY_KV_BLOCK_TOKENS);
    bool partial = by_kv_block_mem(e->kv) && full < p->kv.n_blocks;
    if (by_kv_slots_free(e->kv) < 1 || by_kv_blocks_free(e->kv) < partial) return false;
    if (by_kv_seq_init(&child->kv, e->kv, child->sched.n_max, NULL) < 0) return false;
    child->holds = true;
    by_move *m = by_moves_add(&job->after);
    if (!m) return false;
    for (int32_t i = 0; i < full && i < p->kv.n_blocks; i++) {
        by_kv_block_retain(e->kv, p->kv.blocks[i]);
        child->kv.blocks[child->kv.n_blocks++] = p->kv.blocks[i];
    }
    *m = (by_move){.kind = BY_COPY_FORK, .from_slot = p->kv.slot, .to_slot = child->kv.slot, .seq = child};
    child->in_flight++;
    if (partial) {
        m->from_block = p->kv.blocks[full];
        m->to_block = child->kv.blocks[child->kv.n_blocks++] = by_kv_block_acquire(e->kv);
    }
    child->keep_from = p->keep_from;
    child->valid_from = p->valid_from;
    child->store_from = p->store_from;
    child->n_published = full;
    child->n_keys = p->n_keys < full ? p->n_keys : full;
    if (child->keys && child->n_keys) memcpy(child->keys, p->keys, (size_t)child->n_keys * sizeof *p->keys);
    child->sched.n_done = p->sched.n_done;
    return true;
}

/* Makes the full blocks of the first n_tokens tokens, all of them computed, findable. */
void by_engine_publish(by_engine *e, by_seq *s, int64_t n_tokens) {
    if (!e->opts.prefix_cache || !s->holds || !by_kv_block_mem(e->kv) || s->request->opts.prompt_logprobs) return;
    extend_keys(e, s, n_tokens);
    int32_t n = (int32_t)(n_tokens / BY_KV_BLOCK_TOKENS);
    for (; s->n_published < n && s->n_published < s->kv.n_blocks; s->n_published++)
        by_kv_block_publish(e->kv, s->kv.blocks[s->n_published], &s->keys[s->n_published]);
}

void by_engine_release_seq(by_engine *e, by_seq *s) {
    if (s->swap.bytes) {
        e->host_bytes -= (int64_t)s->swap.n_bytes;
        by_free(s->swap.bytes);
        s->swap = (by_saved){0};
        by_free(s->kv.blocks);
        s->kv = (by_kv_seq){0};
    } else if (s->holds) {
        by_kv_seq_deinit(&s->kv, e->kv);
    }
    s->holds = false;
}
