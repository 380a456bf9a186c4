/* model_flags.c - see model_flags.h. */
#include "cli/model_flags.h"

#include "cli/command.h"
#include "cli/engine_flags.h"

static by_status set_placement(by_solo_opts *o, const by_model_flags *f, by_err *err) {
    const char *flag = f->gpu_memory ? "--gpu-memory" : f->n_cpu_moe ? "--n-cpu-moe" : f->cpu_moe ? "--cpu-moe" : NULL;
    if (!flag) return BY_OK;
    if (o->device.backend != BY_BACKEND_CUDA && o->device.backend != BY_BACKEND_GUARD)
        return BY_FAIL(err, BY_EINVAL, "%s: is for devices with memory of their own (--backend cuda; guard stands in for one)", flag);
    if (f->gpu_memory && by_parse_size(&o->device.memory_bytes, f->gpu_memory, err) < 0) return by_err_prefix(err, "--gpu-memory: ");
    o->model.place = (by_place_opts){.host_layers = (int32_t)f->n_cpu_moe, .host_experts = f->cpu_moe};
    return BY_OK;
}

enum { DUMMY = 2 }; /* of BY_LOAD_FORMAT_CHOICES */

by_status by_model_flags_opts(by_solo_opts *out, const by_model_flags *f, by_err *err) {
    static const by_backend backends[] = {BY_BACKEND_REF, BY_BACKEND_CPU, BY_BACKEND_CUDA, BY_BACKEND_GUARD};
    *out = (by_solo_opts){.device = {.backend = f->backend < 0 ? BY_BACKEND_CPU : backends[f->backend],
                                     .n_threads = (int32_t)f->threads, .isa = f->isa},
                          .model = {.numerics = (by_numerics)f->numerics, .check_weights = f->check_weights,
                                    .dummy = f->load_format == DUMMY, .context = f->context,
                                    .host_threads = (int32_t)f->threads, .host_isa = f->isa},
                          .draft = f->draft};
    return set_placement(out, f, err);
}

by_status by_model_flags_open(by_solo *out, const by_model_flags *f, by_err *err) {
    by_solo_opts o;
    by_buf dir = {0};
    BY_TRY(by_model_flags_opts(&o, f, err));
    by_status status = by_command_model_dir(&dir, f->model, err);
    if (status == BY_OK) status = by_solo_open(out, dir.ptr, &o, err);
    by_buf_deinit(&dir);
    return status;
}

int by_model_exit_code(by_status status) { return status == BY_EUNSUPPORTED || status == BY_EINVAL ? 2 : 1; }
