#!/usr/bin/env python3
"""Checks that misuse which the headers promise to stop does not compile.

Usage: tests/compile_fail/check.py CASES_FILE COMPILER [FLAGS...]

Reads the cases (the format is at the top of cases.txt). Each is compiled twice: without its BAD
lines, which must succeed, and with them, which must fail with the stated words in the message.
"""
import os
import re
import subprocess
import sys
import tempfile


def read_cases(path):
    cases = []
    for line in open(path, encoding="utf-8"):
        if line.startswith("== "):
            name, words = line[3:].strip().split(": ", 1)
            cases.append((name, words, []))
        elif cases:
            cases[-1][2].append(line)
    return cases


def build(compiler, flags, text, folder):
    path = os.path.join(folder, "case.cc")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    run = subprocess.run([compiler, *flags, "-fsyntax-only", path], capture_output=True, text=True)
    return run.returncode, run.stderr


def check(case, compiler, flags, folder):
    name, words, lines = case
    body = "".join(lines).replace("----\n", "")
    good = "".join(line for line in body.splitlines(True) if "// BAD" not in line)
    if good == body:
        return f"{name}: has no line marked BAD"
    code, message = build(compiler, flags, good, folder)
    if code != 0:
        return f"{name}: does not compile even without its BAD lines:\n{message}"
    code, message = build(compiler, flags, body, folder)
    if code == 0:
        return f"{name}: compiles, and must not"
    if not re.search(words, message, re.IGNORECASE):
        return f"{name}: fails, but not with '{words}':\n{message}"
    return None


def main():
    cases, compiler, flags = read_cases(sys.argv[1]), sys.argv[2], sys.argv[3:]
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            failure = check(case, compiler, flags, folder)
            print(f"{'FAIL' if failure else 'ok  '} {case[0]}")
            if failure:
                failures.append(failure)
    for failure in failures:
        print(failure)
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
