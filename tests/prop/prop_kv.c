/* prop_kv.c - the block pool against a plain model of it: counts, free list order, keys; the layout's arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "kv/kv.h"
#include "support/device.h"
#include "support/seed.h"

static by_rng rng;

static by_kv_spec flash_spec(void) {
    return (by_kv_spec){.n_rings = 43, .head_dim = 512, .index_dim = 128, .window = 128, .backtrack = 6, .n_sources = 4,
                        .source_ratio = {2, 2, 2, 1}, .ring_rec = BY_REC_FP8, .main_rec = BY_REC_FP4, .index_rec = BY_REC_IX4};
}

static void the_published_model_has_the_documented_sizes(void **state) {
    (void)state;
    by_kv_spec s = flash_spec();
    by_kv_layout l;
    assert_int_equal(by_kv_layout_make(&l, &s, NULL), BY_OK);
    assert_int_equal(l.token_bytes_x128, 113920);
    assert_int_equal(l.block_bytes, 113920);
    assert_int_equal(l.ring_bytes, 70752);
    assert_int_equal(l.tail_bytes, 7 * 4096);
    assert_int_equal(l.tails_off, (43 * 70752 + 63) / 64 * 64);
    assert_int_equal(l.index_off[3] + 128 * 68, l.main_off[0]); /* the index half is one piece in front */
    assert_int_equal(l.main_off[3] + 128 * 288, 113920);
    s.head_dim = 500;
    by_err err;
    assert_int_equal(by_kv_layout_make(&l, &s, &err), BY_EINVAL);
    assert_non_null(strstr(err.msg, "head_dim 500"));
}

enum { BLOCKS = 24, KEYS = 40 };

/* What the pool should be: an ordered free list and a key per block. */
typedef struct {
    int count[BLOCKS + 1], key[BLOCKS + 1]; /* key 0 = none */
    int free_list[BLOCKS], n_free;
} twin;

static void twin_remove(twin *t, int block) {
    int i = 0;
    while (t->free_list[i] != block) i++;
    memmove(t->free_list + i, t->free_list + i + 1, (size_t)(t->n_free - i - 1) * sizeof(int));
    t->n_free--;
}

static int twin_find(const twin *t, int key) {
    for (int b = 1; b <= BLOCKS; b++)
        if (t->key[b] == key) return b;
    return -1;
}

static by_kv_key key_of(int k) { return by_kv_key_root(&k, sizeof k); }

static void one_move(by_kv *kv, twin *t) {
    int b = 1 + (int)by_rng_below(&rng, BLOCKS), k = 1 + (int)by_rng_below(&rng, KEYS);
    by_kv_key key = key_of(k);
    switch (by_rng_below(&rng, 5)) {
    case 0: {
        int want = t->n_free ? t->free_list[0] : -1;
        assert_int_equal(by_kv_block_acquire(kv), want);
        if (want < 0) break;
        twin_remove(t, want);
        t->count[want] = 1;
        t->key[want] = 0;
        break;
    }
    case 1:
        if (t->count[b] == 0) break;
        by_kv_block_release(kv, b);
        if (--t->count[b] == 0) t->free_list[t->n_free++] = b;
        break;
    case 2:
        if (t->count[b] == 0) break;
        assert_int_equal(by_kv_block_publish(kv, b, &key), t->key[b] ? t->key[b] == k : twin_find(t, k) < 0);
        if (!t->key[b] && twin_find(t, k) < 0) t->key[b] = k;
        break;
    default: {
        int want = twin_find(t, k);
        assert_int_equal(by_kv_block_find(kv, &key), want);
        if (want < 0 || by_rng_below(&rng, 2)) break;
        by_kv_block_retain(kv, want);
        if (t->count[want]++ == 0) twin_remove(t, want);
    }
    }
}

static void the_pool_behaves_like_its_plain_twin(void **state) {
    (void)state;
    by_device *dev = by_test_device(&(by_test_backend){BY_BACKEND_REF, NULL, "ref"}, 1);
    by_kv_spec s = {.n_rings = 1, .head_dim = 32, .index_dim = 32, .window = 4, .backtrack = 1, .n_sources = 1, .source_ratio = {1}};
    by_kv_layout l;
    assert_int_equal(by_kv_layout_make(&l, &s, NULL), BY_OK);
    by_kv *kv;
    assert_int_equal(by_kv_create(&kv, dev, &l, &(by_kv_opts){BLOCKS, 3}, NULL), BY_OK);
    twin t = {.n_free = BLOCKS};
    for (int b = 0; b < BLOCKS; b++) t.free_list[b] = b + 1;
    for (int i = 0; i < by_test_scaled(100000); i++) {
        one_move(kv, &t);
        assert_int_equal(by_kv_blocks_free(kv), t.n_free);
        int keyed = 0;
        for (int b = 1; b <= BLOCKS; b++) keyed += t.key[b] != 0;
        assert_int_equal(by_kv_blocks_keyed(kv), keyed);
    }
    for (int b = 1; b <= BLOCKS; b++)
        while (t.count[b]-- > 0) by_kv_block_release(kv, b);
    by_kv_destroy(kv);
    by_device_close(dev);
}

static void equal_prefixes_have_equal_keys_and_no_others(void **state) {
    (void)state;
    int32_t a[512], b[512];
    for (int i = 0; i < 512; i++) a[i] = b[i] = (int32_t)by_rng_below(&rng, 129280);
    by_kv_key root = key_of(1), other = key_of(2), ka[4], kb[4], tail[2];
    by_kv_key_chain(ka, &root, a, 0, 4);
    by_kv_key_chain(tail, &ka[1], a, 2, 2);
    assert_memory_equal(tail, ka + 2, sizeof tail);
    b[200] ^= 1;
    by_kv_key_chain(kb, &root, b, 0, 4);
    assert_memory_equal(&ka[0], &kb[0], sizeof root);
    for (int i = 1; i < 4; i++) assert_memory_not_equal(&ka[i], &kb[i], sizeof root);
    by_kv_key_chain(kb, &other, a, 0, 4);
    for (int i = 0; i < 4; i++) assert_memory_not_equal(&ka[i], &kb[i], sizeof root);
}

int main(void) {
    rng = by_test_rng(20261129);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_model_has_the_documented_sizes),
        cmocka_unit_test(the_pool_behaves_like_its_plain_twin),
        cmocka_unit_test(equal_prefixes_have_equal_keys_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
