/* solo_gen.c - see solo_gen.h. */
#include "engine/solo_gen.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/spec.h"

typedef struct {
    by_solo *solo;
    const by_solo_gen_opts *opts;
    int32_t *tokens; /* the caller's */
    int32_t n_prompt;
    by_solo_token *token;
    void *arg;
    by_solo_gen_result *out;
    by_spec spec;
    by_spec_law law;
    by_sample_history history;
    by_spec_drafts drafts;
    float *logits;  /* [vocab] */
    int32_t *input; /* drafting: the sequence with the drafts behind it */
    uint32_t *mask; /* with a matcher: bits of all ids below vocabulary and tokenizer */
    bool done;
} state;

static by_status make_mask(state *g, int32_t V, by_err *err) {
    if (!g->opts->matcher) return BY_OK;
    if (!g->solo->model->tok) return BY_FAIL(err, BY_EUNSUPPORTED, "grammar: the model's folder has no tokenizer.json");
    int32_t n = by_tok_n_ids(g->solo->model->tok);
    g->mask = by_alloc_zero(BY_MEM_REQUEST, (size_t)((n > V ? n : V) + 31) / 32 * sizeof *g->mask);
    return g->mask ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a mask");
}

static by_status begin(state *g, by_err *err) {
    const by_sample_params *p = &g->opts->sampling;
    int32_t V = g->solo->model->cfg.vocab_size;
    BY_TRY(by_sample_params_check(p, V, err));
    BY_TRY(by_spec_init(&g->spec, V, err));
    if (by_device_draws(g->solo->dev)) g->spec.dev = g->solo->dev;
    g->law = (by_spec_law){.params = p, .seed = p->seed, .rule = g->opts->verify};
    g->logits = by_alloc(BY_MEM_REQUEST, (size_t)V * 4);
    g->input = by_alloc(BY_MEM_REQUEST, ((size_t)g->n_prompt + (size_t)g->opts->max_tokens + BY_SPEC_DRAFTS_MAX) * 4);
    if (!g->logits || !g->input) return BY_FAIL(err, BY_ENOMEM, "out of memory for a generation");
    BY_TRY(make_mask(g, V, err));
    if (by_sample_params_plain(p)) return BY_OK;
    g->law.history = &g->history;
    BY_TRY(by_sample_history_reserve(&g->history, (uint32_t)g->n_prompt + (uint32_t)g->opts->max_tokens + BY_SPEC_DRAFTS_MAX, err));
    return by_sample_history_add_prompt(&g->history, g->tokens, g->n_prompt, err);
}

static void end(state *g) {
    by_free(g->logits);
    by_free(g->input);
    by_free(g->mask);
    by_spec_deinit(&g->spec);
    by_spec_clear_drafts(&g->drafts);
    by_sample_history_deinit(&g->history);
}

static bool is_stop(const by_solo_gen_opts *o, int32_t token) {
    if (token == o->sampling.eos_id && !o->ignore_eos) return true;
    for (int32_t i = 0; i < o->sampling.n_stop_ids; i++)
        if (o->sampling.stop_ids[i] == token) return true;
    return false;
}

/* Moves the matcher on; *complete: only the end is left. */
static by_status advance(const by_solo_gen_opts *o, int32_t token, bool *complete, by_err *err) {
    by_matcher *m = o->matcher;
    bool more = true;
    *complete = false;
    if (!m || by_matcher_is_ended(m)) return BY_OK;
    by_status status = by_matcher_accept(m, (uint32_t)token, err);
    if (status == BY_NOT_FOUND) return BY_FAIL(err, BY_EGRAMMAR, "grammar_dead_end: the grammar refuses token %d", token);
    if (status < 0 || o->ignore_eos || !by_matcher_is_final(m)) return status;
    status = by_matcher_can_go_on(m, &more, err);
    *complete = !more && !by_matcher_is_ended(m);
    return status;
}

/* Hands one token out and says whether it was the last. */
static by_status commit(state *g, const by_spec_token *t, by_err *err) {
    by_solo_gen_result *r = g->out;
    g->tokens[g->n_prompt + r->n_output++] = t->id;
    bool complete;
    BY_TRY(advance(g->opts, t->id, &complete, err));
    by_status status = g->token(g->arg, t->id, t->logprob, err);
    if (status < 0) return status;
    r->finish = status == BY_END ? BY_SOLO_CALLER : complete || is_stop(g->opts, t->id) ? BY_SOLO_STOP : BY_SOLO_LENGTH;
    g->done = r->finish != BY_SOLO_LENGTH || r->n_output == g->opts->max_tokens;
    return BY_OK;
}

/* Row `row` of the last step's logits, row `index` of the tokens behind n; draft < 0: none. */
static by_status sample(state *g, int32_t row, int64_t n, int32_t index, int32_t draft, by_spec_token *t, by_err *err) {
    by_matcher *m = g->opts->matcher;
    by_spec_row r = {.logits = g->logits, .first = n, .index = index, .n_out = (int32_t)(n - g->n_prompt) + index};
    if (m && !g->done && !by_matcher_is_free(m)) { /* it stands behind the drafts in front, which were all accepted */
        by_matcher_set_budget(m, (uint32_t)(g->opts->max_tokens - r.n_out));
        BY_TRY(by_matcher_fill_mask(m, g->mask, err));
        r.mask = g->mask;
    }
    if (g->spec.dev) BY_TRY(by_spec_reserve(&g->spec, 1, err));
    if (by_spec_ask(&g->spec, &g->law, &r, &g->drafts, draft, 0, g->spec.draws)) {
        g->spec.draws->row = row;
        BY_TRY(by_spec_draw(&g->spec, by_runner_logits(g->solo->runner), 1, (by_tensor){0}, NULL, err));
        BY_TRY(by_runner_problem(g->solo->runner, err));
        r.drawn = g->spec.drawn;
    }
    if (!r.drawn || r.drawn->id < 0) BY_TRY(by_runner_read_logits(g->solo->runner, row, g->logits, err));
    return by_spec_sample(&g->spec, &g->law, &r, &g->drafts, draft, t, NULL, err);
}

static by_status propose(state *g, int64_t n, by_err *err) {
    by_spec_target t = {.seq = {.slot = g->solo->seq.slot, .token = g->tokens[n - 1], .position = n - 1}, .law = &g->law,
                        .n_out = g->out->n_output, .drafts = &g->drafts};
    return by_spec_propose(&g->spec, g->solo->runner, &t, 1, g->solo->n_drafts, err);
}

/* One step: the newest token's row, and behind it those of the drafts. All drafts are judged, also behind an end token. */
static by_status step(state *g, by_err *err) {
    by_solo *s = g->solo;
    int64_t n = g->n_prompt + g->out->n_output;
    const by_solo_gen_opts *o = g->opts;
    if (s->n_drafts && (o->draft || o->probe)) BY_TRY(propose(g, n, err));
    if (s->n_drafts && o->probe) BY_TRY(o->probe(o->probe_arg, n, &g->drafts, err));
    if (!o->draft) g->drafts.n = 0;
    memcpy(g->input + n, g->drafts.ids, (size_t)g->drafts.n * 4);
    g->input[n - 1] = g->tokens[n - 1];
    BY_TRY(by_kv_seq_reserve(&s->seq, s->kv, n + g->drafts.n, err));
    by_step_seq rows = {.kv = &s->seq, .tokens = g->input, .n_rows = 1 + g->drafts.n, .want = BY_WANT_ALL};
    BY_TRY(by_runner_step(s->runner, &rows, 1, err));
    g->out->n_steps++;
    g->out->n_drafted += g->drafts.n;
    int32_t used = 0;
    for (bool accepted = true; accepted; used++) {
        by_spec_token t;
        BY_TRY(sample(g, used, n, used, used < g->drafts.n ? g->drafts.ids[used] : -1, &t, err));
        accepted = t.accepted;
        g->out->n_accepted += accepted;
        g->input[n + used] = t.id;
        if (!g->done) BY_TRY(commit(g, &t, err));
    }
    /* All but the newest token have their rows. What was written behind them, for drafts that were rejected or came behind an end
     * token, is nobody's: it is written again before anything reads it. */
    s->seq.n_tokens = (int64_t)g->n_prompt + g->out->n_output - 1;
    return BY_OK;
}

static by_status generate(state *g, by_err *err) {
    int64_t t0 = by_clock_ns();
    memcpy(g->input, g->tokens, (size_t)g->n_prompt * 4);
    BY_TRY(by_solo_feed(g->solo, g->tokens, g->n_prompt, err));
    int64_t t1 = by_clock_ns();
    g->out->prefill_s = (double)(t1 - t0) * 1e-9;
    by_spec_token first;
    by_status status = sample(g, 0, g->n_prompt, 0, -1, &first, err);
    if (status == BY_OK) status = commit(g, &first, err);
    while (status == BY_OK && !g->done) status = step(g, err);
    g->out->decode_s = (double)(by_clock_ns() - t1) * 1e-9;
    return status;
}

by_status by_solo_generate(by_solo *s, int32_t *tokens, int32_t n_prompt, const by_solo_gen_opts *opts, by_solo_token *token,
                           void *arg, by_solo_gen_result *out, by_err *err) {
    *out = (by_solo_gen_result){.n_prompt = n_prompt};
    if (n_prompt < 1) return BY_FAIL(err, BY_EINVAL, "the prompt is empty");
    if (opts->max_tokens < 1) return BY_FAIL(err, BY_EINVAL, "max_tokens: %d is below 1", opts->max_tokens);
    int64_t total = (int64_t)n_prompt + opts->max_tokens;
    if (total > s->context)
        return BY_FAIL(err, BY_ECONTEXT, "%lld tokens exceed the context of %lld", (long long)total, (long long)s->context);
    if (s->seq.n_tokens >= n_prompt) by_solo_reset(s); /* at least one row has to give logits */
    state g = {.solo = s, .opts = opts, .tokens = tokens, .n_prompt = n_prompt, .token = token, .arg = arg, .out = out};
    by_status status = begin(&g, err);
    if (status == BY_OK) status = generate(&g, err);
    end(&g);
    return status;
}
