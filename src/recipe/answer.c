/* answer.c - see answer.h.
 *
 * Token path: ids -> `text` (bytes that wait) -> a piece for the parser when the text is whole. Log probabilities are
 * written as JSON when their id arrives and wait beside the text; a piece gets a tag, and a delta with that tag finds them
 * in `kept`. Pieces leave the parser in order, so whatever stands before the tag asked for is no longer needed. */
#include "recipe/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "json/json_write.h"
#include "recipe/logprob_json.h"
#include "recipe/specials.h"

typedef struct kept_logprobs {
    uint64_t tag;
    size_t off, len; /* in lp_kept */
} kept_logprobs;

struct by_answer {
    by_answer_sink sink;
    by_parser *parser;
    const by_tok *tok;
    by_tok_scratch *scratch;
    bool server, each_token, thinking, has_stage, has_calls_markup, saw_reasoning;
    bool begun, finished, closed, failed, cut;
    by_answer_usage usage;
    uint64_t rng;
    by_str *stops; /* copies, for the end */
    size_t n_stops;
    by_arena arena;

    int32_t thinking_end_id, dsml_id;
    int32_t shown_ids[8]; /* added tokens that stay visible: marks of places in pictures */
    int32_t *end_ids;
    size_t n_end_ids;

    by_buf text;      /* bytes of ids that wait */
    uint64_t n_ids;   /* that wait with it */
    by_buf lossy;     /* text, repaired */
    by_buf lp;        /* log probabilities of the ids that wait */
    bool lp_missing;  /* one of them has none */
    by_buf lp_kept;
    kept_logprobs *kept; /* [kept_at, kept_end) */
    size_t kept_at, kept_end, kept_cap;
    uint64_t tag, tag_shown; /* the last one given, and the last one whose log probabilities went out */
    by_buf reasoning; /* parity: to be counted at the end */
    by_buf call_id;
};

/* ---- deltas on their way to the sink ---- */

/* A piece may become several deltas. The original repeats its log probabilities with each of them; the server shows a token
 * once. */
static bool find_logprobs(by_answer *a, uint64_t tag, by_str *json) {
    if (a->server && tag == a->tag_shown) return false;
    a->tag_shown = tag;
    while (a->kept_at < a->kept_end && a->kept[a->kept_at].tag < tag) a->kept_at++;
    if (a->kept_at == a->kept_end || a->kept[a->kept_at].tag != tag) return false;
    *json = by_str_of(a->lp_kept.ptr + a->kept[a->kept_at].off, a->kept[a->kept_at].len);
    return true;
}

static void on_delta(void *ctx, const by_delta *d) {
    by_answer *a = ctx;
    by_answer_delta out = {.d = *d};
    if (d->kind == BY_DELTA_CALL) {
        by_buf_clear(&a->call_id);
        by_answer_call_id(&a->call_id, d->call, a->thinking && !a->saw_reasoning, &a->rng);
        a->failed |= a->call_id.failed;
        out.call_id = by_buf_str(&a->call_id);
    } else if (d->kind != BY_DELTA_ARGS && d->tag) {
        out.has_logprobs = find_logprobs(a, d->tag, &out.logprobs);
    }
    if (d->kind == BY_DELTA_REASONING) a->saw_reasoning = true;
    if (d->kind == BY_DELTA_REASONING && a->tok && a->has_stage && !a->server)
        a->failed |= !by_buf_push_str(&a->reasoning, d->text);
    a->sink.delta(a->sink.ctx, &out);
}

void by_answer_call_id(by_buf *out, uint32_t index, bool no_reasoning, uint64_t *state) {
    static const char signs[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    by_rng rng = {*state};
    char random[25];
    for (int i = 0; i < 20; i++) random[i] = signs[by_rng_below(&rng, sizeof signs - 1)];
    for (int i = 20; i < 24; i++) random[i] = (char)('0' + by_rng_below(&rng, 10));
    *state = rng.state;
    char text[64];
    int n = snprintf(text, sizeof text, "call_%02" PRIu32 "_%s%.24s", index, no_reasoning ? "ET_" : "", random);
    by_buf_push(out, text, (size_t)n);
}

/* ---- construction ---- */

static by_status copy_lists(by_answer *a, const by_answer_opts *opts, by_err *err) {
    size_t n = opts->parser.n_stops;
    a->stops = by_arena_alloc(&a->arena, by_mul_size(n, sizeof *a->stops));
    a->end_ids = by_arena_alloc(&a->arena, by_mul_size(opts->n_end_ids, sizeof *a->end_ids));
    if (!a->stops || !a->end_ids) return BY_FAIL(err, BY_ENOMEM, "out of memory for an answer");
    for (size_t i = 0; i < n; i++) {
        a->stops[i] = by_arena_dup(&a->arena, opts->parser.stops[i]);
        if (!a->stops[i].ptr) return BY_FAIL(err, BY_ENOMEM, "out of memory for an answer");
    }
    a->n_stops = n;
    if (opts->n_end_ids) memcpy(a->end_ids, opts->end_ids, opts->n_end_ids * sizeof *a->end_ids);
    a->n_end_ids = opts->n_end_ids;
    return BY_OK;
}

static void find_ids(by_answer *a, const by_parser_opts *p) {
    const by_recipe_specials *s = by_recipe_specials_default();
    by_str end = p->thinking_end.len ? p->thinking_end : s->text[BY_SPECIAL_THINKING_END];
    a->thinking_end_id = by_tok_find_added(a->tok, end);
    a->dsml_id = by_tok_find_added(a->tok, p->dsml.len ? p->dsml : s->text[BY_SPECIAL_DSML]);
    _Static_assert(BY_SPECIAL_POLYGON_END - BY_SPECIAL_REF + 1 == 8, "the marks of places");
    for (int i = 0; i < 8; i++) a->shown_ids[i] = by_tok_find_added(a->tok, s->text[BY_SPECIAL_REF + i]);
}

by_status by_answer_create(by_answer **out, const by_answer_opts *opts, const by_answer_sink *sink, by_err *err) {
    by_answer *a = by_alloc_zero(BY_MEM_REQUEST, sizeof *a);
    if (!a) return BY_FAIL(err, BY_ENOMEM, "out of memory for an answer");
    by_arena_init(&a->arena, BY_MEM_REQUEST);
    a->sink = *sink;
    a->tok = opts->tok;
    a->scratch = opts->scratch;
    a->server = opts->server;
    a->each_token = opts->each_token;
    a->thinking = opts->thinking;
    a->has_stage = opts->parser.stage != BY_STAGE_NONE;
    a->has_calls_markup = opts->parser.parse_calls || opts->parser.starts_in_calls;
    a->rng = opts->call_id_seed;
    a->usage.counts_reasoning = a->has_stage && (a->server || a->tok);
    if (a->tok) find_ids(a, &opts->parser);
    by_status status = copy_lists(a, opts, err);
    if (status == BY_OK) status = by_parser_create(&a->parser, &opts->parser, on_delta, a, err);
    if (status == BY_OK) *out = a;
    else by_answer_destroy(a);
    return status;
}

void by_answer_destroy(by_answer *a) {
    if (!a) return;
    by_parser_destroy(a->parser);
    by_arena_deinit(&a->arena);
    by_buf_deinit(&a->text);
    by_buf_deinit(&a->lossy);
    by_buf_deinit(&a->lp);
    by_buf_deinit(&a->lp_kept);
    by_buf_deinit(&a->reasoning);
    by_buf_deinit(&a->call_id);
    by_free(a->kept);
    by_free(a);
}

bool by_answer_finished(const by_answer *a) { return a->finished && !a->closed; }
by_answer_usage by_answer_usage_now(const by_answer *a) { return a->usage; }
void by_answer_close(by_answer *a) { a->closed = true; }

/* ---- life ---- */

static by_status check_open(const by_answer *a, by_err *err) {
    if (a->closed) return BY_FAIL(err, BY_EINVAL, "stream processor is closed");
    if (a->finished) return BY_FAIL(err, BY_EINVAL, "stream processor has finished");
    return BY_OK;
}

static by_status close_on(by_answer *a, by_status status, by_err *err) {
    if (status == BY_OK && a->failed) status = BY_FAIL(err, BY_ENOMEM, "out of memory in an answer");
    if (status != BY_OK) a->closed = true;
    return status;
}

static void begin(by_answer *a, const by_str *fingerprint) {
    if (a->begun) return;
    a->begun = true;
    by_answer_begin b = {.usage = a->usage, .has_fingerprint = fingerprint != NULL};
    if (fingerprint) b.fingerprint = *fingerprint;
    a->sink.begin(a->sink.ctx, &b);
}

static by_status count_reasoning(by_answer *a, by_err *err) {
    if (!a->usage.counts_reasoning || a->server || a->reasoning.len == 0) return BY_OK;
    by_tok_ids ids = {0};
    by_status status = by_tok_encode(a->tok, a->scratch, by_buf_str(&a->reasoning), BY_TOK_FULL, &ids, err);
    a->usage.reasoning_tokens = ids.n;
    by_tok_ids_deinit(&ids);
    return status;
}

static by_status end(by_answer *a, by_answer_end_kind kind, by_err *err) {
    BY_TRY(count_reasoning(a, err));
    by_answer_end e = {.kind = kind, .usage = a->usage};
    if (kind == BY_END_STOP_STRING) e.stop = a->stops[by_parser_stop_index(a->parser)];
    a->finished = true;
    a->sink.end(a->sink.ctx, &e);
    return BY_OK;
}

/* How the text has ended by itself. */
static by_answer_end_kind own_end(const by_answer *a) {
    return by_parser_stop_index(a->parser) >= 0 ? BY_END_STOP_STRING : BY_END_CALLS;
}

/* After every push: a stop string ends the answer at once, and so does a call too many. */
static by_status after_push(by_answer *a, by_err *err) { return by_parser_ended(a->parser) ? end(a, own_end(a), err) : BY_OK; }

by_status by_answer_ready(by_answer *a, uint64_t prompt_tokens, uint64_t cached_tokens, const by_str *fingerprint,
                          by_err *err) {
    BY_TRY(check_open(a, err));
    if (a->begun) return BY_OK;
    a->usage.prompt_tokens = prompt_tokens;
    a->usage.cached_tokens = cached_tokens;
    begin(a, fingerprint);
    return BY_OK;
}

by_status by_answer_text(by_answer *a, by_str text, uint64_t n_tokens, by_err *err) {
    BY_TRY(check_open(a, err));
    begin(a, NULL);
    a->usage.completion_tokens += n_tokens;
    if (a->server && by_parser_in_reasoning(a->parser)) a->usage.reasoning_tokens += n_tokens;
    by_status status = by_parser_push(a->parser, text, err);
    if (status == BY_OK) status = after_push(a, err);
    return close_on(a, status, err);
}

/* ---- tokens ---- */

/* Moves the waiting log probabilities to `kept` under a new tag; 0 when there are none. */
static uint64_t keep_logprobs(by_answer *a) {
    if (a->lp_missing || a->lp.len == 0) return 0;
    if (!by_parser_waits(a->parser)) {
        a->kept_at = a->kept_end = 0;
        by_buf_clear(&a->lp_kept);
    }
    if (a->kept_end == a->kept_cap) {
        size_t cap = a->kept_cap ? 2 * a->kept_cap : 16;
        kept_logprobs *more = by_realloc(BY_MEM_REQUEST, a->kept, by_mul_size(cap, sizeof *more));
        if (!more) {
            a->failed = true;
            return 0;
        }
        a->kept = more;
        a->kept_cap = cap;
    }
    size_t off = a->lp_kept.len;
    if (!by_buf_push_str(&a->lp_kept, by_buf_str(&a->lp))) { /* nothing was stored that a delta could show */
        a->failed = true;
        return 0;
    }
    a->kept[a->kept_end++] = (kept_logprobs){++a->tag, off, a->lp.len};
    return a->tag;
}

/* One whole piece for the parser, with all ids that wait. */
static by_status push_piece(by_answer *a, by_str text, by_text_class text_class, by_err *err) {
    begin(a, NULL);
    if (!a->server) a->usage.completion_tokens += a->n_ids;
    uint64_t tag = keep_logprobs(a);
    a->n_ids = 0;
    a->lp_missing = false;
    by_buf_clear(&a->lp);
    return by_parser_push_text(a->parser, text, text_class, tag, err);
}

/* Parity: the waiting text, if it is whole or has to be. */
static by_status flush_parity(by_answer *a, bool force, by_err *err) {
    by_str text = by_buf_str(&a->text);
    if (text.len == 0) return BY_OK;
    if (!by_utf8_valid(text, NULL)) {
        by_buf_clear(&a->lossy);
        if (!by_utf8_push_lossy(&a->lossy, text)) return BY_FAIL(err, BY_ENOMEM, "out of memory in an answer");
        text = by_buf_str(&a->lossy);
    }
    if (!force && by_str_ends(text, BY_STR(BY_UTF8_REPLACEMENT))) return BY_OK;
    by_buf_clear(&a->text);
    return push_piece(a, text, BY_TEXT_PLAIN, err);
}

/* Server: everything but an unfinished character; with force, that too. */
static by_status flush_server(by_answer *a, bool force, by_err *err) {
    by_str text = by_buf_str(&a->text);
    size_t whole = 0;
    bool broken = false;
    while (whole < text.len) {
        by_utf8_step step = by_utf8_next(text.ptr + whole, text.len - whole);
        if (step.kind == BY_UTF8_CUT && !force) break;
        broken |= step.kind != BY_UTF8_CHAR;
        whole += step.n;
    }
    if (whole == 0) return BY_OK;
    by_str out = by_str_take(text, whole);
    by_buf_clear(&a->lossy);
    bool ok = broken ? by_utf8_push_lossy(&a->lossy, out) : by_buf_push_str(&a->lossy, out);
    if (!ok) return BY_FAIL(err, BY_ENOMEM, "out of memory in an answer");
    memmove(a->text.ptr, a->text.ptr + whole, text.len - whole);
    a->text.len -= whole;
    return push_piece(a, by_buf_str(&a->lossy), BY_TEXT_PLAIN, err);
}

static by_status flush_text(by_answer *a, bool force, by_err *err) {
    return a->server ? flush_server(a, force, err) : flush_parity(a, force, err);
}

static bool is_shown(const by_answer *a, int32_t id) {
    if (id == a->thinking_end_id) return true;
    if (id == a->dsml_id) return a->has_calls_markup;
    for (int i = 0; i < 8; i++)
        if (id == a->shown_ids[i]) return true;
    return false;
}

static bool is_end(const by_answer *a, int32_t id) {
    for (size_t i = 0; i < a->n_end_ids; i++)
        if (id == a->end_ids[i]) return true;
    return false;
}

static void wait_with(by_answer *a, int32_t id, const by_logprob *lp) {
    a->n_ids++;
    if (!lp) {
        a->lp_missing = true;
        return;
    }
    if (a->lp.len) by_buf_push_byte(&a->lp, ',');
    by_logprob_write(&a->lp, a->tok, id, lp);
    if (a->lp.failed) a->failed = true;
}

static by_status push_added(by_answer *a, int32_t id, by_str bytes, const by_logprob *lp, by_err *err) {
    BY_TRY(flush_text(a, true, err));
    if (a->server && !is_shown(a, id)) return BY_OK;
    wait_with(a, id, lp);
    return by_parser_ended(a->parser) ? BY_OK : push_piece(a, bytes, BY_TEXT_SPECIAL, err);
}

static by_status push_id(by_answer *a, int32_t id, const by_logprob *lp, by_err *err) {
    by_str bytes = by_tok_bytes(a->tok, id);
    if (a->server) {
        a->usage.completion_tokens++;
        if (id != a->thinking_end_id && by_parser_in_reasoning(a->parser)) a->usage.reasoning_tokens++;
        if (is_end(a, id)) {
            a->cut = true;
            return BY_OK;
        }
    }
    if (bytes.ptr && by_tok_is_added(a->tok, id)) return push_added(a, id, bytes, lp, err);
    wait_with(a, id, lp);
    if (bytes.len && !by_buf_push_str(&a->text, bytes)) return BY_FAIL(err, BY_ENOMEM, "out of memory in an answer");
    return a->each_token && a->server ? flush_text(a, false, err) : BY_OK;
}

static by_status push_ids(by_answer *a, const int32_t *ids, size_t n, const by_logprob *logprobs, by_err *err) {
    for (size_t i = 0; i < n && !a->cut && !by_parser_ended(a->parser); i++)
        BY_TRY(push_id(a, ids[i], logprobs ? &logprobs[i] : NULL, err));
    if (!by_parser_ended(a->parser)) BY_TRY(flush_text(a, false, err));
    return after_push(a, err);
}

by_status by_answer_tokens(by_answer *a, const int32_t *ids, size_t n, const by_logprob *logprobs, size_t n_logprobs,
                           by_err *err) {
    BY_TRY(check_open(a, err));
    by_status status = BY_OK;
    if (!a->tok) status = BY_FAIL(err, BY_EINVAL, "token chunk received without a tokenizer");
    else if (logprobs && n_logprobs != n)
        status = BY_FAIL(err, BY_EINVAL, "invalid log probabilities: %zu log probabilities for %zu token IDs", n_logprobs, n);
    if (status == BY_OK) status = push_ids(a, ids, n, logprobs, err);
    return close_on(a, status, err);
}

/* ---- the end ---- */

static by_status end_input(by_answer *a, by_answer_end_kind kind, by_err *err) {
    begin(a, NULL);
    if (a->server) {
        BY_TRY(flush_text(a, true, err));
        if (by_parser_ended(a->parser)) return end(a, own_end(a), err);
    }
    BY_TRY(by_parser_finish(a->parser, err));
    if (by_parser_stop_index(a->parser) >= 0) kind = BY_END_STOP_STRING;
    return end(a, kind, err);
}

by_status by_answer_finish(by_answer *a, by_answer_reason reason, by_err *err) {
    BY_TRY(check_open(a, err));
    by_answer_end_kind kind = reason == BY_REASON_LENGTH   ? BY_END_LENGTH
                              : reason == BY_REASON_FILTER ? BY_END_FILTER
                              : by_parser_calls(a->parser) ? BY_END_CALLS
                                                           : BY_END_STOP;
    return close_on(a, end_input(a, kind, err), err);
}

by_status by_answer_end_input(by_answer *a, by_err *err) {
    if (a->closed) return BY_FAIL(err, BY_EINVAL, "stream processor is closed");
    if (a->finished) return BY_OK;
    return close_on(a, end_input(a, BY_END_STOP, err), err);
}
