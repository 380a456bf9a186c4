/* parse_rows.c - see parse_rows.h. */
#include "support/parse_rows.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "json/json_write.h"

static void need(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "parse row: %s\n", what);
    abort();
}

static bool flag(const by_json *o, const char *key, bool otherwise) {
    const by_json *v = by_json_get(o, key);
    return v ? v->v.b : otherwise;
}

void by_parse_row_read(by_parse_row *row, const by_json *input) {
    *row = (by_parse_row){.chunks = by_json_get(input, "chunks"), .finish = by_json_get(input, "finish")};
    need(by_json_is(row->chunks, BY_JSON_ARRAY), "no chunks");
    const by_json *o = by_json_get(input, "parsing");
    by_parser_opts *opts = &row->opts;
    opts->parse_calls = flag(o, "parse_tool_calls", true);
    opts->starts_in_calls = flag(o, "starts_in_tool_calls", false);
    opts->json_output = flag(o, "parse_json_output", false);
    static const char *const stages[] = {"", "reasoning_start", "reasoning_continuation", "content_continuation"};
    const by_json *stage = by_json_get(o, "initial_stage");
    for (int i = 1; i < 4; i++)
        if (by_json_is(stage, BY_JSON_STRING) && by_str_eqz(stage->v.s, stages[i])) opts->stage = (by_stage)i;
    need(!by_json_is(stage, BY_JSON_STRING) || opts->stage != BY_STAGE_NONE, "unknown stage");
    const by_json *stops = by_json_get(o, "stop");
    opts->stops = row->stops;
    for (uint32_t i = 0; stops && i < stops->n; i++) {
        need(i < BY_PARSE_ROW_STOPS, "too many stop strings");
        row->stops[opts->n_stops++] = stops->v.items[i].v.s;
    }
    const by_json *special = by_json_get(o, "special_tokens");
    const by_json *end = by_json_get(special, "thinking_end"), *dsml = by_json_get(special, "dsml");
    if (end) opts->thinking_end = end->v.s;
    if (dsml) opts->dsml = dsml->v.s;
}

void by_parse_record_delta(void *ctx, const by_delta *d) {
    by_parse_record *r = ctx;
    static const char *const keys[] = {"r", "c", "call", "args"};
    by_json_out o = by_json_out_init(&r->deltas, BY_JSON_COMPACT);
    if (r->deltas.len) by_buf_push_byte(&r->deltas, ',');
    by_json_out_object_begin(&o);
    by_json_out_key(&o, keys[d->kind]);
    if (d->kind == BY_DELTA_CALL) {
        by_json_out_uint(&o, d->call);
        by_json_out_key(&o, "name");
    }
    by_json_out_string(&o, d->text);
    if (d->kind == BY_DELTA_CALL) {
        by_json_out_key(&o, "et");
        by_json_out_bool(&o, d->no_reasoning);
    }
    if (d->kind == BY_DELTA_ARGS) {
        by_json_out_key(&o, "call");
        by_json_out_uint(&o, d->call);
    }
    by_json_out_object_end(&o);
    r->broken |= !by_utf8_valid(d->text, NULL);
    switch (d->kind) {
    case BY_DELTA_REASONING: by_buf_push_str(&r->reasoning, d->text); break;
    case BY_DELTA_CONTENT: by_buf_push_str(&r->content, d->text); break;
    case BY_DELTA_CALL:
        r->broken |= d->call != r->n_calls;
        if (r->n_calls++) by_buf_push_byte(&r->calls, '\0');
        by_buf_push_str(&r->calls, d->text);
        by_buf_push_byte(&r->calls, '\0');
        break;
    case BY_DELTA_ARGS:
        r->broken |= d->call + 1 != r->n_calls;
        by_buf_push_str(&r->calls, d->text);
        break;
    }
}

void by_parse_record_clear(by_parse_record *r) {
    by_buf_clear(&r->deltas);
    by_buf_clear(&r->reasoning);
    by_buf_clear(&r->content);
    by_buf_clear(&r->calls);
    r->n_calls = 0;
    r->broken = false;
}

void by_parse_record_deinit(by_parse_record *r) {
    by_buf_deinit(&r->deltas);
    by_buf_deinit(&r->reasoning);
    by_buf_deinit(&r->content);
    by_buf_deinit(&r->calls);
}

static by_str without_blanks_around(by_str s) {
    while (s.len && s.ptr[0] == ' ') s = by_str_skip(s, 1);
    while (s.len && s.ptr[s.len - 1] == ' ') s.len--;
    return s;
}

bool by_parse_record_same(const by_parse_record *a, const by_parse_record *b, bool json_output) {
    by_str ca = by_buf_str(&a->content), cb = by_buf_str(&b->content);
    if (json_output) {
        ca = without_blanks_around(ca);
        cb = without_blanks_around(cb);
    }
    return !a->broken && !b->broken && by_str_eq(by_buf_str(&a->reasoning), by_buf_str(&b->reasoning)) &&
           by_str_eq(ca, cb) && a->n_calls == b->n_calls && by_str_eq(by_buf_str(&a->calls), by_buf_str(&b->calls));
}

void by_parse_in_pieces(by_parse_record *r, const by_parser_opts *opts, by_str text, const size_t *cuts,
                        size_t n_cuts) {
    by_parser *p = NULL;
    need(by_parser_create(&p, opts, by_parse_record_delta, r, NULL) == BY_OK, "no parser");
    size_t from = 0;
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t to = i < n_cuts ? cuts[i] : text.len;
        need(by_parser_push(p, by_str_of(text.ptr + from, to - from), NULL) == BY_OK, "push failed");
        from = to;
    }
    need(by_parser_finish(p, NULL) == BY_OK, "finish failed");
    by_parser_destroy(p);
}
