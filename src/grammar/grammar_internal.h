/* grammar_internal.h - what the files of this module share: the term store and its derivatives.
 *
 * A language is a term: a hash-consed node, so equal languages written equally are one 32-bit id. The residual of a
 * language after one byte is again a term, hence the state of a match is one id, and everything that was ever computed
 * for a state (its row of next states, its mask) is stored at that id and shared by all matches of the grammar.
 * Recursion costs nothing extra: the rest of the work stands to the right in a SEQ chain, which is the stack.
 *
 * Names: by_gr_ is the module's inner prefix, by_grammar_ and by_matcher_ the public one (grammar.h).
 * Errors inside the store are sticky: the first failure sets g->err and every later constructor returns NEVER, so that
 * builders check once. Thread rule: a by_gr has one user at a time (the owner's lock). */
#ifndef BY_GRAMMAR_INTERNAL_H
#define BY_GRAMMAR_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"
#include "grammar/grammar.h"
#include "grammar/grammar_vocab.h"
#include "json/json.h"

typedef uint32_t by_gr_term;

/* Fixed ids, made by by_gr_init in this order. */
enum {
    BY_GR_NEVER = 0,    /* no text */
    BY_GR_EPS = 1,      /* the empty text */
    BY_GR_ANYCHAR = 2,  /* one code point in UTF-8 */
    BY_GR_ANYTEXT = 3,  /* any valid UTF-8 */
    BY_GR_ANYBYTES = 4, /* any bytes at all: the complement of NEVER */
    BY_GR_N_FIXED
};

typedef enum by_gr_kind {
    BY_GR_K_NEVER,
    BY_GR_K_EPS,
    BY_GR_K_CLS,      /* a: byte set: one byte out of a set */
    BY_GR_K_LIT,      /* a: literal, b: offset: the rest of a byte string */
    BY_GR_K_SEQ,      /* a, then b; a is never a SEQ */
    BY_GR_K_ALT,      /* list: union, sorted ids */
    BY_GR_K_AND,      /* list: intersection, sorted ids */
    BY_GR_K_NOT,      /* a: complement over all byte strings */
    BY_GR_K_REP,      /* a repeated b..c times; c = BY_GR_INF for no bound */
    BY_GR_K_RULE,     /* a: rule, its body is made on first use */
    BY_GR_K_NONEMPTY, /* a without the empty text */
    BY_GR_K_GROUP,    /* a, kept together as one head of a SEQ so that its masks are shared */
    BY_GR_K_JSTR,     /* rest of a JSON string whose decoded text is in a, and the closing quote; x = style */
    BY_GR_K_JESC,     /* the same behind a backslash */
    BY_GR_K_JHEX,     /* the same behind \u and b hex digits of value c; x = style */
    BY_GR_K_JLOW,     /* the same, waiting for the low surrogate of b; c = stage << 16 | value */
    BY_GR_K_TRIE,     /* a: trie, b: node: the rest of one of its words */
    BY_GR_K_EXCEPT,   /* a: trie, b: node, c: what UTF-8 needs: any text but the words */
    BY_GR_K_UNQUOT,   /* texts t for which t followed by the end sentinel is in a (regular expressions with anchors) */
    BY_GR_K_LIFT,     /* a with marks anywhere (grammar_assert.c) */
    BY_GR_K_ERASE,    /* a without its marks */
    BY_GR_K_MOD,      /* a: modulus, b: remainder, c: phase: decimal multiples */
    BY_GR_K_LEAP,     /* leap-second times: a: phase, b: minutes of the day */
    BY_GR_K_HOST,     /* a place in a host name (grammar_host.c) */
    BY_GR_K_WS,       /* bounded whitespace: at most a characters, b of them newlines */
    BY_GR_K_OBJ,      /* a: object definition, b: state, x: 0 before the first member, 1 after one */
    BY_GR_K_KEY,      /* a: OBJ term, b: node of the key trie */
    BY_GR_K_ARR,      /* a: array definition, b: state, x as for OBJ */
    BY_GR_K_UNIQ,     /* an item of distinct ones: a: item, b: tuple (ARR state behind it, what masks see), c: captured
                         bytes */
    BY_GR_K_MARK,     /* masks only: a, but a token that gets here must be tried (grammar_array.c) */
    BY_GR_K_CLOSE,    /* masks only: an item has ended; a follows if its value is new. b: ARR state of the item */
    BY_GR_K_FREE,     /* free text: a: dispatcher, b: automaton state, c: UTF-8 state | flags */
    BY_GR_K_TOK,      /* a: token set: one token out of a set */
    BY_GR_K_TUPLE,    /* no language: x, a, b, c interned as one number */
    BY_GR_K_N
} by_gr_kind;

#define BY_GR_INF 0xffffffffu

enum {
    BY_GR_F_NULLABLE = 1,
    BY_GR_F_TOKENS = 2,    /* a token leaf can stand first somewhere below */
    BY_GR_F_LIVE = 4,      /* AND, NOT, UNQUOT: known to hold a text */
    BY_GR_F_DEAD = 8,      /* ... known to hold none */
    BY_GR_F_FREE_YES = 16, /* every text goes on: no reachable state refuses a code point */
    BY_GR_F_FREE_NO = 32,
    BY_GR_F_BUSY = 64, /* row under construction: finds left recursion */
    BY_GR_F_UNIQ = 128 /* the next byte may belong to an item that is captured: step with by_gr_step */
};

/* Row: the next states. Ranges of bytes are disjoint and sorted; bytes outside lead to NEVER. */
typedef struct by_gr_range {
    uint8_t lo, hi;
    by_gr_term to;
} by_gr_range;

typedef struct by_gr_tok_edge {
    uint32_t set;
    by_gr_term to;
} by_gr_tok_edge;

typedef struct by_gr_row {
    uint16_t n, n_tok;
    uint8_t *idx; /* [256]: 0 or 1 + range; NULL for short rows */
    by_gr_range *r;
    by_gr_tok_edge *tok;
} by_gr_row;

typedef struct by_gr_node {
    uint8_t kind, flags;
    uint16_t x;
    uint32_t a, b, c;
    const by_gr_row *row;
} by_gr_node;

typedef struct by_gr_set256 {
    uint64_t w[4];
} by_gr_set256;

static inline bool by_gr_set_has(const by_gr_set256 *s, unsigned b) {
    return s->w[b >> 6] >> (b & 63) & 1;
}
static inline void by_gr_set_add(by_gr_set256 *s, unsigned b) {
    s->w[b >> 6] |= 1ull << (b & 63);
}

/* Growable array of 32-bit numbers. */
typedef struct by_gr_vec {
    uint32_t *v;
    uint32_t n, cap;
} by_gr_vec;

/* Byte trie of words; node 0 is the root. Children of a node are a linked list in byte order. */
typedef struct by_gr_trie_node {
    uint32_t child, sibling;
    uint32_t word;       /* 1 + index of the word that ends here, 0 = none */
    uint32_t ids, n_ids; /* key tries: indexes of the words at or below, in g->lists */
    uint8_t byte;
} by_gr_trie_node;

typedef struct by_gr_trie {
    by_gr_trie_node *nodes;
    uint32_t n, cap;
} by_gr_trie;

typedef struct by_gr by_gr;
typedef struct by_gr_schema by_gr_schema;
typedef struct by_gr_objdef by_gr_objdef;
typedef struct by_gr_arrdef by_gr_arrdef;

/* A rule: its body, or how to make it. */
typedef struct by_gr_rule {
    by_gr_term body;
    bool built, building;
    bool nullable, dead;
    uint32_t expr; /* 1 + schema expression, 0 = a grammar rule whose body is set by the front end */
} by_gr_rule;

/* A dispatcher of free text (grammar_free.c): Aho-Corasick over triggers and excluded strings. */
typedef struct by_gr_free {
    uint32_t (*next)[256]; /* [n_states] */
    int32_t *hit;          /* -1 none, -2 excluded, else index of the trigger */
    uint32_t n_states;
    by_gr_term *then; /* [n_triggers]: what follows a whole trigger */
    uint32_t n_triggers;
    bool loop;                      /* free text again behind a tag */
    uint32_t control[8], n_control; /* control tokens that stand in triggers */
} by_gr_free;

typedef struct by_gr_tokset {
    uint32_t *ids; /* sorted */
    uint32_t n;
    bool negate; /* every id but these (and never the end token) */
} by_gr_tokset;

typedef struct by_gr_mask by_gr_mask;
/* One call (a mask, a token) may work so long: all sequences of a step wait for it. 99.9 % take microseconds. Programs that a
 * sanitizer made some twenty times slower get five times as much. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BY_GR_STEP_NS 750000000LL
#else
#define BY_GR_STEP_NS 150000000LL
#endif
#define BY_GR_ABSORB_SLOTS 1024u
#define BY_GR_SET_SLOTS 64u

struct by_gr {
    const by_grammar_vocab *vocab;
    by_grammar_opts opts;

    by_gr_node *nodes;
    uint32_t n, cap;
    uint32_t *hash;
    uint32_t hash_cap;
    by_gr_vec lists; /* ids of ALT and AND */
    by_arena arena;  /* rows, definitions, literals */

    struct {
        by_gr_set256 s;
        uint32_t next; /* 1 + next set of the same hash */
    } * sets;
    uint32_t set_head[256];
    uint32_t n_sets, cap_sets;
    by_str *lits;
    uint32_t n_lits, cap_lits;
    by_gr_trie *tries;
    uint32_t n_tries, cap_tries;
    by_gr_rule *rules;
    uint32_t n_rules, cap_rules;
    by_gr_free *frees;
    uint32_t n_frees, cap_frees;
    by_gr_tokset *toksets;
    uint32_t n_toksets, cap_toksets;
    by_gr_objdef **objdefs;
    uint32_t n_objdefs, cap_objdefs;
    by_gr_arrdef **arrdefs;
    uint32_t n_arrdefs, cap_arrdefs;
    by_gr_schema *schema; /* NULL unless a JSON schema takes part */

    by_gr_term ws, ws_behind; /* whitespace inside JSON; and that behind commas and colons */
    by_gr_term host, host_below, host_above; /* grammar_host.c; NEVER until a host name occurs */
    uint32_t depth; /* of nested calls that follow the structure of terms */
    bool compiling;
    bool searching; /* inside an emptiness search: intersections are not checked again */
    int64_t deadline_ns; /* of the compilation or of the call that runs; 0 = not begun to count */
    uint32_t tick;
    by_status status; /* sticky */
    by_err err;
    char where[256]; /* place of the error: JSON pointer or line and column */
    by_buf warnings;

    /* masks (grammar_mask.c) */
    by_gr_mask **masks; /* by term, [masks_cap] */
    by_gr_mask **heads;
    uint32_t masks_cap;
    size_t mask_bytes;
    uint32_t absorb_of[BY_GR_ABSORB_SLOTS]; /* direct-mapped memo of the runs of states, see find_run; 0 = free */
    by_gv_sig absorb_sig[BY_GR_ABSORB_SLOTS];
    by_gv_sig absorb_dead[BY_GR_ABSORB_SLOTS];
    uint8_t absorb_n[BY_GR_ABSORB_SLOTS]; /* for so many characters; 255 = for ever */
    bool absorb_ended[BY_GR_ABSORB_SLOTS]; /* looking further finds no more */
    bool absorb_last[BY_GR_ABSORB_SLOTS];  /* and nothing of the groups can follow */
    by_gr_term set_of[BY_GR_SET_SLOTS]; /* the same for sets of single characters */
    by_gv_sig set_multi[BY_GR_SET_SLOTS];
    struct by_gr_tokens *making[2]; /* scratch */
    by_gr_vec walk_stack;
    uint32_t *minlen; /* by term: 1 + shortest completion in bytes; 0 = not known */
    uint32_t minlen_cap;
    uint32_t *rule_min; /* [rule_min_cap] the same by rule */
    uint32_t rule_min_cap;
    bool rules_settled, settling;
};

/* grammar_term.c: the store. Constructors return NEVER once g->status is an error. */
by_status by_gr_init(by_gr *g, const by_grammar_vocab *vocab, const by_grammar_opts *opts, by_err *err);
void by_gr_deinit(by_gr *g);
by_gr_term by_gr_fail(by_gr *g, by_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void by_gr_warn(by_gr *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool by_gr_bad(const by_gr *g) {
    return g->status < 0;
}
/* False (and the sticky error set) when time or memory is used up. */
bool by_gr_check(by_gr *g);
/* The limit of one step counts from here: called once for each byte of a whole text and each call of a matcher. */
void by_gr_begin_step(by_gr *g);
void *by_gr_alloc(by_gr *g, size_t n);
bool by_gr_vec_push(by_gr *g, by_gr_vec *v, uint32_t x);
void by_gr_vec_free(by_gr_vec *v);
/* Grows *array (elements of size bytes) so that index n fits. */
bool by_gr_grow(by_gr *g, void *array, uint32_t n, uint32_t *cap, size_t size);

/* The node with these fields, made if need be. flags count only when it is made. */
by_gr_term by_gr_node_make(by_gr *g, by_gr_kind kind, uint32_t x, uint32_t a, uint32_t b, uint32_t c, unsigned flags);
by_gr_term by_gr_cls(by_gr *g, const by_gr_set256 *set);
by_gr_term by_gr_byte_range(by_gr *g, unsigned lo, unsigned hi);
by_gr_term by_gr_lit(by_gr *g, by_str s);
by_gr_term by_gr_seq(by_gr *g, by_gr_term a, by_gr_term b);
by_gr_term by_gr_seq_n(by_gr *g, const by_gr_term *v, uint32_t n);
by_gr_term by_gr_alt(by_gr *g, const by_gr_term *v, uint32_t n);
by_gr_term by_gr_alt2(by_gr *g, by_gr_term a, by_gr_term b);
/* Intersection; NEVER when it is empty (decided by a bounded search). */
by_gr_term by_gr_and(by_gr *g, const by_gr_term *v, uint32_t n);
by_gr_term by_gr_and2(by_gr *g, by_gr_term a, by_gr_term b);
by_gr_term by_gr_not(by_gr *g, by_gr_term a);
/* Valid UTF-8 that is not in a. */
by_gr_term by_gr_text_not(by_gr *g, by_gr_term a);
by_gr_term by_gr_rep(by_gr *g, by_gr_term a, uint32_t min, uint32_t max);
by_gr_term by_gr_opt(by_gr *g, by_gr_term a);
by_gr_term by_gr_star(by_gr *g, by_gr_term a);
by_gr_term by_gr_nonempty(by_gr *g, by_gr_term a);
by_gr_term by_gr_mark(by_gr *g, by_gr_term a);
by_gr_term by_gr_close(by_gr *g, by_gr_term a, by_gr_term arr);
by_gr_term by_gr_group(by_gr *g, by_gr_term a);
by_gr_term by_gr_jstr(by_gr *g, by_gr_term text, unsigned style);
enum { BY_GR_STYLE_ANY = 0, BY_GR_STYLE_PLAIN = 1 }; /* PLAIN: escapes only where JSON needs them */
by_gr_term by_gr_rule_term(by_gr *g, uint32_t rule);
uint32_t by_gr_rule_new(by_gr *g);
/* Sorted or not, words may repeat; a trie over them, or UINT32_MAX. With ids the nodes list the words below them. */
uint32_t by_gr_trie_new(by_gr *g, const by_str *words, uint32_t n, bool ids);
by_gr_term by_gr_words(by_gr *g, const by_str *words, uint32_t n);
by_gr_term by_gr_except(by_gr *g, const by_str *words, uint32_t n);
by_gr_term by_gr_tok_set(by_gr *g, const uint32_t *ids, uint32_t n, bool negate);
bool by_gr_tokset_has(const by_gr *g, uint32_t set, uint32_t id);
const uint32_t *by_gr_list(const by_gr *g, by_gr_term t, uint32_t *n);

static inline bool by_gr_nullable(const by_gr *g, by_gr_term t) {
    return g->nodes[t].flags & BY_GR_F_NULLABLE;
}

/* grammar_step.c: derivatives. */
const by_gr_row *by_gr_row_of(by_gr *g, by_gr_term t);
by_gr_term by_gr_row_get(const by_gr_row *row, unsigned byte);
static inline by_gr_term by_gr_next(by_gr *g, by_gr_term t, unsigned byte) {
    return by_gr_row_get(by_gr_row_of(g, t), byte);
}
by_gr_term by_gr_next_bytes(by_gr *g, by_gr_term t, by_str s);
/* The same, remembering items of lists of distinct items: what matching uses. */
by_gr_term by_gr_step(by_gr *g, by_gr_term t, unsigned byte);
by_gr_term by_gr_step_bytes(by_gr *g, by_gr_term t, by_str s);
/* State after one token: its bytes, or the edge of a token leaf. NEVER when refused. */
by_gr_term by_gr_next_token(by_gr *g, by_gr_term t, uint32_t id);
by_gr_term by_gr_rule_body(by_gr *g, uint32_t rule);
/* Makes a row out of n ranges (sorted, disjoint; NEVER targets and neighbours with one target are merged away). */
const by_gr_row *by_gr_row_make(by_gr *g, const by_gr_range *r, unsigned n, const by_gr_tok_edge *tok, unsigned n_tok);

/* grammar_live.c */
bool by_gr_live(by_gr *g, by_gr_term t);
/* Every valid text is a prefix of a member, from every reachable state (bounded search; false when not known). */
bool by_gr_always_live(by_gr *g, by_gr_term t);
/* Does a code point of [lo, hi] have a live next state? (surrogates excluded) */
bool by_gr_range_live(by_gr *g, by_gr_term t, uint32_t lo, uint32_t hi);
/* Shortest member in bytes (token leaves count one); this much when not known. */
#define BY_GR_MIN_UNKNOWN (UINT32_MAX / 2)
uint32_t by_gr_min_bytes(by_gr *g, by_gr_term t);
bool by_gr_accepts(by_gr *g, by_gr_term t, by_str s);

/* grammar_unicode.c: sets of code points as sorted disjoint ranges, and their UTF-8 terms. */
typedef struct by_gr_cps {
    uint32_t *v;     /* lo, hi, lo, hi ... */
    uint32_t n, cap; /* in numbers, not pairs */
} by_gr_cps;
bool by_gr_cps_add(by_gr *g, by_gr_cps *s, uint32_t lo, uint32_t hi);
void by_gr_cps_normalise(by_gr_cps *s);
bool by_gr_cps_invert(by_gr *g, by_gr_cps *s);
bool by_gr_cps_fold(by_gr *g, by_gr_cps *s);                  /* adds the other case of each letter */
bool by_gr_cps_property(by_gr *g, by_gr_cps *s, by_str name); /* false: unknown name */
void by_gr_cps_free(by_gr_cps *s);
by_gr_term by_gr_cps_term(by_gr *g, const by_gr_cps *s);
by_gr_term by_gr_char_range(by_gr *g, uint32_t lo, uint32_t hi);
typedef struct by_gr_utf8_seq {
    uint8_t n, lo[4], hi[4];
} by_gr_utf8_seq;
/* Splits [lo, hi] (surrogates left out) into byte sequences; at most 32, returns how many. */
unsigned by_gr_utf8_split(uint32_t lo, uint32_t hi, by_gr_utf8_seq out[32]);

/* grammar_regex.c. search: pattern semantics (may match anywhere); else the whole text. where: offset of an error. */
typedef struct by_gr_regex_opts {
    bool search, dotall, icase, ecma_space;
} by_gr_regex_opts;
by_gr_term by_gr_regex(by_gr *g, by_str text, const by_gr_regex_opts *opts);

/* grammar_assert.c: bytes that UTF-8 never holds, between those of dispatchers in free text and the end sentinel. */
#define BY_GR_MARK_FIRST 0xf8u
#define BY_GR_MARKS      7u
by_gr_term by_gr_lift(by_gr *g, by_gr_term a);
/* Marks at the very end are not taken away: what is erased ends with the end sentinel. */
by_gr_term by_gr_erase(by_gr *g, by_gr_term a);
const by_gr_row *by_gr_row_lift(by_gr *g, by_gr_node n, by_gr_term self);
const by_gr_row *by_gr_row_erase(by_gr *g, by_gr_node n);

/* grammar_format.c: string formats; NEVER and *known = false for names that are annotations only. */
by_gr_term by_gr_format(by_gr *g, by_str name, bool *known);

/* grammar_number.c: JSON number texts. */
by_gr_term by_gr_number(by_gr *g);       /* any, with exponents */
by_gr_term by_gr_number_plain(by_gr *g); /* without exponent */
by_gr_term by_gr_integer(by_gr *g);
/* Texts without exponent that compare so with a decimal; the bound as written in JSON. minus_zero: "-0" and the like
 * are among them where zero is. */
typedef enum by_gr_cmp { BY_GR_GE, BY_GR_GT, BY_GR_LE, BY_GR_LT } by_gr_cmp;
by_gr_term by_gr_number_cmp(by_gr *g, by_gr_cmp cmp, by_str bound, bool minus_zero);
typedef enum by_gr_multiple {
    BY_GR_MULTIPLE,       /* any decimals */
    BY_GR_MULTIPLE_DOT_0, /* integers, also with a fraction of zeros; no other condition beside it, so any divisor will do */
    BY_GR_MULTIPLE_WHOLE  /* the same without a fraction */
} by_gr_multiple;
by_gr_term by_gr_number_multiple(by_gr *g, by_str of, by_gr_multiple form);
/* Sign, digits without leading zeros and decimal exponent of a JSON number text; false when it is too long. */
typedef struct by_gr_decimal {
    bool neg;
    char digits[400]; /* significant digits, no leading or trailing zeros; empty = zero */
    uint32_t n;
    int32_t point; /* value = 0.digits * 10^point */
} by_gr_decimal;
bool by_gr_decimal_parse(by_gr_decimal *out, by_str text);
bool by_gr_decimal_eq(const by_gr_decimal *a, const by_gr_decimal *b);

/* Rows of the machine kinds, each in the file that knows them. */
const by_gr_row *by_gr_row_mod(by_gr *g, by_gr_node n);
bool by_gr_mod_nullable(by_gr *g, uint32_t mod, uint32_t rem, uint32_t phase);
const by_gr_row *by_gr_row_leap(by_gr *g, by_gr_node n);
by_gr_term by_gr_leap(by_gr *g);
const by_gr_row *by_gr_row_obj(by_gr *g, by_gr_node n, by_gr_term self);
const by_gr_row *by_gr_row_key(by_gr *g, by_gr_node n);
const by_gr_row *by_gr_row_arr(by_gr *g, by_gr_node n);
const by_gr_row *by_gr_row_uniq(by_gr *g, by_gr_node n);
/* One real step of a term with BY_GR_F_UNIQ: rows are what masks see of such a term, they forget the captured text. */
/* Would the item in progress before t (a state that is being matched), read on by path, repeat a value of ARR state
 * arr? */
bool by_gr_uniq_is_dup(by_gr *g, by_gr_term t, by_gr_term arr, by_str path);
by_gr_term by_gr_uniq_step(by_gr *g, by_gr_node uniq, unsigned byte);
by_gr_term by_gr_arr_body(by_gr *g, by_gr_node arr);
const by_gr_row *by_gr_row_free(by_gr *g, by_gr_node n);
/* Free text in which triggers[i] is followed by then[i] (and, with loop, by free text again); UINT32_MAX on error. */
uint32_t by_gr_free_new(by_gr *g, const by_str *triggers, const by_gr_term *then, uint32_t n, const by_str *excludes,
                        uint32_t n_excl, bool loop);
/* done: the text may end before any tag. */
by_gr_term by_gr_free_term(by_gr *g, uint32_t free, bool done);
by_gr_term by_gr_free_text(by_gr *g, const by_str *excludes, uint32_t n);

/* grammar_schema*.c */
by_gr_term by_gr_schema_compile(by_gr *g, const by_json *schema);
by_gr_term by_gr_schema_any_object(by_gr *g);
/* The parameters of a DSML tool call whose arguments satisfy the schema. */
by_gr_term by_gr_schema_dsml(by_gr *g, const by_json *schema);
by_gr_term by_gr_schema_rule_body(by_gr *g, uint32_t expr);
void by_gr_schema_destroy(by_gr_schema *s);
uint32_t by_gr_obj_min_bytes(by_gr *g, by_gr_node n);
uint32_t by_gr_arr_min_bytes(by_gr *g, by_gr_node n);

/* grammar_sample.c */
void by_gr_sample(by_gr *g, by_gr_term t, uint64_t seed, size_t max_bytes, by_buf *out);

/* grammar_warm.c: makes masks that will probably be asked for, for so much processor time. */
void by_gr_warm(by_gr *g, by_gr_term root, int64_t budget_ns);
/* May a declared key come next in an OBJ term? And the next byte of the first such key in a KEY term; -1 when it is another key. */
bool by_gr_obj_has_next(by_gr *g, by_gr_term obj);
int by_gr_key_hint(by_gr *g, by_gr_term key);

/* Front ends: the term of the whole grammar. */
by_gr_term by_gr_compile_ebnf(by_gr *g, by_str text, by_str root);
by_gr_term by_gr_compile_lark(by_gr *g, by_str text);
by_gr_term by_gr_compile_tag(by_gr *g, const by_json *tag);
/* Literal of a tag: text in which the spelling of a control token is that token. Length of the longest control token
 * that s begins with, 0 = none. */
size_t by_gr_control_at(by_gr *g, by_str s, uint32_t *id);
by_gr_term by_gr_lit_tokens(by_gr *g, by_str s);

#endif
