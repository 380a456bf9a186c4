/* cmocka.c - see cmocka.h beside it. A failed assertion jumps back to the runner, so that the next test goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka.h"

enum { PASSED, FAILED, SKIPPED };

static jmp_buf back;
static volatile bool running;

void print_message(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
}

void print_error(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

static void leave(int result, const char *file, int line) {
    if (result == FAILED) print_error("%s:%d: error: Failure!\n", file, line);
    if (!running) abort();
    longjmp(back, result);
}

void _fail(const char *file, int line) {
    leave(FAILED, file, line);
    abort();
}

void _skip(const char *file, int line) {
    leave(SKIPPED, file, line);
    abort();
}

/* group: what the group's setup left; a test without a state of its own gets it. */
static int run_one(const struct CMUnitTest *t, void *group) {
    void *volatile state = t->initial_state ? t->initial_state : group;
    volatile bool set_up = false;
    running = true;
    volatile int result = setjmp(back);
    if (result == PASSED) {
        void *s = state;
        if (t->setup_func && t->setup_func(&s) != 0) _fail(t->name, 0);
        state = s;
        set_up = true;
        t->test_func(&s);
        state = s;
    }
    void *s = state;
    if (set_up && t->teardown_func && setjmp(back) == 0 && t->teardown_func(&s) != 0) result = FAILED;
    running = false;
    return result;
}

int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                            CMFixtureFunction teardown) {
    static const char *const words[] = {"      OK", " FAILED ", " SKIPPED"};
    void *state = NULL;
    int count[3] = {0};
    printf("[==========] %s: Running %zu test(s).\n", name, n);
    if (setup && setup(&state) != 0) return 1;
    for (size_t i = 0; i < n; i++) {
        int result = run_one(&tests[i], state);
        count[result]++;
        printf("[ %s ] %s\n", words[result], tests[i].name);
        fflush(stdout);
    }
    if (teardown && teardown(&state) != 0) count[FAILED]++;
    printf("[  PASSED  ] %d test(s), %d failed, %d skipped.\n", count[PASSED], count[FAILED], count[SKIPPED]);
    return count[FAILED];
}

void _assert_true(LargestIntegralType ok, const char *text, const char *file, int line) {
    if (ok) return;
    print_error("%s\n", text);
    _fail(file, line);
}

void _assert_int_equal(LargestIntegralType a, LargestIntegralType b, const char *file, int line) {
    if (a == b) return;
    print_error("%#jx != %#jx\n", a, b);
    _fail(file, line);
}

void _assert_int_not_equal(LargestIntegralType a, LargestIntegralType b, const char *file, int line) {
    if (a != b) return;
    print_error("%#jx == %#jx\n", a, b);
    _fail(file, line);
}

void _assert_in_range(LargestIntegralType x, LargestIntegralType min, LargestIntegralType max, const char *file, int line) {
    if (x >= min && x <= max) return;
    print_error("%ju is not in [%ju, %ju]\n", x, min, max);
    _fail(file, line);
}

void _assert_string_equal(const char *a, const char *b, const char *file, int line) {
    if (strcmp(a, b) == 0) return;
    print_error("\"%s\" != \"%s\"\n", a, b);
    _fail(file, line);
}

void _assert_string_not_equal(const char *a, const char *b, const char *file, int line) {
    if (strcmp(a, b) != 0) return;
    print_error("\"%s\" == \"%s\"\n", a, b);
    _fail(file, line);
}

void _assert_memory_equal(const void *a, const void *b, size_t n, const char *file, int line) {
    if (memcmp(a, b, n) == 0) return;
    const unsigned char *x = a, *y = b;
    size_t i = 0;
    while (x[i] == y[i]) i++;
    print_error("byte %zu of %zu: %#x != %#x\n", i, n, x[i], y[i]);
    _fail(file, line);
}

void _assert_memory_not_equal(const void *a, const void *b, size_t n, const char *file, int line) {
    if (memcmp(a, b, n) != 0) return;
    print_error("%zu equal bytes\n", n);
    _fail(file, line);
}
