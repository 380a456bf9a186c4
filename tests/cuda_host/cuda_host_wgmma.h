/* cuda_host_wgmma.h - the matrix instruction of cuda_wgmma.cuh for kernels that run on the host. Each thread computes its own elements of
 * the product: rows g and g + 8 of its warp's 16, columns 8 i + 2 c and the next. A sum gets its 16 products in ascending order of k;
 * the device's own order is not known. The product is complete at once. */
#ifndef BY_CUDA_HOST_WGMMA_H
#define BY_CUDA_HOST_WGMMA_H

#include "cuda_host/cuda_host_ptx.h"

/* Instructions of whole warps: where one lane is through, the others are. */
static inline void wgmma_fence() { __syncwarp(); }
static inline void wgmma_commit() { __syncwarp(); }
template <int N> static inline void wgmma_wait() { __syncwarp(); }
template <int N> static inline void wgmma_done(float (&)[N]) {}

/* bf16 at byte `off` behind the descriptor's address, which the hardware swizzles: bits 4..6 of an address xor bits 7..9. */
static inline float cuda_host_operand(uint64_t desc, uint32_t off) {
    uint32_t at = (static_cast<uint32_t>(desc & 0x3fff) << 4) + off;
    at ^= (at >> 7 & 7) << 4;
    return cuda_host_bf16(cuda_host_load<uint16_t>(at));
}
/* Row r, k of an operand whose rows are k: groups of 8 rows of 128 bytes. */
static inline uint32_t cuda_host_row(uint64_t desc, int r, int k) {
    return static_cast<uint32_t>(r / 8) * (static_cast<uint32_t>(desc >> 32 & 0x3fff) << 4) + static_cast<uint32_t>(r % 8 * 128 + k * 2);
}
/* All 16 k of row r: two pieces of 16 bytes, which the swizzle leaves whole. */
static inline void cuda_host_operand_row(float (&v)[16], uint64_t desc, int r) {
    for (int half = 0; half < 2; half++) {
        uint32_t at = (static_cast<uint32_t>(desc & 0x3fff) << 4) + cuda_host_row(desc, r, 8 * half);
        uint16_t piece[8];
        memcpy(piece, cuda_host::shared_at(at ^ (at >> 7 & 7) << 4, 16), 16);
        for (int i = 0; i < 8; i++) v[8 * half + i] = cuda_host_bf16(piece[i]);
    }
}
/* Column n, k of an operand whose rows are the columns: blocks of 64 columns, groups of 8 k. */
static inline uint32_t cuda_host_column(uint64_t desc, int n, int k) {
    return static_cast<uint32_t>(n / 64) * (static_cast<uint32_t>(desc >> 16 & 0x3fff) << 4) +
           static_cast<uint32_t>(k / 8) * (static_cast<uint32_t>(desc >> 32 & 0x3fff) << 4) + static_cast<uint32_t>(k % 8 * 128 + n % 64 * 2);
}

template <int N, int TB> static inline void cuda_host_multiply(float (&d)[N / 2], const float (&a)[2][16], uint64_t desc) {
    int c = static_cast<int>(threadIdx.x & 3);
    for (int i = 0; i < N / 4; i++) {
        int n = i / 2 * 8 + c * 2 + i % 2, at = i / 2 * 4 + i % 2;
        float b[16];
        for (int k = 0; k < 16 && TB; k++) b[k] = cuda_host_operand(desc, cuda_host_column(desc, n, k));
        if (!TB) cuda_host_operand_row(b, desc, n);
        for (int k = 0; k < 16; k++) {
            d[at] += a[0][k] * b[k]; /* exact products */
            d[at + 2] += a[1][k] * b[k];
        }
    }
}
template <int N> static inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t desc) {
    uint32_t(*board)[4] = cuda_host::board();
    int lane = static_cast<int>(threadIdx.x & 31);
    memcpy(board[lane], a, sizeof a);
    __syncwarp();
    float rows[2][16];
    for (int k = 0; k < 16; k++)
        for (int r = 0; r < 2; r++) rows[r][k] = cuda_host_bf16(board[lane / 4 * 4 + k % 8 / 2][k / 8 * 2 + r] >> k % 2 * 16 & 0xffff);
    cuda_host_multiply<N, 0>(d, rows, desc);
}
template <int N, int TB> static inline void wgmma_ss(float (&d)[N / 2], uint64_t a, uint64_t b) {
    int lane = static_cast<int>(threadIdx.x & 31), row = static_cast<int>(threadIdx.x / 32 % 4) * 16 + lane / 4;
    float rows[2][16];
    for (int r = 0; r < 2; r++) cuda_host_operand_row(rows[r], a, row + 8 * r);
    cuda_host_multiply<N, TB>(d, rows, b);
}

#endif
