/* prop_placement.c - where experts lie changes nothing. BY_TEST_TIMEOUT=600
 *
 * The same random prompts through a device that holds all experts, and through one under an artificial limit of its memory with the
 * rest on the host: all, most, a few experts there, whole layers, in random chunks and in company, in exact and deployed numerics.
 * Logits of every row must be equal bit for bit where device and host compute products alike (cpu and cpu, ref and ref, guard and
 * ref), and close where they do not (guard and cpu). guard faults when the host touches what is the device's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/runner.h"
#include "support/golden.h"
#include "support/seed.h"
#include "support/stepper.h"

enum { CONTEXT = 384, ROWS = 48, SEQS = 3, RESERVE = 64 << 20 };

static by_rng rng;
static by_err err;

static void check(by_status s) {
    if (s < 0) fail_msg("%s: %s", by_status_name(s), err.msg);
}

/* ---- places ---- */

/* What is asked of the placement: a share of the experts by a limit (1 = no limit), or by the flags. */
typedef struct {
    const char *name;
    double share;
    int32_t host_layers;
    bool host_experts;
} place;

static const place places[] = {
    {"everything on the device", 1, 0, false}, {"all but a few", 0.9, 0, false}, {"half", 0.5, 0, false}, {"a few", 0.15, 0, false},
    {"none", 0, 0, false},                     {"three layers", 1, 3, false},    {"host experts", 1, 0, true},
};
enum { N_PLACES = sizeof places / sizeof places[0] };

/* The limit under which this share of the experts fits beside everything else. */
static int64_t limit_for(const by_config *c, const place *p) {
    by_placement all;
    if (p->share >= 1) return 0;
    check(by_placement_plan(&all, c, 0, &(by_place_opts){0}, &err));
    return all.fixed_bytes + RESERVE + (1 << 20) + (int64_t)((double)all.expert_bytes[0] * p->share);
}

/* ---- running ---- */

typedef by_test_stepper engine;

static engine engine_open(const char *folder, by_backend dev, by_backend host, by_numerics numerics, const place *p) {
    by_config c;
    by_device *device;
    check(by_config_load(&c, folder, NULL, &err));
    check(by_device_open(&device, &(by_device_opts){.backend = dev, .n_threads = 1, .memory_bytes = limit_for(&c, p)}, &err));
    by_model_opts m = {.numerics = numerics, .host_ref = host == BY_BACKEND_REF, .host_threads = 2,
                       .place = {.reserve = RESERVE, .host_layers = p->host_layers, .host_experts = p->host_experts}};
    by_runner_opts o = {.max_rows = ROWS, .max_seqs = SEQS, .max_logits = ROWS, .max_context = CONTEXT};
    engine e = by_test_stepper_open(device, folder, &m, &(by_kv_opts){.n_blocks = SEQS * CONTEXT / 128 + 1, .n_slots = SEQS}, &o);
    check(by_runner_reserve(e.runner, &err));
    return e;
}

typedef struct {
    int32_t tokens[SEQS][CONTEXT], n[SEQS];
} prompts;

/* Logits of all rows of all prompts, one behind the other; malloc'ed. whole: each prompt alone, in whole chunks; otherwise all
 * together in steps of random shares. Counts the bytes that were allocated behind the first step in *n_allocs. */
static float *run(engine *e, const prompts *p, bool whole, uint64_t *n_allocs) {
    int64_t first[SEQS + 1] = {0};
    by_kv_seq kv[SEQS];
    for (int s = 0; s < SEQS; s++) {
        first[s + 1] = first[s] + p->n[s];
        check(by_kv_seq_init(&kv[s], e->kv, CONTEXT, &err));
        check(by_kv_seq_reserve(&kv[s], e->kv, p->n[s], &err));
    }
    float *out = malloc((size_t)(first[SEQS] * e->V) * 4);
    assert_non_null(out);
    uint64_t before = by_alloc_calls();
    for (int done = 0; done < SEQS;) {
        by_step_seq seqs[SEQS];
        int who[SEQS], k = 0;
        int32_t left = ROWS;
        done = 0;
        for (int s = 0; s < SEQS; s++) {
            int32_t want = (int32_t)(p->n[s] - kv[s].n_tokens), n = whole ? ROWS : (int32_t)by_rng_below(&rng, 24);
            n = n < want ? n : want;
            n = n < left ? n : left;
            done += want == 0;
            if (n == 0) continue;
            left -= n;
            who[k] = s;
            seqs[k++] = (by_step_seq){.kv = &kv[s], .tokens = p->tokens[s], .n_rows = n, .want = BY_WANT_ALL};
            if (whole) break;
        }
        if (k == 0) continue;
        check(by_runner_step(e->runner, seqs, k, &err));
        for (int i = 0, at = 0; i < k; i++)
            for (int32_t r = 0; r < seqs[i].n_rows; r++)
                check(by_runner_read_logits(e->runner, at++, out + (first[who[i]] + seqs[i].kv->n_tokens - seqs[i].n_rows + r) * e->V, &err));
    }
    *n_allocs = by_alloc_calls() - before;
    for (int s = 0; s < SEQS; s++) by_kv_seq_deinit(&kv[s], e->kv);
    return out;
}

static void random_prompts(prompts *p, int64_t V, int32_t longest) {
    for (int s = 0; s < SEQS; s++) {
        p->n[s] = 1 + (int32_t)by_rng_below(&rng, (uint64_t)longest);
        for (int32_t i = 0; i < p->n[s]; i++) p->tokens[s][i] = (int32_t)by_rng_below(&rng, (uint64_t)V);
    }
}

static bool all_close(const float *a, const float *b, int64_t n, float most) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= most)) return false;
    return true;
}

/* most: largest difference of a logit, 0 = equal bits. */
static void compare(const char *folder, by_backend dev, by_backend host, by_numerics numerics, int32_t longest, float most) {
    static prompts p;
    uint64_t n_allocs;
    engine plain = engine_open(folder, dev, host, numerics, &places[0]);
    random_prompts(&p, plain.V, longest);
    float *want = run(&plain, &p, true, &n_allocs);
    assert_null(plain.model->host);
    int64_t n = (p.n[0] + p.n[1] + p.n[2]) * plain.V;
    for (int i = 1; i < N_PLACES; i++) {
        engine e = engine_open(folder, dev, host, numerics, &places[i]);
        const by_placement *at = &e.model->place;
        assert_true(at->n_experts[1] > 0 && (places[i].share > 0 || at->n_experts[0] == 0));
        if (i == 2) assert_in_range(at->expert_bytes[0] * 100 / (at->expert_bytes[0] + at->expert_bytes[1]), 40, 50);
        for (int whole = 0; whole < 2; whole++) {
            float *got = run(&e, &p, whole, &n_allocs);
            char text[200];
            snprintf(text, sizeof text, "%s and %s, %s, numerics %d, %s", by_device_name(e.dev), by_device_name(e.model->host), places[i].name,
                     (int)numerics, whole ? "whole" : "in company");
            assert_int_equal(n_allocs, 0);
            if (most == 0) assert_true(by_golden_same_bytes(text, want, got, (size_t)n, 4));
            else if (!all_close(want, got, n, most)) fail_msg("%s: a logit differs by more than %g", text, (double)most);
            free(got);
        }
        by_test_stepper_close(&e);
    }
    free(want);
    by_test_stepper_close(&plain);
}

static const char *model_path(char c) { return by_golden_path(c == 'a' ? "model/tiny_a/checkpoint" : "model/tiny_b/checkpoint"); }

static void a_cpu_that_is_device_and_host_gives_the_same_bits(void **s) {
    (void)s;
    for (int i = 0; i < by_test_scaled(2); i++) {
        compare(model_path('a'), BY_BACKEND_CPU, BY_BACKEND_CPU, BY_NUMERICS_DEPLOYED, 120, 0);
        compare(model_path('b'), BY_BACKEND_CPU, BY_BACKEND_CPU, BY_NUMERICS_QUANTISED, 60, 0);
        compare(model_path('b'), BY_BACKEND_CPU, BY_BACKEND_CPU, BY_NUMERICS_EXACT, 60, 0);
    }
}

static void a_device_apart_with_a_host_like_it_gives_the_same_bits(void **s) {
    (void)s;
    compare(model_path('a'), BY_BACKEND_GUARD, BY_BACKEND_REF, BY_NUMERICS_DEPLOYED, 12, 0);
    compare(model_path('b'), BY_BACKEND_GUARD, BY_BACKEND_REF, BY_NUMERICS_EXACT, 8, 0);
    compare(model_path('b'), BY_BACKEND_REF, BY_BACKEND_REF, BY_NUMERICS_QUANTISED, 12, 0);
}

/* Exact numerics: products differ by the order of their sums alone. */
static void a_device_apart_with_another_host_is_close(void **s) {
    (void)s;
    compare(model_path('a'), BY_BACKEND_GUARD, BY_BACKEND_CPU, BY_NUMERICS_EXACT, 12, 2e-4f);
}

int main(void) {
    rng = by_test_rng(20261130);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cpu_that_is_device_and_host_gives_the_same_bits),
        cmocka_unit_test(a_device_apart_with_a_host_like_it_gives_the_same_bits),
        cmocka_unit_test(a_device_apart_with_another_host_is_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
