/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

static by_status open_fail(by_err *err, const char *path) {
    int e = errno;
    return BY_FAIL(err, e == ENOENT || e == ENOTDIR ? BY_EMISSING : BY_EIO, "%s: %s", path, strerror(e));
}

by_status by_file_map_open(by_file_map *out, const char *path, by_err *err) {
    *out = (by_file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_fail(err, path);
    by_status status = BY_OK;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        status = BY_FAIL(err, BY_EIO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = BY_FAIL(err, BY_EIO, "%s: not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) status = BY_FAIL(err, BY_EIO, "%s: cannot map: %s", path, strerror(errno));
        else *out = (by_file_map){p, (size_t)st.st_size};
    }
    close(fd);
    return status;
}

void by_file_map_close(by_file_map *m) {
    if (m->ptr) munmap((void *)(uintptr_t)m->ptr, m->size);
    *m = (by_file_map){0};
}

by_status by_file_read(by_buf *out, const char *path, size_t max_bytes, by_err *err) {
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? 0 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return open_fail(err, path);
    by_status status = BY_OK;
    size_t total = 0;
    for (;;) {
        char *to = by_buf_reserve(out, 65536);
        if (!to) {
            status = BY_FAIL(err, BY_ENOMEM, "%s: out of memory after %zu bytes", path, total);
            break;
        }
        ssize_t n = read(fd, to, 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            status = BY_FAIL(err, BY_EIO, "%s: %s", path, strerror(errno));
            break;
        }
        if (n == 0) break;
        out->len += (size_t)n;
        total += (size_t)n;
        if (total > max_bytes) {
            status = BY_FAIL(err, BY_ELIMIT, "%s: larger than the limit of %zu bytes", path, max_bytes);
            break;
        }
    }
    if (!is_stdin) close(fd);
    return status;
}

by_status by_fd_write_all(int fd, const void *data, size_t n, by_err *err) {
    const char *p = data;
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return BY_FAIL(err, BY_EIO, "write: %s", strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return BY_OK;
}

by_status by_file_write(const char *path, const void *data, size_t n, by_err *err) {
    if (strcmp(path, "-") == 0) return by_fd_write_all(1, data, n, err);
    char tmp[4096];
    int len = snprintf(tmp, sizeof tmp, "%s.tmp%ld", path, (long)getpid());
    if (len < 0 || (size_t)len >= sizeof tmp) return BY_FAIL(err, BY_EINVAL, "%.200s...: path too long", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return open_fail(err, tmp);
    by_status status = by_fd_write_all(fd, data, n, err);
    if (close(fd) != 0 && status == BY_OK) status = BY_FAIL(err, BY_EIO, "%s: %s", tmp, strerror(errno));
    if (status == BY_OK && rename(tmp, path) != 0)
        status = BY_FAIL(err, BY_EIO, "%s: %s", path, strerror(errno));
    if (status != BY_OK) unlink(tmp);
    return status;
}

bool by_file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool by_dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
