/* sample_kernels_avx512.c - the row passes of sample_kernels.c for AVX-512; module.cmake sets the flags. */
#define BY_SAMPLE_TABLE by_sample_kernels_avx512
#include "sample/sample_kernels.c"
