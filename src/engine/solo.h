/* solo.h - one model, one sequence at a time: device, caches and runner in one handle. The numeric commands (`logits`,
 * `bench`) and tests use it; requests that share a step go through the engine. One thread. */
#ifndef BY_ENGINE_SOLO_H
#define BY_ENGINE_SOLO_H

#include "model/runner.h"

typedef struct by_solo {
    by_device *dev;
    by_model *model;
    by_kv *kv;
    by_runner *runner;
    by_kv_seq seq;
    int64_t context; /* tokens the sequence may hold */
    int32_t chunk;   /* rows of one prefill step */
    int32_t max_logits;
    int32_t n_drafts; /* tokens of a draft block; 0 = no drafting. The caches take that many tokens more than `context` */
} by_solo;

typedef struct by_solo_opts {
    by_device_opts device;
    by_model_opts model;
    int64_t context; /* 0 = the model's max_positions; clamped to it */
    int32_t chunk;   /* 0 = by_solo_default_chunk */
    bool draft;      /* make room for speculative decoding when the model has draft layers */
} by_solo_opts;

/* Rows per prefill step when nobody says otherwise: enough for the weights to be read once for many rows. */
int32_t by_solo_default_chunk(const by_config *cfg);

/* Opens device and model. The caches come with by_solo_reserve. Errors: those of by_device_open and by_model_open. */
by_status by_solo_open(by_solo *s, const char *dir, const by_solo_opts *opts, by_err *err);
/* Allocates caches for up to `context` tokens (0 = the model's limit), in place of earlier ones. */
by_status by_solo_reserve(by_solo *s, int64_t context, int32_t chunk, by_err *err);
void by_solo_close(by_solo *s);

/* Starts an empty sequence. */
void by_solo_reset(by_solo *s);

/* Computes rows [seq.n_tokens, n_tokens) of the sequence tokens[0 .. n_tokens) in steps of at most `chunk` rows, with the
 * logits of the last row in by_solo_logits. Errors: BY_ECONTEXT, those of by_runner_step. */
by_status by_solo_feed(by_solo *s, const int32_t *tokens, int64_t n_tokens, by_err *err);

/* The same, with every row's logits handed to `row` (vocab floats, valid during the call). */
typedef by_status by_solo_row(void *arg, int64_t position, const float *logits, by_err *err);
by_status by_solo_feed_all(by_solo *s, const int32_t *tokens, int64_t n_tokens, by_solo_row *row, void *arg, by_err *err);

/* Logits of the last fed row into dst [vocab]. */
by_status by_solo_logits(const by_solo *s, float *dst, by_err *err);

#endif
