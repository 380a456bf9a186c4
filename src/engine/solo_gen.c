/* solo_gen.c - see solo_gen.h. */
#include "engine/solo_gen.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "sample/sample_dist.h"
#include "sample/sample_edit.h"

typedef struct {
    by_solo *solo;
    const by_solo_gen_opts *opts;
    float *logits;
    by_sample_scratch *scratch;
    by_sample_history history;
    bool edits;
} state;

static by_status begin(state *g, const int32_t *tokens, int32_t n_prompt, by_err *err) {
    int32_t V = g->solo->model->cfg.vocab_size;
    BY_TRY(by_sample_params_check(&g->opts->sampling, V, err));
    g->logits = by_alloc(BY_MEM_REQUEST, (size_t)V * 4);
    if (!g->logits) return BY_FAIL(err, BY_ENOMEM, "out of memory for a row of logits");
    by_cpu cpu;
    by_cpu_detect(&cpu);
    BY_TRY(by_sample_scratch_create(&g->scratch, V, cpu.isa, err));
    g->edits = !by_sample_params_plain(&g->opts->sampling);
    if (!g->edits) return BY_OK;
    BY_TRY(by_sample_history_reserve(&g->history, (uint32_t)n_prompt + (uint32_t)g->opts->max_tokens, err));
    return by_sample_history_add_prompt(&g->history, tokens, n_prompt, err);
}

static void end(state *g) {
    by_free(g->logits);
    by_sample_scratch_destroy(g->scratch);
    by_sample_history_deinit(&g->history);
}

/* The token at position n_tokens, from the last row's logits. */
static by_status pick(state *g, int64_t n_tokens, int32_t n_output, int32_t *token, float *logprob, by_err *err) {
    int32_t V = g->solo->model->cfg.vocab_size;
    const by_sample_params *p = &g->opts->sampling;
    BY_TRY(by_solo_logits(g->solo, g->logits, err));
    if (g->edits) BY_TRY(by_sample_edit(g->logits, V, p, &g->history, n_output, NULL, err));
    by_sample_dist d;
    BY_TRY(by_sample_dist_make(&d, g->logits, V, &p->law, g->scratch, err));
    by_sample_stream stream = by_sample_stream_at(p->seed, (uint32_t)n_tokens, BY_SAMPLE_DRAW_FRESH);
    *token = by_sample_dist_pick(&d, &stream, p->rule, g->scratch);
    if (*token == BY_SAMPLE_NONE) BY_TRY(by_sample_argmax(token, g->logits, V, g->scratch, err));
    *logprob = by_sample_dist_logprob(&d, *token);
    return g->edits ? by_sample_history_push(&g->history, *token, err) : BY_OK;
}

static bool is_stop(const by_solo_gen_opts *o, int32_t token) {
    if (token == o->sampling.eos_id && !o->ignore_eos) return true;
    for (int32_t i = 0; i < o->sampling.n_stop_ids; i++)
        if (o->sampling.stop_ids[i] == token) return true;
    return false;
}

static by_status generate(state *g, int32_t *tokens, int32_t n_prompt, by_solo_token *token, void *arg,
                          by_solo_gen_result *out, by_err *err) {
    int64_t n = n_prompt, t0 = by_clock_ns();
    BY_TRY(by_solo_feed(g->solo, tokens, n, err));
    int64_t t1 = by_clock_ns();
    out->prefill_s = (double)(t1 - t0) * 1e-9;
    by_status status = BY_OK;
    for (;;) {
        float logprob;
        status = pick(g, n, out->n_output, &tokens[n], &logprob, err);
        if (status < 0) break;
        n++;
        out->n_output++;
        status = token(arg, tokens[n - 1], logprob, err);
        if (status < 0) break;
        out->finish = status == BY_END ? BY_SOLO_CALLER : is_stop(g->opts, tokens[n - 1]) ? BY_SOLO_STOP : BY_SOLO_LENGTH;
        if (out->finish != BY_SOLO_LENGTH || out->n_output == g->opts->max_tokens) break;
        status = by_solo_feed(g->solo, tokens, n, err);
        if (status < 0) break;
        out->n_steps++;
    }
    out->decode_s = (double)(by_clock_ns() - t1) * 1e-9;
    return status < 0 ? status : BY_OK;
}

by_status by_solo_generate(by_solo *s, int32_t *tokens, int32_t n_prompt, const by_solo_gen_opts *opts, by_solo_token *token,
                           void *arg, by_solo_gen_result *out, by_err *err) {
    *out = (by_solo_gen_result){.n_prompt = n_prompt};
    if (n_prompt < 1) return BY_FAIL(err, BY_EINVAL, "the prompt is empty");
    if (opts->max_tokens < 1) return BY_FAIL(err, BY_EINVAL, "max_tokens: %d is below 1", opts->max_tokens);
    if (s->seq.n_tokens >= n_prompt) by_solo_reset(s); /* at least one row has to give logits */
    state g = {.solo = s, .opts = opts};
    by_status status = begin(&g, tokens, n_prompt, err);
    if (status == BY_OK) status = generate(&g, tokens, n_prompt, token, arg, out, err);
    end(&g);
    return status;
}
