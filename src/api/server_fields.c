/* server_fields.c - the fields of the server profile. The table in docs/api.md is the reference. */
#include "api/convert.h"

by_status by_set_server_thinking(by_convert *cv, const by_json *body, const by_json *thinking, const by_json *effort) {
    (void)cv, (void)body, (void)thinking, (void)effort;
    return BY_OK;
}

by_status by_set_server_fields(by_convert *cv, const by_json *body, by_api_kind api) {
    (void)cv, (void)body, (void)api;
    return BY_OK;
}
