#!/usr/bin/env python3
"""Checks that no file includes a layer of its own rank or above, and a few rules of the house.

Usage: scripts/check_layers.py [ROOT]. Prints file:line for every offence; exit code 1 if any.
The table below is the one in docs/architecture.md.
"""
import os
import re
import sys

RANKS = {
    "base": 0, "platform": 1, "tensor": 2, "json": 2, "unicode": 2, "format": 3, "regex": 3,
    "kernels": 3, "media": 3, "tokenizer": 4, "jinja": 4, "backend": 4, "constrain": 4, "kv": 5, "sample": 5, "model": 6,
    "engine": 7, "capi": 8,
}
TIERS = {"scalar", "avx2", "avx512", "avx512_vnni", "neon", "neon_dot", "wasm128"}
# Third-party headers, each allowed in one place only.
THIRD_PARTY = {
    "simdjson.h": {"src/json/"}, "utf8proc.h": {"src/unicode/"}, "xxhash.h": {"src/base/hash.cc"},
    "pcre2.h": {"src/regex/"}, "stb_image.h": {"src/media/stb_decoder.cc"},
    "sndfile.h": {"src/media/sndfile_decoder.cc"}, "mpg123.h": {"src/media/mpg123_decoder.cc"},
    "speex_resampler.h": {"src/media/resample_sound.cc"},
}
STD_ONLY_IN_PLATFORM = {"filesystem", "thread", "chrono"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def check_src(path, rel, errors):
    parts = rel.split("/")
    folder = parts[1]
    rank = RANKS.get(folder)
    if rank is None:
        errors.append(f"{rel}:1: src/{folder} is not in the layer table")
        return
    tier = parts[2] if folder == "kernels" and len(parts) > 3 and parts[2] in TIERS else None
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        match = INCLUDE.match(line)
        where = f"{rel}:{number}"
        if match:
            quote, name = match.groups()
            base = os.path.basename(name)
            for header, places in THIRD_PARTY.items():
                if base == header and not any(rel.startswith(p) for p in places):
                    errors.append(f"{where}: {header} may be included only from {sorted(places)}")
            if quote == '"':
                other = name.split("/")[0]
                if other in RANKS and other != folder and RANKS[other] >= rank:
                    errors.append(f"{where}: {folder} (rank {rank}) includes {other} (rank "
                                  f"{RANKS[other]}); only lower ranks are allowed")
            else:
                if name == "iostream" or name == "regex":
                    errors.append(f"{where}: <{name}> is not used in src/")
                if name in STD_ONLY_IN_PLATFORM and folder != "platform":
                    errors.append(f"{where}: <{name}> belongs in src/platform/")
                if name in ("immintrin.h", "arm_neon.h", "wasm_simd128.h") and tier is None:
                    errors.append(f"{where}: intrinsics belong in src/kernels/<tier>/")
            continue
        code = line.split("//")[0]
        if re.search(r"\bstd::function\b", code):
            errors.append(f"{where}: std::function is not used in src/")
        if re.search(r"\bgetenv\s*\(", code) and folder != "platform":
            errors.append(f"{where}: getenv belongs in src/platform/ or tools/")
        if re.search(r"\b(printf|puts|fprintf)\s*\(", code) and rel != "src/base/status.cc":
            errors.append(f"{where}: the library does not print")


def check_tools(path, rel, errors):
    """tools/ reach models only through cellm.h; ranks 0-2 as helpers; what is about files 0-3."""
    tool = rel.split("/")[1]
    limit = 3 if any(part.startswith(("convert", "quantize", "inspect", "synthetic"))
                     for part in rel.split("/")[1:]) else 2
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        match = INCLUDE.match(line)
        if match and match.group(1) == '"':
            other = match.group(2).split("/")[0]
            if other in RANKS and RANKS[other] > limit:
                errors.append(f"{rel}:{number}: tools/{tool} includes {other} (rank "
                              f"{RANKS[other]}); models are reached through cellm/cellm.h")


def check_compat(path, rel, errors):
    """compat/ is a user of the C interface like any other program."""
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        ours = name.split("/")[0] in RANKS or name.startswith("cellm")
        if ours and name not in ("cellm/cellm.h", "cellm_compat/cellm.h"):
            errors.append(f"{rel}:{number}: compat/ includes {name}; it may use cellm/cellm.h and "
                          "its own header")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    root = os.path.abspath(root)
    errors = []
    for top, check in (("src", check_src), ("tools", check_tools), ("compat", check_compat)):
        for folder, _, names in sorted(os.walk(os.path.join(root, top))):
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".inc", ".c")):
                    path = os.path.join(folder, name)
                    rel = os.path.relpath(path, root).replace(os.sep, "/")
                    if rel.count("/") >= 2 or top == "compat":
                        check(path, rel, errors)
    for error in errors:
        print(error)
    print(f"layer check: {len(errors)} offence(s)")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
