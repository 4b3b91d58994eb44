#!/usr/bin/env python3
"""Writes src/unicode/scripts.inc from Unicode's Scripts.txt and DerivedAge.txt.

usage: scripts/make_scripts_table.py /usr/share/unicode > src/unicode/scripts.inc
The folder comes with Debian's package unicode-data (15.0.0). Characters that were added after
Unicode 9.0 have no script here, as in the library that tokenizers are made with.
"""
import re
import sys

LATEST = (9, 0)


def read(name):
    """(first, last, property) of every line, sorted."""
    rows = []
    for line in open(f"{sys.argv[1]}/{name}", encoding="utf-8"):
        match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*([\w.]+)", line)
        if match:
            first, last, value = match.groups()
            rows.append((int(first, 16), int(last or first, 16), value))
    return sorted(rows)


known = set()
for first, last, age in read("DerivedAge.txt"):
    if tuple(map(int, age.split("."))) <= LATEST:
        known.update(range(first, last + 1))
rows = [(c, c, name) for first, last, name in read("Scripts.txt")
        for c in range(first, last + 1) if c in known]
merged = []
for first, last, name in rows:
    if merged and merged[-1][2] == name and merged[-1][1] + 1 == first:
        merged[-1] = (merged[-1][0], last, name)
    else:
        merged.append((first, last, name))
names = sorted({name for _, _, name in merged})
print("// Written by scripts/make_scripts_table.py from Unicode 15.0.0, up to 9.0. Do not edit.")
for name in ("Han", "Hiragana", "Katakana"):
    print(f"constexpr Script k{name} = {names.index(name) + 1};")
print("constexpr ScriptRange kScriptRanges[] = {")
line = "   "
for first, last, name in merged:
    item = f" {{0x{first:X}, 0x{last:X}, {names.index(name) + 1}}},"
    if len(line) + len(item) > 100:
        print(line)
        line = "   "
    line += item
print(line)
print("};")
