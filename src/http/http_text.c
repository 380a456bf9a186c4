/* http_text.c - the small endpoints: models, health, version, metrics, the page. */
#include <string.h>

#include "base/alloc.h"
#include "http/http_impl.h"
#include "http/page.h"

/* ---- state ---- */

void by_handle_health(by_exchange *ex, by_str id) {
    by_http *h = ex->http;
    (void)id;
    if (h->draining) by_reply_error(ex, 503, NULL, "the server is shutting down");
    else if (!h->service) by_reply_error(ex, 503, NULL, "the model is being loaded");
    else by_reply_json(ex, 200, BY_STR("{\"status\":\"ok\"}"));
}

void by_handle_ready(by_exchange *ex, by_str id) { by_handle_health(ex, id); }

void by_handle_version(by_exchange *ex, by_str id) {
    by_buf b = {0};
    (void)id;
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "version");
    by_json_out_z(&o, ex->http->opts.version);
    by_json_out_key(&o, "name");
    by_json_out_z(&o, "bathyc");
    by_json_out_object_end(&o);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_metrics(by_exchange *ex, by_str id) {
    by_http *h = ex->http;
    by_buf b = {0};
    by_engine_stats stats;
    (void)id;
    by_engine *engine = h->service ? by_service_engine(h->service) : NULL;
    if (engine) stats = by_engine_stats_get(engine);
    if (by_metrics_write(h->metrics, &b, engine ? &stats : NULL, NULL) < 0) by_reply_error(ex, 503, "out_of_memory", "out of memory");
    else by_reply(ex, 200, BY_METRICS_CONTENT_TYPE, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_page(by_exchange *ex, by_str id) {
    (void)id;
    by_reply_header(ex, "Cache-Control", "no-cache"); /* a newer program has a newer page */
    by_reply_header(ex, "X-Content-Type-Options", "nosniff");
    by_reply(ex, 200, "text/html; charset=utf-8", by_str_of((const char *)by_page_html, by_page_html_len));
}

void by_handle_openapi(by_exchange *ex, by_str id) {
    (void)id;
    by_reply_header(ex, "Cache-Control", "no-cache");
    by_reply_json(ex, 200, by_str_of((const char *)by_openapi_json, by_openapi_json_len));
}

/* ---- models ---- */

static void write_model(by_json_out *o, by_http *h, by_str name) {
    by_json_out_object_begin(o);
    by_json_out_key(o, "id");
    by_json_out_string(o, name);
    by_json_out_key(o, "object");
    by_json_out_z(o, "model");
    by_json_out_key(o, "created");
    by_json_out_int(o, h->started_s);
    by_json_out_key(o, "owned_by");
    by_json_out_z(o, "bathyc");
    by_json_out_key(o, "max_model_len");
    by_json_out_int(o, by_service_max_context(h->service));
    by_json_out_object_end(o);
}

void by_handle_models(by_exchange *ex, by_str id) {
    by_buf b = {0};
    uint32_t n;
    (void)id;
    const by_api_model_name *names = by_service_names(ex->http->service, &n);
    by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
    by_json_out_object_begin(&o);
    by_json_out_key(&o, "object");
    by_json_out_z(&o, "list");
    by_json_out_key(&o, "data");
    by_json_out_array_begin(&o);
    for (uint32_t i = 0; i < n; i++) write_model(&o, ex->http, names[i].name);
    by_json_out_array_end(&o);
    by_json_out_object_end(&o);
    by_reply_json(ex, 200, by_buf_str(&b));
    by_buf_deinit(&b);
}

void by_handle_model(by_exchange *ex, by_str id) {
    uint32_t n;
    const by_api_model_name *names = by_service_names(ex->http->service, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (!by_str_eq(names[i].name, id)) continue;
        by_buf b = {0};
        by_json_out o = by_json_out_init(&b, BY_JSON_COMPACT);
        write_model(&o, ex->http, id);
        by_reply_json(ex, 200, by_buf_str(&b));
        by_buf_deinit(&b);
        return;
    }
    by_reply_refusal(ex, 404, "model_not_found", "model", "the model '%.*s' does not exist", BY_STR_ARG(by_str_take(id, 200)));
}
