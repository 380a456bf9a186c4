/* load_report.c - figures of a run. Percentiles are of all samples, sorted, with linear interpolation between
 * neighbours (NumPy's default), so that they compare with other load generators. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/load.h"
#include "json/json_write.h"

typedef struct {
    double *v; /* milliseconds, ascending */
    size_t n;
} samples;

typedef struct {
    int64_t n_ok, n_failed, n_good;
    int64_t n_prompt, n_cached, n_output, n_events;
    int64_t by_error[BY_LOAD_ERROR_N];
    int64_t by_status[600];
    samples ttft, tpot, e2el, lag, gap, late;
} figures;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const samples *s, double p) {
    if (!s->n) return NAN;
    double at = p / 100 * (double)(s->n - 1);
    size_t low = (size_t)at, high = low + 1 < s->n ? low + 1 : low;
    return s->v[low] + (s->v[high] - s->v[low]) * (at - (double)low);
}

static double mean_of(const samples *s) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
    return s->n ? sum / (double)s->n : NAN;
}

static double deviation_of(const samples *s) {
    double mean = mean_of(s), sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += (s->v[i] - mean) * (s->v[i] - mean);
    return s->n ? sqrt(sum / (double)s->n) : NAN;
}

/* Milliseconds of one request; NAN when it has no such figure. */
static double ttft_of(const by_load_record *r) { return r->first_us ? (double)(r->first_us - r->sent_us) * 1e-3 : NAN; }
static double tpot_of(const by_load_record *r) {
    return r->first_us && r->n_output > 1 ? (double)(r->last_us - r->first_us) * 1e-3 / (r->n_output - 1) : NAN;
}
static double e2el_of(const by_load_record *r) { return (double)(r->end_us - r->sent_us) * 1e-3; }

/* A goal that a request has no figure for is missed, except TPOT of an answer of one token. */
static bool is_good(const by_load_record *r, const by_load_goal *g) {
    if (g->ttft_ms > 0 && !(ttft_of(r) <= g->ttft_ms)) return false;
    if (g->tpot_ms > 0 && tpot_of(r) > g->tpot_ms) return false;
    return !(g->e2el_ms > 0) || e2el_of(r) <= g->e2el_ms;
}

by_status by_load_goal_parse(by_load_goal *goal, const char *text, by_err *err) {
    while (*text) {
        const char *colon = strchr(text, ':');
        char *end = NULL;
        double ms = colon ? strtod(colon + 1, &end) : 0;
        size_t n = colon ? (size_t)(colon - text) : 0;
        double *to = n == 4 && memcmp(text, "ttft", 4) == 0   ? &goal->ttft_ms
                     : n == 4 && memcmp(text, "tpot", 4) == 0 ? &goal->tpot_ms
                     : n == 4 && memcmp(text, "e2el", 4) == 0 ? &goal->e2el_ms
                                                              : NULL;
        if (!to || end == colon + 1 || (*end && *end != ',') || !(ms > 0 && ms < 1e9))
            return BY_FAIL(err, BY_EINVAL, "goodput '%s': want ttft:MS,tpot:MS,e2el:MS (any of them)", text);
        *to = ms;
        text = *end ? end + 1 : end;
    }
    return BY_OK;
}

static void push(samples *s, double v) {
    if (!isnan(v)) s->v[s->n++] = v;
}

static void push_list(samples *s, const by_buf *list) {
    for (size_t at = 0; at < list->len; at += 4) {
        uint32_t us;
        memcpy(&us, list->ptr + at, 4);
        push(s, us * 1e-3);
    }
}

static by_status make_figures(figures *f, const by_load_result *r, const by_load_goal *goal, by_err *err) {
    size_t n = (size_t)r->n_records;
    *f = (figures){0};
    samples *all[] = {&f->ttft, &f->tpot, &f->e2el, &f->lag, &f->gap, &f->late};
    const size_t sizes[] = {n, n, n, n, r->gaps.len / 4, r->late.len / 4};
    for (int i = 0; i < 6; i++) {
        all[i]->v = by_alloc(BY_MEM_MISC, by_mul_size(sizes[i] + 1, sizeof(double)));
        if (!all[i]->v) return BY_FAIL(err, BY_ENOMEM, "report: out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        const by_load_record *x = &r->records[i];
        if (x->error == BY_LOAD_STATUS) f->by_status[x->status % 600]++;
        else f->by_error[x->error]++;
        f->n_failed += x->error != BY_LOAD_NONE;
        if (x->error != BY_LOAD_NONE) continue;
        f->n_ok++;
        f->n_good += is_good(x, goal);
        f->n_prompt += x->n_prompt, f->n_cached += x->n_cached, f->n_output += x->n_output, f->n_events += x->n_events;
        push(&f->ttft, ttft_of(x)), push(&f->tpot, tpot_of(x)), push(&f->e2el, e2el_of(x));
        push(&f->lag, (double)(x->sent_us - x->due_us) * 1e-3);
    }
    push_list(&f->gap, &r->gaps);
    push_list(&f->late, &r->late);
    for (int i = 0; i < 6; i++) qsort(all[i]->v, all[i]->n, sizeof(double), by_value);
    return BY_OK;
}

static void free_figures(figures *f) {
    samples *all[] = {&f->ttft, &f->tpot, &f->e2el, &f->lag, &f->gap, &f->late};
    for (int i = 0; i < 6; i++) by_free(all[i]->v);
}

static double a_second(int64_t n, const by_load_result *r) { return r->duration_s > 0 ? (double)n / r->duration_s : 0; }
static bool has_goal(const by_load_goal *g) { return g->ttft_ms > 0 || g->tpot_ms > 0 || g->e2el_ms > 0; }

static const char *const error_names[BY_LOAD_ERROR_N] = {
#define ROW(id, name) name,
    BY_LOAD_ERRORS(ROW)
#undef ROW
};

/* ---- JSON ---- */

/* Rounded to a microsecond or a millionth: more digits would only be noise. */
static void put(by_json_out *o, const char *key, double v) {
    by_json_out_key(o, key);
    if (isnan(v)) by_json_out_null(o);
    else by_json_out_double(o, round(v * 1e6) / 1e6);
}
static void put_samples(by_json_out *o, const char *key, const samples *s, const by_load_report_opts *opts) {
    by_json_out_key(o, key);
    by_json_out_object_begin(o);
    by_json_out_member_int(o, "n", (int64_t)s->n);
    put(o, "mean", mean_of(s));
    put(o, "std", deviation_of(s));
    put(o, "min", s->n ? s->v[0] : NAN);
    put(o, "max", s->n ? s->v[s->n - 1] : NAN);
    for (int i = 0; i < opts->n_percentiles; i++) {
        by_buf name = {0};
        by_buf_printf(&name, "p%g", opts->percentiles[i]);
        put(o, by_buf_z(&name), percentile(s, opts->percentiles[i]));
        by_buf_deinit(&name);
    }
    by_json_out_object_end(o);
}

static void put_errors(by_json_out *o, const figures *f) {
    by_json_out_key(o, "errors");
    by_json_out_object_begin(o);
    for (int i = 1; i < BY_LOAD_ERROR_N; i++)
        if (f->by_error[i]) by_json_out_member_int(o, error_names[i], f->by_error[i]);
    for (int i = 0; i < 600; i++) {
        char name[32] = "status_000";
        if (!f->by_status[i]) continue;
        name[7] = (char)('0' + i / 100), name[8] = (char)('0' + i / 10 % 10), name[9] = (char)('0' + i % 10);
        by_json_out_member_int(o, name, f->by_status[i]);
    }
    by_json_out_object_end(o);
}

static void put_requests(by_json_out *o, const by_load_result *r) {
    by_json_out_key(o, "requests");
    by_json_out_array_begin(o);
    for (int64_t i = 0; i < r->n_records; i++) {
        const by_load_record *x = &r->records[i];
        by_json_out_object_begin(o);
        put(o, "due_s", (double)x->due_us * 1e-6);
        put(o, "sent_s", (double)x->sent_us * 1e-6);
        put(o, "ttft_ms", ttft_of(x));
        put(o, "tpot_ms", tpot_of(x));
        put(o, "e2el_ms", e2el_of(x));
        by_json_out_member_int(o, "input_tokens", x->n_prompt);
        by_json_out_member_int(o, "cached_tokens", x->n_cached);
        by_json_out_member_int(o, "output_tokens", x->n_output);
        by_json_out_member_int(o, "status", x->status);
        by_json_out_member_z(o, "error", x->error ? error_names[x->error] : NULL);
        by_json_out_object_end(o);
    }
    by_json_out_array_end(o);
}

static void put_load(by_json_out *o, const by_load_opts *load) {
    by_json_out_key(o, "load");
    by_json_out_object_begin(o);
    by_json_out_member_z(o, "endpoint", load->path);
    by_json_out_member_z(o, "model", load->model);
    by_json_out_key(o, "stream");
    by_json_out_bool(o, load->stream);
    by_json_out_member_int(o, "num_prompts", load->n_requests);
    put(o, "request_rate", load->rate > 0 ? load->rate : NAN);
    put(o, "burstiness", load->burstiness);
    by_json_out_member_int(o, "max_concurrency", load->max_concurrency);
    by_json_out_member_z(o, "dataset", load->dataset ? load->dataset : "random");
    by_json_out_member_int(o, "input_len", load->input_len);
    by_json_out_member_int(o, "output_len", load->output_len);
    by_json_out_member_int(o, "prefix_len", load->prefix_len);
    by_json_out_member_int(o, "num_prefixes", load->n_prefixes);
    by_json_out_key(o, "seed");
    by_json_out_uint(o, load->seed);
    by_json_out_object_end(o);
}

by_status by_load_report_json(by_buf *out, by_load_result *r, const by_load_opts *load, const by_load_report_opts *opts,
                              by_err *err) {
    figures f;
    by_status status = make_figures(&f, r, &opts->goal, err);
    if (status == BY_OK) {
        by_json_out o = by_json_out_init(out, BY_JSON_PYTHON);
        by_json_out_object_begin(&o);
        put_load(&o, load);
        put(&o, "duration_s", r->duration_s);
        by_json_out_member_int(&o, "completed", f.n_ok);
        by_json_out_member_int(&o, "failed", f.n_failed);
        by_json_out_key(&o, "interrupted");
        by_json_out_bool(&o, r->interrupted);
        put_errors(&o, &f);
        by_json_out_member_z(&o, "first_error", r->first_error[0] ? r->first_error : NULL);
        by_json_out_member_int(&o, "input_tokens", f.n_prompt);
        by_json_out_member_int(&o, "cached_tokens", f.n_cached);
        by_json_out_member_int(&o, "output_tokens", f.n_output);
        by_json_out_member_int(&o, "events", f.n_events);
        put(&o, "request_throughput", a_second(f.n_ok, r));
        put(&o, "output_throughput", a_second(f.n_output, r));
        put(&o, "total_token_throughput", a_second(f.n_output + f.n_prompt, r));
        put(&o, "event_throughput", a_second(f.n_events, r));
        put(&o, "request_goodput", has_goal(&opts->goal) ? a_second(f.n_good, r) : NAN);
        put_samples(&o, "ttft_ms", &f.ttft, opts);
        put_samples(&o, "tpot_ms", &f.tpot, opts);
        put_samples(&o, "itl_ms", &f.gap, opts);
        put_samples(&o, "e2el_ms", &f.e2el, opts);
        put_samples(&o, "send_lag_ms", &f.lag, opts);
        if (load->pace > 0) put_samples(&o, "late_ms", &f.late, opts);
        if (opts->detailed) put_requests(&o, r);
        by_json_out_object_end(&o);
        by_buf_push_byte(out, '\n');
        status = by_buf_check(out, err);
    }
    free_figures(&f);
    return status;
}

/* ---- text ---- */

static void text_samples(by_buf *out, const char *name, const samples *s, const by_load_report_opts *opts) {
    if (!s->n) return;
    by_buf_printf(out, "%-22s %10.2f %10.2f", name, mean_of(s), s->v[0]);
    for (int i = 0; i < opts->n_percentiles; i++) by_buf_printf(out, " %10.2f", percentile(s, opts->percentiles[i]));
    by_buf_printf(out, " %10.2f\n", s->v[s->n - 1]);
}

by_status by_load_report_text(by_buf *out, by_load_result *r, const by_load_opts *load, const by_load_report_opts *opts,
                              by_err *err) {
    figures f;
    by_status status = make_figures(&f, r, &opts->goal, err);
    if (status == BY_OK) {
        by_buf_printf(out, "%s of %s at %s:%s, %.2f s%s\n\n", load->path, load->model, load->host, load->port,
                      r->duration_s, r->interrupted ? " (interrupted)" : "");
        by_buf_printf(out, "requests               %10lld completed, %lld failed\n", (long long)f.n_ok,
                      (long long)f.n_failed);
        by_buf_printf(out, "tokens                 %10lld input (%lld cached), %lld output\n", (long long)f.n_prompt,
                      (long long)f.n_cached, (long long)f.n_output);
        by_buf_printf(out, "requests/s             %10.2f\n", a_second(f.n_ok, r));
        if (has_goal(&opts->goal))
            by_buf_printf(out, "within the goals/s     %10.2f (%lld)\n", a_second(f.n_good, r), (long long)f.n_good);
        by_buf_printf(out, "output tokens/s        %10.2f\n", a_second(f.n_output, r));
        by_buf_printf(out, "all tokens/s           %10.2f\n", a_second(f.n_output + f.n_prompt, r));
        by_buf_printf(out, "\n%-22s %10s %10s", "milliseconds", "mean", "min");
        for (int i = 0; i < opts->n_percentiles; i++) {
            by_buf name = {0};
            by_buf_printf(&name, "p%g", opts->percentiles[i]);
            by_buf_printf(out, " %10s", by_buf_z(&name));
            by_buf_deinit(&name);
        }
        by_buf_printf(out, " %10s\n", "max");
        text_samples(out, "time to first token", &f.ttft, opts);
        text_samples(out, "time per output token", &f.tpot, opts);
        text_samples(out, "between tokens", &f.gap, opts);
        if (load->pace > 0) text_samples(out, "later than its plan", &f.late, opts);
        text_samples(out, "whole request", &f.e2el, opts);
        if (load->rate > 0) text_samples(out, "sent later than due", &f.lag, opts);
        for (int i = 1; i < BY_LOAD_ERROR_N; i++)
            if (f.by_error[i]) by_buf_printf(out, "failed: %-14s %10lld\n", error_names[i], (long long)f.by_error[i]);
        for (int i = 0; i < 600; i++)
            if (f.by_status[i]) by_buf_printf(out, "failed: status %-7d %10lld\n", i, (long long)f.by_status[i]);
        if (r->first_error[0] && f.n_ok) /* where nothing was answered, that is the command's error, and is told there */
            by_buf_printf(out, "first failure: %s\n", r->first_error);
        status = by_buf_check(out, err);
    }
    free_figures(&f);
    return status;
}
