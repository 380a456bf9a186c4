/* bench_report.c - see bench_report.h. */
#include "cli/bench_report.h"

#include <stdio.h>

#include "cli/model_flags.h"

by_json_out by_bench_json_begin(by_buf *out, const char *bench) {
    by_json_out o = by_json_out_init(out, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_member_z(&o, "bench", bench);
    by_json_out_member_z(&o, "version", BATHYC_VERSION);
    return o;
}

void by_bench_json_end(by_json_out *o, by_buf *out) {
    by_json_out_object_end(o);
    printf("%s\n", by_buf_z(out));
    by_buf_deinit(out);
}

int by_bench_exit(by_status status, const by_err *err) {
    if (status == BY_OK) return 0;
    fprintf(stderr, "bathyc bench: %s\n", err->msg);
    return by_model_exit_code(status);
}
