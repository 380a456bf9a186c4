/* bench_kernels.h - one operator at the model's true dimensions, as `bathyc bench kernels` times it: its tensors, and the
 * bytes and operations that no implementation can avoid. */
#ifndef BY_CLI_BENCH_KERNELS_H
#define BY_CLI_BENCH_KERNELS_H

#include "ops/ops.h"

enum { BY_KERNEL_MEMS = 48 };

/* What the operators of a run share. Weights are windows of one large block of bytes that are numbers in every weight
 * format; the window moves from call to call, so that no cache holds what the next call reads. */
typedef struct by_kernel_ctx {
    by_device *dev;
    by_mem *weights, *scales;
    int64_t weight_bytes;
    int64_t at; /* where the next window starts */
    by_mem *mems[BY_KERNEL_MEMS]; /* of the operator at hand */
    int n_mems;
} by_kernel_ctx;

typedef struct by_kernel {
    const char *op, *name;
    int64_t weight_bytes; /* stored bytes of its weights, scales included */
    double bytes, flops;  /* of one call: weights and activations read or written once; two operations per multiply-add */
    bool bf16_dot;        /* its products are quantised values times FP8 or FP4: the bf16 instruction is the limit */
    by_status (*call)(by_kernel_ctx *c, struct by_kernel *k, by_err *err);
    union {
        by_matmul_args matmul;
        by_moe_args moe;
        by_router_args router;
        by_attention_args attention;
        by_index_query_args index_query;
        by_index_select_args index_select;
        by_hc_mix_args hc_mix;
        by_hc_post_args hc_post;
        by_rmsnorm_args rmsnorm;
        by_act8_args act8;
        by_rope_args rope;
        by_window_kv_args window_kv;
        by_engram_gate_args engram_gate;
    } a;
    by_expert *experts; /* moe */
} by_kernel;

/* How many there are; the operator and name of number i. */
int by_kernel_count(void);
const char *by_kernel_name(int i, const char **op);
/* Bytes of weights of number i: the shared block must be larger. */
int64_t by_kernel_weight_bytes(int i);

/* Makes number i for `rows` rows, deployed numerics. Its memory belongs to c until by_kernel_drop.
 * Errors: BY_ENOMEM and those of by_mem_alloc. */
by_status by_kernel_make(by_kernel *out, by_kernel_ctx *c, int i, int64_t rows, by_err *err);
void by_kernel_drop(by_kernel *k, by_kernel_ctx *c);

#endif
