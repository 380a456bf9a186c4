/* service_impl.h - what the files of the service share. Not for other modules. */
#ifndef BY_SERVICE_SERVICE_IMPL_H
#define BY_SERVICE_SERVICE_IMPL_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/rng.h"
#include "service/service.h"

struct by_service {
    by_engine *engine;
    by_api_options api;
    by_api_model_name *models;
    by_arena arena;
    _Atomic uint64_t draws;
};

/* A generator of its own for one call. */
by_rng by_service_rng(by_service *s);

#endif
