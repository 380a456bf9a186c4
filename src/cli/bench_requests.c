/* bench_requests.c - see bench_requests.h. */
#include "cli/bench_requests.h"

#include <stdlib.h>

#include "base/alloc.h"

int by_bench_numbers(const by_flag_list *list, const char *fallback, int64_t *out, int max, by_err *err) {
    int n = 0;
    for (int i = 0; i < (list->n ? list->n : 1); i++) {
        const char *s = list->n ? list->items[i] : fallback;
        while (*s) {
            char *end;
            long long v = strtoll(s, &end, 10);
            if (end == s || v < 0 || v > BY_LIMIT_CONTEXT || n == max || (*end && *end != ','))
                return BY_FAIL(err, BY_EINVAL, "'%s' is not a list of at most %d numbers", s, max), -1;
            out[n++] = v;
            s = *end ? end + 1 : end;
        }
    }
    return n;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double by_bench_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static by_status submit(by_bench_run *r, int64_t i, int32_t *ids, by_request **out, by_err *err) {
    by_request_opts o = by_request_opts_default();
    int32_t V = by_engine_model(r->engine)->cfg.vocab_size;
    for (int64_t k = 0; r->rng && k < r->n_prompt; k++) ids[k] = (int32_t)by_rng_below(r->rng, (uint64_t)V);
    o.tokens = r->rng ? ids : r->tokens;
    o.n_tokens = (int32_t)r->n_prompt;
    o.max_tokens = (int32_t)r->n_gen;
    o.sampling.law.temperature = 0;
    o.sampling.eos_id = by_engine_model(r->engine)->cfg.eos_id;
    o.ignore_eos = true;
    o.grammar = r->n_grammars ? &r->grammars[i % r->n_grammars] : NULL;
    o.queue_cap = (int32_t)r->n_gen + 64; /* whoever waits for another request slows nobody, and a queue counts as full before it is */
    return by_engine_submit(r->engine, &o, out, err);
}

static by_status read_to_end(by_bench_run *r, by_request *q, int64_t *first_us, int64_t *end_us, by_err *err) {
    by_event ev;
    by_status status;
    while ((status = by_request_next(q, &ev, -1)) == BY_OK) {
        if (ev.finish != BY_CHOICE_ERROR) continue;
        status = by_request_error(q, err);
        return status < 0 ? status : BY_FAIL(err, BY_EINTERNAL, "a request failed without a reason");
    }
    by_request_info info = by_request_info_get(q);
    if (info.first_us > *first_us) *first_us = info.first_us;
    if (info.end_us > *end_us) *end_us = info.end_us;
    r->n_cached = info.n_cached;
    r->n_replayed = info.n_replayed;
    return BY_OK;
}

by_status by_bench_requests_run(by_bench_run *r, by_err *err) {
    by_request **q = by_alloc_zero(BY_MEM_MISC, (size_t)r->n_requests * sizeof *q);
    int32_t *ids = by_alloc(BY_MEM_MISC, (size_t)r->n_prompt * sizeof *ids);
    by_status status = q && ids ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for %lld requests", (long long)r->n_requests);
    int64_t first_us = 0, end_us = 0;
    for (int64_t i = 0; status == BY_OK && i < r->n_requests; i++) status = submit(r, i, ids, &q[i], err);
    int64_t start_us = status == BY_OK ? by_request_info_get(q[0]).submit_us : 0;
    for (int64_t i = 0; status == BY_OK && i < r->n_requests; i++) status = read_to_end(r, q[i], &first_us, &end_us, err);
    for (int64_t i = 0; q && i < r->n_requests; i++) by_request_release(q[i]);
    r->prefill_s = (double)(first_us - start_us) * 1e-6;
    r->decode_s = (double)(end_us - first_us) * 1e-6;
    by_free(q);
    by_free(ids);
    if (status == BY_OK && !by_engine_wait_idle(r->engine, 60000)) return BY_FAIL(err, BY_ETIMEOUT, "the engine does not come to rest");
    return status;
}
