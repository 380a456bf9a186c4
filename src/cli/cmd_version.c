/* cmd_version.c - `bathyc version`. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

int by_cmd_version(int argc, char **argv) {
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        printf("usage: bathyc version\n\nPrints the version and what this build contains.\n");
        return 0;
    }
    if (argc > 0 && argv[0][0] == '-') return fprintf(stderr, "bathyc version: unknown flag '%s'\n", argv[0]), 2;
    if (argc > 0) return fprintf(stderr, "bathyc version: takes no arguments\n"), 2;
    printf("bathyc %s\n", BATHYC_VERSION);
    return 0;
}
