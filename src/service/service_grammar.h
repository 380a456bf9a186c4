/* service_grammar.h - from what a request says about its answer to what the engine enforces. */
#ifndef BY_SERVICE_SERVICE_GRAMMAR_H
#define BY_SERVICE_SERVICE_GRAMMAR_H

#include "api/api_request.h"
#include "base/arena.h"
#include "engine/engine.h"

/* What limits the answer of a converted request, as the engine takes it; *has: false when nothing does. Strings live in the arena.
 * Errors: BY_EGRAMMAR (an option, a tool's name), BY_EMISSING, BY_ENOMEM. */
by_status by_service_grammar(by_request_grammar *out, bool *has, by_arena *arena, const by_api_converted *c, const by_tok *tok,
                             by_err *err);

#endif
