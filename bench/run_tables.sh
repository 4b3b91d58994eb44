#!/usr/bin/env bash
# Measures everything that docs/benchmarks.md shows: a stated subset of models, formats and thread
# counts, in under half an hour on a quiet two-core machine.
#
#   bench/run_tables.sh [OUTPUT_FOLDER] [CACHE_FOLDER]
#
# Writes JSON files and texts to OUTPUT_FOLDER (default build/bench-tables); bench/make_tables.py
# turns them into the tables and plots. Parts can be chosen: PARTS="formats peer" bench/run_tables.sh.
# The files of random weights, about 6 GB, stay in CACHE_FOLDER (default ~/.cache/cellm).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/bench-tables}
cache=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/cellm}
cellm=${CELLM:-build/release/tools/cellm/cellm}
parts=${PARTS:-machine formats families long start peer serve tokenizer memory}
mkdir -p "$out"

has() { [[ " $parts " == *" $1 "* ]]; }
step() { printf '== %s, %s\n' "$1" "$(date +%T)" >&2; }
# bench NAME FLAGS...: figures into NAME.json
bench() {
  local name=$1
  shift
  "$cellm" bench --cache-dir "$cache" --json "$out/$name.json" "$@" >"$out/$name.txt"
}

if has machine; then
  step machine
  {
    grep -m1 'model name' /proc/cpuinfo || true
    echo "cores: $(nproc)"
    "$cellm" --version
    git rev-parse --short HEAD 2>/dev/null || true
    cat /proc/loadavg
  } >"$out/machine.txt"
fi
if has formats; then
  step formats
  bench formats-small --synthetic smollm2-135m,qwen2.5-0.5b --matrix \
    --format f16,i8,i4,i4:64/i4:64,i2 --tests prefill,decode,batch --decode 48 --repeats 3 --seconds 8
  bench formats-large --synthetic llama-3.2-1b --matrix --format i8,i4 --thread-list 1,2 \
    --tests prefill,decode,batch --batches 1,8 --decode 24 --repeats 3 --seconds 12
fi
if has families; then
  step families
  bench families --synthetic qwen3-0.6b,qwen3.5-0.8b,lfm2-350m,gemma-3-1b,mobilemoe-1.3b \
    --matrix --format i4 --tests prefill,decode,memory --decode 32 --repeats 3 --seconds 8
  bench bitnet --synthetic bitnet-2b --matrix --format ternary --tests prefill,decode \
    --prefill 128 --decode 16 --repeats 3 --seconds 12
fi
if has long; then
  step 'long context'
  bench long --synthetic smollm2-135m --matrix --format i4 --thread-list 2 \
    --tests prefill,decode,long --long 8000 --depths 0,2048,4096 --decode 32 --repeats 3 --seconds 15
fi
if has start; then
  step start
  bench start --synthetic qwen2.5-0.5b --format i4 --tests load,first-token --repeats 3 --seconds 30
  qwen=$("$cellm" bench --synthetic qwen2.5-0.5b --format i4 --cache-dir "$cache" --write-only)
  # A process of its own: from nothing to the first token of a short prompt.
  python3 - "$cellm" "$qwen" >"$out/start-process.txt" <<'END'
import statistics, subprocess, sys, time
for weights in ("map", "load"):
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        subprocess.run([sys.argv[1], "infer", "-m", sys.argv[2], "-p", "The harbour was quiet",
                        "--gen", "1", "--temperature", "0", "--weights", weights, "-q"],
                       check=True, capture_output=True)
        times.append(1e3 * (time.perf_counter() - begin))
    print(f"{weights}: median {statistics.median(times):.0f} ms, best {min(times):.0f} ms")
END
fi
if has peer; then
  step 'in turns with llama.cpp'
  bench/compare_peer.py smollm2-135m:f16 smollm2-135m:q8_0 smollm2-135m:q4_0 smollm2-135m:q4_k_m \
    qwen2.5-0.5b:q8_0 qwen2.5-0.5b:q4_0 llama-3.2-1b:q4_k_m --rounds 1 --repeats 3 --steps 24 \
    --cellm "$cellm" --cache-dir "$cache" --json "$out/peer.json" >"$out/peer.txt" || [ $? -eq 77 ]
fi
if has serve; then
  step 'many conversations'
  bench serve --serve --synthetic smollm2-135m --format i4 --threads 1 --repeats 5
  bench/compare_serving.py smollm2-135m:q8_0 smollm2-135m:q4_0 --cellm "$cellm" \
    --cache-dir "$cache" --json "$out/serve-peer.json" >"$out/serve-peer.txt" || [ $? -eq 77 ]
  bench/compare_server.py smollm2-135m:q8_0 --rounds 2 --requests 3 --cellm "$cellm" \
    --cache-dir "$cache" --json "$out/server.json" >"$out/server.txt" || [ $? -eq 77 ]
fi
if has tokenizer; then
  step 'encoding beside the reference library'
  scripts/fetch_test_tokenizers.sh >/dev/null 2>&1 || true
  bench/compare_tokenizer.py --cellm "$cellm" --cache-dir "$cache" >"$out/tokenizer.txt" ||
    [ $? -eq 77 ]
fi
if has memory; then
  step '512 MB'
  bench/cgroup_512mb.sh "$cellm" "$cache" >"$out/cgroup.txt" 2>&1 || echo "exit $?" >>"$out/cgroup.txt"
fi
step "done; python3 bench/make_tables.py $out"
