/* process.h - starts the built program (or any other) with arguments and input, and collects what it prints.
 *
 * A process that runs past its limit is killed with its children and reported as such. Output beyond 64 MiB is dropped
 * and marked. For tests only; memory comes from libc. */
#ifndef BY_TEST_PROCESS_H
#define BY_TEST_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct by_process_opts {
    const char *input; /* bytes for its standard input; NULL = /dev/null */
    size_t input_bytes;
    const char *const *env; /* NULL-terminated "NAME=value" put before the own environment; NULL = none */
    const char *cwd;        /* NULL = the test's */
    double limit_s;         /* 0 = 60; ten times that with a sanitizer */
    bool closed_stdout;     /* the reading end of standard output is closed before it starts */
} by_process_opts;

typedef struct by_process_result {
    int exit_code; /* -1 when ended by a signal */
    int signal;    /* 0 when it exited */
    bool timed_out;
    bool cut;
    char *out, *err; /* NUL-terminated; out_bytes counts bytes before the NUL */
    size_t out_bytes, err_bytes;
    double wall_s, cpu_s; /* cpu_s: user and system time */
    long rss_kib_max;
} by_process_result;

/* argv ends with NULL; argv[0] is the path, looked up in PATH without a slash. opts may be NULL. Ends the test program
 * with a line on stderr when the process cannot be started. */
by_process_result by_process_run(const char *const *argv, const by_process_opts *opts);
void by_process_free(by_process_result *r);

/* The built program with these arguments: by_bathyc(NULL, "version", NULL). */
by_process_result by_bathyc(const by_process_opts *opts, ...) __attribute__((sentinel));

/* Prints status and both outputs to stderr: for a failing test. */
void by_process_print(const by_process_result *r);

#endif
