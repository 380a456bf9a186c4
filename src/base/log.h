/* log.h - one line per event to stderr, text or JSON. The sink and level are set once in main; by_log_line builds the
 * line on the stack and writes it with one write(2), so lines of several threads do not mix. */
#ifndef BY_BASE_LOG_H
#define BY_BASE_LOG_H

#include <stdbool.h>

typedef enum by_log_level { BY_LOG_ERROR, BY_LOG_WARN, BY_LOG_INFO, BY_LOG_DEBUG } by_log_level;

/* Call before any thread starts. Default: BY_LOG_WARN, text, file descriptor 2. */
void by_log_setup(by_log_level level, bool json, int fd);
bool by_log_enabled(by_log_level level);
void by_log_line(by_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define BY_LOG(level, ...)                                                                         \
    do {                                                                                           \
        if (by_log_enabled(level)) by_log_line((level), __VA_ARGS__);                              \
    } while (0)

#endif
