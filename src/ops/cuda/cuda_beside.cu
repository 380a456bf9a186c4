// cuda_beside.cu - work for the sums of another device.
#include "ops/cuda/cuda.cuh"

by_status by_cuda_moe_part(by_device *dev, const by_moe_part_args *a, by_err *err) {
    (void)dev;
    (void)a;
    return BY_FAIL(err, BY_EUNSUPPORTED, "cuda: products of experts for another device's sum");
}
