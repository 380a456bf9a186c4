/* sd_notify.c - see sd_notify.h. */
#include "cli/sd_notify.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

by_status by_sd_notify(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof to.sun_path || (path[0] != '/' && path[0] != '@')) return BY_OK;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') to.sun_path[0] = '\0'; /* a name that is no file */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return BY_AGAIN;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    bool full = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&to, bytes) < 0 &&
                (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS);
    close(fd);
    return full ? BY_AGAIN : BY_OK;
}

int64_t by_sd_watchdog_ms(void) {
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!us || (pid && strtoll(pid, NULL, 10) != (long long)getpid())) return 0;
    long long v = strtoll(us, NULL, 10);
    return v > 0 ? v / 1000 : 0;
}
