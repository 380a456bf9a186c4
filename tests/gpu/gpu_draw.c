/* gpu_draw.c - draws of the cuda backend against the host's sampler: the same token and the same bits of the log-probability, over
 * vocabularies, temperatures, rules, and rows with ties, removed tokens and values that are no numbers; drafts judged by rejection
 * alike, and the law of what comes of them. Then times of a draw from the true vocabulary. Exit code 1 when something differs, 77 when
 * the machine has no device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "engine/spec.h"
#include "gpu_support.h"
#include "ops/ops.h"
#include "sample/sample_dist.h"
#include "sample/sample_edit.h"
#include "sample/sample_pick.h"
#include "sample/sample_scratch.h"

enum { ROWS = 24, V_TRUE = 129280 };

/* Kinds of rows: scattered, one that leads, ties, a few tokens left, all equal, a NaN, an infinity, nothing left. */
static void fill(float *row, int32_t V, int kind) {
    for (int32_t i = 0; i < V; i++) {
        float x = normal() * 4;
        if (kind == 2) x = floorf(x);
        if (kind == 3 && rnd() % 64) x = -INFINITY;
        if (kind == 4) x = 1.25f;
        if (kind == 7) x = -INFINITY;
        row[i] = x;
    }
    int32_t at = (int32_t)(rnd() % (uint32_t)V);
    if (kind == 1) row[at] = 40;
    if (kind == 3) row[at] = 1;
    if (kind == 5) row[at] = NAN;
    if (kind == 6) row[at] = INFINITY;
}

static uint32_t bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

/* The host's token and log-probability; false when it refuses the row. */
static bool host_draw(const float *row, int32_t V, float t, bool plain, by_sample_rule rule, by_sample_stream stream, by_sample_scratch *s,
                      int32_t *id, float *logprob) {
    by_sample_law law = {.temperature = t, .top_p = 1, .top_k = -1}, one = {.temperature = 1, .top_p = 1, .top_k = -1};
    by_sample_dist d;
    by_err refused = {0};
    if (by_sample_dist_make(&d, row, V, &law, s, &refused) < 0) return false;
    *id = by_sample_dist_pick(&d, &stream, rule, s);
    if (*id < 0) return false;
    if (plain) MUST(by_sample_dist_make(&d, row, V, &one, s, err));
    *logprob = by_sample_dist_logprob(&d, *id);
    return true;
}

/* The same draws queued: their ids are what the others said, or a token that can be looked up. */
static int compare_queued(by_device *dev, by_tensor logits, by_draws what) {
    enum { N = 2 * ROWS };
    int32_t ids[2][N], bad = 0;
    by_mem *m = NULL;
    MUST(by_mem_alloc(&m, dev, sizeof ids, err));
    const by_drawn *drawn = what.out;
    what.out = NULL;
    what.ids = by_tensor_make(m, 0, BY_I32, 2, N);
    uint64_t waits = by_device_counts_get(dev).n_waits;
    MUST(by_device_draw(dev, logits, &what, err));
    if (by_device_counts_get(dev).n_waits != waits) bad++;
    MUST(by_mem_read(ids, m, 0, sizeof ids, err));
    for (int i = 0; i < N; i++) bad += ids[1][i] != drawn[i].id || ids[0][i] != (drawn[i].id < 0 ? 0 : drawn[i].id);
    by_mem_free(m);
    if (bad) printf("    %d queued draws differ\n", bad);
    return bad;
}

static int compare(by_device *dev, int32_t V, float t, bool plain, by_sample_rule rule) {
    float *rows = malloc((size_t)V * ROWS * 4);
    by_mem *m = NULL;
    by_sample_scratch *s = NULL;
    by_cpu cpu;
    by_cpu_detect(&cpu);
    MUST(by_sample_scratch_create(&s, V, cpu.isa, err));
    for (int r = 0; r < ROWS; r++) fill(rows + (size_t)r * (size_t)V, V, r % 8);
    MUST(by_mem_alloc(&m, dev, (size_t)V * ROWS * 4, err));
    MUST(by_mem_write(m, 0, rows, (size_t)V * ROWS * 4, err));
    by_draw draws[2 * ROWS];
    by_drawn drawn[2 * ROWS];
    by_sample_stream streams[ROWS];
    float inv_t = 1.0f / (t < BY_SAMPLE_GREEDY_BELOW ? BY_SAMPLE_GREEDY_BELOW : t);
    for (int r = 0; r < ROWS; r++) {
        by_sample_stream stream = streams[r] = by_sample_stream_at(rnd(), rnd(), BY_SAMPLE_DRAW_FRESH);
        draws[r] = (by_draw){.row = r, .inv_t = inv_t, .report_inv_t = plain ? 1 : inv_t,
                             .kind = rule == BY_SAMPLE_SMOOTH ? BY_DRAW_SMOOTH : BY_DRAW_MODULO};
        for (int i = 0; i < BY_DRAW_WORDS; i++) draws[r].words[i] = by_sample_stream_word(&stream);
        draws[ROWS + r] = (by_draw){.row = r, .kind = BY_DRAW_ARGMAX};
    }
    by_draws what = {.draws = draws, .n = 2 * ROWS, .out = drawn};
    MUST(by_device_draw(dev, by_tensor_make(m, 0, BY_F32, ROWS, V), &what, err));
    int bad = compare_queued(dev, by_tensor_make(m, 0, BY_F32, ROWS, V), what), n_drawn = 0;
    for (int r = 0; r < ROWS; r++) {
        const float *row = rows + (size_t)r * (size_t)V;
        int32_t id = -1, top = -1;
        float logprob = 0, own = (drawn[r].logit - drawn[r].max) * (plain ? 1 : inv_t) - drawn[r].log_sum;
        by_err refused = {0};
        bool ok = host_draw(row, V, t, plain, rule, streams[r], s, &id, &logprob), has = by_sample_argmax(&top, row, V, s, &refused) == BY_OK;
        n_drawn += drawn[r].id >= 0;
        /* eight words that are all refused are for the host: seldom, and only by the modulo rule */
        bool given_up = ok && drawn[r].id < 0 && rule == BY_SAMPLE_DEEPINFER;
        bool same = given_up || (ok ? drawn[r].id == id && bits(own) == bits(logprob) : drawn[r].id < 0);
        same = same && drawn[ROWS + r].id == (has ? top : -1);
        if (!same)
            printf("    row %d kind %d: host %d %.9g top %d, device %d %.9g top %d\n", r, r % 8, id, (double)logprob, top, drawn[r].id,
                   (double)own, drawn[ROWS + r].id);
        bad += !same;
    }
    printf("V %6d temperature %-5g %s %s: %d of %d rows drawn, %d differ %s\n", V, (double)t, rule == BY_SAMPLE_SMOOTH ? "smooth" : "modulo",
           plain ? "plain" : "", n_drawn, ROWS, bad, bad || n_drawn < ROWS / 2 ? "FAILED" : "ok");
    by_mem_free(m);
    by_sample_scratch_destroy(s);
    free(rows);
    return bad > 0 || n_drawn < ROWS / 2;
}

/* ---- any law ---- */

enum { BIASES = 6, BANS = 4, SEEN = 40 };
typedef struct {
    by_sample_params params;
    by_spec_law law;
    by_spec_row row;
    by_sample_history history;
    by_sample_bias bias[BIASES];
    int32_t banned[BANS], stop[BANS], draw; /* of the device, -1: none */
    uint32_t *mask;
    int32_t draft; /* -1: none */
    by_spec_drafts far, near;
} asked;

static float one_of(const float *v, uint32_t n) { return v[rnd() % n]; }
static float within(float low, float high) { return low + (high - low) * uniform(); }

/* A law as a request may have it, with what the sequence has seen. Ids of biases are distinct. */
static void random_law(asked *a, int32_t V, uint32_t words) {
    by_sample_params *p = &a->params;
    *p = by_sample_params_default();
    p->law.temperature = one_of((const float[]){0, 0.2f, 0.7f, 1, 1, 1.5f}, 6);
    p->law.top_p = one_of((const float[]){1, 1, 0.05f, 0.5f, 0.9f, 0.999f}, 6);
    p->law.min_p = one_of((const float[]){0, 0, 0, 0.01f, 0.3f, 1}, 6);
    p->law.top_k = (int32_t)one_of((const float[]){-1, -1, 1, 3, 20, 300}, 6);
    p->rule = rnd() % 2 ? BY_SAMPLE_SMOOTH : BY_SAMPLE_DEEPINFER;
    p->eos_id = (int32_t)(rnd() % (uint32_t)V);
    bool edits = rnd() % 3 > 0;
    if (edits) {
        if (rnd() % 2) p->repetition_penalty = within(0.5f, 2);
        if (rnd() % 2) p->frequency_penalty = within(-1, 1);
        if (rnd() % 2) p->presence_penalty = within(-1, 1);
        p->bias = a->bias, p->n_bias = (int32_t)(rnd() % (BIASES + 1));
        if (p->n_bias > V) p->n_bias = V;
        for (int32_t i = 0, id = 0; i < p->n_bias; i++) { /* leaves room for those that follow */
            id += (int32_t)(rnd() % (uint32_t)((V - p->n_bias + i - id) / (p->n_bias - i) + 1));
            a->bias[i] = (by_sample_bias){id++, within(-5, 5)};
        }
        p->banned = a->banned, p->n_banned = (int32_t)(rnd() % (BANS + 1));
        p->stop_ids = a->stop, p->n_stop_ids = (int32_t)(rnd() % (BANS + 1));
        for (int32_t i = 0; i < BANS; i++) a->banned[i] = (int32_t)(rnd() % (uint32_t)V), a->stop[i] = (int32_t)(rnd() % (uint32_t)V);
        p->min_tokens = (int32_t)(rnd() % 4);
        p->first_no_eos = rnd() % 2;
        for (int32_t i = 0, id; i < SEEN; i++) {
            id = (int32_t)(rnd() % (uint32_t)V);
            if (rnd() % 2) MUST(by_sample_history_add_prompt(&a->history, &id, 1, err));
            else MUST(by_sample_history_push(&a->history, id, err));
        }
    }
    a->row = (by_spec_row){.first = 10 + rnd() % 1000, .index = (int32_t)(rnd() % 3), .n_out = (int32_t)(rnd() % 4)};
    a->law = (by_spec_law){.params = p, .seed = rnd(), .rule = rnd() % 2 ? BY_SAMPLE_COUPLED : BY_SAMPLE_REJECTION,
                           .history = edits ? &a->history : NULL, .plain_logprobs = rnd() % 2};
    a->law.n_top = (int32_t)one_of((const float[]){0, 0, 5, 20}, 4);
    if (a->law.n_top > V) a->law.n_top = V;
    uint32_t dense = rnd() % 3;
    for (uint32_t i = 0; i < words && dense; i++) a->mask[i] = dense == 1 ? rnd() & rnd() & rnd() & rnd() : rnd() % 4 ? UINT32_MAX : rnd();
    if (rnd() % 3 == 0) a->row.mask = a->mask;
}

/* A draft for half of the rows: drawn from q as proposals are, or any token. q is near the row, or far from it. own [3 * V]: the edited
 * row as the host keeps it. */
static void random_draft(asked *a, const float *row, float *q, float *own, int32_t V, int32_t i, by_spec *near) {
    a->draft = -1;
    bool close = rnd() % 2;
    for (int32_t k = 0; k < V; k++) q[k] = close ? row[k] + normal() : normal() * 4;
    float *edited = own + (size_t)a->row.index * (size_t)V;
    memcpy(edited, q, (size_t)V * 4);
    by_err refused = {0};
    if (a->law.history && by_sample_edit(edited, V, &a->params, &a->history, a->row.n_out, &refused) < 0) return;
    by_sample_token t;
    if (by_sample_row(&t, edited, V, &a->params, (uint32_t)(a->row.first + a->row.index), BY_SAMPLE_DRAW_DRAFT, near->scratch, &refused) < 0)
        return;
    if (rnd() % 4) a->draft = rnd() % 4 ? t.id : (int32_t)(rnd() % (uint32_t)V);
    a->far = (by_spec_drafts){.row = i};
    a->near = (by_spec_drafts){.q = own};
}

static int n_judged, n_accepted; /* drafts, over all vocabularies */

/* by_spec_sample from the host's logits and from what the device drew, if it did. */
static bool same_token(by_spec *far, by_spec *near, asked *a, const float *row) {
    by_sample_top tops[2][BY_SPEC_TOP_FAR];
    by_spec_token t[2] = {{.id = -1}, {.id = -1}};
    by_err why = {0};
    const by_drawn *d = a->draw >= 0 ? &far->drawn[a->draw] : NULL;
    by_sample_history *h = a->law.history;
    a->row.logits = row;
    by_status status = by_spec_sample(near, &a->law, &a->row, &a->near, a->draft, &t[0], a->law.n_top ? tops[0] : NULL, &why);
    if (status == BY_OK && h) by_sample_history_pop(h, t[0].id);
    bool same = d && (status == BY_OK ? d->id >= 0 || a->params.rule == BY_SAMPLE_DEEPINFER : d->id < 0);
    if (same && d->id >= 0) {
        a->row.logits = NULL; /* nobody looks there */
        a->row.drawn = d, a->row.drawn_top = &far->tops[a->draw * BY_SPEC_TOP_FAR];
        MUST(by_spec_sample(far, &a->law, &a->row, &a->far, a->draft, &t[1], a->law.n_top ? tops[1] : NULL, err));
        if (h) by_sample_history_pop(h, t[1].id);
        same = t[0].id == t[1].id && t[0].accepted == t[1].accepted && bits(t[0].logprob) == bits(t[1].logprob);
        for (int32_t k = 0; k < a->law.n_top; k++)
            same = same && tops[0][k].id == tops[1][k].id && bits(tops[0][k].logprob) == bits(tops[1][k].logprob);
    }
    if (same && d->id >= 0 && a->draft >= 0 && a->law.rule == BY_SAMPLE_REJECTION && !by_sample_is_greedy(&a->params)) {
        n_judged++; /* where the device cannot, the host judges from the device's row of the draft */
        n_accepted += t[0].accepted;
        a->row.drawn = NULL, a->row.logits = row;
        MUST(by_spec_sample(far, &a->law, &a->row, &a->far, a->draft, &t[1], NULL, err));
        same = t[0].id == t[1].id && t[0].accepted == t[1].accepted && bits(t[0].logprob) == bits(t[1].logprob);
    }
    const by_sample_law *l = &a->params.law;
    if (!same)
        printf("    t %g p %g k %d min %g edits %d mask %d top %d draft %d: host %d %.9g (%s), device %d %.9g\n", (double)l->temperature,
               (double)l->top_p, l->top_k, (double)l->min_p, h != NULL, a->row.mask != NULL, a->law.n_top, a->draft, t[0].id,
               (double)t[0].logprob, why.msg, d ? d->id : -2, (double)t[1].logprob);
    return same;
}

/* One call of the device with many laws, against by_spec_sample on the host. */
static int compare_laws(by_device *dev, int32_t V, int rounds) {
    enum { N = 24 };
    float *rows = malloc((size_t)V * N * 4), *qs = malloc((size_t)V * N * 4), *own = malloc((size_t)V * N * 12);
    uint32_t words = ((uint32_t)V + 31) / 32, *masks = malloc((size_t)words * N * 4);
    by_spec far, near;
    by_mem *m = NULL;
    asked *all = calloc(N, sizeof *all);
    int bad = 0, n_drawn = 0, n_all = 0;
    MUST(by_spec_init(&far, V, err));
    MUST(by_spec_init(&near, V, err));
    far.dev = dev;
    MUST(by_mem_alloc(&m, dev, (size_t)V * N * 8, err));
    far.proposed = by_tensor_make(m, (int64_t)V * N * 4, BY_F32, N, V);
    for (int round = 0; round < rounds; round++) {
        MUST(by_spec_reserve(&far, N, err));
        int32_t n = 0;
        for (int i = 0; i < N; i++) {
            fill(rows + (size_t)i * (size_t)V, V, (int)(rnd() % 16));
            memset(&all[i], 0, sizeof all[i]);
            all[i].mask = masks + (size_t)i * words;
            memset(all[i].mask, 0xff, words * 4);
            random_law(&all[i], V, words);
            random_draft(&all[i], rows + (size_t)i * (size_t)V, qs + (size_t)i * (size_t)V, own + (size_t)i * (size_t)V * 3, V, i, &near);
            all[i].draw = -1;
            if (!by_spec_ask(&far, &all[i].law, &all[i].row, &all[i].far, all[i].draft, all[i].law.n_top, &far.draws[n])) continue;
            far.draws[n].row = i;
            all[i].draw = n++;
        }
        MUST(by_mem_write(m, 0, rows, (size_t)V * N * 4, err));
        MUST(by_mem_write(m, (size_t)V * N * 4, qs, (size_t)V * N * 4, err));
        MUST(by_spec_draw(&far, by_tensor_make(m, 0, BY_F32, N, V), n, (by_tensor){0}, NULL, err));
        for (int i = 0; i < N; i++) {
            n_drawn += all[i].draw >= 0 && far.drawn[all[i].draw].id >= 0;
            bad += !same_token(&far, &near, &all[i], rows + (size_t)i * (size_t)V);
            n_all++;
            by_sample_history_deinit(&all[i].history);
        }
    }
    printf("V %6d any law: %d of %d rows drawn, %d differ %s\n", V, n_drawn, n_all, bad, bad || n_drawn < n_all / 2 ? "FAILED" : "ok");
    by_mem_free(m);
    by_spec_deinit(&far);
    by_spec_deinit(&near);
    free(rows), free(qs), free(own), free(masks), free(all);
    return bad > 0 || n_drawn < n_all / 2;
}

/* Tokens that come of drafts drawn from q and judged against p, seed after seed: their law is p. Then drafts drawn from another law
 * than the one told, which must be noticed. */
static int judged_law(by_device *dev, int rounds) {
    enum { V = 12, EACH = 256 };
    float rows[3][V];
    by_spec s;
    by_mem *m = NULL;
    int failed = 0;
    MUST(by_spec_init(&s, V, err));
    s.dev = dev;
    MUST(by_mem_alloc(&m, dev, sizeof rows, err));
    for (int wrong = 0; wrong < 2; wrong++) {
        by_sample_params p = by_sample_params_default();
        p.law.temperature = 0.9f;
        if (!wrong) p.law.top_k = 9;
        for (int i = 0; i < V; i++) rows[0][i] = normal() * 1.5f, rows[1][i] = rows[0][i] + normal(), rows[2][i] = normal();
        MUST(by_mem_write(m, 0, rows, sizeof rows, err));
        s.proposed = by_tensor_make(m, V * 4, BY_F32, 2, V);
        by_sample_dist d;
        MUST(by_sample_dist_make(&d, rows[0], V, &p.law, s.scratch, err));
        double law[V], chi = 0;
        int64_t n[V] = {0}, all = 0, accepted = 0;
        for (int i = 0; i < V; i++) law[i] = exp((double)by_sample_dist_logprob(&d, i));
        for (int round = 0; round < rounds; round++) {
            static int32_t drafts[EACH];
            MUST(by_spec_reserve(&s, EACH, err));
            for (int i = 0; i < EACH; i++) {
                by_sample_token t;
                p.seed = (uint64_t)(round * EACH + i);
                MUST(by_sample_row(&t, rows[wrong ? 2 : 1], V, &p, 7, BY_SAMPLE_DRAW_DRAFT, s.scratch, err));
                drafts[i] = t.id;
                by_spec_law of = {.params = &p, .seed = p.seed, .rule = BY_SAMPLE_REJECTION};
                by_spec_row row = {.first = 7};
                by_spec_drafts told = {.row = 0};
                if (!by_spec_ask(&s, &of, &row, &told, drafts[i], 0, &s.draws[i])) return printf("not asked FAILED\n"), 1;
            }
            MUST(by_spec_draw(&s, by_tensor_make(m, 0, BY_F32, 1, V), EACH, (by_tensor){0}, NULL, err));
            for (int i = 0; i < EACH; i++) n[s.drawn[i].id]++, all++, accepted += s.drawn[i].accepted;
        }
        int free_n = -1;
        for (int i = 0; i < V; i++) {
            double want = law[i] * (double)all;
            if (want > 0) chi += ((double)n[i] - want) * ((double)n[i] - want) / want, free_n++;
            else if (n[i]) chi = INFINITY;
        }
        double off = (chi - free_n) / sqrt(2.0 * free_n); /* in standard deviations */
        bool ok = wrong ? off > 8 : off < 5;
        printf("%lld judged drafts%s: %lld accepted, chi-squared %.1f at %d degrees of freedom %s\n", (long long)all,
               wrong ? " of another law than told" : "", (long long)accepted, chi, free_n, ok ? "ok" : "FAILED");
        failed += !ok;
    }
    by_mem_free(m);
    by_spec_deinit(&s);
    return failed;
}

static void times(by_device *dev) {
    by_mem *m = NULL;
    float *rows = malloc((size_t)V_TRUE * 64 * 4);
    for (int64_t i = 0; i < (int64_t)V_TRUE * 64; i++) rows[i] = normal() * 4;
    MUST(by_mem_alloc(&m, dev, (size_t)V_TRUE * 64 * 4, err));
    MUST(by_mem_write(m, 0, rows, (size_t)V_TRUE * 64 * 4, err));
    by_tensor l = by_tensor_make(m, 0, BY_F32, 64, V_TRUE);
    by_draw draws[64] = {0};
    by_drawn drawn[64];
    for (int i = 0; i < 64; i++) draws[i] = (by_draw){.row = i, .inv_t = 1e5f, .report_inv_t = 1, .words = {rnd(), rnd()}};
    for (int32_t n = 1; n <= 64; n *= 64) {
        double best[2] = {1e9, 1e9};
        for (int k = 0; k < 20; k++)
            for (int way = 0; way < 2; way++) {
                struct timespec a, b;
                clock_gettime(CLOCK_MONOTONIC, &a);
                const void *view;
                if (way == 0) MUST(by_device_draw(dev, l, &(by_draws){.draws = draws, .n = n, .out = drawn}, err));
                else MUST(by_mem_view(&view, m, 0, (size_t)n * V_TRUE * 4, err));
                if (way == 1) by_mem_unview(m);
                clock_gettime(CLOCK_MONOTONIC, &b);
                double us = (double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) * 1e-3;
                best[way] = us < best[way] ? us : best[way];
            }
        printf("%2d rows of %d logits: draw on the device %.0f us, copy to the host alone %.0f us\n", n, V_TRUE, best[0], best[1]);
    }
    free(rows);
    by_mem_free(m);
}

/* usage: gpu_draw [quick], which leaves out the true vocabulary and the times. */
int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    by_device *dev = NULL;
    by_err why = {0};
    by_device_opts opts = {.backend = BY_BACKEND_CUDA};
    by_status status = by_device_open(&dev, &opts, &why);
    if (status == BY_EUNSUPPORTED) {
        printf("skipped: %s\n", why.msg);
        return 77;
    }
    if (status < 0) {
        fprintf(stderr, "gpu_draw: %s\n", why.msg);
        return 1;
    }
    rnd_state = 7;
    int failed = 0;
    static const int32_t sizes[] = {5, 300, 5000, 8192, 20000, V_TRUE};
    static const float temperatures[] = {0, 0.3f, 1, 1.7f};
    for (size_t v = 0; v < sizeof sizes / sizeof *sizes - quick; v++)
        for (size_t t = 0; t < sizeof temperatures / sizeof *temperatures; t++)
            for (int rule = 0; rule < 2; rule++) failed += compare(dev, sizes[v], temperatures[t], t == 0, (by_sample_rule)rule);
    static const int rounds[] = {8, 80, 40, 40, 40, 20};
    for (size_t v = 0; v < sizeof sizes / sizeof *sizes - quick; v++)
        failed += compare_laws(dev, sizes[v], quick ? 1 + rounds[v] / 20 : rounds[v]);
    bool some = n_accepted > 5 && n_judged - n_accepted > 5;
    printf("drafts judged: %d, of them accepted %d %s\n", n_judged, n_accepted, some ? "ok" : "FAILED");
    failed += !some;
    failed += judged_law(dev, quick ? 6 : 800);
    if (!quick) times(dev);
    by_device_close(dev);
    printf("%d of the cases failed\n", failed);
    return failed != 0;
}
