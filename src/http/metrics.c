/* metrics.c - recording: relaxed additions on fixed cells. A reader sees each cell at some moment of the scrape, which
 * is all that Prometheus promises its users either; nothing is ordered by these cells, so relaxed is enough everywhere.
 */
#include "http/metrics.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "http/metrics_impl.h"

#define NS INT64_C(1)
#define US INT64_C(1000)
#define MS INT64_C(1000000)
#define S  INT64_C(1000000000)

/* Steps of about two keep the error of an estimated quantile below a factor that a graph shows anyway. FAST spans a
 * null backend (0.1 ms) to a starved stream (10 s), SLOW a cached short prompt to a night's answer. */
static const by_metrics_layout layout_fast = {21, 1e9, {100 * US, 250 * US,  500 * US, 1 * MS,   2 * MS,   3 * MS,
                                                        5 * MS,   7500 * US, 10 * MS,  15 * MS,  20 * MS,  30 * MS,
                                                        50 * MS,  75 * MS,   100 * MS, 150 * MS, 250 * MS, 500 * MS,
                                                        1 * S,    2500 * MS, 10 * S}};
static const by_metrics_layout layout_slow = {
    21, 1e9, {500 * US,  1 * MS, 2500 * US, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, 1 * S,
              2500 * MS, 5 * S,  10 * S,    25 * S, 60 * S,  120 * S, 300 * S, 600 * S,  1800 * S, 7200 * S}};
static const by_metrics_layout layout_tokens = {20, 1, {1,     2,      5,      10,     20,      50,     100,
                                                        200,   500,    1000,   2000,   5000,    10000,  20000,
                                                        50000, 100000, 200000, 500000, 1000000, 2000000}};

#define LAYOUT_FAST   &layout_fast
#define LAYOUT_SLOW   &layout_slow
#define LAYOUT_TOKENS &layout_tokens
static const by_metrics_layout *const layouts[BY_HIST_N] = {
#define ROW(id, name, layout, help) LAYOUT_##layout,
    BY_METRICS_HISTOGRAMS(ROW)
#undef ROW
};

const by_metrics_layout *by_metrics_layout_of(by_metrics_histogram h) { return layouts[h]; }

by_status by_metrics_create(by_metrics **out, const by_metrics_opts *opts, by_err *err) {
    by_metrics *m = by_alloc_zero(BY_MEM_HTTP, sizeof *m);
    if (!m) return BY_FAIL(err, BY_ENOMEM, "metrics: out of memory");
    m->vllm_names = opts->vllm_names;
    m->start_s = (int64_t)time(NULL);
    by_status status =
        by_metrics_set_model(m, opts->model_name ? opts->model_name : "", opts->max_context, opts->block_tokens, err);
    if (status != BY_OK) {
        by_metrics_destroy(m);
        return status;
    }
    *out = m;
    return BY_OK;
}

void by_metrics_destroy(by_metrics *m) {
    if (!m) return;
    by_free(m->model_name);
    by_free(m);
}

by_status by_metrics_set_model(by_metrics *m, const char *model_name, int64_t max_context, int32_t block_tokens,
                               by_err *err) {
    if (model_name) {
        char *copy = by_strndup(BY_MEM_HTTP, model_name, strlen(model_name));
        if (!copy) return BY_FAIL(err, BY_ENOMEM, "metrics: out of memory");
        by_free(m->model_name);
        m->model_name = copy;
    }
    m->max_context = max_context;
    m->block_tokens = block_tokens;
    return BY_OK;
}

void by_metrics_add(by_metrics *m, by_metrics_counter counter, uint64_t n) {
    atomic_fetch_add_explicit(&m->counter[counter], n, memory_order_relaxed);
}

void by_metrics_gauge_set(by_metrics *m, by_metrics_gauge gauge, int64_t value) {
    atomic_store_explicit(&m->gauge[gauge], value, memory_order_relaxed);
}

void by_metrics_gauge_add(by_metrics *m, by_metrics_gauge gauge, int64_t delta) {
    atomic_fetch_add_explicit(&m->gauge[gauge], delta, memory_order_relaxed);
}

void by_metrics_observe(by_metrics *m, by_metrics_histogram histogram, int64_t value) {
    const by_metrics_layout *layout = layouts[histogram];
    by_metrics_cells *cells = &m->histogram[histogram];
    if (value < 0) value = 0;
    int low = 0, high = layout->n; /* the first bound that is not below value, or n */
    while (low < high) {
        int mid = (low + high) / 2;
        if (layout->bound[mid] < value) low = mid + 1;
        else high = mid;
    }
    atomic_fetch_add_explicit(&cells->bucket[low], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&cells->sum, (uint64_t)value, memory_order_relaxed);
}

void by_metrics_count_response(by_metrics *m, by_metrics_endpoint endpoint, int http_status) {
    static const int codes[] = {
#define ROW(code) code,
        BY_METRICS_CODES(ROW)
#undef ROW
    };
    size_t i = 0;
    while (i < BY_METRICS_N_CODES - 1 && codes[i] != http_status) i++;
    atomic_fetch_add_explicit(&m->response[endpoint][i], 1, memory_order_relaxed);
}

by_metrics_endpoint by_metrics_endpoint_of(by_str path) {
    static const by_str names[BY_ENDPOINT_N] = {
#define ROW(id, name) {name, sizeof(name) - 1},
        BY_METRICS_ENDPOINTS(ROW)
#undef ROW
    };
    by_metrics_endpoint best = BY_ENDPOINT_OTHER; /* the longest name that ends at a border of the path */
    for (int i = 0; i < BY_ENDPOINT_OTHER; i++) {
        if (i == BY_ENDPOINT_PAGE ? path.len != 1 : path.len > names[i].len && path.ptr[names[i].len] != '/') continue;
        if (!by_str_starts(path, names[i])) continue;
        if (best == BY_ENDPOINT_OTHER || names[i].len > names[best].len) best = (by_metrics_endpoint)i;
    }
    return best;
}

/* Both points were reached: the time between them in nanoseconds. */
static void observe_span(by_metrics *m, by_metrics_histogram h, int64_t from_us, int64_t to_us) {
    if (from_us > 0 && to_us > 0) by_metrics_observe(m, h, (to_us - from_us) * 1000);
}

static uint64_t count_of(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

void by_metrics_count_request(by_metrics *m, const by_metrics_request *r) {
    int64_t received_us = r->received_us ? r->received_us : r->submit_us;
    observe_span(m, BY_HIST_FIRST_TOKEN, received_us, r->first_us);
    observe_span(m, BY_HIST_QUEUE, r->submit_us, r->start_us);
    observe_span(m, BY_HIST_PREFILL, r->start_us, r->first_us);
    observe_span(m, BY_HIST_DECODE, r->first_us, r->end_us);
    observe_span(m, BY_HIST_REQUEST, received_us, r->end_us);
    if (r->first_us > 0 && r->end_us > 0 && r->n_output > 1)
        by_metrics_observe(m, BY_HIST_OUTPUT_TOKEN, (r->end_us - r->first_us) * 1000 / (r->n_output - 1));
    by_metrics_observe(m, BY_HIST_N_PROMPT, r->n_prompt);
    by_metrics_observe(m, BY_HIST_N_OUTPUT, r->n_output);
    if (r->max_tokens > 0) by_metrics_observe(m, BY_HIST_N_MAX, r->max_tokens);
    by_metrics_add(m, BY_COUNT_PROMPT_TOKENS, count_of(r->n_prompt));
    by_metrics_add(m, BY_COUNT_CACHED_TOKENS, count_of(r->n_cached));
    by_metrics_add(m, BY_COUNT_OUTPUT_TOKENS, count_of(r->n_output));
    by_metrics_add(m, BY_COUNT_REASONING_TOKENS, count_of(r->n_reasoning));
    atomic_fetch_add_explicit(&m->finished[r->finish], 1, memory_order_relaxed);
}
