/* err.c - see err.h. Formatting only; no allocation, so that an out-of-memory error can be reported. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Removes a UTF-8 sequence that the size limit has cut in two. */
static void trim_cut_utf8(char *s, size_t len) {
    size_t at = len;
    while (at > 0 && ((unsigned char)s[at - 1] & 0xc0u) == 0x80u && len - at < 3) at--;
    if (at == 0) return;
    unsigned char lead = (unsigned char)s[at - 1];
    size_t want = lead >= 0xf0u ? 4 : lead >= 0xe0u ? 3 : lead >= 0xc0u ? 2 : 1;
    if (want > len - (at - 1)) s[at - 1] = '\0';
}

by_status by_err_set(by_err *err, by_status code, const char *file, int line, const char *fmt,
                     ...) {
    if (!err) return code;
    err->code = code;
    err->file = file;
    err->line = line;
    err->field = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n < 0) err->msg[0] = '\0';
    else if ((size_t)n >= sizeof err->msg) trim_cut_utf8(err->msg, sizeof err->msg - 1);
    return code;
}

by_status by_err_at(by_err *err, const char *field, by_status code) {
    if (err) err->field = field;
    return code;
}

by_status by_err_prefix(by_err *err, const char *fmt, ...) {
    if (!err) return BY_EINTERNAL;
    char old[BY_ERR_MSG_MAX];
    memcpy(old, err->msg, sizeof old);
    old[sizeof old - 1] = '\0';
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : (size_t)n;
    if (at >= sizeof err->msg) at = sizeof err->msg - 1;
    int m = snprintf(err->msg + at, sizeof err->msg - at, "%s", old);
    if (m > 0 && (size_t)m >= sizeof err->msg - at) trim_cut_utf8(err->msg, sizeof err->msg - 1);
    return err->code;
}

const char *by_status_name(by_status code) {
    switch (code) {
#define BY_STATUS_NAME(name, value, http, text)                                                    \
    case name: return #name;
        BY_STATUS_TABLE(BY_STATUS_NAME)
#undef BY_STATUS_NAME
    }
    return "BY_?";
}

const char *by_status_text(by_status code) {
    switch (code) {
#define BY_STATUS_TEXT(name, value, http, text)                                                    \
    case name: return text;
        BY_STATUS_TABLE(BY_STATUS_TEXT)
#undef BY_STATUS_TEXT
    }
    return "unknown status";
}

int by_status_http(by_status code) {
    switch (code) {
#define BY_STATUS_HTTP(name, value, http, text)                                                    \
    case name: return http;
        BY_STATUS_TABLE(BY_STATUS_HTTP)
#undef BY_STATUS_HTTP
    }
    return 500;
}
