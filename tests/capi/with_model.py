#!/usr/bin/env python3
"""Runs a program with the path of the int8 model as its last argument.

usage: with_model.py BUILD_DIR PROGRAM [ARGUMENT]...
Exits with 77 when there is no model on this machine.
"""
import os
import subprocess
import sys


def main(build, command):
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    for path in (os.path.join(source, "models", "cellm-nano-int8.cellm"),
                 os.path.join(build, "test-models", "nano-int8.cellm")):
        if os.path.exists(path):
            return subprocess.run([word for word in command if word] + [path],
                                  check=False).returncode
    print("SKIPPED: neither the bundled model nor one made from reference data is here")
    return 77


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
