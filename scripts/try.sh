#!/usr/bin/env bash
# Builds cellm (installing a compiler if there is none) and answers a prompt with the bundled model.
#
# Usage: scripts/try.sh "PROMPT" [more flags of `cellm infer`]
# Progress goes to stderr, the answer to stdout.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo 'usage: scripts/try.sh "What is the capital of France?"' >&2; exit 2; }
scripts/setup.sh build

# A build folder that a developer has already set up (with tests) is left as it is.
if [ ! -f build/release/CMakeCache.txt ]; then
    echo "try: configuring and building in build/release" >&2
    cmake --preset release -DCELLM_BUILD_TESTS=OFF >&2
fi
cmake --build --preset release --target cellm >&2
prompt=$1
shift
exec build/release/tools/cellm/cellm infer --prompt "$prompt" --chat "$@"
