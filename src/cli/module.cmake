# libedit gives `bathyc chat` line editing and history; without it lines are only read.
if(NOT CMAKE_CROSSCOMPILING) # the build machine's library would be found
  find_path(LIBEDIT_INCLUDE histedit.h)
  find_library(LIBEDIT_LIB edit)
endif()
if(LIBEDIT_INCLUDE AND LIBEDIT_LIB)
  target_compile_definitions(${BY_TARGET} PRIVATE BATHYC_HAVE_LIBEDIT)
  target_include_directories(${BY_TARGET} SYSTEM PRIVATE ${LIBEDIT_INCLUDE})
  target_link_libraries(${BY_TARGET} PRIVATE ${LIBEDIT_LIB})
endif()
