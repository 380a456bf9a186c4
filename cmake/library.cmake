# libbathyc.so: the C API of include/bathyc with everything below it inside; only its bathyc_ names are visible. And the examples
# of its use, in build/examples/. Not for a cross build, which links statically.
if(CMAKE_CROSSCOMPILING)
  return()
endif()
file(WRITE ${CMAKE_BINARY_DIR}/bathyc.map "{ global: bathyc_*; local: *; };\n")
add_library(bathyc_shared SHARED $<TARGET_OBJECTS:by_capi>)
set_target_properties(bathyc_shared PROPERTIES OUTPUT_NAME bathyc VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE C)
target_include_directories(bathyc_shared INTERFACE ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(bathyc_shared PRIVATE by_capi)
target_link_options(bathyc_shared PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/bathyc.map)

file(GLOB examples CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c)
foreach(source ${examples})
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
  target_link_libraries(example_${name} PRIVATE bathyc_shared)
endforeach()
