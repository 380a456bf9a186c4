# The page at / lies in the program: web/index.html as an array (page.h).
set(page ${CMAKE_BINARY_DIR}/page_html.c)
add_custom_command(OUTPUT ${page}
  COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/web/index.html -DOUT=${page} -DNAME=by_page_html
    -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${CMAKE_SOURCE_DIR}/web/index.html ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
target_sources(${BY_TARGET} PRIVATE ${page})
