/* Fuzzes the JSON reader and writer: what is accepted must be written as text that is accepted again and then written the
 * same, and a refusal must name a line. The first byte picks depth and merging. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_write.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_value(by_buf *out, const by_json *v, by_json_style style) {
    by_buf_clear(out);
    by_json_write(out, v, style);
    if (out->failed) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    by_json_opts opts = {.depth_max = data[0] & 1 ? 127 : 8, .merge_keys = data[0] & 2};
    by_arena arena;
    by_arena_init(&arena, BY_MEM_JSON);
    by_json v, again;
    by_err err = {0};
    by_str text = by_str_of((const char *)data + 1, size - 1);
    by_status status = by_json_parse(&v, &arena, text, &opts, &err);
    if (status == BY_EFORMAT && strncmp(err.msg, "line ", 5) != 0) abort();
    if (status == BY_OK) {
        by_buf first = {0}, second = {0};
        for (int style = 0; style < 2; style++) {
            write_value(&first, &v, style ? BY_JSON_COMPACT : BY_JSON_PYTHON);
            if (by_json_parse(&again, &arena, by_buf_str(&first), &opts, &err) != BY_OK) abort();
            write_value(&second, &again, style ? BY_JSON_COMPACT : BY_JSON_PYTHON);
            if (!by_str_eq(by_buf_str(&first), by_buf_str(&second))) abort();
        }
        by_buf_deinit(&first);
        by_buf_deinit(&second);
    }
    by_arena_deinit(&arena);
    return 0;
}
