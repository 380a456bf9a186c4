/* conversation.h - what a prompt is made of. What the parser of the answer must know is a by_parser_opts (parser.h).
 *
 * A conversation is plain data: it borrows every string, array and JSON value (from the request's arena, or wherever the
 * caller keeps them) and owns nothing. Read-only once built, so any number of threads may render it. */
#ifndef BY_RECIPE_CONVERSATION_H
#define BY_RECIPE_CONVERSATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "json/json.h"
#include "recipe/parser.h"

typedef enum by_recipe_version { BY_RECIPE_V41, BY_RECIPE_V4 } by_recipe_version;

typedef enum by_recipe_role { BY_ROLE_SYSTEM, BY_ROLE_USER, BY_ROLE_ASSISTANT, BY_ROLE_TOOL, BY_ROLE_LATEST_REMINDER } by_recipe_role;

typedef enum by_recipe_image_kind { BY_IMAGE_URL, BY_IMAGE_DATA_URL } by_recipe_image_kind;
typedef enum by_recipe_detail { BY_DETAIL_LOW, BY_DETAIL_HIGH, BY_DETAIL_ORIGINAL, BY_DETAIL_AUTO } by_recipe_detail;

typedef struct by_recipe_image {
    by_recipe_image_kind kind;
    by_recipe_detail detail;
    by_str url;  /* http(s) or data URL */
    by_str path; /* where the request holds it, as error messages show it; may be empty */
} by_recipe_image;

/* One piece of content: text, or the placeholder of an image (text: its spelling, empty = that of the special tokens). */
typedef struct by_recipe_piece {
    by_str text;
    const by_recipe_image *image;
    bool unplaced; /* an image that the content has no placeholder for: it is listed, nothing is written */
} by_recipe_piece;

/* Content is a row of pieces, written one behind the other without anything between them. */
typedef struct by_recipe_text {
    const by_recipe_piece *pieces;
    uint32_t n;
} by_recipe_text;

typedef struct by_recipe_call {
    by_str id, name;
    by_str arguments; /* as the model or the client wrote them; need not be JSON */
} by_recipe_call;

typedef struct by_recipe_tool {
    by_str name;
    by_str description;         /* empty when there is none */
    const by_json *parameters;  /* JSON schema, or NULL: written as null */
    const by_json *given;       /* parameters as they were sent, where they were rewritten; not shown */
    const bool *strict;         /* NULL = not given */
    bool has_description;
    bool defer_loading;         /* hidden from the first list of tools */
} by_recipe_tool;

typedef struct by_recipe_message {
    by_recipe_role role;
    bool prefix;                 /* assistant, last message: to be continued */
    bool has_reasoning;          /* assistant: reasoning was given, maybe empty */
    bool has_call_id;            /* tool */
    by_recipe_text content;
    by_str reasoning;
    by_str call_id;
    const by_recipe_call *calls; /* assistant */
    uint32_t n_calls;
    const by_recipe_tool *tools; /* system: tools that became available here */
    uint32_t n_tools;
} by_recipe_message;

typedef enum by_recipe_choice { BY_CHOICE_AUTO, BY_CHOICE_NONE, BY_CHOICE_REQUIRED } by_recipe_choice;
typedef enum by_recipe_format { BY_FORMAT_TEXT, BY_FORMAT_JSON_OBJECT, BY_FORMAT_JSON_SCHEMA, BY_FORMAT_REGEX } by_recipe_format;

/* Reasoning effort: unset, one of the words, or (server profile) a number: BY_EFFORT_NUMBER and effort_number 1..100. */
typedef enum by_recipe_effort {
    BY_EFFORT_UNSET,
    BY_EFFORT_LOW,
    BY_EFFORT_HIGH,
    BY_EFFORT_XHIGH,
    BY_EFFORT_MAX,
    BY_EFFORT_NUMBER
} by_recipe_effort;

typedef struct by_recipe_conversation {
    const by_recipe_message *messages;
    uint32_t n_messages;
    const by_recipe_tool *tools;
    uint32_t n_tools;
    bool thinking;
    by_recipe_choice choice;
    by_recipe_effort effort;
    int32_t effort_number;
    by_recipe_format format;
    const by_json *schema; /* BY_FORMAT_JSON_SCHEMA */
    by_str regex;          /* BY_FORMAT_REGEX */
} by_recipe_conversation;

/* Words as the vectors and the APIs spell them ("reasoning_start", "json_object"...); NULL for UNSET and NONE stages. */
const char *by_recipe_role_name(by_recipe_role v);
const char *by_recipe_detail_name(by_recipe_detail v);
const char *by_recipe_choice_name(by_recipe_choice v);
const char *by_recipe_format_name(by_recipe_format v);
const char *by_recipe_effort_name(by_recipe_effort v); /* "low", ..., "number" */
const char *by_recipe_stage_name(by_stage v);
const char *by_recipe_version_name(by_recipe_version v); /* "v4.1-flash", "v4-pro" */

/* The stage of such a word; false when unknown. */
bool by_recipe_stage_by_name(by_str name, by_stage *out);

/* No text and no image that shows in it. */
bool by_recipe_text_is_empty(by_recipe_text t);

/* Content as one text in which the first n occurrences of spelling (not empty) are the placeholders of n images; images
 * beyond the occurrences are listed unplaced, later occurrences stay text. For messages that are built directly; requests
 * know their placeholders. The pieces live in arena. Errors: BY_ENOMEM. */
by_status by_recipe_text_with_images(by_recipe_text *out, by_arena *arena, by_str content, const by_recipe_image *images,
                                     uint32_t n, by_str spelling, by_err *err);

#endif
