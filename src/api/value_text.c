/* value_text.c - see value_text.h. Which characters print is decided by ranges, coarser than the original's tables: a
 * rarely used unassigned character may be shown raw here and escaped there. */
#include "api/value_text.h"

#include "base/utf8.h"
#include "json/json_write.h"

typedef struct {
    uint32_t first, last;
} range;

/* Controls, separators other than the blank, format characters, surrogates, private use, and the combining marks of the
 * main blocks. Ascending. */
static const range unprinted[] = {
    {0x0, 0x1f},         {0x7f, 0xa0},        {0xad, 0xad},        {0x300, 0x36f},     {0x483, 0x489},     {0x591, 0x5bd},
    {0x610, 0x61a},      {0x64b, 0x65f},      {0x6d6, 0x6dd},      {0x1680, 0x1680},   {0x180b, 0x180f},   {0x1ab0, 0x1aff},
    {0x1dc0, 0x1dff},    {0x2000, 0x200f},    {0x2028, 0x202f},    {0x205f, 0x206f},   {0x20d0, 0x20f0},   {0x3000, 0x3000},
    {0x302a, 0x302f},    {0x3099, 0x309a},    {0xd800, 0xf8ff},    {0xfe00, 0xfe0f},   {0xfe20, 0xfe2f},   {0xfeff, 0xfeff},
    {0xfff0, 0xfffb},    {0xfffe, 0xffff},    {0xe0000, 0x10ffff},
};

static bool prints(uint32_t cp) {
    size_t low = 0, high = sizeof unprinted / sizeof unprinted[0];
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cp > unprinted[mid].last) low = mid + 1;
        else if (cp < unprinted[mid].first) high = mid;
        else return false;
    }
    return true;
}

void by_text_put_quoted(by_buf *out, by_str s) {
    by_buf_push_byte(out, '"');
    for (size_t i = 0; i < s.len;) {
        by_utf8_step st = by_utf8_next(s.ptr + i, s.len - i);
        switch (st.cp) {
        case '"': by_buf_push_z(out, "\\\""); break;
        case '\\': by_buf_push_z(out, "\\\\"); break;
        case '\n': by_buf_push_z(out, "\\n"); break;
        case '\r': by_buf_push_z(out, "\\r"); break;
        case '\t': by_buf_push_z(out, "\\t"); break;
        case 0: by_buf_push_z(out, "\\0"); break;
        default:
            if (prints(st.cp)) by_buf_push(out, s.ptr + i, st.n);
            else by_buf_printf(out, "\\u{%x}", st.cp);
        }
        i += st.n;
    }
    by_buf_push_byte(out, '"');
}

void by_text_put_value(by_buf *out, const by_json *v) {
    switch (v->type) {
    case BY_JSON_NULL: by_buf_push_z(out, "null"); return;
    case BY_JSON_BOOL: by_buf_push_z(out, v->v.b ? "boolean `true`" : "boolean `false`"); return;
    case BY_JSON_INT:
    case BY_JSON_UINT:
    case BY_JSON_DOUBLE:
        by_buf_push_z(out, v->type == BY_JSON_DOUBLE ? "floating point `" : "integer `");
        by_json_write(out, v, BY_JSON_COMPACT);
        by_buf_push_byte(out, '`');
        return;
    case BY_JSON_STRING:
        by_buf_push_z(out, "string ");
        by_text_put_quoted(out, v->v.s);
        return;
    case BY_JSON_ARRAY: by_buf_push_z(out, "sequence"); return;
    case BY_JSON_OBJECT: by_buf_push_z(out, "map"); return;
    }
}
