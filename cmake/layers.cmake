# cellm_add_layer(name [SMALL] [LINK libs...]): an object library of every .cc directly in this
# folder, recorded so that the library, the tests and the tools can link all layers at once. SMALL:
# runs once a model, once a request or once a layer of a step, so it is built for size (less than
# half of what -O3 makes of it); scripts/check_library.sh has the limit.
set_property(GLOBAL PROPERTY CELLM_LAYERS "")
function(cellm_add_layer name)
  cmake_parse_arguments(ARG "SMALL" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_library(cellm_${name} OBJECT ${sources})
  target_link_libraries(cellm_${name} PRIVATE cellm_lib_flags ${ARG_LINK})
  if(ARG_SMALL)
    target_compile_options(cellm_${name} PRIVATE $<$<CONFIG:Release>:-Os>)
  endif()
  set_property(GLOBAL APPEND PROPERTY CELLM_LAYERS cellm_${name})
  if(ARG_LINK)
    set_property(GLOBAL APPEND PROPERTY CELLM_LAYER_LIBS ${ARG_LINK})
  endif()
endfunction()
