/* engine_runs.c - see engine_runs.h. */
#include "support/engine_runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "support/golden.h"

by_engine_opts by_run_engine_opts(int32_t n_threads, int64_t context, int32_t n_blocks, int32_t n_seqs, int32_t n_rows) {
    by_engine_opts o = by_engine_opts_default();
    o.model_dir = by_golden_path("model/tiny_a/checkpoint");
    o.device.n_threads = n_threads;
    o.max_context = context;
    o.kv_blocks = n_blocks;
    o.ram_bytes = 1 << 30;
    o.sched.max_seqs = n_seqs;
    o.sched.max_rows = n_rows;
    return o;
}

by_engine *by_run_open(const by_engine_opts *o) {
    by_engine *e;
    by_err err;
    by_status s = by_engine_open(&e, o, &err);
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
    return e;
}

by_request *by_run_submit(by_engine *e, const by_request_opts *o) {
    by_request *r;
    by_err err;
    by_status s = by_engine_submit(e, o, &r, &err);
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
    return r;
}

void by_run_random_tokens(by_rng *rng, int32_t *tokens, int32_t n, const by_engine *e) {
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)by_rng_below(rng, (uint64_t)by_engine_model(e)->cfg.vocab_size);
}

by_request_opts by_run_request(const int32_t *tokens, int32_t n_tokens, int32_t max_tokens, uint64_t seed) {
    by_request_opts o = by_request_opts_default();
    o.tokens = tokens;
    o.n_tokens = n_tokens;
    o.max_tokens = max_tokens;
    o.sampling.seed = seed;
    o.sampling.law.temperature = seed ? 1.0f : 0;
    o.sampling.eos_id = -1;
    o.ignore_eos = true;
    o.n_top = BY_RUN_TOP;
    o.plain_logprobs = true;
    return o;
}

void by_run_read(by_run_result *out, by_request *r) {
    by_event ev;
    by_status status;
    memset(out, 0, sizeof *out);
    while ((status = by_request_next(r, &ev, 60000)) == BY_OK) {
        int32_t c = ev.choice, at = out->n[c];
        if (ev.finish != BY_CHOICE_RUNNING) out->finish[c] = ev.finish;
        if (ev.finish == BY_CHOICE_ERROR) by_request_error(r, &out->err);
        if (ev.token < 0 || at == BY_RUN_TOKENS) continue;
        out->tokens[c][at] = ev.token;
        out->logprobs[c][at] = ev.logprob;
        if (ev.n_top) memcpy(out->top[c][at], ev.top, (size_t)ev.n_top * sizeof *ev.top);
        out->n[c]++;
    }
    out->stuck = status != BY_END;
    out->info = by_request_info_get(r);
    by_request_release(r);
}

bool by_run_same(const char *what, const by_run_result *a, const by_run_result *b) {
    for (int c = 0; c < BY_RUN_CHOICES; c++) {
        for (int32_t i = 0; i < a->n[c] && i < b->n[c]; i++) {
            bool same = a->tokens[c][i] == b->tokens[c][i] && memcmp(&a->logprobs[c][i], &b->logprobs[c][i], sizeof(float)) == 0 &&
                        memcmp(a->top[c][i], b->top[c][i], sizeof a->top[c][i]) == 0;
            if (same) continue;
            fprintf(stderr, "%s: choice %d, token %d: %d (%.9g) and %d (%.9g)\n", what, c, i, a->tokens[c][i], (double)a->logprobs[c][i],
                    b->tokens[c][i], (double)b->logprobs[c][i]);
            return false;
        }
        if (a->n[c] == b->n[c] && a->finish[c] == b->finish[c]) continue;
        fprintf(stderr, "%s: choice %d: %d tokens, end %d (%s) and %d tokens, end %d (%s)\n", what, c, a->n[c], a->finish[c], a->err.msg,
                b->n[c], b->finish[c], b->err.msg);
        return false;
    }
    return true;
}

by_engine_stats by_run_stats_at_rest(by_engine *e) {
    by_engine_stats s = by_engine_stats_get(e);
    for (int i = 0; i < 12000 && (s.blocks_used || s.slots_used || s.sched.n_running || s.sched.n_waiting || s.sched.n_swapped); i++) {
        nanosleep(&(struct timespec){0, 5000000}, NULL);
        s = by_engine_stats_get(e);
    }
    return s;
}
