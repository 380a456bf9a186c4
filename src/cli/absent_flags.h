/* absent_flags.h - flags of other engines, and of this one's specification, for parts that this program does not have: refused with the
 * reason, so that nobody believes that they work. */
#ifndef BY_CLI_ABSENT_FLAGS_H
#define BY_CLI_ABSENT_FLAGS_H

/* Why there is no flag of this name ("--x", without a value), NULL for a name that means nothing here. */
const char *by_absent_flag_reason(const char *name);

#endif
