"""Clients that mean no good, or know no better: nothing of it ends the server, makes it grow or
keeps others waiting."""
import json
import os
import socket
import threading
import time
import unittest

from serve_support import ServerCase

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def status(reply):
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else None


class Hostile(ServerCase):
    FLAGS = ("--max-body", "1M", "--max-connections", "64")

    def tearDown(self):
        # Whatever a test did, the next client is served.
        self.assertIn("Paris", self.server.chat()["choices"][0]["message"]["content"])

    def test_huge_bodies(self):
        self.assertEqual(status(self.server.raw(HEAD + b"Content-Length: 9999999999\r\n\r\n")), 413)
        self.assertEqual(status(self.server.raw(
            HEAD + b"Content-Length: 2000000\r\n\r\n" + b"x" * 2000000)), 413)
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        self.assertEqual(status(self.server.raw(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40)), 413)

    def test_huge_heads(self):
        self.assertEqual(status(self.server.raw(b"GET / HTTP/1.1\r\nA: " + b"x" * 100000)), 431)
        self.assertEqual(status(self.server.raw(
            b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 500 + b"\r\n")), 431)
        self.assertEqual(status(self.server.raw(b"GET /" + b"x" * 10000 + b" HTTP/1.1\r\n"
                                                b"Host: localhost\r\n\r\n")), 414)

    def test_what_is_no_http(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(200) + b"\r\n\r\n",
                     b"GET / HTTP/3.0\r\n\r\n", b"\r\n\r\n", b"\x00" * 1000 + b"\r\n\r\n",
                     b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                     b"GET / HTTP/1.1\nHost: x\n\n" + b"\r\n\r\n"):
            with self.subTest(data[:20]):
                self.assertIn(status(self.server.raw(data, half_close=True)), (400, 505))
        # Cut off at every point: no reply, or an error, and never a hang.
        whole = HEAD + b"Content-Length: 2\r\n\r\n{}"
        for cut in range(0, len(whole), 7):
            self.server.raw(whole[:cut], half_close=True)

    def test_pipelined_requests_are_answered_in_order(self):
        data = (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
                b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        reply = self.server.raw(data)
        self.assertEqual([part[:3] for part in reply.split(b"HTTP/1.1 ")[1:]],
                         [b"200", b"404", b"200"])

    def test_old_clients(self):
        body = json.dumps({"messages": [{"role": "user", "content": "Hello"}], "stream": True,
                           "max_tokens": 2}).encode()
        reply = self.server.raw(
            b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.assertNotIn(b"chunked", reply)
        self.assertTrue(reply.endswith(b"data: [DONE]\n\n"))

    def test_expect_continue(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=20) as connection:
            connection.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 100 "))
            connection.sendall(b"{}")
            self.assertEqual(status(connection.recv(65536)), 400)

    def test_slow_heads_do_not_keep_others_out(self):
        """Slowloris: a byte now and then does not extend the time that a head has."""
        slow = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(60)]
        for connection in slow:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost")
        begin = time.monotonic()
        self.server.chat(max_tokens=4)
        self.assertLess(time.monotonic() - begin, 5)
        if os.environ.get("CELLM_TEST_LONG"):
            ended = 0
            for _ in range(150):
                time.sleep(0.1)
                for connection in slow:
                    try:
                        connection.sendall(b"a")
                    except OSError:
                        ended += 1
            self.assertGreater(ended, 0)
            self.server.wait_metric("cellm_http_connections", 1)
        for connection in slow:
            connection.close()

    def test_more_connections_than_are_taken(self):
        connections = [socket.create_connection(("127.0.0.1", self.server.port))
                       for _ in range(70)]
        time.sleep(0.2)
        refused = 0
        for connection in connections:
            connection.settimeout(0.05)
            try:
                refused += connection.recv(100).startswith(b"HTTP/1.1 503 ")
            except (TimeoutError, ConnectionResetError):
                pass
            connection.close()
        self.assertGreaterEqual(refused, 1)
        self.server.wait_metric("cellm_http_connections", 1)

    def test_a_client_that_does_not_read(self):
        """Its reply stands still; the others' do not."""
        lazy = socket.socket()
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        lazy.connect(("127.0.0.1", self.server.port))
        body = json.dumps({"messages": [{"role": "user", "content": "Count."}], "stream": True,
                           "logprobs": True, "top_logprobs": 20, "max_tokens": 900}).encode()
        lazy.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        for _ in range(3):
            self.server.chat(max_tokens=8)
        lazy.close()
        self.server.wait_metric("cellm_requests_generating", 0)

    def test_deep_and_odd_json(self):
        deep = {"messages": [{"role": "user", "content": "x"}], "metadata": None}
        text = json.dumps(deep)[:-len("null}")] + "[" * 100 + "]" * 100 + "}"
        for body, wanted in ((text, 200), (text.replace("[" * 100, "[" * 5000), 400),
                             ('{"messages": [{"role": "user", "content": "a\\u0000b"}], '
                              '"max_tokens": 1}', 200)):
            got, _, reply = self.server.request("POST", "/v1/chat/completions", body,
                                                {"Content-Type": "application/json"})
            self.assertEqual(got, wanted, reply)

    def test_many_at_once_of_all_kinds(self):
        stop = time.monotonic() + 2
        failures = []

        def abuse(seed):
            kinds = (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD + b"Content-Length: 2\r\n\r\n{}",
                     b"nonsense\r\n\r\n", HEAD + b"Content-Length: 500\r\n\r\n{")
            while time.monotonic() < stop:
                seed += 1
                try:
                    with socket.create_connection(("127.0.0.1", self.server.port), 5) as connection:
                        connection.sendall(kinds[seed % len(kinds)])
                        if seed % 3:
                            connection.settimeout(0.05)
                            connection.recv(1000)
                except TimeoutError:
                    pass
                except OSError:
                    pass
                if self.server.process.poll() is not None:
                    failures.append("the server ended")
                    return

        threads = [threading.Thread(target=abuse, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.server.wait_metric("cellm_requests_generating", 0)


class FlatMemory(ServerCase):
    FLAGS = ("--past-memory", "8M")

    def test_requests_leave_nothing_behind(self):
        """10,000 requests in the long run, 100 otherwise: memory after them is memory before."""
        count = 10000 if os.environ.get("CELLM_TEST_LONG") else 100
        connection = self.server.connect()

        def ask(number):
            body = json.dumps({"messages": [{"role": "user", "content": f"Say {number}."}],
                               "max_tokens": 4, "stream": number % 2 == 0, "n": 1 + number % 2})
            connection.request("POST", "/v1/chat/completions", body,
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200

        # The kept beginnings fill their share of memory first; what grows after that is a leak.
        warm_up = count // 2
        for number in range(warm_up):
            ask(number)
        before = self.server.memory_kb()
        for number in range(warm_up, warm_up + count):
            ask(number)
        after = self.server.memory_kb()
        kept = self.server.metric("cellm_kept_bytes") / 1024
        print(f"memory: {before} kB before, {after} kB after {count} requests; "
              f"{kept:.0f} kB kept for reuse")
        if count >= 10000:
            self.assertLess(after - before, count * 1)  # users.md row 75: below 1 kB a request


if __name__ == "__main__":
    unittest.main()
