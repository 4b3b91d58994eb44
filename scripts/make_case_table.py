#!/usr/bin/env python3
"""Writes src/unicode/case_table.inc: case mappings and numeric classes that utf8proc does not have.

usage: scripts/make_case_table.py > src/unicode/case_table.inc
Run with python3 3.11 and libutf8proc 2.8 (Debian 12). Three lists:
  kSpecialCase  characters whose full upper, lower or title mapping is not utf8proc's simple one
  kDigits       ranges with Numeric_Type Digit or Decimal (str.isdigit)
  kNumerics     ranges with any numeric value that are not in category N (str.isnumeric)
  kCasedOther   ranges with the properties Other_Uppercase or Other_Lowercase (+1 upper, 0 lower)
"""
import ctypes
import ctypes.util
import sys
import unicodedata

lib = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
for name in ("utf8proc_toupper", "utf8proc_tolower", "utf8proc_totitle"):
    getattr(lib, name).restype = ctypes.c_int32


def ranges(keep):
    out, start = [], None
    for c in range(0x110000):
        if keep(c) and start is None:
            start = c
        elif not keep(c) and start is not None:
            out.append((start, c - 1))
            start = None
    return out


def is_surrogate(c):
    return 0xD800 <= c <= 0xDFFF


print("// Made by scripts/make_case_table.py; do not edit.")
print("constexpr SpecialCase kSpecialCase[] = {")
for c in range(0x110000):
    if is_surrogate(c):
        continue
    ch = chr(c)
    full = [ch.upper(), ch.lower(), ch.title()]
    simple = [chr(lib.utf8proc_toupper(c)), chr(lib.utf8proc_tolower(c)), chr(lib.utf8proc_totitle(c))]
    if full != simple:
        cells = []
        for text in full:
            points = [f"0x{ord(x):04X}" for x in text] + ["0"] * (3 - len(text))
            cells.append("{" + ", ".join(points) + "}")
        print(f"    {{0x{c:04X}, {', '.join(cells)}}},")
print("};")


def table(name, rows):
    print(f"constexpr CharRange {name}[] = {{")
    for row in rows:
        print("    {" + ", ".join(f"0x{x:04X}" for x in row) + "},")
    print("};")


table("kDigits", ranges(lambda c: not is_surrogate(c) and chr(c).isdigit()))
table("kNumerics", ranges(lambda c: not is_surrogate(c) and chr(c).isnumeric()
                          and unicodedata.category(chr(c))[0] != "N"))
table("kOtherUpper", ranges(lambda c: not is_surrogate(c) and chr(c).isupper()
                            and unicodedata.category(chr(c)) != "Lu"))
table("kOtherLower", ranges(lambda c: not is_surrogate(c) and chr(c).islower()
                            and unicodedata.category(chr(c)) != "Ll"))
odd = ranges(lambda c: not is_surrogate(c) and unicodedata.category(chr(c))[0] == "N" and not chr(c).isnumeric())
assert not odd, odd
assert all(chr(c).isupper() for c in range(0x110000) if not is_surrogate(c) and unicodedata.category(chr(c)) == "Lu")
bad = [hex(c) for c in range(0x110000) if not is_surrogate(c) and unicodedata.category(chr(c)) == "Ll" and not chr(c).islower()]
assert not bad, bad
sys.stderr.write("done\n")
