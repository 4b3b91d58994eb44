#!/usr/bin/env bash
# Formats our sources with clang-format 14, or checks them.
#
# Usage: scripts/format.sh           rewrites what differs
#        scripts/format.sh --check   lists what differs; exit code 1 if anything does
# Vendored files (third_party/) stay.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t files < <(git ls-files '*.h' '*.hpp' '*.cc' '*.c' ':!third_party')
if [ "${1:-}" != --check ]; then
    printf '%s\0' "${files[@]}" | xargs -0 clang-format -i
    exit 0
fi
status=0
for file in "${files[@]}"; do
    if ! clang-format "$file" | cmp -s - "$file"; then
        echo "error: $file is not formatted (scripts/format.sh)"
        status=1
    fi
done
echo "format: ${#files[@]} files looked at"
exit $status
