/* step_log.c - see step_log.h. */
#include "cli/step_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

static void put_drafts(by_buf *out, const by_draft_stats *d) {
    if (d->n_verified == 0) return;
    by_buf_printf(out, " verified=%" PRIu64 " accepted=%" PRIu64 " accept_rate=%.1f%% by_position=", d->n_verified, d->n_accepted,
                  100 * ratio((double)d->n_accepted, (double)d->n_verified));
    for (int i = 0; i < BY_ENGINE_DRAFTS_MAX && (i == 0 || d->verified[i] > 0); i++)
        by_buf_printf(out, "%s%.1f", i ? "/" : "", 100 * ratio((double)d->accepted[i], (double)d->verified[i]));
    by_buf_printf(out, "%% mean_verified=%.2f mean_length=%.2f confidence_error=%.3f", by_draft_mean_verified(d), by_draft_mean_length(d),
                  by_draft_calibration_error(d));
}

/* Lengths, operations and the time of both threads. */
static void put_work(by_buf *out, const by_engine_stats *now, const by_engine_stats *was, double steps) {
    double ops = now->ops - was->ops, n = (double)(now->n_finished - was->n_finished);
    if (n > 0)
        by_buf_printf(out, " mean_in=%.1f mean_out=%.1f", (double)(now->n_finished_in - was->n_finished_in) / n,
                      (double)(now->n_finished_out - was->n_finished_out) / n);
    by_buf_printf(out, " qk=%.3g k=%" PRId64 "..%" PRId64 " attention_tflop=%.3g tflop=%.3g tflop/s=%.3g", now->query_keys - was->query_keys,
                  now->k_least, now->k_most, (now->attention_ops - was->attention_ops) * 1e-12, ops * 1e-12,
                  ratio(ops * 1e-12, now->device_s - was->device_s));
    by_buf_printf(out, " device=%.3fms scheduler=%.1fus", 1e3 * ratio(now->device_s - was->device_s, steps),
                  1e6 * ratio(now->plan_s - was->plan_s, steps));
}

void by_step_log_write(by_buf *out, by_step_log *log, const by_engine_stats *now, int64_t now_ns) {
    const by_engine_stats *was = &log->then;
    double s = (double)(now_ns - (log->then_ns ? log->then_ns : now->open_ns)) * 1e-9, all_s = (double)(now_ns - now->open_ns) * 1e-9;
    double steps = (double)(now->n_steps - was->n_steps), rows = ratio((double)(now->n_rows - was->n_rows), steps);
    double prompt = (double)(now->n_prompt_rows - was->n_prompt_rows), output = (double)(now->n_output_tokens - was->n_output_tokens);
    double prefill = now->prefill_s - was->prefill_s, decode = now->decode_s - was->decode_s;
    uint64_t n_first = now->n_first - was->n_first;
    by_draft_stats drafts = by_draft_stats_minus(&now->draft, &was->draft);
    by_buf_printf(out, "bathyc: step=%" PRIu64 " steps/s=%.1f mean_steps/s=%.1f tokens/s=%.1f prompt/s=%.1f completion/s=%.1f", now->n_steps,
                  ratio(steps, s), ratio((double)now->n_steps, all_s), ratio(prompt + output, s), ratio(prompt, s), ratio(output, s));
    put_drafts(out, &drafts);
    by_buf_printf(out, " running=%d pending=%d chunked=%d swapped=%d rows=%.1f budget=%.1f%% blocks=%d/%d slots=%d/%d", now->sched.n_running,
                  now->sched.n_waiting, now->n_chunked, now->sched.n_swapped, rows, 100 * ratio(rows, now->max_rows), now->blocks_used,
                  now->blocks_total, now->slots_used, now->slots_total);
    double prefill_share = 100 * ratio(prefill, prefill + decode);
    by_buf_printf(out, " prefill:decode=%.0f:%.0f hits=%.1f%%", prefill_share, prefill + decode > 0 ? 100 - prefill_share : 0,
                  100 * ratio((double)(now->n_hit_tokens - was->n_hit_tokens), (double)(now->n_prompt_tokens - was->n_prompt_tokens)));
    put_work(out, now, was, steps);
    if (now->n_replayed > 0)
        by_buf_printf(out, " replayed=%" PRIu64 " recordings=%d", now->n_replayed - was->n_replayed, now->n_recordings);
    if (n_first > 0)
        by_buf_printf(out, " ttft_max=%.1fms ttft_mean=%.1fms", now->first_max_s * 1e3, 1e3 * (now->first_s - was->first_s) / (double)n_first);
    by_buf_printf(out, " finished=%" PRIu64 " preempted=%" PRIu64 " aborted=%" PRIu64 " failed=%" PRIu64 "\n", now->n_finished - was->n_finished,
                  now->sched.n_preempted - was->sched.n_preempted, now->n_cancelled - was->n_cancelled, now->n_failed - was->n_failed);
    log->then = *now;
    log->then_ns = now_ns;
}

void by_step_log_note(void *arg, const by_engine_stats *now) {
    by_buf line = {0};
    by_step_log_write(&line, arg, now, by_clock_ns());
    fputs(by_buf_z(&line), stderr); /* not buffered: one call */
    by_buf_deinit(&line);
}
