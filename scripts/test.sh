#!/usr/bin/env bash
# Builds everything and runs the quick tests.
#
# Usage: scripts/test.sh [PRESET] [arguments for ctest]
#   PRESET  release (default), dev, asan-ubsan, tsan, clang: see CMakePresets.json
# Installs what is missing, prints the slowest tests and everything that was skipped and why, and
# ends with "N passed, N failed, N skipped", counted in tests, not in programs.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
if [ $# -ge 1 ] && [ "${1#-}" = "$1" ]; then preset=$1; shift; fi
[ -n "${CELLM_NO_SETUP:-}" ] || scripts/setup.sh test
[ "$preset" != clang ] || command -v clang++ >/dev/null || scripts/setup.sh ci

launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset "$preset" -DCELLM_BUILD_TESTS=ON "${launcher[@]}" >&2
cmake --build --preset "$preset" >&2

results=build/$preset/test-results
rm -rf "$results"
mkdir -p "$results"
status=0
GTEST_OUTPUT="xml:$PWD/$results/" ctest --preset "$preset" -j "$(nproc)" \
    --output-junit "$PWD/$results/ctest.junit" "$@" >&2 || status=$?
python3 scripts/count_tests.py "build/$preset" "$results" || status=1
exit "$status"
