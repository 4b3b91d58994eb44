// GBNF and structural constraints; random grammars never break.
#include "constrain/gbnf.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/utf8.h"
#include "constrain/structural.h"
#include "constrain/support.h"

namespace cellm::constrain {
namespace {

struct GrammarCase {
  const char* grammar;
  std::vector<const char*> good;
  std::vector<const char*> bad;
};

const GrammarCase kCases[] = {
    {"root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "ab", "abc"}},
    {"root  ::= item (\",\" ws item)*   # a list\nitem ::= [a-z]+\nws ::= \" \"?\n",
     {"a", "ab, c", "a,b,c"},
     {",", "a,", "A"}},
    {"root ::= \"x\"{3}", {"xxx"}, {"xx", "xxxx"}},
    {"root ::= \"x\"{2,}", {"xx", "xxxxx"}, {"x"}},
    {"root ::= \"x\"{1,3} \"y\"{0,1}", {"x", "xxxy"}, {"xxxx", "y"}},
    {"root ::= [^a-c\\n]+", {"xyz", "\xE2\x82\xAC"}, {"a", "\n"}},
    {"root ::= .", {"x", "\n", "\xF0\x9F\x98\x80"}, {"", "xy", "\xF0\x9F"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\"", {"A\xC3\xA9\xF0\x9F\x98\x80\n\"\\"}, {"A"}},
    {"root ::= [\\]\\[\\\\-]+", {"[]", "\\-"}, {"a"}},
    {"root ::= \"\"", {""}, {"a"}},
    {"root ::= (\n  \"a\" |\n  \"b\"\n)+\n", {"ab", "b"}, {"", "c"}},
    {"root ::= \"abc\"*", {"", "abcabc"}, {"ab", "abcc"}},
    // Nesting, and recursion on the right, which has no bound.
    {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "()"}},
    {"root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"a", "ba"}},
    {"root ::= a-b c_d\na-b ::= \"1\"\nc_d ::= \"2\" # end", {"12"}, {"1"}},
    {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
     {"1+2", "(1+(2))+3"},
     {"1+", "(1"}},
};

TEST(Gbnf, AcceptsAndRefusesTexts) {
  const auto trie = MakeTrie(ByteVocabulary());
  for (const GrammarCase& c : kCases) {
    SCOPED_TRACE(c.grammar);
    const auto constraint = Compile(ConstraintKind::kGrammar, c.grammar, *trie);
    ASSERT_TRUE(constraint.ok()) << constraint.status().message();
    for (const char* const text : c.good) EXPECT_TRUE(Accepts(*constraint.value(), text)) << text;
    for (const char* const text : c.bad) EXPECT_FALSE(Accepts(*constraint.value(), text)) << text;
  }
}

TEST(Gbnf, RecursionOnTheRightHasNoBound) {
  const auto trie = MakeTrie(ByteVocabulary());
  const auto list = Compile(ConstraintKind::kGrammar, "root ::= [a-z] root | \".\"", *trie);
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(Accepts(*list.value(), std::string(20000, 'a') + "."));
  const auto nested = Compile(ConstraintKind::kGrammar, "root ::= \"(\" root \")\" | \"x\"", *trie);
  ASSERT_TRUE(nested.ok());
  EXPECT_TRUE(Accepts(*nested.value(), std::string(200, '(') + "x" + std::string(200, ')')));
  EXPECT_FALSE(Accepts(*nested.value(), std::string(20000, '(') + "x" + std::string(20000, ')')));
}

struct RefusedCase {
  const char* grammar;
  StatusCode code;
  const char* says;
};

constexpr RefusedCase kRefused[] = {
    {"", StatusCode::kInvalidArgument, "root"},
    {"a ::= \"x\"", StatusCode::kInvalidArgument, "root"},
    {"root ::= a", StatusCode::kInvalidArgument, "\"a\""},
    {"root = \"a\"", StatusCode::kInvalidArgument, "::="},
    {"root ::= \"a", StatusCode::kInvalidArgument, "ends too early"},
    {"root ::= [a", StatusCode::kInvalidArgument, "ends too early"},
    {"root ::= (\"a\"", StatusCode::kInvalidArgument, "')'"},
    {"root ::= \"a\" )", StatusCode::kInvalidArgument, "end of the line"},
    {"root ::= *", StatusCode::kInvalidArgument, "nothing to repeat"},
    {"root ::= \"a\"{3,1}", StatusCode::kInvalidArgument, "n below m"},
    {"root ::= \"a\"{x}", StatusCode::kInvalidArgument, "number"},
    {"root ::= \"\\q\"", StatusCode::kInvalidArgument, "escape"},
    {"root ::= \"\\uD800\"", StatusCode::kInvalidArgument, "no character"},
    {"root ::= [z-a]", StatusCode::kInvalidArgument, "before its beginning"},
    {"root ::= <[12]>", StatusCode::kUnsupported, "token"},
    {"root ::= root \"a\" | \"b\"", StatusCode::kInvalidArgument, "left recursive"},
    {"root ::= a\na ::= b? a \"x\"\nb ::= \"y\"", StatusCode::kInvalidArgument, "left recursive"},
    {"root ::= \"a\" root", StatusCode::kInvalidArgument, "never ends"},
    {"root ::= []", StatusCode::kInvalidArgument, "no text"},
    {"root ::= ((((\"a\"{999}){999}){999}){999}){999}", StatusCode::kOutOfRange, "states"},
};

TEST(Gbnf, RefusesByName) {
  const auto trie = MakeTrie(ByteVocabulary());
  for (const RefusedCase& c : kRefused) {
    SCOPED_TRACE(c.grammar);
    const auto constraint = Compile(ConstraintKind::kGrammar, c.grammar, *trie);
    ASSERT_FALSE(constraint.ok());
    EXPECT_EQ(constraint.status().code(), c.code) << constraint.status().message();
    EXPECT_NE(constraint.status().message().find(c.says), std::string::npos)
        << constraint.status().message();
  }
}

// ---- random grammars ---------------------------------------------------------------------------

// A grammar of a few rules; calls are to any rule, so many are recursive, some left recursive or
// endless. Those are refused; nothing else may happen.
class RandomGrammar {
 public:
  explicit RandomGrammar(Rng& rng) : rng_(rng) {}
  std::string Make() {
    rules_ = 1 + rng_.NextBelow(5);
    std::string out;
    for (uint64_t rule = 0; rule < rules_; ++rule) {
      out += Name(rule) + " ::= " + Alternatives(0) + "\n";
    }
    return out;
  }

 private:
  static std::string Name(uint64_t rule) {
    return rule == 0 ? std::string("root") : "r" + std::to_string(rule);
  }
  std::string Alternatives(int depth) {
    std::string out = Sequence(depth);
    for (uint64_t more = rng_.NextBelow(3); more > 0; --more) out += " | " + Sequence(depth);
    return out;
  }
  std::string Sequence(int depth) {
    std::string out = Item(depth);
    for (uint64_t more = rng_.NextBelow(3); more > 0; --more) out += " " + Item(depth);
    return out;
  }
  std::string Item(int depth) {
    static const char* const kTexts[] = {"\"a\"",  "\"{\"",   "\"}\"",
                                         "\"\"",   "[a-c]",   "[^a]",
                                         "\"ab\"", "\"\\n\"", "[\\u00e9-\\u20ac]",
                                         ".",      "\"na\"",  "\"true\""};
    static const char* const kRepeats[] = {"",  "",    "",      "*",    "+",
                                           "?", "{2}", "{0,3}", "{1,}", "{0}"};
    const uint64_t kind = rng_.NextBelow(10);
    std::string out;
    if (kind < 6 || depth > 3) {
      out = kTexts[rng_.NextBelow(std::size(kTexts))];
    } else if (kind < 8) {
      out = Name(rng_.NextBelow(rules_));
    } else {
      out = "(" + Alternatives(depth + 1) + ")";
    }
    return out + kRepeats[rng_.NextBelow(std::size(kRepeats))];
  }
  Rng& rng_;
  uint64_t rules_ = 1;
};

TEST(Gbnf, RandomGrammarsNeverBreak) {
  const auto trie = MakeTrie(TextVocabulary());
  const uint64_t count = std::getenv("CELLM_TEST_LONG") != nullptr ? 10000 : 1500;
  Rng rng(2026);
  uint64_t compiled = 0;
  uint64_t finished = 0;
  uint64_t ambiguous = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string grammar = RandomGrammar(rng).Make();
    SCOPED_TRACE(grammar);
    const auto constraint = Compile(ConstraintKind::kGrammar, grammar, *trie);
    if (!constraint.ok()) {
      EXPECT_EQ(constraint.status().code(), StatusCode::kInvalidArgument)
          << constraint.status().message();
      continue;
    }
    ++compiled;
    const Decoded decoded = DecodeRandomly(*constraint.value(), *trie, rng, 40);
    // An ambiguity beyond the limits is an error by name; nothing else is.
    if (decoded.status.code() == StatusCode::kOutOfRange) {
      ++ambiguous;
      continue;
    }
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.message() << ": " << decoded.text;
    if (!decoded.finished) continue;
    ++finished;
    EXPECT_TRUE(Accepts(*constraint.value(), decoded.text));
    EXPECT_TRUE(IsValidUtf8(decoded.text));
    // After the end: whatever is asked, only the end or what may follow, never an error.
    Matcher again(*constraint.value());
    for (const int32_t id : decoded.ids) ASSERT_TRUE(again.Accept(id).ok());
    EXPECT_TRUE(again.MayEnd().value());
  }
  EXPECT_GT(compiled, count / 4);
  EXPECT_GT(finished, count / 8);
  EXPECT_LT(ambiguous, 1 + count / 50);
}

// ---- structural --------------------------------------------------------------------------------

constexpr char kTools[] =
    R"({"triggers":["<tool>"],"tags":[
        {"begin":"<tool>f(","schema":{"type":"integer"},"end":")</tool>"},
        {"begin":"<tool>g","schema":{"enum":["x"]},"end":";"}])";

TEST(Structural, IsFreeUntilATrigger) {
  const auto trie = MakeTrie(ByteVocabulary());
  const auto compiled = Compile(ConstraintKind::kStructural, std::string(kTools) + "}", *trie);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  for (const char* const text :
       {"", "free text", "a < b <too <tool", "<tool>f(12)</tool>", "so: <tool>g\"x\"; and then",
        "<<tool>f(1)</tool><tool>f(2)</tool>!", "\xFF\xFE any bytes"}) {
    EXPECT_TRUE(Accepts(*compiled.value(), text)) << text;
  }
  for (const char* const text : {"<tool>", "<tool>h", "a<tool>f(x)</tool>", "<tool>f(1)</tool"}) {
    EXPECT_FALSE(Accepts(*compiled.value(), text)) << text;
  }
}

TEST(Structural, CountsTags) {
  const auto trie = MakeTrie(ByteVocabulary());
  const auto one =
      Compile(ConstraintKind::kStructural, std::string(kTools) + R"(,"at_least_one":true})", *trie);
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_FALSE(Accepts(*one.value(), "free"));
  EXPECT_TRUE(Accepts(*one.value(), "free <tool>f(1)</tool> and more"));
  EXPECT_TRUE(Accepts(*one.value(), "<tool>f(1)</tool><tool>g\"x\";"));
  const auto first =
      Compile(ConstraintKind::kStructural,
              std::string(kTools) + R"(,"at_least_one":true,"stop_after_first":true})", *trie);
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(Accepts(*first.value(), "free <tool>f(1)</tool>"));
  EXPECT_FALSE(Accepts(*first.value(), "free <tool>f(1)</tool> "));
  EXPECT_FALSE(Accepts(*first.value(), "free"));
}

TEST(Structural, WithoutTriggersIsTagsAtOnce) {
  const auto trie = MakeTrie(ByteVocabulary());
  const auto compiled =
      Compile(ConstraintKind::kStructural,
              R"({"tags":[{"begin":"[","end":"]"},{"begin":"<","schema":{"const":1},"end":">"}],
          "at_least_one":true})",
              *trie);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  for (const char* const text : {"[1]", "<1>", "<1>\n[{\"a\":2}]"}) {
    EXPECT_TRUE(Accepts(*compiled.value(), text)) << text;
  }
  for (const char* const text : {"", "x", "<2>", "<1> and"}) {
    EXPECT_FALSE(Accepts(*compiled.value(), text)) << text;
  }
}

TEST(Structural, KnowsControlTokens) {
  std::vector<TokenText> tokens = ByteVocabulary();
  tokens.push_back({"[TOOL_CALLS]", true});  // 256
  tokens.push_back({"<think>", true});       // 257
  tokens.push_back({"[ARGS]", true});        // 258
  const auto trie = MakeTrie(tokens);
  const auto compiled =
      Compile(ConstraintKind::kStructural,
              R"({"triggers":["[TOOL_CALLS]"],"tags":[{"begin":"[TOOL_CALLS]f[ARGS]",
                                    "schema":{"type":"boolean"},"end":""}],"stop_after_first":true})",
              *trie);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  Matcher matcher(*compiled.value());
  std::vector<uint64_t> words(trie->mask_words());
  const auto allows = [&](size_t id) {
    EXPECT_TRUE(matcher.FillAllowed(words).ok());
    return (words[id / 64] >> (id % 64) & 1) != 0;
  };
  EXPECT_TRUE(allows(256) && allows(257) && allows(258) && allows('x'));
  ASSERT_TRUE(matcher.Accept(257).ok());
  ASSERT_TRUE(matcher.Accept('x').ok());
  ASSERT_TRUE(matcher.Accept(256).ok());
  EXPECT_TRUE(allows('f') && !allows(257) && !allows('x') && !matcher.MayEnd().value());
  ASSERT_TRUE(matcher.Accept('f').ok());
  EXPECT_TRUE(allows(258) && allows('[') && !allows(256));
  ASSERT_TRUE(matcher.Accept(258).ok());
  for (const char c : std::string("true")) ASSERT_TRUE(matcher.Accept(c).ok());
  EXPECT_TRUE(matcher.MustEnd().value());
  // The same, spelled in letters.
  EXPECT_TRUE(Accepts(*compiled.value(), "x[TOOL_CALLS]f[ARGS]false"));
  EXPECT_FALSE(Accepts(*compiled.value(), "x[TOOL_CALLS]g"));
}

TEST(Structural, RefusesByName) {
  const struct {
    const char* text;
    const char* says;
  } cases[] = {
      {"[]", "object"},
      {R"({"tags":[]})", "tags"},
      {R"({"tags":[{"begin":"a"}]})", "end"},
      {R"({"tags":[{"begin":"a","end":"b","schema":{"enum":[]}}]})", "tag 0"},
      {R"({"triggers":["x"],"tags":[{"begin":"a","end":"b"}]})", "triggers"},
      {R"({"triggers":[""],"tags":[{"begin":"a","end":"b"}]})", "empty"},
      {R"({"tags":[{"begin":"a","end":"b"}],"at_least_one":1})", "at_least_one"},
  };
  for (const auto& c : cases) {
    const auto grammar = StructuralGrammar(c.text, {});
    ASSERT_FALSE(grammar.ok()) << c.text;
    EXPECT_NE(grammar.status().message().find(c.says), std::string::npos)
        << grammar.status().message();
  }
}

}  // namespace
}  // namespace cellm::constrain
