/* batch_stats.c - see batch_stats.h. */
#include "cli/batch_stats.h"

#include <inttypes.h>
#include <math.h>

enum { PER_OCTAVE = 8 };

void by_spread_add(by_spread *s, double us) {
    int i = us > 1 ? (int)(PER_OCTAVE * log2(us)) + 1 : 0;
    s->bucket[i < BY_SPREAD_BUCKETS ? i : BY_SPREAD_BUCKETS - 1]++;
    s->n++;
    s->sum_us += us;
    if (us > s->max_us) s->max_us = us;
}

double by_spread_quantile(const by_spread *s, double share) {
    uint64_t seen = 0;
    for (int i = 0; i < BY_SPREAD_BUCKETS; i++) {
        seen += s->bucket[i];
        double end = exp2((double)i / PER_OCTAVE);
        if (s->bucket[i] && (double)seen >= share * (double)s->n) return end < s->max_us ? end : s->max_us;
    }
    return 0;
}

void by_batch_stats_note(by_batch_stats *s, const by_request_info *info, int64_t n_output) {
    s->n_prompt += info->n_prompt;
    s->n_cached += info->n_cached;
    s->n_replayed += info->n_replayed;
    s->n_output += n_output;
    if (info->start_us == 0 || info->first_us == 0 || info->end_us == 0) return;
    by_spread_add(&s->queue, (double)(info->start_us - info->submit_us));
    by_spread_add(&s->prefill, (double)(info->first_us - info->start_us));
    by_spread_add(&s->first, (double)(info->first_us - info->submit_us));
    by_spread_add(&s->decode, (double)(info->end_us - info->first_us));
    if (n_output > 1) by_spread_add(&s->token, (double)(info->end_us - info->first_us) / (double)(n_output - 1));
}

static void put_spread(by_buf *out, const char *name, const by_spread *s) {
    if (s->n == 0) return;
    by_buf_printf(out, "  %-22s mean %9.3f  median %9.3f  90%% %9.3f  99%% %9.3f  longest %9.3f ms\n", name, s->sum_us / (double)s->n * 1e-3,
                  by_spread_quantile(s, 0.5) * 1e-3, by_spread_quantile(s, 0.9) * 1e-3, by_spread_quantile(s, 0.99) * 1e-3, s->max_us * 1e-3);
}

static double share(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* Quantiles as bounds that are not exceeded. */
static void put_tally(by_buf *out, const char *name, const char *unit, const by_tally *t, double scale) {
    if (by_tally_count(t) == 0) return;
    by_buf_printf(out, "  %-22s mean %9.3f  median <= %g  90%% <= %g  99%% <= %g %s\n", name,
                  (double)t->sum / (double)by_tally_count(t) * scale, by_tally_quantile(t, 0.5) * scale,
                  by_tally_quantile(t, 0.9) * scale, by_tally_quantile(t, 0.99) * scale, unit);
}

static void put_engine(by_buf *out, const by_engine_stats *e) {
    double steps = e->n_steps ? (double)e->n_steps : 1;
    by_buf_printf(out, "steps: %" PRIu64 ", %.1f rows each (%.1f %% of prompts); device %.3f s, scheduler %.1f us a step, idle %.3f s\n",
                  e->n_steps, (double)e->n_rows / steps, share((double)e->n_prompt_rows, (double)e->n_rows), e->device_s,
                  e->plan_s / steps * 1e6, e->wait_s);
    by_buf_printf(out, "cache: %" PRIu64 " tokens found, %" PRIu64 " of them computed again; %" PRIu64 " snapshots, %" PRIu64 " used; "
                       "%" PRIu64 " preemptions, %" PRIu64 " wasted rows\n", e->n_hit_tokens, e->n_replayed_rows, e->n_snapshots,
                  e->n_snapshot_hits, e->sched.n_preempted, e->n_wasted_rows);
    by_buf_printf(out, "tiers: %" PRIu64 " tokens found with their windows in host memory, %" PRIu64 " in blocks alone; copied MB:",
                  e->n_snapshot_hit_tokens, e->n_hit_tokens - e->n_snapshot_hit_tokens);
    for (int k = 0; k < BY_COPY_N; k++)
        by_buf_printf(out, "%s %s %.1f", k ? "," : "", by_copy_name((by_copy)k), (double)e->copied_bytes[k] * 1e-6);
    by_buf_printf(out, "\nwork: %.4g Tflop, %.4g of them attention (%.3g a second of the device); rows x context %.4g\n", e->ops * 1e-12,
                  e->attention_ops * 1e-12, e->device_s > 0 ? e->ops * 1e-12 / e->device_s : 0, e->query_keys);
    put_tally(out, "device time of a step", "ms", &e->step_us, 1e-3);
    put_tally(out, "rows of a step", "rows", &e->step_rows, 1);
    put_tally(out, "prompt rows of a step", "rows", &e->prefill_rows, 1);
    by_buf_printf(out, "evictions: %" PRIu64 " findable blocks; %" PRIu64 " snapshots for newer ones, %" PRIu64 " for swaps; %" PRIu64
                       " sequences with slow readers, %" PRIu64 " for memory\n", e->n_blocks_forgotten, e->n_snapshots_replaced,
                  e->n_snapshots_dropped, e->sched.n_preempted_paused, e->sched.n_preempted - e->sched.n_preempted_paused);
    if (e->draft.n_verified == 0) return;
    const by_draft_stats *d = &e->draft;
    by_buf_printf(out, "drafts: %" PRIu64 " verified, %.1f %% accepted, %.2f tokens a step; confidences off by %.3f; proposing %.3f s\n",
                  d->n_verified, share((double)d->n_accepted, (double)d->n_verified), by_draft_mean_length(d),
                  by_draft_calibration_error(d), d->draft_s);
    by_buf_printf(out, "  by position           ");
    for (int i = 0; i < BY_ENGINE_DRAFTS_MAX && d->verified[i] > 0; i++)
        by_buf_printf(out, " %.1f", share((double)d->accepted[i], (double)d->verified[i]));
    by_buf_printf(out, " %% accepted; %.2f verified a step\n", by_draft_mean_verified(d));
}

void by_batch_stats_write(by_buf *out, const by_batch_stats *s, const by_engine_stats *e, double seconds) {
    double per_s = seconds > 0 ? 1 / seconds : 0;
    by_buf_printf(out,
                  "%" PRIu64 " requests in %.3f s: %" PRId64 " prompt tokens (%.0f/s, %.1f %% cached), %" PRId64 " output tokens (%.0f/s)\n",
                  s->first.n, seconds, s->n_prompt, (double)s->n_prompt * per_s, share((double)s->n_cached, (double)s->n_prompt), s->n_output,
                  (double)s->n_output * per_s);
    put_spread(out, "waiting", &s->queue);
    put_spread(out, "prompt", &s->prefill);
    put_spread(out, "until the first token", &s->first);
    put_spread(out, "from there to the end", &s->decode);
    put_spread(out, "each token", &s->token);
    put_engine(out, e);
}
