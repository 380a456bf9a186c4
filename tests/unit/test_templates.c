/* The compiled templates against the files they were made from: src/recipe/templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "json/json.h"
#include "recipe/templates.h"
#include "support/golden.h"

/* The parts of a template as the file spells them; a slot is any {{NAME}}. */
static void every_template_equals_its_file(void **state) {
    (void)state;
    const by_recipe_specials *specials = by_recipe_specials_default();
    for (int i = 0; i < BY_TEMPLATE_N; i++) {
        const by_recipe_template *t = &by_recipe_templates[i];
        char rel[128];
        by_buf file = {0};
        snprintf(rel, sizeof rel, "src/recipe/templates/%s.txt", t->name);
        assert_int_equal(by_file_read(&file, by_source_path(rel), 1 << 16, NULL), BY_OK);
        by_str rest = by_buf_str(&file);
        for (uint32_t k = 0; k < t->n; k++) {
            const by_recipe_part *p = &t->parts[k];
            if (p->what == BY_PART_SLOT) {
                assert_true(by_str_starts(rest, BY_STR("{{")));
                const char *end = memmem(rest.ptr, rest.len, "}}", 2);
                assert_non_null(end);
                rest = by_str_skip(rest, (size_t)(end + 2 - rest.ptr));
                continue;
            }
            by_str want = p->what == BY_PART_TEXT ? by_str_of(p->text, p->len) : specials->text[p->what];
            assert_true(by_str_starts(rest, want));
            rest = by_str_skip(rest, want.len);
        }
        assert_int_equal(rest.len, 0);
        by_buf_deinit(&file);
    }
}

static void the_patch_tool_equals_its_file(void **state) {
    (void)state;
    by_buf file = {0};
    by_arena arena;
    by_json v;
    by_arena_init(&arena, BY_MEM_JSON);
    assert_int_equal(by_file_read(&file, by_source_path("src/recipe/templates/apply_patch_tool.json"), 1 << 16, NULL), BY_OK);
    assert_true(by_str_eq(by_buf_str(&file), by_recipe_apply_patch_json));
    assert_int_equal(by_json_parse(&v, &arena, by_recipe_apply_patch_json, NULL, NULL), BY_OK);
    assert_true(by_json_is(by_json_get(&v, "parameters"), BY_JSON_OBJECT));
    assert_true(by_json_is(by_json_get(&v, "description"), BY_JSON_STRING));
    by_buf_deinit(&file);
    by_arena_deinit(&arena);
}

static void the_licence_is_beside_the_templates(void **state) {
    (void)state;
    assert_true(by_file_exists(by_source_path("src/recipe/templates/LICENSE.deepseek-recipe")));
    assert_true(by_file_exists(by_source_path("src/recipe/templates/NOTICE.md")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_template_equals_its_file),
        cmocka_unit_test(the_patch_tool_equals_its_file),
        cmocka_unit_test(the_licence_is_beside_the_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
