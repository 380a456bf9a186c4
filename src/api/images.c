/* images.c - pictures of a request: links and data URLs. Nothing is fetched or decoded here; a data URL is checked to be
 * base64 of a picture type.
 *
 * Data URLs are read as the WHATWG standards say (Fetch, "data: URL processor"; forgiving base64), base64 blocks of the
 * Messages API strictly (padding required, no stray bits). */
#include <string.h>

#include "api/convert.h"
#include "api/value_text.h"

enum { LINK_MAX_BYTES = 8192 };

static const char *const detail_words[] = {"low", "high", "original", "auto"};
const by_shape by_shape_detail = BY_SHAPE_WORD_OF(detail_words);

static by_status make_image(by_convert *cv, by_recipe_image_kind kind, by_str url, by_recipe_detail detail, by_str path,
                            const by_recipe_image **out) {
    by_recipe_image *image = BY_MAKE(cv, by_recipe_image, 1);
    if (!image) return by_no_memory(cv);
    *image = (by_recipe_image){.kind = kind, .detail = detail, .url = url, .path = path};
    *out = image;
    return BY_OK;
}

/* ---- data URLs ---- */

static bool is_tab_or_newline(char c) { return c == '\t' || c == '\n' || c == '\r'; }

/* Moves *at behind word, which is lower case; tabs and newlines in between do not count. */
static bool skip_word(by_str s, size_t *at, const char *word) {
    for (; *word; word++) {
        while (*at < s.len && is_tab_or_newline(s.ptr[*at])) ++*at;
        if (*at >= s.len) return false;
        char c = s.ptr[*at];
        if ((c >= 'A' && c <= 'Z' ? c + 32 : c) != *word) return false;
        ++*at;
    }
    return true;
}

typedef struct {
    by_str header, body; /* before and behind the comma */
} data_url;

static bool split_data_url(by_str s, data_url *out) {
    size_t at = 0;
    while (at < s.len && (unsigned char)s.ptr[at] <= ' ') at++;
    if (!skip_word(s, &at, "data:")) return false;
    for (size_t i = at; i < s.len; i++) {
        if (s.ptr[i] == '#') return false;
        if (s.ptr[i] != ',') continue;
        *out = (data_url){by_str_of(s.ptr + at, i - at), by_str_skip(s, i + 1)};
        return true;
    }
    return false;
}

static bool is_blank(char c) { return c == ' ' || is_tab_or_newline(c); }

static by_str trim(by_str s) {
    while (s.len && is_blank(s.ptr[0])) s = by_str_skip(s, 1);
    while (s.len && is_blank(s.ptr[s.len - 1])) s.len--;
    return s;
}

/* Does the header end in ";base64"? *rest is what stands before it. */
static bool ends_in_base64(by_str header, by_str *rest) {
    static const char word[] = "46esab";
    size_t at = header.len;
    for (const char *w = word; *w; w++) {
        while (at && is_tab_or_newline(header.ptr[at - 1])) at--;
        if (at == 0 || (header.ptr[at - 1] | (*w >= 'a' ? 32 : 0)) != *w) return false;
        at--;
    }
    while (at && (is_tab_or_newline(header.ptr[at - 1]) || header.ptr[at - 1] == ' ')) at--;
    if (at == 0 || header.ptr[at - 1] != ';') return false;
    *rest = by_str_take(header, at - 1);
    return true;
}

/* image/png, image/jpeg, image/jpg, image/gif, image/webp, in any case, maybe with parameters. */
static bool is_picture_type(by_str type) {
    static const char *const types[] = {"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        size_t at = 0;
        if (!skip_word(type, &at, types[i])) continue;
        while (at < type.len && is_blank(type.ptr[at])) at++;
        if (at == type.len || type.ptr[at] == ';') return true;
    }
    return false;
}

static int base64_value(int c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The body up to a '#', with %xx decoded: is it forgiving base64? */
static bool is_forgiving_base64(by_str body) {
    size_t n = 0, padding = 0;
    for (size_t i = 0; i < body.len && body.ptr[i] != '#'; i++) {
        int c = (unsigned char)body.ptr[i];
        if (c == '%' && i + 2 < body.len && hex_value(body.ptr[i + 1]) >= 0 && hex_value(body.ptr[i + 2]) >= 0) {
            c = hex_value(body.ptr[i + 1]) * 16 + hex_value(body.ptr[i + 2]);
            i += 2;
        }
        if (c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r') continue;
        if (c == '=') {
            padding++;
        } else {
            if (padding || base64_value(c) < 0) return false;
            n++;
        }
    }
    switch (n % 4) {
    case 0: return padding == 0;
    case 2: return padding == 0 || padding == 2;
    case 3: return padding == 0 || padding == 1;
    default: return false;
    }
}

typedef enum { NOT_DATA, DATA_OK, DATA_TYPE, DATA_BASE64 } verdict;

/* What is wrong with a data URL; type before content. */
static verdict judge(by_str url, bool *type_ok, bool *body_ok) {
    data_url d;
    if (!split_data_url(url, &d)) return NOT_DATA;
    by_str type = trim(d.header);
    bool base64 = ends_in_base64(type, &type);
    *type_ok = is_picture_type(type);
    *body_ok = !base64 || is_forgiving_base64(d.body);
    return *type_ok ? *body_ok ? DATA_OK : DATA_BASE64 : DATA_TYPE;
}

/* ---- Chat and Responses ---- */

static bool looks_like_link(by_str s) {
    static const char word[] = "http";
    for (size_t i = 0; i < 4; i++)
        if (i >= s.len || (s.ptr[i] | 32) != word[i]) return false;
    return true;
}

static by_status refuse_picture(by_convert *cv, by_str path, const char *what) {
    return BY_REFUSE(cv, path, BY_STR(": You have uploaded an unsupported "), by_str_z(what),
                     BY_STR(". Please make sure your "), by_str_z(what),
                     BY_STR(" is valid and has one of the following formats: webp, png, jpeg, and gif."));
}

bool by_is_long_link(by_str url) { return url.len > LINK_MAX_BYTES && looks_like_link(url); }

by_status by_refuse_long_link(by_convert *cv, by_str url, by_str place) {
    return BY_REFUSE(
        cv, place, BY_STR("external link length "), by_number_text(cv, url.len), BY_STR(" too long, max link length "),
        by_number_text(cv, LINK_MAX_BYTES),
        BY_STR(". Consider passing file data directly with base64 data url instead."));
}

by_status by_image_from_url(by_convert *cv, by_str url, by_recipe_detail detail, by_str path, const by_recipe_image **out) {
    if (looks_like_link(url)) return make_image(cv, BY_IMAGE_URL, url, detail, path, out);
    bool type_ok, body_ok;
    verdict v = judge(url, &type_ok, &body_ok);
    if (v == NOT_DATA || !memmem(url.ptr, url.len, "base64,", 7))
        return BY_REFUSE(cv, path, BY_STR(": Unsupported image_url format"));
    if (v == DATA_TYPE) return refuse_picture(cv, path, "image");
    if (v == DATA_BASE64) return BY_REFUSE(cv, path, BY_STR(": Invalid base64 data"));
    return make_image(cv, BY_IMAGE_DATA_URL, url, detail, path, out);
}

by_status by_check_file_data(by_convert *cv, by_str data, by_str path) {
    bool type_ok = false, body_ok = false;
    verdict v = judge(data, &type_ok, &body_ok);
    if (v != NOT_DATA && !type_ok) return refuse_picture(cv, path, "file");
    if (v == NOT_DATA || !body_ok) return BY_REFUSE(cv, path, BY_STR(": file_data is not a valid base64 data url"));
    return BY_OK;
}

/* ---- Messages ---- */

by_status by_image_from_link(by_convert *cv, by_str url, by_str path, by_str place, const by_recipe_image **out) {
    if (looks_like_link(url)) {
        by_str long_path;
        const by_str parts[] = {place, BY_STR(": ")};
        BY_TRY(by_join(cv, parts, 2, by_str_of(NULL, 0), &long_path));
        if (by_is_long_link(url)) return by_refuse_long_link(cv, url, long_path);
        return make_image(cv, BY_IMAGE_URL, url, BY_DETAIL_HIGH, path, out);
    }
    by_buf quoted = {0};
    by_text_put_quoted(&quoted, url);
    by_status status = by_buf_check(&quoted, cv->err);
    if (status == BY_OK) status = BY_REFUSE(cv, place, BY_STR(": invalid url: "), by_buf_str(&quoted));
    by_buf_deinit(&quoted);
    return status;
}

static bool is_strict_base64(by_str s) {
    if (s.len % 4) return false;
    size_t padding = s.len && s.ptr[s.len - 1] == '=' ? s.ptr[s.len - 2] == '=' ? 2 : 1 : 0;
    for (size_t i = 0; i + padding < s.len; i++)
        if (base64_value((unsigned char)s.ptr[i]) < 0) return false;
    int last = padding ? base64_value((unsigned char)s.ptr[s.len - padding - 1]) : 0;
    return (last & (padding == 2 ? 15 : 3)) == 0; /* the bits that no byte uses */
}

by_status by_image_from_base64(by_convert *cv, by_str media_type, by_str data, by_str path, by_str place,
                               const by_recipe_image **out) {
    if (!is_strict_base64(data)) return BY_REFUSE(cv, place, BY_STR(": base64 decode error"));
    const by_str parts[] = {BY_STR("data:"), media_type, BY_STR(";base64,"), data};
    by_str url;
    BY_TRY(by_join(cv, parts, 4, by_str_of(NULL, 0), &url));
    return make_image(cv, BY_IMAGE_DATA_URL, url, BY_DETAIL_HIGH, path, out);
}
