#!/usr/bin/env bash
# Runs models in a control group of 512 MB and compares their speed with that outside of it:
#
#   qwen   the shape of Qwen3.5-0.8B in 4 bits, one conversation at a context of 4096
#   smol   the shape of SmolLM2-360M in 4 bits, four sessions of 2000 tokens that reply together
#
# Both must come through, at no less than half of their free speed. The group (version 1 or 2) is a
# child of this process's own. Exit code 77, loudly, where no group with a memory limit can be made;
# 1 when a run was killed or was too slow.
#
#   bench/cgroup_512mb.sh [CELLM] [CACHE_FOLDER]
#   ROWS="smol" TURNS=1 bench/cgroup_512mb.sh        one of them, measured once instead of twice
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cellm=${1:-$here/../build/release/tools/cellm/cellm}
cache=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/cellm}
limit=$((512 << 20))
rows=${ROWS:-qwen smol} turns=${TURNS:-2}

skip() {
  echo "SKIPPED: $1" >&2
  exit 77
}
[ "$(uname -s)" = Linux ] || skip "control groups are Linux's"

# Sets group, and limit_file and peak_file inside it.
make_group() {
  local own
  own=$(awk -F: '$2 ~ /(^|,)memory(,|$)/ {print $3}' /proc/self/cgroup)
  if [ -n "$own" ] || [ -d /sys/fs/cgroup/memory ]; then
    group=/sys/fs/cgroup/memory${own%/}/cellm-bench-$$
    limit_file=memory.limit_in_bytes peak_file=memory.max_usage_in_bytes
  else
    own=$(awk -F: '$1 == "0" {print $3}' /proc/self/cgroup)
    group=/sys/fs/cgroup${own%/}/cellm-bench-$$
    limit_file=memory.max peak_file=memory.peak
  fi
  mkdir "$group" 2>/dev/null || skip "$group cannot be made (not root, or a read-only mount)"
  trap 'rmdir "$group" 2>/dev/null || true' EXIT
  [ -e "$group/$limit_file" ] || skip "the memory controller is not on for $group"
  echo "$limit" 2>/dev/null >"$group/$limit_file" || skip "$group/$limit_file cannot be written"
  # Swap would hide what does not fit.
  [ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
}

# Pages of a cached file count for whoever read it first, so the group has to read it itself.
forget() {
  python3 - "$1" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
END
}

# The median tokens/s of the only decode row, and how the weights were held.
figures() {
  python3 -c '
import json, sys
run = json.load(sys.stdin)["runs"][0]
row = [r for r in run["results"] if r["unit"] == "tokens/s"][-1]
print(row["median"], run["weights"])'
}

make_group
failed=0
# compare NAME FILE BENCH_FLAGS...: in turns outside and inside, so that what else the machine does
# meets both; the best of each counts.
compare() {
  local name=$1 file=$2 free=0 speed=0 held=- one rc
  shift 2
  for _ in $(seq "$turns"); do
    read -r one _ < <("$cellm" bench -m "$file" "$@" --quiet --no-ceilings --json - | figures)
    free=$(printf '%s\n' "$free" "$one" | sort -g | tail -n 1)
    forget "$file"
    "$cellm" --version >/dev/null # the program's own pages are not the group's
    rc=0
    sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
      "$cellm" bench -m "$file" "$@" --quiet --no-ceilings --json - >"$scratch/out.json" || rc=$?
    if [ "$rc" -ne 0 ]; then
      echo "$name: FAILED with $rc in 512 MB (137: killed for memory)"
      failed=1
      return
    fi
    read -r one held < <(figures <"$scratch/out.json")
    speed=$(printf '%s\n' "$speed" "$one" | sort -g | tail -n 1)
  done
  local peak=unknown
  [ ! -e "$group/$peak_file" ] || peak=$(($(cat "$group/$peak_file") >> 20))
  python3 - "$name" "$free" "$speed" "$held" "$peak" <<'END' || failed=1
import sys
name, free, speed, held, peak = sys.argv[1:]
ratio = float(speed) / float(free)
print(f"{name}: {float(speed):.2f} tokens/s in 512 MB, {float(free):.2f} free: {ratio:.2f}; "
      f"weights {held}, peak {peak} MB with file pages" + ("" if ratio >= 0.5 else "  TOO SLOW"))
sys.exit(0 if ratio >= 0.5 else 1)
END
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; rmdir "$group" 2>/dev/null || true' EXIT
write() { "$cellm" bench --synthetic "$1" --format "$2" --cache-dir "$cache" --write-only; }
# A reply at the end of a context of 4096. Small chunks keep the activations small.
if [[ " $rows " == *" qwen "* ]]; then
  compare "qwen3.5-0.8b i4, context 4096" "$(write qwen3.5-0.8b i4:64)" --tests first-token \
    --prompt 3992 --reply 104 --repeats 1 --warmup 0 --chunk 128
fi
# In f16 the keys and values of this model are 41 kB a token: 335 MB for four times 2048.
if [[ " $rows " == *" smol "* ]]; then
  compare "smollm2-360m i4, four sessions of 2000, keys and values in 8 bits" \
    "$(write smollm2-360m i4)" --serve --serve-tests throughput --sessions 4 --batch-depth 2000 \
    --decode 32 --repeats 1 --chunk 128 --kv q8 --cache-dir "$cache"
fi
exit $failed
