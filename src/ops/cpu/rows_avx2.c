/* rows_avx2.c - the loops of rows.h with the registers of its instruction set. */
#include "ops/cpu/vec_avx2.h"

#define SCORE_HEADS 4
#define SCORE_KEYS 1
#define VALUE_HEADS 4
#define VALUE_COLUMNS 1
#include "ops/cpu/rows.h"

const by_vec by_vec_avx2 = BY_VEC_TABLE(BY_ISA_AVX2);
