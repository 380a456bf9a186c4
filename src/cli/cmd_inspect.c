/* cmd_inspect.c - `bathyc inspect`: what a checkpoint holds, whether it is whole, and what running it needs. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/inspect.h"
#include "model/runner.h"
#include "sched/sched.h"

enum { DEFAULT_CTX = 4096, DEFAULT_SEQS = 256 };

typedef struct {
    const char *model;
    bool json, ctx_given;
    int check; /* by_check_level */
    int64_t ctx_size, n_seqs, max_rows;
    const char *gpu_memory;
    int64_t n_cpu_moe;
    bool cpu_moe;
} options;

/* Parts that a decode step reads in full. The embedding and the Engram tables are looked up row by row. */
static const by_part step_parts[] = {BY_PART_HEAD,    BY_PART_ATTENTION, BY_PART_COMPRESSOR,
                                     BY_PART_INDEXER, BY_PART_ROUTER,    BY_PART_SHARED_EXPERT,
                                     BY_PART_HYPER,   BY_PART_NORMS,     BY_PART_ENGRAM_PROJECTION};

static by_status add_up(by_inspection *in, by_err *err) {
    const by_config *c = &in->config;
    by_tensor_table_sum(c, &in->sums);
    in->resident_bytes = in->sums.bytes_total - in->sums.bytes[BY_PART_ENGRAM_TABLE];
    for (size_t i = 0; i < sizeof step_parts / sizeof step_parts[0]; i++)
        in->step_fixed_bytes += in->sums.bytes[step_parts[i]];
    in->step_expert_bytes = in->sums.bytes[BY_PART_EXPERTS] / c->n_experts * c->n_experts_per_token;
    BY_TRY(by_footprint_of(c, c->draft.block_size, &in->footprint, err));
    by_footprint_plan(&in->footprint, in->ctx_size, in->n_seqs, &in->plan);
    return BY_OK;
}

/* Buffers of steps with so many rows, as `serve` has them, and what operators take beside them. */
static int64_t step_bytes(const by_inspection *in, int64_t rows) {
    const by_config *c = &in->config;
    by_model m = {.cfg = *c, .act = BY_BF16, .quant = true, .boundary = c->last_kv_source};
    int32_t K = c->draft.n_layers ? c->draft.block_size : 0;
    int64_t logits = in->n_seqs * (1 + K);
    by_runner_opts run = {.max_rows = (int32_t)rows, .max_seqs = (int32_t)in->n_seqs, .max_logits = (int32_t)(logits < rows ? logits : rows),
                          .max_context = in->ctx_size, .trunc = BY_TRUNC_COMPACT, .n_drafts = K};
    return by_runner_bytes(&m, &run) + by_runner_scratch_bytes(&m, &run);
}

/* What would lie where on a device of that size. */
static by_status place(by_inspection *in, const options *opts, by_err *err) {
    int64_t limit = 0;
    in->is_placed = opts->gpu_memory || opts->n_cpu_moe || opts->cpu_moe;
    if (!in->is_placed) return BY_OK;
    if (opts->gpu_memory && by_parse_size(&limit, opts->gpu_memory, err) < 0) return by_err_prefix(err, "--gpu-memory: ");
    int64_t rows = opts->max_rows ? opts->max_rows : by_sched_opts_default().max_rows;
    if (rows < in->n_seqs) rows = in->n_seqs;
    by_place_opts o = {.reserve = in->plan.block_bytes + in->plan.slot_bytes + (limit ? step_bytes(in, rows) : 0),
                       .host_layers = (int32_t)opts->n_cpu_moe, .host_experts = opts->cpu_moe};
    return by_placement_plan(&in->placement, &in->config, limit, &o, err);
}

/* What stands in the way of every answer, though the weights be whole: the tokenizer that is not there, or does not open. */
static by_status check_tokenizer(const char *dir, by_problems *problems, by_err *err) {
    by_err why = {0};
    by_tok *tok = NULL;
    by_status status = by_command_tokenizer_open(&tok, NULL, dir, &why);
    by_tok_destroy(tok);
    if (status == BY_ENOMEM) return BY_FAIL(err, BY_ENOMEM, "%s", why.msg);
    if (status == BY_EMISSING) by_problems_add(problems, "tokenizer.json: missing; without it only token ids can be given");
    else if (status < 0) by_problems_add(problems, "%s", why.msg);
    return BY_OK;
}

static by_status gather(by_inspection *in, const options *opts, by_problems *problems, by_err *err) {
    by_status status = by_config_load(&in->config, in->dir, problems, err);
    if (status == BY_OK) status = by_checkpoint_open(&in->ck, in->dir, &in->config, problems, err);
    if (status == BY_OK) status = by_checkpoint_check_values(in->ck, (by_check_level)opts->check, &in->checked_bytes, problems, err);
    if (status < 0 && problems->n == 0) return status; /* not a checkpoint at all */
    BY_TRY(check_tokenizer(in->dir, problems, err));
    BY_TRY(status);
    BY_TRY(by_problems_check(problems, BY_EFORMAT, err));
    in->ctx_size = opts->ctx_size;
    if (!opts->ctx_given && in->ctx_size > in->config.max_positions) in->ctx_size = in->config.max_positions;
    in->n_seqs = opts->n_seqs;
    BY_TRY(add_up(in, err));
    return place(in, opts, err);
}

static void print_problems(const by_usage *usage, const char *dir, const by_problems *problems) {
    fprintf(stderr, "bathyc %s: %s: %ld problem%s\n", usage->name, dir, problems->n, problems->n == 1 ? "" : "s");
    const char *p = problems->text.ptr, *end = p ? p + problems->text.len : p;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl ? nl : end) - p);
        fprintf(stderr, "  %.*s\n", (int)n, p);
        p += n + 1;
    }
    if (problems->n > problems->n_kept) fprintf(stderr, "  ... and %ld more\n", problems->n - problems->n_kept);
}

static int inspect(const by_usage *usage, const options *opts, by_inspection *in) {
    by_buf dir = {0}, out = {0};
    by_problems problems = {0};
    by_err err = {0};
    by_status status = by_command_model_dir(&dir, opts->model, &err);
    if (status == BY_OK) {
        in->dir = by_buf_z(&dir);
        status = gather(in, opts, &problems, &err);
    }
    if (status == BY_OK) {
        if (opts->json)
            by_inspect_json(in, &out);
        else
            by_inspect_text(in, &out);
    } else if (opts->json && problems.n > 0) {
        by_inspect_problems_json(in->dir, &problems, &out);
    }
    if (out.len > 0) fwrite(out.ptr, 1, out.len, stdout);
    int code = 0;
    if (status < 0 && problems.n > 0) {
        print_problems(usage, in->dir, &problems);
        code = 1;
    } else if (status < 0 || (status = by_buf_check(&out, &err)) < 0) {
        code = by_command_fail(usage, &err);
    } else if (fflush(stdout) != 0) {
        fprintf(stderr, "bathyc %s: cannot write the report\n", usage->name);
        code = 1;
    }
    by_problems_deinit(&problems);
    by_buf_deinit(&out);
    by_buf_deinit(&dir);
    by_checkpoint_close(in->ck);
    return code;
}

int by_cmd_inspect(int argc, char **argv) {
    static const by_usage usage = {
        "inspect", "[flags] [MODEL]",
        "Shows what a checkpoint folder holds and what running it needs. A folder with anything wrong in it\n"
        "exits 1 and every problem is listed. Sizes: 1 GB = 10^9 bytes.\n"};
    options opts = {.check = BY_CHECK_AUTO, .ctx_size = DEFAULT_CTX, .n_seqs = DEFAULT_SEQS};
    const by_flag flags[] = {
        {.names = "--model,-m,--model-path", .kind = BY_FLAG_STRING, .out = &opts.model, .help = "checkpoint folder"},
        {.names = "--json", .kind = BY_FLAG_BOOL, .out = &opts.json, .help = "print JSON"},
        {.names = "--ctx-size,-c,--max-model-len,--context-length",
         .kind = BY_FLAG_INT,
         .out = &opts.ctx_size,
         .min = 1,
         .max = BY_LIMIT_CONTEXT,
         .seen = &opts.ctx_given,
         .help = "tokens of one sequence (4096)"},
        {.names = "--max-num-seqs,-np,--parallel,--max-running-requests",
         .kind = BY_FLAG_INT,
         .out = &opts.n_seqs,
         .min = 1,
         .max = BY_LIMIT_SEQS,
         .help = "sequences at a time (256)"},
        {.names = "--max-num-batched-tokens,--chunked-prefill-size,-b",
         .kind = BY_FLAG_INT,
         .out = &opts.max_rows,
         .min = 1,
         .max = BY_LIMIT_STEP_ROWS,
         .help = "rows of a step, for --gpu-memory (4096)"},
        BY_PLACEMENT_FLAG_ROWS(opts.gpu_memory, opts.n_cpu_moe, opts.cpu_moe),
        {.names = "--check-weights",
         .kind = BY_FLAG_CHOICE,
         .out = &opts.check,
         .choices = "none|auto|full",
         .help = "look for values that are not numbers; auto: small tensors only in large models"},
    };
    const int n_flags = sizeof flags / sizeof flags[0];
    const char *pos[1] = {NULL};
    int n_pos = 0, code;
    if (!by_command_begin(&usage, flags, n_flags, argc, argv, pos, 1, &n_pos, &code)) return code;
    if (n_pos == 1 && opts.model) return fprintf(stderr, "bathyc inspect: the model is given twice, as %s and with --model\n", pos[0]), 2;
    if (n_pos == 1) opts.model = pos[0];
    by_inspection *in = by_alloc_zero(BY_MEM_MODEL, sizeof *in);
    if (!in) return fprintf(stderr, "bathyc inspect: out of memory\n"), 1;
    code = inspect(&usage, &opts, in);
    by_free(in);
    return code;
}
