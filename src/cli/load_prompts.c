/* load_prompts.c - bodies of requests. Random prompts are common short words, because most tokenizers give each of them
 * one token: a prompt of n words has about n tokens, and the report shows what the server counted. Request i is a
 * function of seed and i, so two runs ask the same, in whatever order answers come. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/load.h"
#include "json/json_write.h"

static const char *const words[] = {
    "the",   "of",   "and",   "to",   "in",    "is",    "that",  "it",   "was",   "for",  "on",   "are",  "with",
    "as",    "his",  "they",  "be",   "at",    "one",   "have",  "this", "from",  "or",   "had",  "by",   "but",
    "some",  "what", "there", "we",   "can",   "out",   "other", "were", "all",   "your", "when", "up",   "use",
    "word",  "how",  "said",  "an",   "each",  "she",   "which", "do",   "their", "time", "if",   "will", "way",
    "about", "many", "then",  "them", "would", "write", "like",  "so",   "these", "her",  "long", "make"};
enum { N_WORDS = sizeof words / sizeof *words };

by_status by_load_prompts_open(by_load_prompts *p, const by_load_opts *opts, by_err *err) {
    *p = (by_load_prompts){.opts = opts};
    if (!opts->dataset) return BY_OK;
    BY_TRY(by_file_read(&p->file, opts->dataset, (size_t)1 << 31, err));
    size_t n = 0;
    for (size_t i = 0; i < p->file.len; i++) n += p->file.ptr[i] == '\n';
    p->lines = by_alloc(BY_MEM_MISC, (n + 1) * sizeof *p->lines);
    if (!p->lines) return BY_FAIL(err, BY_ENOMEM, "dataset: out of memory");
    by_str rest = by_buf_str(&p->file);
    while (rest.len) {
        const char *end = memchr(rest.ptr, '\n', rest.len);
        by_str line = {rest.ptr, end ? (size_t)(end - rest.ptr) : rest.len};
        rest = by_str_skip(rest, end ? line.len + 1 : rest.len);
        if (line.len && line.ptr[0] == '{') p->lines[p->n_lines++] = line;
    }
    if (!p->n_lines) return BY_FAIL(err, BY_EFORMAT, "%s: no line with a JSON object", opts->dataset);
    return BY_OK;
}

void by_load_prompts_close(by_load_prompts *p) {
    by_free(p->lines);
    by_buf_deinit(&p->file);
}

/* A length around n: within n (1 - ratio) .. n (1 + ratio), at least 1. */
static int64_t vary(by_rng *rng, int64_t n, double ratio) {
    double low = (double)n * (1 - ratio), high = (double)n * (1 + ratio);
    int64_t v = (int64_t)(low + (high - low) * by_rng_unit(rng) + 0.5);
    return ratio <= 0 ? n : v < 1 ? 1 : v;
}

static void write_words(by_buf *out, by_rng *rng, int64_t n, bool *first) {
    for (int64_t i = 0; i < n; i++) {
        if (!*first) by_buf_push_byte(out, ' ');
        *first = false;
        by_buf_push_z(out, words[by_rng_below(rng, N_WORDS)]);
    }
}

static void write_random(const by_load_opts *o, int64_t i, by_rng *rng, by_json_out *out) {
    bool first = true;
    if (o->chat) {
        by_json_out_key(out, "messages");
        by_json_out_raw(out, BY_STR("[{\"role\":\"user\",\"content\":\""));
    } else {
        by_json_out_key(out, "prompt");
        by_json_out_raw(out, BY_STR("\""));
    }
    by_rng prefix = {o->seed * 31 + 7 + (uint64_t)(i % o->n_prefixes)};
    write_words(out->buf, &prefix, o->prefix_len, &first);
    write_words(out->buf, rng, vary(rng, o->input_len, o->range_ratio), &first);
    by_buf_push_z(out->buf, o->chat ? "\"}]" : "\"");
}

/* {"prompt": text} or {"messages": [...]}, and optionally "output_len" or "max_tokens" for this request. */
static by_status write_line(by_load_prompts *p, int64_t i, by_json_out *out, int64_t *n_output, by_err *err) {
    by_arena arena;
    by_json row;
    size_t line = (size_t)i % p->n_lines;
    by_arena_init(&arena, BY_MEM_MISC);
    by_status status = by_json_parse(&row, &arena, p->lines[line], NULL, err);
    const by_json *prompt = NULL, *messages = NULL, *n = NULL;
    if (status == BY_OK) {
        prompt = by_json_get(&row, "prompt");
        messages = by_json_get(&row, "messages");
        n = by_json_get(&row, "output_len");
        if (!n) n = by_json_get(&row, "max_tokens");
        if (n && !by_json_int_in(n, 1, INT32_MAX, n_output))
            status = BY_FAIL(err, BY_EFORMAT, "output_len must be a whole number above 0");
        else if (!prompt && !messages) status = BY_FAIL(err, BY_EFORMAT, "neither prompt nor messages");
        else if (messages && !p->opts->chat) status = BY_FAIL(err, BY_EFORMAT, "messages need the chat endpoint");
    }
    if (status == BY_OK && messages) {
        by_json_out_key(out, "messages");
        by_json_out_value(out, messages);
    } else if (status == BY_OK && p->opts->chat) {
        by_json_out_key(out, "messages");
        by_json_out_raw(out, BY_STR("[{\"role\":\"user\",\"content\":"));
        by_json_write(out->buf, prompt, BY_JSON_COMPACT);
        by_buf_push_z(out->buf, "}]");
    } else if (status == BY_OK) {
        by_json_out_key(out, "prompt");
        by_json_out_value(out, prompt);
    } else {
        by_err_prefix(err, "%s: object %zu: ", p->opts->dataset, line + 1);
    }
    by_arena_deinit(&arena);
    return status;
}

by_status by_load_prompts_write(by_load_prompts *p, int64_t i, by_buf *buf, by_err *err) {
    const by_load_opts *o = p->opts;
    by_rng rng = {o->seed ^ ((uint64_t)i * 0x9e3779b97f4a7c15u + 1)};
    by_json_out out = by_json_out_init(buf, BY_JSON_COMPACT);
    int64_t n_output = vary(&rng, o->output_len, o->range_ratio);
    by_json_out_object_begin(&out);
    by_json_out_key(&out, "model");
    by_json_out_z(&out, o->model);
    if (o->dataset) BY_TRY(write_line(p, i, &out, &n_output, err));
    else write_random(o, i, &rng, &out);
    by_json_out_key(&out, "max_tokens");
    by_json_out_int(&out, n_output);
    if (o->temperature >= 0) {
        by_json_out_key(&out, "temperature");
        by_json_out_double(&out, o->temperature);
    }
    if (o->ignore_eos) by_json_out_raw(&out, BY_STR("\"ignore_eos\":true"));
    if (o->stream) by_json_out_raw(&out, BY_STR("\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    if (o->extra && o->extra[0]) by_json_out_raw(&out, by_str_z(o->extra));
    by_json_out_object_end(&out);
    return by_buf_check(buf, err);
}
