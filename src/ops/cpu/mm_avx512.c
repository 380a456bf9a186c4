/* mm_avx512.c - f32 cores with 16 lanes. Compiled with AVX-512 F, BW, VL, DQ. */
#include "ops/cpu/cpu_mm.h"
#include "ops/formats.h"

#include "ops/cpu/mm_avx512.h"

#define MM_MT 8
#define MM_R(m) ((m) == 1 ? 8 : (m) == 2 ? 4 : 2)
#include "ops/cpu/mm_f32.h"

const by_mm_kernels by_mm_avx512 = {.isa = BY_ISA_AVX512, .plain = MM_PLAIN_WAYS, .peak = peak_f32};
