/* Instruction set tiers, and the number of threads from affinity masks, topology and cgroup limits of fake file trees. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/cpu.h"
#include "base/file.h"

static char root[64];

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + 1; *p; p++) {
        if (*p != '/') continue;
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    assert_int_equal(by_file_write(full, text, strlen(text), NULL), BY_OK);
}

static int fresh_root(void **state) {
    (void)state;
    strcpy(root, "/tmp/bathyc-cpu-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}
static int remove_root(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void put_topology(int n_cpus, int threads_per_core, int cores_per_package) {
    for (int i = 0; i < n_cpus; i++) {
        char path[128], text[16];
        int core = i / threads_per_core;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", i);
        snprintf(text, sizeof text, "%d\n", core % cores_per_package);
        put(path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        snprintf(text, sizeof text, "%d\n", core / cores_per_package);
        put(path, text);
    }
}

static by_cpu_share share_of(uint64_t mask) {
    by_cpu_share s;
    by_cpu_share_read(&s, root, &mask, 1);
    return s;
}

static void siblings_count_as_one_core(void **state) {
    (void)state;
    put_topology(8, 2, 2); /* two packages with two cores of two threads; core ids repeat between packages */
    by_cpu_share s = share_of(0xff);
    assert_int_equal(s.affinity, 8);
    assert_int_equal(s.cores, 4);
    assert_int_equal(s.threads, 4);
    s = share_of(0x0b); /* cpus 0, 1, 3: two cores */
    assert_int_equal(s.affinity, 3);
    assert_int_equal(s.threads, 2);
}

static void unknown_topology_counts_processors(void **state) {
    (void)state;
    by_cpu_share s = share_of(0x7);
    assert_int_equal(s.cores, 3);
    assert_true(s.quota == 0);
    assert_int_equal(share_of(0).threads, 1);
}

static void cgroup_v2_limit_of_any_ancestor_binds(void **state) {
    (void)state;
    put("/proc/self/mountinfo", "20 1 0:5 / / rw - overlay overlay rw\n30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/outer/cpu.max", "350000 100000\n");
    by_cpu_share s = share_of(0xff);
    assert_true(s.quota == 3.5);
    assert_int_equal(s.threads, 3);
    put("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n");
    s = share_of(0xff);
    assert_true(s.quota == 0.5);
    assert_int_equal(s.threads, 1);
}

static void cgroup_v2_limit_of_the_mount_itself_binds(void **state) {
    (void)state;
    put("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(share_of(0xff).threads, 2);
}

static void cgroup_v1_limit_is_found_behind_a_bind_mount(void **state) {
    (void)state;
    put("/proc/self/mountinfo", "30 20 0:26 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw master:9 - cgroup cgroup rw,cpu,cpuacct\n"
                                "31 20 0:27 /docker/abc /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
    put("/proc/self/cgroup", "4:cpuset:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
    by_cpu_share s = share_of(0xff);
    assert_true(s.quota == 5);
    assert_int_equal(s.threads, 5);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(share_of(0xff).threads, 8);
}

static void malformed_files_count_as_absent(void **state) {
    (void)state;
    put("/proc/self/mountinfo", "30\n\n1 2 3\n30 20 0:26 / /sys/fs/cgroup rw - cgroup2\n-\n");
    put("/proc/self/cgroup", "garbage\n::\n0:\n");
    put("/sys/fs/cgroup/cpu.max", "lots\n");
    put("/sys/devices/system/cpu/cpu0/topology/core_id", "x\n");
    assert_int_equal(share_of(0xf).threads, 4);
}

static void detected_tier_and_limits_agree(void **state) {
    (void)state;
    by_cpu cpu;
    by_cpu_detect(&cpu);
    assert_true(by_isa_includes(cpu.isa, BY_ISA_REF));
    assert_true(by_isa_includes(BY_ISA_AMX, BY_ISA_AVX512BF16));
    assert_true(by_isa_includes(BY_ISA_AVX512, BY_ISA_AVX2));
    assert_false(by_isa_includes(BY_ISA_AVX2, BY_ISA_AVX512));
    assert_false(by_isa_includes(BY_ISA_AVX512, BY_ISA_NEON));
    assert_false(by_isa_includes(BY_ISA_NEON, BY_ISA_AVX2));
    for (int i = 0; i < BY_ISA_N; i++) {
        by_cpu lower = cpu;
        by_err err = {0};
        by_status status = by_cpu_limit(&lower, by_isa_name((by_isa)i), &err);
        assert_int_equal(status, by_isa_includes(cpu.isa, (by_isa)i) ? BY_OK : BY_EUNSUPPORTED);
        if (status == BY_OK) assert_int_equal(lower.isa, i);
        else assert_int_equal(lower.isa, cpu.isa);
    }
    by_err err = {0};
    by_cpu same = cpu;
    assert_int_equal(by_cpu_limit(&same, "auto", &err), BY_OK);
    assert_int_equal(same.isa, cpu.isa);
    assert_int_equal(by_cpu_limit(&same, "mmx", &err), BY_EINVAL);
    assert_non_null(strstr(err.msg, "mmx"));
#if defined(__x86_64__)
    /* Against the compiler's own detection, for the names both know. */
    assert_int_equal(by_isa_includes(cpu.isa, BY_ISA_AVX2),
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu.f16c);
    assert_int_equal(by_isa_includes(cpu.isa, BY_ISA_AVX512),
                     __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni"));
    assert_int_equal(by_isa_includes(cpu.isa, BY_ISA_AVX512BF16),
                     __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi"));
#endif
}

static void this_machine_gives_a_sane_share(void **state) {
    (void)state;
    by_cpu_share s;
    by_cpu_share_read(&s, "", NULL, 0);
    assert_true(s.threads >= 1 && s.threads <= s.cores && s.cores <= s.affinity);
    assert_true(s.affinity <= sysconf(_SC_NPROCESSORS_CONF));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(siblings_count_as_one_core, fresh_root, remove_root),
        cmocka_unit_test_setup_teardown(unknown_topology_counts_processors, fresh_root, remove_root),
        cmocka_unit_test_setup_teardown(cgroup_v2_limit_of_any_ancestor_binds, fresh_root, remove_root),
        cmocka_unit_test_setup_teardown(cgroup_v2_limit_of_the_mount_itself_binds, fresh_root, remove_root),
        cmocka_unit_test_setup_teardown(cgroup_v1_limit_is_found_behind_a_bind_mount, fresh_root, remove_root),
        cmocka_unit_test_setup_teardown(malformed_files_count_as_absent, fresh_root, remove_root),
        cmocka_unit_test(detected_tier_and_limits_agree),
        cmocka_unit_test(this_machine_gives_a_sane_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
