/* cpu.h - what this processor can do and how many threads are worth starting.
 *
 * Vector kernels exist in tiers; by_cpu_detect names the highest tier that the processor, the operating system and the
 * build support, and by_cpu_limit lowers it on request (`--cpu-isa`), so that every tier is tested on one machine.
 * Detection reads cpuid and xgetbv itself: __builtin_cpu_supports knows different names in gcc and clang, and resolvers of
 * ifunc run before a sanitizer's runtime is up. Nothing here is cached; callers detect once and pass the result on. */
#ifndef BY_BASE_CPU_H
#define BY_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef enum by_isa {
    BY_ISA_REF,        /* plain C, every processor */
    BY_ISA_NEON,       /* aarch64 */
    BY_ISA_AVX2,       /* avx2, fma, f16c */
    BY_ISA_AVX512,     /* avx2 and avx512 f, bw, vl, dq, vnni */
    BY_ISA_AVX512BF16, /* avx512 and avx512 bf16, vbmi */
    BY_ISA_AMX,        /* avx512bf16 and amx tile, bf16 */
    BY_ISA_N
} by_isa;

typedef struct by_cpu {
    by_isa isa;     /* highest usable tier */
    bool f16c, fma; /* parts of tiers, for the report of `bathyc version` and the benchmarks */
    bool avx512_vnni, avx512_bf16, avx512_vbmi;
    bool amx_bf16, amx_int8;          /* processor and operating system; the permission call is by_cpu_amx_permit */
    bool neon_dotprod, neon_bf16;     /* aarch64 */
} by_cpu;

/* Asks the processor and the operating system; never fails, unknown hardware is BY_ISA_REF. */
void by_cpu_detect(by_cpu *out);

/* Lowers out->isa to the tier called name ("ref", "neon", "avx2", "avx512", "avx512bf16", "amx"; "auto" changes nothing).
 * Errors: BY_EINVAL (unknown name), BY_EUNSUPPORTED (this processor lacks the tier). */
by_status by_cpu_limit(by_cpu *cpu, const char *name, by_err *err);

/* True when a processor whose highest tier is `have` runs kernels of tier `want`. */
bool by_isa_includes(by_isa have, by_isa want);
const char *by_isa_name(by_isa isa);

/* Asks the kernel once per process for the AMX tile state (Linux grants it per process). Without it a tile instruction
 * raises SIGILL. by_cpu_detect calls it before it reports BY_ISA_AMX; exposed for tests. */
bool by_cpu_amx_permit(void);

/* Threads worth starting for the calling process. */
typedef struct by_cpu_share {
    int32_t affinity;   /* logical processors in the affinity mask */
    int32_t cores;      /* distinct physical cores among them */
    double quota;       /* processors granted by the tightest cgroup limit (v1 or v2); 0 = no limit */
    int32_t threads;    /* min(cores, floor(quota)), at least 1 */
} by_cpu_share;

/* root is put in front of /sys and /proc paths: "" in production, a folder of fake files in tests. mask has one bit per
 * logical processor, n_mask_words 64-bit words; NULL asks the operating system. What cannot be read counts as absent. */
void by_cpu_share_read(by_cpu_share *out, const char *root, const uint64_t *mask, int32_t n_mask_words);

#endif
