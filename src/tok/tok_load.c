/* tok_load.c - a tokenizer.json becomes a by_tok.
 *
 * Order: the settings are compared with the one family that is implemented, and what differs is kept as the reason not to
 * encode; then ids get their bytes (vocabulary, added
 * tokens, overrides); then merges are read against the spellings; then what encoding needs is derived (tok_derive.c). The
 * JSON tree and the table of spellings live in an arena that dies at the end. */
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "json/json.h"
#include "tok/tok_impl.h"
#include "tok/tok_load.h"

/* ---- byte alphabet ---- */

/* Printable Latin-1 stands for itself, the other 68 bytes follow from U+0100 on in order. */
static bool is_printable(uint32_t b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
}

uint32_t by_tok_byte_symbol(unsigned char byte) {
    if (is_printable(byte)) return byte;
    uint32_t cp = 0x100;
    for (uint32_t b = 0; b < byte; b++) cp += !is_printable(b);
    return cp;
}

int by_tok_symbol_byte(uint32_t cp) {
    if (cp < 0x100) return is_printable(cp) ? (int)cp : -1;
    if (cp < 0x121) return (int)(cp - 0x100); /* 0..32 */
    if (cp < 0x143) return (int)(cp - 0x121) + 127; /* 127..160 */
    return cp == 0x143 ? 173 : -1;
}

/* Bytes of a spelling; false when a character is outside the alphabet (then the spelling is the text itself). At most
 * as long as the spelling. */
static bool spelling_bytes(by_str spelling, char *out, size_t *n) {
    *n = 0;
    for (size_t i = 0; i < spelling.len;) {
        by_utf8_step st = by_utf8_next(spelling.ptr + i, spelling.len - i);
        int byte = by_tok_symbol_byte(st.cp);
        if (byte < 0) return false;
        out[(*n)++] = (char)byte;
        i += st.n;
    }
    return true;
}

/* ---- settings ---- */

static const char pattern_digits[] = "\\p{N}{1,3}";
static const char pattern_cjk[] = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
static const char pattern_rest[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

static bool is_off(const by_json *v) {
    return !v || v->type == BY_JSON_NULL || (v->type == BY_JSON_BOOL && !v->v.b) ||
           (v->type == BY_JSON_STRING && v->v.s.len == 0);
}

static bool type_is(const by_json *v, const char *name) {
    const by_json *type = by_json_get(v, "type");
    return by_json_is(type, BY_JSON_STRING) && by_str_eqz(type->v.s, name);
}

static by_status check_split(const by_json *step, size_t i, const char *want, by_err *err) {
    const by_json *regex = by_json_get(by_json_get(step, "pattern"), "Regex");
    const by_json *behavior = by_json_get(step, "behavior");
    if (!type_is(step, "Split") || !by_json_is(regex, BY_JSON_STRING) || !by_str_eqz(regex->v.s, want))
        return BY_FAIL(err, BY_EUNSUPPORTED, "pre_tokenizer.pretokenizers[%zu]: only the split '%s' is implemented", i,
                       want);
    if (!by_json_is(behavior, BY_JSON_STRING) || !by_str_eqz(behavior->v.s, "Isolated") ||
        !is_off(by_json_get(step, "invert")))
        return BY_FAIL(err, BY_EUNSUPPORTED,
                       "pre_tokenizer.pretokenizers[%zu]: only behavior 'Isolated', not inverted, is implemented", i);
    return BY_OK;
}

static by_status check_pre_tokenizer(const by_json *root, by_err *err) {
    const by_json *pre = by_json_get(root, "pre_tokenizer"), *steps = by_json_get(pre, "pretokenizers");
    if (!type_is(pre, "Sequence") || !by_json_is(steps, BY_JSON_ARRAY) || steps->n != 4)
        return BY_FAIL(err, BY_EUNSUPPORTED, "pre_tokenizer: want a Sequence of three Splits and a ByteLevel step");
    const char *const patterns[3] = {pattern_digits, pattern_cjk, pattern_rest};
    for (size_t i = 0; i < 3; i++) BY_TRY(check_split(by_json_at(steps, i), i, patterns[i], err));
    const by_json *last = by_json_at(steps, 3);
    const by_json *prefix = by_json_get(last, "add_prefix_space"), *regex = by_json_get(last, "use_regex");
    /* absent means true for both */
    if (!type_is(last, "ByteLevel") || !prefix || !is_off(prefix) || !regex || !is_off(regex))
        return BY_FAIL(err, BY_EUNSUPPORTED, "pre_tokenizer.pretokenizers[3]: want ByteLevel with add_prefix_space and "
                                             "use_regex false");
    return BY_OK;
}

/* What would make encoding differ from what is implemented here. */
static by_status check_encoding(const by_json *root, const by_json *model, by_err *err) {
    static const char *const off[] = {"dropout",       "unk_token",     "continuing_subword_prefix", "end_of_word_suffix",
                                      "byte_fallback", "ignore_merges", "fuse_unk"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        if (!is_off(by_json_get(model, off[i])))
            return BY_FAIL(err, BY_EUNSUPPORTED, "model.%s is set; only files without it are implemented", off[i]);
    const by_json *normalizer = by_json_get(root, "normalizer"), *list = by_json_get(normalizer, "normalizers");
    bool empty = type_is(normalizer, "Sequence") && by_json_is(list, BY_JSON_ARRAY) && list->n == 0;
    if (!is_off(normalizer) && !empty)
        return BY_FAIL(err, BY_EUNSUPPORTED, "normalizer: only files without one are implemented");
    return check_pre_tokenizer(root, err);
}

/* ---- spellings ---- */

typedef struct {
    by_str text;
    int32_t id;
} spelling;

/* Vocabulary spelling -> id, open addressing. */
typedef struct {
    spelling *slots;
    size_t mask;
} spellings;

static size_t hash_text(by_str s) {
    uint64_t h = s.len;
    for (size_t i = 0; i < s.len; i++) h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 32);
}

/* The slot of text: holding it, or empty (text.ptr NULL). */
static spelling *find_slot(const spellings *m, by_str text) {
    for (size_t i = hash_text(text) & m->mask;; i = (i + 1) & m->mask)
        if (!m->slots[i].text.ptr || by_str_eq(m->slots[i].text, text)) return &m->slots[i];
}

static int32_t find_id(const spellings *m, by_str text) {
    const spelling *s = find_slot(m, text);
    return s->text.ptr ? s->id : -1;
}

/* ---- loading ---- */

typedef struct {
    by_tok *t;
    const by_tok_opts *opts;
    by_arena arena; /* JSON and the tables below */
    by_json root;
    const by_json *vocab, *merges, *added;
    spellings names;
    by_str *texts; /* [n_ids] bytes of each id, ptr NULL where there is none */
} loader;

static by_status out_of_memory(by_err *err) { return BY_FAIL(err, BY_ENOMEM, "out of memory for the tokenizer"); }

static by_status check_text(by_str text, const char *what, by_err *err) {
    if (text.len == 0) return BY_FAIL(err, BY_EFORMAT, "%s: an empty text", what);
    if (text.len > BY_LIMIT_TOKEN_BYTES)
        return BY_FAIL(err, BY_ELIMIT, "%s: a text of %zu bytes is over the limit of %d", what, text.len,
                       BY_LIMIT_TOKEN_BYTES);
    return BY_OK;
}

/* Highest id of all entries; also checks that each is an id. */
static by_status count_ids(loader *l, by_err *err) {
    int64_t max = -1, id;
    for (uint32_t i = 0; i < l->vocab->n; i++) {
        const by_json_member *m = &l->vocab->v.members[i];
        if (!by_json_int_in(&m->value, 0, BY_LIMIT_VOCAB - 1, &id))
            return BY_FAIL(err, BY_EFORMAT, "model.vocab '%.*s': want an id in 0..%d", BY_STR_ARG(m->key),
                           BY_LIMIT_VOCAB - 1);
        BY_TRY(check_text(m->key, "model.vocab", err));
        if (id > max) max = id;
    }
    for (uint32_t i = 0; l->added && i < l->added->n; i++) {
        if (!by_json_int_in(by_json_get(by_json_at(l->added, i), "id"), 0, BY_LIMIT_VOCAB - 1, &id))
            return BY_FAIL(err, BY_EFORMAT, "added_tokens[%u].id: want an id in 0..%d", i, BY_LIMIT_VOCAB - 1);
        if (id > max) max = id;
    }
    l->t->n_ids = (int32_t)(max + 1);
    return BY_OK;
}

static by_status alloc_ids(loader *l, by_err *err) {
    size_t n = (size_t)l->t->n_ids, slots = 16;
    while (slots < 2 * (size_t)l->vocab->n) slots *= 2;
    l->t->flags = by_alloc_zero(BY_MEM_TOK, n + 1);
    l->t->made = by_alloc(BY_MEM_TOK, by_mul_size(n + 1, sizeof *l->t->made));
    l->texts = by_arena_zero(&l->arena, by_mul_size(n, sizeof *l->texts));
    l->names.slots = by_arena_zero(&l->arena, by_mul_size(slots, sizeof *l->names.slots));
    l->names.mask = slots - 1;
    if (!l->t->flags || !l->t->made || !l->texts || !l->names.slots) return out_of_memory(err);
    for (size_t i = 0; i < n; i++)
        l->t->made[i] = (by_tok_made){.left = -1, .right = -1, .rank = BY_TOK_RANK_NONE, .shorter = -1};
    return BY_OK;
}

static by_status load_vocab(loader *l, by_err *err) {
    by_tok *t = l->t;
    for (int i = 0; i < 256; i++) t->byte_ids[i] = -1;
    for (uint32_t i = 0; i < l->vocab->n; i++) {
        by_str name = l->vocab->v.members[i].key;
        int32_t id = (int32_t)l->vocab->v.members[i].value.v.i;
        spelling *slot = find_slot(&l->names, name);
        if (slot->text.ptr) return BY_FAIL(err, BY_EFORMAT, "model.vocab: '%.*s' appears twice", BY_STR_ARG(name));
        *slot = (spelling){.text = name, .id = id};
        if (t->flags[id]) return BY_FAIL(err, BY_EFORMAT, "model.vocab: '%.*s' has id %d, which is taken already",
                                         BY_STR_ARG(name), id);
        char *bytes = by_arena_alloc(&l->arena, name.len);
        size_t n;
        if (!bytes) return out_of_memory(err);
        bool in_alphabet = spelling_bytes(name, bytes, &n);
        l->texts[id] = in_alphabet ? by_str_of(bytes, n) : name;
        t->flags[id] = (uint8_t)(BY_TOK_PRESENT | BY_TOK_VOCAB | (in_alphabet ? 0 : BY_TOK_VERBATIM));
        if (in_alphabet && n == 1) t->byte_ids[(unsigned char)bytes[0]] = id;
    }
    for (int b = 0; b < 256; b++)
        if (t->byte_ids[b] < 0)
            return BY_FAIL(err, BY_EFORMAT, "model.vocab: no entry for the byte 0x%02x (U+%04X)", b,
                           by_tok_byte_symbol((unsigned char)b));
    return BY_OK;
}

static by_str override_of(const loader *l, int32_t id, by_str content) {
    for (size_t i = 0; l->opts && i < l->opts->n_overrides; i++)
        if (l->opts->overrides[i].id == id) return by_str_z(l->opts->overrides[i].content);
    return content;
}

static void check_added_encoding(loader *l, const by_json *added, uint32_t i) {
    static const char *const off[] = {"single_word", "lstrip", "rstrip"};
    for (size_t k = 0; k < sizeof off / sizeof off[0]; k++)
        if (!is_off(by_json_get(added, off[k])) && l->t->cannot_encode.code == BY_OK)
            BY_FAIL(&l->t->cannot_encode, BY_EUNSUPPORTED,
                    "added_tokens[%u].%s is set; only tokens without it are implemented", i, off[k]);
}

static by_status load_one_added(loader *l, uint32_t i, by_err *err) {
    const by_json *a = by_json_at(l->added, i), *content = by_json_get(a, "content");
    by_tok *t = l->t;
    int32_t id = (int32_t)by_json_get(a, "id")->v.i;
    if (!by_json_is(content, BY_JSON_STRING))
        return BY_FAIL(err, BY_EFORMAT, "added_tokens[%u].content: want a string", i);
    check_added_encoding(l, a, i);
    by_str text = override_of(l, id, content->v.s);
    BY_TRY(check_text(text, "added_tokens", err));
    if (!by_utf8_valid(text, NULL)) return BY_FAIL(err, BY_EINVAL, "the override of id %d is not UTF-8", id);
    if (t->flags[id] & BY_TOK_ADDED) return BY_FAIL(err, BY_EFORMAT, "added_tokens: id %d appears twice", id);
    int32_t named = find_id(&l->names, content->v.s);
    if (named >= 0 && named != id)
        return BY_FAIL(err, BY_EFORMAT, "added_tokens: '%.*s' has id %d here and %d in model.vocab",
                       BY_STR_ARG(content->v.s), id, named);
    /* An id in both lists means the same text in both. A spelling in byte symbols would not: "Ġa" is " a" there. */
    if (t->flags[id] && (named != id || !by_str_eq(l->texts[id], content->v.s)))
        return BY_FAIL(err, BY_EFORMAT, "added_tokens: id %d ('%.*s') has another text in model.vocab", id,
                       BY_STR_ARG(content->v.s));
    const by_json *special = by_json_get(a, "special");
    bool is_special = by_json_is(special, BY_JSON_BOOL) && special->v.b;
    if (t->flags[id] && !by_str_eq(text, content->v.s))
        return BY_FAIL(err, BY_EINVAL, "override of id %d: it is in model.vocab, too", id);
    l->texts[id] = text;
    t->flags[id] |= BY_TOK_PRESENT | BY_TOK_ADDED | (is_special ? BY_TOK_SPECIAL : 0);
    t->n_added++;
    return BY_OK;
}

static by_status load_added(loader *l, by_err *err) {
    for (uint32_t i = 0; l->added && i < l->added->n; i++) BY_TRY(load_one_added(l, i, err));
    for (size_t i = 0; l->opts && i < l->opts->n_overrides; i++) {
        int32_t id = l->opts->overrides[i].id;
        if (id < 0 || id >= l->t->n_ids || !(l->t->flags[id] & BY_TOK_ADDED))
            return BY_FAIL(err, BY_EINVAL, "override of id %d: not an added token of this file", id);
    }
    return BY_OK;
}

/* Copies all texts into one block, so that encoding touches no arena. */
static by_status store_texts(loader *l, by_err *err) {
    by_tok *t = l->t;
    size_t total = 0;
    for (int32_t i = 0; i < t->n_ids; i++) total = by_add_size(total, l->texts[i].len);
    if (total > UINT32_MAX) return BY_FAIL(err, BY_ELIMIT, "the texts of all ids have %zu bytes", total);
    t->bytes = by_alloc(BY_MEM_TOK, total + 1);
    t->at = by_alloc(BY_MEM_TOK, by_mul_size((size_t)t->n_ids + 1, sizeof *t->at));
    if (!t->bytes || !t->at) return out_of_memory(err);
    uint32_t at = 0;
    for (int32_t i = 0; i < t->n_ids; i++) {
        t->at[i] = at;
        if (l->texts[i].len) memcpy(t->bytes + at, l->texts[i].ptr, l->texts[i].len);
        at += (uint32_t)l->texts[i].len;
    }
    t->at[t->n_ids] = at;
    return BY_OK;
}

/* ---- merges ---- */

/* "left right" or ["left", "right"]. */
static by_status merge_parts(const by_json *m, uint32_t i, by_str *left, by_str *right, by_err *err) {
    const by_json *a = by_json_at(m, 0), *b = by_json_at(m, 1);
    if (by_json_is(a, BY_JSON_STRING) && by_json_is(b, BY_JSON_STRING) && m->n == 2) {
        *left = a->v.s;
        *right = b->v.s;
        return BY_OK;
    }
    if (by_json_is(m, BY_JSON_STRING)) {
        by_str s = m->v.s;
        const char *blank = s.len ? memchr(s.ptr, ' ', s.len) : NULL;
        if (blank && !memchr(blank + 1, ' ', (size_t)(s.ptr + s.len - blank - 1))) {
            *left = by_str_of(s.ptr, (size_t)(blank - s.ptr));
            *right = by_str_skip(s, left->len + 1);
            return BY_OK;
        }
    }
    return BY_FAIL(err, BY_EFORMAT, "model.merges[%u]: want two spellings, \"left right\"", i);
}

static by_status load_merge(loader *l, uint32_t i, by_err *err) {
    by_str part[2] = {{0}, {0}};
    int32_t id[2];
    char joined[2 * BY_LIMIT_TOKEN_BYTES];
    BY_TRY(merge_parts(&l->merges->v.items[i], i, &part[0], &part[1], err));
    for (int k = 0; k < 2; k++) {
        id[k] = part[k].len ? find_id(&l->names, part[k]) : -1;
        if (id[k] < 0)
            return BY_FAIL(err, BY_EFORMAT, "model.merges[%u]: '%.*s' is not in model.vocab", i, BY_STR_ARG(part[k]));
    }
    memcpy(joined, part[0].ptr, part[0].len); /* both are in the vocabulary and so within the limit */
    memcpy(joined + part[0].len, part[1].ptr, part[1].len);
    by_str whole = by_str_of(joined, part[0].len + part[1].len);
    int32_t made = find_id(&l->names, whole);
    if (made < 0)
        return BY_FAIL(err, BY_EFORMAT, "model.merges[%u]: its result '%.*s' is not in model.vocab", i, BY_STR_ARG(whole));
    if ((l->t->flags[id[0]] | l->t->flags[id[1]] | l->t->flags[made]) & BY_TOK_VERBATIM)
        return BY_FAIL(err, BY_EFORMAT, "model.merges[%u]: '%.*s' is not made of byte symbols", i,
                       BY_STR_ARG(whole));
    int32_t rank;
    if (!by_tok_add_merge(l->t, (by_tok_merge){.left = id[0], .right = id[1], .id = made}, &rank))
        return BY_FAIL(err, BY_EFORMAT, "model.merges[%u]: '%.*s %.*s' is merge %d already", i, BY_STR_ARG(part[0]),
                       BY_STR_ARG(part[1]), rank);
    return BY_OK;
}

static by_status load_merges(loader *l, by_err *err) {
    BY_TRY(by_tok_alloc_merges(l->t, l->merges->n, err));
    for (uint32_t i = 0; i < l->merges->n; i++) BY_TRY(load_merge(l, i, err));
    return BY_OK;
}

static by_status load(loader *l, by_str json, by_err *err) {
    BY_TRY(by_json_parse(&l->root, &l->arena, json, NULL, err));
    const by_json *model = by_json_get(&l->root, "model");
    if (!by_json_is(&l->root, BY_JSON_OBJECT)) return BY_FAIL(err, BY_EFORMAT, "the file is not a JSON object");
    if (!by_json_is(model, BY_JSON_OBJECT)) return BY_FAIL(err, BY_EFORMAT, "model: want an object");
    if (!type_is(model, "BPE")) return BY_FAIL(err, BY_EUNSUPPORTED, "model.type: only BPE is implemented");
    check_encoding(&l->root, model, &l->t->cannot_encode);
    l->vocab = by_json_get(model, "vocab");
    l->merges = by_json_get(model, "merges");
    l->added = by_json_get(&l->root, "added_tokens");
    if (!by_json_is(l->vocab, BY_JSON_OBJECT)) return BY_FAIL(err, BY_EFORMAT, "model.vocab: want an object");
    if (!by_json_is(l->merges, BY_JSON_ARRAY)) return BY_FAIL(err, BY_EFORMAT, "model.merges: want an array");
    if (l->added && !by_json_is(l->added, BY_JSON_ARRAY)) return BY_FAIL(err, BY_EFORMAT, "added_tokens: want an array");
    if (l->vocab->n > BY_LIMIT_VOCAB || l->merges->n > BY_LIMIT_VOCAB)
        return BY_FAIL(err, BY_ELIMIT, "model: %u entries and %u merges are over the limit of %d", l->vocab->n,
                       l->merges->n, BY_LIMIT_VOCAB);
    BY_TRY(count_ids(l, err));
    BY_TRY(alloc_ids(l, err));
    BY_TRY(load_vocab(l, err));
    BY_TRY(load_added(l, err));
    BY_TRY(store_texts(l, err));
    BY_TRY(load_merges(l, err));
    return by_tok_derive(l->t, l->opts && l->opts->plain_merges, err);
}

by_status by_tok_parse(by_tok **out, by_str json, const by_tok_opts *opts, by_err *err) {
    loader l = {.opts = opts};
    l.t = by_alloc_zero(BY_MEM_TOK, sizeof *l.t);
    if (!l.t) return out_of_memory(err);
    by_arena_init(&l.arena, BY_MEM_TOK);
    by_status status = load(&l, json, err);
    by_arena_deinit(&l.arena);
    if (status == BY_OK) *out = l.t;
    else by_tok_destroy(l.t);
    return status;
}

by_status by_tok_open(by_tok **out, const char *path, const by_tok_opts *opts, by_err *err) {
    by_file_map file;
    BY_TRY(by_file_map_open(&file, path, err));
    by_status status = by_tok_parse(out, by_str_of((const char *)file.ptr, file.size), opts, err);
    if (status < 0) by_err_prefix(err, "%s: ", path);
    by_file_map_close(&file);
    return status;
}

void by_tok_destroy(by_tok *t) {
    if (!t) return;
    by_free(t->bytes);
    by_free(t->at);
    by_free(t->flags);
    by_free(t->made);
    by_free(t->edges);
    by_free(t->merges);
    by_free(t->pairs);
    by_free(t->pair_filter);
    by_free(t->added_ids);
    by_tok_trie_deinit(&t->whole);
    by_tok_trie_deinit(&t->added);
    by_free(t);
}
