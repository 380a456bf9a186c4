/* draft_cost.c - see draft_cost.h. */
#include "engine/draft_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "json/json.h"
#include "json/json_write.h"

enum { FEW_TIMES = 5, FEW_STEPS = 10, ROUNDS = 6, NOTES = 8, FILE_BYTES_MAX = 1 << 16 };

/* ---- medians ---- */

static void ring_add(by_cost_ring *r, double v, int32_t cap) {
    r->values[r->next] = v;
    r->next = (r->next + 1) % cap;
    if (r->n < cap) r->n++;
}

static double median(const double *v, int32_t n) {
    double s[BY_COST_POINTS > BY_COST_STEPS ? BY_COST_POINTS : BY_COST_STEPS];
    for (int32_t i = 0; i < n; i++) {
        int32_t j = i;
        for (; j > 0 && s[j - 1] > v[i]; j--) s[j] = s[j - 1];
        s[j] = v[i];
    }
    return n % 2 ? s[n / 2] : 0.5 * (s[n / 2 - 1] + s[n / 2]);
}

static void rescale(by_draft_cost_model *m) {
    double scales[BY_COST_POINTS];
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_curve; i++)
        if (m->steps[i].n >= FEW_STEPS) scales[n++] = median(m->steps[i].values, m->steps[i].n);
    double scale = n ? median(scales, n) : 1;
    for (int32_t i = 0; i < m->n_curve; i++) m->scaled[i] = (by_draft_cost_point){m->curve[i].rows, m->curve[i].ms * scale};
}

/* ---- the model ---- */

by_status by_cost_init(by_draft_cost_model *m, int32_t max_seqs, by_err *err) {
    *m = (by_draft_cost_model){.max_seqs = max_seqs};
    m->draft = by_alloc_zero(BY_MEM_REQUEST, by_mul_size((size_t)max_seqs + 1, sizeof *m->draft));
    return m->draft ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for the costs of steps");
}

void by_cost_deinit(by_draft_cost_model *m) {
    by_free(m->draft);
    *m = (by_draft_cost_model){0};
}

by_status by_cost_set(by_draft_cost_model *m, const by_draft_cost_point *curve, int32_t n, by_err *err) {
    if (n < 1 || n > BY_COST_POINTS) return BY_FAIL(err, BY_EINVAL, "cost curve: %d points, want 1..%d", n, BY_COST_POINTS);
    for (int32_t i = 0; i < n; i++)
        if (curve[i].rows < 1 || !(curve[i].ms > 0) || !isfinite(curve[i].ms) || (i > 0 && curve[i].rows <= curve[i - 1].rows))
            return BY_FAIL(err, BY_EINVAL, "cost curve, point %d: %d rows in %g ms", i, curve[i].rows, curve[i].ms);
    memcpy(m->curve, curve, (size_t)n * sizeof *curve);
    m->n_curve = n;
    rescale(m);
    return BY_OK;
}

static int32_t size_of(const by_draft_cost_model *m, int32_t rows) {
    int32_t i = 0;
    while (i < m->n_curve && m->curve[i].rows < rows) i++;
    return i;
}

void by_cost_note(by_draft_cost_model *m, int32_t rows, double forward_ms, int32_t n_seqs, double sample_ms, double draft_ms) {
    int32_t i = size_of(m, rows);
    by_draft_cost curve = {.curve = m->curve, .n_curve = m->n_curve, .any_size = true};
    if (!m->given) {
        if (i < m->n_curve) ring_add(&m->steps[i], forward_ms / by_draft_cost_ms(&curve, rows), BY_COST_STEPS);
        if (++m->n_notes % NOTES == 0) rescale(m);
        ring_add(&m->sample, sample_ms / rows, BY_COST_TIMES);
    }
    if (n_seqs > m->max_seqs || draft_ms <= 0) return;
    ring_add(&m->draft[n_seqs], draft_ms, BY_COST_TIMES);
    ring_add(&m->draft_any, draft_ms, BY_COST_TIMES);
}

static double known(const by_cost_ring *r, double otherwise) { return r->n >= FEW_TIMES ? median(r->values, r->n) : otherwise; }

by_draft_cost by_cost_for(const by_draft_cost_model *m, int32_t n_seqs, bool proposes) {
    int32_t k = n_seqs < m->max_seqs ? n_seqs : m->max_seqs;
    return (by_draft_cost){.curve = m->scaled, .n_curve = m->n_curve, .slope_ms = known(&m->sample, 0), .any_size = true,
                           .sampler_ms = proposes ? known(&m->draft[k], known(&m->draft_any, 0)) : 0};
}

bool by_cost_knows_drafts(const by_draft_cost_model *m) { return m->draft_any.n >= FEW_TIMES; }

/* ---- measuring ---- */

int64_t by_cost_clock_ns(const by_device *dev) { return by_device_backend(dev) == BY_BACKEND_CUDA ? by_clock_ns() : by_thread_ns(); }

typedef struct {
    const by_device *dev;
    by_runner *runner;
    by_kv *kv;
    by_kv_seq *seqs;
    by_step_seq *steps;
    int32_t *tokens;
    int32_t n_seqs;
} trial;

enum { ROWS_PER_SEQ = 64 }; /* of a trial's sequence at most: half a block */

static by_status run_once(trial *t, int32_t rows, double *ms, by_err *err) {
    int32_t n = 0;
    for (int32_t left = rows; left > 0; n++) { /* spread over the sequences there are */
        int32_t share = (left + t->n_seqs - n - 1) / (t->n_seqs - n);
        t->seqs[n].n_tokens = 0;
        t->steps[n] = (by_step_seq){.kv = &t->seqs[n], .tokens = t->tokens + n, .n_rows = share, .want = BY_WANT_ALL};
        left -= share;
    }
    int64_t t0 = by_cost_clock_ns(t->dev);
    BY_TRY(by_runner_step(t->runner, t->steps, n, err));
    by_tensor l = by_runner_logits(t->runner);
    const void *view; /* waits for the device */
    BY_TRY(by_mem_view(&view, l.mem, (size_t)l.off, 4, err));
    by_mem_unview(l.mem);
    BY_TRY(by_runner_problem(t->runner, err));
    *ms = (double)(by_cost_clock_ns(t->dev) - t0) * 1e-6;
    return BY_OK;
}

static int32_t next_size(int32_t rows, int32_t max_rows) {
    int32_t next = rows < 8 ? rows * 2 : rows < 64 ? rows + 8 : rows + rows / 4 / 8 * 8;
    return next < max_rows ? next : max_rows;
}

static double ms_since(const trial *t, int64_t t0) { return (double)(by_cost_clock_ns(t->dev) - t0) * 1e-6; }

/* The sizes in ascending order while half of the budget lasts, each run twice and the second kept; two at least. */
static by_status first_round(by_draft_cost_model *m, trial *t, int32_t max_rows, int64_t t0, double budget_ms, by_err *err) {
    int32_t most = t->n_seqs * ROWS_PER_SEQ;
    for (int32_t rows = 1; m->n_curve < BY_COST_POINTS; rows = next_size(rows, max_rows)) {
        by_draft_cost_point *p = &m->curve[m->n_curve];
        if (m->n_curve >= 2 && (rows > most || ms_since(t, t0) > budget_ms / 2)) return BY_OK;
        *p = (by_draft_cost_point){.rows = rows};
        BY_TRY(run_once(t, rows, &p->ms, err));
        if (p->ms < budget_ms / 8) BY_TRY(run_once(t, rows, &p->ms, err));
        m->n_curve++;
        if (rows == max_rows) return BY_OK;
    }
    return BY_OK;
}

/* Sizes that were not run, along the line from the size of half the rows to the last that was; twice the rows cost at most twice. */
static void extrapolate(by_draft_cost_model *m, int32_t max_rows) {
    const by_draft_cost_point *b = &m->curve[m->n_curve - 1], *a = m->curve;
    while (a + 1 < b && a[1].rows <= b->rows / 2) a++;
    if (a == b) return;
    double row = (b->ms - a->ms) / (b->rows - a->rows), ms = b->ms;
    if (row > b->ms / b->rows) row = b->ms / b->rows;
    for (int32_t rows = b->rows, from = rows; rows < max_rows && m->n_curve < BY_COST_POINTS;) {
        rows = m->n_curve + 1 < BY_COST_POINTS ? next_size(rows, max_rows) : max_rows;
        m->curve[m->n_curve++] = (by_draft_cost_point){rows, ms + row * (rows - from)};
    }
}

static by_status measure(by_draft_cost_model *m, trial *t, int32_t max_rows, double budget_ms, by_err *err) {
    int64_t t0 = by_cost_clock_ns(t->dev);
    m->n_curve = 0;
    BY_TRY(first_round(m, t, max_rows, t0, budget_ms, err));
    for (int round = 0; round < ROUNDS; round++)
        for (int32_t i = 0; i < m->n_curve && ms_since(t, t0) + m->curve[i].ms < budget_ms; i++) {
            double ms;
            BY_TRY(run_once(t, m->curve[i].rows, &ms, err));
            if (ms < m->curve[i].ms) m->curve[i].ms = ms;
        }
    for (int32_t i = m->n_curve - 1; i >= 0; i--) { /* fewer rows are not dearer: that was a disturbance */
        by_draft_cost_point *p = &m->curve[i];
        if (i + 1 < m->n_curve && p->ms > p[1].ms) p->ms = p[1].ms;
        if (p->ms < 1e-6) p->ms = 1e-6;
    }
    extrapolate(m, max_rows);
    rescale(m);
    return BY_OK;
}

by_status by_cost_measure(by_draft_cost_model *m, const by_device *dev, by_runner *runner, by_kv *kv, int32_t vocab, int32_t max_rows,
                          double budget_ms, by_err *err) {
    int32_t n = by_kv_n_slots(kv) < max_rows ? by_kv_n_slots(kv) : max_rows;
    if (by_kv_block_mem(kv) && by_kv_n_blocks(kv) < n) n = by_kv_n_blocks(kv);
    if (n > m->max_seqs) n = m->max_seqs; /* there are more slots than a step has sequences */
    trial t = {.dev = dev, .runner = runner, .kv = kv};
    t.seqs = by_alloc_zero(BY_MEM_REQUEST, by_mul_size((size_t)n, sizeof *t.seqs));
    t.steps = by_alloc_zero(BY_MEM_REQUEST, by_mul_size((size_t)n, sizeof *t.steps));
    t.tokens = by_alloc(BY_MEM_REQUEST, ((size_t)n + ROWS_PER_SEQ) * sizeof *t.tokens);
    by_status status = t.seqs && t.steps && t.tokens ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for measuring steps");
    uint32_t x = 12345;
    for (int32_t i = 0; status == BY_OK && i < n + ROWS_PER_SEQ; i++) { /* any tokens: experts are chosen as they come */
        x = x * 1664525u + 1013904223u;
        t.tokens[i] = (int32_t)((x >> 8) % (uint32_t)vocab);
    }
    for (; status == BY_OK && t.n_seqs < n; t.n_seqs++) {
        by_kv_seq *s = &t.seqs[t.n_seqs];
        status = by_kv_seq_init(s, kv, ROWS_PER_SEQ, err);
        if (status == BY_OK && by_kv_block_mem(kv)) status = by_kv_seq_reserve(s, kv, ROWS_PER_SEQ, err);
    }
    if (status == BY_OK) status = measure(m, &t, max_rows, budget_ms, err);
    for (int32_t i = 0; t.seqs && i < n; i++)
        if (t.seqs[i].slot) by_kv_seq_deinit(&t.seqs[i], kv);
    by_free(t.seqs);
    by_free(t.steps);
    by_free(t.tokens);
    return status;
}

/* ---- on disk ---- */

static by_status read_points(const by_json *file, by_draft_cost_point *points, int32_t *n, const char *path, by_err *err) {
    const by_json *list = by_json_get(file, "curve");
    if (!list || !by_json_is(list, BY_JSON_ARRAY) || list->n < 1 || list->n > BY_COST_POINTS)
        return BY_FAIL(err, BY_EFORMAT, "%s: \"curve\" is not a list of 1..%d pairs [rows, milliseconds]", path, BY_COST_POINTS);
    for (uint32_t i = 0; i < list->n; i++) {
        const by_json *pair = &list->v.items[i];
        int64_t rows = 0;
        bool ok = by_json_is(pair, BY_JSON_ARRAY) && pair->n == 2 && by_json_int_in(&pair->v.items[0], 1, BY_LIMIT_STEP_ROWS, &rows) &&
                  by_json_is_number(&pair->v.items[1]);
        if (!ok) return BY_FAIL(err, BY_EFORMAT, "%s: curve[%u] is not a pair [rows, milliseconds]", path, i);
        points[i] = (by_draft_cost_point){(int32_t)rows, by_json_number(&pair->v.items[1])};
    }
    *n = (int32_t)list->n;
    return BY_OK;
}

by_status by_cost_read(by_draft_cost_model *m, const char *path, by_err *err) {
    by_buf text = {0};
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json file;
    by_draft_cost_point points[BY_COST_POINTS];
    int32_t n = 0;
    by_err why;
    by_status status = by_file_read(&text, path, FILE_BYTES_MAX, err);
    if (status == BY_OK && (status = by_json_parse(&file, &arena, (by_str){text.ptr, text.len}, NULL, err)) < 0)
        by_err_prefix(err, "%s: ", path);
    if (status == BY_OK) status = read_points(&file, points, &n, path, err);
    if (status == BY_OK && by_cost_set(m, points, n, &why) < 0) status = BY_FAIL(err, BY_EFORMAT, "%s: %s", path, why.msg);
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
    return status;
}

bool by_cost_load(by_draft_cost_model *m, const char *dir, const char *name, int64_t max_age_s) {
    char path[4096];
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    struct stat st;
    if (len < 0 || (size_t)len >= sizeof path || stat(path, &st) != 0 || time(NULL) - st.st_mtime > max_age_s) return false;
    by_err ignored;
    return by_cost_read(m, path, &ignored) == BY_OK;
}

void by_cost_save(const by_draft_cost_model *m, const char *dir, const char *name) {
    char path[4096];
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (len < 0 || (size_t)len >= sizeof path) return;
    by_buf text = {0};
    by_json_out o = by_json_out_init(&text, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "curve");
    by_json_out_array_begin(&o);
    for (int32_t i = 0; i < m->n_curve; i++) {
        by_json_out_array_begin(&o);
        by_json_out_int(&o, m->curve[i].rows);
        by_json_out_double(&o, m->curve[i].ms);
        by_json_out_array_end(&o);
    }
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
    mkdir(dir, 0777);
    by_err ignored;
    if (by_buf_check(&text, &ignored) == BY_OK) by_file_write(path, text.ptr, text.len, &ignored);
    by_buf_deinit(&text);
}
