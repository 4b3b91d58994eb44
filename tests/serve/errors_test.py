"""What is refused, and how: status codes, the error shape, fields that mean nothing."""
import json
import unittest

from serve_support import ServerCase

USER = [{"role": "user", "content": "Hello"}]
CHAT = "/v1/chat/completions"


class Errors(ServerCase):
    FLAGS = ("--context", "256")

    def refused(self, body, param, code=None, path=CHAT, status=400):
        error = self.server.post(path, body, status=status)["error"]
        self.assertEqual(set(error) - {"needed", "available"}, {"message", "type", "param", "code"})
        self.assertEqual(error["param"], param, error)
        if code is not None:
            self.assertEqual(error["code"], code, error)
        return error

    def test_wrong_types_name_the_field(self):
        for field, value in {"temperature": "hot", "top_p": [], "max_tokens": "many", "n": 1.5,
                             "stream": "yes", "stop": 3, "seed": "x", "logit_bias": "none",
                             "tools": {}, "tool_choice": 1, "logprobs": 1, "stream_options": True,
                             "chat_template_kwargs": "x", "top_k": {}, "response_format": "json",
                             "session_id": 4, "parallel_tool_calls": "no"}.items():
            with self.subTest(field):
                self.refused({"messages": USER, field: value}, field)

    def test_values_out_of_range(self):
        for field, value in {"temperature": -1, "top_p": 2, "min_p": -0.1, "max_tokens": 0, "n": 0,
                             "presence_penalty": 1e9, "top_logprobs": 99,
                             "session_id": "../../etc/passwd"}.items():
            with self.subTest(field):
                self.refused({"messages": USER, "logprobs": True, field: value}, field)

    def test_messages(self):
        self.refused({}, "messages", "missing_required_parameter")
        self.refused({"messages": []}, "messages")
        self.refused({"messages": ["hi"]}, "messages[0]")
        self.refused({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role")
        self.refused({"messages": [{"role": "user"}]}, "messages[0].content")
        self.refused({"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "messages[0].content[0]", "unsupported_content")
        self.server.chat([{"type": "text", "text": "Hello"}], max_tokens=1)

    def test_null_is_not_given(self):
        self.server.chat(top_p=None, stop=None, tools=None, response_format=None, n=None, seed=None,
                         max_tokens=2, logit_bias=None, stream_options=None)

    def test_unknown_fields_are_noted_once(self):
        for _ in range(3):
            self.server.chat(frobnicate=1, max_tokens=1)
        noted = [line for line in self.server.lines if "frobnicate" in line]
        self.assertEqual(len(noted), 1, self.server.lines)

    def test_users_row_29_context_overflow_says_needed_and_available(self):
        """users.md row 29: a client can tell an overflow from other errors, and by how much."""
        text = "word " * 400
        error = self.refused({"messages": [{"role": "user", "content": text}]}, "messages",
                             "context_length_exceeded")
        counted = self.server.post("/count_tokens", {"messages": [{"role": "user",
                                                                   "content": text}]})
        self.assertEqual(counted["context_tokens"], 256)
        self.assertGreaterEqual(error["needed"], counted["input_tokens"])
        self.assertEqual(error["available"], 256)
        error = self.refused({"prompt": text}, "prompt", "context_length_exceeded",
                             "/v1/completions")
        # As a stream it is an error before the stream, not in it.
        self.refused({"messages": [{"role": "user", "content": text}], "stream": True}, "messages",
                     "context_length_exceeded")

    def test_users_row_33_counting_equals_the_usage(self):
        """users.md row 33: what is counted beforehand is what the usage says afterwards."""
        tools = [{"type": "function", "function": {"name": "f", "description": "d",
                                                   "parameters": {"type": "object"}}}]
        conversations = [
            {"messages": USER},
            {"messages": [{"role": "system", "content": "Be brief."}, *USER], "tools": tools},
            {"messages": [*USER, {"role": "assistant", "content": "Hi."},
                          {"role": "user", "content": "Zürich? ☃"}]},
        ]
        for body in conversations:
            counted = self.server.post("/count_tokens", body)["input_tokens"]
            reply = self.server.post(CHAT, {**body, "max_tokens": 1})
            self.assertEqual(reply["usage"]["prompt_tokens"], counted, body)

    def test_users_row_59_broken_calls_in_a_history(self):
        """users.md row 59: what a model once wrote is never the client's fault."""
        for arguments in ('{"a": ', "", "not json", "[1]", "null", '{"a": NaN}', "{" * 500):
            call = {"id": "call_1", "type": "function",
                    "function": {"name": "f", "arguments": arguments}}
            messages = [*USER, {"role": "assistant", "content": None, "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "call_1", "content": "x"}]
            status, _, body = self.server.request("POST", CHAT,
                                                  {"messages": messages, "max_tokens": 1})
            self.assertIn(status, (200, 400), (arguments, body))
            if status == 400:  # the history itself may be too long; nothing else is refused
                self.assertEqual(json.loads(body)["error"]["code"], "context_length_exceeded")

    def test_routing(self):
        self.assertEqual(self.server.request("GET", "/nothing")[0], 404)
        status, headers, _ = self.server.request("GET", CHAT)
        self.assertEqual((status, headers.get("Allow")), (405, "POST"))
        self.assertEqual(self.server.request("POST", CHAT, "{}", {"Content-Type": "text/plain"})[0],
                         415)
        self.assertEqual(self.server.request("HEAD", "/health")[0], 200)
        for body in ("", "[", "[]", '"x"', "{" * 100000, "[" * 100000, '{"a":' * 1000, "\xff\xfe",
                     '{"messages": "\\ud800"}'):
            status, _, text = self.server.request("POST", CHAT, body.encode("latin-1"),
                                                  {"Content-Type": "application/json"})
            self.assertEqual(status, 400, text)
            self.assertEqual(json.loads(text)["error"]["code"], "invalid_json", body[:20])

    def test_other_hosts(self):
        """A page whose name was made to point at this machine is not this machine."""
        for host, wanted in {"evil.example": 403, "evil.example:8080": 403, "127.0.0.1.evil": 403,
                             "localhost.evil": 403, "localhost": 200, "localhost:1": 200,
                             "127.0.0.1:8080": 200, "[::1]:80": 200}.items():
            status, _, _ = self.server.request("GET", "/v1/models", headers={"Host": host})
            self.assertEqual(status, wanted, host)

    def test_paths_lead_nowhere(self):
        for path in ("/../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/./", "/..",
                     "/sessions/../../x", "/v1/models/..%2f..%2fx", "/%2fetc%2fpasswd"):
            self.assertIn(self.server.request("GET", path)[0], (400, 404), path)

    def test_embeddings(self):
        one = self.server.post("/v1/embeddings", {"input": ["Rome", "a river"], "model": "any"})
        self.assertEqual([item["index"] for item in one["data"]], [0, 1])
        vector = one["data"][0]["embedding"]
        self.assertAlmostEqual(sum(x * x for x in vector), 1, places=4)
        alone = self.server.post("/v1/embeddings", {"input": "Rome"})
        self.assertEqual(alone["data"][0]["embedding"], vector)
        for value in ([], "", 3, [[]], [{}], ["x", 3]):
            self.refused({"input": value}, "input", path="/v1/embeddings")
        self.refused({"input": "x", "dimensions": 3}, "dimensions", path="/v1/embeddings")

    def test_text_endpoints(self):
        tokens = self.server.post("/tokenize", {"content": "Zürich ☃ <|im_end|>"})["tokens"]
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens})["content"],
                         "Zürich ☃ <|im_end|>")
        plain = self.server.post("/tokenize", {"content": "<|im_end|>", "parse_special": False})
        self.assertGreater(plain["count"], 1)
        self.refused({"tokens": [-1]}, "tokens", path="/detokenize")
        self.refused({"tokens": [10**9]}, "tokens", path="/detokenize")
        prompt = self.server.post("/apply-template", {"messages": USER})["prompt"]
        self.assertTrue(prompt.endswith("<|im_start|>assistant\n"), prompt)

    def test_models(self):
        listed = self.server.json("GET", "/v1/models")
        self.assertEqual(listed["object"], "list")
        name = listed["data"][0]["id"]
        self.assertEqual(self.server.json("GET", "/v1/models/" + name)["id"], name)
        self.assertEqual(self.server.request("GET", "/v1/models/none")[0], 404)
        # One model answers to every name, as clients with a fixed name need it.
        self.assertEqual(self.server.chat(model="gpt-4o-mini", max_tokens=1)["model"], name)


class Key(ServerCase):
    FLAGS = ("--api-key", "s3cret", "--cors", "https://page.example")

    def test_key(self):
        self.assertEqual(self.server.request("GET", "/health")[0], 200)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            status, _, body = self.server.request("GET", "/v1/models", headers=headers)
            self.assertEqual(status, 401)
            self.assertEqual(json.loads(body)["error"]["code"], "invalid_api_key")
        for headers in ({"Authorization": "Bearer s3cret"}, {"X-Api-Key": "s3cret"}):
            self.assertEqual(self.server.request("GET", "/v1/models", headers=headers)[0], 200)

    def test_cors(self):
        status, headers, _ = self.server.request("OPTIONS", CHAT, headers={
            "Origin": "https://page.example", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,x-stainless-os"})
        self.assertEqual(status, 204)
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://page.example")
        self.assertIn("x-stainless-os", headers["Access-Control-Allow-Headers"])


if __name__ == "__main__":
    unittest.main()
