/* cmd_grammar.c - `bathyc grammar check|sample|validate`: look at a grammar without a model. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "grammar/grammar_options.h"

#define GRAMMAR_FILE_MAX ((size_t)4 << 20)
#define TEXT_FILE_MAX    ((size_t)64 << 20)

typedef struct {
    const char *model, *tokenizer, *opts_json, *text;
    int kind;
    bool has_kind, is_read; /* --kind is given; the file is there */
    bool lenient, any_order;
    int whitespace, code; /* code: exit code of a failure */
    int64_t n, seed, max_bytes;
    by_grammar_vocab *vocab;
    by_grammar *g;
    by_buf source;
} options;

/* Editors end a file with a line end, which no pattern means. True where there was one. */
static bool cut_line_end(by_buf *b) {
    if (b->len == 0 || b->ptr[b->len - 1] != '\n') return false;
    b->len -= b->len > 1 && b->ptr[b->len - 2] == '\r' ? 2 : 1;
    return true;
}

/* Without --kind the end of the file's name tells. */
static int kind_of_name(const char *path) {
    static const struct { const char *end; by_grammar_kind kind; } kinds[] = {
        {".ebnf", BY_GRAMMAR_EBNF}, {".gbnf", BY_GRAMMAR_EBNF}, {".lark", BY_GRAMMAR_LARK}, {".regex", BY_GRAMMAR_REGEX}};
    const char *end = strrchr(path, '.');
    for (size_t i = 0; end && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(end, kinds[i].end) == 0) return (int)kinds[i].kind;
    return BY_GRAMMAR_JSON_SCHEMA;
}

static by_status compile(options *o, const char *path, by_grammar_error *where, by_err *err) {
    by_buf file = {0};
    by_arena a;
    by_json v;
    by_grammar_opts opts = {.whitespace = (by_grammar_ws)o->whitespace};
    by_arena_init(&a, BY_MEM_MISC);
    by_status s = by_command_tokenizer_file(&file, o->tokenizer, o->model, err);
    if (s >= 0) s = by_grammar_vocab_open(&o->vocab, by_buf_z(&file), 1, err);
    if (s >= 0 && o->opts_json) {
        s = by_json_parse(&v, &a, by_str_z(o->opts_json), NULL, err);
        if (s >= 0) s = by_grammar_options_read(&opts, &v, err);
        if (s < 0) {
            by_err_prefix(err, "--options: ");
            o->code = 2;
        }
    }
    opts.lenient |= o->lenient;
    opts.any_order |= o->any_order;
    if (s >= 0) s = by_file_read(&o->source, path, GRAMMAR_FILE_MAX, err);
    o->is_read = s >= 0;
    if (!o->has_kind) o->kind = kind_of_name(path);
    if (o->kind == BY_GRAMMAR_REGEX) cut_line_end(&o->source);
    if (s >= 0)
        s = by_grammar_compile(&o->g, o->vocab, (by_grammar_kind)o->kind, by_buf_str(&o->source), &opts, where, err);
    by_arena_deinit(&a);
    by_buf_deinit(&file);
    return s;
}

static int check(options *o, double ms) {
    by_grammar_stats st;
    by_matcher *m;
    by_err err = {0};
    uint32_t words = by_grammar_mask_words(o->vocab), n = 0, need = 0;
    uint32_t *mask = by_alloc(BY_MEM_MISC, words * 4u);
    if (!mask || by_matcher_create(&m, o->g, NULL, &err) < 0)
        return by_free(mask), fprintf(stderr, "bathyc grammar: %s\n", err.msg), 1;
    if (by_matcher_fill_mask(m, mask, &err) >= 0)
        for (uint32_t i = 0; i < words; i++)
            n += (uint32_t)__builtin_popcount(mask[i]);
    by_matcher_min_tokens(m, &need, &err);
    by_grammar_get_stats(o->g, &st);
    printf("ok: %s, compiled in %.2f ms\n", by_grammar_kind_name((by_grammar_kind)o->kind), ms);
    printf("first tokens: %u of %u; may be empty: %s; a shortest text: at most %u bytes\n", n,
           by_grammar_vocab_size(o->vocab), by_matcher_is_final(m) ? "yes" : "no", need ? need - 1 : 0);
    printf("states so far: %llu, %llu KiB\n", (unsigned long long)st.states, (unsigned long long)(st.bytes >> 10));
    const char *w = by_grammar_warnings(o->g);
    for (const char *at = w; *at;) {
        const char *nl = strchr(at, '\n');
        size_t len = nl ? (size_t)(nl - at) : strlen(at);
        printf("warning: %.*s\n", (int)len, at);
        at += len + (nl != NULL);
    }
    by_matcher_destroy(m);
    by_free(mask);
    return 0;
}

static int sample(options *o) {
    by_buf out = {0};
    by_err err = {0};
    for (int64_t i = 0; i < o->n; i++) {
        by_buf_clear(&out);
        if (by_grammar_sample(o->g, (uint64_t)(o->seed + i), (size_t)o->max_bytes, &out, &err) < 0) {
            fprintf(stderr, "bathyc grammar: %s\n", err.msg);
            by_buf_deinit(&out);
            return 1;
        }
        fwrite(out.ptr, 1, out.len, stdout);
        putchar('\n');
    }
    by_buf_deinit(&out);
    return 0;
}

static int validate(options *o, const by_usage *usage, const char *path) {
    by_buf text = {0};
    by_err err = {0};
    bool ok = false;
    size_t at = 0;
    by_status s = o->text ? (by_buf_push_z(&text, o->text) ? BY_OK : BY_ENOMEM)
                          : by_file_read(&text, path ? path : "-", TEXT_FILE_MAX, &err);
    if (s >= 0) s = by_grammar_match(o->g, by_buf_str(&text), &ok, &at, &err);
    if (s >= 0 && !ok && !o->text && cut_line_end(&text)) s = by_grammar_match(o->g, by_buf_str(&text), &ok, &at, &err);
    int code = s < 0 ? by_command_fail(usage, &err) : ok ? 0 : 1;
    if (s >= 0 && ok)
        printf("valid\n");
    else if (s >= 0 && at == text.len)
        printf("not valid: the text is not complete after %zu bytes\n", at);
    else if (s >= 0)
        printf("not valid: byte %zu (0x%02x) cannot stand there\n", at, (unsigned)(unsigned char)text.ptr[at]);
    by_buf_deinit(&text);
    return code;
}

static int run(options *o, const by_usage *usage, int verb, const char **pos) {
    by_grammar_error where = {0};
    by_err err = {0};
    int code = 1;
    int64_t from = by_clock_ns();
    by_status s = compile(o, pos[1], &where, &err);
    if (s < 0) {
        if (where.where[0] && !strstr(err.msg, where.where)) by_err_prefix(&err, "%s: ", where.where);
        if (o->is_read)
            by_err_prefix(&err, "%s, read as %s (see --kind): ", pos[1], by_grammar_kind_name((by_grammar_kind)o->kind));
        code = by_command_fail(usage, &err);
        if (o->code) code = o->code;
    } else if (verb == 0)
        code = check(o, (double)(by_clock_ns() - from) * 1e-6);
    else
        code = verb == 1 ? sample(o) : validate(o, usage, pos[2]);
    by_grammar_release(o->g);
    by_grammar_vocab_destroy(o->vocab);
    by_buf_deinit(&o->source);
    return code;
}

int by_cmd_grammar(int argc, char **argv) {
    static const by_usage usage = {"grammar", "check|sample|validate [flags] GRAMMAR_FILE [TEXT_FILE]",
                                   "check compiles a grammar and tells what it allows, or where its error is; sample "
                                   "prints random members, one a line;\n"
                                   "validate tells whether a text (a file, --text, or standard input) is a member. "
                                   "Control tokens are never text.\n"
                                   "A line end behind a pattern does not count; one behind a text only where it "
                                   "is a member.\n"};
    options o = {.n = 1, .max_bytes = 2000};
    const by_flag flags[] = {
        {.names = "--kind,-k",
         .kind = BY_FLAG_CHOICE,
         .out = &o.kind,
         .choices = "json_schema|json_object|regex|ebnf|lark|choice|structural_tag",
         .seen = &o.has_kind,
         .help = "what the file holds (by its name: .ebnf, .gbnf, .lark, .regex; else json_schema)"},
        {.names = "--whitespace",
         .kind = BY_FLAG_CHOICE,
         .out = &o.whitespace,
         .choices = "bounded|any|compact|spaced",
         .help = "between JSON tokens (bounded)"},
        {.names = "--lenient", .kind = BY_FLAG_BOOL, .out = &o.lenient, .help = "unsupported keywords become warnings"},
        {.names = "--any-order", .kind = BY_FLAG_BOOL, .out = &o.any_order, .help = "object members in any order"},
        {.names = "--options",
         .kind = BY_FLAG_STRING,
         .out = &o.opts_json,
         .help = "more options as JSON, as in grammar-bench"},
        {.names = "--n,-n", .kind = BY_FLAG_INT, .out = &o.n, .min = 1, .max = 1000000, .help = "sample: how many (1)"},
        {.names = "--seed",
         .kind = BY_FLAG_INT,
         .out = &o.seed,
         .min = 0,
         .max = INT64_MAX / 2,
         .help = "sample: seed of the first (0)"},
        {.names = "--max-bytes",
         .kind = BY_FLAG_INT,
         .out = &o.max_bytes,
         .min = 1,
         .max = 1 << 24,
         .help = "sample: where long texts turn to their end (2000)"},
        {.names = "--text", .kind = BY_FLAG_STRING, .out = &o.text, .help = "validate: the text itself"},
        BY_TOKENIZER_FLAG_ROWS(o.model, o.tokenizer),
    };
    enum { N_FLAGS = sizeof flags / sizeof flags[0] };
    const char *pos[3] = {NULL};
    int n_pos = 0, code;
    if (!by_command_begin(&usage, flags, N_FLAGS, argc, argv, pos, 3, &n_pos, &code)) return code;
    static const char *const verbs[] = {"check", "sample", "validate"};
    int verb = 0;
    while (verb < 3 && (n_pos == 0 || strcmp(pos[0], verbs[verb]) != 0))
        verb++;
    if (verb == 3 || n_pos < 2 || (n_pos == 3 && verb != 2)) {
        fprintf(stderr, "bathyc grammar: expects check, sample or validate and a grammar's file\n");
        return 2;
    }
    if (o.text && (verb != 2 || pos[2]))
        return fprintf(stderr, "bathyc grammar: --text is a text to validate, in place of a file\n"), 2;
    code = run(&o, &usage, verb, pos);
    by_args_free(flags, N_FLAGS);
    return code;
}
