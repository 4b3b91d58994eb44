#!/usr/bin/env python3
"""Holds include/cellm/cellm.h to what docs/abi/README.md promises.

Usage: scripts/check_abi.py [--update]

docs/abi/constants.txt, structs.txt and functions.txt list every constant with its number, every
field of a struct with its place on a 64-bit machine, the size of structs that cannot grow, and every
function and callback with its types. They are C macros: tests/capi/abi_test.c includes them, so that
a compiler holds the header to them in each build. This script sees what a compiler cannot:
  - everything that the header declares is listed (--update adds what is new),
  - new fields come at the end of their struct, and no struct has hidden padding,
  - a struct that lies inside of another one, or that has no struct_size, does not grow.
--update changes and drops nothing that is listed. A C compiler ($CC, else cc) says where fields lie.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
HEADER = os.path.join(ROOT, "include", "cellm", "cellm.h")
VERSION = re.compile(r"CELLM_VERSION_")  # these move


def squeeze(text):
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\(\s+", "(", text).replace(" )", ")").replace(" *", "*")


def read_header(text):
    """Constants, [(struct, [(field, type)])], [(macro, result, name, parameters)]."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S).replace("\\\n", " ")
    constants = [n for n in re.findall(r"^#define (CELLM_[A-Z0-9_]+)[ \t]+[0-9(]", text, flags=re.M)
                 if not VERSION.match(n)]
    structs = []
    for name, body, again in re.findall(r"typedef struct (\w+) \{(.*?)\} (\w+);", text, flags=re.S):
        assert name == again, name
        fields = []
        for declaration in filter(None, map(squeeze, body.split(";"))):
            kind = ""
            for part in declaration.split(","):  # "uint64_t a, b", "char a[32]"
                kind, field = re.fullmatch(r"(.*?)\s*\b(\w+)(?:\[\w+\])?", part.strip()).groups()
                fields.append((field, kind or fields[-1][1]))
        structs.append((name, fields))
    functions = []
    for result, name, parameters in re.findall(
            r"^typedef ([\w ]+?[ *]+)\(\*(\w+)\)\((.*?)\);", text, flags=re.M | re.S):
        functions.append(("CALLBACK", squeeze(result), name, squeeze(parameters)))
    for result, name, parameters in re.findall(
            r"^CELLM_API ([\w ]+?[ *]+)(\w+)\((.*?)\);", text, flags=re.M | re.S):
        functions.append(("FUNCTION", squeeze(result), name, squeeze(parameters)))
    return constants, structs, functions


def measure(constants, structs):
    """{constant: number}, {(struct, field): (offset, size)}, {struct: size} on a 64-bit machine."""
    lines = ['#include <stddef.h>', '#include <stdio.h>', '#include "cellm/cellm.h"', "int main(void) {"]
    lines += [f'  printf("c {name} %lld\\n", (long long)({name}));' for name in constants]
    for name, fields in structs:
        lines.append(f'  printf("z {name} %d\\n", (int)sizeof({name}));')
        lines += [f'  printf("f {name} {field} %d %d\\n", (int)offsetof({name}, {field}), '
                  f'(int)sizeof((({name}*)0)->{field}));' for field, _ in fields]
    lines += ["  return 0;", "}"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "abi.c"), os.path.join(folder, "abi")
        with open(source, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        subprocess.run([os.environ.get("CC", "cc"), "-std=c99", "-I", os.path.join(ROOT, "include"), source, "-o",
                        program], check=True)
        out = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return ({r[1]: int(r[2]) for r in rows if r[0] == "c"},
            {(r[1], r[2]): (int(r[3]), int(r[4])) for r in rows if r[0] == "f"},
            {r[1]: int(r[2]) for r in rows if r[0] == "z"})


def check_layout(structs, places, sizes):
    """Faults of structs that no list can show, and the structs that cannot grow."""
    faults, fixed = [], []
    names = {name for name, _ in structs}
    inside = {kind for _, fields in structs for _, kind in fields if kind in names}
    for name, fields in structs:
        end = 0
        for field, _ in fields:
            offset, size = places[name, field]
            if offset != end:
                faults.append(f"{name}: hidden padding before {field}, bytes {end} to {offset}")
            end = offset + size
        if end != sizes[name]:
            faults.append(f"{name}: hidden padding at the end, bytes {end} to {sizes[name]}")
        if name in inside or fields[0][0] != "struct_size":
            fixed.append(name)
    return faults, fixed


def main(argv):
    if argv not in ([], ["--update"]):
        sys.exit(__doc__)
    with open(HEADER, encoding="utf-8") as file:
        constants, structs, functions = read_header(file.read())
    numbers, places, sizes = measure(constants, structs)
    faults, fixed = check_layout(structs, places, sizes)
    if not (constants and structs and functions):
        faults.append("the header declares nothing")
    struct_lines = []
    for name, fields in structs:
        struct_lines += [f"FIELD({name}, {field}, {places[name, field][0]}, {places[name, field][1]})"
                         for field, _ in fields]
        if name in fixed:
            struct_lines.append(f"FIXED_SIZE({name}, {sizes[name]})")
    lists = (("constants", [f"CONSTANT({name}, {numbers[name]})" for name in constants]),
             ("structs", struct_lines),
             ("functions", [f"{macro}({result}, {name}, ({parameters}))"
                            for macro, result, name, parameters in functions]))
    writes = []
    for what, now in lists:
        path = f"docs/abi/{what}.txt"
        full = os.path.join(ROOT, path)
        listed = []
        if os.path.exists(full):
            with open(full, encoding="utf-8") as file:
                listed = file.read().splitlines()
        faults += [f"{path}: '{line}' is promised and not what the header has"
                   for line in listed if line not in now]
        # A struct's first new field must come after its last listed one.
        ends = {}
        for line in now:
            struct = re.match(r"FIELD\((\w+), ", line)
            if not struct:
                continue
            if line not in listed:
                ends[struct.group(1)] = line
            elif struct.group(1) in ends:
                faults.append(f"{path}: {ends[struct.group(1)]} is new and not at the end of its struct")
        new = [line for line in now if line not in listed]
        if new and argv != ["--update"]:
            faults += [f"{path}: '{line}' is not listed: scripts/check_abi.py --update adds it" for line in new]
        writes.append((full, now if new else None))
        print(f"{path}: {len(now)} lines")
    for fault in faults:
        print(fault)
    if not faults:
        for full, now in writes:
            if now is not None and argv == ["--update"]:
                with open(full, "w", encoding="utf-8") as file:
                    file.write("\n".join(now) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
