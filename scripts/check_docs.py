#!/usr/bin/env python3
"""Checks that the documents tell the truth, as far as a script can.

Usage: scripts/check_docs.py [--run [BUILD_DIR]]

Always:
  - a relative link points at a file that exists, and its #anchor at a heading there;
  - a path in backticks that starts with one of our folders exists (patterns with * or <...> must
    match at least one file);
  - a ```c block after a line `<!-- file: PATH -->` is the whole of that file;
  - the table of ranks in docs/architecture.md is that of scripts/check_layers.py.
With --run, each ```console block is executed in the source tree, with BUILD_DIR's tool in front of
PATH (default build/release): a line "$ command" is a command, what follows is its stdout. A line
"..." stands for any number of lines, "[...]" inside a line for any text. Blocks that install or
measure are ```sh and are not run.
Exit code 1 when something is wrong.
"""
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
FOLDERS = ("src/", "docs/", "scripts/", "tests/", "cmake/", "fuzz/", "tools/", "include/", "models/",
           "testdata/", "bench/", "examples/", "packaging/", "third_party/", ".ci/")
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")


def documents():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [path for path in listed if not path.startswith("third_party/")]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def anchors(text):
    names = set()
    for heading in re.findall(r"^#+ +(.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
        names.add(plain.replace(" ", "-"))
    return names


def split_blocks(text):
    """Yields (line number, language, lines, line before) of each fenced block, and the prose."""
    blocks, prose, block, before = [], [], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if block is None:
                block = (number, line[3:].strip(), [], before)
            else:
                blocks.append(block)
                block, before = None, ""
            prose.append("")
        elif block is not None:
            block[2].append(line)
            prose.append("")
        else:
            prose.append(line)
            if line.strip():
                before = line.strip()
    return blocks, prose


def check_links(path, prose, errors):
    for number, line in enumerate(prose, 1):
        for target in LINK.findall(CODE.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
            if not os.path.exists(os.path.join(ROOT, file)):
                errors.append(f"{path}:{number}: link to {target}: no such file")
            elif anchor and file.endswith(".md") and anchor not in anchors(read(file)):
                errors.append(f"{path}:{number}: link to {target}: no such heading")
        for code in CODE.findall(line):
            word = code.split()[0].rstrip(":,")
            if not word.startswith(FOLDERS) and word not in ("README.md", "LICENSE", "NOTICE"):
                continue
            pattern = re.sub(r"<[^>]*>|NNNN|NAME", "*", word)
            pattern = re.sub(r":\d+$", "", pattern)
            if not glob.glob(os.path.join(ROOT, pattern)):
                errors.append(f"{path}:{number}: `{word}` does not exist")


def check_files(path, blocks, errors):
    for number, _, lines, before in blocks:
        match = re.match(r"<!-- file: (\S+) -->", before)
        if match and read(match.group(1)).rstrip("\n") != "\n".join(lines).rstrip("\n"):
            errors.append(f"{path}:{number}: the block differs from {match.group(1)}")


def check_ranks(errors):
    """docs/architecture.md has rows `| rank | `folder`, ... |` that equal RANKS."""
    sys.path.insert(0, os.path.join(ROOT, "scripts"))
    import check_layers  # pylint: disable=import-outside-toplevel
    listed = {}
    for rank, folders in re.findall(r"^\| (\d) \| ([^|]*) \|", read("docs/architecture.md"),
                                    re.MULTILINE):
        for folder in re.findall(r"`src/(\w+)/`", folders):
            listed[folder] = int(rank)
    if listed != check_layers.RANKS:
        different = sorted(set(listed.items()) ^ set(check_layers.RANKS.items()))
        errors.append(f"docs/architecture.md: the table of ranks differs from check_layers.py: "
                      f"{different}")


def matches(expected, actual):
    """True when the lines agree, with "..." and "[...]" as in the file comment."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(p) for p in line.rstrip().split("[...]")) + r" *\n")
    return re.fullmatch("".join(parts), "".join(line.rstrip() + "\n" for line in actual)) is not None


def run_blocks(path, blocks, build, errors):
    environment = dict(os.environ)
    environment["PATH"] = os.path.join(ROOT, build, "tools/cellm") + ":" + environment["PATH"]
    count = 0
    for number, language, lines, _ in blocks:
        if language != "console":
            continue
        steps = []
        for line in lines:
            if line.startswith("$ "):
                steps.append((line[2:], []))
            elif steps and steps[-1][0].endswith("\\") and not steps[-1][1]:
                steps[-1] = (steps[-1][0][:-1] + line.strip(), [])
            elif steps:
                steps[-1][1].append(line)
        for command, expected in steps:
            run = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, text=True,
                                 stdin=subprocess.DEVNULL, capture_output=True, timeout=900,
                                 check=False)
            count += 1
            actual = run.stdout.rstrip("\n").splitlines()
            while expected and not expected[-1].strip():
                expected.pop()
            if run.returncode != 0 or not matches(expected, actual):
                errors.append(f"{path}:{number}: `{command}` (exit code {run.returncode}) printed:\n"
                              + "\n".join("    " + line for line in actual)
                              + "\n  the document says:\n"
                              + "\n".join("    " + line for line in expected)
                              + ("\n  stderr: " + run.stderr[-800:] if run.returncode else ""))
    return count


def main():
    run = "--run" in sys.argv[1:2]
    build = sys.argv[2] if run and len(sys.argv) > 2 else "build/release"
    errors, commands = [], 0
    for path in documents():
        blocks, prose = split_blocks(read(path))
        if run:
            commands += run_blocks(path, blocks, build, errors)
        else:
            check_links(path, prose, errors)
            check_files(path, blocks, errors)
    if not run:
        check_ranks(errors)
    for error in errors:
        print(error)
    done = f"{commands} command(s) run, " if run else ""
    print(f"documents: {done}{len(errors)} error(s)")
    return 1 if errors or (run and commands == 0) else 0


if __name__ == "__main__":
    sys.exit(main())
