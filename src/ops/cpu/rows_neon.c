/* rows_neon.c - the loops of rows.h with the registers of its instruction set. */
#include "ops/cpu/vec_neon.h"

#define SCORE_HEADS 4
#define SCORE_KEYS 1
#define VALUE_HEADS 4
#define VALUE_COLUMNS 1
#include "ops/cpu/rows.h"

const by_vec by_vec_neon = BY_VEC_TABLE(BY_ISA_NEON);
