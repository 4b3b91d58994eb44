#!/usr/bin/env bash
# Builds everything and runs the quick tests.
#
# Usage: scripts/test.sh [PRESET] [--only "FOLDER..."] [arguments for ctest]
#   PRESET  release (default), dev, asan-ubsan, tsan, clang, arm64: see CMakePresets.json
#           arm64 is cross-built and runs under qemu-user as the CPU that QEMU_CPU names (max)
#   --only  only the tests of these folders of tests/, and only what they need is built
# Installs what is missing, prints the slowest tests and everything that was skipped and why, and
# ends with "N passed, N failed, N skipped", counted in tests, not in programs.
# CELLM_NO_SETUP=1 installs nothing; CELLM_TEST_LONG=1 adds the long sweeps.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
if [ $# -ge 1 ] && [ "${1#-}" = "$1" ]; then preset=$1; shift; fi
only=""
if [ "${1:-}" = --only ]; then only=$2; shift 2; fi
if [ -z "${CELLM_NO_SETUP:-}" ]; then
    case "$preset" in
        clang|arm64) scripts/setup.sh ci ;;
        *) scripts/setup.sh test ;;
    esac
fi

launcher=()
if command -v ccache >/dev/null; then
    # Paths below the source tree are hashed as relative, so that every clone shares the cache.
    export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset "$preset" -DCELLM_BUILD_TESTS=ON "${launcher[@]}" >&2
targets=() select=()
if [ -n "$only" ]; then
    targets=(--target)
    for folder in $only; do targets+=("cellm_${folder}_test"); done
    select=(-R "^($(tr ' ' '|' <<<"$only"))\$")
fi
cmake --build --preset "$preset" "${targets[@]}" >&2

[ "$preset" != arm64 ] || export QEMU_CPU=${QEMU_CPU:-max}
results=build/$preset/test-results
rm -rf "$results"
mkdir -p "$results"
status=0
GTEST_OUTPUT="xml:$PWD/$results/" ctest --preset "$preset" -j "$(nproc)" --no-tests=error \
    --output-junit "$PWD/$results/ctest.junit" "${select[@]}" "$@" >&2 || status=$?
python3 scripts/count_tests.py "build/$preset" "$results" || status=1
exit "$status"
