/* bench_prefill.c - `bathyc bench prefill`: what decoder truncation and prefix reuse save of a long prompt. Five ways run in turns:
 * all rows (off); compact at the exact keep and at a given one, cold; and the same two with the first part of the prompt cached
 * (exact-replay, replay). Time is from submission to the first token. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/bench.h"
#include "cli/bench_report.h"
#include "cli/bench_requests.h"
#include "cli/command.h"
#include "json/json_write.h"

enum { REPEAT_MAX = 32 };

typedef enum { WAY_OFF, WAY_EXACT, WAY_KEEP, WAY_EXACT_CACHED, WAY_KEEP_CACHED, N_WAYS } way;
static const char *const names[] = {"off, cold", "compact exact, cold", "compact keep, cold", "compact exact, cached, exact-replay",
                                    "compact keep, cached, replay"};
static const char *const keys[] = {"off", "exact", "keep", "exact_cached", "keep_cached"};

typedef struct {
    by_engine_flags flags;
    int64_t n_prompt, n_cached, keep, repeat;
    bool json;
    by_engine *engines[3]; /* off, compact exact, compact keep */
    int32_t *tokens;
    by_rng rng;
    double s[N_WAYS][REPEAT_MAX];
    int32_t cached[N_WAYS], replayed[N_WAYS];
} bench;

static by_engine *engine_of(const bench *b, int w) { return b->engines[w > WAY_KEEP ? w - WAY_KEEP : w]; }

static void fresh_tokens(bench *b, int64_t from) {
    int32_t V = by_engine_model(b->engines[0])->cfg.vocab_size;
    for (int64_t i = from; i < b->n_prompt; i++) b->tokens[i] = (int32_t)by_rng_below(&b->rng, (uint64_t)V);
}

static by_status one_run(bench *b, int w, double *seconds, by_err *err) {
    bool cached = w > WAY_KEEP;
    fresh_tokens(b, 0);
    by_bench_run r = {.engine = engine_of(b, w), .n_requests = 1, .n_prompt = b->n_prompt, .n_gen = 1, .tokens = b->tokens};
    if (cached) { /* another prompt with the same beginning has been there before */
        BY_TRY(by_bench_requests_run(&r, err));
        fresh_tokens(b, b->n_cached);
    }
    BY_TRY(by_bench_requests_run(&r, err));
    *seconds = r.prefill_s;
    b->cached[w] = r.n_cached;
    b->replayed[w] = r.n_replayed;
    if (r.n_cached != (cached ? b->n_cached : 0))
        return BY_FAIL(err, BY_EINTERNAL, "%s: %d tokens were found in the cache", names[w], r.n_cached);
    return BY_OK;
}

static by_status open_engines(bench *b, by_err *err) {
    if (!b->flags.model.context) b->flags.model.context = b->n_prompt + 2;
    if (!b->flags.max_seqs) b->flags.max_seqs = 2;
    if (!b->flags.kv_blocks) b->flags.kv_blocks = 3 * by_kv_blocks_for(b->n_prompt + 2);
    for (int i = 0; i < 3; i++) {
        by_engine_opts o;
        BY_TRY(by_engine_flags_opts(&o, &b->flags, err));
        o.trunc = i == 0 ? BY_TRUNC_OFF : BY_TRUNC_COMPACT;
        o.keep = i == 2 ? (int32_t)b->keep : 0;
        o.restore = i == 2 ? BY_RESTORE_REPLAY : BY_RESTORE_EXACT_REPLAY;
        o.prefix_cache = true;
        BY_TRY(by_engine_open(&b->engines[i], &o, err));
    }
    return BY_OK;
}

static by_status run_all(bench *b, by_err *err) {
    double drop;
    if (b->n_cached % BY_KV_BLOCK_TOKENS || b->n_cached >= b->n_prompt)
        return BY_FAIL(err, BY_EINVAL, "--n-cached: %lld is no multiple of %d below the prompt's length", (long long)b->n_cached,
                       BY_KV_BLOCK_TOKENS);
    b->tokens = by_alloc(BY_MEM_MISC, (size_t)b->n_prompt * sizeof *b->tokens);
    if (!b->tokens) return BY_FAIL(err, BY_ENOMEM, "out of memory for %lld tokens", (long long)b->n_prompt);
    BY_TRY(open_engines(b, err));
    BY_TRY(one_run(b, WAY_EXACT, &drop, err)); /* warms up */
    for (int i = 0; i < b->repeat; i++)
        for (int w = 0; w < N_WAYS; w++) BY_TRY(one_run(b, (w + i) % N_WAYS, &b->s[(w + i) % N_WAYS][i], err));
    return BY_OK;
}

static void print_table(bench *b) {
    double off = by_bench_median(b->s[WAY_OFF], (int)b->repeat), keep = by_bench_median(b->s[WAY_KEEP], (int)b->repeat);
    printf("prompt of %lld tokens, keep %lld\n\n%-36s %8s %9s %9s %8s %10s\n", (long long)b->n_prompt, (long long)b->keep, "", "cached",
           "replayed", "s", "of off", "of compact");
    for (int w = 0; w < N_WAYS; w++) {
        double s = by_bench_median(b->s[w], (int)b->repeat);
        printf("%-36s %8d %9d %9.3f %8.3f %10.3f\n", names[w], b->cached[w], b->replayed[w], s, s / off, s / keep);
    }
}

static void print_json(bench *b) {
    by_buf out = {0};
    by_json_out o = by_bench_json_begin(&out, "prefill");
    by_json_out_member_int(&o, "threads", by_device_threads(by_engine_model(b->engines[0])->dev));
    by_json_out_member_int(&o, "n_prompt", b->n_prompt);
    by_json_out_member_int(&o, "n_cached", b->n_cached);
    by_json_out_member_int(&o, "keep", b->keep);
    by_json_out_key(&o, "seconds");
    by_json_out_object_begin(&o);
    for (int w = 0; w < N_WAYS; w++) {
        by_json_out_key(&o, keys[w]);
        by_json_out_array_begin(&o);
        for (int i = 0; i < b->repeat; i++) by_json_out_double(&o, b->s[w][i]);
        by_json_out_array_end(&o);
    }
    by_json_out_object_end(&o);
    by_bench_json_end(&o, &out);
}

int by_bench_prefill(int argc, char **argv) {
    bench b = {.flags = by_engine_flags_default(), .n_prompt = 2000, .n_cached = -1, .keep = 140, .repeat = 3, .rng = {42}};
    b.flags.draft_mode = BY_DRAFT_OFF; /* unless asked for */
    const by_flag flags[] = {
        BY_ENGINE_FLAG_ROWS(b.flags),
        {.names = "--n-prompt,-p", .kind = BY_FLAG_INT, .out = &b.n_prompt,
         .min = BY_KV_BLOCK_TOKENS + 1, .max = BY_LIMIT_CONTEXT - 2, .help = "tokens of the prompt (default: 2000)"},
        {.names = "--n-cached", .kind = BY_FLAG_INT, .out = &b.n_cached,
         .min = BY_KV_BLOCK_TOKENS, .max = BY_LIMIT_CONTEXT - 2, .help = "of them in the cache (default: 96 %)"},
        {.names = "--keep", .kind = BY_FLAG_INT, .out = &b.keep, .min = 1, .max = BY_LIMIT_CONTEXT,
         .help = "decoder rows kept by the approximate ways (default: 140)"},
        {.names = "--repetitions,-r", .kind = BY_FLAG_INT, .out = &b.repeat, .min = 1, .max = REPEAT_MAX,
         .help = "timed runs of each way (default: 3)"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &b.json, .help = "one JSON object instead of a table"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const by_usage usage = {"bench prefill", "[flags]", "Times a long prompt of random ids to its first token; the ways run in turns.\n"};
    int code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, NULL, 0, NULL, &code)) return code;
    if (b.n_cached < 0) b.n_cached = b.n_prompt * 24 / 25 / BY_KV_BLOCK_TOKENS * BY_KV_BLOCK_TOKENS;
    by_err err = {0};
    by_status status = run_all(&b, &err);
    if (status == BY_OK && b.json) print_json(&b);
    else if (status == BY_OK) print_table(&b);
    for (int i = 0; i < 3; i++) by_engine_close(b.engines[i]);
    by_free(b.tokens);
    by_args_free(flags, n_flags);
    by_engine_flags_deinit(&b.flags);
    return by_bench_exit(status, &err);
}
