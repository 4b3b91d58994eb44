# Cross build for 64-bit Arm Linux, static, so that qemu-user runs it without an Arm root.
#
# Needs g++-aarch64-linux-gnu and, to run the tests, qemu-user-static. GoogleTest is built from
# Debian's source package (libgtest-dev), see tests/CMakeLists.txt.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)

# Libraries of the host would not link; header-only packages are found by their own files.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)

# Which CPU qemu plays is said by QEMU_CPU in the environment of ctest: max has every extension,
# cortex-a57 none beyond the base.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)

# No PCRE2 for this target is packaged; patterns without a scanner of ours are then refused by name.
set(CELLM_WITH_PCRE2 OFF CACHE BOOL "Run split patterns that have no built-in scanner with PCRE2")
# The same holds for what reads pictures and sounds, but for stb_image, which is one header.
set(CELLM_WITH_WEBP OFF CACHE BOOL "Read WebP with libwebp, where found")
set(CELLM_WITH_SPEEXDSP OFF CACHE BOOL "Resample sound with speexdsp, where found")
set(CELLM_WITH_SNDFILE OFF CACHE BOOL "Read FLAC with libsndfile, where found")
set(CELLM_WITH_MPG123 OFF CACHE BOOL "Read MP3 with libmpg123, where found")
