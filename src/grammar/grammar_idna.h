/* grammar_idna.h - internationalised labels of host names: Punycode, and what IDNA 2008 allows. */
#ifndef BY_GRAMMAR_IDNA_H
#define BY_GRAMMAR_IDNA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define BY_GR_ALABEL_MAX  59u /* bytes of a label behind "xn--" */
#define BY_GR_ENDING_MAX  8u  /* longest text that by_gr_alabel_ending gives */

/* Is s, what follows "xn--" in a label, the Punycode of a label that is valid by RFC 5891 to 5893? Lower case only. Labels are looked
 * at one by one: that a name with a right-to-left label puts a condition on its other labels (RFC 5893, section 1.4) is not asked. */
bool by_gr_alabel_valid(by_str s);

/* The shortest text of its kind that makes s, lower-case letters, digits and hyphens, a valid label: some sharp s, inserted where
 * they also mend what hyphens break. out: at most BY_GR_ENDING_MAX bytes. Behind s and its first byte the answer is the rest of it. */
unsigned by_gr_alabel_ending(by_str s, char out[BY_GR_ENDING_MAX]);

/* The generated table. Directions: all that are allowed in labels of both directions are neutral; R is R and AL. */
enum { BY_GR_IDNA_PVALID, BY_GR_IDNA_CONTEXTJ, BY_GR_IDNA_CONTEXTO };
enum { BY_GR_BIDI_NEUTRAL, BY_GR_BIDI_L, BY_GR_BIDI_R, BY_GR_BIDI_AN, BY_GR_BIDI_EN, BY_GR_BIDI_NSM };
enum { BY_GR_SCRIPT_OTHER, BY_GR_SCRIPT_GREEK, BY_GR_SCRIPT_HEBREW, BY_GR_SCRIPT_KANA_HAN };
typedef struct by_gr_idna_kind {
    uint8_t rule, mark, bidi;
    char joining;
    uint8_t script;
    uint8_t order;  /* canonical combining class */
    uint8_t second; /* composes with some character before it */
} by_gr_idna_kind;
typedef struct by_gr_idna_range {
    uint32_t lo, hi;
    uint8_t kind;
} by_gr_idna_range;
typedef struct by_gr_idna_pair {
    uint32_t first, second, composed;
} by_gr_idna_pair;

extern const by_gr_idna_kind by_gr_idna_kinds[];
extern const by_gr_idna_range by_gr_idna_ranges[]; /* sorted; other code points are disallowed */
extern const uint32_t by_gr_idna_n;
extern const by_gr_idna_pair by_gr_idna_pairs[]; /* sorted by first, second */
extern const uint32_t by_gr_idna_pairs_n;
extern const uint16_t by_gr_idna_by_composed[]; /* indexes of the pairs, sorted by composed */

#endif
