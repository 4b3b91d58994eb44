"""Starts a cellm server on a free port and talks to it: through http.client where the shape of a
reply matters, through bare sockets where the bytes do."""
import http.client
import json
import os
import re
import socket
import subprocess
import threading
import time
import unittest

CELLM = os.environ.get("CELLM_BINARY", "")
MODEL = os.environ.get("CELLM_TEST_MODEL", "")
START_SECONDS = 60


class Server:
    """A server process. Use as a context manager, or call stop()."""

    def __init__(self, *flags, models=(), environment=None):
        arguments = [CELLM, "serve", "--port", "0"]
        for model in models or (MODEL,):
            arguments += ["--model", model]
        environment = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(arguments + list(flags), stderr=subprocess.PIPE,
                                        stdout=subprocess.DEVNULL, text=True, env=environment)
        self.lines = []
        self.port = None
        started = threading.Event()

        def read():
            for line in self.process.stderr:
                self.lines.append(line.rstrip("\n"))
                found = re.match(r"serve: http://\S+:(\d+)", line)
                if found:
                    self.port = int(found.group(1))
                    started.set()
            started.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        if not started.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            raise AssertionError("the server did not start: " + "\n".join(self.lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, seconds=20):
        """Ends it as a service manager does; returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the server did not stop: " + "\n".join(self.lines[-5:]))
        self.reader.join(5)
        self.process.stderr.close()
        return code

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body bytes)"""
        connection = self.connect()
        try:
            headers = dict(headers or {})
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body=body, headers=headers)
            reply = connection.getresponse()
            return reply.status, dict(reply.getheaders()), reply.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=None, status=200):
        got, _, text = self.request(method, path, body, headers)
        assert got == status, f"{method} {path}: {got} instead of {status}: {text[:500]!r}"
        return json.loads(text)

    def post(self, path, body, status=200):
        return self.json("POST", path, body, status=status)

    def chat(self, text="What is the capital of France?", status=200, **fields):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}
        return self.post("/v1/chat/completions", body, status)

    def stream(self, path, body):
        """All events of a stream: a list of parsed chunks, without the final [DONE], and the
        comments."""
        body = {**body, "stream": True}
        status, headers, text = self.request("POST", path, body)
        assert status == 200, text
        assert headers["Content-Type"].startswith("text/event-stream"), headers
        return parse_events(text.decode("utf-8"))

    def events(self, path, body):
        """All events of a stream with names, as /v1/responses has them: a list of parsed data."""
        status, headers, text = self.request("POST", path, {**body, "stream": True})
        assert status == 200, text
        assert headers["Content-Type"].startswith("text/event-stream"), headers
        events = []
        for number, event in enumerate(e for e in text.decode("utf-8").split("\n\n") if e):
            name, data = event.split("\n")
            data = json.loads(data.removeprefix("data: "))
            assert name == "event: " + data["type"], event
            assert data["sequence_number"] == number, event
            events.append(data)
        return events

    def metric(self, name, **labels):
        """The value of a metric; the sum over labels that were not named."""
        status, _, text = self.request("GET", "/metrics")
        assert status == 200
        total = 0.0
        for line in text.decode().splitlines():
            match = re.match(r"(\w+)(\{[^}]*\})? (\S+)$", line)
            if not match or match.group(1) != name:
                continue
            if all(f'{key}="{value}"' in (match.group(2) or "") for key, value in labels.items()):
                total += float(match.group(3))
        return total

    def wait_metric(self, name, value, seconds=20, **labels):
        end = time.monotonic() + seconds
        while self.metric(name, **labels) != value:
            assert time.monotonic() < end, f"{name} is {self.metric(name, **labels)}, not {value}"
            time.sleep(0.01)

    def raw(self, data, timeout=30, half_close=False):
        """Sends bytes and reads until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            try:
                connection.sendall(data)
                if half_close:
                    connection.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it answers before it has read everything
            received = b""
            while True:
                try:
                    part = connection.recv(65536)
                except ConnectionResetError:
                    return received
                if not part:
                    return received
                received += part

    def memory_kb(self):
        """Resident and swapped memory of the server."""
        total = 0
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith(("RssAnon:", "VmSwap:")):
                    total += int(line.split()[1])
        return total


def parse_events(text):
    chunks, comments, done = [], [], False
    for event in text.split("\n\n"):
        if not event:
            continue
        assert not done, f"something after [DONE]: {event!r}"
        if event.startswith(":"):
            comments.append(event[1:].strip())
        elif event == "data: [DONE]":
            done = True
        else:
            assert event.startswith("data: "), repr(event)
            chunks.append(json.loads(event[6:]))
    assert done, "no [DONE]"
    return chunks, comments


def content(chunks, index=0):
    return "".join(choice["delta"].get("content") or "" for chunk in chunks
                   for choice in chunk["choices"] if choice["index"] == index)


class ServerCase(unittest.TestCase):
    """Tests that share one server."""

    FLAGS = ()
    MODELS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.FLAGS, models=cls.MODELS)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        if code != 0:
            raise AssertionError(f"exit code {code}: " + "\n".join(cls.server.lines[-20:]))
