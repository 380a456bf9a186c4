/* golden_alabels.c - stored verdicts on internationalised labels of host names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "grammar/grammar_idna.h"
#include "support/golden.h"

static void labels_are_judged_as_stored(void **state) {
    (void)state;
    by_lines *l = by_lines_open(by_golden_path("structured/alabels.tsv"));
    by_str line;
    int n = 0, n_valid = 0;
    while (by_lines_next(l, &line)) {
        const char *tab = memchr(line.ptr, '\t', line.len);
        assert_non_null(tab);
        by_str label = by_str_of(line.ptr, (size_t)(tab - line.ptr));
        bool valid = tab[1] == '1';
        if (by_gr_alabel_valid(label) != valid) fail_msg("xn--%.*s is %s", BY_STR_ARG(label), valid ? "valid" : "not valid");
        n++;
        n_valid += valid;
    }
    by_lines_close(l);
    assert_true(n > 4000 && n_valid > 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(labels_are_judged_as_stored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
