#!/usr/bin/env bash
# Installs what a purpose needs, by Debian package name, and only what is missing.
#
# Usage: scripts/setup.sh build|test|ci|image...
#   build  compile the library and the command (try.sh)
#   test   build, and the tests (test.sh)
#   ci     test, and all of .ci/run: clang, fuzzing, arm64, packaging
#   image  what tests/packaging/image_test.sh and scripts/fresh_machine.sh need
#
# With apt-get (as root, or through sudo) packages are installed; elsewhere the list is printed and
# it is up to you. The names are those of Debian 12; Debian 13 and current Ubuntu have the same
# (but for chromium, which Ubuntu ships in another way: there ci needs a Debian).
set -euo pipefail

# Compiling: the library uses PCRE2 and what reads pictures and sounds, the command adds line
# editing, the server its web page; all of it is optional.
build="g++ cmake ninja-build pkg-config libpcre2-dev libedit-dev esbuild
    libstb-dev libwebp-dev libspeexdsp-dev libsndfile1-dev libmpg123-dev"
test="libgtest-dev python3"
ci="clang clang-format lld libclang-rt-14-dev libc6-dev g++-aarch64-linux-gnu qemu-user-static nodejs
    npm git node-typescript chromium python3-jsonschema"
image="debootstrap buildah ca-certificates git"

packages_of() {
    case "$1" in
        build) echo "$build" ;;
        test) echo "$build $test" ;;
        ci) echo "$build $test $ci" ;;
        image) echo "$image" ;;
        *) echo "setup.sh: unknown purpose '$1' (build, test, ci, image)" >&2; exit 2 ;;
    esac
}

# True when the package, or a command that does its work, is already here: a newer npm or node that
# did not come from Debian must not be fought over.
present() {
    case "$1" in
        nodejs) command -v node >/dev/null && return 0 ;;
        npm|git|cmake|python3|clang|esbuild|chromium) command -v "$1" >/dev/null && return 0 ;;
    esac
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

wanted=""
for purpose in "$@"; do wanted="$wanted $(packages_of "$purpose")"; done

if ! command -v apt-get >/dev/null; then
    echo "setup: no apt-get here; needed (Debian names):" $wanted >&2
    exit 0
fi
missing=""
for package in $wanted; do present "$package" || missing="$missing $package"; done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: as root, please: apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    as_root="sudo"
fi
echo "setup: installing$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -y -q --no-install-recommends install $missing >"$log" 2>&1
}
# A fresh machine has no package lists, or stale ones: fetch them if the first try fails.
install || { $as_root apt-get -q update >"$log" 2>&1 && install; } || {
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install$missing" >&2
    exit 1
}
