#!/usr/bin/env python3
"""Makes the int8 model that the tests use, unless the tree has it already.

usage: make_model.py CELLM BUILD_DIR
Exits with 77 when neither the bundled model nor the reference data is on this machine.
"""
import os
import subprocess
import sys


def main(cellm, build):
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    if os.path.exists(os.path.join(source, "models", "cellm-nano-int8.cellm")):
        return 0
    shared = os.environ.get("CELLM_SHARED") or os.path.join(source, "..", "shared")
    nano = os.path.join(shared, "zoo", "nano")
    if not os.path.isdir(nano):
        print(f"SKIPPED: {nano} is not on this machine (set CELLM_SHARED)")
        return 77
    out = os.path.join(build, "test-models")
    os.makedirs(out, exist_ok=True)
    return subprocess.run([cellm, "convert", "-i", nano, "-o", os.path.join(out, "nano-int8.cellm"),
                           "--quantize-int8-symmetric", "--quiet"], check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
