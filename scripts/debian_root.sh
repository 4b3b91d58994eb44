#!/usr/bin/env bash
# Makes a bare Debian 12 root in a folder, for tests that need a machine nothing was installed on.
#
# Usage: scripts/debian_root.sh FOLDER        (as root)
# A packed copy is kept in build/debian-root.tar, so that only the first call downloads.
# CELLM_DEBIAN_MIRROR names another mirror than deb.debian.org.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
[ "$(id -u)" -eq 0 ] || { echo "debian_root.sh: needs root" >&2; exit 77; }
mirror=${CELLM_DEBIAN_MIRROR:-http://deb.debian.org/debian}
packed=build/debian-root.tar
mkdir -p build "$folder"
if [ ! -f "$packed" ]; then
    command -v debootstrap >/dev/null || scripts/setup.sh image
    new=$(mktemp -d)
    trap 'rm -rf "$new"' EXIT
    echo "debian_root: debootstrap from $mirror" >&2
    debootstrap --variant=minbase bookworm "$new" "$mirror" >"$packed.log" 2>&1 ||
        { tail -n 5 "$packed.log" >&2; exit 1; }
    rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/*
    tar -C "$new" -cf "$packed.part" .
    mv "$packed.part" "$packed"
fi
tar -C "$folder" -xf "$packed"
# Names are resolved as outside.
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
