#!/usr/bin/env bash
# Builds the Dockerfile without a container engine or a registry, and runs the image.
#
# Usage: tests/packaging/image_test.sh        (as root; about two minutes)
# buildah builds with chroot isolation over a base image made from a bare Debian root. Storage lies
# in a temporary folder; nothing of the host's images is touched.
set -uo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" -eq 0 ] || { echo "skipped: image_test needs root"; exit 77; }
command -v buildah >/dev/null && command -v debootstrap >/dev/null || scripts/setup.sh image || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/packaging/checks.sh

engine() {
    buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"
}
make_base() {
    scripts/debian_root.sh "$work/debian" || return 1
    local container
    container=$(engine from scratch) &&
        engine add -q "$container" "$work/debian" / &&
        engine commit -q --rm "$container" localhost/bare-debian
    local code=$?
    rm -rf "$work/debian"
    return $code
}
inside() { engine run --isolation chroot "$container" -- "$@"; }
entry() { engine inspect --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' "$@"; }
left_over() {
    ! inside sh -c 'command -v g++ cmake; ls /src /usr/local/include/cellm' 2>/dev/null | grep .
}

check "a base image from a bare Debian root" make_base
check "the Dockerfile builds" engine bud --isolation chroot --network host \
    --build-arg BASE=localhost/bare-debian --build-arg RUN_BASE=localhost/bare-debian \
    -t localhost/cellm .
container=$(engine from localhost/cellm)
check "the image answers from its bundled model" prints Paris inside \
    cellm infer --prompt "What is the capital of France?" --chat --temperature 0
check "the entry point is the command" prints /usr/local/bin/cellm entry localhost/cellm
check "it runs as nobody" prints 65534 entry localhost/cellm
check "no compiler, source or header is left in the image" left_over

finish_checks
