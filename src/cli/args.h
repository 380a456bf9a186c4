/* args.h - table-driven command-line flags with aliases, ranges and "did you mean".
 *
 * A command fills an array of by_flag that point at its variables (already holding the defaults) and calls by_args_parse.
 * Both `--flag value` and `--flag=value` are read; `--` ends the flags; `-` is a value. Errors name the flag and suggest
 * the nearest known one; the caller exits with 2. */
#ifndef BY_CLI_ARGS_H
#define BY_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum by_flag_kind {
    BY_FLAG_BOOL,   /* bool *: sets true; a name that begins with "--no-" or "--disable-" sets false */
    BY_FLAG_STRING, /* const char ** */
    BY_FLAG_LIST,   /* by_flag_list *: may repeat */
    BY_FLAG_INT,    /* int64_t *, in [min, max] */
    BY_FLAG_UINT64, /* uint64_t *, any */
    BY_FLAG_DOUBLE, /* double *, in [dmin, dmax] */
    BY_FLAG_CHOICE, /* int *: index into choices, "a|b|c" */
    BY_FLAG_ABSENT  /* a name that is refused with the reason in choices; not in help, not suggested */
} by_flag_kind;

typedef struct by_flag_list {
    const char **items;
    int n;
} by_flag_list;

typedef struct by_flag {
    const char *names; /* "--model,-m,--model-path": the first is the documented one; "" = help is a heading of the list */
    by_flag_kind kind;
    void *out;
    const char *help;    /* one line; NULL hides the flag from help */
    const char *choices; /* BY_FLAG_CHOICE, BY_FLAG_ABSENT */
    int64_t min, max;    /* BY_FLAG_INT; both 0 = any */
    double dmin, dmax;   /* BY_FLAG_DOUBLE; both 0 = any finite */
    bool *seen;          /* set true when given; may be NULL */
} by_flag;

/* Positional arguments go to pos (at most pos_max; NULL and 0 to allow none); *n_pos is their number.
 * Lists allocate their item array; release with by_args_free. Errors: BY_EINVAL (usage), BY_ENOMEM. */
by_status by_args_parse(const by_flag *flags, int n_flags, int argc, char **argv, const char **pos, int pos_max,
                        int *n_pos, by_err *err);
void by_args_free(const by_flag *flags, int n_flags);

/* The finite numbers above `above` of a list flag, each item one or several with commas between, into out [max]; *n of them. Errors:
 * BY_EINVAL (flag and item are named). */
by_status by_args_numbers(double *out, int *n, int max, double above, const char *flag, const by_flag_list *list, by_err *err);

/* A heading of the list of flags. */
#define BY_FLAG_HEADING(text) {.names = "", .help = (text)}

/* Prints the flags that have help to stdout, each with what its value is. */
void by_args_print_help(const by_flag *flags, int n_flags);

/* Nearest of n names to word by edit distance, NULL when none is near. */
const char *by_args_nearest(const char *word, const char *const *names, int n);

#endif
