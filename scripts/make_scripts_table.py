#!/usr/bin/env python3
"""Writes src/unicode/scripts.inc from Unicode's Scripts.txt.

usage: scripts/make_scripts_table.py /usr/share/unicode/Scripts.txt > src/unicode/scripts.inc
The file comes with Debian's package unicode-data (15.0.0).
"""
import re
import sys

rows = []
for line in open(sys.argv[1], encoding="utf-8"):
    match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*(\w+)", line)
    if match:
        first, last, name = match.groups()
        rows.append((int(first, 16), int(last or first, 16), name))
rows.sort()
merged = []
for first, last, name in rows:
    if merged and merged[-1][2] == name and merged[-1][1] + 1 == first:
        merged[-1] = (merged[-1][0], last, name)
    else:
        merged.append((first, last, name))
names = sorted({name for _, _, name in merged})
print("// Written by scripts/make_scripts_table.py from Scripts.txt, Unicode 15.0.0. Do not edit.")
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
