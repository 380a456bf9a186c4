/* prompt.c - entry of the renderer and its writing functions. */
#include "recipe/prompt.h"

#include "recipe/prompt_impl.h"

void by_recipe_prompt_deinit(by_recipe_prompt *p) {
    by_buf_deinit(&p->text);
    by_free(p->ranges);
    by_free(p->images);
    by_arena_deinit(&p->scratch);
    *p = (by_recipe_prompt){0};
}

/* Room for one more item of an array that grows by doubling. */
static bool grow(void **array, size_t n, size_t *cap, size_t item) {
    if (n < *cap) return true;
    size_t fresh_cap = *cap ? *cap * 2 : 64;
    void *fresh = by_realloc(BY_MEM_REQUEST, *array, by_mul_size(fresh_cap, item));
    if (!fresh) return false;
    *array = fresh;
    *cap = fresh_cap;
    return true;
}

static void put_token(by_prompt_job *j, by_str spelling) {
    by_recipe_prompt *p = j->p;
    if (!grow((void **)&p->ranges, p->n_ranges, &p->cap_ranges, sizeof *p->ranges)) {
        p->failed = true;
        return;
    }
    size_t begin = p->text.len;
    by_prompt_put(j, spelling);
    p->ranges[p->n_ranges++] = (by_tok_range){begin, p->text.len};
}

void by_prompt_put_special(by_prompt_job *j, by_recipe_special token) { put_token(j, j->specials->text[token]); }

/* The placeholder and its source. */
static void put_image(by_prompt_job *j, const by_recipe_piece *piece) {
    by_recipe_prompt *p = j->p;
    if (!grow((void **)&p->images, p->n_images, &p->cap_images, sizeof(void *))) {
        p->failed = true;
        return;
    }
    p->images[p->n_images++] = piece->image;
    if (piece->unplaced) return;
    if (piece->text.len) put_token(j, piece->text);
    else by_prompt_put_special(j, BY_SPECIAL_IMAGE);
}

void by_prompt_put_content(by_prompt_job *j, by_recipe_text t) {
    for (uint32_t i = 0; i < t.n; i++) {
        if (t.pieces[i].image) put_image(j, &t.pieces[i]);
        else by_prompt_put(j, t.pieces[i].text);
    }
}

void by_prompt_put_template(by_prompt_job *j, by_recipe_template_id id, by_prompt_fill *fill, const void *arg) {
    const by_recipe_template *t = &by_recipe_templates[id];
    size_t skip = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const by_recipe_part *part = &t->parts[i];
        if (part->what == BY_PART_TEXT) {
            by_prompt_put(j, by_str_skip(by_str_of(part->text, part->len), skip));
            skip = 0;
        } else if (part->what == BY_PART_SLOT) {
            skip = fill(j, arg);
        } else {
            by_prompt_put_special(j, (by_recipe_special)part->what);
        }
    }
}

static by_prompt_job start(by_recipe_prompt *out, const by_recipe_specials *specials) {
    out->n_ranges = out->n_images = 0;
    out->failed = out->text.failed = false;
    by_buf_clear(&out->text);
    if (!out->scratch.next_bytes) by_arena_init(&out->scratch, BY_MEM_REQUEST);
    by_arena_reset(&out->scratch);
    return (by_prompt_job){.p = out, .specials = specials ? specials : by_recipe_specials_default()};
}

by_status by_recipe_render(by_recipe_prompt *out, const by_recipe_conversation *c, by_recipe_version version,
                           const by_recipe_specials *specials, by_err *err) {
    by_prompt_job j = start(out, specials);
    j.c = c;
    j.version = version;
    if (c->choice != BY_CHOICE_NONE) {
        j.tools = c->tools;
        j.n_tools = c->n_tools;
    }
    bool v41 = version == BY_RECIPE_V41;
    if (v41 ? by_prompt_order_v41(&j) : by_prompt_order_v4(&j)) {
        if (v41) by_prompt_render_v41(&j);
        else by_prompt_render_v4(&j);
    } else {
        out->failed = true;
    }
    if (out->failed || out->text.failed)
        return BY_FAIL(err, BY_ENOMEM, "out of memory while rendering a prompt of %u messages", c->n_messages);
    return BY_OK;
}

by_status by_recipe_render_completion(by_recipe_prompt *out, by_str text, const by_str *suffix,
                                      const by_recipe_specials *specials, by_err *err) {
    by_prompt_job j = start(out, specials);
    by_prompt_put_special(&j, BY_SPECIAL_BOS);
    if (suffix) put_token(&j, BY_STR("<｜fim▁begin｜>"));
    by_prompt_put(&j, text);
    if (suffix) {
        put_token(&j, BY_STR("<｜fim▁hole｜>"));
        by_prompt_put(&j, *suffix);
        put_token(&j, BY_STR("<｜fim▁end｜>"));
    }
    if (out->failed || out->text.failed) return BY_FAIL(err, BY_ENOMEM, "out of memory while rendering a prompt");
    return BY_OK;
}

by_status by_recipe_encode(by_tok_ids *out, const by_recipe_prompt *prompt, const by_tok *tok, by_tok_scratch *scratch,
                           by_err *err) {
    return by_tok_encode_ranges(tok, scratch, by_buf_str(&prompt->text), prompt->ranges, prompt->n_ranges, out, err);
}
