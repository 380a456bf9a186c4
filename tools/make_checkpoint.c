/* make_checkpoint.c - writes a checkpoint with random weights in the published formats, for tests and benchmarks: any
 * sizes, from a few hundred kB to the full 510 GB as sparse files (real headers, holes for data). Same flags and seed,
 * same bytes, whatever the shard size. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/primes.h"
#include "model/tensor_table.h"
#include "synth_config.h"
#include "synth_values.h"

enum { PIECE_BYTES = 1 << 20, DEFAULT_ENGRAM_VOCAB = 20000 };

typedef struct {
    by_synth_config_opts config;
    const char *preset, *out, *tokenizer;
    bool sparse, force, prefix;
    int64_t shard_mb;
    uint64_t seed;
    double gain;
} options;

/* Tensors in the order of the table; shard i holds [first[i], first[i + 1]). */
typedef struct {
    by_tensor_spec *specs;
    size_t n, cap;
    size_t *first;
    int n_shards;
    int64_t bytes;
} plan;

/* ---- plan ---- */

static by_status add_spec(void *ctx, const by_tensor_spec *spec, by_err *err) {
    plan *p = ctx;
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 1024;
        by_tensor_spec *fresh = by_realloc(BY_MEM_MISC, p->specs, by_mul_size(cap, sizeof *fresh));
        if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for %zu tensors", p->n);
        p->specs = fresh;
        p->cap = cap;
    }
    p->specs[p->n++] = *spec;
    return BY_OK;
}

/* Cuts the list into shards of at most max_bytes, a weight and its scale together; larger pairs get a shard of their
 * own. */
static by_status cut_shards(plan *p, int64_t max_bytes, by_err *err) {
    p->first = by_alloc(BY_MEM_MISC, sizeof *p->first * (p->n + 1));
    if (!p->first) return BY_FAIL(err, BY_ENOMEM, "out of memory for the shards");
    int64_t in_shard = 0;
    for (size_t i = 0, next; i < p->n; i = next) {
        next = i + 1 < p->n && p->specs[i + 1].is_scale ? i + 2 : i + 1;
        int64_t group = 0;
        for (size_t k = i; k < next; k++)
            group += by_tensor_spec_bytes(&p->specs[k]);
        if (p->n_shards == 0 || in_shard + group > max_bytes) {
            p->first[p->n_shards++] = i;
            in_shard = 0;
        }
        in_shard += group;
        p->bytes += group;
    }
    p->first[p->n_shards] = p->n;
    return p->n_shards <= BY_LIMIT_ST_SHARDS
               ? BY_OK
               : BY_FAIL(err, BY_ELIMIT, "%d shards, at most %d: raise --shard-mb", p->n_shards, BY_LIMIT_ST_SHARDS);
}

static void shard_name(const plan *p, int shard, char out[64]) {
    snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, p->n_shards);
}

/* Order of the data in a shard: wide elements first, so that all are aligned. Element sizes are 4, 2 and 1. */
static const int element_sizes[] = {4, 2, 1};

static int element_bytes(const by_tensor_spec *s) {
    return by_st_dtype_bits(s->dtype) / 8;
}

static by_status make_header(by_buf *out, const plan *p, int shard, bool prefix, int64_t *data_bytes, by_err *err) {
    int64_t at = 0;
    by_buf_push(out, "\0\0\0\0\0\0\0\0", 8);
    by_buf_push_z(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int e = 0; e < 3; e++) {
        for (size_t i = p->first[shard]; i < p->first[shard + 1]; i++) {
            const by_tensor_spec *s = &p->specs[i];
            if (element_bytes(s) != element_sizes[e]) continue;
            int64_t end = at + by_tensor_spec_bytes(s);
            by_buf_printf(out, ",\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%" PRId64, prefix ? "model." : "", s->name,
                          by_st_dtype_name(s->dtype), s->shape[0]);
            if (s->n_dims == 2) by_buf_printf(out, ",%" PRId64, s->shape[1]);
            by_buf_printf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, end);
            at = end;
        }
    }
    by_buf_push_byte(out, '}');
    while (out->len % 8 != 0 && !out->failed)
        by_buf_push_byte(out, ' ');
    BY_TRY(by_buf_check(out, err));
    uint64_t n = out->len - 8;
    for (int i = 0; i < 8; i++)
        out->ptr[i] = (char)(n >> (8 * i));
    *data_bytes = at;
    return BY_OK;
}

/* ---- writing ---- */

static by_status write_tensor(int fd, by_synth *synth, const by_tensor_spec *s, char *piece, by_err *err) {
    BY_TRY(by_synth_begin(synth, s, err));
    int64_t left = by_tensor_spec_bytes(s);
    while (left > 0) {
        size_t n = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        by_synth_fill(synth, piece, n);
        BY_TRY(by_fd_write_all(fd, piece, n, err));
        left -= (int64_t)n;
    }
    return BY_OK;
}

/* Makes the file long without writing it, and sees that the file system did not fill it. */
static by_status make_hole(int fd, int64_t bytes, by_err *err) {
    struct stat st;
    if (ftruncate(fd, bytes) != 0)
        return BY_FAIL(err, BY_EIO, "cannot extend to %" PRId64 " bytes: %s", bytes, strerror(errno));
    if (fstat(fd, &st) != 0) return BY_FAIL(err, BY_EIO, "%s", strerror(errno));
    if ((int64_t)st.st_blocks * 512 > bytes / 2 + (64 << 20))
        return BY_FAIL(err, BY_EUNSUPPORTED, "the file system has no sparse files");
    return BY_OK;
}

static by_status write_shard(const plan *p, int shard, const options *o, by_synth *synth, char *piece, by_err *err) {
    char name[64], path[4096];
    by_buf header = {0};
    int64_t data_bytes = 0;
    shard_name(p, shard, name);
    snprintf(path, sizeof path, "%s/%s", o->out, name);
    by_status status = make_header(&header, p, shard, o->prefix, &data_bytes, err);
    int fd = -1;
    if (status == BY_OK && (fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        status = BY_FAIL(err, BY_EIO, "%s", strerror(errno));
    if (status == BY_OK) status = by_fd_write_all(fd, header.ptr, header.len, err);
    if (status == BY_OK && o->sparse) status = make_hole(fd, (int64_t)header.len + data_bytes, err);
    for (int e = 0; e < 3 && !o->sparse; e++)
        for (size_t i = p->first[shard]; i < p->first[shard + 1] && status == BY_OK; i++)
            if (element_bytes(&p->specs[i]) == element_sizes[e])
                status = write_tensor(fd, synth, &p->specs[i], piece, err);
    if (fd >= 0 && close(fd) != 0 && status == BY_OK) status = BY_FAIL(err, BY_EIO, "%s", strerror(errno));
    if (status < 0) by_err_prefix(err, "%s: ", path);
    by_buf_deinit(&header);
    return status;
}

static by_status write_index(const plan *p, const options *o, by_err *err) {
    char path[4096], name[64];
    by_buf out = {0};
    by_buf_printf(&out, "{\n  \"metadata\": {\"total_size\": %" PRId64 "},\n  \"weight_map\": {", p->bytes);
    for (int shard = 0; shard < p->n_shards; shard++) {
        shard_name(p, shard, name);
        for (size_t i = p->first[shard]; i < p->first[shard + 1]; i++)
            by_buf_printf(&out, "%s\n    \"%s%s\": \"%s\"", i ? "," : "", o->prefix ? "model." : "", p->specs[i].name,
                          name);
    }
    by_buf_push_z(&out, "\n  }\n}\n");
    by_status status = by_buf_check(&out, err);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", o->out);
    if (status == BY_OK) status = by_file_write(path, out.ptr, out.len, err);
    by_buf_deinit(&out);
    return status;
}

static by_status copy_tokenizer(const options *o, by_err *err) {
    char path[4096];
    by_buf text = {0};
    snprintf(path, sizeof path, "%s/tokenizer.json", o->out);
    by_status status = by_file_read(&text, o->tokenizer, BY_LIMIT_JSON_FILE_BYTES, err);
    if (status == BY_OK) status = by_file_write(path, text.ptr, text.len, err);
    by_buf_deinit(&text);
    return status;
}

static by_status prepare_folder(const plan *p, const options *o, by_err *err) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/config.json", o->out);
    if (n < 0 || n > 3900) return BY_FAIL(err, BY_EINVAL, "--out: path too long");
    if (mkdir(o->out, 0777) != 0 && errno != EEXIST) return BY_FAIL(err, BY_EIO, "%s: %s", o->out, strerror(errno));
    if (by_file_exists(path) && !o->force)
        return BY_FAIL(err, BY_EINVAL, "%s: there is a checkpoint already; --force replaces its files", o->out);
    struct statvfs fs;
    if (o->sparse || statvfs(o->out, &fs) != 0) return BY_OK;
    double room = (double)fs.f_bavail * (double)fs.f_frsize;
    return (double)p->bytes < room ? BY_OK
                                   : BY_FAIL(err, BY_EIO, "%s: %.1f GB are needed, %.1f GB are free", o->out,
                                             (double)p->bytes * 1e-9, room * 1e-9);
}

static by_status write_all(const plan *p, const by_config *c, const by_buf *config_text, const options *o,
                           by_err *err) {
    char path[4096];
    by_synth synth = {0};
    char *piece = NULL;
    by_status status = prepare_folder(p, o, err);
    if (status == BY_OK) status = by_synth_init(&synth, o->seed, o->gain, c->hc_mult, err);
    if (status == BY_OK && !(piece = by_alloc(BY_MEM_MISC, PIECE_BYTES)))
        status = BY_FAIL(err, BY_ENOMEM, "out of memory");
    for (int i = 0; i < p->n_shards && status == BY_OK; i++)
        status = write_shard(p, i, o, &synth, piece, err);
    if (status == BY_OK) status = write_index(p, o, err);
    if (status == BY_OK && o->tokenizer) status = copy_tokenizer(o, err);
    snprintf(path, sizeof path, "%.4000s/config.json", o->out);
    if (status == BY_OK) status = by_file_write(path, config_text->ptr, config_text->len, err);
    by_free(piece);
    by_synth_deinit(&synth);
    return status;
}

/* ---- command ---- */

/* Choices that keep a test model small unless the flags ask otherwise. */
static by_status complete(options *o, char preset_path[4096], by_err *err) {
    if (!o->out) return BY_FAIL(err, BY_EINVAL, "--out is needed");
    if (!o->config.path) {
        snprintf(preset_path, 4096, "%s/tools/presets/%s.json", BATHYC_SOURCE_DIR, o->preset);
        if (strchr(o->preset, '/') || !by_file_exists(preset_path))
            return BY_FAIL(err, BY_EINVAL, "--preset: there is no %s; flash and narrow exist, --config takes any file",
                           o->preset);
        o->config.path = preset_path;
        if (strcmp(o->preset, "flash") == 0 && !o->sparse && o->config.engram_vocab == 0) {
            o->config.engram_vocab = DEFAULT_ENGRAM_VOCAB;
            fprintf(stderr,
                    "make_checkpoint: Engram tables of 203 GB are shrunk; --engram-vocab 16000000 keeps them\n");
        }
    }
    o->config.no_compression = !o->tokenizer && !o->sparse;
    return BY_OK;
}

static by_status run(options *o, by_err *err) {
    static by_config config;
    char preset_path[4096];
    by_buf text = {0};
    by_problems problems = {0};
    plan p = {0};
    by_status status = complete(o, preset_path, err);
    if (status == BY_OK) status = by_synth_config_make(&text, &config, &o->config, &problems, err);
    if (status == BY_OK) status = by_tensor_table_walk(&config, add_spec, &p, err);
    if (status == BY_OK) status = cut_shards(&p, o->shard_mb * 1000000, err);
    if (status == BY_OK) status = write_all(&p, &config, &text, o, err);
    if (status == BY_OK)
        fprintf(stderr, "make_checkpoint: %zu tensors, %.3f GB in %d shards%s -> %s\n", p.n, (double)p.bytes * 1e-9,
                p.n_shards, o->sparse ? " (sparse)" : "", o->out);
    by_problems_deinit(&problems);
    by_buf_deinit(&text);
    by_free(p.specs);
    by_free(p.first);
    return status;
}

int main(int argc, char **argv) {
    options o = {.preset = "narrow", .shard_mb = 10700, .gain = 1};
    by_synth_config_opts *c = &o.config;
    const by_flag flags[] = {
        {.names = "--out,-o", .kind = BY_FLAG_STRING, .out = &o.out, .help = "folder to write, made when missing"},
        {.names = "--preset",
         .kind = BY_FLAG_STRING,
         .out = &o.preset,
         .help = "flash (published sizes) or narrow (same layers, small)"},
        {.names = "--config",
         .kind = BY_FLAG_STRING,
         .out = &c->path,
         .help = "config.json to start from instead of a preset"},
        {.names = "--layers",
         .kind = BY_FLAG_INT,
         .out = &c->n_layers,
         .min = 1,
         .max = BY_LIMIT_LAYERS,
         .help = "trunk layers; the pattern of kinds is kept"},
        {.names = "--experts",
         .kind = BY_FLAG_INT,
         .out = &c->n_experts,
         .min = 1,
         .max = BY_LIMIT_EXPERTS,
         .help = "routed experts of a layer"},
        {.names = "--vocab",
         .kind = BY_FLAG_INT,
         .out = &c->vocab,
         .min = 8,
         .max = BY_LIMIT_VOCAB,
         .help = "vocabulary"},
        {.names = "--engram-vocab",
         .kind = BY_FLAG_INT,
         .out = &c->engram_vocab,
         .min = 2,
         .max = BY_LIMIT_PRIME_START,
         .help = "smallest Engram table of one head, in rows"},
        {.names = "--set",
         .kind = BY_FLAG_LIST,
         .out = &c->sets,
         .help = "any config key: --set hc_mult=2 --set vision_config.patch_size=8"},
        {.names = "--without-engram", .kind = BY_FLAG_BOOL, .out = &c->no_engram, .help = "no Engram layers"},
        {.names = "--without-drafts", .kind = BY_FLAG_BOOL, .out = &c->no_drafts, .help = "no draft layers"},
        {.names = "--without-vision", .kind = BY_FLAG_BOOL, .out = &c->no_vision, .help = "no image tower"},
        {.names = "--tokenizer",
         .kind = BY_FLAG_STRING,
         .out = &o.tokenizer,
         .help = "tokenizer.json to copy; without one Engram token compression is off"},
        {.names = "--seed", .kind = BY_FLAG_UINT64, .out = &o.seed, .help = "of the weights (0)"},
        {.names = "--gain",
         .kind = BY_FLAG_DOUBLE,
         .out = &o.gain,
         .dmin = 0,
         .dmax = 100,
         .help = "factor on matrices that write into the streams; below 1 dampens noise (1)"},
        {.names = "--shard-mb",
         .kind = BY_FLAG_INT,
         .out = &o.shard_mb,
         .min = 1,
         .max = 1000000000,
         .help = "size of a shard in MB (10700)"},
        {.names = "--prefix", .kind = BY_FLAG_BOOL, .out = &o.prefix, .help = "write names with a leading model."},
        {.names = "--sparse",
         .kind = BY_FLAG_BOOL,
         .out = &o.sparse,
         .help = "real headers, holes for data: full size in seconds"},
        {.names = "--force", .kind = BY_FLAG_BOOL, .out = &o.force, .help = "replace a checkpoint"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("usage: make_checkpoint --out DIR [flags]\n\nWrites a checkpoint with random weights.\n\n");
        by_args_print_help(flags, n_flags);
        return 0;
    }
    by_err err = {0};
    by_status status = by_args_parse(flags, n_flags, argc - 1, argv + 1, NULL, 0, NULL, &err);
    bool usage = status < 0;
    if (!usage) status = run(&o, &err);
    if (status < 0) fprintf(stderr, "make_checkpoint: %s\n", err.msg);
    by_args_free(flags, n_flags);
    return status == BY_OK ? 0 : usage ? 2 : 1;
}
