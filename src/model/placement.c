/* placement.c - see placement.h. */
#include "model/placement.h"

#include <string.h>

#include "model/tensor_table.h"

/* Rotary frequencies, marks of bad rows, Engram's primes: too small to be counted one by one. */
enum { SMALL_THINGS = 1 << 20 };

/* Experts of layer l, and the bytes of one. */
static int32_t experts_of(const by_config *c, int32_t l) { return l < c->n_layers ? c->n_experts : c->draft.n_experts; }
static int64_t bytes_of_one(const by_config *c, const by_part_sums *s, int32_t l) {
    if (l < c->n_layers) return s->bytes[BY_PART_EXPERTS] / ((int64_t)c->n_layers * c->n_experts);
    return s->bytes[BY_PART_DRAFT_EXPERTS] / ((int64_t)c->draft.n_layers * c->draft.n_experts);
}

static bool may_be_on_device(const by_place_opts *o, int32_t l) { return !o->host_experts && l >= o->host_layers; }

/* The same share of every layer, then one more where that still fits. */
static void share_out(by_placement *p, const by_config *c, const by_part_sums *s, const by_place_opts *o, int64_t room) {
    double all = 0;
    for (int32_t l = 0; l < p->n_layers; l++)
        if (may_be_on_device(o, l)) all += (double)experts_of(c, l) * (double)bytes_of_one(c, s, l);
    double share = (double)room >= all ? 1 : (double)room / all * (1 - 1e-12); /* never above by rounding */
    for (int32_t l = 0; l < p->n_layers; l++) {
        if (may_be_on_device(o, l)) p->on_device[l] = (int32_t)((double)experts_of(c, l) * share);
        room -= p->on_device[l] * bytes_of_one(c, s, l);
    }
    for (int32_t l = 0; l < p->n_layers; l++) {
        int64_t one = bytes_of_one(c, s, l);
        if (!may_be_on_device(o, l) || p->on_device[l] == experts_of(c, l) || one > room) continue;
        p->on_device[l]++;
        room -= one;
    }
}

by_status by_placement_plan(by_placement *p, const by_config *c, int64_t limit, const by_place_opts *o, by_err *err) {
    by_part_sums s;
    by_tensor_table_sum(c, &s);
    memset(p, 0, sizeof *p);
    if (o->host_layers < 0 || o->host_layers > c->n_layers)
        return BY_FAIL(err, BY_EINVAL, "--n-cpu-moe: %d is outside 0..%d, the model's layers", o->host_layers, c->n_layers);
    p->limit = limit;
    p->n_layers = c->n_layers + c->draft.n_layers;
    p->table_bytes = s.bytes[BY_PART_ENGRAM_TABLE];
    p->fixed_bytes = s.bytes_total - s.bytes[BY_PART_EXPERTS] - s.bytes[BY_PART_DRAFT_EXPERTS] - s.bytes[BY_PART_VISION];
    if (!o->tables_on_device) p->fixed_bytes -= p->table_bytes;
    p->reserve = o->reserve + (limit ? SMALL_THINGS : 0);
    int64_t room = limit ? limit - p->fixed_bytes - p->reserve : INT64_MAX;
    if (room < 0)
        return BY_FAIL(err, BY_ENOMEM, "device memory: %lld bytes are needed without any routed expert (weights %lld, caches and buffers %lld), "
                       "%lld are available", (long long)(p->fixed_bytes + p->reserve), (long long)p->fixed_bytes, (long long)p->reserve,
                       (long long)limit);
    share_out(p, c, &s, o, room);
    for (int32_t l = 0; l < p->n_layers; l++) {
        int32_t n[2] = {p->on_device[l], experts_of(c, l) - p->on_device[l]};
        for (int i = 0; i < 2; i++) {
            p->n_experts[i] += n[i];
            p->expert_bytes[i] += n[i] * bytes_of_one(c, &s, l);
        }
    }
    return BY_OK;
}

void by_placement_text(const by_placement *p, by_buf *out) {
    int32_t least = INT32_MAX, most = 0;
    for (int32_t l = 0; l < p->n_layers; l++) {
        least = p->on_device[l] < least ? p->on_device[l] : least;
        most = p->on_device[l] > most ? p->on_device[l] : most;
    }
    by_buf_printf(out, "device: weights %.4g MB and routed experts %.4g MB (%lld, %d to %d a layer)", (double)p->fixed_bytes * 1e-6,
                  (double)p->expert_bytes[0] * 1e-6, (long long)p->n_experts[0], least, most);
    if (p->limit)
        by_buf_printf(out, " of at most %.4g MB, %.4g MB kept for caches and buffers", (double)p->limit * 1e-6, (double)p->reserve * 1e-6);
    by_buf_printf(out, "; host: routed experts %.4g MB (%lld)", (double)p->expert_bytes[1] * 1e-6, (long long)p->n_experts[1]);
    if (p->table_bytes) by_buf_printf(out, ", Engram tables %.4g MB", (double)p->table_bytes * 1e-6);
}
