/* engine.c - opening and closing: model, caches, threads. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine_impl.h"

enum { SNAPSHOTS_MAX = 4096 };

by_engine_opts by_engine_opts_default(void) {
    return (by_engine_opts){.device = {.backend = BY_BACKEND_CPU},
                            .model = {.numerics = BY_NUMERICS_DEPLOYED, .check_weights = true},
                            .sched = by_sched_opts_default(),
                            .expect_quantile = 0.9,
                            .async = true,
                            .prefix_cache = true,
                            .restore = BY_RESTORE_AUTO,
                            .trunc = BY_TRUNC_COMPACT};
}

/* Rows that exactness needs, engine.md section 5: keep_exact decoder rows in front of the end, and encoder_reach rows in front
 * of the first row whose layer input must be exact. Without a boundary everything is one half. */
static void reaches(by_engine *e, int32_t ring_len) {
    int32_t w = e->model->cfg.window - 1, L = e->model->cfg.n_layers, P = e->model->boundary;
    e->encoder_reach = w * (P < 0 ? L - 1 : P);
    e->keep_exact = ring_len + (P < 0 ? 0 : w * (L - 1 - P));
}

static by_status make_jobs(by_engine *e, by_err *err) {
    for (int i = 0; i < 2; i++) {
        e->jobs[i].rows = by_alloc_zero(BY_MEM_REQUEST, (size_t)e->max_seqs * sizeof *e->jobs[i].rows);
        if (!e->jobs[i].rows) return BY_FAIL(err, BY_ENOMEM, "out of memory for steps of %d sequences", e->max_seqs);
    }
    e->steps = by_alloc_zero(BY_MEM_REQUEST, (size_t)e->max_seqs * sizeof *e->steps);
    e->step_rows = by_alloc_zero(BY_MEM_REQUEST, (size_t)e->max_seqs * sizeof *e->step_rows);
    e->marks = by_alloc_zero(BY_MEM_REQUEST, by_mul_size((size_t)e->opts.sched.max_rows, 2 * sizeof *e->marks));
    return e->steps && e->step_rows && e->marks ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for steps of %d sequences", e->max_seqs);
}

/* What must be equal for two prompts to share blocks. The approximate restores have a key space of their own. */
static void make_root(by_engine *e) {
    char text[256];
    const by_config *c = &e->model->cfg;
    bool exact = e->opts.restore <= BY_RESTORE_EXACT_REPLAY;
    int n = snprintf(text, sizeof text, "by-kv1|%s|%d|%d|%d|%d|%s", by_numerics_name(e->model->numerics), c->n_layers, c->hidden_size,
                     c->head_dim, BY_KV_BLOCK_TOKENS, exact ? "exact" : "approximate");
    e->root = by_kv_key_root(text, n > 0 ? (size_t)n : 0);
}

/* Own copy of the ids that nobody may produce. */
static by_status keep_banned(by_engine *e, by_err *err) {
    by_engine_opts *o = &e->opts;
    for (int32_t i = 0; i < o->n_banned; i++)
        if (o->banned[i] < 0 || o->banned[i] >= e->model->cfg.vocab_size)
            return BY_FAIL(err, BY_EINVAL, "ban-tokens: %d is not a token id in 0..%d", o->banned[i], e->model->cfg.vocab_size - 1);
    if (o->n_banned == 0) return BY_OK;
    e->banned = by_alloc(BY_MEM_REQUEST, by_mul_size((size_t)o->n_banned, sizeof *e->banned));
    if (!e->banned) return BY_FAIL(err, BY_ENOMEM, "out of memory for banned tokens");
    memcpy(e->banned, o->banned, (size_t)o->n_banned * sizeof *e->banned);
    return BY_OK;
}

/* Between the model's configuration and its weights: what can be refused without reading those, and what must be kept free. */
static by_status before_weights(void *arg, by_model *m, int64_t *bytes, by_err *err) {
    by_engine *e = arg;
    e->model = m;
    BY_TRY(keep_banned(e, err));
    BY_TRY(by_engine_drafts_init(e, err));
    return by_engine_reserve_memory(e, bytes, err);
}

static by_status open_model(by_engine *e, by_err *err) {
    by_model_opts o = e->opts.model;
    by_model *m;
    o.context = e->opts.max_context;
    o.reserve = before_weights;
    o.reserve_arg = e;
    e->max_seqs = e->opts.sched.max_seqs;
    by_status status = by_model_open(&m, e->opts.model_dir, e->dev, &o, err);
    e->model = m;
    return status;
}

static by_status open_parts(by_engine *e, by_err *err) {
    by_engine_opts *o = &e->opts;
    BY_TRY(by_device_open(&e->dev, &o->device, err));
    BY_TRY(open_model(e, err));
    by_kv_layout layout;
    by_kv_opts pool;
    BY_TRY(by_engine_size_caches(e, &layout, &pool, err));
    BY_TRY(by_engine_create_caches(e, &layout, &pool, err));
    reaches(e, layout.ring_len);
    by_runner_opts run = by_engine_runner_opts(e);
    BY_TRY(by_runner_create(&e->runner, e->model, e->kv, &run, err));
    BY_TRY(by_runner_reserve(e->runner, err)); /* so that memory for a step is never missing once requests run */
    BY_TRY(by_engine_reserve_draws(e, err));
    BY_TRY(by_engine_drafts_measure(e, err));
    by_sched_pool vt = by_engine_pool(e);
    BY_TRY(by_sched_create(&e->sched, &o->sched, &vt, err));
    BY_TRY(by_plan_init(&e->plan, e->sched, err));
    BY_TRY(by_spec_init(&e->spec, e->model->cfg.vocab_size, err));
    if (by_device_draws(e->dev)) e->spec.dev = e->dev;
    int64_t n = e->host_bytes_max / layout.slot_bytes;
    e->n_snapshots = o->prefix_cache ? (int32_t)(n < SNAPSHOTS_MAX ? n : SNAPSHOTS_MAX) : 0;
    e->snapshots = by_alloc_zero(BY_MEM_KV, (size_t)(e->n_snapshots ? e->n_snapshots : 1) * sizeof *e->snapshots);
    if (!e->snapshots) return BY_FAIL(err, BY_ENOMEM, "out of memory for the engine");
    make_root(e);
    by_flop_model_make(&e->flops, &e->model->cfg, e->model->boundary);
    BY_TRY(by_engine_masks_init(e, err));
    return make_jobs(e, err);
}

static by_status start_threads(by_engine *e, by_err *err) {
    if (pthread_create(&e->device, NULL, by_engine_device_main, e) != 0)
        return BY_FAIL(err, BY_EIO, "cannot start the device thread");
    if (pthread_create(&e->scheduler, NULL, by_engine_scheduler_main, e) != 0) {
        pthread_mutex_lock(&e->lock);
        e->device_stop = true;
        pthread_cond_signal(&e->job_ready);
        pthread_mutex_unlock(&e->lock);
        pthread_join(e->device, NULL);
        return BY_FAIL(err, BY_EIO, "cannot start the scheduler thread");
    }
    e->threads_started = true;
    return BY_OK;
}

by_status by_engine_open(by_engine **out, const by_engine_opts *opts, by_err *err) {
    *out = NULL;
    if (!(opts->expect_quantile > 0 && opts->expect_quantile <= 1))
        return BY_FAIL(err, BY_EINVAL, "expected-length quantile: %g is outside (0, 1]", opts->expect_quantile);
    if (!(opts->itl_budget_s >= 0 && opts->itl_budget_s < 1e9))
        return BY_FAIL(err, BY_EINVAL, "itl-budget-ms: %g is not a time", opts->itl_budget_s * 1e3);
    if (!(opts->slots_ratio >= 0 && opts->slots_ratio <= 100))
        return BY_FAIL(err, BY_EINVAL, "state-slots-ratio: %g is outside 0..100", opts->slots_ratio);
    if (opts->backtrack < 0 || opts->backtrack > BY_LIMIT_DRAFT_BLOCK)
        return BY_FAIL(err, BY_EINVAL, "backtrack: %d is outside 0..%d", opts->backtrack, BY_LIMIT_DRAFT_BLOCK);
    if (opts->n_banned < 0) return BY_FAIL(err, BY_EINVAL, "ban-tokens: %d ids", opts->n_banned);
    if (opts->top_k < 0) return BY_FAIL(err, BY_EINVAL, "sampler-topk: %d is below 0", opts->top_k);
    if (opts->cost_age_s < 0) return BY_FAIL(err, BY_EINVAL, "perf-cache-ttl: %lld is below 0", (long long)opts->cost_age_s);
    if (opts->log_steps < 0) return BY_FAIL(err, BY_EINVAL, "log-steps: %d is below 0", opts->log_steps);
    if (opts->keep < 0) return BY_FAIL(err, BY_EINVAL, "decoder-keep: %d is below 0", opts->keep);
    by_engine *e = by_alloc_zero(BY_MEM_REQUEST, sizeof *e);
    if (!e) return BY_FAIL(err, BY_ENOMEM, "out of memory for the engine");
    e->opts = *opts;
    atomic_init(&e->async, opts->async);
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &attr);
    pthread_cond_init(&e->idle, &attr);
    pthread_condattr_destroy(&attr);
    pthread_cond_init(&e->job_ready, NULL);
    pthread_cond_init(&e->job_done, NULL);
    by_status status = open_parts(e, err);
    if (status == BY_OK) status = start_threads(e, err);
    if (status < 0) {
        by_engine_close(e);
        return status;
    }
    *out = e;
    return BY_OK;
}

static void stop_threads(by_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->stopping = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->scheduler, NULL);
    pthread_mutex_lock(&e->lock);
    e->device_stop = true;
    pthread_cond_signal(&e->job_ready);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->device, NULL);
}

void by_engine_close(by_engine *e) {
    if (!e) return;
    if (e->threads_started) stop_threads(e);
    by_engine_masks_deinit(e);
    for (int i = 0; i < 2; i++) {
        by_job *j = &e->jobs[i];
        by_free(j->rows);
        by_free(j->samples);
        by_free(j->outs);
        by_free(j->tops);
        by_free(j->before.items);
        by_free(j->after.items);
    }
    for (int32_t i = 0; e->snapshots && i < e->n_snapshots; i++) by_free(e->snapshots[i].bytes);
    by_free(e->snapshots);
    by_free(e->banned);
    by_free(e->steps);
    by_free(e->step_rows);
    by_free(e->marks);
    by_spec_deinit(&e->spec);
    by_engine_drafts_close(e);
    by_plan_deinit(&e->plan);
    by_sched_destroy(e->sched);
    by_runner_destroy(e->runner);
    by_kv_destroy(e->kv);
    by_model_close(e->model);
    by_device_close(e->dev);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->idle);
    pthread_cond_destroy(&e->job_ready);
    pthread_cond_destroy(&e->job_done);
    by_free(e);
}

const by_model *by_engine_model(const by_engine *e) { return e->model; }
int64_t by_engine_max_context(const by_engine *e) { return e->max_context; }

const char *by_engine_context_reason(const by_engine *e) {
    if (e->opts.max_context || e->max_context >= e->model->cfg.max_positions) return "";
    return e->opts.kv_blocks ? " (all that --kv-blocks has room for)" : " (all that the memory for caches has room for)";
}

void by_engine_drain(by_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    pthread_mutex_unlock(&e->lock);
}

bool by_engine_wait_idle(by_engine *e, int64_t timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&e->lock);
    while (e->n_inside > 0 || e->stale) {
        if (timeout_ms < 0) pthread_cond_wait(&e->idle, &e->lock);
        else if (pthread_cond_timedwait(&e->idle, &e->lock, &until) != 0) break;
    }
    bool idle = e->n_inside == 0 && !e->stale;
    pthread_mutex_unlock(&e->lock);
    return idle;
}

void by_engine_set_async(by_engine *e, bool async) { atomic_store(&e->async, async); }

by_engine_stats by_engine_stats_get(by_engine *e) {
    pthread_mutex_lock(&e->lock);
    by_engine_stats s = e->shared_stats;
    pthread_mutex_unlock(&e->lock);
    return s;
}
