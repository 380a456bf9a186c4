/* grammar_cache.h - compiled grammars by their text: threads that compile beside everything else, equal requests compiled once,
 * finished grammars kept up to a number of bytes.
 *
 * A caller asks, is told when the grammar is there (or why not), takes it, and closes its ticket. Thread-safe. */
#ifndef BY_GRAMMAR_GRAMMAR_CACHE_H
#define BY_GRAMMAR_GRAMMAR_CACHE_H

#include "grammar/grammar.h"

typedef struct by_grammar_cache by_grammar_cache;
typedef struct by_grammar_ticket by_grammar_ticket;

/* What is to be compiled. text, opts.ws_pattern and opts.root are copied by those who keep them. */
typedef struct by_grammar_spec {
    by_grammar_kind kind;
    by_str text;
    by_grammar_opts opts; /* timeout_us 0: the cache's */
} by_grammar_spec;

typedef struct by_grammar_cache_opts {
    int32_t n_threads;  /* 1..64; 0 = 2 */
    size_t bytes_max;   /* of finished grammars; 0 = 1 GiB. Those in use live on when they leave the cache */
    int64_t timeout_us; /* of one compilation; 0 = 2 s. No spec can have more */
} by_grammar_cache_opts;

/* tok must outlive the cache; its vocabulary is built by the first compilation. opts may be NULL. Threads start when they are
 * needed. Errors: BY_EINVAL, BY_ENOMEM. */
by_status by_grammar_cache_create(by_grammar_cache **out, const by_tok *tok, uint32_t eos, const by_grammar_cache_opts *opts,
                                  by_err *err);
/* Waits for running compilations. Every ticket must be closed and every grammar released; NULL is allowed. */
void by_grammar_cache_destroy(by_grammar_cache *c);

/* Asks for a grammar. `done` (may be NULL) is called once from another thread when the answer is there, unless it is there at
 * once or the ticket is closed before; it must neither block nor call the cache. Errors: BY_ENOMEM, BY_ELIMIT (text too
 * long). The caller closes *out. */
by_status by_grammar_cache_ask(by_grammar_cache *c, const by_grammar_spec *spec, void (*done)(void *arg), void *arg,
                               by_grammar_ticket **out, by_err *err);
/* BY_AGAIN: not compiled yet. BY_OK: *out is the grammar, one reference of which is the caller's. BY_EGRAMMAR: the text's fault,
 * kind and place are in the message; BY_ENOMEM. May be called again. */
by_status by_grammar_ticket_take(by_grammar_ticket *t, by_grammar **out, by_err *err);
/* NULL is allowed. `done` is not called any more. */
void by_grammar_ticket_close(by_grammar_ticket *t);

typedef struct by_grammar_cache_stats {
    uint64_t n_asked, n_hits, n_joined, n_compiled, n_failed, n_evicted; /* joined: waited for another's compilation */
    uint64_t bytes;                                                      /* of kept grammars when last counted */
    double compile_s;
} by_grammar_cache_stats;
by_grammar_cache_stats by_grammar_cache_stats_get(by_grammar_cache *c);

/* Compiles at once, on this thread. The error is as of by_grammar_ticket_take. */
by_status by_grammar_compile_spec(by_grammar **out, const by_grammar_vocab *vocab, const by_grammar_spec *spec, by_err *err);

#endif
