/* golden_model.c - whole models against the reference: logits in the three numerics, streams after every layer.
 * BY_TEST_TIMEOUT=600
 *
 * Tolerances: tests/golden/data/model/ORIGIN.md. exact: 2e-4 for every value, any chunking. quantised: at least 60 % of the
 * cases with a median KL of at most 1e-5. deployed: median KL at most 0.02, and the median relative error of the streams
 * after layers 0, 1, 2 below 2e-3 and 0.6 x the distance of exact numerics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json/json.h"
#include "model/runner.h"
#include "support/device.h"
#include "support/golden.h"
#include "support/npz.h"
#include "support/stepper.h"

enum { CONTEXT = 1024, ROWS = 256 };

static void check(by_status s, const by_err *err) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err->msg);
}

typedef by_test_stepper engine;

static engine engine_open(const char *folder, const by_test_backend *b, by_numerics numerics) {
    char path[256];
    snprintf(path, sizeof path, "model/%s/checkpoint", folder);
    by_runner_opts o = {.max_rows = ROWS, .max_seqs = 4, .max_logits = ROWS, .max_context = CONTEXT};
    return by_test_stepper_open(by_test_device(b, 2), by_golden_path(path), &(by_model_opts){.numerics = numerics, .check_weights = true},
                                &(by_kv_opts){.n_blocks = 16, .n_slots = 4}, &o);
}

/* Residual streams collected by the tap: [L + 1, T, m D]. */
typedef struct {
    float *out;
    int64_t T, done;
} stream_tap;

static by_status collect(void *arg, int32_t layer, by_tensor h, by_err *err) {
    (void)err;
    stream_tap *s = arg;
    float *v = by_test_values(h);
    memcpy(s->out + (layer * s->T + s->done) * h.cols, v, (size_t)(h.rows * h.cols) * 4);
    free(v);
    return BY_OK;
}

/* Logits of all T tokens, [T, V], malloc'ed; chunks of at most `chunk` rows, single rows from `decode_from` on. */
static float *run(engine *e, const int32_t *tokens, int32_t T, int32_t chunk, int32_t decode_from, stream_tap *tap) {
    int64_t V = e->model->cfg.vocab_size;
    float *out = malloc((size_t)(T * V) * 4);
    assert_non_null(out);
    by_err err = {0};
    by_kv_seq seq;
    check(by_kv_seq_init(&seq, e->kv, CONTEXT, &err), &err);
    check(by_kv_seq_reserve(&seq, e->kv, T, &err), &err);
    by_runner_set_tap(e->runner, tap ? collect : NULL, tap);
    for (int32_t at = 0; at < T;) {
        int32_t n = at < decode_from ? (decode_from - at < chunk ? decode_from - at : chunk) : 1;
        if (n > T - at) n = T - at;
        if (tap) tap->done = at;
        by_step_seq step = {.kv = &seq, .tokens = tokens, .n_rows = n, .want = BY_WANT_ALL};
        check(by_runner_step(e->runner, &step, 1, &err), &err);
        for (int32_t i = 0; i < n; i++) check(by_runner_read_logits(e->runner, i, out + (at + i) * V, &err), &err);
        at += n;
    }
    by_kv_seq_deinit(&seq, e->kv);
    return out;
}

/* KL(softmax(want) || softmax(got)) of one row. */
static double kl_row(const float *want, const float *got, int64_t V) {
    double mw = -INFINITY, mg = -INFINITY, sw = 0, sg = 0, kl = 0;
    for (int64_t i = 0; i < V; i++) {
        mw = fmax(mw, (double)want[i]);
        mg = fmax(mg, (double)got[i]);
    }
    for (int64_t i = 0; i < V; i++) {
        sw += exp((double)want[i] - mw);
        sg += exp((double)got[i] - mg);
    }
    for (int64_t i = 0; i < V; i++) {
        double lw = (double)want[i] - mw - log(sw), lg = (double)got[i] - mg - log(sg);
        kl += exp(lw) * (lw - lg);
    }
    return fabs(kl);
}

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}
static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

typedef struct {
    char id[64];
    int32_t tokens[CONTEXT], n;
} prompt;

/* Lines of in.jsonl without pictures. */
static int load_prompts(const char *folder, prompt *p, int max) {
    char path[256];
    snprintf(path, sizeof path, "model/%s/in.jsonl", folder);
    by_lines *lines = by_lines_open(by_golden_path(path));
    by_str line;
    int n = 0;
    while (by_lines_next(lines, &line)) {
        by_arena arena;
        by_arena_init(&arena, BY_MEM_JSON);
        by_json row;
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        const by_json *ids = by_json_get(&row, "tokens");
        if (!by_json_get(&row, "images")) {
            assert_true(n < max && ids->n <= CONTEXT);
            by_str id = by_json_get(&row, "id")->v.s;
            snprintf(p[n].id, sizeof p[n].id, "%.*s", id.len < 60 ? (int)id.len : 60, id.ptr);
            p[n].n = (int32_t)ids->n;
            for (uint32_t i = 0; i < ids->n; i++) p[n].tokens[i] = (int32_t)ids->v.items[i].v.i;
            n++;
        }
        by_arena_deinit(&arena);
    }
    by_lines_close(lines);
    assert_true(n > 0);
    return n;
}

static by_npz *open_npz(const char *folder, const char *file) {
    char path[256];
    snprintf(path, sizeof path, "model/%s/%s", folder, file);
    by_npz *z = by_npz_open(by_golden_path(path));
    assert_non_null(z);
    return z;
}

static prompt prompts[16];

static void exact_logits(const char *folder, const by_test_backend *b) {
    int n = load_prompts(folder, prompts, 16);
    engine e = engine_open(folder, b, BY_NUMERICS_EXACT);
    by_npz *z = open_npz(folder, "logits_exact.npz");
    const int32_t cuts[][2] = {{256, CONTEXT}, {7, CONTEXT}, {33, 20}};
    for (int i = 0; i < n; i++) {
        const by_npy *want = by_npz_need(z, "<f4", "%s", prompts[i].id);
        for (int c = 0; c < (b->backend == BY_BACKEND_GUARD ? 1 : 3); c++) {
            float *got = run(&e, prompts[i].tokens, prompts[i].n, cuts[c][0], cuts[c][1], NULL);
            char what[128];
            snprintf(what, sizeof what, "%s/%.40s on %s, chunks of %d", folder, prompts[i].id, b->name, cuts[c][0]);
            assert_true(by_golden_close_f32(what, got, want->data, want->n, 2e-4, 0));
            free(got);
        }
    }
    by_npz_close(z);
    by_test_stepper_close(&e);
}

/* Median over the tokens of a prompt of the divergence of its logits from the stored ones. */
static double median_kl(engine *e, by_npz *z, const prompt *p) {
    const float *want = by_npy_f32(by_npz_need(z, "<f4", "%s", p->id));
    float *got = run(e, p->tokens, p->n, 64, CONTEXT, NULL);
    double kl[CONTEXT];
    int64_t V = e->model->cfg.vocab_size;
    for (int t = 0; t < p->n; t++) kl[t] = kl_row(want + t * V, got + t * V, V);
    free(got);
    return median(kl, p->n);
}

static void quantised_logits(const char *folder, const by_test_backend *b) {
    int n = load_prompts(folder, prompts, 16), good = 0;
    engine e = engine_open(folder, b, BY_NUMERICS_QUANTISED);
    by_npz *z = open_npz(folder, "logits_quantised.npz");
    for (int i = 0; i < n; i++) {
        double m = median_kl(&e, z, &prompts[i]);
        print_message("%s/%s quantised on %s: median KL %.2g\n", folder, prompts[i].id, b->name, m);
        good += m <= 1e-5;
    }
    assert_true(good * 10 >= n * 6);
    by_npz_close(z);
    by_test_stepper_close(&e);
}

static void deployed_logits(const char *folder, const by_test_backend *b) {
    int n = load_prompts(folder, prompts, 16);
    engine e = engine_open(folder, b, BY_NUMERICS_DEPLOYED);
    by_npz *z = open_npz(folder, "logits_deployed.npz");
    for (int i = 0; i < n; i++) {
        double m = median_kl(&e, z, &prompts[i]);
        print_message("%s/%s deployed on %s: median KL %.2g\n", folder, prompts[i].id, b->name, m);
        assert_true(m <= 0.02);
    }
    by_npz_close(z);
    by_test_stepper_close(&e);
}

/* Median over tokens of |got - want| / |want| of a layer's streams. */
static double stream_error(const float *got, const float *want, int64_t T, int64_t mD) {
    double rel[CONTEXT];
    for (int64_t t = 0; t < T; t++) {
        double num = 0, den = 0;
        for (int64_t i = 0; i < mD; i++) {
            double d = (double)got[t * mD + i] - (double)want[t * mD + i];
            num += d * d;
            den += (double)want[t * mD + i] * (double)want[t * mD + i];
        }
        rel[t] = sqrt(num / (den > 0 ? den : 1));
    }
    return median(rel, (int)T);
}

/* The prompt that streams.npz was made from. */
static const prompt *taps_prompt(const char *folder, int n, int64_t T) {
    const prompt *found = NULL;
    for (int i = 0; i < n; i++)
        if (prompts[i].n == T && (!found || strcmp(prompts[i].id, "short") == 0)) found = &prompts[i];
    if (!found) fail_msg("%s: no prompt of %d tokens", folder, (int)T);
    return found;
}

static void streams(const char *folder, const by_test_backend *b) {
    int n = load_prompts(folder, prompts, 16);
    by_npz *z = open_npz(folder, "streams.npz");
    const char *names[] = {"exact", "quantised", "deployed"};
    for (int k = 0; k < 3; k++) {
        const by_npy *want = by_npz_need(z, "<f4", "%s", names[k]);
        int64_t L = (int64_t)want->shape[0], T = (int64_t)want->shape[1], mD = (int64_t)(want->shape[2] * want->shape[3]);
        const prompt *p = taps_prompt(folder, n, T);
        engine e = engine_open(folder, b, (by_numerics)k);
        float *got = malloc(want->n * 4);
        assert_non_null(got);
        stream_tap tap = {.out = got, .T = T};
        free(run(&e, p->tokens, (int32_t)T, 5, CONTEXT, &tap));
        const float *w = by_npy_f32(want), *exact = by_npy_f32(by_npz_need(z, "<f4", "exact"));
        if (k == 0) {
            for (int64_t l = 0; l < L; l++) {
                char what[128];
                snprintf(what, sizeof what, "%s streams before layer %d on %s", folder, (int)l, b->name);
                assert_true(by_golden_close_f32(what, got + l * T * mD, w + l * T * mD, (size_t)(T * mD), 1e-4, 1e-5));
            }
        }
        for (int l = 1; k == 2 && l <= 3; l++) {
            double err = stream_error(got + l * T * mD, w + l * T * mD, T, mD);
            double far = stream_error(exact + l * T * mD, w + l * T * mD, T, mD);
            print_message("%s deployed streams after layer %d on %s: %.2g (exact is %.2g away)\n", folder, l - 1, b->name, err, far);
            assert_true(l == 1 ? err <= 2e-3 : err <= 0.6 * far);
        }
        free(got);
        by_test_stepper_close(&e);
    }
    by_npz_close(z);
}

static const char *const folders[] = {"first_light", "tiny_a", "tiny_b"};

static void on_every_backend(void (*one)(const char *, const by_test_backend *)) {
    const by_test_backend *all;
    int n = by_test_all_backends(&all);
    for (int i = 0; i < n; i++)
        for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) one(folders[f], &all[i]);
}

static void exact_logits_match(void **s) { (void)s; on_every_backend(exact_logits); }
static void quantised_logits_match(void **s) { (void)s; on_every_backend(quantised_logits); }
static void deployed_logits_match(void **s) { (void)s; on_every_backend(deployed_logits); }
static void streams_match(void **s) { (void)s; on_every_backend(streams); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_match),
        cmocka_unit_test(exact_logits_match),
        cmocka_unit_test(quantised_logits_match),
        cmocka_unit_test(deployed_logits_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
