/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static by_log_level g_level = BY_LOG_WARN;
static bool g_json;
static int g_fd = 2;

void by_log_setup(by_log_level level, bool json, int fd) {
    g_level = level;
    g_json = json;
    g_fd = fd;
}

bool by_log_enabled(by_log_level level) { return level <= g_level; }

static size_t put_json_text(char *to, size_t cap, const char *s) {
    size_t n = 0;
    for (; *s && n + 8 < cap; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            to[n++] = '\\';
            to[n++] = (char)c;
        } else if (c < 0x20) {
            n += (size_t)snprintf(to + n, cap - n, "\\u%04x", c);
        } else {
            to[n++] = (char)c;
        }
    }
    to[n] = '\0';
    return n;
}

void by_log_line(by_log_level level, const char *fmt, ...) {
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char text[1600], line[4096], when[32];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    struct tm tm;
    gmtime_r(&ts.tv_sec, &tm);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    int n;
    if (g_json) {
        char quoted[3300];
        put_json_text(quoted, sizeof quoted, text);
        n = snprintf(line, sizeof line, "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"msg\":\"%s\"}\n", when,
                     ts.tv_nsec / 1000000, names[level], quoted);
    } else {
        n = snprintf(line, sizeof line, "%s.%03ldZ %s: %s\n", when, ts.tv_nsec / 1000000, names[level], text);
    }
    if (n <= 0) return;
    size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    ssize_t wrote = write(g_fd, line, len); /* a full or closed log must not stop the program */
    (void)wrote;
}
