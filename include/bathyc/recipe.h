/* bathyc/recipe.h - the recipe library: API requests to prompts and token ids, model output to answers. No engine, no HTTP.
 *
 *   bathyc_recipe_options options = bathyc_recipe_options_default();
 *   bathyc_recipe_request_create(&r, BATHYC_API_CHAT, body, body_bytes, &options, &refusal, &error);
 *   bathyc_recipe_encode(r, 0, tok, NULL, &ids, &n_ids, &error);             the prompt's token ids, or
 *   bathyc_recipe_render(r, 0, &prompt, &error);                             its text
 *
 *   bathyc_recipe_stream_create(&s, r, &stream_options, &error);             the answer, as the API shows it
 *   bathyc_recipe_stream_ready(s, n_ids, 0, &error);
 *   bathyc_recipe_stream_tokens(s, &id, 1, NULL, 0, &error);                 -> on_event(...), as often as there are tokens
 *   bathyc_recipe_stream_finish(s, BATHYC_REASON_STOP, &error);
 *
 * Requests of Chat Completions, Responses and Messages are converted exactly as deepseek-recipe 0.2.0 converts them
 * (BATHYC_PROFILE_PARITY, the default), or with the additions that docs/recipe.md lists (BATHYC_PROFILE_SERVER). Raw
 * completions, with fill-in-the-middle, are offered in both.
 *
 * Ownership: _create and _open functions give an object that its _destroy or _close function frees; NULL is allowed there.
 * Texts and arrays that come out belong to the object that gave them and live until the next call that says so, at the latest
 * until the object's end; what goes in is copied or read during the call, if nothing else is said.
 * Errors: every int result is BATHYC_OK or a code of bathyc/error.h; `error` may be NULL. Out-parameters are set only on success.
 * Threads: a tokenizer may be used by any number of threads at once, every other object by one at a time. There is no global
 * state. Structs are filled by their _default function first, so that later fields get their defaults. */
#ifndef BY_BATHYC_RECIPE_H
#define BY_BATHYC_RECIPE_H

#include <stddef.h>
#include <stdint.h>

#include "bathyc/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* UTF-8 of `bytes` bytes, NUL allowed inside and not counted behind. ptr may be NULL when bytes is 0. */
typedef struct bathyc_text {
    const char *ptr;
    size_t bytes;
} bathyc_text;

/* Frees what a function of this library says to free with it. NULL is allowed. */
void bathyc_recipe_free(void *p);

/* ---- tokenizers ---- */

typedef struct bathyc_recipe_tok bathyc_recipe_tok;
typedef struct bathyc_recipe_scratch bathyc_recipe_scratch;

/* Reads a tokenizer.json. Where the file has no `<System>` token (V4's file) it is put where V4.1 has it. About 0.1 s for the
 * published file. */
int bathyc_recipe_tok_open(bathyc_recipe_tok **out, const char *path, bathyc_error *error);
void bathyc_recipe_tok_close(bathyc_recipe_tok *tok);

/* Working memory and a cache for encoding with one tokenizer, which must outlive it: keep one per thread. */
int bathyc_recipe_scratch_create(bathyc_recipe_scratch **out, const bathyc_recipe_tok *tok, bathyc_error *error);
void bathyc_recipe_scratch_destroy(bathyc_recipe_scratch *scratch);

/* ---- requests ---- */

typedef struct bathyc_recipe_request bathyc_recipe_request;

typedef enum bathyc_api { BATHYC_API_CHAT, BATHYC_API_RESPONSES, BATHYC_API_MESSAGES, BATHYC_API_COMPLETIONS } bathyc_api;
typedef enum bathyc_profile { BATHYC_PROFILE_PARITY, BATHYC_PROFILE_SERVER } bathyc_profile;
typedef enum bathyc_model_version { BATHYC_V41_FLASH, BATHYC_V4_PRO } bathyc_model_version;

typedef struct bathyc_recipe_model {
    const char *name; /* as requests call it */
    bathyc_model_version version;
} bathyc_recipe_model;

typedef struct bathyc_recipe_options {
    bathyc_profile profile;
    int default_thinking;            /* not 0: think when the request says nothing */
    int reject_missing_reasoning;    /* not 0: thinking mode refuses history without reasoning */
    int reject_responses_web_search; /* not 0: refused instead of dropped; the same for Messages */
    int reject_messages_web_search;
    int honour_sampling;             /* server profile: temperature and top_p as sent, in thinking mode too */
    uint32_t thinking_max_tokens;    /* bound of max_tokens in thinking mode, and outside it */
    uint32_t plain_max_tokens;
    const bathyc_recipe_model *models; /* [n_models] accepted names; NULL = DeepSeek-V4.1-Flash and DeepSeek-V4-Pro */
    size_t n_models;
} bathyc_recipe_options;

/* The original's defaults: parity, thinking, 393216 tokens. */
bathyc_recipe_options bathyc_recipe_options_default(void);

/* Why a request is refused. */
typedef struct bathyc_refusal {
    int http_status;  /* 400 */
    int bad_json;     /* not 0: the body is not JSON */
    int bad_body;     /* not 0: it is JSON of another shape than a request */
    char *json;       /* the API's error object, ends in NUL; released with bathyc_recipe_free */
    size_t json_bytes;
} bathyc_refusal;

/* Reads a request body: UTF-8 JSON of at most 32 MiB, nested at most 127 deep, with at most 100,000 messages. A request that the
 * API would refuse gives BATHYC_INVALID and, if refusal is not NULL, fills *refusal; in all other cases *refusal is zeroed. */
int bathyc_recipe_request_create(bathyc_recipe_request **out, bathyc_api api, const char *body, size_t body_bytes,
                                 const bathyc_recipe_options *options, bathyc_refusal *refusal, bathyc_error *error);
void bathyc_recipe_request_destroy(bathyc_recipe_request *r);

typedef struct bathyc_bias {
    uint32_t token;
    float value;
} bathyc_bias;

/* What a request asks for, its prompt apart. Lives as long as the request. */
typedef struct bathyc_recipe_info {
    bathyc_text model;          /* as requested */
    bathyc_model_version version;
    int stream, include_usage;
    int thinking;
    const char *effort;         /* "low", "high", "xhigh", "max", "number", or NULL */
    int32_t effort_number;      /* 1..100 with "number" */
    const char *tool_choice;    /* "auto", "none", "required" */
    const char *response_format; /* "text", "json_object", "json_schema", "regex" */
    const char *constraint;     /* what the answer should be held to: NULL, "json", "regex", "tool_call", "tool_call_required" */
    bathyc_text constraint_text; /* schema as compact JSON, regular expression, tools as compact JSON, or empty */
    const bathyc_text *stops;   /* [n_stops] */
    size_t n_stops;
    size_t n_prompts;           /* 1, Completions: 1 or more */

    int has_max_tokens, has_seed, logprobs;
    uint32_t max_tokens, top_logprobs;
    uint64_t seed;
    float temperature, top_p;

    uint32_t n, best_of;        /* from here on neutral in the parity profile */
    float presence_penalty, frequency_penalty, repetition_penalty;
    float min_p;
    int32_t top_k;              /* -1 = off */
    const bathyc_bias *logit_bias; /* [n_logit_bias] */
    size_t n_logit_bias;
    int ignore_eos;
    uint32_t min_tokens;
    const int32_t *stop_token_ids; /* [n_stop_token_ids] */
    size_t n_stop_token_ids;
} bathyc_recipe_info;

const bathyc_recipe_info *bathyc_recipe_request_info(const bathyc_recipe_request *r);

/* How many tokens may be generated behind a prompt of n_prompt in a context of n_context: as asked for, or the default of the
 * mode, within what is left. BATHYC_INVALID, with *refusal as above, when prompt and request do not fit. */
int bathyc_recipe_max_tokens(bathyc_recipe_request *r, uint64_t n_prompt, uint64_t n_context, uint32_t *out,
                             bathyc_refusal *refusal, bathyc_error *error);

/* ---- prompts ---- */

typedef struct bathyc_range {
    size_t begin, end; /* bytes [begin, end) */
} bathyc_range;

typedef struct bathyc_image {
    int is_data_url;     /* else a link */
    const char *detail;  /* "low", "high", "original", "auto" */
    bathyc_text url;
} bathyc_image;

typedef struct bathyc_recipe_prompt {
    bathyc_text text;
    const bathyc_range *specials; /* [n_specials] ranges of text that are one special token each, ascending */
    size_t n_specials;
    const bathyc_image *images;   /* [n_images] in the order of their placeholders */
    size_t n_images;
    const uint32_t *ids;          /* [n_ids] Completions with a prompt of ids: no text, the ids as they were sent */
    size_t n_ids;
} bathyc_recipe_prompt;

/* Writes prompt i, i < info.n_prompts. *out lives until the next render or encode of this request. */
int bathyc_recipe_render(bathyc_recipe_request *r, size_t i, bathyc_recipe_prompt *out, bathyc_error *error);

/* Token ids of prompt i: special tokens stand only where the renderer put them, whatever users have typed. scratch is for
 * tok, or NULL (slower). *ids [*n_ids] lives until the next encode of this request. */
int bathyc_recipe_encode(bathyc_recipe_request *r, size_t i, const bathyc_recipe_tok *tok, bathyc_recipe_scratch *scratch,
                         const int32_t **ids, size_t *n_ids, bathyc_error *error);

/* Tokens that a picture of width x height pixels takes in the prompt. */
int bathyc_recipe_image_tokens(uint32_t width, uint32_t height, uint32_t *out, bathyc_error *error);

/* ---- answers ---- */

typedef struct bathyc_recipe_stream bathyc_recipe_stream;

/* One event: name is the event name of the API, NULL where it has none; json is one line, ends in NUL and lives during the
 * call. The function must not call back into the stream. */
typedef void bathyc_event_fn(void *ctx, const char *name, const char *json, size_t json_bytes);

typedef enum bathyc_usage_place {
    BATHYC_USAGE_LAST,      /* in the event with the finish reason, always (the original) */
    BATHYC_USAGE_OWN_EVENT, /* if the request includes usage: in an event of its own */
    BATHYC_USAGE_CONTINUOUS /* and the counts so far in every event */
} bathyc_usage_place;

typedef struct bathyc_recipe_stream_options {
    const char *id;               /* of the response; copied */
    int64_t created;              /* Unix time in seconds */
    const bathyc_recipe_tok *tok; /* NULL: text only; else it outlives the stream */
    bathyc_recipe_scratch *scratch; /* for tok, may be NULL; used by the stream's thread until its end */
    uint64_t call_id_seed;        /* ids of tool calls are a function of it: draw it at random */
    bathyc_event_fn *on_event;    /* NULL: only the whole object is wanted */
    void *ctx;
    int keep_whole;               /* not 0: bathyc_recipe_stream_whole will be called */
    bathyc_usage_place usage_place;
    uint32_t choice;              /* index, for requests with n > 1 */
    size_t prompt;                /* index, for Completions with several prompts */
    const int32_t *end_ids;       /* server profile: [n_end_ids] what follows one of these ids is neither shown nor counted;
                                   * copied */
    size_t n_end_ids;
} bathyc_recipe_stream_options;

/* Defaults: id "response", time 0, text only, seed 0, no events, the whole object kept. */
bathyc_recipe_stream_options bathyc_recipe_stream_options_default(void);

/* An answer to r, which must outlive it, in r's profile. */
int bathyc_recipe_stream_create(bathyc_recipe_stream **out, const bathyc_recipe_request *r,
                                const bathyc_recipe_stream_options *options, bathyc_error *error);
void bathyc_recipe_stream_destroy(bathyc_recipe_stream *s);

typedef struct bathyc_alternative_logprob {
    int32_t token;
    float logprob;
} bathyc_alternative_logprob;

typedef struct bathyc_logprob {
    float logprob;
    const bathyc_alternative_logprob *top; /* [n_top], at most 20 */
    size_t n_top;
} bathyc_logprob;

typedef enum bathyc_reason { BATHYC_REASON_STOP, BATHYC_REASON_LENGTH, BATHYC_REASON_FILTER } bathyc_reason;

/* Counts of the prompt; first of all, and once. */
int bathyc_recipe_stream_ready(bathyc_recipe_stream *s, uint64_t prompt_tokens, uint64_t cached_tokens, bathyc_error *error);

/* What the model has said: bytes that stand for n_tokens tokens (characters may be cut anywhere), or ids. logprobs [n_logprobs]
 * is NULL and 0, or has one entry per id. BATHYC_INVALID after the end. */
int bathyc_recipe_stream_text(bathyc_recipe_stream *s, const char *text, size_t bytes, uint64_t n_tokens, bathyc_error *error);
int bathyc_recipe_stream_tokens(bathyc_recipe_stream *s, const int32_t *ids, size_t n, const bathyc_logprob *logprobs,
                                size_t n_logprobs, bathyc_error *error);

/* Why it stopped; what still waited comes out. */
int bathyc_recipe_stream_finish(bathyc_recipe_stream *s, bathyc_reason reason, bathyc_error *error);

/* Not 0 after the end: finish, or a stop string. */
int bathyc_recipe_stream_finished(const bathyc_recipe_stream *s);

/* The whole object of what has come so far; *json ends in NUL and is released with bathyc_recipe_free. */
int bathyc_recipe_stream_whole(bathyc_recipe_stream *s, char **json, size_t *json_bytes, bathyc_error *error);

typedef struct bathyc_recipe_usage {
    uint64_t prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens;
} bathyc_recipe_usage;
bathyc_recipe_usage bathyc_recipe_stream_usage(const bathyc_recipe_stream *s);

/* Data of the last server-sent event ("[DONE]"), or NULL where the API has none. */
const char *bathyc_recipe_done_data(bathyc_api api);

/* ---- the parser alone ---- */

typedef struct bathyc_recipe_parser bathyc_recipe_parser;

typedef enum bathyc_delta_kind {
    BATHYC_DELTA_REASONING,
    BATHYC_DELTA_CONTENT,
    BATHYC_DELTA_CALL,     /* a tool call begins: text is the function's name */
    BATHYC_DELTA_ARGUMENTS /* a piece of the JSON text of its arguments */
} bathyc_delta_kind;

/* call: index of the tool call from 0. text is valid UTF-8 and lives during the call. A delta is never taken back, and deltas
 * joined do not depend on how the text was cut. */
typedef void bathyc_delta_fn(void *ctx, bathyc_delta_kind kind, uint32_t call, const char *text, size_t bytes);

typedef enum bathyc_stage {
    BATHYC_STAGE_NONE,                   /* the prompt ends outside thinking */
    BATHYC_STAGE_REASONING_START,        /* right behind <think> */
    BATHYC_STAGE_REASONING_CONTINUATION, /* inside reasoning that the prompt began */
    BATHYC_STAGE_CONTENT_CONTINUATION    /* inside content that the prompt began */
} bathyc_stage;

typedef struct bathyc_recipe_parser_options {
    bathyc_stage stage;
    int parse_calls;          /* not 0: tool call markup is read */
    int eager;                /* not 0: only what may become markup waits (the original keeps whole pieces) */
    const bathyc_text *stops; /* [n_stops] stop strings; copied; they act on content */
    size_t n_stops;
} bathyc_recipe_parser_options;

/* Defaults: right behind <think>, calls read, eager, no stop strings. */
bathyc_recipe_parser_options bathyc_recipe_parser_options_default(void);

int bathyc_recipe_parser_create(bathyc_recipe_parser **out, const bathyc_recipe_parser_options *options, bathyc_delta_fn *on_delta,
                                void *ctx, bathyc_error *error);
void bathyc_recipe_parser_destroy(bathyc_recipe_parser *p);
/* Feeds bytes, cut anywhere; what is not UTF-8 becomes U+FFFD. Ignored after the end. */
int bathyc_recipe_parser_push(bathyc_recipe_parser *p, const char *text, size_t bytes, bathyc_error *error);
/* The end: what waited comes out. */
int bathyc_recipe_parser_finish(bathyc_recipe_parser *p, bathyc_error *error);
/* Index of the stop string that has ended the text, -1 when none has. */
int64_t bathyc_recipe_parser_stop_index(const bathyc_recipe_parser *p);

#ifdef __cplusplus
}
#endif
#endif
