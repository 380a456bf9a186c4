/* runner.c - buffers and the description of a step; the layers are in graph.c. */
#include "model/runner.h"

#include <string.h>

#include "base/alloc.h"
#include "model/engram_hash.h"
#include "model/runner_impl.h"
#include "ops/scratch.h"

/* ---- buffers -------------------------------------------------------------------------------------------------- */

/* Lays tensors out one behind another; a first pass with mem NULL only counts. */
typedef struct {
    by_mem *mem;
    int64_t at;
} bump;

static by_tensor take(bump *b, by_dtype dtype, int64_t rows, int64_t cols) {
    int64_t stride = by_dtype_row_bytes(dtype, cols);
    by_tensor t = {.mem = b->mem, .off = b->at, .stride = stride, .rows = rows, .cols = cols, .dtype = dtype};
    b->at += (rows * stride + 63) / 64 * 64;
    return t;
}

static int64_t wide(int64_t a, int64_t b) { return a > b ? a : b; }

enum { DRAFT_LOGIT_BYTES = 64 << 20 };

/* Sequences of one draft call: their logits fit a bounded buffer. */
static int32_t draft_seqs(const by_model *m, const by_runner_opts *o) {
    if (o->n_drafts == 0) return 0;
    if (o->all_draft_rows) return o->max_seqs;
    int64_t n = DRAFT_LOGIT_BYTES / (4 * (int64_t)o->n_drafts * m->cfg.vocab_size);
    return n < 1 ? 1 : n < o->max_seqs ? (int32_t)n : o->max_seqs;
}

/* Most rows of a step or of a draft call. */
static int64_t most_rows(const by_model *m, const by_runner_opts *o) { return wide(o->max_rows, (int64_t)draft_seqs(m, o) * o->n_drafts); }

static void lay_out(by_buffers *o, bump *b, const by_model *m, const by_runner_opts *opts) {
    const by_config *c = &m->cfg;
    by_dtype act = m->act;
    int64_t T = most_rows(m, opts), D = c->hidden_size, M = c->hc_mult, hd = (int64_t)c->n_heads * c->head_dim;
    int64_t od = (int64_t)c->o_groups * c->o_lora_rank, ix = wide(c->index_head_dim, 32), nix = wide(c->index_n_heads, 1);
    int64_t pairs = T / 2 + opts->max_seqs;
    *o = (by_buffers){0};
    o->h = take(b, act, T, M * D);
    o->pre = take(b, BY_F32, T, M);
    o->post = take(b, BY_F32, T, M);
    o->comb = take(b, BY_F32, T, M * M);
    o->y = take(b, act, T, D);
    o->qa = take(b, act, T, c->q_lora_rank);
    o->q = take(b, act, T, hd);
    o->kv_raw = take(b, act, T, c->head_dim);
    o->kv = take(b, BY_U8, T, by_rec_bytes(m->quant ? BY_REC_FP8 : BY_REC_F32, c->head_dim));
    o->v = take(b, BY_F32, T, c->head_dim);
    o->s = take(b, BY_F32, T, c->head_dim);
    o->latent = take(b, act, wide(T, pairs), c->head_dim);
    o->ik = take(b, act, wide(T, pairs), ix);
    o->iq = take(b, act, T, nix * ix);
    o->iq_rec = m->quant ? take(b, BY_IX4, T * nix, ix) : take(b, BY_F32, T, nix * ix);
    o->iw = take(b, act, T, nix);
    o->sel = take(b, BY_I32, T, 1 + c->index_topk);
    o->cand = take(b, BY_I32, T, 1 + wide(c->candidate_topk_blocks, 0));
    o->o = take(b, m->quant ? BY_A8 : BY_F32, T, hd);
    o->t = take(b, BY_F32, T, od);
    o->out = take(b, act, T, D);
    o->idx = take(b, BY_I32, T, c->n_experts_per_token);
    o->weight = take(b, BY_F32, T, c->n_experts_per_token);
    if (m->quant) {
        o->y_q = take(b, BY_A8, T, D);
        o->qr_q = take(b, BY_A8, T, c->q_lora_rank);
        o->t_q = take(b, BY_A8, T, od);
    } else {
        o->qr = take(b, act, T, c->q_lora_rank);
    }
    if (c->engram.n_layers) {
        int64_t e = (int64_t)(c->engram.max_ngram - 1) * c->engram.n_heads * c->engram.head_dim;
        o->engram_e = take(b, m->quant ? BY_A8 : BY_F32, T, e);
        o->engram_kv = take(b, BY_F32, T, (M + 1) * D);
    }
    o->cs_window = take(b, BY_F32, T, c->rope_dim);
    o->cs_row = take(b, BY_F32, T, c->rope_dim);
    o->cs_entry[1] = take(b, BY_F32, T, c->rope_dim);
    o->cs_entry[2] = take(b, BY_F32, pairs, c->rope_dim);
    o->close = take(b, act, opts->max_logits, D);
    o->logits = take(b, BY_F32, opts->max_logits, c->vocab_size);
}

static void lay_out_kept(by_kept_buffers *k, bump *b, const by_model *m, const by_runner_opts *opts) {
    const by_config *c = &m->cfg;
    int64_t T = opts->max_rows, D = c->hidden_size, M = c->hc_mult;
    *k = (by_kept_buffers){0};
    if (opts->trunc != BY_TRUNC_COMPACT || m->boundary < 0) return;
    k->h = take(b, m->act, T, M * D);
    k->pre = take(b, BY_F32, T, M);
    k->post = take(b, BY_F32, T, M);
    k->comb = take(b, BY_F32, T, M * M);
    k->y = take(b, m->act, T, D);
    if (m->quant) k->y_q = take(b, BY_A8, T, D);
    k->cs_window = take(b, BY_F32, T, c->rope_dim);
    k->cs_row = take(b, BY_F32, T, c->rope_dim);
}

static void lay_out_drafts(by_draft_buffers *o, bump *b, const by_model *m, const by_runner_opts *opts) {
    const by_config *c = &m->cfg;
    *o = (by_draft_buffers){0};
    if (opts->n_drafts == 0) return;
    int64_t T = opts->max_rows, D = c->hidden_size, F = D * c->draft.n_targets, B = draft_seqs(m, opts), K = opts->n_drafts;
    o->features = take(b, m->act, T, F);
    if (m->quant) o->features_q = take(b, BY_A8, T, F);
    if (opts->trunc == BY_TRUNC_COMPACT && m->boundary >= 0) o->features_kept = take(b, m->act, T, F);
    o->idx = take(b, BY_I32, B * K, c->draft.n_experts_per_token);
    o->weight = take(b, BY_F32, B * K, c->draft.n_experts_per_token);
    o->u = take(b, m->act, B * K, D);
    o->close = take(b, m->act, B * K, D);
    o->logits = take(b, BY_F32, B * K, c->vocab_size);
    o->conf = take(b, BY_F32, 4 * B * K, 1);
    o->bias = take(b, BY_F32, B, c->vocab_size);
    o->e = take(b, BY_BF16, B, c->draft.markov_rank);
}

static int64_t table_cols(const by_runner_opts *o) { return by_kv_blocks_for(o->max_context + o->max_rows); }

/* int32 values that describe the largest step: rows, sequences, block tables, entries, grams, wanted rows. */
static int64_t meta_ints(const by_model *m, const by_runner_opts *o) {
    int64_t T = o->max_rows, B = o->max_seqs + (o->replay_rows ? BY_REPLAY_SPARE : 0), pad = 16;
    int64_t rows = 4 * (T + pad), seqs = 3 * (B + 1 + pad), entries = 3 * (T + pad) + 3 * (T / 2 + B + pad);
    int64_t kept = 4 * (T + pad) + 4 * (B + 1 + pad);
    int64_t drafts = 6 * (draft_seqs(m, o) * (int64_t)o->n_drafts + pad) + 5 * (B + 1 + pad); /* not at the same time */
    return drafts + rows + seqs + B * table_cols(o) + pad + entries + kept + T * wide(m->cfg.engram.max_ngram, 1) + pad +
           o->max_logits + pad;
}

int64_t by_runner_bytes(const by_model *m, const by_runner_opts *opts) {
    by_buffers scratch;
    by_kept_buffers kept;
    bump b = {0};
    lay_out(&scratch, &b, m, opts);
    lay_out_kept(&kept, &b, m, opts);
    by_draft_buffers drafts;
    lay_out_drafts(&drafts, &b, m, opts);
    return b.at + 4 * meta_ints(m, opts) + (opts->marks ? 8 * (int64_t)opts->max_rows : 0);
}

int64_t by_runner_scratch_bytes(const by_model *m, const by_runner_opts *opts) {
    const by_config *c = &m->cfg;
    int64_t D = c->hidden_size, e = (int64_t)(c->engram.max_ngram - 1) * c->engram.n_heads * c->engram.head_dim;
    int64_t hd = (int64_t)c->n_heads * c->head_dim, od = (int64_t)c->o_groups * c->o_lora_rank;
    int64_t ix = (int64_t)c->index_n_heads * c->index_head_dim;
    struct {
        int64_t n, k, groups;
    } products[] = {{c->q_lora_rank + c->head_dim, D, 1}, {hd + ix, c->q_lora_rank, 1}, {od, hd, c->o_groups}, {D, od, 1},
                    {2 * c->head_dim, D, 1}, {c->index_head_dim, c->head_dim, 1}, {c->n_experts, D, 1}, {c->index_n_heads, D, 1},
                    {2 * c->shared_width, D, 1}, {D, c->shared_width, 1}, {(c->hc_mult + 1) * D, c->engram.n_layers ? e : 0, 1},
                    {D, opts->n_drafts ? D * c->draft.n_targets : 0, 1}, {c->vocab_size, D, 1}};
    by_step_shape s = {.rows = most_rows(m, opts), .entries = c->index_n_heads ? opts->max_context : 0, .key_bytes = m->act == BY_BF16 ? 2 : 4,
                       .hidden = D, .streams = c->hc_mult,
                       .n_experts = wide(c->n_experts, c->draft.n_experts), .inner = c->moe_width,
                       .n_chosen = wide(c->n_experts_per_token, c->draft.n_experts_per_token),
                       .shared_inner = c->shared_width,
                       .cand_block = c->candidate_topk_blocks ? c->candidate_block_size : 0};
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        int64_t k = products[i].k / products[i].groups, most = by_scratch_weights(products[i].n, k);
        if (most > BY_SCRATCH_WEIGHTS_MAX) most = BY_SCRATCH_WEIGHTS_MAX;
        s.widest = wide(s.widest, products[i].k);
        /* larger ones are not expanded; how large one is depends on its parts, between these two */
        s.weights = wide(s.weights, by_scratch_image(products[i].n, k) <= BY_SCRATCH_WEIGHTS_MAX ? most : 0);
    }
    return by_scratch_step(&s);
}

static by_status check_opts(const by_runner_opts *o, const by_model *m, by_err *err) {
    if (o->max_rows < 1 || o->max_rows > BY_LIMIT_STEP_ROWS)
        return BY_FAIL(err, BY_EINVAL, "rows of a step: %d is outside 1..%d", o->max_rows, BY_LIMIT_STEP_ROWS);
    if (o->max_seqs < 1 || o->max_seqs > BY_LIMIT_SEQS || o->max_logits < 1 || o->max_logits > o->max_rows)
        return BY_FAIL(err, BY_EINVAL, "a step of %d sequences with %d rows of logits", o->max_seqs, o->max_logits);
    if (o->max_context < 1 || o->max_context > BY_LIMIT_CONTEXT)
        return BY_FAIL(err, BY_EINVAL, "context: %lld is outside 1..%d", (long long)o->max_context, BY_LIMIT_CONTEXT);
    if (o->n_drafts < 0 || o->n_drafts > BY_LIMIT_DRAFT_BLOCK)
        return BY_FAIL(err, BY_EINVAL, "drafts: %d is outside 0..%d", o->n_drafts, BY_LIMIT_DRAFT_BLOCK);
    if (o->replay_rows < 0) return BY_FAIL(err, BY_EINVAL, "rows of recorded steps: %d is below 0", o->replay_rows);
    if (o->n_drafts && m->cfg.draft.n_layers == 0) return BY_FAIL(err, BY_EINVAL, "drafts: the model has no draft layers");
    return BY_OK;
}

static void lay_out_all(by_runner *r, bump *b) {
    lay_out(&r->buf, b, r->model, &r->opts);
    lay_out_kept(&r->kept_buf, b, r->model, &r->opts);
    lay_out_drafts(&r->draft_buf, b, r->model, &r->opts);
    r->all_marks = r->opts.marks ? take(b, BY_I32, 2 * (int64_t)r->opts.max_rows, 1) : (by_tensor){0};
}

by_status by_runner_create(by_runner **out, by_model *model, by_kv *kv, const by_runner_opts *opts, by_err *err) {
    *out = NULL;
    BY_TRY(check_opts(opts, model, err));
    by_runner *r = by_alloc_zero(BY_MEM_MODEL, sizeof *r);
    if (!r) return BY_FAIL(err, BY_ENOMEM, "out of memory for a runner");
    r->model = model;
    r->kv = kv;
    r->opts = *opts;
    r->meta_ints = meta_ints(model, opts);
    bump count = {0};
    lay_out_all(r, &count);
    r->max_draft_seqs = draft_seqs(model, opts);
    by_status status = by_mem_alloc(&r->work, model->dev, (size_t)count.at, err);
    if (status == BY_OK) status = by_mem_alloc(&r->meta, model->dev, (size_t)r->meta_ints * 4, err);
    if (status == BY_OK) status = by_staging_create(&r->staging, model->dev, (size_t)r->meta_ints * 4, err);
    if (status == BY_OK) status = by_host_experts_create(&r->host, model, most_rows(model, opts), err);
    if (status == BY_OK) status = by_replays_create(r, err);
    size_t n_halves = 4 * (size_t)(r->max_draft_seqs + 1) * (size_t)(opts->n_drafts + 1);
    r->conf_halves = status == BY_OK ? by_alloc(BY_MEM_MODEL, n_halves * 4) : NULL;
    r->draft_ids = status == BY_OK ? by_alloc(BY_MEM_MODEL, (size_t)(r->max_draft_seqs + 1) * 4) : NULL;
    if (status == BY_OK && !(r->conf_halves && r->draft_ids)) status = BY_FAIL(err, BY_ENOMEM, "out of memory for the confidences of drafts");
    if (status < 0) {
        by_runner_destroy(r);
        return status;
    }
    bump place = {.mem = r->work};
    lay_out_all(r, &place);
    *out = r;
    return BY_OK;
}

void by_runner_destroy(by_runner *r) {
    if (!r) return;
    by_replays_destroy(r->replays);
    by_host_experts_destroy(r->host);
    by_mem_free(r->work);
    by_mem_free(r->meta);
    by_staging_destroy(r->staging);
    by_free(r->conf_halves);
    by_free(r->draft_ids);
    by_free(r);
}

/* ---- the step's description ------------------------------------------------------------------------------------ */

/* See runner_impl.h. */
by_status by_runner_stage_begin(by_runner *r, by_err *err) {
    r->n_staged = 0;
    r->stage = by_staging_next(r->staging, err);
    return r->stage ? BY_OK : BY_EDEVICE;
}

by_status by_runner_stage_send(by_runner *r, by_err *err) {
    return by_staging_upload(r->staging, r->meta, 0, (size_t)r->n_staged * 4, err);
}

int32_t *by_runner_stage(by_runner *r, by_tensor *t, int64_t rows, int64_t cols) {
    int32_t *p = r->stage + r->n_staged;
    *t = (by_tensor){.mem = r->meta, .off = r->n_staged * 4, .stride = cols * 4, .rows = rows, .cols = cols, .dtype = BY_I32};
    r->n_staged += (rows * cols + 15) / 16 * 16;
    return p;
}

static int64_t first_kept(const by_runner *r, const by_step_seq *q) {
    return r->opts.trunc == BY_TRUNC_OFF || r->model->boundary < 0 ? 0 : q->keep_from;
}

static by_status check_step(const by_runner *r, const by_step_seq *seqs, int32_t n_seqs, by_err *err) {
    int64_t rows = 0, logits = 0;
    if (n_seqs < 1 || n_seqs > r->opts.max_seqs)
        return BY_FAIL(err, BY_EINVAL, "a step of %d sequences, the runner holds 1..%d", n_seqs, r->opts.max_seqs);
    for (int32_t s = 0; s < n_seqs; s++) {
        const by_step_seq *q = &seqs[s];
        if (q->n_rows < 1) return BY_FAIL(err, BY_EINVAL, "sequence %d of the step has no rows", s);
        int64_t first_wanted = q->kv->n_tokens + (q->want == BY_WANT_LAST ? q->n_rows - 1 : 0);
        if (q->want != BY_WANT_NONE && first_kept(r, q) > first_wanted)
            return BY_FAIL(err, BY_EINVAL, "sequence %d: logits of rows below %lld, which truncation drops", s,
                           (long long)q->keep_from);
        rows += q->n_rows;
        logits += q->want == BY_WANT_ALL ? q->n_rows : q->want == BY_WANT_LAST;
        int64_t end = q->kv->n_tokens + q->n_rows;
        if (end > r->opts.max_context)
            return BY_FAIL(err, BY_ECONTEXT, "%lld tokens exceed the context of %lld", (long long)end,
                           (long long)r->opts.max_context);
        for (int64_t i = q->kv->n_tokens; i < end; i++)
            if (q->tokens[i] < 0 || q->tokens[i] >= r->model->cfg.vocab_size)
                return BY_FAIL(err, BY_EINVAL, "token %lld: id %d is outside 0..%d", (long long)i, q->tokens[i],
                               r->model->cfg.vocab_size - 1);
    }
    if (rows > r->opts.max_rows || logits > r->opts.max_logits)
        return BY_FAIL(err, BY_EINVAL, "a step of %lld rows with %lld rows of logits, the runner holds %d and %d",
                       (long long)rows, (long long)logits, r->opts.max_rows, r->opts.max_logits);
    return BY_OK;
}

static void describe_rows(by_runner *r, const by_step_seq *seqs, int32_t n_seqs) {
    by_batch *b = &r->batch;
    int32_t T = 0;
    r->longest = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        T += seqs[s].n_rows;
        if (seqs[s].n_rows > r->longest) r->longest = seqs[s].n_rows;
    }
    if (r->padded_context && r->longest <= r->opts.n_drafts) r->longest = r->opts.n_drafts + 1; /* in any step of this size */
    b->n_rows = r->n_rows = T;
    b->n_seqs = n_seqs;
    int32_t *pos = by_runner_stage(r, &b->row_pos, T, 1), *seq = by_runner_stage(r, &b->row_seq, T, 1);
    int32_t *image = by_runner_stage(r, &b->row_image, T, 1), *ids = by_runner_stage(r, &r->ids, T, 1);
    int32_t *row0 = by_runner_stage(r, &b->seq_row0, n_seqs + 1, 1), *pos0 = by_runner_stage(r, &b->seq_pos0, n_seqs, 1);
    int32_t *slot = by_runner_stage(r, &b->seq_slot, n_seqs, 1);
    int64_t cols = r->padded_context ? by_kv_blocks_for(r->padded_context) : 1;
    for (int32_t s = 0; s < n_seqs && !r->padded_context; s++) cols = wide(cols, seqs[s].kv->n_blocks);
    int32_t *blocks = by_runner_stage(r, &b->seq_blocks, n_seqs, cols);
    int32_t at = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        const by_step_seq *q = &seqs[s];
        row0[s] = at;
        pos0[s] = (int32_t)q->kv->n_tokens;
        slot[s] = q->kv->slot;
        int64_t n_blocks = q->kv->n_blocks < cols ? q->kv->n_blocks : cols; /* those in reserve need not be known */
        memset(blocks + s * cols, 0, (size_t)cols * 4);
        if (n_blocks) memcpy(blocks + s * cols, q->kv->blocks, (size_t)n_blocks * 4);
        for (int32_t i = 0; i < q->n_rows; i++, at++) {
            pos[at] = pos0[s] + i;
            seq[at] = s;
            image[at] = 0;
            ids[at] = q->tokens[q->kv->n_tokens + i];
        }
    }
    row0[n_seqs] = at;
}

/* Entries that compressors of this ratio complete: one for every token at the end of a group, unless it is stored already. A step that
 * is filled up has as many as it can have at most: the last sequence, which has no rows, gets the others, and with them block 0, which
 * nobody reads. */
static void describe_entries(by_runner *r, const by_step_seq *seqs, int32_t n_seqs, int32_t ratio) {
    by_entries *e = &r->ent[ratio];
    int32_t n = 0, at = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        int64_t end = seqs[s].kv->n_tokens + seqs[s].n_rows, first = wide(seqs[s].kv->n_tokens, seqs[s].store_from);
        n += end > first ? (int32_t)(end / ratio - first / ratio) : 0;
    }
    if (r->padded_context) {
        int64_t room = r->buf.cs_entry[ratio].rows;
        n = r->n_rows < room ? r->n_rows : (int32_t)room;
    }
    e->n = n;
    int32_t *seq = by_runner_stage(r, &e->seq, n, 1), *idx = by_runner_stage(r, &e->idx, n, 1), *row = by_runner_stage(r, &e->row, n, 1);
    n = 0;
    for (int32_t s = 0; s < n_seqs; at += seqs[s++].n_rows) {
        for (int64_t i = 0, p = seqs[s].kv->n_tokens; i < seqs[s].n_rows; i++, p++) {
            if ((p + 1) % ratio != 0 || p < seqs[s].store_from) continue;
            seq[n] = s;
            idx[n] = (int32_t)(p / ratio);
            row[n++] = at + (int32_t)i;
        }
    }
    for (; n < e->n; n++) seq[n] = n_seqs - 1, idx[n] = row[n] = 0;
}

/* Rows that go on behind the boundary, and the window limits of both halves. */
static void describe_kept(by_runner *r, const by_step_seq *seqs, int32_t n_seqs) {
    bool compact = r->opts.trunc == BY_TRUNC_COMPACT && r->model->boundary >= 0;
    r->limits = r->padded_context > 0;
    r->compacts = false;
    for (int32_t s = 0; s < n_seqs; s++) {
        r->limits |= first_kept(r, &seqs[s]) > 0 || seqs[s].valid_from > 0;
        r->compacts |= compact && first_kept(r, &seqs[s]) > seqs[s].kv->n_tokens;
    }
    r->kept = r->batch;
    if (r->limits) {
        int32_t *valid = by_runner_stage(r, &r->valid_from, n_seqs, 1), *keep = by_runner_stage(r, &r->keep_from, n_seqs, 1);
        for (int32_t s = 0; s < n_seqs; s++) {
            valid[s] = (int32_t)seqs[s].valid_from;
            keep[s] = (int32_t)wide(first_kept(r, &seqs[s]), seqs[s].valid_from);
        }
    }
    if (!r->compacts) return;
    by_batch *k = &r->kept;
    k->n_rows = 0;
    for (int32_t s = 0; s < n_seqs; s++) {
        int64_t end = seqs[s].kv->n_tokens + seqs[s].n_rows, first = wide(first_kept(r, &seqs[s]), seqs[s].kv->n_tokens);
        k->n_rows += end > first ? (int32_t)(end - first) : 0;
    }
    int32_t T = k->n_rows, at = 0, n = 0;
    int32_t *rows = by_runner_stage(r, &r->kept_rows, T, 1), *pos = by_runner_stage(r, &k->row_pos, T, 1);
    int32_t *seq = by_runner_stage(r, &k->row_seq, T, 1);
    int32_t *image = by_runner_stage(r, &k->row_image, T, 1);
    int32_t *row0 = by_runner_stage(r, &k->seq_row0, n_seqs + 1, 1), *pos0 = by_runner_stage(r, &k->seq_pos0, n_seqs, 1);
    for (int32_t s = 0; s < n_seqs; at += seqs[s++].n_rows) {
        int64_t start = seqs[s].kv->n_tokens, first = wide(first_kept(r, &seqs[s]), start);
        row0[s] = n;
        pos0[s] = (int32_t)first;
        for (int64_t p = first; p < start + seqs[s].n_rows; p++, n++) {
            rows[n] = at + (int32_t)(p - start);
            pos[n] = (int32_t)p;
            seq[n] = s;
            image[n] = 0;
        }
    }
    row0[n_seqs] = n;
}

static void describe_grams(by_runner *r, const by_step_seq *seqs, int32_t n_seqs) {
    const by_model *m = r->model;
    int n = m->cfg.engram.max_ngram;
    if (m->cfg.engram.n_layers == 0) return;
    int32_t *grams = by_runner_stage(r, &r->grams, r->n_rows, n);
    for (int32_t s = 0; s < n_seqs; s++) {
        int64_t first = seqs[s].kv->n_tokens;
        for (int64_t i = 0; i < seqs[s].n_rows; i++, grams += n) {
            int32_t window[BY_LIMIT_NGRAM];
            int back = first + i < n - 1 ? (int)(first + i) : n - 1; /* tokens in front that exist */
            for (int b = 0; b <= back; b++) window[back - b] = m->compressed[seqs[s].tokens[first + i - b]];
            by_engram_grams(grams, window, back, 1, n, m->engram_pad);
        }
    }
}

/* Numbers of the wanted rows among the rows that reach the last layer. */
static void describe_wanted(by_runner *r, const by_step_seq *seqs, int32_t n_seqs) {
    int32_t n = 0, at = 0;
    for (int32_t s = 0; s < n_seqs; s++) n += seqs[s].want == BY_WANT_ALL ? seqs[s].n_rows : seqs[s].want == BY_WANT_LAST;
    r->n_logits = n;
    int32_t *rows = by_runner_stage(r, &r->rows, n, 1);
    for (int32_t s = 0; s < n_seqs; s++) {
        int64_t start = seqs[s].kv->n_tokens, first = r->compacts ? wide(first_kept(r, &seqs[s]), start) : start;
        int32_t left = (int32_t)wide(start + seqs[s].n_rows - first, 0);
        if (seqs[s].want == BY_WANT_LAST) *rows++ = at + left - 1;
        for (int32_t i = 0; seqs[s].want == BY_WANT_ALL && i < left; i++) *rows++ = at + i;
        at += left;
    }
}

static by_status describe_step(by_runner *r, const by_step_seq *seqs, int32_t n_seqs, by_err *err) {
    BY_TRY(by_runner_stage_begin(r, err));
    describe_rows(r, seqs, n_seqs);
    describe_entries(r, seqs, n_seqs, 1);
    describe_entries(r, seqs, n_seqs, 2);
    describe_kept(r, seqs, n_seqs);
    describe_grams(r, seqs, n_seqs);
    describe_wanted(r, seqs, n_seqs);
    int64_t longest = wide(r->padded_context, 1);
    for (int32_t s = 0; s < n_seqs; s++) longest = wide(longest, seqs[s].kv->n_tokens + seqs[s].n_rows);
    for (int32_t ratio = 1; ratio <= 2; ratio++) r->n_entries_max[ratio] = (int32_t)(longest / ratio);
    return by_runner_stage_send(r, err);
}

by_status by_runner_step(by_runner *r, const by_step_seq *seqs, int32_t n_seqs, by_err *err) {
    BY_TRY(check_step(r, seqs, n_seqs, err));
    int32_t n_all = n_seqs;
    const by_step_seq *all = by_replays_pad(r, seqs, &n_all);
    BY_TRY(describe_step(r, all, n_all, err));
    if (!r->padded_context) {
        r->n_own_rows = r->n_rows;
        r->n_own_logits = r->n_logits;
    }
    BY_TRY(r->padded_context ? by_replays_run(r, err) : by_graph_run(r, err));
    BY_TRY(by_runner_problem(r, err));
    for (int32_t s = 0; s < n_seqs; s++) seqs[s].kv->n_tokens += seqs[s].n_rows;
    return BY_OK;
}

by_status by_runner_problem(by_runner *r, by_err *err) { return by_host_experts_problem(r->host, err); }

/* ---- scratch memory of operators ------------------------------------------------------------------------------- */

/* A step of n_rows rows at the end of sequences as long as they may be, in slot 0, which nobody reads. */
static by_status measure_step(by_runner *r, int32_t n_rows, by_want want, const int32_t *tokens, by_kv_seq *kv, by_step_seq *seqs, by_err *err) {
    int32_t n = 0;
    for (int64_t left = n_rows; left > 0 && n < r->opts.max_seqs; n++) {
        int64_t rows = left < r->opts.max_context ? left : r->opts.max_context;
        kv[n] = (by_kv_seq){.n_tokens = r->opts.max_context - rows};
        seqs[n] = (by_step_seq){.kv = &kv[n], .tokens = tokens, .n_rows = (int32_t)rows, .want = want};
        left -= rows;
    }
    r->padded_context = 0;
    BY_TRY(describe_step(r, seqs, n, err));
    return by_graph_run(r, err);
}

by_status by_runner_reserve(by_runner *r, by_err *err) {
    by_runner_tap *tap = r->tap;
    BY_TRY(by_host_experts_reserve(r->host, err));
    if (!by_device_measure_begin(r->model->dev)) return BY_OK;
    int32_t *tokens = by_alloc_zero(BY_MEM_MODEL, by_mul_size((size_t)r->opts.max_context, sizeof *tokens));
    by_kv_seq *kv = by_alloc_zero(BY_MEM_MODEL, (size_t)r->opts.max_seqs * sizeof *kv);
    by_step_seq *seqs = by_alloc_zero(BY_MEM_MODEL, (size_t)r->opts.max_seqs * sizeof *seqs);
    by_status status = tokens && kv && seqs ? BY_OK : BY_FAIL(err, BY_ENOMEM, "out of memory for measuring a step");
    r->tap = NULL;
    r->measures = true;
    if (status == BY_OK) status = measure_step(r, r->opts.max_rows, BY_WANT_LAST, tokens, kv, seqs, err);
    if (status == BY_OK) status = measure_step(r, r->opts.max_logits, BY_WANT_ALL, tokens, kv, seqs, err);
    if (status == BY_OK && r->opts.n_drafts) status = by_runner_measure_drafts(r, err);
    r->measures = false;
    by_err own;
    by_status end = by_device_measure_end(r->model->dev, status == BY_OK ? err : &own);
    r->tap = tap;
    by_free(tokens);
    by_free(kv);
    by_free(seqs);
    return status == BY_OK ? end : status;
}

by_tensor by_runner_logits(const by_runner *r) { return by_first(r->buf.logits, r->n_own_logits); }

by_status by_runner_read_logits(const by_runner *r, int32_t i, float *dst, by_err *err) {
    if (i < 0 || i >= r->n_own_logits) return BY_FAIL(err, BY_EINVAL, "row %d of %d rows of logits", i, r->n_own_logits);
    const by_tensor *l = &r->buf.logits;
    BY_TRY(by_mem_read(dst, l->mem, (size_t)(l->off + i * l->stride), (size_t)l->cols * 4, err));
    return by_host_experts_problem(r->host, err);
}

by_tensor by_runner_marks(const by_runner *r, by_marks_place place) {
    by_tensor t = r->marks[place];
    if (r->padded_context && t.rows > r->n_own_rows) t.rows = r->n_own_rows;
    return t;
}

by_tensor by_runner_routing(const by_runner *r) { return by_first(r->buf.idx, r->compacts ? r->kept.n_rows : r->n_rows); }

void by_runner_set_tap(by_runner *r, by_runner_tap *tap, void *arg) {
    r->tap = tap;
    r->tap_arg = arg;
}
