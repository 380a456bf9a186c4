/* engine_draft.c - drafts in the engine: how many rows they get, whose, and what came of them.
 *
 * The scheduler decides from confidences that do not depend on the drafts a job will verify (those of the job before the last one that
 * has run) what a row is worth, and how many rows drafts may get; when the job starts, the device gives a row to each draft whose newest
 * survival is worth it. So the number of rows follows the drafts at hand, which matters with few sequences: theirs differ from step to
 * step. Source: dspark.md sections 6 and 10, where the number of rows itself is fixed early, because steps of captured sizes want it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine_impl.h"

_Static_assert(BY_SPEC_DRAFTS_MAX == BY_ENGINE_DRAFTS_MAX, "one limit for the public header and the private one");

/* auto: a pause in drafting lasts so many steps, doubled each time it is found right; the first is longer with many sequences, which are
 * alike from step to step as a whole. A trial is judged after so many, a clear loss (below LOSS) soon; not before so many blocks of drafts
 * have been looked at, since one text may be hard where the next is easy. */
enum { FIRST_PAUSE = 64, FIRST_PAUSE_MANY = 256, MANY = 8, LAST_PAUSE = 4096 };
enum { TRIAL = 24, SHORT_TRIAL = 6, TRIAL_BLOCKS = 48, COST_AGE_S = 3600 };
#define LOSS 0.93
#define MEASURE_MS 200.0 /* at the start: enough for a small model's curve, little beside loading a large one */

/* ---- opening ---- */

enum { SCHEDULER, DEVICE };

by_status by_engine_drafts_init(by_engine *e, by_err *err) {
    const by_draft_config *d = &e->model->cfg.draft;
    by_engine_opts *o = &e->opts;
    if (o->n_drafts < 0 || o->n_drafts > BY_ENGINE_DRAFTS_MAX)
        return BY_FAIL(err, BY_EINVAL, "draft tokens: %d is outside 0..%d", o->n_drafts, BY_ENGINE_DRAFTS_MAX);
    for (int i = 0; i < BY_ENGINE_DRAFTS_MAX; i++)
        if (!(o->draft_temperature[i] >= 0 && o->draft_temperature[i] < 1e6))
            return BY_FAIL(err, BY_EINVAL, "draft temperature %d: %g", i, o->draft_temperature[i]);
        else if (o->draft_temperature[i] == 0) o->draft_temperature[i] = 1;
    BY_TRY(by_cost_init(&e->cost, e->max_seqs, err));
    if (o->draft_mode == BY_DRAFT_OFF || (o->draft_mode == BY_DRAFT_AUTO && d->n_layers == 0)) return BY_OK;
    if (d->n_layers == 0) return BY_FAIL(err, BY_EUNSUPPORTED, "draft mode: the model has no draft layers");
    e->n_drafts = o->n_drafts ? o->n_drafts : d->block_size < BY_ENGINE_DRAFTS_MAX ? d->block_size : BY_ENGINE_DRAFTS_MAX;
    size_t n = (size_t)e->max_seqs;
    for (int i = 0; i < 2; i++) {
        e->draft_requests[i] = by_alloc(BY_MEM_REQUEST, by_mul_size(n, sizeof *e->draft_requests[i]));
        e->draft_heap[i] = by_alloc(BY_MEM_REQUEST, by_mul_size(n, sizeof *e->draft_heap[i]));
        e->draft_split[i] = by_alloc(BY_MEM_REQUEST, by_mul_size(n, sizeof *e->draft_split[i]));
        e->draft_rates[i] = by_alloc(BY_MEM_REQUEST, by_mul_size(n * BY_SPEC_DRAFTS_MAX, sizeof *e->draft_rates[i]));
        if (!e->draft_requests[i] || !e->draft_heap[i] || !e->draft_split[i] || !e->draft_rates[i])
            return BY_FAIL(err, BY_ENOMEM, "out of memory for drafts of %d sequences", e->max_seqs);
    }
    return BY_OK;
}

void by_engine_drafts_close(by_engine *e) {
    for (int i = 0; i < 2; i++) {
        by_free(e->draft_requests[i]);
        by_free(e->draft_heap[i]);
        by_free(e->draft_split[i]);
        by_free(e->draft_rates[i]);
    }
    by_free(e->targets);
    by_cost_deinit(&e->cost);
}

/* What a curve depends on, as a file name. */
static void curve_name(const by_engine *e, int32_t max_rows, char name[static 96]) {
    by_buf text = {0};
    const by_engine_opts *o = &e->opts;
    by_buf_printf(&text, "%s|%s|%s|%d|%s|%s|%d|%d|%d|%d", o->model_dir, o->model.dummy ? "dummy" : "", by_device_name(e->dev),
                  by_device_threads(e->dev), o->device.isa ? o->device.isa : "", by_numerics_name(e->model->numerics), max_rows,
                  e->max_seqs, e->n_drafts, (int)e->model->place.n_experts[1]);
    by_kv_key key = by_kv_key_root(text.ptr ? text.ptr : "", text.len);
    by_buf_deinit(&text);
    int at = snprintf(name, 96, "step-costs-");
    for (int i = 0; i < 16; i++) at += snprintf(name + at, 96 - (size_t)at, "%02x", key.bytes[i]);
}

by_status by_engine_drafts_measure(by_engine *e, by_err *err) {
    const by_engine_opts *o = &e->opts;
    e->cost.given = o->n_cost > 0;
    if (o->n_cost) return by_cost_set(&e->cost, o->cost, o->n_cost, err);
    if (e->n_drafts == 0 || o->draft_mode == BY_DRAFT_FIXED) return BY_OK;
    int32_t max_rows = e->max_seqs * (1 + e->n_drafts);
    if (max_rows > o->sched.max_rows) max_rows = o->sched.max_rows;
    char name[96];
    curve_name(e, max_rows, name);
    if (o->cost_dir && by_cost_load(&e->cost, o->cost_dir, name, o->cost_age_s ? o->cost_age_s : COST_AGE_S)) return BY_OK;
    BY_TRY(by_cost_measure(&e->cost, e->dev, e->runner, e->kv, e->model->cfg.vocab_size, max_rows, MEASURE_MS, err));
    if (o->cost_dir) by_cost_save(&e->cost, o->cost_dir, name);
    return BY_OK;
}

/* ---- how many rows (scheduler) ---- */

static by_seq *seq_of(by_sched_seq *s) { return (by_seq *)(void *)s; }

/* Requests for the planner. Budget: confidences of the step before last: while a job is on its way the newest committed ones are
 * that old, else the ones before them. Drafts beyond what a sequence may still take count as never accepted. */
static int32_t fill_requests(by_engine *e, const by_plan *plan) {
    int32_t n_known = 0;
    for (int32_t i = 0; i < plan->n_decode; i++) {
        by_seq *s = seq_of(plan->rows[i].seq);
        int32_t age = s->in_flight > 0 ? 0 : 1;
        double *rates = e->draft_rates[SCHEDULER] + i * BY_SPEC_DRAFTS_MAX;
        bool known = s->n_rates > age, has = s->has_drafts || s->in_flight > 0;
        for (int32_t j = 0; j < e->n_drafts; j++) {
            double rate = known ? s->rates[age][j] : has ? 1 : 0;
            rates[j] = j < plan->rows[i].n_extra ? rate : 0;
        }
        n_known += known;
        e->draft_requests[SCHEDULER][i] = (by_draft_request){.budget = rates, .split = rates, .has_drafts = has};
    }
    return n_known;
}

static by_drafting *drafting_of(by_engine *e, int32_t n) { return &e->drafting[31 - __builtin_clz((unsigned)n)]; }

/* auto: begins a pause when drafting turns out to be slower than not drafting. */
static void judge_pace(by_drafting *d, int32_t n) {
    if (d->pace.n < SHORT_TRIAL || d->pace.n * (int64_t)n < TRIAL_BLOCKS || (d->pace.n < TRIAL && d->pace.gain >= LOSS)) return;
    if (d->pace.gain >= 1) {
        d->longer = 0;
        return;
    }
    d->pause = d->longer ? d->longer : n < MANY ? FIRST_PAUSE : FIRST_PAUSE_MANY;
    d->longer = d->pause * 2 < LAST_PAUSE ? d->pause * 2 : LAST_PAUSE;
    d->pace.n = 0;
}

/* Rows that the plan may be exceeded by, when the newest drafts are better than those it was made from. */
static int32_t margin(const by_engine *e, int32_t n) { return e->n_drafts * (1 + n / 8); }

int32_t by_engine_draft_rows(void *ctx, const struct by_plan *plan, int32_t most) {
    by_engine *e = ctx;
    int32_t n = plan->n_decode, all = 0;
    if (e->n_drafts == 0) return 0;
    by_drafting *d = drafting_of(e, n);
    e->making->draft_price = 0;
    e->paused = d->pause > 0;
    if (e->paused) {
        d->pause--;
        return 0;
    }
    for (int32_t i = 0; i < n; i++) all += plan->rows[i].n_extra;
    if (all < most) most = all;
    if (e->opts.draft_mode == BY_DRAFT_FIXED) return most;
    int32_t n_known = fill_requests(e, plan);
    by_draft_cost cost = by_cost_for(&e->cost, n, true);
    by_draft_plan p;
    if (by_draft_plan_make(&p, e->draft_split[SCHEDULER], e->draft_requests[SCHEDULER], n, e->n_drafts, &cost,
                           e->draft_heap[SCHEDULER], NULL) < 0)
        return 0; /* more sequences than the curve has rows */
    by_draft_cost plain = by_cost_for(&e->cost, n, false);
    double plain_ms = by_draft_cost_ms(&plain, n) + plain.sampler_ms;
    if (2 * n_known >= n && by_cost_knows_drafts(&e->cost)) by_draft_pace_note(&d->pace, &p, n, plain_ms);
    e->making->draft_price = by_draft_price(&d->pace, &p, n, plain_ms);
    if (e->opts.draft_mode == BY_DRAFT_AUTO) judge_pace(d, n);
    int32_t rows = p.total_rows - n + margin(e, n);
    return rows < most ? rows : most;
}

bool by_engine_plan_proposals(by_engine *e) { return e->n_drafts > 0 && !e->paused; }

/* ---- whose rows (device) ---- */

/* Drafts of a decode row that may be verified. Fixed means the whole block, also behind an end token. None when they have waited, and
 * what they were drawn from is gone: that says nothing about the drafts, so it moves no law. */
static int32_t usable(const by_engine *e, const by_job_row *r) {
    const by_seq *s = r->seq;
    bool fixed = e->opts.draft_mode == BY_DRAFT_FIXED;
    if (!by_spec_can_judge(&e->spec, &s->law, &s->drafts)) return 0;
    int64_t left = s->sched.n_max - s->n_known - 1; /* n_max does not change */
    int32_t n = fixed || s->drafts.n_useful > s->drafts.n ? s->drafts.n : s->drafts.n_useful;
    if (n > r->n_extra) n = r->n_extra;
    return left < n ? left < 0 ? 0 : (int32_t)left : n;
}

void by_engine_place_drafts(by_engine *e, by_job *job) {
    int32_t n = 0, left = job->n_drafts, *rows = e->draft_split[DEVICE];
    bool fixed = e->opts.draft_mode == BY_DRAFT_FIXED;
    for (int32_t i = 0; i < job->n_seqs; i++) {
        by_job_row *r = &job->rows[i];
        r->n_drafts = 0;
        r->skipped = r->seq->lost || (r->decodes && r->seq->at_end);
        if (!r->decodes || r->skipped || left == 0) continue;
        int32_t most = usable(e, r);
        if (fixed) {
            r->n_drafts = most < left ? most : left;
            left -= r->n_drafts;
            continue;
        }
        double *rates = e->draft_rates[DEVICE] + n * BY_SPEC_DRAFTS_MAX;
        for (int32_t j = 0; j < e->n_drafts; j++)
            rates[j] = j < most ? by_spec_confidence(r->seq->drafts.conf[j], e->opts.draft_temperature[j]) : 0;
        e->draft_requests[DEVICE][n++] = (by_draft_request){.split = rates, .has_drafts = most > 0};
    }
    if (fixed || left == 0 || n == 0) return;
    if (left > n * e->n_drafts) left = n * e->n_drafts;
    by_draft_plan_split(rows, n + left, job->draft_price, e->draft_requests[DEVICE], n, e->n_drafts, e->draft_heap[DEVICE]);
    for (int32_t i = 0, k = 0; i < job->n_seqs; i++) {
        by_job_row *r = &job->rows[i];
        if (!r->decodes || r->skipped) continue;
        int32_t most = usable(e, r), got = rows[k++] - 1;
        r->n_drafts = got < most ? got : most;
    }
}

/* Drafts up to the first that would end the sequence. */
static int32_t up_to_end(const by_seq *s) {
    const by_request_opts *o = &s->request->opts;
    for (int32_t j = 0; j < s->drafts.n; j++) {
        int32_t token = s->drafts.ids[j];
        if (token == o->sampling.eos_id && !o->ignore_eos) return j + 1;
        for (int32_t i = 0; i < o->sampling.n_stop_ids; i++)
            if (o->sampling.stop_ids[i] == token) return j + 1;
    }
    return s->drafts.n;
}

/* Drafts behind the first that the grammar refuses get no rows: they cannot be taken. Where the rule draws a token whatever was proposed
 * nothing else changes; rejection needs the refused draft itself, or the law would not be exact. */
static void drop_refused(by_seq *s) {
    bool rejection = s->law.rule == BY_SAMPLE_REJECTION && !by_sample_is_greedy(s->law.params);
    size_t n_ok = 0;
    if (!s->matcher || rejection || s->drafts.n <= 0) return;
    by_matcher_validate(s->matcher, (const uint32_t *)s->drafts.ids, (size_t)s->drafts.n, &n_ok, NULL); /* what cannot be judged goes, too */
    s->drafts.n = (int32_t)n_ok;
    if (s->drafts.n_useful > s->drafts.n) s->drafts.n_useful = s->drafts.n;
}

/* When the draft call fails, nobody gets drafts this time: the tokens of the job stand without them. */
void by_engine_propose(by_engine *e, by_job *job) {
    int32_t n = 0;
    if (job->n_samples > e->cap_targets) {
        by_spec_target *fresh = by_realloc(BY_MEM_REQUEST, e->targets, by_mul_size((size_t)job->n_samples, sizeof *fresh));
        if (!fresh) return;
        e->targets = fresh;
        e->cap_targets = job->n_samples;
    }
    for (int32_t k = 0; k < job->n_samples; k++) {
        by_sample_job *q = &job->samples[k];
        by_seq *s = q->seq;
        const by_job_row *r = &job->rows[q->row];
        if (q->status < 0 || q->n_outs == 0 || s->at_end || s->lost || s->sched.n_max - s->n_known < 2) continue;
        int64_t from = r->keep_from > r->valid_from ? r->keep_from : r->valid_from;
        by_draft_seq at = {.slot = q->slot, .token = s->tokens[s->n_known - 1], .position = s->n_known - 1, .from = from};
        e->targets[n++] = (by_spec_target){.seq = at, .law = &s->law, .n_out = (int32_t)(s->n_known - s->n_prompt), .drafts = &s->drafts};
    }
    by_err err;
    if (n == 0 || by_spec_propose(&e->spec, e->runner, e->targets, n, e->n_drafts, &err) < 0) return;
    for (int32_t k = 0; k < job->n_samples; k++) {
        by_sample_job *q = &job->samples[k];
        by_spec_drafts *d = &q->seq->drafts;
        q->n_proposed = d->n;
        d->n_useful = up_to_end(q->seq);
        drop_refused(q->seq);
        for (int32_t j = 0; j < q->n_proposed; j++)
            q->conf[j] = j < d->n_useful ? by_spec_confidence(d->conf[j], e->opts.draft_temperature[j]) : 0;
    }
}

/* ---- what came of them (scheduler) ---- */

static void count_drafts(by_draft_stats *st, const by_sample_job *q) {
    st->n_steps++;
    st->n_tokens += (uint64_t)q->n_outs;
    st->n_verified += (uint64_t)q->n_verified;
    st->n_accepted += (uint64_t)q->n_accepted;
    double survival = 1;
    for (int32_t j = 0; j < q->n_verified; j++) {
        survival *= q->verified_conf[j];
        int32_t bin = (int32_t)(survival * 15);
        bin = bin < 0 ? 0 : bin > 14 ? 14 : bin;
        st->verified[j]++;
        st->accepted[j] += j < q->n_accepted;
        st->bin_n[bin]++;
        st->bin_hits[bin] += j < q->n_accepted;
        st->bin_sum[bin] += survival;
    }
}

void by_engine_note_drafts(by_engine *e, const by_job *job) {
    if (e->n_drafts == 0) return;
    bool decode_only = job->n_decode == job->n_seqs;
    for (int32_t k = 0; k < job->n_samples; k++) {
        const by_sample_job *q = &job->samples[k];
        by_seq *s = q->seq;
        if (s->ended || q->status < 0) continue;
        e->stats.draft.n_proposed += (uint64_t)q->n_proposed;
        if (job->rows[q->row].decodes && !job->rows[q->row].skipped) {
            count_drafts(&e->stats.draft, q);
            s->n_steps++;
            s->n_verified += q->n_verified;
            s->n_accepted += q->n_accepted;
        }
        s->has_drafts = q->n_proposed > 0;
        memcpy(s->rates[1], s->rates[0], sizeof s->rates[0]);
        for (int32_t j = 0; j < BY_SPEC_DRAFTS_MAX; j++) s->rates[0][j] = j < q->n_proposed ? q->conf[j] : 0;
        s->n_rates = !s->has_drafts ? 0 : s->n_rates < 2 ? s->n_rates + 1 : 2;
    }
    e->stats.draft.draft_s += job->draft_s;
    if (decode_only && job->n_run_rows > 0)
        by_cost_note(&e->cost, job->n_run_rows, job->forward_ms, job->n_samples, job->sample_ms, job->drafts ? job->draft_ms : 0);
}

by_draft_stats by_draft_stats_minus(const by_draft_stats *now, const by_draft_stats *then) {
    by_draft_stats d = *now;
    d.n_steps -= then->n_steps;
    d.n_tokens -= then->n_tokens;
    d.n_proposed -= then->n_proposed;
    d.n_verified -= then->n_verified;
    d.n_accepted -= then->n_accepted;
    d.draft_s -= then->draft_s;
    for (int i = 0; i < BY_ENGINE_DRAFTS_MAX; i++) {
        d.verified[i] -= then->verified[i];
        d.accepted[i] -= then->accepted[i];
    }
    for (int i = 0; i < 15; i++) {
        d.bin_n[i] -= then->bin_n[i];
        d.bin_hits[i] -= then->bin_hits[i];
        d.bin_sum[i] -= then->bin_sum[i];
    }
    return d;
}

double by_draft_mean_length(const by_draft_stats *s) {
    return s->n_steps ? (double)s->n_tokens / (double)s->n_steps : 0;
}

double by_draft_mean_verified(const by_draft_stats *s) {
    return s->n_steps ? (double)s->n_verified / (double)s->n_steps : 0;
}

double by_draft_calibration_error(const by_draft_stats *s) {
    double sum = 0;
    uint64_t n = 0;
    for (int i = 0; i < 15; i++) {
        sum += fabs(s->bin_sum[i] - (double)s->bin_hits[i]);
        n += s->bin_n[i];
    }
    return n ? sum / (double)n : 0;
}
