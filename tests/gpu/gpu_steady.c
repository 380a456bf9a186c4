/* gpu_steady.c - the bundled model on the device, token by token: once the shapes are known a step allocates nothing there and waits
 * once, for its answer. Drafts and draws included. Memory that nobody has is refused, and the next step works. Exit code 1 when
 * something differs, 77 when the machine has no device.
 * usage: gpu_steady MODEL */
#include <stdio.h>
#include <stdlib.h>

#include "engine/solo.h"
#include "engine/solo_gen.h"
#include "ops/host.h"

enum { WARM = 24, STEPS = 40 };

static int expect(const char *what, by_device_counts a, by_device_counts b, int steps, int most_waits) {
    uint64_t allocs = b.n_allocs - a.n_allocs, waits = b.n_waits - a.n_waits;
    bool ok = allocs == 0 && waits <= (uint64_t)steps * (uint64_t)most_waits;
    printf("%s: %d steps, %llu allocations, %llu waits, at most %d a step %s\n", what, steps, (unsigned long long)allocs,
           (unsigned long long)waits, most_waits, ok ? "ok" : "FAILED");
    return !ok;
}

/* Asks for 64 TB on the host and on the device. What was refused must not be left behind as an error of the next kernels. */
static int ask_too_much(by_solo *s) {
    const size_t much = (size_t)1 << 46;
    by_mem *mem = NULL;
    by_err err = {0};
    void *host = s->dev->vt->host_alloc(much);
    bool refused = !host && by_mem_alloc(&mem, s->dev, much, &err) == BY_ENOMEM;
    s->dev->vt->host_free(host);
    printf("64 TB are refused %s\n", refused ? "ok" : "FAILED");
    return !refused;
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: gpu_steady MODEL\n"), 2;
    by_err err = {0};
    by_solo s;
    by_status status = by_solo_open(&s, argv[1], &(by_solo_opts){.device = {.backend = BY_BACKEND_CUDA}}, &err);
    if (status == BY_EUNSUPPORTED) return printf("skipped: %s\n", err.msg), 77;
    if (status == BY_OK) status = by_solo_reserve(&s, 1024, 64, &err);
    int32_t tokens[512];
    for (int i = 0; i < 512; i++) tokens[i] = 3 + i * 37 % 1500;
    float *logits = malloc((size_t)(status == BY_OK ? s.model->cfg.vocab_size : 1) * 4);
    by_device_counts before = {0};
    int64_t n = 100;
    if (status == BY_OK) status = by_solo_feed(&s, tokens, n, &err);
    for (int i = 0; i < WARM + STEPS && status == BY_OK; i++) {
        if (i == WARM) before = by_device_counts_get(s.dev);
        status = by_solo_feed(&s, tokens, ++n, &err);
        if (status == BY_OK) status = by_solo_logits(&s, logits, &err);
    }
    if (status < 0) return fprintf(stderr, "gpu_steady: %s\n", err.msg), 1;
    int failed = expect("steps with logits", before, by_device_counts_get(s.dev), STEPS, 1);
    before = by_device_counts_get(s.dev);
    by_draw draw = {.inv_t = 1, .report_inv_t = 1, .words = {77}};
    by_drawn drawn;
    by_draws draws = {.draws = &draw, .n = 1, .out = &drawn};
    for (int i = 0; i < WARM + STEPS && status == BY_OK; i++) {
        if (i == WARM) before = by_device_counts_get(s.dev);
        status = by_solo_feed(&s, tokens, ++n, &err);
        if (status == BY_OK) status = by_device_draw(s.dev, by_runner_logits(s.runner), &draws, &err);
    }
    if (status < 0) return fprintf(stderr, "gpu_steady: %s\n", err.msg), 1;
    failed += expect("steps with draws", before, by_device_counts_get(s.dev), STEPS, 1);
    failed += ask_too_much(&s);
    status = by_solo_feed(&s, tokens, ++n, &err);
    if (status == BY_OK) status = by_solo_logits(&s, logits, &err);
    printf("a step behind that %s\n", status == BY_OK ? "ok" : err.msg);
    failed += status != BY_OK;
    free(logits);
    by_solo_close(&s);
    return failed != 0;
}
