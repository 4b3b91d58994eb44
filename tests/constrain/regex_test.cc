// Regular expressions and choices: what is accepted, what is refused, and masks against their
// definition.
#include "constrain/regex.h"

#include <gtest/gtest.h>

#include <set>

#include "base/utf8.h"
#include "constrain/choices.h"
#include "constrain/support.h"

namespace cellm::constrain {
namespace {

struct MatchCase {
  const char* pattern;
  const char* text;
  bool matches;
};

constexpr MatchCase kMatches[] = {
    {"abc", "abc", true},
    {"abc", "ab", false},
    {"abc", "abcd", false},
    {"", "", true},
    {"", "a", false},
    {"a|b|", "", true},
    {"(a|b)*c", "ababc", true},
    {"(a|b)*c", "abab", false},
    {"^abc$", "abc", true},
    {"a{2}", "aa", true},
    {"a{2}", "aaa", false},
    {"a{2,}", "aaaaa", true},
    {"a{2,3}", "aaaa", false},
    {"a{0}b", "b", true},
    {"a+?b*?", "aab", true},
    {"x{y}", "x{y}", true},
    {"[a-c]+", "abcab", true},
    {"[a-c]+", "abd", false},
    {"[^a-c]", "d", true},
    {"[^a-c]", "b", false},
    {"[^a-c]", "\xF0\x9F\x98\x80", true},
    {"[a\\-z]", "-", true},
    {"[a\\-z]", "b", false},
    {"[a-]", "-", true},
    {"[\\]x]", "]", true},
    {"\\d+", "0123456789", true},
    {"\\d", "\xD9\xA1", false},  // ARABIC-INDIC DIGIT ONE: a digit for Python, none for ECMAScript
    {"\\D", "\xD9\xA1", false},  // so neither \d nor \D
    {"[^\\d]", "\xD9\xA1", false},
    {"\\w+", "aZ_9", true},
    {"\\W", "\xC3\xA9", false},
    {"\\s", "\t", true},
    {"\\S", "\xC2\xA0", false},
    {".", "\n", false},
    {".", "\xC3\xA9", true},
    {"caf\xC3\xA9", "caf\xC3\xA9", true},
    {"\\x41\\u0042\\u{1F600}", "AB\xF0\x9F\x98\x80", true},
    {"\\uD83D\\uDE00", "\xF0\x9F\x98\x80", true},
    {"\\p{Lu}\\p{Ll}+", "\xC3\x84rger", true},
    {"\\P{L}", "a", false},
    {"\\p{L}", "\xE4\xB8\xAD", true},
    {"(?:ab)+", "abab", true},
    {"(?<name>ab)(?P<x>c)", "abc", true},
    {"\\.\\*\\(\\)", ".*()", true},
    {"\\t\\n\\r\\f\\v\\0", "\t\n\r\f\v", false},
    {"[\\b]", "\b", true},
    {"^(?!a)\\w+$", "bc", true},
    {"^(?!a)\\w+$", "abc", false},
    {"(?=.*\\d)[a-z0-9]{3}", "a1b", true},
    {"(?=.*\\d)[a-z0-9]{3}", "abc", false},
    {"^(?!\\.)(?!.*\\.\\.)([a-z.]*)[a-z]@x$", "a.b@x", true},
    {"^(?!\\.)(?!.*\\.\\.)([a-z.]*)[a-z]@x$", "a..b@x", false},
    {"^(?!\\.)(?!.*\\.\\.)([a-z.]*)[a-z]@x$", ".ab@x", false},
    {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "-12.5", true},
    {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "+.", false},
    {"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", "", false},
    {"^(?!\\d)[^a]$", "\xD9\xA1", false},  // what any engine takes for a digit
};

TEST(Regex, MatchesWholeTexts) {
  const auto trie = MakeTrie(ByteVocabulary());
  for (const MatchCase& c : kMatches) {
    SCOPED_TRACE(std::string(c.pattern) + " on " + c.text);
    const auto constraint = Compile(ConstraintKind::kRegex, c.pattern, *trie);
    ASSERT_TRUE(constraint.ok()) << constraint.status().message();
    EXPECT_EQ(Accepts(*constraint.value(), c.text), c.matches);
  }
}

TEST(Regex, SearchMatchesSomewhere) {
  const MatchCase cases[] = {{"b", "abc", true},       {"^b", "abc", false},
                             {"b$", "abc", false},     {"^abc$", "abc", true},
                             {"^a|c$", "xc", true},    {"", "anything", true},
                             {"a.c", "xxabcxx", true}, {"a.c", "ac", false}};
  for (const MatchCase& c : cases) {
    SCOPED_TRACE(std::string(c.pattern) + " in " + c.text);
    const auto automaton = CompileRegex(c.pattern, RegexUse::kSearch);
    ASSERT_TRUE(automaton.ok()) << automaton.status().message();
    EXPECT_EQ(automaton.value().Accepts(c.text), c.matches);
  }
}

struct RefusedCase {
  const char* pattern;
  StatusCode code;
  const char* says;
};

constexpr RefusedCase kRefused[] = {
    {"x(?=a)b", StatusCode::kUnsupported, "lookaround"},
    {"(?=a)b", StatusCode::kInvalidArgument, "no text"},
    {"(?=a)a|b", StatusCode::kUnsupported, "lookaround"},
    {"((?=a)a)", StatusCode::kUnsupported, "lookaround"},
    {"(?<!a)b", StatusCode::kUnsupported, "lookaround"},
    {"(a)\\1", StatusCode::kUnsupported, "backreference"},
    {"\\k<a>", StatusCode::kUnsupported, "backreference"},
    {"\\bword", StatusCode::kUnsupported, "word boundary"},
    {"(?i)a", StatusCode::kUnsupported, "flags"},
    {"(?>a)", StatusCode::kUnsupported, "atomic"},
    {"a++", StatusCode::kUnsupported, "possessive"},
    {"\\p{Greek}", StatusCode::kUnsupported, "general category"},
    {"[[:alpha:]]", StatusCode::kUnsupported, "POSIX"},
    {"(a", StatusCode::kInvalidArgument, "expected ')'"},
    {"a)", StatusCode::kInvalidArgument, "')' without '('"},
    {"*a", StatusCode::kInvalidArgument, "nothing to repeat"},
    {"a{3,2}", StatusCode::kInvalidArgument, "n below m"},
    {"a{,2}", StatusCode::kInvalidArgument, "{0,n}"},
    {"[z-a]", StatusCode::kInvalidArgument, "before its beginning"},
    {"[a", StatusCode::kInvalidArgument, "expected ']'"},
    {"[]", StatusCode::kInvalidArgument, "empty set"},
    {"\\", StatusCode::kInvalidArgument, "backslash"},
    {"\\q", StatusCode::kInvalidArgument, "not known"},
    {"\\uD800", StatusCode::kInvalidArgument, "surrogate"},
    {"\xFF", StatusCode::kInvalidArgument, "UTF-8"},
    {"a^b", StatusCode::kInvalidArgument, "no text"},
    {"((a{500}){500}){500}", StatusCode::kOutOfRange, "states"},
};

TEST(Regex, RefusesByName) {
  for (const RefusedCase& c : kRefused) {
    SCOPED_TRACE(c.pattern);
    const auto automaton = CompileRegex(c.pattern, RegexUse::kWhole);
    ASSERT_FALSE(automaton.ok());
    EXPECT_EQ(automaton.status().code(), c.code) << automaton.status().message();
    EXPECT_NE(automaton.status().message().find(c.says), std::string::npos)
        << automaton.status().message();
  }
  std::string deep(5000, '(');
  EXPECT_FALSE(CompileRegex(deep, RegexUse::kWhole).ok());
}

// ---- masks against their definition ----------------------------------------------------------

// Whether some continuation of `text` is accepted, found by trying every byte string up to the
// length that is left. Small alphabets only.
bool CanBeFinished(Constraint& constraint, const std::string& text, std::string_view alphabet,
                   size_t longest) {
  if (Accepts(constraint, text)) return true;
  if (text.size() >= longest) return false;
  for (const char c : alphabet) {
    if (CanBeFinished(constraint, text + c, alphabet, longest)) return true;
  }
  return false;
}

TEST(Mask, IsTheNaiveDefinition) {
  // Finite languages over {a, b, c} of texts up to 5 bytes, and tokens of up to 3.
  const char* const patterns[] = {"a(b|c){0,3}", "(ab|a)(c|bc)?", "(a|b){2,4}c?",
                                  "abc|acb|b?",  "(aa|b){1,2}",   "a?b?c?a?b?"};
  std::vector<std::string> texts;
  const std::string alphabet = "abc";
  for (const char x : alphabet) {
    texts.push_back({x});
    for (const char y : alphabet) {
      texts.push_back({x, y});
      for (const char z : alphabet) texts.push_back({x, y, z});
    }
  }
  std::vector<TokenText> tokens;
  for (const std::string& text : texts) tokens.push_back({text});
  const auto trie = MakeTrie(tokens);
  for (const char* const pattern : patterns) {
    const auto compiled = Compile(ConstraintKind::kRegex, pattern, *trie);
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    Constraint& constraint = *compiled.value();
    // From every text that tokens can spell.
    std::vector<std::vector<int32_t>> paths = {{}};
    size_t compared = 0;
    for (size_t i = 0; i < paths.size() && i < 400; ++i) {
      Matcher matcher(constraint);
      std::string text;
      for (const int32_t id : paths[i]) {
        ASSERT_TRUE(matcher.Accept(id).ok());
        text += texts[static_cast<size_t>(id)];
      }
      std::vector<uint64_t> words(trie->mask_words());
      ASSERT_TRUE(matcher.FillAllowed(words).ok());
      EXPECT_EQ(matcher.MayEnd().value(), Accepts(constraint, text));
      for (size_t id = 0; id < texts.size(); ++id) {
        const bool allowed = (words[id / 64] >> (id % 64) & 1) != 0;
        EXPECT_EQ(allowed, CanBeFinished(constraint, text + texts[id], alphabet, 7))
            << pattern << ": \"" << text << "\" + \"" << texts[id] << '"';
        ++compared;
        if (!allowed) continue;
        paths.push_back(paths[i]);
        paths.back().push_back(static_cast<int32_t>(id));
      }
    }
    EXPECT_GT(compared, texts.size());
  }
}

TEST(Mask, SplitsCharactersOverTokens) {
  const auto trie = MakeTrie(TextVocabulary());
  const auto compiled = Compile(ConstraintKind::kRegex, "[\\u00E9\\u20AC\\u{1F600}]+", *trie);
  ASSERT_TRUE(compiled.ok());
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    const Decoded decoded = DecodeRandomly(*compiled.value(), *trie, rng, 60);
    ASSERT_TRUE(decoded.status.ok()) << decoded.status.message();
    if (!decoded.finished) continue;
    EXPECT_TRUE(IsValidUtf8(decoded.text));
    EXPECT_FALSE(decoded.text.empty());
  }
}

// ---- choices ---------------------------------------------------------------------------------

TEST(Choices, AreTheOnlyTexts) {
  const auto trie = MakeTrie(TextVocabulary());
  const auto compiled =
      Compile(ConstraintKind::kChoices, R"(["yes", "no", "not sure", "\u20ac", ""])", *trie);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  for (const char* const text : {"yes", "no", "not sure", "\xE2\x82\xAC", ""}) {
    EXPECT_TRUE(Accepts(*compiled.value(), text)) << text;
  }
  for (const char* const text : {"ye", "yess", "not", "n", " yes"}) {
    EXPECT_FALSE(Accepts(*compiled.value(), text)) << text;
  }
  Rng rng(1);
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) seen.insert(DecodeRandomly(*compiled.value(), *trie, rng, 20).text);
  EXPECT_EQ(seen.size(), 5u);
}

TEST(Choices, RefuseWhatIsNoList) {
  for (const char* const text : {"[]", "{}", "\"a\"", "[1]", "[\"a\"", ""}) {
    EXPECT_EQ(ChoicesGrammar(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

// After a complete text only the end may come, again and again (never an error).
TEST(Matcher, AllowsOnlyTheEndAfterACompleteText) {
  const auto trie = MakeTrie(TextVocabulary());
  const auto compiled = Compile(ConstraintKind::kChoices, R"(["{}"])", *trie);
  ASSERT_TRUE(compiled.ok());
  Matcher matcher(*compiled.value());
  EXPECT_FALSE(matcher.MayEnd().value());
  std::string forced;
  std::vector<uint8_t> followers;
  ASSERT_TRUE(matcher.ForcedText(100, &forced, 8, &followers).ok());
  EXPECT_EQ(forced, "{}");
  EXPECT_TRUE(followers.empty());
  ASSERT_TRUE(matcher.Accept('{').ok());
  ASSERT_TRUE(matcher.Accept('}').ok());
  std::vector<uint64_t> words(trie->mask_words());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(matcher.FillAllowed(words).ok());
    for (const uint64_t word : words) EXPECT_EQ(word, 0u);
    EXPECT_TRUE(matcher.MayEnd().value());
    EXPECT_TRUE(matcher.MustEnd().value());
  }
  EXPECT_EQ(matcher.Accept('x').code(), StatusCode::kInternal);
  EXPECT_TRUE(matcher.MustEnd().value());
}

// A vocabulary without some bytes: what cannot be spelled to its end is not begun.
TEST(Matcher, NeverBeginsWhatTheVocabularyCannotEnd) {
  const auto trie = MakeTrie({{"a"}, {"b"}, {"ab"}, {"cd"}});
  const auto both = Compile(ConstraintKind::kChoices, R"(["abb", "ac"])", *trie);
  ASSERT_TRUE(both.ok());
  Rng rng(3);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(DecodeRandomly(*both.value(), *trie, rng, 10).text, "abb");
  }
  const auto none = Compile(ConstraintKind::kChoices, R"(["ax"])", *trie);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("vocabulary"), std::string::npos);
}

// Tables that begin anew in the middle of a text disturb nobody.
TEST(Machine, GoesOnAfterItsTablesWereDropped) {
  const auto trie = MakeTrie(TextVocabulary());
  MachineLimits limits;
  limits.table_bytes = 1;  // at every chance
  limits.mask_bytes = 1;
  const auto small = Constraint::Compile(ConstraintKind::kRegex, "(the |na(me)?){3}[0-9]{2,5}",
                                         *trie, SystemAllocator(), {}, limits);
  const auto large = Compile(ConstraintKind::kRegex, "(the |na(me)?){3}[0-9]{2,5}", *trie);
  ASSERT_TRUE(small.ok() && large.ok());
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng a(seed);
    Rng b(seed);
    const Decoded x = DecodeRandomly(*small.value(), *trie, a, 100);
    const Decoded y = DecodeRandomly(*large.value(), *trie, b, 100);
    ASSERT_TRUE(x.status.ok()) << x.status.message();
    EXPECT_EQ(x.ids, y.ids);
  }
  EXPECT_GT(small.value()->machine().generation(), 10u);
}

// The same for what is remembered of calls, with a grammar that nests.
TEST(Machine, GoesOnAfterItsCallsWereDropped) {
  const auto trie = MakeTrie(TextVocabulary());
  MachineLimits limits;
  limits.memory_entries = 150;
  const char* const schema = R"({"type":"array","items":{},"minItems":3})";
  const auto small = Constraint::Compile(ConstraintKind::kJsonSchema, schema, *trie,
                                         SystemAllocator(), {}, limits);
  const auto large = Compile(ConstraintKind::kJsonSchema, schema, *trie);
  ASSERT_TRUE(small.ok() && large.ok());
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng a(seed);
    Rng b(seed);
    const Decoded x = DecodeRandomly(*small.value(), *trie, a, 200);
    const Decoded y = DecodeRandomly(*large.value(), *trie, b, 200);
    ASSERT_TRUE(x.status.ok()) << x.status.message();
    EXPECT_EQ(x.ids, y.ids);
  }
  EXPECT_GT(small.value()->machine().epoch(), 2u);
}

}  // namespace
}  // namespace cellm::constrain
