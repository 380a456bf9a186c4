/* ref_table.c - the table of the ref backend. */
#include "ops/ref/ref.h"

const by_ops by_ops_ref = {
#define BY_REF_ROW(name) .name = by_ref_##name,
    BY_OP_TABLE(BY_REF_ROW)
#undef BY_REF_ROW
};
