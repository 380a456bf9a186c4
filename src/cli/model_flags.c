/* model_flags.c - see model_flags.h. */
#include "cli/model_flags.h"

#include "cli/command.h"

by_solo_opts by_model_flags_opts(const by_model_flags *f) {
    static const by_backend backends[] = {BY_BACKEND_REF, BY_BACKEND_CPU, BY_BACKEND_CUDA, BY_BACKEND_GUARD};
    return (by_solo_opts){.device = {.backend = f->backend < 0 ? BY_BACKEND_CPU : backends[f->backend],
                                     .n_threads = (int32_t)f->threads, .isa = f->isa},
                          .model = {.numerics = (by_numerics)f->numerics, .check_weights = f->check_weights, .context = f->context},
                          .draft = f->draft};
}

by_status by_model_flags_open(by_solo *out, const by_model_flags *f, by_err *err) {
    by_solo_opts o = by_model_flags_opts(f);
    by_buf dir = {0};
    by_status status = by_command_model_dir(&dir, f->model, err);
    if (status == BY_OK) status = by_solo_open(out, dir.ptr, &o, err);
    by_buf_deinit(&dir);
    return status;
}

int by_model_exit_code(by_status status) { return status == BY_EUNSUPPORTED || status == BY_EINVAL ? 2 : 1; }
