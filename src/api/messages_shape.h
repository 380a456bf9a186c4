/* messages_shape.h - the records of a Messages request (see shape.h), by index. */
#ifndef BY_API_MESSAGES_SHAPE_H
#define BY_API_MESSAGES_SHAPE_H

#include "api/shape.h"

extern const by_shape by_messages_body;

enum {
    MB_MODEL, MB_MAX_TOKENS, MB_MESSAGES, MB_SYSTEM, MB_STOP, MB_STREAM, MB_TEMPERATURE, MB_TOP_P, MB_THINKING,
    MB_OUTPUT_CONFIG, MB_TOOLS, MB_CHOICE, MB_METADATA
};

enum { MM_ROLE, MM_CONTENT };
enum { MR_USER, MR_ASSISTANT, MR_SYSTEM };

/* Blocks of content, and those of a tool result: [0] variant. */
enum {
    MK_TEXT, MK_IMAGE, MK_DOCUMENT, MK_THINKING, MK_SERVER_TOOL_USE, MK_TOOL_USE, MK_TOOL_RESULT, MK_SEARCH_RESULT,
    MK_TOOL_ADDITION, MK_TOOL_REFERENCE = MK_THINKING
};
enum { MK_TEXT_TEXT = 1, MK_IMAGE_SOURCE = 1, MK_DOCUMENT_SOURCE = 1, MK_REFERENCE_NAME = 1, MK_ADDITION_TOOL = 1 };
enum { MK_USE_ID = 1, MK_USE_NAME, MK_USE_INPUT };
enum { MK_RESULT_ID = 1, MK_RESULT_CONTENT };

/* Image sources: [0] variant. */
enum { MS_BASE64, MS_URL, MS_FILE };
enum { MS_MEDIA_TYPE = 1, MS_DATA, MS_LINK = 1 };
extern const char *const by_messages_media_types[]; /* as data URLs spell them */

/* Tools: [0] is 1 for a server tool (type, name), 0 for ours. */
enum { MT_NAME = 1, MT_DESCRIPTION, MT_SCHEMA, MT_DEFER, MT_STRICT };
enum { MT_SERVER_TYPE = 1, MT_SERVER_NAME };

/* tool_choice: [0] variant. */
enum { MC_AUTO, MC_ANY, MC_TOOL, MC_NONE };
enum { MC_NAME = 1, MC_ONE_CALL = 1 }; /* behind a name: one further */

#endif
