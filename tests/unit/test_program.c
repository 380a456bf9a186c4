/* test_program.c - the command line as a user meets it: help, wrong usage, odd environments, broken pipes, full disks,
 * unreadable and malformed input. Runs over every command that `bathyc help` lists. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "support/golden.h"
#include "support/process.h"
#include "support/temp.h"

#define COMMANDS_MAX 64

static char commands[COMMANDS_MAX][32];
static int n_commands;

static int list_commands(void **state) {
    (void)state;
    by_process_result r = by_bathyc(NULL, "help", NULL);
    char *rest = r.out, *line;
    while ((line = strsep(&rest, "\n")))
        if (strncmp(line, "  ", 2) == 0 && n_commands < COMMANDS_MAX &&
            sscanf(line, "  %31[a-z0-9-] ", commands[n_commands]) == 1)
            n_commands++;
    by_process_free(&r);
    return n_commands >= 5 ? 0 : -1;
}

/* Fails with everything the process printed. */
static void expect(by_process_result *r, int exit_code, const char *in_stderr, const char *what) {
    bool ok = r->exit_code == exit_code && !r->timed_out && (!in_stderr || strstr(r->err, in_stderr));
    if (!ok) {
        by_process_print(r);
        fail_msg("%s: want exit code %d and \"%s\" on stderr", what, exit_code, in_stderr ? in_stderr : "");
    }
    by_process_free(r);
}

static void every_command_prints_its_help(void **state) {
    (void)state;
    for (int i = 0; i < n_commands; i++) {
        by_process_result a = by_bathyc(NULL, commands[i], "--help", NULL),
                          b = by_bathyc(NULL, "help", commands[i], NULL);
        char usage[64];
        snprintf(usage, sizeof usage, "usage: bathyc %.31s", commands[i]);
        if (strncmp(a.out, usage, strlen(usage)) != 0 || a.err_bytes > 0) fail_msg("%s --help: %s", commands[i], a.out);
        assert_string_equal(a.out, b.out);
        expect(&a, 0, NULL, commands[i]);
        expect(&b, 0, NULL, commands[i]);
    }
}

static void wrong_usage_exits_with_2_and_prints_nothing_else(void **state) {
    (void)state;
    for (int i = 0; i < n_commands; i++) {
        by_process_result r = by_bathyc(NULL, commands[i], "--no-such-flag-at-all", NULL);
        assert_int_equal(r.out_bytes, 0);
        expect(&r, 2, "--no-such-flag-at-all", commands[i]);
    }
    by_process_result r = by_bathyc(NULL, NULL);
    expect(&r, 2, NULL, "no command");
    r = by_bathyc(NULL, "generat", NULL);
    expect(&r, 2, "did you mean 'generate'", "a misspelt command");
    r = by_bathyc(NULL, "zzz", NULL);
    assert_null(strstr(r.err, "did you mean"));
    expect(&r, 2, "'zzz'", "an unknown command");
    r = by_bathyc(NULL, "help", "generat", NULL);
    expect(&r, 2, "generat", "help for an unknown command");
}

/* Each long flag that the help names, written with one letter less, is suggested again. */
static void a_misspelt_flag_is_suggested(void **state) {
    (void)state;
    int n_tried = 0;
    for (int i = 0; i < n_commands; i++) {
        by_process_result help = by_bathyc(NULL, commands[i], "--help", NULL);
        char *rest = help.out, *line, flag[64], wrong[64], want[96];
        while ((line = strsep(&rest, "\n"))) {
            if (sscanf(line, "  %63[a-z0-9-]", flag) != 1 || strncmp(flag, "--", 2) != 0 || strlen(flag) < 8) continue;
            if (n_tried++ % 4) continue; /* a quarter of them is enough */
            snprintf(wrong, sizeof wrong, "%.*s", (int)strlen(flag) - 1, flag);
            snprintf(want, sizeof want, "did you mean '%s'", flag);
            by_process_result r = by_bathyc(NULL, commands[i], wrong, NULL);
            expect(&r, 2, want, commands[i]);
        }
        by_process_free(&help);
    }
    assert_true(n_tried > 20);
}

static void values_out_of_range_name_the_flag(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"--threads", "0"},     {"--threads", "many"},   {"--threads", "99999999999"},
        {"--numerics", "none"}, {"--backend", "abacus"}, {"--chunk", "0"},
        {"--chunk", "-5"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_process_result r = by_bathyc(NULL, "generate", "-i", "/dev/null", cases[i][0], cases[i][1], NULL);
        expect(&r, 2, cases[i][0], cases[i][1]);
    }
    by_process_result r = by_bathyc(NULL, "generate", "-i", "/dev/null", "--cpu-isa", "mmx", NULL);
    expect(&r, 2, "cpu-isa", "an unknown instruction set");
    r = by_bathyc(NULL, "generate", "-i", NULL);
    expect(&r, 2, "-i", "a flag without its value");
}

static void unknown_names_of_ours_in_the_environment_are_errors(void **state) {
    (void)state;
    const char *misspelt[] = {"BATHYC_MODLE=x", NULL}, *odd[] = {"BATHYC_QQQQQQ=1", NULL}, *other[] = {"BATHY=1", NULL};
    by_process_result r = by_bathyc(&(by_process_opts){.env = misspelt}, "version", NULL);
    expect(&r, 2, "BATHYC_MODEL", "a misspelt name");
    r = by_bathyc(&(by_process_opts){.env = odd}, "version", NULL);
    expect(&r, 2, "BATHYC_QQQQQQ", "an unknown name");
    r = by_bathyc(&(by_process_opts){.env = other}, "version", NULL);
    expect(&r, 0, NULL, "a name of somebody else");
}

static void missing_and_unreadable_files_are_named(void **state) {
    (void)state;
    by_process_result r = by_bathyc(NULL, "generate", "-i", "/no/such/input.jsonl", NULL);
    expect(&r, 1, "/no/such/input.jsonl", "missing input");
    r = by_bathyc(NULL, "generate", "-i", by_source_path("models"), NULL);
    expect(&r, 1, "models", "a folder as input");
    r = by_bathyc(NULL, "inspect", "-m", "/no/such/model", NULL);
    expect(&r, 1, "/no/such/model", "missing model");
    r = by_bathyc(NULL, "inspect", "-m", by_source_path("tests"), NULL);
    expect(&r, 1, "config.json", "a folder without a model");
    r = by_bathyc(NULL, "generate", "-i", "/dev/null", "-o", "/no/such/folder/out.jsonl", NULL);
    expect(&r, 1, "/no/such/folder/out.jsonl", "output into a missing folder");
    const char *env[] = {"BATHYC_MODEL=/no/such/model", NULL};
    r = by_bathyc(&(by_process_opts){.env = env}, "inspect", NULL);
    expect(&r, 1, "BATHYC_MODEL", "a wrong model in the environment");
    if (geteuid() == 0) return; /* root reads everything */
    const char *secret = by_temp_write("secret.jsonl", "", 0);
    assert_int_equal(chmod(secret, 0), 0);
    r = by_bathyc(NULL, "generate", "-i", secret, NULL);
    expect(&r, 1, "Permission denied", "unreadable input");
}

/* Every command that runs the model refuses a context beyond its limit, with the limit. */
static void a_context_beyond_the_model_is_refused(void **state) {
    (void)state;
    static const char *const calls[][6] = {{"run", "-p", "hi"}, {"chat"}, {"batch", "-i", "/dev/null", "-o", "-"}, {"serve", "--port", "0"},
                                           {"bench", "engine"}};
    by_process_opts opts = {.input = "", .input_bytes = 0};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const char *argv[16] = {BATHYC_PROGRAM};
        int n = 1;
        for (int k = 0; k < 6 && calls[i][k]; k++) argv[n++] = calls[i][k];
        argv[n++] = "-c";
        argv[n] = "8193";
        by_process_result r = by_process_run(argv, &opts);
        if (i == 3 && strstr(r.err, "no server")) continue;
        expect(&r, 2, "8193 tokens is beyond the model's limit of 8192", calls[i][0]);
    }
    by_process_result r = by_bathyc(NULL, "run", "-p", "hi", "-n", "1", "-c", "8192", NULL);
    expect(&r, 0, NULL, "the whole context");
}

/* Lines of `generate` that are wrong in one way each; the good ones around them are answered. */
static void bad_lines_fail_alone(void **state) {
    (void)state;
    static const struct {
        const char *line, *why;
    } bad[] = {
        {"\xff\xfe", "UTF-8"},
        {"{\"id\":\"b1\"", "line"},
        {"[]", "object"},
        {"{\"id\":\"b2\"}", "tokens"},
        {"{\"id\":\"b3\",\"tokens\":[]}", "tokens"},
        {"{\"id\":\"b4\",\"tokens\":[-1]}", "-1"},
        {"{\"id\":\"b5\",\"tokens\":[5376]}", "5376"},
        {"{\"id\":\"b6\",\"tokens\":[1.5]}", "tokens"},
        {"{\"id\":\"b7\",\"tokens\":\"x\"}", "tokens"},
        {"{\"id\":\"b8\",\"tokens\":[1],\"temperature\":-1}", "temperature"},
        {"{\"id\":\"b9\",\"tokens\":[1],\"top_p\":0}", "top_p"},
        {"{\"id\":\"b10\",\"tokens\":[1],\"top_k\":0}", "top_k"},
        {"{\"id\":\"b11\",\"tokens\":[1],\"max_tokens\":-1}", "max_tokens"},
        {"{\"id\":\"b12\",\"tokens\":[1],\"seed\":\"x\"}", "seed"},
        {"{\"id\":\"b13\",\"tokens\":[1],\"ignore_eos\":1}", "ignore_eos"},
    };
    enum { N = sizeof bad / sizeof bad[0] };
    by_buf in = {0};
    for (size_t i = 0; i < N; i++)
        by_buf_printf(&in, "{\"id\":\"good%zu\",\"tokens\":[1,2],\"max_tokens\":1,\"temperature\":0}\n%s\n", i,
                      bad[i].line);
    by_process_opts opts = {.input = in.ptr, .input_bytes = in.len};
    by_process_result r = by_bathyc(&opts, "generate", "-i", "-", NULL);
    char *rest = r.out;
    for (size_t i = 0; i < N; i++) {
        char *answer = strsep(&rest, "\n"), *complaint = answer ? strsep(&rest, "\n") : NULL;
        if (!complaint || !strstr(answer, "\"tokens\":[") || !strstr(complaint, "\"error\":") ||
            !strstr(complaint, bad[i].why)) {
            by_process_print(&r);
            fail_msg("bad line %zu (%s): %s", i, bad[i].line, complaint ? complaint : "no answer");
        }
    }
    expect(&r, 1, NULL, "bad lines");
    by_buf_deinit(&in);
}

/* Ended as other programs are that write to a reader that has gone. */
static void expect_sigpipe(by_process_result *r, const char *what) {
    if (r->signal != SIGPIPE || r->err_bytes != 0) {
        by_process_print(r);
        fail_msg("%s into a closed pipe: signal %d, exit code %d", what, r->signal, r->exit_code);
    }
    by_process_free(r);
}

static void a_closed_output_ends_silently_and_a_full_disk_is_an_error(void **state) {
    (void)state;
    static const char *const cases[][4] = {{"version", NULL},
                                           {"inspect", NULL},
                                           {"inspect", "--json", NULL},
                                           {"help", NULL},
                                           {"generate", "--help", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_process_result r = by_bathyc(&(by_process_opts){.closed_stdout = true}, cases[i][0], cases[i][1], NULL);
        expect_sigpipe(&r, cases[i][0]);
        if (access("/dev/full", W_OK) != 0) continue;
        char command[600];
        snprintf(command, sizeof command, "'%s' %s %s > /dev/full", BATHYC_PROGRAM, cases[i][0],
                 cases[i][1] ? cases[i][1] : "");
        r = by_process_run((const char *const[]){"sh", "-c", command, NULL}, NULL);
        expect(&r, 1, "bathyc", cases[i][0]);
    }
    static const char line[] = "{\"id\":\"a\",\"tokens\":[1,2],\"max_tokens\":4}\n";
    by_process_opts opts = {.input = line, .input_bytes = sizeof line - 1, .closed_stdout = true};
    by_process_result r = by_bathyc(&opts, "generate", "-i", "-", NULL);
    expect_sigpipe(&r, "generate");
}

static void run_refuses_what_it_cannot_do(void **state) {
    (void)state;
    const char *odd = by_temp_write("odd.txt", "\xff\xfe hello", 8), *empty = by_temp_write("empty.txt", "", 0);
    const struct {
        const char *flags[6];
        int exit_code;
        const char *why;
    } cases[] = {
        {{NULL}, 2, "--prompt"},
        {{"-p", "x", "-f", "y"}, 2, "--prompt"},
        {{"-p", ""}, 2, "empty"},
        {{"-f", empty}, 2, "empty"},
        {{"-f", "/no/such/file"}, 1, "/no/such/file"},
        {{"-f", odd}, 1, "UTF-8"},
        {{"-p", "hi", "--max-tokens", "0"}, 2, "--max-tokens"},
        {{"-p", "hi", "--temp", "-1"}, 2, "--temp"},
        {{"-p", "hi", "--top-p", "0"}, 2, "--top-p"},
        {{"-p", "hi", "--top-k", "-2"}, 2, "--top-k"},
        {{"-p", "hi", "--min-p", "2"}, 2, "--min-p"},
        {{"-p", "hi", "--think", "500"}, 2, "1 to 100"},
        {{"-p", "hi", "--think", "101"}, 2, "--think: '101' is not none, low, high, max or a number from 1 to 100"},
        {{"-p", "hi", "--think", "hi"}, 2, "--think: 'hi'"},
        {{"-p", "hi", "--ctx-size", "4"}, 1, "context"},
        {{"-p", "hi", "-m", "/no/such/model"}, 1, "/no/such/model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const *f = cases[i].flags;
        by_process_result r = by_bathyc(NULL, "run", f[0], f[1], f[2], f[3], NULL);
        assert_int_equal(r.out_bytes, 0);
        expect(&r, cases[i].exit_code, cases[i].why, f[0] ? f[0] : "run");
    }
    by_process_result r =
        by_bathyc(&(by_process_opts){.closed_stdout = true}, "run", "-p", "Hello", "--temp", "0", NULL);
    expect_sigpipe(&r, "run");
}

/* From the start of the process to the first token: half a second and 150 MB. Processor time is measured, because the
 * machine may be busy with other tests. */
static void the_bundled_model_starts_fast_and_small(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* the instrumented program is neither */
#endif
    static const char line[] =
        "{\"id\":\"a\",\"tokens\":[0,4899,569,302,223,26,564,223,19,33,4900,4918],\"max_tokens\":1,"
        "\"temperature\":0}\n";
    by_process_opts opts = {.input = line, .input_bytes = sizeof line - 1};
    by_process_result r = by_bathyc(&opts, "generate", "-i", "-", NULL);
    if (r.cpu_s > 0.5 || r.rss_kib_max > 150 * 1000) fail_msg("%.2f s, %ld KiB", r.cpu_s, r.rss_kib_max);
    expect(&r, 0, NULL, "one token");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_prints_its_help),
        cmocka_unit_test(wrong_usage_exits_with_2_and_prints_nothing_else),
        cmocka_unit_test(a_misspelt_flag_is_suggested),
        cmocka_unit_test(values_out_of_range_name_the_flag),
        cmocka_unit_test(unknown_names_of_ours_in_the_environment_are_errors),
        cmocka_unit_test(missing_and_unreadable_files_are_named),
        cmocka_unit_test(a_context_beyond_the_model_is_refused),
        cmocka_unit_test(bad_lines_fail_alone),
        cmocka_unit_test(run_refuses_what_it_cannot_do),
        cmocka_unit_test(the_bundled_model_starts_fast_and_small),
        cmocka_unit_test(a_closed_output_ends_silently_and_a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, list_commands, NULL);
}
