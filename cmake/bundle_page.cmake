# The web page's files as they are served: TypeScript and style sheets bundled into one app.js and one
# app.css by esbuild (Debian: esbuild), beside index.html and icon.svg.
#
#   cellm_bundle_page(SOURCE_FOLDER OUTPUT_FOLDER OUTPUT_FILES_VARIABLE)
#
# Without esbuild the server is built all the same; "/" is then a page of two sentences that says so.
function(cellm_bundle_page source output files)
  find_program(CELLM_ESBUILD esbuild DOC "Bundler of the web page")
  file(GLOB sources CONFIGURE_DEPENDS ${source}/*.ts ${source}/*.css)
  set(page ${source}/index.html ${source}/icon.svg)
  if(CELLM_ESBUILD)
    set(made ${output}/index.html ${output}/icon.svg ${output}/app.js ${output}/app.css)
    set(bundle COMMAND ${CMAKE_COMMAND} -E copy ${page} ${output}
      COMMAND ${CELLM_ESBUILD} ${source}/app.ts --outfile=${output}/app.js --bundle --format=esm
              --target=es2021 --minify --log-level=warning
      COMMAND ${CELLM_ESBUILD} ${source}/style.css --outfile=${output}/app.css --bundle --minify
              --log-level=warning)
  else()
    message(STATUS "esbuild was not found: cellm serve is built without its web page")
    set(made ${output}/index.html)
    set(bundle COMMAND ${CMAKE_COMMAND} -E copy ${source}/without_page.html ${output}/index.html)
  endif()
  add_custom_command(
    OUTPUT ${made}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${output}
    ${bundle}
    DEPENDS ${sources} ${page} ${source}/without_page.html VERBATIM
    COMMENT "Bundling the web page")
  set(${files} ${made} PARENT_SCOPE)
endfunction()
