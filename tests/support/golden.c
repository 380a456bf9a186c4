/* golden.c - see golden.h. */
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATHS      16
#define PATH_BYTES 4096

static const char *source_path(const char *dir, const char *rel) {
    static char paths[PATHS][PATH_BYTES];
    static unsigned at;
    char *path = paths[at++ % PATHS];
    if (snprintf(path, PATH_BYTES, "%s%s/%s", BATHYC_SOURCE_DIR, dir, rel) >= PATH_BYTES) abort();
    return path;
}

const char *by_golden_path(const char *rel) {
    return source_path("/tests/golden/data", rel);
}
const char *by_source_path(const char *rel) {
    return source_path("", rel);
}

/* ---- comparisons ---- */

by_golden_diff by_golden_compare_f32(const float *got, const float *want, size_t n, double tol_abs, double tol_rel) {
    by_golden_diff d = {.n = n, .first_bad = n};
    for (size_t i = 0; i < n; i++) {
        double g = (double)got[i], w = (double)want[i];
        bool ok;
        if (isfinite(g) && isfinite(w)) {
            double diff = fabs(g - w), allowed = tol_abs + tol_rel * fabs(w);
            ok = diff <= allowed;
            if (diff > d.abs_max) d.abs_max = diff;
            if (w != 0 && diff / fabs(w) > d.rel_max) d.rel_max = diff / fabs(w);
            double ratio = diff == 0 ? 0 : diff / allowed;
            if (ratio > d.worst) d.worst = ratio;
        } else {
            ok = (isnan(g) && isnan(w)) || g == w;
            if (!ok) d.worst = (double)INFINITY;
        }
        if (ok) continue;
        if (d.n_bad++ == 0) d.first_bad = i;
    }
    return d;
}

bool by_golden_mostly_close_f32(const char *what, const float *got, const float *want, size_t n, double tol_abs,
                                double tol_rel, double bad_share) {
    by_golden_diff d = by_golden_compare_f32(got, want, n, tol_abs, tol_rel);
    if ((double)d.n_bad <= bad_share * (double)n) return true;
    fprintf(stderr,
            "%s: %zu of %zu values outside; first at [%zu]: got %.9g, want %.9g; max abs %.3g, max rel %.3g, allowed "
            "%.3g + %.3g |want|\n",
            what, d.n_bad, n, d.first_bad, (double)got[d.first_bad], (double)want[d.first_bad], d.abs_max, d.rel_max,
            tol_abs, tol_rel);
    return false;
}

bool by_golden_close_f32(const char *what, const float *got, const float *want, size_t n, double tol_abs,
                         double tol_rel) {
    return by_golden_mostly_close_f32(what, got, want, n, tol_abs, tol_rel, 0);
}

static void print_item(const char *name, const unsigned char *item, size_t bytes) {
    fprintf(stderr, " %s", name);
    for (size_t b = 0; b < bytes && b < 16; b++)
        fprintf(stderr, " %02x", item[b]);
    float f;
    if (bytes == sizeof f) {
        memcpy(&f, item, sizeof f);
        fprintf(stderr, " (%.9g)", (double)f);
    }
}

bool by_golden_same_bytes(const char *what, const void *got, const void *want, size_t n, size_t item_bytes) {
    const unsigned char *g = got, *w = want;
    size_t n_bad = 0, first = 0;
    for (size_t i = 0; i < n; i++) {
        if (memcmp(g + i * item_bytes, w + i * item_bytes, item_bytes) == 0) continue;
        if (n_bad++ == 0) first = i;
    }
    if (n_bad == 0) return true;
    fprintf(stderr, "%s: %zu of %zu items differ; first at [%zu]:", what, n_bad, n, first);
    print_item("got", g + first * item_bytes, item_bytes);
    print_item(", want", w + first * item_bytes, item_bytes);
    fputc('\n', stderr);
    return false;
}

/* ---- lines ---- */

struct by_lines {
    FILE *f;
    bool piped;
    char *line;
    size_t cap, number;
    char path[PATH_BYTES];
};

static FILE *open_gz(const char *path) {
    char command[PATH_BYTES + 16];
    if (strchr(path, '\'')) return NULL; /* the shell quotes below would end early */
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    return popen(command, "r");
}

by_lines *by_lines_open(const char *path) {
    by_lines *l = calloc(1, sizeof *l);
    if (!l) abort();
    size_t len = strlen(path);
    bool gz = len > 3 && strcmp(path + len - 3, ".gz") == 0;
    if (!gz && access(path, F_OK) != 0)
        gz = true, snprintf(l->path, sizeof l->path, "%s.gz", path);
    else
        snprintf(l->path, sizeof l->path, "%s", path);
    l->piped = gz;
    if (access(l->path, R_OK) == 0) l->f = gz ? open_gz(l->path) : fopen(l->path, "r");
    if (!l->f) {
        fprintf(stderr, "%s: cannot be read\n", path);
        abort();
    }
    return l;
}

bool by_lines_next(by_lines *l, by_str *line) {
    ssize_t n = getline(&l->line, &l->cap, l->f);
    if (n < 0) return false;
    if (n > 0 && l->line[n - 1] == '\n') n--;
    l->number++;
    *line = by_str_of(l->line, (size_t)n);
    return true;
}

size_t by_lines_number(const by_lines *l) {
    return l->number;
}

void by_lines_close(by_lines *l) {
    if (!l) return;
    bool failed = ferror(l->f) != 0, at_end = feof(l->f) != 0;
    int rc = l->piped ? pclose(l->f) : fclose(l->f);
    if (failed || (rc != 0 && at_end)) { /* gzip killed by an early close is no failure */
        fprintf(stderr, "%s: reading failed\n", l->path);
        abort();
    }
    free(l->line);
    free(l);
}
