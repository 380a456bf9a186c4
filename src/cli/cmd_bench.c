/* cmd_bench.c - `bathyc bench [PART]`: picks the part. */
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/bench.h"
#include "cli/commands.h"

typedef struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} part;

static const part parts[] = {
#define ROW(name, help) {#name, help, by_bench_##name},
    BY_BENCH_TABLE(ROW)
#undef ROW
};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

int by_cmd_bench(int argc, char **argv) {
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        printf("usage: bathyc bench [PART] [flags]\n\n");
        for (int i = 0; i < N_PARTS; i++) printf("  %-12s %s\n", parts[i].name, parts[i].help);
        printf("\nWithout a part: model. `bathyc bench PART --help` lists its flags.\n");
        return 0;
    }
    if (argc > 0 && strcmp(argv[0], "--dummy") == 0) return by_bench_dummy(argc - 1, argv + 1);
    if (argc > 0 && strcmp(argv[0], "--draft") == 0) return by_bench_draft(argc - 1, argv + 1);
    if (argc == 0 || argv[0][0] == '-') return by_bench_model(argc, argv);
    const char *names[N_PARTS];
    for (int i = 0; i < N_PARTS; i++) {
        names[i] = parts[i].name;
        if (strcmp(argv[0], parts[i].name) == 0) return parts[i].run(argc - 1, argv + 1);
    }
    const char *near = by_args_nearest(argv[0], names, N_PARTS);
    fprintf(stderr, "bathyc bench: unknown part '%s'%s%s%s\n", argv[0], near ? "; did you mean '" : "", near ? near : "",
            near ? "'?" : "");
    return 2;
}
