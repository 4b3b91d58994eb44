#!/usr/bin/env python3
"""Encodes 1 MB of text with cellm and with the reference library, in turns, on one thread.

    bench/compare_tokenizer.py [TOKENIZER.json ...] [--cellm PATH] [--cache-dir FOLDER]

The reference is Hugging Face's Rust library `tokenizers`, as prebuilt in an npm package
(@anush008/tokenizers), installed on the first run into a cache folder. The text is this project's
documents and headers: prose, tables and code. Without names, the tokenizers that
scripts/fetch_test_tokenizers.sh fetched into build/test-tokenizers are taken. Ids are compared, too.
Exit code 77 when the reference cannot be had.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys

PACKAGE = "@anush008/tokenizers@0.6.0"
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
ROUNDS = 3
SOME = ["llama3", "qwen3", "gemma3", "gpt2", "mistral_nemo"]
SCRIPT = """
const fs = require('fs');
const { Tokenizer } = require('@anush008/tokenizers');
(async () => {
  let begin = process.hrtime.bigint();
  const tokenizer = Tokenizer.fromFile(process.argv[2]);
  const load = Number(process.hrtime.bigint() - begin) / 1e6;
  const text = fs.readFileSync(process.argv[3], 'utf8');
  const times = [];
  let ids;
  for (let i = 0; i < 4; i++) {
    begin = process.hrtime.bigint();
    const encoding = await tokenizer.encode(text, null, { addSpecialTokens: false });
    times.push(Number(process.hrtime.bigint() - begin) / 1e9);
    ids = encoding.getIds();
  }
  times.shift();
  times.sort((a, b) => a - b);
  console.log(JSON.stringify({ load, seconds: times[1], ids: Array.from(ids) }));
})();
"""


def sample_text():
    names = sorted(glob.glob(os.path.join(ROOT, "docs", "*.md"))) + sorted(
        glob.glob(os.path.join(ROOT, "src", "*", "*.h")))
    text = ""
    while len(text) < 1000000:
        for name in names:
            with open(name, encoding="utf-8") as file:
                text += file.read()
    return text[:1000000]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--cellm", default=os.path.join(ROOT, "build", "release", "tools", "cellm",
                                                        "cellm"))
    parser.add_argument("--cache-dir", default=os.path.expanduser("~/.cache/cellm"))
    options = parser.parse_args()
    names = options.tokenizers or [
        path for path in (os.path.join(ROOT, "build", "test-tokenizers", f"{name}.json")
                          for name in SOME) if os.path.exists(path)]
    if not names:
        print("SKIPPED: no tokenizers (run scripts/fetch_test_tokenizers.sh)")
        sys.exit(77)
    folder = os.path.join(options.cache_dir, "tokenizer-reference")
    if not os.path.isdir(os.path.join(folder, "node_modules")):
        os.makedirs(folder, exist_ok=True)
        try:
            failed = subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit",
                                     "--no-fund", "--silent", "--prefix", folder, PACKAGE],
                                    check=False).returncode
        except FileNotFoundError:
            failed = 1
        if failed:
            print("SKIPPED: the reference library cannot be installed (npm, network?)")
            sys.exit(77)
    script = os.path.join(folder, "encode.cjs")
    text_path = os.path.join(folder, "text.txt")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    text = sample_text()
    with open(text_path, "w", encoding="utf-8") as file:
        file.write(text)
    size = len(text.encode()) / 1e6
    print(f"{'tokenizer':20} {'cellm MB/s':>10} {'reference':>10} {'ratio':>6}  ids")
    for path in names:
        own, theirs, reference = [], [], None
        for _ in range(ROUNDS):
            out = subprocess.run(
                [options.cellm, "bench", "--tokenizer", path, "--tests", "encode", "--text",
                 text_path, "--repeats", "3", "--no-ceilings", "--quiet", "--json", "-"],
                check=True, capture_output=True, text=True)
            own.append(json.loads(out.stdout)["runs"][0]["results"][0]["median"])
            done = subprocess.run(["node", script, path, text_path], check=True,
                                  capture_output=True, text=True)
            reference = json.loads(done.stdout)
            theirs.append(size / reference["seconds"])
        ids = subprocess.run([options.cellm, "tokenize", "--parse-special", "--tokenizer", path], check=True,
                             stdin=open(text_path, "rb"), capture_output=True, text=True)
        same = [int(i) for i in ids.stdout.replace("\n", "").split(",")] == reference["ids"]
        ours, other = statistics.median(own), statistics.median(theirs)
        print(f"{os.path.basename(path):20} {ours:10.1f} {other:10.2f} {ours / other:6.1f}  "
              f"{'equal' if same else 'DIFFERENT'}", flush=True)


if __name__ == "__main__":
    main()
