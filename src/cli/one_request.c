/* one_request.c - see one_request.h. */
#include "cli/one_request.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

enum { CHUNK = 512, LOOK_MS = 50 }; /* rows of a step, unless asked for; how long an interrupt may go unseen while the prompt is read */

by_status by_draw_flags_set(by_sample_params *o, by_draw_flags *d, bool keep_seed, by_err *err) {
    o->law.temperature = (float)d->temperature;
    o->law.top_p = (float)d->top_p;
    o->law.top_k = d->top_k > 0 ? (int32_t)d->top_k : -1; /* 0 means off, too, as in requests */
    o->law.min_p = (float)d->min_p;
    o->seed = d->seed;
    if (!d->has_seed && getrandom(&o->seed, sizeof o->seed, 0) != sizeof o->seed) return BY_FAIL(err, BY_EIO, "no random seed to be had");
    if (keep_seed) d->seed = o->seed, d->has_seed = true;
    return BY_OK;
}

by_status by_one_request_open(by_engine **out, by_engine_flags *f, by_err *err) {
    by_engine_opts o;
    if (!f->max_seqs) f->max_seqs = 1;
    if (!f->max_rows) f->max_rows = f->model.chunk ? f->model.chunk : CHUNK;
    if (f->max_rows < f->max_seqs) f->max_rows = f->max_seqs;
    BY_TRY(by_engine_flags_opts(&o, f, err));
    BY_TRY(by_engine_open(out, &o, err));
    by_engine_flags_warn(f, by_engine_model(*out));
    return BY_OK;
}

/* Reads events up to the end of the request, of what take wants, or of the user's patience. */
static by_status read_events(by_one_result *out, by_request *r, by_take_id *take, void *arg, bool (*interrupted)(void), by_err *err) {
    by_event ev;
    by_status status;
    while ((status = by_request_next(r, &ev, interrupted ? LOOK_MS : -1)) == BY_OK || status == BY_AGAIN) {
        if (interrupted && interrupted()) {
            out->finish = BY_CHOICE_CANCELLED;
            return BY_OK;
        }
        if (status == BY_AGAIN) continue;
        if (ev.finish == BY_CHOICE_ERROR) return by_request_error(r, err);
        if (ev.finish != BY_CHOICE_RUNNING) out->finish = ev.finish;
        if (ev.token < 0) continue;
        out->n_output++;
        status = take(arg, ev.token, err);
        if (status == BY_OK) continue;
        out->finish = BY_CHOICE_STOP;
        return status == BY_END ? BY_OK : status;
    }
    return status == BY_END ? BY_OK : status;
}

by_status by_one_request_run(by_one_result *out, by_engine *e, const by_request_opts *opts, by_take_id *take, void *arg,
                             bool (*interrupted)(void), by_err *err) {
    by_request *r = NULL;
    *out = (by_one_result){.finish = BY_CHOICE_RUNNING};
    BY_TRY(by_engine_submit(e, opts, &r, err));
    by_status status = read_events(out, r, take, arg, interrupted, err);
    by_request_abort(r, -1, true); /* nothing when it has ended */
    out->info = by_request_info_get(r);
    out->info.end_us = by_clock_ns() / 1000;
    for (const char *at = by_request_grammar_warnings(r); *at; at += strcspn(at, "\n"), at += *at == '\n')
        fprintf(stderr, "warning: %.*s\n", (int)strcspn(at, "\n"), at);
    by_request_release(r);
    return status;
}
