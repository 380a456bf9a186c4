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
    bool ok = by_json_parse(&v, &arena, response, NULL, NULL) == BY_OK && by_items_push_input(list, h, by_json_get(&v, "output"));
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

/* The request with all items in front and without the fields that are resolved here. */
static void write_request(by_buf *out, const by_json *body, by_str items) {
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
    if (items.len) by_json_out_raw(&o, items);
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
}

/* Finds what the request goes on from. False: answered. */
static bool find_before(by_exchange *ex, const by_json *body, const by_items **items, by_str *previous,
                        by_str *conversation) {
    by_stored *s = ex->http->stored;
    const by_json *p = by_json_get(body, "previous_response_id"), *c = by_json_get(body, "conversation");
    *previous = by_json_is(p, BY_JSON_STRING) ? p->v.s : (by_str){0};
    *conversation = conversation_id(c);
    if (is_given(p) && is_given(c)) {
        by_reply_refusal(ex, 400, NULL, "conversation", "previous_response_id and conversation exclude each other");
    } else if ((is_given(p) && !previous->len) || (is_given(c) && !conversation->len)) {
        const char *field = is_given(p) ? "previous_response_id" : "conversation";
        by_reply_refusal(ex, 400, NULL, field, "%s: want an id", field);
    } else if (previous->len) {
        entry *e = find(s, *previous, false);
        if (e && !e->job) return *items = &e->items, true;
        by_reply_refusal(ex, e ? 409 : 404, e ? "response_in_progress" : "previous_response_not_found", "previous_response_id",
                         "previous_response_id: '%.*s' %s",
                       BY_STR_ARG(by_str_take(*previous, 100)), e ? "is not complete yet" : "is not stored here");
    } else if (conversation->len) {
        entry *e = find(s, *conversation, true);
        if (e) return *items = &e->items, true;
        by_reply_refusal(ex, 404, "conversation_not_found", "conversation", "conversation: '%.*s' is not stored here",
                       BY_STR_ARG(by_str_take(*conversation, 100)));
    } else {
        return true;
    }
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

/* Starts a response whose fields are fine. */
static void start(by_exchange *ex, const by_json *body, const by_items *before, by_job_opts *o) {
    by_http *h = ex->http;
    by_buf raw = by_exchange_take_body(ex), request = {0};
    by_items items = {0}, own = {0};
    entry *e = NULL;
    const by_json *input = by_json_get(body, "input");
    const by_json *rules = by_json_get(body, "instructions");
    bool empty = by_json_is(input, BY_JSON_STRING) && !input->v.s.len && by_json_is(rules, BY_JSON_STRING) && rules->v.s.len;
    if (!is_given(input) || empty) input = NULL; /* the converter takes an empty text beside instructions for none */
    bool text = input && input->type == BY_JSON_STRING && input->v.s.len > 0;
    bool list = by_json_is(input, BY_JSON_ARRAY) && by_items_find_odd(input) < 0;
    bool odd = input && !text && !list; /* no text and no list of items: the converter says what is wrong */
    bool plain = !before || !before->text.len || odd; /* as it came: what is resolved here, the converter does not look at */
    bool ok = true;
    if (!odd && (o->store || !plain))
        ok = by_items_push_input(&own, h, input) && (!before || by_items_push(&items, before)) && by_items_push(&items, &own);
    if (!plain) write_request(&request, body, by_buf_str(&items.text));
    if (odd) o->background = false;
    if (o->store && !odd) e = add(h->stored, "resp_", false);
    if (e) {
        e->background = o->background;
        const by_json *model = by_json_get(body, "model"), *metadata = by_json_get(body, "metadata");
        if (by_json_is(model, BY_JSON_STRING) && model->v.s.len < sizeof e->model) /* served names are shorter */
            snprintf(e->model, sizeof e->model, "%.*s", BY_STR_ARG(model->v.s));
        if (by_json_is(metadata, BY_JSON_OBJECT)) by_json_write(&e->metadata, metadata, BY_JSON_COMPACT);
        snprintf(e->conversation, sizeof e->conversation, "%.*s", BY_STR_ARG(o->conversation_id));
        e->input = own; /* both are the entry's now */
        e->items = items;
        own = items = (by_items){0};
        write_state(e, "in_progress", NULL, (by_str){0});
        o->id = by_str_z(e->id);
        o->hooks = (by_job_hooks){.ended = on_ended, .arg = e, .whole = true};
    }
    o->body = plain ? &raw : &request;
    ok = ok && !request.failed && (!o->store || odd || e);
    if (!ok || (e && (e->body.failed || e->metadata.failed))) {
        if (e) drop(h->stored, e);
        by_reply_error(ex, 503, "out_of_memory", "out of memory for a request");
    } else if (e && !make_room(h->stored, e)) {
        drop(h->stored, e);
        by_reply_error(ex, 429, "store_full", "too many responses in the background (--response-store sets the bound)");
    } else {
        char id[sizeof e->id] = "";
        if (e) memcpy(id, e->id, sizeof id);
        by_job_start(h, o->background ? NULL : ex, o, e ? &e->job : NULL); /* e may be gone now */
        if (o->background) reply_body(ex, by_str_z(id));
    }
    by_buf_deinit(&raw);
    by_buf_deinit(&request);
    by_items_deinit(&items);
    by_items_deinit(&own);
}

void by_handle_responses(by_exchange *ex, by_str id) {
    by_json body;
    const by_json_opts json = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = ex->http->opts.body_bytes};
    by_job_opts o = {.api = BY_API_RESPONSES};
    const by_items *before = NULL;
    (void)id;
    if (by_json_parse(&body, &ex->arena, by_buf_str(&ex->body), &json, NULL) < 0 || body.type != BY_JSON_OBJECT) {
        by_buf raw = by_exchange_take_body(ex);
        o.body = &raw;
        by_job_start(ex->http, ex, &o, NULL); /* says what is wrong */
        by_buf_deinit(&raw);
        return;
    }
    const by_json *store = by_json_get(&body, "store"), *background = by_json_get(&body, "background");
    if ((is_given(store) && store->type != BY_JSON_BOOL) || (is_given(background) && background->type != BY_JSON_BOOL)) {
        const char *field = is_given(store) && store->type != BY_JSON_BOOL ? "store" : "background";
        by_reply_refusal(ex, 400, "invalid_type", field, "%s: want true or false", field);
        return;
    }
    o.store = ex->http->opts.store_bytes > 0 && (!is_given(store) || store->v.b);
    o.background = is_true(background);
    if (o.background && (!o.store || is_true(by_json_get(&body, "stream")))) {
        by_reply_refusal(ex, 400, NULL, "background", "background: needs store, and no stream");
        return;
    }
    if (find_before(ex, &body, &before, &o.previous_response_id, &o.conversation_id)) start(ex, &body, before, &o);
}

void by_handle_response_get(by_exchange *ex, by_str id) { reply_body(ex, id); }

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

static bool push_metadata(by_buf *out, const by_json *metadata) {
    if (metadata) by_json_write(out, metadata, BY_JSON_COMPACT);
    else by_buf_push_z(out, "{}");
    return !out->failed;
}

/* The body as an object with a list of items and an object of metadata, each perhaps absent (NULL). False: answered. */
static bool read_conversation(by_exchange *ex, const by_json **items, const by_json **metadata) {
    by_json *body = by_arena_zero(&ex->arena, sizeof *body);
    const by_json_opts json = {.depth_max = BY_LIMIT_REQUEST_DEPTH, .bytes_max = ex->http->opts.body_bytes};
    by_err err;
    *items = *metadata = NULL;
    if (!ex->body.len) return true;
    if (!body || by_json_parse(body, &ex->arena, by_buf_str(&ex->body), &json, &err) < 0 || body->type != BY_JSON_OBJECT) {
        by_reply_error(ex, 400, NULL, "the body must be a JSON object");
        return false;
    }
    const by_json *i = by_json_get(body, "items"), *m = by_json_get(body, "metadata");
    if ((is_given(i) && i->type != BY_JSON_ARRAY) || (is_given(m) && m->type != BY_JSON_OBJECT)) {
        by_reply_refusal(ex, 400, "invalid_type", is_given(i) && i->type != BY_JSON_ARRAY ? "items" : "metadata",
                         "items must be a list and metadata an object");
        return false;
    }
    int64_t odd = is_given(i) ? by_items_find_odd(i) : -1;
    if (odd >= 0) {
        char field[32];
        snprintf(field, sizeof field, "items[%lld]", (long long)odd);
        by_reply_refusal(ex, 400, NULL, field, "items[%lld]: want an object with a type or a role", (long long)odd);
        return false;
    }
    if (is_given(i)) *items = i;
    if (is_given(m)) *metadata = m;
    return true;
}

void by_handle_conversations(by_exchange *ex, by_str id) {
    const by_json *items, *metadata;
    (void)id;
    if (ex->http->opts.store_bytes == 0) {
        by_reply_error(ex, 400, NULL, "nothing is stored here (--response-store 0)");
        return;
    }
    if (!read_conversation(ex, &items, &metadata)) return;
    entry *e = add(ex->http->stored, "conv_", true);
    if (!e || !by_items_push_input(&e->items, ex->http, items) || !push_metadata(&e->body, metadata)) {
        if (e) drop(ex->http->stored, e);
        by_reply_error(ex, 503, "out_of_memory", "out of memory for a conversation");
    } else if (ENTRY_BYTES + e->body.cap + by_items_bytes(&e->items) > ex->http->opts.store_bytes) {
        drop(ex->http->stored, e);
        no_room(ex);
    } else {
        weigh(ex->http->stored, e);
        reply_conversation(ex, e);
    }
}

void by_handle_conversation_update(by_exchange *ex, by_str id) {
    const by_json *items, *metadata;
    entry *e = find_or_404(ex, id, true);
    if (!e || !read_conversation(ex, &items, &metadata)) return;
    if (items || !metadata) {
        by_reply_refusal(ex, 400, items ? NULL : "missing_required_parameter", items ? "items" : "metadata",
                         items ? "items: they are added with POST at .../items" : "metadata: missing");
        return;
    }
    by_buf fresh = {0};
    if (!push_metadata(&fresh, metadata)) {
        by_reply_error(ex, 503, "out_of_memory", "out of memory for metadata");
    } else if (e->bytes - e->body.cap + fresh.cap > ex->http->opts.store_bytes) {
        no_room(ex);
    } else {
        by_buf old = e->body;
        e->body = fresh;
        fresh = old;
        weigh(ex->http->stored, e);
        reply_conversation(ex, e);
    }
    by_buf_deinit(&fresh);
}

/* Adds items behind the others, and answers with a list of them. */
void by_handle_conversation_add(by_exchange *ex, by_str id) {
    const by_json *items, *metadata;
    entry *e = find_or_404(ex, id, true);
    by_items fresh = {0};
    if (!e || !read_conversation(ex, &items, &metadata)) return;
    if (!items || items->n == 0 || items->n > CONVERSATION_ADD_MAX) {
        by_reply_refusal(ex, 400, NULL, "items", "items: want a list of 1 to %d items", CONVERSATION_ADD_MAX);
        return;
    }
    bool ok = by_items_push_input(&fresh, ex->http, items);
    if (ok && !can_take(e, &fresh)) {
        no_room(ex);
    } else if (!ok || !by_items_push(&e->items, &fresh)) {
        by_reply_error(ex, 503, "out_of_memory", "out of memory for items");
    } else {
        weigh(ex->http->stored, e);
        ex->query = BY_STR("order=asc&limit=100");
        by_items_reply(ex, &fresh);
    }
    by_items_deinit(&fresh);
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
