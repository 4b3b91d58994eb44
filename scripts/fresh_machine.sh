#!/usr/bin/env bash
# Runs the README's two commands on a bare Debian 12: a new root, a clean clone, nothing installed.
#
# Usage: scripts/fresh_machine.sh [try|test]...       (as root; both by default; some minutes)
# Uses what is committed. The root is removed afterwards, unless CELLM_KEEP_ROOT=1.
set -euo pipefail
cd "$(dirname "$0")/.."
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(try test)
[ -z "$(git status --porcelain)" ] ||
    echo "fresh_machine: the clone will not have your uncommitted changes" >&2

root=$(mktemp -d)
clean_up() {
    umount "$root/dev/pts" "$root/proc" 2>/dev/null || true
    # Never remove a tree that something is still mounted in.
    if [ -z "${CELLM_KEEP_ROOT:-}" ] && ! grep -q " $root/" /proc/mounts; then rm -rf "$root"; fi
}
trap clean_up EXIT
scripts/debian_root.sh "$root"
mount -t proc proc "$root/proc"
# Terminals, which any real machine has: its own, not those of this one.
mkdir -p "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -sf pts/ptmx "$root/dev/ptmx"
git clone -q "file://$PWD" "$root/cellm"

inside() {
    env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        chroot "$root" bash -c "cd /cellm && $1"
}
status=0
for step in "${steps[@]}"; do
    started=$SECONDS
    case "$step" in
        try)
            answer=$(inside './scripts/try.sh "What is the capital of France?"') || status=1
            echo "$answer"
            grep -q Paris <<<"$answer" || { echo "fresh_machine: no Paris" >&2; status=1; }
            ;;
        test) inside ./scripts/test.sh || status=1 ;;
        *) echo "fresh_machine.sh: unknown step $step" >&2; exit 2 ;;
    esac
    echo "fresh_machine: $step took $((SECONDS - started)) s, status so far $status" >&2
done
exit $status
