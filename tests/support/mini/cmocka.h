/* cmocka.h - the part of cmocka's interface that these tests use, for builds where the library does not exist: the cross
 * build for aarch64 has no package of it. Written from the documented interface. The native builds use the real one. */
#ifndef BY_TEST_MINI_CMOCKA_H
#define BY_TEST_MINI_CMOCKA_H

#include <stddef.h>
#include <stdint.h>

typedef uintmax_t LargestIntegralType;
typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func, teardown_func;
    void *initial_state;
};

#define cmocka_unit_test(f) {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup(f, setup) {#f, f, setup, NULL, NULL}
#define cmocka_unit_test_teardown(f, teardown) {#f, f, NULL, teardown, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}
#define cmocka_unit_test_prestate(f, state) {#f, f, NULL, NULL, state}
#define cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, state) {#f, f, setup, teardown, state}
#define cmocka_run_group_tests(tests, setup, teardown) \
    _cmocka_run_group_tests(#tests, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    _cmocka_run_group_tests(name, tests, sizeof(tests) / sizeof((tests)[0]), setup, teardown)

int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup,
                            CMFixtureFunction teardown);
void _fail(const char *file, int line) __attribute__((noreturn));
void _skip(const char *file, int line) __attribute__((noreturn));
void print_message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void print_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void _assert_true(LargestIntegralType ok, const char *text, const char *file, int line);
void _assert_int_equal(LargestIntegralType a, LargestIntegralType b, const char *file, int line);
void _assert_int_not_equal(LargestIntegralType a, LargestIntegralType b, const char *file, int line);
void _assert_in_range(LargestIntegralType x, LargestIntegralType min, LargestIntegralType max, const char *file, int line);
void _assert_string_equal(const char *a, const char *b, const char *file, int line);
void _assert_string_not_equal(const char *a, const char *b, const char *file, int line);
void _assert_memory_equal(const void *a, const void *b, size_t n, const char *file, int line);
void _assert_memory_not_equal(const void *a, const void *b, size_t n, const char *file, int line);

#define cast_to_largest_integral_type(x) ((LargestIntegralType)(x))
#define cast_ptr_to_largest_integral_type(x) ((LargestIntegralType)(uintptr_t)(x))
#define assert_true(c) _assert_true(cast_to_largest_integral_type(c), #c, __FILE__, __LINE__)
#define assert_false(c) _assert_true(!(c), "!(" #c ")", __FILE__, __LINE__)
#define assert_non_null(p) _assert_true((p) != NULL, #p " != NULL", __FILE__, __LINE__)
#define assert_null(p) _assert_true((p) == NULL, #p " == NULL", __FILE__, __LINE__)
#define assert_ptr_equal(a, b) \
    _assert_int_equal(cast_ptr_to_largest_integral_type(a), cast_ptr_to_largest_integral_type(b), __FILE__, __LINE__)
#define assert_ptr_not_equal(a, b) \
    _assert_int_not_equal(cast_ptr_to_largest_integral_type(a), cast_ptr_to_largest_integral_type(b), __FILE__, __LINE__)
#define assert_int_equal(a, b) \
    _assert_int_equal(cast_to_largest_integral_type(a), cast_to_largest_integral_type(b), __FILE__, __LINE__)
#define assert_int_not_equal(a, b) \
    _assert_int_not_equal(cast_to_largest_integral_type(a), cast_to_largest_integral_type(b), __FILE__, __LINE__)
#define assert_in_range(x, min, max)                                                                       \
    _assert_in_range(cast_to_largest_integral_type(x), cast_to_largest_integral_type(min),                  \
                     cast_to_largest_integral_type(max), __FILE__, __LINE__)
#define assert_string_equal(a, b) _assert_string_equal(a, b, __FILE__, __LINE__)
#define assert_string_not_equal(a, b) _assert_string_not_equal(a, b, __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) _assert_memory_equal(a, b, n, __FILE__, __LINE__)
#define assert_memory_not_equal(a, b, n) _assert_memory_not_equal(a, b, n, __FILE__, __LINE__)
#define fail() _fail(__FILE__, __LINE__)
#define fail_msg(...)               \
    do {                            \
        print_error("ERROR: ");     \
        print_error(__VA_ARGS__);   \
        print_error("\n");          \
        _fail(__FILE__, __LINE__);  \
    } while (0)
#define skip() _skip(__FILE__, __LINE__)

#endif
