/* rows_avx512bf16.c - the loops of rows.h with the registers of its instruction set. */
#include "ops/cpu/vec_avx512bf16.h"

#define SCORE_HEADS 4
#define SCORE_KEYS 4
#define VALUE_HEADS 4
#define VALUE_COLUMNS 4
#include "ops/cpu/rows.h"

const by_vec by_vec_avx512bf16 = BY_VEC_TABLE(BY_ISA_AVX512BF16);
