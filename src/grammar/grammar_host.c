/* grammar_host.c - host names with internationalised labels ("xn--..."), which are no regular language.
 *
 * A HOST term is a place in a host name: how many characters may follow, how long the label is, and inside an A-label its text so
 * far, as a chain of terms. Whether such a label is complete is decided by decoding it. Whether it can be completed is easy: what
 * stands there may become the basic characters of a label that ends in a sharp s (by_gr_alabel_ending), so every text goes on as long
 * as there is room for that ending, and only the last bytes of a long label are limited.
 *
 * Each text is a state of its own, so masks are not made by walking states: nearly all tokens that stay inside the label are one
 * table of the vocabulary, the rest is tried as text, and only where the label may end a state is walked again. Where a host name
 * meets other conditions on the same text, its regular part is taken: below (without A-labels), or above when it is negated. */
#include "grammar/grammar_host.h"

#include <string.h>

#include "grammar/grammar_idna.h"
#include "grammar/grammar_mask.h"

enum { NAME_MAX_LEN = 253, LABEL_MAX_LEN = 63 };
enum { START, INSIDE, HYPHEN, ALABEL, ENDED }; /* x: one of these | last byte of an A-label << 8 */

typedef struct {
    unsigned phase, left, len;
    by_gr_term before; /* A-label: the state in front of its last byte, 0 at its begin. Else: the label is the begin of "xn-" */
} place;

static place place_of(by_gr_node n) {
    return (place){n.x & 0xff, n.a & 0xffff, n.a >> 16, n.b};
}

static by_gr_term make(by_gr *g, unsigned phase, unsigned left, unsigned len, bool xn) {
    unsigned f = phase == INSIDE || phase == ENDED ? BY_GR_F_NULLABLE : 0;
    if (left == 0 && (phase == START || phase == HYPHEN)) return BY_GR_NEVER;
    if (phase == HYPHEN && len == LABEL_MAX_LEN) return BY_GR_NEVER;
    return by_gr_node_make(g, BY_GR_K_HOST, phase, left | len << 16, xn, 0, f);
}

by_gr_term by_gr_host(by_gr *g) {
    return g->host = make(g, START, NAME_MAX_LEN, 0, false);
}

/* ---- A-labels ---- */

static by_str text_of(const by_gr *g, by_gr_node n, char *text) {
    unsigned len = n.a >> 16;
    for (unsigned i = len; i-- > 0; n = g->nodes[n.b])
        text[i] = (char)(n.x >> 8);
    return by_str_of(text, len);
}

/* Bytes that may follow inside a label of this text. */
static unsigned room_of(by_str s, unsigned left) {
    unsigned room = s.len < BY_GR_ALABEL_MAX ? BY_GR_ALABEL_MAX - (unsigned)s.len : 0;
    return room < left ? room : left;
}

/* Do hyphens stand where only an insertion can move them away? */
static bool is_broken(by_str s) {
    return (s.len && s.ptr[0] == '-') || (s.len > 3 && s.ptr[2] == '-' && s.ptr[3] == '-');
}

#define PLAIN_ENDING 4u /* a hyphen and one sharp s behind letters and digits */

static bool can_end(by_str s, unsigned left) {
    char ending[BY_GR_ENDING_MAX];
    unsigned room = room_of(s, left);
    if (room >= BY_GR_ENDING_MAX) return true;
    bool plain = s.len > BY_GR_ENDING_MAX && !is_broken(s) && !memchr(s.ptr + s.len - BY_GR_ENDING_MAX, '-', BY_GR_ENDING_MAX);
    return plain ? room >= PLAIN_ENDING : by_gr_alabel_ending(s, ending) <= room;
}

static by_gr_term make_alabel(by_gr *g, by_str s, unsigned left, by_gr_term before) {
    if (!can_end(s, left)) return BY_GR_NEVER;
    uint32_t byte = s.len ? (uint8_t)s.ptr[s.len - 1] : 0;
    unsigned f = by_gr_alabel_valid(s) ? BY_GR_F_NULLABLE : 0;
    return by_gr_node_make(g, BY_GR_K_HOST, ALABEL | byte << 8, left | (uint32_t)s.len << 16, before, 0, f);
}

/* ---- rows ---- */

static const by_gr_row *row_alabel(by_gr *g, by_gr_node n, by_gr_term self) {
    char text[BY_GR_ALABEL_MAX + 1];
    place p = place_of(n);
    by_str s = text_of(g, n, text);
    by_gr_range out[64];
    unsigned k = 0;
    for (unsigned b = '-'; b <= 'z' && p.left > 0; b++) {
        by_gr_term to = BY_GR_NEVER;
        if (b == '.' && (n.flags & BY_GR_F_NULLABLE)) to = make(g, START, p.left - 1, 0, false);
        if (by_gv_is_label_byte(b) && s.len < BY_GR_ALABEL_MAX) {
            text[s.len] = (char)b;
            to = make_alabel(g, by_str_of(text, s.len + 1), p.left - 1, self);
        }
        if (to != BY_GR_NEVER) out[k++] = (by_gr_range){(uint8_t)b, (uint8_t)b, to};
    }
    return by_gr_row_make(g, out, k, NULL, 0);
}

static const by_gr_row *row_label(by_gr *g, place p) {
    bool at_start = p.phase == START, more = p.phase != ENDED && p.len < LABEL_MAX_LEN && p.left > 0;
    unsigned len = p.len + 1, left = p.left - 1;
    by_gr_term hyphen = BY_GR_NEVER, dot = BY_GR_NEVER, next = BY_GR_NEVER, x = BY_GR_NEVER;
    if (p.left && (p.phase == INSIDE || p.phase == ENDED)) dot = make(g, START, left, 0, false);
    if (more) next = make(g, INSIDE, left, len, false);
    if (more && at_start) x = make(g, INSIDE, left, len, true);
    if (more && p.phase == INSIDE) hyphen = make(g, HYPHEN, left, len, len == 3 && p.before);
    if (more && p.phase == HYPHEN && len != 4) hyphen = make(g, HYPHEN, left, len, false);
    if (more && p.phase == HYPHEN && len == 4 && p.before) hyphen = make_alabel(g, BY_STR(""), left, 0);
    by_gr_term n = more && p.phase == INSIDE && len == 2 && p.before ? make(g, INSIDE, left, len, true) : next;
    if (!at_start) x = next;
    by_gr_range r[] = {{'-', '-', hyphen}, {'.', '.', dot},  {'0', '9', next}, {'A', 'Z', next}, {'a', 'm', next},
                       {'n', 'n', n},      {'o', 'w', next}, {'x', 'x', x},    {'y', 'z', next}};
    return by_gr_row_make(g, r, sizeof r / sizeof r[0], NULL, 0);
}

const by_gr_row *by_gr_row_host(by_gr *g, by_gr_node n, by_gr_term self) {
    place p = place_of(n);
    return p.phase == ALABEL ? row_alabel(g, n, self) : row_label(g, p);
}

uint32_t by_gr_host_min_bytes(const by_gr *g, by_gr_node n) {
    char text[BY_GR_ALABEL_MAX], ending[BY_GR_ENDING_MAX];
    if (n.flags & BY_GR_F_NULLABLE) return 0;
    return (n.x & 0xff) == ALABEL ? by_gr_alabel_ending(text_of(g, n, text), ending) : 1;
}

/* ---- the regular part ---- */

static by_gr_term rx(by_gr *g, const char *z) {
    by_gr_regex_opts o = {.dotall = true};
    return by_gr_regex(g, by_str_z(z), &o);
}

#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

/* Labels with "--" in places 3 and 4 are reserved: all of them, or (above) all but those that look like A-labels. */
static by_gr_term regular_name(by_gr *g, bool above) {
    by_gr_term *known = above ? &g->host_above : &g->host_below;
    if (*known != BY_GR_NEVER) return *known;
    by_gr_term free = by_gr_text_not(g, rx(g, "..--.*"));
    if (above) free = by_gr_alt2(g, free, rx(g, "[xX][nN]--.*"));
    by_gr_term label = by_gr_and2(g, rx(g, LABEL), free);
    by_gr_term all = by_gr_seq(g, label, by_gr_star(g, by_gr_seq(g, by_gr_lit(g, BY_STR(".")), label)));
    return *known = by_gr_and2(g, all, by_gr_rep(g, BY_GR_ANYCHAR, 1, NAME_MAX_LEN));
}

static bool is_name(const by_gr *g, by_gr_term t) {
    return g->nodes[t].kind == BY_GR_K_HOST && (g->nodes[t].x & 0xff) == START;
}

by_gr_term by_gr_host_regular(by_gr *g, by_gr_term t, bool above) {
    by_gr_node n = g->nodes[t];
    if (is_name(g, t)) {
        by_gr_term name = regular_name(g, above);
        return n.a == NAME_MAX_LEN ? name : by_gr_and2(g, name, by_gr_rep(g, BY_GR_ANYCHAR, 1, n.a));
    }
    if (n.kind == BY_GR_K_NONEMPTY) return by_gr_nonempty(g, by_gr_host_regular(g, n.a, above));
    bool any = false;
    for (uint32_t i = 0; n.kind == BY_GR_K_ALT && i < n.x; i++)
        any |= is_name(g, g->lists.v[n.a + i]);
    if (!any) return t;
    by_gr_vec v = {0};
    for (uint32_t i = 0; i < n.x; i++)
        by_gr_vec_push(g, &v, by_gr_host_regular(g, g->lists.v[n.a + i], above));
    t = by_gr_alt(g, v.v, v.n);
    by_gr_vec_free(&v);
    return t;
}

void by_gr_host_meet(by_gr *g, by_gr_term *v, uint32_t n) {
    uint32_t max = NAME_MAX_LEN, names = 0, others = 0;
    for (uint32_t i = 0; i < n; i++) {
        by_gr_node m = g->nodes[v[i]];
        bool name = is_name(g, v[i]), bound = m.kind == BY_GR_K_REP && m.a == BY_GR_ANYCHAR && m.b <= 1;
        if (v[i] == BY_GR_ANYTEXT || v[i] == BY_GR_ANYBYTES) continue;
        if (name) names++;
        else if (!bound) others++;
        uint32_t longest = name ? m.a : bound ? m.c : max;
        if (longest < max) max = longest;
    }
    if (names && !others) { /* nothing but a shorter name */
        for (uint32_t i = 0; i < n; i++)
            v[i] = make(g, START, max, 0, false);
        return;
    }
    for (uint32_t i = 0; i < n && (names || others > 1); i++)
        v[i] = by_gr_host_regular(g, v[i], false);
}

/* ---- JSON strings ---- */

by_gr_term by_gr_host_split(by_gr *g, by_gr_term text, unsigned style) {
    by_gr_node n = g->nodes[text];
    by_gr_vec names = {0}, others = {0};
    for (uint32_t i = 0; n.kind == BY_GR_K_ALT && i < n.x; i++) {
        by_gr_term m = g->lists.v[n.a + i];
        by_gr_vec_push(g, g->nodes[m].kind == BY_GR_K_HOST ? &names : &others, m);
    }
    by_gr_term t = BY_GR_NEVER;
    if (names.n) t = by_gr_jstr(g, by_gr_alt(g, others.v, others.n), style);
    for (uint32_t i = 0; i < names.n; i++)
        t = by_gr_alt2(g, t, by_gr_jstr(g, names.v[i], style));
    by_gr_vec_free(&names);
    by_gr_vec_free(&others);
    return t;
}

bool by_gr_is_alabel(const by_gr *g, by_gr_term t) {
    by_gr_node n = g->nodes[t], text;
    if (n.kind == BY_GR_K_SEQ) n = g->nodes[n.a];
    if (n.kind != BY_GR_K_JSTR || n.x != BY_GR_STYLE_PLAIN) return false;
    text = g->nodes[n.a];
    return text.kind == BY_GR_K_HOST && (text.x & 0xff) == ALABEL;
}

static by_gr_node host_of(const by_gr *g, by_gr_term t) {
    by_gr_node n = g->nodes[t];
    return g->nodes[n.kind == BY_GR_K_SEQ ? g->nodes[n.a].a : n.a];
}

bool by_gr_alabel_split(by_gr *g, by_gr_term t, uint32_t node, by_gr_vec *out) {
    by_gr_node n = g->nodes[t];
    by_gr_term head = n.kind == BY_GR_K_SEQ ? n.a : t, tail = n.kind == BY_GR_K_SEQ ? n.b : BY_GR_EPS;
    by_gr_node h = g->nodes[head];
    bool any = false;
    for (uint32_t i = 0; h.kind == BY_GR_K_ALT && i < h.x; i++)
        any |= by_gr_is_alabel(g, g->lists.v[h.a + i]);
    for (uint32_t i = 0; any && i < h.x; i++) {
        by_gr_vec_push(g, out, node);
        by_gr_vec_push(g, out, by_gr_seq(g, g->lists.v[h.a + i], tail));
    }
    return any;
}

by_gr_term by_gr_alabel_next(by_gr *g, by_gr_term t, unsigned byte) {
    char text[BY_GR_ALABEL_MAX + 1];
    by_gr_node n = g->nodes[t], host = host_of(g, t);
    by_gr_term string = n.kind == BY_GR_K_SEQ ? n.a : t, tail = n.kind == BY_GR_K_SEQ ? n.b : BY_GR_EPS, to = BY_GR_NEVER;
    by_str s = text_of(g, host, text);
    unsigned left = place_of(host).left;
    if (byte == '"') return host.flags & BY_GR_F_NULLABLE ? tail : BY_GR_NEVER;
    if (byte == '.' && (host.flags & BY_GR_F_NULLABLE) && left > 0) to = make(g, START, left - 1, 0, false);
    if (by_gv_is_label_byte(byte) && s.len < BY_GR_ALABEL_MAX && left > 0) {
        text[s.len] = (char)byte;
        to = make_alabel(g, by_str_of(text, s.len + 1), left - 1, g->nodes[string].a);
    }
    return by_gr_seq(g, by_gr_jstr(g, to, BY_GR_STYLE_PLAIN), tail);
}

int by_gr_alabel_hint(const by_gr *g, by_gr_term t) {
    char text[BY_GR_ALABEL_MAX], ending[BY_GR_ENDING_MAX];
    by_gr_node n = host_of(g, t);
    if (n.flags & BY_GR_F_NULLABLE) return '"';
    by_gr_alabel_ending(text_of(g, n, text), ending);
    return (uint8_t)ending[0];
}

/* ---- masks ---- */

typedef struct {
    by_gr *g;
    const by_grammar_vocab *v;
    by_gr_tokens *out;
    by_gr_vec *ends;
    char text[BY_GR_ALABEL_MAX + BY_GV_TOKEN_MAX];
    unsigned len, left, room; /* of the state */
    unsigned base_n;          /* tokens of letters and digits are added already up to this length */
} inner;

/* Can the text go on when it is so much longer, len bytes in all? */
static bool goes_on(const inner *w, unsigned len) {
    unsigned depth = len - w->len;
    return depth <= w->room && (w->room - depth >= BY_GR_ENDING_MAX || can_end(by_str_of(w->text, len), w->left - depth));
}

/* The label may end at a node. */
static void try_end(inner *w, uint32_t node, unsigned len) {
    if (!by_gr_alabel_valid(by_str_of(w->text, len))) return;
    by_gr_vec_push(w->g, w->ends, node);
    by_gr_vec_push(w->g, w->ends, make(w->g, ENDED, w->left - (len - w->len), 0, false));
}

/* Tokens below a node; len: bytes of the label at it. pure: letters and digits only so far. Nested as deep as a label is long. */
static void add_below(inner *w, uint32_t node, unsigned len, bool pure) {
    const by_gv_node *n = &w->v->nodes[node];
    const by_gv_sig stop = (by_gv_sig)1 << by_gv_group('-') | (by_gv_sig)1 << by_gv_group('.') | (by_gv_sig)1 << by_gv_group('"');
    bool ends = false;
    for (uint32_t c = n->first; c < n->first + n->n_child; c++) {
        unsigned b = w->v->byte[c], depth = len + 1 - w->len;
        ends |= b == '.' || b == '"';
        if (!by_gv_is_label_byte(b)) continue;
        w->text[len] = (char)b;
        if (!goes_on(w, len + 1)) continue;
        const by_gv_node *m = &w->v->nodes[c];
        bool still = pure && b != '-';
        if (m->tok && (!still || depth > w->base_n)) by_gr_tokens_add(w->out, m->tok - 1);
        if (m->n_child && (!still || (w->v->node_sig[c] & stop) || depth + m->below > w->base_n)) add_below(w, c, len + 1, still);
    }
    if (ends) try_end(w, node, len);
}

/* Appends a text that a token brings; true when it may stand in the label, each of its beginnings too. */
static bool append(inner *w, by_str s) {
    if (s.len > w->room) return false;
    memcpy(w->text + w->len, s.ptr, s.len);
    if (w->room - s.len >= BY_GR_ENDING_MAX) return true;
    for (unsigned i = 1; i <= s.len; i++)
        if (!goes_on(w, w->len + i)) return false;
    return true;
}

/* With room enough the table holds all tokens but a known list. */
static void add_listed(inner *w) {
    const by_grammar_vocab *v = w->v;
    for (uint32_t i = 0; i < v->n_label_tokens; i++)
        if (append(w, v->bytes[v->label_tokens[i]])) by_gr_tokens_add(w->out, v->label_tokens[i]);
    for (uint32_t i = 0; i < v->n_label_ends; i++) {
        const by_gv_node *n = &v->nodes[v->label_ends[i]];
        if (append(w, by_str_take(v->bytes[v->order[n->tok_lo]], n->depth))) try_end(w, v->label_ends[i], w->len + n->depth);
    }
}

/* Behind letters and digits the label can be ended in four bytes, unless its hyphens must be mended too. */
static unsigned base_length(by_str s, unsigned room) {
    unsigned need = is_broken(s) ? BY_GR_ENDING_MAX : PLAIN_ENDING, n = room > need ? room - need : 0;
    return n < BY_GV_FIT_MAX ? n : BY_GV_FIT_MAX;
}

void by_gr_alabel_tokens(by_gr *g, by_gr_term t, uint32_t node, by_gr_tokens *out, by_gr_vec *ends) {
    by_gr_node n = host_of(g, t);
    inner w = {.g = g, .v = g->vocab, .out = out, .ends = ends, .left = place_of(n).left};
    by_str s = text_of(g, n, w.text);
    bool no_memory = false;
    w.len = (unsigned)s.len;
    w.room = room_of(s, w.left);
    if (node == 0) {
        by_gv_sig sig = ((((by_gv_sig)1 << 26) - 1) << by_gv_group('a')) | ((((by_gv_sig)1 << 10) - 1) << by_gv_group('0'));
        w.base_n = base_length(s, w.room);
        const uint32_t *base = w.base_n ? by_gv_base(w.v, sig, w.base_n, &no_memory) : NULL;
        if (no_memory) by_gr_fail(g, BY_ENOMEM, "grammar: out of memory");
        if (base) by_gr_tokens_add_set(out, base);
        else w.base_n = 0;
    }
    if (w.base_n == BY_GV_FIT_MAX) add_listed(&w);
    else add_below(&w, node, w.len, w.base_n > 0);
}
