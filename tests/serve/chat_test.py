"""/v1/chat/completions and /v1/completions: shapes, parameters, streaming."""
import subprocess
import unittest

from serve_support import CELLM, MODEL, ServerCase, content

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


class Chat(ServerCase):
    def test_shape(self):
        reply = self.server.chat()
        self.assertEqual(reply["object"], "chat.completion")
        self.assertTrue(reply["id"].startswith("chatcmpl-"))
        choice, = reply["choices"]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertIn("Paris", choice["message"]["content"])
        self.assertEqual(choice["finish_reason"], "stop")
        usage = reply["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual(reply["timings"]["predicted_n"], usage["completion_tokens"])

    def test_stream_is_the_whole_in_pieces(self):
        whole = self.server.chat()
        chunks, _ = self.server.stream("/v1/chat/completions", {
            "messages": CAPITAL, "temperature": 0, "stream_options": {"include_usage": True}})
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(content(chunks), whole["choices"][0]["message"]["content"])
        finishes = [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]]
        self.assertEqual(finishes, [None] * (len(finishes) - 1) + ["stop"])
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"],
                         whole["usage"]["completion_tokens"])
        self.assertIn("predicted_ms", chunks[-1]["timings"])

    def test_no_usage_unless_asked(self):
        chunks, _ = self.server.stream("/v1/chat/completions", {"messages": CAPITAL})
        self.assertTrue(all("usage" not in chunk for chunk in chunks))

    def test_users_row_19_command_and_server_agree(self):
        """users.md row 19: one template, one set of defaults, one answer, greedy and sampled."""
        for flags, fields in ((["--temperature", "0"], {"temperature": 0}),
                              (["--seed", "7"], {"seed": 7, "temperature": None})):
            said = subprocess.run([CELLM, "infer", "--quiet", "--chat", "--model", MODEL, "--prompt",
                                   "Tell me about rivers.", "--gen", "24", *flags], text=True,
                                  capture_output=True, check=True, timeout=60).stdout
            reply = self.server.chat("Tell me about rivers.", max_tokens=24, **fields)
            self.assertEqual(said, reply["choices"][0]["message"]["content"] + "\n", fields)

    def test_length(self):
        reply = self.server.chat(max_completion_tokens=2)
        self.assertEqual(reply["choices"][0]["finish_reason"], "length")
        self.assertEqual(reply["usage"]["completion_tokens"], 2)

    def test_stop(self):
        reply = self.server.chat(stop=["France", "nowhere"])
        self.assertEqual(reply["choices"][0]["message"]["content"], "The capital of ")
        self.assertEqual(reply["choices"][0]["finish_reason"], "stop")

    def test_choices_share_the_prompt(self):
        reply = self.server.chat("Tell me about rivers.", n=3, temperature=1, seed=5, max_tokens=16)
        texts = [choice["message"]["content"] for choice in reply["choices"]]
        self.assertEqual([choice["index"] for choice in reply["choices"]], [0, 1, 2])
        self.assertGreater(len(set(texts)), 1, texts)
        again = self.server.chat("Tell me about rivers.", n=3, temperature=1, seed=5, max_tokens=16)
        self.assertEqual(texts, [choice["message"]["content"] for choice in again["choices"]])

    def test_completion(self):
        reply = self.server.post("/v1/completions",
                                 {"prompt": "Once upon", "temperature": 0, "max_tokens": 4,
                                  "echo": True, "logprobs": 2})
        self.assertEqual(reply["object"], "text_completion")
        choice, = reply["choices"]
        self.assertTrue(choice["text"].startswith("Once upon a"), choice)
        self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"][len("Once upon"):])
        self.assertEqual([len(top) for top in choice["logprobs"]["top_logprobs"]], [2] * 4)

    def test_many_prompts(self):
        reply = self.server.post("/v1/completions", {"prompt": ["Once upon", "The sea is"],
                                                     "temperature": 0, "max_tokens": 3})
        alone = self.server.post("/v1/completions", {"prompt": "The sea is", "temperature": 0,
                                                     "max_tokens": 3})
        self.assertEqual(reply["choices"][1]["text"], alone["choices"][0]["text"])
        self.assertEqual(reply["choices"][1]["index"], 1)


if __name__ == "__main__":
    unittest.main()
