/* lost_pages.c - see lost_pages.h. Weights are used where they are mapped, so a shard that shrinks raises SIGBUS in the middle
 * of a kernel and nothing can go on. The handler looks the address up in /proc/self/maps, which needs no list of mappings to
 * be kept and only calls that a handler may make: open, read, write, _exit. */
#include "cli/lost_pages.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 8192 };

/* A line of the list: "begin-end perms offset device inode   path". True when it holds addr; *path is its path. */
static bool line_holds(char *line, uintptr_t addr, const char **path) {
    uintptr_t range[2] = {0, 0};
    char *p = line;
    for (int i = 0; i < 2; i++) {
        for (; *p && *p != '-' && *p != ' '; p++) range[i] = range[i] * 16 + (uintptr_t)(*p <= '9' ? *p - '0' : *p - 'a' + 10);
        if (*p) p++;
    }
    if (addr < range[0] || addr >= range[1]) return false;
    p = strchr(p, '/');
    *path = p;
    return p != NULL;
}

/* The path of the file mapped at addr, in line; NULL when there is none. */
static const char *mapped_file(uintptr_t addr, char line[LINE_MAX_BYTES]) {
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    static char piece[4096]; /* one thread gets here, see end_program */
    size_t n_line = 0;
    const char *path = NULL;
    for (ssize_t n; !path && (n = read(fd, piece, sizeof piece)) > 0;) {
        for (ssize_t i = 0; i < n && !path; i++) {
            if (piece[i] != '\n') {
                if (n_line + 1 < LINE_MAX_BYTES) line[n_line++] = piece[i];
                continue;
            }
            line[n_line] = 0;
            n_line = 0;
            if (!line_holds(line, addr, &path)) path = NULL;
        }
    }
    close(fd);
    return path;
}

static void say(const char *s) {
    ssize_t n = write(2, s, strlen(s));
    (void)n; /* nowhere left to complain */
}

static void end_program(int sig, siginfo_t *info, void *context) {
    (void)context;
    static char line[LINE_MAX_BYTES];
    static volatile sig_atomic_t busy;
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_SEQ_CST)) { /* threads share the loss; the first one speaks for all */
        for (;;) pause();
    }
    const char *path = mapped_file((uintptr_t)info->si_addr, line);
    if (path) {
        say("bathyc: ");
        say(path);
        say(": the file was truncated or cannot be read any more while it was in use\n");
        _exit(1);
    }
    signal(sig, SIG_DFL); /* not ours: the instruction runs again and ends the process as it would have */
    __atomic_store_n(&busy, 0, __ATOMIC_SEQ_CST);
}

void by_lost_pages_watch(void) {
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_sigaction = end_program;
    act.sa_flags = SA_SIGINFO;
    sigemptyset(&act.sa_mask);
    sigaction(SIGBUS, &act, NULL);
}
