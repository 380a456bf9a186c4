/* gpu_golden.c - greedy tokens and logits of the bundled model as each kind of device gave them before: a device that begins to speak
 * nonsense is noticed by what it said. Lines of the file: device, instruction set, numerics, a prompt, the tokens behind it (with drafts),
 * and every 32nd logit of the prompt's last row. tests/golden/data/device/ORIGIN.md has the limits. Exit code 1 when something differs,
 * 77 when the machine has no device.
 * usage: gpu_golden MODEL FILE [make], which prints the file anew */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "engine/solo_gen.h"
#include "gpu_support.h"
#include "json/json.h"

enum { MOST = 64, OUT = 16, EACH = 32, LOGITS = 1024 };

typedef struct {
    char device[16], isa[16], numerics[16];
    int32_t prompt[MOST + OUT], ids[MOST];
    double logits[LOGITS];
    int32_t n_prompt, n_ids, n_logits;
} line;

static void take_text(char *to, size_t cap, const by_json *v) {
    if (by_json_is(v, BY_JSON_STRING)) snprintf(to, cap, "%.*s", (int)v->v.s.len, v->v.s.ptr);
}
static int32_t take_ids(int32_t *to, const by_json *v, int32_t most) {
    int32_t n = by_json_is(v, BY_JSON_ARRAY) ? (int32_t)v->n : 0;
    for (int32_t i = 0; i < n && i < most; i++) to[i] = (int32_t)by_json_number(&v->v.items[i]);
    return n < most ? n : most;
}
static line read_line(by_str text) {
    by_arena arena;
    by_json v;
    line l = {.n_prompt = 0};
    by_arena_init(&arena, BY_MEM_JSON);
    MUST(by_json_parse(&v, &arena, text, NULL, err));
    take_text(l.device, sizeof l.device, by_json_get(&v, "device"));
    take_text(l.isa, sizeof l.isa, by_json_get(&v, "isa"));
    take_text(l.numerics, sizeof l.numerics, by_json_get(&v, "numerics"));
    l.n_prompt = take_ids(l.prompt, by_json_get(&v, "prompt"), MOST);
    l.n_ids = take_ids(l.ids, by_json_get(&v, "ids"), MOST);
    const by_json *logits = by_json_get(&v, "logits");
    for (uint32_t i = 0; by_json_is(logits, BY_JSON_ARRAY) && i < logits->n && i < LOGITS; i++)
        l.logits[l.n_logits++] = by_json_number(&logits->v.items[i]);
    by_arena_deinit(&arena);
    return l;
}

static by_status take_token(void *arg, int32_t token, float logprob, by_err *err) {
    (void)logprob, (void)err;
    line *l = arg;
    l->ids[l->n_ids++] = token;
    return BY_OK;
}

/* What the device says now; ids only where the line has some, or all is made anew. False: no such device here. */
static bool ask(const char *model, line *l, bool ids) {
    by_solo s;
    by_err why = {0};
    by_solo_opts o = {.draft = true, .device = {.n_threads = 1, .isa = l->isa[0] ? l->isa : NULL}};
    o.device.backend = strcmp(l->device, "cuda") == 0 ? BY_BACKEND_CUDA : strcmp(l->device, "ref") == 0 ? BY_BACKEND_REF : BY_BACKEND_CPU;
    o.model.numerics = strcmp(l->numerics, "exact") == 0 ? BY_NUMERICS_EXACT : BY_NUMERICS_DEPLOYED;
    by_status status = by_solo_open(&s, model, &o, &why);
    if (status == BY_EUNSUPPORTED) return false;
    if (status < 0) fprintf(stderr, "gpu_golden: %s\n", why.msg), exit(1);
    MUST(by_solo_reserve(&s, MOST + OUT, 64, err));
    float *row = malloc((size_t)s.model->cfg.vocab_size * 4);
    MUST(by_solo_feed(&s, l->prompt, l->n_prompt, err));
    MUST(by_solo_logits(&s, row, err));
    l->n_logits = l->n_ids = 0;
    for (int32_t i = 0; i < s.model->cfg.vocab_size && l->n_logits < LOGITS; i += EACH) l->logits[l->n_logits++] = (double)row[i];
    by_solo_gen_opts g = {.sampling = by_sample_params_default(), .max_tokens = OUT, .draft = true};
    g.sampling.law.temperature = 0;
    g.sampling.eos_id = s.model->cfg.eos_id;
    by_solo_gen_result r;
    s.seq.n_tokens = l->n_prompt - 1; /* its number of tokens is odd: no pair of a compressor is open in front of the last */
    if (ids) MUST(by_solo_generate(&s, l->prompt, l->n_prompt, &g, take_token, l, &r, err));
    free(row);
    by_solo_close(&s);
    return true;
}

static void print(const line *l) {
    printf("{\"device\":\"%s\",\"isa\":\"%s\",\"numerics\":\"%s\",\"prompt\":[", l->device, l->isa, l->numerics);
    for (int32_t i = 0; i < l->n_prompt; i++) printf("%s%d", i ? "," : "", l->prompt[i]);
    printf("],\"ids\":[");
    for (int32_t i = 0; i < l->n_ids; i++) printf("%s%d", i ? "," : "", l->ids[i]);
    printf("],\"logits\":[");
    for (int32_t i = 0; i < l->n_logits; i++) printf("%s%.7g", i ? "," : "", l->logits[i]);
    printf("]}\n");
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Limits: see ORIGIN.md. */
static bool same(const line *then, const line *now, int number) {
    double d[LOGITS];
    bool exact = strcmp(now->numerics, "exact") == 0;
    bool ok = then->n_logits > 0 && then->n_logits == now->n_logits;
    bool ids = then->n_ids == 0 || (then->n_ids == now->n_ids && memcmp(then->ids, now->ids, (size_t)now->n_ids * 4) == 0);
    for (int32_t i = 0; i < now->n_logits && ok; i++) {
        d[i] = fabs(then->logits[i] - now->logits[i]);
        ok = d[i] < 1e30; /* also false for NaN */
    }
    if (ok) qsort(d, (size_t)now->n_logits, sizeof *d, ascending);
    double median = ok ? d[now->n_logits / 2] : NAN, most = ok ? d[now->n_logits - 1] : NAN;
    ok = ok && ids && (exact ? most <= 2e-4 : median <= 0.4);
    printf("line %d, %s %s, %s: %d tokens %s, logits differ by %.2g, at most %.2g %s\n", number, now->device, now->isa, now->numerics,
           then->n_ids, ids ? "equal" : "DIFFER", median, most, ok ? "ok" : "FAILED");
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: gpu_golden MODEL FILE [make]\n"), 2;
    bool make = argc > 3;
    by_buf text = {0};
    MUST(by_file_read(&text, argv[2], 1 << 20, err));
    int failed = 0, n = 0, n_far = 0;
    for (char *at = text.ptr, *end = at + text.len; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        line then = read_line((by_str){at, (size_t)(stop - at)}), now = then;
        bool ids = make || then.n_ids > 0;
        at = stop + 1;
        n++;
        if (make && strcmp(then.device, "cuda") == 0 && strcmp(then.numerics, "exact") != 0) ids = false;
        bool there = ask(argv[1], &now, ids);
        if (make) print(there ? &now : &then);
        else if (!there) printf("line %d, %s %s: not on this machine\n", n, then.device, then.isa);
        else failed += !same(&then, &now, n);
        n_far += there && strcmp(then.device, "cuda") == 0;
    }
    by_buf_deinit(&text);
    if (make) return 0;
    printf("%d of %d lines failed\n", failed, n);
    return failed ? 1 : n_far ? 0 : 77;
}
