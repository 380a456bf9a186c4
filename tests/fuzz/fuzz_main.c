/* fuzz_main.c - runs a fuzz entry over its stored corpus, so that every crash once found stays a test without libFuzzer.
 * With arguments it runs those files instead. An empty or missing corpus is a failure: such a test could not fail. */
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

int main(int argc, char **argv) {
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            if (run_file(argv[i])) return fprintf(stderr, "cannot read %s\n", argv[i]), 1;
        return 0;
    }
    DIR *dir = opendir(BY_FUZZ_CORPUS);
    if (!dir) return fprintf(stderr, "no corpus: %s\n", BY_FUZZ_CORPUS), 1;
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", BY_FUZZ_CORPUS, e->d_name);
        if (run_file(path)) return fprintf(stderr, "cannot read %s\n", path), 1;
        n++;
    }
    closedir(dir);
    printf("%d corpus files replayed\n", n);
    return n > 0 ? 0 : 1;
}
