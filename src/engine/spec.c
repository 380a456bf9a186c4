/* spec.c - see spec.h. */
#include "engine/spec.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"

void by_spec_clear_drafts(by_spec_drafts *d) {
    by_free(d->q);
    *d = (by_spec_drafts){0};
}

by_status by_spec_init(by_spec *s, int32_t vocab, by_err *err) {
    *s = (by_spec){.vocab = vocab};
    by_cpu cpu;
    by_cpu_detect(&cpu);
    BY_TRY(by_sample_scratch_create(&s->scratch, vocab, cpu.isa, err));
    s->row = by_alloc(BY_MEM_REQUEST, (size_t)vocab * 4);
    s->q_row = by_alloc(BY_MEM_REQUEST, (size_t)vocab * 4);
    return s->row && s->q_row ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for a row of logits");
}

void by_spec_deinit(by_spec *s) {
    by_sample_scratch_destroy(s->scratch);
    by_free(s->row);
    by_free(s->q_row);
    by_free(s->seqs);
    by_free(s->conf);
    by_free(s->queued);
    by_free(s->draws);
    by_free(s->drawn);
    by_free(s->tops);
    by_free(s->edits);
    *s = (by_spec){0};
}

static const by_sample_law plain_law = {.temperature = 1, .top_p = 1, .top_k = -1};

static by_sample_params with_seed(const by_spec_law *law) {
    by_sample_params p = *law->params;
    p.seed = law->seed;
    return p;
}

/* A draw from the law at a position, whatever was proposed. With a mask d is of s->row. */
static by_status draw(by_spec *s, const by_spec_law *law, const float *logits, const uint32_t *mask, uint32_t position,
                      by_sample_draw stream_of, by_sample_dist *d, int32_t *id, by_err *err) {
    const by_sample_law *l = &law->params->law;
    BY_TRY(mask ? by_sample_dist_make_masked(d, s->row, logits, s->vocab, mask, l, s->scratch, err)
                : by_sample_dist_make(d, logits, s->vocab, l, s->scratch, err));
    by_sample_stream stream = by_sample_stream_at(law->seed, position, stream_of);
    *id = by_sample_dist_pick(d, &stream, law->params->rule, s->scratch);
    return *id == BY_SAMPLE_NONE ? by_sample_argmax(id, d->row, s->vocab, s->scratch, err) : BY_OK;
}

static bool is_judged(const by_spec_law *law) { return law->rule == BY_SAMPLE_REJECTION && !by_sample_is_greedy(law->params); }

bool by_spec_can_judge(const by_spec *s, const by_spec_law *law, const by_spec_drafts *drafts) {
    return !s->dev || !is_judged(law) || drafts->call == s->n_calls;
}

/* The edited row that a draft was drawn from, from the device to s->q_row. The history holds the drafts in front of it, as it did then. */
static by_status fetch_draft_row(by_spec *s, const by_spec_law *law, const by_spec_row *row, const by_spec_drafts *drafts, by_err *err) {
    if (drafts->call != s->n_calls) return BY_FAIL(err, BY_EINVAL, "a draft is judged whose law is gone");
    by_tensor t = by_tensor_rows(s->proposed, drafts->row + (int64_t)row->index * drafts->stride, 1);
    BY_TRY(by_mem_read(s->q_row, t.mem, (size_t)t.off, (size_t)s->vocab * 4, err));
    if (by_sample_params_plain(law->params)) return BY_OK;
    return by_sample_edit(s->q_row, s->vocab, law->params, law->history, row->n_out, err);
}

static by_status judge_by_rejection(by_spec *s, const by_spec_law *law, const by_spec_row *row, const float *logits,
                                    const by_spec_drafts *drafts, int32_t draft, by_sample_dist *d, by_spec_token *out, by_err *err) {
    by_sample_params p = with_seed(law);
    by_sample_dist q;
    const float *q_row = s->dev ? s->q_row : drafts->q + (size_t)row->index * (size_t)s->vocab;
    if (s->dev) BY_TRY(fetch_draft_row(s, law, row, drafts, err));
    BY_TRY(by_sample_dist_make(&q, q_row, s->vocab, &p.law, s->scratch, err));
    by_sample_token t;
    by_sample_draft proposal = {.id = draft, .q = &q};
    BY_TRY(by_sample_judge(&t, NULL, logits, s->vocab, &p, BY_SAMPLE_REJECTION, proposal, (uint32_t)row->first, (uint32_t)row->index,
                           s->scratch, err));
    *d = t.law;
    out->id = t.id;
    out->accepted = t.accepted;
    return BY_OK;
}

/* ---- draws of the device ---- */

static float inverse_t(const by_spec_law *law) {
    float t = law->params->law.temperature;
    return 1.0f / (t < BY_SAMPLE_GREEDY_BELOW ? BY_SAMPLE_GREEDY_BELOW : t);
}
static bool reports_plain(const by_spec_law *law) { return law->plain_logprobs && by_sample_is_greedy(law->params); }

/* The rows of a rejection step use words far apart; row 0 and every coupled row those of their positions. */
static uint32_t position_of(const by_spec_law *law, const by_spec_row *row) {
    uint32_t first = (uint32_t)row->first, index = (uint32_t)row->index;
    return is_judged(law) ? by_sample_position(first, index) : first + index;
}

static void take_words(by_draw *d, by_sample_stream stream, by_sample_rule rule) {
    d->kind = rule == BY_SAMPLE_SMOOTH ? BY_DRAW_SMOOTH : BY_DRAW_MODULO;
    for (int i = 0; i < BY_DRAW_WORDS; i++) d->words[i] = by_sample_stream_word(&stream);
}

/* The limits of by_sample_dist_make. */
static void take_cuts(by_draw *d, const by_sample_params *p, int32_t vocab) {
    const by_sample_law *l = &p->law;
    d->mass_most = UINT64_MAX;
    d->n_most = INT32_MAX;
    d->floor_s = -FLT_MAX;
    if (by_sample_is_greedy(p)) return;
    if (l->top_p < 1) d->mass_most = (uint64_t)((double)l->top_p * 0x1p31);
    if (l->top_k >= 1 && l->top_k < vocab) d->n_most = l->top_k;
    if (l->min_p > 0) d->floor_s = by_sample_floor(l->min_p);
    d->cuts = d->mass_most != UINT64_MAX || d->n_most != INT32_MAX || l->min_p > 0;
}

static bool add_edit(by_spec *s, int32_t first, int32_t id, float value) {
    if (s->n_edits - first >= BY_SPEC_EDITS_FAR) return false;
    if (s->n_edits == s->cap_edits) {
        int32_t cap = s->cap_edits ? 2 * s->cap_edits : 256;
        by_draw_edit *grown = by_realloc(BY_MEM_REQUEST, s->edits, by_mul_size((size_t)cap, sizeof *grown));
        if (!grown) return false;
        s->edits = grown;
        s->cap_edits = cap;
    }
    s->edits[s->n_edits++] = (by_draw_edit){id, value};
    return true;
}
static bool ban(by_spec *s, int32_t first, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (!add_edit(s, first, ids[i], 0)) return false;
    return true;
}

/* by_sample_edit as lists. A token of the prompt alone changes by the repetition penalty alone. */
static bool take_edits(by_spec *s, by_draw *d, const by_spec_law *law, int32_t n_out) {
    const by_sample_params *p = law->params;
    const by_sample_history *h = law->history;
    int32_t first = d->edit0 = s->n_edits;
    for (int32_t i = 0; i < p->n_bias; i++)
        if (!add_edit(s, first, p->bias[i].id, p->bias[i].value)) return false;
    d->n_added = s->n_edits - first;
    d->repetition = p->repetition_penalty, d->frequency = p->frequency_penalty, d->presence = p->presence_penalty;
    bool penalties = d->repetition != 1 || d->frequency != 0 || d->presence != 0;
    for (uint32_t i = 0; penalties && h && i < h->n_slots; i++) {
        const by_sample_seen *e = &h->slots[i];
        if (e->id < 0 || e->id >= s->vocab || (e->n_output == 0 && (!e->in_prompt || d->repetition == 1))) continue;
        if (!add_edit(s, first, e->id, (float)e->n_output)) return false;
    }
    d->n_seen = s->n_edits - first - d->n_added;
    if (!ban(s, first, p->banned, p->n_banned)) return false;
    if (n_out < p->min_tokens && !ban(s, first, p->stop_ids, p->n_stop_ids)) return false;
    bool no_end = n_out < p->min_tokens || (p->first_no_eos && n_out == 0);
    if (no_end && p->eos_id >= 0 && !add_edit(s, first, p->eos_id, 0)) return false;
    d->n_banned = s->n_edits - first - d->n_added - d->n_seen;
    return true;
}

/* A draw from the law, with the words of a stream; the edits are those of a row behind n_out output tokens. */
static bool ask(by_spec *s, const by_spec_law *law, by_sample_stream stream, int32_t n_out, by_draw *out) {
    *out = (by_draw){.inv_t = inverse_t(law), .report_inv_t = reports_plain(law) ? 1.0f : inverse_t(law)};
    take_words(out, stream, law->params->rule);
    take_cuts(out, law->params, s->vocab);
    out->edit0 = s->n_edits;
    return by_sample_params_plain(law->params) || take_edits(s, out, law, n_out);
}

bool by_spec_ask(by_spec *s, const by_spec_law *law, const by_spec_row *row, const by_spec_drafts *drafts, int32_t draft, int32_t n_top,
                 by_draw *out) {
    bool judges = is_judged(law) && draft >= 0;
    if (!s->dev || law->sum_smaller || n_top > BY_SPEC_TOP_FAR || n_top > s->vocab) return false;
    if (judges && (!drafts || drafts->call != s->n_calls)) return false;
    uint32_t position = position_of(law, row);
    by_sample_stream stream = by_sample_stream_at(law->seed, position, judges ? BY_SAMPLE_DRAW_RESIDUAL : BY_SAMPLE_DRAW_FRESH);
    if (!ask(s, law, stream, row->n_out, out)) return false;
    out->mask = row->mask;
    out->n_top = n_top;
    if (!judges) return true;
    stream = by_sample_stream_at(law->seed, position, BY_SAMPLE_DRAW_ACCEPT);
    out->judges = true;
    out->draft = draft;
    out->q_row = drafts->row + row->index * drafts->stride;
    out->accept = by_sample_uniform(by_sample_stream_word(&stream));
    return true;
}

/* by_sample_dist_logprob of the token that was drawn. */
static void take_drawn(const by_spec_law *law, const by_drawn *d, int32_t draft, by_spec_token *out) {
    float inv_t = reports_plain(law) ? 1.0f : inverse_t(law);
    *out = (by_spec_token){.id = d->id, .logprob = (d->logit - d->max) * inv_t - d->log_sum - d->log_kept,
                           .accepted = draft >= 0 && (is_judged(law) ? d->accepted != 0 : d->id == draft)};
}

by_status by_spec_reserve(by_spec *s, int32_t n, by_err *err) {
    s->n_edits = 0;
    if (n <= s->cap_draws) return BY_OK;
    by_draw *draws = by_realloc(BY_MEM_REQUEST, s->draws, by_mul_size((size_t)n, sizeof *draws));
    if (draws) s->draws = draws;
    by_drawn *drawn = by_realloc(BY_MEM_REQUEST, s->drawn, by_mul_size((size_t)n, sizeof *drawn));
    if (drawn) s->drawn = drawn;
    by_drawn_top *tops = by_realloc(BY_MEM_REQUEST, s->tops, by_mul_size((size_t)n, BY_SPEC_TOP_FAR * sizeof *tops));
    if (tops) s->tops = tops;
    if (!draws || !drawn || !tops) return BY_FAIL(err, BY_ENOMEM, "out of memory for draws");
    s->cap_draws = n;
    return BY_OK;
}

by_status by_spec_draw(by_spec *s, by_tensor logits, int32_t n, by_tensor also, void *also_to, by_err *err) {
    by_draws what = {.draws = s->draws, .n = n, .n_edits = s->n_edits, .edits = s->edits, .out = s->drawn, .tops = s->tops,
                     .proposed = s->proposed, .also = also, .also_to = also_to};
    for (int32_t i = 0; i < n; i++)
        if (s->draws[i].n_top > 0) what.top_stride = BY_SPEC_TOP_FAR;
    return by_device_draw(s->dev, logits, &what, err);
}

/* ---- judging ---- */

/* Why there was no distribution of s->row, which was edited from logits: that a request has forbidden every token is its own mistake, not
 * the model's. */
static by_status explain(const by_spec *s, const float *logits, by_status status, by_err *err) {
    bool had = false;
    if (status != BY_ENUMERIC) return status;
    for (int32_t i = 0; i < s->vocab; i++) {
        if (s->row[i] != -INFINITY) return status;
        had = had || logits[i] > -INFINITY;
    }
    if (!had) return status;
    return BY_FAIL_AT(err, BY_EINVAL, "logit_bias",
                      "no token is left: banned_token_ids, logit_bias and what min_tokens holds back forbid all %d", s->vocab);
}

by_status by_spec_sample(by_spec *s, const by_spec_law *law, const by_spec_row *row, const by_spec_drafts *drafts, int32_t draft,
                         by_spec_token *out, by_sample_top *top, by_err *err) {
    const float *logits = row->logits;
    if (row->drawn && row->drawn->id >= 0) {
        take_drawn(law, row->drawn, draft, out);
        for (int32_t i = 0; top && i < law->n_top; i++) top[i] = (by_sample_top){row->drawn_top[i].id, row->drawn_top[i].logprob};
        return law->history ? by_sample_history_push(law->history, out->id, err) : BY_OK;
    }
    bool judges = is_judged(law) && draft >= 0, edits = !by_sample_params_plain(law->params);
    if (edits) {
        memcpy(s->row, logits, (size_t)s->vocab * 4);
        BY_TRY(by_sample_edit(s->row, s->vocab, law->params, law->history, row->n_out, err));
        logits = s->row;
    }
    if (judges && row->mask) {
        BY_TRY(by_sample_mask_row(s->row, logits, s->vocab, row->mask, s->scratch, err));
        logits = s->row;
    }
    by_sample_dist d;
    by_status status = judges ? judge_by_rejection(s, law, row, logits, drafts, draft, &d, out, err)
                              : draw(s, law, logits, row->mask, position_of(law, row), BY_SAMPLE_DRAW_FRESH, &d, &out->id, err);
    if (status < 0) return edits && !row->mask ? explain(s, row->logits, status, err) : status;
    if (!judges) out->accepted = draft >= 0 && out->id == draft;
    if (reports_plain(law)) by_sample_dist_change_law(&d, &plain_law, s->scratch);
    out->logprob = by_sample_dist_logprob(&d, out->id);
    out->smaller = law->sum_smaller ? (float)by_sample_dist_smaller(&d, out->id) : 0;
    if (top) by_sample_dist_top(top, law->n_top, &d);
    return law->history ? by_sample_history_push(law->history, out->id, err) : BY_OK;
}

double by_spec_confidence(float raw, double temperature) {
    double z = (double)raw / (temperature > 1e-5 ? temperature : 1e-5);
    z = z > 60 ? 60 : z < -60 ? -60 : z;
    return isnan(z) ? 0 : 1 / (1 + exp(-z));
}

/* ---- proposing ---- */

typedef struct {
    by_spec *spec;
    by_spec_target *targets;
    int32_t n_drafts;
} proposal;

/* One draft of one target, from row [vocab]. Edits as for the trunk's rows: a draft that the target cannot accept is of no use. */
static by_status propose_one(proposal *p, by_spec_target *t, int32_t j, const float *row, by_err *err) {
    by_spec *s = p->spec;
    const by_spec_law *law = t->law;
    bool greedy = by_sample_is_greedy(law->params), rejection = is_judged(law), keeps = rejection && !s->dev;
    float *own = keeps ? t->drafts->q + (size_t)j * (size_t)s->vocab : s->row;
    if (keeps || law->history) {
        memcpy(own, row, (size_t)s->vocab * 4);
        if (law->history) BY_TRY(by_sample_edit(own, s->vocab, law->params, law->history, t->n_out + j, err));
        row = own;
    }
    int32_t id;
    by_sample_dist d;
    uint32_t position = (uint32_t)(t->seq.position + 1 + j);
    if (greedy) BY_TRY(by_sample_argmax(&id, row, s->vocab, s->scratch, err));
    else BY_TRY(draw(s, law, row, NULL, position, rejection ? BY_SAMPLE_DRAW_DRAFT : BY_SAMPLE_DRAW_FRESH, &d, &id, err));
    t->drafts->ids[j] = id;
    return law->history ? by_sample_history_push(law->history, id, err) : BY_OK;
}

/* What to ask the device for draft j of n targets. False: the host draws it. */
static bool ask_drafts(proposal *p, int32_t j, int32_t n, by_err *err) {
    by_spec *s = p->spec;
    if (by_spec_reserve(s, n, err) < 0) return false;
    for (int32_t i = 0; i < n; i++) {
        by_spec_target *t = &p->targets[i];
        by_sample_draw of = is_judged(t->law) ? BY_SAMPLE_DRAW_DRAFT : BY_SAMPLE_DRAW_FRESH;
        by_sample_stream stream = by_sample_stream_at(t->law->seed, (uint32_t)(t->seq.position + 1 + j), of);
        if (!ask(s, t->law, stream, t->n_out + j, &s->draws[i])) return false;
        s->draws[i].row = i;
        if (by_sample_is_greedy(t->law->params)) s->draws[i].kind = BY_DRAW_ARGMAX;
    }
    return true;
}

/* All targets' drafts from the device, when it can draw each of them. */
static bool propose_far(proposal *p, int32_t j, by_tensor logits, int32_t *ids) {
    by_spec *s = p->spec;
    by_err err;
    if (!s->dev) return false;
    for (int32_t i = 0; i < logits.rows; i++)
        if (p->targets[i].drafts->n != j) return false;
    if (!ask_drafts(p, j, (int32_t)logits.rows, &err) || by_spec_draw(s, logits, (int32_t)logits.rows, (by_tensor){0}, NULL, &err) < 0)
        return false;
    for (int32_t i = 0; i < logits.rows; i++)
        if (s->drawn[i].id < 0) return false;
    for (int32_t i = 0; i < logits.rows; i++) {
        by_sample_history *h = p->targets[i].law->history;
        if (h && by_sample_history_push(h, s->drawn[i].id, &err) < 0) { /* no memory: those before it are taken back, the host goes on */
            while (i-- > 0)
                if (p->targets[i].law->history) by_sample_history_pop(p->targets[i].law->history, s->drawn[i].id);
            return false;
        }
    }
    for (int32_t i = 0; i < logits.rows; i++) {
        ids[i] = p->targets[i].drafts->ids[j] = s->drawn[i].id;
        p->targets[i].drafts->n = j + 1;
    }
    return true;
}

/* The rows of the drafts that follow lie behind those of the first. */
static void set_proposed(proposal *p, by_tensor logits) {
    p->spec->proposed = logits;
    p->spec->proposed.rows *= p->n_drafts;
}

/* A target whose logits are no numbers keeps the drafts that it has got and stops; the others go on.
 * Under the coupled rule a draft is drawn with the very word that will draw the target's token, so that equal laws agree. */
static by_status propose_row(void *arg, int32_t j, by_tensor logits, int32_t *ids, by_err *err) {
    proposal *p = arg;
    const void *view;
    if (j == 0) set_proposed(p, logits);
    if (propose_far(p, j, logits, ids)) return BY_OK;
    BY_TRY(by_mem_view(&view, logits.mem, (size_t)logits.off, (size_t)(logits.rows * logits.stride), err));
    by_status status = BY_OK;
    for (int64_t i = 0; i < logits.rows && status == BY_OK; i++) {
        by_spec_target *t = &p->targets[i];
        ids[i] = t->seq.token;
        if (t->drafts->n != j) continue; /* it has stopped before: any token will do */
        status = propose_one(p, t, j, (const float *)view + i * logits.cols, err);
        if (status == BY_OK) ids[i] = t->drafts->ids[t->drafts->n++];
        else if (status == BY_ENUMERIC) status = BY_OK;
    }
    by_mem_unview(logits.mem);
    return status;
}

/* Whether no draw depends on the drafts in front of it but through the logits: then they need not be known here. */
static bool can_queue(proposal *p, int32_t n) {
    by_err err;
    if (!p->spec->dev) return false;
    for (int32_t i = 0; i < n; i++) {
        const by_sample_params *q = p->targets[i].law->params;
        bool penalties = q->repetition_penalty != 1 || q->frequency_penalty != 0 || q->presence_penalty != 0;
        if (penalties && p->targets[i].law->history) return false;
    }
    return ask_drafts(p, 0, n, &err);
}

static by_status queue_row(void *arg, int32_t j, by_tensor logits, by_tensor ids, by_err *err) {
    proposal *p = arg;
    by_spec *s = p->spec;
    int32_t n = (int32_t)logits.rows;
    if (j == 0) set_proposed(p, logits);
    if (!ask_drafts(p, j, n, err)) return BY_FAIL(err, BY_ENOMEM, "out of memory for draws");
    by_draws what = {.draws = s->draws, .n = n, .n_edits = s->n_edits, .edits = s->edits, .ids = ids};
    return by_device_draw(s->dev, logits, &what, err);
}

/* A target keeps its drafts up to the first that could not be drawn. */
static void take_queued(proposal *p, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        by_spec_drafts *d = p->targets[i].drafts;
        for (int32_t id; d->n < p->n_drafts && (id = p->spec->queued[d->n * n + i]) >= 0;) d->ids[d->n++] = id;
    }
}

static by_status make_room(by_spec *s, int32_t n, by_err *err) {
    if (n <= s->cap) return BY_OK;
    by_draft_seq *seqs = by_realloc(BY_MEM_REQUEST, s->seqs, by_mul_size((size_t)n, sizeof *seqs));
    if (seqs) s->seqs = seqs;
    float *conf = by_realloc(BY_MEM_REQUEST, s->conf, by_mul_size((size_t)n, BY_SPEC_DRAFTS_MAX * 4));
    if (conf) s->conf = conf;
    int32_t *queued = by_realloc(BY_MEM_REQUEST, s->queued, by_mul_size((size_t)n, BY_SPEC_DRAFTS_MAX * sizeof *queued));
    if (queued) s->queued = queued;
    if (!seqs || !conf || !queued) return BY_FAIL(err, BY_ENOMEM, "out of memory for drafts");
    s->cap = n;
    return BY_OK;
}

static by_status propose_some(proposal *p, by_runner *r, int32_t n, by_err *err) {
    for (int32_t i = 0; i < n; i++) p->targets[i].drafts->n = 0; /* those of the block before are no longer in the history as drafts */
    by_status status = make_room(p->spec, n, err);
    by_draft_seq *seqs = p->spec->seqs;
    float *conf = p->spec->conf;
    p->spec->n_calls++;
    for (int32_t i = 0; i < n && status == BY_OK; i++) {
        by_spec_target *t = &p->targets[i];
        seqs[i] = t->seq;
        t->drafts->call = p->spec->n_calls;
        t->drafts->row = i;
        t->drafts->stride = n;
        if (!is_judged(t->law) || t->drafts->q || p->spec->dev) continue;
        t->drafts->q = by_alloc(BY_MEM_REQUEST, by_mul_size((size_t)p->spec->vocab * 4, BY_SPEC_DRAFTS_MAX));
        if (!t->drafts->q) t->drafts->n = -1; /* out of memory: none for this one */
    }
    bool queues = status == BY_OK && can_queue(p, n);
    by_draft_picker picker = {.pick = propose_row, .queue = queues ? queue_row : NULL, .arg = p, .drawn = p->spec->queued};
    if (status == BY_OK) status = by_runner_draft(r, seqs, n, p->n_drafts, &picker, conf, err);
    if (status == BY_OK && queues) take_queued(p, n);
    for (int32_t i = 0; i < n; i++) {
        by_spec_drafts *d = p->targets[i].drafts;
        if (p->targets[i].law->history && !queues)
            for (int32_t j = d->n; j-- > 0;) by_sample_history_pop(p->targets[i].law->history, d->ids[j]);
        if (status < 0 || d->n < 0) d->n = 0;
        else memcpy(d->conf, conf + (size_t)i * (size_t)p->n_drafts, (size_t)p->n_drafts * 4);
    }
    return status;
}

by_status by_spec_propose(by_spec *s, by_runner *r, by_spec_target *targets, int32_t n, int32_t n_drafts, by_err *err) {
    int32_t most = by_runner_draft_seqs(r);
    for (int32_t at = 0; at < n; at += most) {
        proposal p = {.spec = s, .targets = targets + at, .n_drafts = n_drafts};
        by_status status = propose_some(&p, r, n - at < most ? n - at : most, err);
        if (status < 0) {
            for (int32_t i = 0; i < n; i++) targets[i].drafts->n = 0;
            return status;
        }
    }
    for (int32_t i = 0; i < n; i++)
        if (!by_spec_can_judge(s, targets[i].law, targets[i].drafts)) targets[i].drafts->n = 0; /* more of them than one call holds */
    return BY_OK;
}
