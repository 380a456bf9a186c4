/* test_capi_recipe.c - include/bathyc/recipe.h: requests, refusals, prompts, streams, the parser; bad arguments; every failing
 * allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "bathyc/recipe.h"
#include "support/counting.h"
#include "support/golden.h"

#define MODEL "\"model\": \"DeepSeek-V4.1-Flash\""
#define ASK "\"messages\": [{\"role\": \"user\", \"content\": \"Hi </think>\"}]"

static bathyc_recipe_tok *tok;
static bathyc_error error;

static int open_tok(void **state) {
    (void)state;
    return bathyc_recipe_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), &error);
}

static int close_tok(void **state) {
    (void)state;
    bathyc_recipe_tok_close(tok);
    return 0;
}

static bathyc_recipe_request *request(bathyc_api api, bathyc_profile profile, const char *body) {
    bathyc_recipe_options o = bathyc_recipe_options_default();
    bathyc_recipe_request *r = NULL;
    o.profile = profile;
    if (bathyc_recipe_request_create(&r, api, body, strlen(body), &o, NULL, &error) != BATHYC_OK) fail_msg("%s", error.message);
    return r;
}

/* ---- requests ---- */

static void a_request_tells_what_it_asks_for(void **state) {
    (void)state;
    char body[512]; /* the library keeps its own copy */
    snprintf(body, sizeof body, "{" MODEL ", " ASK ", \"reasoning_effort\": 63, \"n\": 2, \"top_k\": 7, \"min_p\": 0.25, "
             "\"stop\": [\"a\", \"bc\"], \"logit_bias\": {\"9\": -2}, \"seed\": 5, \"max_tokens\": 8, \"stop_token_ids\": [4]}");
    bathyc_recipe_request *r = request(BATHYC_API_CHAT, BATHYC_PROFILE_SERVER, body);
    memset(body, 'x', sizeof body);
    const bathyc_recipe_info *i = bathyc_recipe_request_info(r);
    assert_memory_equal(i->model.ptr, "DeepSeek-V4.1-Flash", i->model.bytes);
    assert_int_equal(i->version, BATHYC_V41_FLASH);
    assert_true(i->thinking);
    assert_string_equal(i->effort, "number");
    assert_int_equal(i->effort_number, 63);
    assert_int_equal(i->n, 2);
    assert_int_equal(i->top_k, 7);
    assert_true(i->min_p == 0.25f);
    assert_int_equal(i->n_stops, 2);
    assert_memory_equal(i->stops[1].ptr, "bc", i->stops[1].bytes);
    assert_int_equal(i->n_logit_bias, 1);
    assert_int_equal(i->logit_bias[0].token, 9);
    assert_true(i->logit_bias[0].value == -2.0f);
    assert_true(i->has_seed && i->seed == 5);
    assert_true(i->has_max_tokens && i->max_tokens == 8);
    assert_int_equal(i->stop_token_ids[0], 4);
    assert_int_equal(i->n_prompts, 1);
    assert_null(i->constraint);
    bathyc_recipe_request_destroy(r);
}

static void a_refusal_is_the_error_object_of_the_api(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int bad_json, bad_body;
    } cases[] = {{"{" MODEL ", \"messages\": []}", 0, 0}, {"{" MODEL "}", 0, 1}, {"{" MODEL ",}", 1, 0}, {"", 1, 0}};
    bathyc_recipe_options o = bathyc_recipe_options_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bathyc_recipe_request *r = NULL;
        bathyc_refusal refusal;
        assert_int_equal(bathyc_recipe_request_create(&r, BATHYC_API_CHAT, cases[i].body, strlen(cases[i].body), &o, &refusal, &error),
                         BATHYC_INVALID);
        assert_null(r);
        assert_int_equal(error.code, BATHYC_INVALID);
        assert_int_equal(refusal.http_status, 400);
        assert_int_equal(refusal.bad_json, cases[i].bad_json);
        assert_int_equal(refusal.bad_body, cases[i].bad_body);
        assert_int_equal(strlen(refusal.json), refusal.json_bytes);
        assert_memory_equal(refusal.json, "{\"error\":{\"message\":\"", 21);
        bathyc_recipe_free(refusal.json);
        assert_int_equal(bathyc_recipe_request_create(&r, BATHYC_API_CHAT, cases[i].body, strlen(cases[i].body), &o, NULL, NULL),
                         BATHYC_INVALID);
    }
}

static void names_of_models_are_the_callers(void **state) {
    (void)state;
    bathyc_recipe_options o = bathyc_recipe_options_default();
    o.models = &(bathyc_recipe_model){"mine", BATHYC_V4_PRO};
    o.n_models = 1;
    bathyc_recipe_request *r = NULL;
    const char *body = "{\"model\": \"mine\", " ASK "}", *other = "{" MODEL ", " ASK "}";
    assert_int_equal(bathyc_recipe_request_create(&r, BATHYC_API_CHAT, body, strlen(body), &o, NULL, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_request_info(r)->version, BATHYC_V4_PRO);
    bathyc_recipe_request_destroy(r);
    assert_int_equal(bathyc_recipe_request_create(&r, BATHYC_API_CHAT, other, strlen(other), &o, NULL, &error), BATHYC_INVALID);
    assert_non_null(strstr(error.message, "mine"));
}

static void room_for_new_tokens(void **state) {
    (void)state;
    bathyc_recipe_request *r = request(BATHYC_API_CHAT, BATHYC_PROFILE_SERVER, "{" MODEL ", " ASK ", \"max_tokens\": 64}");
    uint32_t n = 0;
    bathyc_refusal refusal;
    assert_int_equal(bathyc_recipe_max_tokens(r, 400, 512, &n, &refusal, &error), BATHYC_OK);
    assert_int_equal(n, 64);
    assert_null(refusal.json);
    assert_int_equal(bathyc_recipe_max_tokens(r, 500, 512, &n, &refusal, &error), BATHYC_INVALID);
    assert_non_null(strstr(refusal.json, "context_length_exceeded"));
    assert_non_null(strstr(refusal.json, "512"));
    assert_non_null(strstr(refusal.json, "564"));
    bathyc_recipe_free(refusal.json);
    bathyc_recipe_request_destroy(r);
}

/* ---- prompts ---- */

static void only_the_renderers_tokens_are_special(void **state) {
    (void)state;
    bathyc_recipe_request *r = request(BATHYC_API_CHAT, BATHYC_PROFILE_PARITY, "{" MODEL ", " ASK "}");
    bathyc_recipe_prompt p;
    assert_int_equal(bathyc_recipe_render(r, 0, &p, &error), BATHYC_OK);
    const char *typed = strstr(p.text.ptr, "Hi </think>");
    assert_non_null(typed);
    size_t at = (size_t)(typed - p.text.ptr) + 3;
    for (size_t i = 0; i < p.n_specials; i++) {
        assert_true(p.specials[i].end <= p.text.bytes);
        assert_false(p.specials[i].begin <= at && at < p.specials[i].end);
    }
    const int32_t *ids;
    size_t n, n2;
    bathyc_recipe_scratch *scratch = NULL;
    assert_int_equal(bathyc_recipe_scratch_create(&scratch, tok, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_encode(r, 0, tok, NULL, &ids, &n, &error), BATHYC_OK);
    assert_true(n > p.n_specials);
    assert_int_equal(ids[0], 0);
    assert_int_equal(bathyc_recipe_encode(r, 0, tok, scratch, &ids, &n2, &error), BATHYC_OK);
    assert_int_equal(n, n2);
    assert_int_equal(bathyc_recipe_render(r, 1, &p, &error), BATHYC_INVALID);
    bathyc_recipe_scratch_destroy(scratch);
    bathyc_recipe_request_destroy(r);
}

static void completions_have_prompts_of_text_and_of_ids(void **state) {
    (void)state;
    bathyc_recipe_request *r = request(BATHYC_API_COMPLETIONS, BATHYC_PROFILE_PARITY, "{" MODEL ", \"prompt\": [\"a b\", [7, 8, 9]]}");
    const int32_t *ids;
    size_t n;
    bathyc_recipe_prompt p;
    assert_int_equal(bathyc_recipe_request_info(r)->n_prompts, 2);
    assert_int_equal(bathyc_recipe_encode(r, 0, tok, NULL, &ids, &n, &error), BATHYC_OK);
    assert_int_equal(ids[0], 0);
    assert_int_equal(bathyc_recipe_encode(r, 1, tok, NULL, &ids, &n, &error), BATHYC_OK);
    assert_int_equal(n, 3);
    assert_int_equal(ids[2], 9);
    assert_int_equal(bathyc_recipe_render(r, 1, &p, &error), BATHYC_OK);
    assert_int_equal(p.n_ids, 3);
    assert_int_equal(p.text.bytes, 0);
    bathyc_recipe_request_destroy(r);
}

static void pictures_are_listed_with_their_places(void **state) {
    (void)state;
    bathyc_recipe_request *r = request(BATHYC_API_CHAT, BATHYC_PROFILE_PARITY,
        "{" MODEL ", \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": "
        "{\"url\": \"https://example.org/a.png\", \"detail\": \"low\"}}, {\"type\": \"text\", \"text\": \"?\"}]}]}");
    bathyc_recipe_prompt p;
    assert_int_equal(bathyc_recipe_render(r, 0, &p, &error), BATHYC_OK);
    assert_int_equal(p.n_images, 1);
    assert_false(p.images[0].is_data_url);
    assert_string_equal(p.images[0].detail, "low");
    assert_memory_equal(p.images[0].url.ptr, "https://example.org/a.png", p.images[0].url.bytes);
    uint32_t n;
    assert_int_equal(bathyc_recipe_image_tokens(640, 480, &n, &error), BATHYC_OK);
    assert_true(n > 4 && n <= 1024);
    assert_int_equal(bathyc_recipe_image_tokens(0, 480, &n, &error), BATHYC_INVALID);
    bathyc_recipe_request_destroy(r);
}

/* ---- answers ---- */

typedef struct {
    by_buf names, last;
    int n;
} seen;

static void note_event(void *ctx, const char *name, const char *json, size_t bytes) {
    seen *s = ctx;
    assert_int_equal(strlen(json), bytes);
    by_buf_printf(&s->names, "%s ", name ? name : "-");
    by_buf_clear(&s->last);
    by_buf_push(&s->last, json, bytes);
    s->n++;
}

static bathyc_recipe_stream *stream(const bathyc_recipe_request *r, seen *s, const int32_t *end) {
    bathyc_recipe_stream_options o = bathyc_recipe_stream_options_default();
    bathyc_recipe_stream *out = NULL;
    o.on_event = note_event;
    o.ctx = s;
    o.tok = tok;
    o.end_ids = end;
    o.n_end_ids = end ? 1 : 0;
    assert_int_equal(bathyc_recipe_stream_create(&out, r, &o, &error), BATHYC_OK);
    return out;
}

static void an_answer_in_events_and_whole(void **state) {
    (void)state;
    static const char text[] = "Hm.</think>\n\nHi \xe2\x9c\x93";
    bathyc_recipe_request *r = request(BATHYC_API_MESSAGES, BATHYC_PROFILE_SERVER, "{" MODEL ", " ASK ", \"stream\": true}");
    seen s = {.n = 0};
    bathyc_recipe_stream *a = stream(r, &s, NULL);
    assert_int_equal(bathyc_recipe_stream_ready(a, 3, 4, &error), BATHYC_INVALID);
    assert_int_equal(bathyc_recipe_stream_ready(a, 5, 2, &error), BATHYC_OK);
    for (size_t i = 0; i < sizeof text - 1; i++)
        assert_int_equal(bathyc_recipe_stream_text(a, text + i, 1, 1, &error), BATHYC_OK);
    assert_false(bathyc_recipe_stream_finished(a));
    assert_int_equal(bathyc_recipe_stream_finish(a, BATHYC_REASON_LENGTH, &error), BATHYC_OK);
    assert_true(bathyc_recipe_stream_finished(a));
    assert_int_equal(bathyc_recipe_stream_text(a, "x", 1, 1, &error), BATHYC_INVALID);
    assert_true(strncmp(by_buf_z(&s.names), "message_start ", 14) == 0);
    assert_non_null(strstr(by_buf_z(&s.names), "message_delta message_stop "));
    char *json = NULL;
    size_t bytes;
    assert_int_equal(bathyc_recipe_stream_whole(a, &json, &bytes, &error), BATHYC_OK);
    assert_non_null(strstr(json, "Hi \xe2\x9c\x93"));
    assert_non_null(strstr(json, "\"max_tokens\""));
    assert_int_equal(bathyc_recipe_stream_usage(a).completion_tokens, sizeof text - 1);
    assert_null(bathyc_recipe_done_data(BATHYC_API_MESSAGES));
    assert_string_equal(bathyc_recipe_done_data(BATHYC_API_CHAT), "[DONE]");
    bathyc_recipe_free(json);
    bathyc_recipe_stream_destroy(a);
    by_buf_deinit(&s.names);
    by_buf_deinit(&s.last);
    bathyc_recipe_request_destroy(r);
}

static void ids_with_log_probabilities_and_an_end(void **state) {
    (void)state;
    bathyc_recipe_request *r = request(BATHYC_API_CHAT, BATHYC_PROFILE_SERVER,
        "{" MODEL ", " ASK ", \"thinking\": {\"type\": \"disabled\"}, \"logprobs\": true, \"top_logprobs\": 1}");
    seen s = {.n = 0};
    const int32_t end = 1, ids[] = {67, 273, 1, 67};
    const bathyc_alternative_logprob top = {.token = 67, .logprob = -0.5f};
    const bathyc_logprob lps[] = {{-0.5f, &top, 1}, {-1.5f, &top, 1}, {-2, NULL, 0}, {-3, NULL, 0}};
    bathyc_recipe_stream *a = stream(r, &s, &end);
    assert_int_equal(bathyc_recipe_stream_ready(a, 5, 0, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_stream_tokens(a, ids, 4, lps, 3, &error), BATHYC_INVALID);
    assert_int_equal(bathyc_recipe_stream_tokens(a, ids, 4, lps, 4, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_stream_finish(a, BATHYC_REASON_STOP, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_stream_usage(a).completion_tokens, 3); /* the end token cuts what follows */
    char *json = NULL;
    size_t bytes;
    assert_int_equal(bathyc_recipe_stream_whole(a, &json, &bytes, &error), BATHYC_OK);
    assert_non_null(strstr(json, "\"logprob\":-1.5"));
    assert_null(strstr(json, "\"logprob\":-3"));
    bathyc_recipe_free(json);
    bathyc_recipe_stream_destroy(a);
    by_buf_deinit(&s.names);
    by_buf_deinit(&s.last);
    bathyc_recipe_request_destroy(r);
}

typedef struct {
    by_buf parts[4];
    uint32_t calls;
} parts;

static void note_delta(void *ctx, bathyc_delta_kind kind, uint32_t call, const char *text, size_t bytes) {
    parts *p = ctx;
    by_buf_push(&p->parts[kind], text, bytes);
    if (kind == BATHYC_DELTA_CALL) p->calls = call + 1;
}

static void the_parser_alone(void **state) {
    (void)state;
    static const char text[] = "Hm.</think>So.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
                               "<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>";
    bathyc_recipe_parser_options o = bathyc_recipe_parser_options_default();
    bathyc_recipe_parser *p = NULL;
    parts got = {.calls = 0};
    assert_int_equal(bathyc_recipe_parser_create(&p, &o, note_delta, &got, &error), BATHYC_OK);
    for (size_t i = 0; i < sizeof text - 1; i++) assert_int_equal(bathyc_recipe_parser_push(p, text + i, 1, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_parser_finish(p, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_parser_stop_index(p), -1);
    static const char *const want[] = {"Hm.", "So.", "f", "{\"a\": \"x\"}"};
    for (int i = 0; i < 4; i++) {
        assert_string_equal(by_buf_z(&got.parts[i]), want[i]);
        by_buf_deinit(&got.parts[i]);
    }
    assert_int_equal(got.calls, 1);
    bathyc_recipe_parser_destroy(p);

    got = (parts){.calls = 0};
    o.stage = BATHYC_STAGE_NONE;
    o.stops = (const bathyc_text[]){{"zz", 2}, {"END", 3}};
    o.n_stops = 2;
    assert_int_equal(bathyc_recipe_parser_create(&p, &o, note_delta, &got, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_parser_push(p, "abENDcd", 7, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_parser_stop_index(p), 1);
    assert_string_equal(by_buf_z(&got.parts[BATHYC_DELTA_CONTENT]), "ab");
    by_buf_deinit(&got.parts[BATHYC_DELTA_CONTENT]);
    bathyc_recipe_parser_destroy(p);
    o.stage = (bathyc_stage)9;
    assert_int_equal(bathyc_recipe_parser_create(&p, &o, note_delta, &got, &error), BATHYC_INVALID);
}

/* ---- bad arguments, failing memory ---- */

static void wrong_arguments_are_named(void **state) {
    (void)state;
    bathyc_recipe_options o = bathyc_recipe_options_default();
    bathyc_recipe_request *r = NULL;
    assert_int_equal(bathyc_recipe_request_create(&r, (bathyc_api)7, "{}", 2, &o, NULL, &error), BATHYC_INVALID);
    assert_non_null(strstr(error.message, "api"));
    o.profile = (bathyc_profile)7;
    assert_int_equal(bathyc_recipe_request_create(&r, BATHYC_API_CHAT, "{}", 2, &o, NULL, &error), BATHYC_INVALID);
    assert_non_null(strstr(error.message, "profile"));
    r = request(BATHYC_API_CHAT, BATHYC_PROFILE_PARITY, "{" MODEL ", " ASK "}");
    bathyc_recipe_stream_options so = bathyc_recipe_stream_options_default();
    bathyc_recipe_stream *s = NULL;
    so.prompt = 1;
    assert_int_equal(bathyc_recipe_stream_create(&s, r, &so, &error), BATHYC_INVALID);
    so.prompt = 0;
    so.id = NULL;
    assert_int_equal(bathyc_recipe_stream_create(&s, r, &so, &error), BATHYC_INVALID);
    so = bathyc_recipe_stream_options_default();
    assert_int_equal(bathyc_recipe_stream_create(&s, r, &so, &error), BATHYC_OK);
    assert_int_equal(bathyc_recipe_stream_finish(s, (bathyc_reason)9, &error), BATHYC_INVALID);
    assert_int_equal(bathyc_recipe_stream_tokens(s, (const int32_t[]){5}, 1, NULL, 0, &error), BATHYC_INVALID); /* no tokenizer */
    bathyc_recipe_stream_destroy(s);
    bathyc_recipe_request_destroy(r);
    bathyc_recipe_tok *none = NULL;
    assert_int_not_equal(bathyc_recipe_tok_open(&none, "/does/not/exist", &error), BATHYC_OK);
    assert_non_null(strstr(error.message, "/does/not/exist"));
    bathyc_recipe_request_destroy(NULL);
    bathyc_recipe_stream_destroy(NULL);
    bathyc_recipe_parser_destroy(NULL);
    bathyc_recipe_scratch_destroy(NULL);
    bathyc_recipe_tok_close(NULL);
    bathyc_recipe_free(NULL);
}

static by_status status_of(int code) { return code == BATHYC_OK ? BY_OK : code == BATHYC_NO_MEMORY ? BY_ENOMEM : BY_EINTERNAL; }

static by_status whole_way(void *arg) {
    (void)arg;
    static const char body[] = "{" MODEL ", " ASK ", \"stop\": [\"q\"], \"logit_bias\": {\"9\": 1}}";
    bathyc_recipe_options o = bathyc_recipe_options_default();
    bathyc_recipe_stream_options so = bathyc_recipe_stream_options_default();
    bathyc_recipe_request *r = NULL;
    bathyc_recipe_stream *s = NULL;
    bathyc_refusal refusal;
    bathyc_recipe_prompt p;
    const int32_t *ids;
    size_t n;
    char *json = NULL;
    const bathyc_logprob lps[2] = {{.logprob = -1}, {.logprob = -2}};
    o.profile = BATHYC_PROFILE_SERVER;
    so.tok = tok;
    int code = bathyc_recipe_request_create(&r, BATHYC_API_CHAT, body, sizeof body - 1, &o, &refusal, &error);
    if (code == BATHYC_OK) code = bathyc_recipe_render(r, 0, &p, &error);
    if (code == BATHYC_OK) code = bathyc_recipe_encode(r, 0, tok, NULL, &ids, &n, &error);
    if (code == BATHYC_OK) code = bathyc_recipe_stream_create(&s, r, &so, &error);
    if (code == BATHYC_OK) code = bathyc_recipe_stream_tokens(s, (const int32_t[]){67, 273}, 2, lps, 2, &error);
    if (code == BATHYC_OK) code = bathyc_recipe_stream_finish(s, BATHYC_REASON_STOP, &error);
    if (code == BATHYC_OK) code = bathyc_recipe_stream_whole(s, &json, &n, &error);
    bathyc_recipe_free(json);
    bathyc_recipe_stream_destroy(s);
    bathyc_recipe_request_destroy(r);
    return status_of(code);
}

static by_status refused_way(void *arg) {
    (void)arg;
    bathyc_recipe_options o = bathyc_recipe_options_default();
    bathyc_recipe_request *r = NULL;
    bathyc_refusal refusal;
    int code = bathyc_recipe_request_create(&r, BATHYC_API_CHAT, "{}", 2, &o, &refusal, &error);
    bathyc_recipe_free(refusal.json);
    return code == BATHYC_INVALID ? BY_OK : status_of(code);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    assert_true(by_alloc_fail_each(whole_way, NULL, 2000) > 20);
    assert_true(by_alloc_fail_each(refused_way, NULL, 2000) > 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_tells_what_it_asks_for),
        cmocka_unit_test(a_refusal_is_the_error_object_of_the_api),
        cmocka_unit_test(names_of_models_are_the_callers),
        cmocka_unit_test(room_for_new_tokens),
        cmocka_unit_test(only_the_renderers_tokens_are_special),
        cmocka_unit_test(completions_have_prompts_of_text_and_of_ids),
        cmocka_unit_test(pictures_are_listed_with_their_places),
        cmocka_unit_test(an_answer_in_events_and_whole),
        cmocka_unit_test(ids_with_log_probabilities_and_an_end),
        cmocka_unit_test(the_parser_alone),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, open_tok, close_tok);
}
