/* main.c - picks the command. Also refuses environment names with our prefix that are not known, since a misspelt one
 * would be ignored silently. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/commands.h"
#include "cli/lost_pages.h"

extern char **environ;

typedef struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
#define ROW(name, help) {#name, help, by_cmd_##name},
    BY_COMMAND_TABLE(ROW)
#undef ROW
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int usage(FILE *to) {
    fprintf(to, "usage: bathyc COMMAND [flags]\n\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", commands[i].name);
        for (char *c = name; *c; c++)
            if (*c == '_') *c = '-';
        fprintf(to, "  %-15s %s\n", name, commands[i].help);
    }
    fprintf(to, "\n`bathyc help COMMAND` lists a command's flags.\n");
    return to == stdout ? 0 : 2;
}

static int check_environment(void) {
    static const char *const known[] = {"BATHYC_MODEL"};
    for (char **e = environ; *e; e++) {
        if (strncmp(*e, "BATHYC_", 7) != 0) continue;
        char name[65];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        if (strcmp(name, known[0]) == 0) continue;
        const char *near = by_args_nearest(name, known, 1);
        fprintf(stderr, "bathyc: unknown environment name %s; %s %s\n", name,
                near ? "did you mean" : "the only one is", known[0]);
        return 2;
    }
    return 0;
}

static bool is_help(const char *word) {
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int run_command(int argc, char **argv) {
    int bad = check_environment();
    if (bad) return bad;
    if (argc < 2) return usage(stderr);
    const char *name = argv[1];
    bool help = is_help(name);
    if (help && (argc < 3 || is_help(argv[2]))) return usage(stdout);
    if (strcmp(name, "--version") == 0) name = "version";
    if (help) name = argv[2];
    if (help && argc > 3 && strcmp(name, "bench") != 0)
        return fprintf(stderr, "bathyc help: '%s' is too much: want one command\n", argv[3]), 2;
    char *help_argv[] = {argc > 3 ? argv[3] : (char *)"--help", (char *)"--help"}; /* bench has parts with flags of their own */
    char canon[64];
    snprintf(canon, sizeof canon, "%s", name);
    for (char *c = canon; *c; c++)
        if (*c == '-') *c = '_';
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(canon, commands[i].name) != 0) continue;
        return help ? commands[i].run(argc > 3 ? 2 : 1, help_argv) : commands[i].run(argc - 2, argv + 2);
    }
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) names[i] = commands[i].name;
    const char *near = by_args_nearest(canon, names, N_COMMANDS);
    fprintf(stderr, "bathyc: unknown command '%s'%s%s%s\n", name, near ? "; did you mean '" : "", near ? near : "",
            near ? "'?" : "");
    return 2;
}

int main(int argc, char **argv) {
    /* A reader that has gone (`bathyc ... | head`) ends a command silently, as it ends other programs. The server goes on. */
    bool serves = argc > 1 && strcmp(argv[1], "serve") == 0;
    signal(SIGPIPE, serves ? SIG_IGN : SIG_DFL);
    by_lost_pages_watch();
    int code = run_command(argc, argv);
    bool lost = ferror(stdout) != 0;
    if (fflush(stdout) != 0 || lost) { /* results that nobody got must not look like success */
        if (code == 0) fprintf(stderr, "bathyc: cannot write to standard output\n");
        if (code == 0) code = 1;
    }
    return code;
}
