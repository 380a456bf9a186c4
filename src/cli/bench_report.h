/* bench_report.h - how the parts of `bathyc bench` end: the frame of their JSON, and the exit code. */
#ifndef BY_CLI_BENCH_REPORT_H
#define BY_CLI_BENCH_REPORT_H

#include "base/err.h"
#include "base/limits.h"
#include "cli/args.h"
#include "json/json_write.h"

/* Most --repetitions. */
enum { BY_BENCH_REPEAT_MAX = 32 };

/* Rows of a flag table for parts that time decoding, into members of b: n_prompt, n_gen (whose default is gen_text), repeat, json. */
#define BY_BENCH_DECODE_ROWS(b, gen_text)                                                                              \
    {.names = "--n-prompt,-p", .kind = BY_FLAG_INT, .out = &(b).n_prompt, .min = 1, .max = BY_LIMIT_CONTEXT / 2,       \
     .help = "tokens of a prompt (default: 16)"},                                                                      \
    {.names = "--n-gen,-n", .kind = BY_FLAG_INT, .out = &(b).n_gen, .min = 2, .max = BY_LIMIT_CONTEXT / 2,             \
     .help = "tokens to decode (default: " gen_text ")"},                                                              \
    {.names = "--repetitions,-r", .kind = BY_FLAG_INT, .out = &(b).repeat, .min = 1, .max = BY_BENCH_REPEAT_MAX,       \
     .help = "timed runs of each kind (default: 5)"},                                                                  \
    {.names = "--json", .kind = BY_FLAG_BOOL, .out = &(b).json, .help = "one JSON object instead of a table"}

/* Begins the object in out with "bench" and "version"; the caller writes the other members. */
by_json_out by_bench_json_begin(by_buf *out, const char *bench);

/* Ends the object, prints it as a line, and releases out. */
void by_bench_json_end(by_json_out *o, by_buf *out);

/* 0 for BY_OK; else tells err on standard error and gives the exit code of status. */
int by_bench_exit(by_status status, const by_err *err);

#endif
