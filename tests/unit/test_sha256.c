/* test_sha256.c - known answers of FIPS 180-4 and its test vectors, at lengths around the block border. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/sha256.h"

static void expect(const void *data, size_t n, const char *hex) {
    uint8_t out[32];
    char text[65];
    by_sha256(data, n, out);
    for (int i = 0; i < 32; i++) snprintf(text + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(text, hex);
}

static void known_answers(void **state) {
    (void)state;
    static char a[1000000];
    memset(a, 'a', sizeof a);
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect(a, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    expect(a, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    expect(a, sizeof a, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
