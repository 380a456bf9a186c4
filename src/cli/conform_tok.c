/* conform_tok.c - rows of the tokenizer: encode, pretokenize, decode, detok_stream. */
#include "cli/conform.h"
#include "base/limits.h"

static void write_ids(by_json_out *o, const by_tok_ids *ids) {
    by_json_out_array_begin(o);
    for (size_t i = 0; i < ids->n; i++) by_json_out_int(o, ids->ids[i]);
    by_json_out_array_end(o);
}

/* {text, added_tokens} -> {ids} */
static by_status encode(by_conform *c, const by_json *row, const by_json *input, by_json_out *o, by_err *err) {
    (void)row;
    const by_json *text, *added = by_json_get(input, "added_tokens");
    const by_tok *tok;
    by_tok_scratch *scratch;
    by_tok_ids ids = {0};
    BY_TRY(by_conform_field(input, "text", BY_JSON_STRING, &text, err));
    BY_TRY(by_conform_tok(c, false, &tok, &scratch, err));
    bool full = !by_json_is(added, BY_JSON_BOOL) || added->v.b;
    by_status status = by_tok_encode(tok, scratch, text->v.s, full ? BY_TOK_FULL : BY_TOK_PLAIN, &ids, err);
    if (status == BY_OK) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "ids");
        write_ids(o, &ids);
        by_json_out_object_end(o);
    }
    by_tok_ids_deinit(&ids);
    return status;
}

/* {text} -> {pieces} */
static by_status pretokenize(by_conform *c, const by_json *row, const by_json *input, by_json_out *o, by_err *err) {
    (void)c;
    (void)row;
    const by_json *text;
    BY_TRY(by_conform_field(input, "text", BY_JSON_STRING, &text, err));
    by_str s = text->v.s;
    by_json_out_object_begin(o);
    by_json_out_key(o, "pieces");
    by_json_out_array_begin(o);
    for (size_t at = 0, end; at < s.len; at = end) {
        end = by_tok_next_piece(s, at);
        by_json_out_string(o, by_str_of(s.ptr + at, end - at));
    }
    by_json_out_array_end(o);
    by_json_out_object_end(o);
    return BY_OK;
}

/* Ids of a row; what is no id of 32 bits is an id that does not exist. */
static int32_t id_at(const by_json *list, uint32_t i) {
    int64_t id;
    return by_json_int_in(by_json_at(list, i), 0, INT32_MAX, &id) ? (int32_t)id : -1;
}

/* {ids, skip_special} -> {text} */
static by_status decode(by_conform *c, const by_json *row, const by_json *input, by_json_out *o, by_err *err) {
    (void)row;
    const by_json *list, *skip = by_json_get(input, "skip_special");
    const by_tok *tok;
    by_tok_scratch *scratch;
    by_tok_stream s;
    by_buf text = {0};
    BY_TRY(by_conform_field(input, "ids", BY_JSON_ARRAY, &list, err));
    BY_TRY(by_conform_tok(c, false, &tok, &scratch, err));
    by_tok_stream_init(&s, tok, BY_TOK_STREAM_LOSSLESS, by_json_is(skip, BY_JSON_BOOL) && skip->v.b);
    by_status status = BY_OK;
    for (uint32_t i = 0; i < list->n && status == BY_OK; i++) status = by_tok_stream_push(&s, id_at(list, i), &text, err);
    if (status == BY_OK) status = by_tok_stream_finish(&s, &text, err);
    if (status == BY_OK) {
        by_json_out_object_begin(o);
        by_json_out_key(o, "text");
        by_json_out_string(o, by_buf_str(&text));
        by_json_out_object_end(o);
    }
    by_tok_stream_deinit(&s);
    by_buf_deinit(&text);
    return status;
}

/* {ids} -> {pieces, tail, text} */
static by_status detok_stream(by_conform *c, const by_json *row, const by_json *input, by_json_out *o, by_err *err) {
    (void)row;
    const by_json *list;
    const by_tok *tok;
    by_tok_scratch *scratch;
    by_tok_stream s;
    by_buf text = {0};
    BY_TRY(by_conform_field(input, "ids", BY_JSON_ARRAY, &list, err));
    BY_TRY(by_conform_tok(c, false, &tok, &scratch, err));
    by_tok_stream_init(&s, tok, BY_TOK_STREAM_REFERENCE, false);
    by_status status = BY_OK;
    by_json_out_object_begin(o);
    by_json_out_key(o, "pieces");
    by_json_out_array_begin(o);
    for (uint32_t i = 0; i <= list->n && status == BY_OK; i++) {
        size_t from = text.len;
        bool end = i == list->n;
        status = end ? by_tok_stream_finish(&s, &text, err) : by_tok_stream_push(&s, id_at(list, i), &text, err);
        if (end) {
            by_json_out_array_end(o);
            by_json_out_key(o, "tail");
        }
        by_json_out_string(o, by_str_of(text.ptr + from, text.len - from));
    }
    by_json_out_key(o, "text");
    by_json_out_string(o, by_buf_str(&text));
    by_json_out_object_end(o);
    by_tok_stream_deinit(&s);
    by_buf_deinit(&text);
    return status;
}

const by_conform_kind by_conform_tok_kinds[] = {
    {"encode", encode}, {"pretokenize", pretokenize}, {"decode", decode}, {"detok_stream", detok_stream}, {NULL, NULL},
};
