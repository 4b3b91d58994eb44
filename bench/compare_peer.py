#!/usr/bin/env python3
"""Times cellm and llama.cpp in turns on the same GGUF files and prints medians and ratios.

    bench/compare_peer.py [MODEL:TYPE ...] [--threads 1,2] [--rounds 3] [--json FILE]
    bench/compare_peer.py smollm2-135m:q8_0 qwen2.5-0.5b:q4_0 --tests prefill,decode,batch
    bench/compare_peer.py path/to/file.gguf

Files are random weights at the true shape of a model, written by `cellm bench --synthetic MODEL
--gguf TYPE`, unless a path is given. The peer is the prebuilt llama.cpp of an npm package
(@node-llama-cpp), installed on the first run into a cache folder and driven through its public C
interface; --peer-lib uses another folder with its libraries.

Each round runs one process of each program one after the other, so that whatever else the machine
does meets both; a figure is the median over rounds. The peer is timed in both of its settings, file
mapped and file read into memory, and ratios are against the faster one. What is timed:

    prefill   512 tokens in one batch from an empty state, logits of the last
    decode    one token a step after --depth tokens, logits of each, nothing sampled
    batch     8 sequences, one token each a step, at depth 64: tokens/s of all
    load      opening the model, file cached
    first     load and the first token

Exit code 77 when the peer cannot be had on this machine.
"""
import argparse
import ctypes
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time

PACKAGE_VERSION = "3.21.1"
PREFILL = 512
SEQUENCES = 8
BATCH_DEPTH = 64
SKIPPED = 77
HERE = os.path.dirname(os.path.abspath(__file__))


# ---- the peer's public interface, as of llama.cpp 0.4.0 ------------------------------------------

class ModelParams(ctypes.Structure):
    _fields_ = [("devices", ctypes.c_void_p), ("buffer_overrides", ctypes.c_void_p),
                ("gpu_layers", ctypes.c_int32), ("split_mode", ctypes.c_int32),
                ("load_mode", ctypes.c_int32), ("lazy_mode", ctypes.c_int32),
                ("main_gpu", ctypes.c_int32), ("tensor_split", ctypes.c_void_p),
                ("progress", ctypes.c_void_p), ("progress_user", ctypes.c_void_p),
                ("kv_overrides", ctypes.c_void_p), ("vocab_only", ctypes.c_bool),
                ("check_tensors", ctypes.c_bool), ("extra_buffers", ctypes.c_bool),
                ("no_host", ctypes.c_bool), ("no_alloc", ctypes.c_bool), ("load_mtp", ctypes.c_bool)]


class ContextParams(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in
                ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max",
                 "n_outputs_max_per_seq")]
    _fields_ += [(name, ctypes.c_int32) for name in
                 ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type", "pooling_type",
                  "attention_type", "flash_attn_type")]
    _fields_ += [(name, ctypes.c_float) for name in
                 ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor", "yarn_attn_factor",
                  "yarn_beta_fast", "yarn_beta_slow")]
    _fields_ += [("yarn_orig_ctx", ctypes.c_uint32), ("defrag_thold", ctypes.c_float),
                 ("cb_eval", ctypes.c_void_p), ("cb_eval_user", ctypes.c_void_p),
                 ("type_k", ctypes.c_int32), ("type_v", ctypes.c_int32),
                 ("abort", ctypes.c_void_p), ("abort_user", ctypes.c_void_p)]
    _fields_ += [(name, ctypes.c_bool) for name in
                 ("embeddings", "offload_kqv", "no_perf", "op_offload", "swa_full", "kv_unified")]
    _fields_ += [("samplers", ctypes.c_void_p), ("n_samplers", ctypes.c_size_t),
                 ("ctx_other", ctypes.c_void_p)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)),
                ("embd", ctypes.c_void_p), ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


class Peer:
    """One model in one process."""

    def __init__(self, folder):
        def find(start):
            names = sorted(n for n in os.listdir(folder) if n.startswith(start) and ".so" in n)
            if not names:
                raise SystemExit(f"{folder}: no {start}*.so; is this the peer's library folder?")
            return ctypes.CDLL(os.path.join(folder, names[0]), mode=ctypes.RTLD_GLOBAL)

        find("libggml-base")
        ggml = find("libggml.")
        self.lib = find("libllama.")
        pointer, integer = ctypes.c_void_p, ctypes.c_int32
        signatures = {
            "llama_model_default_params": (ModelParams, []),
            "llama_context_default_params": (ContextParams, []),
            "llama_model_load_from_file": (pointer, [ctypes.c_char_p, ModelParams]),
            "llama_init_from_model": (pointer, [pointer, ContextParams]),
            "llama_free": (None, [pointer]),
            "llama_model_get_vocab": (pointer, [pointer]),
            "llama_vocab_n_tokens": (integer, [pointer]),
            "llama_get_memory": (pointer, [pointer]),
            "llama_memory_clear": (None, [pointer, ctypes.c_bool]),
            "llama_memory_seq_rm": (ctypes.c_bool, [pointer, integer, integer, integer]),
            "llama_batch_init": (Batch, [integer, integer, integer]),
            "llama_decode": (integer, [pointer, Batch]),
            "llama_synchronize": (None, [pointer]),
            "llama_log_set": (None, [pointer, pointer]),
            "llama_backend_init": (None, []),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(
            lambda level, text, user: None)
        self.lib.llama_log_set(ctypes.cast(self.silent, pointer), None)
        self.check_layout()
        ggml.ggml_backend_load_all_from_path.argtypes = [ctypes.c_char_p]
        ggml.ggml_backend_load_all_from_path(folder.encode())
        self.lib.llama_backend_init()

    def check_layout(self):
        """The defaults of that version, read through our layouts."""
        c = self.lib.llama_context_default_params()
        m = self.lib.llama_model_default_params()
        if not (ctypes.sizeof(ModelParams) == 80 and ctypes.sizeof(ContextParams) == 160
                and c.n_batch == 2048 and c.n_ubatch == 512 and c.flash_attn_type == -1
                and c.type_k == 1 and c.type_v == 1 and c.yarn_ext_factor == -1.0
                and m.extra_buffers and m.load_mode == -1):
            raise SystemExit("the peer is another version than this script was written for")

    def load(self, path, mapped):
        params = self.lib.llama_model_default_params()
        params.gpu_layers = 0
        params.load_mode = 1 if mapped else 0
        self.model = self.lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"the peer cannot load {path}")
        self.vocabulary = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.ids = random.Random(7)

    def context(self, tokens, threads, sequences=1):
        params = self.lib.llama_context_default_params()
        params.n_ctx = (tokens + 255) // 256 * 256 * sequences
        params.n_batch = params.n_ubatch = PREFILL
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        context = self.lib.llama_init_from_model(self.model, params)
        if not context:
            raise SystemExit("the peer cannot make a context")
        return context

    def step(self, context, batch, items):
        """items: (position, sequence, wants logits)"""
        batch.n_tokens = len(items)
        for i, (position, sequence, wanted) in enumerate(items):
            batch.token[i] = self.ids.randrange(4, self.vocabulary - 16)
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        if self.lib.llama_decode(context, batch) != 0:
            raise SystemExit("the peer refused a batch")
        self.lib.llama_synchronize(context)

    def fill(self, context, batch, sequence, tokens):
        for begin in range(0, tokens, PREFILL):
            end = min(tokens, begin + PREFILL)
            self.step(context, batch, [(p, sequence, p == tokens - 1) for p in range(begin, end)])


def run_peer(job):
    """The worker process: measures one file in one setting and prints JSON."""
    peer = Peer(job["library"])
    begin = time.perf_counter()
    peer.load(job["path"], job["mapped"])
    out = {"load": 1e3 * (time.perf_counter() - begin)}
    threads, steps, depth = job["threads"], job["steps"], job["depth"]
    batch = peer.lib.llama_batch_init(PREFILL, 0, 1)
    context = peer.context(max(PREFILL, depth) + steps + 1, threads)
    memory = peer.lib.llama_get_memory(context)
    peer.step(context, batch, [(0, 0, 1)])
    out["first"] = 1e3 * (time.perf_counter() - begin)
    peer.lib.llama_memory_clear(memory, False)
    if "prefill" in job["tests"]:
        rates = []
        for _ in range(job["repeats"] + 1):
            begin = time.perf_counter()
            peer.fill(context, batch, 0, PREFILL)
            rates.append(PREFILL / (time.perf_counter() - begin))
            peer.lib.llama_memory_clear(memory, False)
        out["prefill"] = statistics.median(rates[1:])
    if "decode" in job["tests"]:
        peer.fill(context, batch, 0, depth)
        rates = []
        for _ in range(job["repeats"] + 1):
            begin = time.perf_counter()
            for k in range(steps):
                peer.step(context, batch, [(depth + k, 0, 1)])
            rates.append(steps / (time.perf_counter() - begin))
            peer.lib.llama_memory_seq_rm(memory, 0, depth, -1)
        out["decode"] = statistics.median(rates[1:])
    peer.lib.llama_free(context)
    if "batch" in job["tests"]:
        context = peer.context(BATCH_DEPTH + steps + 1, threads, SEQUENCES)
        memory = peer.lib.llama_get_memory(context)
        for s in range(SEQUENCES):
            peer.fill(context, batch, s, BATCH_DEPTH)
        rates = []
        for _ in range(job["repeats"] + 1):
            begin = time.perf_counter()
            for k in range(steps):
                peer.step(context, batch, [(BATCH_DEPTH + k, s, 1) for s in range(SEQUENCES)])
            rates.append(SEQUENCES * steps / (time.perf_counter() - begin))
            for s in range(SEQUENCES):
                peer.lib.llama_memory_seq_rm(memory, s, BATCH_DEPTH, -1)
        out["batch"] = statistics.median(rates[1:])
    print(json.dumps(out), flush=True)
    os._exit(0)  # the peer's threads need not be waited for


# ---- both programs in turns ----------------------------------------------------------------------

def install_peer(folder):
    """The folder of the peer's libraries; exits with 77 when it cannot be had."""
    machine = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(os.uname().machine)
    if os.uname().sysname != "Linux" or machine is None:
        print(f"SKIPPED: no prebuilt peer for {os.uname().sysname} {os.uname().machine}")
        sys.exit(SKIPPED)
    library = os.path.join(folder, "node_modules", "@node-llama-cpp", machine, "bins", machine)
    if not os.path.isdir(library):
        os.makedirs(folder, exist_ok=True)
        package = f"@node-llama-cpp/{machine}@{PACKAGE_VERSION}"
        print(f"installing {package} into {folder}", file=sys.stderr)
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent",
                   "--prefix", folder, package]
        try:
            done = subprocess.run(command, check=False).returncode
        except FileNotFoundError:
            done = 1
        if done != 0 or not os.path.isdir(library):
            print("SKIPPED: the peer's package cannot be installed (npm, network?)")
            sys.exit(SKIPPED)
    return library


def run_cellm(job):
    tests = ",".join(t for t in job["tests"] if t in ("prefill", "decode", "batch")) + ",load"
    command = [job["cellm"], "bench", "--model", job["path"], "--threads", str(job["threads"]),
               "--weights", job["weights"], "--tests", tests, "--prefill", str(PREFILL),
               "--decode", str(job["steps"]), "--depths", str(job["depth"]),
               "--batches", str(SEQUENCES), "--repeats", str(job["repeats"]), "--warmup", "1",
               "--quiet", "--json", "-"]
    if not job["ceilings"]:
        command.append("--no-ceilings")
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    rows = {row["test"]: row for row in result["runs"][0]["results"]}
    out = {test: row["median"] for test, row in rows.items()}
    out["shares"] = {test: row["share"] for test, row in rows.items() if "share" in row}
    # A process of its own, as somebody would start it: load and the first token.
    begin = time.perf_counter()
    subprocess.run([job["cellm"], "infer", "-m", job["path"], "--tokens", "5", "--gen", "1",
                    "--threads", str(job["threads"]), "--weights", job["weights"],
                    "--temperature", "0", "--quiet"], check=True, capture_output=True)
    out["first"] = 1e3 * (time.perf_counter() - begin)
    return out


def worker(job, script=__file__):
    """run_peer() of `script` in a process of its own, so that no setting leaves memory behind."""
    done = subprocess.run([sys.executable, os.path.abspath(script), "--peer-worker"],
                          input=json.dumps(job), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the peer failed on {job['path']}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def model_file(options, model):
    """The path of a model, which is one or "SHAPE:TYPE" for random weights; in the page cache for both alike."""
    path = model
    if re.fullmatch(r"[a-z0-9.-]+:[a-z0-9_]+", model):
        shape, kind = model.split(":")
        written = subprocess.run([options.cellm, "bench", "--synthetic", shape, "--gguf", kind,
                                  "--cache-dir", options.cache_dir, "--write-only"],
                                 check=True, stdout=subprocess.PIPE, text=True)
        path = written.stdout.strip()
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass
    return path


def medians(rounds, test):
    values = [r[test] for r in rounds if test in r]
    return statistics.median(values) if values else None


def compare(options, name, path, threads):
    common = {"path": path, "threads": threads, "steps": options.steps, "depth": options.depth,
              "repeats": options.repeats, "tests": options.tests, "cellm": options.cellm,
              "library": options.peer_lib, "weights": options.weights}
    mapped, loaded, own = [], [], []
    for number in range(options.rounds):
        own.append(run_cellm(dict(common, ceilings=number == 0)))
        mapped.append(worker(dict(common, mapped=True)))
        loaded.append(worker(dict(common, mapped=False)))
    rows = []
    for test in ["prefill", "decode", "batch", "load", "first"]:
        ours = medians(own, test)
        theirs = [medians(mapped, test), medians(loaded, test)]
        if ours is None or None in theirs:
            continue
        is_time = test in ("load", "first")
        best = min(theirs) if is_time else max(theirs)
        rows.append({"model": name, "threads": threads, "test": test,
                     "unit": "ms" if is_time else "tokens/s", "cellm": ours,
                     "peer_mapped": theirs[0], "peer_loaded": theirs[1],
                     "ratio": best / ours if is_time else ours / best,
                     "share": own[0]["shares"].get(test)})
    for row in rows:
        share = "" if row["share"] is None else f"{100 * row['share']:.0f}%"
        print(f"{row['model']:26} {row['threads']:>3} {row['test']:8} {row['cellm']:>10.4g} "
              f"{row['peer_mapped']:>10.4g} {row['peer_loaded']:>10.4g} {row['ratio']:>7.2f} "
              f"{share:>7}  {row['unit']}", flush=True)
    return rows


def add_program_arguments(parser):
    """Flags that every comparison with the peer has."""
    parser.add_argument("--cellm", default=os.path.join(HERE, "..", "build", "release", "tools",
                                                        "cellm", "cellm"))
    parser.add_argument("--cache-dir", default=os.path.expanduser("~/.cache/cellm"))
    parser.add_argument("--peer-lib", help="folder of the peer's libraries")
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--peer-worker", action="store_true", help=argparse.SUPPRESS)


def prepare(options):
    """Finds or installs the peer; exits with 77 when it cannot be had."""
    options.peer_lib = options.peer_lib or install_peer(os.path.join(options.cache_dir, "peer"))


def compare_all(options, compare_one):
    """Rows of compare_one(options, name, path, threads) for each model, written to --json."""
    rows = []
    for model in options.models:
        path = model_file(options, model)
        for threads in options.threads.split(","):
            rows += compare_one(options, os.path.basename(model), path, int(threads))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["smollm2-135m:q8_0", "smollm2-135m:q4_0"])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=32, help="tokens of a decode test")
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--tests", default="prefill,decode,batch")
    parser.add_argument("--weights", default="auto", help="cellm's: auto, map or load")
    add_program_arguments(parser)
    options = parser.parse_args()
    if options.peer_worker:
        run_peer(json.load(sys.stdin))
    options.tests = options.tests.split(",")
    prepare(options)
    print(f"{'model':26} thr {'test':8} {'cellm':>10} {'peer map':>10} {'peer load':>10} "
          f"{'ratio':>7} {'ceiling':>7}")
    compare_all(options, compare)


if __name__ == "__main__":
    main()
