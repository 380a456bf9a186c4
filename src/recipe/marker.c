/* marker.c - see marker.h. */
#include "recipe/marker.h"

#include <string.h>

static bool is_special(const by_marker *m, size_t at) { return at >= m->special_from && at < m->special_to; }

/* A byte of the special token and the same byte of the text around it are two symbols: "<" + "<R>" has no border. */
static bool same_symbol(const by_marker *m, size_t a, size_t b) {
    return m->text.ptr[a] == m->text.ptr[b] && is_special(m, a) == is_special(m, b);
}

static bool fill_borders(by_marker *m, by_arena *arena) {
    uint32_t *border = by_arena_alloc(arena, by_mul_size(m->text.len, sizeof *border));
    if (!border) return false;
    border[0] = 0;
    for (uint32_t i = 1, k = 0; i < m->text.len; i++) {
        while (k > 0 && !same_symbol(m, i, k)) k = border[k - 1];
        if (same_symbol(m, i, k)) k++;
        border[i] = k;
    }
    m->border = border;
    return true;
}

bool by_marker_add(by_marker_set *set, by_arena *arena, by_marker marker) {
    if (marker.text.len == 0) return true;
    if (marker.text.len > UINT32_MAX) return false;
    if (set->n == set->cap) {
        uint32_t cap = set->cap ? 2 * set->cap : 8;
        by_marker *more = by_arena_alloc(arena, by_mul_size(cap, sizeof *more));
        if (!more) return false;
        if (set->n) memcpy(more, set->markers, set->n * sizeof *more);
        set->markers = more;
        set->cap = cap;
    }
    marker.text = by_arena_dup(arena, marker.text);
    if (!marker.text.ptr || !fill_borders(&marker, arena)) return false;
    set->markers[set->n++] = marker;
    set->starts[(unsigned char)marker.text.ptr[0]] = true;
    if (marker.eats_newlines) set->starts['\n'] = true;
    return true;
}

void by_marker_run_begin(by_marker_run *run, const by_marker_set *set) {
    run->set = set;
    run->moving = false;
    if (set->n) memset(run->places, 0, set->n * sizeof *run->places);
}

static bool fits(const by_marker *m, size_t at, by_text_class text_class) {
    if (text_class == BY_TEXT_ANY || m->any_class) return true;
    return is_special(m, at) == (text_class == BY_TEXT_SPECIAL);
}

/* One byte through one automaton; true when the marker ends here. */
static bool step(const by_marker *m, by_marker_place *p, char c, by_text_class text_class) {
    size_t k = p->matched;
    if (k == 0 && c == '\n' && m->eats_newlines && text_class != BY_TEXT_SPECIAL) {
        p->newlines++;
        return false;
    }
    while (m->text.ptr[k] != c || !fits(m, k, text_class)) {
        p->newlines = 0; /* they stood before a match that is given up */
        if (k == 0) {
            p->matched = 0;
            return false;
        }
        k = m->border[k - 1];
    }
    p->matched = k + 1;
    return k + 1 == m->text.len;
}

bool by_marker_scan(by_marker_run *run, by_marker_hit *hit, by_str text, size_t from, by_text_class text_class) {
    const by_marker_set *set = run->set;
    size_t i = from;
    while (i < text.len) {
        if (!run->moving) {
            while (i < text.len && !set->starts[(unsigned char)text.ptr[i]]) i++;
            if (i == text.len) break;
        }
        char c = text.ptr[i++];
        const by_marker *done = NULL;
        bool moving = false;
        for (uint32_t j = 0; j < set->n; j++) {
            by_marker_place *p = &run->places[j];
            if (step(&set->markers[j], p, c, text_class) && !done) {
                done = &set->markers[j];
                *hit = (by_marker_hit){done, i, done->text.len + p->newlines};
            }
            moving |= (p->matched | p->newlines) != 0;
        }
        if (done) return true;
        run->moving = moving;
    }
    return false;
}

size_t by_marker_held_bytes(const by_marker_run *run) {
    size_t held = 0;
    if (!run->moving) return 0;
    for (uint32_t j = 0; j < run->set->n; j++) {
        size_t n = run->places[j].matched + run->places[j].newlines;
        if (n > held) held = n;
    }
    return held;
}
