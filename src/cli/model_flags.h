/* model_flags.h - the flags of every command that runs the model, and opening it with them. */
#ifndef BY_CLI_MODEL_FLAGS_H
#define BY_CLI_MODEL_FLAGS_H

#include "cli/args.h"
#include "engine/solo.h"

typedef struct by_model_flags {
    const char *model, *isa;
    int backend;  /* index into BY_BACKEND_CHOICES; -1 = best available */
    int numerics; /* by_numerics */
    int load_format; /* BY_LOAD_FORMAT_CHOICES */
    int64_t threads, chunk, context;
    const char *gpu_memory; /* "80G"; NULL = the card's */
    int64_t n_cpu_moe;      /* layers whose experts stay on the host */
    bool cpu_moe;           /* of all layers */
    bool check_weights; /* --no-check-weights */
    bool draft;         /* no flag: commands that draft set it */
} by_model_flags;

#define BY_LOAD_FORMAT_CHOICES "auto|safetensors|dummy"
#define BY_BACKEND_CHOICES "ref|cpu|cuda|guard"

static inline by_model_flags by_model_flags_default(void) {
    return (by_model_flags){.backend = -1, .numerics = BY_NUMERICS_DEPLOYED, .check_weights = true};
}

/* docs/placement.md */
#define BY_PLACEMENT_FLAG_ROWS(memory, layers, all)                                                                    \
    {.names = "--gpu-memory", .kind = BY_FLAG_STRING, .out = &(memory),                                                \
     .help = "most memory of the device, as 80G; experts beyond it stay on the host"},                                 \
    {.names = "--n-cpu-moe,-ncmoe", .kind = BY_FLAG_INT, .out = &(layers), .min = 0, .max = BY_LIMIT_LAYERS,           \
     .help = "the first so many layers keep their routed experts on the host (default: 0)"},                           \
    {.names = "--cpu-moe,-cmoe", .kind = BY_FLAG_BOOL, .out = &(all), .help = "every layer does"}

/* Rows for a command's table; f is a by_model_flags variable. The first macro is without the rows of a step, which the
 * engine's own flags set. */
#define BY_CHECKPOINT_FLAG_ROWS(f)                                                                                     \
    BY_FLAG_HEADING("model and device"),                                                                               \
    {.names = "--model,-m,--model-path", .kind = BY_FLAG_STRING, .out = &(f).model,                                    \
     .help = "folder of the checkpoint (default: the bundled tiny model, or BATHYC_MODEL)"},                           \
    {.names = "--backend,--device", .kind = BY_FLAG_CHOICE, .out = &(f).backend, .choices = BY_BACKEND_CHOICES,        \
     .help = "where to compute (default: best available)"},                                                            \
    {.names = "--threads,-t", .kind = BY_FLAG_INT, .out = &(f).threads, .min = 1, .max = BY_LIMIT_THREADS,             \
     .help = "CPU threads (default: physical cores that may be used)"},                                                \
    {.names = "--cpu-isa", .kind = BY_FLAG_STRING, .out = &(f).isa, .help = "highest CPU instruction set to use"},     \
    BY_PLACEMENT_FLAG_ROWS((f).gpu_memory, (f).n_cpu_moe, (f).cpu_moe),                                                \
    {.names = "--numerics", .kind = BY_FLAG_CHOICE, .out = &(f).numerics, .choices = "exact|quantised|deployed",       \
     .help = "where values are rounded (default: deployed)"},                                                          \
    {.names = "--load-format", .kind = BY_FLAG_CHOICE, .out = &(f).load_format, .choices = BY_LOAD_FORMAT_CHOICES,     \
     .help = "dummy: made-up weights for config.json alone, to measure with (default: auto)"},                         \
    {.names = "--no-check-weights", .kind = BY_FLAG_BOOL, .out = &(f).check_weights,                                      \
     .help = "do not look for NaN and infinite weights"}

#define BY_MODEL_FLAG_ROWS(f) BY_CHECKPOINT_FLAG_ROWS(f), BY_CHUNK_FLAG_ROW(f)
#define BY_CHUNK_FLAG_ROW(f)                                                                                           \
    {.names = "--chunk", .kind = BY_FLAG_INT, .out = &(f).chunk, .min = 1, .max = BY_LIMIT_STEP_ROWS,                  \
     .help = "rows of one prefill step"}

#define BY_CONTEXT_FLAG_ROW(f)                                                                                         \
    {.names = "--ctx-size,--max-model-len,-c,--context-length", .kind = BY_FLAG_INT, .out = &(f).context, .min = 1,    \
     .max = BY_LIMIT_CONTEXT, .help = "most tokens of a sequence (default: the model's limit)"}

/* Device and model options of the flags. Errors: BY_EINVAL (a value; flags of a device with its own memory for one without). */
by_status by_model_flags_opts(by_solo_opts *out, const by_model_flags *f, by_err *err);

/* Opens device and model. BY_EUNSUPPORTED for a backend that is not there and numerics it does not have: exit code 2. */
by_status by_model_flags_open(by_solo *out, const by_model_flags *f, by_err *err);

/* 2 for BY_EUNSUPPORTED and BY_EINVAL, else 1. */
int by_model_exit_code(by_status status);

#endif
