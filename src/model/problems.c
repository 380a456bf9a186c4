/* problems.c - see problems.h. */
#include "model/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void by_problems_deinit(by_problems *p) {
    by_buf_deinit(&p->text);
    *p = (by_problems){0};
}

void by_problems_add(by_problems *p, const char *fmt, ...) {
    if (!p) return;
    p->n++;
    if (p->n_kept >= BY_LIMIT_PROBLEMS) return;
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    size_t len = strlen(line);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) line[i] = '?';
    line[len++] = '\n';
    if (by_buf_push(&p->text, line, len)) p->n_kept++;
}

void by_problems_append(by_problems *p, const by_problems *src, const char *prefix) {
    if (!p) return;
    long lines = 0;
    for (size_t from = 0; from < src->text.len; lines++) {
        const char *line = src->text.ptr + from, *end = memchr(line, '\n', src->text.len - from);
        size_t len = end ? (size_t)(end - line) : src->text.len - from;
        by_problems_add(p, "%s%.*s", prefix, (int)len, line);
        from += len + 1;
    }
    p->n += src->n - lines;
}

by_status by_problems_check(by_problems *p, by_status code, by_err *err) {
    if (p->n == 0) return BY_OK;
    char text[BY_ERR_MSG_MAX];
    size_t at = 0;
    int shown = 0;
    for (size_t from = 0; from < p->text.len; shown++) {
        const char *line = p->text.ptr + from, *end = memchr(line, '\n', p->text.len - from);
        size_t len = end ? (size_t)(end - line) : p->text.len - from;
        if (at + len + 2 >= sizeof text - 60 && shown > 0) break; /* room for the count in front */
        int n = snprintf(text + at, sizeof text - at, "%s%.*s", shown ? "; " : "", (int)len, line);
        if (n > 0) at += (size_t)n;
        if (at >= sizeof text) at = sizeof text - 1;
        from += len + 1;
    }
    text[at] = '\0';
    if (p->n == 1 && shown == 1) return BY_FAIL(err, code, "%s", text);
    if (shown == 0) return BY_FAIL(err, code, "%ld problems (out of memory for their texts)", p->n);
    if (shown < p->n) return BY_FAIL(err, code, "%ld problems, the first %d: %s", p->n, shown, text);
    return BY_FAIL(err, code, "%ld problems: %s", p->n, text);
}
