/* npz.c - see npz.h. The zip is read through its central directory; local headers only say where a member's bytes
 * start, because their name and extra fields may differ in length. */
#include "support/npz.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 256
#define LOCAL_BYTES    30
#define CENTRAL_BYTES  46
#define END_BYTES      22

struct by_npz {
    int n;
    char (*names)[NAME_MAX_BYTES];
    by_npy *arrays;
};

static uint32_t le16(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static uint32_t le32(const uint8_t *p) {
    return le16(p) | le16(p + 2) << 16;
}

__attribute__((format(printf, 2, 3))) static bool complain(const char *path, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", path);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return false;
}

static uint8_t *read_all(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        complain(path, "cannot be opened");
        return NULL;
    }
    size_t len = 0, cap = 1 << 16;
    uint8_t *bytes = malloc(cap);
    while (bytes) {
        size_t got = fread(bytes + len, 1, cap - len, f);
        len += got;
        if (got == 0) break;
        if (len == cap) {
            uint8_t *more = realloc(bytes, cap *= 2);
            if (!more) free(bytes);
            bytes = more;
        }
    }
    if (!bytes || ferror(f)) {
        complain(path, "cannot be read");
        free(bytes);
        bytes = NULL;
    }
    fclose(f);
    *size = len;
    return bytes;
}

static const struct {
    char code[4];
    size_t bytes;
} dtypes[] = {{"<f2", 2}, {"<f4", 4}, {"<f8", 8}, {"<i2", 2}, {"<i4", 4}, {"<i8", 8},
              {"<u2", 2}, {"<u4", 4}, {"<u8", 8}, {"|i1", 1}, {"|u1", 1}, {"|b1", 1}};

/* Reads "(2, 3)" or "(7,)" or "()" at s. */
static bool parse_shape(by_npy *a, const char *s) {
    a->n = 1;
    if (*s++ != '(') return false;
    for (;;) {
        while (*s == ' ' || *s == ',')
            s++;
        if (*s == ')') return true;
        if (!isdigit((unsigned char)*s) || a->ndim == BY_NPY_DIMS_MAX) return false;
        char *end;
        unsigned long long dim = strtoull(s, &end, 10);
        s = end;
        a->shape[a->ndim++] = (size_t)dim;
        if (__builtin_mul_overflow(a->n, (size_t)dim, &a->n)) return false;
    }
}

/* bytes[size] is a whole .npy member; the data is copied so that it is aligned. */
static bool parse_npy(by_npy *a, const uint8_t *bytes, size_t size, const char *path, const char *name) {
    *a = (by_npy){0};
    if (size < 10 || memcmp(bytes, "\x93NUMPY\x01\x00", 8) != 0) return complain(path, "%s is not .npy 1.0", name);
    size_t header_bytes = le16(bytes + 8);
    if (header_bytes > size - 10) return complain(path, "%s: header is cut", name);
    char header[4096];
    if (header_bytes >= sizeof header) return complain(path, "%s: header of %zu bytes", name, header_bytes);
    memcpy(header, bytes + 10, header_bytes);
    header[header_bytes] = 0;

    const char *descr = strstr(header, "'descr': '"), *shape = strstr(header, "'shape': ");
    if (!descr || !shape || !strstr(header, "'fortran_order': False"))
        return complain(path, "%s: header is not understood: %s", name, header);
    memcpy(a->dtype, descr + 10, 3);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(a->dtype, dtypes[i].code) == 0 && descr[13] == '\'') a->item_bytes = dtypes[i].bytes;
    if (!a->item_bytes) return complain(path, "%s: type in %s", name, header);
    if (!parse_shape(a, shape + 9)) return complain(path, "%s: shape in %s", name, header);
    size_t data_bytes, rest = size - 10 - header_bytes;
    if (__builtin_mul_overflow(a->n, a->item_bytes, &data_bytes) || data_bytes != rest)
        return complain(path, "%s: %zu values of %zu bytes, but %zu bytes are there", name, a->n, a->item_bytes, rest);
    void *copy = aligned_alloc(64, (data_bytes + 64) / 64 * 64);
    if (!copy) return complain(path, "%s: out of memory", name);
    memcpy(copy, bytes + 10 + header_bytes, data_bytes);
    a->data = copy;
    return true;
}

/* Reads the member whose central directory entry is at entry. */
static bool read_member(by_npz *z, const uint8_t *bytes, size_t size, const uint8_t *entry, const char *path) {
    uint32_t flags = le16(entry + 8), method = le16(entry + 10), packed = le32(entry + 20), plain = le32(entry + 24);
    size_t name_bytes = le16(entry + 28), local = le32(entry + 42);
    char *name = z->names[z->n];
    if (name_bytes >= NAME_MAX_BYTES) return complain(path, "member name of %zu bytes", name_bytes);
    memcpy(name, entry + CENTRAL_BYTES, name_bytes);
    name[name_bytes] = 0;
    if (name_bytes < 5 || strcmp(name + name_bytes - 4, ".npy") != 0) return complain(path, "member %s", name);
    name[name_bytes - 4] = 0;
    if (method != 0 || packed != plain || (flags & 0x9))
        return complain(path, "%s: method %u, flags %#x: only stored members are read", name, method, flags);
    if (local > size || size - local < LOCAL_BYTES || le32(bytes + local) != 0x04034b50)
        return complain(path, "%s: local header", name);
    size_t start = local + LOCAL_BYTES + le16(bytes + local + 26) + le16(bytes + local + 28);
    if (start > size || size - start < plain) return complain(path, "%s: cut", name);
    if (!parse_npy(&z->arrays[z->n], bytes + start, plain, path, name)) return false;
    z->n++;
    return true;
}

static bool read_directory(by_npz *z, const uint8_t *bytes, size_t size, const char *path) {
    size_t end = size; /* the end record sits at the very end: the goldens carry no zip comment */
    if (size < END_BYTES || le32(bytes + (end = size - END_BYTES)) != 0x06054b50)
        return complain(path, "not a zip file without comment");
    size_t n = le16(bytes + end + 10), dir_bytes = le32(bytes + end + 12), at = le32(bytes + end + 16);
    if (at > end || end - at < dir_bytes) return complain(path, "directory outside the file");
    z->names = calloc(n + 1, sizeof z->names[0]);
    z->arrays = calloc(n + 1, sizeof z->arrays[0]);
    if (!z->names || !z->arrays) return complain(path, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (end - at < CENTRAL_BYTES || le32(bytes + at) != 0x02014b50) return complain(path, "directory entry %zu", i);
        size_t entry_bytes =
            CENTRAL_BYTES + (size_t)le16(bytes + at + 28) + le16(bytes + at + 30) + le16(bytes + at + 32);
        if (end - at < entry_bytes) return complain(path, "directory entry %zu is cut", i);
        if (!read_member(z, bytes, size, bytes + at, path)) return false;
        at += entry_bytes;
    }
    return true;
}

by_npz *by_npz_open(const char *path) {
    size_t size;
    uint8_t *bytes = read_all(path, &size);
    if (!bytes) return NULL;
    by_npz *z = calloc(1, sizeof *z);
    if (z && !read_directory(z, bytes, size, path)) {
        by_npz_close(z);
        z = NULL;
    }
    free(bytes);
    return z;
}

void by_npz_close(by_npz *z) {
    if (!z) return;
    for (int i = 0; i < z->n; i++)
        free((void *)(uintptr_t)z->arrays[i].data);
    free(z->names);
    free(z->arrays);
    free(z);
}

const by_npy *by_npz_get(const by_npz *z, const char *name) {
    for (int i = 0; i < z->n; i++)
        if (strcmp(z->names[i], name) == 0) return &z->arrays[i];
    return NULL;
}

const by_npy *by_npz_need(const by_npz *z, const char *dtype, const char *name_fmt, ...) {
    char name[NAME_MAX_BYTES];
    va_list ap;
    va_start(ap, name_fmt);
    vsnprintf(name, sizeof name, name_fmt, ap);
    va_end(ap);
    const by_npy *a = by_npz_get(z, name);
    if (!a || (dtype && strcmp(a->dtype, dtype) != 0)) {
        fprintf(stderr, "golden array %s: want type %s, %s\n", name, dtype ? dtype : "any", a ? a->dtype : "absent");
        abort();
    }
    return a;
}

int by_npz_count(const by_npz *z) {
    return z->n;
}
const char *by_npz_name(const by_npz *z, int i) {
    return i >= 0 && i < z->n ? z->names[i] : NULL;
}

by_npy *by_npy_read(const char *path) {
    size_t size;
    uint8_t *bytes = read_all(path, &size);
    if (!bytes) return NULL;
    by_npy *a = calloc(1, sizeof *a);
    if (a && !parse_npy(a, bytes, size, path, "file")) {
        free(a);
        a = NULL;
    }
    free(bytes);
    return a;
}

void by_npy_free(by_npy *a) {
    if (!a) return;
    free((void *)(uintptr_t)a->data);
    free(a);
}

static const void *typed(const by_npy *a, const char *dtype) {
    if (strcmp(a->dtype, dtype) != 0) {
        fprintf(stderr, "golden array has type %s, the test reads %s\n", a->dtype, dtype);
        abort();
    }
    return a->data;
}

const float *by_npy_f32(const by_npy *a) {
    return typed(a, "<f4");
}
const int32_t *by_npy_i32(const by_npy *a) {
    return typed(a, "<i4");
}
const int64_t *by_npy_i64(const by_npy *a) {
    return typed(a, "<i8");
}
const uint32_t *by_npy_u32(const by_npy *a) {
    return typed(a, "<u4");
}
const uint64_t *by_npy_u64(const by_npy *a) {
    return typed(a, "<u8");
}
const uint8_t *by_npy_u8(const by_npy *a) {
    return typed(a, "|u1");
}
