/* chat_session.c - see chat_session.h. */
#include "cli/chat_session.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "json/json_write.h"
#include "recipe/prompt.h"

typedef struct {
    bool assistant;
    by_buf content, reasoning;
} message;

typedef struct {
    by_buf system;
    message *messages;
    size_t n, cap;
    char think[8];
} history;

struct by_chat {
    by_chat_opts opts;
    history h;
    by_recipe_prompt prompt;
    by_tok_ids ids;
    /* of the turn that is under way */
    by_answer *answer;
    message *reply;
    by_chat_turn *turn;
    bool no_memory;
};

/* ---- history ---- */

static void message_deinit(message *m) {
    by_buf_deinit(&m->content);
    by_buf_deinit(&m->reasoning);
}

static void drop_to(history *h, size_t n) {
    while (h->n > n) message_deinit(&h->messages[--h->n]);
}

static void history_deinit(history *h) {
    drop_to(h, 0);
    by_free(h->messages);
    by_buf_deinit(&h->system);
    *h = (history){0};
}

static by_status add_message(history *h, bool assistant, by_str content, by_err *err) {
    if (h->n >= BY_LIMIT_MESSAGES) return BY_FAIL(err, BY_ELIMIT, "the conversation has %d messages already", BY_LIMIT_MESSAGES);
    if (h->n == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 16;
        message *more = by_realloc(BY_MEM_REQUEST, h->messages, by_mul_size(cap, sizeof *more));
        if (!more) return BY_FAIL(err, BY_ENOMEM, "out of memory for a message");
        h->messages = more;
        h->cap = cap;
    }
    message *m = &h->messages[h->n++];
    *m = (message){.assistant = assistant};
    by_buf_push_str(&m->content, content);
    return by_buf_check(&m->content, err);
}

by_status by_chat_create(by_chat **out, const by_chat_opts *opts, by_err *err) {
    by_chat *c = by_alloc_zero(BY_MEM_REQUEST, sizeof *c);
    if (!c) return BY_FAIL(err, BY_ENOMEM, "out of memory for a conversation");
    c->opts = *opts;
    snprintf(c->h.think, sizeof c->h.think, "high");
    *out = c;
    return BY_OK;
}

void by_chat_destroy(by_chat *c) {
    if (!c) return;
    history_deinit(&c->h);
    by_recipe_prompt_deinit(&c->prompt);
    by_tok_ids_deinit(&c->ids);
    by_free(c);
}

void by_chat_clear(by_chat *c) { drop_to(&c->h, 0); }
size_t by_chat_n_messages(const by_chat *c) { return c->h.n; }
by_str by_chat_system(const by_chat *c) { return by_buf_str(&c->h.system); }
const char *by_chat_think(const by_chat *c) { return c->h.think; }

by_status by_chat_set_system(by_chat *c, by_str text, by_err *err) {
    by_buf fresh = {0};
    if (!by_buf_push_str(&fresh, text)) {
        by_buf_deinit(&fresh);
        return BY_FAIL(err, BY_ENOMEM, "out of memory for the system text");
    }
    by_buf_deinit(&c->h.system);
    c->h.system = fresh;
    return BY_OK;
}

/* 1..100, or 0. */
static int effort_number(by_str word) {
    int n = 0;
    if (word.len == 0 || word.len > 3) return 0;
    for (size_t i = 0; i < word.len; i++) {
        if (word.ptr[i] < '0' || word.ptr[i] > '9') return 0;
        n = n * 10 + (word.ptr[i] - '0');
    }
    return n <= 100 ? n : 0;
}

by_status by_chat_check_think(by_str word, by_err *err) {
    bool known = by_str_eqz(word, "none") || by_str_eqz(word, "low") || by_str_eqz(word, "high") ||
                 by_str_eqz(word, "max") || effort_number(word) > 0;
    if (known) return BY_OK;
    return BY_FAIL(err, BY_EINVAL, "'%.*s' is not none, low, high, max or a number from 1 to 100", BY_STR_ARG(word));
}

static by_status set_think(history *h, by_str word, by_err *err) {
    BY_TRY(by_chat_check_think(word, err));
    snprintf(h->think, sizeof h->think, "%.*s", BY_STR_ARG(word));
    return BY_OK;
}

by_status by_chat_set_think(by_chat *c, by_str word, by_err *err) { return set_think(&c->h, word, err); }

/* ---- a turn ---- */

static by_recipe_text text_of(const by_buf *b, by_recipe_piece *piece) {
    *piece = (by_recipe_piece){.text = b->len ? by_buf_str(b) : BY_STR("")};
    return (by_recipe_text){.pieces = piece, .n = 1};
}

static void set_effort(by_recipe_conversation *v, const char *think) {
    v->thinking = strcmp(think, "none") != 0;
    if (!v->thinking) return;
    if (strcmp(think, "low") == 0) v->effort = BY_EFFORT_LOW;
    else if (strcmp(think, "high") == 0) v->effort = BY_EFFORT_HIGH;
    else if (strcmp(think, "max") == 0) v->effort = BY_EFFORT_MAX;
    else {
        v->effort = BY_EFFORT_NUMBER;
        v->effort_number = effort_number(by_str_z(think));
    }
}

/* Renders the history and encodes it into c->ids. */
static by_status make_prompt(by_chat *c, by_err *err) {
    const history *h = &c->h;
    size_t n = h->n + 1;
    by_arena arena;
    by_arena_init(&arena, BY_MEM_REQUEST);
    by_recipe_message *m = by_arena_zero(&arena, by_mul_size(n, sizeof *m));
    by_recipe_piece *pieces = by_arena_alloc(&arena, by_mul_size(n, sizeof *pieces));
    by_status status = m && pieces ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for the prompt");
    if (status == BY_OK) {
        by_recipe_conversation v = {.messages = m};
        if (h->system.len) {
            m[0].role = BY_ROLE_SYSTEM;
            m[0].content = text_of(&h->system, &pieces[0]);
            v.n_messages = 1;
        }
        for (size_t i = 0; i < h->n; i++) {
            by_recipe_message *to = &m[v.n_messages];
            to->role = h->messages[i].assistant ? BY_ROLE_ASSISTANT : BY_ROLE_USER;
            to->content = text_of(&h->messages[i].content, &pieces[v.n_messages++]);
            to->has_reasoning = h->messages[i].reasoning.len > 0;
            to->reasoning = by_buf_str(&h->messages[i].reasoning);
        }
        set_effort(&v, h->think);
        status = by_recipe_render(&c->prompt, &v, c->opts.version, NULL, err);
    }
    c->ids.n = 0;
    if (status == BY_OK) status = by_recipe_encode(&c->ids, &c->prompt, c->opts.tok, c->opts.scratch, err);
    by_arena_deinit(&arena);
    return status;
}

static void on_begin(void *ctx, const by_answer_begin *b) { (void)ctx, (void)b; }

static void on_delta(void *ctx, const by_answer_delta *d) {
    by_chat *c = ctx;
    if (d->d.kind != BY_DELTA_REASONING && d->d.kind != BY_DELTA_CONTENT) return;
    by_buf *to = d->d.kind == BY_DELTA_REASONING ? &c->reply->reasoning : &c->reply->content;
    if (!by_buf_push_str(to, d->d.text)) c->no_memory = true;
    if (c->opts.show) c->opts.show(c->opts.show_ctx, d->d.kind, d->d.text);
}

static void on_end(void *ctx, const by_answer_end *e) {
    by_chat *c = ctx;
    c->turn->kind = e->kind;
    c->turn->usage = e->usage;
}

static by_status take_id(void *arg, int32_t id, by_err *err) {
    by_chat *c = arg;
    BY_TRY(by_answer_tokens(c->answer, &id, 1, NULL, 0, err));
    if (c->opts.interrupted && c->opts.interrupted()) {
        c->turn->interrupted = true;
        return BY_END;
    }
    return by_answer_finished(c->answer) ? BY_END : BY_OK;
}

static by_status answer(by_chat *c, by_err *err) {
    const by_answer_sink sink = {.begin = on_begin, .delta = on_delta, .end = on_end, .ctx = c};
    bool thinking = strcmp(c->h.think, "none") != 0;
    by_answer_opts opts = {.parser = {.stage = thinking ? BY_STAGE_REASONING_START : BY_STAGE_NONE, .eager = true},
                           .tok = c->opts.tok,
                           .scratch = c->opts.scratch,
                           .server = true,
                           .end_ids = c->opts.end_ids,
                           .n_end_ids = c->opts.n_end_ids};
    BY_TRY(by_answer_create(&c->answer, &opts, &sink, err));
    by_answer_reason reason = BY_REASON_STOP;
    by_status status = by_answer_ready(c->answer, c->ids.n, 0, NULL, err);
    if (status == BY_OK)
        status = c->opts.backend.generate(c->opts.backend.ctx, c->ids.ids, c->ids.n, take_id, c, &reason, err);
    if (c->opts.interrupted && c->opts.interrupted()) c->turn->interrupted = true; /* perhaps before the first id */
    if (status == BY_OK && !by_answer_finished(c->answer)) status = by_answer_finish(c->answer, reason, err);
    if (status == BY_OK && c->no_memory) status = BY_FAIL(err, BY_ENOMEM, "out of memory for the answer");
    by_answer_destroy(c->answer);
    c->answer = NULL;
    return status;
}

by_status by_chat_say(by_chat *c, by_str text, by_chat_turn *turn, by_err *err) {
    size_t before = c->h.n;
    *turn = (by_chat_turn){0};
    c->turn = turn;
    c->no_memory = false;
    by_status status = add_message(&c->h, false, text, err);
    if (status == BY_OK) status = make_prompt(c, err);
    if (status == BY_OK) status = add_message(&c->h, true, BY_STR(""), err);
    if (status == BY_OK) {
        c->reply = &c->h.messages[c->h.n - 1];
        status = answer(c, err);
    }
    if (status != BY_OK) drop_to(&c->h, before);
    return status;
}

/* ---- files ---- */

static void write_message(by_json_out *o, const char *role, by_str content, by_str reasoning) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "role");
    by_json_out_z(o, role);
    if (reasoning.len) {
        by_json_out_key(o, "reasoning_content");
        by_json_out_string(o, reasoning);
    }
    by_json_out_key(o, "content");
    by_json_out_string(o, content);
    by_json_out_object_end(o);
    by_buf_push_z(o->buf, "\n"); /* one message a line */
}

by_status by_chat_save(const by_chat *c, const char *path, by_err *err) {
    by_buf out = {0};
    by_json_out o = by_json_out_init(&out, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "think");
    by_json_out_z(&o, c->h.think);
    by_json_out_key(&o, "messages");
    by_json_out_array_begin(&o);
    if (c->h.system.len) write_message(&o, "system", by_buf_str(&c->h.system), BY_STR(""));
    for (size_t i = 0; i < c->h.n; i++) {
        const message *m = &c->h.messages[i];
        write_message(&o, m->assistant ? "assistant" : "user", by_buf_str(&m->content), by_buf_str(&m->reasoning));
    }
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
    by_buf_push_byte(&out, '\n');
    by_status status = by_buf_check(&out, err);
    if (status == BY_OK) status = by_file_write(path, out.ptr, out.len, err);
    by_buf_deinit(&out);
    return status;
}

static by_status load_message(history *h, const by_json *m, uint32_t i, by_err *err) {
    const by_json *role = by_json_get(m, "role"), *content = by_json_get(m, "content");
    const by_json *reasoning = by_json_get(m, "reasoning_content");
    if (!by_json_is(role, BY_JSON_STRING)) return BY_FAIL(err, BY_EFORMAT, "messages[%u].role: want a string", i);
    if (!by_json_is(content, BY_JSON_STRING)) return BY_FAIL(err, BY_EFORMAT, "messages[%u].content: want a string", i);
    if (by_str_eqz(role->v.s, "system") && i == 0) {
        by_buf_push_str(&h->system, content->v.s);
        return by_buf_check(&h->system, err);
    }
    bool assistant = by_str_eqz(role->v.s, "assistant");
    if (!assistant && !by_str_eqz(role->v.s, "user"))
        return BY_FAIL(err, BY_EFORMAT, "messages[%u].role: '%.*s' cannot stand here", i, BY_STR_ARG(role->v.s));
    BY_TRY(add_message(h, assistant, content->v.s, err));
    if (!by_json_is(reasoning, BY_JSON_STRING)) return BY_OK;
    by_buf_push_str(&h->messages[h->n - 1].reasoning, reasoning->v.s);
    return by_buf_check(&h->messages[h->n - 1].reasoning, err);
}

by_status by_chat_load(by_chat *c, const char *path, by_err *err) {
    by_arena arena;
    by_buf text = {0};
    history fresh = {0};
    by_json v;
    by_arena_init(&arena, BY_MEM_JSON);
    by_status status = by_json_read_file(&v, &arena, &text, path, err);
    if (status == BY_OK) {
        const by_json *list = by_json_get(&v, "messages"), *think = by_json_get(&v, "think");
        if (!by_json_is(list, BY_JSON_ARRAY)) status = BY_FAIL(err, BY_EFORMAT, "messages: want an array");
        if (status == BY_OK) status = set_think(&fresh, by_json_is(think, BY_JSON_STRING) ? think->v.s : BY_STR("high"), err);
        for (uint32_t i = 0; status == BY_OK && i < list->n; i++) status = load_message(&fresh, &list->v.items[i], i, err);
        if (status != BY_OK && err) by_err_prefix(err, "%s: ", path);
    }
    if (status == BY_OK) {
        history old = c->h;
        c->h = fresh;
        fresh = old;
    }
    history_deinit(&fresh);
    by_buf_deinit(&text);
    by_arena_deinit(&arena);
    return status;
}
