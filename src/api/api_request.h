/* api_request.h - request JSON of the four APIs -> conversation, sampling settings, parser settings; or the API's error.
 *
 *   Chat Completions, Responses, Messages: as deepseek-recipe 0.2.0 converts them (profile BY_API_PARITY), or with the
 *   additions of docs/recipe.md (BY_API_SERVER). Completions (raw prompt, FIM) exist in both profiles.
 *
 * Everything in a by_api_converted lives in the caller's arena or points into the body text, so both must outlive it.
 * One thread per arena; options may be shared. */
#ifndef BY_API_REQUEST_H
#define BY_API_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "json/json.h"
#include "recipe/conversation.h"
#include "recipe/specials.h"

typedef enum by_api_kind { BY_API_CHAT, BY_API_RESPONSES, BY_API_MESSAGES, BY_API_COMPLETIONS } by_api_kind;
typedef enum by_api_profile { BY_API_PARITY, BY_API_SERVER } by_api_profile;

typedef struct by_api_model_name {
    by_str name;
    by_recipe_version version;
} by_api_model_name;

/* How requests are converted. by_api_options_init gives the original's defaults. */
typedef struct by_api_options {
    by_api_profile profile;
    bool default_thinking;             /* when the request says nothing; default true */
    bool reject_missing_reasoning;     /* thinking mode: history without reasoning is an error instead of empty */
    bool reject_responses_web_search;  /* default false: dropped */
    bool reject_messages_web_search;   /* default true */
    bool honour_sampling;              /* server profile: keep temperature and top_p as sent; default false */
    uint32_t thinking_max_tokens;      /* bound of max_tokens, default 393216 */
    uint32_t plain_max_tokens;         /* the same outside thinking mode */
    const by_api_model_name *models;   /* accepted names; NULL = DeepSeek-V4-Pro and DeepSeek-V4.1-Flash */
    uint32_t n_models;
    const by_recipe_specials *specials; /* NULL = default spellings */
} by_api_options;

void by_api_options_init(by_api_options *o);

/* What kind of "no" an error is: the body is not JSON, the JSON has the wrong shape, or the request is refused. */
typedef enum by_api_error_kind { BY_API_BAD_JSON, BY_API_BAD_BODY, BY_API_REFUSED } by_api_error_kind;

typedef struct by_api_error {
    by_api_error_kind kind;
    int http_status;  /* 400; server profile: 404 for an unknown model */
    by_str message;   /* in the arena */
    const char *code; /* "invalid_request_error"; server profile: what OpenAI's API has, "invalid_value" */
    by_str param;     /* server profile: the field that is at fault, "messages[1].role"; in the arena, empty = none */
} by_api_error;

/* {"error":{"message":...,"type":"invalid_request_error","param":...,"code":...}} */
void by_api_error_write(by_buf *out, const by_api_error *e);

/* What constrained decoding would enforce: kind is NULL (nothing), "json", "regex", "tool_call", "tool_call_required";
 * text is compact JSON, the regular expression, the tools as compact JSON, or empty for any JSON value. */
typedef struct by_api_constraint {
    const char *kind;
    by_str text;
} by_api_constraint;

/* What the text of an answer is limited to, in the server profile: kind is NULL (nothing) or "json_schema", "json_object", "regex",
 * "ebnf", "lark", "choice", "structural_tag" (text is the schema, pattern, grammar, JSON list, JSON object), or "tools" (text is
 * a JSON list of {"name", "parameters"}). docs/grammar.md. */
typedef enum by_api_close { BY_API_CLOSE_UNSAID, BY_API_CLOSE_YES, BY_API_CLOSE_NO } by_api_close;
typedef struct by_api_grammar {
    const char *kind;
    const char *field; /* of the request, for messages */
    const char *param; /* the same as errors name it; NULL = field */
    by_str text;
    by_str options; /* JSON object as by_grammar_options_read takes it, or empty */
    bool required, one_call; /* tools: at least one call, the prompt has opened the block; at most one */
    bool forced;             /* tools: at least one call, the prompt has not opened the block */
    by_str without_calls;    /* tools: what an answer without calls is, a format of structural tags; empty = any text */
    by_api_close close; /* max_tokens leaves room to complete the answer */
    const int32_t *trigger; /* begins behind these ids; none: at once, or behind the reasoning */
    uint32_t n_trigger;
    int32_t bound_id; /* -1 = none */
} by_api_grammar;

typedef struct by_api_bias {
    uint32_t token;
    float value;
} by_api_bias;

/* Sampling settings. The fields behind constraint are the server profile's and keep their neutral values in parity. */
typedef struct by_api_inference {
    bool has_max_tokens, has_top_logprobs, has_seed;
    bool default_max_tokens; /* Completions: max_tokens is the API's default, which nobody has asked for */
    bool logprobs;
    uint32_t max_tokens;
    uint32_t top_logprobs; /* 0..20 */
    float temperature, top_p;
    uint64_t seed; /* below 2^63; server profile: negative ones by two's complement */
    by_api_constraint constraint;

    uint32_t n;                                 /* 1..128 */
    float presence_penalty, frequency_penalty;  /* [-2, 2], 0 = off */
    float repetition_penalty;                   /* (0, 2], 1 = off */
    float min_p;                                /* [0, 1], 0 = off */
    int32_t top_k;                              /* >= 1, or -1 = off */
    const by_api_bias *logit_bias;
    uint32_t n_logit_bias;
    uint32_t best_of;                           /* n..128: so many are generated, the n most likely ones are the answer */
    bool ignore_eos;
    uint32_t min_tokens;                        /* no end before so many tokens */
    const int32_t *stop_ids;                    /* end tokens of this request (not yet compared with a vocabulary) */
    uint32_t n_stop_ids;
    bool has_prompt_logprobs;                   /* vLLM's field; Chat and Completions, not in streams */
    uint32_t prompt_logprobs;                   /* alternatives of each token of the prompt, 0..20 */
    bool include_stop;                          /* the stop string that ends an answer is part of it */
    by_api_grammar grammar;
} by_api_inference;

/* Responses: what the response object repeats. The JSON pieces are compact JSON, ready to be spliced in. */
typedef struct by_api_echo {
    bool has_instructions, has_max_output_tokens, has_user;
    bool one_call; /* parallel_tool_calls: false */
    by_str instructions, user;
    uint32_t max_output_tokens, top_logprobs;
    float temperature, top_p;                          /* as requested, default 1.0 */
    by_str reasoning, text, tool_choice, tools;        /* JSON */
    by_str metadata;                                   /* JSON; server profile; empty = {} */
    bool store, background;                            /* set by a server that stores responses; else false */
    by_str previous_response_id, conversation_id;      /* likewise; empty = null */
} by_api_echo;

/* Responses: function name in the prompt -> (namespace, local name). */
typedef struct by_api_namespace {
    by_str mapped, ns, local;
} by_api_namespace;

/* A raw prompt: text, or token ids (not yet compared with a vocabulary). */
typedef struct by_api_prompt {
    by_str text;
    const uint32_t *ids;
    uint32_t n_ids; /* 0: text */
} by_api_prompt;

typedef struct by_api_converted {
    by_api_kind api;
    by_str model; /* as requested */
    by_recipe_version version;
    bool stream, include_usage;
    bool continuous_usage; /* server: stream_options.continuous_usage_stats, the counts so far in every event */
    by_recipe_conversation conversation;
    by_str prompt_scores; /* inference.has_prompt_logprobs: the JSON list; set by a server before the answer is written; empty = none */
    by_parser_opts parsing; /* stops and spellings live in the arena */
    by_api_inference inference;
    by_api_echo echo; /* Responses */
    const by_api_namespace *namespaces;
    uint32_t n_namespaces;

    /* Completions only: the conversation is empty, and there are one or more prompts. */
    const by_api_prompt *prompts;
    uint32_t n_prompts;
    by_str prompt; /* text of the first, which a stream echoes; for the others copy this struct and change it */
    by_str prompt_logprobs; /* of its tokens, elements of a list of by_logprob_write; a server sets it before the stream begins */
    bool has_suffix, echo_prompt; /* a suffix makes it fill-in-the-middle: one prompt, a text */
    by_str suffix;
} by_api_converted;

/* Converts one request body (UTF-8 JSON, at most BY_LIMIT_REQUEST_BYTES, nesting at most BY_LIMIT_REQUEST_DEPTH).
 * BY_OK: *out is filled. BY_EINVAL: the client's fault, *error says what to answer. BY_ENOMEM: err is filled. */
by_status by_api_convert(by_api_converted *out, by_api_error *error, by_arena *arena, by_api_kind api, by_str body,
                         const by_api_options *options, by_err *err);

/* Number of tokens to generate: the requested one, else 8192 outside thinking mode, 131072 with effort max, 65536
 * otherwise; limited to what the context leaves and at least 1. BY_EINVAL when prompt (plus requested) does not fit. */
by_status by_api_resolve_max_tokens(uint32_t *out, by_api_error *error, by_arena *arena, const by_api_converted *c,
                                    const by_api_options *options, uint64_t prompt_tokens, uint64_t context_limit,
                                    by_err *err);

#endif
