#include "regex/split.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/utf8.h"
#include "json/json.h"
#include "platform/file.h"
#include "regex/scanners.h"
#include "support/paths.h"
#include "unicode/unicode.h"

namespace cellm::regex {
namespace {

#define CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ANY "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

// The patterns as published tokenizers write them.
const char* const kPatterns[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    ANY "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" CL100K_TAIL,
    ANY "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" CL100K_TAIL,
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" CL100K_TAIL,
    ANY
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ANY "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*" ANY "?|\\p{N}{1,3}" O200K_TAIL,
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*|\\p{N}" O200K_TAIL,
    ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
     "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    "\\p{N}{1,3}",
    "\\p{N}",
    "\\p{N}+",
    "[一-龥\u0800-一가-\uD7FF]+",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[\r\n]",
    "\\s?\\p{L}+",
    "\\s?[^\\s\\p{L}\\p{N}]+",
    " {2,}",
    "\\p{Mn}",
    "[l▁]+",
    "[a-z\\-_]{2,4}",
    "\\d{3}",
};

std::vector<Span> Matches(const SplitPattern& pattern, std::string_view text) {
  std::vector<Span> spans;
  const Status status = pattern.FindAll(text, &spans);
  EXPECT_TRUE(status.ok()) << status.message();
  return spans;
}

std::vector<std::string> Pieces(const char* pattern, std::string_view text) {
  Result<SplitPattern> compiled = SplitPattern::Compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message();
  std::vector<std::string> pieces;
  for (const Span& span : Matches(*compiled, text)) {
    pieces.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return pieces;
}

TEST(SplitPattern, PublishedPatternsHaveScanners) {
  for (const char* pattern : kPatterns) {
    Result<SplitPattern> compiled = SplitPattern::Compile(pattern);
    ASSERT_TRUE(compiled.ok()) << pattern;
    EXPECT_NE(compiled->scanner(), Scanner::kPcre2) << pattern;
  }
}

TEST(SplitPattern, Gpt2Example) {
  EXPECT_EQ(
      Pieces(kPatterns[0], "Hello  don't 42nd...\n x "),
      (std::vector<std::string>{"Hello", " ", " don", "'t", " 42", "nd", "...", "\n", " x", " "}));
}

TEST(SplitPattern, Cl100kExample) {
  EXPECT_EQ(Pieces(kPatterns[1], "I'LL pay 12345\r\n\n  now!\n"),
            (std::vector<std::string>{"I", "'LL", " pay", " ", "123", "45", "\r\n\n", " ", " now",
                                      "!\n"}));
}

// Texts that stand on the corners of the patterns.
std::string RandomText(Rng& rng) {
  static const char* const kParts[] = {
      "a",   "B",  "é",      "É",      "ǅ",      "ʰ",      "你",     "ひ",     "カ",     "1", "٣",
      "½",   " ",  "  ",     "\t",     "\n",     "\r\n",   "\r",     "'",      "s",      "S", "'re",
      "'LL", "'ſ", "ſ",      "\u0301", "\u0903", "\u00A0", "\u3000", "\u2028", "\u0085", ".", "!",
      "/",   "-",  "_",      "€",      "😀",      "\u200D", "\uFEFF", "\u0000", "l",      "▁", "가",
      "T",   "d",  "\u0378", "\uE000", "k",      "\u212A", "zz"};
  std::string text;
  for (uint64_t i = 0, count = rng.NextBelow(14); i < count; ++i) {
    const char* part = kParts[rng.NextBelow(std::size(kParts))];
    text += *part == '\0' ? std::string(1, '\0') : std::string(part);
  }
  return text;
}

void ExpectSame(const SplitPattern& scanner, const SplitPattern& pcre2, std::string_view text,
                const char* pattern) {
  const std::vector<Span> a = Matches(scanner, text);
  const std::vector<Span> b = Matches(pcre2, text);
  ASSERT_EQ(a.size(), b.size()) << pattern << "\non: " << text;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].begin, b[i].begin) << pattern << "\non: " << text << "\nmatch " << i;
    ASSERT_EQ(a[i].end, b[i].end) << pattern << "\non: " << text << "\nmatch " << i;
  }
}

// Has the text a character that PCRE2 finds unassigned and we do not?
bool Newer(const SplitPattern& unassigned, std::string_view text) {
  for (const Span& span : Matches(unassigned, text)) {
    const char32_t c = DecodeUtf8(text.substr(span.begin)).code_point;
    if (unicode::GeneralCategory(c) != unicode::Category::kCn) return true;
  }
  return false;
}

TEST(SplitPattern, ScannersAgreeWithPcre2) {
  if (!HasPcre2()) GTEST_SKIP() << "SKIPPED: this build has no PCRE2 to compare with";
  std::vector<std::string> texts;
  size_t left_out = 0;
  Result<SplitPattern> unassigned = SplitPattern::CompileWithPcre2("\\p{Cn}");
  ASSERT_TRUE(unassigned.ok());
  Result<std::string> golden =
      platform::SystemFiles().Read(testing::TestData("tokenizer-golden/texts.jsonl"), 1 << 24);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  for (size_t at = 0; at < golden->size();) {
    const size_t end = golden->find('\n', at);
    auto line = json::Document::Parse(golden->substr(at, end - at), "texts.jsonl");
    ASSERT_TRUE(line.ok());
    std::string_view text;
    ASSERT_TRUE((*line)->root().Find("text").GetString(&text));
    // Characters newer than PCRE2's tables have no common answer.
    if (Newer(*unassigned, text)) {
      ++left_out;
    } else {
      texts.emplace_back(text);
    }
    at = end + 1;
  }
  ASSERT_GT(texts.size(), 100u);
  ASSERT_LT(left_out, 5u);
  Rng rng(20260101);
  for (int i = 0; i < 20000; ++i) texts.push_back(RandomText(rng));
  for (const char* pattern : kPatterns) {
    Result<SplitPattern> scanner = SplitPattern::Compile(pattern);
    Result<SplitPattern> pcre2 = SplitPattern::CompileWithPcre2(pattern);
    ASSERT_TRUE(scanner.ok() && pcre2.ok()) << pattern << pcre2.status().message();
    for (const std::string& text : texts) {
      ExpectSame(*scanner, *pcre2, text, pattern);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(SplitPattern, UnknownPatternsRunThroughPcre2OrAreNamed) {
  Result<SplitPattern> compiled = SplitPattern::Compile("(?<=x)foo|ba[rz]");
  if (!HasPcre2()) {
    EXPECT_EQ(compiled.status().code(), StatusCode::kUnsupported);
    EXPECT_NE(compiled.status().message().find("(?<=x)foo"), std::string::npos);
    return;
  }
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  EXPECT_EQ(compiled->scanner(), Scanner::kPcre2);
  EXPECT_EQ(Matches(*compiled, "xfoo foo barbaz").size(), 3u);
  Result<SplitPattern> broken = SplitPattern::Compile("(unclosed|x");
  EXPECT_EQ(broken.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(broken.status().message().find("(unclosed"), std::string::npos);
}

TEST(SplitPattern, RunawayPatternsStop) {
  if (!HasPcre2()) GTEST_SKIP() << "SKIPPED: this build has no PCRE2";
  Result<SplitPattern> compiled = SplitPattern::Compile("(a|aa|aaa)+(?<=b)");
  ASSERT_TRUE(compiled.ok());
  std::vector<Span> spans;
  EXPECT_EQ(compiled->FindAll(std::string(4000, 'a'), &spans).code(), StatusCode::kOutOfRange);
}

// Worst cases for giving back: long runs of one kind, and of kinds that alternate.
TEST(SplitPattern, ScannersAreLinear) {
  std::vector<std::string> texts(5);
  texts[0] = std::string(1 << 20, ' ') + "x";
  texts[1] = "\n" + std::string(1 << 20, ' ') + "x";
  for (int i = 0; i < 1 << 17; ++i) {
    texts[2] += "你A";
    texts[3] += " \n";
    texts[4] += "\u0301A";
  }
  for (const char* pattern : kPatterns) {
    Result<SplitPattern> compiled = SplitPattern::Compile(pattern);
    ASSERT_TRUE(compiled.ok());
    for (const std::string& text : texts) {
      const auto start = std::chrono::steady_clock::now();
      Matches(*compiled, text);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      EXPECT_LT(seconds.count(), 5.0) << pattern;  // quadratic would take hours
    }
  }
}

}  // namespace
}  // namespace cellm::regex
