# libevent's core (epoll, timers, signals) under the server's loop. Without it, and in a cross build, there is no `bathyc serve`;
# the rest of the module is built and tested all the same.
if(NOT CMAKE_CROSSCOMPILING) # the build machine's library would be found
  find_path(LIBEVENT_INCLUDE event2/event.h)
  find_library(LIBEVENT_CORE event_core)
endif()
if(LIBEVENT_INCLUDE AND LIBEVENT_CORE)
  target_compile_definitions(by_http PUBLIC BATHYC_HAVE_LIBEVENT)
  target_include_directories(by_http SYSTEM PRIVATE ${LIBEVENT_INCLUDE})
  target_link_libraries(by_http PUBLIC ${LIBEVENT_CORE})
else()
  message(STATUS "libevent not found: no server")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/http/loop.c PROPERTIES HEADER_FILE_ONLY ON)
endif()
