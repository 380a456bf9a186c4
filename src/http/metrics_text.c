/* metrics_text.c - the registry as Prometheus text: families of our own prefix. Each family is a HELP line, a TYPE line
 * and its samples; a sample is `name{labels} value`. Source: the Prometheus project's description of text format 0.0.4.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "http/metrics_impl.h"
#include "json/json_write.h"

const char *const by_metrics_finish_names[BY_FINISH_N] = {
#define ROW(id, name) name,
    BY_METRICS_FINISHES(ROW)
#undef ROW
};

static uint64_t read_cell(const _Atomic uint64_t *cell) { return atomic_load_explicit(cell, memory_order_relaxed); }

void by_metrics_put_head(by_buf *out, const char *full, const char *type, const char *help) {
    by_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", full, help, full, type);
}

static void put_name(by_buf *out, const char *full, const char *labels) {
    by_buf_push_z(out, full);
    if (labels[0]) {
        by_buf_push_byte(out, '{');
        by_buf_push_z(out, labels);
        by_buf_push_byte(out, '}');
    }
    by_buf_push_byte(out, ' ');
}

void by_metrics_put_uint(by_buf *out, const char *full, const char *labels, uint64_t v) {
    put_name(out, full, labels);
    by_json_write_uint(out, v);
    by_buf_push_byte(out, '\n');
}

void by_metrics_put_double(by_buf *out, const char *full, const char *labels, double v) {
    put_name(out, full, labels);
    by_json_write_double(out, v, BY_JSON_PYTHON);
    by_buf_push_byte(out, '\n');
}

static void put_int(by_buf *out, const char *full, const char *labels, int64_t v) {
    put_name(out, full, labels);
    by_json_write_int(out, v);
    by_buf_push_byte(out, '\n');
}

void by_metrics_put_escaped(by_buf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '\\' || *s == '"') by_buf_push_byte(out, '\\');
        if (*s == '\n') by_buf_push_z(out, "\\n");
        else by_buf_push_byte(out, *s);
    }
}

void by_metrics_put_histogram(by_buf *out, const char *full, const char *labels, const by_metrics *m,
                              by_metrics_histogram h) {
    const by_metrics_layout *layout = by_metrics_layout_of(h);
    const by_metrics_cells *cells = &m->histogram[h];
    const char *comma = labels[0] ? "," : "", *open = labels[0] ? "{" : "", *close = labels[0] ? "}" : "";
    uint64_t sum = read_cell(&cells->sum), count = 0;
    for (int i = 0; i <= layout->n; i++) {
        count += read_cell(&cells->bucket[i]);
        by_buf_printf(out, "%s_bucket{%s%sle=\"", full, labels, comma);
        if (i < layout->n) by_json_write_double(out, (double)layout->bound[i] / layout->divisor, BY_JSON_PYTHON);
        else by_buf_push_z(out, "+Inf");
        by_buf_printf(out, "\"} %" PRIu64 "\n", count);
    }
    by_buf_printf(out, "%s_sum%s%s%s ", full, open, labels, close);
    by_json_write_double(out, (double)sum / layout->divisor, BY_JSON_PYTHON);
    by_buf_printf(out, "\n%s_count%s%s%s %" PRIu64 "\n", full, open, labels, close, count);
}

static void write_cells(by_metrics *m, by_buf *out) {
#define ROW(id, name, help)                                                                                            \
    by_metrics_put_head(out, "bathyc_" name, "counter", help);                                                         \
    by_metrics_put_uint(out, "bathyc_" name, "", read_cell(&m->counter[BY_COUNT_##id]));
    BY_METRICS_COUNTERS(ROW)
#undef ROW
#define ROW(id, name, help)                                                                                            \
    by_metrics_put_head(out, "bathyc_" name, "gauge", help);                                                           \
    put_int(out, "bathyc_" name, "", atomic_load_explicit(&m->gauge[BY_GAUGE_##id], memory_order_relaxed));
    BY_METRICS_GAUGES(ROW)
#undef ROW
#define ROW(id, name, layout, help)                                                                                    \
    by_metrics_put_head(out, "bathyc_" name, "histogram", help);                                                       \
    by_metrics_put_histogram(out, "bathyc_" name, "", m, BY_HIST_##id);
    BY_METRICS_HISTOGRAMS(ROW)
#undef ROW
}

static void write_responses(by_metrics *m, by_buf *out) {
    static const char *const endpoints[BY_ENDPOINT_N] = {
#define ROW(id, name) name,
        BY_METRICS_ENDPOINTS(ROW)
#undef ROW
    };
    static const char *const codes[BY_METRICS_N_CODES] = {
#define ROW(code) #code,
        BY_METRICS_CODES(ROW) "other"
#undef ROW
    };
    const char *full = "bathyc_http_requests_total";
    by_metrics_put_head(out, full, "counter",
                        "HTTP requests by endpoint and status; code 0: the client left before one was sent.");
    for (int e = 0; e < BY_ENDPOINT_N; e++) {
        for (int c = 0; c < BY_METRICS_N_CODES; c++) {
            uint64_t n = read_cell(&m->response[e][c]);
            if (!n) continue; /* most pairs never happen */
            by_buf_printf(out, "%s{endpoint=\"%s\",code=\"%s\"} %" PRIu64 "\n", full, endpoints[e], codes[c], n);
        }
    }
    full = "bathyc_requests_finished_total";
    by_metrics_put_head(out, full, "counter", "Generation requests by how their first choice ended.");
    for (int f = 0; f < BY_FINISH_N; f++)
        by_buf_printf(out, "%s{reason=\"%s\"} %" PRIu64 "\n", full, by_metrics_finish_names[f],
                      read_cell(&m->finished[f]));
}

/* Counters and gauges that the engine keeps: name, type, help, expression of `s`. */
#define ENGINE_FAMILIES(X)                                                                                             \
    X("requests_waiting", gauge, "Sequences waiting for admission.", s->sched.n_waiting)                               \
    X("requests_running", gauge, "Sequences admitted: in prefill or decoding.", s->sched.n_running)                    \
    X("requests_swapped", gauge, "Sequences whose state was moved to host memory.", s->sched.n_swapped)                \
    X("admitted_total", counter, "Sequences admitted.", s->sched.n_admitted)                                           \
    X("bypassed_total", counter, "Admissions that passed an earlier sequence which did not fit.", s->sched.n_bypassed) \
    X("preemptions_total", counter, "Sequences swapped out to make room.", s->sched.n_preempted)                       \
    X("resumptions_total", counter, "Swapped sequences that came back.", s->sched.n_resumed)                           \
    X("stuck_plans_total", counter, "Steps that found no room and could swap nothing.", s->sched.n_stuck)              \
    X("engine_steps_total", counter, "Steps of the model.", s->n_steps)                                                \
    X("engine_rows_total", counter, "Rows (tokens) of all steps.", s->n_rows)                                          \
    X("engine_prompt_rows_total", counter, "Rows that belonged to prompts.", s->n_prompt_rows)                         \
    X("engine_output_tokens_total", counter, "Tokens sampled.", s->n_output_tokens)                                    \
    X("engine_wasted_rows_total", counter, "Rows of choices that had ended when their step ran.", s->n_wasted_rows)    \
    X("engine_replayed_steps_total", counter, "Steps queued on the device from a recording.", s->n_replayed)           \
    X("engine_recordings", gauge, "Recordings of steps that are kept.", s->n_recordings)                               \
    X("engine_finished_total", counter, "Requests that the engine finished.", s->n_finished)                           \
    X("engine_failed_total", counter, "Requests that ended with an error of the engine.", s->n_failed)                 \
    X("engine_cancelled_total", counter, "Requests that were aborted.", s->n_cancelled)                                \
    X("prefix_cache_hit_tokens_total", counter, "Prompt tokens found in the prefix cache.", s->n_hit_tokens)           \
    X("prefix_cache_replayed_rows_total", counter, "Found tokens computed again for their window.",                    \
      s->n_replayed_rows)                                                                                              \
    X("snapshots_total", counter, "Window snapshots taken.", s->n_snapshots)                                           \
    X("snapshot_hits_total", counter, "Prefix hits that used a snapshot.", s->n_snapshot_hits)                         \
    X("draft_steps_total", counter, "Decode steps of sequences, drafted or not.", s->draft.n_steps)                    \
    X("draft_proposed_tokens_total", counter, "Draft tokens proposed.", s->draft.n_proposed)                           \
    X("draft_tokens_total", counter, "Draft tokens verified.", s->draft.n_verified)                                    \
    X("draft_accepted_tokens_total", counter, "Draft tokens accepted.", s->draft.n_accepted)                           \
    X("kv_blocks", gauge, "Cache blocks there are.", s->blocks_total)                                                  \
    X("kv_blocks_used", gauge, "Cache blocks held by sequences.", s->blocks_used)                                      \
    X("kv_blocks_keyed", gauge, "Cache blocks that a later prompt can find.", s->blocks_keyed)                         \
    X("state_slots", gauge, "State slots there are.", s->slots_total)                                                  \
    X("state_slots_used", gauge, "State slots held.", s->slots_used)                                                   \
    X("host_state_bytes", gauge, "Host memory of swapped sequences and snapshots.", s->host_bytes)

static void put_positions(by_buf *out, const char *full, const char *help, const uint64_t n[BY_ENGINE_DRAFTS_MAX]) {
    by_metrics_put_head(out, full, "counter", help);
    for (int i = 0; i < BY_ENGINE_DRAFTS_MAX; i++)
        if (i == 0 || n[i]) by_buf_printf(out, "%s{position=\"%d\"} %" PRIu64 "\n", full, i + 1, n[i]);
}

/* Buckets first..last of the tally, those below in the first; shown value = counted / divisor. */
static void put_tally(by_buf *out, const char *full, const char *help, const by_tally *t, int first, int last, double divisor) {
    by_metrics_put_head(out, full, "histogram", help);
    uint64_t seen = 0, all = by_tally_count(t);
    for (int i = 0; i <= last; i++) {
        seen += t->n[i];
        if (i < first) continue;
        by_buf_printf(out, "%s_bucket{le=\"", full);
        by_json_write_double(out, (double)by_tally_bound(i) / divisor, BY_JSON_PYTHON);
        by_buf_printf(out, "\"} %" PRIu64 "\n", seen);
    }
    by_buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", full, all, full);
    by_json_write_double(out, (double)t->sum / divisor, BY_JSON_PYTHON);
    by_buf_printf(out, "\n%s_count %" PRIu64 "\n", full, all);
}

static void write_steps(by_buf *out, const by_engine_stats *s) {
    enum { FIRST_US = 6, LAST_US = 21, LAST_ROWS = 14 }; /* 100 us to 10 s; 1 to 50000 rows */
    put_tally(out, "bathyc_engine_step_seconds", "Time of the device by step.", &s->step_us, FIRST_US, LAST_US, 1e6);
    put_tally(out, "bathyc_engine_step_rows", "Rows (tokens) by step.", &s->step_rows, 0, LAST_ROWS, 1);
    put_tally(out, "bathyc_engine_prefill_rows", "Prompt rows by step that has some.", &s->prefill_rows, 0, LAST_ROWS, 1);
}

static void write_evictions(by_buf *out, const by_engine_stats *s) {
    const char *full = "bathyc_evictions_total";
    by_metrics_put_head(out, full, "counter",
                        "What had to give way, and to what: findable blocks, snapshots, sequences (moved to host memory).");
    by_metrics_put_uint(out, full, "what=\"block\",cause=\"reuse\"", s->n_blocks_forgotten);
    by_metrics_put_uint(out, full, "what=\"snapshot\",cause=\"newer\"", s->n_snapshots_replaced);
    by_metrics_put_uint(out, full, "what=\"snapshot\",cause=\"swap\"", s->n_snapshots_dropped);
    by_metrics_put_uint(out, full, "what=\"sequence\",cause=\"slow_reader\"", s->sched.n_preempted_paused);
    by_metrics_put_uint(out, full, "what=\"sequence\",cause=\"memory\"", s->sched.n_preempted - s->sched.n_preempted_paused);
}

static void write_work(by_buf *out, const by_engine_stats *s) {
    const char *copied = "bathyc_copied_bytes_total", *found = "bathyc_prefix_cache_tier_tokens_total";
    by_metrics_put_head(out, copied, "counter", "State moved between device and host memory, or on the device (fork), by what for.");
    for (int k = 0; k < BY_COPY_N; k++) {
        char label[40];
        snprintf(label, sizeof label, "what=\"%s\"", by_copy_name((by_copy)k));
        by_metrics_put_uint(out, copied, label, s->copied_bytes[k]);
    }
    by_metrics_put_head(out, found, "counter", "Prompt tokens found, by where their windows came from: host memory, or nowhere (blocks alone).");
    by_metrics_put_uint(out, found, "tier=\"host\"", s->n_snapshot_hit_tokens);
    by_metrics_put_uint(out, found, "tier=\"device\"", s->n_hit_tokens - s->n_snapshot_hit_tokens);
    by_metrics_put_head(out, "bathyc_engine_operations_total", "counter",
                        "Operations of all rows in FP8 equivalents (attention is a part of all).");
    by_metrics_put_double(out, "bathyc_engine_operations_total", "part=\"all\"", s->ops);
    by_metrics_put_double(out, "bathyc_engine_operations_total", "part=\"attention\"", s->attention_ops);
    by_metrics_put_head(out, "bathyc_engine_query_keys_total", "counter", "Rows times the context behind them, over steps and sequences.");
    by_metrics_put_double(out, "bathyc_engine_query_keys_total", "", s->query_keys);
}

static void write_engine(by_buf *out, const by_engine_stats *s) {
#define ROW(name, type, help, value)                                                                                   \
    by_metrics_put_head(out, "bathyc_" name, #type, help);                                                             \
    by_metrics_put_uint(out, "bathyc_" name, "", (uint64_t)(value));
    ENGINE_FAMILIES(ROW)
#undef ROW
    by_metrics_put_head(out, "bathyc_kv_usage_ratio", "gauge", "Cache blocks held by sequences, of all: 0 to 1.");
    by_metrics_put_double(out, "bathyc_kv_usage_ratio", "",
                          s->blocks_total > 0 ? (double)s->blocks_used / s->blocks_total : 0);
    put_positions(out, "bathyc_draft_position_tokens_total", "Draft tokens verified, by place in their block from 1.",
                  s->draft.verified);
    put_positions(out, "bathyc_draft_position_accepted_total", "Draft tokens accepted, by place in their block from 1.",
                  s->draft.accepted);
    by_metrics_put_head(out, "bathyc_engine_seconds_total", "counter",
                        "Time of the engine: planning, the device in steps (draft is a part of it), idle.");
    by_metrics_put_double(out, "bathyc_engine_seconds_total", "part=\"plan\"", s->plan_s);
    by_metrics_put_double(out, "bathyc_engine_seconds_total", "part=\"device\"", s->device_s);
    by_metrics_put_double(out, "bathyc_engine_seconds_total", "part=\"draft\"", s->draft.draft_s); /* inside device */
    by_metrics_put_double(out, "bathyc_engine_seconds_total", "part=\"wait\"", s->wait_s);
    write_steps(out, s);
    write_evictions(out, s);
    write_work(out, s);
}

/* Fields of /proc/self/stat behind the command's name, which may hold blanks: user and system ticks, pages. */
static bool read_stat(uint64_t *ticks, uint64_t *pages) {
    by_buf text = {0};
    bool ok = false;
    if (by_file_read(&text, "/proc/self/stat", 65536, NULL) == BY_OK) {
        const char *p = strrchr(by_buf_z(&text), ')');
        uint64_t field[25] = {0};
        int n = 2; /* fields are counted from 1; the one behind the name is the third */
        for (p = p ? strchr(p, ' ') : NULL; p && n < 25; p = strchr(p, ' ')) {
            p++;
            if (++n >= 14) field[n - 1] = strtoull(p, NULL, 10);
        }
        ok = n >= 24;
        *ticks = field[13] + field[14];
        *pages = field[23];
    }
    by_buf_deinit(&text);
    return ok;
}

static void write_process(by_metrics *m, by_buf *out) {
    by_metrics_put_head(out, "bathyc_build_info", "gauge", "1; the version is in the label.");
    by_metrics_put_uint(out, "bathyc_build_info", "version=\"" BATHYC_VERSION "\"", 1);
    by_metrics_put_head(out, "bathyc_model_info", "gauge", "1; the model's name and limits are in the labels.");
    by_buf_push_z(out, "bathyc_model_info{model=\"");
    by_metrics_put_escaped(out, m->model_name);
    by_buf_printf(out, "\",max_context=\"%" PRId64 "\",block_tokens=\"%" PRId32 "\"} 1\n", m->max_context,
                  m->block_tokens);
    by_metrics_put_head(out, "bathyc_memory_bytes", "gauge", "Host memory held, by what it is for.");
    for (int t = 0; t < BY_MEM_N; t++) {
        int64_t held = by_alloc_bytes((by_mem_tag)t);
        by_buf_printf(out, "bathyc_memory_bytes{use=\"%s\"} %" PRId64 "\n", by_mem_tag_name((by_mem_tag)t),
                      held > 0 ? held : 0);
    }
    by_metrics_put_head(out, "process_start_time_seconds", "gauge", "Start of the server, seconds since 1970.");
    by_metrics_put_uint(out, "process_start_time_seconds", "", (uint64_t)m->start_s);
    uint64_t ticks = 0, pages = 0;
    if (!read_stat(&ticks, &pages)) return; /* no /proc: the two families are left out */
    by_metrics_put_head(out, "process_cpu_seconds_total", "counter", "User and system time.");
    by_metrics_put_double(out, "process_cpu_seconds_total", "", (double)ticks / (double)sysconf(_SC_CLK_TCK));
    by_metrics_put_head(out, "process_resident_memory_bytes", "gauge", "Resident memory.");
    by_metrics_put_uint(out, "process_resident_memory_bytes", "", pages * (uint64_t)sysconf(_SC_PAGESIZE));
}

by_status by_metrics_write(by_metrics *m, by_buf *out, const by_engine_stats *stats, by_err *err) {
    write_cells(m, out);
    write_responses(m, out);
    if (stats) write_engine(out, stats);
    write_process(m, out);
    if (m->vllm_names) by_metrics_write_vllm(m, out, stats);
    return by_buf_check(out, err);
}
