/* parser.c - see parser.h.
 *
 * Each state has its markers (what moves it on) and a sink (where its text goes). Pieces are scanned once, where they
 * were pushed; only pieces that have to wait are copied to `held`, one behind the other, with their lengths in `pieces`.
 *
 *   pieces:   [ 3 ][  5  ]          + the piece being pushed
 *   held:      abc  </thi             nk>rest
 *                   ^ the front of a marker, so this piece and all behind it wait
 *
 * A marker ends in the piece being pushed or the scan would have found it earlier, so whatever is held when it is found
 * lies before it or belongs to it. */
#include "recipe/parser.h"

#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "json/json_write.h"
#include "recipe/specials.h"

typedef enum state {
    REASONING,
    CONTENT,
    CALLS,
    NAME,
    INVOKE,
    KEY,
    ATTR,
    STRING,
    RAW,
    DONE,
    JSON_BEFORE,
    JSON_BODY,
    JSON_AFTER,
    N_STATES
} state;

typedef enum action {
    TO_CONTENT,
    TO_CALLS,
    DROP,
    STOP,
    TO_BODY,
    OPEN_BODY, /* the bracket that was found belongs to the JSON */
    END_BODY,
    TO_NAME,
    END_CALLS,
    END_NAME,
    TO_KEY,
    END_CALL,
    TO_ATTR,
    TO_STRING,
    TO_RAW,
    END_STRING,
    END_RAW
} action;

typedef struct piece {
    size_t len;
    uint64_t tag;
} piece;

struct by_parser {
    by_delta_fn *on_delta;
    void *ctx;
    by_arena arena; /* markers */
    by_marker_set sets[N_STATES];
    by_marker_run run;
    state state;
    bool json_output, has_stage, eager, include_stop;
    enum { START, TEXT, MARKER } behind; /* what the next piece comes right behind */
    bool skip_newlines;
    bool saw_reasoning, ended, failed;
    bool first_param;
    int64_t stop_index;
    uint32_t n_calls, most_calls;

    by_buf held; /* bytes of the waiting pieces from held_at on */
    size_t held_at;
    piece *pieces; /* [pieces_at, pieces_end) wait */
    size_t pieces_at, pieces_end, pieces_cap;

    bool late_set; /* a marker's own delta that waits with the text right behind it */
    by_delta late;

    by_buf name, scratch; /* of the call being read; escaped text */
    char cut[4];          /* front of a character whose rest has not come */
    size_t n_cut;
    by_buf repaired;
};

/* ---- construction ---- */

static bool add_plain(by_parser *p, state s, const char *text, action a) {
    return by_marker_add(&p->sets[s], &p->arena, (by_marker){.text = by_str_z(text), .action = (uint8_t)a});
}

/* before + token + after, where the token is a special one. */
static bool add_tagged(by_parser *p, state s, const char *before, by_str token, const char *after, action a,
                       bool eats_newlines) {
    by_buf text = {0};
    by_buf_push_z(&text, before);
    by_buf_push_str(&text, token);
    by_buf_push_z(&text, after);
    by_marker m = {.text = by_buf_str(&text),
                   .special_from = (uint32_t)strlen(before),
                   .special_to = (uint32_t)(strlen(before) + token.len),
                   .eats_newlines = eats_newlines,
                   .action = (uint8_t)a};
    bool ok = !text.failed && by_marker_add(&p->sets[s], &p->arena, m);
    by_buf_deinit(&text);
    return ok;
}

static bool add_stops(by_parser *p, state s, const by_parser_opts *opts) {
    bool ok = true;
    for (size_t i = 0; i < opts->n_stops; i++)
        ok &= by_marker_add(&p->sets[s], &p->arena, (by_marker){.text = opts->stops[i], .action = STOP, .value = (uint32_t)i,
                                                                .any_class = opts->stops_in_special});
    return ok;
}

/* The table of section "output parser" of the recipe: state, markers in order of priority. */
static bool add_markers(by_parser *p, const by_parser_opts *opts, by_str end, by_str dsml) {
    bool calls = opts->parse_calls;
    if (opts->raw) return add_stops(p, CONTENT, opts);
    bool ok = add_tagged(p, REASONING, "", end, "", TO_CONTENT, true);
    if (calls) ok &= add_tagged(p, REASONING, "<", dsml, "", TO_CALLS, true);

    ok &= add_stops(p, CONTENT, opts);
    ok &= add_tagged(p, CONTENT, "", end, "", DROP, false);
    if (calls) ok &= add_tagged(p, CONTENT, "<", dsml, "", TO_CALLS, true);

    ok &= add_plain(p, CALLS, "invoke name=\"", TO_NAME);
    ok &= add_tagged(p, CALLS, "</", dsml, "tool_calls>", END_CALLS, false);
    ok &= add_tagged(p, CALLS, "</", dsml, " calls>", END_CALLS, false);
    ok &= add_plain(p, NAME, "\"", END_NAME);
    ok &= add_plain(p, INVOKE, "parameter name=", TO_KEY);
    ok &= add_tagged(p, INVOKE, "</", dsml, "", END_CALL, false);
    ok &= add_plain(p, KEY, " ", TO_ATTR);
    ok &= add_plain(p, ATTR, "true\">", TO_STRING);
    ok &= add_plain(p, ATTR, "false\">", TO_RAW);
    ok &= add_tagged(p, STRING, "</", dsml, "", END_STRING, false);
    ok &= add_tagged(p, RAW, "</", dsml, "", END_RAW, false);

    ok &= add_plain(p, JSON_BEFORE, "```json\n", TO_BODY);
    ok &= add_plain(p, JSON_BEFORE, "```\n", TO_BODY);
    ok &= add_plain(p, JSON_BEFORE, "{", OPEN_BODY);
    ok &= add_plain(p, JSON_BEFORE, "[", OPEN_BODY);
    ok &= add_tagged(p, JSON_BEFORE, "", end, "", DROP, false);
    if (calls) ok &= add_tagged(p, JSON_BEFORE, "<", dsml, "", TO_CALLS, true);
    ok &= add_stops(p, JSON_BODY, opts);
    ok &= add_plain(p, JSON_BODY, "\n```", END_BODY);
    if (calls) ok &= add_tagged(p, JSON_AFTER, "<", dsml, "", TO_CALLS, true);
    return ok;
}

static void enter(by_parser *p, state s) {
    p->state = s;
    by_marker_run_begin(&p->run, &p->sets[s]);
}

static state first_state(const by_parser_opts *opts) {
    if (opts->raw) return CONTENT;
    if (opts->starts_in_calls) return CALLS;
    if (opts->stage == BY_STAGE_REASONING_START || opts->stage == BY_STAGE_REASONING_CONTINUATION) return REASONING;
    return opts->json_output ? JSON_BEFORE : CONTENT;
}

by_status by_parser_create(by_parser **out, const by_parser_opts *opts, by_delta_fn *on_delta, void *ctx, by_err *err) {
    for (size_t i = 0; i < opts->n_stops; i++)
        if (opts->stops[i].len > UINT32_MAX / 2) return BY_FAIL(err, BY_ELIMIT, "stop string %zu is too long", i);
    if (opts->thinking_end.len > UINT32_MAX / 2 || opts->dsml.len > UINT32_MAX / 2)
        return BY_FAIL(err, BY_ELIMIT, "a special token's spelling is too long");
    by_parser *p = by_alloc_zero(BY_MEM_REQUEST, sizeof *p);
    if (!p) return BY_FAIL(err, BY_ENOMEM, "out of memory for an output parser");
    by_arena_init(&p->arena, BY_MEM_REQUEST);
    const by_recipe_specials *specials = by_recipe_specials_default();
    by_str end = opts->thinking_end.len ? opts->thinking_end : specials->text[BY_SPECIAL_THINKING_END];
    bool ok = add_markers(p, opts, end, opts->dsml.len ? opts->dsml : specials->text[BY_SPECIAL_DSML]);
    size_t most = 0;
    for (int s = 0; s < N_STATES; s++)
        if (p->sets[s].n > most) most = p->sets[s].n;
    p->run.places = by_arena_alloc(&p->arena, by_mul_size(most, sizeof *p->run.places));
    if (!ok || !p->run.places) {
        by_parser_destroy(p);
        return BY_FAIL(err, BY_ENOMEM, "out of memory for an output parser");
    }
    p->on_delta = on_delta;
    p->ctx = ctx;
    p->json_output = opts->json_output;
    p->has_stage = opts->stage != BY_STAGE_NONE;
    p->eager = opts->eager;
    p->include_stop = opts->include_stop;
    p->skip_newlines = !opts->raw && (opts->stage == BY_STAGE_NONE || opts->stage == BY_STAGE_REASONING_START);
    p->stop_index = -1;
    p->most_calls = opts->most_calls;
    enter(p, first_state(opts));
    *out = p;
    return BY_OK;
}

void by_parser_destroy(by_parser *p) {
    if (!p) return;
    by_arena_deinit(&p->arena);
    by_buf_deinit(&p->held);
    by_buf_deinit(&p->name);
    by_buf_deinit(&p->scratch);
    by_buf_deinit(&p->repaired);
    by_free(p->pieces);
    by_free(p);
}

bool by_parser_ended(const by_parser *p) { return p->ended; }
int64_t by_parser_stop_index(const by_parser *p) { return p->stop_index; }
uint32_t by_parser_calls(const by_parser *p) { return p->n_calls; }
bool by_parser_in_reasoning(const by_parser *p) { return p->state == REASONING && !p->ended; }
bool by_parser_waits(const by_parser *p) { return p->pieces_at < p->pieces_end || p->late_set; }

/* ---- deltas ---- */

static void flush_late(by_parser *p) {
    if (!p->late_set) return;
    p->late_set = false;
    p->on_delta(p->ctx, &p->late);
}

/* A delta that a marker makes itself. It becomes visible with flush_late. */
static void set_late(by_parser *p, by_delta d) {
    p->late = d;
    p->late_set = true;
}

static void late_args(by_parser *p, const char *text) {
    set_late(p, (by_delta){.kind = BY_DELTA_ARGS, .call = p->n_calls - 1, .text = by_str_z(text)});
}

static by_str escaped(by_parser *p, by_str text) {
    by_buf_clear(&p->scratch);
    by_json_write_escaped(&p->scratch, text);
    if (p->scratch.failed) p->failed = true;
    return by_buf_str(&p->scratch);
}

/* Text of the current state goes to its sink. */
static void emit(by_parser *p, by_str text, uint64_t tag) {
    p->behind = TEXT;
    flush_late(p);
    by_delta d = {.kind = BY_DELTA_CONTENT, .text = text, .tag = tag};
    switch (p->state) {
    case REASONING:
        p->saw_reasoning = true;
        d.kind = BY_DELTA_REASONING;
        break;
    case CONTENT:
    case JSON_BODY: break;
    case JSON_BEFORE:
    case JSON_AFTER: d.text = BY_STR(" "); break;
    case NAME:
        if (!by_buf_push_str(&p->name, text)) p->failed = true;
        return;
    case STRING: d.text = escaped(p, text); /* fallthrough */
    case KEY:
    case RAW:
        d.kind = BY_DELTA_ARGS;
        d.call = p->n_calls - 1;
        d.tag = 0;
        break;
    case CALLS:
    case INVOKE:
    case ATTR:
    case DONE:
    case N_STATES: return;
    }
    p->on_delta(p->ctx, &d);
}

/* What a marker does. found is its own text, tag that of the piece in which it ends. */
static void act(by_parser *p, const by_marker *m, uint64_t tag) {
    switch ((action)m->action) {
    case TO_CONTENT:
        enter(p, p->json_output ? JSON_BEFORE : CONTENT);
        p->skip_newlines = true;
        break;
    case TO_CALLS: enter(p, CALLS); break;
    case DROP: enter(p, p->state); break;
    case STOP:
        p->ended = true;
        p->stop_index = m->value;
        break;
    case TO_BODY: enter(p, JSON_BODY); break;
    case OPEN_BODY:
        set_late(p, (by_delta){.kind = BY_DELTA_CONTENT, .text = m->text, .tag = tag});
        enter(p, JSON_BODY);
        break;
    case END_BODY: enter(p, JSON_AFTER); break;
    case TO_NAME:
        by_buf_clear(&p->name);
        enter(p, NAME);
        p->ended = p->most_calls && p->n_calls == p->most_calls;
        break;
    case END_CALLS: enter(p, DONE); break;
    case END_NAME:
        set_late(p, (by_delta){.kind = BY_DELTA_CALL,
                               .call = p->n_calls++,
                               .no_reasoning = p->has_stage && !p->saw_reasoning,
                               .text = by_buf_str(&p->name)});
        p->first_param = true;
        enter(p, INVOKE);
        break;
    case TO_KEY:
        late_args(p, p->first_param ? "{" : ", ");
        p->first_param = false;
        enter(p, KEY);
        break;
    case END_CALL:
        late_args(p, p->first_param ? "{}" : "}");
        enter(p, CALLS);
        break;
    case TO_ATTR:
        late_args(p, ": ");
        enter(p, ATTR);
        break;
    case TO_STRING:
        late_args(p, "\"");
        enter(p, STRING);
        break;
    case TO_RAW: enter(p, RAW); break;
    case END_STRING:
        late_args(p, "\"");
        enter(p, INVOKE);
        break;
    case END_RAW: enter(p, INVOKE); break;
    }
}

/* ---- waiting pieces ---- */

static size_t held_bytes(const by_parser *p) { return p->held.len - p->held_at; }

/* Room for one more piece; a window that slides along is moved down rather than grown. */
static bool reserve_piece(by_parser *p) {
    if (p->pieces_end < p->pieces_cap) return true;
    size_t n = p->pieces_end - p->pieces_at;
    if (p->pieces_at >= n && n > 0) {
        memmove(p->pieces, p->pieces + p->pieces_at, n * sizeof *p->pieces);
        p->pieces_at = 0;
        p->pieces_end = n;
        return true;
    }
    size_t cap = p->pieces_cap ? 2 * p->pieces_cap : 16;
    piece *more = by_realloc(BY_MEM_REQUEST, p->pieces, by_mul_size(cap, sizeof *more));
    if (!more) return false;
    p->pieces = more;
    p->pieces_cap = cap;
    return true;
}

static void hold(by_parser *p, by_str text, uint64_t tag) {
    if (p->held_at > held_bytes(p)) { /* likewise */
        memmove(p->held.ptr, p->held.ptr + p->held_at, held_bytes(p));
        p->held.len -= p->held_at;
        p->held_at = 0;
    }
    if (!reserve_piece(p) || !by_buf_push_str(&p->held, text)) {
        p->failed = true;
        return;
    }
    p->pieces[p->pieces_end++] = (piece){text.len, tag};
}

static void forget_held(by_parser *p) {
    p->held_at = p->pieces_at = p->pieces_end = 0;
    by_buf_clear(&p->held);
}

/* Gives out the held pieces that end at or before `upto` bytes; with cut, also the front of the one across that place.
 * Returns the bytes given out. Nothing to give out leaves empty pieces waiting, too. */
static size_t release(by_parser *p, size_t upto, bool cut) {
    size_t given = 0;
    while (upto > 0 && p->pieces_at < p->pieces_end) {
        piece *q = &p->pieces[p->pieces_at];
        size_t n = q->len <= upto - given ? q->len : upto - given;
        if (n < q->len && !(cut && n > 0)) break;
        emit(p, n ? by_str_of(p->held.ptr + p->held_at, n) : BY_STR(""), q->tag);
        p->held_at += n;
        given += n;
        q->len -= n;
        if (q->len > 0) break;
        p->pieces_at++;
    }
    if (p->pieces_at == p->pieces_end) forget_held(p);
    return given;
}

/* ---- pushing ---- */

/* The marker ends at hit->end of text; everything before it comes out, then the marker acts. */
static void take_hit(by_parser *p, const by_marker_hit *hit, by_str text, size_t from, uint64_t tag) {
    size_t in_piece = hit->end - from; /* of text, up to the marker's end */
    bool shows = p->include_stop && hit->marker->action == STOP; /* then it comes out like the text before it */
    size_t before = held_bytes(p) + in_piece - (shows ? 0 : hit->bytes);
    size_t given = release(p, before, true);
    forget_held(p);
    if (given < before) emit(p, by_str_of(text.ptr + from, before - given), tag);
    flush_late(p);
    p->behind = MARKER;
    act(p, hit->marker, tag);
    bool spans_pieces = hit->bytes > in_piece;
    if (spans_pieces || hit->end == text.len || p->ended || p->eager) flush_late(p);
}

/* text[from..] holds no whole marker: gives out what cannot be part of one. */
static void take_rest(by_parser *p, by_str text, size_t from, uint64_t tag) {
    by_str rest = by_str_skip(text, from);
    size_t total = held_bytes(p) + rest.len, wait = by_marker_held_bytes(&p->run), free_bytes = total - wait;
    if (free_bytes > 0) flush_late(p);
    size_t given = release(p, free_bytes, p->eager);
    if (wait == 0) {
        emit(p, rest, tag);
        return;
    }
    if (p->eager && given < free_bytes) {
        emit(p, by_str_take(rest, free_bytes - given), tag);
        rest = by_str_skip(rest, free_bytes - given);
    }
    hold(p, rest, tag);
}

/* Drops the newlines in front of a fresh part; a stop string of one newline still counts. Returns the new offset. */
static size_t skip_newlines(by_parser *p, by_str text, size_t from, by_text_class text_class) {
    const by_marker_set *set = &p->sets[p->state];
    while (from < text.len && text.ptr[from] == '\n' && text_class != BY_TEXT_SPECIAL) {
        for (uint32_t i = 0; i < set->n; i++) {
            const by_marker *m = &set->markers[i];
            if (m->action != STOP || !by_str_eqz(m->text, "\n")) continue;
            flush_late(p);
            if (p->include_stop) emit(p, m->text, 0);
            act(p, m, 0);
            return text.len;
        }
        flush_late(p);
        forget_held(p); /* at most empty pieces */
        p->behind = MARKER;
        from++;
    }
    if (from < text.len) p->skip_newlines = false;
    return from;
}

/* An empty piece takes part like any other: it waits behind what waits, and is given out as an empty delta; one that comes
 * right behind a marker is taken for a part of it. */
static void push_empty(by_parser *p) {
    if (p->eager || p->ended) return;
    if (p->pieces_at < p->pieces_end || p->behind == START) hold(p, BY_STR(""), 0);
    else if (p->behind == TEXT) emit(p, BY_STR(""), 0);
}

by_status by_parser_push_text(by_parser *p, by_str text, by_text_class text_class, uint64_t tag, by_err *err) {
    size_t from = 0;
    if (text.len == 0) push_empty(p);
    while (from < text.len && !p->ended) {
        if (p->skip_newlines) {
            from = skip_newlines(p, text, from, text_class);
            if (from == text.len || p->ended) break;
        }
        by_marker_hit hit;
        if (!by_marker_scan(&p->run, &hit, text, from, text_class)) {
            take_rest(p, text, from, tag);
            break;
        }
        take_hit(p, &hit, text, from, tag);
        from = hit.end;
    }
    return p->failed ? BY_FAIL(err, BY_ENOMEM, "out of memory in the output parser") : BY_OK;
}

/* Splits off a cut character and repairs what is not UTF-8. */
by_status by_parser_push(by_parser *p, by_str bytes, by_err *err) {
    size_t bad_at;
    if (p->n_cut == 0 && by_utf8_valid(bytes, &bad_at)) return by_parser_push_text(p, bytes, BY_TEXT_ANY, 0, err);
    by_buf *b = &p->repaired;
    by_buf_clear(b);
    /* The joint: at most three bytes wait, so a few more bytes always settle them. */
    by_buf_push(b, p->cut, p->n_cut);
    by_buf_push_str(b, bytes);
    if (b->failed) return BY_FAIL(err, BY_ENOMEM, "out of memory in the output parser");
    size_t raw = b->len, i = 0;
    while (i < raw) {
        by_utf8_step step = by_utf8_next(b->ptr + i, raw - i);
        if (step.kind == BY_UTF8_CUT) break;
        i += step.n;
    }
    p->n_cut = raw - i;
    memcpy(p->cut, b->ptr + i, p->n_cut);
    if (!by_utf8_valid(by_str_of(b->ptr, i), NULL)) {
        by_buf raw_text = *b;
        by_buf fixed = {0};
        bool ok = by_utf8_push_lossy(&fixed, by_str_of(raw_text.ptr, i));
        by_buf_deinit(&raw_text);
        *b = fixed;
        if (!ok) return BY_FAIL(err, BY_ENOMEM, "out of memory in the output parser");
        i = b->len;
    }
    if (i == 0) return BY_OK; /* nothing but the front of a character */
    return by_parser_push_text(p, by_str_of(b->ptr, i), BY_TEXT_ANY, 0, err);
}

by_status by_parser_finish(by_parser *p, by_err *err) {
    if (p->ended) return BY_OK;
    if (p->n_cut > 0) {
        p->n_cut = 0;
        BY_TRY(by_parser_push_text(p, BY_STR(BY_UTF8_REPLACEMENT), BY_TEXT_ANY, 0, err));
        if (p->ended) return BY_OK;
    }
    flush_late(p);
    release(p, held_bytes(p), false);
    p->ended = true;
    return p->failed ? BY_FAIL(err, BY_ENOMEM, "out of memory in the output parser") : BY_OK;
}
