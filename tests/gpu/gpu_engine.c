/* gpu_engine.c - the whole engine on the device, with a small model: requests of every law, alone and in company.
 *
 * Alone: one request at a time, one chunk, no drafts. In company: all at once, prompts in small chunks, drafts, and in exact numerics a
 * long prompt besides and pools so small that a sequence is swapped out and in. Both must give the same tokens and the same bits of
 * log-probabilities. In exact numerics the tokens are those of the cpu backend, and the log-probabilities lie within what
 * docs/numerics.md says; so are those with drafts that are judged by rejection, without a row of logits that leaves the device. Exit code
 * 1 when something differs, 77 when the machine has no device.
 * usage: gpu_engine MODEL; the model has a tokenizer and draft layers */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "gpu_support.h"

enum { N = 7, PROMPT = 124, OUT = 10, SHORT_OUT = 5, CHOICES = 2, TOP = 4, ROUNDS = 4, WAIT_MS = 300000 };
#define LIMIT 2e-4 /* of a log-probability in exact numerics */

typedef struct {
    by_request_opts o;
    by_request_grammar grammar;
    int32_t tokens[PROMPT];
} asked;
typedef struct {
    int32_t n, tokens[OUT];
    float logprobs[OUT];
    by_sample_top top[OUT][TOP];
    by_choice_finish finish;
} choice;
typedef struct {
    choice c[N][CHOICES];
    by_engine_stats stats;
    uint64_t n_read; /* bytes from the device */
} outcome;

static asked requests[N];
static const char *folder;

/* The first request crosses the border of a block. */
static void make_requests(int32_t V) {
    static const by_sample_bias bias[] = {{5, 3}, {17, -100}, {23, 2}};
    static const int32_t banned[] = {40, 41};
    for (int i = 0; i < N; i++) {
        asked *a = &requests[i];
        a->o = by_request_opts_default();
        a->o.tokens = a->tokens;
        a->o.n_tokens = i == 0 ? PROMPT : 2 + 2 * i;
        for (int32_t k = 0; k < a->o.n_tokens; k++) a->tokens[k] = (int32_t)(rnd() % (uint32_t)V);
        a->o.max_tokens = i == 0 ? OUT : SHORT_OUT;
        a->o.ignore_eos = true;
        a->o.plain_logprobs = true;
        a->o.sampling.seed = 100 + (uint64_t)i;
    }
    by_sample_params *p[N];
    for (int i = 0; i < N; i++) p[i] = &requests[i].o.sampling;
    p[0]->law.temperature = 0;
    p[1]->law.temperature = 0.9f, p[1]->law.top_k = 20;
    p[2]->law.temperature = 0, requests[2].o.n_top = TOP;
    p[3]->law.top_p = 0.8f, p[3]->law.min_p = 0.01f, requests[3].o.n = requests[3].o.best_of = CHOICES;
    p[4]->law.temperature = 0.7f, p[4]->frequency_penalty = 0.7f, p[4]->presence_penalty = 0.3f, p[4]->repetition_penalty = 1.3f;
    p[4]->bias = bias, p[4]->n_bias = 3;
    p[5]->banned = banned, p[5]->n_banned = 2, p[5]->min_tokens = 4, requests[5].o.n_top = TOP;
    static const char pattern[] = "[a-z]{3,9}(-[0-9]+){1,3}";
    requests[6].grammar = (by_request_grammar){.spec = {.kind = BY_GRAMMAR_REGEX, .text = {pattern, sizeof pattern - 1}}, .bound_id = -1};
    requests[6].o.grammar = &requests[6].grammar;
    requests[6].o.ignore_eos = false;
}

static by_engine_opts options(by_backend backend, by_numerics numerics, bool company) {
    static const by_draft_cost_point cost[] = {{4, 1}, {8, 1.3}, {16, 1.8}, {64, 5}};
    by_engine_opts o = by_engine_opts_default();
    o.model_dir = folder;
    o.device.backend = backend;
    o.device.n_threads = 1;
    o.model.numerics = numerics;
    o.max_context = 256;
    o.ram_bytes = 1 << 28;
    o.sched.max_seqs = company ? N + 1 : 2;
    o.sched.max_rows = company ? 40 : 256;
    o.kv_blocks = !company ? 0 : numerics == BY_NUMERICS_EXACT ? N - 1 : 2 * N;
    o.state_slots = company ? N + 1 : 0;
    o.expect_quantile = company ? 0.01 : 0.9;
    o.prefix_cache = false;
    o.draft_mode = company ? BY_DRAFT_CONFIDENCE : BY_DRAFT_OFF;
    o.eager = !company; /* so steps from recordings are compared with steps as they are */
    o.n_drafts = 2;
    o.cost = cost;
    o.n_cost = 4;
    return o;
}

/* One at a time, with steps that do not depend on who was faster: under rejection tokens follow how many drafts a step has. */
static by_engine_opts rejecting(by_backend backend) {
    by_engine_opts o = options(backend, BY_NUMERICS_EXACT, false);
    o.draft_mode = BY_DRAFT_FIXED;
    o.verify = BY_SAMPLE_REJECTION;
    o.async = false;
    return o;
}

static void read_request(by_request *r, choice *out) {
    by_event ev;
    by_status status;
    while ((status = by_request_next(r, &ev, WAIT_MS)) == BY_OK) {
        choice *c = &out[ev.choice];
        if (ev.finish != BY_CHOICE_RUNNING) c->finish = ev.finish;
        if (ev.finish == BY_CHOICE_ERROR) {
            by_err why;
            by_request_error(r, &why);
            fprintf(stderr, "gpu_engine: %s\n", why.msg);
            exit(1);
        }
        if (ev.token < 0 || c->n == OUT) continue;
        c->tokens[c->n] = ev.token;
        c->logprobs[c->n] = ev.logprob;
        if (ev.n_top) memcpy(c->top[c->n], ev.top, (size_t)ev.n_top * sizeof *ev.top);
        c->n++;
    }
    by_request_release(r);
    if (status == BY_END) return;
    fprintf(stderr, "gpu_engine: nothing came for %d s\n", WAIT_MS / 1000);
    exit(1);
}

static void run(by_engine_opts o, bool company, int first, outcome *out) {
    by_engine *e;
    by_request *all[N];
    memset(out, 0, sizeof *out);
    MUST(by_engine_open(&e, &o, err));
    uint64_t n_read = by_device_counts_get(by_engine_model(e)->dev).n_read;
    for (int i = first; i < N; i++) {
        MUST(by_engine_submit(e, &requests[i].o, &all[i], err));
        if (!company) read_request(all[i], out->c[i]);
    }
    for (int i = first; i < N && company; i++) read_request(all[i], out->c[i]);
    by_engine_wait_idle(e, 10000);
    out->stats = by_engine_stats_get(e);
    out->n_read = by_device_counts_get(by_engine_model(e)->dev).n_read - n_read;
    by_engine_close(e);
}

/* Equal tokens and ends, and log-probabilities within a limit; 0: the same bits. Returns how many choices differ. */
static int compare(const char *what, const outcome *a, const outcome *b, int first, double limit) {
    int bad = 0, n_tokens = 0;
    double most = 0;
    for (int i = first; i < N; i++)
        for (int k = 0; k < (i == 3 ? CHOICES : 1); k++) {
            const choice *x = &a->c[i][k], *y = &b->c[i][k];
            bool same = x->n > 0 && x->n == y->n && x->finish == y->finish && memcmp(x->tokens, y->tokens, sizeof x->tokens) == 0;
            for (int t = 0; t < x->n && same; t++) {
                double d = fabs((double)x->logprobs[t] - (double)y->logprobs[t]);
                most = d > most ? d : most;
                bool bits = memcmp(&x->logprobs[t], &y->logprobs[t], 4) == 0 && memcmp(x->top[t], y->top[t], sizeof x->top[t]) == 0;
                same = limit > 0 ? d <= limit : bits;
            }
            if (!same) printf("    request %d choice %d: %d and %d tokens, ends %d and %d\n", i, k, x->n, y->n, x->finish, y->finish);
            bad += !same;
            n_tokens += x->n;
        }
    printf("%s: %d tokens, log-probabilities at most %.2g apart, %d choices differ %s\n", what, n_tokens, most, bad, bad ? "FAILED" : "ok");
    return bad;
}

/* In company; again when who came when left no need to swap, or to copy a prompt's state for a second choice. */
static int run_company(by_numerics numerics, const outcome *alone, outcome *company) {
    bool exact = numerics == BY_NUMERICS_EXACT, all = false;
    int bad = 0;
    for (int i = 0; i < ROUNDS && !all && !bad; i++) {
        char what[80];
        run(options(BY_BACKEND_CUDA, numerics, true), true, exact ? 0 : 1, company);
        snprintf(what, sizeof what, "%s, alone and in company", by_numerics_name(numerics));
        bad = compare(what, alone, company, 1, 0);
        const by_engine_stats *s = &company->stats;
        all = s->draft.n_verified > 0 && s->n_replayed > 0 && s->copied_bytes[BY_COPY_FORK] > 0 && (!exact || s->sched.n_preempted > 0);
        printf("    %d steps, %d from recordings, %d of %d drafts accepted, %d swapped out, %d bytes for choices %s\n", (int)s->n_steps,
               (int)s->n_replayed, (int)s->draft.n_accepted, (int)s->draft.n_verified, (int)s->sched.n_preempted,
               (int)s->copied_bytes[BY_COPY_FORK], all ? "ok" : "not all");
    }
    return bad > 0 || !all;
}

int main(int argc, char **argv) {
    static const by_numerics numerics[] = {BY_NUMERICS_EXACT, BY_NUMERICS_DEPLOYED};
    static outcome cpu, alone, company;
    if (argc < 2) return fprintf(stderr, "usage: gpu_engine MODEL\n"), 2;
    folder = argv[1];
    by_engine *e;
    by_err err = {0};
    by_engine_opts o = options(BY_BACKEND_CUDA, BY_NUMERICS_EXACT, false);
    by_status status = by_engine_open(&e, &o, &err);
    if (status == BY_EUNSUPPORTED) return printf("skipped: %s\n", err.msg), 77;
    if (status < 0) return fprintf(stderr, "gpu_engine: %s\n", err.msg), 1;
    rnd_state = 11;
    int32_t vocab = by_engine_model(e)->cfg.vocab_size;
    make_requests(vocab);
    by_engine_close(e);
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        bool exact = numerics[i] == BY_NUMERICS_EXACT;
        run(options(BY_BACKEND_CUDA, numerics[i], false), false, 1, &alone);
        failed += run_company(numerics[i], &alone, &company);
        if (!exact) continue;
        run(options(BY_BACKEND_CPU, numerics[i], false), false, 0, &cpu);
        failed += compare("exact, cpu and cuda", &cpu, &company, 0, LIMIT) != 0;
    }
    run(rejecting(BY_BACKEND_CUDA), false, 1, &alone);
    run(rejecting(BY_BACKEND_CPU), false, 1, &cpu);
    failed += compare("rejection, cpu and cuda", &cpu, &alone, 1, LIMIT) != 0;
    const by_engine_stats *s = &alone.stats;
    bool stays = s->draft.n_verified > s->draft.n_accepted && alone.n_read < s->n_output_tokens * 4 * (uint64_t)vocab;
    printf("    %d of %d drafts accepted, %d bytes read for %d tokens of %d %s\n", (int)s->draft.n_accepted, (int)s->draft.n_verified,
           (int)alone.n_read, (int)s->n_output_tokens, vocab, stays ? "ok" : "FAILED");
    failed += !stays;
    printf("%d of the comparisons failed\n", failed);
    return failed != 0;
}
