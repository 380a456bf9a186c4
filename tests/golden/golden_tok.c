/* Every row of tests/golden/data/tokenizer/open.jsonl.gz against the published tokenizer: encoding with the linear-time
 * encoder and with plain merges, with and without a scratch; pieces; decoding; the reference's stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "json/json.h"
#include "json/json_write.h"
#include "support/golden.h"
#include "support/tok_v4.h"

typedef struct {
    by_tok *tok, *plain; /* the same file; plain uses the heap */
    by_tok_scratch *scratch;
    by_buf got, want;
    int n_encode, n_pieces, n_decode, n_stream;
} fixture;

static int setup(void **state) {
    static fixture f;
    f.tok = by_test_tok_v4(NULL);
    f.plain = by_test_tok_v4(&(by_tok_opts){.plain_merges = true});
    *state = &f;
    return by_tok_scratch_create(&f.scratch, f.tok, NULL) == BY_OK ? 0 : 1;
}

static int teardown(void **state) {
    fixture *f = *state;
    by_tok_scratch_destroy(f->scratch);
    by_tok_destroy(f->tok);
    by_tok_destroy(f->plain);
    by_buf_deinit(&f->got);
    by_buf_deinit(&f->want);
    return 0;
}

static void check(fixture *f, by_str line, const by_json *want) {
    by_buf_clear(&f->want);
    by_json_write(&f->want, want, BY_JSON_COMPACT);
    if (by_str_eq(by_buf_str(&f->got), by_buf_str(&f->want))) return;
    print_error("%.*s\n got: %s\nwant: %s\n", BY_STR_ARG(line), by_buf_z(&f->got), by_buf_z(&f->want));
    fail();
}

static by_json_out start(fixture *f) {
    by_buf_clear(&f->got);
    return by_json_out_init(&f->got, BY_JSON_COMPACT);
}

static void encode_row(fixture *f, by_str line, const by_json *in, const by_json *expected) {
    by_str text = by_json_get(in, "text")->v.s;
    by_tok_mode mode = by_json_get(in, "added_tokens")->v.b ? BY_TOK_FULL : BY_TOK_PLAIN;
    by_tok_ids ids = {0};
    for (int pass = 0; pass < 4; pass++) { /* cold and warm cache, no scratch, plain merges */
        ids.n = 0;
        by_err err;
        by_status status = by_tok_encode(pass < 3 ? f->tok : f->plain, pass < 2 ? f->scratch : NULL, text, mode, &ids, &err);
        assert_int_equal(status, BY_OK);
        by_json_out o = start(f);
        by_json_out_array_begin(&o);
        for (size_t i = 0; i < ids.n; i++) by_json_out_int(&o, ids.ids[i]);
        by_json_out_array_end(&o);
        check(f, line, by_json_get(expected, "ids"));
    }
    by_tok_ids_deinit(&ids);
    f->n_encode++;
}

static void pieces_row(fixture *f, by_str line, const by_json *in, const by_json *expected) {
    by_str text = by_json_get(in, "text")->v.s;
    by_json_out o = start(f);
    by_json_out_array_begin(&o);
    for (size_t at = 0, end; at < text.len; at = end) {
        end = by_tok_next_piece(text, at);
        by_json_out_string(&o, by_str_of(text.ptr + at, end - at));
    }
    by_json_out_array_end(&o);
    check(f, line, by_json_get(expected, "pieces"));
    f->n_pieces++;
}

static void decode_row(fixture *f, by_str line, const by_json *in, const by_json *expected) {
    const by_json *list = by_json_get(in, "ids");
    int32_t *ids = calloc(list->n + 1, sizeof *ids);
    for (uint32_t i = 0; i < list->n; i++) ids[i] = (int32_t)list->v.items[i].v.i;
    by_buf text = {0};
    assert_int_equal(by_tok_decode(f->tok, ids, list->n, by_json_get(in, "skip_special")->v.b, &text, NULL), BY_OK);
    by_json_out o = start(f);
    by_json_out_string(&o, by_buf_str(&text));
    check(f, line, by_json_get(expected, "text"));
    by_buf_deinit(&text);
    free(ids);
    f->n_decode++;
}

static void stream_row(fixture *f, by_str line, const by_json *in, const by_json *expected) {
    const by_json *list = by_json_get(in, "ids");
    by_tok_stream s;
    by_buf text = {0}, piece = {0};
    by_tok_stream_init(&s, f->tok, BY_TOK_STREAM_REFERENCE, false);
    by_json_out o = start(f);
    by_json_out_array_begin(&o);
    for (uint32_t i = 0; i < list->n; i++) {
        by_buf_clear(&piece);
        assert_int_equal(by_tok_stream_push(&s, (int32_t)list->v.items[i].v.i, &piece, NULL), BY_OK);
        by_json_out_string(&o, by_buf_str(&piece));
        by_buf_push_str(&text, by_buf_str(&piece));
    }
    by_json_out_array_end(&o);
    check(f, line, by_json_get(expected, "pieces"));
    by_buf_clear(&piece);
    assert_int_equal(by_tok_stream_finish(&s, &piece, NULL), BY_OK);
    o = start(f);
    by_json_out_string(&o, by_buf_str(&piece));
    check(f, line, by_json_get(expected, "tail"));
    o = start(f);
    by_json_out_string(&o, by_buf_str(&text));
    check(f, line, by_json_get(expected, "text"));
    by_tok_stream_deinit(&s);
    by_buf_deinit(&text);
    by_buf_deinit(&piece);
    f->n_stream++;
}

static void every_row_gives_the_expected_result(void **state) {
    static const struct {
        const char *kind;
        void (*run)(fixture *, by_str, const by_json *, const by_json *);
    } kinds[] = {{"encode", encode_row}, {"pretokenize", pieces_row}, {"decode", decode_row}, {"detok_stream", stream_row}};
    fixture *f = *state;
    by_lines *lines = by_lines_open(by_golden_path("tokenizer/open.jsonl.gz"));
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_str line;
    while (by_lines_next(lines, &line)) {
        by_json row;
        by_arena_reset(&arena);
        assert_int_equal(by_json_parse(&row, &arena, line, NULL, NULL), BY_OK);
        by_str kind = by_json_get(&row, "kind")->v.s;
        size_t i = 0;
        while (i < 4 && !by_str_eqz(kind, kinds[i].kind)) i++;
        assert_true(i < 4);
        kinds[i].run(f, line, by_json_get(&row, "input"), by_json_get(&row, "expected"));
    }
    by_lines_close(lines);
    by_arena_deinit(&arena);
    assert_int_equal(f->n_encode, 3460);
    assert_int_equal(f->n_pieces, 325);
    assert_int_equal(f->n_decode, 432);
    assert_int_equal(f->n_stream, 173);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_gives_the_expected_result)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
