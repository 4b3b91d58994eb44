"""Replies that must have a form: schemas, grammars, calls. And log-probabilities and bias."""
import json
import math
import unittest

from serve_support import ServerCase, content

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "A city, please."}]
SCHEMA = {"type": "object", "required": ["city", "days", "ok"], "additionalProperties": False,
          "properties": {"city": {"type": "string", "maxLength": 12},
                         "days": {"type": "integer", "minimum": 0, "maximum": 9},
                         "ok": {"type": "boolean"}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "weather",
                                         "parameters": SCHEMA}}


def collect_calls(case, chunks):
    """The calls of a stream as (name, arguments), put together as clients do it."""
    calls = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            for delta in choice["delta"].get("tool_calls", []):
                if "id" in delta:
                    case.assertEqual(delta["index"], len(calls))
                    calls.append([delta["function"]["name"], ""])
                calls[delta["index"]][1] += delta["function"]["arguments"]
    return [tuple(call) for call in calls]


class Constrained(ServerCase):
    def text(self, **fields):
        choice, = self.server.chat("A city, please.", **fields)["choices"]
        return choice["message"]["content"], choice["finish_reason"]

    def test_response_format(self):
        for fields in ({"response_format": {"type": "json_schema", "json_schema": {
                            "name": "x", "strict": True, "schema": SCHEMA}}},
                       {"json_schema": SCHEMA}):
            for seed in range(5):
                text, finish = self.text(temperature=1.5, seed=seed, **fields)
                value = json.loads(text)
                self.assertEqual(set(value), {"city", "days", "ok"})
                self.assertIn(value["days"], range(10))
                self.assertEqual(finish, "stop")
        text, finish = self.text(response_format={"type": "json_object"}, max_tokens=200)
        if finish == "stop":
            self.assertIsInstance(json.loads(text), dict)

    def test_other_forms(self):
        self.assertRegex(self.text(regex="[a-f]{3}-[0-9]{2}")[0], "^[a-f]{3}-[0-9]{2}$")
        self.assertIn(self.text(choices=["north", "south-east"])[0], ("north", "south-east"))
        self.assertRegex(self.text(grammar='root ::= "yes" | "no" "!"')[0], "^(yes|no!)$")

    def test_refused_by_name(self):
        for field, value in {"grammar": "root ::= undefined", "regex": "(", "choices": [],
                             "json_schema": {"type": "object", "$ref": "#/nowhere"}}.items():
            error = self.server.chat(status=400, **{field: value})["error"]
            self.assertEqual(error["param"], field, error)
        error = self.server.chat(status=400, regex="a", grammar='root ::= "a"')["error"]
        self.assertIn("constrains the reply already", error["message"])

    def test_users_row_53_nothing_follows_a_complete_text(self):
        """users.md row 53: when the form is complete, only an end can come, and it is no crash."""
        for grammar in ('root ::= "{}"', 'root ::= "a"?', 'root ::= ("x" | "y"){2}'):
            for seed in range(4):
                text, finish = self.text(grammar=grammar, temperature=2, seed=seed)
                self.assertEqual(finish, "stop")
                self.assertIn(text, ("{}", "", "a", "xx", "xy", "yx", "yy"))

    def test_users_row_54_edges_of_schemas(self):
        """users.md row 54: 0 and 1 as bounds, constants, references."""
        schemas = {
            "empty list": ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, [[]]),
            "constant": ({"const": {"a": 1}}, [{"a": 1}]),
            "enum of one": ({"enum": ["x"]}, ["x"]),
            "reference": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                                                          "b": {"enum": [1, 2]}}}, [1, 2]),
            "no properties": ({"type": "object", "additionalProperties": False}, [{}]),
        }
        for name, (schema, allowed) in schemas.items():
            with self.subTest(name):
                self.assertIn(json.loads(self.text(json_schema=schema)[0]), allowed)

    def test_users_row_56_a_forced_call_binds_nothing_later(self):
        """users.md row 56: the next request is as in a fresh server, in the same session, too."""
        before = self.server.chat("Say hello.", max_tokens=12)["choices"][0]["message"]
        for session in ({}, {"session_id": "s"}):
            forced = self.server.chat("Say hello.", tools=[TOOL], tool_choice="required", **session)
            self.assertEqual(forced["choices"][0]["finish_reason"], "tool_calls")
            after = self.server.chat("Say hello.", max_tokens=12, **session)["choices"][0]["message"]
            self.assertEqual(after, before)

    def test_users_row_57_arguments_always_validate(self):
        """users.md row 57: forced arguments follow the schema; cut short, there is no call."""
        named = {"type": "function", "function": {"name": "get_weather"}}
        for choice in ("required", named):
            for seed in range(4):
                reply = self.server.chat("Weather?", tools=[TOOL], tool_choice=choice,
                                         temperature=1.5, seed=seed)["choices"][0]
                self.assertEqual(reply["finish_reason"], "tool_calls")
                call, = reply["message"]["tool_calls"]
                arguments = json.loads(call["function"]["arguments"])
                self.assertEqual(set(arguments), {"city", "days", "ok"})
                self.assertIsInstance(arguments["ok"], bool)
        for most in range(1, 20, 3):
            cut = self.server.chat("Weather?", tools=[TOOL], tool_choice="required",
                                   max_tokens=most)["choices"][0]
            if cut["finish_reason"] == "tool_calls":
                json.loads(cut["message"]["tool_calls"][0]["function"]["arguments"])
            else:
                self.assertEqual(cut["finish_reason"], "length")
                self.assertNotIn("tool_calls", cut["message"])

    def test_users_row_60_streamed_arguments_join(self):
        """users.md row 60: the deltas of a call are its arguments, in order and complete."""
        fields = {"messages": USER, "temperature": 0, "tools": [TOOL], "tool_choice": "required"}
        whole = self.server.post(CHAT, fields)["choices"][0]["message"]["tool_calls"][0]
        chunks, _ = self.server.stream(CHAT, fields)
        deltas = [call for chunk in chunks for choice in chunk["choices"]
                  for call in choice["delta"].get("tool_calls", [])]
        self.assertEqual([delta["index"] for delta in deltas], [0] * len(deltas))
        self.assertEqual(sum("id" in delta for delta in deltas), 1)
        joined = "".join(delta["function"].get("arguments", "") for delta in deltas)
        self.assertEqual(joined, whole["function"]["arguments"])
        self.assertEqual(content(chunks), "")
        self.assertGreater(len(deltas), 4, "the call was not streamed while it was written")
        self.assertEqual(deltas[0]["function"], {"name": "get_weather", "arguments": ""})

    def test_streamed_calls_are_those_of_the_whole_reply(self):
        """With any seed, cut anywhere: what was shown is a beginning of the call, and the content is
        the same."""
        fields = {"messages": USER, "tools": [TOOL], "temperature": 1.5, "tool_choice": "required"}
        for seed in range(3):
            fields["seed"] = seed
            whole = self.server.post(CHAT, fields)["choices"][0]["message"]["tool_calls"][0]
            partial = 0
            for most in (*range(4, 26, 3), 200):
                limited = {**fields, "max_tokens": most}
                choice, = self.server.post(CHAT, limited)["choices"]
                chunks, _ = self.server.stream(CHAT, limited)
                calls = collect_calls(self, chunks)
                self.assertEqual(content(chunks), choice["message"]["content"] or "")
                finish = chunks[-1]["choices"][0]["finish_reason"]
                self.assertEqual(finish, choice["finish_reason"])
                if finish == "tool_calls":
                    (name, arguments), = calls
                    self.assertEqual(arguments, whole["function"]["arguments"])
                    continue
                self.assertEqual(finish, "length")
                for name, arguments in calls:
                    partial += len(arguments) > 1
                    self.assertEqual(name, "get_weather")
                    self.assertTrue(whole["function"]["arguments"].startswith(arguments), arguments)
            self.assertGreater(partial, 0)

    def test_streamed_calls_of_responses(self):
        tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
        fields = {"input": "A city, please.", "temperature": 0, "tools": [tool],
                  "tool_choice": "required"}
        whole, = self.server.post("/v1/responses", fields)["output"]
        events = self.server.events("/v1/responses", fields)
        of_type = lambda kind: [event for event in events if event["type"].endswith(kind)]
        added, = of_type("output_item.added")
        self.assertEqual((added["item"]["status"], added["item"]["arguments"]), ("in_progress", ""))
        deltas = of_type("function_call_arguments.delta")
        self.assertGreater(len(deltas), 3)
        for event in deltas:
            self.assertEqual((event["item_id"], event["output_index"]), (added["item"]["id"], 0))
        joined = "".join(event["delta"] for event in deltas)
        self.assertEqual(joined, whole["arguments"])
        done, = of_type("function_call_arguments.done")
        self.assertEqual(done["arguments"], joined)
        item, = of_type("output_item.done")
        self.assertEqual((item["item"]["status"], item["item"]["arguments"]), ("completed", joined))
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual(events[-1]["response"]["output"], [item["item"]])

        # Cut inside of the arguments: the item stays, incomplete, and its text is a message.
        fields["max_output_tokens"] = 12
        events = self.server.events("/v1/responses", fields)
        self.assertEqual(events[-1]["type"], "response.incomplete")
        self.assertEqual(of_type("function_call_arguments.done"), [])
        call, message = events[-1]["response"]["output"]
        self.assertEqual((call["type"], call["status"]), ("function_call", "incomplete"))
        self.assertEqual(call["arguments"],
                         "".join(e["delta"] for e in of_type("function_call_arguments.delta")))
        self.assertTrue(joined.startswith(call["arguments"]))
        cut = self.server.post("/v1/responses", fields)["output"]
        self.assertEqual([item["content"] for item in cut], [message["content"]])

    def test_tool_choice_and_a_form_exclude_each_other(self):
        error = self.server.chat(status=400, tools=[TOOL], tool_choice="required", regex="a")["error"]
        self.assertEqual(error["param"], "tool_choice")
        error = self.server.chat(status=400, tool_choice="required")["error"]
        self.assertEqual(error["param"], "tool_choice")

    def test_users_row_51_log_probabilities(self):
        """users.md row 51: the API's shape, of the distribution before sampling, whatever is done
        to it afterwards."""
        def entries(**fields):
            reply = self.server.chat(logprobs=True, top_logprobs=20, max_tokens=1, **fields)
            return reply["choices"][0]["logprobs"]["content"]

        plain, = entries()
        self.assertEqual(set(plain), {"token", "logprob", "bytes", "top_logprobs"})
        self.assertEqual(bytes(plain["bytes"]).decode(), plain["token"])
        top = [entry["logprob"] for entry in plain["top_logprobs"]]
        self.assertEqual(top, sorted(top, reverse=True))
        self.assertLessEqual(sum(math.exp(value) for value in top), 1 + 1e-4)
        self.assertGreater(sum(math.exp(value) for value in top), 0.9)
        for changed in ({"temperature": 2, "seed": 1}, {"top_k": 1}, {"presence_penalty": 2}):
            other, = entries(**changed)
            self.assertEqual([e["logprob"] for e in other["top_logprobs"]], top, changed)

    def test_users_row_52_both_forms_of_bias(self):
        """users.md row 52: an object or a list; -100 never, 100 nothing else."""
        first = self.server.chat(max_tokens=1)["choices"][0]["message"]["content"]
        token, = self.server.post("/tokenize", {"content": first})["tokens"]
        other, = self.server.post("/tokenize", {"content": "No"})["tokens"][:1]
        for bias in ({str(token): -100}, [[token, -100]], [[token, False]],
                     [{"id": token, "bias": -100}]):
            for seed in range(5):
                text = self.server.chat(max_tokens=1, logit_bias=bias, temperature=2,
                                        seed=seed)["choices"][0]["message"]["content"]
                self.assertNotEqual(text, first)
        for bias in ({str(other): 100}, [[other, 100]]):
            reply = self.server.chat(max_tokens=3, logit_bias=bias, temperature=2)
            only = self.server.post("/detokenize", {"tokens": [other] * 3})["content"]
            self.assertEqual(reply["choices"][0]["message"]["content"], only)


if __name__ == "__main__":
    unittest.main()
