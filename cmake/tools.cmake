# C tools for developers, in build/tools/. They are not installed.
add_executable(make_checkpoint tools/make_checkpoint.c tools/synth_config.c tools/synth_values.c src/cli/args.c)
set_target_properties(make_checkpoint PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools)
target_compile_definitions(make_checkpoint PRIVATE _GNU_SOURCE)
by_paths(tools/make_checkpoint.c)
target_include_directories(make_checkpoint PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/tools)
target_link_libraries(make_checkpoint PRIVATE by_model by_ops by_json by_base)
