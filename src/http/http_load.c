/* http_load.c - loads the model while the port is open already, and lets it make a first token before anybody is told that it
 * is ready. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "http/http_impl.h"

/* One token, as a client would get it: allocates what the first step allocates, and shows that there is one. */
static by_status warm_up(by_service *s, by_err *err) {
    by_call *call = NULL;
    by_buf body = {0};
    uint32_t n;
    const by_api_model_name *names = by_service_names(s, &n);
    by_json_out o = by_json_out_init(&body, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "model");
    by_json_out_string(&o, names[0].name);
    by_json_out_key(&o, "prompt");
    by_json_out_z(&o, "1");
    by_json_out_key(&o, "max_tokens");
    by_json_out_int(&o, 1);
    by_json_out_object_end(&o);
    by_call_opts c = {.api = BY_API_COMPLETIONS, .body = by_buf_str(&body)};
    by_status status = by_buf_check(&body, err);
    if (status == BY_OK) status = by_call_start(&call, s, &c, err);
    while (status >= 0 && by_call_pump(call, -1, err) == BY_AGAIN) {
    }
    const by_call_problem *p = status >= 0 ? by_call_problem_get(call) : NULL;
    if (p) status = BY_FAIL(err, BY_EINTERNAL, "the first token: %s", p->message);
    by_call_destroy(call);
    by_buf_deinit(&body);
    return status;
}

static void *loader_main(void *arg) {
    by_http *h = arg;
    int64_t begin = by_clock_ns();
    h->load_status = h->opts.load(h->opts.load_arg, &h->loaded_service, &h->load_err);
    int64_t loaded = by_clock_ns();
    if (h->load_status == BY_OK) h->load_status = warm_up(h->loaded_service, &h->load_err);
    h->load_ns = loaded - begin;
    h->first_ns = by_clock_ns() - loaded;
    by_loop_post(h->loop, &h->loaded);
    return NULL;
}

static by_status take_service(by_http *h, by_err *err) {
    by_service *s = h->loaded_service;
    uint32_t n;
    char name[256];
    by_str first = by_service_names(s, &n)[0].name;
    snprintf(name, sizeof name, "%.*s", BY_STR_ARG(first));
    BY_TRY(by_metrics_set_model(h->metrics, name, by_service_max_context(s), 128, err));
    BY_TRY(by_tok_scratch_create(&h->tok_scratch, by_service_tok(s), err));
    return by_worker_create(&h->worker, by_service_tok(s), err);
}

static void on_loaded(void *arg) {
    by_http *h = arg;
    if (!h->loading) return; /* by_load_join came first */
    if (h->load_status == BY_OK) h->load_status = take_service(h, &h->load_err);
    if (h->load_status < 0) {
        h->load_failed = true;
        by_loop_stop(h->loop);
        return;
    }
    h->service = h->loaded_service;
    h->loaded_service = NULL;
    if (h->draining) return;
    by_metrics_gauge_set(h->metrics, BY_GAUGE_READY, 1);
    if (h->opts.on_ready) h->opts.on_ready(h->opts.hook_arg, h->load_ns, h->first_ns);
}

by_status by_load_start(by_http *h, by_err *err) {
    h->loaded = (by_post){.fn = on_loaded, .arg = h};
    if (pthread_create(&h->loader, NULL, loader_main, h) != 0) return BY_FAIL(err, BY_ENOMEM, "a thread cannot be started");
    h->loading = true;
    return BY_OK;
}

void by_load_join(by_http *h) {
    if (!h->loading) return;
    h->loading = false;
    pthread_join(h->loader, NULL);
    if (h->loaded_service && !h->service) { /* the end came first */
        h->service = h->loaded_service;
        h->loaded_service = NULL;
    }
}
