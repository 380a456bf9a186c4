/* test_http_items.c - stored lists of items: the places that are noted agree with the text, and lack of memory damages nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "http/http_items.h"
#include "support/seed.h"

#ifdef BATHYC_HAVE_LIBEVENT

static by_rng ids; /* of items without one */

/* Appends n items of odd ids and sizes; false: out of memory. */
static bool push_some(by_items *l, by_rng *rng, int n) {
    by_arena arena;
    by_buf text = {0};
    by_json v;
    by_arena_init(&arena, BY_MEM_HTTP);
    by_buf_push_byte(&text, '[');
    for (int i = 0; i < n; i++) {
        by_buf_printf(&text, "%s{\"type\":\"t\"", i ? "," : "");
        if (by_rng_below(rng, 2)) by_buf_printf(&text, ",\"id\":\"\\\"\\u00e9%x\"", (unsigned)by_rng_below(rng, 100000));
        by_buf_printf(&text, ",\"x\":\"%*s,}]\"}", (int)by_rng_below(rng, 40), "");
    }
    by_buf_push_byte(&text, ']');
    bool ok = !text.failed && by_json_parse(&v, &arena, by_buf_str(&text), NULL, NULL) == BY_OK && by_items_push_input(l, &ids, &v);
    by_buf_deinit(&text);
    by_arena_deinit(&arena);
    return ok;
}

/* The slow twin: parses the whole list. Every item is found by its id and is the text that stands there. Returns their number. */
static uint32_t check(const by_items *l, by_arena *arena, by_json *all) {
    by_buf text = {0}, one = {0};
    by_buf_push_byte(&text, '[');
    by_buf_push_str(&text, by_buf_str(&l->text));
    by_buf_push_byte(&text, ']');
    by_str kept = by_arena_dup(arena, by_buf_str(&text));
    assert_int_equal(by_json_parse(all, arena, kept, NULL, NULL), BY_OK);
    for (uint32_t i = 0; i < all->n; i++) {
        by_str id = by_json_get(&all->v.items[i], "id")->v.s;
        uint32_t first = 0;
        while (!by_str_eq(by_json_get(&all->v.items[first], "id")->v.s, id)) first++;
        by_buf_clear(&one);
        by_json_write(&one, &all->v.items[first], BY_JSON_COMPACT);
        assert_true(by_str_eq(by_items_find(l, id), by_buf_str(&one)));
    }
    assert_null(by_items_find(l, BY_STR("none")).ptr);
    by_buf_deinit(&text);
    by_buf_deinit(&one);
    return all->n;
}

static void places_agree_with_the_text(void **state) {
    (void)state;
    by_rng rng = by_test_rng(20);
    const int rounds = by_test_scaled(30);
    for (int round = 0; round < rounds; round++) {
        by_items l = {0};
        uint32_t n = 0;
        for (int step = 0; step < 30; step++) {
            by_arena arena;
            by_json all;
            by_arena_init(&arena, BY_MEM_HTTP);
            assert_int_equal(check(&l, &arena, &all), n);
            if (n && by_rng_below(&rng, 3)) {
                by_str id = by_json_get(&all.v.items[by_rng_below(&rng, n)], "id")->v.s;
                assert_true(by_items_remove(&l, id));
                n--;
            } else {
                by_items more = {0};
                int k = (int)by_rng_below(&rng, 5);
                assert_true(push_some(&more, &rng, k));
                size_t most = by_items_bytes_with(&l, &more);
                assert_true(by_items_push(&l, &more));
                assert_true(by_items_bytes(&l) <= most);
                by_items_deinit(&more);
                n += (uint32_t)k;
            }
            assert_false(by_items_remove(&l, BY_STR("none")));
            by_arena_deinit(&arena);
        }
        by_items_deinit(&l);
    }
}

/* Each allocation in turn fails: a list that was told of it is what it was, and takes more afterwards. */
static void lost_memory_damages_nothing(void **state) {
    (void)state;
    by_rng rng = by_test_rng(20);
    int n_lost = 0;
    for (int nth = 1; nth < 40; nth++) {
        by_items l = {0}, more = {0};
        by_arena arena;
        by_json all;
        by_arena_init(&arena, BY_MEM_HTTP);
        assert_true(push_some(&l, &rng, 1) && push_some(&more, &rng, 50));
        by_str before = by_arena_dup(&arena, by_buf_str(&l.text));
        by_alloc_fail_nth(nth);
        bool ok = by_items_push(&l, &more);
        by_alloc_fail_nth(0);
        n_lost += !ok;
        assert_true(ok || by_str_eq(by_buf_str(&l.text), before));
        assert_int_equal(check(&l, &arena, &all), ok ? 51 : 1);
        by_alloc_fail_nth(nth);
        ok = push_some(&l, &rng, 20); /* may end between two items, not within one */
        by_alloc_fail_nth(0);
        uint32_t n = check(&l, &arena, &all);
        n_lost += !ok;
        assert_true(push_some(&l, &rng, 2));
        assert_int_equal(check(&l, &arena, &all), n + 2);
        by_items_deinit(&l);
        by_items_deinit(&more);
        by_arena_deinit(&arena);
    }
    assert_true(n_lost > 5);
    assert_int_equal(by_alloc_bytes(BY_MEM_HTTP), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(places_agree_with_the_text), cmocka_unit_test(lost_memory_damages_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    puts("this build has no server");
    return 77;
}

#endif
