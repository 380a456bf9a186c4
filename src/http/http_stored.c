/* http_stored.c - stored responses and conversations: what /v1/responses keeps so that a later request can go on from it.
 *
 * Kept are the response object and the list of all items up to it: the input, with what came before, and the output. A request
 * with previous_response_id or conversation gets those items in front of its own input, and the rest of the program sees an
 * ordinary request. The oldest that nobody has used go first when memory is over its bound; nothing survives the process. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/limits.h"
#include "http/http_call.h"
#include "http/http_items.h"
#include "http/http_task.h"

enum { BUCKETS = 4096, ENTRY_BYTES = 256, CONVERSATION_ADD_MAX = 100 };

typedef struct entry entry;
struct entry {
    by_stored *stored;
    entry *chain;        /* of the bucket */
    entry *older, *newer;
    char id[64];
    bool is_conversation, background;
    int64_t created;
    by_buf body;         /* the object, as JSON; a conversation's metadata */
    char model[256]; /* as asked for, while there is no whole response; so the metadata */
    by_buf metadata; /* empty = {} */
    by_items input, items; /* the request's own items, and everything up to and with the answer */
    by_job *job;         /* under way */
    char conversation[64];
    size_t bytes;
};

struct by_stored {
    by_http *http;
    entry *buckets[BUCKETS];
    entry *oldest, *newest;
    size_t bytes;
    int64_t n;
};

/* ---- the table ---- */

static entry **place_of(by_stored *s, by_str id) {
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < id.len; i++) h = (h ^ (unsigned char)id.ptr[i]) * 1099511628211u;
    entry **p = &s->buckets[(h >> 20) % BUCKETS];
    while (*p && !by_str_eqz(id, (*p)->id)) p = &(*p)->chain;
    return p;
}

static void unlink_use(by_stored *s, entry *e) {
    if (e->older) e->older->newer = e->newer;
    else s->oldest = e->newer;
    if (e->newer) e->newer->older = e->older;
    else s->newest = e->older;
}

static void link_newest(by_stored *s, entry *e) {
    e->older = s->newest;
    e->newer = NULL;
    if (s->newest) s->newest->newer = e;
    else s->oldest = e;
    s->newest = e;
}

static entry *find(by_stored *s, by_str id, bool conversation) {
    entry *e = *place_of(s, id);
    if (!e || e->is_conversation != conversation) return NULL;
    unlink_use(s, e);
    link_newest(s, e);
    return e;
}

static void drop(by_stored *s, entry *e) {
    *place_of(s, by_str_z(e->id)) = e->chain;
    unlink_use(s, e);
    s->bytes -= e->bytes;
    s->n--;
    by_metrics_gauge_set(s->http->metrics, BY_GAUGE_STORED_RESPONSES, s->n);
    by_buf_deinit(&e->body);
    by_items_deinit(&e->input);
    by_items_deinit(&e->items);
    by_buf_deinit(&e->metadata);
    by_free(e);
}

/* Counts again what an entry holds, and makes room. */
static void weigh(by_stored *s, entry *e) {
    size_t bytes = ENTRY_BYTES + e->body.cap + e->metadata.cap + by_items_bytes(&e->input) + by_items_bytes(&e->items);
    s->bytes += bytes - e->bytes;
    e->bytes = bytes;
    for (entry *old = s->oldest, *next; old && s->bytes > s->http->opts.store_bytes; old = next) {
        next = old->newer;
        if (old != e && !old->job) drop(s, old);
    }
}

static entry *add(by_stored *s, const char *prefix, bool conversation) {
    entry *e = by_alloc_zero(BY_MEM_HTTP, sizeof *e);
    if (!e) return NULL;
    snprintf(e->id, sizeof e->id, "%s%016llx%016llx", prefix, (unsigned long long)by_rng_u64(&s->http->rng),
             (unsigned long long)by_rng_u64(&s->http->rng));
    e->stored = s;
    e->is_conversation = conversation;
    e->created = (int64_t)time(NULL);
    *place_of(s, by_str_z(e->id)) = e;
    link_newest(s, e);
    s->n++;
    by_metrics_gauge_set(s->http->metrics, BY_GAUGE_STORED_RESPONSES, s->n);
    weigh(s, e);
    return e;
}

by_status by_stored_create(by_stored **out, by_http *h, by_err *err) {
    *out = by_alloc_zero(BY_MEM_HTTP, sizeof **out);
    if (!*out) return BY_FAIL(err, BY_ENOMEM, "out of memory for stored responses");
    (*out)->http = h;
    return BY_OK;
}

void by_stored_destroy(by_stored *s) {
    if (!s) return;
    while (s->oldest) drop(s, s->oldest);
    by_free(s);
}

/* ---- items ---- */

/* Can a conversation take these too, within the bound for all that is stored? */
static bool can_take(const entry *c, const by_items *more) {
    size_t others = c->bytes - by_items_bytes(&c->items);
    return by_add_size(others, by_items_bytes_with(&c->items, more)) <= c->stored->http->opts.store_bytes;
}

/* Appends the output of a whole response. False: out of memory. */
static bool push_output(by_items *list, by_http *h, by_str response) {
    by_arena arena;
    by_json v;
    by_arena_init(&arena, BY_MEM_HTTP);
    bool ok = by_json_parse(&v, &arena, response, NULL, NULL) == BY_OK && by_items_push_input(list, &h->rng, by_json_get(&v, "output"));
    by_arena_deinit(&arena);
    return ok;
}

/* A response's end: its own items and its answer go to its conversation. Only what is new: others may have ended meanwhile. A
 * conversation that cannot take them is dropped, since one with a hole would mislead. */
static void extend_conversation(by_stored *s, entry *e, const by_items *output) {
    entry *c = e->conversation[0] ? find(s, by_str_z(e->conversation), true) : NULL;
    if (!c) return;
    by_items fresh = {0};
    bool ok = by_items_push(&fresh, &e->input) && by_items_push(&fresh, output) && can_take(c, &fresh) && by_items_push(&c->items, &fresh);
    by_items_deinit(&fresh);
    if (ok) weigh(s, c);
    else drop(s, c);
}

/* ---- ends ---- */

/* The object of a response that has no answer (yet). */
static void write_state(entry *e, const char *status, const char *code, by_str message) {
    by_json_out o = by_json_out_init(&e->body, BY_JSON_COMPACT);
    by_buf_clear(&e->body);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "id");
    by_json_out_z(&o, e->id);
    by_json_out_key(&o, "object");
    by_json_out_z(&o, "response");
    by_json_out_key(&o, "created_at");
    by_json_out_int(&o, e->created);
    by_json_out_key(&o, "status");
    by_json_out_z(&o, status);
    by_json_out_key(&o, "background");
    by_json_out_bool(&o, e->background);
    by_json_out_key(&o, "error");
    if (code) {
        by_json_out_object_begin(&o);
        by_json_out_key(&o, "code");
        by_json_out_z(&o, code);
        by_json_out_key(&o, "message");
        by_json_out_string(&o, message);
        by_json_out_object_end(&o);
    } else {
        by_json_out_null(&o);
    }
    by_json_out_key(&o, "model");
    by_json_out_z(&o, e->model);
    by_json_out_raw(&o, BY_STR("\"incomplete_details\":null,\"instructions\":null,\"output\":[],\"parallel_tool_calls\":true,"
                               "\"store\":true,\"temperature\":1.0,\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":1.0,"
                               "\"usage\":null"));
    by_json_out_key(&o, "metadata");
    by_json_out_raw(&o, e->metadata.len ? by_buf_str(&e->metadata) : BY_STR("{}"));
    by_json_out_object_end(&o);
}

static void on_ended(void *arg, by_job *job, const by_call_problem *problem, by_str body) {
    entry *e = arg;
    (void)job;
    by_stored *s = e->stored;
    bool kept = true;
    if (problem && !e->background) {
        drop(s, e);
        return;
    }
    if (problem) {
        bool cancelled = strcmp(problem->code, "cancelled") == 0;
        write_state(e, cancelled ? "cancelled" : "failed", cancelled ? NULL : problem->code, by_str_z(problem->message));
    } else {
        by_buf_clear(&e->body);
        by_buf_push_str(&e->body, body);
        by_items output = {0};
        kept = push_output(&output, s->http, body) && by_items_push(&e->items, &output);
        if (kept) extend_conversation(s, e, &output);
        by_items_deinit(&output);
    }
    e->job = NULL; /* until here it kept e from being dropped for the conversation */
    if (e->body.failed || !kept) drop(s, e);
    else weigh(s, e);
}

/* ---- requests ---- */

static bool is_true(const by_json *v) { return by_json_is(v, BY_JSON_BOOL) && v->v.b; }
static bool is_given(const by_json *v) { return v && v->type != BY_JSON_NULL; }

/* Id of a conversation: a text, or an object with an id. */
static by_str conversation_id(const by_json *v) {
    if (by_json_is(v, BY_JSON_OBJECT)) v = by_json_get(v, "id");
    return by_json_is(v, BY_JSON_STRING) ? v->v.s : (by_str){0};
}

/* What the body of a request says, worked out beside the loop when it is long. */
typedef struct {
    bool is_object, store, background;
    bool odd;                        /* the input is neither a text nor a list of items: the converter says what is wrong */
    by_str previous_id, conversation_id;
    by_items own;                    /* its own items, when they are stored or stand behind others */
    by_buf head;                     /* the request without what is resolved here, up to the "[" of its items */
    char model[256];                 /* served names are shorter */
    by_buf metadata;
} response_body;

static void drop_body(void *own) {
    response_body *r = own;
    by_items_deinit(&r->own);
    by_buf_deinit(&r->head);
    by_buf_deinit(&r->metadata);
}

static void write_head(by_buf *out, const by_json *body) {
    static const char *const resolved[] = {"input", "previous_response_id", "conversation", "store", "background"};
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    for (uint32_t i = 0; i < body->n; i++) {
        bool skip = false;
        for (size_t k = 0; k < sizeof resolved / sizeof resolved[0]; k++) skip |= by_str_eqz(body->v.members[i].key, resolved[k]);
        if (skip) continue;
        by_json_out_key_str(&o, body->v.members[i].key);
        by_json_out_value(&o, &body->v.members[i].value);
    }
    by_json_out_key(&o, "input");
    by_json_out_array_begin(&o);
}

/* Reads the ids of what the request goes on from. False: refused. */
static bool read_ids(by_task *t, response_body *r, const by_json *body) {
    const by_json *p = by_json_get(body, "previous_response_id"), *c = by_json_get(body, "conversation");
    r->previous_id = by_json_is(p, BY_JSON_STRING) ? p->v.s : (by_str){0};
    r->conversation_id = conversation_id(c);
    const char *field = is_given(p) ? "previous_response_id" : "conversation";
    if (is_given(p) && is_given(c))
        by_task_refuse(t, 400, NULL, "conversation", "previous_response_id and conversation exclude each other");
    else if ((is_given(p) && !r->previous_id.len) || (is_given(c) && !r->conversation_id.len))
        by_task_refuse(t, 400, NULL, field, "%s: want an id", field);
    else return true;
    return false;
}

static void read_rest(by_task *t, response_body *r, const by_json *body) {
    const by_json *input = by_json_get(body, "input"), *rules = by_json_get(body, "instructions");
    const by_json *model = by_json_get(body, "model"), *metadata = by_json_get(body, "metadata");
    bool empty = by_json_is(input, BY_JSON_STRING) && !input->v.s.len && by_json_is(rules, BY_JSON_STRING) && rules->v.s.len;
    if (!is_given(input) || empty) input = NULL; /* the converter takes an empty text beside instructions for none */
    bool text = input && input->type == BY_JSON_STRING && input->v.s.len > 0;
    bool list = by_json_is(input, BY_JSON_ARRAY) && by_items_find_odd(input) < 0, goes_on = r->previous_id.len || r->conversation_id.len;
    r->odd = input && !text && !list;
    if (r->odd) r->background = false;
    bool ok = r->odd || !(r->store || goes_on) || by_items_push_input(&r->own, &t->rng, input);
    if (goes_on && !r->odd) write_head(&r->head, body);
    if (by_json_is(model, BY_JSON_STRING) && model->v.s.len < sizeof r->model)
        snprintf(r->model, sizeof r->model, "%.*s", BY_STR_ARG(model->v.s));
    if (by_json_is(metadata, BY_JSON_OBJECT)) by_json_write(&r->metadata, metadata, BY_JSON_COMPACT);
    if (!ok || r->head.failed || r->metadata.failed) by_task_no_memory(t);
}

static void read_response(by_task *t, by_tok_scratch *scratch) {
    response_body *r = t->own;
    by_json body;
    const by_json_opts json = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = t->http->opts.body_bytes};
    (void)scratch;
    r->is_object = by_json_parse(&body, &t->arena, by_buf_str(&t->body), &json, NULL) == BY_OK && body.type == BY_JSON_OBJECT;
    if (!r->is_object) return; /* the converter says what is wrong */
    const by_json *store = by_json_get(&body, "store"), *background = by_json_get(&body, "background");
    const by_json *odd = is_given(store) && store->type != BY_JSON_BOOL ? store : background;
    const char *field = odd == store ? "store" : "background";
    if (is_given(odd) && odd->type != BY_JSON_BOOL) {
        by_task_refuse(t, 400, "invalid_type", field, "%s: want true or false", field);
        return;
    }
    r->store = t->http->opts.store_bytes > 0 && (!is_given(store) || store->v.b);
    r->background = is_true(background);
    if (r->background && (!r->store || is_true(by_json_get(&body, "stream")))) {
        by_task_refuse(t, 400, NULL, "background", "background: needs store, and no stream");
        return;
    }
    if (read_ids(t, r, &body)) read_rest(t, r, &body);
}

/* Finds what the request goes on from. False: answered. */
static bool find_before(by_exchange *ex, const response_body *r, const by_items **items) {
    by_stored *s = ex->http->stored;
    *items = NULL;
    if (r->previous_id.len) {
        entry *e = find(s, r->previous_id, false);
        if (e && !e->job) return *items = &e->items, true;
        by_reply_refusal(ex, e ? 409 : 404, e ? "response_in_progress" : "previous_response_not_found", "previous_response_id",
                         "previous_response_id: '%.*s' %s",
                         BY_STR_ARG(by_str_take(r->previous_id, 100)), e ? "is not complete yet" : "is not stored here");
        return false;
    }
    if (!r->conversation_id.len) return true;
    entry *e = find(s, r->conversation_id, true);
    if (e) return *items = &e->items, true;
    by_reply_refusal(ex, 404, "conversation_not_found", "conversation", "conversation: '%.*s' is not stored here",
                     BY_STR_ARG(by_str_take(r->conversation_id, 100)));
    return false;
}

static entry *find_or_404(by_exchange *ex, by_str id, bool conversation) {
    entry *e = find(ex->http->stored, id, conversation);
    if (!e)
        by_reply_error(ex, 404, conversation ? "conversation_not_found" : "response_not_found", "%s '%.*s' is not stored here",
                       conversation ? "conversation" : "response", BY_STR_ARG(by_str_take(id, 100)));
    return e;
}

static void reply_entry(by_exchange *ex, const entry *e) {
    if (e->body.failed) by_reply_error(ex, 503, "out_of_memory", "out of memory for an answer");
    else by_reply_json(ex, 200, by_buf_str(&e->body));
}

static void reply_body(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, false);
    if (e) reply_entry(ex, e);
}

/* Counts a new entry. False: it is for the background, and what cannot be dropped is more than the bound already. */
static bool make_room(by_stored *s, entry *e) {
    weigh(s, e);
    return !e->background || s->bytes <= s->http->opts.store_bytes;
}

/* The entry of a response that will be stored; NULL: out of memory. Takes the items. */
static entry *add_response(by_exchange *ex, response_body *r, by_items *items) {
    entry *e = add(ex->http->stored, "resp_", false);
    if (!e) return NULL;
    e->background = r->background;
    memcpy(e->model, r->model, sizeof e->model);
    e->metadata = r->metadata;
    e->input = r->own;
    e->items = *items;
    r->metadata = (by_buf){0};
    r->own = *items = (by_items){0};
    snprintf(e->conversation, sizeof e->conversation, "%.*s", BY_STR_ARG(r->conversation_id));
    write_state(e, "in_progress", NULL, (by_str){0});
    return e;
}

/* Starts a response whose fields are fine. */
static void start(by_task *t, by_exchange *ex, const by_items *before) {
    by_http *h = ex->http;
    response_body *r = t->own;
    by_job_opts o = {.api = BY_API_RESPONSES, .store = r->store, .background = r->background, .previous_response_id = r->previous_id,
                     .conversation_id = r->conversation_id, .body = &t->body};
    by_items items = {0};
    entry *e = NULL;
    bool plain = !before || !before->text.len || r->odd; /* as it came: what is resolved here, the converter does not look at */
    bool ok = true;
    if (!r->odd && (r->store || !plain)) ok = (!before || by_items_push(&items, before)) && by_items_push(&items, &r->own);
    if (!plain) {
        by_buf_push_str(&r->head, by_buf_str(&items.text));
        by_buf_push_z(&r->head, "]}");
        ok = ok && !r->head.failed;
        o.body = &r->head;
    }
    if (ok && r->store && !r->odd) {
        e = add_response(ex, r, &items);
        ok = e && !e->body.failed;
    }
    if (e) {
        o.id = by_str_z(e->id);
        o.hooks = (by_job_hooks){.ended = on_ended, .arg = e, .whole = true};
    }
    if (!ok) {
        if (e) drop(h->stored, e);
        by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
    } else if (e && !make_room(h->stored, e)) {
        drop(h->stored, e);
        by_reply_error(ex, 429, "store_full", "too many responses in the background (--response-store sets the bound)");
    } else {
        char id[sizeof e->id] = "";
        if (e) memcpy(id, e->id, sizeof id);
        by_job_start(h, o.background ? NULL : ex, &o, e ? &e->job : NULL); /* e may be gone now */
        if (o.background) reply_body(ex, by_str_z(id));
    }
    by_items_deinit(&items);
}

static void start_response(by_task *t, by_exchange *ex) {
    const response_body *r = t->own;
    const by_items *before;
    by_job_opts o = {.api = BY_API_RESPONSES, .body = &t->body};
    if (!r->is_object) by_job_start(ex->http, ex, &o, NULL); /* says what is wrong */
    else if (find_before(ex, r, &before)) start(t, ex, before);
}

void by_handle_responses(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = read_response, .done = start_response, .drop = drop_body, .own_bytes = sizeof(response_body)};
    by_task_start(ex, &kind, id);
}

/* The tokens of what a response would be asked, with what comes before it. */
static void count_input(by_task *t, by_exchange *ex) {
    response_body *r = t->own;
    const by_items *before = NULL;
    if (r->is_object && !find_before(ex, r, &before)) return;
    by_buf *body = &t->body;
    if (before && before->text.len && !r->odd) {
        body = &r->head;
        by_buf_push_str(body, by_buf_str(&before->text));
        if (r->own.text.len) by_buf_push_byte(body, ',');
        by_buf_push_str(body, by_buf_str(&r->own.text));
        by_buf_push_z(body, "]}");
    }
    ex->body = *body;
    *body = (by_buf){0};
    ex->http->n_body_bytes += ex->body.cap;
    if (ex->body.failed) by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
    else by_count_response_tokens(ex);
}

void by_handle_input_tokens(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = read_response, .done = count_input, .drop = drop_body, .own_bytes = sizeof(response_body)};
    by_task_start(ex, &kind, id);
}

void by_handle_response_get(by_exchange *ex, by_str id) {
    by_str stream;
    if (!by_query_text(ex, "stream", &stream)) by_reply_error(ex, 400, NULL, "the query is malformed");
    else if (stream.len && !by_str_eqz(stream, "false"))
        by_reply_refusal(ex, 400, NULL, "stream", "stream: a stored response is given whole");
    else reply_body(ex, id);
}

static void reply_deleted(by_exchange *ex, const char *id, const char *object) {
    by_buf b = {0};
    by_buf_printf(&b, "{\"id\":\"%s\",\"object\":\"%s\",\"deleted\":true}", id, object);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_response_delete(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, false);
    if (!e) return;
    reply_deleted(ex, e->id, "response");
    if (e->job) {
        e->background = false; /* dropped when it ends */
        by_job_cancel(e->job);
    } else {
        drop(ex->http->stored, e);
    }
}

void by_handle_response_cancel(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, false);
    if (!e) return;
    if (e->job && !e->background) { /* its client is told; nothing is kept */
        write_state(e, "cancelled", NULL, (by_str){0});
        reply_entry(ex, e);
        by_job_cancel(e->job);
        return;
    }
    if (e->job) {
        char key[sizeof e->id];
        memcpy(key, e->id, sizeof key);
        by_job_cancel(e->job); /* e may be gone now */
        e = find_or_404(ex, by_str_z(key), false);
        if (!e) return;
        if (e->job) write_state(e, "cancelled", NULL, (by_str){0}); /* the worker has it: it ends in a moment */
    }
    reply_entry(ex, e);
}

void by_handle_response_items(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, false);
    if (e) by_items_reply(ex, &e->input);
}

/* ---- conversations ---- */

static void reply_conversation(by_exchange *ex, const entry *e) {
    by_buf b = {0};
    by_buf_printf(&b, "{\"id\":\"%s\",\"object\":\"conversation\",\"created_at\":%lld,\"metadata\":", e->id, (long long)e->created);
    by_buf_push_str(&b, by_buf_str(&e->body));
    by_buf_push_byte(&b, '}');
    if (b.failed) by_reply_error(ex, 503, "out_of_memory", "out of memory for an answer");
    else by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

static void no_room(by_exchange *ex) {
    by_reply_error(ex, 413, "store_full", "no room for so large a conversation (--response-store sets the bound)");
}

/* The body as an object with a list of items and an object of metadata, each perhaps absent. */
typedef struct {
    bool has_items, has_metadata;
    uint32_t n_items;
    by_items items;
    by_buf metadata; /* {} where there is none */
} conversation_body;

static void drop_conversation_body(void *own) {
    conversation_body *b = own;
    by_items_deinit(&b->items);
    by_buf_deinit(&b->metadata);
}

static void read_conversation(by_task *t, by_tok_scratch *scratch) {
    conversation_body *b = t->own;
    by_json body = {.type = BY_JSON_OBJECT};
    (void)scratch;
    if (t->body.len && !by_task_parse(t, &body)) return;
    const by_json *i = by_json_get(&body, "items"), *m = by_json_get(&body, "metadata");
    b->has_items = is_given(i);
    b->has_metadata = is_given(m);
    int64_t odd = by_json_is(i, BY_JSON_ARRAY) ? by_items_find_odd(i) : -1;
    char field[32];
    snprintf(field, sizeof field, "items[%lld]", (long long)odd);
    if (b->has_items && i->type != BY_JSON_ARRAY) by_task_refuse(t, 400, "invalid_type", "items", "items: want a list");
    else if (b->has_metadata && m->type != BY_JSON_OBJECT) by_task_refuse(t, 400, "invalid_type", "metadata", "metadata: want an object");
    else if (odd >= 0) by_task_refuse(t, 400, NULL, field, "%s: want an object with a type or a role", field);
    if (t->status != 200) return;
    b->n_items = b->has_items ? i->n : 0;
    if (b->has_metadata) by_json_write(&b->metadata, m, BY_JSON_COMPACT);
    else by_buf_push_z(&b->metadata, "{}");
    if (!by_items_push_input(&b->items, &t->rng, b->has_items ? i : NULL) || b->metadata.failed) by_task_no_memory(t);
}

static void create_conversation(by_task *t, by_exchange *ex) {
    by_stored *s = ex->http->stored;
    conversation_body *b = t->own;
    entry *e = add(s, "conv_", true);
    if (!e) {
        by_reply_error(ex, 503, "out_of_memory", "out of memory for a conversation");
        return;
    }
    e->items = b->items;
    e->body = b->metadata;
    *b = (conversation_body){0};
    if (ENTRY_BYTES + e->body.cap + by_items_bytes(&e->items) > ex->http->opts.store_bytes) {
        drop(s, e);
        no_room(ex);
    } else {
        weigh(s, e);
        reply_conversation(ex, e);
    }
}

void by_handle_conversations(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = read_conversation, .done = create_conversation, .drop = drop_conversation_body,
                                      .own_bytes = sizeof(conversation_body)};
    if (ex->http->opts.store_bytes == 0) by_reply_error(ex, 400, NULL, "nothing is stored here (--response-store 0)");
    else by_task_start(ex, &kind, id);
}

static void update_conversation(by_task *t, by_exchange *ex) {
    conversation_body *b = t->own;
    entry *e = find_or_404(ex, t->id, true);
    if (!e) return;
    if (b->has_items || !b->has_metadata) {
        by_reply_refusal(ex, 400, b->has_items ? NULL : "missing_required_parameter", b->has_items ? "items" : "metadata",
                         b->has_items ? "items: they are added with POST at .../items" : "metadata: missing");
    } else if (e->bytes - e->body.cap + b->metadata.cap > ex->http->opts.store_bytes) {
        no_room(ex);
    } else {
        by_buf old = e->body;
        e->body = b->metadata;
        b->metadata = old;
        weigh(ex->http->stored, e);
        reply_conversation(ex, e);
    }
}

void by_handle_conversation_update(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = read_conversation, .done = update_conversation, .drop = drop_conversation_body,
                                      .own_bytes = sizeof(conversation_body)};
    if (find_or_404(ex, id, true)) by_task_start(ex, &kind, id);
}

/* Adds items behind the others, and answers with a list of them. */
static void add_to_conversation(by_task *t, by_exchange *ex) {
    conversation_body *b = t->own;
    entry *e = find_or_404(ex, t->id, true);
    if (!e) return;
    if (b->n_items == 0 || b->n_items > CONVERSATION_ADD_MAX) {
        by_reply_refusal(ex, 400, NULL, "items", "items: want a list of 1 to %d items", CONVERSATION_ADD_MAX);
    } else if (!can_take(e, &b->items)) {
        no_room(ex);
    } else if (!by_items_push(&e->items, &b->items)) {
        by_reply_error(ex, 503, "out_of_memory", "out of memory for items");
    } else {
        weigh(ex->http->stored, e);
        ex->query = BY_STR("order=asc&limit=100");
        by_items_reply(ex, &b->items);
    }
}

void by_handle_conversation_add(by_exchange *ex, by_str id) {
    static const by_task_kind kind = {.work = read_conversation, .done = add_to_conversation, .drop = drop_conversation_body,
                                      .own_bytes = sizeof(conversation_body)};
    if (find_or_404(ex, id, true)) by_task_start(ex, &kind, id);
}

static void no_item(by_exchange *ex) {
    by_reply_error(ex, 404, "item_not_found", "item '%.*s' is not in the conversation", BY_STR_ARG(by_str_take(ex->sub, 100)));
}

void by_handle_conversation_item(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, true);
    if (!e) return;
    by_str item = by_items_find(&e->items, ex->sub);
    if (item.ptr) by_reply_json(ex, 200, item);
    else no_item(ex);
}

void by_handle_conversation_item_delete(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, true);
    if (!e) return;
    if (!by_items_remove(&e->items, ex->sub)) {
        no_item(ex);
        return;
    }
    weigh(ex->http->stored, e);
    reply_conversation(ex, e);
}

void by_handle_conversation_get(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, true);
    if (e) reply_conversation(ex, e);
}

void by_handle_conversation_delete(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, true);
    if (!e) return;
    reply_deleted(ex, e->id, "conversation.deleted");
    drop(ex->http->stored, e);
}

void by_handle_conversation_items(by_exchange *ex, by_str id) {
    entry *e = find_or_404(ex, id, true);
    if (e) by_items_reply(ex, &e->items);
}
