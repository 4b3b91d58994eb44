#!/usr/bin/env bash
# Installs a build into a fresh prefix, moves the prefix, and uses it in every documented way.
#
# Usage: tests/packaging/install_test.sh [BUILD_DIR]     (default build/release, already built)
# Each check is one line "ok"/"FAIL"; ends with "N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/packaging/checks.sh

exists() { local file; for file in "$@"; do [ -s "$file" ] || { echo "no $file"; return 1; }; done; }

cmake --install "$build" --prefix "$work/first" >"$work/install.log" 2>&1 ||
    { cat "$work/install.log"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }
# Nothing in a prefix may remember where it was installed, or where it was built.
prefix=$work/moved
mv "$work/first" "$prefix"
lib=$(dirname "$(find "$prefix" -name libcellm.a)")
# Everything below is tried away from the source tree.
cd "$work"
question="What is the capital of France?"
model=$(find "$prefix/share/cellm" -name 'cellm-nano-int8.cellm')

check "the prefix is complete" exists "$prefix/bin/cellm" "$prefix/include/cellm/cellm.h" \
    "$lib/libcellm.so" "$lib/libcellm.so.1" "$lib/libcellm.a" "$lib/pkgconfig/cellm.pc" \
    "$lib/cmake/cellm/cellmConfig.cmake" "$model" "$prefix/share/man/man1/cellm.1" \
    "$prefix/share/bash-completion/completions/cellm" \
    "$prefix/share/zsh/site-functions/_cellm" "$prefix/share/fish/vendor_completions.d/cellm.fish" \
    "$lib/libcellm_compat.so" "$lib/libcellm_compat.a" "$lib/pkgconfig/cellm_compat.pc" \
    "$prefix/include/cellm_compat/cellm.h" "$prefix/share/doc/cellm/LICENSE" "$prefix/share/doc/cellm/third_party/simdjson/LICENSE"
check "no file of the prefix names the build or the first prefix" \
    bash -c '! grep -rl -e "$1" -e "$2" "$3"' _ "$root/" "$work/first" "$prefix"
check "the man page has no warnings" bash -c '
    command -v man >/dev/null || exit 0
    warnings=$(MANWIDTH=80 man --warnings -l "$1" 2>&1 >/dev/null)
    echo "$warnings"; [ -z "$warnings" ]' _ "$prefix/share/man/man1/cellm.1"
check "the command finds the bundled model in the moved prefix" \
    prints Paris "$prefix/bin/cellm" infer --prompt "$question" --chat --temperature 0
check "the command says its version" prints "$(sed -n 's/^Version: //p' "$lib/pkgconfig/cellm.pc")" \
    "$prefix/bin/cellm" --version
check "the shared library exports only the C interface" bash -c '
    ! nm -D --defined-only "$1" | grep -v -e " cellm_" -e " A CELLM_1"' _ "$lib/libcellm.so"
check "the header is C99 by itself" bash -c '
    echo "#include <cellm/cellm.h>" >h.c
    cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$1/include" -fsyntax-only h.c' _ "$prefix"

flags() { PKG_CONFIG_PATH=$lib/pkgconfig pkg-config "$@" cellm; }
check "pkg-config, shared: builds" bash -c 'cc -std=c99 -Wall -Werror "$1" $2 -o shared' _ \
    "$root/examples/hello.c" "$(flags --cflags --libs)"
check "pkg-config, shared: answers" prints Paris env LD_LIBRARY_PATH="$lib" ./shared "$model"
check "pkg-config, static: builds" bash -c 'cc -std=c99 -Wall -Werror "$1" $2 "$3/libcellm.a" $4 \
    -o static' _ "$root/examples/hello.c" "$(flags --cflags)" "$lib" \
    "$(flags --static --libs-only-l | sed 's/-lcellm//')"
check "pkg-config, static: answers, and needs no libcellm.so" bash -c '
    ! ldd static | grep cellm && ./static "$1" | grep Paris' _ "$model"
compat_flags() { PKG_CONFIG_PATH=$lib/pkgconfig pkg-config "$@" cellm_compat; }
check "old names, pkg-config: builds" bash -c 'cc -std=c99 -Wall -Werror "$1" $2 -o compat' _ \
    "$root/tests/packaging/consumer/old_names.c" "$(compat_flags --cflags --libs)"
check "old names, shared: two sessions take turns" prints "turns: 8" \
    env LD_LIBRARY_PATH="$lib" ./compat "$model"
check "find_package: configures" cmake -S "$root/tests/packaging/consumer" -B consumer -G Ninja \
    -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLE="$root/examples/hello.c"
check "find_package: builds" cmake --build consumer
check "find_package: shared answers" prints Paris consumer/hello_shared "$model"
check "find_package: static answers" prints Paris consumer/hello_static "$model"
check "find_package: old names answer, shared" prints "turns: 8" consumer/old_names "$model"
check "find_package: old names answer, static" prints "turns: 8" consumer/old_names_static "$model"
check "C++ sees the same version in header and library" consumer/version
check "the example says what is wrong with a missing model" bash -c '
    ./static nowhere.cellm 2>&1 | grep "nowhere.cellm"'

finish_checks
