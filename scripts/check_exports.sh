#!/usr/bin/env bash
# Compares what the libraries export with what they promise.
#
# Usage: scripts/check_exports.sh BUILD_DIR [--update]
#   libcellm.so   exports exactly the names of docs/abi/exports.txt, which are the CELLM_API
#                 functions of include/cellm/cellm.h
#   libcellm.a    leaves the same names global, and those of cellm_experimental.h
#   libcellm_compat.so and .a   likewise docs/abi/compat_exports.txt and compat/include; no name is
#                 in both lists, so that a program can link both libraries
# --update writes the lists anew from the headers. Types, numbers and places are check_abi.py's part.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
listed=docs/abi/exports.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C

sed -n 's/^CELLM_API.*[ *]\(cellm_[a-z0-9_]*\)(.*/\1/p' include/cellm/cellm.h | sort -u \
    >"$work/declared"
[ "${2:-}" != --update ] || cp "$work/declared" "$listed"
sed -n 's/^[a-z].*[ *]\(cellm_[a-z0-9_]*\)(.*/\1/p' include/cellm/cellm_experimental.h |
    sort -u - "$listed" >"$work/listed_static"

status=0
# compare NAME EXPECTED FOUND
compare() {
    if diff -u "$2" "$3" >"$work/diff"; then
        echo "$1: $(wc -l <"$3") names, as listed"
    else
        echo "$1: differs from the list (- listed, + found):"
        tail -n +3 "$work/diff" | grep '^[-+]' | sed 's/^/  /'
        status=1
    fi
}
# Every name has the version of the interface; the version itself is a name of type A.
nm -D --defined-only "$build/libcellm.so" | awk '$2 != "A" {print $3}' | sort -u >"$work/versioned"
sed 's/@@CELLM_1$//' "$work/versioned" >"$work/shared"
nm -g --defined-only "$build/libcellm.a" | awk 'NF == 3 {print $3}' | sort -u >"$work/static"
compare "header" "$listed" "$work/declared"
compare "libcellm.so" "$listed" "$work/shared"
compare "libcellm.a" "$work/listed_static" "$work/static"

compat=docs/abi/compat_exports.txt
sed -nE 's/^CELLM_COMPAT_API.*[ *](cellm_[a-z0-9_]*)\(.*/\1/p' compat/include/cellm_compat/cellm.h |
    sort -u >"$work/compat_declared"
[ "${2:-}" != --update ] || cp "$work/compat_declared" "$compat"
nm -D --defined-only "$build/libcellm_compat.so" | awk '{print $3}' | sort -u >"$work/compat_shared"
nm -g --defined-only "$build/compat/libcellm_compat.a" | awk 'NF == 3 && $3 ~ /^cellm_/ {print $3}' |
    sort -u >"$work/compat_static"
compare "compat header" "$compat" "$work/compat_declared"
compare "libcellm_compat.so" "$compat" "$work/compat_shared"
compare "libcellm_compat.a" "$compat" "$work/compat_static"
comm -12 "$listed" "$compat" >"$work/both"
[ ! -s "$work/both" ] || { echo "in both libraries: $(tr '\n' ' ' <"$work/both")"; status=1; }
python3 scripts/check_abi.py "${@:2}" || status=1
[ -s "$compat" ] || { echo "error: $compat is empty"; status=1; }
[ -s "$listed" ] || { echo "error: $listed is empty"; status=1; }
exit $status
