/* marker.h - finds the earliest ending of several fixed strings in text that arrives in pieces.
 *
 * Each marker runs its own Knuth-Morris-Pratt automaton, so nothing is ever read twice and the number of trailing bytes
 * that may still become a marker is known at every moment. A marker may eat the run of newlines directly before it.
 *
 * Text has a class. Plain text typed by the model and special tokens are told apart when the input is a token stream:
 * the bytes [special_from, special_to) of a marker are then matched by a special token only, all others by plain text
 * only. BY_TEXT_ANY (input without tokens) matches both, and a marker with any_class is matched by both.
 *
 * One deliberate oddity, kept because the original has it: a newline that breaks a partial match does not begin a run of
 * eaten newlines ("a<\n</think>" keeps its newline). Used by parser.c only. */
#ifndef BY_RECIPE_MARKER_H
#define BY_RECIPE_MARKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"

typedef enum by_text_class { BY_TEXT_ANY, BY_TEXT_PLAIN, BY_TEXT_SPECIAL } by_text_class;

typedef struct by_marker {
    by_str text;                      /* never empty; lives in the arena of its set */
    uint32_t special_from, special_to; /* empty range: all plain */
    bool eats_newlines, any_class;
    uint8_t action;         /* the owner's */
    uint32_t value;         /* the owner's */
    const uint32_t *border; /* [text.len] length of the longest proper border of text[0..i] */
} by_marker;

typedef struct by_marker_set {
    by_marker *markers; /* in order of priority among equal ends */
    uint32_t n, cap;
    bool starts[256]; /* bytes that move an automaton at rest */
} by_marker_set;

typedef struct by_marker_place {
    size_t matched, newlines;
} by_marker_place;

/* A set being run over a text. */
typedef struct by_marker_run {
    const by_marker_set *set;
    by_marker_place *places; /* [at least set->n] */
    bool moving;             /* some automaton is not at rest */
} by_marker_run;

typedef struct by_marker_hit {
    const by_marker *marker;
    size_t end;   /* offset behind the marker in the scanned text */
    size_t bytes; /* length with the eaten newlines; may reach back before the scanned text */
} by_marker_hit;

/* Appends a marker; text is copied into arena. An empty text is ignored. False when memory is out. */
bool by_marker_add(by_marker_set *set, by_arena *arena, by_marker marker);

/* Starts over in front of fresh text. */
void by_marker_run_begin(by_marker_run *run, const by_marker_set *set);

/* Reads text[from..] up to the first end of a marker. True and *hit filled when there is one; the caller then begins
 * again. Otherwise all of it was read. */
bool by_marker_scan(by_marker_run *run, by_marker_hit *hit, by_str text, size_t from, by_text_class text_class);

/* Number of bytes at the end of what was read that may be the front of a marker. */
size_t by_marker_held_bytes(const by_marker_run *run);

#endif
