/* engine_step.c - the scheduler thread: takes in requests, plans a step, hands it to the device, commits the one before. */
#include <math.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine_impl.h"

enum { AHEAD = 4 };

static by_seq *seq_of(by_sched_seq *s) { return (by_seq *)(void *)s; }

/* ---- endings ---- */

static void note_output(by_engine *e, int32_t n) {
    enum { N = sizeof e->outputs / sizeof e->outputs[0], FEW = 16 };
    e->outputs[e->n_outputs++ % N] = n;
    if (e->n_outputs < FEW || e->n_outputs % FEW) return;
    int32_t sorted[N], k = e->n_outputs < N ? e->n_outputs : N;
    memcpy(sorted, e->outputs, (size_t)k * sizeof *sorted);
    for (int32_t i = 1; i < k; i++) { /* nearly sorted inputs are rare, but 512 numbers every 16 requests are little */
        int32_t v = sorted[i], j = i;
        for (; j > 0 && sorted[j - 1] > v; j--) sorted[j] = sorted[j - 1];
        sorted[j] = v;
    }
    int32_t at = (int32_t)(e->opts.expect_quantile * (k - 1));
    e->expected_output = sorted[at] > 0 ? sorted[at] : 1;
}

static void hold(by_request *r, by_seq *s, const by_event *ev) {
    by_held *h = &r->held[s->choice];
    if (h->n == h->cap) {
        int32_t cap = h->cap ? h->cap * 2 : 64;
        by_event *events = by_realloc(BY_MEM_REQUEST, h->events, (size_t)cap * sizeof *events);
        if (events) h->events = events;
        size_t n_top = (size_t)r->opts.n_top;
        by_sample_top *tops = n_top ? by_realloc(BY_MEM_REQUEST, h->tops, (size_t)cap * n_top * sizeof *tops) : NULL;
        if (tops) h->tops = tops;
        if (!events || (n_top && !tops)) {
            h->lost = true;
            return;
        }
        h->cap = cap;
    }
    h->events[h->n] = *ev;
    if (ev->n_top) memcpy(h->tops + (size_t)h->n * (size_t)r->opts.n_top, ev->top, (size_t)ev->n_top * sizeof *ev->top);
    h->n++;
}

static void set_paused(by_request *r, bool paused) {
    if (r->paused == paused) return;
    r->paused = paused;
    for (int32_t i = 0; i < r->n_choices; i++) r->seqs[i].sched.paused = paused;
}

static void emit(by_seq *s, const by_event *ev) {
    if (s->request->held) hold(s->request, s, ev);
    else if (!by_request_emit(s->request, ev)) set_paused(s->request, true);
}

/* Every choice has ended well, every event of it has been kept, and the queue holds them; else the request has failed: the best of
 * those that are left may not be the best. */
static bool has_all_events(by_request *r) {
    int64_t n = 0;
    bool ok = true;
    for (int32_t i = 0; i < r->opts.best_of; i++) {
        const by_held *h = &r->held[i];
        if (h->n && h->events[h->n - 1].finish == BY_CHOICE_ERROR) return false; /* the reason is noted */
        ok = ok && !h->lost;
        n += h->n;
    }
    if (ok && n < INT32_MAX / 2 && by_request_reserve(r, (int32_t)n)) return true;
    pthread_mutex_lock(&r->lock);
    by_err_set(&r->error, BY_ENOMEM, __FILE__, __LINE__, "out of memory for the events of a request");
    pthread_mutex_unlock(&r->lock);
    return false;
}

/* The n choices with the highest mean log-probability, best first, as choices 0..n-1. */
static void emit_best(by_request *r) {
    bool taken[64] = {false}, whole = has_all_events(r);
    for (int32_t k = 0; k < r->opts.n; k++) {
        if (!whole) {
            by_request_emit(r, &(by_event){.choice = k, .token = -1, .finish = BY_CHOICE_ERROR});
            continue;
        }
        int32_t best = -1;
        double top = -INFINITY;
        for (int32_t i = 0; i < r->opts.best_of; i++) {
            const by_seq *s = &r->seqs[i];
            double mean = s->n_out ? s->logprob_sum / s->n_out : -INFINITY;
            if (!taken[i] && (best < 0 || mean > top)) {
                best = i;
                top = mean;
            }
        }
        taken[best] = true;
        for (int32_t i = 0; i < r->held[best].n; i++) {
            by_event ev = r->held[best].events[i];
            ev.choice = k;
            ev.top = ev.n_top ? r->held[best].tops + (size_t)i * (size_t)r->opts.n_top : NULL;
            by_request_emit(r, &ev);
        }
    }
}

static void leave_when_done(by_engine *e, by_request *r) {
    if (r->n_live > 0) return;
    for (int32_t i = 0; i < r->n_choices; i++)
        if (r->seqs[i].in_flight > 0) return;
    if (r->some_ended) {
        by_request **at = &e->ended;
        while (*at != r) at = &(*at)->ended_next;
        *at = r->ended_next;
    }
    *(r->all_prev ? &r->all_prev->all_next : &e->inside) = r->all_next;
    if (r->all_next) r->all_next->all_prev = r->all_prev;
    if (r->held) emit_best(r);
    by_request_leave(r);
}

static void fail_choice(by_engine *e, by_seq *s, const by_err *err);

/* The first choice has ended before its prompt was done, so nobody will fork the others from it: they start by themselves. */
static void start_orphans(by_engine *e, by_request *r) {
    if (r->ticket) return; /* not begun: begin sees to them */
    for (int32_t i = 1; i < r->opts.best_of; i++) {
        by_seq *s = &r->seqs[i];
        by_err err = {0};
        if (s->ended || !s->parent) continue;
        s->parent = NULL;
        s->sched.accepted = true;
        if (by_sched_add(e->sched, &s->sched, &err) < 0) fail_choice(e, s, &err);
    }
}

/* Ends a choice: no more rows; what it holds goes back when no job has it any more. ev: its last event. */
static void end_choice(by_engine *e, by_seq *s, by_event ev) {
    if (s->ended) return;
    s->ended = true;
    if (!s->request->some_ended) {
        s->request->some_ended = true;
        s->request->ended_next = e->ended;
        e->ended = s->request;
    }
    if (s->sched.state != BY_SCHED_NEW) by_sched_remove(e->sched, &s->sched);
    ev.choice = s->choice;
    if (s->n_steps > 0) {
        pthread_mutex_lock(&s->request->lock);
        s->request->info.n_steps += s->n_steps;
        s->request->info.n_verified += s->n_verified;
        s->request->info.n_accepted += s->n_accepted;
        pthread_mutex_unlock(&s->request->lock);
    }
    emit(s, &ev);
    s->request->n_live--;
    if (ev.finish == BY_CHOICE_ERROR) e->stats.n_failed++;
    else if (ev.finish == BY_CHOICE_CANCELLED) e->stats.n_cancelled++;
    else e->stats.n_finished++;
    if (ev.finish == BY_CHOICE_STOP || ev.finish == BY_CHOICE_LENGTH) {
        note_output(e, s->n_out);
        e->stats.n_finished_in += (uint64_t)s->n_prompt;
        e->stats.n_finished_out += (uint64_t)s->n_out;
    }
    if (s->in_flight == 0) by_engine_release_seq(e, s);
    if (s->choice == 0) start_orphans(e, s->request);
}

static void fail_choice(by_engine *e, by_seq *s, const by_err *err) {
    if (s->ended) return;
    pthread_mutex_lock(&s->request->lock);
    if (err) s->request->error = *err;
    pthread_mutex_unlock(&s->request->lock);
    end_choice(e, s, (by_event){.token = -1, .finish = BY_CHOICE_ERROR});
}

/* All choices: they may share the state that has gone bad. The device has left the reason. */
static void fail_request(by_engine *e, by_request *r) {
    for (int32_t i = 0; i < r->opts.best_of; i++) fail_choice(e, &r->seqs[i], NULL);
}

/* ---- arrivals, aborts, slow readers ---- */

/* Puts a request in the queue, once its grammar is there. */
static void begin(by_engine *e, by_request *r) {
    by_err err = {0};
    by_status status = by_engine_grammar_begin(r, &err);
    if (status == BY_AGAIN) return;
    if (status == BY_OK && r->seqs[0].ended) {
        start_orphans(e, r);
        return;
    }
    if (status == BY_OK) status = by_sched_add(e->sched, &r->seqs[0].sched, &err);
    for (int32_t i = 0; status < 0 && i < r->opts.best_of; i++) fail_choice(e, &r->seqs[i], &err);
}

static void take_in(by_engine *e, by_request *list) {
    for (by_request *r = list, *next; r; r = next) {
        next = r->next_new;
        r->next_new = NULL;
        r->all_prev = NULL;
        r->all_next = e->inside;
        if (e->inside) e->inside->all_prev = r;
        e->inside = r;
        by_seq *first = &r->seqs[0];
        int64_t out = first->sched.n_max - first->n_prompt;
        if (e->expected_output && e->expected_output < out) out = e->expected_output;
        for (int32_t i = 0; i < r->opts.best_of; i++) r->seqs[i].sched.n_expected = first->n_prompt + out;
        if (r->deadline_us && r->deadline_us < e->next_deadline_us) e->next_deadline_us = r->deadline_us;
        begin(e, r);
        e->n_compiling += r->ticket && r->n_live > 0; /* one that has ended waits for nothing */
        if (r->n_live == 0) leave_when_done(e, r);
    }
}

static void end_marked(by_engine *e, by_request *r, uint64_t mask, by_choice_finish finish) {
    for (int32_t i = 0; i < r->opts.best_of; i++)
        if (mask >> (i & 63) & 1) end_choice(e, &r->seqs[i], (by_event){.token = -1, .finish = finish});
}

/* Looks at every request inside: aborts, deadlines, readers that have caught up. Whoever changes one of these pokes the engine,
 * so that most steps need not look: with hundreds of requests that would be most of the scheduler's time. */
static void look_around(by_engine *e, int64_t now_us, bool stopping) {
    e->n_compiling = 0;
    e->next_deadline_us = INT64_MAX;
    for (by_request *r = e->inside, *next; r; r = next) {
        next = r->all_next;
        uint64_t abort_ = 0, stop = 0;
        if (atomic_load(&r->abort_mask)) {
            abort_ = atomic_exchange(&r->abort_mask, 0); /* first: who wants a stop has set stop_mask before it */
            stop = atomic_exchange(&r->stop_mask, 0);
        }
        if (stopping || (r->deadline_us && now_us > r->deadline_us)) abort_ = UINT64_MAX;
        else if (r->deadline_us && r->deadline_us < e->next_deadline_us) e->next_deadline_us = r->deadline_us;
        if (stop) end_marked(e, r, stop, BY_CHOICE_STOP);
        if (abort_) end_marked(e, r, abort_, BY_CHOICE_CANCELLED);
        if (r->ticket && r->n_live > 0) begin(e, r);
        e->n_compiling += r->ticket && r->n_live > 0; /* one that has ended waits for nothing */
        set_paused(r, !by_request_has_room(r));
        leave_when_done(e, r);
    }
}

/* ---- making a job ---- */

static bool grow(void **items, int32_t need, int32_t *cap, size_t size) {
    if (need <= *cap) return true;
    void *fresh = by_realloc(BY_MEM_REQUEST, *items, by_mul_size((size_t)need * 2, size));
    if (!fresh) return false;
    *items = fresh;
    *cap = need * 2;
    return true;
}

/* Room for a sample of n_outs tokens with n_tops alternatives in all. */
static bool room_for_sample(by_job *job, int32_t n_outs, int32_t n_tops) {
    return grow((void **)&job->samples, job->n_samples + 1, &job->cap_samples, sizeof *job->samples) &&
           grow((void **)&job->outs, job->n_outs + n_outs, &job->cap_outs, sizeof *job->outs) &&
           grow((void **)&job->tops, job->n_tops + n_tops, &job->cap_tops, sizeof *job->tops);
}

/* s gets 1 + n_extra tokens at most from row `row` of the job. False: out of memory, the choice has failed. */
static bool add_sample(by_engine *e, by_job *job, by_seq *s, int32_t row, int32_t n_extra) {
    int32_t n_top = s->request->opts.n_top, n_outs = 1 + n_extra;
    if (!room_for_sample(job, n_outs, n_outs * n_top)) {
        by_err err;
        BY_FAIL(&err, BY_ENOMEM, "out of memory for a sample");
        fail_choice(e, s, &err);
        return false;
    }
    job->samples[job->n_samples++] =
        (by_sample_job){.seq = s, .row = row, .slot = s->kv.slot, .first_out = job->n_outs, .most_outs = n_outs};
    s->sched.n_extra = e->n_drafts; /* from the first token on */
    job->n_outs += n_outs;
    job->n_tops += n_outs * n_top;
    return true;
}

/* The other choices of a request whose prompt ends in this job: they sample from the same logits and go on from a copy of the
 * state. One for which there is no room starts later by itself, from what the prefix cache has. */
static void start_sisters(by_engine *e, by_job *job, by_seq *first, int32_t row) {
    by_request *r = first->request;
    for (int32_t i = 1; i < r->opts.best_of; i++) {
        by_seq *s = &r->seqs[i];
        if (s->ended || !s->parent) continue;
        bool forked = by_engine_fork(e, s, job);
        s->parent = NULL;
        by_err err = {0};
        if (!forked) {
            if (s->holds) by_engine_release_seq(e, s);
            s->sched.n_done = 0;
            s->sched.accepted = true;
            if (by_sched_add(e->sched, &s->sched, &err) < 0) fail_choice(e, s, &err);
            continue;
        }
        s->sched.n_tokens = s->n_prompt + 1;
        by_sched_add_running(e->sched, &s->sched);
        s->in_flight++;
        if (add_sample(e, job, s, row, 0)) job->samples[job->n_samples - 1].sister = true;
        else s->in_flight--;
    }
}

/* A multiple of the block size that the row's sequence may reach in this job: a snapshot is taken if it does. */
static void want_snapshot(by_engine *e, by_job *job, by_seq *s, const by_plan_row *p, int32_t row) {
    int64_t least = p->first - (s->sched.n_open - p->n_extra), most = p->first + p->n_rows + p->n_extra;
    int64_t at = most / BY_KV_BLOCK_TOKENS * BY_KV_BLOCK_TOKENS;
    if (at > least && (job->rows[row].decodes || at == most)) /* a prompt's state is that of its last row */
        by_engine_want_snapshot(e, s, at, job, row);
}

static void add_row(by_engine *e, by_job *job, const by_plan_row *p) {
    by_seq *s = seq_of(p->seq);
    int32_t i = job->n_seqs++;
    bool decodes = i < job->n_decode && p->first >= s->n_prompt; /* the last row of a prompt may be planned as one */
    job->rows[i] = (by_job_row){.seq = s, .kv = s->kv, .first = p->first, .n_rows = p->n_rows, .n_extra = p->n_extra, .decodes = decodes,
                                .samples = p->samples, .all = !decodes && s->request->opts.prompt_logprobs,
                                .store_from = s->store_from, .valid_from = s->valid_from, .keep_from = s->keep_from, .bad_at = -1};
    if (!decodes) job->n_prompt_rows += p->n_rows;
    s->in_flight++;
    if (p->samples) add_sample(e, job, s, i, p->n_extra);
    if (p->samples && s->choice == 0 && !decodes) start_sisters(e, job, s, i);
    want_snapshot(e, job, s, p, i);
}

/* Begin to load what a row or an event touches, some places before its turn: the model's step, and the readers on other processors,
 * have pushed all of it out of the caches. A request is found through its sequence and the queue through the request, so each
 * needs the one before to have come. */
static void prefetch_seq(const by_seq *s) {
    for (size_t at = 0; at < offsetof(by_seq, history); at += 64) __builtin_prefetch((const char *)s + at, 1);
}
static void prefetch_request(const by_request *r) {
    for (size_t at = 0; at < offsetof(by_request, prompt_logprobs); at += 64) __builtin_prefetch((const char *)r + at, 1);
}
static void prefetch_event(const by_request *r) { __builtin_prefetch(r->ring + r->tail, 1); }

static int32_t n_chunked(const by_plan *plan) {
    int32_t n = 0;
    for (int32_t i = plan->n_decode; i < plan->n_seqs; i++) n += !plan->rows[i].samples;
    return n;
}

/* opts.itl_budget_s in rows of prompts. Some always go: a prompt that stands still helps nobody. */
static void limit_prompts(by_engine *e) {
    enum { LEAST = 16 };
    double budget_s = e->opts.itl_budget_s;
    if (budget_s > 0) by_sched_limit_prefill(e->sched, by_row_cost_rows(&e->row_cost, budget_s, LEAST, BY_LIMIT_STEP_ROWS));
}

/* Operations and lengths of the rows that ran. */
static void note_work(by_engine *e, const by_job *job) {
    by_engine_stats *st = &e->stats;
    bool cuts = e->opts.trunc == BY_TRUNC_COMPACT;
    if (job->n_run_rows > 0) st->k_least = INT64_MAX, st->k_most = 0;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        const by_job_row *r = &job->rows[i];
        if (r->skipped) continue;
        int64_t end = r->first + r->n_rows, kept = cuts && r->keep_from > r->first ? r->keep_from : r->first;
        by_flop_count n = by_flop_count_rows(&e->flops, r->first, end, kept < end ? kept : end, r->n_logits);
        st->ops += n.all;
        st->attention_ops += n.attention;
        st->query_keys += (double)r->n_rows * (double)end;
        if (end < st->k_least) st->k_least = end;
        if (end > st->k_most) st->k_most = end;
    }
    for (int k = 0; k < BY_COPY_N; k++) st->copied_bytes[k] += job->copied_bytes[k];
}

static void make_job(by_engine *e, by_job *job, int64_t now_us) {
    job->n_seqs = job->n_prompt_rows = job->n_samples = job->n_outs = job->n_tops = 0;
    job->before.n = job->after.n = 0;
    e->making = job;
    limit_prompts(e);
    by_sched_plan(e->sched, &e->plan, now_us);
    job->n_rows = e->plan.n_rows;
    job->n_drafts = e->plan.n_drafts;
    job->n_decode = e->plan.n_decode;
    for (int32_t i = 0; i < e->plan.n_seqs; i++) {
        if (i + AHEAD < e->plan.n_seqs) prefetch_request(seq_of(e->plan.rows[i + AHEAD].seq)->request);
        add_row(e, job, &e->plan.rows[i]);
    }
    e->stats.n_chunked = n_chunked(&e->plan);
    job->drafts = by_engine_plan_proposals(e);
    by_sample_top *top = job->tops; /* the arrays do not move any more */
    for (int32_t k = 0; k < job->n_samples; k++) {
        by_sample_job *q = &job->samples[k];
        for (int32_t i = 0; i < q->most_outs; i++, top += q->seq->request->opts.n_top)
            job->outs[q->first_out + i] = (by_out){.top = q->seq->request->opts.n_top ? top : NULL};
    }
}

/* ---- committing a job ---- */

static void note_first(by_engine *e, const by_request *r) {
    double s = (double)(by_clock_ns() / 1000 - r->info.submit_us) * 1e-6; /* submit_us does not change */
    e->stats.n_first++;
    e->stats.first_s += s;
    if (s > e->stats.first_max_s) e->stats.first_max_s = s;
}

static void commit_out(by_engine *e, by_seq *s, const by_out *out) {
    if (s->n_out++ == 0 && s->choice == 0) note_first(e, s->request);
    s->logprob_sum += (double)out->logprob;
    e->stats.n_output_tokens++;
    by_event ev = {.choice = s->choice, .token = out->token, .logprob = out->logprob, .smaller = out->smaller,
                   .finish = out->finish,
                   .n_top = out->top ? s->request->opts.n_top : 0, .top = out->top};
    if (ev.finish == BY_CHOICE_RUNNING) emit(s, &ev);
    else end_choice(e, s, ev);
}

static void commit_sample(by_engine *e, const by_job *job, const by_sample_job *k) {
    by_seq *s = k->seq;
    if (k->sister && job->rows[k->row].skipped) { /* the state it should have begun with was lost: the reason is noted */
        fail_choice(e, s, NULL);
        return;
    }
    if (s->ended) {
        if (k->n_outs > 0) e->stats.n_wasted_rows += (uint64_t)(1 + k->n_verified); /* else the device has left it out */
        return;
    }
    if (k->status < 0) {
        fail_choice(e, s, NULL);
        return;
    }
    if (k->most_outs > 1) by_sched_settle(&s->sched, k->most_outs - 1, k->n_outs - 1);
    for (int32_t i = 0; i < k->n_outs && !s->ended; i++) commit_out(e, s, &job->outs[k->first_out + i]);
}

/* Copies that have failed end the sequences whose state they should have brought. The device has left the reason. */
static void fail_lost(by_engine *e, const by_moves *moves) {
    for (int32_t i = 0; i < moves->n; i++)
        if (moves->items[i].status < 0 && moves->items[i].kind != BY_COPY_SNAPSHOT) fail_choice(e, moves->items[i].seq, NULL);
}

static void note_step(by_engine_stats *s, const by_job *job) {
    *(job->n_prompt_rows > 0 ? &s->prefill_s : &s->decode_s) += job->spent_s;
    by_tally_add(&s->step_us, (int64_t)(job->spent_s * 1e6));
    by_tally_add(&s->step_rows, job->n_run_rows);
    if (job->n_prompt_rows > 0) by_tally_add(&s->prefill_rows, job->n_prompt_rows);
}

static void commit(by_engine *e, by_job *job) {
    e->stats.n_steps += job->n_seqs > 0;
    e->stats.n_rows += (uint64_t)job->n_run_rows;
    e->stats.n_prompt_rows += (uint64_t)job->n_prompt_rows;
    if (job->n_seqs > 0) note_step(&e->stats, job);
    if (job->n_seqs > 0 && job->status == BY_OK) by_row_cost_note(&e->row_cost, job->spent_s, job->n_prompt_rows);
    note_work(e, job);
    fail_lost(e, &job->before);
    fail_lost(e, &job->after);
    if (job->status == BY_OK) by_engine_note_drafts(e, job);
    for (int32_t i = 0; i < job->n_seqs; i++) {
        const by_job_row *row = &job->rows[i];
        by_seq *s = row->seq;
        if (i + AHEAD < job->n_seqs) prefetch_seq(job->rows[i + AHEAD].seq);
        s->in_flight--;
        if (job->status < 0) fail_choice(e, s, &job->err);
        else if (row->bad_at >= 0) fail_request(e, s->request);
        else if (!s->ended && !row->skipped && row->n_computed / BY_KV_BLOCK_TOKENS > s->n_published)
            by_engine_publish(e, s, row->n_computed);
    }
    for (int32_t i = 0; i < job->n_samples; i++) {
        by_seq *s = job->samples[i].seq;
        if (i + 2 * AHEAD < job->n_samples) prefetch_request(job->samples[i + 2 * AHEAD].seq->request);
        if (i + AHEAD < job->n_samples) prefetch_event(job->samples[i + AHEAD].seq->request);
        if (job->samples[i].sister) s->in_flight--;
        if (job->status < 0) fail_choice(e, s, &job->err);
        else commit_sample(e, job, &job->samples[i]);
    }
    by_engine_moves_done(e, job);
    for (by_request *r = e->ended, *next; r; r = next) {
        next = r->ended_next;
        for (int32_t i = 0; i < r->n_choices; i++)
            if (r->seqs[i].ended && r->seqs[i].in_flight == 0) by_engine_release_seq(e, &r->seqs[i]);
        leave_when_done(e, r);
    }
}

/* ---- the loop ---- */

static by_job *oldest_queued(by_engine *e) {
    by_job *a = &e->jobs[0], *b = &e->jobs[1];
    if (a->state != BY_JOB_QUEUED) return b->state == BY_JOB_QUEUED ? b : NULL;
    return b->state == BY_JOB_QUEUED && b->number < a->number ? b : a;
}

void *by_engine_device_main(void *arg) {
    by_engine *e = arg;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        by_job *job;
        while (!(job = oldest_queued(e)) && !e->device_stop) pthread_cond_wait(&e->job_ready, &e->lock);
        if (!job) break;
        pthread_mutex_unlock(&e->lock);
        int64_t t0 = by_clock_ns(), cpu0 = by_thread_ns();
        if (job->first) by_device_rests(e->dev);
        by_engine_run_job(e, job);
        double cpu = (double)(by_thread_ns() - cpu0) * 1e-9;
        job->spent_s = (double)(by_clock_ns() - t0) * 1e-9;
        by_replay_counts replays = by_runner_replays(e->runner);
        by_device_pace pace = by_device_pace_get(e->dev);
        by_device_counts counts = by_device_counts_get(e->dev);
        pthread_mutex_lock(&e->lock);
        e->replays = replays;
        e->pace = pace;
        e->counts = counts;
        e->device_s += job->spent_s;
        if (job->n_seqs > 0 && job->n_prompt_rows == 0) {
            e->n_decode_steps++;
            e->decode_cpu_s += cpu;
        }
        job->state = BY_JOB_DONE;
        pthread_cond_signal(&e->job_done);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void hand_over(by_engine *e, by_job *job) {
    pthread_mutex_lock(&e->lock);
    job->number = e->n_jobs++;
    job->state = BY_JOB_QUEUED;
    pthread_cond_signal(&e->job_ready);
    pthread_mutex_unlock(&e->lock);
}

static void wait_and_commit(by_engine *e, by_job *job) {
    pthread_mutex_lock(&e->lock);
    while (job->state != BY_JOB_DONE) pthread_cond_wait(&e->job_done, &e->lock);
    pthread_mutex_unlock(&e->lock);
    commit(e, job);
    pthread_mutex_lock(&e->lock);
    job->state = BY_JOB_FREE;
    pthread_mutex_unlock(&e->lock);
}

static void share_stats(by_engine *e) {
    by_engine_stats s = e->stats;
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    s.plan_s = (double)spent.tv_sec + (double)spent.tv_nsec * 1e-9;
    s.sched = by_sched_stats_get(e->sched);
    s.max_rows = e->opts.sched.max_rows;
    s.blocks_total = by_kv_n_blocks(e->kv);
    s.blocks_used = s.blocks_total - by_kv_blocks_free(e->kv);
    s.blocks_keyed = by_kv_blocks_keyed(e->kv);
    s.n_blocks_forgotten = by_kv_blocks_forgotten(e->kv);
    s.slots_total = by_kv_n_slots(e->kv);
    s.slots_used = s.slots_total - by_kv_slots_free(e->kv);
    s.host_bytes = e->host_bytes;
    if (e->grammars) s.grammar = by_grammar_cache_stats_get(e->grammars);
    pthread_mutex_lock(&e->lock);
    s.device_s = e->device_s;
    s.decode_cpu_s = e->decode_cpu_s;
    s.n_replayed = e->replays.n_replayed;
    s.n_recordings = e->replays.n_kept;
    s.busy_s = e->pace.busy_s;
    s.idle_s = e->pace.idle_s;
    s.n_allocs = e->counts.n_allocs;
    s.n_waits = e->counts.n_waits;
    s.n_decode_steps = e->n_decode_steps;
    e->shared_stats = s;
    e->stale = false;
    if (e->n_inside == 0) pthread_cond_broadcast(&e->idle);
    e->n_queued = s.sched.n_waiting + e->n_compiling;
    for (const by_request *r = e->incoming; r; r = r->next_new) e->n_queued++;
    pthread_mutex_unlock(&e->lock);
}

/* Behind share_stats. */
static void tell_steps(by_engine *e) {
    const by_engine_opts *o = &e->opts;
    if (o->log_steps == 0 || !o->on_steps || e->stats.n_steps - e->n_logged < (uint64_t)o->log_steps) return;
    e->n_logged = e->stats.n_steps;
    o->on_steps(o->on_steps_arg, &e->shared_stats); /* no other thread writes them */
    e->stats.first_max_s = 0;
}

/* Waits for something to do when neither a job is on its way nor a sequence can run. Returns false when it is time to stop. */
static bool take_news(by_engine *e, bool may_wait) {
    int64_t t0 = by_clock_ns();
    pthread_mutex_lock(&e->lock);
    while (may_wait && !e->incoming && !e->poked && !e->stopping) {
        struct timespec until; /* deadlines are looked at now and then */
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 50000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        if (pthread_cond_timedwait(&e->wake, &e->lock, &until) != 0 && e->inside) break;
    }
    by_request *list = e->incoming;
    e->incoming = e->incoming_last = NULL;
    bool poked = e->poked;
    e->poked = false;
    bool stopping = e->stopping;
    pthread_mutex_unlock(&e->lock);
    int64_t now = by_clock_ns();
    e->stats.wait_s += (double)(now - t0) * 1e-9;
    take_in(e, list);
    if (poked || stopping || now / 1000 > e->next_deadline_us) look_around(e, now / 1000, stopping);
    return !stopping || e->inside;
}

void *by_engine_scheduler_main(void *arg) {
    by_engine *e = arg;
    e->stats.open_ns = by_clock_ns();
    by_job *last = NULL; /* handed over and not committed */
    bool idle = true;    /* the last round found nothing to plan and nothing to commit */
    while (take_news(e, idle)) {
        by_job *job = last == &e->jobs[0] ? &e->jobs[1] : &e->jobs[0];
        uint64_t n_stuck = by_sched_stats_get(e->sched).n_stuck;
        make_job(e, job, by_clock_ns() / 1000);
        job->first = idle;
        bool nothing = job->n_seqs == 0 && job->before.n == 0 && job->after.n == 0;
        idle = nothing && !last;
        e->must_swap = idle && by_sched_stats_get(e->sched).n_stuck > n_stuck;
        if (!nothing) hand_over(e, job);
        if (last) wait_and_commit(e, last);
        last = nothing ? NULL : job;
        if (last && !atomic_load(&e->async)) {
            wait_and_commit(e, last);
            last = NULL;
        }
        share_stats(e);
        tell_steps(e);
    }
    if (last) wait_and_commit(e, last);
    share_stats(e);
    return NULL;
}
