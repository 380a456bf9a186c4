/* Unit tests of api/api_stream.h: what the original's rows do not hold (Completions, usage events, several choices, custom
 * tool input, memory). Events of the three chat APIs are compared with the original in golden_conform_answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "api/api_stream.h"
#include "api/custom_input.h"
#include "base/alloc.h"
#include "json/json.h"
#include "support/golden.h"

static by_buf events; /* one per line, "name json" */

static void on_event(void *ctx, const char *name, by_str json) {
    (void)ctx;
    if (name) by_buf_printf(&events, "%s ", name);
    by_buf_push_str(&events, json);
    by_buf_push_byte(&events, '\n');
}
static int64_t now(void) { return 1700000009; }

static by_api_stream *open_stream(const by_api_converted *request, by_api_stream_opts opts) {
    opts.request = request;
    opts.id = BY_STR("r-1");
    opts.created = 1700000000;
    opts.now = now;
    opts.on_event = on_event;
    by_api_stream *s = NULL;
    by_buf_clear(&events);
    assert_int_equal(by_api_stream_create(&s, &opts, NULL), BY_OK);
    return s;
}
static void text(by_api_stream *s, const char *z) { assert_int_equal(by_api_stream_text(s, by_str_z(z), 1, NULL), BY_OK); }
static void finish(by_api_stream *s) { assert_int_equal(by_api_stream_finish(s, BY_REASON_STOP, NULL), BY_OK); }
static void assert_events(const char *want) { assert_string_equal(by_buf_z(&events), want); }
static void assert_whole(by_api_stream *s, const char *want) {
    by_buf b = {0};
    assert_int_equal(by_api_stream_write_whole(s, &b, NULL), BY_OK);
    assert_string_equal(by_buf_z(&b), want);
    by_buf_deinit(&b);
}

static by_api_converted chat_request(bool thinking) {
    by_api_converted r = {.api = BY_API_CHAT, .model = BY_STR("m"), .stream = true};
    r.conversation.thinking = thinking;
    r.parsing = (by_parser_opts){.parse_calls = true, .stage = thinking ? BY_STAGE_REASONING_START : BY_STAGE_NONE};
    return r;
}

#define CHUNK                                                                                                              \
    "{\"id\":\"r-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\","                                   \
    "\"system_fingerprint\":null,\"choices\":["
#define USAGE                                                                                                              \
    "\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":1,\"total_tokens\":1,"                                               \
    "\"prompt_tokens_details\":{\"cached_tokens\":0},\"prompt_cache_hit_tokens\":0,\"prompt_cache_miss_tokens\":0}"

/* ---- usage ---- */

static void usage_in_an_event_of_its_own(void **state) {
    (void)state;
    by_api_converted r = chat_request(false);
    r.include_usage = true;
    by_api_stream *s = open_stream(&r, (by_api_stream_opts){.usage_place = BY_API_USAGE_OWN_EVENT});
    text(s, "a");
    finish(s);
    assert_events(CHUNK "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                        "\"finish_reason\":null}],\"usage\":null}\n"
                  CHUNK "{\"index\":0,\"delta\":{\"content\":\"a\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n"
                  CHUNK "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}\n"
                  CHUNK "]," USAGE "}\n");
    by_api_stream_destroy(s);

    r.include_usage = false;
    s = open_stream(&r, (by_api_stream_opts){.usage_place = BY_API_USAGE_OWN_EVENT});
    text(s, "a");
    finish(s);
    assert_null(strstr(by_buf_z(&events), "usage"));
    by_api_stream_destroy(s);
}

static void usage_in_every_event(void **state) {
    (void)state;
    by_api_converted r = chat_request(false);
    r.include_usage = true;
    by_api_stream *s = open_stream(&r, (by_api_stream_opts){.usage_place = BY_API_USAGE_CONTINUOUS});
    text(s, "a");
    assert_non_null(strstr(by_buf_z(&events), "\"finish_reason\":null}]," USAGE "}\n"));
    by_api_stream_destroy(s);
}

/* ---- several choices ---- */

static void choices_are_joined(void **state) {
    (void)state;
    by_api_converted r = chat_request(false);
    by_api_stream *s[2];
    for (uint32_t i = 0; i < 2; i++) s[i] = open_stream(&r, (by_api_stream_opts){.choice = i, .keep_whole = true});
    text(s[0], "a");
    text(s[1], "b");
    finish(s[1]);
    assert_non_null(strstr(by_buf_z(&events), CHUNK "{\"index\":1,\"delta\":{\"content\":\"b\"}"));
    finish(s[0]);
    by_buf b = {0};
    assert_int_equal(by_api_stream_write_choices(s, 2, &b, NULL), BY_OK);
    assert_string_equal(by_buf_z(&b),
                        "{\"id\":\"r-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":["
                        "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"logprobs\":null,\"finish_reason\":\"stop\"},"
                        "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"b\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                        "\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":2,\"total_tokens\":2,"
                        "\"prompt_tokens_details\":{\"cached_tokens\":0},"
                        "\"prompt_cache_hit_tokens\":0,\"prompt_cache_miss_tokens\":0},\"system_fingerprint\":null}");
    by_buf_deinit(&b);
    by_api_stream_destroy(s[0]);
    by_api_stream_destroy(s[1]);
}

/* ---- Completions ---- */

#define TEXT                                                                                                               \
    "{\"id\":\"r-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\",\"system_fingerprint\":null,"               \
    "\"choices\":["

static void completions_pass_text_on_as_it_is(void **state) {
    (void)state;
    by_str stop = BY_STR("END");
    by_api_converted r = {.api = BY_API_COMPLETIONS, .model = BY_STR("m"), .stream = true};
    r.prompt = BY_STR("Once");
    r.echo_prompt = true;
    r.parsing = (by_parser_opts){.stops = &stop, .n_stops = 1};
    by_api_stream *s = open_stream(&r, (by_api_stream_opts){.keep_whole = true});
    text(s, "\n</think><｜DSML｜");
    text(s, " x END y");
    assert_true(by_api_stream_finished(s));
    assert_events(TEXT "{\"index\":0,\"text\":\"Once\",\"logprobs\":null,\"finish_reason\":null}]}\n"
                  TEXT "{\"index\":0,\"text\":\"\\n</think><｜DSML｜\",\"logprobs\":null,\"finish_reason\":null}]}\n"
                  TEXT "{\"index\":0,\"text\":\" x \",\"logprobs\":null,\"finish_reason\":null}]}\n"
                  TEXT "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                  "\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":2,\"total_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":0},"
                  "\"prompt_cache_hit_tokens\":0,\"prompt_cache_miss_tokens\":0}}\n");
    assert_whole(s, TEXT "{\"index\":0,\"text\":\"Once\\n</think><｜DSML｜ x \",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                    "\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":2,\"total_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":0},"
                    "\"prompt_cache_hit_tokens\":0,\"prompt_cache_miss_tokens\":0}}");
    by_api_stream_destroy(s);
}

static void completions_have_lists_of_log_probabilities(void **state) {
    (void)state;
    by_tok *tok = NULL;
    assert_int_equal(by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, NULL), BY_OK);
    by_api_converted r = {.api = BY_API_COMPLETIONS, .model = BY_STR("m")};
    by_api_stream *s = open_stream(&r, (by_api_stream_opts){.keep_whole = true, .answer = {.tok = tok, .server = true}});
    int32_t ids[] = {by_tok_find_bytes(tok, BY_STR("x")), by_tok_find_bytes(tok, BY_STR("y"))};
    by_top_logprob top[] = {{ids[0], -0.5f}, {ids[1], -1.25f}};
    by_logprob lps[] = {{-0.5f, top, 2}, {-2, top, 1}};
    for (int i = 0; i < 2; i++) assert_int_equal(by_api_stream_tokens(s, ids + i, 1, lps + i, 1, NULL), BY_OK);
    finish(s);
    by_buf b = {0};
    assert_int_equal(by_api_stream_write_whole(s, &b, NULL), BY_OK);
    assert_non_null(strstr(by_buf_z(&b), "\"text\":\"xy\",\"logprobs\":{\"text_offset\":[0,1],\"token_logprobs\":[-0.5,-2.0],"
                                         "\"tokens\":[\"x\",\"y\"],\"top_logprobs\":[{\"x\":-0.5,\"y\":-1.25},{\"x\":-0.5,\"y\":-2.0}]}"));
    assert_non_null(strstr(by_buf_z(&events), "\"text\":\"y\",\"logprobs\":{\"text_offset\":[1],\"token_logprobs\":[-2.0],"));
    by_api_stream_destroy(s);
    r.prompt = BY_STR("ab"); /* an echo in front, with log probabilities of its own */
    r.echo_prompt = true;
    r.prompt_logprobs = BY_STR("{\"token\":\"ab\",\"logprob\":null,\"bytes\":[97,98],\"top_logprobs\":[]}");
    s = open_stream(&r, (by_api_stream_opts){.keep_whole = true, .answer = {.tok = tok, .server = true}});
    assert_int_equal(by_api_stream_tokens(s, ids, 1, lps, 1, NULL), BY_OK);
    finish(s);
    by_buf_clear(&b);
    assert_int_equal(by_api_stream_write_whole(s, &b, NULL), BY_OK);
    assert_non_null(strstr(by_buf_z(&b), "\"text\":\"abx\",\"logprobs\":{\"text_offset\":[0,2],\"token_logprobs\":[null,-0.5],"
                                         "\"tokens\":[\"ab\",\"x\"],\"top_logprobs\":[null,{\"x\":-0.5,\"y\":-1.25}]}"));
    assert_non_null(strstr(by_buf_z(&events), "\"text\":\"ab\",\"logprobs\":{\"text_offset\":[0],\"token_logprobs\":[null],"));
    assert_non_null(strstr(by_buf_z(&events), "\"text\":\"x\",\"logprobs\":{\"text_offset\":[2],\"token_logprobs\":[-0.5],"));
    by_api_stream_destroy(s);
    r.prompt = BY_STR("\xc3\xa9\xe6\x97\xa5"); /* offsets count characters, of which a token may hold a part */
    r.prompt_logprobs = BY_STR("{\"token\":\"\\u00e9\",\"logprob\":null,\"bytes\":[195,169],\"top_logprobs\":[]},"
                               "{\"token\":\"\\\\xe6\",\"logprob\":-1.0,\"bytes\":[230],\"top_logprobs\":[]},"
                               "{\"token\":\"\\\\x97\\\\xa5\",\"logprob\":-1.0,\"bytes\":[151,165],\"top_logprobs\":[]}");
    s = open_stream(&r, (by_api_stream_opts){.keep_whole = true, .answer = {.tok = tok, .server = true}});
    assert_int_equal(by_api_stream_tokens(s, ids, 1, lps, 1, NULL), BY_OK);
    finish(s);
    by_buf_clear(&b);
    assert_int_equal(by_api_stream_write_whole(s, &b, NULL), BY_OK);
    assert_non_null(strstr(by_buf_z(&b), "\"text_offset\":[0,1,2,2],"));
    assert_non_null(strstr(by_buf_z(&events), "\"text\":\"x\",\"logprobs\":{\"text_offset\":[2],"));
    by_buf_deinit(&b);
    by_api_stream_destroy(s);
    by_tok_destroy(tok);
}

/* Bytes that are no characters are shown as some: whole and stream count those of the text, each token where it stands. */
static void offsets_count_what_is_shown(void **state) {
    (void)state;
    static const struct {
        const char *bytes[7], *offsets;
    } rows[] = {
        {{"\xa5", "\xa5", "\xa5", "\xa5"}, "0,1,2,3"},
        {{"\xe6", "\x97", "\xa5", "\x97", "\xe6", "x"}, "0,1,1,1,2,3"},
        {{"\xe6", "\xe6", "x", "\xc3", "\xa9", "y", "\xe6"}, "0,1,2,3,4,4,5"},
        {{"\xf0", "\x9f", "x", "\xff", "y"}, "0,1,1,2,3"},
    };
    by_tok *tok = NULL;
    assert_int_equal(by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, NULL), BY_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        by_api_converted r = {.api = BY_API_COMPLETIONS, .model = BY_STR("m")};
        by_api_stream *s = open_stream(&r, (by_api_stream_opts){.keep_whole = true, .answer = {.tok = tok, .server = true}});
        by_logprob lp = {-0.5f, NULL, 0};
        for (int k = 0; k < 7 && rows[i].bytes[k]; k++) {
            int32_t id = by_tok_find_bytes(tok, by_str_z(rows[i].bytes[k]));
            assert_true(id >= 0);
            assert_int_equal(by_api_stream_tokens(s, &id, 1, &lp, 1, NULL), BY_OK);
        }
        finish(s);
        by_buf b = {0}, want = {0}, streamed = {0};
        assert_int_equal(by_api_stream_write_whole(s, &b, NULL), BY_OK);
        by_buf_printf(&want, "\"text_offset\":[%s],", rows[i].offsets);
        if (!strstr(by_buf_z(&b), by_buf_z(&want))) fail_msg("%s has no %s", by_buf_z(&b), by_buf_z(&want));
        static const char field[] = "\"text_offset\":[";
        for (const char *at = by_buf_z(&events); (at = strstr(at, field)) != NULL;) {
            at += sizeof field - 1;
            by_buf_printf(&streamed, "%s%.*s", streamed.len ? "," : "", (int)strcspn(at, "]"), at);
        }
        assert_string_equal(by_buf_z(&streamed), rows[i].offsets);
        by_buf_deinit(&b);
        by_buf_deinit(&want);
        by_buf_deinit(&streamed);
        by_api_stream_destroy(s);
    }
    by_tok_destroy(tok);
}

/* ---- server-sent events ---- */

static void server_sent_events(void **state) {
    (void)state;
    by_buf b = {0};
    by_api_write_sse(&b, NULL, BY_STR("{}"));
    by_api_write_sse(&b, "ping", BY_STR("{\"type\":\"ping\"}"));
    assert_string_equal(by_buf_z(&b), "data: {}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
    by_buf_deinit(&b);
    assert_string_equal(by_api_done_data(BY_API_CHAT), "[DONE]");
    assert_null(by_api_done_data(BY_API_MESSAGES));
    assert_null(by_api_done_data(BY_API_RESPONSES));
}

/* Every line break in an event would end it: JSON escapes them all. */
static void events_are_single_lines(void **state) {
    (void)state;
    by_api_converted r = chat_request(true);
    r.model = BY_STR("m\n\r\"x");
    for (int api = 0; api < 3; api++) {
        r.api = (by_api_kind)api;
        by_api_stream *s = open_stream(&r, (by_api_stream_opts){.keep_whole = true});
        text(s, "a\nb\r\n</think>\n\nc\nd<｜DSML｜ invoke name=\"f\ng\">\n<｜DSML｜ parameter name=\"k\" string=\"true\">l\nm</｜DSML｜");
        by_buf whole = {0};
        finish(s);
        assert_int_equal(by_api_stream_write_whole(s, &whole, NULL), BY_OK);
        assert_null(strchr(by_buf_z(&whole), '\n'));
        size_t lines = 0, objects = 0;
        for (size_t i = 0; i < events.len; i++) {
            lines += events.ptr[i] == '\n';
            objects += events.ptr[i] == '\n' && events.ptr[i - 1] == '}';
            assert_true(events.ptr[i] != '\r');
        }
        assert_int_equal(lines, objects);
        by_buf_deinit(&whole);
        by_api_stream_destroy(s);
    }
}

/* ---- custom tool input ---- */

static void assert_input(const char *args, const char *want) {
    size_t n = strlen(args);
    for (size_t cut = 0; cut <= n; cut++) {
        by_custom_input c = {0};
        by_buf out = {0};
        by_custom_input_begin(&c);
        by_custom_input_push(&c, by_str_of(args, cut), &out);
        by_custom_input_push(&c, by_str_of(args + cut, n - cut), &out);
        by_custom_input_end(&c, &out);
        assert_string_equal(by_buf_z(&out), want);
        by_buf_deinit(&out);
        by_buf_deinit(&c.pending);
    }
}

static void custom_input_is_decoded_while_it_streams(void **state) {
    (void)state;
    assert_input("{\"input\": \"P\"}", "P");
    assert_input("{\"input\": \"\"}", "");
    assert_input("{\"input\": \"P\", \"x\": \"1\"}", "P");
    assert_input(" {\t\"input\" :\n\"a\\n\\u00e9\\ud83d\\ude00\\\"\\/\\\\b\"}", "a\né😀\"/\\b");
    assert_input("{}", "{}");
    assert_input("{\"x\": \"1\", \"input\": \"P\"}", "{\"x\": \"1\", \"input\": \"P\"}");
    assert_input("{\"input\": 5}", "{\"input\": 5}");
    assert_input("{\"inp", "{\"inp");
    assert_input("{\"input\": \"ab\\u12", "ab\\u12");
    /* What is no escape is shown, and the character that shows it with it. */
    assert_input("{\"input\": \"\\x\"t", "\\x");
    assert_input("{\"input\": \"\\u0\"tail", "\\u0\"tail");
    assert_input("{\"input\": \"\\ud83d\\u0041\\udc00\"", "\\ud83d\\u0041\\udc00");
    assert_input("{\"input\": \"\\ud83d\\n\\ud83d\\ude00\"", "\\ud83d\\n😀");
    assert_input("{\"input\": \"\\ud83dx\"", "\\ud83dx");
    assert_input("{\"input\": \"\\é\"x", "\\é");
}

/* ---- memory ---- */

static void ignore(void *ctx, const char *name, by_str json) { (void)ctx, (void)name, (void)json; }

static const char answer_text[] = "think\n\nmore</think>\n\nsome text\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"apply_patch\">\n"
    "<｜DSML｜ parameter name=\"input\" string=\"true\">x\ny</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"tool_search\">\n"
    "<｜DSML｜ parameter name=\"q\" string=\"false\">[1, {\"a\": 2}]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

static by_status run_all(const by_api_converted *r, by_buf *whole) {
    by_api_stream_opts opts = {.request = r, .id = BY_STR("r-1"), .now = now, .on_event = ignore, .keep_whole = true};
    by_api_stream *s = NULL;
    by_str fp = BY_STR("fp");
    by_status status = by_api_stream_create(&s, &opts, NULL);
    if (status == BY_OK) status = by_api_stream_ready(s, 3, 1, &fp, NULL);
    for (size_t i = 0; status == BY_OK && i < sizeof answer_text - 1; i += 7) {
        size_t n = sizeof answer_text - 1 - i;
        status = by_api_stream_text(s, by_str_of(answer_text + i, n < 7 ? n : 7), 1, NULL);
    }
    if (status == BY_OK) status = by_api_stream_finish(s, BY_REASON_STOP, NULL);
    if (status == BY_OK) status = by_api_stream_write_whole(s, whole, NULL);
    by_api_stream_destroy(s);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    for (int api = 0; api < 4; api++) {
        by_api_converted r = chat_request(true);
        r.api = (by_api_kind)api;
        r.echo.tools = BY_STR("[{\"type\":\"custom\",\"name\":\"apply_patch\"},{\"type\":\"tool_search\",\"execution\":\"client\"}]");
        by_buf want = {0};
        assert_int_equal(run_all(&r, &want), BY_OK);
        for (int n = 1;; n++) {
            by_buf got = {0};
            int64_t before = by_alloc_bytes_total();
            by_alloc_fail_nth(n);
            by_status status = run_all(&r, &got);
            by_alloc_fail_nth(0);
            if (status == BY_OK) {
                if (!by_str_eq(by_buf_str(&got), by_buf_str(&want))) fail_msg("api %d, allocation %d: %s", api, n, by_buf_z(&got));
                by_buf_deinit(&got);
                break;
            }
            assert_int_equal(status, BY_ENOMEM);
            by_buf_deinit(&got);
            assert_int_equal(by_alloc_bytes_total(), before);
        }
        by_buf_deinit(&want);
    }
}

static void streamed_deltas_allocate_nothing(void **state) {
    (void)state;
    by_api_converted r = chat_request(true);
    for (int api = 0; api < 3; api += 2) { /* Chat Completions, Messages */
        r.api = api ? BY_API_MESSAGES : BY_API_CHAT;
        by_api_stream_opts opts = {.request = &r, .id = BY_STR("r-1"), .now = now, .on_event = ignore};
        by_api_stream *s = NULL;
        assert_int_equal(by_api_stream_create(&s, &opts, NULL), BY_OK);
        uint64_t calls = 0;
        for (int i = 0; i < 3000; i++) {
            if (i == 100) calls = by_alloc_calls();
            text(s, i % 3 ? "some words\n" : " and \"more\" </th");
        }
        assert_int_equal(by_alloc_calls() - calls, 0);
        by_api_stream_destroy(s);
    }
}

static int teardown(void **state) {
    (void)state;
    by_buf_deinit(&events);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_in_an_event_of_its_own),
        cmocka_unit_test(usage_in_every_event),
        cmocka_unit_test(choices_are_joined),
        cmocka_unit_test(completions_pass_text_on_as_it_is),
        cmocka_unit_test(completions_have_lists_of_log_probabilities),
        cmocka_unit_test(offsets_count_what_is_shown),
        cmocka_unit_test(server_sent_events),
        cmocka_unit_test(events_are_single_lines),
        cmocka_unit_test(custom_input_is_decoded_while_it_streams),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(streamed_deltas_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
