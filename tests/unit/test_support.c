/* test_support.c - the helpers that other tests lean on: a reader that misreads goldens would hide every other bug. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "support/counting.h"
#include "support/golden.h"
#include "support/npz.h"
#include "support/process.h"

/* ---- a small writer of the zip layout, so that every byte of the container is under the test's control ---- */

typedef struct blob {
    uint8_t bytes[8192];
    size_t n;
} blob;

static void put(blob *b, const void *data, size_t n) {
    assert_true(b->n + n <= sizeof b->bytes);
    memcpy(b->bytes + b->n, data, n);
    b->n += n;
}
static void put16(blob *b, unsigned v) {
    put(b, (uint8_t[]){(uint8_t)v, (uint8_t)(v >> 8)}, 2);
}
static void put32(blob *b, size_t v) {
    put16(b, (unsigned)v & 0xffff);
    put16(b, (unsigned)(v >> 16));
}

static void put_npy(blob *b, const char *header, const void *data, size_t n) {
    put(b, "\x93NUMPY\x01\x00", 8);
    put16(b, (unsigned)strlen(header));
    put(b, header, strlen(header));
    put(b, data, n);
}

/* A zip with one member; method and flags as given. */
static blob zip_of(const char *name, const blob *member, unsigned method, unsigned flags) {
    blob z = {0};
    put(&z, "PK\3\4", 4);
    put16(&z, 20), put16(&z, flags), put16(&z, method), put32(&z, 0), put32(&z, 0);
    put32(&z, member->n), put32(&z, member->n), put16(&z, (unsigned)strlen(name)), put16(&z, 0);
    put(&z, name, strlen(name));
    put(&z, member->bytes, member->n);
    size_t dir = z.n;
    put(&z, "PK\1\2", 4);
    put16(&z, 20), put16(&z, 20), put16(&z, flags), put16(&z, method), put32(&z, 0), put32(&z, 0);
    put32(&z, member->n), put32(&z, member->n), put16(&z, (unsigned)strlen(name));
    put16(&z, 0), put16(&z, 0), put16(&z, 0), put16(&z, 0), put32(&z, 0), put32(&z, 0);
    put(&z, name, strlen(name));
    size_t dir_bytes = z.n - dir;
    put(&z, "PK\5\6", 4);
    put16(&z, 0), put16(&z, 0), put16(&z, 1), put16(&z, 1), put32(&z, dir_bytes), put32(&z, dir), put16(&z, 0);
    return z;
}

static const char *temp_file(const void *data, size_t n) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/bathyc_test_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    close(fd);
    return path;
}

static by_npz *open_bytes(const void *data, size_t n) {
    const char *path = temp_file(data, n);
    by_npz *z = by_npz_open(path);
    unlink(path);
    return z;
}

static const float six[6] = {0, 1.5f, -2, 3, 4e-30f, 5e30f};
static const char header_2x3[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";

static void npz_arrays_are_found_by_name(void **state) {
    (void)state;
    blob member = {0};
    put_npy(&member, header_2x3, six, sizeof six);
    blob z = zip_of("case.x.npy", &member, 0, 0);
    by_npz *npz = open_bytes(z.bytes, z.n);
    assert_non_null(npz);
    assert_int_equal(by_npz_count(npz), 1);
    assert_string_equal(by_npz_name(npz, 0), "case.x");
    assert_null(by_npz_get(npz, "case"));
    assert_null(by_npz_get(npz, "case.x.npy"));
    const by_npy *a = by_npz_get(npz, "case.x");
    assert_non_null(a);
    assert_string_equal(a->dtype, "<f4");
    assert_int_equal(a->ndim, 2);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->n, 6);
    assert_memory_equal(by_npy_f32(a), six, sizeof six);
    assert_ptr_equal(by_npz_need(npz, "<f4", "%s.%s", "case", "x"), a);
    by_npz_close(npz);
}

static void npy_shapes_of_all_ranks_are_read(void **state) {
    (void)state;
    const struct {
        const char *header;
        int ndim;
        size_t n;
    } cases[] = {{"{'descr': '<i8', 'fortran_order': False, 'shape': (), }\n", 0, 1},
                 {"{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }\n", 1, 3},
                 {"{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }\n", 2, 0}};
    const int64_t data[3] = {-1, INT64_MAX, 7};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        blob b = {0};
        put_npy(&b, cases[i].header, data, cases[i].n * sizeof data[0]);
        const char *path = temp_file(b.bytes, b.n);
        by_npy *a = by_npy_read(path);
        unlink(path);
        assert_non_null(a);
        assert_int_equal(a->ndim, cases[i].ndim);
        assert_int_equal(a->n, cases[i].n);
        assert_memory_equal(by_npy_i64(a), data, cases[i].n * sizeof data[0]);
        by_npy_free(a);
    }
}

static void what_the_format_does_not_hold_is_refused(void **state) {
    (void)state;
    const char *bad[] = {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }\n",
                         "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': 6, }\n",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n",
                         "{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        blob member = {0};
        put_npy(&member, bad[i], six, sizeof six);
        blob z = zip_of("x.npy", &member, 0, 0);
        assert_null(open_bytes(z.bytes, z.n));
    }
    blob member = {0};
    put_npy(&member, header_2x3, six, sizeof six);
    blob deflated = zip_of("x.npy", &member, 8, 0), streamed = zip_of("x.npy", &member, 0, 8);
    assert_null(open_bytes(deflated.bytes, deflated.n));
    assert_null(open_bytes(streamed.bytes, streamed.n));
    assert_null(by_npz_open("/nonexistent/file.npz"));
}

static void a_damaged_npz_is_refused_or_read_without_harm(void **state) {
    (void)state;
    blob member = {0};
    put_npy(&member, header_2x3, six, sizeof six);
    blob z = zip_of("case.x.npy", &member, 0, 0);
    fflush(stderr);
    int keep = dup(2);
    assert_non_null(freopen("/dev/null", "w", stderr));
    for (size_t n = 0; n < z.n; n++)
        assert_null(open_bytes(z.bytes, n));
    for (size_t bit = 0; bit < z.n * 8; bit++) {
        blob flipped = z;
        flipped.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        by_npz_close(open_bytes(flipped.bytes, flipped.n));
    }
    fflush(stderr);
    dup2(keep, 2);
    close(keep);
}

static void comparison_follows_the_stated_rule(void **state) {
    (void)state;
    const float want[4] = {1, -2, 0, INFINITY};
    float got[4] = {1.125f, -2.25f, 0.0625f, INFINITY};
    by_golden_diff d = by_golden_compare_f32(got, want, 4, 0.0625, 0.0625);
    assert_int_equal(d.n_bad, 1); /* 1.125 is exactly on its border of 0.125; -2.25 is over 0.1875 */
    assert_int_equal(d.first_bad, 1);
    assert_true(d.abs_max == 0.25 && d.rel_max == 0.125);
    assert_true(by_golden_close_f32("on the border", got, want, 1, 0.0625, 0.0625));
    assert_true(by_golden_mostly_close_f32("a quarter outside", got, want, 4, 0.0625, 0.0625, 0.25));
    assert_false(by_golden_mostly_close_f32("expected line", got, want, 4, 0.0625, 0.0625, 0.2));
    got[3] = NAN;
    assert_false(by_golden_close_f32("expected line, NaN", got + 3, want + 3, 1, 1e30, 1e30));
    assert_false(by_golden_close_f32("expected line, sign", (const float[]){-INFINITY}, want + 3, 1, 1, 1));
    assert_true(by_golden_close_f32("NaN against NaN", got + 3, got + 3, 1, 0, 0));
}

static void byte_comparison_sees_the_sign_of_zero(void **state) {
    (void)state;
    const float a[2] = {1, 0.0f}, b[2] = {1, -0.0f};
    assert_true(by_golden_same_bytes("same", a, a, 2, sizeof a[0]));
    assert_false(by_golden_same_bytes("expected line", a, b, 2, sizeof a[0]));
}

static void lines_come_from_plain_and_gzip_files(void **state) {
    (void)state;
    const char text[] = "one\n\nthree";
    char path[64], gz[80], command[256];
    snprintf(path, sizeof path, "%s", temp_file(text, sizeof text - 1));
    snprintf(gz, sizeof gz, "%s.gz", path);
    snprintf(command, sizeof command, "gzip -9n '%s' -k", path);
    assert_int_equal(system(command), 0);
    for (int round = 0; round < 3;
         round++) { /* the plain file, the .gz by name, and found behind a missing plain name */
        by_lines *l = by_lines_open(round == 1 ? gz : path);
        by_str line;
        const char *want[] = {"one", "", "three"};
        for (int i = 0; i < 3; i++) {
            assert_true(by_lines_next(l, &line));
            assert_true(by_str_eqz(line, want[i]));
            assert_int_equal(by_lines_number(l), i + 1);
        }
        assert_false(by_lines_next(l, &line));
        by_lines_close(l);
        if (round == 1) unlink(path);
    }
    unlink(gz);
}

/* ---- processes ---- */

static void output_status_and_input_pass_through(void **state) {
    (void)state;
    const char *argv[] = {"sh", "-c", "cat; echo err >&2; echo $BY_X; exit 3", NULL}, *env[] = {"BY_X=there", NULL};
    by_process_opts o = {.input = "in\n", .input_bytes = 3, .env = env};
    by_process_result r = by_process_run(argv, &o);
    assert_int_equal(r.exit_code, 3);
    assert_string_equal(r.out, "in\nthere\n");
    assert_string_equal(r.err, "err\n");
    assert_false(r.timed_out || r.cut || r.signal);
    by_process_free(&r);
}

static void large_input_and_output_do_not_block_each_other(void **state) {
    (void)state;
    size_t n = 1 << 21;
    char *bytes = malloc(n);
    assert_non_null(bytes);
    memset(bytes, 'x', n);
    const char *argv[] = {"cat", NULL};
    by_process_opts o = {.input = bytes, .input_bytes = n};
    by_process_result r = by_process_run(argv, &o);
    assert_int_equal(r.out_bytes, n);
    assert_memory_equal(r.out, bytes, n);
    by_process_free(&r);
    free(bytes);
}

static void a_process_that_hangs_is_killed_with_its_children(void **state) {
    (void)state;
    const char *argv[] = {"sh", "-c", "sleep 100 & wait", NULL};
    by_process_opts o = {.limit_s = 0.2};
    by_process_result r = by_process_run(argv, &o);
    assert_true(r.timed_out && r.exit_code == -1 && r.wall_s < 20);
    by_process_free(&r);
}

static void a_signal_and_a_closed_output_are_seen(void **state) {
    (void)state;
    const char *killed[] = {"sh", "-c", "kill -SEGV $$", NULL}, *writer[] = {"sh", "-c", "echo x; echo $? >&2", NULL};
    by_process_result r = by_process_run(killed, NULL);
    assert_int_equal(r.signal, 11);
    by_process_free(&r);
    by_process_opts o = {.closed_stdout = true};
    r = by_process_run(writer, &o);
    assert_true(r.signal == 13 || strcmp(r.err, "0\n") != 0);
    by_process_free(&r);
}

/* ---- allocation ---- */

static by_status three_allocations(void *arg) {
    int *n_runs = arg;
    ++*n_runs;
    void *p[3] = {NULL};
    by_status status = BY_OK;
    for (int i = 0; i < 3 && status == BY_OK; i++)
        if (!(p[i] = by_alloc(BY_MEM_MISC, 10))) status = BY_ENOMEM;
    for (int i = 0; i < 3; i++)
        by_free(p[i]);
    return status;
}

static by_status forgets(void *arg) {
    void *a = by_alloc(BY_MEM_MISC, 10), *b = by_alloc(BY_MEM_MISC, 10);
    by_free(b);
    *(void **)arg = a;
    return a && b ? BY_OK : BY_ENOMEM; /* b was freed; only its being there counts */
}

static by_status hides(void *arg) {
    (void)arg;
    by_free(by_alloc(BY_MEM_MISC, 10));
    return BY_EIO;
}

static void every_allocation_is_made_to_fail_once(void **state) {
    (void)state;
    int n_runs = 0;
    assert_int_equal(by_alloc_fail_each(three_allocations, &n_runs, 10), 3);
    assert_int_equal(n_runs, 4);
    assert_int_equal(by_alloc_fail_each(three_allocations, &n_runs, 2), 0);
    assert_int_equal(by_alloc_fail_each(hides, NULL, 10), 0);
    void *left = NULL;
    assert_int_equal(by_alloc_fail_each(forgets, &left, 10), 0);
    by_free(left);
    by_alloc_mark m = by_alloc_mark_now();
    assert_true(by_alloc_none_since(&m, "nothing") && by_alloc_balanced_since(&m, "nothing"));
    left = by_alloc(BY_MEM_JSON, 5);
    assert_false(by_alloc_none_since(&m, "expected line") || by_alloc_balanced_since(&m, "expected line"));
    by_free(left);
    assert_true(by_bits_hash(BY_BITS_SEED, "ab", 2) != by_bits_hash(BY_BITS_SEED, "ba", 2));
}

static void zeroed_memory_is_aligned_and_grows_with_its_bytes(void **state) {
    (void)state;
    int64_t before = by_alloc_bytes(BY_MEM_KV);
    for (size_t align = 16; align <= 4096; align *= 2)
        for (size_t n = 1; n < 3000000; n = n * 7 + 3) {
            unsigned char *p = by_alloc_zero_aligned(BY_MEM_KV, align, n);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            assert_int_equal(by_alloc_bytes(BY_MEM_KV) - before, n);
            for (size_t i = 0; i < n; i += n / 64 + 1) assert_int_equal(p[i], 0);
            p[0] = 5;
            p[n - 1] = 7;
            p = by_realloc(BY_MEM_KV, p, n + 100);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            assert_true(p[n - 1] == 7 && (n == 1 || p[0] == 5));
            by_free(p);
        }
    assert_int_equal(by_alloc_bytes(BY_MEM_KV), before);
    assert_null(by_alloc_zero_aligned(BY_MEM_KV, 64, 0));
    assert_null(by_alloc_zero_aligned(BY_MEM_KV, 64, SIZE_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npz_arrays_are_found_by_name),
        cmocka_unit_test(npy_shapes_of_all_ranks_are_read),
        cmocka_unit_test(what_the_format_does_not_hold_is_refused),
        cmocka_unit_test(a_damaged_npz_is_refused_or_read_without_harm),
        cmocka_unit_test(comparison_follows_the_stated_rule),
        cmocka_unit_test(byte_comparison_sees_the_sign_of_zero),
        cmocka_unit_test(lines_come_from_plain_and_gzip_files),
        cmocka_unit_test(output_status_and_input_pass_through),
        cmocka_unit_test(large_input_and_output_do_not_block_each_other),
        cmocka_unit_test(a_process_that_hangs_is_killed_with_its_children),
        cmocka_unit_test(a_signal_and_a_closed_output_are_seen),
        cmocka_unit_test(every_allocation_is_made_to_fail_once),
        cmocka_unit_test(zeroed_memory_is_aligned_and_grows_with_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
