/* service.c - the service: engine, tokenizer, accepted names, random numbers for ids and seeds. */
#include "service/service.h"

#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "service/service_impl.h"

enum { NAMES_MAX = 64, NULL_CONTEXT = 1 << 20 };

static by_status add_name(by_service *s, by_str name, by_err *err) {
    if (name.len == 0) return BY_OK;
    for (uint32_t i = 0; i < s->api.n_models; i++)
        if (by_str_eq(s->models[i].name, name)) return BY_OK;
    by_str copy = by_arena_dup(&s->arena, name);
    if (!copy.ptr) return BY_FAIL(err, BY_ENOMEM, "out of memory for the model's names");
    s->models[s->api.n_models++] = (by_api_model_name){copy, BY_RECIPE_V41};
    return BY_OK;
}

/* The last part of a path. */
static by_str base_name(const char *dir) {
    by_str d = by_str_z(dir);
    while (d.len > 0 && d.ptr[d.len - 1] == '/') d.len--;
    size_t at = d.len;
    while (at > 0 && d.ptr[at - 1] != '/') at--;
    return by_str_skip(d, at);
}

static by_status set_names(by_service *s, const by_service_opts *o, by_err *err) {
    if (o->n_names > NAMES_MAX) return BY_FAIL(err, BY_EINVAL, "%d names of the model; at most %d", o->n_names, NAMES_MAX);
    s->models = by_arena_zero(&s->arena, (size_t)(o->n_names + 2) * sizeof *s->models);
    if (!s->models) return BY_FAIL(err, BY_ENOMEM, "out of memory for the model's names");
    s->api.models = s->models;
    s->api.n_models = 0;
    for (int i = 0; i < o->n_names; i++) BY_TRY(add_name(s, by_str_z(o->names[i]), err));
    if (o->n_names > 0) return BY_OK;
    BY_TRY(add_name(s, BY_STR("DeepSeek-V4.1-Flash"), err));
    return add_name(s, base_name(o->engine.model_dir), err);
}

/* Only the tokenizer is read. */
static by_status open_null(by_service *s, const by_service_opts *o, by_err *err) {
    by_buf path = {0};
    by_buf_printf(&path, "%s/tokenizer.json", o->engine.model_dir);
    by_status status = by_buf_check(&path, err);
    if (status == BY_OK) status = by_tok_open(&s->null_tok, path.ptr, NULL, err);
    by_buf_deinit(&path);
    BY_TRY(status);
    s->null_context = o->engine.max_context > 0 ? o->engine.max_context : NULL_CONTEXT;
    const by_null_opts n = {.rate = o->null_rate, .first_ms = o->null_first_ms, .max_requests = o->engine.sched.max_waiting,
                            .max_context = s->null_context};
    return by_null_create(&s->null, s->null_tok, &n, err);
}

by_status by_service_open(by_service **out, const by_service_opts *opts, by_err *err) {
    *out = NULL;
    by_service *s = by_alloc_zero(BY_MEM_REQUEST, sizeof *s);
    if (!s) return BY_FAIL(err, BY_ENOMEM, "out of memory for the service");
    by_arena_init(&s->arena, BY_MEM_REQUEST);
    s->api = opts->api;
    s->api.profile = BY_API_SERVER;
    s->api.specials = NULL;
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)by_clock_ns();
    atomic_init(&s->draws, seed);
    by_status status = set_names(s, opts, err);
    if (status == BY_OK && opts->null_backend) status = open_null(s, opts, err);
    else if (status == BY_OK) status = by_engine_open(&s->engine, &opts->engine, err);
    if (status == BY_OK && !by_service_tok(s))
        status = BY_FAIL(err, BY_EMISSING, "%s: no tokenizer.json", opts->engine.model_dir);
    if (status == BY_OK) status = by_tok_check_encode(by_service_tok(s), err);
    if (status == BY_OK) *out = s;
    else by_service_close(s);
    return status;
}

void by_service_close(by_service *s) {
    if (!s) return;
    by_engine_close(s->engine);
    by_null_destroy(s->null);
    by_tok_destroy(s->null_tok);
    by_arena_deinit(&s->arena);
    by_free(s);
}

by_engine *by_service_engine(by_service *s) { return s->engine; }
const by_tok *by_service_tok(const by_service *s) { return s->null_tok ? s->null_tok : by_engine_model(s->engine)->tok; }

int32_t by_service_eos(const by_service *s) {
    return s->engine ? by_engine_model(s->engine)->cfg.eos_id : by_tok_find_added(s->null_tok, BY_STR("<｜end▁of▁sentence｜>"));
}

/* The counter goes through the generator's mix once, so that neighbours do not share their later draws. */
by_rng by_service_rng(by_service *s) {
    by_rng counter = {atomic_fetch_add(&s->draws, 1)};
    return (by_rng){by_rng_u64(&counter)};
}

const by_api_model_name *by_service_names(const by_service *s, uint32_t *n) {
    *n = s->api.n_models;
    return s->models;
}
int64_t by_service_max_context(const by_service *s) {
    return s->engine ? by_engine_max_context(s->engine) : s->null_context;
}
