/* prop_batch.c - `bathyc batch` that is killed at random moments and started again: no request is lost, none is answered twice,
 * and the answers are those of a run that nobody disturbed. BY_TEST_TIMEOUT=600 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "json/json_write.h"
#include "support/golden.h"
#include "support/random_model.h"
#include "support/seed.h"
#include "support/temp.h"
#include "support/texts.h"

enum { REQUESTS = 60, BAD_LINES = 3, LONG = REQUESTS }; /* LONG: the number of a request that runs while all others come and go */

static by_arena arena;
static by_rng rng;
static const char *folder, *input;
static const char *wanted[REQUESTS]; /* choices of request i */

/* Requests of all kinds with seeds, and lines that are none between them. */
static void write_requests(void) {
    by_buf b = {0};
    for (int i = 0; i < REQUESTS; i++) {
        int n = 1 + (int)by_rng_below(&rng, 12), seed = (int)by_rng_below(&rng, 1000);
        by_buf_printf(&b, "{\"custom_id\":\"r%d\",\"method\":\"POST\",", i);
        if (i % 3 == 0)
            by_buf_printf(&b, "\"url\":\"/v1/completions\",\"body\":{\"model\":\"m\",\"prompt\":[%d,9],"
                              "\"max_tokens\":%d,\"seed\":%d,\"logprobs\":1}}\n", 10 + i, n, seed);
        else if (i % 3 == 1)
            by_buf_printf(&b, "\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%d\"}],"
                              "\"max_tokens\":%d,\"seed\":%d,\"n\":2}}\n", i, n, seed);
        else if (i % 2)
            by_buf_printf(&b, "\"url\":\"/v1/responses\",\"body\":{\"model\":\"m\",\"input\":\"%d\",\"max_output_tokens\":%d,\"seed\":%d}}\n", i,
                          n + 1, seed);
        else
            by_buf_printf(&b, "\"url\":\"/v1/messages\",\"body\":{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"%d\"}],"
                              "\"max_tokens\":%d,\"seed\":%d}}\n", i, n, seed);
        if (i == 5) by_buf_push_z(&b, "not json\n");
        if (i == 20) by_buf_push_z(&b, "\n{\"method\":\"POST\"}\n");
        if (i == 40) by_buf_push_z(&b, "{\"custom_id\":\"r7\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{}}\n");
    }
    input = by_arena_dup(&arena, by_str_z(by_temp_write("requests.jsonl", b.ptr, b.len))).ptr;
    by_buf_deinit(&b);
}

static int open_all(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_JSON);
    folder = by_arena_dup(&arena, by_str_z(by_temp_path("model"))).ptr;
    if (!by_random_model_small(folder)) exit(77);
    write_requests();
    return 0;
}

static int close_all(void **state) {
    (void)state;
    by_arena_deinit(&arena);
    return 0;
}

/* ---- results ---- */

/* What does not depend on when it was asked: ids and times taken out. */
static const char *answer_of(const by_json *row) {
    const by_json *body = by_json_get(by_json_get(row, "response"), "body");
    const by_json *what = by_json_get(body, "choices") ? by_json_get(body, "choices") : by_json_get(body, "stop_reason");
    by_buf b = {0};
    if (what) by_json_write(&b, what, BY_JSON_COMPACT);
    const by_json *output = by_json_get(body, "output"); /* Responses */
    for (uint32_t i = 0; output && i < output->n; i++) {
        const by_json *parts = by_json_get(&output->v.items[i], "content");
        for (uint32_t k = 0; parts && parts->type == BY_JSON_ARRAY && k < parts->n; k++)
            by_json_write(&b, by_json_get(&parts->v.items[k], "text"), BY_JSON_COMPACT);
    }
    const by_json *content = by_json_get(body, "content"); /* Messages */
    for (uint32_t i = 0; content && i < content->n; i++) {
        const by_json *text = by_json_get(&content->v.items[i], "thinking");
        if (!text) text = by_json_get(&content->v.items[i], "text");
        by_json_write(&b, text, BY_JSON_COMPACT);
    }
    return by_test_keep(&arena, &b);
}

/* Reads the rows; each request at most once. first: they become what is wanted. Returns their number. */
static int read_rows(const char *path, bool first) {
    bool seen[REQUESTS] = {false};
    int n = 0, n_bad = 0;
    by_str line;
    by_lines *l = by_lines_open(path);
    while (by_lines_next(l, &line)) {
        by_json row;
        by_err err;
        if (by_json_parse(&row, &arena, by_arena_dup(&arena, line), NULL, &err) != BY_OK) fail_msg("%s: %s", path, err.msg);
        const by_json *id = by_json_get(&row, "custom_id"), *error = by_json_get(&row, "error");
        if (error->type != BY_JSON_NULL) {
            n_bad++;
            continue;
        }
        int i = atoi(by_arena_dup(&arena, by_str_skip(id->v.s, 1)).ptr);
        assert_true(i >= 0 && i <= LONG);
        if (i == LONG) continue;
        if (seen[i]) fail_msg("r%d is answered twice", i);
        seen[i] = true;
        n++;
        assert_int_equal(by_json_get(by_json_get(&row, "response"), "status_code")->v.i, 200);
        if (first) wanted[i] = answer_of(&row);
        else assert_string_equal(answer_of(&row), wanted[i]);
    }
    by_lines_close(l);
    assert_true(n_bad <= BAD_LINES);
    return n + n_bad;
}

/* ---- running ---- */

static pid_t start_with(const char *from, const char *output) {
    const char *argv[] = {BATHYC_PROGRAM, "batch", "-m", folder, "--alias", "m", "-i", from, "-o", output, "--max-num-seqs", "6",
                          "-b", "64", "--ram", "200M", NULL};
    pid_t pid = fork();
    if (pid != 0) return pid;
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static pid_t start(const char *output) { return start_with(input, output); }

static int wait_for(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static long bytes_of(const char *path) {
    by_buf b = {0};
    long n = by_file_read(&b, path, 1 << 30, NULL) == BY_OK ? (long)b.len : 0;
    by_buf_deinit(&b);
    return n;
}

static void undisturbed(void **state) {
    (void)state;
    const char *out = by_arena_dup(&arena, by_str_z(by_temp_path("calm.jsonl"))).ptr;
    assert_int_equal(wait_for(start(out)), 1); /* three lines are bad */
    assert_int_equal(read_rows(out, true), REQUESTS + BAD_LINES);
    long n = bytes_of(out);
    assert_int_equal(wait_for(start(out)), 1); /* nothing is left to do */
    assert_int_equal(bytes_of(out), n);
}

/* Waits until the file has grown beyond `from`, or the process has ended by itself (true), then a random while. */
static bool wait_for_rows(pid_t pid, const char *path, long from) {
    for (;;) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid) return true;
        if (bytes_of(path) > from) break;
        usleep(2000);
    }
    usleep((useconds_t)by_rng_below(&rng, 30000));
    return false;
}

/* The requests into a file, and through a pipe that stays open, so that the program cannot end by itself; in front of them one of so
 * many tokens that it still runs when the first answer is there. */
static int feed(const char *fifo, const char **file, int n_tokens) {
    by_buf all = {0}, rest = {0};
    by_buf_printf(&all, "{\"custom_id\":\"r%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"m\",\"prompt\":[7,9],"
                        "\"max_tokens\":%d,\"ignore_eos\":true,\"seed\":1}}\n", LONG, n_tokens);
    assert_int_equal(by_file_read(&rest, input, 1 << 30, NULL), BY_OK);
    by_buf_push_str(&all, by_buf_str(&rest));
    int fd = open(fifo, O_RDWR); /* does not wait for the reader, and the reader sees no end */
    assert_true(fd >= 0 && all.len < 65536);
    assert_int_equal(write(fd, all.ptr, all.len), (ssize_t)all.len);
    *file = by_arena_dup(&arena, by_str_z(by_temp_write("with-long.jsonl", all.ptr, all.len))).ptr;
    by_buf_deinit(&all);
    by_buf_deinit(&rest);
    return fd;
}

static void killed_again_and_again(void **state) {
    (void)state;
    const char *out = by_arena_dup(&arena, by_str_z(by_temp_path("killed.jsonl"))).ptr;
    const char *fifo = by_arena_dup(&arena, by_str_z(by_temp_path("killed.fifo"))).ptr, *file;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = feed(fifo, &file, 1), n_kills = 0, rounds = by_test_scaled(8);
    for (int i = 0; i < rounds; i++) {
        long before = bytes_of(out);
        pid_t pid = start_with(i == 0 ? fifo : file, out); /* the first one cannot end by itself */
        if (i == 0) usleep((useconds_t)by_rng_below(&rng, 100000)); /* perhaps before there is anything */
        else if (wait_for_rows(pid, out, before)) break;
        kill(pid, SIGKILL);
        n_kills += wait_for(pid) == -SIGKILL;
        long n = bytes_of(out);
        if (n > 10 && by_rng_below(&rng, 2)) assert_int_equal(truncate(out, n - 1 - (long)by_rng_below(&rng, 9)), 0); /* a write cut short */
    }
    close(fd);
    assert_true(n_kills >= 1);
    assert_int_equal(wait_for(start_with(file, out)), 1);
    assert_int_equal(read_rows(out, false), REQUESTS + BAD_LINES);
}

static bool has_text(const char *path, const char *text) {
    by_buf b = {0};
    bool found = by_file_read(&b, path, 1 << 30, NULL) == BY_OK && b.len && memmem(b.ptr, b.len, text, strlen(text));
    by_buf_deinit(&b);
    return found;
}

static bool has_row_of(const char *path, const char *custom_id) {
    char text[64];
    snprintf(text, sizeof text, "\"custom_id\":\"%s\"", custom_id);
    return has_text(path, text);
}

/* One signal lets the long request end, two do not. */
static void drained_by_a_signal(void **state) {
    (void)state;
    char id[16];
    snprintf(id, sizeof id, "r%d", LONG);
    for (int i = 0, n_tokens = 1000; i < 3; i++) {
        const char *out = by_arena_dup(&arena, by_str_z(by_temp_path("drained.jsonl"))).ptr;
        const char *fifo = by_arena_dup(&arena, by_str_z(by_temp_path("requests.fifo"))).ptr;
        unlink(out);
        unlink(fifo);
        assert_int_equal(mkfifo(fifo, 0600), 0);
        const char *file;
        int fd = feed(fifo, &file, n_tokens);
        pid_t pid = start_with(fifo, out);
        while (!has_text(out, "\"status_code\":200")) { /* requests start in turn, so the long one, the first, has started too */
            assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
            usleep(1000);
        }
        bool early = has_row_of(out, id);
        kill(pid, i == 1 ? SIGINT : SIGTERM);
        if (i == 2) kill(pid, SIGINT); /* another signal: two of the same might arrive as one */
        assert_int_equal(wait_for(pid), 1);
        close(fd);
        bool finished = has_row_of(out, id);
        if (early || (i == 2 && finished)) { /* this machine is quick, or was away: it was there before, or just as, the signals came */
            assert_true(n_tokens < 8000);
            n_tokens *= 2;
            i--;
            continue;
        }
        assert_int_equal(finished, i < 2);
        by_buf b = {0};
        assert_int_equal(by_file_read(&b, out, 1 << 30, NULL), BY_OK);
        assert_true(b.ptr[b.len - 1] == '\n');
        by_buf_deinit(&b);
        read_rows(out, false);
        assert_int_equal(wait_for(start_with(file, out)), 1);
        assert_int_equal(read_rows(out, false), REQUESTS + BAD_LINES);
        assert_true(has_row_of(out, id));
    }
}

static void files_that_are_no_results_stay_as_they_are(void **state) {
    (void)state;
    static const char *const texts[] = {"my notes", "my notes\n", "{\"id\":\"x\"}\n",
                                        "{\"id\":\"a\",\"custom_id\":\"r1\",\"response\":null,\"error\":null}\n[]\nhalf"};
    for (int i = 0; i < 4; i++) {
        const char *out = by_arena_dup(&arena, by_str_z(by_temp_write("notes", texts[i], strlen(texts[i])))).ptr;
        assert_int_equal(wait_for(start(out)), 1);
        assert_int_equal(bytes_of(out), (long)strlen(texts[i]));
    }
}

int main(void) {
    rng = by_test_rng(20261201);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed),
        cmocka_unit_test(killed_again_and_again),
        cmocka_unit_test(drained_by_a_signal),
        cmocka_unit_test(files_that_are_no_results_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
