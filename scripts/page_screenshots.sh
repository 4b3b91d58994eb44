#!/usr/bin/env bash
# Makes the pictures of docs/page.md again: the page in Chromium with the bundled model.
#
# Usage: scripts/page_screenshots.sh [BUILD_DIR]      (default build/release)
# Needs what the page's tests need (scripts/setup.sh ci) and the fonts that the pictures are set in
# (Debian: fonts-inter, fonts-jetbrains-mono). Makes the PNGs small with pngquant where it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build/release}" && pwd)
node tests/page/run.mjs "$(command -v esbuild)" "$build/tests/page/page_screenshots.mjs" \
    "$PWD/tests/page/screenshots.mjs" "$build/tools/cellm/cellm"
for picture in docs/page-light.png docs/page-dark.png docs/page-phone.png; do
    if command -v pngquant >/dev/null; then
        pngquant --force --skip-if-larger --output "$picture" 128 "$picture" || [ $? -eq 98 ]
    fi
done
ls -l docs/page-*.png
