#!/usr/bin/env python3
"""Runs one case of tests/cli/cases: a shell script with its expected output.

usage: run_case.py CELLM BUILD_DIR CASE_FILE

A case file has comment lines (#), an optional line "needs: NAME...", and sections:

    --- run        a script for sh; every command it runs counts
    --- stdout     what must be printed, exactly; "*" alone on a line: anything from here on
    --- stderr     lines with * and ? as in file names; left out: anything
    --- exit       the exit code; left out: 0

Variables: $CELLM the binary, $NANO the int8 model, $ZOO and $GOLDEN reference folders, $SOURCE the
source tree, $CASES the folder of helper programs, $TMP an empty folder (also the working directory).
needs: nano, zoo, golden. A case whose needs are not on this machine exits with 77, loudly; so does
one whose script ends with 77, for the reason that the script gives last on stderr.
"""
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile

TIMEOUT_SECONDS = 300


def parse(path):
    sections, needs, name = {}, [], None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("--- "):
                name = line[4:].strip()
                sections[name] = ""
            elif name is not None:
                sections[name] += line
            elif line.startswith("needs:"):
                needs = line[6:].split()
            elif line.strip() and not line.startswith("#"):
                sys.exit(f"{path}: a line before the first section: {line!r}")
    unknown = set(sections) - {"run", "stdout", "stderr", "exit"}
    if unknown or "run" not in sections:
        sys.exit(f"{path}: sections are run, stdout, stderr, exit; found {sorted(sections)}")
    return sections, needs


def find_inputs(build):
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    shared = os.environ.get("CELLM_SHARED") or os.path.join(source, "..", "shared")
    bundled = os.path.join(source, "models", "cellm-nano-int8.cellm")
    built = os.path.join(build, "test-models", "nano-int8.cellm")
    found = {"source": source, "nano": bundled if os.path.exists(bundled) else built,
             "zoo": os.path.join(shared, "zoo"), "golden": os.path.join(shared, "golden-text")}
    return {name: os.path.abspath(path) for name, path in found.items() if os.path.exists(path)}


def check_stdout(expected, actual):
    """True when equal; a line "*" in the expected text stands for any rest."""
    cut = ("\n" + expected).find("\n*\n")
    if cut >= 0:
        return actual.startswith(expected[:cut])
    return actual == expected


def check_stderr(expected, actual):
    wanted, found = expected.splitlines(), actual.splitlines()
    return len(wanted) == len(found) and all(
        fnmatch.fnmatchcase(line, pattern) for line, pattern in zip(found, wanted))


def main(cellm, build, path):
    sections, needs = parse(path)
    inputs = find_inputs(build)
    missing = [name for name in needs if name not in inputs]
    if missing:
        print(f"SKIPPED: {os.path.basename(path)} needs {', '.join(missing)}, not on this machine")
        return 77
    folder = tempfile.mkdtemp(prefix="cellm-cli-")
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("CELLM_")}
    environment.update(CELLM=os.path.abspath(cellm), TMP=folder, SOURCE=inputs["source"],
                       CASES=os.path.dirname(os.path.abspath(path)),
                       NANO=inputs.get("nano", ""), ZOO=inputs.get("zoo", ""),
                       GOLDEN=inputs.get("golden", ""), LC_ALL="C.UTF-8", NO_COLOR="1")
    try:
        run = subprocess.run(["sh", "-c", sections["run"]], cwd=folder, env=environment,
                             stdin=subprocess.DEVNULL, capture_output=True,
                             timeout=TIMEOUT_SECONDS, check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    stdout = run.stdout.decode("utf-8", "surrogateescape")
    stderr = run.stderr.decode("utf-8", "surrogateescape").replace(folder + "/", "")
    stdout = stdout.replace(folder + "/", "")
    if run.returncode == 77:
        reason = stderr.strip().splitlines()[-1:] or ["no reason given"]
        print(f"SKIPPED: {os.path.basename(path)}: {reason[0]}")
        return 77
    problems = []
    if not check_stdout(sections.get("stdout", ""), stdout):
        problems.append("stdout")
    if "stderr" in sections and not check_stderr(sections["stderr"], stderr):
        problems.append("stderr")
    if run.returncode != int(sections.get("exit", "0")):
        problems.append("exit code")
    if not problems:
        return 0
    print(f"FAILED: {path}: {', '.join(problems)} differ")
    print(f"exit code {run.returncode}, expected {sections.get('exit', '0').strip()}")
    print("--- stdout\n" + stdout + "--- stderr\n" + stderr)
    return 1


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main(*sys.argv[1:]))
