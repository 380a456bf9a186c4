/* step_log.h - the line of `--log-steps`: what the engine did since the line before. docs/engine.md explains its fields. */
#ifndef BY_CLI_STEP_LOG_H
#define BY_CLI_STEP_LOG_H

#include "base/buf.h"
#include "engine/engine.h"

/* Zero-initialise; the first line is about everything since the engine was open. */
typedef struct by_step_log {
    by_engine_stats then;
    int64_t then_ns; /* of the line before, 0 = none */
} by_step_log;

/* Appends the line, with its newline, for figures of time now_ns (as by_clock_ns), which become those before the next line. */
void by_step_log_write(by_buf *out, by_step_log *log, const by_engine_stats *now, int64_t now_ns);

/* by_engine_opts.on_steps, with a by_step_log as arg: writes the line to standard error. */
void by_step_log_note(void *arg, const by_engine_stats *now);

#endif
