/* process.c - see process.h. One poll loop serves all three pipes, so that a child that fills one while it waits for
 * another cannot hang the test. The child leads its own process group: a kill reaches what it started. */
#include "support/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define OUTPUT_BYTES_MAX (64u << 20)
#define ARGS_MAX         128
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOWNESS 10
#else
#define SLOWNESS 1
#endif

extern char **environ;

static void die(const char *what, const char *path) {
    fprintf(stderr, "%s: %s: %s\n", path, what, strerror(errno));
    abort();
}

typedef struct sink {
    int fd;
    char *bytes;
    size_t n, cap;
    bool cut;
} sink;

/* Reads what is there; closes the descriptor at the end. */
static void sink_read(sink *s) {
    char piece[65536];
    ssize_t got = read(s->fd, piece, sizeof piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        close(s->fd);
        s->fd = -1;
        return;
    }
    if (s->n + (size_t)got > OUTPUT_BYTES_MAX) {
        s->cut = true;
        return;
    }
    if (s->n + (size_t)got + 1 > s->cap) {
        s->cap = (s->n + (size_t)got + 1) * 2;
        s->bytes = realloc(s->bytes, s->cap);
        if (!s->bytes) abort();
    }
    memcpy(s->bytes + s->n, piece, (size_t)got);
    s->n += (size_t)got;
}

static char *sink_text(sink *s) {
    if (!s->bytes) s->bytes = calloc(1, 1);
    if (!s->bytes) abort();
    s->bytes[s->n] = 0;
    return s->bytes;
}

typedef struct pipes {
    int in[2], out[2], err[2];
} pipes;

static pid_t start(const char *const *argv, const by_process_opts *o, pipes *p) {
    if (pipe2(p->in, O_CLOEXEC) || pipe2(p->out, O_CLOEXEC) || pipe2(p->err, O_CLOEXEC)) die("pipe", argv[0]);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_adddup2(&actions, p->in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, p->out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, p->err[1], 2);
    if (o->cwd) posix_spawn_file_actions_addchdir_np(&actions, o->cwd);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE); /* ignored in this process, default in the child */
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);

    size_t n_env = 0, n_own = 0;
    while (o->env && o->env[n_own])
        n_own++;
    while (environ[n_env])
        n_env++;
    char **env = calloc(n_own + n_env + 1, sizeof *env);
    if (!env) abort();
    if (n_own) memcpy(env, o->env, n_own * sizeof *env);
    memcpy(env + n_own, environ, n_env * sizeof *env);

    pid_t pid;
    if (o->closed_stdout) close(p->out[0]);
    errno = posix_spawnp(&pid, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, env);
    if (errno) die("cannot be started", argv[0]);
    free(env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    close(p->in[0]);
    close(p->out[1]);
    close(p->err[1]);
    return pid;
}

/* Feeds the input and collects the outputs until both are closed or the time is up; true = in time. */
static bool serve(pipes *p, sink *out, sink *err, const by_process_opts *o, double deadline) {
    size_t fed = 0;
    int in = p->in[1];
    if (fcntl(in, F_SETFL, O_NONBLOCK) != 0) die("fcntl", "pipe");
    while (out->fd >= 0 || err->fd >= 0) {
        if (in >= 0 && fed == o->input_bytes) {
            close(in);
            in = -1;
        }
        double left = deadline - by_clock_s();
        if (left <= 0) break;
        struct pollfd fds[3] = {
            {.fd = in, .events = POLLOUT}, {.fd = out->fd, .events = POLLIN}, {.fd = err->fd, .events = POLLIN}};
        if (poll(fds, 3, (int)(left * 1000) + 1) < 0 && errno != EINTR) die("poll", "pipe");
        if (fds[0].revents) {
            ssize_t n = write(in, o->input + fed, o->input_bytes - fed);
            if (n > 0) fed += (size_t)n;
            if (n < 0 && errno != EAGAIN && errno != EINTR) fed = o->input_bytes; /* it stopped reading */
        }
        if (fds[1].revents) sink_read(out);
        if (fds[2].revents) sink_read(err);
    }
    if (in >= 0) close(in);
    return out->fd < 0 && err->fd < 0;
}

/* Waits for the end of the process itself, which may close its outputs earlier. */
static bool reap(pid_t pid, int *status, struct rusage *usage, double deadline) {
    for (;;) {
        pid_t got = wait4(pid, status, WNOHANG, usage);
        if (got == pid) return true;
        if (got < 0 && errno != EINTR) die("wait", "process");
        if (by_clock_s() > deadline) return false;
        usleep(2000);
    }
}

by_process_result by_process_run(const char *const *argv, const by_process_opts *opts) {
    const by_process_opts o = opts ? *opts : (by_process_opts){0};
    signal(SIGPIPE, SIG_IGN);
    pipes p;
    double start_s = by_clock_s(), deadline = start_s + (o.limit_s > 0 ? o.limit_s : 60) * SLOWNESS;
    pid_t pid = start(argv, &o, &p);
    sink out = {.fd = o.closed_stdout ? -1 : p.out[0]}, err = {.fd = p.err[0]};
    int status = 0;
    struct rusage usage = {0};
    by_process_result r = {0};
    r.timed_out = !serve(&p, &out, &err, &o, deadline) || !reap(pid, &status, &usage, deadline);
    if (r.timed_out) {
        kill(-pid, SIGKILL);
        if (wait4(pid, &status, 0, &usage) < 0) die("wait", argv[0]);
        if (out.fd >= 0) close(out.fd);
        if (err.fd >= 0) close(err.fd);
    }
    r.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    r.cut = out.cut || err.cut;
    r.out = sink_text(&out), r.out_bytes = out.n;
    r.err = sink_text(&err), r.err_bytes = err.n;
    r.wall_s = by_clock_s() - start_s;
    r.cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
              1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    r.rss_kib_max = usage.ru_maxrss;
    return r;
}

void by_process_free(by_process_result *r) {
    free(r->out);
    free(r->err);
    *r = (by_process_result){0};
}

by_process_result by_bathyc(const by_process_opts *opts, ...) {
    const char *argv[ARGS_MAX + 2] = {BATHYC_PROGRAM};
    va_list ap;
    va_start(ap, opts);
    for (int n = 1;; n++) {
        if (n > ARGS_MAX) abort();
        argv[n] = va_arg(ap, const char *);
        if (!argv[n]) break;
    }
    va_end(ap);
    return by_process_run(argv, opts);
}

void by_process_print(const by_process_result *r) {
    fprintf(
        stderr,
        "exit code %d, signal %d%s, %.2f s\n--- stdout (%zu bytes)\n%.4000s\n--- stderr (%zu bytes)\n%.4000s\n---\n",
        r->exit_code, r->signal, r->timed_out ? ", out of time" : "", r->wall_s, r->out_bytes, r->out, r->err_bytes,
        r->err);
}
