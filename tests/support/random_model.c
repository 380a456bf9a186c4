/* random_model.c - see random_model.h. */
#include "support/random_model.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "json/json.h"
#include "support/golden.h"
#include "support/process.h"

enum { FLAGS_MAX = 48 };

bool by_random_model(const char *folder, const char *const *more) {
    char tool[4096];
    const char *slash = strrchr(BATHYC_PROGRAM, '/');
    snprintf(tool, sizeof tool, "%.*s/tools/make_checkpoint", (int)(slash - BATHYC_PROGRAM), BATHYC_PROGRAM);
    if (!by_file_exists(tool)) return false;
    const char *argv[FLAGS_MAX] = {tool, "-o", folder, "--preset", "narrow", "--tokenizer", by_source_path("models/tiny/tokenizer.json"),
                                   "--vocab", "5376"};
    int n = 9;
    while (more && *more && n < FLAGS_MAX - 1) argv[n++] = *more++;
    by_process_result r = by_process_run(argv, NULL);
    if (r.exit_code != 0) {
        by_process_print(&r);
        exit(1);
    }
    by_process_free(&r);
    return true;
}

bool by_random_model_small(const char *folder) {
    static const char *const flags[] = {"--layers", "6", "--experts", "4", "--without-drafts", "--without-vision", "--without-engram", NULL};
    return by_random_model(folder, flags);
}

static void give_up(const char *what, const char *name) {
    fprintf(stderr, "random_model: %s: %s\n", what, name);
    exit(1);
}

void by_random_model_poison(const char *folder, const char *tensor, long row) {
    char path[4096];
    by_buf b = {0};
    by_json header;
    by_arena arena;
    by_err err;
    uint64_t n = 0;
    by_arena_init(&arena, BY_MEM_JSON);
    snprintf(path, sizeof path, "%s/model-00001-of-00001.safetensors", folder);
    if (by_file_read(&b, path, 1 << 30, &err) < 0 || b.len < 8) give_up("cannot read", path);
    memcpy(&n, b.ptr, 8);
    if (by_json_parse(&header, &arena, by_str_of(b.ptr + 8, n), NULL, &err) < 0) give_up("no header", path);
    const by_json *t = by_json_get(&header, tensor);
    if (!t) give_up("no tensor", tensor);
    bool bf16 = by_str_eqz(by_json_get(t, "dtype")->v.s, "BF16");
    int64_t width = by_json_at(by_json_get(t, "shape"), 1)->v.i, at = by_json_at(by_json_get(t, "data_offsets"), 0)->v.i;
    static const unsigned char nan16[] = {0xc0, 0x7f}, nan8[] = {0xff};
    char *to = b.ptr + 8 + n + at + row * width * (bf16 ? 2 : 1);
    memcpy(to, bf16 ? nan16 : nan8, bf16 ? 2 : 1);
    if (by_file_write(path, b.ptr, b.len, &err) < 0) give_up("cannot write", path);
    by_buf_deinit(&b);
    by_arena_deinit(&arena);
}
