/* cuda_host_counts.h - what a profiler would count on the stand-in for a CUDA device: calls that allocate, times that the host waited for
 * the device, launches of graphs. For C and C++. */
#ifndef BY_CUDA_HOST_COUNTS_H
#define BY_CUDA_HOST_COUNTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
typedef struct cuda_host_counts {
    uint64_t allocs, waits, graph_launches;
} cuda_host_counts;
cuda_host_counts cuda_host_counts_get(void);
#ifdef __cplusplus
}
#endif

#endif
