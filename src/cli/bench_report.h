/* bench_report.h - how the parts of `bathyc bench` end: the frame of their JSON, and the exit code. */
#ifndef BY_CLI_BENCH_REPORT_H
#define BY_CLI_BENCH_REPORT_H

#include "base/err.h"
#include "json/json_write.h"

/* Begins the object in out with "bench" and "version"; the caller writes the other members. */
by_json_out by_bench_json_begin(by_buf *out, const char *bench);

/* Ends the object, prints it as a line, and releases out. */
void by_bench_json_end(by_json_out *o, by_buf *out);

/* 0 for BY_OK; else tells err on standard error and gives the exit code of status. */
int by_bench_exit(by_status status, const by_err *err);

#endif
