/* batch_tokens.c - see batch_tokens.h. Lists of the answer are written as JSON while the tokens come. */
#include "cli/batch_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/json_fields.h"
#include "json/json_write.h"

/* One list of the answer. */
typedef struct {
    by_buf text;
    by_json_out out;
} list;

typedef struct {
    list tokens, logprobs, tops, smaller;
    by_choice_finish finish;
    int64_t n;
} choice;

struct by_batch_tokens {
    by_request *request;
    by_request_info info;
    choice *choices; /* [n] */
    int32_t n, n_open;
    int64_t n_prompt, deadline_ms;
    bool logprobs, prompt_logprobs, smaller;
};

bool by_batch_tokens_is(const by_json *row) { return by_json_get(row, "tokens") != NULL; }

/* ---- fields ---- */

static by_status check_names(const by_json *row, by_err *err) {
    static const char *const names[] = {"custom_id", "tokens", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed",
                                        "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias", "banned_token_ids",
                                        "stop_token_ids", "min_tokens", "ignore_eos", "n", "best_of", "logprobs", "prompt_logprobs", "priority",
                                        "deadline_ms"};
    for (uint32_t i = 0; i < row->n; i++) {
        size_t k = 0;
        while (k < sizeof names / sizeof names[0] && !by_str_eqz(row->v.members[i].key, names[k])) k++;
        if (k == sizeof names / sizeof names[0])
            return BY_FAIL(err, BY_EINVAL, "%.*s: a line with tokens has no such field", BY_STR_ARG(row->v.members[i].key));
    }
    return BY_OK;
}

/* A list of ids, which the engine checks; absent: none. */
static by_status read_ids(const int32_t **out, int32_t *n, const by_json *row, const char *key, by_arena *arena, by_err *err) {
    const by_json *v = by_json_get(row, key);
    *out = NULL;
    *n = 0;
    if (!v || v->type == BY_JSON_NULL) return BY_OK;
    if (v->type != BY_JSON_ARRAY) return BY_FAIL(err, BY_EINVAL, "%s: not an array", key);
    int32_t *ids = by_arena_alloc(arena, by_mul_size(v->n ? v->n : 1, sizeof *ids));
    if (!ids) return BY_FAIL(err, BY_ENOMEM, "out of memory for %s", key);
    for (uint32_t i = 0; i < v->n; i++) {
        int64_t id;
        if (!by_json_int_in(&v->v.items[i], 0, INT32_MAX, &id)) return BY_FAIL(err, BY_EINVAL, "%s[%u]: not a token id", key, i);
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *n = (int32_t)v->n;
    return BY_OK;
}

static by_status read_bias(by_sample_params *p, const by_json *row, by_arena *arena, by_err *err) {
    const by_json *v = by_json_get(row, "logit_bias");
    if (!v || v->type == BY_JSON_NULL || (v->type == BY_JSON_OBJECT && v->n == 0)) return BY_OK;
    if (v->type != BY_JSON_OBJECT) return BY_FAIL(err, BY_EINVAL, "logit_bias: not an object");
    by_sample_bias *bias = by_arena_alloc(arena, by_mul_size(v->n, sizeof *bias));
    if (!bias) return BY_FAIL(err, BY_ENOMEM, "out of memory for logit_bias");
    for (uint32_t i = 0; i < v->n; i++) {
        by_str key = v->v.members[i].key;
        char text[16] = {0}, *end = text;
        if (key.len > 0 && key.len < sizeof text) memcpy(text, key.ptr, key.len);
        long id = strtol(text, &end, 10);
        bool good = text[0] >= '0' && text[0] <= '9' && *end == '\0' && id <= INT32_MAX;
        if (!good || !by_json_is_number(&v->v.members[i].value))
            return BY_FAIL(err, BY_EINVAL, "logit_bias: '%.*s' with its value is not a token id and a number", BY_STR_ARG(key));
        bias[i] = (by_sample_bias){.id = (int32_t)id, .value = (float)by_json_number(&v->v.members[i].value)};
    }
    p->bias = bias;
    p->n_bias = (int32_t)v->n;
    return BY_OK;
}

static by_status read_float(float *out, const by_json *row, const char *key, double min, double max, by_err *err) {
    double v = (double)*out;
    BY_TRY(by_json_field_double(&v, row, key, min, max, err));
    *out = (float)v;
    return BY_OK;
}

static by_status read_int(int32_t *out, const by_json *row, const char *key, int32_t min, int32_t max, by_err *err) {
    int64_t v = *out;
    BY_TRY(by_json_field_int(&v, row, key, min, max, err));
    *out = (int32_t)v;
    return BY_OK;
}

/* Bounds that are finer than these are the sampler's and the engine's own, which name the field too. */
static by_status read_sampling(by_sample_params *p, const by_json *row, by_arena *arena, by_err *err) {
    bool given;
    BY_TRY(read_float(&p->law.temperature, row, "temperature", 0, 1e6, err));
    BY_TRY(read_float(&p->law.top_p, row, "top_p", 0, 1, err));
    BY_TRY(read_float(&p->law.min_p, row, "min_p", 0, 1, err));
    BY_TRY(read_int(&p->law.top_k, row, "top_k", -1, INT32_MAX, err));
    BY_TRY(read_float(&p->repetition_penalty, row, "repetition_penalty", 0, 100, err));
    BY_TRY(read_float(&p->frequency_penalty, row, "frequency_penalty", -2, 2, err));
    BY_TRY(read_float(&p->presence_penalty, row, "presence_penalty", -2, 2, err));
    BY_TRY(read_int(&p->min_tokens, row, "min_tokens", 0, INT32_MAX, err));
    BY_TRY(by_json_field_seed(&p->seed, &given, row, err));
    BY_TRY(read_ids(&p->stop_ids, &p->n_stop_ids, row, "stop_token_ids", arena, err));
    BY_TRY(read_ids(&p->banned, &p->n_banned, row, "banned_token_ids", arena, err));
    return read_bias(p, row, arena, err);
}

static by_status read_request(by_request_opts *o, by_batch_tokens *q, const by_json *row, by_arena *arena, by_err *err) {
    const by_json *wants = by_json_get(row, "logprobs");
    BY_TRY(check_names(row, err));
    BY_TRY(read_ids(&o->tokens, &o->n_tokens, row, "tokens", arena, err));
    BY_TRY(read_sampling(&o->sampling, row, arena, err));
    BY_TRY(read_int(&o->max_tokens, row, "max_tokens", 1, INT32_MAX, err));
    BY_TRY(read_int(&o->n, row, "n", 1, INT32_MAX, err));
    o->best_of = o->n;
    BY_TRY(read_int(&o->best_of, row, "best_of", 1, INT32_MAX, err));
    BY_TRY(read_int(&o->priority, row, "priority", INT32_MIN, INT32_MAX, err));
    BY_TRY(by_json_field_int(&o->deadline_ms, row, "deadline_ms", 0, INT32_MAX, err));
    q->deadline_ms = o->deadline_ms;
    BY_TRY(by_json_field_bool(&o->ignore_eos, row, "ignore_eos", err));
    BY_TRY(read_int(&o->n_top, row, "logprobs", 0, BY_SAMPLE_TOP_LOGPROBS_MAX, err));
    BY_TRY(by_json_field_bool(&o->prompt_logprobs, row, "prompt_logprobs", err));
    q->logprobs = wants && wants->type != BY_JSON_NULL;
    q->prompt_logprobs = o->prompt_logprobs;
    q->n_prompt = o->n_tokens;
    o->plain_logprobs = q->logprobs || q->prompt_logprobs || o->best_of > o->n;
    return BY_OK;
}

/* ---- start ---- */

static void begin(list *l) {
    l->out = by_json_out_init(&l->text, BY_JSON_COMPACT);
    by_json_out_array_begin(&l->out);
}

static by_status start(by_batch_tokens *q, by_engine *e, by_request_opts *o, const by_json *row, by_arena *arena, by_err *err) {
    BY_TRY(read_request(o, q, row, arena, err));
    o->sampling.eos_id = by_engine_model(e)->cfg.eos_id;
    if (o->n > BY_LIMIT_SEQS) return BY_FAIL(err, BY_EINVAL, "n: %d is more than the engine runs at once", o->n);
    q->n = q->n_open = o->n;
    q->choices = by_alloc_zero(BY_MEM_REQUEST, (size_t)q->n * sizeof *q->choices);
    if (!q->choices) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    for (int32_t i = 0; i < q->n; i++) {
        begin(&q->choices[i].tokens);
        begin(&q->choices[i].logprobs);
        begin(&q->choices[i].tops);
        begin(&q->choices[i].smaller);
    }
    return by_engine_submit(e, o, &q->request, err);
}

by_status by_batch_tokens_start(by_batch_tokens **out, by_engine *e, const by_json *row, by_arena *arena, bool smaller,
                                void (*notify)(void *), void *arg, by_err *err) {
    *out = NULL;
    by_batch_tokens *q = by_alloc_zero(BY_MEM_REQUEST, sizeof *q);
    if (!q) return BY_FAIL(err, BY_ENOMEM, "out of memory for a request");
    q->smaller = smaller;
    by_request_opts o = by_request_opts_default();
    o.notify = notify;
    o.arg = arg;
    by_status status = start(q, e, &o, row, arena, err);
    if (status < 0) {
        by_batch_tokens_destroy(q);
        return status;
    }
    *out = q;
    return BY_OK;
}

/* ---- tokens ---- */

/* What JSON can say; a removed token has minus infinity. */
static void put_logprob(by_json_out *o, float v) { by_json_out_double(o, (double)(v < BY_SAMPLE_LOGPROB_FLOOR ? BY_SAMPLE_LOGPROB_FLOOR : v)); }

static void take(by_batch_tokens *q, const by_event *ev) {
    choice *c = &q->choices[ev->choice];
    if (ev->finish != BY_CHOICE_RUNNING) {
        c->finish = ev->finish;
        q->n_open--;
    }
    if (ev->token < 0) return;
    c->n++;
    by_json_out_int(&c->tokens.out, ev->token);
    if (!q->logprobs) return;
    put_logprob(&c->logprobs.out, ev->logprob);
    if (q->smaller) by_json_out_double(&c->smaller.out, (double)ev->smaller);
    by_json_out_array_begin(&c->tops.out);
    for (int32_t i = 0; i < ev->n_top; i++) {
        by_json_out_object_begin(&c->tops.out);
        by_json_out_key(&c->tops.out, "id");
        by_json_out_int(&c->tops.out, ev->top[i].id);
        by_json_out_key(&c->tops.out, "logprob");
        put_logprob(&c->tops.out, ev->top[i].logprob);
        by_json_out_object_end(&c->tops.out);
    }
    by_json_out_array_end(&c->tops.out);
}

by_status by_batch_tokens_pump(by_batch_tokens *q, by_err *err) {
    by_event ev;
    while (q->n_open > 0) {
        by_status status = by_request_next(q->request, &ev, 0);
        if (status == BY_AGAIN) return BY_AGAIN;
        if (status != BY_OK) return BY_FAIL(err, BY_EINTERNAL, "the engine ended a request without its end");
        take(q, &ev);
        if (ev.finish == BY_CHOICE_CANCELLED && q->deadline_ms > 0)
            return BY_FAIL(err, BY_ETIMEOUT, "not finished within %lld ms", (long long)q->deadline_ms);
        if (ev.finish == BY_CHOICE_CANCELLED) return BY_FAIL(err, BY_ECANCELLED, "cancelled: the engine is shutting down");
        if (ev.finish != BY_CHOICE_ERROR) continue;
        status = by_request_error(q->request, err);
        return status < 0 ? status : BY_FAIL(err, BY_EINTERNAL, "the engine failed without a reason");
    }
    q->info = by_request_info_get(q->request);
    return BY_END;
}

/* ---- the answer ---- */

static void put_list(by_json_out *o, const char *key, list *l) {
    by_json_out_array_end(&l->out);
    by_json_out_key(o, key);
    by_json_out_raw(o, by_buf_str(&l->text));
}

static void put_choice(by_json_out *o, const by_batch_tokens *q, int32_t i) {
    choice *c = &q->choices[i];
    by_json_out_object_begin(o);
    by_json_out_key(o, "index");
    by_json_out_int(o, i);
    put_list(o, "tokens", &c->tokens);
    if (q->logprobs) {
        put_list(o, "logprobs", &c->logprobs);
        put_list(o, "top_logprobs", &c->tops);
        if (q->smaller) put_list(o, "sum_smaller_probs", &c->smaller);
    }
    by_json_out_key(o, "finish_reason");
    by_json_out_z(o, c->finish == BY_CHOICE_LENGTH ? "length" : "stop");
    by_json_out_object_end(o);
}

/* As many entries as the prompt has tokens; nothing stands in front of the first. */
static void put_prompt(by_json_out *o, by_batch_tokens *q) {
    int32_t n;
    const float *lp = by_request_prompt_logprobs(q->request, &n);
    by_json_out_key(o, "prompt_logprobs");
    by_json_out_array_begin(o);
    by_json_out_null(o);
    for (int32_t i = 0; i < n; i++) put_logprob(o, lp[i]);
    by_json_out_array_end(o);
}

by_status by_batch_tokens_write(by_batch_tokens *q, by_buf *body, by_err *err) {
    by_json_out o = by_json_out_init(body, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "choices");
    by_json_out_array_begin(&o);
    for (int32_t i = 0; i < q->n; i++) {
        put_choice(&o, q, i);
        BY_TRY(by_buf_check(&q->choices[i].tokens.text, err));
        BY_TRY(by_buf_check(&q->choices[i].logprobs.text, err));
        BY_TRY(by_buf_check(&q->choices[i].tops.text, err));
        BY_TRY(by_buf_check(&q->choices[i].smaller.text, err));
    }
    by_json_out_array_end(&o);
    if (q->prompt_logprobs) put_prompt(&o, q);
    const struct { const char *key; int64_t value; } counts[] = {
        {"prompt_tokens", q->n_prompt}, {"completion_tokens", by_batch_tokens_n_output(q)},
        {"total_tokens", q->n_prompt + by_batch_tokens_n_output(q)}, {"cached_tokens", q->info.n_cached}};
    by_json_out_key(&o, "usage");
    by_json_out_object_begin(&o);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        by_json_out_key(&o, counts[i].key);
        by_json_out_int(&o, counts[i].value);
    }
    by_json_out_object_end(&o);
    by_json_out_object_end(&o);
    return by_buf_check(body, err);
}

int64_t by_batch_tokens_n_output(const by_batch_tokens *q) {
    int64_t n = 0;
    for (int32_t i = 0; i < q->n; i++) n += q->choices[i].n;
    return n;
}

by_request_info by_batch_tokens_times(const by_batch_tokens *q) { return q->info.end_us ? q->info : by_request_info_get(q->request); }

void by_batch_tokens_destroy(by_batch_tokens *q) {
    if (!q) return;
    by_request_release(q->request);
    for (int32_t i = 0; q->choices && i < q->n; i++) {
        by_buf_deinit(&q->choices[i].tokens.text);
        by_buf_deinit(&q->choices[i].logprobs.text);
        by_buf_deinit(&q->choices[i].tops.text);
        by_buf_deinit(&q->choices[i].smaller.text);
    }
    by_free(q->choices);
    by_free(q);
}
