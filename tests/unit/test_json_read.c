/* Unit tests of the reader: limits, equal keys, messages, memory failure. What it accepts is compared with the original in
 * tests/golden/golden_json_reader.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "json/json_write.h"

static by_arena arena;

static int set_up(void **state) {
    (void)state;
    by_arena_init(&arena, BY_MEM_JSON);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    by_arena_deinit(&arena);
    return 0;
}

static void depth_limit_is_exact(void **state) {
    (void)state;
    char text[600];
    by_json v;
    by_err err = {0};
    for (uint32_t limit = 1; limit < 130; limit += 63) {
        for (uint32_t depth = limit; depth <= limit + 1; depth++) {
            memset(text, '[', depth);
            memset(text + depth, ']', depth);
            by_status want = depth <= limit ? BY_OK : BY_ELIMIT;
            by_json_opts opts = {.depth_max = limit};
            assert_int_equal(by_json_parse(&v, &arena, by_str_of(text, 2 * (size_t)depth), &opts, &err), want);
        }
    }
    by_json_opts small = {.bytes_max = 4};
    assert_int_equal(by_json_parse(&v, &arena, BY_STR("12345"), &small, &err), BY_ELIMIT);
    assert_int_equal(by_json_parse(&v, &arena, BY_STR("1234"), &small, &err), BY_OK);
}

static void equal_keys_stay_or_merge(void **state) {
    (void)state;
    by_json v;
    by_str text = BY_STR("{\"a\":1,\"b\":2,\"a\":3}");
    assert_int_equal(by_json_parse(&v, &arena, text, NULL, NULL), BY_OK);
    assert_int_equal(v.n, 3);
    assert_int_equal(by_json_get(&v, "a")->v.i, 3);
    by_json_opts merge = {.merge_keys = true};
    assert_int_equal(by_json_parse(&v, &arena, text, &merge, NULL), BY_OK);
    assert_int_equal(v.n, 2);
    assert_int_equal(v.v.members[0].value.v.i, 3);
}

/* Both ways of merging (pairs, sorting) against the obvious definition. */
static void merging_keeps_first_place_and_last_value(void **state) {
    (void)state;
    srand(7);
    by_json_opts merge = {.merge_keys = true};
    for (int round = 0; round < 300; round++) {
        int n = 1 + rand() % 40, keys = 1 + rand() % 30, key[40], last[30], order[30], n_order = 0;
        by_buf text = {0};
        by_buf_push_byte(&text, '{');
        for (int i = 0; i < keys; i++) last[i] = -1;
        for (int i = 0; i < n; i++) {
            key[i] = rand() % keys;
            if (last[key[i]] < 0) order[n_order++] = key[i];
            last[key[i]] = i;
            by_buf_printf(&text, "%s\"k%d\":%d", i ? "," : "", key[i], i);
        }
        by_buf_push_byte(&text, '}');
        by_json v;
        assert_int_equal(by_json_parse(&v, &arena, by_buf_str(&text), &merge, NULL), BY_OK);
        assert_int_equal(v.n, n_order);
        for (int i = 0; i < n_order; i++) {
            assert_int_equal(atoi(v.v.members[i].key.ptr + 1), order[i]);
            assert_int_equal(v.v.members[i].value.v.i, last[order[i]]);
        }
        by_arena_reset(&arena);
        by_buf_deinit(&text);
    }
}

static void messages_name_line_and_column(void **state) {
    (void)state;
    by_json v;
    by_err err = {0};
    assert_int_equal(by_json_parse(&v, &arena, BY_STR("{\n \"\xc3\xa9\": tru}"), NULL, &err), BY_EFORMAT);
    assert_string_equal(err.msg, "line 2 column 7: expected a value");
    assert_int_equal(by_json_parse(&v, &arena, BY_STR("[1] 2"), NULL, &err), BY_EFORMAT);
    assert_string_equal(err.msg, "line 1 column 5: text after the value");
    assert_int_equal(by_json_parse(&v, &arena, BY_STR("\"\xff\""), NULL, &err), BY_EFORMAT);
    assert_string_equal(err.msg, "line 1 column 2: not valid UTF-8");
}

static void every_failed_allocation_is_reported(void **state) {
    (void)state;
    by_buf text = {0};
    by_buf_push_byte(&text, '[');
    for (int i = 0; i < 400; i++) by_buf_printf(&text, "%s{\"a\":[1,2,\"\\n%d\"],\"b\":1.%0200d}", i ? "," : "", i, i);
    by_buf_push_z(&text, ",{");
    for (int i = 0; i < 30; i++) by_buf_printf(&text, "%s\"k%d\":0", i ? "," : "", i % 7);
    by_buf_push_z(&text, "}]");
    by_json_opts merge = {.merge_keys = true};
    int failures = 0;
    for (int n = 1;; n++) {
        by_arena a;
        by_arena_init(&a, BY_MEM_JSON);
        by_json v;
        by_err err = {0};
        by_alloc_fail_nth(n);
        by_status status = by_json_parse(&v, &a, by_buf_str(&text), &merge, &err);
        by_alloc_fail_nth(0);
        by_arena_deinit(&a);
        if (status == BY_OK) break;
        assert_int_equal(status, BY_ENOMEM);
        failures++;
    }
    assert_true(failures > 5);
    by_buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(depth_limit_is_exact, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equal_keys_stay_or_merge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(merging_keeps_first_place_and_last_value, set_up, tear_down),
        cmocka_unit_test_setup_teardown(messages_name_line_and_column, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_failed_allocation_is_reported, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
