/* args.c - see args.h. */
#include "cli/args.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Calls for each name in "a,b,c"; returns the length of the next one and moves *s behind it. */
static size_t next_name(const char **s, const char **name) {
    if (**s == ',') (*s)++;
    *name = *s;
    size_t n = strcspn(*s, ",");
    *s += n;
    return n;
}

static bool says_no(const char *name, size_t len) {
    return (len > 5 && memcmp(name, "--no-", 5) == 0) || (len > 10 && memcmp(name, "--disable-", 10) == 0);
}

static const by_flag *find(const by_flag *flags, int n, const char *word, size_t len, bool *negated) {
    for (int i = 0; i < n; i++) {
        const char *s = flags[i].names, *name;
        for (size_t k; (k = next_name(&s, &name)) > 0;) {
            if (k == len && memcmp(name, word, len) == 0) {
                *negated = flags[i].kind == BY_FLAG_BOOL && says_no(name, k);
                return &flags[i];
            }
        }
    }
    return NULL;
}

static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), row[65];
    if (n > 64 || m > 64) return 1000;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diag = up;
            row[j] = best;
        }
    }
    return row[m];
}

const char *by_args_nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    size_t best_d = strlen(word) / 3 + 2;
    for (int i = 0; i < n; i++) {
        size_t d = edit_distance(word, names[i]);
        if (d < best_d) {
            best_d = d;
            best = names[i];
        }
    }
    return best;
}

static by_status unknown(const by_flag *flags, int n, const char *word, by_err *err) {
    char bare[65], near[65] = "";
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word, "="), word);
    bool negated;
    const by_flag *shorter = word[1] != '-' && word[2] ? find(flags, n, word, 2, &negated) : NULL; /* -n4, -n=4 */
    if (shorter && shorter->kind != BY_FLAG_BOOL && shorter->kind != BY_FLAG_ABSENT && strchr("=+-.0123456789", word[2]))
        return BY_FAIL(err, BY_EINVAL, "unknown flag '%s': %.2s takes its value as the next argument, as in %.2s %s", word, word, word,
                       word + 2 + (word[2] == '='));
    size_t best_d = strlen(bare) / 3 + 2;
    for (int i = 0; i < n; i++) {
        const char *s = flags[i].kind == BY_FLAG_ABSENT ? "" : flags[i].names, *name;
        for (size_t k; (k = next_name(&s, &name)) > 0;) {
            char one[65];
            snprintf(one, sizeof one, "%.*s", (int)k, name);
            if (says_no(bare, strlen(bare)) != says_no(one, k)) continue; /* not the opposite of what is meant */
            size_t d = edit_distance(bare, one);
            if (d < best_d) {
                best_d = d;
                memcpy(near, one, sizeof near);
            }
        }
    }
    if (near[0]) return BY_FAIL(err, BY_EINVAL, "unknown flag '%s'; did you mean '%s'?", bare, near);
    return BY_FAIL(err, BY_EINVAL, "unknown flag '%s'", bare);
}

static by_status set_choice(const by_flag *f, const char *flag, const char *value, by_err *err) {
    int i = 0;
    for (const char *s = f->choices; *s; i++) {
        size_t k = strcspn(s, "|");
        if (strlen(value) == k && memcmp(s, value, k) == 0) {
            *(int *)f->out = i;
            return BY_OK;
        }
        s += k + (s[k] == '|');
    }
    return BY_FAIL(err, BY_EINVAL, "%s: '%s' is not one of %s", flag, value, f->choices);
}

static by_status set_value(const by_flag *f, const char *flag, const char *value, by_err *err) {
    char *end = NULL;
    errno = 0;
    switch (f->kind) {
    case BY_FLAG_STRING: *(const char **)f->out = value; return BY_OK;
    case BY_FLAG_LIST: {
        by_flag_list *list = f->out;
        const char **more = by_realloc(BY_MEM_MISC, list->items, sizeof(char *) * (size_t)(list->n + 1));
        if (!more) return BY_FAIL(err, BY_ENOMEM, "%s: out of memory", flag);
        list->items = more;
        list->items[list->n++] = value;
        return BY_OK;
    }
    case BY_FLAG_INT: {
        long long v = strtoll(value, &end, 10);
        if (end == value || *end || errno) return BY_FAIL(err, BY_EINVAL, "%s: '%s' is not an integer", flag, value);
        if ((f->min || f->max) && (v < f->min || v > f->max))
            return BY_FAIL(err, BY_EINVAL, "%s: %lld is outside %lld..%lld", flag, v, (long long)f->min,
                           (long long)f->max);
        *(int64_t *)f->out = v;
        return BY_OK;
    }
    case BY_FLAG_UINT64: {
        unsigned long long v = strtoull(value, &end, 10);
        if (end == value || *end || errno)
            return BY_FAIL(err, BY_EINVAL, "%s: '%s' is not a 64-bit integer", flag, value);
        *(uint64_t *)f->out = v;
        return BY_OK;
    }
    case BY_FLAG_DOUBLE: {
        double v = strtod(value, &end);
        if (end == value || *end || !isfinite(v)) return BY_FAIL(err, BY_EINVAL, "%s: '%s' is not a number", flag, value);
        if ((f->dmin != 0 || f->dmax != 0) && (v < f->dmin || v > f->dmax))
            return BY_FAIL(err, BY_EINVAL, "%s: %g is outside %g..%g", flag, v, f->dmin, f->dmax);
        *(double *)f->out = v;
        return BY_OK;
    }
    case BY_FLAG_CHOICE: return set_choice(f, flag, value, err);
    case BY_FLAG_BOOL:
    case BY_FLAG_ABSENT: break;
    }
    return BY_FAIL(err, BY_EINTERNAL, "%s: bad flag table", flag);
}

by_status by_args_parse(const by_flag *flags, int n_flags, int argc, char **argv, const char **pos, int pos_max,
                        int *n_pos, by_err *err) {
    int n = 0;
    bool only_positional = false;
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (only_positional || word[0] != '-' || word[1] == '\0') {
            bool no;
            if (n >= pos_max)
                return BY_FAIL(err, BY_EINVAL, "unexpected argument '%s'%s", word,
                               find(flags, n_flags, "--prompt", 8, &no) ? ": a text goes behind -p" : "");
            pos[n++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            only_positional = true;
            continue;
        }
        bool is_long = word[1] == '-', negated = false;
        size_t len = is_long ? strcspn(word, "=") : strlen(word);
        const by_flag *f = find(flags, n_flags, word, len, &negated);
        if (!f) return unknown(flags, n_flags, word, err);
        if (f->kind == BY_FLAG_ABSENT) return BY_FAIL(err, BY_EINVAL, "this program has no %.*s: %s", (int)len, word, f->choices);
        if (f->seen) *f->seen = true;
        const char *value = word[len] == '=' ? word + len + 1 : NULL;
        if (f->kind == BY_FLAG_BOOL) {
            if (value) return BY_FAIL(err, BY_EINVAL, "%.*s takes no value", (int)len, word);
            *(bool *)f->out = !negated;
            continue;
        }
        if (!value) {
            if (i + 1 >= argc) return BY_FAIL(err, BY_EINVAL, "%s needs a value", word);
            value = argv[++i];
        }
        char flag[65];
        snprintf(flag, sizeof flag, "%.*s", (int)len, word);
        BY_TRY(set_value(f, flag, value, err));
    }
    if (n_pos) *n_pos = n;
    return BY_OK;
}

void by_args_free(const by_flag *flags, int n_flags) {
    for (int i = 0; i < n_flags; i++) {
        if (flags[i].kind != BY_FLAG_LIST) continue;
        by_flag_list *list = flags[i].out;
        by_free(list->items);
        *list = (by_flag_list){0};
    }
}

by_status by_args_numbers(double *out, int *n, int max, double above, const char *flag, const by_flag_list *list, by_err *err) {
    *n = 0;
    for (int i = 0; i < list->n; i++) {
        for (const char *at = list->items[i], *end;; at = end + 1) {
            char *stop = NULL;
            double v = strtod(at, &stop);
            end = stop;
            if (end == at || (*end && *end != ',') || !isfinite(v) || !(v > above) || *n == max)
                return BY_FAIL(err, BY_EINVAL, "%s: '%s' is not a list of at most %d numbers above %g", flag, list->items[i], max, above);
            out[(*n)++] = v;
            if (!*end) break;
        }
    }
    return BY_OK;
}

/* What stands behind a flag's name. */
static const char *value_name(const by_flag *f) {
    switch (f->kind) {
    case BY_FLAG_CHOICE: return f->choices;
    case BY_FLAG_INT:
    case BY_FLAG_UINT64: return "N";
    case BY_FLAG_DOUBLE: return "X";
    case BY_FLAG_STRING:
    case BY_FLAG_LIST: return "TEXT";
    case BY_FLAG_BOOL:
    case BY_FLAG_ABSENT: break;
    }
    return "";
}

void by_args_print_help(const by_flag *flags, int n_flags) {
    enum { COLUMN = 44 }; /* where the explanations begin */
    for (int i = 0; i < n_flags; i++) {
        const by_flag *f = &flags[i];
        if (!f->help) continue;
        if (!f->names[0]) {
            printf("%s%s:\n", i > 0 ? "\n" : "", f->help);
            continue;
        }
        int n = printf("  %s %s", f->names, value_name(f));
        if (n >= COLUMN) n = 0, putchar('\n');
        printf("%*s%s\n", COLUMN - n, "", f->help);
    }
}
