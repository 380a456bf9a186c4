/* runner_draft.c - one draft call: describes the blocks, runs them, and goes along the Markov chain. */
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "model/runner_impl.h"

int32_t by_runner_draft_seqs(const by_runner *r) { return r->max_draft_seqs; }

static by_status check_draft(const by_runner *r, const by_draft_seq *seqs, int32_t n, int32_t K, by_err *err) {
    if (n < 1 || n > r->max_draft_seqs)
        return BY_FAIL(err, BY_EINVAL, "drafts for %d sequences, the runner holds 1..%d", n, r->max_draft_seqs);
    if (K < 1 || K > r->opts.n_drafts) return BY_FAIL(err, BY_EINVAL, "%d drafts, the runner holds 1..%d", K, r->opts.n_drafts);
    for (int32_t s = 0; s < n; s++)
        if (seqs[s].token < 0 || seqs[s].token >= r->model->cfg.vocab_size || seqs[s].position < 0 || seqs[s].position > INT32_MAX - K)
            return BY_FAIL(err, BY_EINVAL, "draft behind token %d at position %lld", seqs[s].token, (long long)seqs[s].position);
    return BY_OK;
}

/* Blocks as a step of K rows per sequence. */
static void describe_block(by_runner *r, const by_draft_seq *seqs, int32_t n, int32_t K) {
    by_batch *b = &r->draft_block;
    int32_t T = n * K, at = 0;
    *b = (by_batch){.n_rows = T, .n_seqs = n};
    int32_t *pos = by_runner_stage(r, &b->row_pos, T, 1), *seq = by_runner_stage(r, &b->row_seq, T, 1);
    int32_t *image = by_runner_stage(r, &b->row_image, T, 1), *ids = by_runner_stage(r, &r->ids, T, 1);
    int32_t *row0 = by_runner_stage(r, &b->seq_row0, n + 1, 1), *pos0 = by_runner_stage(r, &b->seq_pos0, n, 1);
    int32_t *slot = by_runner_stage(r, &b->seq_slot, n, 1), *from = by_runner_stage(r, &r->valid_from, n, 1);
    int32_t *order = by_runner_stage(r, &r->rows, T, 1);
    for (int32_t s = 0; s < n; s++) {
        row0[s] = at;
        pos0[s] = (int32_t)seqs[s].position;
        slot[s] = seqs[s].slot;
        from[s] = seqs[s].from > 0 ? (int32_t)seqs[s].from : 0;
        for (int32_t j = 0; j < K; j++, at++) {
            pos[at] = pos0[s] + j;
            seq[at] = s;
            image[at] = 0;
            ids[at] = j == 0 ? seqs[s].token : r->model->cfg.draft.noise_token_id;
            order[j * n + s] = at;
        }
    }
    row0[n] = at;
}

by_status by_runner_measure_drafts(by_runner *r, by_err *err) {
    int32_t n = r->max_draft_seqs;
    by_draft_seq *seqs = by_alloc_zero(BY_MEM_MODEL, (size_t)n * sizeof *seqs);
    if (!seqs) return BY_FAIL(err, BY_ENOMEM, "out of memory for measuring drafts");
    for (int32_t s = 0; s < n; s++) seqs[s].position = r->opts.max_context - 1;
    by_tensor prev;
    by_status status = by_runner_stage_begin(r, err);
    if (status == BY_OK) describe_block(r, seqs, n, r->opts.n_drafts);
    if (status == BY_OK) memset(by_runner_stage(r, &prev, n, 1), 0, (size_t)n * 4);
    if (status == BY_OK) status = by_runner_stage_send(r, err);
    if (status == BY_OK) status = by_graph_run_block(r, err);
    if (status == BY_OK) status = by_graph_run_markov(r, prev, 0, err);
    by_free(seqs);
    return status;
}

/* Both halves of each, when all drafts are chosen: until then the device waits for nobody but who chooses. With `drawn` also what the
 * device drew. */
static by_status read_answers(by_runner *r, int32_t n, int32_t K, float *conf, int32_t *drawn, by_err *err) {
    by_tensor t = r->draft_buf.conf;
    const float *from_u = r->conf_halves, *from_e = from_u + (int64_t)n * K;
    size_t bytes = (size_t)(n * K) * (drawn ? 16 : 8);
    BY_TRY(by_mem_read(r->conf_halves, t.mem, (size_t)t.off, bytes, err)); /* one value a row: stride 4 */
    for (int32_t s = 0; s < n; s++)
        for (int32_t j = 0; j < K; j++) conf[(int64_t)s * K + j] = from_u[j * n + s] + from_e[j * n + s];
    for (int32_t j = 0; drawn && j < K; j++) memcpy(drawn + (int64_t)j * n, from_e + (int64_t)n * K + (2 * j + 1) * n, (size_t)n * 4);
    return by_runner_problem(r, err); /* the block is through: its experts have answered */
}

static by_status check_ids(const by_runner *r, int32_t j, const int32_t *ids, int32_t n, int32_t least, by_err *err) {
    for (int32_t s = 0; s < n; s++)
        if (ids[s] < least || ids[s] >= r->model->cfg.vocab_size)
            return BY_FAIL(err, BY_EINVAL, "draft %d: id %d is outside 0..%d", j, ids[s], r->model->cfg.vocab_size - 1);
    return BY_OK;
}

/* Draft after draft, each chosen by who is asked before the next is computed. */
static by_status pick_drafts(by_runner *r, by_tensor prev, int32_t K, const by_draft_picker *p, by_err *err) {
    int32_t n = (int32_t)prev.rows, *ids = r->draft_ids;
    for (int32_t j = 0; j < K; j++) {
        if (j > 0) BY_TRY(by_mem_write(r->meta, (size_t)prev.off, ids, (size_t)n * 4, err));
        BY_TRY(by_graph_run_markov(r, prev, j * n, err));
        BY_TRY(p->pick(p->arg, j, by_tensor_rows(r->draft_buf.logits, j * n, n), ids, err));
        BY_TRY(check_ids(r, j, ids, n, 0, err));
    }
    return BY_OK;
}

/* All of them behind one another: the ids stay on the device. */
static by_status queue_drafts(by_runner *r, by_tensor prev, int32_t K, const by_draft_picker *p, by_err *err) {
    int32_t n = (int32_t)prev.rows;
    by_tensor conf = r->draft_buf.conf;
    for (int32_t j = 0; j < K; j++) {
        by_tensor ids = by_tensor_make(conf.mem, conf.off + (2 * (int64_t)K + 2 * j) * n * 4, BY_I32, 2, n);
        BY_TRY(by_graph_run_markov(r, prev, j * n, err));
        BY_TRY(p->queue(p->arg, j, by_tensor_rows(r->draft_buf.logits, j * n, n), ids, err));
        prev = by_tensor_make(ids.mem, ids.off, BY_I32, n, 1);
    }
    return BY_OK;
}

by_status by_runner_draft(by_runner *r, const by_draft_seq *seqs, int32_t n, int32_t n_drafts, const by_draft_picker *picker, float *conf,
                          by_err *err) {
    BY_TRY(check_draft(r, seqs, n, n_drafts, err));
    BY_TRY(by_runner_stage_begin(r, err));
    describe_block(r, seqs, n, n_drafts);
    by_tensor prev;
    int32_t *first = by_runner_stage(r, &prev, n, 1), *ids = r->draft_ids;
    for (int32_t s = 0; s < n; s++) first[s] = ids[s] = seqs[s].token;
    BY_TRY(by_runner_stage_send(r, err));
    BY_TRY(by_graph_run_block(r, err));
    BY_TRY(picker->queue ? queue_drafts(r, prev, n_drafts, picker, err) : pick_drafts(r, prev, n_drafts, picker, err));
    BY_TRY(read_answers(r, n, n_drafts, conf, picker->queue ? picker->drawn : NULL, err));
    for (int32_t j = 0; picker->queue && j < n_drafts; j++) BY_TRY(check_ids(r, j, picker->drawn + (int64_t)j * n, n, -1, err));
    return BY_OK;
}
