/* fuzz_main.c - runs a fuzz entry over its stored corpus, so that every crash once found stays a test without libFuzzer.
 * Arguments: folders and files. Nothing to replay is a failure: such a test could not fail. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f) return 1;
    uint8_t *data = NULL;
    size_t len = 0, cap = 0;
    for (;;) {
        if (len == cap) {
            cap = cap ? cap * 2 : 4096;
            data = realloc(data, cap);
            if (!data) abort();
        }
        size_t n = fread(data + len, 1, cap - len, f);
        if (n == 0) break;
        len += n;
    }
    fclose(f);
    uint8_t *exact = malloc(len ? len : 1); /* exact size: reading past the end is then seen by ASan */
    if (!exact) abort();
    memcpy(exact, data, len);
    free(data);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

static int run_folder(const char *folder) {
    DIR *dir = opendir(folder);
    if (!dir) return run_file(folder) ? -1 : 1;
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (run_file(path)) return fprintf(stderr, "cannot read %s\n", path), -1;
        n++;
    }
    closedir(dir);
    return n;
}

int main(int argc, char **argv) {
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = run_folder(argv[i]);
        if (n < 0) return fprintf(stderr, "cannot read %s\n", argv[i]), 1;
        total += n;
    }
    printf("%d corpus files replayed\n", total);
    return total > 0 ? 0 : 1;
}
