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
passed=0 failed=0
check() {
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        tail -n 30 "$work/out" | sed 's/^/      /'
    fi
}
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
inside() { engine run --isolation chroot --network host "$container" -- "$@"; }

check "a base image from a bare Debian root" make_base
check "the Dockerfile builds" engine bud --isolation chroot --network host \
    --build-arg BASE=localhost/bare-debian --build-arg RUN_BASE=localhost/bare-debian \
    -t localhost/cellm .
container=$(engine from localhost/cellm)
check "the image answers from its bundled model" bash -c '"$@" | grep Paris' _ \
    buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" \
    run --isolation chroot "$container" -- \
    cellm infer --prompt "What is the capital of France?" --chat --temperature 0
check "the entry point is the command, run by nobody" bash -c '
    echo "$1"; grep -q "/usr/local/bin/cellm" <<<"$1" && grep -q "65534" <<<"$1"' _ \
    "$(engine inspect --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}}' \
        localhost/cellm)"
check "no compiler, source or header is left in the image" bash -c '
    ! "$@" -c "command -v g++ || command -v cmake || ls /src || ls /usr/local/include/cellm" \
        2>/dev/null | grep .' _ \
    buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" \
    run --isolation chroot "$container" -- sh
added=$(( $(engine inspect --type image --format '{{.Docker.Size}}' localhost/cellm 2>/dev/null ||
    echo 0) / 1000000 ))
[ "$added" -eq 0 ] || echo "size: $added MB with its base"

[ -z "${CELLM_COUNT_FILE:-}" ] || echo "$passed $failed 0" >"$CELLM_COUNT_FILE"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
