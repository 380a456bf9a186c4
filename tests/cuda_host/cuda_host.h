/* cuda_host.h - runs CUDA kernels on the host, one thread of the device at a time: what the stand-ins for the CUDA headers in this
 * folder are made of. README.md says what that proves and what it does not.
 *
 * A thread of a block is a fiber with a stack of its own. It runs until it waits for others (a barrier, a warp's exchange, an
 * mbarrier) or ends; then the next one runs. The blocks of a cluster are there together, clusters run one after another. A
 * launch returns when the grid is through. Kernels run in the host thread that waits for them, one at a time. Mistakes that are
 * seen (a barrier that nobody can pass, a lane that is missing in an exchange, shared memory beyond what was asked for) print
 * what and where, and abort.
 *
 * Environment: CUDA_HOST_SEED=N picks the next fiber, and the order of the clusters, at random; CUDA_HOST_SM=100 shows a device
 * without the warpgroup's matrix instruction, where the plain kernels run. CUDA_HOST_STREAMS says when queued work runs:
 *   now    (default) while it is queued
 *   late   when somebody waits for it, and no more than that somebody waits for
 *   rush   at once on every stream but the first one made, late there: what the others do not wait for has not run yet
 * CUDA_HOST_CHAIN=early: in front of depend_wait a kernel finds 0xff where the kernels before it, as far as they may still run, have
 * written, and may not write there.
 * CUDA_HOST_LAUNCHED=FILE: the names of the kernels that ran, one a line, at the end of the program. */
#ifndef BY_CUDA_HOST_H
#define BY_CUDA_HOST_H

#include <stddef.h>
#include <stdint.h>

namespace cuda_host {

struct size3 {
    unsigned x, y, z;
};
/* Whether the device would take this shape of a launch. `name` is the kernel's address. */
bool accepts(size3 grid, size3 block, unsigned cluster, size_t smem_bytes, const void *name);
/* Kernel `call(with)` once for each thread. chained: it may start before the kernel before it has ended (cuda_host_chain.cpp). */
void run(size3 grid, size3 block, unsigned cluster, size_t smem_bytes, bool chained, const void *name, void (*call)(const void *),
         const void *with);
/* Most dynamic shared memory that kernels at `name` may ask for. */
bool allow_smem(const void *name, size_t bytes);

/* ---- inside of kernels ------------------------------------------------------------------------------------------ */

/* The block's dynamic shared memory, of any type. */
struct dynamic {
    void *p;
    template <class T> operator T *() const { return static_cast<T *>(p); }
};
dynamic dynamic_smem();
/* One array of its own for each block of a cluster. */
dynamic static_smem(size_t bytes);

/* All threads of the block that have not ended; the OR of what they bring. */
int block_barrier(int bits);
/* `threads` threads of the block, at barrier `id`. */
void named_barrier(int id, int threads);
void cluster_arrive();
void cluster_wait();
unsigned cluster_rank(), cluster_size();

/* Exchanges of a warp: each lane of `mask` brings a value and an argument, and gets its answer. */
enum warp_op { WARP_SYNC, WARP_INDEX, WARP_UP, WARP_DOWN, WARP_XOR, WARP_BALLOT, WARP_SUM, WARP_MAX };
uint64_t warp_exchange(warp_op op, unsigned mask, uint64_t value, int arg, int width);
/* WARP_SUM, WARP_MAX: what exchanges with the lanes 16, 8, 4, 2 and 1 away give, bit for bit. All 32 lanes. */
float warp_reduce(warp_op op, float v);

/* Shared memory by the device's 32-bit addresses: those of this block, or of block `rank` of the cluster. */
uint32_t shared_address(const void *p);
uint32_t remote_address(uint32_t addr, uint32_t rank);
unsigned char *shared_at(uint32_t addr, size_t bytes);

void mbar_init(uint32_t bar, int count);
void mbar_arrive(uint32_t bar, int tx_bytes);
void mbar_complete(uint32_t bar, int tx_bytes);
void mbar_wait(uint32_t bar, uint32_t parity);

/* Chained launches: this thread needs what the kernels before have written; the next kernel may start. */
void depend_wait();
void depend_launch();

/* Copies of this thread that happen when they are waited for, as late as the device may. */
void copy_later(uint32_t dst, const void *src, int bytes);
void copy_commit();
void copy_wait(int groups_left);

/* What a warp's lanes lay out for one another between two exchanges: 4 words each; alternates between two boards. */
uint32_t (*board())[4];

[[noreturn]] void fail(const char *what);

/* ---- what the kernels before have written: cuda_host_chain.cpp --------------------------------------------------- */

bool chain_checks();
/* Memory of the device, page by page. */
void *chain_map(size_t n);
void chain_unmap(void *p);
/* A kernel begins and ends; early: it let the next one start without having waited itself. */
void chain_begin(bool chained);
void chain_end(bool early);
/* Hides what a thread must not read yet, for the blocks that begin; shows it again. False: nothing is hidden. */
bool chain_hide();
void chain_show();
/* The stream does something else than a kernel: what follows waits for all. */
void chain_cut();

} // namespace cuda_host

#endif
