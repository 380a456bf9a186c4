/* api_stream_impl.h - what the files of the APIs share. Not for other modules. */
#ifndef BY_API_STREAM_IMPL_H
#define BY_API_STREAM_IMPL_H

#include "api/api_stream.h"
#include "base/arena.h"
#include "json/json_write.h"

#define BY_API_LITERAL(buf, text) by_buf_push((buf), (text), sizeof(text) - 1)

/* The answer so far, kept for the whole object. */
typedef struct by_api_call {
    by_str id, name;
    by_buf args;
} by_api_call;

typedef struct by_api_whole {
    by_buf reasoning, content;
    by_buf reasoning_logprobs, content_logprobs; /* elements of a list, or empty */
    by_api_call *calls;
    size_t n_calls, cap_calls;
} by_api_whole;

typedef struct by_api_writer by_api_writer;

typedef enum by_api_open { BY_OPEN_NONE, BY_OPEN_REASONING, BY_OPEN_TEXT, BY_OPEN_CALL } by_api_open;

/* Input of a custom tool taken out of {"input": "..."} while it streams; see custom_input.h. */
typedef struct by_custom_input {
    int state;
    char escape[12];
    uint32_t n_escape;
    by_buf pending;
} by_custom_input;

typedef enum by_item_kind { BY_ITEM_REASONING, BY_ITEM_MESSAGE, BY_ITEM_CALL, BY_ITEM_CUSTOM, BY_ITEM_SEARCH } by_item_kind;

/* Where tokens begin in a text. tail: bytes of a character that is not complete, n_chars: characters in front of them. */
typedef struct by_api_offset {
    size_t n_chars;
    uint32_t n_tail;
    char tail[4];
} by_api_offset;

struct by_api_stream {
    const by_api_writer *writer;
    const by_api_converted *request;
    by_answer *answer;
    by_arena arena;
    by_str id, signature;
    int64_t created, (*now)(void);
    by_api_usage_place usage_place;
    uint32_t choice;
    by_api_event_fn *on_event;
    void *ctx;
    bool keep_whole, failed;

    by_buf out;      /* the event being written */
    size_t head_len; /* its front that all events share; stays in `out` */

    bool begun, ended;
    by_answer_begin begin; /* fingerprint copied into the arena */
    by_answer_end end;
    by_api_whole whole;

    by_api_offset offset; /* Completions: of the next token in the text */

    /* Messages: the open block. */
    by_api_open open;
    uint32_t n_blocks;
    bool pinged, signed_thinking;

    /* Responses: the open item, and the JSON of the items that are done. */
    uint64_t sequence;
    uint32_t n_items;
    bool item_open;
    by_item_kind item;
    by_buf item_id, item_text, item_logprobs, done_items, scratch;
    by_str call_id, call_name, call_namespace;
    by_custom_input custom;
    bool has_search_tool;
    by_str *custom_tools;
    uint32_t n_custom_tools;
    int64_t completed_at;
};

/* One API. The sink's ctx is the stream; write_choice is for the APIs with choices, the other two write the object. */
struct by_api_writer {
    by_status (*init)(by_api_stream *s, by_err *err); /* may be NULL */
    void (*begin)(by_api_stream *s);
    void (*delta)(by_api_stream *s, const by_answer_delta *d);
    void (*end)(by_api_stream *s);
    void (*write_whole)(by_api_stream *const *s, size_t n, by_buf *out);
};

extern const by_api_writer by_chat_writer, by_completions_writer, by_messages_writer, by_responses_writer;

/* Gives out the event in s->out and cuts it back to its head. */
void by_api_stream_emit(by_api_stream *s, const char *name);

/* The stop reason word of Chat Completions: "stop", "tool_calls", "length", "content_filter". */
const char *by_api_finish_word(by_answer_end_kind kind);

/* Usage object of Chat Completions; details of reasoning only when asked for. */
void by_api_write_chat_usage(by_buf *b, const by_answer_usage *u, bool reasoning);

/* Appends a call's arguments as an object. When they are no JSON value, {} is written and the result is false. */
bool by_api_write_arguments(by_buf *b, by_str args);

#endif
