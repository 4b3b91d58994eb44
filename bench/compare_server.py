#!/usr/bin/env python3
"""Times `cellm serve` beside a small server around llama.cpp's batched decoding, on the same file.

    bench/compare_server.py [MODEL:TYPE ...] [--clients 1,4,8,16] [--requests 4] [--rounds 3]
    bench/compare_server.py smollm2-135m:q8_0 --threads 1 --json FILE

Clients send streamed completions over HTTP, each its next request when it has the reply to the one
before: --prompt random token ids in, --reply tokens out, greedy. Measured at the
client: time to the first token, time between tokens, tokens/s of all clients together. No two
prompts begin alike, so nothing is reused.

Ours is the program as users start it. The peer has a server of its own, but its package for npm does
not bring it; the one in this script is the least that does the job: a thread a connection, one loop
that in each step decodes one token of every running reply and as much of waiting prompts as a batch
of 512 still takes, the choice made by the peer's greedy sampler, ids in place of text.

Rounds take turns, one server after the other, so that whatever else the machine does meets both; a
figure is the median over rounds of a percentile within a round. The peer's weights are read into
memory, its faster setting here. How the peer is had: see bench/compare_peer.py. Exit code 77 when it
cannot be had on this machine.
"""
import argparse
import asyncio
import ctypes
import http.server
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import threading
import time

import compare_peer
from compare_peer import PREFILL, Peer


# ---- a server around the peer --------------------------------------------------------------------

class Reply:
    """A request of the peer's server: its prompt, where it is, and the queue that its tokens go to."""

    def __init__(self, prompt, count):
        self.prompt, self.left, self.tokens = prompt, count, queue.Queue()
        self.done, self.last, self.sequence = 0, None, None


class PeerEngine:
    """One thread that decodes for all replies."""

    def __init__(self, job):
        self.peer = Peer(job["library"])
        lib = self.peer.lib
        lib.llama_sampler_init_greedy.restype = ctypes.c_void_p
        lib.llama_sampler_sample.restype = ctypes.c_int32
        lib.llama_sampler_sample.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32]
        self.peer.load(job["path"], False)
        self.slots = job["slots"]
        self.context = self.peer.context(job["prompt"] + job["reply"] + 1, job["threads"], self.slots)
        self.batch = lib.llama_batch_init(PREFILL, 0, 1)
        self.sampler = lib.llama_sampler_init_greedy()
        self.waiting = queue.Queue()

    def run(self):
        lib, batch, running = self.peer.lib, self.batch, []
        memory = lib.llama_get_memory(self.context)
        free = list(range(self.slots))
        while True:
            while free and (not running or not self.waiting.empty()):
                reply = self.waiting.get()
                reply.sequence = free.pop()
                running.append(reply)
            items, wanted = [], []
            for reply in running:  # replies under way first
                if reply.last is not None:
                    wanted.append((len(items), reply))
                    items.append((reply.last, reply.done, reply.sequence, 1))
                    reply.done += 1
            for reply in running:
                if reply.last is None:
                    take = min(PREFILL - len(items), len(reply.prompt) - reply.done)
                    for token in reply.prompt[reply.done:reply.done + take]:
                        reply.done += 1
                        last = reply.done == len(reply.prompt)
                        if last:
                            wanted.append((len(items), reply))
                        items.append((token, reply.done - 1, reply.sequence, int(last)))
            batch.n_tokens = len(items)
            for i, (token, position, sequence, logits) in enumerate(items):
                batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
                batch.seq_id[i][0], batch.logits[i] = sequence, logits
            if lib.llama_decode(self.context, batch) != 0:
                os._exit(1)
            for i, reply in wanted:
                reply.last = lib.llama_sampler_sample(self.sampler, self.context, i)
                reply.left -= 1
                reply.tokens.put(reply.last)
                if reply.left == 0:
                    reply.tokens.put(None)
                    lib.llama_memory_seq_rm(memory, reply.sequence, -1, -1)
                    free.append(reply.sequence)
                    running.remove(reply)


def run_peer(job):
    """The peer's server: prints its port and serves until it is killed."""
    engine = PeerEngine(job)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = Reply(body["prompt"], body["max_tokens"])
            engine.waiting.put(reply)
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            while (token := reply.tokens.get()) is not None:
                self.wfile.write(b'data: {"choices":[{"text":"%d"}]}\n\n' % token)
            self.wfile.write(b"data: [DONE]\n\n")
            self.close_connection = True

        def log_message(self, *arguments):
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=engine.run, daemon=True).start()
    print(server.server_address[1], flush=True)
    server.serve_forever()


# ---- clients -------------------------------------------------------------------------------------

async def request(port, ids, count):
    """Times at which the tokens of one reply arrived, after the one at which it was asked for."""
    body = json.dumps({"prompt": ids, "max_tokens": count, "stream": True,
                       "temperature": 0}).encode()
    times = [time.perf_counter()]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readline()
    if b" 200 " not in status:
        sys.exit(f"{status.decode().strip()}: {(await reader.read()).decode()[-300:]}")
    while True:
        line = await reader.readline()
        if not line:
            sys.exit("a stream ended before [DONE]")
        if line.startswith(b"data: "):
            if b"[DONE]" in line:
                break
            choices = json.loads(line[6:]).get("choices")
            if choices and choices[0].get("finish_reason") == "stop":
                sys.exit("a reply ended early: its tokens cannot be counted")
            if choices and choices[0].get("text"):
                times.append(time.perf_counter())
    writer.close()
    return times


async def load(port, clients, options, vocabulary):
    """Every reply's times, and the seconds that all took."""
    async def client(number):
        random_ids = random.Random(1000 * clients + number)
        return [await request(port, [random_ids.randrange(4, vocabulary - 16)
                                     for _ in range(options.prompt)], options.reply)
                for _ in range(options.requests)]
    begin = time.perf_counter()
    done = await asyncio.gather(*(client(number) for number in range(clients)))
    return [times for replies in done for times in replies], time.perf_counter() - begin


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def measure(port, clients, options, vocabulary):
    asyncio.run(request(port, [5] * options.prompt, 4))  # warm-up
    replies, seconds = asyncio.run(load(port, clients, options, vocabulary))
    first = [1e3 * (times[1] - times[0]) for times in replies]
    # Tokens that come in one piece of the stream count as one, late by what they waited for.
    between = [1e3 * (b - a) for times in replies for a, b in zip(times[1:], times[2:])]
    return {"first_p50": percentile(first, 0.5), "first_p95": percentile(first, 0.95),
            "between_p50": percentile(between, 0.5), "between_p95": percentile(between, 0.95),
            "tokens_per_second": len(replies) * options.reply / seconds}


# ---- both in turns -------------------------------------------------------------------------------

def start_cellm(options, path, threads):
    process = subprocess.Popen(
        [options.cellm, "serve", "--model", path, "--port", "0", "--threads", str(threads),
         "--context", str(options.prompt + options.reply + 8)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if "http://127.0.0.1:" in line:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(line.split("http://127.0.0.1:")[1].split()[0].strip("/"))
    sys.exit("cellm serve did not start")


def start_peer(options, path, threads):
    job = {"path": path, "threads": threads, "library": options.peer_lib, "prompt": options.prompt,
           "reply": options.reply, "slots": max(options.clients)}
    process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--peer-worker"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stdin.write(json.dumps(job))
    process.stdin.close()
    return process, int(process.stdout.readline())


def compare(options, name, path, threads):
    rounds = {(who, clients): [] for who in ("cellm", "peer") for clients in options.clients}
    for _ in range(options.rounds):
        for who, start in (("cellm", start_cellm), ("peer", start_peer)):
            process, port = start(options, path, threads)
            try:
                for clients in options.clients:
                    rounds[who, clients].append(measure(port, clients, options, options.vocabulary))
            finally:
                process.kill()
                process.wait()
    rows = []
    for clients in options.clients:
        row = {"model": name, "threads": threads, "clients": clients}
        for who in ("cellm", "peer"):
            row[who] = {key: statistics.median(r[key] for r in rounds[who, clients])
                        for key in rounds[who, clients][0]}
            a = row[who]
            print(f"{name:24} {threads:>3} {clients:>7} {who:6} {a['first_p50']:>8.1f} "
                  f"{a['first_p95']:>8.1f} {a['between_p50']:>8.2f} {a['between_p95']:>8.2f} "
                  f"{a['tokens_per_second']:>9.1f}", flush=True)
        row["ratio"] = row["cellm"]["tokens_per_second"] / row["peer"]["tokens_per_second"]
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["smollm2-135m:q8_0", "smollm2-135m:q4_0"])
    parser.add_argument("--clients", default="1,4,8,16")
    parser.add_argument("--requests", type=int, default=4, help="of each client, one by one")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--reply", type=int, default=48, help="tokens of a reply")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=32000, help="ids below this are sent")
    compare_peer.add_program_arguments(parser)
    options = parser.parse_args()
    if options.peer_worker:
        run_peer(json.load(sys.stdin))
    options.clients = [int(count) for count in options.clients.split(",")]
    compare_peer.prepare(options)
    print(f"{'model':24} thr clients {'':6} first p50  and p95  next p50  and p95  tokens/s   (ms)")
    compare_peer.compare_all(options, compare)


if __name__ == "__main__":
    main()
