/* conversation.c - words and small helpers of conversation.h. */
#include "recipe/conversation.h"

#define NAME_OF(table, v) ((size_t)(v) < sizeof(table) / sizeof((table)[0]) ? (table)[v] : NULL)

const char *by_recipe_role_name(by_recipe_role v) {
    static const char *const table[] = {"system", "user", "assistant", "tool", "latest_reminder"};
    return NAME_OF(table, v);
}

const char *by_recipe_detail_name(by_recipe_detail v) {
    static const char *const table[] = {"low", "high", "original", "auto"};
    return NAME_OF(table, v);
}

const char *by_recipe_choice_name(by_recipe_choice v) {
    static const char *const table[] = {"auto", "none", "required"};
    return NAME_OF(table, v);
}

const char *by_recipe_format_name(by_recipe_format v) {
    static const char *const table[] = {"text", "json_object", "json_schema", "regex"};
    return NAME_OF(table, v);
}

const char *by_recipe_effort_name(by_recipe_effort v) {
    static const char *const table[] = {NULL, "low", "high", "xhigh", "max", "number"};
    return NAME_OF(table, v);
}

static const char *const stage_names[] = {NULL, "reasoning_start", "reasoning_continuation", "content_continuation"};

const char *by_recipe_stage_name(by_stage v) { return NAME_OF(stage_names, v); }

bool by_recipe_stage_by_name(by_str name, by_stage *out) {
    for (int i = BY_STAGE_REASONING_START; i <= BY_STAGE_CONTENT_CONTINUATION; i++)
        if (by_str_eqz(name, stage_names[i])) return *out = (by_stage)i, true;
    return false;
}

const char *by_recipe_version_name(by_recipe_version v) {
    static const char *const table[] = {"v4.1-flash", "v4-pro"};
    return NAME_OF(table, v);
}

bool by_recipe_text_is_empty(by_recipe_text t) {
    for (uint32_t i = 0; i < t.n; i++)
        if (!t.pieces[i].unplaced && (t.pieces[i].image || t.pieces[i].text.len)) return false;
    return true;
}

by_status by_recipe_text_with_images(by_recipe_text *out, by_arena *arena, by_str content, const by_recipe_image *images,
                                     uint32_t n, by_str spelling, by_err *err) {
    size_t most = by_add_size(by_mul_size(n, 2), 1);
    by_recipe_piece *pieces = by_arena_zero(arena, by_mul_size(most, sizeof *pieces));
    if (!pieces) return BY_FAIL(err, BY_ENOMEM, "out of memory for a message of %u images", n);
    uint32_t at = 0, image = 0;
    while (image < n) {
        const char *hit = content.len ? memmem(content.ptr, content.len, spelling.ptr, spelling.len) : NULL;
        if (!hit) break;
        size_t before = (size_t)(hit - content.ptr);
        if (before) pieces[at++].text = by_str_take(content, before);
        pieces[at++] = (by_recipe_piece){.text = by_str_of(hit, spelling.len), .image = &images[image++]};
        content = by_str_skip(content, before + spelling.len);
    }
    if (content.len) pieces[at++].text = content;
    while (image < n) pieces[at++] = (by_recipe_piece){.image = &images[image++], .unplaced = true};
    *out = (by_recipe_text){pieces, at};
    return BY_OK;
}
