/* sample_edit.c - see sample_edit.h. Linear probing; slots are never given up while the sequence lives, so a popped
 * draft keeps its slot with a count of 0. */
#include "sample/sample_edit.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/limits.h"

/* ---- history ---- */

static uint32_t slot_of(const by_sample_history *h, int32_t token) {
    uint32_t at = (uint32_t)token * 0x9E3779B1u & (h->n_slots - 1);
    while (h->slots[at].id != token && h->slots[at].id >= 0)
        at = (at + 1) & (h->n_slots - 1);
    return at;
}

by_status by_sample_history_reserve(by_sample_history *h, uint32_t n_distinct, by_err *err) {
    if (n_distinct > BY_LIMIT_VOCAB) n_distinct = BY_LIMIT_VOCAB;
    uint32_t n_slots = 16;
    while (n_slots / 4 * 3 < n_distinct)
        n_slots *= 2;
    if (n_slots <= h->n_slots) return BY_OK;
    by_sample_history grown = {.n_slots = n_slots, .n_used = h->n_used, .n_output = h->n_output};
    grown.slots = by_alloc(BY_MEM_REQUEST, n_slots * sizeof grown.slots[0]);
    if (!grown.slots) return BY_FAIL(err, BY_ENOMEM, "no memory for the token counts of %u tokens", n_distinct);
    for (uint32_t i = 0; i < n_slots; i++)
        grown.slots[i] = (by_sample_seen){.id = -1};
    for (uint32_t i = 0; i < h->n_slots; i++)
        if (h->slots[i].id >= 0) grown.slots[slot_of(&grown, h->slots[i].id)] = h->slots[i];
    by_free(h->slots);
    *h = grown;
    return BY_OK;
}

void by_sample_history_deinit(by_sample_history *h) {
    by_free(h->slots);
    *h = (by_sample_history){0};
}

/* The entry of a token, made when there is none; NULL when memory is out. */
static by_sample_seen *entry_of(by_sample_history *h, int32_t token, by_err *err) {
    if (h->n_slots == 0 && by_sample_history_reserve(h, 1, err) != BY_OK) return NULL;
    by_sample_seen *e = &h->slots[slot_of(h, token)];
    if (e->id >= 0) return e;
    if (h->n_used >= h->n_slots / 4 * 3) {
        if (by_sample_history_reserve(h, h->n_slots, err) != BY_OK) return NULL;
        e = &h->slots[slot_of(h, token)];
    }
    e->id = token;
    h->n_used++;
    return e;
}

by_status by_sample_history_add_prompt(by_sample_history *h, const int32_t *tokens, int32_t n, by_err *err) {
    for (int32_t i = 0; i < n; i++) {
        by_sample_seen *e = entry_of(h, tokens[i], err);
        if (!e) return BY_ENOMEM;
        e->in_prompt = true;
    }
    return BY_OK;
}

by_status by_sample_history_push(by_sample_history *h, int32_t token, by_err *err) {
    by_sample_seen *e = entry_of(h, token, err);
    if (!e) return BY_ENOMEM;
    e->n_output++;
    h->n_output++;
    return BY_OK;
}

void by_sample_history_pop(by_sample_history *h, int32_t token) {
    if (h->n_slots == 0) return;
    by_sample_seen *e = &h->slots[slot_of(h, token)];
    if (e->id < 0 || e->n_output == 0) return;
    e->n_output--;
    h->n_output--;
}

const by_sample_seen *by_sample_history_get(const by_sample_history *h, int32_t token) {
    if (h->n_slots == 0) return NULL;
    const by_sample_seen *e = &h->slots[slot_of(h, token)];
    return e->id >= 0 ? e : NULL;
}

/* ---- edits ---- */

static by_status check_logit(float l, int32_t id, by_err *err) {
    if (l <= FLT_MAX) return BY_OK; /* false for NaN and +inf */
    return BY_FAIL(err, BY_ENUMERIC, "logit of token %d is %s", id, isnan(l) ? "not a number" : "infinite");
}

static by_status forbid(float *row, int32_t id, by_err *err) {
    BY_TRY(check_logit(row[id], id, err));
    row[id] = -INFINITY;
    return BY_OK;
}

static by_status forbid_all(float *row, const int32_t *ids, int32_t n, by_err *err) {
    for (int32_t i = 0; i < n; i++)
        BY_TRY(forbid(row, ids[i], err));
    return BY_OK;
}

static void apply_penalties(float *row, int32_t V, const by_sample_params *p, const by_sample_history *h) {
    for (uint32_t i = 0; i < h->n_slots; i++) {
        const by_sample_seen *e = &h->slots[i];
        if (e->id < 0 || e->id >= V || (!e->in_prompt && e->n_output == 0)) continue;
        float l = row[e->id];
        l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        l -= p->frequency_penalty * (float)e->n_output;
        if (e->n_output > 0) l -= p->presence_penalty;
        row[e->id] = l;
    }
}

by_status by_sample_edit(float *row, int32_t V, const by_sample_params *p, const by_sample_history *h, int32_t n_output,
                         by_err *err) {
    for (int32_t i = 0; i < p->n_bias; i++)
        row[p->bias[i].id] += p->bias[i].value;
    bool penalties = p->repetition_penalty != 1 || p->frequency_penalty != 0 || p->presence_penalty != 0;
    if (penalties && h) apply_penalties(row, V, p, h);
    BY_TRY(forbid_all(row, p->banned, p->n_banned, err));
    if (n_output < p->min_tokens) {
        BY_TRY(forbid_all(row, p->stop_ids, p->n_stop_ids, err));
        if (p->eos_id >= 0) BY_TRY(forbid(row, p->eos_id, err));
    }
    if (p->first_no_eos && n_output == 0 && p->eos_id >= 0) BY_TRY(forbid(row, p->eos_id, err));
    return BY_OK;
}
