#!/usr/bin/env python3
"""Random JSON schemas; every reply that was finished must satisfy its schema.

Usage: schemas_test.py DECODE_PROGRAM [ZOO]   (python3-jsonschema judges; without it: skipped)

Every day 3,000 schemas with two replies each, drawn evenly from what is allowed. With
CELLM_TEST_LONG=1 100,000 schemas, in turns with even draws and with the logits of the zoo's models.
CELLM_TEST_SEED changes the seed, CELLM_TEST_SCHEMAS the count.
"""
import datetime
import decimal
import json
import os
import random
import subprocess
import sys
import warnings

try:
    warnings.simplefilter("ignore")
    import jsonschema
except ImportError:
    print("python3-jsonschema is not installed")
    sys.exit(77)

NAMES = ["id", "name", "items", "value", "a", "b", "na me", "caf\u00e9", "q\"uote", "back\\slash", "\u20ac"]
PATTERNS = ["^[a-z]+$", "^\\d{3}-\\d{2}$", "a", "^(foo|bar)", "[^\"]x$", "^\\w{1,4}$", "\\\\", "^.{2,3}$",
            "^[A-Z][a-z]*( [A-Z][a-z]*)?$", "^\\S+$", "^(?!a)[a-z.]*$", "^(?=.*\\d)\\w{2,5}$",
            "^(?!\\.)(?!.*\\.\\.)[a-z.]*@[a-z]+$"]
FORMATS = ["date", "date-time", "time", "uuid", "email", "ipv4", "ipv6", "duration", "uri", "hostname"]
TEXTS = ["", "red", "gr\u00fcn", "a\"b", "x\ny", "\\", "\u20ac\U0001F600", "null"]


class Schemas:
    def __init__(self, rng):
        self.rng = rng

    def chance(self, p):
        return self.rng.random() < p

    def scalar(self):
        return self.rng.choice([None, True, False, 0, -7, 12, 2.5, *TEXTS])

    def value(self, depth=0):
        kind = self.rng.randrange(6 if depth < 2 else 4)
        if kind < 4:
            return self.scalar()
        if kind == 4:
            return [self.value(depth + 1) for _ in range(self.rng.randrange(3))]
        return {self.rng.choice(NAMES): self.value(depth + 1) for _ in range(self.rng.randrange(3))}

    def string(self):
        schema = {"type": "string"}
        if self.chance(0.4):
            low = self.rng.randrange(4)
            schema["minLength"] = low
            if self.chance(0.7):
                schema["maxLength"] = low + self.rng.randrange(5)
        elif self.chance(0.3):
            schema["maxLength"] = self.rng.randrange(6)
        if self.chance(0.25):
            schema["pattern"] = self.rng.choice(PATTERNS)
        elif self.chance(0.2):
            schema = {"type": "string", "format": self.rng.choice(FORMATS)}
        return schema

    def number(self):
        schema = {"type": self.rng.choice(["integer", "number"])}
        whole = schema["type"] == "integer"
        low = self.rng.randrange(-120, 120)
        span = self.rng.choice([1, 3, 10, 250])
        scale = 1 if whole else self.rng.choice([1, 0.1, 0.25, 0.01])
        def bound(x):
            return x if scale == 1 else round(x * scale, 4)
        if self.chance(0.4):
            schema[self.rng.choice(["minimum", "exclusiveMinimum"])] = bound(low)
        if self.chance(0.4):
            schema[self.rng.choice(["maximum", "exclusiveMaximum"])] = bound(low + span)
        if self.chance(0.15):
            schema["multipleOf"] = self.rng.choice([2, 3, 7, 10, 64])
        elif self.chance(0.15):
            schema["multipleOf"] = self.rng.choice([0.5, 0.25, 0.2, 0.1, 0.05, 0.01, 0.3])
        return schema

    def array(self, depth):
        schema = {"type": "array"}
        if self.chance(0.8):
            schema["items"] = self.schema(depth + 1)
        if self.chance(0.2):
            schema["prefixItems"] = [self.schema(depth + 1) for _ in range(self.rng.randrange(1, 3))]
        if self.chance(0.4):
            schema["minItems"] = self.rng.randrange(3)
        if self.chance(0.5):
            schema["maxItems"] = schema.get("minItems", 0) + self.rng.randrange(3)
        if self.chance(0.1):
            schema["items"] = {"enum": self.rng.sample(TEXTS, 4)}
            schema.pop("prefixItems", None)
            schema["uniqueItems"] = True
        return schema

    def object(self, depth):
        schema = {"type": "object"}
        names = self.rng.sample(NAMES, self.rng.randrange(0, 5))
        if names or self.chance(0.5):
            schema["properties"] = {name: self.schema(depth + 1) for name in names}
        required = [name for name in names if self.chance(0.6)]
        if required or self.chance(0.2):
            schema["required"] = required
        kind = self.rng.random()
        if kind < 0.4:
            schema["additionalProperties"] = False
        elif kind < 0.5:
            schema["additionalProperties"] = self.schema(depth + 1)
        elif kind < 0.55:
            schema["additionalProperties"] = True
        elif kind < 0.6 and not names:
            schema["patternProperties"] = {self.rng.choice(PATTERNS): self.schema(depth + 1)}
        if self.chance(0.1) and not names:
            schema["maxProperties"] = self.rng.randrange(3)
        if self.chance(0.05):
            schema["propertyNames"] = self.rng.choice(
                [{"enum": NAMES[:6]}, {"maxLength": 4}, {"pattern": "^[a-z]+$"}])
        return schema

    def tagged(self, depth):
        options = []
        for tag in self.rng.sample(["cat", "dog", "\u00e9", 1, None], self.rng.randrange(2, 4)):
            option = self.object(depth + 1)
            option.pop("patternProperties", None)
            option.pop("propertyNames", None)
            option.pop("maxProperties", None)
            option["properties"] = {"kind": {"const": tag}, **option.get("properties", {})}
            option["required"] = ["kind", *option.get("required", [])]
            options.append(option)
        return {"oneOf": options}

    def schema(self, depth=0):
        simple = depth >= 3
        kind = self.rng.randrange(8 if simple else 16)
        if kind < 2:
            return self.string()
        if kind < 4:
            return self.number()
        if kind == 4:
            return {"type": self.rng.choice(["boolean", "null"])}
        if kind == 5:
            return {"enum": [self.value() for _ in range(self.rng.randrange(1, 5))]}
        if kind == 6:
            return {"const": self.value()}
        if kind == 7:
            return {"$ref": "#/$defs/" + self.rng.choice(["leaf", "tree"])} if self.chance(0.7) else {}
        if kind < 11:
            return self.object(depth)
        if kind < 13:
            return self.array(depth)
        if kind == 13:
            return {"anyOf": [self.schema(depth + 1) for _ in range(self.rng.randrange(1, 4))]}
        if kind == 14:
            return self.tagged(depth)
        if self.chance(0.5):
            return {"type": self.rng.sample(["string", "integer", "null", "boolean", "array"], 2),
                    "maxLength": 4, "maximum": 9}
        return {"allOf": [self.object(depth + 1), self.object(depth + 1)]}

    def root(self):
        schema = self.schema()
        if not isinstance(schema, dict):
            return schema
        schema = dict(schema)
        schema["$defs"] = {
            "leaf": self.rng.choice([self.string(), self.number()]),
            "tree": {"type": "object", "required": ["value"], "properties": {
                "value": {"$ref": "#/$defs/leaf"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}}}
        return schema


def is_date_time(text):
    if not isinstance(text, str):
        return True
    datetime.datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    return text[19:20] in (".", "Z", "+", "-")


# A reply's number may have any digits; a remainder is exact with as many as the quotient has.
decimal.getcontext().prec = 5000
CHECKER = jsonschema.FormatChecker(formats=["date", "email", "ipv4", "ipv6", "uuid"])
CHECKER.checks("date-time", raises=ValueError)(is_date_time)


def run(program, model, seed, count, samples):
    """Decodes `count` schemas; returns counts and a list of what is wrong."""
    rng = random.Random(seed)
    maker = Schemas(rng)
    schemas = [maker.root() for _ in range(count)]
    command = [program, str(samples), str(seed)] + ([model] if model else [])
    lines = "".join(json.dumps(s, ensure_ascii=rng.random() < 0.5) + "\n" for s in schemas)
    done = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE)
    results = done.stdout.decode("utf-8").split("\n")[:-1]
    wrong = []
    if done.returncode != 0 or len(results) != count:
        wrong.append(f"{command}: exit code {done.returncode} after {len(results)} of {count}")
    finished = cut = refused = 0
    for schema, line in zip(schemas, results):
        result = json.loads(line)
        if "refused" in result:
            refused += 1
            if result["refused"].startswith(("broken", "internal", "out of memory")):
                wrong.append(f"{json.dumps(schema)}: {result['refused']}")
            continue
        # A multiple is one of decimals: quotients of doubles call 0.3 none of 0.1.
        number = decimal.Decimal if '"multipleOf": 0.' in json.dumps(schema) else float
        judged = json.loads(json.dumps(schema), parse_float=number)
        validator = jsonschema.Draft202012Validator(judged, format_checker=CHECKER)
        for reply in result["replies"]:
            if not reply["finished"]:
                cut += 1
                continue
            finished += 1
            try:
                error = next(validator.iter_errors(
                    json.loads(reply["text"], parse_float=number)), None)
            except ValueError as failure:
                error = failure
            if error is not None:
                wrong.append(f"{json.dumps(schema)}: {reply['text']!r}: {str(error)[:200]}")
    return finished, cut, refused, wrong


def main():
    program = sys.argv[1]
    zoo = sys.argv[2] if len(sys.argv) > 2 else ""
    long_run = os.environ.get("CELLM_TEST_LONG") == "1"
    seed = int(os.environ.get("CELLM_TEST_SEED", "20261201"))
    total = int(os.environ.get("CELLM_TEST_SCHEMAS", "100000" if long_run else "3000"))
    models = [""]
    if long_run and os.path.isdir(zoo):
        models += sorted(os.path.join(zoo, name) for name in os.listdir(zoo)
                         if os.path.exists(os.path.join(zoo, name, "model.safetensors"))
                         and name != "nano")
    batch = 100
    sums = {model: [0, 0, 0, 0] for model in models}
    failures = 0
    for index in range((total + batch - 1) // batch):
        model = models[index % len(models)]
        count = min(batch, total - index * batch)
        finished, cut, refused, wrong = run(program, model, seed + index, count, 1 if model else 2)
        for i, number in enumerate([count, finished, cut, refused]):
            sums[model][i] += number
        failures += len(wrong)
        for line in wrong[:5]:
            print("WRONG", line)
        if failures > 20:
            break
        if long_run and index % 50 == 49:
            print(f"{(index + 1) * batch} schemas, {sum(row[1] for row in sums.values())} finished replies, "
                  f"{failures} wrong", flush=True)
    print(f"seed {seed}")
    for model, (count, finished, cut, refused) in sums.items():
        print(f"{os.path.basename(model) or 'even draws':12} schemas {count:6}  finished {finished:6}"
              f"  cut {cut:5}  refused {refused:5}")
    checked = sum(row[1] for row in sums.values())
    refused = sum(row[3] for row in sums.values())
    schemas = sum(row[0] for row in sums.values())
    print(f"{checked} finished replies, {failures} wrong")
    if refused > schemas * 0.25 or checked < schemas * 0.5:
        print("too many refused or too few finished: the test would prove little")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
