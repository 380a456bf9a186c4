/* http_files.c - see http_files.h: uploads (multipart/form-data), lists, contents. */
#include "http/http_files.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "http/http_list.h"

enum { NAME_BYTES_MAX = 1024 };

static size_t weight(const by_file *f) { return sizeof *f + f->name.cap + f->data.cap; }

by_status by_files_create(by_files **out, by_http *h, by_err *err) {
    *out = by_alloc_zero(BY_MEM_HTTP, sizeof **out);
    if (!*out) return BY_FAIL(err, BY_ENOMEM, "out of memory for files");
    (*out)->http = h;
    return BY_OK;
}

static void file_free(by_file *f) {
    by_buf_deinit(&f->name);
    by_buf_deinit(&f->data);
    by_free(f);
}

void by_files_destroy(by_files *f) {
    if (!f) return;
    by_batches_free(f);
    for (by_file *x = f->first, *next; x; x = next) {
        next = x->next;
        file_free(x);
    }
    by_free(f);
}

by_file *by_files_find(by_files *f, by_str id) {
    for (by_file *x = f->first; x; x = x->next)
        if (by_str_eqz(id, x->id)) return x;
    return NULL;
}

by_file *by_files_add(by_files *f, const char *purpose, by_str name, by_buf *data) {
    by_file *x = by_alloc_zero(BY_MEM_HTTP, sizeof *x);
    if (!x || !by_utf8_push_lossy(&x->name, by_str_take(name, NAME_BYTES_MAX))) {
        if (x) file_free(x);
        return NULL;
    }
    snprintf(x->id, sizeof x->id, "file-%016llx%08llx", (unsigned long long)by_rng_u64(&f->http->rng),
             (unsigned long long)(by_rng_u64(&f->http->rng) >> 32));
    snprintf(x->purpose, sizeof x->purpose, "%s", purpose);
    x->created = (int64_t)time(NULL);
    x->data = *data;
    *data = (by_buf){0};
    f->bytes += weight(x);
    x->next = f->first;
    f->first = x;
    return x;
}

/* ---- answers ---- */

static void write_file(by_json_out *o, const by_file *f) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "id");
    by_json_out_z(o, f->id);
    by_json_out_key(o, "object");
    by_json_out_z(o, "file");
    by_json_out_key(o, "bytes");
    by_json_out_uint(o, f->data.len);
    by_json_out_key(o, "created_at");
    by_json_out_int(o, f->created);
    by_json_out_key(o, "filename");
    by_json_out_string(o, by_buf_str(&f->name));
    by_json_out_key(o, "purpose");
    by_json_out_z(o, f->purpose);
    by_json_out_key(o, "status");
    by_json_out_z(o, "processed");
    by_json_out_object_end(o);
}

static void reply_file(by_exchange *ex, const by_file *f) {
    by_buf b = {0};
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    write_file(&o, f);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

static by_file *find_or_404(by_exchange *ex, by_str id) {
    by_file *f = by_files_find(ex->http->files, id);
    if (!f) by_reply_error(ex, 404, "file_not_found", "file '%.*s' does not exist", BY_STR_ARG(by_str_take(id, 100)));
    return f;
}

void by_handle_file(by_exchange *ex, by_str id) {
    by_file *f = find_or_404(ex, id);
    if (f) reply_file(ex, f);
}

void by_handle_file_content(by_exchange *ex, by_str id) {
    by_file *f = find_or_404(ex, id);
    if (f) by_reply(ex, 200, "application/octet-stream", by_buf_str(&f->data));
}

void by_handle_files(by_exchange *ex, by_str id) {
    enum { PAGE_MAX = 10000 };
    by_list_page page;
    by_str purpose;
    size_t n = 0, i = 0;
    (void)id;
    if (!by_query_text(ex, "purpose", &purpose)) {
        by_reply_error(ex, 400, NULL, "the query is malformed");
        return;
    }
    if (!by_list_begin(&page, ex, PAGE_MAX, PAGE_MAX)) return;
    for (const by_file *f = ex->http->files->first; f; f = f->next) n++;
    const by_file **all = by_arena_alloc(&ex->arena, by_mul_size(n, sizeof(const by_file *)));
    if (!all) n = 0, page.out.failed = page.found = true;
    for (const by_file *f = ex->http->files->first; f && i < n; f = f->next) all[i++] = f;
    for (i = 0; i < n; i++) {
        const by_file *f = all[page.ascending ? n - 1 - i : i]; /* the newest is first */
        if (purpose.len && !by_str_eqz(purpose, f->purpose)) continue;
        if (by_list_takes(&page, by_str_z(f->id))) write_file(&page.json, f);
    }
    by_list_end(&page, ex);
}

void by_handle_file_delete(by_exchange *ex, by_str id) {
    by_files *fs = ex->http->files;
    by_file *f = find_or_404(ex, id);
    if (!f) return;
    by_buf b = {0};
    by_buf_printf(&b, "{\"id\":\"%s\",\"object\":\"file\",\"deleted\":true}", f->id);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
    by_file **p = &fs->first;
    while (*p != f) p = &(*p)->next;
    *p = f->next;
    fs->bytes -= weight(f);
    file_free(f);
}

/* ---- uploads ---- */

/* The value of a parameter in a header: name="value" or name=value; empty when it is not there. */
static by_str parameter(by_str header, const char *name) {
    size_t len = strlen(name);
    for (size_t i = 0; i + len < header.len; i++) {
        if (memcmp(header.ptr + i, name, len) != 0 || (i > 0 && header.ptr[i - 1] != ' ' && header.ptr[i - 1] != ';')) continue;
        by_str v = by_str_skip(header, i + len);
        if (v.len && v.ptr[0] == '"') {
            const char *end = memchr(v.ptr + 1, '"', v.len - 1);
            return end ? by_str_of(v.ptr + 1, (size_t)(end - v.ptr) - 1) : (by_str){0};
        }
        size_t n = 0;
        while (n < v.len && !strchr("; \r\n\t", v.ptr[n])) n++;
        return by_str_take(v, n);
    }
    return (by_str){0};
}

typedef struct {
    by_str name, filename, data;
} part;

/* What is behind the first border. mark: "\r\n--" and the boundary; only the first one of a body may stand without its line break. */
static by_str behind_border(by_str body, by_str mark) {
    if (by_str_starts(body, by_str_skip(mark, 2))) return by_str_skip(body, mark.len - 2);
    const char *at = body.len ? memmem(body.ptr, body.len, mark.ptr, mark.len) : NULL;
    return at ? by_str_skip(body, (size_t)(at - body.ptr) + mark.len) : (by_str){0};
}

/* The next part of a multipart body; false at its end or where it is malformed. *rest is behind a border, before and after. */
static bool next_part(by_str *rest, by_str mark, part *out) {
    by_str r = *rest;
    if (!by_str_starts(r, BY_STR("\r\n"))) return false; /* "--": the last one */
    const char *head_end = memmem(r.ptr, r.len, "\r\n\r\n", 4);
    if (!head_end) return false;
    by_str head = by_str_take(r, (size_t)(head_end - r.ptr));
    r = by_str_skip(r, head.len + 2); /* an empty part's border shares the line break */
    const char *end = memmem(r.ptr, r.len, mark.ptr, mark.len);
    if (!end) return false;
    by_str data = by_str_take(r, (size_t)(end - r.ptr));
    *out = (part){parameter(head, "name="), parameter(head, "filename="), by_str_skip(data, data.len < 2 ? data.len : 2)};
    *rest = by_str_skip(r, (size_t)(end - r.ptr) + mark.len);
    return true;
}

void by_handle_upload(by_exchange *ex, by_str id) {
    by_files *fs = ex->http->files;
    const by_str *type = by_http_header_get(ex->head, "content-type");
    by_str boundary = type && by_str_starts(*type, BY_STR("multipart/form-data")) ? parameter(*type, "boundary=") : (by_str){0};
    (void)id;
    if (!boundary.len || boundary.len > 200) {
        by_reply_error(ex, 400, NULL, "content-type: want multipart/form-data with a boundary");
        return;
    }
    char mark[256];
    snprintf(mark, sizeof mark, "\r\n--%.*s", BY_STR_ARG(boundary));
    by_str rest = behind_border(by_buf_str(&ex->body), by_str_z(mark)), purpose = {0};
    part p, file = {0};
    bool has_file = false;
    while (next_part(&rest, by_str_z(mark), &p)) {
        if (by_str_eqz(p.name, "purpose")) purpose = p.data;
        if (by_str_eqz(p.name, "file")) {
            file = p;
            has_file = true;
        }
    }
    if (!has_file || !by_str_eqz(purpose, "batch")) {
        by_reply_refusal(ex, 400, NULL, has_file ? "purpose" : "file",
                         has_file ? "purpose: only batch files are kept here" : "file: missing in the form");
        return;
    }
    if (fs->bytes + sizeof(by_file) + NAME_BYTES_MAX + file.data.len > ex->http->opts.store_bytes) {
        by_reply_error(ex, 413, "storage_full", "no room for %zu more bytes; delete files (--response-store sets the bound)", file.data.len);
        return;
    }
    by_buf data = {0};
    by_file *f = by_buf_push_str(&data, file.data) || !file.data.len ? by_files_add(fs, "batch", file.filename, &data) : NULL;
    by_buf_deinit(&data);
    if (f) reply_file(ex, f);
    else by_reply_error(ex, 503, "out_of_memory", "out of memory for a file");
}
