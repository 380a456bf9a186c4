/* responses_shape.h - the records of a Responses request (see shape.h), by index. */
#ifndef BY_API_RESPONSES_SHAPE_H
#define BY_API_RESPONSES_SHAPE_H

#include "api/shape.h"

extern const by_shape by_responses_body;

/* The body. */
enum {
    RB_MODEL, RB_INPUT, RB_INSTRUCTIONS, RB_TOOLS, RB_CHOICE, RB_REASONING, RB_TEXT, RB_TEMPERATURE, RB_TOP_P,
    RB_TOP_LOGPROBS, RB_MAX_OUTPUT_TOKENS, RB_STREAM, RB_USER
};

/* Items of the input: [0] variant, then fields. */
enum { RI_MESSAGE, RI_REASONING, RI_CALL, RI_OUTPUT, RI_CUSTOM_CALL, RI_CUSTOM_OUTPUT, RI_SEARCH_CALL, RI_SEARCH_OUTPUT, RI_WEB_SEARCH_CALL };
enum { RI_MSG_ROLE = 1, RI_MSG_CONTENT };
enum { RI_REASONING_CONTENT = 1 };                                     /* list of records: [0] text */
enum { RI_CALL_ID = 1, RI_CALL_NAME, RI_CALL_ARGUMENTS, RI_CALL_NAMESPACE }; /* custom: arguments = input; search: name unused */
enum { RI_OUTPUT_ID = 1, RI_OUTPUT_CONTENT, RI_OUTPUT_TOOLS = 2 };
enum { RR_USER, RR_ASSISTANT, RR_SYSTEM, RR_DEVELOPER };

/* Parts of content and output: [0] variant. */
enum { RP_TEXT, RP_OUTPUT_TEXT, RP_IMAGE, RP_FILE };
enum { RP_TEXT_TEXT = 1 };
enum { RP_IMAGE_URL = 1, RP_IMAGE_DETAIL, RP_IMAGE_FILE_ID };

/* Tools: [0] variant. */
enum { RT_FUNCTION, RT_NAMESPACE, RT_CUSTOM, RT_TOOL_SEARCH, RT_WEB_SEARCH, RT_WEB_SEARCH_2025, RT_IGNORED };
enum { RT_NAME = 1, RT_DESCRIPTION, RT_PARAMETERS, RT_STRICT, RT_TOOLS = 3 }; /* function, custom (name), namespace */
enum { RT_SEARCH_EXECUTION = 1, RT_SEARCH_DESCRIPTION, RT_SEARCH_PARAMETERS };
enum { RT_WEB_SIZE = 1, RT_WEB_LOCATION };
enum { RE_CLIENT, RE_SERVER };

/* tool_choice: INT of a word (order of by_recipe_choice), or a record: [0] variant, [1] name. */
enum { RC_FUNCTION, RC_WEB_SEARCH, RC_WEB_SEARCH_2025, RC_CUSTOM };

enum { RS_EFFORT, RS_SUMMARY, RS_GENERATE_SUMMARY };
enum { RX_FORMAT, RX_VERBOSITY };
enum { RF_NAME = 1, RF_SCHEMA, RF_DESCRIPTION, RF_STRICT };

extern const char *const by_responses_effort_words[], *const by_responses_summary_words[], *const by_responses_level_words[],
    *const by_responses_execution_words[];

#endif
