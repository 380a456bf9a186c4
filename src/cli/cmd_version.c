/* cmd_version.c - `bathyc version`: what this build contains and what it finds on this machine. */
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "cli/commands.h"
#include "ops/ops.h"

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

static const char *line_editing(void) {
#ifdef BATHYC_HAVE_LIBEDIT
    return "libedit";
#else
    return "none";
#endif
}

static void print_cuda(void) {
    by_device *dev = NULL;
    by_err err = {0};
    by_status status = by_device_open(&dev, &(by_device_opts){.backend = BY_BACKEND_CUDA}, &err);
    const char *told = status == BY_OK ? "a device is there" : err.msg;
    printf("cuda          %s\n", strncmp(told, "backend cuda: ", 14) ? told : told + 14);
    by_device_close(dev);
}

int by_cmd_version(int argc, char **argv) {
    if (argc == 1 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        printf("usage: bathyc version\n\nPrints the version, what this build contains, and what it finds on this machine.\n");
        return 0;
    }
    if (argc > 0 && argv[0][0] == '-') return fprintf(stderr, "bathyc version: unknown flag '%s'\n", argv[0]), 2;
    if (argc > 0) return fprintf(stderr, "bathyc version: takes no arguments\n"), 2;
    by_cpu cpu;
    by_cpu_detect(&cpu);
    by_cpu_share share;
    by_cpu_share_read(&share, "", NULL, 0);
    printf("bathyc %s\n", BATHYC_VERSION);
    printf("compiler      %s\n", COMPILER);
    printf("line editing  %s\n", line_editing());
    printf("cpu           %s kernels, %d threads (%d cores)\n", by_isa_name(cpu.isa), (int)share.threads, (int)share.cores);
    print_cuda();
    return 0;
}
