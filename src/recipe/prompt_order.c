/* prompt_order.c - puts tool results into the order of the calls they answer.
 *
 * V4.1: within each maximal run of user and tool messages, the tool messages that carry a call id are stably sorted by the
 * index of that call in the most recent assistant message with calls (an id unknown there counts as index 0) and put back
 * into the places those messages had; the others stay.
 * V4: an assistant message with n > 1 calls sorts the n messages behind it, if there are as many: tool messages without an
 * id, then those with one in the order of their ids, as the calls are, then the rest. System messages are not counted,
 * messages of users in a row are one; where an assistant message is moved itself, its old place counts.
 * Requests give the same order either way; only conversations that are built directly show the difference.
 *
 * Ids are looked up by bisection: a request may hold as many calls as fit into its body. */
#include <stdlib.h>

#include "recipe/prompt_impl.h"

typedef struct {
    by_str id;
    uint32_t index;
} call_place;

typedef struct {
    const by_recipe_message *message;
    uint32_t key;   /* index of the call */
    uint32_t place; /* where it stood: makes the sort stable */
} result;

static int compare_places(const void *a, const void *b) {
    const call_place *x = a, *y = b;
    int c = by_str_cmp(x->id, y->id);
    return c ? c : (x->index > y->index) - (x->index < y->index);
}

static int compare_results(const void *a, const void *b) {
    const result *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Index of a call with this id (the first of equal ones), 0 when there is none. */
static uint32_t find_call(const call_place *places, uint32_t n, by_str id) {
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (by_str_cmp(places[mid].id, id) < 0) low = mid + 1;
        else high = mid;
    }
    return low < n && by_str_eq(places[low].id, id) ? places[low].index : 0;
}

static call_place *index_calls(by_prompt_job *j, const by_recipe_message *m) {
    call_place *places = by_arena_alloc(&j->p->scratch, by_mul_size(m->n_calls, sizeof *places));
    if (!places) return NULL;
    for (uint32_t i = 0; i < m->n_calls; i++) places[i] = (call_place){m->calls[i].id, i};
    qsort(places, m->n_calls, sizeof *places, compare_places);
    return places;
}

static bool sort_run(by_prompt_job *j, uint32_t from, uint32_t to, const by_recipe_message *caller) {
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) n += j->order[i]->role == BY_ROLE_TOOL && j->order[i]->has_call_id;
    if (n < 2) return true;
    call_place *places = index_calls(j, caller);
    result *results = by_arena_alloc(&j->p->scratch, by_mul_size(n, sizeof *results));
    if (!places || !results) return false;
    uint32_t at = 0;
    for (uint32_t i = from; i < to; i++) {
        const by_recipe_message *m = j->order[i];
        if (m->role != BY_ROLE_TOOL || !m->has_call_id) continue;
        results[at] = (result){m, find_call(places, caller->n_calls, m->call_id), at};
        at++;
    }
    qsort(results, n, sizeof *results, compare_results);
    at = 0;
    for (uint32_t i = from; i < to; i++)
        if (j->order[i]->role == BY_ROLE_TOOL && j->order[i]->has_call_id) j->order[i] = results[at++].message;
    return true;
}

static bool start_order(by_prompt_job *j, bool v4) {
    uint32_t n = j->c->n_messages;
    j->order = by_arena_alloc(&j->p->scratch, by_mul_size(n, sizeof *j->order));
    if (!j->order) return false;
    bool behind_user = false;
    for (uint32_t i = 0; i < n; i++) {
        const by_recipe_message *m = &j->c->messages[i];
        if (v4 && (m->role == BY_ROLE_SYSTEM || (behind_user && m->role == BY_ROLE_USER))) continue;
        j->order[j->n_order++] = m;
        behind_user = m->role == BY_ROLE_USER;
    }
    return true;
}

static bool is_turn(const by_recipe_message *m) { return m->role == BY_ROLE_USER || m->role == BY_ROLE_TOOL; }

bool by_prompt_order_v41(by_prompt_job *j) {
    if (!start_order(j, false)) return false;
    const by_recipe_message *caller = NULL;
    for (uint32_t i = 0; i < j->n_order;) {
        const by_recipe_message *m = j->order[i];
        if (m->role == BY_ROLE_ASSISTANT && m->n_calls) caller = m;
        uint32_t end = i;
        while (end < j->n_order && is_turn(j->order[end])) end++;
        if (end > i && caller && !sort_run(j, i, end, caller)) return false;
        i = end > i ? end : i + 1;
    }
    return true;
}

static int class_of(const by_recipe_message *m) { return m->role != BY_ROLE_TOOL ? 2 : m->has_call_id ? 1 : 0; }

static int compare_ids(const void *a, const void *b) {
    const result *x = a, *y = b;
    int class_x = class_of(x->message), class_y = class_of(y->message);
    if (class_x != class_y) return class_x - class_y;
    int c = class_x == 1 ? by_str_cmp(x->message->call_id, y->message->call_id) : 0;
    return c ? c : (x->place > y->place) - (x->place < y->place);
}

/* Sorts all n messages from `from` on. */
static bool sort_window(by_prompt_job *j, uint32_t from, uint32_t n) {
    result *results = by_arena_alloc(&j->p->scratch, by_mul_size(n, sizeof *results));
    if (!results) return false;
    for (uint32_t i = 0; i < n; i++) results[i] = (result){j->order[from + i], 0, i};
    qsort(results, n, sizeof *results, compare_ids);
    for (uint32_t i = 0; i < n; i++) j->order[from + i] = results[i].message;
    return true;
}

bool by_prompt_order_v4(by_prompt_job *j) {
    if (!start_order(j, true)) return false;
    uint32_t *n_calls = by_arena_alloc(&j->p->scratch, by_mul_size(j->n_order, sizeof *n_calls));
    if (!n_calls) return false;
    for (uint32_t i = 0; i < j->n_order; i++) n_calls[i] = j->order[i]->role == BY_ROLE_ASSISTANT ? j->order[i]->n_calls : 0;
    for (uint32_t i = 0; i < j->n_order; i++)
        if (n_calls[i] > 1 && j->n_order - i > n_calls[i] && !sort_window(j, i + 1, n_calls[i])) return false;
    return true;
}
