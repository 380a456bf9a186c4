/* engine_job.c - the device's side of a step: restores, forward, sampling, saves; on the device thread. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine_impl.h"

/* ---- moves ---- */

static by_status move_blocks(by_engine *e, const by_saved *s, bool out, by_err *err) {
    const by_kv_layout *l = by_kv_layout_of(e->kv);
    by_mem *mem = by_kv_block_mem(e->kv);
    unsigned char *at = s->bytes + l->slot_bytes;
    for (int32_t i = 0; i < s->n_blocks; i++, at += l->block_bytes) {
        size_t off = (size_t)(s->blocks[i] * l->block_bytes), n = (size_t)l->block_bytes;
        BY_TRY(out ? by_mem_read(at, mem, off, n, err) : by_mem_write(mem, off, at, n, err));
    }
    return BY_OK;
}

static by_status run_move(by_engine *e, by_move *m, by_err *err) {
    const by_kv_layout *l = by_kv_layout_of(e->kv);
    by_mem *slots = by_kv_slot_mem(e->kv), *blocks = by_kv_block_mem(e->kv);
    size_t slot = (size_t)l->slot_bytes, from = (size_t)m->from_slot * slot, to = (size_t)m->to_slot * slot;
    by_status status = BY_OK;
    switch (m->kind) {
    case BY_MOVE_SNAPSHOT: return by_mem_read(m->saved.bytes, slots, from, slot, err);
    case BY_MOVE_RESTORE: return by_mem_write(slots, to, m->saved.bytes, m->saved.n_bytes, err);
    case BY_MOVE_SWAP_OUT:
        status = by_mem_read(m->saved.bytes, slots, from, slot, err);
        if (status == BY_OK && blocks) status = move_blocks(e, &m->saved, true, err);
        by_free(m->saved.blocks);
        return status;
    case BY_MOVE_SWAP_IN:
        status = by_mem_write(slots, to, m->saved.bytes, slot, err);
        if (status == BY_OK && blocks) status = move_blocks(e, &m->saved, false, err);
        by_free(m->saved.blocks);
        by_free(m->saved.bytes);
        return status;
    case BY_MOVE_FORK:
        status = by_mem_copy(slots, to, slots, from, slot, err);
        if (status == BY_OK && m->to_block)
            status = by_mem_copy(blocks, (size_t)(m->to_block * l->block_bytes), blocks,
                                 (size_t)(m->from_block * l->block_bytes), (size_t)l->block_bytes, err);
        return status;
    }
    return status;
}

static void run_moves(by_engine *e, by_moves *moves, by_job *job) {
    for (int32_t i = 0; i < moves->n; i++) {
        by_status status = run_move(e, &moves->items[i], &job->err);
        if (job->status == BY_OK) job->status = status;
    }
}

/* ---- sampling ---- */

/* The distribution that log-probabilities are reported of: the one that is sampled from, unless that leaves nothing to report. */
static by_status reported_dist(by_engine *e, by_sample_dist *d, const by_request_opts *o, const float *logits, by_err *err) {
    static const by_sample_law plain = {.temperature = 1, .top_p = 1, .top_k = -1};
    if (!o->plain_logprobs || !by_sample_is_greedy(&o->sampling)) return BY_OK;
    return by_sample_dist_make(d, logits, e->model->cfg.vocab_size, &plain, e->scratch, err);
}

static by_status sample_one(by_engine *e, by_sample_job *s, const float *logits, by_err *err) {
    by_seq *q = s->seq;
    const by_sample_params *p = &q->request->opts.sampling;
    int32_t V = e->model->cfg.vocab_size, n_out = (int32_t)(s->position - q->n_prompt);
    uint64_t seed = p->seed + (uint64_t)q->choice;
    if (q->edits || s->mask) {
        memcpy(e->row, logits, (size_t)V * 4);
        BY_TRY(by_sample_edit(e->row, V, p, &q->history, n_out, s->mask, err));
        if (s->mask) BY_TRY(by_sample_check_mask(e->row, V, s->mask, err));
        logits = e->row;
    }
    by_sample_dist d;
    BY_TRY(by_sample_dist_make(&d, logits, V, &p->law, e->scratch, err));
    by_sample_stream stream = by_sample_stream_at(seed, (uint32_t)s->position, BY_SAMPLE_DRAW_FRESH);
    s->token = by_sample_dist_pick(&d, &stream, p->rule, e->scratch);
    if (s->token == BY_SAMPLE_NONE) BY_TRY(by_sample_argmax(&s->token, logits, V, e->scratch, err));
    BY_TRY(reported_dist(e, &d, &q->request->opts, logits, err));
    s->logprob = by_sample_dist_logprob(&d, s->token);
    if (s->top) by_sample_dist_top(s->top, q->request->opts.n_top, &d);
    q->tokens[s->position] = s->token;
    BY_TRY(by_seq_advance(q, s->token, &s->complete, err));
    return q->edits ? by_sample_history_push(&q->history, s->token, err) : BY_OK;
}

/* log P(next prompt token) of the rows of a request that asked for it. Row r of the sequence is row `at + r` of the logits. */
static by_status prompt_rows(by_engine *e, by_seq *q, const by_step_seq *st, int64_t first, const float *logits, by_err *err) {
    int32_t V = e->model->cfg.vocab_size;
    for (int32_t r = 0; r < st->n_rows; r++) {
        int64_t t = first + r;
        if (t + 1 >= q->n_prompt) break;
        by_sample_dist d;
        const float *row = logits + (int64_t)r * V;
        BY_TRY(by_sample_dist_make(&d, row, V, &q->request->opts.sampling.law, e->scratch, err));
        BY_TRY(reported_dist(e, &d, &q->request->opts, row, err));
        q->request->prompt_logprobs[t] = by_sample_dist_logprob(&d, q->tokens[t + 1]);
    }
    return BY_OK;
}

static void sample_all(by_engine *e, by_job *job, const int64_t *first) {
    by_tensor l = by_runner_logits(e->runner);
    if (l.rows == 0) return;
    const void *view;
    job->status = by_mem_view(&view, l.mem, (size_t)l.off, (size_t)(l.rows * l.stride), &job->err);
    if (job->status < 0) return;
    const float *logits = view;
    int32_t at = 0;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        const by_step_seq *st = &job->steps[i];
        if (st->want == BY_WANT_ALL) {
            by_err err;
            by_status status = prompt_rows(e, job->seqs[i], st, first[i], logits + (int64_t)at * l.cols, &err);
            for (int32_t k = 0; status < 0 && k < job->n_samples; k++)
                if (job->samples[k].seq == job->seqs[i]) job->samples[k].status = status;
        }
        at += st->want == BY_WANT_ALL ? st->n_rows : st->want == BY_WANT_LAST;
    }
    for (int32_t k = 0; k < job->n_samples; k++) {
        by_sample_job *s = &job->samples[k];
        by_err err = {0};
        if (s->status < 0) continue; /* its mask has failed */
        s->status = sample_one(e, s, logits + (int64_t)s->row * l.cols, &err);
        if (s->status >= 0) continue;
        by_err_prefix(&err, "token %lld: ", (long long)s->position);
        pthread_mutex_lock(&s->seq->request->lock);
        s->seq->request->error = err;
        pthread_mutex_unlock(&s->seq->request->lock);
    }
    by_mem_unview(l.mem);
}

/* ---- rows that are not finite ---- */

static bool finite_row(by_dtype dtype, const void *row, int64_t n) {
    uint32_t most = 0;
    if (dtype == BY_BF16) {
        const uint16_t *x = row;
        for (int64_t i = 0; i < n; i++) most = (x[i] & 0x7fffu) > most ? x[i] & 0x7fffu : most;
        return most < 0x7f80;
    }
    const uint32_t *x = row;
    for (int64_t i = 0; i < n; i++) most = (x[i] & 0x7fffffffu) > most ? x[i] & 0x7fffffffu : most;
    return most < 0x7f800000;
}

static void mark_bad(by_engine *e, by_job *job, int32_t i, int64_t position, int32_t layer) {
    by_request *r = job->seqs[i]->request;
    job->bad[i] = true;
    pthread_mutex_lock(&r->lock);
    by_err_set(&r->error, BY_ENUMERIC, __FILE__, __LINE__, "token %lld: not a number or infinite in front of layer %d of %d",
               (long long)position, layer, e->model->cfg.n_layers);
    pthread_mutex_unlock(&r->lock);
}

/* All rows where those in front of the boundary end, and behind the last layer what is left of them. */
by_status by_engine_check_rows(void *arg, int32_t layer, by_tensor h, by_err *err) {
    by_engine *e = arg;
    by_job *job = e->running;
    bool boundary = layer == e->model->boundary && e->opts.trunc == BY_TRUNC_COMPACT;
    if (!boundary && layer != e->model->cfg.n_layers) return BY_OK;
    assert(h.dtype == BY_BF16 || h.dtype == BY_F32);
    const void *view;
    BY_TRY(by_mem_view(&view, h.mem, (size_t)h.off, (size_t)(h.rows * h.stride), err));
    const unsigned char *row = view;
    bool kept = h.rows != job->n_rows;
    int64_t n_seen = 0;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        const by_step_seq *st = &job->steps[i];
        int64_t first = e->first_rows[i], end = first + st->n_rows;
        if (kept && st->keep_from > first) first = st->keep_from < end ? st->keep_from : end;
        for (int64_t t = first; t < end && n_seen < h.rows; t++, n_seen++, row += h.stride)
            if (!job->bad[i] && !finite_row(h.dtype, row, h.cols)) mark_bad(e, job, i, t, layer);
    }
    assert(n_seen == h.rows);
    by_mem_unview(h.mem);
    return BY_OK;
}

void by_engine_run_job(by_engine *e, by_job *job) {
    job->status = BY_OK;
    e->running = job;
    for (int32_t i = 0; i < job->n_seqs; i++) job->bad[i] = false;
    run_moves(e, &job->before, job);
    if (job->n_seqs > 0 && job->status == BY_OK) {
        int64_t *first = e->first_rows;
        for (int32_t i = 0; i < job->n_seqs; i++) first[i] = job->steps[i].kv->n_tokens;
        by_engine_masks_begin(e, job);
        job->status = by_runner_step(e->runner, job->steps, job->n_seqs, &job->err);
        by_engine_masks_end(e);
        if (job->status == BY_OK) sample_all(e, job, first);
    }
    run_moves(e, &job->after, job);
}
