# Compiler flags, as interface targets.
#
#   cellm_flags      everything of ours: warnings are errors, no contraction of a*b+c behind our
#                    back (results must not depend on the compiler), frame pointers kept
#   cellm_lib_flags  the library and whatever uses its C++ headers (tests, benches, fuzzers, the
#                    command): no exceptions, no RTTI
find_package(Threads REQUIRED)

add_library(cellm_flags INTERFACE)
target_compile_options(cellm_flags INTERFACE
  -Wall -Wextra -Wshadow -Wundef -Wvla -ffp-contract=off -fno-omit-frame-pointer
  $<$<COMPILE_LANGUAGE:CXX>:-Wold-style-cast>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:Clang>>:-Wthread-safety>)
# Instrumented code hides value ranges from gcc, which then warns of conversions and uninitialised
# values that are not there: it judges those two in the ordinary builds.
if(NOT CELLM_SANITIZE OR CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(cellm_flags INTERFACE
    -Werror $<$<COMPILE_LANGUAGE:CXX>:-Wconversion -Wsign-conversion>)
endif()
target_link_libraries(cellm_flags INTERFACE Threads::Threads)
target_include_directories(cellm_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)

add_library(cellm_lib_flags INTERFACE)
target_compile_options(cellm_lib_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti>)
target_link_libraries(cellm_lib_flags INTERFACE cellm_flags)

# __FILE__ says the path inside the source tree: messages and binaries do not depend on where it
# was built. Not under a compiler cache, where the flag would tie every object to one checkout.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
endif()

# Without this gcc makes statics of inline functions unique over the process: a library that holds
# one can never be unloaded, and the name cannot be made local.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
endif()

# Sanitizers instrument everything, third-party sources included. -g1 gives them lines to report
# at a third of the size and link time of -g.
if(CELLM_SANITIZE)
  add_compile_options(-fsanitize=${CELLM_SANITIZE} -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${CELLM_SANITIZE})
  # What gcc and clang tell sources in ways of their own. For tests: some things cannot be measured.
  if(CELLM_SANITIZE MATCHES "address")
    add_compile_definitions(CELLM_ASAN=1)
  elseif(CELLM_SANITIZE MATCHES "thread")
    add_compile_definitions(CELLM_TSAN=1)
  endif()
endif()
# Fuzz targets are guided by the coverage of the whole library; for long runs also by the values that
# are compared, which would make tests of the same build three times slower.
if(CELLM_BUILD_FUZZERS AND CELLM_BUILD_TESTS)
  add_compile_options(-fsanitize-coverage=inline-8bit-counters,pc-table)
elseif(CELLM_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
