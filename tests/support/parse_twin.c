/* parse_twin.c - see parse_twin.h. */
#include "support/parse_twin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKERS = 80 };
enum { T_REASONING, T_CONTENT, T_CALLS, T_NAME, T_INVOKE, T_KEY, T_ATTR, T_STRING, T_RAW, T_DONE, T_BEFORE, T_BODY, T_AFTER };

typedef struct {
    by_buf text;
    bool eats;
    char what; /* one letter per row of the table */
} marker;

typedef struct {
    const by_parser_opts *opts;
    by_parse_record *r;
    marker m[MARKERS];
    int n;
    int state;
    bool skip, first_param, saw_reasoning;
    by_buf name;
} twin;

static void add(twin *t, const char *a, by_str b, const char *c, bool eats, char what) {
    if (t->n == MARKERS) abort();
    marker *m = &t->m[t->n++];
    by_buf_clear(&m->text);
    by_buf_push_z(&m->text, a);
    by_buf_push_str(&m->text, b);
    by_buf_push_z(&m->text, c);
    m->eats = eats;
    m->what = what;
    if (m->text.len == 0) t->n--;
}

static void table(twin *t) {
    const by_parser_opts *o = t->opts;
    by_str none = {"", 0};
    by_str end = o->thinking_end.len ? o->thinking_end : BY_STR("</think>");
    by_str dsml = o->dsml.len ? o->dsml : BY_STR("｜DSML｜");
    t->n = 0;
    if (t->state == T_CONTENT || t->state == T_BODY)
        for (size_t i = 0; i < o->n_stops; i++) add(t, "", o->stops[i], "", false, '.');
    switch (t->state) {
    case T_REASONING: add(t, "", end, "", true, 'c'); break;
    case T_CONTENT: add(t, "", end, "", false, '-'); break;
    case T_CALLS:
        add(t, "invoke name=\"", none, "", false, 'n');
        add(t, "</", dsml, "tool_calls>", false, 'x');
        add(t, "</", dsml, " calls>", false, 'x');
        break;
    case T_NAME: add(t, "\"", none, "", false, 'N'); break;
    case T_INVOKE:
        add(t, "parameter name=", none, "", false, 'k');
        add(t, "</", dsml, "", false, '}');
        break;
    case T_KEY: add(t, " ", none, "", false, ':'); break;
    case T_ATTR:
        add(t, "true\">", none, "", false, 's');
        add(t, "false\">", none, "", false, 'r');
        break;
    case T_STRING: add(t, "</", dsml, "", false, '"'); break;
    case T_RAW: add(t, "</", dsml, "", false, 'v'); break;
    case T_BEFORE:
        add(t, "```json\n", none, "", false, 'b');
        add(t, "```\n", none, "", false, 'b');
        add(t, "{", none, "", false, 'o');
        add(t, "[", none, "", false, 'o');
        add(t, "", end, "", false, '-');
        break;
    case T_BODY: add(t, "\n```", none, "", false, 'a'); break;
    default: break;
    }
    if (o->parse_calls &&
        (t->state == T_REASONING || t->state == T_CONTENT || t->state == T_BEFORE || t->state == T_AFTER))
        add(t, "<", dsml, "", true, 't');
}

static void delta(twin *t, by_delta_kind kind, by_str text) {
    by_delta d = {.kind = kind, .text = text, .call = t->r->n_calls - (kind == BY_DELTA_ARGS ? 1 : 0)};
    if (text.len || kind == BY_DELTA_CALL) by_parse_record_delta(t->r, &d);
}
static void args(twin *t, const char *z) { delta(t, BY_DELTA_ARGS, by_str_z(z)); }

static void escaped_args(twin *t, by_str s) {
    by_buf b = {0};
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
        const char *at = c ? strchr(from, c) : NULL;
        if (at) by_buf_printf(&b, "\\%c", to[at - from]);
        else if (c < 32) by_buf_printf(&b, "\\u%04x", c);
        else by_buf_push_byte(&b, (char)c);
    }
    delta(t, BY_DELTA_ARGS, by_buf_str(&b));
    by_buf_deinit(&b);
}

static void sink(twin *t, by_str s) {
    if (s.len == 0) return;
    switch (t->state) {
    case T_REASONING: delta(t, BY_DELTA_REASONING, s); break;
    case T_CONTENT:
    case T_BODY: delta(t, BY_DELTA_CONTENT, s); break;
    case T_BEFORE:
    case T_AFTER: delta(t, BY_DELTA_CONTENT, BY_STR(" ")); break;
    case T_NAME: by_buf_push_str(&t->name, s); break;
    case T_KEY:
    case T_RAW: delta(t, BY_DELTA_ARGS, s); break;
    case T_STRING: escaped_args(t, s); break;
    default: break;
    }
}

/* False at a stop string. */
static bool act(twin *t, const marker *m) {
    switch (m->what) {
    case '.': return false;
    case 'c':
        t->state = t->opts->json_output ? T_BEFORE : T_CONTENT;
        t->skip = true;
        break;
    case 't': t->state = T_CALLS; break;
    case 'n':
        by_buf_clear(&t->name);
        t->state = T_NAME;
        break;
    case 'x': t->state = T_DONE; break;
    case 'N':
        delta(t, BY_DELTA_CALL, by_buf_str(&t->name));
        t->first_param = true;
        t->state = T_INVOKE;
        break;
    case 'k':
        args(t, t->first_param ? "{" : ", ");
        t->first_param = false;
        t->state = T_KEY;
        break;
    case '}':
        args(t, t->first_param ? "{}" : "}");
        t->state = T_CALLS;
        break;
    case ':':
        args(t, ": ");
        t->state = T_ATTR;
        break;
    case 's':
        args(t, "\"");
        t->state = T_STRING;
        break;
    case 'r': t->state = T_RAW; break;
    case '"': args(t, "\""); /* fallthrough */
    case 'v': t->state = T_INVOKE; break;
    case 'b': t->state = T_BODY; break;
    case 'o':
        delta(t, BY_DELTA_CONTENT, by_buf_str(&m->text));
        t->state = T_BODY;
        break;
    case 'a': t->state = T_AFTER; break;
    default: break;
    }
    return true;
}

static bool ends_at(by_str text, size_t from, size_t end, const char *what, size_t n) {
    return n <= end - from && memcmp(text.ptr + end - n, what, n) == 0;
}

/* Where the newlines that the marker beginning at b eats begin: all of the run, except that a newline which broke off a
 * partial match of the same marker stays. */
static size_t eaten_from(by_str text, size_t from, size_t b, const marker *m) {
    size_t r = b;
    while (r > from && text.ptr[r - 1] == '\n') r--;
    if (r == b) return b;
    for (size_t n = 1; n < m->text.len; n++)
        if (ends_at(text, from, r, m->text.ptr, n)) return r + 1;
    return r;
}

void by_parse_twin(by_parse_record *r, const by_parser_opts *opts, by_str text) {
    twin *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->opts = opts;
    t->r = r;
    bool reasoning = opts->stage == BY_STAGE_REASONING_START || opts->stage == BY_STAGE_REASONING_CONTINUATION;
    t->state = opts->starts_in_calls ? T_CALLS : reasoning ? T_REASONING : opts->json_output ? T_BEFORE : T_CONTENT;
    t->skip = opts->stage == BY_STAGE_NONE || opts->stage == BY_STAGE_REASONING_START;
    size_t from = 0;
    bool open = true;
    while (open && from < text.len) {
        table(t);
        const marker *hit = NULL;
        size_t end = from;
        bool newline = false;
        while (!hit && !newline && end < text.len) {
            end++;
            for (int i = 0; i < t->n && !hit; i++)
                if (ends_at(text, from, end, t->m[i].text.ptr, t->m[i].text.len)) hit = &t->m[i];
            newline = !hit && t->skip && text.ptr[end - 1] == '\n' && end == from + 1;
            if (!newline && text.ptr[end - 1] != '\n') t->skip = false;
        }
        if (!hit && !newline) break;
        size_t begin = newline ? from : end - hit->text.len;
        if (hit && hit->eats) begin = eaten_from(text, from, begin, hit);
        sink(t, by_str_of(text.ptr + from, begin - from));
        if (hit) open = act(t, hit);
        from = end;
    }
    if (open && from < text.len) sink(t, by_str_skip(text, from));
    for (int i = 0; i < MARKERS; i++) by_buf_deinit(&t->m[i].text);
    by_buf_deinit(&t->name);
    free(t);
}
