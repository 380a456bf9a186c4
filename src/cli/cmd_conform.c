/* cmd_conform.c - `bathyc conform`: answers rows of test vectors, one line out per line in, flushed each, so that a test
 * harness may also talk to it row by row. */
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/conform.h"
#include "recipe/recipe_tok.h"

struct by_conform {
    const char *path;
    by_tok *tok[2]; /* as it is; V4.1 */
    by_tok_scratch *scratch[2];
};

static const by_conform_kind *const tables[] = {by_conform_tok_kinds, by_conform_parse_kinds, by_conform_recipe_kinds,
                                                by_conform_convert_kinds, by_conform_stream_kinds};

/* ---- context ---- */

by_status by_conform_tok(by_conform *c, bool v41, const by_tok **tok, by_tok_scratch **scratch, by_err *err) {
    if (!c->tok[v41]) BY_TRY(v41 ? by_recipe_tok_open(&c->tok[1], c->path, err) : by_tok_open(&c->tok[0], c->path, NULL, err));
    if (!c->scratch[v41]) BY_TRY(by_tok_scratch_create(&c->scratch[v41], c->tok[v41], err));
    *tok = c->tok[v41];
    *scratch = c->scratch[v41];
    return BY_OK;
}

static void close_context(by_conform *c) {
    for (int i = 0; i < 2; i++) {
        by_tok_scratch_destroy(c->scratch[i]);
        by_tok_destroy(c->tok[i]);
    }
}

by_status by_conform_field(const by_json *input, const char *key, by_json_type type, const by_json **out, by_err *err) {
    *out = by_json_get(input, key);
    if (by_json_is(*out, type)) return BY_OK;
    return BY_FAIL(err, BY_EFORMAT, "input.%s: want %s", key, by_json_type_name(type));
}

/* ---- rows ---- */

static const by_conform_kind *find_kind(by_str kind) {
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++)
        for (const by_conform_kind *k = tables[t]; k->kind; k++)
            if (by_str_eqz(kind, k->kind)) return k;
    return NULL;
}

static by_status run_row(by_conform *c, by_str line, by_arena *arena, by_buf *result, by_json *kind, by_err *err) {
    by_json row;
    BY_TRY(by_json_parse(&row, arena, line, NULL, err));
    const by_json *k = by_json_get(&row, "kind"), *input = by_json_get(&row, "input");
    if (!by_json_is(k, BY_JSON_STRING)) return BY_FAIL(err, BY_EFORMAT, "the row has no kind");
    const by_conform_kind *found = find_kind(k->v.s);
    if (!found) return BY_FAIL(err, BY_EUNSUPPORTED, "unknown kind '%.*s'", BY_STR_ARG(k->v.s));
    *kind = *k;
    if (!input) return BY_FAIL(err, BY_EFORMAT, "the row has no input");
    by_json_out o = by_json_out_init(result, BY_JSON_PYTHON);
    return found->run(c, &row, input, &o, err);
}

/* False: the line was broken. A kind that is not known here is no such line. */
static bool answer_row(by_conform *c, by_str line, by_arena *arena, by_buf *result, by_buf *out) {
    by_json kind = {.type = BY_JSON_NULL};
    by_err err;
    by_buf_clear(result);
    by_buf_clear(out);
    by_arena_reset(arena);
    by_status status = run_row(c, line, arena, result, &kind, &err);
    if (status == BY_OK) status = by_buf_check(result, &err);
    by_json_out o = by_json_out_init(out, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    if (kind.type == BY_JSON_STRING) {
        by_json_out_key(&o, "kind");
        by_json_out_value(&o, &kind);
    }
    by_json_out_key(&o, status == BY_OK ? "result" : "error");
    if (status == BY_OK) by_json_out_raw(&o, by_buf_str(result));
    else by_json_out_z(&o, err.msg);
    by_json_out_object_end(&o);
    by_buf_push_byte(out, '\n');
    return status == BY_OK || status == BY_EUNSUPPORTED;
}

static by_status run_rows(by_conform *c, by_line_reader *in, by_output *to, size_t *n_broken, by_err *err) {
    by_arena arena;
    by_buf result = {0}, out = {0};
    by_arena_init(&arena, BY_MEM_JSON);
    by_str line;
    by_status status;
    while ((status = by_line_reader_next(in, &line, err)) == BY_OK) {
        if (line.len == 0) continue;
        if (!answer_row(c, line, &arena, &result, &out)) ++*n_broken;
        status = by_output_write(to, &out, err);
        if (status < 0) break;
    }
    by_arena_deinit(&arena);
    by_buf_deinit(&result);
    by_buf_deinit(&out);
    return status == BY_END ? BY_OK : status;
}

int by_cmd_conform(int argc, char **argv) {
    const by_usage usage = {"conform", "[flags]",
                            "Reads rows {\"kind\", \"input\"} and writes {\"kind\", \"result\"} for each, or {\"kind\", \"error\"}.\n"
                            "Exits 1 when a line was broken.\n"};
    const char *model = NULL, *tokenizer = NULL, *input = "-", *output = "-";
    const by_flag flags[] = {
        BY_TOKENIZER_FLAG_ROWS(model, tokenizer),
        {"--input,-i", BY_FLAG_STRING, &input, .help = "rows, - for standard input"},
        {"--output,-o", BY_FLAG_STRING, &output, .help = "answers, - for standard output"},
    };
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, NULL, 0, NULL, &code)) return code;
    by_err err;
    by_buf path = {0};
    by_conform c = {0};
    by_line_reader in = {.fd = -1};
    size_t n_broken = 0;
    by_output to;
    by_status status = by_output_open(&to, output, &err);
    if (status == BY_OK) status = by_command_tokenizer_file(&path, tokenizer, model, &err);
    c.path = by_buf_z(&path);
    if (status == BY_OK) status = by_line_reader_open(&in, input, &err);
    if (status == BY_OK) status = run_rows(&c, &in, &to, &n_broken, &err);
    by_line_reader_close(&in);
    close_context(&c);
    by_buf_deinit(&path);
    status = by_output_close(&to, status, &err);
    return status == BY_OK ? n_broken > 0 : by_command_fail(&usage, &err);
}
