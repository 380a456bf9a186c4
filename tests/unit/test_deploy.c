/* deploy/ and docs/server.md name metrics: each must exist, and the table of the page of documents must be whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "http/metrics.h"
#include "json/json.h"
#include "support/golden.h"

static by_buf metrics;

static int write_metrics(void **state) {
    (void)state;
    by_metrics *m = NULL;
    by_engine_stats stats = {0};
    if (by_metrics_create(&m, &(by_metrics_opts){.model_name = "m", .vllm_names = true}, NULL) != BY_OK) return 1;
    by_metrics_count_response(m, BY_ENDPOINT_CHAT, 200);
    by_status status = by_metrics_write(m, &metrics, &stats, NULL);
    by_metrics_destroy(m);
    return status;
}
static int free_metrics(void **state) {
    (void)state;
    by_buf_deinit(&metrics);
    return 0;
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

/* A sample with this very name is written ("name{", "name "). */
static bool is_sample(by_str name) {
    char line[256];
    for (const char *end = "{ "; *end; end++) {
        snprintf(line, sizeof line, "\n%.*s%c", BY_STR_ARG(name), *end);
        if (strstr(by_buf_z(&metrics), line)) return true;
    }
    return false;
}

static int check_names(by_str text, const char *prefix, const char *where) {
    int n = 0;
    const char *end = text.ptr + text.len;
    for (const char *p = memmem(text.ptr, text.len, prefix, strlen(prefix)); p;
         p = memmem(p + 1, (size_t)(end - p - 1), prefix, strlen(prefix))) {
        if (p > text.ptr && is_name_char(p[-1])) continue;
        size_t len = 0;
        while (p + len < end && is_name_char(p[len])) len++;
        by_str name = {p, len};
        if (!is_sample(name)) fail_msg("%s: there is no metric %.*s", where, BY_STR_ARG(name));
        n++;
    }
    return n;
}

static void the_dashboard_reads_metrics_that_exist(void **state) {
    (void)state;
    by_buf text = {0};
    by_arena arena;
    by_json board;
    by_arena_init(&arena, BY_MEM_MISC);
    assert_int_equal(by_json_read_file(&board, &arena, &text, by_source_path("deploy/grafana-dashboard.json"), NULL), BY_OK);
    const by_json *panels = by_json_get(&board, "panels");
    int n = 0, n_graphs = 0;
    for (size_t i = 0; i < panels->n; i++) {
        const by_json *panel = by_json_at(panels, i), *targets = by_json_get(panel, "targets"), *title = by_json_get(panel, "title");
        if (by_json_is(by_json_get(panel, "type"), BY_JSON_STRING) && by_str_eqz(by_json_get(panel, "type")->v.s, "row")) continue;
        assert_true(targets && targets->n > 0);
        n_graphs++;
        for (size_t t = 0; t < targets->n; t++) {
            const by_json *expr = by_json_get(by_json_at(targets, t), "expr");
            assert_true(by_json_is(expr, BY_JSON_STRING));
            int here = check_names(expr->v.s, "bathyc_", "dashboard") + check_names(expr->v.s, "process_", "dashboard");
            if (!here) fail_msg("%.*s: no metric in %.*s", BY_STR_ARG(title->v.s), BY_STR_ARG(expr->v.s));
            n += here;
        }
    }
    assert_true(n_graphs > 25 && n > 60);
    by_arena_deinit(&arena);
    by_buf_deinit(&text);
}

/* Both ways: what the table of docs/server.md names exists, and what exists is in the table. */
static void the_documented_table_is_whole(void **state) {
    (void)state;
    by_buf text = {0};
    assert_int_equal(by_file_read(&text, by_source_path("docs/server.md"), 1 << 20, NULL), BY_OK);
    const char *doc = by_buf_z(&text);
    int n = 0;
    for (const char *p = strstr(by_buf_z(&metrics), "# TYPE "); p; p = strstr(p + 1, "# TYPE "), n++) {
        char row[256];
        const char *name = p + 7, *type = name + strcspn(name, " ") + 1;
        snprintf(row, sizeof row, "| `%.*s` | %.*s |", (int)strcspn(name, " "), name, (int)strcspn(type, "\n"), type);
        if (strncmp(name, "vllm:", 5) == 0) snprintf(row, sizeof row, "`%.*s`", (int)strcspn(name, " "), name);
        if (!strstr(doc, row)) fail_msg("docs/server.md lacks: %s", row);
    }
    assert_true(n > 80);
    for (const char *p = strstr(doc, "| `"); p; p = strstr(p + 1, "| `")) { /* rows of the table */
        by_str name = {p + 3, strcspn(p + 3, "`")};
        char type[256];
        if (!by_str_starts(name, BY_STR("bathyc_")) && !by_str_starts(name, BY_STR("process_"))) continue;
        snprintf(type, sizeof type, "# TYPE %.*s ", BY_STR_ARG(name));
        if (!strstr(by_buf_z(&metrics), type)) fail_msg("docs/server.md: there is no metric %.*s", BY_STR_ARG(name));
    }
    by_buf_deinit(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_dashboard_reads_metrics_that_exist),
        cmocka_unit_test(the_documented_table_is_whole),
    };
    return cmocka_run_group_tests(tests, write_metrics, free_metrics);
}
