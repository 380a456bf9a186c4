/* row_cost.c - see row_cost.h. */
#include "engine/row_cost.h"

/* Rows after which an old step has faded to a third. Steps of few rows tell little, each for itself: their base cost varies by more than the
 * rows cost. So they are summed before they are divided, and one that was quicker than the base counts against the others. */
#define FADE_ROWS 2048
#define FIRST_ROWS 512 /* enough to learn from, and soon over */

void by_row_cost_note(by_row_cost *c, double took_s, int32_t n_prompt_rows) {
    if (n_prompt_rows == 0) {
        c->decode_s = c->decode_s > 0 ? c->decode_s + (took_s - c->decode_s) / 8 : took_s;
        return;
    }
    if (c->decode_s <= 0) return;
    double kept = n_prompt_rows < FADE_ROWS ? 1 - (double)n_prompt_rows / FADE_ROWS : 0;
    c->prompt_s = c->prompt_s * kept + took_s - c->decode_s;
    c->prompt_rows = c->prompt_rows * kept + n_prompt_rows;
}

int32_t by_row_cost_rows(const by_row_cost *c, double budget_s, int32_t least, int32_t most) {
    double room = budget_s - c->decode_s, one = c->prompt_rows > 0 ? c->prompt_s / c->prompt_rows : 0;
    if (c->decode_s > 0 && room <= 0) return least;
    if (c->prompt_rows <= 0) return most < FIRST_ROWS ? most : FIRST_ROWS;
    if (one <= 0 || room / one >= most) return most;
    return room / one < least ? least : (int32_t)(room / one);
}
