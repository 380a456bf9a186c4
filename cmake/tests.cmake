# Tests: every tests/unit/test_*.c, tests/prop/prop_*.c and tests/golden/golden_*.c is one program and one CTest test with
# that label; tests/fuzz/fuzz_*.c replays tests/fuzz/corpus/<entry> with fuzz_main.c, and is a libFuzzer target with
# BATHYC_FUZZ; tests/integration/*.sh get the program and the source folder. Exit code 77 means skipped.
# A first comment line `BY_TEST_TIMEOUT=N` in a test's source sets its limit in seconds (default 120).
find_path(CMOCKA_INCLUDE cmocka.h REQUIRED)
find_library(CMOCKA_LIB cmocka REQUIRED)
get_property(by_libs GLOBAL PROPERTY BY_LIBRARIES)

file(GLOB support CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/support/*.c)
if(support)
  add_library(by_test_support STATIC ${support})
  target_include_directories(by_test_support PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tests
    ${CMOCKA_INCLUDE})
  target_compile_definitions(by_test_support PRIVATE _GNU_SOURCE BATHYC_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    BATHYC_PROGRAM="$<TARGET_FILE:bathyc>")
  target_link_libraries(by_test_support PUBLIC ${by_libs})
endif()

function(by_test_properties name source label)
  set(timeout 120)
  file(STRINGS ${source} line LIMIT_COUNT 1 REGEX "BY_TEST_TIMEOUT=[0-9]+")
  if(line MATCHES "BY_TEST_TIMEOUT=([0-9]+)")
    set(timeout ${CMAKE_MATCH_1})
  endif()
  if(BATHYC_SANITIZE)
    math(EXPR timeout "${timeout} * 10")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${label} SKIP_RETURN_CODE 77 TIMEOUT ${timeout}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

function(by_test_program source label)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source} ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${CMOCKA_INCLUDE})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE BATHYC_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
    BATHYC_PROGRAM="$<TARGET_FILE:bathyc>")
  if(TARGET by_test_support)
    target_link_libraries(${name} PRIVATE by_test_support)
  endif()
  target_link_libraries(${name} PRIVATE ${by_libs} ${CMOCKA_LIB})
  add_test(NAME ${name} COMMAND ${name})
  by_test_properties(${name} ${source} ${label})
endfunction()

foreach(kind unit golden prop)
  file(GLOB programs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${kind}/*.c)
  foreach(source ${programs})
    by_test_program(${source} ${kind})
  endforeach()
endforeach()

file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
list(FILTER fuzzers EXCLUDE REGEX "fuzz_main\\.c$")
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  string(REPLACE "fuzz_" "" entry ${name})
  by_test_program(${source} fuzz ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_main.c)
  target_compile_definitions(${name} PRIVATE BY_FUZZ_CORPUS="${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${entry}")
  if(BATHYC_FUZZ)
    add_executable(lib${name} ${source})
    target_compile_options(lib${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(lib${name} PRIVATE -fsanitize=fuzzer)
    target_include_directories(lib${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_compile_definitions(lib${name} PRIVATE _GNU_SOURCE)
    if(TARGET by_test_support)
      target_link_libraries(lib${name} PRIVATE by_test_support)
    endif()
    target_link_libraries(lib${name} PRIVATE ${by_libs})
  endif()
endforeach()

file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/integration/*.sh)
foreach(source ${scripts})
  get_filename_component(name ${source} NAME_WE)
  add_test(NAME ${name} COMMAND bash ${source} $<TARGET_FILE:bathyc> ${CMAKE_SOURCE_DIR})
  by_test_properties(${name} ${source} integration)
endforeach()

# Checks of the sources themselves; they need python3 and nothing else.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  foreach(check deps style)
    add_test(NAME check_${check} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/check_${check}.py
      ${CMAKE_SOURCE_DIR})
    set_tests_properties(check_${check} PROPERTIES LABELS unit TIMEOUT 60)
  endforeach()
endif()
