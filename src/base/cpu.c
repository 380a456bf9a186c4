/* cpu.c - see cpu.h. The only file, beside the build files, with tests for the platform. */
#include "base/cpu.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/buf.h"
#include "base/file.h"
#include "base/str.h"

static const char *const isa_names[BY_ISA_N] = {"ref", "neon", "avx2", "avx512", "avx512bf16", "amx"};

const char *by_isa_name(by_isa isa) {
    return (unsigned)isa < BY_ISA_N ? isa_names[isa] : "?";
}

bool by_isa_includes(by_isa have, by_isa want) {
    if (want == BY_ISA_REF || have == want) return true;
    return have >= BY_ISA_AVX2 && want >= BY_ISA_AVX2 && have > want;
}

bool by_cpu_amx_permit(void) {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
    enum { REQUEST_XCOMP_PERMISSION = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h and the XSAVE component number */
    return syscall(SYS_arch_prctl, REQUEST_XCOMP_PERMISSION, TILE_DATA) == 0;
#else
    return false;
#endif
}

#if defined(__x86_64__)
static uint64_t read_xcr0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

void by_cpu_detect(by_cpu *out) {
    *out = (by_cpu){.isa = BY_ISA_REF};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    bool osxsave = c >> 27 & 1, avx = c >> 28 & 1;
    if (!osxsave || !avx) return;
    uint64_t xcr0 = read_xcr0();
    bool os_ymm = (xcr0 & 0x6) == 0x6, os_zmm = (xcr0 & 0xe6) == 0xe6, os_tile = (xcr0 >> 17 & 3) == 3;
    out->fma = c >> 12 & 1;
    out->f16c = c >> 29 & 1;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    bool avx2 = b >> 5 & 1, f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
    out->avx512_vbmi = os_zmm && (c >> 1 & 1);
    out->avx512_vnni = os_zmm && (c >> 11 & 1);
    out->amx_bf16 = os_tile && (d >> 22 & 1) && (d >> 24 & 1);
    out->amx_int8 = os_tile && (d >> 25 & 1) && (d >> 24 & 1);
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) out->avx512_bf16 = os_zmm && (a >> 5 & 1);
    if (!(os_ymm && avx2 && out->fma && out->f16c)) return;
    out->isa = BY_ISA_AVX2;
    if (!(os_zmm && f && dq && bw && vl && out->avx512_vnni)) return;
    out->isa = BY_ISA_AVX512;
    if (!(out->avx512_bf16 && out->avx512_vbmi)) return;
    out->isa = BY_ISA_AVX512BF16;
    if (out->amx_bf16 && by_cpu_amx_permit()) out->isa = BY_ISA_AMX;
}
#elif defined(__aarch64__)
void by_cpu_detect(by_cpu *out) {
    unsigned long hw = getauxval(AT_HWCAP), hw2 = getauxval(AT_HWCAP2);
    *out = (by_cpu){.isa = BY_ISA_REF, .neon_dotprod = hw >> 20 & 1, .neon_bf16 = hw2 >> 14 & 1};
    if (hw >> 1 & 1) out->isa = BY_ISA_NEON; /* HWCAP_ASIMD */
}
#else
void by_cpu_detect(by_cpu *out) { *out = (by_cpu){.isa = BY_ISA_REF}; }
#endif

by_status by_cpu_limit(by_cpu *cpu, const char *name, by_err *err) {
    if (strcmp(name, "auto") == 0) return BY_OK;
    for (int i = 0; i < BY_ISA_N; i++) {
        if (strcmp(name, isa_names[i]) != 0) continue;
        if (!by_isa_includes(cpu->isa, (by_isa)i))
            return BY_FAIL(err, BY_EUNSUPPORTED, "instruction set %s: this processor offers %s", name,
                           by_isa_name(cpu->isa));
        cpu->isa = (by_isa)i;
        return BY_OK;
    }
    return BY_FAIL(err, BY_EINVAL, "unknown instruction set '%s' (auto, ref, neon, avx2, avx512, avx512bf16, amx)", name);
}

/* ---- threads worth starting -------------------------------------------------------------------------------------- */

enum { MAX_CPUS = 4096, PATH_BYTES = 1024, FILE_NAME_BYTES = 32, SMALL_FILE_BYTES = 1 << 20 };

/* The file's text with a NUL, or NULL. */
static const char *read_text(by_buf *buf, const char *root, const char *path) {
    char full[3 * PATH_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    if (n < 0 || n >= (int)sizeof full) return NULL;
    by_buf_clear(buf);
    if (by_file_read(buf, full, SMALL_FILE_BYTES, NULL) != BY_OK) return NULL;
    return by_buf_z(buf);
}

static int64_t read_number(by_buf *buf, const char *root, const char *path, int64_t otherwise) {
    const char *text = read_text(buf, root, path);
    if (!text) return otherwise;
    char *end;
    long long v = strtoll(text, &end, 10);
    return end == text ? otherwise : v;
}

/* v2: "max 100000" or "150000 100000" (microseconds). v1: two files, quota -1 = none. 0 = no limit here. */
static double quota_of_group(by_buf *buf, const char *root, const char *folder, bool v2) {
    char path[2 * PATH_BYTES + FILE_NAME_BYTES];
    long long quota = -1, period = 100000;
    if (v2) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        const char *text = read_text(buf, root, path);
        char *end;
        if (!text || strncmp(text, "max", 3) == 0) return 0;
        quota = strtoll(text, &end, 10);
        if (end == text) return 0;
        const char *rest = end;
        period = strtoll(rest, &end, 10);
        if (end == rest) period = 100000;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        quota = read_number(buf, root, path, -1);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        period = read_number(buf, root, path, 100000);
    }
    return quota > 0 && period > 0 ? (double)quota / (double)period : 0;
}

static double tighter(double a, double b) { return a <= 0 ? b : b <= 0 ? a : fmin(a, b); }

/* Walks from mount/group up to mount: a limit on any ancestor binds. */
static double quota_of_path(by_buf *buf, const char *root, const char *mount, const char *group, bool v2) {
    char folder[2 * PATH_BYTES];
    snprintf(folder, sizeof folder, "%s%s", mount, group);
    size_t stop = strlen(mount);
    double quota = 0;
    for (size_t len = strlen(folder);; len--) {
        while (len > stop && folder[len] != '\0' && folder[len] != '/') len--;
        folder[len] = '\0';
        quota = tighter(quota, quota_of_group(buf, root, folder, v2));
        if (len <= stop) return quota;
    }
}

static bool has_option(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",\n");
        if (len == n && strncmp(p, word, n) == 0) return true;
        p += len + (p[len] != '\0');
    }
    return false;
}

/* The path of this process in the group tree of one version: the line "0::/path" (v2) or "5:cpu,cpuacct:/path" (v1). */
static bool own_group(by_buf *buf, const char *root, bool v2, char out[PATH_BYTES]) {
    const char *text = read_text(buf, root, "/proc/self/cgroup");
    for (const char *line = text; line && *line;) {
        size_t len = strcspn(line, "\n");
        char copy[PATH_BYTES];
        snprintf(copy, sizeof copy, "%.*s", (int)(len < sizeof copy ? len : sizeof copy - 1), line);
        char *names = strchr(copy, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (path) {
            *path++ = '\0';
            names++;
            if (v2 ? *names == '\0' : has_option(names, "cpu")) {
                snprintf(out, PATH_BYTES, "%s", strcmp(path, "/") == 0 ? "" : path);
                return true;
            }
        }
        line += len + (line[len] != '\0');
    }
    return false;
}

/* Cuts the next piece of s up to any of the separators and moves s behind it; an empty piece ends the text. */
static by_str next_piece(by_str *s, const char *separators) {
    size_t i = 0, n = 0;
    while (i < s->len && strchr(separators, s->ptr[i])) i++;
    while (i + n < s->len && !strchr(separators, s->ptr[i + n])) n++;
    by_str piece = by_str_of(s->ptr + i, n);
    *s = by_str_skip(*s, i + n);
    return piece;
}

/* One mountinfo line: "36 35 98:0 /root /mount/point opts tags - type source superopts". In a container the mount may
 * show a subtree (its root field), which is then cut from the group's path. */
static double quota_of_mount(const char *root, by_str line, by_buf *buf) {
    char top[PATH_BYTES], mount[PATH_BYTES], super[PATH_BYTES], group[PATH_BYTES];
    for (int i = 0; i < 3; i++) next_piece(&line, " ");
    by_str word = next_piece(&line, " ");
    snprintf(top, sizeof top, "%.*s", BY_STR_ARG(word));
    word = next_piece(&line, " ");
    snprintf(mount, sizeof mount, "%.*s", BY_STR_ARG(word));
    word = next_piece(&line, " ");
    while (word.len && !by_str_eqz(word, "-")) word = next_piece(&line, " ");
    by_str type = next_piece(&line, " ");
    next_piece(&line, " ");
    word = next_piece(&line, " ");
    snprintf(super, sizeof super, "%.*s", BY_STR_ARG(word));
    bool v2 = by_str_eqz(type, "cgroup2");
    if (!v2 && !(by_str_eqz(type, "cgroup") && has_option(super, "cpu"))) return 0;
    if (!own_group(buf, root, v2, group)) group[0] = '\0';
    const char *below = group;
    if (strcmp(top, "/") != 0) {
        size_t cut = strlen(top);
        below = strncmp(group, top, cut) == 0 && (group[cut] == '/' || !group[cut]) ? group + cut : "";
    }
    return quota_of_path(buf, root, mount, below, v2);
}

static double read_quota(const char *root) {
    by_buf mounts = {0}, buf = {0};
    double quota = 0;
    if (read_text(&mounts, root, "/proc/self/mountinfo")) {
        by_str text = by_buf_str(&mounts);
        for (by_str line = next_piece(&text, "\n"); line.len; line = next_piece(&text, "\n"))
            quota = tighter(quota, quota_of_mount(root, line, &buf));
    }
    by_buf_deinit(&mounts);
    by_buf_deinit(&buf);
    return quota;
}

void by_cpu_share_read(by_cpu_share *out, const char *root, const uint64_t *mask, int32_t n_mask_words) {
    uint64_t own[MAX_CPUS / 64];
    if (!mask) {
        memset(own, 0, sizeof own);
        if (sched_getaffinity(0, sizeof own, (cpu_set_t *)(void *)own) != 0) own[0] = 1;
        n_mask_words = MAX_CPUS / 64;
        mask = own;
    }
    *out = (by_cpu_share){0};
    int32_t n_cores = 0;
    int64_t cores[MAX_CPUS];
    by_buf buf = {0};
    for (int32_t cpu = 0; cpu < n_mask_words * 64 && cpu < MAX_CPUS; cpu++) {
        if (!(mask[cpu / 64] >> (cpu % 64) & 1)) continue;
        out->affinity++;
        char path[128];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
        int64_t core = read_number(&buf, root, path, -1);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
        int64_t package = read_number(&buf, root, path, 0);
        int64_t key = core < 0 ? -1 - cpu : package << 32 | core; /* unknown topology: a core of its own */
        int32_t i = 0;
        while (i < n_cores && cores[i] != key) i++;
        if (i == n_cores) cores[n_cores++] = key;
    }
    by_buf_deinit(&buf);
    out->cores = n_cores;
    out->quota = read_quota(root);
    int32_t threads = n_cores;
    if (out->quota > 0 && out->quota < threads) threads = (int32_t)out->quota;
    out->threads = threads > 0 ? threads : 1;
}
