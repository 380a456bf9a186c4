/* gpu_steady.c - a model on the device: memory for steps is there before the first one, so that no step allocates, prompt or decode,
 * draws and drafts included; a step token by token waits once, for its answer, and so does a draw. What operators take lies within
 * what was planned without the device. Memory that nobody has is refused, and the next step works. Exit code 1 when something
 * differs, 77 when the machine has no device.
 * usage: gpu_steady MODEL [MODEL ...]: all are planned for, steps are run with the first */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_impl.h"
#include "engine/solo.h"
#include "gpu_support.h"
#include "ops/host.h"
#ifdef BY_CUDA_HOST
#include "cuda_host/cuda_host_counts.h"
enum { STEPS = 2, PROMPT = 18 };
#else
enum { STEPS = 40, PROMPT = 100 };
#endif

static int n_failed;
static void verdict(const char *what, bool ok) {
    printf("%s %s\n", what, ok ? "ok" : "FAILED");
    n_failed += !ok;
}

/* What the backend counts; on the emulated device also what was really called. */
typedef struct {
    by_device_counts own, seen;
} counts;
static counts count(const by_device *dev) {
    counts c = {by_device_counts_get(dev), {0}};
#ifdef BY_CUDA_HOST
    cuda_host_counts seen = cuda_host_counts_get();
    c.seen = (by_device_counts){.n_allocs = seen.allocs, .n_waits = seen.waits};
#else
    c.seen = c.own;
#endif
    return c;
}
static void expect(const char *what, counts a, counts b, int most_waits) {
    uint64_t allocs[] = {b.own.n_allocs - a.own.n_allocs, b.seen.n_allocs - a.seen.n_allocs};
    uint64_t waits[] = {b.own.n_waits - a.own.n_waits, b.seen.n_waits - a.seen.n_waits};
    char text[160];
    snprintf(text, sizeof text, "%s: %llu allocations, %llu waits, at most %d (%llu and %llu were called)", what, (unsigned long long)allocs[0],
             (unsigned long long)waits[0], most_waits, (unsigned long long)allocs[1], (unsigned long long)waits[1]);
    bool ok = waits[0] <= (uint64_t)most_waits && waits[1] <= (uint64_t)most_waits;
    verdict(text, ok && allocs[0] == 0 && allocs[1] == 0);
}

/* Asks for 64 TB on the host and on the device. What was refused must not be left behind as an error of the next kernels. */
static void ask_too_much(by_solo *s) {
    const size_t much = (size_t)1 << 46;
    by_mem *mem = NULL;
    by_err err = {0};
    void *host = s->dev->vt->host_alloc(much);
    verdict("64 TB are refused", !host && by_mem_alloc(&mem, s->dev, much, &err) == BY_ENOMEM);
    s->dev->vt->host_free(host);
}

static void one_sequence(const char *model) {
    by_solo s;
    MUST(by_solo_open(&s, model, &(by_solo_opts){.device = {.backend = BY_BACKEND_CUDA}}, err));
    MUST(by_solo_reserve(&s, 512, 64, err));
    int32_t tokens[512], V = s.model->cfg.vocab_size;
    for (int i = 0; i < 512; i++) tokens[i] = i * 37 % V;
    float *logits = malloc((size_t)V * 4);
    int64_t n = PROMPT;
    counts a = count(s.dev);
    MUST(by_solo_feed(&s, tokens, n, err));
    expect("prompt", a, count(s.dev), 0);
    a = count(s.dev);
    for (int i = 0; i < STEPS; i++) {
        MUST(by_solo_feed(&s, tokens, ++n, err));
        MUST(by_solo_logits(&s, logits, err));
    }
    expect("steps with logits", a, count(s.dev), STEPS);
    by_drawn_top top[8];
    by_draw draw = {.inv_t = 1, .report_inv_t = 1, .words = {77},
                    .cuts = true, .mass_most = UINT64_MAX, .n_most = 20, .floor_s = -1e30f, .n_top = 8};
    by_drawn drawn;
    by_draws draws = {.draws = &draw, .n = 1, .out = &drawn, .tops = top, .top_stride = 8};
    a = count(s.dev);
    for (int i = 0; i < STEPS; i++) {
        MUST(by_solo_feed(&s, tokens, ++n, err));
        MUST(by_device_draw(s.dev, by_runner_logits(s.runner), &draws, err));
    }
    expect("steps with draws", a, count(s.dev), STEPS);
    ask_too_much(&s);
    MUST(by_solo_feed(&s, tokens, ++n, err));
    MUST(by_solo_logits(&s, logits, err));
    free(logits);
    by_solo_close(&s);
}

/* A prompt in one chunk and in many: the descriptions of several steps are on their way while others are written, and each step must get
 * its own. The same bits. */
static void chunks(const char *model) {
    by_solo s;
    MUST(by_solo_open(&s, model, &(by_solo_opts){.device = {.backend = BY_BACKEND_CUDA}}, err));
    int32_t tokens[PROMPT], V = s.model->cfg.vocab_size;
    for (int i = 0; i < PROMPT; i++) tokens[i] = i * 91 % V;
    float *logits[2];
    for (int i = 0; i < 2; i++) {
        logits[i] = malloc((size_t)V * 4);
        MUST(by_solo_reserve(&s, 128, i ? 3 : PROMPT, err));
        MUST(by_solo_feed(&s, tokens, PROMPT, err));
        MUST(by_solo_logits(&s, logits[i], err));
    }
    verdict("chunks behind one another get the bits of one", memcmp(logits[0], logits[1], (size_t)V * 4) == 0);
    free(logits[0]);
    free(logits[1]);
    by_solo_close(&s);
}

/* Requests of several kinds at once, with drafts: prompts in chunks, cuts, alternatives, and a penalty when that is wanted. */
static void requests(by_engine *e, int32_t V, int n_out, bool penalty) {
    enum { N = 4 };
    by_request *r[N];
    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++) tokens[i] = i * 53 % V;
    for (int i = 0; i < N; i++) {
        by_request_opts o = by_request_opts_default();
        o.tokens = tokens;
        o.n_tokens = i == 0 ? PROMPT : 3 + i;
        o.max_tokens = n_out + i;
        o.ignore_eos = true;
        o.sampling.law.temperature = i == 3 ? 0 : 0.8f;
        if (i == 1) o.sampling.law.top_k = 12, o.sampling.law.top_p = 0.9f, o.n_top = 4;
        if (i == 2 && penalty) o.sampling.frequency_penalty = 0.5f;
        MUST(by_engine_submit(e, &o, &r[i], err));
    }
    for (int i = 0; i < N; i++) {
        by_event ev = {.finish = BY_CHOICE_RUNNING};
        while (ev.finish == BY_CHOICE_RUNNING) if (by_request_next(r[i], &ev, 300000) != BY_OK) break;
        if (ev.finish != BY_CHOICE_LENGTH) verdict("a request ends as it should", false);
        by_request_release(r[i]);
    }
    by_engine_wait_idle(e, -1);
}

/* What measuring the operators comes to lies within what is planned without looking at them, and not far below. */
static void plan(const char *model) {
    static const int32_t rows[] = {3, 64, 600, 2000};
    by_solo s;
    by_solo_opts opts = {.device = {.backend = BY_BACKEND_CUDA}, .draft = true, .model = {.numerics = BY_NUMERICS_DEPLOYED}};
    MUST(by_solo_open(&s, model, &opts, err));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        MUST(by_solo_reserve(&s, 4096, rows[i], err));
        int32_t K = s.n_drafts;
        by_runner_opts run = {.max_rows = rows[i] > K ? rows[i] : K + 1, .max_seqs = 1, .max_logits = s.max_logits,
                              .max_context = 4096 + K, .n_drafts = K};
        int64_t planned = by_runner_scratch_bytes(s.model, &run), taken = by_device_room_get(s.dev).scratch;
        char text[120];
        snprintf(text, sizeof text, "steps of %d rows take %lld bytes of scratch, planned %lld", rows[i], (long long)taken, (long long)planned);
        verdict(text, taken > planned / 4 && taken <= planned + 255);
    }
    by_solo_close(&s);
}

/* A step waits once: for its marks and draws; a snapshot of a prefix is one more answer. A block of drafts once more, or, with a penalty that
 * follows what was drafted, for each draft and for the confidences. */
static void engine(const char *model, const char *drafts, by_draft_mode mode, bool penalty) {
    by_engine_opts o = by_engine_opts_default();
    o.device = (by_device_opts){.backend = BY_BACKEND_CUDA, .memory_bytes = (int64_t)1 << 30};
    o.model_dir = model;
    o.max_context = 256;
    o.sched.max_seqs = 4;
    o.sched.max_rows = 40;
    o.draft_mode = mode;
    o.cost = (by_draft_cost_point[]){{1, 1}, {64, 2}};
    o.n_cost = 2;
    by_engine *e;
    MUST(by_engine_open(&e, &o, err));
    const by_device *dev = e->dev;
    const by_model *m = by_engine_model(e);
    int64_t room = by_device_room_get(dev).used;
    counts a = count(dev);
    by_engine_stats before = by_engine_stats_get(e);
    requests(e, m->cfg.vocab_size, STEPS, penalty);
    by_engine_stats after = by_engine_stats_get(e);
    char text[160];
    int steps = (int)(after.n_steps - before.n_steps), snapshots = (int)(after.n_snapshots - before.n_snapshots);
    int waits = mode == BY_DRAFT_OFF ? 1 : penalty ? 2 + m->cfg.draft.block_size : 2;
    snprintf(text, sizeof text, "engine, drafts %s, %d steps, %d from recordings", drafts, steps, (int)(after.n_replayed - before.n_replayed));
    expect(text, a, count(dev), steps * waits + snapshots);
    snprintf(text, sizeof text, "engine, drafts %s: no memory but what was there", drafts);
    verdict(text, room == by_device_room_get(dev).used);
    by_engine_close(e);
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: gpu_steady MODEL\n"), 2;
    by_err why = {0};
    by_device *dev = NULL;
    by_status status = by_device_open(&dev, &(by_device_opts){.backend = BY_BACKEND_CUDA}, &why);
    if (status == BY_EUNSUPPORTED) return printf("skipped: %s\n", why.msg), 77;
    by_device_close(dev);
    for (int i = 1; i < argc; i++) plan(argv[i]);
    one_sequence(argv[1]);
    chunks(argv[1]);
    engine(argv[1], "off", BY_DRAFT_OFF, true);
    engine(argv[1], "fixed", BY_DRAFT_FIXED, false);
    engine(argv[1], "fixed, with a penalty", BY_DRAFT_FIXED, true);
    return n_failed != 0;
}
