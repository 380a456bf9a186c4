/* capi.c - include/bathyc/engine.h over src/engine: ids for requests, one stream of outputs for all of them, texts of tokens.
 *
 * Locks: the engine calls on_news under a request's lock, and on_news takes the list's lock; so nothing of the engine is called
 * under the list's lock. */
#include "bathyc/engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "capi/capi_impl.h"
#include "grammar/grammar_options.h"

enum { TOP_MAX = 20 };

/* ---- errors ---- */

int by_capi_fail(bathyc_error *out, by_status status, const char *message) {
    static const struct {
        by_status status;
        int code;
    } table[] = {{BY_EINVAL, BATHYC_INVALID}, {BY_ENOMEM, BATHYC_NO_MEMORY}, {BY_EBUSY, BATHYC_BUSY}, {BY_ECONTEXT, BATHYC_CONTEXT}};
    int code = BATHYC_FAILED;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status) code = table[i].code;
    if (out) {
        by_err cut;
        by_err_set(&cut, status, __FILE__, __LINE__, "%s", message);
        _Static_assert(sizeof out->message >= BY_ERR_MSG_MAX, "messages fit");
        memcpy(out->message, cut.msg, sizeof cut.msg);
        out->code = code;
    }
    return code;
}

static int fail_with(bathyc_error *out, by_status status, const by_err *err) { return by_capi_fail(out, status, err->msg); }

/* ---- opening ---- */

bathyc_config bathyc_config_default(void) {
    by_engine_opts o = by_engine_opts_default();
    return (bathyc_config){.max_num_seqs = o.sched.max_seqs, .max_batch_rows = o.sched.max_rows, .max_queue = o.sched.max_waiting,
                           .async = o.async, .prefix_cache = o.prefix_cache, .check_weights = o.model.check_weights};
}

static by_status set_backend(by_engine_opts *o, const char *name, by_err *err) {
    static const struct {
        const char *name;
        by_backend backend;
    } table[] = {{"ref", BY_BACKEND_REF}, {"cpu", BY_BACKEND_CPU}, {"cuda", BY_BACKEND_CUDA}};
    for (size_t i = 0; i < 3; i++)
        if (!name || strcmp(name, table[i].name) == 0) return o->device.backend = name ? table[i].backend : BY_BACKEND_CPU, BY_OK;
    return BY_FAIL(err, BY_EINVAL, "backend: '%s' is not ref, cpu or cuda", name);
}

static by_status open_engine(bathyc_engine *e, const bathyc_config *c, by_err *err) {
    by_engine_opts o = by_engine_opts_default();
    if (!c->model_dir) return BY_FAIL(err, BY_EINVAL, "model_dir: missing");
    if (c->max_model_len < 0 || c->cache_bytes < 0 || c->kv_blocks < 0 || c->threads < 0)
        return BY_FAIL(err, BY_EINVAL, "max_model_len, cache_bytes, kv_blocks, threads: must not be negative");
    BY_TRY(set_backend(&o, c->backend, err));
    o.model_dir = c->model_dir;
    o.device.n_threads = c->threads;
    o.model.check_weights = c->check_weights != 0;
    o.max_context = c->max_model_len;
    o.ram_bytes = c->cache_bytes;
    o.kv_blocks = c->kv_blocks;
    o.sched.max_seqs = c->max_num_seqs;
    o.sched.max_rows = c->max_batch_rows;
    o.sched.max_waiting = c->max_queue;
    o.async = c->async != 0;
    o.prefix_cache = c->prefix_cache != 0;
    BY_TRY(by_engine_open(&e->engine, &o, err));
    return by_engine_model(e->engine)->tok ? BY_OK : BY_FAIL(err, BY_EMISSING, "%s: no tokenizer.json", c->model_dir);
}

bathyc_engine *bathyc_open(const bathyc_config *config, bathyc_error *error) {
    bathyc_engine *e = by_alloc_zero(BY_MEM_REQUEST, sizeof *e);
    if (!e) {
        by_capi_fail(error, BY_ENOMEM, "out of memory for an engine");
        return NULL;
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->news, &attr);
    pthread_condattr_destroy(&attr);
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)by_clock_ns();
    atomic_init(&e->seeds, seed);
    by_err err;
    by_status status = open_engine(e, config, &err);
    if (status == BY_OK) return e;
    fail_with(error, status, &err);
    bathyc_close(e);
    return NULL;
}

static void free_job(by_capi_job *j) {
    by_request_release(j->request);
    for (int32_t i = 0; j->choices && i < j->n; i++) by_tok_stream_deinit(&j->choices[i].text);
    by_free(j->choices);
    by_free(j);
}

void bathyc_close(bathyc_engine *e) {
    if (!e) return;
    while (e->jobs) {
        by_capi_job *j = e->jobs;
        e->jobs = j->next;
        free_job(j);
    }
    by_engine_close(e->engine);
    by_buf_deinit(&e->texts);
    by_free(e->tops);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->news);
    by_free(e);
}

/* ---- requests ---- */

bathyc_request bathyc_request_default(void) {
    by_sample_params p = by_sample_params_default();
    return (bathyc_request){.max_tokens = 16, .temperature = p.law.temperature, .top_p = p.law.top_p, .min_p = p.law.min_p,
                            .top_k = p.law.top_k, .repetition_penalty = p.repetition_penalty, .n = 1, .best_of = 1};
}

static by_status encode_text(bathyc_engine *e, const char *text, by_tok_ids *ids, by_err *err) {
    const by_model *m = by_engine_model(e->engine);
    BY_TRY(by_tok_ids_push(ids, m->cfg.bos_id, err));
    return by_tok_encode(m->tok, NULL, by_str_z(text), BY_TOK_PLAIN, ids, err);
}

static by_status set_grammar(const bathyc_request *r, by_capi_input *in, by_request_opts *q, by_err *err) {
    if (!r->grammar_kind) return BY_OK;
    by_request_grammar *g = &in->grammar;
    *g = (by_request_grammar){.bound_id = -1, .close_by_budget = r->close_by_budget != 0};
    if (!by_grammar_kind_parse(&g->spec.kind, by_str_z(r->grammar_kind)))
        return BY_FAIL(err, BY_EINVAL, "grammar_kind: '%s' is unknown", r->grammar_kind);
    if (!r->grammar && g->spec.kind != BY_GRAMMAR_JSON_OBJECT) return BY_FAIL(err, BY_EINVAL, "grammar: missing");
    g->spec.text = by_str_z(r->grammar ? r->grammar : "");
    by_str options = by_str_z(r->grammar_options ? r->grammar_options : "");
    if (by_grammar_options_parse(&g->spec.opts, &in->arena, options, err) < 0) return by_err_prefix(err, "grammar_options: ");
    q->grammar = g;
    return BY_OK;
}

void by_capi_input_deinit(by_capi_input *in) {
    by_tok_ids_deinit(&in->ids);
    by_arena_deinit(&in->arena);
}

by_status by_capi_options(bathyc_engine *e, const bathyc_request *r, by_capi_input *in, by_request_opts *q, by_err *err) {
    *q = by_request_opts_default();
    *in = (by_capi_input){0};
    by_arena_init(&in->arena, BY_MEM_REQUEST);
    by_tok_ids *ids = &in->ids;
    if (!r->tokens && !r->text) return BY_FAIL(err, BY_EINVAL, "prompt: neither tokens nor text");
    if (!r->tokens) BY_TRY(encode_text(e, r->text, ids, err));
    size_t n = r->tokens ? r->n_tokens : ids->n;
    if (n > INT32_MAX) return BY_FAIL(err, BY_ECONTEXT, "the prompt has %zu tokens", n);
    if (r->n_stop_ids > 1024) return BY_FAIL(err, BY_EINVAL, "stop_ids: %zu, at most 1024", r->n_stop_ids);
    if (r->top_logprobs > TOP_MAX) return BY_FAIL(err, BY_EINVAL, "top_logprobs: %d is outside 0..%d", r->top_logprobs, TOP_MAX);
    by_sample_params *p = &q->sampling;
    q->tokens = r->tokens ? r->tokens : ids->ids;
    q->n_tokens = (int32_t)n;
    q->max_tokens = r->max_tokens;
    q->ignore_eos = r->ignore_eos != 0;
    q->n = r->n;
    q->best_of = r->best_of;
    q->n_top = r->top_logprobs;
    q->plain_logprobs = true;
    q->deadline_ms = r->deadline_ms;
    q->priority = r->priority;
    p->law = (by_sample_law){.temperature = r->temperature, .top_p = r->top_p, .min_p = r->min_p, .top_k = r->top_k};
    by_rng draw = {atomic_fetch_add(&e->seeds, 1)};
    p->seed = r->has_seed ? r->seed : by_rng_u64(&draw);
    p->repetition_penalty = r->repetition_penalty;
    p->frequency_penalty = r->frequency_penalty;
    p->presence_penalty = r->presence_penalty;
    p->min_tokens = r->min_tokens;
    p->stop_ids = r->stop_ids;
    p->n_stop_ids = (int32_t)r->n_stop_ids;
    p->eos_id = by_engine_model(e->engine)->cfg.eos_id;
    return set_grammar(r, in, q, err);
}

static void on_news(void *arg) {
    by_capi_job *j = arg;
    pthread_mutex_lock(&j->engine->lock);
    j->ready = true;
    pthread_cond_signal(&j->engine->news);
    pthread_mutex_unlock(&j->engine->lock);
}

static by_status make_job(bathyc_engine *e, const bathyc_request *r, by_capi_job **out, by_err *err) {
    const by_tok *tok = by_engine_model(e->engine)->tok;
    if (r->n < 1 || r->n > 64) return BY_FAIL(err, BY_EINVAL, "n: %d is outside 1..64", r->n);
    by_capi_job *j = *out = by_alloc_zero(BY_MEM_REQUEST, sizeof *j);
    if (!j) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    j->engine = e;
    j->n = j->n_open = r->n;
    j->choices = by_alloc_zero(BY_MEM_REQUEST, (size_t)r->n * sizeof *j->choices);
    if (!j->choices) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    for (int32_t i = 0; i < r->n; i++) by_tok_stream_init(&j->choices[i].text, tok, BY_TOK_STREAM_LOSSLESS, true);
    by_capi_input in;
    by_request_opts q;
    by_status status = by_capi_options(e, r, &in, &q, err);
    q.notify = on_news;
    q.arg = j;
    if (status == BY_OK) status = by_engine_submit(e->engine, &q, &j->request, err);
    by_capi_input_deinit(&in);
    return status;
}

int bathyc_submit(bathyc_engine *e, const bathyc_request *r, uint64_t *id, bathyc_error *error) {
    by_capi_job *j = NULL;
    by_err err;
    by_status status = make_job(e, r, &j, &err);
    if (status < 0) {
        if (j) free_job(j);
        return fail_with(error, status, &err);
    }
    pthread_mutex_lock(&e->lock);
    *id = j->id = ++e->n_ids;
    j->next = e->jobs;
    e->jobs = j;
    pthread_cond_signal(&e->news); /* on_news may have come before the job was listed */
    pthread_mutex_unlock(&e->lock);
    return BATHYC_OK;
}

/* A job is freed only by the thread in bathyc_step, after it was taken off the list; `users` keeps it until this is done. */
static int end_job(bathyc_engine *e, uint64_t id, int32_t choice, bool stop) {
    pthread_mutex_lock(&e->lock);
    by_capi_job *j = e->jobs;
    while (j && j->id != id) j = j->next;
    bool known = id > 0 && id <= e->n_ids;
    if (j) j->users++;
    pthread_mutex_unlock(&e->lock);
    if (!j) return known ? BATHYC_OK : BATHYC_INVALID;
    bool good = choice < j->n;
    if (good) by_request_abort(j->request, choice, stop);
    pthread_mutex_lock(&e->lock);
    j->users--;
    pthread_cond_broadcast(&e->news);
    pthread_mutex_unlock(&e->lock);
    return good ? BATHYC_OK : BATHYC_INVALID;
}

int bathyc_abort(bathyc_engine *e, uint64_t id) { return end_job(e, id, -1, false); }
int bathyc_stop(bathyc_engine *e, uint64_t id, int32_t choice) {
    return choice < 0 ? BATHYC_INVALID : end_job(e, id, choice, true);
}

/* ---- outputs ---- */

/* The next job with news, NULL after the time or when there is none (*idle). Jobs take turns. */
static by_capi_job *next_ready(bathyc_engine *e, int64_t deadline_ns, bool *idle) {
    pthread_mutex_lock(&e->lock);
    by_capi_job *found = NULL;
    for (;;) {
        for (by_capi_job *j = e->jobs; j; j = j->next)
            if (j->ready && (!found || j->turn < found->turn)) found = j;
        *idle = !e->jobs;
        if (found || *idle || (deadline_ns >= 0 && by_clock_ns() >= deadline_ns)) break;
        struct timespec ts = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
        if (deadline_ns < 0) pthread_cond_wait(&e->news, &e->lock);
        else pthread_cond_timedwait(&e->news, &e->lock, &ts);
    }
    if (found) {
        found->ready = false;
        found->turn = ++e->n_turns;
    }
    pthread_mutex_unlock(&e->lock);
    return found;
}

static void unlist(bathyc_engine *e, by_capi_job *j) {
    pthread_mutex_lock(&e->lock);
    by_capi_job **at = &e->jobs;
    while (*at != j) at = &(*at)->next;
    *at = j->next;
    while (j->users > 0) pthread_cond_wait(&e->news, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* Texts and alternatives grow while a batch of outputs is made, so outputs first hold offsets, one too high: 0 is none. */
static void *as_offset(size_t at) { return (void *)(uintptr_t)(at + 1); }

static by_status keep_top(bathyc_engine *e, const by_event *ev, bathyc_output *o, by_err *err) {
    size_t n = (size_t)ev->n_top;
    if (n == 0) return BY_OK;
    if (e->n_tops + n > e->cap_tops) {
        size_t cap = 2 * (e->n_tops + n);
        bathyc_alternative *more = by_realloc(BY_MEM_REQUEST, e->tops, cap * sizeof *more);
        if (!more) return BY_FAIL(err, BY_ENOMEM, "out of memory for alternatives");
        e->tops = more;
        e->cap_tops = cap;
    }
    o->top = as_offset(e->n_tops);
    o->n_top = ev->n_top;
    for (size_t i = 0; i < n; i++) e->tops[e->n_tops++] = (bathyc_alternative){.token = ev->top[i].id, .logprob = ev->top[i].logprob};
    return BY_OK;
}

static by_status make_output(bathyc_engine *e, by_capi_job *j, const by_event *ev, bathyc_output *o, by_err *err) {
    static const bathyc_finish finishes[] = {BATHYC_RUNNING, BATHYC_STOP, BATHYC_LENGTH, BATHYC_CANCELLED, BATHYC_ERROR};
    by_capi_choice *c = &j->choices[ev->choice];
    by_request_info info = by_request_info_get(j->request);
    size_t at = e->texts.len;
    c->n_output += ev->token >= 0;
    if (ev->token >= 0) BY_TRY(by_tok_stream_push(&c->text, ev->token, &e->texts, err));
    if (ev->finish != BY_CHOICE_RUNNING) {
        BY_TRY(by_tok_stream_finish(&c->text, &e->texts, err));
        j->n_open--;
    }
    *o = (bathyc_output){.id = j->id, .choice = ev->choice, .token = ev->token, .logprob = ev->logprob, .text = as_offset(at),
                         .text_bytes = e->texts.len - at, .finish = finishes[ev->finish], .finished = j->n_open == 0,
                         .n_prompt = info.n_prompt, .n_cached = info.n_cached, .n_output = c->n_output};
    by_buf_push_byte(&e->texts, '\0');
    if (ev->finish == BY_CHOICE_ERROR) {
        by_err why;
        by_request_error(j->request, &why);
        o->error = as_offset(e->texts.len);
        by_buf_push(&e->texts, why.msg, strlen(why.msg) + 1);
    }
    BY_TRY(by_buf_check(&e->texts, err));
    return keep_top(e, ev, o, err);
}

static void set_pointers(bathyc_engine *e, bathyc_output *out, size_t n) {
    for (size_t i = 0; i < n; i++) {
        out[i].text = e->texts.ptr + ((uintptr_t)out[i].text - 1);
        if (out[i].error) out[i].error = e->texts.ptr + ((uintptr_t)out[i].error - 1);
        if (out[i].top) out[i].top = e->tops + ((uintptr_t)out[i].top - 1);
    }
}

/* Outputs of one job, as many as fit. The job is freed behind its last one. */
static by_status drain_job(bathyc_engine *e, by_capi_job *j, bathyc_output *out, size_t cap, size_t *n, by_err *err) {
    by_event ev;
    by_status status = BY_OK;
    while (status == BY_OK && *n < cap && j->n_open > 0) {
        status = by_request_next(j->request, &ev, 0);
        if (status == BY_OK) status = make_output(e, j, &ev, &out[*n], err);
        *n += status == BY_OK;
    }
    if (j->n_open == 0 || status < 0) {
        unlist(e, j);
        free_job(j);
    } else if (*n == cap) { /* there may be more */
        pthread_mutex_lock(&e->lock);
        j->ready = true;
        pthread_mutex_unlock(&e->lock);
    }
    return status < 0 ? status : BY_OK;
}

int bathyc_step(bathyc_engine *e, bathyc_output *out, size_t cap, size_t *n, int64_t timeout_ms, bathyc_error *error) {
    *n = 0;
    if (cap < 1) return by_capi_fail(error, BY_EINVAL, "cap: must be at least 1");
    by_buf_clear(&e->texts);
    e->n_tops = 0;
    bool idle = false;
    by_err err = {0};
    int64_t deadline = timeout_ms < 0 ? -1 : by_clock_ns() + timeout_ms * 1000000;
    by_status status = BY_OK;
    while (status == BY_OK && *n < cap) { /* a job's news may turn out to be read already */
        by_capi_job *j = next_ready(e, *n ? 0 : deadline, &idle);
        if (!j) break;
        status = drain_job(e, j, out, cap, n, &err);
    }
    if (status < 0) return fail_with(error, status, &err);
    set_pointers(e, out, *n);
    return *n ? BATHYC_OK : idle ? BATHYC_IDLE : BATHYC_AGAIN;
}

/* ---- small things ---- */

int64_t bathyc_max_context(const bathyc_engine *e) { return by_engine_max_context(e->engine); }
int32_t bathyc_vocab_size(const bathyc_engine *e) { return by_engine_model(e->engine)->cfg.vocab_size; }
void bathyc_free(void *p) { by_free(p); }

bathyc_stats bathyc_stats_get(bathyc_engine *e) {
    by_engine_stats s = by_engine_stats_get(e->engine);
    return (bathyc_stats){.steps = s.n_steps, .rows = s.n_rows, .prompt_rows = s.n_prompt_rows, .output_tokens = s.n_output_tokens,
                          .finished = s.n_finished, .failed = s.n_failed, .cancelled = s.n_cancelled, .hit_tokens = s.n_hit_tokens,
                          .running = s.sched.n_running, .waiting = s.sched.n_waiting, .swapped = s.sched.n_swapped,
                          .blocks_total = s.blocks_total, .blocks_used = s.blocks_used, .slots_total = s.slots_total,
                          .slots_used = s.slots_used};
}

int bathyc_tokenize(bathyc_engine *e, const char *text, size_t text_bytes, int32_t **ids, size_t *n, bathyc_error *error) {
    by_tok_ids list = {0};
    by_err err;
    by_status status = by_tok_encode(by_engine_model(e->engine)->tok, NULL, by_str_of(text, text_bytes), BY_TOK_PLAIN, &list, &err);
    if (status < 0) {
        by_tok_ids_deinit(&list);
        return fail_with(error, status, &err);
    }
    *ids = list.ids;
    *n = list.n;
    return BATHYC_OK;
}

int bathyc_detokenize(bathyc_engine *e, const int32_t *ids, size_t n, char **text, size_t *text_bytes, bathyc_error *error) {
    by_buf b = {0};
    by_err err;
    by_status status = by_tok_decode(by_engine_model(e->engine)->tok, ids, n, false, &b, &err);
    *text_bytes = b.len;
    by_buf_push_byte(&b, '\0');
    if (status == BY_OK) status = by_buf_check(&b, &err);
    *text = b.ptr;
    if (status == BY_OK) return BATHYC_OK;
    by_buf_deinit(&b);
    return fail_with(error, status, &err);
}
