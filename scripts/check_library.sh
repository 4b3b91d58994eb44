#!/usr/bin/env bash
# What a program that ships libcellm.so relies on, whatever machine it was built for.
#
# Usage: scripts/check_library.sh BUILD_DIR     (target cellm_shared, already built)
#   size        stripped, at most 3 MB (of 2^20 bytes) for 64-bit Arm, where it travels to phones in an app; for
#               x86-64 at most what it has today, most of it kernels for AVX2 and two kinds of
#               AVX-512 with a shape for every batch: that limit only goes down, but for new abilities (0.03 MB
#               for the ops of towers and caches whose old part is stored in fewer bits)
#   alignment   of every segment that is loaded: 16 KB or more on 64-bit Arm, as phones with such
#               pages ask for; 4 KB elsewhere
#   names       nothing but the C interface leaves it
set -euo pipefail
export LC_ALL=C
library=$1/libcellm.so
[ -e "$library" ] || { echo "error: no $library; build the target cellm_shared"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

machine=$(readelf -hW "$library" | sed -n 's/^ *Machine: *//p')
case $machine in
    AArch64) strip=aarch64-linux-gnu-strip limit=$((3 << 20)) least=$((16 << 10)) ;;
    *X86-64) strip=strip limit=6330000 least=$((4 << 10)) ;;
    *) echo "error: $library is for $machine, which has no limits here"; exit 1 ;;
esac
command -v "$strip" >/dev/null || strip=llvm-strip
command -v "$strip" >/dev/null || { echo "skipped: no strip for $machine"; exit 77; }

status=0
"$strip" -o "$work/stripped" "$library"
bytes=$(stat -c %s "$work/stripped")
echo "size: $bytes bytes stripped, at most $limit ($machine)"
if [ "$bytes" -gt "$limit" ]; then
    echo "error: $library is larger than $limit bytes; 'nm -S --size-sort' says what of"
    status=1
fi

segments=0
while read -r alignment; do
    segments=$((segments + 1))
    if [ "$((alignment))" -lt "$least" ]; then
        echo "error: a segment is aligned to $alignment, $least is needed"
        status=1
    fi
done < <(readelf -lW "$library" | awk '$1 == "LOAD" {print $NF}')
echo "alignment: $segments segments, $least bytes or more"
[ "$segments" -gt 0 ] || { echo "error: no segments are loaded"; status=1; }

strange=$(readelf --dyn-syms -W "$library" | awk '$5 == "GLOBAL" && $7 != "UND" && $7 != "ABS" {print $8}' |
    grep -v '^cellm_' || true)
if [ -n "$strange" ]; then
    echo "error: not of the C interface:" $strange
    status=1
fi
exit $status
