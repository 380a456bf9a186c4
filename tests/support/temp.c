/* temp.c - see temp.h. */
#include "support/temp.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATHS      16
#define PATH_BYTES 512

static char root[64];
static pid_t owner;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_all(void) {
    if (getpid() == owner) nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *by_temp_path(const char *name) {
    static char paths[PATHS][PATH_BYTES];
    static unsigned at;
    if (!root[0]) {
        snprintf(root, sizeof root, "/tmp/bathyc_test_XXXXXX");
        if (!mkdtemp(root)) {
            perror(root);
            abort();
        }
        owner = getpid(); /* a forked child leaves the folder alone */
        atexit(remove_all);
    }
    char *path = paths[at++ % PATHS];
    if (snprintf(path, PATH_BYTES, "%s/%s", root, name) >= PATH_BYTES) abort();
    return path;
}

const char *by_temp_write(const char *name, const void *data, size_t n) {
    const char *path = by_temp_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        abort();
    }
    return path;
}

const char *by_temp_folder(const char *name) {
    const char *path = by_temp_path(name);
    if (mkdir(path, 0700) != 0) {
        perror(path);
        abort();
    }
    return path;
}
