/* The page inside the program is the file of the source tree, loads nothing from elsewhere, and reads only metrics that
 * exist. What it does in a browser: tests/integration/page.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "http/metrics.h"
#include "http/page.h"
#include "support/golden.h"

static by_buf page;

static int read_page(void **state) {
    (void)state;
    return by_file_read(&page, by_source_path("web/index.html"), 1 << 20, NULL) == BY_OK ? 0 : 1;
}
static int free_page(void **state) {
    (void)state;
    by_buf_deinit(&page);
    return 0;
}

static void the_program_holds_the_file(void **state) {
    (void)state;
    assert_int_equal(by_page_html_len, page.len);
    assert_memory_equal(by_page_html, page.ptr, page.len);
    assert_true(by_page_html_len < 64 * 1024); /* one answer of a socket's buffer, more or less */
}

/* Every address with a scheme is a namespace, a pattern of the script, or in a comment; attributes that load do not
 * occur. */
static void nothing_is_loaded_from_elsewhere(void **state) {
    (void)state;
    const char *text = by_buf_z(&page);
    static const char *const banned[] = {"src=",       "@import",        "url(",  "<iframe",
                                         "<object",    "integrity=",     "eval(", "new Function",
                                         "onclick=\"", "document.write", "//cdn"};
    for (size_t i = 0; i < sizeof banned / sizeof *banned; i++)
        if (strstr(text, banned[i])) fail_msg("%s", banned[i]);
    for (const char *p = strstr(text, "http"); p; p = strstr(p + 1, "http")) {
        if (strncmp(p, "http://", 7) != 0 && strncmp(p, "https://", 8) != 0) continue;
        if (strncmp(p, "http://www.w3.org/2000/svg", 26) != 0) fail_msg("%.40s", p);
    }
    assert_non_null(strstr(text, "default-src 'none'"));
    assert_non_null(strstr(text, "connect-src 'self'"));
}

/* Names stand in calls: rate("engine_steps_total"), num(s, "ready"), quantile("queue_seconds", .5), delta(a, b, "...").
 */
static void its_metrics_exist(void **state) {
    (void)state;
    by_metrics *m = NULL;
    by_buf out = {0};
    by_engine_stats stats = {0};
    assert_int_equal(by_metrics_create(&m, &(by_metrics_opts){.model_name = "m"}, NULL), BY_OK);
    assert_int_equal(by_metrics_write(m, &out, &stats, NULL), BY_OK);
    const char *metrics = by_buf_z(&out);
    static const char *const calls[] = {"rate(\"",        "num(a, \"",   "num(b, \"", "num(s, \"",
                                        "delta(a, b, \"", "quantile(\"", "label(\""};
    int found = 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (const char *p = strstr(by_buf_z(&page), calls[i]); p; p = strstr(p + 1, calls[i])) {
            const char *name = p + strlen(calls[i]);
            char type[256];
            snprintf(type, sizeof type, "# TYPE bathyc_%.*s ", (int)strcspn(name, "\""), name);
            if (!strstr(metrics, type)) fail_msg("no metric %s", type + 7);
            found++;
        }
    }
    assert_true(found > 15);
    by_buf_deinit(&out);
    by_metrics_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_holds_the_file),
        cmocka_unit_test(nothing_is_loaded_from_elsewhere),
        cmocka_unit_test(its_metrics_exist),
    };
    return cmocka_run_group_tests(tests, read_page, free_page);
}
