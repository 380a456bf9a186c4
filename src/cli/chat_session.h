/* chat_session.h - a conversation with a model, without a terminal: history, settings, one turn at a time.
 *
 * The model is behind by_chat_backend, so that tests can put a script in its place. A turn that fails leaves the history
 * as it was before it; a turn that is interrupted keeps what had come. One thread. */
#ifndef BY_CLI_CHAT_SESSION_H
#define BY_CLI_CHAT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "recipe/answer.h"
#include "recipe/conversation.h"

/* Called by the backend for every generated id; BY_END asks it to stop. */
typedef by_status by_chat_take(void *arg, int32_t id, by_err *err);

typedef struct by_chat_backend {
    /* Generates behind prompt [n], an end token included, and says why it stopped. */
    by_status (*generate)(void *ctx, const int32_t *prompt, size_t n, by_chat_take *take, void *arg,
                          by_answer_reason *reason, by_err *err);
    void *ctx;
} by_chat_backend;

/* Reasoning or content as it comes. */
typedef void by_chat_show(void *ctx, by_delta_kind kind, by_str text);

typedef struct by_chat_opts {
    const by_tok *tok; /* outlives the session, as does everything else here */
    by_tok_scratch *scratch;
    by_recipe_version version;
    const int32_t *end_ids; /* [n_end_ids] */
    size_t n_end_ids;
    by_chat_backend backend;
    by_chat_show *show;
    void *show_ctx;
    bool (*interrupted)(void); /* asked after every id; NULL = never */
} by_chat_opts;

typedef struct by_chat_turn {
    by_answer_end_kind kind;
    bool interrupted;
    by_answer_usage usage; /* prompt_tokens is the length of the prompt */
} by_chat_turn;

typedef struct by_chat by_chat;

/* Errors: BY_ENOMEM. */
by_status by_chat_create(by_chat **out, const by_chat_opts *opts, by_err *err);
void by_chat_destroy(by_chat *c); /* NULL is allowed */

/* The user says text and the model answers. Errors: those of the backend and of encoding; BY_ELIMIT (BY_LIMIT_MESSAGES). */
by_status by_chat_say(by_chat *c, by_str text, by_chat_turn *turn, by_err *err);

/* Forgets all messages but the system text. */
void by_chat_clear(by_chat *c);

/* Empty text: no system message. Errors: BY_ENOMEM. */
by_status by_chat_set_system(by_chat *c, by_str text, by_err *err);
by_str by_chat_system(const by_chat *c);

/* "none", "low", "high", "max" or a number 1..100. Errors: BY_EINVAL. */
by_status by_chat_set_think(by_chat *c, by_str word, by_err *err);
by_status by_chat_check_think(by_str word, by_err *err); /* is it one of these? */
const char *by_chat_think(const by_chat *c);

/* Messages of both sides, without the system text. */
size_t by_chat_n_messages(const by_chat *c);

/* The conversation as JSON: {"think": "high", "messages": [{"role", "content", "reasoning_content"?}, ...]}; messages are as
 * in a Chat Completions request. Errors of writing: those of by_file_write. */
by_status by_chat_save(const by_chat *c, const char *path, by_err *err);

/* Replaces the conversation by a saved one; on an error it stays as it was. Errors: those of by_json_read_file; BY_EFORMAT
 * with the field's name. */
by_status by_chat_load(by_chat *c, const char *path, by_err *err);

#endif
