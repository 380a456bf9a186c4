/* cmd_grammar_bench.c - `bathyc grammar-bench`: JSON lines in, JSON lines out, one thread; the protocol by which
 * grammar engines are compared (docs/grammar.md). Times are in microseconds; the mask is complete in memory when its
 * clock stops. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "grammar/grammar_options.h"

#define EOS        1u
#define FIRST_TEXT 3u      /* hashed ids: ordinary tokens ... */
#define LAST_TEXT  127999u /* ... of the published tokenizer */

typedef struct {
    by_grammar_vocab *vocab;
    uint32_t *mask, *other;
    uint32_t n_words;
    by_buf out;
    by_buf passes;
    bool broken; /* a line was no request */
} bench;

/* Wall time, or with --cpu-time this thread's processor time, which a busy machine does not disturb. */
static clockid_t bench_clock = CLOCK_MONOTONIC;

static int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(bench_clock, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
static double us(int64_t from_ns) {
    return (double)(now_ns() - from_ns) * 1e-3;
}

static void push_times(by_buf *b, const char *name, const double *v, size_t n) {
    by_buf_printf(b, "\"%s\":[", name);
    for (size_t i = 0; i < n; i++)
        by_buf_printf(b, i ? ",%.1f" : "%.1f", v[i]);
    by_buf_push_byte(b, ']');
}

static void push_hash(bench *b, by_buf *out, bool first) {
    static const uint32_t left_out[] = {224, 21877, 88498};
    uint64_t h = 14695981039346656037u;
    uint32_t n = 0, n_bytes = (by_grammar_vocab_size(b->vocab) + 7) / 8;
    memcpy(b->other, b->mask, b->n_words * 4);
    for (uint32_t id = 0; id < by_grammar_vocab_size(b->vocab); id++)
        if (id < FIRST_TEXT || id > LAST_TEXT) b->other[id >> 5] &= ~(1u << (id & 31));
    for (unsigned i = 0; i < 3; i++)
        if (left_out[i] < by_grammar_vocab_size(b->vocab)) b->other[left_out[i] >> 5] &= ~(1u << (left_out[i] & 31));
    for (uint32_t i = 0; i < n_bytes; i++) {
        uint8_t x = (uint8_t)(b->other[i >> 2] >> 8 * (i & 3));
        n += (uint32_t)__builtin_popcount(x);
        h = (h ^ x) * 1099511628211u;
    }
    by_buf_printf(out, "%s[\"%016llx\",%u,%u]", first ? "" : ",", (unsigned long long)h, n,
                  b->mask[EOS >> 5] >> (EOS & 31) & 1);
}

typedef struct {
    const uint32_t *ids;
    size_t n;
    double *mask_us, *accept_us, *spec_us;
    bool hash, cold;
    uint32_t spec;
} test;

/* One pass of one test; appends its object to b->passes and sets *reject_at. */
static by_status run_pass(bench *b, by_grammar *g, const test *t, double *first_mask_us, int64_t *reject_at,
                          by_err *err) {
    by_matcher *m;
    by_buf hashes = {0};
    size_t n_masks = 0, n_accepts = 0, n_spec = 0;
    by_status s = by_matcher_create(&m, g, NULL, err);
    if (s < 0) return s;
    *reject_at = -1;
    for (size_t k = 0; k <= t->n && s >= 0; k++) {
        int64_t from = now_ns();
        s = by_matcher_fill_mask(m, b->mask, err);
        t->mask_us[n_masks++] = us(from);
        if (k == 0) *first_mask_us = t->mask_us[0];
        if (t->hash) push_hash(b, &hashes, k == 0);
        uint32_t id = k < t->n ? t->ids[k] : EOS;
        bool ok = id < by_grammar_vocab_size(b->vocab) && b->mask[id >> 5] >> (id & 31) & 1;
        if (s >= 0 && !ok) *reject_at = (int64_t)k;
        if (s < 0 || !ok || k == t->n) break;
        if (t->spec && !t->cold && k % 8 == 0) {
            size_t took = 0;
            from = now_ns();
            while (took < t->spec && k + took < t->n && by_matcher_accept(m, t->ids[k + took], err) == BY_OK)
                took++;
            by_matcher_rollback(m, took, err);
            t->spec_us[n_spec++] = us(from);
        }
        from = now_ns();
        s = by_matcher_accept(m, id, err);
        t->accept_us[n_accepts++] = us(from);
        if (s == BY_NOT_FOUND) s = BY_FAIL(err, BY_EINTERNAL, "token %u is in the mask but was refused", id);
    }
    by_matcher_destroy(m);
    by_buf *o = &b->passes;
    by_buf_printf(o, "{\"reject_at\":%lld,", (long long)*reject_at);
    push_times(o, "mask_us", t->mask_us, n_masks);
    by_buf_push_byte(o, ',');
    push_times(o, "accept_us", t->accept_us, n_accepts);
    by_buf_push_byte(o, ',');
    push_times(o, "spec_us", t->spec_us, n_spec);
    if (t->hash) by_buf_printf(o, ",\"hash\":[%.*s]", (int)hashes.len, hashes.ptr ? hashes.ptr : "");
    by_buf_push_byte(o, '}');
    by_buf_deinit(&hashes);
    return s;
}

static void push_error(by_buf *o, const by_json *id, const by_err *err, const char *where) {
    by_json code = {.type = BY_JSON_STRING, .v.s = by_str_z(by_status_name(err->code))};
    by_json text = {.type = BY_JSON_STRING, .v.s = by_str_z(err->msg)};
    by_json place = {.type = BY_JSON_STRING, .v.s = by_str_z(where)};
    by_buf_push_z(o, "{\"id\":");
    by_grammar_write_json(o, id);
    by_buf_push_z(o, ",\"ok\":false,\"error\":{\"code\":");
    by_grammar_write_json(o, &code);
    by_buf_push_z(o, ",\"message\":");
    by_grammar_write_json(o, &text);
    by_buf_push_z(o, ",\"where\":");
    by_grammar_write_json(o, &place);
    by_buf_push_z(o, "}}\n");
}

static by_status read_ids(const by_json *tokens, by_arena *a, test *t, by_err *err) {
    if (!by_json_is(tokens, BY_JSON_ARRAY)) return BY_FAIL(err, BY_EINVAL, "tests[].tokens: a list of ids is expected");
    uint32_t *ids = by_arena_alloc(a, (tokens->n + 1u) * sizeof *ids);
    t->mask_us = by_arena_zero(a, (tokens->n + 1u) * sizeof(double));
    t->accept_us = by_arena_zero(a, (tokens->n + 1u) * sizeof(double));
    t->spec_us = by_arena_zero(a, (tokens->n + 1u) * sizeof(double));
    if (!ids || !t->mask_us || !t->accept_us || !t->spec_us) return BY_FAIL(err, BY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < tokens->n; i++) {
        int64_t id;
        if (!by_json_int_in(&tokens->v.items[i], 0, UINT32_MAX, &id))
            return BY_FAIL(err, BY_EINVAL, "tests[].tokens[%u]: a token id is expected", i);
        ids[i] = (uint32_t)id;
    }
    t->ids = ids;
    t->n = tokens->n;
    return BY_OK;
}

static by_status run_tests(bench *b, by_grammar *g, const by_json *req, by_arena *a, double *first_mask_us,
                           by_buf *results, by_err *err) {
    const by_json *tests = by_json_get(req, "tests"), *hash = by_json_get(req, "hash");
    int64_t repeat = 2, spec = 0;
    by_json_int_in(by_json_get(req, "repeat"), 1, 1000, &repeat);
    by_json_int_in(by_json_get(req, "spec"), 0, 64, &spec);
    for (uint32_t i = 0; by_json_is(tests, BY_JSON_ARRAY) && i < tests->n; i++) {
        test t = {.hash = by_json_is(hash, BY_JSON_STRING) && by_str_eqz(hash->v.s, "fnv"), .spec = (uint32_t)spec};
        BY_TRY(read_ids(by_json_get(&tests->v.items[i], "tokens"), a, &t, err));
        bool accepted = true;
        by_buf_clear(&b->passes);
        for (int64_t k = 0; k < repeat; k++) {
            int64_t reject;
            double first;
            if (k) by_buf_push_byte(&b->passes, ',');
            t.cold = k == 0;
            BY_TRY(run_pass(b, g, &t, &first, &reject, err));
            if (i == 0 && k == 0) *first_mask_us = first;
            accepted &= reject == -1;
        }
        by_buf_printf(results, "%s{\"accepted\":%s,\"passes\":[", i ? "," : "", accepted ? "true" : "false");
        by_buf_push_str(results, by_buf_str(&b->passes));
        by_buf_push_z(results, "]}");
    }
    return BY_OK;
}

static void run_case(bench *b, const by_json *req, by_arena *a) {
    const by_json null = {.type = BY_JSON_NULL}, *id = by_json_get(req, "id"), *kind = by_json_get(req, "kind"),
                  *grammar = by_json_get(req, "grammar");
    by_grammar_opts opts = {.whitespace = BY_GRAMMAR_WS_ANY, .empty_ok = true}; /* "no value" is a verdict like others */
    by_grammar_error where = {0};
    by_err err = {0};
    by_buf text = {0}, results = {0};
    by_grammar *g = NULL;
    by_grammar_kind k;
    double compile_us = 0, first_us = 0;
    if (!id) id = &null;
    by_status s = by_grammar_options_read(&opts, by_json_get(req, "options"), &err);
    if (s >= 0 && (!by_json_is(kind, BY_JSON_STRING) || !by_grammar_kind_parse(&k, kind->v.s)))
        s = BY_FAIL(&err, BY_EINVAL, "kind: unknown");
    if (s >= 0) {
        if (by_json_is(grammar, BY_JSON_STRING) && k != BY_GRAMMAR_CHOICE)
            by_buf_push_str(&text, grammar->v.s);
        else if (grammar)
            by_grammar_write_json(&text, grammar);
        else if (k != BY_GRAMMAR_JSON_OBJECT)
            s = BY_FAIL(&err, BY_EINVAL, "grammar: missing");
    }
    if (s >= 0) {
        int64_t from = now_ns();
        s = by_grammar_compile(&g, b->vocab, k, by_buf_str(&text), &opts, &where, &err);
        compile_us = us(from);
    }
    if (s >= 0) s = run_tests(b, g, req, a, &first_us, &results, &err);
    if (s < 0)
        push_error(&b->out, id, &err, where.where);
    else {
        by_buf_push_z(&b->out, "{\"id\":");
        by_grammar_write_json(&b->out, id);
        by_buf_printf(&b->out, ",\"ok\":true,\"compile_us\":%.1f,\"ttfm_us\":%.1f,\"results\":[", compile_us,
                      compile_us + first_us);
        by_buf_push_str(&b->out, by_buf_str(&results));
        by_buf_push_z(&b->out, "]}\n");
    }
    by_grammar_release(g);
    by_buf_deinit(&text);
    by_buf_deinit(&results);
}

/* False when the session ends. */
static bool answer(bench *b, by_str line, by_arena *a) {
    by_json req;
    by_err err = {0};
    const by_json null = {.type = BY_JSON_NULL};
    by_json_opts o = {.depth_max = 1000};
    if (by_json_parse(&req, a, line, &o, &err) < 0) {
        push_error(&b->out, &null, &err, "");
        b->broken = true;
        return true;
    }
    const by_json *op = by_json_get(&req, "op");
    by_str name = by_json_is(op, BY_JSON_STRING) ? op->v.s : (by_str){0};
    if (by_str_eqz(name, "quit")) return false;
    if (by_str_eqz(name, "case"))
        run_case(b, &req, a);
    else if (by_str_eqz(name, "stats")) {
        struct rusage ru;
        getrusage(RUSAGE_SELF, &ru);
        by_buf_printf(&b->out, "{\"op\":\"stats\",\"maxrss_kb\":%ld}\n", ru.ru_maxrss);
    } else {
        BY_FAIL(&err, BY_EINVAL, "op: case, stats or quit is expected");
        push_error(&b->out, &null, &err, "");
        b->broken = true;
    }
    return true;
}

static double floor_us(bench *b) {
    by_grammar *g;
    by_matcher *m;
    double best = 1e9;
    if (by_grammar_compile(&g, b->vocab, BY_GRAMMAR_REGEX, BY_STR("a"), NULL, NULL, NULL) < 0) return 0;
    if (by_matcher_create(&m, g, NULL, NULL) >= 0) {
        for (int i = 0; i < 100; i++) {
            int64_t from = now_ns();
            by_matcher_fill_mask(m, b->mask, NULL);
            double t = us(from);
            if (t < best) best = t;
        }
        by_matcher_destroy(m);
    }
    by_grammar_release(g);
    return best;
}

static by_status serve(bench *b, const char *tokenizer, by_err *err) {
    by_line_reader in;
    by_str line;
    by_arena a;
    int64_t from = now_ns();
    BY_TRY(by_grammar_vocab_open(&b->vocab, tokenizer, EOS, err));
    b->n_words = by_grammar_mask_words(b->vocab);
    b->mask = by_alloc(BY_MEM_MISC, b->n_words * 4u);
    b->other = by_alloc(BY_MEM_MISC, b->n_words * 4u);
    if (!b->mask || !b->other) return BY_FAIL(err, BY_ENOMEM, "out of memory");
    double init_ms = us(from) * 1e-3;
    printf("{\"op\":\"ready\",\"engine\":\"bathyc\",\"version\":\"%s\",\"vocab_size\":%u,\"init_ms\":%.1f,\"floor_us\":"
           "%.2f}\n",
           BATHYC_VERSION, by_grammar_vocab_size(b->vocab), init_ms, floor_us(b));
    fflush(stdout);
    BY_TRY(by_line_reader_open(&in, "-", err));
    by_arena_init(&a, BY_MEM_MISC);
    by_status s;
    while ((s = by_line_reader_next(&in, &line, err)) == BY_OK) {
        by_buf_clear(&b->out);
        by_arena_reset(&a);
        if (line.len == 0) continue;
        if (!answer(b, line, &a)) break;
        fwrite(b->out.ptr, 1, b->out.len, stdout);
        fflush(stdout);
    }
    by_arena_deinit(&a);
    by_line_reader_close(&in);
    return s;
}

int by_cmd_grammar_bench(int argc, char **argv) {
    static const by_usage usage = {"grammar-bench", "[flags]",
                                   "Reads requests as JSON lines on standard input and answers each with one line.\n"
                                   "Exits 1 when a line was no request.\n"};
    const char *tokenizer = NULL, *model = NULL;
    bool cpu_time = false;
    const by_flag flags[] = {
        {.names = "--cpu-time",
         .kind = BY_FLAG_BOOL,
         .out = &cpu_time,
         .help = "times are processor time of the one thread, not wall time"},
        BY_TOKENIZER_FLAG_ROWS(model, tokenizer),
    };
    int code;
    if (!by_command_begin(&usage, flags, 3, argc, argv, NULL, 0, NULL, &code)) return code;
    if (cpu_time) bench_clock = CLOCK_THREAD_CPUTIME_ID;
    bench b = {0};
    by_buf file = {0};
    by_err err = {0};
    by_status s = by_command_tokenizer_file(&file, tokenizer, model, &err);
    if (s >= 0) s = serve(&b, by_buf_z(&file), &err);
    code = s < 0 ? by_command_fail(&usage, &err) : b.broken;
    by_grammar_vocab_destroy(b.vocab);
    by_free(b.mask);
    by_free(b.other);
    by_buf_deinit(&b.out);
    by_buf_deinit(&b.passes);
    by_buf_deinit(&file);
    by_args_free(flags, 3);
    return code;
}
