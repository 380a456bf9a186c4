/* The document at /openapi.json: well-formed, every path and method of the route table is in it and nothing else, and every
 * reference leads somewhere. Its schemas meet real answers in tests/integration/http_openapi.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <cmocka.h>

#include "base/file.h"
#include "http/http_impl.h"
#include "http/page.h"
#include "support/golden.h"

static by_arena arena;
static by_json doc;

static int read_document(void **state) {
    (void)state;
    by_err err;
    by_arena_init(&arena, BY_MEM_MISC);
    by_status status = by_json_parse(&doc, &arena, by_str_of((const char *)by_openapi_json, by_openapi_json_len), NULL, &err);
    if (status < 0) fprintf(stderr, "%s\n", err.msg);
    return status == BY_OK ? 0 : 1;
}
static int free_document(void **state) {
    (void)state;
    by_arena_deinit(&arena);
    return 0;
}

static void the_program_holds_the_file(void **state) {
    (void)state;
    by_buf file = {0};
    assert_int_equal(by_file_read(&file, by_source_path("web/openapi.json"), 1 << 20, NULL), BY_OK);
    assert_int_equal(by_openapi_json_len, file.len);
    assert_memory_equal(by_openapi_json, file.ptr, file.len);
    by_buf_deinit(&file);
}

#ifdef BATHYC_HAVE_LIBEVENT

/* "/v1/files/{file_id}/content" as the route table has it: path "/v1/files/", tail "content". */
static bool is_route(by_str path, const by_route *r) {
    const char *open = memchr(path.ptr, '{', path.len), *close = memchr(path.ptr, '}', path.len);
    size_t n = open ? (size_t)(open - path.ptr) : path.len;
    by_str tail = close ? by_str_skip(path, (size_t)(close - path.ptr) + 1) : (by_str){0};
    if (tail.len) tail = by_str_skip(tail, 1);
    const char *second = tail.len ? memchr(tail.ptr, '{', tail.len) : NULL; /* ".../items/{item_id}": tail "items/" */
    if (second) tail.len = (size_t)(second - tail.ptr);
    bool var = r->path[1] && r->path[strlen(r->path) - 1] == '/';
    return by_str_eqz(by_str_take(path, n), r->path) && var == (open != NULL) && by_str_eqz(tail, r->tail ? r->tail : "");
}

static bool is_method(by_str key, const char *method) { return key.len == strlen(method) && strncasecmp(key.ptr, method, key.len) == 0; }

static void paths_are_those_of_the_route_table(void **state) {
    (void)state;
    int n_routes, n_found = 0, n_methods = 0;
    const by_route *routes = by_routes(&n_routes);
    const by_json *paths = by_json_get(&doc, "paths");
    for (int i = 0; i < n_routes; i++) {
        bool found = false;
        for (uint32_t k = 0; k < paths->n; k++) {
            const by_json_member *p = &paths->v.members[k];
            for (uint32_t m = 0; m < p->value.n; m++)
                found |= is_route(p->key, &routes[i]) && is_method(p->value.v.members[m].key, routes[i].method);
        }
        const char *tail = routes[i].tail;
        if (!found) fail_msg("not described: %s %s%s%s", routes[i].method, routes[i].path, tail ? "ID/" : "", tail ? tail : "");
        n_found++;
    }
    for (uint32_t k = 0; k < paths->n; k++)
        for (uint32_t m = 0; m < paths->v.members[k].value.n; m++)
            n_methods += !by_str_eqz(paths->v.members[k].value.v.members[m].key, "parameters");
    assert_int_equal(n_methods, n_found); /* both are without repetitions */
}

static void open_paths_need_no_key(void **state) {
    (void)state;
    int n;
    const by_route *routes = by_routes(&n);
    const by_json *paths = by_json_get(&doc, "paths");
    for (int i = 0; i < n; i++) {
        if (routes[i].path[1] && routes[i].path[strlen(routes[i].path) - 1] == '/') continue; /* none of them is open */
        const by_json *get = by_json_get(by_json_get(paths, routes[i].path), "get");
        if (get && strcmp(routes[i].method, "GET") == 0) assert_int_equal(by_json_get(get, "security") != NULL, routes[i].open);
        else assert_false(routes[i].open);
    }
}

#endif

/* Every "$ref" is "#/a/b/c" and there. */
static void check_refs(const by_json *v, int *n) {
    for (uint32_t i = 0; (v->type == BY_JSON_OBJECT || v->type == BY_JSON_ARRAY) && i < v->n; i++) {
        if (v->type == BY_JSON_ARRAY) {
            check_refs(&v->v.items[i], n);
            continue;
        }
        const by_json_member *m = &v->v.members[i];
        check_refs(&m->value, n);
        if (!by_str_eqz(m->key, "$ref")) continue;
        by_str at = by_str_skip(m->value.v.s, 2);
        const by_json *to = &doc;
        while (to && at.len) {
            const char *slash = memchr(at.ptr, '/', at.len);
            by_str name = by_str_take(at, slash ? (size_t)(slash - at.ptr) : at.len);
            to = by_json_get_str(to, name);
            at = by_str_skip(at, slash ? name.len + 1 : name.len);
        }
        if (!to) fail_msg("%.*s leads nowhere", BY_STR_ARG(m->value.v.s));
        (*n)++;
    }
}

static void references_lead_somewhere(void **state) {
    (void)state;
    int n = 0;
    check_refs(&doc, &n);
    assert_true(n > 100);
    assert_true(by_str_starts(by_json_get(&doc, "openapi")->v.s, BY_STR("3.1.")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_program_holds_the_file),
#ifdef BATHYC_HAVE_LIBEVENT
        cmocka_unit_test(paths_are_those_of_the_route_table),
        cmocka_unit_test(open_paths_need_no_key),
#endif
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, read_document, free_document);
}
