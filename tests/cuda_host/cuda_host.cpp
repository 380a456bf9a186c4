// cuda_host.cpp - fibers, barriers and memory of the stand-in for a CUDA device. See cuda_host.h.
#include "cuda_host/cuda_host.h"

#include <algorithm>
#include <cxxabi.h>
#include <dlfcn.h>
#include <map>
#include <new>
#include <numeric>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CUDA_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUDA_HOST_ASAN 1
#endif
#endif
#ifdef CUDA_HOST_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "cuda_host/cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_host {

/* ---- fibers ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
extern "C" void cuda_host_switch(void **from, void *to);
asm(".text\n.globl cuda_host_switch\n.type cuda_host_switch,@function\ncuda_host_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n.size cuda_host_switch, .-cuda_host_switch\n");
#endif

struct context {
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t u;
#endif
    char *stack; /* lowest byte; of the host's own stack once it is known */
    size_t bytes;
    void *fake; /* AddressSanitizer's */
};

static void jump(context &from, context &to, bool ends) {
    (void)ends;
#ifdef CUDA_HOST_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake, to.stack, to.bytes);
#endif
#if defined(__x86_64__)
    cuda_host_switch(&from.sp, to.sp);
#else
    swapcontext(&from.u, &to.u);
#endif
#ifdef CUDA_HOST_ASAN
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

struct block;
struct copy {
    uint32_t dst;
    const void *src;
    int bytes, group;
};
enum state { READY, WAITS, ENDED };
struct fiber {
    context at;
    block *of;
    uint3 idx;
    int lane, warp;
    state now;
    const char *why;      /* it waits */
    const void *wait_for; /* an mbarrier */
    unsigned cluster_phase;
    bool waited, launched;   /* depend_wait, depend_launch */
    uint64_t answer;
    std::vector<copy> copies;
    int group;
};

struct warp {
    uint64_t value[32];
    int arg[32], width[32];
    unsigned mask[32], arrived;
    warp_op op[32];
    uint32_t boards[2][32][4];
    unsigned board_of[32];
};
struct named {
    int arrived;
    std::vector<fiber *> waiting;
};
struct block {
    uint3 idx;
    unsigned rank;
    unsigned char *smem;
    int live, arrived, bits, answer;
    std::vector<fiber *> threads;
    std::vector<warp> warps;
    named bar[16];
};

/* Most threads of a cluster, bytes of a stack (the odd lines keep stacks from sharing the same sets of a cache). */
enum { FIBERS_MAX = 8192, SMEM_MAX = 227 << 10, SMEM_SLOT = 256 << 10, SMEM_FIRST = 0x410, STATIC_FIRST = 0x39400, CLUSTER_MAX = 8 };
#ifdef CUDA_HOST_ASAN
enum { STACK = (256 << 10) + 320 };
#else
enum { STACK = (96 << 10) + 320 };
#endif
static const uint64_t CANARY = 0x5ca1ab1e0ddba11ull;

static struct machine {
    std::vector<fiber *> fibers;
    std::vector<block *> blocks;
    std::vector<fiber *> ready;
    size_t head;
    char *stacks;
    unsigned char *smem; /* CLUSTER_MAX slots */
    const unsigned char *statics; /* what STATIC_FIRST stands for in this launch, NULL: nothing yet */
    size_t smem_bytes;
    unsigned n_blocks, cluster_live, cluster_arrived, cluster_phase;
    bool hides, early; /* what the kernels before have written; a thread let the next kernel start without having waited */
    fiber *self;
    context host;
    void (*call)(const void *);
    const void *with, *name;
    uint64_t random;
    std::map<const void *, size_t> allowed;
    ~machine() {
        for (fiber *f : fibers) delete f;
        for (block *b : blocks) delete b;
    }
} g;

static uint64_t next_random() {
    g.random ^= g.random << 13, g.random ^= g.random >> 7, g.random ^= g.random << 17;
    return g.random;
}

static void say_where(const fiber *f) {
    fprintf(stderr, "block (%u, %u, %u) thread (%u, %u, %u)", f->of->idx.x, f->of->idx.y, f->of->idx.z, f->idx.x, f->idx.y, f->idx.z);
}
[[noreturn]] void fail(const char *what) {
    Dl_info info;
    bool known = g.name && dladdr(const_cast<void *>(g.name), &info) && info.dli_sname;
    fprintf(stderr, "cuda_host: kernel %s: ", known ? info.dli_sname : "?");
    if (g.self) say_where(g.self);
    fprintf(stderr, ": %s\n", what);
    abort();
}

static void wake(fiber *f) {
    f->now = READY;
    g.ready.push_back(f);
}
/* In front of the others: a warp goes on until it waits for other warps, so that few stacks are in use at a time. */
static void wake_first(fiber *f) {
    if (g.head == 0) return wake(f);
    f->now = READY;
    g.ready[--g.head] = f;
}
[[noreturn]] static void dead() {
    int shown = 0;
    fprintf(stderr, "cuda_host: nobody can go on; waiting are\n");
    for (const fiber *f : g.fibers) {
        if (f->now != WAITS || ++shown > 40) continue;
        fprintf(stderr, "  ");
        say_where(f);
        fprintf(stderr, " at %s\n", f->why);
    }
    g.self = nullptr;
    fail("it hangs");
}

/* Nobody can go on but those at depend_wait. */
static void show() {
    g.hides = false;
    chain_show();
    for (fiber *f : g.fibers)
        if (f->now == WAITS && f->wait_for == &g.hides) f->wait_for = nullptr, wake(f);
}

/* The next fiber runs; NULL: all have ended. */
static void go_on(bool ends) {
    fiber *before = g.self, *next = nullptr;
    if (g.head == g.ready.size() && g.hides) show();
    if (g.head == g.ready.size()) {
        if (g.cluster_live) dead();
    } else {
        if (g.random) std::swap(g.ready[g.head], g.ready[g.head + next_random() % (g.ready.size() - g.head)]);
        next = g.ready[g.head++];
        if (g.head >= 16384) g.ready.erase(g.ready.begin(), g.ready.begin() + static_cast<long>(g.head)), g.head = 0;
    }
    if (next) next->now = READY;
    if (next == before) return;
    g.self = next;
    jump(before ? before->at : g.host, next ? next->at : g.host, ends);
    if (!g.self) return;
    threadIdx = g.self->idx;
    blockIdx = g.self->of->idx;
}
static void wait(const char *why) {
    g.self->now = WAITS;
    g.self->why = why;
    go_on(false);
}
static void release_block(block &b) {
    b.answer = b.bits;
    b.arrived = b.bits = 0;
    for (fiber *f : b.threads)
        if (f->now == WAITS && f->wait_for == &b) f->wait_for = nullptr, wake(f);
}
static void release_cluster() {
    g.cluster_arrived = 0;
    g.cluster_phase++;
    for (fiber *f : g.fibers)
        if (f->now == WAITS && f->wait_for == &g) f->wait_for = nullptr, wake(f);
}

[[noreturn]]
#ifdef CUDA_HOST_ASAN
__attribute__((no_sanitize_address))
#endif
static void thread_main() {
#ifdef CUDA_HOST_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!g.host.stack) g.host.stack = static_cast<char *>(const_cast<void *>(bottom)), g.host.bytes = bytes; /* the first comes from there */
#endif
    threadIdx = g.self->idx;
    blockIdx = g.self->of->idx;
    g.call(g.with);
    block &b = *g.self->of;
    g.early |= !g.self->waited && !g.self->launched;
    g.self->now = ENDED;
    b.live--;
    g.cluster_live--;
    if (b.arrived && b.arrived == b.live) release_block(b);
    if (g.cluster_live && g.cluster_arrived == g.cluster_live) release_cluster();
    go_on(true);
    abort();
}

static void prepare(fiber &f) {
#ifdef CUDA_HOST_ASAN
    ASAN_UNPOISON_MEMORY_REGION(f.at.stack + f.at.bytes - 2048, 2048); /* functions that the one before left without a return */
#endif
    memcpy(f.at.stack, &CANARY, sizeof CANARY);
#if defined(__x86_64__)
    uintptr_t top = reinterpret_cast<uintptr_t>(f.at.stack + f.at.bytes) & ~static_cast<uintptr_t>(15);
    void **sp = reinterpret_cast<void **>(top) - 1;
    *sp = nullptr;
    *--sp = reinterpret_cast<void *>(thread_main);
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    f.at.sp = sp;
#else
    getcontext(&f.at.u);
    f.at.u.uc_stack.ss_sp = f.at.stack;
    f.at.u.uc_stack.ss_size = f.at.bytes;
    f.at.u.uc_link = nullptr;
    makecontext(&f.at.u, reinterpret_cast<void (*)()>(thread_main), 0);
#endif
    f.now = READY;
    f.wait_for = nullptr;
    f.cluster_phase = 0;
    f.waited = f.launched = false;
    f.copies.clear();
    f.group = 0;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

static void open_machine() {
    if (g.stacks) return;
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(nullptr, static_cast<size_t>(FIBERS_MAX) * STACK, PROT_READ | PROT_WRITE, how, -1, 0);
    void *q = mmap(nullptr, static_cast<size_t>(CLUSTER_MAX) * SMEM_SLOT, PROT_READ | PROT_WRITE, how, -1, 0);
    if (p == MAP_FAILED || q == MAP_FAILED) fail("no memory for stacks");
    g.stacks = static_cast<char *>(p);
    g.smem = static_cast<unsigned char *>(q);
    const char *seed = getenv("CUDA_HOST_SEED");
    g.random = seed ? strtoull(seed, nullptr, 10) * 2654435769u : 0;
}

static void make_threads(size3 dim, unsigned cluster) {
    unsigned n = dim.x * dim.y * dim.z;
    while (g.blocks.size() < cluster) g.blocks.push_back(new block());
    while (g.fibers.size() < static_cast<size_t>(n) * cluster) {
        fiber *f = new fiber();
        f->at.stack = g.stacks + g.fibers.size() * STACK;
        f->at.bytes = STACK;
        g.fibers.push_back(f);
    }
    while (g.fibers.size() > static_cast<size_t>(n) * cluster) {
        delete g.fibers.back();
        g.fibers.pop_back();
    }
    for (unsigned b = 0; b < cluster; b++) {
        block &k = *g.blocks[b];
        k.threads.assign(g.fibers.begin() + b * n, g.fibers.begin() + (b + 1) * n);
        k.warps.assign((n + 31) / 32, warp());
        k.rank = b;
        k.smem = g.smem + b * static_cast<size_t>(SMEM_SLOT);
        for (unsigned i = 0; i < n; i++) {
            fiber &f = *k.threads[i];
            f.of = &k;
            f.idx = {i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
            f.lane = static_cast<int>(i % 32);
            f.warp = static_cast<int>(i / 32);
        }
    }
}

static void run_cluster(size3 grid, unsigned cluster, uint64_t first) {
    g.ready.clear();
    g.head = 0;
    g.cluster_arrived = g.cluster_phase = 0;
    g.cluster_live = static_cast<unsigned>(g.fibers.size());
    for (unsigned r = 0; r < cluster; r++) {
        block &b = *g.blocks[r];
        uint64_t i = first + r;
        b.idx = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y), static_cast<unsigned>(i / grid.x / grid.y)};
        b.live = static_cast<int>(b.threads.size());
        b.arrived = b.bits = 0;
        for (warp &w : b.warps) w.arrived = 0;
        for (named &k : b.bar) k.arrived = 0, k.waiting.clear();
        memset(b.smem + SMEM_FIRST, 0xff, g.smem_bytes); /* nobody may count on what is there */
        for (fiber *f : b.threads) prepare(*f), g.ready.push_back(f);
    }
    g.self = nullptr;
    g.hides = chain_hide();
    go_on(false);
    for (const fiber *f : g.fibers)
        if (memcmp(f->at.stack, &CANARY, sizeof CANARY) != 0) fail("a thread's stack is too small");
}

bool allow_smem(const void *name, size_t bytes) {
    if (bytes > SMEM_MAX) return false;
    g.allowed[name] = bytes;
    return true;
}

/* Kernels that ran; their names go to a file in the end. */
static struct launches {
    std::map<const void *, uint64_t> times;
    ~launches() {
        const char *path = getenv("CUDA_HOST_LAUNCHED");
        FILE *f = path ? fopen(path, "w") : nullptr;
        for (auto at = times.begin(); f && at != times.end(); ++at) {
            Dl_info info;
            if (!dladdr(at->first, &info) || !info.dli_sname) continue;
            char *name = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, nullptr);
            fprintf(f, "%s\n", name ? name : info.dli_sname);
            free(name);
        }
        if (f) fclose(f);
    }
} launched;

bool accepts(size3 grid, size3 dim, unsigned cluster, size_t smem_bytes, const void *name) {
    uint64_t threads = static_cast<uint64_t>(dim.x) * dim.y * dim.z, blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    size_t most = 48 << 10;
    auto at = g.allowed.find(name);
    if (at != g.allowed.end() && at->second > most) most = at->second;
    if (!blocks || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535 || !threads || threads > 1024 || smem_bytes > most) return false;
    return cluster <= CLUSTER_MAX && grid.x % cluster == 0;
}

void run(size3 grid, size3 dim, unsigned cluster, size_t smem_bytes, bool chained, const void *name, void (*call)(const void *),
         const void *with) {
    uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
    launched.times[name]++;
    open_machine();
    if (g.self) fail("a kernel launches a kernel");
    g.name = name;
    g.call = call;
    g.with = with;
    g.smem_bytes = smem_bytes;
    g.statics = nullptr;
    g.n_blocks = cluster;
    gridDim = dim3(grid.x, grid.y, grid.z);
    blockDim = dim3(dim.x, dim.y, dim.z);
#ifdef CUDA_HOST_ASAN
    ASAN_POISON_MEMORY_REGION(g.smem, static_cast<size_t>(CLUSTER_MAX) * SMEM_SLOT);
    for (unsigned r = 0; r < cluster; r++)
        ASAN_UNPOISON_MEMORY_REGION(g.smem + r * static_cast<size_t>(SMEM_SLOT) + SMEM_FIRST, smem_bytes);
#endif
    make_threads(dim, cluster);
    std::vector<uint64_t> order;
    if (g.random && blocks / cluster < 1 << 20) {
        order.resize(blocks / cluster);
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[next_random() % i]);
    }
    chain_begin(chained);
    g.early = false;
    for (uint64_t i = 0; i < blocks / cluster; i++) run_cluster(grid, cluster, (order.empty() ? i : order[i]) * cluster);
    g.self = nullptr;
    chain_end(g.early);
    g.name = nullptr;
}

/* ---- barriers and exchanges ------------------------------------------------------------------------------------- */

dynamic dynamic_smem() { return {g.self->of->smem + SMEM_FIRST}; }
dynamic static_smem(size_t bytes) {
    if (bytes > SMEM_SLOT - STATIC_FIRST) fail("too large an array of shared memory");
#ifdef CUDA_HOST_ASAN
    ASAN_UNPOISON_MEMORY_REGION(g.self->of->smem + STATIC_FIRST, bytes);
#endif
    return {g.self->of->smem + STATIC_FIRST};
}

int block_barrier(int bits) {
    block &b = *g.self->of;
    b.bits |= bits;
    if (++b.arrived < b.live) {
        g.self->wait_for = &b;
        wait("__syncthreads");
    } else {
        release_block(b);
        wake(g.self); /* behind the others */
        wait("__syncthreads");
    }
    return b.answer;
}

void named_barrier(int id, int threads) {
    named &k = g.self->of->bar[id & 15];
    if (++k.arrived < threads) {
        k.waiting.push_back(g.self);
        wait("a named barrier");
        return;
    }
    for (fiber *f : k.waiting) wake(f);
    k.waiting.clear();
    k.arrived = 0;
}

void cluster_arrive() {
    g.self->cluster_phase = g.cluster_phase;
    if (++g.cluster_arrived == g.cluster_live) release_cluster();
}
void cluster_wait() {
    while (g.cluster_phase == g.self->cluster_phase) {
        g.self->wait_for = &g;
        wait("a barrier of the cluster");
    }
}
void depend_wait() {
    g.self->waited = true;
    if (!g.hides) return;
    g.self->wait_for = &g.hides;
    wait("depend_wait");
}
void depend_launch() {
    g.self->launched = true;
    g.early |= !g.self->waited;
}
unsigned cluster_rank() { return g.self->of->rank; }
unsigned cluster_size() { return g.n_blocks; }

static uint64_t answer_of(const warp &w, warp_op op, unsigned mask, int lane) {
    if (op == WARP_SYNC) return 0;
    if (op == WARP_SUM || op == WARP_MAX) return w.value[lane];
    if (op == WARP_BALLOT) {
        uint64_t bits = 0;
        for (int i = 0; i < 32; i++)
            if (mask >> i & 1 && w.value[i]) bits |= 1ull << i;
        return bits;
    }
    int width = w.width[lane], arg = w.arg[lane], first = lane / width * width, from = lane;
    if (op == WARP_INDEX) from = first + (arg & (width - 1));
    else if (op == WARP_UP) from = lane - arg >= first ? lane - arg : lane;
    else if (op == WARP_DOWN) from = lane + arg < first + width ? lane + arg : lane;
    else from = (lane ^ arg) < first + width ? lane ^ arg : lane;
    if (!(mask >> from & 1)) fail("an exchange reads from a lane that takes no part in it");
    return w.value[from];
}

/* The values of WARP_SUM and WARP_MAX in every lane. */
static void reduce(warp &w, warp_op op) {
    float v[32], next[32];
    for (int i = 0; i < 32; i++) memcpy(&v[i], &w.value[i], 4);
    for (int m = 16; m; m >>= 1) {
        for (int i = 0; i < 32; i++) next[i] = op == WARP_SUM ? v[i] + v[i ^ m] : fmaxf(v[i], v[i ^ m]);
        memcpy(v, next, sizeof v);
    }
    for (int i = 0; i < 32; i++) memcpy(&w.value[i], &v[i], 4);
}
float warp_reduce(warp_op op, float v) {
    uint64_t bits = 0;
    memcpy(&bits, &v, 4);
    bits = warp_exchange(op, ~0u, bits, 0, 32);
    memcpy(&v, &bits, 4);
    return v;
}

uint64_t warp_exchange(warp_op op, unsigned mask, uint64_t value, int arg, int width) {
    fiber &f = *g.self;
    warp &w = f.of->warps[static_cast<size_t>(f.warp)];
    int lane = f.lane;
    unsigned there = static_cast<unsigned>(std::min<size_t>(32, f.of->threads.size() - static_cast<size_t>(f.warp) * 32));
    if (there < 32) mask &= (1u << there) - 1;
    if (!(mask >> lane & 1)) fail("a lane calls for an exchange that its mask leaves out");
    if (w.arrived >> lane & 1) fail("a lane is in two exchanges at once");
    w.value[lane] = value, w.arg[lane] = arg, w.width[lane] = width, w.mask[lane] = mask, w.op[lane] = op;
    w.arrived |= 1u << lane;
    if ((w.arrived & mask) != mask) {
        wait("an exchange of the warp");
        return f.answer;
    }
    fiber *const *threads = &f.of->threads[static_cast<size_t>(f.warp) * 32];
    if (op == WARP_SUM || op == WARP_MAX) {
        if (mask != ~0u) fail("a sum over a warp that is not whole");
        reduce(w, op);
    }
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        if (w.mask[i] != mask || w.op[i] != op) fail("lanes of one exchange disagree about what it is");
        threads[i]->answer = answer_of(w, op, mask, i);
    }
    w.arrived &= ~mask;
    for (int i = 31; i >= 0; i--)
        if (mask >> i & 1) wake_first(threads[i]);
    wait("an exchange of the warp");
    return f.answer;
}

uint32_t (*board())[4] {
    fiber &f = *g.self;
    warp &w = f.of->warps[static_cast<size_t>(f.warp)];
    return w.boards[w.board_of[f.lane]++ & 1];
}

/* ---- shared memory ---------------------------------------------------------------------------------------------- */

/* Of this block: SMEM_FIRST + i is byte i of its dynamic memory, STATIC_FIRST on are static arrays, from the first that is asked for
 * on. Of another block: the same, with the block's number above. */
uint32_t shared_address(const void *p) {
    const unsigned char *at = static_cast<const unsigned char *>(p), *own = g.self->of->smem;
    if (at >= own && at < own + SMEM_SLOT) return static_cast<uint32_t>(at - own);
    if (!g.statics) g.statics = reinterpret_cast<const unsigned char *>(reinterpret_cast<uintptr_t>(at) & ~static_cast<uintptr_t>(1023));
    if (at < g.statics || at - g.statics >= SMEM_SLOT - STATIC_FIRST) fail("an address is no shared memory of this block");
    return static_cast<uint32_t>(at - g.statics) + STATIC_FIRST;
}
uint32_t remote_address(uint32_t addr, uint32_t rank) {
    if (rank >= cluster_size()) fail("no such block in this cluster");
    return addr % SMEM_SLOT + (rank + 1) * static_cast<uint32_t>(SMEM_SLOT);
}
unsigned char *shared_at(uint32_t addr, size_t bytes) {
    uint32_t rank = addr / SMEM_SLOT, off = addr % SMEM_SLOT;
    if (off >= STATIC_FIRST && !rank && g.statics) return const_cast<unsigned char *>(g.statics) + (off - STATIC_FIRST);
    if (off < SMEM_FIRST || off + bytes > SMEM_FIRST + g.smem_bytes) fail("an access beyond the block's shared memory");
    return (rank ? g.blocks[rank - 1]->smem : g.self->of->smem) + off;
}

struct mbar {
    uint16_t pending, count;
    int32_t tx_phase; /* bytes that are missing, times 2, and the phase */
};
static mbar &mbar_at(uint32_t at) {
    if (at % 8) fail("an mbarrier is not aligned");
    mbar &b = *reinterpret_cast<mbar *>(shared_at(at, 8));
    if (b.count == 0 || b.count > 0x7fff) fail("an mbarrier is used that nobody has set up");
    return b;
}
static void mbar_check(mbar &b) {
    if (b.pending || b.tx_phase >> 1) return;
    b.tx_phase ^= 1;
    b.pending = b.count;
    for (fiber *f : g.fibers)
        if (f->now == WAITS && f->wait_for == &b) f->wait_for = nullptr, wake(f);
}
void mbar_init(uint32_t bar, int count) {
    *reinterpret_cast<mbar *>(shared_at(bar, 8)) = {static_cast<uint16_t>(count), static_cast<uint16_t>(count), 0};
}
void mbar_arrive(uint32_t bar, int tx_bytes) {
    mbar &b = mbar_at(bar);
    if (!b.pending) fail("more arrivals at an mbarrier than it counts");
    b.pending--;
    b.tx_phase += 2 * tx_bytes;
    mbar_check(b);
}
void mbar_complete(uint32_t bar, int tx_bytes) {
    mbar &b = mbar_at(bar);
    b.tx_phase -= 2 * tx_bytes;
    mbar_check(b);
}
void mbar_wait(uint32_t bar, uint32_t parity) {
    mbar &b = mbar_at(bar);
    while (static_cast<uint32_t>(b.tx_phase & 1) == parity) {
        g.self->wait_for = &b;
        wait("an mbarrier");
    }
}

void copy_later(uint32_t dst, const void *src, int bytes) {
    if (dst % static_cast<uint32_t>(bytes) || reinterpret_cast<uintptr_t>(src) % static_cast<uintptr_t>(bytes)) fail("an asynchronous copy is not aligned");
    g.self->copies.push_back({dst, src, bytes, g.self->group});
}
void copy_commit() { g.self->group++; }
void copy_wait(int groups_left) {
    std::vector<copy> &all = g.self->copies;
    size_t n = 0;
    while (n < all.size() && all[n].group < g.self->group - groups_left) {
        memcpy(shared_at(all[n].dst, static_cast<size_t>(all[n].bytes)), all[n].src, static_cast<size_t>(all[n].bytes));
        n++;
    }
    all.erase(all.begin(), all.begin() + static_cast<long>(n));
}

} // namespace cuda_host

/* ---- the runtime, but for streams and memory: cuda_host_streams.cpp ----------------------------------------------- */

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int) {
    const char *sm = getenv("CUDA_HOST_SM");
    memset(p, 0, sizeof *p);
    p->major = sm ? atoi(sm) / 10 : 9;
    p->multiProcessorCount = 132;
    p->sharedMemPerBlockOptin = cuda_host::SMEM_MAX;
    snprintf(p->name, sizeof p->name, "emulated on the host as SM%d0", p->major);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute, int bytes) {
    return cuda_host_report(cuda_host::allow_smem(kernel, static_cast<size_t>(bytes)) ? cudaSuccess : cudaErrorInvalidConfiguration);
}
