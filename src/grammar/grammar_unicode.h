/* grammar_unicode.h - the generated table of code point properties. */
#ifndef BY_GRAMMAR_UNICODE_H
#define BY_GRAMMAR_UNICODE_H

#include <stdint.h>

typedef struct by_gr_uni_range {
    uint32_t lo, hi; /* inclusive */
    uint8_t value;   /* index into the names */
} by_gr_uni_range;

extern const by_gr_uni_range by_gr_uni_category[], by_gr_uni_script[];
extern const uint32_t by_gr_uni_category_n, by_gr_uni_script_n;
extern const char *const by_gr_uni_category_names[]; /* "Cc", "Lu", ... NULL-terminated */
extern const char *const by_gr_uni_script_names[];

#endif
