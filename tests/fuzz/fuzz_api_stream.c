/* Fuzz entry of api/api_stream.h: bytes choose the API, the options, and a row of text and token chunks. Every event and the
 * whole object must be JSON on one line, and joined events must hold the whole's content. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_stream.h"
#include "base/utf8.h"
#include "json/json.h"
#include "support/golden.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    by_arena arena;
    by_buf content; /* Chat Completions: of the events */
    bool chat;
} checker;

static by_json parse(checker *c, by_str json) {
    by_json v;
    by_arena_reset(&c->arena);
    if (!by_utf8_valid(json, NULL) || memchr(json.ptr, '\n', json.len)) abort();
    if (by_json_parse(&v, &c->arena, json, NULL, NULL) != BY_OK || v.type != BY_JSON_OBJECT) abort();
    return v;
}

static void on_event(void *ctx, const char *name, by_str json) {
    checker *c = ctx;
    (void)name;
    by_json v = parse(c, json);
    if (!c->chat) return;
    const by_json *delta = by_json_get(by_json_at(by_json_get(&v, "choices"), 0), "delta");
    const by_json *text = by_json_get(delta, "content");
    if (by_json_is(text, BY_JSON_STRING)) by_buf_push_str(&c->content, text->v.s);
}

static int64_t now(void) { return 7; }

/* One chunk from the bytes at *at: its kind, its length, its bytes. */
static by_status feed(by_api_stream *s, const uint8_t *data, size_t size, size_t *at) {
    uint8_t kind = data[*at], n = (*at + 1 < size) ? data[*at + 1] % 24 : 0;
    *at += 2;
    if (n > size - (*at < size ? *at : size)) n = (uint8_t)(size - (*at < size ? *at : size));
    const uint8_t *from = data + (*at < size ? *at : size);
    *at += n;
    if (kind < 110) return by_api_stream_text(s, by_str_of((const char *)from, n), 1, NULL);
    if (kind == 110) return by_api_stream_ready(s, 5, 2, NULL, NULL);
    if (kind == 111) return by_api_stream_end_input(s, NULL);
    int32_t ids[24];
    by_logprob lps[24];
    by_top_logprob top[1] = {{n, -0.25f}};
    for (uint8_t i = 0; i < n; i++) {
        /* The ids of markup and of single bytes are near; the rest of the vocabulary is a product away. */
        ids[i] = from[i] < 200 ? from[i] : 4800 + (from[i] - 200) * (from[i] & 1 ? 1 : 7) + 95;
        lps[i] = (by_logprob){-(float)from[i] / 7, top, from[i] % 2};
    }
    bool with = kind & 1;
    return by_api_stream_tokens(s, ids, n, with ? lps : NULL, with ? n : 0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static by_tok *tok;
    if (!tok && by_tok_open(&tok, by_source_path("models/tiny/tokenizer.json"), NULL, NULL) != BY_OK) abort();
    if (size < 3 || size > 2048) return 0;
    static const by_str stops[] = {{"STOP", 4}, {"\n", 1}};
    by_api_converted r = {.api = (by_api_kind)(data[0] & 3), .model = BY_STR("m"), .stream = data[0] & 4};
    r.include_usage = data[0] & 8;
    r.conversation.thinking = data[0] & 16;
    r.echo.tools = BY_STR("[{\"type\":\"custom\",\"name\":\"p\"},{\"type\":\"tool_search\",\"execution\":\"client\"}]");
    r.parsing = (by_parser_opts){.parse_calls = data[1] & 1, .starts_in_calls = data[1] & 2, .json_output = data[1] & 4,
                                 .eager = data[1] & 8, .stage = (by_stage)(data[1] >> 4 & 3), .stops = stops,
                                 .n_stops = data[1] >> 6 & 1};
    checker c = {.chat = r.api == BY_API_CHAT};
    by_arena_init(&c.arena, BY_MEM_JSON);
    by_api_stream_opts opts = {.request = &r, .id = BY_STR("i"), .now = now, .on_event = on_event, .ctx = &c, .keep_whole = true,
                               .answer = {.tok = tok, .server = data[2] & 1, .each_token = data[2] & 2},
                               .usage_place = (by_api_usage_place)(data[2] >> 2 & 1)};
    by_api_stream *s = NULL;
    if (by_api_stream_create(&s, &opts, NULL) != BY_OK) abort();
    by_status status = BY_OK;
    for (size_t at = 3; at < size && status == BY_OK;) status = feed(s, data, size, &at);
    if (status == BY_OK && !by_api_stream_finished(s)) status = by_api_stream_finish(s, BY_REASON_STOP, NULL);
    by_buf whole = {0};
    if (by_api_stream_write_whole(s, &whole, NULL) != BY_OK) abort();
    by_json v = parse(&c, by_buf_str(&whole));
    const by_json *content = by_json_get(by_json_get(by_json_at(by_json_get(&v, "choices"), 0), "message"), "content");
    if (c.chat && by_json_is(content, BY_JSON_STRING) && !by_str_eq(content->v.s, by_buf_str(&c.content))) abort();
    by_buf_deinit(&whole);
    by_buf_deinit(&c.content);
    by_arena_deinit(&c.arena);
    by_api_stream_destroy(s);
    return 0;
}
