/* logprob_json.c - see logprob_json.h. */
#include "recipe/logprob_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "json/json_write.h"

void by_float_write(by_buf *out, float v) {
    double d = (double)v;
    if (isfinite(v)) {
        /* The shortest decimal of the float, read as a double, prints as that decimal again. */
        char text[40];
        for (int digits = 6; digits <= 9; digits++) {
            snprintf(text, sizeof text, "%.*e", digits - 1, (double)v);
            d = strtod(text, NULL); /* the same locale wrote it */
            if ((float)d == v) break;
        }
    }
    by_json_write_double(out, d, BY_JSON_COMPACT);
}

static void write_token(by_json_out *o, by_str bytes) {
    if (by_utf8_valid(bytes, NULL)) {
        by_json_out_string(o, bytes);
        return;
    }
    by_json_out_string_begin(o);
    for (size_t i = 0; i < bytes.len; i++) {
        char text[8];
        int n = snprintf(text, sizeof text, "\\x%02x", (unsigned char)bytes.ptr[i]);
        by_json_out_string_piece(o, by_str_of(text, (size_t)n));
    }
    by_json_out_string_end(o);
}

/* The members that a token and its alternatives share. */
static void write_members(by_json_out *o, const by_tok *tok, int32_t id, float logprob) {
    by_str bytes = by_tok_bytes(tok, id);
    by_json_out_key(o, "token");
    write_token(o, bytes);
    by_json_out_key(o, "logprob");
    by_float_write(o->buf, logprob);
    o->comma = true;
    by_json_out_key(o, "bytes");
    by_json_out_array_begin(o);
    for (size_t i = 0; i < bytes.len; i++) by_json_out_uint(o, (unsigned char)bytes.ptr[i]);
    by_json_out_array_end(o);
}

void by_logprob_write(by_buf *out, const by_tok *tok, int32_t id, const by_logprob *lp) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    write_members(&o, tok, id, lp->logprob);
    by_json_out_key(&o, "top_logprobs");
    by_json_out_array_begin(&o);
    for (size_t i = 0; i < lp->n_top; i++) {
        by_json_out_object_begin(&o);
        write_members(&o, tok, lp->top[i].id, lp->top[i].logprob);
        by_json_out_object_end(&o);
    }
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
}

static void write_score(by_json_out *o, const by_tok *tok, int32_t id, float logprob, int32_t rank) {
    char key[16];
    snprintf(key, sizeof key, "%d", id);
    by_json_out_key(o, key);
    by_json_out_object_begin(o);
    by_json_out_key(o, "logprob");
    by_float_write(o->buf, logprob);
    o->comma = true;
    by_json_out_key(o, "rank");
    by_json_out_int(o, rank);
    by_json_out_key(o, "decoded_token");
    write_token(o, by_tok_bytes(tok, id));
    by_json_out_object_end(o);
}

void by_prompt_logprob_write(by_buf *out, const by_tok *tok, int32_t id, int32_t rank, const by_logprob *lp) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    write_score(&o, tok, id, lp->logprob, rank);
    for (size_t i = 0; i < lp->n_top; i++)
        if (lp->top[i].id != id) write_score(&o, tok, lp->top[i].id, lp->top[i].logprob, (int32_t)i + 1);
    by_json_out_object_end(&o);
}
