/* engine_stream.c - the C API in one page: two prompts are continued at once, their texts shown as they come, and the longer one
 * is cancelled as soon as the shorter one has ended.
 *
 *   engine_stream MODEL_DIR "first prompt" "second prompt" */
#include <stdio.h>
#include <string.h>

#include "bathyc/engine.h"

static int submit(bathyc_engine *e, const char *prompt, int max_tokens, uint64_t *id) {
    bathyc_request r = bathyc_request_default();
    bathyc_error error;
    r.text = prompt;
    r.max_tokens = max_tokens;
    r.temperature = 0;
    r.ignore_eos = 1; /* so that the second one really has to be cancelled */
    if (bathyc_submit(e, &r, id, &error) == BATHYC_OK) return 1;
    fprintf(stderr, "submit: %s\n", error.message);
    return 0;
}

static const char *finish_name(bathyc_finish f) {
    static const char *const names[] = {"running", "stop", "length", "cancelled", "error"};
    return names[f];
}

/* Reads outputs until nothing runs; ids: the two requests. */
static int stream(bathyc_engine *e, const uint64_t ids[2]) {
    bathyc_output out[16];
    bathyc_error error;
    size_t n;
    int code;
    while ((code = bathyc_step(e, out, 16, &n, -1, &error)) == BATHYC_OK) {
        for (size_t i = 0; i < n; i++) {
            int which = out[i].id == ids[0] ? 1 : 2;
            if (out[i].text_bytes) printf("[%d] %s\n", which, out[i].text);
            if (!out[i].finished) continue;
            printf("[%d] -- %s after %d tokens\n", which, finish_name(out[i].finish), out[i].n_output);
            if (out[i].error) fprintf(stderr, "request %d: %s\n", which, out[i].error);
            if (which == 1) bathyc_abort(e, ids[1]);
        }
        fflush(stdout);
    }
    if (code == BATHYC_IDLE) return 1;
    fprintf(stderr, "step: %s\n", error.message);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: engine_stream MODEL_DIR PROMPT PROMPT\n"), 2;
    bathyc_config config = bathyc_config_default();
    bathyc_error error;
    uint64_t ids[2];
    config.model_dir = argv[1];
    config.max_num_seqs = 8;
    config.max_batch_rows = 256;
    bathyc_engine *e = bathyc_open(&config, &error);
    if (!e) return fprintf(stderr, "open: %s\n", error.message), 1;
    int good = submit(e, argv[2], 8, &ids[0]) && submit(e, argv[3], 4000, &ids[1]) && stream(e, ids);
    bathyc_stats stats = bathyc_stats_get(e);
    fprintf(stderr, "%llu steps, %llu tokens\n", (unsigned long long)stats.steps, (unsigned long long)stats.output_tokens);
    bathyc_close(e);
    return good ? 0 : 1;
}
