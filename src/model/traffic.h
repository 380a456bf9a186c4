/* traffic.h - how many weight bytes and multiply-adds one step takes: the denominators of a benchmark. Counted from the
 * tensors of the configuration, not measured. */
#ifndef BY_MODEL_TRAFFIC_H
#define BY_MODEL_TRAFFIC_H

#include "model/model.h"

typedef struct by_traffic {
    double weight_bytes; /* distinct weight bytes read by a step of n rows, experts counted as expected under uniform routing */
    double flops;        /* 2 per multiply-add with a weight, all rows; attention and index scores not included */
} by_traffic;

/* n_rows >= 1 rows, logits for n_logits of them. */
by_traffic by_model_traffic(const by_model *m, int64_t n_rows, int64_t n_logits);

/* weight_bytes with the experts really used: n_used over all layers. */
double by_model_traffic_used(const by_model *m, int64_t n_rows, int64_t n_logits, int64_t n_used);

#endif
