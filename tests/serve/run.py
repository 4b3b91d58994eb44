#!/usr/bin/env python3
"""Runs test files of this folder against a cellm binary.

usage: run.py CELLM BUILD_DIR TEST_FILE [unittest arguments]

The model is the bundled one, or the one that the fixture of tests/cli converts. Without either the
tests are skipped (exit code 77).
"""
import os
import sys
import time
import unittest

SLOW_SECONDS = 2


class TimedResult(unittest.TextTestResult):
    """Names the tests that take long."""

    def startTest(self, test):
        super().startTest(test)
        self.begin = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        seconds = time.monotonic() - self.begin
        if seconds > SLOW_SECONDS:
            self.stream.writeln(f"{seconds:.1f} s: {test.id()}")


HERE = os.path.dirname(os.path.abspath(__file__))


def main(cellm, build, test_file, *arguments):
    source = os.path.abspath(os.path.join(HERE, "..", ".."))
    bundled = os.path.join(source, "models", "cellm-nano-int8.cellm")
    built = os.path.join(build, "test-models", "nano-int8.cellm")
    model = next((path for path in (bundled, built) if os.path.exists(path)), None)
    if model is None:
        print(f"SKIPPED: {os.path.basename(test_file)} needs a model, not on this machine")
        return 77
    for name in [name for name in os.environ if name in ("CELLM_MODEL", "CELLM_API_KEY")]:
        del os.environ[name]
    os.environ.update(CELLM_BINARY=os.path.abspath(cellm), CELLM_TEST_MODEL=model,
                      CELLM_BUILD_DIR=os.path.abspath(build))
    sys.path.insert(0, HERE)
    name = os.path.splitext(os.path.basename(test_file))[0]
    run = unittest.main(module=name, argv=[test_file, *arguments], exit=False,
                        testRunner=unittest.TextTestRunner(resultclass=TimedResult))
    if run.result.testsRun > 0 and run.result.testsRun == len(run.result.skipped):
        return 77
    return 0 if run.result.wasSuccessful() else 1


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
