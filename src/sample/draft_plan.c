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

/* The total with the best expected tokens per millisecond; the smaller of equals. */
static by_status choose_total(by_draft_plan *plan, const by_draft_request *requests, int32_t n, int32_t n_drafts,
                              const by_draft_cost *cost, by_draft_heap_entry *heap, by_err *err) {
    ranking r = ranking_start(requests, n, n_drafts, AGE_BUDGET, heap);
    double slope = cost->slope_ms > 0 ? cost->slope_ms : 0, expected = n, best = 0;
    int32_t at = 0;
    *plan = (by_draft_plan){0};
    for (int32_t total = n; total <= n * (n_drafts + 1); total++) {
        if (total > n) expected += ranking_next(&r).survival;
        while (at < cost->n_curve && total > cost->curve[at].rows)
            at++;
        if (at == cost->n_curve) break;
        double ms = cost->curve[at].ms + slope * cost->curve[at].rows + cost->sampler_ms;
        if (expected / ms > best) {
            best = expected / ms;
            *plan = (by_draft_plan){total, expected, ms};
        }
    }
    if (plan->total_rows == 0)
        return BY_FAIL(err, BY_EINVAL, "%d requests, but the cost curve ends at %d rows", n,
                       cost->curve[cost->n_curve - 1].rows);
    return BY_OK;
}

void by_draft_plan_split(int32_t *rows, int32_t total_rows, const by_draft_request *requests, int32_t n,
                         int32_t n_drafts, by_draft_heap_entry *heap) {
    for (int32_t i = 0; i < n; i++)
        rows[i] = 1;
    ranking r = ranking_start(requests, n, n_drafts, AGE_SPLIT, heap);
    for (int32_t left = total_rows - n; left > 0; left--)
        rows[ranking_next(&r).request]++;
}

by_status by_draft_plan_make(by_draft_plan *plan, int32_t *rows, const by_draft_request *requests, int32_t n,
                             int32_t n_drafts, const by_draft_cost *cost, by_draft_heap_entry *heap, by_err *err) {
    BY_TRY(check_input(requests, n, n_drafts, cost, err));
    if (cost->n_curve == 0) {
        for (int32_t i = 0; i < n; i++)
            rows[i] = 1 + n_drafts;
        *plan = (by_draft_plan){n * (1 + n_drafts), (double)NAN, (double)NAN};
        return BY_OK;
    }
    BY_TRY(choose_total(plan, requests, n, n_drafts, cost, heap, err));
    by_draft_plan_split(rows, plan->total_rows, requests, n, n_drafts, heap);
    return BY_OK;
}
