/* row_cost.h - what steps have cost so far: a step that only decodes, and each prompt row on top of it; from these, how many prompt rows fit
 * into a time (--itl-budget-ms). Plain arithmetic; the thread rule is the caller's. */
#ifndef BY_ENGINE_ROW_COST_H
#define BY_ENGINE_ROW_COST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct by_row_cost {
    double decode_s;            /* smoothed; 0 = not known yet */
    double prompt_s, prompt_rows; /* sums over the last steps with prompts: time beyond decode_s, rows. Old ones fade */
} by_row_cost;

/* A step took so long; it had n_prompt_rows of prompts, and perhaps sequences that decode. Until a step without prompts has been seen the
 * time of others tells nothing. */
void by_row_cost_note(by_row_cost *c, double took_s, int32_t n_prompt_rows);

/* Prompt rows that a step with decoding sequences may have to end within budget_s, from `least` to `most`; at most 512 while nothing
 * is known. */
int32_t by_row_cost_rows(const by_row_cost *c, double budget_s, int32_t least, int32_t most);

#endif
