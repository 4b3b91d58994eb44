#!/usr/bin/env bash
# Compares the symbols that libcellm.so exports, and those that libcellm.a leaves global, with
# docs/abi/exports.txt, and that list with the CELLM_API functions of include/cellm/cellm.h.
#
# Usage: scripts/check_exports.sh BUILD_DIR [--update]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
expected=docs/abi/exports.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

nm -D --defined-only "$build/libcellm.so" | awk '{print $3}' | sort -u >"$work/shared"
nm -g --defined-only "$build/libcellm.a" | awk 'NF == 3 {print $3}' | sort -u >"$work/static"
sed -n 's/^CELLM_API.*[ *]\(cellm_[a-z0-9_]*\)(.*/\1/p' include/cellm/cellm.h | sort -u \
    >"$work/declared"
if [ "${2:-}" = --update ]; then cp "$work/shared" "$expected"; fi

status=0
for kind in shared static declared; do
    if diff -u "$expected" "$work/$kind" >"$work/diff"; then
        echo "$kind: $(wc -l <"$work/$kind") symbols, as listed"
    else
        echo "$kind: differs from $expected (- listed, + found):"
        tail -n +3 "$work/diff" | grep '^[-+]' | sed 's/^/  /'
        status=1
    fi
done
[ -s "$expected" ] || { echo "error: $expected is empty"; status=1; }
exit $status
