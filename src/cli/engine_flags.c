/* engine_flags.c - see engine_flags.h. */
#include "cli/engine_flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/command.h"

by_engine_flags by_engine_flags_default(void) {
    by_engine_opts o = by_engine_opts_default();
    return (by_engine_flags){.model = by_model_flags_default(), .bypass_limit = o.sched.bypass_limit,
                             .expect_quantile = o.expect_quantile, .watermark = o.sched.watermark,
                             .policy = (int)o.sched.policy, .restore = (int)o.restore,
                             .trunc = (int)o.trunc, .draft_mode = (int)o.draft_mode, .verify = (int)o.verify, .n_drafts = -1,
                             .async = o.async, .graphs = !o.eager, .prefix_cache = o.prefix_cache};
}

void by_engine_flags_deinit(by_engine_flags *f) {
    by_buf_deinit(&f->dir);
    by_free(f->banned);
    f->banned = NULL;
}

by_status by_parse_size(int64_t *out, const char *text, by_err *err) {
    static const char *const units[] = {"", "K", "M", "G", "T"};
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end), scale = 1;
    bool good = end != text && errno == 0 && isfinite(v) && v > 0 && text[0] >= '0' && text[0] <= '9' && !strpbrk(text, "xXpP");
    for (int i = 0; good && i < 5; i++, scale *= 1024) {
        size_t n = strlen(units[i]);
        const char *rest = end + n;
        if (strncasecmp(end, units[i], n) != 0) continue;
        if (*rest && strcasecmp(rest, "B") != 0 && (n == 0 || strcasecmp(rest, "iB") != 0)) continue;
        if (v * scale >= 1 && v * scale < 9e18) return *out = (int64_t)(v * scale), BY_OK;
    }
    return BY_FAIL(err, BY_EINVAL, "'%s' is not a size such as 800M or 2G", text);
}

/* "5,9" or "100-120": the ids behind what is there already. */
static by_status add_ids(int32_t **ids, int32_t *n, const char *text, by_err *err) {
    for (const char *at = text;;) {
        char *end;
        long first = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1, last = first;
        if (first >= 0 && *end == '-') last = end[1] >= '0' && end[1] <= '9' ? strtol(end + 1, &end, 10) : -1;
        if (first < 0 || last < first || last >= BY_LIMIT_VOCAB || (*end && *end != ','))
            return BY_FAIL(err, BY_EINVAL, "--ban-tokens: '%s' is not a list of token ids such as 5,9,100-120", text);
        int32_t more = (int32_t)(last - first) + 1;
        if (more > BY_LIMIT_VOCAB - *n) return BY_FAIL(err, BY_EINVAL, "--ban-tokens: more than %d ids", BY_LIMIT_VOCAB);
        int32_t *fresh = by_realloc(BY_MEM_MISC, *ids, by_mul_size((size_t)*n + (size_t)more, sizeof *fresh));
        if (!fresh) return BY_FAIL(err, BY_ENOMEM, "out of memory for banned tokens");
        *ids = fresh;
        for (long id = first; id <= last; id++) fresh[(*n)++] = (int32_t)id;
        if (!*end) return BY_OK;
        at = end + 1;
    }
}

static by_status set_keep(by_engine_opts *o, const char *keep, by_err *err) {
    if (!keep || strcmp(keep, "exact") == 0) return BY_OK;
    char *end = NULL;
    errno = 0;
    long v = strtol(keep, &end, 10);
    if (end == keep || *end || errno || v < 1 || v > BY_LIMIT_CONTEXT)
        return BY_FAIL(err, BY_EINVAL, "--decoder-keep: '%s' is neither exact nor a number of rows in 1..%d", keep, BY_LIMIT_CONTEXT);
    o->keep = (int32_t)v;
    return BY_OK;
}

by_status by_engine_flags_temperatures(double out[BY_ENGINE_DRAFTS_MAX], const by_flag_list *list, by_err *err) {
    int n;
    BY_TRY(by_args_numbers(out, &n, BY_ENGINE_DRAFTS_MAX, 0, "--draft-conf-temp", list, err));
    for (int i = n; i < BY_ENGINE_DRAFTS_MAX; i++) out[i] = n ? out[n - 1] : 0;
    return BY_OK;
}

void by_engine_flags_warn(const by_engine_flags *f, const by_model *m) {
    double values[BY_ENGINE_DRAFTS_MAX];
    int n = 0, trained = m->cfg.draft.block_size;
    if (f->n_drafts == 0 || trained < 1) return;
    if (f->n_drafts > trained)
        fprintf(stderr, "bathyc: --draft-tokens %lld: the model was trained to draft %d; those behind are seldom accepted\n",
                (long long)f->n_drafts, trained);
    int most = f->n_drafts > trained ? (int)f->n_drafts : trained;
    if (by_args_numbers(values, &n, BY_ENGINE_DRAFTS_MAX, 0, "--draft-conf-temp", &f->draft_temperature, NULL) == BY_OK && n > most)
        fprintf(stderr, "bathyc: --draft-conf-temp: %d values for blocks of %d drafts; those behind are not used\n", n, most);
}

/* Step costs that silently are not kept would be measured at each start without anybody knowing why. */
static by_status check_cost_dir(const char *dir, by_err *err) {
    if (!dir) return BY_OK;
    if (mkdir(dir, 0777) < 0 && errno != EEXIST) return BY_FAIL(err, BY_EIO, "--perf-cache-dir: %s: cannot be made: %s", dir, strerror(errno));
    if (!by_dir_exists(dir)) return BY_FAIL(err, BY_EIO, "--perf-cache-dir: %s: is not a folder", dir);
    if (access(dir, W_OK | X_OK) < 0) return BY_FAIL(err, BY_EIO, "--perf-cache-dir: %s: cannot be written: %s", dir, strerror(errno));
    return BY_OK;
}

static by_status set_drafts(by_engine_opts *o, const by_engine_flags *f, by_err *err) {
    BY_TRY(check_cost_dir(f->cost_dir, err));
    o->draft_mode = f->n_drafts == 0 ? BY_DRAFT_OFF : (by_draft_mode)f->draft_mode;
    if (f->has_varlen && f->n_drafts != 0 && !(f->has_mode && o->draft_mode == BY_DRAFT_OFF)) {
        bool fixed = o->draft_mode == BY_DRAFT_FIXED; /* auto and confidence choose lengths */
        if (f->has_mode && fixed == f->varlen)
            return BY_FAIL(err, BY_EINVAL, "--draft-mode and --%sdraft-varlen say the opposite", f->varlen ? "" : "no-");
        if (!f->has_mode) o->draft_mode = f->varlen ? BY_DRAFT_CONFIDENCE : BY_DRAFT_FIXED;
    }
    o->n_drafts = f->n_drafts > 0 ? (int32_t)f->n_drafts : 0;
    o->verify = (by_sample_verify_rule)f->verify;
    o->cost_dir = f->cost_dir;
    o->cost_age_s = f->cost_age_s;
    return by_engine_flags_temperatures(o->draft_temperature, &f->draft_temperature, err);
}

/* A device with its own memory gives a share of that. */
static by_status set_memory(by_engine_opts *o, const by_engine_flags *f, by_err *err) {
    bool own = o->device.backend == BY_BACKEND_CUDA;
    if (own) o->device.memory_share = f->memory_share;
    if (own && o->device.memory_bytes && f->memory_share > 0)
        return BY_FAIL(err, BY_EINVAL, "--gpu-memory and --gpu-memory-utilization exclude each other");
    if (!own && f->ram && f->memory_share > 0) return BY_FAIL(err, BY_EINVAL, "--ram and --gpu-memory-utilization exclude each other");
    if (f->ram && by_parse_size(&o->ram_bytes, f->ram, err) < 0) return by_err_prefix(err, "--ram: ");
    if (!own && f->memory_share > 0) {
        long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
        if (pages > 0 && size > 0) o->ram_bytes = (int64_t)((double)pages * (double)size * f->memory_share);
    }
    return BY_OK;
}

by_status by_engine_flags_opts(by_engine_opts *out, by_engine_flags *f, by_err *err) {
    by_engine_opts o = by_engine_opts_default();
    by_solo_opts base;
    BY_TRY(by_model_flags_opts(&base, &f->model, err));
    o.device = base.device;
    o.model = base.model;
    o.max_context = f->model.context;
    o.kv_blocks = (int32_t)f->kv_blocks;
    o.state_slots = (int32_t)f->state_slots;
    o.expect_quantile = f->expect_quantile;
    o.async = f->async;
    o.eager = f->eager || !f->graphs;
    o.replay_rows = (int32_t)f->replay_rows;
    o.prefix_cache = f->prefix_cache;
    o.restore = (by_restore)f->restore;
    o.trunc = (by_truncation)f->trunc;
    if (f->max_seqs) o.sched.max_seqs = (int32_t)f->max_seqs;
    if (f->max_rows) o.sched.max_rows = (int32_t)f->max_rows;
    else if (o.sched.max_rows < o.sched.max_seqs) o.sched.max_rows = o.sched.max_seqs;
    if (!f->max_seqs && o.sched.max_seqs > o.sched.max_rows) o.sched.max_seqs = o.sched.max_rows;
    if (f->max_queue) o.sched.max_waiting = (int32_t)f->max_queue;
    if (f->interval) o.sched.interval = (int32_t)f->interval;
    if (f->any_interval) o.sched.any_interval = (int32_t)f->any_interval;
    o.sched.prefill_ctx = f->prefill_ctx;
    if (f->ttft_budget_ms) o.sched.ttft_budget_us = f->ttft_budget_ms * 1000;
    o.itl_budget_s = (double)f->itl_budget_ms * 1e-3;
    if (f->mixed_rows) o.sched.prefill_rows = (int32_t)f->mixed_rows;
    o.sched.watermark = f->watermark;
    o.sched.bypass_limit = (int32_t)f->bypass_limit;
    o.sched.policy = (by_prefill_policy)f->policy;
    o.grammar.timeout_us = f->grammar_timeout_ms * 1000;
    o.grammar.n_threads = (int32_t)f->grammar_threads;
    int64_t cache = 0;
    if (f->grammar_cache && by_parse_size(&cache, f->grammar_cache, err) < 0) return by_err_prefix(err, "--grammar-cache: ");
    o.grammar.bytes_max = (size_t)cache;
    o.slots_ratio = f->slots_ratio;
    o.backtrack = (int32_t)f->backtrack;
    o.sampler = (by_sample_rule)f->sampler;
    o.top_k = (int32_t)f->top_k;
    if (f->log_steps) {
        f->log = (by_step_log){0};
        o.log_steps = (int32_t)f->log_steps;
        o.on_steps = by_step_log_note;
        o.on_steps_arg = &f->log;
    }
    by_free(f->banned);
    f->banned = NULL;
    for (int i = 0; i < f->ban.n; i++) BY_TRY(add_ids(&f->banned, &o.n_banned, f->ban.items[i], err));
    o.banned = f->banned;
    BY_TRY(set_keep(&o, f->keep, err));
    BY_TRY(set_memory(&o, f, err));
    BY_TRY(set_drafts(&o, f, err));
    by_buf_clear(&f->dir);
    BY_TRY(by_command_model_dir(&f->dir, f->model.model, err));
    o.model_dir = by_buf_z(&f->dir);
    BY_TRY(by_buf_check(&f->dir, err));
    *out = o;
    return BY_OK;
}
