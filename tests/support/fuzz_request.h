/* fuzz_request.h - what the fuzz entries of the request kinds share: bytes are a request body, converted in both profiles. What is
 * accepted must render into a valid prompt and encode; what is refused must say so in an error object. */
#ifndef BY_TEST_FUZZ_REQUEST_H
#define BY_TEST_FUZZ_REQUEST_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_request.h"
#include "base/utf8.h"
#include "recipe/prompt.h"
#include "support/golden.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_refusal(const by_api_error *e) {
    by_buf json = {0};
    by_arena arena;
    by_json v;
    by_arena_init(&arena, BY_MEM_JSON);
    by_api_error_write(&json, e);
    if (e->http_status != 400 || e->message.len == 0) abort();
    if (by_json_parse(&v, &arena, by_buf_str(&json), NULL, NULL) != BY_OK) abort();
    by_arena_deinit(&arena);
    by_buf_deinit(&json);
}

static void check_prompt(const by_recipe_prompt *p, const by_tok *tok, by_tok_scratch *scratch) {
    by_tok_ids ids = {0};
    size_t end = 0;
    if (!by_utf8_valid(by_buf_str(&p->text), NULL)) abort();
    for (size_t i = 0; i < p->n_ranges; i++) {
        if (p->ranges[i].begin < end || p->ranges[i].end <= p->ranges[i].begin || p->ranges[i].end > p->text.len) abort();
        end = p->ranges[i].end;
        if (by_tok_find_added(tok, by_str_of(p->text.ptr + p->ranges[i].begin, end - p->ranges[i].begin)) < 0) abort();
    }
    if (by_recipe_encode(&ids, p, tok, scratch, NULL) != BY_OK || ids.n < p->n_ranges) abort();
    by_tok_ids_deinit(&ids);
}

static void check_accepted(const by_api_converted *c, const by_api_options *o, by_arena *arena, const by_tok *tok, by_tok_scratch *scratch) {
    by_recipe_prompt p = {0};
    if (c->api != BY_API_COMPLETIONS) {
        if (by_recipe_render(&p, &c->conversation, c->version, NULL, NULL) != BY_OK) abort();
        check_prompt(&p, tok, scratch);
    }
    for (uint32_t i = 0; i < c->n_prompts && i < 4; i++) {
        if (c->prompts[i].n_ids) continue;
        if (by_recipe_render_completion(&p, c->prompts[i].text, c->has_suffix ? &c->suffix : NULL, NULL, NULL) != BY_OK) abort();
        check_prompt(&p, tok, scratch);
    }
    uint32_t n;
    by_api_error error;
    if (by_api_resolve_max_tokens(&n, &error, arena, c, o, p.text.len, 1000, NULL) != BY_OK) check_refusal(&error);
    else if (n < 1 || n > 1000) abort();
    const by_api_inference *inf = &c->inference;
    if (!(inf->temperature >= 0 && inf->temperature <= 2) || !(inf->top_p > 0 && inf->top_p <= 1)) abort();
    if (inf->n < 1 || inf->best_of < inf->n || inf->best_of > 128) abort();
    by_recipe_prompt_deinit(&p);
}

static int fuzz_request(by_api_kind api, const uint8_t *data, size_t size) {
    static by_tok *tok;
    static by_tok_scratch *scratch;
    if (!tok && by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, NULL) != BY_OK) abort();
    if (!scratch && by_tok_scratch_create(&scratch, tok, NULL) != BY_OK) abort();
    if (size > 1 << 16) return 0;
    for (int profile = 0; profile < 2; profile++) {
        by_arena arena;
        by_api_options o;
        by_api_converted c;
        by_api_error error;
        by_arena_init(&arena, BY_MEM_REQUEST);
        by_api_options_init(&o);
        o.profile = (by_api_profile)profile;
        by_status status = by_api_convert(&c, &error, &arena, api, by_str_of((const char *)data, size), &o, NULL);
        if (status == BY_EINVAL) check_refusal(&error);
        else if (status != BY_OK) abort();
        else check_accepted(&c, &o, &arena, tok, scratch);
        by_arena_deinit(&arena);
    }
    return 0;
}

#endif
