/* draft_plan.c - see draft_plan.h. Survivals of a request never increase along its drafts, so the largest of all
 * requests come out of a heap that holds one draft per request: O(log n) a row, and any number of largest is a set of
 * prefixes. */
#include "sample/draft_plan.h"

#include <math.h>

/* Which of the two ages of confidences is looked at. */
typedef enum age { AGE_BUDGET, AGE_SPLIT } age;

typedef struct ranking {
    const by_draft_request *requests;
    by_draft_heap_entry *heap;
    int32_t n, n_drafts;
    age age;
} ranking;

static double confidence(const ranking *r, int32_t request, int32_t draft) {
    const by_draft_request *q = &r->requests[request];
    const double *row = r->age == AGE_BUDGET ? q->budget : q->split;
    if (!row) return q->has_drafts ? 1 : 0;
    return row[draft];
}

static bool goes_before(by_draft_heap_entry a, by_draft_heap_entry b) {
    return a.survival > b.survival || (a.survival == b.survival && a.request < b.request);
}

static void sift_down(ranking *r, int32_t at) {
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= r->n) return;
        if (child + 1 < r->n && goes_before(r->heap[child + 1], r->heap[child])) child++;
        if (!goes_before(r->heap[child], r->heap[at])) return;
        by_draft_heap_entry t = r->heap[at];
        r->heap[at] = r->heap[child];
        r->heap[child] = t;
        at = child;
    }
}

static ranking ranking_start(const by_draft_request *requests, int32_t n, int32_t n_drafts, age a,
                             by_draft_heap_entry *heap) {
    ranking r = {requests, heap, n, n_drafts, a};
    for (int32_t i = 0; i < n; i++)
        heap[i] = (by_draft_heap_entry){n_drafts > 0 ? confidence(&r, i, 0) : -1, i, 0};
    for (int32_t at = n / 2; at-- > 0;)
        sift_down(&r, at);
    return r;
}

/* Takes the next largest survival. There are n * n_drafts; exhausted requests sink with a survival of -1. */
static by_draft_heap_entry ranking_next(ranking *r) {
    by_draft_heap_entry top = r->heap[0], *next = &r->heap[0];
    next->draft++;
    next->survival = next->draft < r->n_drafts ? top.survival * confidence(r, top.request, next->draft) : -1;
    sift_down(r, 0);
    return top;
}

static by_status check_input(const by_draft_request *requests, int32_t n, int32_t n_drafts, const by_draft_cost *cost,
                             by_err *err) {
    if (n < 1 || n_drafts < 0 || (int64_t)n * (n_drafts + 1) > INT32_MAX)
        return BY_FAIL(err, BY_EINVAL, "a plan for %d requests with %d drafts", n, n_drafts);
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < n_drafts; j++)
            for (int a = 0; a < 2; a++) {
                const double *row = a ? requests[i].split : requests[i].budget;
                if (row && !(row[j] >= 0 && row[j] <= 1))
                    return BY_FAIL(err, BY_EINVAL, "confidence %g of draft %d, request %d", row[j], j, i);
            }
    for (int32_t i = 0; i < cost->n_curve; i++)
        if (!(cost->curve[i].ms > 0) || (i > 0 && cost->curve[i].rows <= cost->curve[i - 1].rows))
            return BY_FAIL(err, BY_EINVAL, "cost curve, entry %d: %d rows in %g ms", i, cost->curve[i].rows,
                           cost->curve[i].ms);
    return BY_OK;
}

/* Time of a step of `rows` rows; at: the first size of the curve that is >= rows. */
static double step_ms(const by_draft_cost *c, int32_t at, int32_t rows) {
    double slope = c->slope_ms > 0 ? c->slope_ms : 0;
    const by_draft_cost_point *b = &c->curve[at], *a = b - 1;
    if (!c->any_size) return b->ms + slope * b->rows;
    if (at == 0 || rows == b->rows) return b->ms + slope * rows;
    return a->ms + (b->ms - a->ms) * (rows - a->rows) / (b->rows - a->rows) + slope * rows;
}

double by_draft_cost_ms(const by_draft_cost *cost, int32_t rows) {
    for (int32_t i = 0; i < cost->n_curve; i++)
        if (cost->curve[i].rows >= rows) return step_ms(cost, i, rows);
    return (double)INFINITY;
}

/* Over the sizes around the plan, since a measured curve has bumps. */
static double row_ms_of(const by_draft_plan *p, const by_draft_cost *c, int32_t n, int32_t most) {
    int32_t last = c->curve[c->n_curve - 1].rows, lo = p->total_rows - n / 2 - 1, hi = p->total_rows + n / 2 + 1;
    if (most > last) most = last;
    lo = lo < n ? n : lo;
    hi = hi > most ? most : hi;
    if (hi <= lo) return 0;
    double ms = (by_draft_cost_ms(c, hi) - by_draft_cost_ms(c, lo)) / (hi - lo);
    return ms > 0 ? ms : 0;
}

#define KEEP 0.9 /* of the smoothed gain, each plan */

static double gain_of(const by_draft_plan *plan, int32_t n, double plain_ms) { return plan->expected / plan->ms * plain_ms / n; }

void by_draft_pace_note(by_draft_pace *pace, const by_draft_plan *plan, int32_t n, double plain_ms) {
    double gain = gain_of(plan, n, plain_ms);
    pace->gain = pace->n == 0 ? gain : KEEP * pace->gain + (1 - KEEP) * gain;
    if (pace->n < INT32_MAX) pace->n++;
}

double by_draft_price(const by_draft_pace *pace, const by_draft_plan *plan, int32_t n, double plain_ms) {
    double gain = pace->n ? pace->gain : gain_of(plan, n, plain_ms);
    return plan->row_ms * gain * n / plain_ms;
}

/* The total with the best expected tokens per millisecond; the smaller of equals. */
static by_status choose_total(by_draft_plan *plan, const by_draft_request *requests, int32_t n, int32_t n_drafts,
                              const by_draft_cost *cost, by_draft_heap_entry *heap, by_err *err) {
    ranking r = ranking_start(requests, n, n_drafts, AGE_BUDGET, heap);
    double expected = n, best = 0;
    int32_t at = 0, most = n * (n_drafts + 1);
    *plan = (by_draft_plan){0};
    for (int32_t total = n; total <= most; total++) {
        if (total > n) expected += ranking_next(&r).survival;
        while (at < cost->n_curve && total > cost->curve[at].rows)
            at++;
        if (at == cost->n_curve) break;
        double ms = step_ms(cost, at, total) + cost->sampler_ms;
        if (expected / ms > best) {
            best = expected / ms;
            *plan = (by_draft_plan){.total_rows = total, .expected = expected, .ms = ms};
        }
    }
    if (plan->total_rows == 0)
        return BY_FAIL(err, BY_EINVAL, "%d requests, but the cost curve ends at %d rows", n,
                       cost->curve[cost->n_curve - 1].rows);
    if (cost->any_size) plan->row_ms = row_ms_of(plan, cost, n, most);
    return BY_OK;
}

int32_t by_draft_plan_split(int32_t *rows, int32_t total_rows, double least, const by_draft_request *requests, int32_t n,
                            int32_t n_drafts, by_draft_heap_entry *heap) {
    for (int32_t i = 0; i < n; i++)
        rows[i] = 1;
    ranking r = ranking_start(requests, n, n_drafts, AGE_SPLIT, heap);
    int32_t given = n;
    for (; given < total_rows && r.heap[0].survival >= least; given++)
        rows[ranking_next(&r).request]++;
    return given;
}

by_status by_draft_plan_make(by_draft_plan *plan, int32_t *rows, const by_draft_request *requests, int32_t n,
                             int32_t n_drafts, const by_draft_cost *cost, by_draft_heap_entry *heap, by_err *err) {
    BY_TRY(check_input(requests, n, n_drafts, cost, err));
    if (cost->n_curve == 0) {
        for (int32_t i = 0; i < n; i++)
            rows[i] = 1 + n_drafts;
        *plan = (by_draft_plan){.total_rows = n * (1 + n_drafts), .expected = (double)NAN, .ms = (double)NAN};
        return BY_OK;
    }
    BY_TRY(choose_total(plan, requests, n, n_drafts, cost, heap, err));
    by_draft_plan_split(rows, plan->total_rows, 0, requests, n, n_drafts, heap);
    return BY_OK;
}
