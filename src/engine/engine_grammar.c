/* engine_grammar.c - requests that are limited by a grammar: waiting for it, masks beside the forward, tokens that move it on.
 *
 *   scheduler thread   asks for the grammar, makes one matcher per choice when it is there, frees them when the request leaves
 *   device thread      moves matchers on by the tokens it samples; between begin and end of the masks it shares them with
 *   mask thread        which fills rows while the device computes; whoever is free takes the next row
 *
 * A matcher is behind the token before the row that is sampled, so a row's mask depends on nothing of the step that runs. */
#include <string.h>

#include "base/alloc.h"
#include "engine/engine_impl.h"

/* ---- the grammar of a request ---- */

by_status by_engine_grammar_check(const by_engine *e, const by_request_grammar *g, by_err *err) {
    if (!g) return BY_OK;
    if (!e->model->tok) return BY_FAIL(err, BY_EUNSUPPORTED, "grammar: the model's folder has no tokenizer.json");
    if (g->spec.kind >= BY_GRAMMAR_N) return BY_FAIL(err, BY_EINVAL, "grammar: unknown kind %d", (int)g->spec.kind);
    if (g->n_trigger < 0 || g->n_trigger > BY_GRAMMAR_TRIGGER_MAX)
        return BY_FAIL(err, BY_EINVAL, "trigger_token_ids: %d ids, at most %d", g->n_trigger, BY_GRAMMAR_TRIGGER_MAX);
    for (int32_t i = 0; i < g->n_trigger; i++)
        if (g->trigger[i] < 0 || g->trigger[i] >= e->model->cfg.vocab_size)
            return BY_FAIL_AT(err, BY_EINVAL, "so_args.trigger_token_ids", "trigger_token_ids[%d]: %d is not a token id", i, g->trigger[i]);
    if (g->must_begin && g->n_trigger == 0) return BY_FAIL(err, BY_EINVAL, "must_begin: needs a trigger");
    if (g->bound_id >= 0 && g->n_trigger == 0) return BY_FAIL(err, BY_EINVAL, "bound_token_id: needs trigger_token_ids");
    if (g->bound_id >= e->model->cfg.vocab_size) return BY_FAIL_AT(err, BY_EINVAL, "so_args.bound_token_id",
                                                                   "bound_token_id: %d is not a token id", g->bound_id);
    return BY_OK;
}

static void tell(void *arg) { by_engine_poke(arg); }

by_status by_engine_grammar_ask(by_engine *e, by_request *r, const by_request_grammar *g, by_err *err) {
    if (!g) return BY_OK;
    r->grammar = *g;
    r->grammar.trigger = NULL;
    if (g->n_trigger) {
        int32_t *own = by_alloc(BY_MEM_REQUEST, (size_t)g->n_trigger * sizeof *own);
        if (!own) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
        memcpy(own, g->trigger, (size_t)g->n_trigger * sizeof *own);
        r->grammar.trigger = own;
    }
    return by_grammar_cache_ask(e->grammars, &g->spec, tell, e, &r->ticket, err);
}

by_status by_engine_grammar_begin(by_request *r, by_err *err) {
    if (!r->ticket) return BY_OK;
    by_grammar *g;
    by_status status = by_grammar_ticket_take(r->ticket, &g, err);
    if (status != BY_OK) return status;
    by_grammar_ticket_close(r->ticket);
    r->ticket = NULL;
    pthread_mutex_lock(&r->lock);
    by_buf_push_z(&r->grammar_warnings, by_grammar_warnings(g));
    pthread_mutex_unlock(&r->lock);
    by_matcher_opts o = {.trigger_ids = (const uint32_t *)r->grammar.trigger, .n_trigger = (uint32_t)r->grammar.n_trigger,
                         .bound_id = r->grammar.bound_id, .close_by_budget = r->grammar.close_by_budget,
                         .must_begin = r->grammar.must_begin};
    size_t n = by_mul_size((size_t)(1 + r->engine->n_drafts), r->engine->masks.words);
    for (int32_t i = 0; status == BY_OK && i < r->opts.best_of; i++) {
        by_seq *s = &r->seqs[i];
        status = by_matcher_create(&s->matcher, g, &o, err);
        if (status < 0) break;
        s->masks = by_alloc_zero(BY_MEM_REQUEST, by_mul_size(n, sizeof *s->masks)); /* ids that the tokenizer lacks stay refused */
        if (!s->masks) status = BY_FAIL(err, BY_ENOMEM, "out of memory for masks");
    }
    by_grammar_release(g);
    return status;
}

void by_engine_grammar_leave(by_request *r) {
    by_grammar_ticket_close(r->ticket);
    r->ticket = NULL;
    for (int32_t i = 0; r->seqs && i < r->opts.best_of; i++) {
        by_matcher_destroy(r->seqs[i].matcher);
        by_free(r->seqs[i].masks);
        r->seqs[i].matcher = NULL;
        r->seqs[i].masks = NULL;
    }
    by_free((void *)(uintptr_t)r->grammar.trigger);
    r->grammar.trigger = NULL;
}

/* ---- one sequence (device thread) ---- */

bool by_seq_is_limited(const by_seq *s) { return s->matcher && !by_matcher_is_free(s->matcher); }

static void set_budget(by_seq *s, int64_t position) {
    int64_t left = s->sched.n_max - position;
    by_matcher_set_budget(s->matcher, left < 1 ? 1 : left < UINT32_MAX ? (uint32_t)left : UINT32_MAX - 1);
}

by_status by_seq_masks(by_seq *s, int64_t position, const int32_t *drafts, int32_t n_drafts, uint32_t *rows, size_t stride,
                       int32_t *n_ok, by_err *err) {
    size_t n = 0;
    if (s->request->grammar.close_by_budget) set_budget(s, position);
    by_status status = by_matcher_draft_masks(s->matcher, (const uint32_t *)drafts, (size_t)n_drafts, rows, stride, &n, err);
    *n_ok = (int32_t)n;
    return status < 0 ? status : BY_OK;
}

by_status by_seq_advance(by_seq *s, int32_t token, bool *complete, by_err *err) {
    by_matcher *m = s->matcher;
    *complete = false;
    if (!m || by_matcher_is_ended(m)) return BY_OK;
    by_status status = by_matcher_accept(m, (uint32_t)token, err);
    if (status == BY_NOT_FOUND) return BY_FAIL(err, BY_EGRAMMAR, "grammar_dead_end: the grammar refuses token %d", token);
    if (status < 0 || s->request->opts.ignore_eos || s->request->grammar.end_token || !by_matcher_is_final(m)) return status;
    bool more = true;
    status = by_matcher_can_go_on(m, &more, err);
    *complete = status == BY_OK && !more && !by_matcher_is_ended(m);
    return status;
}

/* ---- masks of a step ---- */

static void fail_sample(by_sample_job *s, by_status status, const by_err *err) {
    by_request *r = s->seq->request;
    s->status = status;
    pthread_mutex_lock(&r->lock);
    r->error = *err;
    if (status == BY_ELIMIT || status == BY_ETIMEOUT) r->error.code = BY_EGRAMMAR;
    pthread_mutex_unlock(&r->lock);
}

/* Drafts that are verified behind the row a sequence samples from. */
static int32_t drafts_of(const by_job *job, const by_sample_job *s) { return s->sister ? 0 : job->rows[s->row].n_drafts; }

static void fill(const by_masks *m, by_sample_job *s) {
    by_err err = {0};
    int32_t n_ok, n_drafts = drafts_of(m->job, s);
    by_status status = by_seq_masks(s->seq, s->seq->n_known, s->seq->drafts.ids, n_drafts, s->masks, m->words, &n_ok, &err);
    if (status < 0 && n_drafts > 0) { /* drafts that may never be taken are no reason to fail: the text goes on without them */
        n_drafts = 0;
        status = by_seq_masks(s->seq, s->seq->n_known, NULL, 0, s->masks, m->words, &n_ok, &err);
    }
    s->n_masked = 1 + n_drafts;
    if (status < 0) fail_sample(s, status, &err);
}

/* Takes rows until none is left. Under the lock. */
static void take_rows(by_masks *m) {
    while (m->next < m->job->n_samples) {
        by_sample_job *s = &m->job->samples[m->next++];
        if (!s->masks) continue;
        m->n_busy++;
        pthread_mutex_unlock(&m->lock);
        fill(m, s);
        pthread_mutex_lock(&m->lock);
        m->n_busy--;
    }
}

static void *mask_main(void *arg) {
    by_masks *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->stop && !(m->job && m->next < m->job->n_samples)) pthread_cond_wait(&m->work, &m->lock);
        if (m->stop) break;
        take_rows(m);
        if (m->n_busy == 0) pthread_cond_signal(&m->done);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* A trigger may come among the drafts: then the rows behind it are limited though the first one is not. */
static bool needs_masks(const by_job *job, const by_sample_job *s) {
    const by_matcher *m = s->seq->matcher;
    if (!m || job->rows[s->row].skipped) return false;
    return by_seq_is_limited(s->seq) || (drafts_of(job, s) > 0 && !by_matcher_is_ended(m));
}

void by_engine_masks_begin(by_engine *e, by_job *job) {
    by_masks *m = &e->masks;
    int32_t n = 0;
    for (int32_t i = 0; i < job->n_samples; i++) {
        by_sample_job *s = &job->samples[i];
        if (!needs_masks(job, s)) continue;
        s->masks = s->seq->masks;
        n++;
    }
    if (n == 0) return;
    pthread_mutex_lock(&m->lock);
    if (!m->started) m->started = pthread_create(&m->thread, NULL, mask_main, m) == 0; /* without it the device fills them */
    m->next = 0;
    m->job = job;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
}

void by_engine_masks_end(by_engine *e) {
    by_masks *m = &e->masks;
    if (!m->job) return; /* written on this thread only */
    pthread_mutex_lock(&m->lock);
    take_rows(m);
    while (m->n_busy > 0) pthread_cond_wait(&m->done, &m->lock);
    m->job = NULL;
    pthread_mutex_unlock(&m->lock);
}

by_status by_engine_masks_init(by_engine *e, by_err *err) {
    by_masks *m = &e->masks;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->work, NULL);
    pthread_cond_init(&m->done, NULL);
    m->ready = true;
    if (!e->model->tok) return BY_OK;
    int32_t n = by_tok_n_ids(e->model->tok), V = e->model->cfg.vocab_size;
    m->words = (size_t)((n > V ? n : V) + 31) / 32;
    return by_grammar_cache_create(&e->grammars, e->model->tok, (uint32_t)e->model->cfg.eos_id, &e->opts.grammar, err);
}

void by_engine_masks_deinit(by_engine *e) {
    by_masks *m = &e->masks;
    if (!m->ready) return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->work);
    pthread_mutex_unlock(&m->lock);
    if (m->started) pthread_join(m->thread, NULL);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->work);
    pthread_cond_destroy(&m->done);
    by_grammar_cache_destroy(e->grammars);
}
