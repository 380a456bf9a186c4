# The C libraries, and the examples of their use in build/examples/. Not for a cross build, which links statically.
#
#   libbathyc.so            include/bathyc/engine.h with everything below it inside; only its bathyc_ names are visible
#   libbathyc-recipe.so/.a  include/bathyc/recipe.h with what it needs: no engine, no model. Only its bathyc_recipe_ names are
#                           visible, in the archive too, so that it may be linked beside anything
if(CMAKE_CROSSCOMPILING)
  return()
endif()

# by_shared_library(TARGET OBJECTS NAME PREFIX): libNAME.so of a module and what it links; names with PREFIX are visible
function(by_shared_library target module name prefix)
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.map "{ global: ${prefix}*; local: *; };\n")
  add_library(${target} SHARED $<TARGET_OBJECTS:${module}>)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE C
    LINK_DEPENDS ${CMAKE_BINARY_DIR}/${name}.map)
  target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE ${module})
  target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/${name}.map)
endfunction()

by_shared_library(bathyc_shared by_capi bathyc bathyc_)
by_shared_library(bathyc_recipe_shared by_capi_recipe bathyc-recipe bathyc_recipe_)

# The archive: everything in one object whose other names are made local.
set(recipe_object ${CMAKE_BINARY_DIR}/bathyc-recipe.o)
set(recipe_archive ${CMAKE_BINARY_DIR}/libbathyc-recipe.a)
set(recipe_parts by_api by_recipe by_tok by_json by_base)
add_custom_command(OUTPUT ${recipe_archive}
  COMMAND ${CMAKE_LINKER} -r -o ${recipe_object} --whole-archive $<TARGET_FILE:by_capi_recipe> --no-whole-archive
    --start-group $<TARGET_FILE:by_api> $<TARGET_FILE:by_recipe> $<TARGET_FILE:by_tok> $<TARGET_FILE:by_json>
    $<TARGET_FILE:by_base> --end-group
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=bathyc_recipe_* ${recipe_object}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${recipe_archive}
  COMMAND ${CMAKE_AR} rcs ${recipe_archive} ${recipe_object}
  DEPENDS by_capi_recipe ${recipe_parts}
  COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(bathyc_recipe_static ALL DEPENDS ${recipe_archive})

# Examples: recipe_* use the recipe library, the others the engine.
file(GLOB examples CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c)
foreach(source ${examples})
  get_filename_component(name ${source} NAME_WE)
  set(library bathyc_shared)
  if(name MATCHES "^recipe_")
    set(library bathyc_recipe_shared)
  endif()
  add_executable(example_${name} ${source})
  set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples)
  target_link_libraries(example_${name} PRIVATE ${library})
endforeach()

# Installation of the recipe library alone: cmake --install build --component recipe
file(RELATIVE_PATH BY_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" BY_PC_PREFIX "${BY_PC_PREFIX}")
configure_file(${CMAKE_SOURCE_DIR}/cmake/bathyc-recipe.pc.in ${CMAKE_BINARY_DIR}/bathyc-recipe.pc @ONLY)
install(TARGETS bathyc_recipe_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT recipe)
install(FILES ${recipe_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT recipe)
install(FILES ${CMAKE_BINARY_DIR}/bathyc-recipe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT recipe)
install(FILES include/bathyc/error.h include/bathyc/recipe.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bathyc COMPONENT recipe)
install(FILES LICENSE src/recipe/templates/LICENSE.deepseek-recipe DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT recipe)
