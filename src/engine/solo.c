/* solo.c - see solo.h. */
#include "engine/solo.h"

#include <string.h>

#include "base/alloc.h"
#include "engine/spec.h"

enum { BACKTRACK = 6, LOGIT_BYTES = 64 << 20 };

int32_t by_solo_default_chunk(const by_config *cfg) { return cfg->hidden_size >= 2048 ? 512 : 256; }

by_status by_solo_open(by_solo *s, const char *dir, const by_solo_opts *opts, by_err *err) {
    *s = (by_solo){0};
    by_status status = by_device_open(&s->dev, &opts->device, err);
    by_model_opts m = opts->model;
    if (status == BY_OK && m.place.reserve == 0) m.place.reserve = by_device_room_get(s->dev).limit / 4; /* caches come later */
    if (status == BY_OK) status = by_model_open(&s->model, dir, s->dev, &m, err);
    if (status < 0) by_solo_close(s);
    else if (opts->draft && s->model->cfg.draft.n_layers)
        s->n_drafts = s->model->cfg.draft.block_size < BY_SPEC_DRAFTS_MAX ? s->model->cfg.draft.block_size : BY_SPEC_DRAFTS_MAX;
    return status;
}

static void release_caches(by_solo *s) {
    if (s->kv) by_kv_seq_deinit(&s->seq, s->kv);
    by_runner_destroy(s->runner);
    by_kv_destroy(s->kv);
    s->runner = NULL;
    s->kv = NULL;
}

by_status by_solo_reserve(by_solo *s, int64_t context, int32_t chunk, by_err *err) {
    release_caches(s);
    const by_config *c = &s->model->cfg;
    if (context <= 0 || context > c->max_positions) context = c->max_positions;
    if (chunk <= 0) chunk = by_solo_default_chunk(c);
    if (chunk > context) chunk = (int32_t)context;
    int64_t rows = LOGIT_BYTES / ((int64_t)c->vocab_size * 4);
    s->context = context;
    s->chunk = chunk;
    s->max_logits = rows < 1 ? 1 : rows < chunk ? (int32_t)rows : chunk;
    int32_t K = s->n_drafts, step = chunk > K ? chunk : K + 1, backtrack = K + 1 > BACKTRACK ? K + 1 : BACKTRACK;
    if (s->max_logits < K + 1) s->max_logits = K + 1;
    by_kv_layout layout;
    BY_TRY(by_model_kv_layout(&layout, s->model, backtrack, err));
    by_kv_opts pool = {.n_blocks = (int32_t)by_kv_blocks_for(context + K), .n_slots = 1};
    BY_TRY(by_kv_create(&s->kv, s->dev, &layout, &pool, err));
    by_runner_opts run = {.max_rows = step, .max_seqs = 1, .max_logits = s->max_logits, .max_context = context + K, .n_drafts = K};
    BY_TRY(by_runner_create(&s->runner, s->model, s->kv, &run, err));
    if (by_device_draws(s->dev)) BY_TRY(by_runner_reserve(s->runner, err)); /* elsewhere measuring takes as long as a step */
    return by_kv_seq_init(&s->seq, s->kv, context + K, err);
}

void by_solo_close(by_solo *s) {
    release_caches(s);
    by_model_close(s->model);
    by_device_close(s->dev);
    *s = (by_solo){0};
}

void by_solo_reset(by_solo *s) { by_kv_seq_clear(&s->seq, s->kv); }

static by_status room_for(by_solo *s, int64_t n_tokens, by_err *err) {
    if (n_tokens > s->context)
        return BY_FAIL(err, BY_ECONTEXT, "%lld tokens exceed the context of %lld", (long long)n_tokens, (long long)s->context);
    return by_kv_seq_reserve(&s->seq, s->kv, n_tokens, err);
}

by_status by_solo_feed(by_solo *s, const int32_t *tokens, int64_t n_tokens, by_err *err) {
    BY_TRY(room_for(s, n_tokens, err));
    while (s->seq.n_tokens < n_tokens) {
        int64_t left = n_tokens - s->seq.n_tokens;
        by_step_seq step = {.kv = &s->seq, .tokens = tokens, .n_rows = left < s->chunk ? (int32_t)left : s->chunk};
        step.want = step.n_rows == left ? BY_WANT_LAST : BY_WANT_NONE;
        BY_TRY(by_runner_step(s->runner, &step, 1, err));
    }
    return BY_OK;
}

by_status by_solo_feed_all(by_solo *s, const int32_t *tokens, int64_t n_tokens, by_solo_row *row, void *arg, by_err *err) {
    BY_TRY(room_for(s, n_tokens, err));
    float *logits = by_alloc(BY_MEM_MODEL, (size_t)s->model->cfg.vocab_size * 4);
    if (!logits) return BY_FAIL(err, BY_ENOMEM, "out of memory for a row of logits");
    by_status status = BY_OK;
    while (status == BY_OK && s->seq.n_tokens < n_tokens) {
        int64_t left = n_tokens - s->seq.n_tokens, first = s->seq.n_tokens;
        by_step_seq step = {.kv = &s->seq, .tokens = tokens, .n_rows = left < s->max_logits ? (int32_t)left : s->max_logits,
                            .want = BY_WANT_ALL};
        status = by_runner_step(s->runner, &step, 1, err);
        for (int32_t i = 0; status == BY_OK && i < step.n_rows; i++) {
            status = by_runner_read_logits(s->runner, i, logits, err);
            if (status == BY_OK) status = row(arg, first + i, logits, err);
        }
    }
    by_free(logits);
    return status;
}

by_status by_solo_logits(const by_solo *s, float *dst, by_err *err) { return by_runner_read_logits(s->runner, 0, dst, err); }
