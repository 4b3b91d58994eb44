"""Clients that leave, many at once, sessions by name, several models, the end of the server."""
import http.client
import json
import os
import signal
import socket
import tempfile
import threading
import time
import unittest

from serve_support import MODEL, Server, ServerCase, content

CHAT = "/v1/chat/completions"
TEXTS = [f"The {i}th of many texts that have not been seen before. " * 8 for i in range(200)]


def end_bias(server):
    """Bias that keeps the model from ending its turn, so that a reply is as long as is asked."""
    tokens = server.post("/tokenize", {"content": "<|im_end|><|endoftext|>"})["tokens"]
    return {str(token): -100 for token in [*tokens, 4084]}


def send(server, path, body):
    """Sends a request and leaves the connection open."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    body = json.dumps(body).encode()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\n"
                       b"Content-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
    return connection


def open_stream(server, text, **fields):
    """Sends a chat request and leaves the connection open."""
    return send(server, CHAT, {"messages": [{"role": "user", "content": text}], "stream": True,
                               "temperature": 0, **fields})


def read_until(connection, mark, count=1):
    received = b""
    while received.count(mark) < count:
        part = connection.recv(4096)
        assert part, received
        received += part
    return received


class Departures(ServerCase):
    # Slow on purpose: a step takes long enough to see what happens in it.
    FLAGS = ("--threads", "1", "--kernels", "scalar", "--parallel", "1", "--ping-ms", "100")

    def setUp(self):
        self.server.wait_metric("cellm_requests_generating", 0)

    def test_users_row_62_a_client_that_leaves_frees_its_pages(self):
        """users.md row 62: after token 3 the client closes; at most one further step is made."""
        departed = self.server.metric("cellm_clients_departed_total")
        connection = open_stream(self.server, "Count to a thousand.", max_tokens=900,
                                 logit_bias=end_bias(self.server))
        read_until(connection, b'"content": "', 4)  # the empty one, and three tokens
        connection.close()
        steps = self.server.metric("cellm_steps_total")
        self.server.wait_metric("cellm_running", 0)
        self.assertLessEqual(self.server.metric("cellm_steps_total") - steps, 1)
        self.server.wait_metric("cellm_clients_departed_total", departed + 1)
        self.assertLess(self.server.metric("cellm_steps_total"), 300)

    def test_a_client_that_waits_for_a_whole_reply_leaves(self):
        connection = open_stream(self.server, "Count to a million.", max_tokens=900, stream=False,
                                 logit_bias=end_bias(self.server))
        self.server.wait_metric("cellm_running", 1)
        connection.close()
        steps = self.server.metric("cellm_steps_total")
        self.server.wait_metric("cellm_running", 0)
        self.assertLessEqual(self.server.metric("cellm_steps_total") - steps, 1)

    def test_a_client_that_waits_for_embeddings_leaves(self):
        """While they are evaluated: at most one further step is made, of two hundred texts."""
        departed = self.server.metric("cellm_clients_departed_total")
        connection = send(self.server, "/v1/embeddings", {"input": TEXTS})
        self.server.wait_metric("cellm_running", 1)
        connection.close()
        steps = self.server.metric("cellm_steps_total")
        self.server.wait_metric("cellm_clients_departed_total", departed + 1)
        self.assertLessEqual(self.server.metric("cellm_steps_total") - steps, 1)
        self.assertEqual(self.server.metric("cellm_running"), 0)

    def test_embeddings_whose_client_left_never_start(self):
        """While they wait behind a reply, which goes on."""
        departed = self.server.metric("cellm_clients_departed_total")
        first = open_stream(self.server, "Count to a trillion.", max_tokens=60,
                            logit_bias=end_bias(self.server))
        read_until(first, b'"content": "', 3)
        second = send(self.server, "/v1/embeddings", {"input": TEXTS})
        self.server.wait_metric("cellm_waiting", 1)
        second.close()
        self.server.wait_metric("cellm_clients_departed_total", departed + 1)
        self.assertEqual(self.server.metric("cellm_waiting"), 0)
        self.assertEqual(self.server.metric("cellm_running"), 1)
        read_until(first, b"[DONE]")
        first.close()

    def test_users_row_64_a_queued_request_whose_client_left_never_starts(self):
        """users.md row 64: it is gone before it has a place, and nothing is evaluated for it."""
        first = open_stream(self.server, "Count to a billion.", max_tokens=60,
                            logit_bias=end_bias(self.server))
        read_until(first, b'"content": "', 3)
        self.server.wait_metric("cellm_running", 1)
        second = open_stream(self.server, "A prompt of its own, of quite a few words. " * 8,
                             max_tokens=300)
        self.server.wait_metric("cellm_waiting", 1)
        second.close()
        self.server.wait_metric("cellm_waiting", 0)
        self.assertEqual(self.server.metric("cellm_running"), 1)
        read_until(first, b"[DONE]")
        first.close()
        self.server.wait_metric("cellm_requests_generating", 0)
        steps = self.server.metric("cellm_steps_total")
        time.sleep(0.05)
        self.assertEqual(self.server.metric("cellm_steps_total"), steps)

    def test_pings_while_waiting(self):
        first = open_stream(self.server, "Count.", max_tokens=40,
                            logit_bias=end_bias(self.server))
        read_until(first, b'"content": "', 2)
        chunks, comments = self.server.stream(CHAT, {
            "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})
        self.assertTrue(comments, "no sign of life while another reply was computed")
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
        first.close()


class Load(ServerCase):
    FLAGS = ("--parallel", "8")

    def test_users_row_20_equal_requests_equal_answers(self):
        """users.md row 20: over HTTP, alone or beside others, one text and its replay."""
        alone = self.server.chat("Name three rivers.", max_tokens=24)
        sampled = self.server.chat("Name three rivers.", max_tokens=24, temperature=1, seed=7)
        wanted = [reply["choices"][0]["message"]["content"] for reply in (alone, sampled)]
        texts = []

        def ask(index):
            fields = {"temperature": 1, "seed": 7} if index % 2 else {}
            reply = self.server.chat("Name three rivers.", max_tokens=24, **fields)
            texts.append((index % 2, reply["choices"][0]["message"]["content"]))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(texts), 16)
        for kind, text in texts:
            self.assertEqual(text, wanted[kind])

    def test_two_hundred_connections(self):
        """200 clients on 8 places: all are answered, each with its own reply, and each in turn."""
        replies, failures = {}, []
        expected = {n: self.server.chat(f"Say {n}.", max_tokens=6)["choices"][0]["message"]["content"]
                    for n in range(10)}

        def ask(index):
            try:
                chunks, _ = self.server.stream(CHAT, {
                    "messages": [{"role": "user", "content": f"Say {index % 10}."}],
                    "temperature": 0, "max_tokens": 6})
                replies[index] = content(chunks)
            except Exception as error:  # pylint: disable=broad-except
                failures.append((index, repr(error)))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for index, text in replies.items():
            self.assertEqual(text, expected[index % 10])

    def test_a_conversation_reuses_its_beginning(self):
        messages = [{"role": "user", "content": "Name a river, please, and nothing else."}]
        first = self.server.post(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16})
        messages += [first["choices"][0]["message"], {"role": "user", "content": "Another one?"}]
        second = self.server.post(CHAT, {"messages": messages, "temperature": 0, "max_tokens": 16})
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(cached, first["usage"]["prompt_tokens"] - 1)


class Admission(ServerCase):
    FLAGS = ("--threads", "1", "--kernels", "scalar", "--max-requests", "1")

    def test_429_says_when_to_come_back(self):
        connection = open_stream(self.server, "Count.", max_tokens=400,
                                 logit_bias=end_bias(self.server))
        read_until(connection, b'"content": "', 2)
        status, headers, body = self.server.request(
            "POST", CHAT, {"messages": [{"role": "user", "content": "Hello"}]})
        self.assertEqual(status, 429)
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)
        self.assertEqual(json.loads(body)["error"]["type"], "rate_limit_error")
        connection.close()


class Sessions(unittest.TestCase):
    def test_kept_forked_suspended_resumed_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            messages = [{"role": "user", "content": "What is the capital of France?"}]
            with Server("--sessions", folder) as server:
                first = server.post(CHAT, {"messages": messages, "temperature": 0,
                                           "session_id": "one"})
                messages += [first["choices"][0]["message"], {"role": "user", "content": "Why?"}]
                server.json("POST", "/sessions/one/fork", {"id": "two"})
                self.assertEqual({s["id"] for s in server.json("GET", "/sessions")["data"]},
                                 {"one", "two"})
                wanted = server.post(CHAT, {"messages": messages, "temperature": 0,
                                            "session_id": "two", "max_tokens": 20})
                suspended = server.json("POST", "/sessions/one/suspend", {})
                self.assertEqual(suspended["state"], "suspended")
                self.assertEqual(len(os.listdir(folder)), 1)
                self.assertEqual(server.json("DELETE", "/sessions/two")["deleted"], True)
                server.json("GET", "/sessions/two", status=404)
            with Server("--sessions", folder) as server:
                listed = server.json("GET", "/sessions")["data"]
                self.assertEqual([(s["id"], s["state"]) for s in listed], [("one", "suspended")])
                reply = server.post(CHAT, {"messages": messages, "temperature": 0,
                                           "session_id": "one", "max_tokens": 20})
                self.assertEqual(reply["choices"][0]["message"], wanted["choices"][0]["message"])
                self.assertGreaterEqual(
                    reply["usage"]["prompt_tokens_details"]["cached_tokens"],
                    first["usage"]["prompt_tokens"])
            # The server has ended: what was live is a file again.
            self.assertEqual(len(os.listdir(folder)), 1)

    def test_one_request_at_a_time(self):
        with Server("--threads", "1", "--kernels", "scalar") as server:
            connection = open_stream(server, "Count.", max_tokens=300, session_id="a",
                                     logit_bias=end_bias(server))
            read_until(connection, b'"content": "', 2)
            error = server.chat("Hello", session_id="a", status=409)["error"]
            self.assertEqual(error["code"], "session_busy")
            connection.close()
            server.wait_metric("cellm_requests_generating", 0)
            server.chat("Hello", session_id="a", max_tokens=2)
            server.json("POST", "/sessions/a/suspend", {}, status=409)  # without a folder


class Models(unittest.TestCase):
    def test_two_models_inside_the_budget_are_opened_once(self):
        with Server("--memory", "200M", models=("one=" + MODEL, "two=" + MODEL)) as server:
            listed = server.json("GET", "/v1/models")["data"]
            self.assertEqual([(m["id"], m["loaded"]) for m in listed],
                             [("one", True), ("two", False)])
            for index in range(20):
                name = ("one", "two")[index % 2]
                self.assertEqual(server.chat(model=name, max_tokens=1)["model"], name)
            for name in ("one", "two"):
                self.assertEqual(server.metric("cellm_model_loads_total", model=name), 1)
            error = server.chat(model="three", status=404)["error"]
            self.assertEqual((error["code"], error["param"]), ("model_not_found", "model"))

    def test_one_gives_way_when_both_do_not_fit(self):
        with Server("--memory", "64M", models=("one=" + MODEL, "two=" + MODEL)) as server:
            for name in ("two", "one", "two"):
                server.chat(model=name, max_tokens=2)
                loaded = [m["id"] for m in server.json("GET", "/v1/models")["data"] if m["loaded"]]
                self.assertEqual(loaded, [name])
            self.assertTrue(any("closing one" in line for line in server.lines))


class Stopping(unittest.TestCase):
    def test_a_reply_under_way_is_finished(self):
        server = Server("--threads", "1", "--kernels", "scalar")
        connection = open_stream(server, "Count.", max_tokens=30, logit_bias=end_bias(server))
        read_until(connection, b'"content": "', 3)
        idle = socket.create_connection(("127.0.0.1", server.port))
        server.process.send_signal(signal.SIGTERM)
        rest = read_until(connection, b"[DONE]")
        connection.close()
        self.assertIn(b'"finish_reason": "length"', rest)
        self.assertEqual(server.process.wait(20), 0)
        with self.assertRaises(ConnectionError):
            http.client.HTTPConnection("127.0.0.1", server.port).request("GET", "/health")
        idle.close()
        server.stop()

    def test_twice_at_once(self):
        server = Server("--threads", "1", "--kernels", "scalar")
        connection = open_stream(server, "Count.", max_tokens=900, logit_bias=end_bias(server))
        read_until(connection, b'"content": "', 3)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(20), 0)
        connection.close()
        server.stop()


if __name__ == "__main__":
    unittest.main()
