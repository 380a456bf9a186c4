/* custom_input.c - see custom_input.h. */
#include "api/custom_input.h"

#include <string.h>

#include "base/utf8.h"

/* States 0.. count the characters of `front` that were found; white space may stand where it has a blank. */
static const char front[] = " { \"input\" : \"";
enum { STATE_STRING = 100, STATE_AFTER, STATE_RAW };

void by_custom_input_begin(by_custom_input *c) {
    c->state = 0;
    c->n_escape = 0;
    by_buf_clear(&c->pending);
}

static bool is_space(char ch) { return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r'; }

/* One character of the front; false when the arguments have another form. */
static bool match_front(by_custom_input *c, char ch) {
    if (front[c->state] == ' ') {
        if (is_space(ch)) return true;
        c->state++;
    }
    if (front[c->state] != ch) return false;
    c->state++;
    if (front[c->state] == '\0') c->state = STATE_STRING;
    return true;
}

static bool hex4(const char *s, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; i++) {
        char ch = s[i];
        uint32_t d = ch >= '0' && ch <= '9'   ? (uint32_t)(ch - '0')
                     : ch >= 'a' && ch <= 'f' ? (uint32_t)(ch - 'a' + 10)
                     : ch >= 'A' && ch <= 'F' ? (uint32_t)(ch - 'A' + 10)
                                              : 16;
        if (d == 16) return false;
        *value = *value << 4 | d;
    }
    return true;
}

static bool is_hex(char ch) {
    uint32_t v;
    return hex4((char[]){'0', '0', '0', ch}, &v);
}

/* The escape so far (it begins with a backslash) and whether it goes on, is done (text appended), or is none. */
typedef enum { ESCAPE_OPEN, ESCAPE_DONE, ESCAPE_NONE } escape_step;

static escape_step put(by_buf *out, uint32_t cp) {
    char text[4];
    by_buf_push(out, text, by_utf8_put(cp, text));
    return ESCAPE_DONE;
}

static escape_step step_escape(const char *e, uint32_t n, by_buf *out) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char last = e[n - 1];
    uint32_t high, low;
    if (n == 2) {
        if (last == 'u') return ESCAPE_OPEN;
        const char *at = last ? strchr(letters, last) : NULL;
        return at ? put(out, (uint32_t)(unsigned char)meant[at - letters]) : ESCAPE_NONE;
    }
    if (n < 6 || (n > 8 && n < 12)) return is_hex(last) ? ESCAPE_OPEN : ESCAPE_NONE;
    if (n == 7) return last == '\\' ? ESCAPE_OPEN : ESCAPE_NONE;
    if (n == 8) return last == 'u' ? ESCAPE_OPEN : ESCAPE_NONE;
    if (!hex4(e + 2, &high)) return ESCAPE_NONE;
    if (n == 6) {
        if (high >= 0xd800 && high < 0xdc00) return ESCAPE_OPEN; /* wants its second half */
        return high >= 0xdc00 && high < 0xe000 ? ESCAPE_NONE : put(out, high);
    }
    if (!hex4(e + 8, &low) || low < 0xdc00 || low >= 0xe000) return ESCAPE_NONE;
    return put(out, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
}

static void push_string(by_custom_input *c, char ch, by_buf *out) {
    if (c->n_escape == 0) {
        if (ch == '"') c->state = STATE_AFTER;
        else if (ch == '\\') c->escape[c->n_escape++] = ch;
        else by_buf_push_byte(out, ch);
        return;
    }
    c->escape[c->n_escape++] = ch;
    escape_step step = step_escape(c->escape, c->n_escape, out);
    if (step == ESCAPE_OPEN) return;
    if (step == ESCAPE_NONE) by_buf_push(out, c->escape, c->n_escape);
    c->n_escape = 0;
}

void by_custom_input_push(by_custom_input *c, by_str args, by_buf *out) {
    for (size_t i = 0; i < args.len; i++) {
        if (c->state == STATE_AFTER) return;
        if (c->state == STATE_RAW) {
            by_buf_push_str(out, by_str_skip(args, i));
            return;
        }
        if (c->state == STATE_STRING) {
            push_string(c, args.ptr[i], out);
            continue;
        }
        if (match_front(c, args.ptr[i])) {
            by_buf_push_byte(&c->pending, args.ptr[i]);
            continue;
        }
        c->state = STATE_RAW;
        by_buf_push_str(out, by_buf_str(&c->pending));
        i--;
    }
}

void by_custom_input_end(by_custom_input *c, by_buf *out) {
    if (c->state < STATE_STRING) by_buf_push_str(out, by_buf_str(&c->pending));
    else by_buf_push(out, c->escape, c->n_escape);
    c->n_escape = 0;
    by_buf_clear(&c->pending);
}
