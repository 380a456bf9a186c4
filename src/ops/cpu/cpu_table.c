/* cpu_table.c - the table of the cpu backend: the ref operators, replaced one by one by vector versions. */
#include <string.h>

#include "ops/host.h"

by_status by_ops_cpu_table(by_ops *out, const char **name, const char *isa, by_err *err) {
    if (isa && strcmp(isa, "ref") != 0) return BY_FAIL(err, BY_EINVAL, "cpu-isa: '%s' is not known", isa);
    *out = by_ops_ref;
    *name = "cpu";
    return BY_OK;
}
