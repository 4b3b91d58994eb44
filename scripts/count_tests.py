#!/usr/bin/env python3
"""Counts the tests of a ctest run, in tests rather than programs.

Usage: scripts/count_tests.py BUILD_DIR RESULTS_DIR

RESULTS_DIR holds ctest.junit and the XML files that GoogleTest programs wrote there (GTEST_OUTPUT).
A ctest entry whose program wrote XML counts as that program's tests; any other entry counts as one
test. A program that died, or ran past its time, adds one failure to what its XML says, so that a
crash can never look like fewer tests.

Prints each skipped test with its reason, the slowest tests, the failed ones, and then the line
"N passed, N failed, N skipped". Exit code 1 when something failed or when no test ran.
With CELLM_COUNT_FILE set, the three numbers are written there too.
"""
import collections
import glob
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

Case = collections.namedtuple("Case", "name result seconds reason")


def gtest_cases(path):
    """The test cases in one GoogleTest XML file; None when it is cut short (the program died)."""
    try:
        root = ElementTree.parse(path).getroot()
    except ElementTree.ParseError:
        return None
    cases = []
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        seconds = float(case.get("time", "0"))
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            cases.append(Case(name, "failed", seconds, ""))
        elif skipped is not None or case.get("result") == "skipped":
            text = skipped.get("message", "") if skipped is not None else ""
            lines = [line for line in text.strip().splitlines() if line.strip()]
            # The first line of a GoogleTest message is the place in the source.
            reason = lines[-1].strip() if lines else "no reason given"
            cases.append(Case(name, "skipped", seconds, reason))
        elif case.get("status") == "run":
            cases.append(Case(name, "passed", seconds, ""))
    return cases


def entry_programs(build_dir):
    """Maps each ctest entry to the base name of the program that it runs.

    That is the first word of its command that lies in the build folder: before it may stand an
    emulator.
    """
    text = subprocess.run(["ctest", "--test-dir", build_dir, "--show-only=json-v1"], check=True,
                          capture_output=True, text=True).stdout
    inside = os.path.abspath(build_dir) + os.sep
    return {test["name"]: next((os.path.basename(word) for word in test.get("command", [])
                                if word.startswith(inside)), "")
            for test in json.loads(text)["tests"]}


def collect(build_dir, results_dir):
    by_program = collections.defaultdict(list)
    broken = set()
    programs = entry_programs(build_dir)
    names = sorted(set(programs.values()), key=len, reverse=True)
    for path in sorted(glob.glob(os.path.join(results_dir, "*.xml"))):
        stem = os.path.basename(path)[:-len(".xml")]
        # GoogleTest numbers the files of a program that runs more than once: name, name_1, ...
        owner = stem if stem in names else stem.rsplit("_", 1)[0]
        cases = gtest_cases(path)
        if cases is None:
            broken.add(owner)
        else:
            by_program[owner] += cases
    cases = [case for program in by_program.values() for case in program]
    junit = ElementTree.parse(os.path.join(results_dir, "ctest.junit")).getroot()
    for entry in junit.iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        program = programs.get(name, "")
        seconds = float(entry.get("time", "0"))
        known = by_program.get(program)
        if status == "run" and known and program not in broken:
            continue
        if status == "run":
            cases.append(Case(name, "passed", seconds, ""))
        elif status in ("notrun", "disabled"):
            cases.append(Case(name, "skipped", seconds, "ctest: " + status))
        elif not known or program in broken or all(c.result != "failed" for c in known):
            cases.append(Case(name, "failed", seconds, ""))
    return cases


def report(cases):
    counts = collections.Counter(case.result for case in cases)
    reasons = collections.defaultdict(list)
    for case in cases:
        if case.result == "skipped":
            # Reasons that differ only by the file that is missing are one line.
            reasons[re.sub(r"\S+\.(json|jinja|cellm|gguf)\b", "FILE", case.reason)].append(case.name)
    for reason, names in sorted(reasons.items()):
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        print(f"skipped {len(names)}: {reason} ({shown})")
    slowest = sorted(cases, key=lambda case: -case.seconds)[:5]
    print("slowest: " + ", ".join(f"{case.name} {case.seconds:.1f} s" for case in slowest))
    for case in cases:
        if case.result == "failed":
            print(f"FAILED {case.name}")
    passed, failed, skipped = counts["passed"], counts["failed"], counts["skipped"]
    if os.environ.get("CELLM_COUNT_FILE"):
        with open(os.environ["CELLM_COUNT_FILE"], "w", encoding="utf-8") as out:
            out.write(f"{passed} {failed} {skipped}\n")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    return report(collect(sys.argv[1], sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())
