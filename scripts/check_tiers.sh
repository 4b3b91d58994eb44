#!/bin/sh
# Checks that tier objects leak nothing into the rest of the program.
#
# Usage: scripts/check_tiers.sh [BUILD_FOLDER] (default build/release); without sanitizers only: they
# add symbols of their own. The tier sources are also compiled once more at -O0, where nothing is
# inlined, with the flags of compile_commands.json.
#
# An inline function compiled with -mavx2 may be the copy that the linker keeps for the whole
# program, and then an older CPU dies far from any kernel. So in every tier object
#   - each defined external symbol is strong (no W, V, u) and lies in cellm::<tier>
#   - there is no static constructor (.init_array)
#   - undefined symbols are few and known
# The scalar tier is built for the baseline CPU and may use what it likes.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ -f "$build/compile_commands.json" ] || { echo "no $build/compile_commands.json: build first"; exit 2; }
nm=${NM:-nm}
readelf=${READELF:-readelf}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
checked=0

# check_object FILE TIER LABEL
check_object() {
  checked=$((checked + 1))
  bad=$($nm -C --defined-only --extern-only "$1" |
    sed 's/^[0-9a-f]* *//' |
    grep -v -E "^[TDRB] cellm::$2::" || true)
  if [ -n "$bad" ]; then
    echo "$3: defines what other objects could pick up:"; echo "$bad" | sed 's/^/  /'; failed=1
  fi
  bad=$($nm -C --undefined-only "$1" | sed 's/^ *[Uwv] //' |
    grep -v -E "^(memcpy|memset|memmove|memcmp|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$" |
    grep -v -E "^cellm::$2::" || true)
  if [ -n "$bad" ]; then
    echo "$3: needs symbols that a tier may not use:"; echo "$bad" | sed 's/^/  /'; failed=1
  fi
  if $readelf -SW "$1" | grep -q -E '\.init_array|\.ctors'; then
    echo "$3: has a static constructor"; failed=1
  fi
}

for folder in src/kernels/*/; do
  tier=$(basename "$folder")
  [ "$tier" = scalar ] && continue
  for source in "$folder"*.cc; do
    object="$build/src/kernels/CMakeFiles/cellm_tier_$tier.dir/$tier/$(basename "$source").o"
    [ -f "$object" ] || continue  # a tier of another architecture
    check_object "$object" "$tier" "$source"
    # The same command at -O0, without ccache, into our own file.
    python3 - "$build/compile_commands.json" "$PWD/$source" "$work/o0.o" > "$work/command" <<'EOF'
import json, shlex, sys
for entry in json.load(open(sys.argv[1])):
    if entry["file"] == sys.argv[2]:
        words = shlex.split(entry["command"])
        words = words[1:] if words[0].endswith("ccache") else words
        words[words.index("-o") + 1] = sys.argv[3]
        print("cd", shlex.quote(entry["directory"]), "&&", shlex.join(words + ["-O0"]))
EOF
    sh "$work/command" || { echo "$source: does not compile at -O0"; failed=1; continue; }
    check_object "$work/o0.o" "$tier" "$source (-O0)"
  done
done
echo "tier check: $checked objects, $([ $failed = 0 ] && echo clean || echo FAILED)"
[ $checked -gt 0 ] || { echo "no tier object was found in $build"; exit 2; }
exit $failed
