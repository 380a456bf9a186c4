// cuda_image.cuh - makes images of activations (see cuda_gemm.cuh): A8 or bf16 rows, optionally gathered, to bf16 in the
// operand's order. One thread makes the 16 values of one matrix instruction of one row.
#ifndef BY_OPS_CUDA_IMAGE_CUH
#define BY_OPS_CUDA_IMAGE_CUH

#include "ops/cuda/cuda_gemm.cuh"

/* src [rows, K] A8 (weight kinds FP8 and FP4) or BF16 (kind BF16). row r of the image is src row map[r]; negative = zeros
 * (map NULL: r). rows_out: rows of the image; rows beyond src.rows are zeros. n_map, if not NULL: device count of rows that
 * matter. */
template <int WT> __global__ void image_kernel(view src, const int32_t *map, const int32_t *n_map, int rows_out, image to) {
    constexpr int KS = kind<WT>::K, PER = KS / 16;
    depend_wait();
    depend_launch(); /* after the wait: what came before this kernel is complete for the next one too */
    int K = src.cols, steps = K / 16;
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x, r = i / steps;
    if (r >= rows_out || (n_map && r >= *n_map)) return;
    int step = static_cast<int>(i % steps), stage = step / PER, s = step % PER; /* s: which 16 values of the stage */
    int64_t from_row = map ? map[r] : r < src.rows ? r : -1;
    uint32_t out[8] = {};
    if (from_row >= 0) {
        const unsigned char *p = src.row(from_row);
        if constexpr (WT == W_BF16) {
#pragma unroll
            for (int c = 0; c < 4; c++) { /* channels 32 (s/2) + 8 c + 4 (s%2) .. + 3 of the stage */
                const uint32_t *q = reinterpret_cast<const uint32_t *>(p + 2 * (stage * KS + s / 2 * 32 + c * 8 + s % 2 * 4));
                out[c] = q[0];
                out[4 + c] = q[1];
            }
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                uint32_t m, w;
                if (WT == W_FP8) { /* bytes 16 c + 4 s .. + 3: (0, 2) then (1, 3) */
                    int k = stage * KS + c * 16 + s * 4;
                    w = *reinterpret_cast<const uint32_t *>(p + k);
                    m = p[K + k / 32];
                } else { /* channels 32 c + 8 (s/2) + 2 (s%2) + {0, 4}, {1, 5} */
                    int k = stage * KS + c * 32 + s / 2 * 8 + s % 2 * 2;
                    uint32_t a = *reinterpret_cast<const uint16_t *>(p + k), b = *reinterpret_cast<const uint16_t *>(p + k + 4);
                    w = a | b << 16; /* bytes a0 a1 b0 b1: (0, 2) = (a0, b0), (1, 3) = (a1, b1) */
                    m = p[K + k / 32];
                }
                /* E4M3 in bf16 is 2^-120 too small; two exact steps, since 2^120 times the scale may not fit bf16 */
                uint32_t lo, hi;
                expand_fp8(w, 0x7b807b80u, lo, hi);
                uint32_t scale = m << 7 | m << 23;
                if (m == 0) scale = 0x00400040u;
                out[c] = mul_bf16x2(lo, scale);
                out[4 + c] = mul_bf16x2(hi, scale);
            }
        }
    }
    unsigned char *at = to.p + (static_cast<int64_t>(stage) * kind<WT>::BLOCKS + s / 4) * to.block_stride;
    int place = s % 4 * 16;
    *reinterpret_cast<uint4 *>(at + image_offset(r, place)) = make_uint4(out[0], out[1], out[2], out[3]);
    *reinterpret_cast<uint4 *>(at + image_offset(r, place + 8)) = make_uint4(out[4], out[5], out[6], out[7]);
}

template <int WT>
static inline void make_image(by_cuda *c, const by_tensor &src, const int32_t *map, const int32_t *n_map, int64_t rows_out,
                              image to) {
    int64_t n = rows_out * (src.cols / 16);
    by_cuda_chain(c, image_kernel<WT>, dim3(static_cast<unsigned>((n + 255) / 256)), 256, 0, 1, view_of(src), map, n_map,
                  static_cast<int>(rows_out), to);
}

#endif
