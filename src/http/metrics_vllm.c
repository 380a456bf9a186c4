/* metrics_vllm.c - the same figures under the names that vLLM gives them, for gateways and dashboards that were written
 * for it. Labels: model_name, engine ("0"). Only what has a true counterpart here is written; nothing is made up to
 * fill a family. Both names of a family that vLLM renamed are there (gpu_cache_usage_perc became kv_cache_usage_perc,
 * gpu_prefix_cache_* became prefix_cache_*, time_per_output_token_seconds became inter_token_latency_seconds). Source:
 * vLLM's metric names of 0.8 to 0.10 and the metrics that the Gateway API inference extension reads (queued, running,
 * cache use, block size). */
#include <inttypes.h>

#include "http/metrics_impl.h"

static void put_counter(by_buf *out, const char *full, const char *labels, uint64_t v, const char *help) {
    by_metrics_put_head(out, full, "counter", help);
    by_metrics_put_uint(out, full, labels, v);
}

static void put_gauge(by_buf *out, const char *full, const char *labels, double v, const char *help) {
    by_metrics_put_head(out, full, "gauge", help);
    by_metrics_put_double(out, full, labels, v);
}

static void write_finished(by_metrics *m, by_buf *out, const char *labels) {
    static const char *const reasons[BY_FINISH_N] = {[BY_FINISH_STOP] = "stop",
                                                     [BY_FINISH_LENGTH] = "length",
                                                     [BY_FINISH_CANCELLED] = "abort",
                                                     [BY_FINISH_ERROR] = "error"};
    by_metrics_put_head(out, "vllm:request_success_total", "counter", "Requests by how they ended.");
    for (int f = 0; f < BY_FINISH_N; f++) {
        if (!reasons[f]) continue; /* vLLM counts an answer with calls as stop */
        uint64_t n = atomic_load_explicit(&m->finished[f], memory_order_relaxed);
        if (f == BY_FINISH_STOP) n += atomic_load_explicit(&m->finished[BY_FINISH_TOOL_CALLS], memory_order_relaxed);
        by_buf_printf(out, "vllm:request_success_total{%s,finished_reason=\"%s\"} %" PRIu64 "\n", labels, reasons[f],
                      n);
    }
}

static void write_histograms(by_metrics *m, by_buf *out, const char *labels) {
    static const struct {
        const char *full, *help;
        by_metrics_histogram from;
    } rows[] = {
        {"vllm:time_to_first_token_seconds", "Time to first token.", BY_HIST_FIRST_TOKEN},
        {"vllm:inter_token_latency_seconds", "Time between tokens.", BY_HIST_INTER_TOKEN},
        {"vllm:time_per_output_token_seconds", "Time between tokens (older name).", BY_HIST_INTER_TOKEN},
        {"vllm:request_time_per_output_token_seconds", "Mean time per output token of a request.",
         BY_HIST_OUTPUT_TOKEN},
        {"vllm:e2e_request_latency_seconds", "Whole time of a request.", BY_HIST_REQUEST},
        {"vllm:request_queue_time_seconds", "Time of a request in the queue.", BY_HIST_QUEUE},
        {"vllm:request_prefill_time_seconds", "Time of a request in prefill.", BY_HIST_PREFILL},
        {"vllm:request_decode_time_seconds", "Time of a request in decode.", BY_HIST_DECODE},
        {"vllm:request_prompt_tokens", "Prompt tokens of a request.", BY_HIST_N_PROMPT},
        {"vllm:request_generation_tokens", "Output tokens of a request.", BY_HIST_N_OUTPUT},
        {"vllm:request_params_max_tokens", "The max_tokens parameter of a request.", BY_HIST_N_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        by_metrics_put_head(out, rows[i].full, "histogram", rows[i].help);
        by_metrics_put_histogram(out, rows[i].full, labels, m, rows[i].from);
    }
}

/* A draft is one proposal of several tokens; only steps that verified any have one. */
static void write_drafts(by_buf *out, const char *labels, const by_draft_stats *d) {
    const char *full = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
    put_counter(out, "vllm:spec_decode_num_drafts_total", labels, d->verified[0], "Drafts verified.");
    put_counter(out, "vllm:spec_decode_num_draft_tokens_total", labels, d->n_verified, "Draft tokens verified.");
    put_counter(out, "vllm:spec_decode_num_accepted_tokens_total", labels, d->n_accepted, "Draft tokens accepted.");
    by_metrics_put_head(out, full, "counter", "Draft tokens accepted, by place in the draft.");
    for (int i = 0; i < BY_ENGINE_DRAFTS_MAX; i++)
        if (i == 0 || d->accepted[i])
            by_buf_printf(out, "%s{%s,position=\"%d\"} %" PRIu64 "\n", full, labels, i, d->accepted[i]);
}

static void write_engine(by_metrics *m, by_buf *out, const char *labels, const by_engine_stats *s) {
    double usage = s->blocks_total > 0 ? (double)s->blocks_used / s->blocks_total : 0;
    put_gauge(out, "vllm:num_requests_running", labels, s->sched.n_running, "Requests running.");
    put_gauge(out, "vllm:num_requests_waiting", labels, s->sched.n_waiting, "Requests waiting.");
    put_gauge(out, "vllm:num_requests_swapped", labels, s->sched.n_swapped, "Requests swapped to host memory.");
    put_gauge(out, "vllm:kv_cache_usage_perc", labels, usage, "Cache use; 1 means all of it.");
    put_gauge(out, "vllm:gpu_cache_usage_perc", labels, usage, "Cache use; 1 means all of it (older name).");
    put_counter(out, "vllm:num_preemptions_total", labels, s->sched.n_preempted, "Preemptions.");
    put_counter(out, "vllm:generation_tokens_total", labels, s->n_output_tokens, "Tokens generated.");
    put_counter(out, "vllm:prompt_tokens_total", labels, s->n_prompt_rows, "Prompt tokens computed.");
    /* Looked up = found + computed: every prompt token is one or the other (those replayed are both). */
    uint64_t computed =
        s->n_prompt_rows - (s->n_replayed_rows < s->n_prompt_rows ? s->n_replayed_rows : s->n_prompt_rows);
    put_counter(out, "vllm:prefix_cache_queries_total", labels, s->n_hit_tokens + computed, "Tokens looked up.");
    put_counter(out, "vllm:prefix_cache_hits_total", labels, s->n_hit_tokens, "Tokens found.");
    put_counter(out, "vllm:gpu_prefix_cache_queries_total", labels, s->n_hit_tokens + computed,
                "Tokens looked up (older name).");
    put_counter(out, "vllm:gpu_prefix_cache_hits_total", labels, s->n_hit_tokens, "Tokens found (older name).");
    write_drafts(out, labels, &s->draft);
    by_metrics_put_head(out, "vllm:cache_config_info", "gauge", "1; the cache's shape is in the labels.");
    by_buf_printf(out,
                  "vllm:cache_config_info{block_size=\"%" PRId32 "\",num_gpu_blocks=\"%" PRId32 "\",engine=\"0\"} 1\n",
                  m->block_tokens, s->blocks_total);
}

void by_metrics_write_vllm(by_metrics *m, by_buf *out, const by_engine_stats *stats) {
    by_buf labels = {0};
    by_buf_push_z(&labels, "engine=\"0\",model_name=\"");
    by_metrics_put_escaped(&labels, m->model_name);
    by_buf_push_byte(&labels, '"');
    const char *text = by_buf_z(&labels);
    if (labels.failed) {
        out->failed = true;
    } else {
        if (stats) write_engine(m, out, text, stats);
        write_finished(m, out, text);
        write_histograms(m, out, text);
    }
    by_buf_deinit(&labels);
}
