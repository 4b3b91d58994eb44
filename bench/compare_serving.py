#!/usr/bin/env python3
"""Times many conversations on one engine beside llama.cpp's batched decoding of the same GGUF file.

    bench/compare_serving.py [MODEL:TYPE ...] [--sessions 1,4,8,16] [--threads 1] [--rounds 3]
    bench/compare_serving.py smollm2-135m:q8_0 smollm2-135m:q4_0 --rounds 5 --json FILE

Ours is the throughput test of `cellm bench --serve`: sessions with a prompt of 64 tokens each reply
at once, with everything a reply has (scheduler, choice of the token, text); the first steps, in
which they start, count. The peer's is the fastest that its library allows: one batch a step with one
row for each sequence at the same depth, logits of all rows, nothing chosen and no text. The goal is
twice its tokens/s at 8 sessions.

Rounds take turns, one process of each program after the other, so that whatever else the machine
does meets both; a figure is the median over rounds, and ratios are against the faster setting of
the peer, file mapped or read into memory. How the peer is had: see bench/compare_peer.py. Exit code
77 when it cannot be had on this machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import compare_peer
from compare_peer import BATCH_DEPTH, PREFILL, Peer


def run_peer(job):
    """The worker process: tokens/s for each number of sequences, as JSON."""
    peer = Peer(job["library"])
    peer.load(job["path"], job["mapped"])
    steps, out = job["steps"], {}
    for count in job["sessions"]:
        batch = peer.lib.llama_batch_init(PREFILL, 0, 1)
        context = peer.context(BATCH_DEPTH + steps + 1, job["threads"], count)
        memory = peer.lib.llama_get_memory(context)
        for s in range(count):
            peer.fill(context, batch, s, BATCH_DEPTH)
        rates = []
        for _ in range(job["repeats"] + 1):
            begin = time.perf_counter()
            for k in range(steps):
                peer.step(context, batch, [(BATCH_DEPTH + k, s, 1) for s in range(count)])
            rates.append(count * steps / (time.perf_counter() - begin))
            for s in range(count):
                peer.lib.llama_memory_seq_rm(memory, s, BATCH_DEPTH, -1)
        out[count] = statistics.median(rates[1:])
        peer.lib.llama_free(context)
    print(json.dumps(out), flush=True)
    os._exit(0)  # the peer's threads need not be waited for


def worker(job):
    return {int(count): rate for count, rate in compare_peer.worker(job, __file__).items()}


def run_cellm(job):
    command = [job["cellm"], "bench", "--serve", "--serve-tests", "throughput", "--model",
               job["path"], "--threads", str(job["threads"]), "--weights", job["weights"],
               "--sessions", ",".join(map(str, job["sessions"])), "--decode", str(job["steps"]),
               "--batch-depth", str(BATCH_DEPTH), "--repeats", str(job["repeats"]), "--quiet",
               "--cache-dir", job["cache"], "--no-ceilings", "--json", "-"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {row["sequences"]: row["median"] for row in result["runs"][0]["results"]
            if row["test"] == "serve-throughput"}


def compare(options, name, path, threads):
    job = {"path": path, "threads": threads, "steps": options.steps, "repeats": options.repeats,
           "sessions": options.sessions, "cellm": options.cellm, "library": options.peer_lib,
           "weights": options.weights, "cache": options.cache_dir}
    own, mapped, loaded = [], [], []
    for _ in range(options.rounds):
        own.append(run_cellm(job))
        mapped.append(worker(dict(job, mapped=True)))
        loaded.append(worker(dict(job, mapped=False)))
    rows = []
    for count in options.sessions:
        ours, theirs_mapped, theirs_loaded = (
            statistics.median(r[count] for r in runs) for runs in (own, mapped, loaded))
        rows.append({"model": name, "threads": threads, "sessions": count, "cellm": ours,
                     "peer_mapped": theirs_mapped, "peer_loaded": theirs_loaded,
                     "ratio": ours / max(theirs_mapped, theirs_loaded)})
        print(f"{name:26} {threads:>3} {count:>8} {ours:>10.4g} {theirs_mapped:>10.4g} "
              f"{theirs_loaded:>10.4g} {rows[-1]['ratio']:>7.2f}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["smollm2-135m:q8_0", "smollm2-135m:q4_0"])
    parser.add_argument("--sessions", default="1,4,8,16")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=32, help="tokens of a reply")
    parser.add_argument("--weights", default="auto", help="cellm's: auto, map or load")
    compare_peer.add_program_arguments(parser)
    options = parser.parse_args()
    if options.peer_worker:
        run_peer(json.load(sys.stdin))
    options.sessions = [int(count) for count in options.sessions.split(",")]
    compare_peer.prepare(options)
    print(f"{'model':26} thr sessions {'cellm':>10} {'peer map':>10} {'peer load':>10} {'ratio':>7}"
          "   tokens/s")
    compare_peer.compare_all(options, compare)


if __name__ == "__main__":
    main()
