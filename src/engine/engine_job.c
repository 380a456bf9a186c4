/* engine_job.c - the device's side of a step: restores, forward, sampling, saves; on the device thread. */
#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
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
    case BY_COPY_SNAPSHOT: return m->missed ? BY_OK : by_mem_read(m->saved.bytes, slots, from, slot, err);
    case BY_COPY_RESTORE: return by_mem_write(slots, to, m->saved.bytes, m->saved.n_bytes, err);
    case BY_COPY_SWAP_OUT:
        status = by_mem_read(m->saved.bytes, slots, from, slot, err);
        if (status == BY_OK && blocks) status = move_blocks(e, &m->saved, true, err);
        by_free(m->saved.blocks);
        return status;
    case BY_COPY_SWAP_IN:
        status = by_mem_write(slots, to, m->saved.bytes, slot, err);
        if (status == BY_OK && blocks) status = move_blocks(e, &m->saved, false, err);
        by_free(m->saved.blocks);
        by_free(m->saved.bytes);
        return status;
    case BY_COPY_FORK:
        status = by_mem_copy(slots, to, slots, from, slot, err);
        if (status == BY_OK && m->to_block)
            status = by_mem_copy(blocks, (size_t)(m->to_block * l->block_bytes), blocks,
                                 (size_t)(m->from_block * l->block_bytes), (size_t)l->block_bytes, err);
        return status;
    case BY_COPY_N: break;
    }
    return status;
}

/* Bytes of a move that has gone well. */
static uint64_t moved_bytes(const by_engine *e, const by_move *m) {
    const by_kv_layout *l = by_kv_layout_of(e->kv);
    int64_t slot = m->kind == BY_COPY_RESTORE ? (int64_t)m->saved.n_bytes : m->missed ? 0 : l->slot_bytes;
    bool swaps = m->kind == BY_COPY_SWAP_OUT || m->kind == BY_COPY_SWAP_IN;
    int64_t n_blocks = !by_kv_block_mem(e->kv) ? 0 : swaps ? m->saved.n_blocks : m->kind == BY_COPY_FORK ? m->to_block != 0 : 0;
    return (uint64_t)(slot + n_blocks * l->block_bytes);
}

const char *by_copy_name(by_copy what) {
    static const char *const names[BY_COPY_N] = {"swap_out", "swap_in", "restore", "snapshot", "fork"};
    return (unsigned)what < BY_COPY_N ? names[what] : "?";
}

static void note_error(by_request *r, const by_err *err) {
    pthread_mutex_lock(&r->lock);
    r->error = *err;
    pthread_mutex_unlock(&r->lock);
}

/* A copy that fails costs the sequence whose state it was, and nobody else: its rows are left out from now on, and it ends at
 * the commit. A snapshot is only missing. */
static void run_moves(by_engine *e, by_job *job, by_moves *moves) {
    static const char *const names[] = {"swapping out", "swapping in", "restoring a prefix", "a snapshot", "copying a prompt's state"};
    for (int32_t i = 0; i < moves->n; i++) {
        by_move *m = &moves->items[i];
        by_err err;
        m->status = run_move(e, m, &err);
        if (m->status >= 0) job->copied_bytes[m->kind] += moved_bytes(e, m);
        if (m->status >= 0 || m->kind == BY_COPY_SNAPSHOT || m->seq->lost) continue;
        by_err_prefix(&err, "%s: ", names[m->kind]);
        note_error(m->seq->request, &err);
        m->seq->lost = true;
    }
}

/* ---- the step ---- */

/* Turns the job's rows into a step: decode rows start at the newest token, with as many drafts behind it as the job gives them. A
 * sequence whose last token has come since the job was made is left out. Returns the number of sequences. */
static int32_t describe_step(by_engine *e, by_job *job) {
    by_engine_place_drafts(e, job);
    int32_t n = 0, logits = 0;
    job->n_run_rows = 0;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        by_job_row *r = &job->rows[i];
        by_seq *s = r->seq;
        if (r->skipped) continue;
        if (r->decodes) {
            r->first = s->n_known - 1;
            r->n_rows = 1 + r->n_drafts;
            memcpy(s->tokens + s->n_known, s->drafts.ids, (size_t)r->n_drafts * 4);
        }
        by_want want = r->all || r->n_drafts ? BY_WANT_ALL : r->samples ? BY_WANT_LAST : BY_WANT_NONE;
        r->kv.n_tokens = r->first;
        r->logits = logits;
        r->n_logits = want == BY_WANT_ALL ? r->n_rows : want == BY_WANT_LAST;
        r->n_computed = r->first + r->n_rows;
        logits += r->n_logits;
        job->n_run_rows += r->n_rows;
        e->step_rows[n] = i;
        e->steps[n++] = (by_step_seq){.kv = &r->kv, .tokens = s->tokens, .n_rows = r->n_rows, .want = want, .store_from = r->store_from,
                                      .valid_from = r->valid_from, .keep_from = r->keep_from};
    }
    return n;
}

/* ---- rows that are not finite ---- */

static void mark_bad(by_engine *e, by_job_row *r, int64_t position, int32_t layer) {
    by_request *q = r->seq->request;
    r->bad_at = position;
    pthread_mutex_lock(&q->lock);
    by_err_set(&q->error, BY_ENUMERIC, __FILE__, __LINE__, "token %lld: not a number or infinite in front of layer %d of %d",
               (long long)position, layer, e->model->cfg.n_layers);
    pthread_mutex_unlock(&q->lock);
}

/* Marks of one place: the rows of the job in order, behind the boundary only those that have gone on. */
static void find_bad_rows(by_engine *e, by_job *job, by_marks_place place, const int32_t *bad, int32_t n) {
    int32_t n_seen = 0, layer = place == BY_MARKS_LAST ? e->model->cfg.n_layers : e->model->boundary;
    bool kept = n != job->n_run_rows;
    if (n == 0) return;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        by_job_row *r = &job->rows[i];
        if (r->skipped) continue;
        int64_t first = r->first, end = first + r->n_rows;
        if (kept && r->keep_from > first) first = r->keep_from < end ? r->keep_from : end;
        for (int64_t t = first; t < end && n_seen < n; t++, n_seen++)
            if (bad[n_seen] && (r->bad_at < 0 || t < r->bad_at)) mark_bad(e, r, t, layer);
    }
    assert(n_seen == n);
}

/* Both places in one piece. */
static by_tensor all_marks(const by_engine *e) {
    by_tensor first = by_runner_marks(e->runner, BY_MARKS_BOUNDARY), last = by_runner_marks(e->runner, BY_MARKS_LAST);
    int64_t rows = (last.off - first.off) / 4 + last.rows;
    first.rows = rows > first.rows ? rows : first.rows;
    return first;
}

static by_status read_marks(by_engine *e, by_err *err) {
    by_tensor t = all_marks(e);
    return by_mem_read(e->marks, t.mem, (size_t)t.off, (size_t)t.rows * 4, err); /* waits, also for a step that nothing is marked in */
}

static void look_at_marks(by_engine *e, by_job *job) {
    by_tensor first = by_runner_marks(e->runner, BY_MARKS_BOUNDARY), last = by_runner_marks(e->runner, BY_MARKS_LAST);
    find_bad_rows(e, job, BY_MARKS_BOUNDARY, e->marks, (int32_t)first.rows);
    find_bad_rows(e, job, BY_MARKS_LAST, e->marks + (last.off - first.off) / 4, (int32_t)last.rows);
}

/* ---- sampling ---- */

/* Why a token is a choice's last, or RUNNING; complete: its grammar allows nothing behind it. */
static by_choice_finish finish_of(const by_seq *s, int32_t token, bool complete) {
    const by_request_opts *o = &s->request->opts;
    if (complete) return BY_CHOICE_STOP;
    if (token == o->sampling.eos_id && !o->ignore_eos) return BY_CHOICE_STOP;
    for (int32_t i = 0; i < o->sampling.n_stop_ids; i++)
        if (o->sampling.stop_ids[i] == token) return BY_CHOICE_STOP;
    return s->n_known >= s->sched.n_max ? BY_CHOICE_LENGTH : BY_CHOICE_RUNNING;
}

/* The tokens of one sequence: its rows in order, up to the first that is no accepted draft or that ends it. A row's mask stands
 * behind the drafts in front of it; rows behind a draft that the grammar refuses have none and are not reached. */
static by_status sample_one(by_engine *e, by_job *job, by_sample_job *k, const float *logits, int64_t stride, by_err *err) {
    by_seq *s = k->seq;
    by_job_row *r = &job->rows[k->row];
    bool own = !k->sister;
    int32_t n_drafts = own ? r->n_drafts : 0;
    int64_t first = s->n_known;
    const float *row0 = logits ? logits + (r->logits + r->n_logits - 1 - n_drafts) * stride : NULL;
    for (int32_t i = 0; i <= n_drafts; i++) {
        by_out *out = &job->outs[k->first_out + k->n_outs];
        const uint32_t *mask = k->masks ? k->masks + (size_t)i * e->masks.words : NULL;
        by_spec_row row = {.logits = row0 ? row0 + i * stride : NULL, .mask = mask, .first = first, .index = i,
                           .n_out = (int32_t)(first - s->n_prompt) + i};
        if (k->first_draw >= 0) {
            row.drawn = &e->spec.drawn[k->first_draw + i];
            row.drawn_top = &e->spec.tops[(k->first_draw + i) * BY_SPEC_TOP_FAR];
        }
        int32_t draft = i < n_drafts ? s->drafts.ids[i] : -1;
        by_spec_token t;
        BY_TRY(by_spec_sample(&e->spec, &s->law, &row, &s->drafts, draft, &t, out->top, err));
        out->token = t.id;
        out->logprob = t.logprob;
        out->smaller = t.smaller;
        k->n_outs++;
        k->n_accepted += t.accepted;
        s->tokens[s->n_known++] = t.id;
        bool complete = false;
        BY_TRY(by_seq_advance(s, t.id, &complete, err));
        out->finish = finish_of(s, t.id, complete);
        s->at_end = out->finish != BY_CHOICE_RUNNING;
        if (!t.accepted || s->at_end || (k->masks && i + 1 >= k->n_masked)) break;
    }
    if (own && r->decodes) r->n_computed = s->n_known - 1;
    return BY_OK;
}

static int32_t rank_of(const float *row, int32_t V, int32_t id) {
    int32_t n = 1;
    for (int32_t i = 0; i < V; i++) n += row[i] > row[id] || (row[i] == row[id] && i < id);
    return n;
}

/* log P(next prompt token) of the rows of a request that asked for it. */
static by_status prompt_rows(by_engine *e, const by_job_row *r, const float *logits, by_err *err) {
    static const by_sample_law plain = {.temperature = 1, .top_p = 1, .top_k = -1};
    by_seq *q = r->seq;
    const by_request_opts *o = &q->request->opts;
    bool reports_plain = o->plain_logprobs && by_sample_is_greedy(&o->sampling);
    int32_t V = e->model->cfg.vocab_size;
    for (int32_t i = 0; i < r->n_rows && r->first + i + 1 < q->n_prompt; i++) {
        by_sample_dist d;
        const float *row = logits + (int64_t)(r->logits + i) * V;
        BY_TRY(by_sample_dist_make(&d, row, V, reports_plain ? &plain : &o->sampling.law, e->spec.scratch, err));
        q->request->prompt_logprobs[r->first + i] = by_sample_dist_logprob(&d, q->tokens[r->first + i + 1]);
        if (o->prompt_ranks) q->request->prompt_ranks[r->first + i] = rank_of(row, V, q->tokens[r->first + i + 1]);
        if (o->n_prompt_top) by_sample_dist_top(q->request->prompt_tops + (r->first + i) * o->n_prompt_top, o->n_prompt_top, &d);
    }
    return BY_OK;
}

static void note_problem(by_sample_job *k, by_err *err, int64_t position) {
    by_err_prefix(err, "token %lld: ", (long long)position);
    note_error(k->seq->request, err);
}

/* Puts the draws of a sample's rows among those from number n on; how many, 0: the host draws. */
static int32_t ask_device(by_engine *e, const by_job *job, by_sample_job *k, int32_t n) {
    const by_job_row *r = &job->rows[k->row];
    by_seq *s = k->seq;
    by_sample_history *h = s->law.history; /* behind a row's drafts it holds them */
    int32_t n_drafts = k->sister ? 0 : r->n_drafts, n_rows = k->masks && k->n_masked <= n_drafts ? k->n_masked : n_drafts + 1;
    int32_t n_asked = 0, n_pushed = 0;
    by_err err;
    for (; n_asked < n_rows; n_asked++) {
        int32_t draft = n_asked < n_drafts ? s->drafts.ids[n_asked] : -1;
        by_spec_row row = {.mask = k->masks ? k->masks + (size_t)n_asked * e->masks.words : NULL, .first = s->n_known, .index = n_asked,
                           .n_out = (int32_t)(s->n_known - s->n_prompt) + n_asked};
        by_draw *d = &e->spec.draws[n + n_asked];
        if (!by_spec_ask(&e->spec, &s->law, &row, &s->drafts, draft, s->request->opts.n_top, d)) break;
        d->row = r->logits + r->n_logits - 1 - n_drafts + n_asked;
        if (h && n_asked + 1 < n_rows && by_sample_history_push(h, draft, &err) < 0) break;
        if (h && n_asked + 1 < n_rows) n_pushed++;
    }
    while (n_pushed-- > 0) by_sample_history_pop(h, s->drafts.ids[n_pushed]);
    return n_asked < n_rows ? 0 : n_rows;
}

/* No memory for draws: the host draws all, from the same words. */
static by_status draw_near(by_engine *e, by_job *job, bool *all, by_err *err) {
    for (int32_t k = 0; k < job->n_samples; k++) job->samples[k].first_draw = -1;
    *all = false;
    *err = (by_err){0};
    return read_marks(e, err);
}

/* Ends when the device has done the step, also where it runs by itself. Lets it draw what it can: what it drew and the marks are one answer.
 * *all: nobody has to look at the logits. */
static by_status draw_far(by_engine *e, by_job *job, by_tensor logits, bool *all, by_err *err) {
    int32_t n = 0, most = 0;
    *all = e->spec.dev != NULL && logits.rows > 0;
    for (int32_t k = 0; k < job->n_samples; k++) {
        job->samples[k].first_draw = -1;
        most += 1 + job->rows[job->samples[k].row].n_drafts;
    }
    if (!*all) return read_marks(e, err);
    if (by_spec_reserve(&e->spec, most, err) < 0) return draw_near(e, job, all, err); /* nothing but memory can be missing */
    for (int32_t i = 0; i < job->n_seqs; i++) *all = *all && !job->rows[i].all;
    for (int32_t k = 0; k < job->n_samples; k++) {
        by_sample_job *s = &job->samples[k];
        if (job->rows[s->row].skipped || s->status < 0) continue;
        int32_t got = ask_device(e, job, s, n);
        if (got) s->first_draw = n;
        else *all = false;
        n += got;
    }
    by_status status = n > 0 ? by_spec_draw(&e->spec, logits, n, all_marks(e), e->marks, err) : read_marks(e, err);
    if (status == BY_ENOMEM) return draw_near(e, job, all, err);
    if (status < 0) return status;
    for (int32_t i = 0; i < n; i++) *all = *all && e->spec.drawn[i].id >= 0;
    return BY_OK;
}

/* far: the device has drawn all. */
static void sample_all(by_engine *e, by_job *job, bool far) {
    by_tensor l = by_runner_logits(e->runner);
    if (l.rows == 0) return;
    const void *view = NULL;
    if (!far) job->status = by_mem_view(&view, l.mem, (size_t)l.off, (size_t)(l.rows * l.stride), &job->err);
    if (job->status < 0) return;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        if (!job->rows[i].all || job->rows[i].skipped) continue;
        by_err err = {0};
        by_status status = prompt_rows(e, &job->rows[i], view, &err);
        if (status == BY_OK) continue;
        by_err_prefix(&err, "prompt: ");
        note_error(job->rows[i].seq->request, &err);
        job->rows[i].bad_at = job->rows[i].first; /* fails the request at the commit */
    }
    for (int32_t k = 0; k < job->n_samples; k++) {
        by_sample_job *s = &job->samples[k];
        by_job_row *r = &job->rows[s->row];
        if (r->skipped) continue;
        s->n_verified = s->sister ? 0 : r->n_drafts;
        for (int32_t j = 0; j < s->n_verified; j++)
            s->verified_conf[j] = by_spec_confidence(s->seq->drafts.conf[j], e->opts.draft_temperature[j]);
        by_err err = {0};
        bool masked = s->status == BY_OK; /* else its masks have failed, and the reason is noted */
        if (masked) s->status = sample_one(e, job, s, view, l.cols, &err);
        if (masked && s->status < 0) note_problem(s, &err, s->seq->n_known);
        if (s->status < 0) s->seq->at_end = true;
        s->seq->drafts.n = 0; /* used up */
    }
    if (!far) by_mem_unview(l.mem);
}

/* A row behind a rejected draft is nobody's: that it was not finite says nothing about the sequence. */
static void forgive_rejected(by_job *job) {
    for (int32_t i = 0; i < job->n_seqs; i++)
        if (job->rows[i].bad_at >= job->rows[i].n_computed) job->rows[i].bad_at = -1;
}

/* Whose state is not right behind this job. The jobs that follow were made before anybody knew: their rows are left out. */
static void lose_states(by_job *job) {
    for (int32_t i = 0; i < job->n_seqs; i++)
        if (job->status < 0 || job->rows[i].bad_at >= 0) job->rows[i].seq->lost = true;
    for (int32_t k = 0; k < job->n_samples; k++) /* choices that begin with their sister's state */
        if (job->rows[job->samples[k].row].seq->lost) job->samples[k].seq->lost = true;
}

static void miss_snapshots(by_job *job) {
    for (int32_t i = 0; i < job->after.n; i++) {
        by_move *m = &job->after.items[i];
        if (m->kind != BY_COPY_SNAPSHOT) continue;
        const by_job_row *r = &job->rows[m->row];
        m->missed = r->skipped || r->seq->lost || m->n_tokens <= r->first || m->n_tokens > r->n_computed;
    }
}

static double ms_since(const by_engine *e, int64_t t0) { return (double)(by_cost_clock_ns(e->dev) - t0) * 1e-6; }

/* The rows of the job, and its tokens. While a device that runs by itself is at the rows, masks are made and draws are queued behind them: the
 * first and only wait is for what was drawn. */
static void run_step(by_engine *e, by_job *job, int32_t n) {
    bool far = false;
    int64_t t0 = by_cost_clock_ns(e->dev);
    by_engine_masks_begin(e, job);
    job->status = by_runner_step(e->runner, e->steps, n, &job->err);
    by_device_lap(e->dev);
    by_engine_masks_end(e);
    job->forward_ms = ms_since(e, t0);
    if (job->status == BY_OK) job->status = draw_far(e, job, by_runner_logits(e->runner), &far, &job->err);
    if (job->status == BY_OK) job->status = by_runner_problem(e->runner, &job->err);
    if (by_device_draws(e->dev)) job->forward_ms = by_device_pace_get(e->dev).lap_ms[0];
    if (job->status == BY_OK) {
        look_at_marks(e, job);
        sample_all(e, job, far);
    }
    double ms = ms_since(e, t0) - job->forward_ms;
    job->sample_ms = ms > 0 ? ms : 0;
    forgive_rejected(job);
}

void by_engine_run_job(by_engine *e, by_job *job) {
    job->status = BY_OK;
    job->forward_ms = job->sample_ms = job->draft_ms = 0;
    memset(job->copied_bytes, 0, sizeof job->copied_bytes);
    run_moves(e, job, &job->before);
    int32_t n = describe_step(e, job);
    if (n > 0 && job->status == BY_OK) run_step(e, job, n);
    lose_states(job);
    miss_snapshots(job);
    run_moves(e, job, &job->after);
    int64_t t0 = by_cost_clock_ns(e->dev), begin = by_clock_ns();
    if (job->status == BY_OK && job->drafts) by_engine_propose(e, job);
    job->draft_s = (double)(by_clock_ns() - begin) * 1e-9;
    job->draft_ms = ms_since(e, t0);
}
