/* cmd_version.c - `bathyc version`. */
#include <stdio.h>

#include "cli/commands.h"

int by_cmd_version(int argc, char **argv) {
    (void)argv;
    if (argc > 0) return fprintf(stderr, "bathyc version: takes no arguments\n"), 2;
    printf("bathyc %s\n", BATHYC_VERSION);
    return 0;
}
