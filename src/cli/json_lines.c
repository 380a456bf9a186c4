/* json_lines.c - see json_lines.h. */
#include "cli/json_lines.h"

typedef struct {
    by_json_line_fn *fn;
    void *context;
    by_arena arena;
    by_buf members, out;
} runner;

static by_status answer(runner *r, by_str line, const by_json **id, by_err *err) {
    by_json *row = by_arena_alloc(&r->arena, sizeof *row);
    if (!row) return BY_FAIL(err, BY_ENOMEM, "out of memory for a line of %zu bytes", line.len);
    BY_TRY(by_json_parse(row, &r->arena, line, NULL, err));
    *id = by_json_get(row, "id");
    by_json_out o = by_json_out_init(&r->members, BY_JSON_PYTHON);
    BY_TRY(r->fn(r->context, row, &o, err));
    return by_buf_check(&r->members, err);
}

static bool run_line(runner *r, by_str line) {
    const by_json *id = NULL;
    by_err bad;
    by_arena_reset(&r->arena);
    by_buf_clear(&r->members);
    by_buf_clear(&r->out);
    bool good = answer(r, line, &id, &bad) == BY_OK;
    by_json_out o = by_json_out_init(&r->out, BY_JSON_PYTHON);
    by_json_out_object_begin(&o);
    if (id) {
        by_json_out_key(&o, "id");
        by_json_out_value(&o, id);
    }
    if (good) {
        by_json_out_raw(&o, by_buf_str(&r->members));
    } else {
        by_json_out_key(&o, "error");
        by_json_out_z(&o, bad.msg);
    }
    by_json_out_object_end(&o);
    by_buf_push_byte(&r->out, '\n');
    return good;
}

by_status by_json_lines_run(const char *input, by_output *to, by_json_line_fn *fn, void *context, by_err *err) {
    by_line_reader in;
    by_str line;
    size_t n_bad = 0;
    BY_TRY(by_line_reader_open(&in, input, err));
    runner r = {.fn = fn, .context = context};
    by_arena_init(&r.arena, BY_MEM_JSON);
    by_status status;
    while ((status = by_line_reader_next(&in, &line, err)) == BY_OK) {
        line = by_line_trim(line, in.n_lines);
        if (line.len == 0) continue;
        n_bad += !run_line(&r, line);
        status = by_output_write(to, &r.out, err);
        if (status < 0) break;
    }
    if (status == BY_END) status = n_bad ? BY_FAIL(err, BY_EFORMAT, "%zu of %zu lines are bad", n_bad, in.n_lines) : BY_OK;
    by_arena_deinit(&r.arena);
    by_buf_deinit(&r.members);
    by_buf_deinit(&r.out);
    by_line_reader_close(&in);
    return status;
}
