# The libraries that leave this tree, and `cmake --install`.
#
#   libcellm.so.1   all layers; exports exactly the functions of include/cellm/ (packaging/cellm.map)
#   libcellm.a      one object with the same public symbols, everything else made local, so that a
#                   program which links it may bring its own copy of a vendored library
#   libcellm_compat  the old names (compat/), shared and static
#   prefix          lib/, include/cellm/, lib/pkgconfig/cellm.pc, lib/cmake/cellm/,
#                   share/cellm/models/, licences; tools/cellm/ adds the command and its pages
# The prefix can be moved: nothing in it holds its path.
# tests/packaging/install_test.sh builds users of the prefix in every documented way.
include(CMakePackageConfigHelpers)

get_property(layer_libs GLOBAL PROPERTY CELLM_LAYER_LIBS)
set(external_libs "")   # linked by the user of libcellm.a
set(vendored_libs "")   # merged into it
foreach(lib ${layer_libs})
  if(TARGET ${lib})
    get_target_property(imported ${lib} IMPORTED)
    get_target_property(type ${lib} TYPE)
    if(imported)
      list(APPEND external_libs ${lib})
    elseif(type STREQUAL "STATIC_LIBRARY")
      list(APPEND vendored_libs ${lib})
    endif()
  else()
    list(APPEND external_libs ${lib})
  endif()
endforeach()
list(REMOVE_DUPLICATES vendored_libs)
list(REMOVE_DUPLICATES external_libs)

# What a user of libcellm.a must link, as plain names: -l flags for pkg-config, bare for CMake.
set(CELLM_STATIC_LIBS "stdc++;m;pthread")
if(external_libs MATCHES "[Pp][Cc][Rr][Ee]2")
  list(PREPEND CELLM_STATIC_LIBS pcre2-8)
endif()
foreach(name webp speexdsp sndfile mpg123)
  if(external_libs MATCHES "lib${name}[.]")
    list(PREPEND CELLM_STATIC_LIBS ${name})
  endif()
endforeach()
list(TRANSFORM CELLM_STATIC_LIBS PREPEND "-l" OUTPUT_VARIABLE CELLM_PC_LIBS_PRIVATE)
list(JOIN CELLM_PC_LIBS_PRIVATE " " CELLM_PC_LIBS_PRIVATE)

# --- libcellm.so
get_property(layers GLOBAL PROPERTY CELLM_LAYERS)
# A program asks for the version of the interface that it was built for, whatever the library's own.
file(STRINGS ${PROJECT_SOURCE_DIR}/include/cellm/cellm.h abi_line REGEX "define CELLM_ABI_VERSION ")
string(REGEX REPLACE ".*CELLM_ABI_VERSION ([0-9]+).*" "\\1" CELLM_ABI_VERSION "${abi_line}")
add_library(cellm_shared SHARED)
foreach(layer ${layers})
  target_sources(cellm_shared PRIVATE $<TARGET_OBJECTS:${layer}>)
endforeach()
target_link_libraries(cellm_shared PRIVATE Threads::Threads ${layer_libs})
target_link_options(cellm_shared PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/packaging/cellm.map" "LINKER:--no-undefined"
  # Converting and writing files is for the command line alone: nothing of the interface reaches it.
  "LINKER:--gc-sections"
  # Phones with pages of 16 KB load nothing that is aligned to less.
  $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},aarch64>:LINKER:-z,max-page-size=16384>)
set_target_properties(cellm_shared PROPERTIES
  LINKER_LANGUAGE CXX OUTPUT_NAME cellm EXPORT_NAME cellm
  VERSION ${CELLM_ABI_VERSION}.${PROJECT_VERSION} SOVERSION ${CELLM_ABI_VERSION}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/packaging/cellm.map)
target_include_directories(cellm_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# --- libcellm.a: link all objects into one, then keep only the public names global.
# --force-group-allocation dissolves COMDAT groups first, whose names would otherwise become local.
# Only GNU ld knows it; beside clang, CMake names lld as the linker where that is installed.
set(merging_linker ${CMAKE_LINKER})
if(merging_linker MATCHES "lld")
  find_program(CELLM_GNU_LD NAMES ld.bfd REQUIRED)
  set(merging_linker ${CELLM_GNU_LD})
endif()
set(merged ${CMAKE_CURRENT_BINARY_DIR}/cellm_merged.o)
set(vendored_files "")
foreach(lib ${vendored_libs})
  list(APPEND vendored_files $<TARGET_FILE:${lib}>)
endforeach()
add_custom_command(OUTPUT ${merged}
  COMMAND ${merging_linker} -r --force-group-allocation -o ${merged} --whole-archive
          $<TARGET_FILE:cellm_core> ${vendored_files}
  COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=cellm_* ${merged}
  DEPENDS cellm_core ${vendored_libs}
  COMMENT "Merging libcellm.a" VERBATIM)
set_source_files_properties(${merged} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(cellm_static STATIC ${merged})
target_link_libraries(cellm_static INTERFACE ${CELLM_STATIC_LIBS})
set_target_properties(cellm_static PROPERTIES
  LINKER_LANGUAGE CXX OUTPUT_NAME cellm EXPORT_NAME cellm_static)
target_include_directories(cellm_static INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# --- libcellm_compat
cellm_add_compat_shared()
install(DIRECTORY compat/include/cellm_compat DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")

# --- the prefix
install(TARGETS cellm_shared cellm_static cellm_compat_shared cellm_compat EXPORT cellmTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT cellmTargets NAMESPACE cellm:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cellm)
configure_package_config_file(packaging/cellmConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/cellmConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cellm NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/cellmConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cellmConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/cellmConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cellm)

# The .pc file finds its prefix from its own place, so the prefix can be moved.
file(RELATIVE_PATH CELLM_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" CELLM_PC_PREFIX "${CELLM_PC_PREFIX}")
configure_file(packaging/cellm.pc.in ${CMAKE_CURRENT_BINARY_DIR}/cellm.pc @ONLY)
configure_file(packaging/cellm_compat.pc.in ${CMAKE_CURRENT_BINARY_DIR}/cellm_compat.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cellm.pc ${CMAKE_CURRENT_BINARY_DIR}/cellm_compat.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY include/cellm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
        PATTERN "*.h" PATTERN "*.hpp")
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/cellm FILES_MATCHING
        PATTERN "*.cellm" PATTERN "*.md")
install(FILES LICENSE NOTICE README.md packaging/cellm.service DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB vendored_licences RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS third_party/*/LICENSE)
foreach(licence ${vendored_licences})
  get_filename_component(folder ${licence} DIRECTORY)
  install(FILES ${licence} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
endforeach()
