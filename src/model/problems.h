/* problems.h - a list of everything wrong with an input, so that its author sees all of it at once.
 *
 * The list is bounded: after BY_LIMIT_PROBLEMS texts only the number grows (a directory without its shards misses
 * 120,000 tensors). Adding never fails; when memory is out the count still rises. One thread. */
#ifndef BY_MODEL_PROBLEMS_H
#define BY_MODEL_PROBLEMS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

#define BY_LIMIT_PROBLEMS 100 /* texts kept; more does not help a reader */

typedef struct by_problems {
    by_buf text; /* one problem a line, each ended by '\n'; control characters of outside names become '?' */
    int n_kept;  /* lines in text */
    long n;      /* problems seen */
} by_problems;

void by_problems_deinit(by_problems *p);

/* Adds one formatted line. NULL is allowed and ignored. */
void by_problems_add(by_problems *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds every line of src to p with a prefix; problems of src that were counted only are counted here too. p may be
 * NULL. */
void by_problems_append(by_problems *p, const by_problems *src, const char *prefix);

/* BY_OK when the list is empty. Else code with the first problems joined by "; ", as many as fit into err, and their
 * number: "3 problems: a; b; c". */
by_status by_problems_check(by_problems *p, by_status code, by_err *err);

#endif
