/* http_list.c - see http_list.h. */
#include "http/http_list.h"

static bool read_limit(by_str text, int64_t most, int64_t *out) {
    int64_t n = 0;
    if (text.len == 0 || text.len > 9) return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9') return false;
        n = n * 10 + (text.ptr[i] - '0');
    }
    *out = n;
    return n >= 1 && n <= most;
}

bool by_list_begin(by_list_page *page, by_exchange *ex, int64_t limit_default, int64_t limit_max) {
    by_str limit, order;
    *page = (by_list_page){.left = limit_default};
    if (!by_query_text(ex, "after", &page->after) || !by_query_text(ex, "limit", &limit) || !by_query_text(ex, "order", &order)) {
        by_reply_error(ex, 400, NULL, "the query is malformed");
    } else if (limit.len && !read_limit(limit, limit_max, &page->left)) {
        by_reply_refusal(ex, 400, NULL, "limit", "limit: want a number from 1 to %lld", (long long)limit_max);
    } else if (order.len && !by_str_eqz(order, "asc") && !by_str_eqz(order, "desc")) {
        by_reply_refusal(ex, 400, NULL, "order", "order: want asc or desc");
    } else {
        page->ascending = by_str_eqz(order, "asc");
        page->found = page->after.len == 0;
        page->json = by_json_out_init(&page->out, BY_JSON_COMPACT);
        by_json_out_object_begin(&page->json);
        by_json_out_key(&page->json, "object");
        by_json_out_z(&page->json, "list");
        by_json_out_key(&page->json, "data");
        by_json_out_array_begin(&page->json);
        return true;
    }
    return false;
}

bool by_list_takes(by_list_page *page, by_str id) {
    if (!page->found) {
        page->found = by_str_eq(id, page->after);
        return false;
    }
    if (page->left == 0) {
        page->more = true;
        return false;
    }
    page->left--;
    if (!page->first.ptr) page->first = id;
    page->last = id;
    return true;
}

static void put_id(by_json_out *o, const char *key, by_str id) {
    by_json_out_key(o, key);
    if (id.ptr) by_json_out_string(o, id);
    else by_json_out_null(o);
}

void by_list_end(by_list_page *page, by_exchange *ex) {
    by_json_out *o = &page->json;
    by_json_out_array_end(o);
    put_id(o, "first_id", page->first);
    put_id(o, "last_id", page->last);
    by_json_out_key(o, "has_more");
    by_json_out_bool(o, page->more);
    by_json_out_object_end(o);
    if (!page->found) by_reply_refusal(ex, 400, NULL, "after",
                                       "after: nothing in the list is called '%.*s'", BY_STR_ARG(by_str_take(page->after, 100)));
    else if (page->out.failed) by_reply_error(ex, 503, "out_of_memory", "out of memory for a list");
    else by_reply_json(ex, 200, by_buf_str(&page->out));
    by_buf_deinit(&page->out);
}
