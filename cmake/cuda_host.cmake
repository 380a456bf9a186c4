# The kernels of src/ops/cuda compiled as C++ for this machine and run on it, thread by thread: tests/cuda_host/README.md. The programs
# and scripts are those of tests/gpu. They need a C++ compiler, which nothing else here does; without one they are left out.
include(CheckLanguage)
if(NOT CMAKE_CXX_COMPILER AND CMAKE_C_COMPILER_ID STREQUAL "Clang") # both of one vendor, or their sanitizers do not fit
  get_filename_component(folder ${CMAKE_C_COMPILER} DIRECTORY)
  find_program(CMAKE_CXX_COMPILER NAMES clang++ clang++-14 HINTS ${folder})
endif()
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(STATUS "No C++ compiler: the CUDA kernels are not tested on the host")
  return()
endif()
enable_language(CXX)

set(here ${CMAKE_SOURCE_DIR}/tests/cuda_host)
file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/cuda/*.cu)
set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
# ops/device.c again, as in a build with the backend: the program's own objects come before those of the library.
add_library(by_cuda_host OBJECT ${here}/cuda_host.cpp ${here}/cuda_host_chain.cpp ${here}/cuda_host_streams.cpp ${kernels} ${CMAKE_SOURCE_DIR}/src/ops/device.c)
target_include_directories(by_cuda_host PRIVATE ${here} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/tests)
target_compile_definitions(by_cuda_host PRIVATE BY_CUDA_HOST=1 BATHYC_CUDA=1 _GNU_SOURCE)
target_compile_options(by_cuda_host PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1> $<$<COMPILE_LANGUAGE:CXX>:-UNDEBUG>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
set_source_files_properties(${here}/cuda_host.cpp PROPERTIES COMPILE_OPTIONS -O2) # all spend most of their time there
set_target_properties(by_cuda_host PROPERTIES CXX_STANDARD 17 CXX_EXTENSIONS ON)

foreach(program ops draw steady replay engine golden)
  add_executable(host_${program} ${CMAKE_SOURCE_DIR}/tests/gpu/gpu_${program}.c)
  set_target_properties(host_${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests LINKER_LANGUAGE CXX ENABLE_EXPORTS ON)
  target_compile_definitions(host_${program} PRIVATE _GNU_SOURCE BY_CUDA_HOST=1)
  target_include_directories(host_${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(host_${program} PRIVATE by_cuda_host by_engine ${CMAKE_DL_LIBS})
endforeach()

# The whole program with that device, for the scripts of tests/gpu.
add_executable(host_bathyc $<TARGET_OBJECTS:bathyc>)
set_target_properties(host_bathyc PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests LINKER_LANGUAGE CXX ENABLE_EXPORTS ON)
target_link_libraries(host_bathyc PRIVATE by_cuda_host $<TARGET_PROPERTY:bathyc,LINK_LIBRARIES> ${CMAKE_DL_LIBS})

add_executable(host_streams ${here}/streams.cpp ${here}/cuda_host.cpp ${here}/cuda_host_chain.cpp ${here}/cuda_host_streams.cpp)
target_include_directories(host_streams PRIVATE ${here} ${CMAKE_SOURCE_DIR}/tests)
set_target_properties(host_streams PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests ENABLE_EXPORTS ON CXX_STANDARD 17)
target_link_libraries(host_streams PRIVATE ${CMAKE_DL_LIBS})

set(cuda_host_lists)
# by_cuda_host_test(NAME PROGRAM ARGUMENT ENVIRONMENT...): each writes a list of the kernels that it launched.
function(by_cuda_host_test name program argument)
  set(timeout 240)
  if(BATHYC_SANITIZE)
    set(timeout 1200)
  endif()
  set(list ${CMAKE_BINARY_DIR}/tests/cuda_host_${name}.launched)
  add_test(NAME cuda_host_${name} COMMAND host_${program} ${argument})
  set_tests_properties(cuda_host_${name} PROPERTIES LABELS unit TIMEOUT ${timeout} FIXTURES_SETUP cuda_host_lists
    ENVIRONMENT "CUDA_HOST_LAUNCHED=${list};${ARGN}")
  set(cuda_host_lists ${cuda_host_lists} ${list} PARENT_SCOPE)
endfunction()
set(early)
if(NOT BATHYC_SANITIZE) # memory of the device is mapped by page there, which a sanitizer sees less of
  set(early "CUDA_HOST_CHAIN=early")
endif()
by_cuda_host_test(ops ops quick "CUDA_HOST_SM=90;CUDA_HOST_STREAMS=late;${early}")
by_cuda_host_test(plain ops small "CUDA_HOST_SM=100;CUDA_HOST_STREAMS=late")
by_cuda_host_test(shuffled ops quick "CUDA_HOST_SM=90;CUDA_HOST_SEED=2;CUDA_HOST_MMA=backwards;CUDA_HOST_STREAMS=rush")
by_cuda_host_test(steady steady "${CMAKE_SOURCE_DIR}/tests/golden/data/model/tiny_b/checkpoint;${CMAKE_SOURCE_DIR}/models/tiny" "CUDA_HOST_SM=90;CUDA_HOST_STREAMS=late")
by_cuda_host_test(draw draw quick "CUDA_HOST_SM=90;CUDA_HOST_SEED=3;CUDA_HOST_STREAMS=late")
foreach(how now late rush)
  add_test(NAME cuda_host_streams_${how} COMMAND host_streams)
  set_tests_properties(cuda_host_streams_${how} PROPERTIES LABELS unit TIMEOUT 60 ENVIRONMENT "CUDA_HOST_STREAMS=${how}")
endforeach()
if(early)
  add_test(NAME cuda_host_streams_early COMMAND host_streams)
  set_tests_properties(cuda_host_streams_early PROPERTIES LABELS unit TIMEOUT 60 ENVIRONMENT "CUDA_HOST_STREAMS=late;${early}")
endif()
# Runs behind those, and lets CTest run them first when it is asked for alone.
add_test(NAME cuda_host_launched COMMAND bash ${here}/launched.sh ${CMAKE_SOURCE_DIR} ${cuda_host_lists})
set_tests_properties(cuda_host_launched PROPERTIES LABELS unit TIMEOUT 60 FIXTURES_REQUIRED cuda_host_lists)
# Whole models take half a minute each. Under sanitizers they would take ten, and find what the operators' tests find there.
if(NOT BATHYC_SANITIZE)
  add_test(NAME cuda_host_engine COMMAND host_engine ${CMAKE_SOURCE_DIR}/tests/golden/data/model/tiny_b/checkpoint)
  add_test(NAME cuda_host_replay COMMAND host_replay ${CMAKE_SOURCE_DIR}/tests/golden/data/model/tiny_b/checkpoint)
  add_test(NAME cuda_host_tiny COMMAND bash ${CMAKE_SOURCE_DIR}/tests/gpu/tiny.sh $<TARGET_FILE:host_bathyc> ${CMAKE_SOURCE_DIR} quick)
  add_test(NAME cuda_host_golden COMMAND host_golden ${CMAKE_SOURCE_DIR}/models/tiny
    ${CMAKE_SOURCE_DIR}/tests/golden/data/device/greedy.jsonl)
  set_tests_properties(cuda_host_engine cuda_host_replay cuda_host_tiny cuda_host_golden PROPERTIES LABELS unit TIMEOUT 900
    ENVIRONMENT "CUDA_HOST_SM=90;CUDA_HOST_STREAMS=late")
  set_property(TEST cuda_host_replay APPEND PROPERTY ENVIRONMENT ${early})
endif()
