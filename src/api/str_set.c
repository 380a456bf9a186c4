/* str_set.c - a set of texts as a treap: a binary tree ordered by text whose heights are kept low by random priorities.
 * A hash table would need a secret to be safe from texts that were made to collide. */
#include "api/convert.h"
#include "base/rng.h"

struct by_str_set_node {
    by_str text;
    uint64_t priority;
    uint32_t value, left, right; /* indexes + 1, 0 = none */
};

by_status by_str_set_init(by_convert *cv, by_str_set *set, uint32_t cap) {
    *set = (by_str_set){.cap = cap, .nodes = BY_MAKE(cv, by_str_set_node, cap)};
    return set->nodes ? BY_OK : by_no_memory(cv);
}

uint32_t *by_str_set_find(const by_str_set *set, by_str s) {
    for (uint32_t at = set->root; at;) {
        by_str_set_node *n = &set->nodes[at - 1];
        int c = by_str_cmp(s, n->text);
        if (c == 0) return &n->value;
        at = c < 0 ? n->left : n->right;
    }
    return NULL;
}

/* Splits the tree at `at` into the nodes before and behind s. */
static void split(by_str_set *set, uint32_t at, by_str s, uint32_t *before, uint32_t *behind) {
    while (at) {
        by_str_set_node *n = &set->nodes[at - 1];
        if (by_str_cmp(n->text, s) < 0) {
            *before = at;
            before = &n->right;
            at = n->right;
        } else {
            *behind = at;
            behind = &n->left;
            at = n->left;
        }
    }
    *before = *behind = 0;
}

bool by_str_set_add(by_str_set *set, by_str s, uint32_t **value) {
    uint32_t *found = by_str_set_find(set, s);
    if (found) {
        *value = found;
        return false;
    }
    by_rng rng = {(uint64_t)(uintptr_t)set->nodes + set->n}; /* an address the sender does not know */
    by_str_set_node *n = &set->nodes[set->n++];
    *n = (by_str_set_node){.text = s, .priority = by_rng_u64(&rng)};
    uint32_t *link = &set->root;
    while (*link && set->nodes[*link - 1].priority > n->priority) {
        by_str_set_node *up = &set->nodes[*link - 1];
        link = by_str_cmp(s, up->text) < 0 ? &up->left : &up->right;
    }
    split(set, *link, s, &n->left, &n->right);
    *link = set->n;
    *value = &n->value;
    return true;
}
