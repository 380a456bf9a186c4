/* convert.h - what the conversions of the request formats share: the running conversion, its errors, and the rules that
 * are the same in all of them. Internal to src/api. */
#ifndef BY_API_CONVERT_H
#define BY_API_CONVERT_H

#include <string.h>

#include "api/api_request.h"
#include "api/shape.h"

/* The field that is being looked at, for errors: head, [i], mid, [k], tail; an index below 0 and NULL are left out. */
typedef struct by_place {
    const char *head;
    int64_t i;
    const char *mid;
    int64_t k;
    const char *tail;
} by_place;

typedef struct by_convert {
    by_arena *arena;
    const by_api_options *opt;
    by_api_converted *out;
    by_api_error *error;
    by_err *err;
    bool server; /* profile */
    by_place at; /* what a refusal is about; head NULL: nothing in particular. Whoever may refuse sets it first */
    bool honour; /* temperature and top_p stay as they were sent */
    bool strict_format, one_call; /* strict mode of a json_schema format; parallel calls are not wanted */
    bool force_call; /* server profile: a tool must be called, without the prompt saying so */
    /* messages so far; moved into out->conversation at the end */
    by_recipe_message *messages;
    uint32_t n_messages, cap_messages;
    /* tools of the request, their parameters as they were sent until the choice is applied */
    by_recipe_tool *tools;
    uint32_t n_tools;
    const by_place *tool_places; /* [n_tools]: where they stand in the request; NULL = one after the other in "tools" */
} by_convert;

/* ---- errors ---- */

static inline void by_at(by_convert *cv, const char *field) { cv->at = (by_place){field, -1, NULL, -1, NULL}; }
static inline void by_at_item(by_convert *cv, const char *list, uint32_t i, const char *member) {
    cv->at = (by_place){list, i, member, -1, NULL};
}

/* Entry i of a list at a place; of its member, where the place has a list already. A third list is not told. */
static inline by_place by_place_in(by_place p, const char *member, uint32_t i) {
    if (p.i < 0) return p.i = i, p;
    if (p.k >= 0) return p;
    if (member) p.mid = member;
    return p.k = i, p;
}

/* Refuses the request with the concatenation of n texts, for the field at cv->at; the code is "invalid_value" when there is one.
 * Returns BY_EINVAL, or BY_ENOMEM. */
by_status by_refuse_parts(by_convert *cv, const by_str *parts, uint32_t n);
#define BY_REFUSE(cv, ...)                                                                                             \
    by_refuse_parts((cv), (const by_str[]){__VA_ARGS__}, BY_COUNT(((const by_str[]){__VA_ARGS__})))
/* The same with a code of OpenAI's API, which the server profile has. */
#define BY_REFUSE_CODE(cv, code_, ...) by_recode((cv), (code_), BY_REFUSE(cv, __VA_ARGS__))
static inline by_status by_recode(by_convert *cv, const char *code, by_status status) {
    if (status == BY_EINVAL && cv->server) cv->error->code = code;
    return status;
}
/* A number as text in the arena ("" when memory is out). */
by_str by_number_text(by_convert *cv, uint64_t n);
by_status by_no_memory(by_convert *cv);

/* ---- building ---- */

/* Arrays and texts in the arena; NULL when memory is out. */
void *by_make(by_convert *cv, size_t n, size_t item);
#define BY_MAKE(cv, type, n) ((type *)by_make((cv), (n), sizeof(type)))

/* Appends an empty message; NULL when memory is out or there are too many. */
by_status by_add_message(by_convert *cv, by_recipe_role role, by_recipe_message **out);

/* Content that is assembled from parts, joined by a separator. */
typedef struct by_content {
    by_recipe_piece *pieces;
    uint32_t n, cap;
} by_content;
by_status by_content_begin(by_convert *cv, by_content *c, uint32_t n_parts);
void by_content_text(by_content *c, by_str text);                     /* a part */
void by_content_image(by_convert *cv, by_content *c, const by_recipe_image *image);
by_recipe_text by_content_end(const by_content *c);
by_status by_content_of_string(by_convert *cv, by_str text, by_recipe_text *out);

/* Texts joined by a separator into one. */
by_status by_join(by_convert *cv, const by_str *texts, uint32_t n, by_str separator, by_str *out);

/* ---- rules ---- */

/* Looks the model up and sets the version, or refuses with the accepted names. */
by_status by_check_model(by_convert *cv, by_str model);

/* Words of thinking.type and of efforts, in the order of the enums below. */
extern const by_shape by_shape_thinking; /* record: 0 type */
extern const by_shape by_shape_effort;   /* INT: a by_effort_word, or in the server profile 100 + number */
typedef enum {
    BY_WORD_NONE,
    BY_WORD_MINIMAL,
    BY_WORD_LOW,
    BY_WORD_MEDIUM,
    BY_WORD_HIGH,
    BY_WORD_XHIGH,
    BY_WORD_ULTRA,
    BY_WORD_MAX
} by_effort_word;

/* Sets thinking and effort of the conversation. thinking: record or null; effort: INT or null. */
void by_set_thinking(by_convert *cv, const by_json *thinking, const by_json *effort);

/* v: a DOUBLE or null. lower: above the bound means the bound (Messages). */
by_status by_set_n(by_convert *cv, const by_json *v); /* server profile: 1..128 */
by_status by_set_penalty(by_convert *cv, const by_json *v, const char *name, float *out);
by_status by_set_seed(by_convert *cv, const by_json *v); /* INT, UINT or null */
by_status by_set_temperature(by_convert *cv, const by_json *v);
by_status by_set_top_p(by_convert *cv, const by_json *v);
by_status by_set_max_tokens(by_convert *cv, const by_json *v, const char *name, bool lower);

/* stop: string, list of strings, or null. */
by_status by_set_stop(by_convert *cv, const by_json *stop);

/* BY_FORMAT_JSON_OBJECT needs the word json in a text of some message. */
bool by_mentions_json(const by_convert *cv);

/* Option reject_missing_reasoning; field is the name that the message shows. */
by_status by_check_reasoning(by_convert *cv, by_str field);

/* Parser settings and constraint; after tools, format, messages and stop are known. Moves the messages. */
by_status by_finish_conversation(by_convert *cv);

/* ---- tools (tools.c) ---- */

/* 1 to 128 of a-z A-Z 0-9 _ - */
bool by_is_tool_name(by_str name);
/* Says what is wrong with another name; place is the text between the quotes of the message without ".name":
 * "tools[0].function". */
by_status by_refuse_tool_name(by_convert *cv, by_str name, by_str place);
/* The chosen tools: all strict, or none? Strict ones and a format of the answer exclude each other. */
by_status by_check_all_strict(by_convert *cv, bool has_format);
/* Applies a choice (name.ptr for a named tool) to cv->tools and makes what it leaves the conversation's. Names must differ.
 * Unless the choice is none, the parameters of all are checked, and
 * those of strict tools rewritten. Thinking must be set before. */
typedef struct by_choice {
    by_recipe_choice word;
    by_str name; /* ptr NULL = none */
} by_choice;
by_status by_apply_choice(by_convert *cv, by_choice choice);
/* Late tools that the choice took away (in V4: all) are not announced either; a system message left empty vanishes. */
by_status by_drop_unchosen_tools(by_convert *cv);
/* Compact JSON array of the tools, as the constraint shows them. */
by_status by_tools_constraint(by_convert *cv, by_str *out);

/* ---- schemas (meta_schema.c, strict_schema.c) ---- */

/* Is the value a valid JSON schema? *why says where not. BY_OK, BY_EINVAL, BY_ENOMEM. */
by_status by_check_schema(by_convert *cv, const by_json *schema, by_str *why);
/* The strict rewriting; nested: objects need properties. BY_EINVAL: refused with the right message. */
by_status by_rewrite_strict(by_convert *cv, const by_json *schema, bool is_tool, const by_json **out);
/* Format json_schema: checks, sets format and constraint text. */
by_status by_set_schema_format(by_convert *cv, const by_json *schema, bool strict);

/* ---- images (images.c) ---- */

extern const by_shape by_shape_detail; /* WORD -> by_recipe_detail */
/* A link of more than 8192 bytes; place is all that stands in front of "external link length". */
bool by_is_long_link(by_str url);
by_status by_refuse_long_link(by_convert *cv, by_str url, by_str place);
/* An image_url of Chat and Responses: path is what the source records and messages begin with. */
by_status by_image_from_url(by_convert *cv, by_str url, by_recipe_detail detail, by_str path, const by_recipe_image **out);
/* A file of Chat: is it a data URL of a picture? */
by_status by_check_file_data(by_convert *cv, by_str data, by_str path);
/* Those of Messages: path is what the source records, place what messages begin with. */
by_status by_image_from_link(by_convert *cv, by_str url, by_str path, by_str place, const by_recipe_image **out);
by_status by_image_from_base64(by_convert *cv, by_str media_type, by_str data, by_str path, by_str place,
                               const by_recipe_image **out);

/* ---- sets of texts (str_set.c) ---- */

/* A set of up to n texts with a number each (0 at first), in the arena. Ordered, so that no choice of texts makes it slow. */
typedef struct by_str_set_node by_str_set_node;
typedef struct by_str_set {
    by_str_set_node *nodes;
    uint32_t n, cap, root;
} by_str_set;
by_status by_str_set_init(by_convert *cv, by_str_set *set, uint32_t cap);
/* Adds s; false when it is in already. *value is its number either way. At most cap texts. */
bool by_str_set_add(by_str_set *set, by_str s, uint32_t **value);
/* Its number, NULL when it is not in the set. */
uint32_t *by_str_set_find(const by_str_set *set, by_str s);

/* ---- the formats ---- */

/* One format each: body is the parsed JSON, which is rewritten into records. */
by_status by_convert_chat(by_convert *cv, by_json *body);
by_status by_convert_responses(by_convert *cv, by_json *body);
by_status by_convert_messages(by_convert *cv, by_json *body);
by_status by_convert_completions(by_convert *cv, by_json *body);

/* Shape of a body: checks and rewrites, or fills the error of kind BY_API_BAD_BODY. */
by_status by_check_body(by_convert *cv, by_json *body, const by_shape *shape);

/* ---- server profile (server_fields.c) ---- */

/* The fields that only the server profile knows, read from the body before it is rewritten. Both do nothing in parity.
 * The first: other spellings of the thinking switch (400 when two fields contradict each other; thinking and effort are
 * those of the format, or null), and whether sampling values are honoured. The second: sampling. */
by_status by_begin_server_fields(by_convert *cv, const by_json *body, const by_json *thinking, const by_json *effort);
by_status by_end_server_fields(by_convert *cv, const by_json *body);

/* What limits the answer (grammar_fields.c), server profile only. The first reads the fields of their own, from the body before it
 * is rewritten; the second adds format and tools and settles inference.grammar. A response_format that only the server profile
 * knows counts as text for everybody else. */
by_status by_read_grammar_fields(by_convert *cv, const by_json *body);
by_status by_set_grammar(by_convert *cv);
bool by_is_extra_format(const by_json *f);
extern const char *const by_extra_formats[]; /* their types, up to NULL; regex with another member is one more */

#endif
