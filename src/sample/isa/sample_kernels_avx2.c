/* sample_kernels_avx2.c - the row passes of sample_kernels.c for AVX2; module.cmake sets the flags. */
#define BY_SAMPLE_TABLE by_sample_kernels_avx2
#include "sample/sample_kernels.c"
