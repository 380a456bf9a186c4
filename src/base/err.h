/* err.h - status codes and the error record that every fallible function fills once, at the place of failure.
 *
 * A function that can fail returns by_status and takes `by_err *err` last; err may be NULL when the caller does not want
 * the text. Negative codes are failures, positive ones expected outcomes (BY_AGAIN, BY_NOT_FOUND). Library code never
 * prints or exits. Thread rule: a by_err belongs to one caller. */
#ifndef BY_BASE_ERR_H
#define BY_BASE_ERR_H

/* name, value, HTTP status, short text */
#define BY_STATUS_TABLE(X)                                                                         \
    X(BY_OK, 0, 200, "ok")                                                                         \
    X(BY_AGAIN, 1, 503, "try again")                                                               \
    X(BY_NOT_FOUND, 2, 404, "not found")                                                           \
    X(BY_END, 3, 200, "end of input")                                                              \
    X(BY_EINVAL, -1, 400, "invalid argument")                                                      \
    X(BY_ENOMEM, -2, 503, "out of memory")                                                         \
    X(BY_EIO, -3, 500, "input or output failed")                                                   \
    X(BY_EFORMAT, -4, 400, "malformed data")                                                       \
    X(BY_ELIMIT, -5, 400, "limit exceeded")                                                        \
    X(BY_EUNSUPPORTED, -6, 400, "not supported")                                                   \
    X(BY_ENUMERIC, -7, 500, "not a number or infinite")                                            \
    X(BY_ECANCELLED, -8, 499, "cancelled")                                                         \
    X(BY_EBUSY, -9, 429, "busy")                                                                   \
    X(BY_EDEVICE, -10, 500, "device error")                                                        \
    X(BY_EINTERNAL, -11, 500, "internal error")                                                    \
    X(BY_EMISSING, -12, 404, "does not exist")                                                     \
    X(BY_ETIMEOUT, -13, 504, "timed out")                                                          \
    X(BY_ECONTEXT, -14, 400, "context length exceeded")                                            \
    X(BY_EGRAMMAR, -15, 400, "grammar refused")

typedef enum by_status {
#define BY_STATUS_ENUM(name, value, http, text) name = value,
    BY_STATUS_TABLE(BY_STATUS_ENUM)
#undef BY_STATUS_ENUM
} by_status;

#define BY_ERR_MSG_MAX 512

typedef struct by_err {
    by_status code;
    int line;
    const char *file;
    const char *field; /* of the request that is at fault, static; NULL = none in particular */
    char msg[BY_ERR_MSG_MAX];
} by_err;

/* Fills err (if not NULL) with code and a formatted text, cut at BY_ERR_MSG_MAX - 1 bytes without splitting a UTF-8
 * character. Returns code, so that `return BY_FAIL(err, BY_EINVAL, "...")` is the usual form. */
by_status by_err_set(by_err *err, by_status code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Names the field of a request that an error is about (static; "n"): BY_FAIL forgets it. Returns code. */
by_status by_err_at(by_err *err, const char *field, by_status code);

/* Puts a formatted prefix in front of the message already in err ("config.json: " + msg). Returns err->code. */
by_status by_err_prefix(by_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Enum name ("BY_EINVAL"), short text ("invalid argument") and HTTP status of a code; unknown codes give "BY_?". */
const char *by_status_name(by_status code);
const char *by_status_text(by_status code);
int by_status_http(by_status code);

#define BY_FAIL(err, code, ...) by_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)
#define BY_FAIL_AT(err, code, field, ...) by_err_at((err), (field), BY_FAIL((err), (code), __VA_ARGS__))

/* Returns upward on failure. For functions without resources to release. */
#define BY_TRY(expr)                                                                               \
    do {                                                                                           \
        by_status by_try_status_ = (expr);                                                         \
        if (by_try_status_ < 0) return by_try_status_;                                             \
    } while (0)

/* Jumps to `out:` on failure; the function keeps its result in `status`. */
#define BY_TRY_OUT(expr)                                                                           \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status < 0) goto out;                                                                  \
    } while (0)

#endif
