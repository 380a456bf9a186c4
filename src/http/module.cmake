# The page at / and the document at /openapi.json lie in the program: files of web/ as arrays (page.h).
foreach(row "page_html index.html" "openapi_json openapi.json")
  separate_arguments(row)
  list(GET row 0 name)
  list(GET row 1 file)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/${name}.c
    COMMAND ${CMAKE_COMMAND} -DIN=${CMAKE_SOURCE_DIR}/web/${file} -DOUT=${CMAKE_BINARY_DIR}/${name}.c -DNAME=by_${name}
      -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${CMAKE_SOURCE_DIR}/web/${file} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${BY_TARGET} PRIVATE ${CMAKE_BINARY_DIR}/${name}.c)
endforeach()
