/* bench_dummy.c - `bathyc bench --dummy`: decode and prefill of a model of which only config.json is at hand. Weights are made
 * up on the device; caches are filled with made-up records and sequences stand at a given depth. Times are of whole steps,
 * queued one behind the other as an engine does; beside them what must be read from memory - the weights, with the experts
 * that were really chosen, and the caches - at the read rate measured in the same run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "model/footprint.h"
#include "model/runner.h"
#include "model/traffic.h"

enum { LIST_MAX = 16, WARM = 2 };

typedef struct {
    by_model_flags flags;
    by_flag_list seqs, depths, prompts;
    int64_t steps, rounds;
    uint64_t seed;
    by_device *dev;
    by_model *model;
    double read_bytes_s;
} bench;

/* One model state under measurement. */
typedef struct {
    by_kv *kv;
    by_runner *runner;
    by_kv_seq *seqs;
    by_step_seq *step;
    int32_t *tokens; /* shared; sequence s starts at s * STRIDE */
    int32_t n_seqs;
    int32_t layer_experts; /* distinct experts over all layers of the counted step */
    int32_t *loads;        /* [layers, experts] choices of the counted step; NULL: not wanted */
    by_err *err;
} state;

enum { STRIDE = 97 };

/* Bytes that are sane as codes and as scales of every record format. */
static by_status fill_caches(const bench *b, by_kv *kv, by_err *err) {
    enum { PART = 1 << 20 };
    unsigned char *host = by_alloc(BY_MEM_MISC, PART);
    if (!host) return BY_FAIL(err, BY_ENOMEM, "out of memory for made-up records");
    by_rng rng = {b->seed};
    for (int i = 0; i < PART; i++) host[i] = (unsigned char)(0x28 + by_rng_below(&rng, 24));
    by_mem *mems[2] = {by_kv_slot_mem(kv), by_kv_block_mem(kv)};
    by_mem *part = NULL;
    by_status status = by_mem_alloc(&part, b->dev, PART, err);
    if (status == BY_OK) status = by_mem_write(part, 0, host, PART, err);
    for (int i = 0; i < 2 && status == BY_OK; i++) {
        size_t bytes = mems[i] ? by_mem_bytes(mems[i]) : 0;
        for (size_t at = 0; at < bytes && status == BY_OK; at += PART)
            status = by_mem_copy(mems[i], at, part, 0, bytes - at < PART ? bytes - at : PART, err);
    }
    by_mem_free(part);
    by_free(host);
    return status;
}

static void state_close(state *s) {
    for (int32_t i = 0; s->seqs && s->kv && i < s->n_seqs; i++) by_kv_seq_deinit(&s->seqs[i], s->kv);
    by_runner_destroy(s->runner);
    by_kv_destroy(s->kv);
    by_free(s->seqs);
    by_free(s->step);
    by_free(s->tokens);
    by_free(s->loads);
    *s = (state){0};
}

/* n sequences with room for `context` tokens, steps of up to `rows` rows. */
static by_status state_open(state *s, const bench *b, int32_t n, int64_t context, int32_t rows, by_err *err) {
    *s = (state){.n_seqs = n};
    int64_t n_tokens = context + (int64_t)n * STRIDE;
    by_kv_layout layout;
    BY_TRY(by_model_kv_layout(&layout, b->model, 6, err));
    by_kv_opts pool = {.n_blocks = (int32_t)(by_kv_blocks_for(context) * n), .n_slots = n};
    BY_TRY(by_kv_create(&s->kv, b->dev, &layout, &pool, err));
    by_runner_opts run = {.max_rows = rows, .max_seqs = n, .max_logits = n, .max_context = context};
    BY_TRY(by_runner_create(&s->runner, b->model, s->kv, &run, err));
    s->seqs = by_alloc_zero(BY_MEM_MISC, (size_t)n * sizeof *s->seqs);
    s->step = by_alloc_zero(BY_MEM_MISC, (size_t)n * sizeof *s->step);
    s->tokens = by_alloc(BY_MEM_MISC, (size_t)n_tokens * 4);
    if (!s->seqs || !s->step || !s->tokens) return BY_FAIL(err, BY_ENOMEM, "out of memory for %d sequences", n);
    by_rng rng = {b->seed + 1};
    for (int64_t i = 0; i < n_tokens; i++) s->tokens[i] = (int32_t)by_rng_below(&rng, (uint64_t)b->model->cfg.vocab_size);
    for (int32_t i = 0; i < n; i++) {
        BY_TRY(by_kv_seq_init(&s->seqs[i], s->kv, context, err));
        BY_TRY(by_kv_seq_reserve(&s->seqs[i], s->kv, context, err));
        s->step[i] = (by_step_seq){.kv = &s->seqs[i], .tokens = s->tokens + (size_t)i * STRIDE, .n_rows = 1, .want = BY_WANT_LAST};
    }
    return fill_caches(b, s->kv, err);
}

/* Tap of the counted step: distinct experts of the layer before. */
static by_status count_experts(void *arg, int32_t layer, by_tensor h, by_err *err) {
    state *s = arg;
    (void)h;
    if (layer == 0) return BY_OK;
    by_tensor idx = by_runner_routing(s->runner);
    size_t n = (size_t)(idx.rows * idx.cols);
    int32_t *host = by_alloc(BY_MEM_MISC, n * 4);
    bool *seen = by_alloc_zero(BY_MEM_MISC, BY_LIMIT_EXPERTS);
    by_status status = BY_OK;
    if (!host || !seen) status = BY_FAIL(err, BY_ENOMEM, "out of memory for %zu choices", n);
    if (status == BY_OK) status = by_mem_read(host, idx.mem, (size_t)idx.off, n * 4, err);
    for (size_t i = 0; status == BY_OK && i < n; i++) {
        if (host[i] < 0 || host[i] >= BY_LIMIT_EXPERTS) continue;
        if (s->loads) s->loads[(int64_t)(layer - 1) * BY_LIMIT_EXPERTS + host[i]]++;
        if (seen[host[i]]) continue;
        seen[host[i]] = true;
        s->layer_experts++;
    }
    by_free(host);
    by_free(seen);
    return status;
}

/* Waits for the device, and asks what has become of the steps. */
static by_status drain(const state *s, by_err *err) {
    float x;
    by_tensor l = by_runner_logits(s->runner);
    BY_TRY(by_mem_read(&x, l.mem, (size_t)l.off, 4, err));
    return by_runner_problem(s->runner, err);
}

/* Bytes of the caches that one decode step of a sequence of n tokens reads. */
static double cache_bytes(const by_model *m, int64_t n) {
    const by_config *c = &m->cfg;
    by_kv_spec spec;
    by_config_kv_spec(&spec, c, m->quant, 6);
    double main = (double)by_rec_bytes(spec.main_rec, c->head_dim), ring = (double)by_rec_bytes(spec.ring_rec, c->head_dim);
    double key = (double)by_rec_bytes(spec.index_rec, c->index_head_dim), sum = 0;
    for (int l = 0; l < c->n_layers; l++) {
        const by_layer *k = &c->layers[l];
        sum += ring * (double)(n < c->window ? n : c->window);
        if (k->ratio == 0) continue;
        int64_t entries = n / k->ratio, inside = (int64_t)c->candidate_topk_blocks * c->candidate_block_size;
        sum += main * (double)(entries < c->index_topk ? entries : c->index_topk);
        if (k->is_index_source) sum += key * (double)(k->uses_candidates && entries > inside ? inside : entries);
    }
    return sum;
}

static by_status run_decode(const bench *b, int32_t n, int64_t depth, by_err *err) {
    state s = {0};
    by_status status = state_open(&s, b, n, depth + b->steps + WARM + 2, n, err);
    for (int32_t i = 0; status == BY_OK && i < n; i++) s.seqs[i].n_tokens = depth;
    if (status == BY_OK) {
        by_runner_set_tap(s.runner, count_experts, &s);
        status = by_runner_step(s.runner, s.step, n, err);
        by_runner_set_tap(s.runner, NULL, NULL);
    }
    for (int i = 0; status == BY_OK && i < WARM; i++) status = by_runner_step(s.runner, s.step, n, err);
    if (status == BY_OK) status = drain(&s, err);
    int64_t t0 = by_clock_ns(), queued = 0;
    for (int64_t i = 0; status == BY_OK && i < b->steps; i++) status = by_runner_step(s.runner, s.step, n, err);
    queued = by_clock_ns();
    if (status == BY_OK) status = drain(&s, err);
    if (status == BY_OK) {
        double ms = (double)(by_clock_ns() - t0) * 1e-6 / (double)b->steps, host = (double)(queued - t0) * 1e-6 / (double)b->steps;
        const by_config *c = &b->model->cfg;
        double bytes = by_model_traffic_used(b->model, n, n, s.layer_experts), kv = cache_bytes(b->model, depth) * n;
        double floor_ms = (bytes + kv) / b->read_bytes_s * 1e3;
        printf("decode  %6d %9lld %10.3f %10.3f %9.1f %9.1f %10.3f %8.3f %9.0f\n", n, (long long)depth, ms, host,
               (double)s.layer_experts / c->n_layers, (bytes + kv) * 1e-9, floor_ms, floor_ms / ms, n / ms * 1e3);
        fflush(stdout);
    }
    state_close(&s);
    return status;
}

/* One round: experts that got more than their share become less likely, others more. */
static by_status shift_biases(const bench *b, const state *s, double rate, by_err *err) {
    float bias[BY_LIMIT_EXPERTS];
    for (int32_t l = 0; l < b->model->cfg.n_layers; l++) {
        const by_tensor *t = &b->model->w.layers[l].bias;
        const int32_t *load = s->loads + (int64_t)l * BY_LIMIT_EXPERTS;
        if (!t->mem) continue;
        double share = 0;
        for (int64_t e = 0; e < t->cols; e++) share += (double)load[e] / (double)t->cols;
        BY_TRY(by_mem_read(bias, t->mem, (size_t)t->off, (size_t)t->cols * 4, err));
        for (int64_t e = 0; e < t->cols; e++) bias[e] -= (float)(load[e] > share ? rate : load[e] < share ? -rate : 0);
        BY_TRY(by_mem_write(t->mem, (size_t)t->off, bias, (size_t)t->cols * 4, err));
    }
    return BY_OK;
}

/* Made-up hidden states have much in common, so that made-up routers send most tokens to the same experts. Training without an
 * auxiliary loss balances experts by their biases (model.md 8); so does this, over steps of 256 sequences, each round by less. */
static by_status balance(const bench *b, by_err *err) {
    enum { SEQS = 256, DEPTH = 256 };
    const double first = 0.3, last = 5e-4;
    state s = {0};
    size_t loads = (size_t)b->model->cfg.n_layers * BY_LIMIT_EXPERTS * sizeof *s.loads;
    by_status status = state_open(&s, b, SEQS, DEPTH + 2, SEQS, err);
    s.loads = by_alloc(BY_MEM_MISC, loads);
    if (status == BY_OK && !s.loads) status = BY_FAIL(err, BY_ENOMEM, "out of memory for the experts' loads");
    if (status == BY_OK) by_runner_set_tap(s.runner, count_experts, &s);
    for (int64_t round = 0; status == BY_OK && round < b->rounds; round++) {
        memset(s.loads, 0, loads);
        for (int32_t i = 0; i < SEQS; i++) s.seqs[i].n_tokens = DEPTH;
        status = by_runner_step(s.runner, s.step, SEQS, err);
        if (status == BY_OK) status = shift_biases(b, &s, first * pow(last / first, (double)round / (double)b->rounds), err);
    }
    state_close(&s);
    return status;
}

static by_status run_prefill(const bench *b, int64_t n, by_err *err) {
    state s = {0};
    int64_t chunk = b->flags.chunk ? b->flags.chunk : n, best = INT64_MAX;
    if (chunk > n) chunk = n;
    by_status status = state_open(&s, b, 1, n, (int32_t)chunk, err);
    for (int round = 0; status == BY_OK && round < 3; round++) {
        by_kv_seq_clear(&s.seqs[0], s.kv);
        status = by_kv_seq_reserve(&s.seqs[0], s.kv, n, err);
        int64_t t0 = by_clock_ns();
        while (status == BY_OK && s.seqs[0].n_tokens < n) {
            int64_t left = n - s.seqs[0].n_tokens;
            s.step[0].n_rows = (int32_t)(left < chunk ? left : chunk);
            s.step[0].want = left <= chunk ? BY_WANT_LAST : BY_WANT_NONE;
            status = by_runner_step(s.runner, s.step, 1, err);
        }
        if (status == BY_OK) status = drain(&s, err);
        int64_t t = by_clock_ns() - t0;
        if (round > 0 && t < best) best = t;
    }
    if (status == BY_OK) {
        double flops = by_model_traffic(b->model, n, 1).flops;
        printf("prefill %6d %9lld %10.3f %60s %9.0f tokens/s, %.0f TFLOP/s of products with weights\n", 1, (long long)n,
               (double)best * 1e-6, "", (double)n / (double)best * 1e9, flops / (double)best * 1e-3);
        fflush(stdout);
    }
    state_close(&s);
    return status;
}

static by_status run_all(bench *b, by_err *err) {
    int64_t seqs[LIST_MAX], depths[LIST_MAX], prompts[LIST_MAX];
    int n_seqs = by_bench_numbers(&b->seqs, "1", seqs, LIST_MAX, err);
    int n_depths = by_bench_numbers(&b->depths, "1024", depths, LIST_MAX, err);
    int n_prompts = by_bench_numbers(&b->prompts, "0", prompts, LIST_MAX, err);
    if (n_seqs < 0 || n_depths < 0 || n_prompts < 0) return BY_EINVAL;
    BY_TRY(by_device_read_rate(b->dev, &b->read_bytes_s, err));
    if (b->rounds) BY_TRY(balance(b, err));
    printf("%s, numerics %s, %d layers, read rate %.0f GB/s\n\n", by_device_name(b->dev), by_numerics_name(b->model->numerics),
           b->model->cfg.n_layers, b->read_bytes_s * 1e-9);
    printf("%-7s %6s %9s %10s %10s %9s %9s %10s %8s %9s\n", "test", "seqs", "depth", "ms a step", "host ms", "experts", "GB", "floor ms",
           "of floor", "tokens/s");
    for (int d = 0; d < n_depths; d++) {
        for (int i = 0; i < n_seqs; i++) {
            if (seqs[i] < 1 || seqs[i] > BY_LIMIT_SEQS)
                return BY_FAIL(err, BY_EINVAL, "%lld sequences: outside 1..%d", (long long)seqs[i], BY_LIMIT_SEQS);
            if (depths[d] < 1 || depths[d] + b->steps + WARM + 2 > b->model->cfg.max_positions)
                return BY_FAIL(err, BY_EINVAL, "a depth of %lld tokens does not fit the model's context", (long long)depths[d]);
            BY_TRY(run_decode(b, (int32_t)seqs[i], depths[d], err));
        }
    }
    for (int i = 0; i < n_prompts; i++)
        if (prompts[i]) BY_TRY(run_prefill(b, prompts[i], err));
    return BY_OK;
}

int by_bench_dummy(int argc, char **argv) {
    bench b = {.flags = by_model_flags_default(), .steps = 16};
    const by_flag flags[] = {
        BY_MODEL_FLAG_ROWS(b.flags),
        {.names = "--n-seqs,-s", .kind = BY_FLAG_LIST, .out = &b.seqs, .help = "sequences of a decode step, e.g. 1,16,64 (default 1)"},
        {.names = "--n-depth,-d", .kind = BY_FLAG_LIST, .out = &b.depths, .help = "tokens in the caches of each (default 1024)"},
        {.names = "--n-prompt,-p", .kind = BY_FLAG_LIST, .out = &b.prompts, .help = "prompt lengths to prefill (default none)"},
        {.names = "--steps", .kind = BY_FLAG_INT, .out = &b.steps, .min = 1, .max = 4096, .help = "timed decode steps (default 16)"},
        {.names = "--balance", .kind = BY_FLAG_INT, .out = &b.rounds, .min = 0, .max = 4096,
         .help = "rounds that shift the routers' biases until experts are used alike, e.g. 100 (default 0)"},
        {.names = "--seed", .kind = BY_FLAG_UINT64, .out = &b.seed, .help = "of weights, caches and tokens"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench --dummy", "[flags]",
                            "Times steps of the configuration in the model's folder (config.json alone is read) with made-up weights.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err = {0};
    by_buf dir = {0};
    by_solo_opts o;
    by_status status = by_model_flags_opts(&o, &b.flags, &err);
    o.model.dummy = true;
    o.model.seed = b.seed;
    if (status == BY_OK) status = by_command_model_dir(&dir, b.flags.model, &err);
    if (status == BY_OK) status = by_device_open(&b.dev, &o.device, &err);
    if (status == BY_OK) status = by_model_open(&b.model, dir.ptr, b.dev, &o.model, &err);
    if (status == BY_OK) status = run_all(&b, &err);
    if (status < 0) fprintf(stderr, "bathyc bench: %s\n", err.msg);
    by_model_close(b.model);
    by_device_close(b.dev);
    by_buf_deinit(&dir);
    by_args_free(flags, n_flags);
    return status < 0 ? by_model_exit_code(status) : 0;
}
