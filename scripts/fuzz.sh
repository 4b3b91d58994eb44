#!/usr/bin/env bash
# Runs every fuzz target for its share of a time.
#
# Usage: scripts/fuzz.sh [--preset NAME] SECONDS [TARGET...]     scripts/fuzz.sh 600 gguf
#   --preset  fuzz (default), or asan-ubsan: the build that the tests use, without a second one
# New inputs go to build/fuzz/corpus/<target>/ (kept between runs); those worth keeping are merged
# into fuzz/corpus/<target>/ by hand with `build/fuzz/fuzz/<target>_fuzz -merge=1`. A find is left
# in build/fuzz/finds/ and fails the run: minimise it (-minimize_crash=1), commit it to the corpus,
# mend the cause.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=fuzz
if [ "${1:-}" = --preset ]; then preset=$2; shift 2; fi
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
seconds=$1
shift
[ -n "${CELLM_NO_SETUP:-}" ] || scripts/setup.sh ci

launcher=()
if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
cmake --preset "$preset" "${launcher[@]}" >&2
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for source in fuzz/*_fuzz.cc; do
        name=${source#fuzz/}
        targets+=("${name%_fuzz.cc}")
    done
fi
cmake --build --preset "$preset" --target "${targets[@]/%/_fuzz}" >&2
workers=$(nproc)
[ "$workers" -le ${#targets[@]} ] || workers=${#targets[@]}
share=$(( seconds * workers / ${#targets[@]} ))
[ "$share" -ge 1 ] || share=1
mkdir -p build/fuzz/finds

# Runs one target; its log stays in build/fuzz/logs. One process a core.
fuzz_one() {
    local name=$1 share=$2 dictionary=()
    mkdir -p "build/fuzz/corpus/$name" build/fuzz/logs
    [ ! -f "fuzz/$name.dict" ] || dictionary=(-dict="fuzz/$name.dict")
    if "build/$preset/fuzz/${name}_fuzz" "build/fuzz/corpus/$name" "fuzz/corpus/$name" \
        -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/finds/$name-" "${dictionary[@]}" \
        >"build/fuzz/logs/$name.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/logs/$name.log")
        echo "ok    $name: $runs runs in $share s"
    else
        echo "FIND  $name: see build/fuzz/logs/$name.log and build/fuzz/finds/"
        tail -n 25 "build/fuzz/logs/$name.log" | sed 's/^/      /'
    fi
}
export -f fuzz_one
export preset
report=$(printf '%s\n' "${targets[@]}" |
    xargs -P "$workers" -I{} bash -c 'fuzz_one "$1" "$2"' _ {} "$share")
echo "$report"
failed=$(grep -c '^FIND' <<<"$report" || true)
passed=$(( ${#targets[@]} - failed ))
[ -z "${CELLM_COUNT_FILE:-}" ] || echo "$passed $failed 0" >"$CELLM_COUNT_FILE"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
