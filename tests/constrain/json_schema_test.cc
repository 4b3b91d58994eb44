// JSON schemas: texts that a schema's grammar accepts and refuses, what is refused by name, and
// random decoding judged by the library's own reader (schemas_test.py asks another validator).
#include "constrain/json_schema.h"

#include <gtest/gtest.h>

#include "constrain/support.h"
#include "json/json.h"

namespace cellm::constrain {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

const SchemaCase kCases[] = {
    {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},
         "required":["a"],"additionalProperties":false})",
     {R"({"a":1})", R"({"a": -20, "b": "x"})", "{\n  \"a\": 3,\n  \"b\": \"\"\n}"},
     {R"({})", R"({"b":"x","a":1})", R"({"a":1,"c":2})", R"({"a":1.5})", R"({"a":1,})",
      R"({"a":01})", R"( {"a":1})", R"({"a" :1})"}},
    {R"({"type":["string","null"],"maxLength":3})",
     {R"("")", R"("abc")", "null", R"("\u00e9\n€")", R"("\ud83d\ude00ab")"},
     {R"("abcd")", "1", "\"a\nb\"", R"("\ud83d")", R"("\x")"}},
    {R"({"type":"string","minLength":2,"pattern":"^[A-Z]+$"})", {R"("AB")"}, {R"("A")", R"("ab")"}},
    {R"({"type":"string","pattern":"\"\\d"})", {R"("x\"1y")"}, {R"("x1y")"}},
    {R"({"enum":["a","b",1,null,{"k":[1,2]}]})",
     {R"("a")", "1", "null", R"({"k":[1,2]})"},
     {R"("c")", "2", R"({"k":[1]})"}},
    {R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"}},
    {R"({"const":"x\"y"})", {R"("x\"y")"}, {R"("x")"}},
    {R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})",
     {"[true]", "[true, false]", "[\n  true,\n  false\n]"},
     {"[]", "[true,false,true]", "[1]", "[true,]"}},
    {R"({"type":"array","items":{"type":"integer"},"maxItems":0})", {"[]"}, {"[1]", "[ ]"}},
    {R"({"type":"array","items":{"type":"integer"},"maxItems":1})", {"[]", "[1]"}, {"[1,2]"}},
    {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,
         "minItems":2})",
     {R"([1,"a"])"},
     {R"([1])", R"([1,"a",2])", R"(["a",1])"}},
    {R"({"type":"array","items":[{"type":"null"}],"additionalItems":{"type":"integer"}})",
     {"[]", "[null]", "[null,1,2]"},
     {"[1]", "[null,null]"}},
    {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
     {R"(["a"])", R"(["a","c"])", R"(["a", "b", "c"])"},
     {R"([])", R"(["a","a"])", R"(["b","a"])"}},
    {R"({"type":"integer","minimum":-5,"maximum":120})",
     {"-5", "0", "7", "99", "120"},
     {"-6", "121", "1.0", "007", "-0"}},
    {R"({"type":"integer","exclusiveMinimum":0})", {"1", "10", "999999"}, {"0", "-1"}},
    {R"({"type":"integer","multipleOf":7,"minimum":0})", {"0", "7", "700"}, {"1", "71"}},
    {R"({"type":"integer","multipleOf":25,"minimum":1,"maximum":100})", {"25", "100"}, {"0", "30"}},
    {R"({"type":"integer","multipleOf":0.5})", {"0", "-3", "12"}, {"3.5", "3.0"}},
    {R"({"type":"number","multipleOf":0.5})",
     {"0", "1.5", "-2.5", "7.0", "1234567890.5", "0.5", "-0.5", "123456789012345"},
     {"0.25", "1.51", "1e1", "-0", "-0.0", "1.", "01.5"}},
    {R"({"type":"number","multipleOf":0.01,"minimum":0,"maximum":19.99})",
     {"0", "0.01", "0.3", "0.30", "3.5", "19.99", "19", "7"},
     {"0.001", "0.010", "20", "-0.01", "19.995", "0.000"}},
    {R"({"type":"number","multipleOf":0.25,"exclusiveMinimum":0.3})",
     {"0.5", "0.75", "1", "12.25", "12.50", "1.0"},
     {"0.25", "0.3", "0.55", "0", "0.30", "-1"}},
    {R"({"type":"number","multipleOf":0.125,"minimum":-1.125,"maximum":-0.3})",
     {"-1.125", "-1", "-0.5", "-0.375", "-1.0"},
     {"-1.25", "-0.25", "-0.13", "-0.1", "0", "0.5"}},
    {R"({"multipleOf":0.1,"enum":[0.3,0.35,"a",7]})", {"0.3", R"("a")", "7"}, {"0.35"}},
    {R"({"type":"number","minimum":0.5,"exclusiveMaximum":2})",
     {"0.5", "0.50", "0.51", "1", "1.999", "1.0"},
     {"0.4", "0.49", "2", "2.0", "1e0", "-1", "0"}},
    {R"({"type":"number","minimum":-1.5,"maximum":-0.25})",
     {"-1.5", "-1", "-0.25", "-0.3"},
     {"-1.51", "-0.2", "0", "1", "-2"}},
    {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":0.1})",
     {"0.05", "0.099"},
     {"0", "0.1", "0.10", "0.0", "-0.05"}},
    {R"({"type":"number"})", {"0", "-1.5e+10", "3.25", "1E5"}, {"1.", ".5", "01", "1e", "NaN"}},
    {R"({"type":"number","minimum":3})", {"3", "3.1", "12345678901234"}, {"2.9", "-4"}},
    {R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"x":{"type":"null"}},
         "required":["x"]}]})",
     {"1", R"({"x":null})"},
     {"{}", R"("1")"}},
    {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"x":{"type":"integer"}},
                   "required":["t","x"]},
                  {"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]})",
     {R"({"t":"a","x":1})", R"({"t":"b"})"},
     {R"({"t":"a"})", R"({"t":"b","x":1})", R"({"t":"c"})"}},
    {R"({"allOf":[{"$ref":"#/$defs/A"},{"properties":{"b":{"type":"string"}},"required":["b"]}],
         "$defs":{"A":{"type":"object","properties":{"a":{"type":"integer","minimum":2}}}}})",
     {R"({"b":"x"})", R"({"a":2,"b":""})"},
     {R"({"a":2})", R"({"a":1,"b":""})"}},
    {R"({"type":"integer","allOf":[{"minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"}},
    {R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
         "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}},
         "$ref":"#/$defs/node"})",
     {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
     {R"({"v":1})", R"({"v":1,"next":{}})"}},
    {R"({"type":"object","properties":{"c":{"type":"array","items":{"$ref":"#"}}}})",
     {"{}", R"({"c":[]})", R"({"c":[{"c":[{}]},{}]})"},
     {R"({"c":[1]})"}},
    {R"({"type":"object","additionalProperties":{"type":"integer"}})",
     {"{}", R"({"a":1,"b":2})"},
     {R"({"a":"x"})"}},
    {R"({"type":"object","properties":{"a":{"type":"string"}},
         "additionalProperties":{"type":"integer"}})",
     {R"({"a":"x","b":1})", R"({"b":1})", R"({"aa":1,"":2})"},
     {R"({"a":1})", R"({"b":1,"a":"x"})", R"({"\u0061":1})"}},
    {R"({"type":"object","patternProperties":{"^x-":{"type":"null"}},"additionalProperties":false})",
     {"{}", R"({"x-a":null})"},
     {R"({"a":null})", R"({"x-a":1})"}},
    {R"({"allOf":[{"type":"object","patternProperties":{"^x-":{"type":"null"}}},
         {"properties":{"a":{"const":1}},"additionalProperties":false}]})",
     {"{}", R"({"a":1})"},
     {R"({"x-a":null})"}},
    {R"({"type":"object","propertyNames":{"enum":["p","q"]},"additionalProperties":{"type":"null"}})",
     {"{}", R"({"q":null})"},
     {R"({"r":null})"}},
    {R"({"type":"object","minProperties":1,"maxProperties":2})",
     {R"({"a":1})", R"({"a":1,"b":[{}]})"},
     {"{}", R"({"a":1,"b":2,"c":3})"}},
    {"{}", {"1", "[]", R"({"a":[1,{"b":null}]})", R"("x")", "true"}, {"", "tru", "[1", "{1:2}"}},
    {"true", {"null"}, {"nul"}},
    {R"({"type":"string","format":"date"})",
     {R"("2024-02-29")", R"("1999-12-31")", R"("2000-02-29")"},
     {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-04-31")",
      R"("0000-01-01")"}},
    {R"({"type":"string","format":"date-time"})",
     {R"("2024-02-29T23:59:59Z")", R"("2024-01-01T00:00:00.5+02:00")"},
     {R"("2024-01-01")", R"("2024-01-01T24:00:00Z")", R"("2024-01-01T00:00:00")"}},
    {R"({"type":"string","format":"uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("123e4567e89b12d3a456426614174000")"}},
    {R"({"type":"string","format":"ipv4"})",
     {R"("192.168.0.255")"},
     {R"("256.1.1.1")", R"("1.2.3")"}},
    {R"({"type":"string","format":"ipv6"})",
     {R"("::1")", R"("fe80::1:2")", R"("1:2:3:4:5:6:7:8")"},
     {R"("1:2:3")", R"("1::2::3")"}},
    {R"({"type":"string","format":"email"})",
     {R"("a.b@example.org")"},
     {R"("a@b")", R"("@x.org")"}},
    {R"({"type":"string","format":"duration"})",
     {R"("P1DT2H")", R"("PT5S")", R"("P3W")"},
     {R"("P")"}},
    {R"({"type":"string","format":"unheard-of"})", {R"("anything")"}, {"1"}},
    // As Pydantic writes a Decimal, and an alternative that cannot be ensured.
    {R"s({"anyOf":[{"type":"number"},{"type":"string",
         "pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"},{"not":{}}]})s",
     {"1.5", R"("-1.5")"},
     {R"("+")", "null"}},
    {R"({"properties":{"a":false,"b":{"type":"null"}}})", {"{}", R"({"b":null})"}, {R"({"a":1})"}},
    {R"({"type":"object","properties":{"a":{"type":"integer","title":"A","default":0}},
         "required":["a"],"title":"T","$schema":"https://json-schema.org/draft/2020-12/schema",
         "examples":[{"a":1}]})",
     {R"({"a":1})"},
     {"{}"}},
};

TEST(JsonSchema, AcceptsAndRefusesTexts) {
  const auto trie = MakeTrie(ByteVocabulary());
  for (const SchemaCase& c : kCases) {
    SCOPED_TRACE(c.schema);
    const auto constraint = Compile(ConstraintKind::kJsonSchema, c.schema, *trie);
    ASSERT_TRUE(constraint.ok()) << constraint.status().message();
    for (const char* const text : c.good) {
      EXPECT_TRUE(Accepts(*constraint.value(), text)) << "should be accepted: " << text;
    }
    for (const char* const text : c.bad) {
      EXPECT_FALSE(Accepts(*constraint.value(), text)) << "should be refused: " << text;
    }
  }
}

struct RefusedCase {
  const char* schema;
  StatusCode code;
  const char* says;
};

constexpr RefusedCase kRefused[] = {
    {R"({"enum":[]})", StatusCode::kInvalidArgument, "enum"},
    {R"({"type":"integer","enum":["a"]})", StatusCode::kInvalidArgument, "enum"},
    {R"({"type":"integer","minimum":5,"maximum":4})", StatusCode::kInvalidArgument, "bounds"},
    {R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})",
     StatusCode::kInvalidArgument, "bounds"},
    {R"({"type":"number","exclusiveMinimum":1,"maximum":1})", StatusCode::kInvalidArgument,
     "bounds"},
    {R"({"type":"string","minLength":3,"maxLength":2})", StatusCode::kInvalidArgument, "minLength"},
    {R"({"type":"string","pattern":"^a$","minLength":2})", StatusCode::kInvalidArgument, "pattern"},
    {R"({"type":"array","minItems":2,"maxItems":1})", StatusCode::kInvalidArgument, "minItems"},
    {R"({"type":"array","items":false,"minItems":1})", StatusCode::kInvalidArgument, "#/items"},
    {R"({"type":"object","properties":{"a":false},"required":["a"]})", StatusCode::kInvalidArgument,
     "#/properties/a"},
    {R"({"type":"object","properties":{"a":{"enum":[]}}})", StatusCode::kInvalidArgument,
     "#/properties/a"},
    {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", StatusCode::kInvalidArgument, "types"},
    {R"({"anyOf":[]})", StatusCode::kInvalidArgument, "anyOf"},
    {R"({"type":"text"})", StatusCode::kInvalidArgument, "\"text\" is no type"},
    {R"({"$ref":"#/$defs/nowhere"})", StatusCode::kInvalidArgument, "leads nowhere"},
    {R"({"$ref":"#"})", StatusCode::kInvalidArgument, "itself"},
    {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
     StatusCode::kInvalidArgument, "itself"},
    {R"({"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}},
         "$ref":"#/$defs/n"})",
     StatusCode::kInvalidArgument, "never ends"},
    {R"({"$ref":"other.json"})", StatusCode::kUnsupported, "other.json"},
    {R"({"not":{"type":"string"}})", StatusCode::kUnsupported, "\"not\""},
    {R"({"if":{},"then":{}})", StatusCode::kUnsupported, "\"if\""},
    {R"({"type":"array","contains":{}})", StatusCode::kUnsupported, "contains"},
    {R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", StatusCode::kUnsupported,
     "uniqueItems"},
    {R"({"type":"number","multipleOf":0.3})", StatusCode::kUnsupported, "multipleOf"},
    {R"({"type":"number","multipleOf":2.5})", StatusCode::kUnsupported, "multipleOf"},
    {R"({"type":"number","multipleOf":0.0000001})", StatusCode::kUnsupported, "multipleOf"},
    {R"({"type":"number","multipleOf":-0.5})", StatusCode::kUnsupported, "multipleOf"},
    {R"({"allOf":[{"type":"number","multipleOf":0.5},{"multipleOf":0.1}]})",
     StatusCode::kUnsupported, "multipleOf"},
    {R"({"type":"number","multipleOf":0.5,"minimum":0.6,"maximum":0.9})",
     StatusCode::kInvalidArgument, "no number"},
    {R"s({"type":"string","pattern":"b(?=a)"})s", StatusCode::kUnsupported, "lookaround"},
    {R"({"oneOf":[{"type":"string"},{"type":"string","maxLength":2}]})", StatusCode::kUnsupported,
     "oneOf"},
    {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", StatusCode::kUnsupported, "oneOf"},
    {R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":1})",
     StatusCode::kUnsupported, "minProperties"},
    {R"({"type":"string","maxLength":10000000})", StatusCode::kOutOfRange, "length"},
    {R"({"type":"array","items":{"type":"string","maxLength":60},"maxItems":90000})",
     StatusCode::kOutOfRange, "states"},
    {"[1]", StatusCode::kInvalidArgument, "a schema is"},
    {"{", StatusCode::kInvalidArgument, "schema"},
};

TEST(JsonSchema, RefusesByName) {
  const auto trie = MakeTrie(ByteVocabulary());
  for (const RefusedCase& c : kRefused) {
    SCOPED_TRACE(c.schema);
    const auto constraint = Compile(ConstraintKind::kJsonSchema, c.schema, *trie);
    ASSERT_FALSE(constraint.ok());
    EXPECT_EQ(constraint.status().code(), c.code) << constraint.status().message();
    EXPECT_NE(constraint.status().message().find(c.says), std::string::npos)
        << constraint.status().message();
  }
}

// Random texts of every schema above are JSON, with tokens that cross all of its borders.
TEST(JsonSchema, RandomTextsAreJson) {
  const auto trie = MakeTrie(TextVocabulary());
  Rng rng(11);
  int finished = 0;
  for (const SchemaCase& c : kCases) {
    SCOPED_TRACE(c.schema);
    const auto constraint = Compile(ConstraintKind::kJsonSchema, c.schema, *trie);
    ASSERT_TRUE(constraint.ok());
    for (int i = 0; i < 20; ++i) {
      const Decoded decoded = DecodeRandomly(*constraint.value(), *trie, rng, 400);
      ASSERT_TRUE(decoded.status.ok()) << decoded.status.message() << ": " << decoded.text;
      if (!decoded.finished) continue;
      ++finished;
      const auto document = json::Document::Parse(decoded.text, "a reply");
      EXPECT_TRUE(document.ok()) << decoded.text;
    }
  }
  EXPECT_GT(finished, 400);
}

// Depth is bounded and what has begun can be finished at the bound.
TEST(JsonSchema, NestsToTheLimitAndEnds) {
  const auto trie = MakeTrie(ByteVocabulary());
  const auto constraint = Compile(ConstraintKind::kJsonSchema, "{}", *trie);
  ASSERT_TRUE(constraint.ok());
  Matcher matcher(*constraint.value());
  std::vector<uint64_t> words(trie->mask_words());
  const auto allows = [&](char c) {
    EXPECT_TRUE(matcher.FillAllowed(words).ok());
    return (words[static_cast<size_t>(c) / 64] >> (static_cast<size_t>(c) % 64) & 1) != 0;
  };
  int depth = 0;
  while (allows('[') && depth < 5000) {
    ASSERT_TRUE(matcher.Accept('[').ok());
    ++depth;
  }
  EXPECT_GE(depth, 64);
  EXPECT_LT(depth, 5000);
  for (int i = 0; i < depth; ++i) {
    ASSERT_TRUE(allows(']')) << i;
    ASSERT_TRUE(matcher.Accept(']').ok());
  }
  EXPECT_TRUE(matcher.MustEnd().value());
}

}  // namespace
}  // namespace cellm::constrain
