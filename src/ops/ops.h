/* ops.h - devices, buffers and the operator table: the only door between the model and a backend.
 *
 * A device owns memory (by_mem handles) and runs operators in order on its stream. The host never dereferences device
 * memory: it uploads with by_mem_write, runs operators, and downloads with by_mem_read. An operator takes one struct of
 * tensors and plain numbers; it may run in parallel inside, and is complete, as far as later operators can see, when it
 * returns. Every backend gives a row the same value whatever other rows share the call (batch invariance), and every CPU
 * backend whatever the thread count: one fixed reduction order per output element.
 *
 * Rows. All operators work on T rows of one step: any number of sequences, each with a run of consecutive rows (a prefill
 * chunk, or one decode row). by_batch describes that in device memory.
 *
 * Numerics. The activation dtype says where values are rounded: F32 (exact and quantised numerics) or BF16 (deployed); an
 * operator computes in fp32 inside and rounds once when it stores. Quantised activations are A8 tensors.
 *
 * Thread rule: one thread uses a device at a time. Backends: ref (plain C, the slow twin of everything), guard (ref on
 * memory that is inaccessible between operators), cpu, cuda. */
#ifndef BY_OPS_OPS_H
#define BY_OPS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* ---- types ---------------------------------------------------------------------------------------------------- */

typedef enum by_dtype {
    BY_F32,
    BY_BF16,
    BY_I32,
    BY_I64,
    BY_U8,
    BY_A8,       /* activation rows: cols E4M3 bytes, then cols / 32 UE8M0 scales */
    BY_FP8_TILE, /* weight [n, k] E4M3, scale [ceil(n/32), k/32] UE8M0 in a second tensor */
    BY_FP8_ROW,  /* table rows: cols E4M3, scale [rows, cols/32] in a second tensor */
    BY_FP4_ROW,  /* weight [n, k] E2M1, two a byte (even column low), scale [n, k/32] in a second tensor */
    BY_IX4       /* index query rows: per head cols/2 bytes E2M1 then cols/32 UE8M0; cols = width of one head */
} by_dtype;

/* Bytes of one row of `cols` values; weights without their scales. */
int64_t by_dtype_row_bytes(by_dtype t, int64_t cols);
const char *by_dtype_name(by_dtype t);

typedef struct by_device by_device;
typedef struct by_mem by_mem;

/* A view of rows in a buffer: row r starts at off + r * stride bytes. mem NULL = absent. */
typedef struct by_tensor {
    by_mem *mem;
    int64_t off, stride;
    int64_t rows, cols;
    by_dtype dtype;
} by_tensor;

/* A weight [n, k] as stored; scale.mem NULL for BF16 and F32. */
typedef struct by_weight {
    by_tensor w, scale;
} by_weight;

/* ---- devices and memory --------------------------------------------------------------------------------------- */

typedef enum by_backend { BY_BACKEND_REF, BY_BACKEND_CPU, BY_BACKEND_CUDA, BY_BACKEND_GUARD } by_backend;

typedef struct by_device_opts {
    by_backend backend;
    int32_t n_threads; /* CPU backends; 0 = by_pool's default */
    const char *isa;   /* cpu: highest instruction set to use ("avx2", ...), NULL = best */
    int64_t memory_bytes; /* most device memory that by_mem handles may take together; 0 = see memory_share */
    double memory_share;  /* the same as a share of the card's memory, in (0, 1]; what others use of it at the time counts too. 0 = 0.9 on
                           * a device with its own memory. Elsewhere it means nothing: no limit */
} by_device_opts;

/* Errors: BY_EUNSUPPORTED (backend not in this build or no such device), BY_ENOMEM, BY_EINVAL. */
by_status by_device_open(by_device **out, const by_device_opts *opts, by_err *err);
/* NULL is allowed; all memory of the device must have been freed (asserted). */
void by_device_close(by_device *dev);
const char *by_device_name(const by_device *dev);
by_backend by_device_backend(const by_device *dev);
int32_t by_device_threads(const by_device *dev);

/* Between the two calls operators compute nothing that needs scratch memory: they say how much they would take, and the second call
 * makes room for the largest. What they write then is of no use. Sizes follow from shapes, so that a step of the largest shapes leaves
 * nothing to be allocated by any other. False: the device cannot do this, and nothing has begun. Errors of the end: BY_ENOMEM. */
bool by_device_measure_begin(by_device *dev);
by_status by_device_measure_end(by_device *dev, by_err *err);

/* Bytes per second at which the device streams memory, measured now: the ceiling of what reads weights. Errors: BY_ENOMEM,
 * BY_EDEVICE. */
by_status by_device_read_rate(by_device *dev, double *bytes_per_s, by_err *err);

/* What steady state must not do on a device with its own memory: allocate there, or wait for it other than for an answer; and the bytes
 * of its answers. */
typedef struct by_device_counts {
    uint64_t n_allocs, n_waits, n_read;
} by_device_counts;
by_device_counts by_device_counts_get(const by_device *dev);

/* Where the time of a device with its own memory goes, by its own clock: it works from the first upload behind a
 * wait for an answer until that answer is complete, and is idle until the next. A wait that by_device_rests is called behind does not count:
 * nothing was to be done. All 0 elsewhere. */
typedef struct by_device_pace {
    double busy_s, idle_s;
    uint64_t n_idle;  /* idle times */
    double lap_ms[2]; /* of the newest work: until by_device_lap, and from there on; 0 when that was not called */
} by_device_pace;
by_device_pace by_device_pace_get(const by_device *dev);
void by_device_lap(by_device *dev);
void by_device_rests(by_device *dev);

typedef struct by_device_room {
    int64_t limit; /* bytes that by_mem handles may take together; 0 = no limit */
    int64_t used;  /* by allocated and imported memory, and scratch of operators; what stays on the host does not count */
    int64_t scratch; /* this part of it; 0 on devices that work in host memory */
} by_device_room;
by_device_room by_device_room_get(const by_device *dev);

/* Device memory, 64-byte aligned, zeroed. n >= 1. Errors: BY_ENOMEM (also beyond the device's limit; both numbers). */
by_status by_mem_alloc(by_mem **out, by_device *dev, size_t n, by_err *err);
/* Makes host bytes (a mapped shard) usable by operators: CPU backends use them in place, they must outlive the handle; a device
 * with its own memory copies them. `keep_on_host` asks it not to (Engram tables). by_mem_* may not write them; an operator may where
 * the caller may and the device works in place. */
by_status by_mem_import(by_mem **out, by_device *dev, const void *host, size_t n, bool keep_on_host, by_err *err);
void by_mem_free(by_mem *mem);
size_t by_mem_bytes(const by_mem *mem);

/* Ordered with the operators. write: the source may be reused on return. read: waits. Ranges are asserted. */
by_status by_mem_write(by_mem *mem, size_t off, const void *src, size_t n, by_err *err);
by_status by_mem_read(void *dst, const by_mem *mem, size_t off, size_t n, by_err *err);
by_status by_mem_zero(by_mem *mem, size_t off, size_t n, by_err *err);
/* dst and src must not overlap. */
by_status by_mem_copy(by_mem *dst, size_t dst_off, const by_mem *src, size_t src_off, size_t n, by_err *err);

/* Host access to n bytes at off without a copy where the device allows it: *ptr is valid until by_mem_unview, during which
 * no operator may run. For reading; a device with its own memory copies to a buffer of the handle. */
by_status by_mem_view(const void **ptr, by_mem *mem, size_t off, size_t n, by_err *err);
void by_mem_unview(by_mem *mem);
/* Makes views of up to n bytes allocate nothing. Errors: BY_ENOMEM. */
by_status by_mem_view_room(by_mem *mem, size_t n, by_err *err);

/* A description that goes up step after step: two buffers in turn, in memory that a device far away reads by itself while the host fills
 * the other one. On devices that work in host memory it is one buffer and a copy. */
typedef struct by_staging by_staging;
/* For n bytes. Errors: BY_ENOMEM. */
by_status by_staging_create(by_staging **out, by_device *dev, size_t n, by_err *err);
void by_staging_destroy(by_staging *s); /* NULL is allowed; waits for uploads */
/* The buffer to fill next, [n] bytes: the device is done with what was uploaded from it, two uploads ago. Waits if it is not, which
 * n_waits counts. NULL: BY_EDEVICE. */
void *by_staging_next(by_staging *s, by_err *err);
/* Queues the first n bytes of that buffer for `to`, ordered with the operators. They must stay until by_staging_next gives them out again. */
by_status by_staging_upload(by_staging *s, by_mem *to, size_t off, size_t n, by_err *err);

/* ---- work beside the device ------------------------------------------------------------------------------------ */

/* Host memory that operators of dev reach too (pinned), zeroed, 64-byte aligned; freed like any other. by_mem_host: where it lies.
 * Who may touch it when follows from by_device_beside. Errors: BY_ENOMEM. */
by_status by_mem_share(by_mem **out, by_device *dev, size_t n, by_err *err);
void *by_mem_host(const by_mem *shared);

/* A host function that runs while the device goes on: once all that was queued so far is done, rows are copied to shared memory, and
 * then run(arg, which, n) is called on another thread, one call after another in order; it must not use the device. What
 * by_device_join is followed by comes after its return. */
#define BY_BESIDE_COPIES 3
typedef struct by_beside {
    int32_t n_copies;
    struct {
        by_tensor from; /* of the device, rows without gaps */
        by_mem *to;     /* shared memory, from its beginning */
    } copy[BY_BESIDE_COPIES];
    void (*run)(void *arg, int32_t which, int32_t n);
    void *arg;
    int32_t which, n;
} by_beside;

/* Before the first: what it takes (a thread, a stream). More than once is allowed. Errors: BY_ENOMEM, BY_EIO, BY_EDEVICE. */
by_status by_device_beside_init(by_device *dev, by_err *err);
/* At most one between two joins. Errors: BY_EDEVICE; then nothing runs. */
by_status by_device_beside(by_device *dev, const by_beside *what, by_err *err);
/* Does nothing when nothing runs beside. Errors: BY_EDEVICE. */
by_status by_device_join(by_device *dev, by_err *err);

/* ---- recordings ------------------------------------------------------------------------------------------------ */

/* What operators and copies would queue, kept to be queued again as it was: the same tensors, sizes and numbers, whatever the tensors hold by
 * then. Only for devices that run by themselves; others have nothing to gain. */
typedef struct by_recording by_recording;
bool by_device_records(const by_device *dev);
/* Between the two calls what is queued is recorded instead of run. Nothing may wait, allocate, upload or run beside the device there: that
 * fails with BY_EUNSUPPORTED. The end must be called in any case; out NULL drops what was recorded. Errors: BY_EDEVICE, BY_ENOMEM. */
by_status by_device_record_begin(by_device *dev, by_err *err);
by_status by_device_record_end(by_device *dev, by_recording **out, by_err *err);
/* False once memory that it may name is gone: freed, or scratch memory that had to grow. It must not be queued then. */
bool by_recording_stands(const by_recording *r);
by_status by_recording_queue(by_recording *r, by_err *err);
/* NULL is allowed. What was queued may still run. */
void by_recording_drop(by_recording *r);

/* Contiguous tensor over [off, ...) of a buffer. */
by_tensor by_tensor_make(by_mem *mem, int64_t off, by_dtype dtype, int64_t rows, int64_t cols);
/* First n rows; rows [r, r + n). */
by_tensor by_tensor_rows(by_tensor t, int64_t r, int64_t n);

/* ---- draws ------------------------------------------------------------------------------------------------------ */

#define BY_DRAW_WORDS 8
typedef enum by_draw_kind {
    BY_DRAW_SMOOTH, /* r = word * total >> 32 */
    BY_DRAW_MODULO, /* the first word below floor((2^32 - 1) / total) * total, modulo total */
    BY_DRAW_ARGMAX  /* the lowest of the most likely tokens */
} by_draw_kind;

/* One change of a logit in front of a draw. What value is depends on the list that the edit stands in. */
typedef struct by_draw_edit {
    int32_t id;
    float value;
} by_draw_edit;

/* A draw from a row of logits: bit for bit what sample/sample_edit.h, sample_dist.h and sample_pick.h say. */
typedef struct by_draw {
    int32_t row; /* of the logits */
    by_draw_kind kind;
    float inv_t, report_inv_t; /* 1 / temperature of the draw, and of the probability that is reported (equal where tokens are cut) */
    uint32_t words[BY_DRAW_WORDS]; /* of the draw's stream */
    /* Edits, in this order, from edit0 on among those of the call: added to logits (ids distinct); tokens that were seen, with their
     * number in the output (ids distinct); tokens that are not allowed. Then the mask. The row itself stays. */
    int32_t edit0, n_added, n_seen, n_banned;
    float repetition, frequency, presence; /* for those seen */
    const uint32_t *mask; /* host memory: bit id % 32 of word id / 32, 1 = allowed; NULL: all are */
    /* Cuts: a token stays when the mass in front of it is at most mass_most, fewer than n_most are in front of it, and its scaled logit
     * is floor_s or more. */
    bool cuts;
    uint64_t mass_most;
    int32_t n_most;
    float floor_s;
    int32_t n_top; /* likeliest tokens to report, with the report's temperature and this law's cuts */
    /* With `judges` the draft is judged by rejection (sample/sample_verify.h) instead: it stays when `accept`, a uniform number, is below
     * p / q; else the token comes from what p has more than q, with the words. q_row of by_draws.proposed is what the draft was drawn
     * from; q is its law with the same edits and cuts, but without the mask. */
    bool judges;
    int32_t draft, q_row;
    float accept;
} by_draw;
typedef struct by_drawn {
    int32_t id; /* -1: not drawn (a logit is no number, nothing is allowed, or no word would do); the caller looks at the row itself */
    float logit, max; /* of the token, of the row, behind the edits */
    float log_sum;    /* log of the sum over the row of exp((x - max) * report_inv_t) */
    float log_kept;   /* log of what the kept tokens have of it; the log-probability is (logit - max) * report_inv_t - log_sum - log_kept */
    int32_t accepted; /* 1: the judged draft stays */
} by_drawn;
typedef struct by_drawn_top {
    int32_t id;
    float logprob; /* -inf: removed */
} by_drawn_top;
typedef struct by_draws {
    const by_draw *draws; /* [n] */
    int32_t n, n_edits;
    const by_draw_edit *edits; /* [n_edits] */
    by_drawn *out;             /* [n] */
    by_drawn_top *tops;        /* [n, top_stride]: the first n_top of a draw's; NULL when no draw reports any */
    int32_t top_stride;
    by_tensor proposed; /* [.., V] F32: rows that judged drafts were drawn from; absent when none is judged */
    /* Not absent: nobody waits, and out and tops are not written. [2, n] I32 without gaps gets, first, tokens to go on with (any token for
     * what was not drawn), then what was drawn, or -1. */
    by_tensor ids;
    by_tensor also; /* read in the same wait, rows without gaps, to also_to; absent: nothing */
    void *also_to;
} by_draws;

/* Whether by_device_draw works: devices whose memory is far, where rows of logits had better stay. */
bool by_device_draws(const by_device *dev);
/* Makes room for up to n draws of any kind from rows of V logits, with so many edits in all and likeliest tokens each. More can be drawn,
 * but then the device allocates. Errors: BY_ENOMEM, BY_EUNSUPPORTED. */
by_status by_device_draw_room(by_device *dev, int32_t n, int64_t V, int32_t n_edits, int32_t n_top, by_err *err);
/* Draws tokens from rows of logits [.., V] F32, which stay as they are; waits, unless what->ids is there. Errors: BY_ENOMEM, BY_EDEVICE,
 * BY_EUNSUPPORTED. */
by_status by_device_draw(by_device *dev, by_tensor logits, const by_draws *what, by_err *err);

/* ---- the batch and the caches --------------------------------------------------------------------------------- */

/* Device-resident description of a step; the counts are known to the host. All I32, one value a row unless said. */
typedef struct by_batch {
    int32_t n_rows, n_seqs;
    by_tensor row_pos;   /* [n_rows] position in its sequence */
    by_tensor row_seq;   /* [n_rows] index of its sequence in this step */
    by_tensor row_image; /* [n_rows] 1 = the row belongs to a picture */
    by_tensor seq_row0;  /* [n_seqs + 1] first row of each sequence */
    by_tensor seq_pos0;  /* [n_seqs] position of that row: how much the caches hold */
    by_tensor seq_slot;  /* [n_seqs] state slot */
    by_tensor seq_blocks; /* [n_seqs, cols] block table: block id of each run of block_tokens tokens */
} by_batch;

/* How a KV vector is stored. Bytes of a d-wide vector: F32 4d, FP8 d + d/32, FP4 d/2 + d/16, IX4 d/2 + d/32. */
typedef enum by_rec { BY_REC_F32, BY_REC_FP8, BY_REC_FP4, BY_REC_IX4 } by_rec;
int64_t by_rec_bytes(by_rec rec, int64_t d);

/* One layer's ring in the state slots: slot s, position p at off + s * slot_stride + (p mod len) * by_rec_bytes. */
typedef struct by_ring {
    by_mem *mem;
    int64_t off, slot_stride;
    int32_t len;
    by_rec rec;
} by_ring;

/* One part of the block pool: entry e of a sequence lives in block table[e / per_block] at index e mod per_block.
 * Block b's part starts at off + b * block_stride. F32, FP8, FP4: records one after another. IX4: all data (per_block *
 * d/2 bytes), then all scales (per_block * d/32): a scan reads whole cache lines. */
typedef struct by_pages {
    by_mem *mem;
    int64_t off, block_stride;
    int32_t per_block;
    by_rec rec;
} by_pages;

/* Entries that a compressor completes in this step. n may be 0. */
typedef struct by_entries {
    int32_t n;
    by_tensor seq; /* [n] I32: index of the sequence in the step */
    by_tensor idx; /* [n] I32: entry number c in its sequence */
    by_tensor row; /* [n] I32: row of the entry's last token */
} by_entries;

/* ---- operators ------------------------------------------------------------------------------------------------ */

/* cs[i] = (cos, sin) of fp32(pos[i] * pos_scale) * fp32(freq[j]), rounded to fp32 first. Source: model.md 4. */
typedef struct by_rope_table_args {
    by_tensor pos;  /* [n] I32 */
    int32_t scale;  /* position = pos * scale: entries of a ratio-2 compressor use 2 */
    by_tensor freq; /* [r/2] F32 */
    by_tensor cs;   /* [n, r] F32: cos, sin interleaved */
} by_rope_table_args;

/* h[t] = m copies of embed[id[t]]; pre[t] = (1, 0, ...). Rows with id < 0 take image[-id - 1] instead. Ids were checked. */
typedef struct by_embed_args {
    by_tensor ids;   /* [T] I32 */
    by_tensor table; /* [V, D] BF16 */
    by_tensor image; /* [n, D] activation dtype or absent */
    by_tensor h;     /* [T, m * D] */
    by_tensor pre;   /* [T, m] F32 */
    int32_t m;
} by_embed_args;

/* Hyper-connection, reading side. Source: model.md 3; golden ops/hyper_connections.
 * u = sum_i pre[i] h[i] (rounded to the activation dtype), y = rmsnorm(u) * norm. With `out` hc_post comes first, of h and out with post
 * and comb as they are. */
typedef struct by_hc_mix_args {
    by_tensor h;         /* [T, m * D] */
    by_tensor out;       /* [T, D] activation dtype or absent */
    by_tensor pre;       /* [T, m] F32, from the previous sublayer */
    by_tensor fn;        /* [m (m + 2), m * D] F32 or BF16 */
    by_tensor base;      /* [m (m + 2)] F32, one row */
    by_tensor scale;     /* [3] F32, one row */
    by_tensor norm;      /* [D] BF16, one row */
    by_tensor y;         /* [T, D] activation dtype */
    by_tensor y_a8;      /* [T, D] A8 or absent */
    by_tensor next_pre;  /* [T, m] F32; may be `pre` itself */
    by_tensor post;      /* [T, m] F32 */
    by_tensor comb;      /* [T, m * m] F32 */
    int32_t m, iters;
    float norm_eps, hc_eps;
} by_hc_mix_args;

/* Hyper-connection, writing side: h[j] = post[j] * out + sum_i comb[i][j] h[i], in place. */
typedef struct by_hc_post_args {
    by_tensor h;    /* [T, m * D] */
    by_tensor out;  /* [T, D] activation dtype */
    by_tensor post; /* [T, m] F32 */
    by_tensor comb; /* [T, m * m] F32 */
    int32_t m;
} by_hc_post_args;

/* y = sum_i pre[i] h[i], without a norm: what drafts read of the trunk (pre 1/m everywhere: the mean) and their last hidden. */
typedef struct by_hc_read_args {
    by_tensor h;    /* [T, m * D] */
    by_tensor pre;  /* [T, m] F32; stride 0: the same row for all */
    by_tensor rows; /* [n] I32: which rows; absent: all, n = T */
    by_tensor y;    /* [n, D] activation dtype, may be columns of a wider buffer */
    int32_t m;
} by_hc_read_args;

/* y = rmsnorm(sum_i pre[i] h[i]) of chosen rows. The sum is rounded to the activation dtype before the norm. */
typedef struct by_hc_close_args {
    by_tensor h, pre, norm;
    by_tensor rows; /* [n] I32: which rows */
    by_tensor y;    /* [n, D] activation dtype */
    int32_t m;
    float eps;
} by_hc_close_args;

#define BY_MATMUL_PARTS 6
/* y_p = x w_p^T for several weights that share x. With groups G > 1, x is [T, G * k] and output rows g * n/G .. read
 * x columns g * k .. only (block diagonal). Products exact, sums fp32 in an order that depends only on k and dtypes.
 * x F32, BF16 or A8; w FP8_TILE, FP4_ROW, BF16, F32; y F32 or BF16. */
typedef struct by_matmul_args {
    by_tensor x;
    int32_t n_parts, groups;
    struct {
        by_weight w;
        by_tensor y;
    } part[BY_MATMUL_PARTS];
} by_matmul_args;

/* y = rmsnorm(x) * norm; either output may be absent. */
typedef struct by_rmsnorm_args {
    by_tensor x;    /* [T, K] F32 or BF16 */
    by_tensor norm; /* [K] BF16, one row */
    by_tensor y;    /* [T, K] activation dtype or absent; may be x */
    by_tensor y_a8; /* [T, K] A8 or absent */
    float eps;
} by_rmsnorm_args;

/* y += x, both [T, N] F32. */
typedef struct by_add_args {
    by_tensor x, y;
} by_add_args;

/* bad[t] = 1 when a value of row t is not a number or infinite, else 0. */
typedef struct by_check_rows_args {
    by_tensor x;   /* [T, K] F32 or BF16 */
    by_tensor bad; /* [T] I32 */
} by_check_rows_args;

/* x [T, K] F32 or BF16 -> A8. */
typedef struct by_act8_args {
    by_tensor x, y;
} by_act8_args;

/* Rotates the last r channels of each of `heads` vectors of x [T, heads * d], in place. cs [T, r]. */
typedef struct by_rope_args {
    by_tensor x, cs;
    int32_t heads, d;
} by_rope_args;

/* rmsnorm (kv_norm) and rope of the window key, stored as records. Rounds to the activation dtype after each step. What else of a step's
 * rows is as small can come along: rope of the queries, and ring_store where attention does not need what is overwritten. */
typedef struct by_window_kv_args {
    by_tensor x;    /* [T, d] activation dtype: wkv's output */
    by_tensor norm; /* [d] BF16 */
    by_tensor cs;   /* [T, r] */
    by_tensor kv;   /* [T, by_rec_bytes] U8: records of this step's rows */
    by_rec rec;
    float eps;
    by_tensor q; /* [T, heads * d] activation dtype or absent: rotated in place */
    int32_t heads;
    by_ring ring; /* mem NULL: nothing is stored there; else batch and from are those of ring_store */
    by_batch batch;
    by_tensor from;
} by_window_kv_args;

/* Copies the records of the last min(rows, ring.len) rows of each sequence into its ring, except rows at positions below
 * `from`. After attention. */
typedef struct by_ring_store_args {
    by_batch batch;
    by_tensor kv;   /* [T, by_rec_bytes] U8 */
    by_tensor from; /* [n_seqs] I32 or absent (0) */
    by_ring ring;
} by_ring_store_args;

/* y[i] = x[rows[i]], any dtype; y and x do not overlap. Several pairs that share `rows` in one call. */
#define BY_GATHER_PARTS 8
typedef struct by_gather_rows_args {
    by_tensor rows; /* [n] I32 */
    int32_t n_parts;
    struct {
        by_tensor x, y; /* y [n, cols] of x's dtype */
    } part[BY_GATHER_PARTS];
} by_gather_rows_args;

/* Compressor: the entries that this step completes -> latents (normed, not rotated). Source: model.md 6.
 * ratio 1: latent = rmsnorm(v[row]). ratio 2: per channel softmax over the scores of the pair, pooled (rounded to the
 * activation dtype), rmsnorm; the first token of a pair comes from the step or from the tail ring. Then writes the last
 * min(rows, tail_len) tokens' (v, s) to the tail: slot p mod tail_len, d floats of v then d of s. */
typedef struct by_compress_args {
    by_batch batch;
    by_entries entries;
    by_tensor v;      /* [T, d] ratio 1: activation dtype, ratio 2: F32 */
    by_tensor s;      /* [T, d] F32, ratio 2 only */
    by_tensor norm;   /* [d] BF16 */
    by_tensor latent; /* [n entries, d] activation dtype */
    by_mem *tail;     /* ratio 2: slot s, ring place i at tail_off + s * tail_stride + i * 8 d */
    int64_t tail_off, tail_stride;
    int32_t tail_len, ratio;
    float eps;
} by_compress_args;

/* Stores entries: main = rope(latent), index key = rope(rmsnorm(ik; k_norm)). Rounds to the activation dtype in between. */
typedef struct by_entry_store_args {
    by_batch batch;
    by_entries entries;
    by_tensor latent; /* [n, d] */
    by_tensor ik;     /* [n, ix_d] activation dtype: wk's output */
    by_tensor k_norm; /* [ix_d] BF16 */
    by_tensor cs;     /* [n, r] of the entries' positions */
    by_pages main, index;
    float eps;
} by_entry_store_args;

/* Index queries: rope, then the index format. q [T, heads * d] in; out [T, heads * d] F32 or IX4 rows [T * heads, d]. */
typedef struct by_index_query_args {
    by_tensor q, cs;
    by_tensor out;
    int32_t heads, d;
} by_index_query_args;

typedef enum by_candidates {
    BY_CAND_NONE,   /* all visible entries */
    BY_CAND_SOURCE, /* all visible entries; also writes the candidate blocks */
    BY_CAND_INSIDE  /* only entries inside the candidate blocks */
} by_candidates;

/* Index scores and top-k. Source: model.md 7; golden ops/indexer. Of equal scores the lower entry wins; +0 and -0 rank
 * equal. sel row: count, then the chosen entries ascending; count -1 = every visible entry (n <= topk). cand row: count,
 * then block numbers ascending; count -1 = all. round_bf16: scores are rounded to bf16 before ranking. */
typedef struct by_index_select_args {
    by_batch batch;
    by_tensor q;       /* index queries as by_index_query_args.out */
    by_tensor weights; /* [T, heads] activation dtype */
    float scale;       /* (heads * d)^-0.5 */
    by_pages keys;
    by_tensor sel;     /* [T, 1 + topk] I32 */
    by_tensor cand;    /* [T, 1 + cand_blocks] I32 or absent */
    by_candidates mode;
    int32_t heads, d, ratio, topk, cand_blocks, cand_block_size;
    bool round_bf16;
    int32_t n_entries_max; /* most visible entries of any row, for scratch */
    by_tensor scores;      /* tests: [T, n_entries_max] F32, every visible entry's score; usually absent */
} by_index_select_args;

/* Attention over window and selected entries, with sinks; un-rotates the result. Source: model.md 5; golden
 * ops/attention. Keys are values too. Order of keys: window by position, then entries ascending. */
typedef struct by_attention_args {
    by_batch batch;
    by_tensor q;    /* [T, heads * d] activation dtype */
    by_tensor cs;   /* [T, r]: the query's rotation, undone on the output */
    by_tensor kv;   /* [T, by_rec_bytes] U8: this step's window records */
    by_ring ring;   /* older window records */
    by_pages main;  /* mem NULL: window only */
    by_tensor sel;  /* as written by index_select */
    by_tensor from; /* [n_seqs] I32 or absent (0): window positions below it are not visible; the window may be empty */
    by_tensor sink; /* [heads] F32, one row */
    by_tensor o;    /* [T, heads * d] A8 or F32 */
    int32_t heads, d, window, ratio;
    float scale;
    int32_t block; /* > 0: draft blocks of at most so many rows; every row of a sequence sees the `window` positions in front of its
                    * sequence's first row and all rows of its sequence, also later ones; window only */
} by_attention_args;

/* Router. Source: model.md 8; golden ops/router. idx in descending order of score + bias, ties by lower expert. */
typedef struct by_router_args {
    by_tensor x;       /* [T, D] activation dtype */
    by_tensor gate;    /* [E, D] BF16 or F32 */
    by_tensor bias;    /* [E] F32, one row */
    by_tensor bias_vl; /* [E] F32 for rows with row_image, or absent */
    by_tensor row_image;
    by_tensor idx;    /* [T, k] I32 */
    by_tensor weight; /* [T, k] F32 */
    int32_t k;
    bool norm_topk;
    float routed_scale;
} by_router_args;

typedef struct by_expert {
    by_weight w1, w3, w2; /* [I, D], [I, D], [D, I] */
} by_expert;

/* Routed and shared experts. Source: model.md 8; golden ops/moe. For each chosen expert (in the order of idx):
 * a = swiglu(w1 x, w3 x) * weight, w2 act8(a) in the activation dtype; summed in fp32 in slot order, then the shared
 * expert (weight 1), stored once. limit 0 = no clamp. quant: act8 in front of w2. */
typedef struct by_moe_args {
    by_tensor x; /* [T, D] A8 or F32 */
    by_tensor idx, weight;
    const by_expert *experts; /* [n_experts], host array of descriptors, constant for the model's life */
    int32_t n_experts;
    const by_expert *shared; /* or NULL */
    by_tensor y;             /* [T, D] activation dtype */
    int32_t inner;           /* I of the routed experts; the shared expert's is its own weight's */
    float limit;
    bool quant;
    by_tensor part; /* absent, or [T * k, D] of y's dtype in shared memory: row t * k + j is the product of row t's choice j where that expert
                     * is absent (its w1.w.mem is NULL). Whatever runs beside the device is joined before it is read */
} by_moe_args;

/* Products of those of the chosen experts that are not absent, of the operator above in front of its sum: row t * k + j of part is
 * w2 act8(a), rounded to part's dtype; rows of absent experts are left. All rows of a token may be NaN when one of them is. For devices that
 * work in host memory; others: BY_EUNSUPPORTED. */
typedef struct by_moe_part_args {
    by_tensor x, idx, weight;
    const by_expert *experts;
    int32_t n_experts, inner;
    by_tensor part; /* [T * k, D] */
    float limit;
    bool quant;
} by_moe_part_args;

/* Engram rows: hash of each row's n-gram, gather, concatenation. Source: model.md 9.3. */
typedef struct by_engram_args {
    by_tensor grams; /* [T, n] I32: compressed ids of positions p, p-1, ..., padded by the host */
    by_tensor mult;  /* [n] I64, one row */
    by_tensor prime; /* [n - 1, heads] I64 */
    by_tensor base;  /* [n - 1, heads] I64: first table row of each column */
    by_weight table; /* [rows, d] FP8_ROW */
    by_tensor e;     /* [T, (n - 1) * heads * d] A8 (bytes taken as they are) or F32 */
    by_tensor row_idx; /* tests: [T, (n - 1) * heads] I64; usually absent */
} by_engram_args;

/* Engram gate and write-back on the streams, in place. Source: model.md 9.4; golden ops/engram gate. */
typedef struct by_engram_gate_args {
    by_tensor h;         /* [T, m * D] */
    by_tensor kv;        /* [T, (m + 1) * D] F32 */
    by_tensor q_weight, k_weight; /* [m, D] BF16 */
    by_tensor row_image; /* rows with 1 keep h */
    int32_t m;
    float eps;
} by_engram_gate_args;

#define BY_OP_TABLE(X)                                                                                                 \
    X(rope_table) X(embed) X(hc_mix) X(hc_post) X(hc_close) X(matmul) X(rmsnorm) X(act8) X(rope) X(window_kv)          \
    X(ring_store) X(compress) X(entry_store) X(index_query) X(index_select) X(attention) X(router) X(moe) X(moe_part) X(engram) \
    X(engram_gate) X(gather_rows) X(hc_read) X(add) X(check_rows)

typedef struct by_ops {
#define BY_OP_FIELD(name) by_status (*name)(by_device *dev, const by_##name##_args *args, by_err *err);
    BY_OP_TABLE(BY_OP_FIELD)
#undef BY_OP_FIELD
} by_ops;

/* by_op_NAME(dev, &args, err): runs an operator. Errors: BY_ENOMEM (scratch), BY_EDEVICE, BY_EUNSUPPORTED (a dtype that
 * this backend has no kernel for). Shapes are asserted. */
#define BY_OP_DECL(name) by_status by_op_##name(by_device *dev, const by_##name##_args *args, by_err *err);
BY_OP_TABLE(BY_OP_DECL)
#undef BY_OP_DECL

/* The table of a device, for tests and for backends that replace some operators of another. */
const by_ops *by_device_ops(const by_device *dev);

#endif
