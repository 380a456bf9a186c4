# The row passes are loops over independent elements: -O3 lets both compilers make vector code of them (-O2 of gcc 12
# does so only where the trip count is known), and gcc needs to hear that nobody looks at floating-point exceptions before
# it turns a choice into a blend. No flag here changes a rounding, so all tables give the same bits.
set(base ${CMAKE_SOURCE_DIR}/src/sample/sample_kernels.c)
set_source_files_properties(${base} PROPERTIES COMPILE_OPTIONS "-O3;-fno-trapping-math")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 ${CMAKE_SOURCE_DIR}/src/sample/isa/sample_kernels_avx2.c)
  set(avx512 ${CMAKE_SOURCE_DIR}/src/sample/isa/sample_kernels_avx512.c)
  set_source_files_properties(${avx2} PROPERTIES COMPILE_OPTIONS "-O3;-fno-trapping-math;-mavx2")
  set_source_files_properties(${avx512} PROPERTIES COMPILE_OPTIONS
    "-O3;-fno-trapping-math;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mprefer-vector-width=512")
  target_sources(${BY_TARGET} PRIVATE ${avx2} ${avx512})
  target_compile_definitions(${BY_TARGET} PRIVATE BY_SAMPLE_X86)
endif()
