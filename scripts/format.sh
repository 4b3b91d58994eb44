#!/usr/bin/env bash
# Formats our sources with clang-format 14, or checks them.
#
# Usage: scripts/format.sh           rewrites what differs
#        scripts/format.sh --check   lists what differs; exit code 1 if anything does
# Vendored files (third_party/) stay.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v clang-format >/dev/null || { echo "error: no clang-format"; exit 1; }
mapfile -t files < <(git ls-files '*.h' '*.hpp' '*.cc' '*.c' ':!third_party')
if [ "${1:-}" != --check ]; then
    printf '%s\0' "${files[@]}" | xargs -0 clang-format -i
    exit 0
fi
bad=$(printf '%s\0' "${files[@]}" |
    xargs -0 -P "$(nproc)" -n 25 clang-format --dry-run --ferror-limit=1 -Werror 2>&1 |
    sed -n 's/:[0-9]*:[0-9]*: error: .*//p' | sort -u) || true
echo "format: ${#files[@]} files looked at"
[ -n "$bad" ] || exit 0
sed 's/.*/error: & is not formatted (scripts\/format.sh)/' <<<"$bad"
exit 1
