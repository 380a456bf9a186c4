/* golden.h - paths, lines and comparisons for tests against stored data.
 *
 * A value passes when |got - want| <= tol_abs + tol_rel * |want|; tolerance 0 asks for equal values. NaN passes only
 * against NaN, infinities only against themselves. For tests only. */
#ifndef BY_TEST_GOLDEN_H
#define BY_TEST_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Path of a file below tests/golden/data ("model/ops/rope.npz") or below the source tree. The text lives until 16 more
 * calls of either function. */
const char *by_golden_path(const char *rel);
const char *by_source_path(const char *rel);

typedef struct by_golden_diff {
    size_t n, n_bad;
    size_t first_bad; /* index, n when none */
    double abs_max;   /* over finite pairs */
    double rel_max;   /* |got - want| / |want| over finite pairs with want != 0 */
    double worst;     /* largest |got - want| / (tol_abs + tol_rel |want|); infinite at tolerance 0 or NaN */
} by_golden_diff;

by_golden_diff by_golden_compare_f32(const float *got, const float *want, size_t n, double tol_abs, double tol_rel);

/* Compares and, on failure, prints `what`, the first failing index with both values, the count and the maxima. */
bool by_golden_close_f32(const char *what, const float *got, const float *want, size_t n, double tol_abs,
                         double tol_rel);

/* As above, but up to bad_share of the values may lie outside (the quantised goldens allow 0.01). */
bool by_golden_mostly_close_f32(const char *what, const float *got, const float *want, size_t n, double tol_abs,
                                double tol_rel, double bad_share);

/* Bitwise equality of n items; on failure prints the first index that differs and the bytes of both items. */
bool by_golden_same_bytes(const char *what, const void *got, const void *want, size_t n, size_t item_bytes);

/* Lines of a text file; a path that ends in .gz is read through zcat, and a path that does not exist is looked for with
 * .gz behind it. A file that cannot be read ends the program. */
typedef struct by_lines by_lines;
by_lines *by_lines_open(const char *path) __attribute__((returns_nonnull));

/* The next line without its end of line, valid until the next call; false at the end. */
bool by_lines_next(by_lines *l, by_str *line);

/* Number of the line returned last, from 1. */
size_t by_lines_number(const by_lines *l);
void by_lines_close(by_lines *l);

#endif
