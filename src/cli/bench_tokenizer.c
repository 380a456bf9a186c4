/* bench_tokenizer.c - `bathyc bench tokenizer`: speed of encoding and decoding, one thread. Before it times a text it checks
 * that its ids decode to it. Compared with other programs by bench/tokenizer_bench.py. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "json/json_write.h"
#include "tok/tok.h"

enum { FILES_MAX = 256, BUILT_IN_BYTES = 1 << 20 };

typedef struct {
    const char *model, *tokenizer, *files[FILES_MAX];
    int n_files;
    int64_t doc_bytes;
    double seconds;
    bool json;
} options;

typedef struct {
    const options *o;
    by_tok *tok;
    by_tok_scratch *scratch;
    by_tok_ids ids;
    by_buf text, back;
    size_t n_docs, n_pieces;
    volatile size_t sink;
} bench;

/* ---- what is timed: one pass over the text ---- */

static by_status encode_docs(bench *b, by_err *err) {
    size_t doc = b->o->doc_bytes ? (size_t)b->o->doc_bytes : b->text.len;
    b->ids.n = b->n_docs = 0;
    for (size_t at = 0, end; at < b->text.len; at = end, b->n_docs++) {
        end = b->text.len - at > doc ? at + doc : b->text.len;
        while (end < b->text.len && ((unsigned char)b->text.ptr[end] & 0xc0) == 0x80) end++; /* between characters */
        BY_TRY(by_tok_encode(b->tok, b->scratch, by_str_of(b->text.ptr + at, end - at), BY_TOK_FULL, &b->ids, err));
    }
    return BY_OK;
}

static by_status encode_fresh(bench *b, by_err *err) {
    by_tok_scratch_destroy(b->scratch);
    b->scratch = NULL;
    BY_TRY(by_tok_scratch_create(&b->scratch, b->tok, err));
    return encode_docs(b, err);
}

static by_status split(bench *b, by_err *err) {
    (void)err;
    by_str s = by_buf_str(&b->text);
    b->n_pieces = 0;
    for (size_t at = 0; at < s.len; b->n_pieces++) at = by_tok_next_piece(s, at);
    return BY_OK;
}

static by_status decode(bench *b, by_err *err) {
    by_buf_clear(&b->back);
    return by_tok_decode(b->tok, b->ids.ids, b->ids.n, false, &b->back, err);
}

/* As a server does it: one id a step, each piece taken out at once. */
static by_status stream(bench *b, by_err *err) {
    by_tok_stream s;
    by_status status = BY_OK;
    by_tok_stream_init(&s, b->tok, BY_TOK_STREAM_LOSSLESS, false);
    for (size_t i = 0; i < b->ids.n && status == BY_OK; i++) {
        by_buf_clear(&b->back);
        status = by_tok_stream_push(&s, b->ids.ids[i], &b->back, err);
        b->sink += b->back.len;
    }
    by_tok_stream_deinit(&s);
    return status;
}

static by_status copy(bench *b, by_err *err) {
    by_buf_clear(&b->back);
    if (!by_buf_push_str(&b->back, by_buf_str(&b->text))) return BY_FAIL(err, BY_ENOMEM, "out of memory for a copy");
    b->sink += (unsigned char)b->back.ptr[b->back.len / 2];
    return BY_OK;
}

/* ---- one text ---- */

typedef struct {
    const char *name;
    by_status (*run)(bench *b, by_err *err);
    bool per_id; /* the rate counts ids, not bytes */
} way;

static const way ways[] = {
    {"encode_first", encode_fresh, false}, {"encode", encode_docs, false}, {"split", split, false},
    {"decode", decode, true},              {"stream", stream, true},       {"copy", copy, false},
};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

/* Best time of a pass within the time for it. */
static by_status measure(bench *b, const way *w, double *best, by_err *err) {
    double until = by_clock_s() + b->o->seconds;
    for (int i = 0; i < 2 || by_clock_s() < until; i++) {
        double t = by_clock_s();
        BY_TRY(w->run(b, err));
        t = by_clock_s() - t;
        if (i == 0 || t < *best) *best = t;
    }
    return BY_OK;
}

static by_status check(bench *b, by_err *err) {
    BY_TRY(encode_fresh(b, err));
    BY_TRY(decode(b, err));
    if (!by_str_eq(by_buf_str(&b->back), by_buf_str(&b->text)))
        return BY_FAIL(err, BY_EINTERNAL, "the ids do not decode to the text");
    return BY_OK;
}

static by_status run_text(bench *b, const char *name, by_err *err) {
    double rate[N_WAYS];
    if (b->text.len == 0) return BY_FAIL(err, BY_EINVAL, "the text is empty");
    BY_TRY(check(b, err));
    for (int i = 0; i < N_WAYS; i++) {
        double s = 0;
        BY_TRY(measure(b, &ways[i], &s, err));
        rate[i] = (double)(ways[i].per_id ? b->ids.n : b->text.len) / s;
    }
    if (b->o->json) {
        by_buf quoted = {0};
        by_json_write_string(&quoted, by_str_z(name));
        printf("{\"text\": %s, \"bytes\": %zu, \"documents\": %zu, \"pieces\": %zu, \"tokens\": %zu", by_buf_z(&quoted),
               b->text.len, b->n_docs, b->n_pieces, b->ids.n);
        for (int i = 0; i < N_WAYS; i++)
            printf(", \"%s_%s_per_s\": %.0f", ways[i].name, ways[i].per_id ? "tokens" : "bytes", rate[i]);
        printf("}\n");
        by_buf_deinit(&quoted);
        return BY_OK;
    }
    printf("%-24s %10zu %9zu", name, b->text.len, b->ids.n);
    for (int i = 0; i < N_WAYS; i++) printf(" %9.2f", rate[i] * 1e-6);
    printf("\n");
    return BY_OK;
}

/* Vocabulary entries at random, low ids more often, as in a language: enough to compare two builds, not two programs. */
static by_status built_in_text(bench *b, by_err *err) {
    by_rng rng = {1};
    double n = log(by_tok_n_ids(b->tok));
    for (size_t tries = 0; b->text.len < BUILT_IN_BYTES; tries++) {
        if (tries > 100 * (size_t)BUILT_IN_BYTES) return BY_FAIL(err, BY_EINVAL, "the tokenizer has no entries to write with");
        int32_t id = (int32_t)exp(by_rng_unit(&rng) * n);
        by_str s = by_tok_bytes(b->tok, id);
        if (s.len && by_utf8_valid(s, NULL) && !by_tok_is_added(b->tok, id)) by_buf_push_str(&b->text, s);
        if (b->text.failed) break;
    }
    return by_buf_check(&b->text, err);
}

static by_status run(bench *b, by_err *err) {
    const options *o = b->o;
    by_status status = BY_OK;
    if (!o->json)
        printf("%-24s %10s %9s %9s %9s %9s %9s %9s %9s\n%-24s %10s %9s %9s %9s %9s %9s %9s %9s\n", "text", "bytes", "tokens",
               "encode", "encode", "split", "decode", "stream", "copy", "", "", "", "first", "again", "", "", "", "");
    if (o->n_files == 0) {
        status = built_in_text(b, err);
        if (status == BY_OK) status = run_text(b, "(built in)", err);
    }
    for (int i = 0; i < o->n_files && status == BY_OK; i++) {
        by_buf_clear(&b->text);
        status = by_file_read(&b->text, o->files[i], BY_LIMIT_JSON_FILE_BYTES, err);
        if (status < 0) break;
        status = run_text(b, o->files[i], err);
        if (status < 0) by_err_prefix(err, "%s: ", o->files[i]);
    }
    if (status == BY_OK && !o->json)
        printf("\nMB/s of text; decode and stream (one id a step): million tokens/s. first: with new working memory, its cache\n"
               "of pieces empty. copy: memcpy of the text on this machine.\n");
    return status;
}

int by_bench_tokenizer(int argc, char **argv) {
    const by_usage usage = {"bench tokenizer", "[flags] [FILE...]",
                            "Speed of encoding and decoding text files, one thread; without files, a text of random words.\n"};
    options o = {.doc_bytes = 4096, .seconds = 0.5};
    const by_flag flags[] = {
        BY_TOKENIZER_FLAG_ROWS(o.model, o.tokenizer),
        {"--doc-bytes", BY_FLAG_INT, &o.doc_bytes, .help = "texts are encoded in documents of this size, 4096; 0 = whole",
         .min = 0, .max = BY_LIMIT_JSON_FILE_BYTES},
        {"--seconds", BY_FLAG_DOUBLE, &o.seconds, .help = "time for each number, 0.5; at least two passes", .dmax = 600},
        {"--json", BY_FLAG_BOOL, &o.json, .help = "one JSON object a text"},
    };
    int code;
    if (!by_command_begin(&usage, flags, sizeof flags / sizeof flags[0], argc, argv, o.files, FILES_MAX, &o.n_files, &code))
        return code;
    by_err err;
    bench b = {.o = &o};
    by_status status = by_command_tokenizer_open(&b.tok, o.tokenizer, o.model, &err);
    if (status == BY_OK) status = run(&b, &err);
    by_tok_scratch_destroy(b.scratch);
    by_tok_destroy(b.tok);
    by_tok_ids_deinit(&b.ids);
    by_buf_deinit(&b.text);
    by_buf_deinit(&b.back);
    return status == BY_OK ? 0 : by_command_fail(&usage, &err);
}
