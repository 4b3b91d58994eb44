#include "unicode/unicode.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "base/utf8.h"
#include "unicode/normalize.h"
#include "unicode/script.h"

namespace cellm::unicode {
namespace {

std::string Normalized(Form form, std::string_view text) {
  std::string out;
  AppendNormalized(form, text, &out);
  return out;
}

TEST(CharMask, AsciiAgreesWithTheLargeTable) {
  // The ASCII table is ours; everything else is utf8proc's. Both must say the same.
  for (char32_t c = 0; c < 128; ++c) {
    const uint32_t expected = internal::NonAsciiMask(c);
    const uint32_t category_bits = (1u << 30) - 1;
    EXPECT_EQ(CharMask(c) & category_bits, expected & category_bits) << "U+" << std::hex << +c;
    EXPECT_EQ(MaskOf(GeneralCategory(c)), CharMask(c) & category_bits);
  }
}

TEST(CharMask, WhiteSpaceIsTheListOfPropList) {
  const std::vector<char32_t> expected = {0x09,   0x0A,   0x0B,   0x0C,   0x0D,   0x20,   0x85,
                                          0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                          0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028,
                                          0x2029, 0x202F, 0x205F, 0x3000};
  std::vector<char32_t> found;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (IsWhiteSpace(c)) found.push_back(c);
  }
  EXPECT_EQ(found, expected);
}

TEST(CharMask, CategoriesOfSamples) {
  EXPECT_NE(CharMask(U'é') & kLl, 0u);
  EXPECT_NE(CharMask(U'ǅ') & kLt, 0u);
  EXPECT_NE(CharMask(0x0301) & kMark, 0u);
  EXPECT_NE(CharMask(U'½') & kNumber, 0u);
  EXPECT_NE(CharMask(U'你') & kLo, 0u);
  EXPECT_NE(CharMask(U'。') & kPunctuation, 0u);
  EXPECT_NE(CharMask(U'€') & kSymbol, 0u);
  EXPECT_EQ(GeneralCategory(0x1FAE9), Category::kSo);  // Unicode 16
  EXPECT_EQ(GeneralCategory(0x2EBF0), Category::kLo);  // Unicode 15.1
  EXPECT_EQ(GeneralCategory(0xA7CB), Category::kLu);   // Unicode 16
  EXPECT_EQ(CharMask(0x0378), MaskOf(Category::kCn));
  EXPECT_EQ(CharMask(0x110000), MaskOf(Category::kCn));
  EXPECT_EQ(CharMask(0xFFFFFFFF), MaskOf(Category::kCn));
}

TEST(Case, LowercaseAndFold) {
  std::string out;
  for (const char32_t c : {U'A', U'É', U'İ', U'Σ', U'ẞ', U'ß', U'1', U'Ⅷ'}) {
    AppendLowercase(c, &out);
  }
  EXPECT_EQ(out, "aéi̇σßß1ⅷ");
  EXPECT_EQ(FoldCase(U'K'), U'k');
  EXPECT_EQ(FoldCase(0x17F), U's');
}

TEST(Case, LowercaseOfCharactersNewerThanTheTables) {
  std::string out;
  for (const char32_t c :
       {U'\u1C89', U'\uA7CB', U'\uA7CC', U'\uA7DC', U'\U00010D50', U'\U00016EB8'}) {
    AppendLowercase(c, &out);
  }
  EXPECT_EQ(out, "\u1C8A\u0264\uA7CD\u019B\U00010D70\U00016ED3");
}

// The reference normalizes by Unicode 9.0; what it makes of these was read off it.
TEST(Normalize, CharactersNewerThanUnicode9NeitherCombineNorDecompose) {
  EXPECT_EQ(Normalized(Form::kNfkc, "\U0001E05F"), "\U0001E05F");  // a letter of 15.0
  EXPECT_EQ(Normalized(Form::kNfkd, "\u32FF"), "\u32FF");          // a square of 12.1
  EXPECT_EQ(Normalized(Form::kNfd, "\U00011938"), "\U00011938");
  EXPECT_EQ(Normalized(Form::kNfc, "\U00011935\U00011930"), "\U00011935\U00011930");
  // A mark of 14.0 is a starter there: the dot below and the acute do not pass it.
  EXPECT_EQ(Normalized(Form::kNfc, "a\u0898\u0323\u0301"), "a\u0898\u0323\u0301");
  EXPECT_EQ(Normalized(Form::kNfd, "a\u0898\u0323\u0301"), "a\u0898\u0323\u0301");
  EXPECT_EQ(Normalized(Form::kNfc, "a\u0323\u0301"), "\u1EA1\u0301");
}

TEST(Normalize, CombiningMarksAreThoseOfUnicode9) {
  EXPECT_TRUE(IsCombiningMark(0x301));
  EXPECT_TRUE(IsCombiningMark(0x903));
  EXPECT_TRUE(IsCombiningMark(0x20DD));
  EXPECT_TRUE(IsCombiningMark(0x1CF2));    // a mark until 12.0
  EXPECT_FALSE(IsCombiningMark(0x111C9));  // since 11.0
  EXPECT_FALSE(IsCombiningMark(0x898));    // 14.0
  EXPECT_FALSE(IsCombiningMark(0x897));    // 16.0
  EXPECT_FALSE(IsCombiningMark('a'));
  EXPECT_FALSE(IsCombiningMark(0x110000));
}

// Read off the reference's Punctuation pre-tokenizer.
TEST(Classes, PunctuationIsThatOfUnicode8) {
  for (const char32_t c : {U'.', U'_', U'\u3002', U'\u166D', U'\U000111C9', U'\u2E42'}) {
    EXPECT_TRUE(IsPunctuationOfUnicode8(c)) << std::hex << +c;
  }
  for (const char32_t c : {U'$', U'a', U'\u061D', U'\u2E43', U'\u2E52', U'\U0001E95E'}) {
    EXPECT_FALSE(IsPunctuationOfUnicode8(c)) << std::hex << +c;
  }
}

// Read off the reference's BertNormalizer: strip_accents and clean_text.
TEST(Classes, MarksAndControlsAreThoseOfUnicode8) {
  for (const char32_t c : {U'\u0300', U'\u0483', U'\u1734', U'\u20F0', U'\U0001E8D0'}) {
    EXPECT_TRUE(IsMarkOfUnicode8(c)) << std::hex << +c;
  }
  for (const char32_t c : {U'a', U'\u0903', U'\u08D4', U'\u1885', U'\uA9BD', U'\U000111C9',
                           U'\u0898', U'\u1DF6', U'\U0001E944', U'\U0001E5EE'}) {
    EXPECT_FALSE(IsMarkOfUnicode8(c)) << std::hex << +c;
  }
  for (const char32_t c : {U'\u0007', U'\u0085', U'\u00AD', U'\u200B', U'\uFEFF', U'\uE000',
                           U'\U000110BD', U'\U000E0001'}) {
    EXPECT_TRUE(IsControlOfUnicode8(c)) << std::hex << +c;
  }
  for (const char32_t c : {U'a', U' ', U'\u0378', U'\u0890', U'\u0891', U'\u08E2', U'\U000110CD',
                           U'\U00013430', U'\U0001343F', char32_t{0x110000}}) {
    EXPECT_FALSE(IsControlOfUnicode8(c)) << std::hex << +c;
  }
}

// Read off the reference's Digits pre-tokenizer.
TEST(Classes, NumbersAreThoseOfUnicode17) {
  for (const char32_t c : {U'7', U'½', U'Ⅷ', U'①', U'\u0664', U'\U00010D40', U'\U00011DE0',
                           U'\U00011DE9', U'\U00016FF4', U'\U00016FF6'}) {
    EXPECT_TRUE(IsNumberOfUnicode17(c)) << std::hex << +c;
  }
  for (const char32_t c : {U'a', U'一', U'\U00011DDF', U'\U00011DEA', U'\U00016FF3'}) {
    EXPECT_FALSE(IsNumberOfUnicode17(c)) << std::hex << +c;
  }
}

TEST(Classes, WordsAndIdeographs) {
  EXPECT_TRUE(IsWordCharacter('_'));
  EXPECT_TRUE(IsWordCharacter(0x200D));
  EXPECT_TRUE(IsWordCharacter(0x24B6));
  EXPECT_FALSE(IsWordCharacter('-'));
  EXPECT_FALSE(IsWordCharacter(U'½'));
  EXPECT_TRUE(IsCjkIdeograph(U'世'));
  EXPECT_FALSE(IsCjkIdeograph(U'カ'));
  EXPECT_TRUE(IsAsciiPunctuation('~'));
  EXPECT_FALSE(IsAsciiPunctuation('a'));
}

TEST(Script, Samples) {
  EXPECT_EQ(ScriptOf(U'漢'), kScriptHan);
  EXPECT_EQ(ScriptOf(U'ひ'), kScriptHiragana);
  EXPECT_EQ(ScriptOf(U'カ'), kScriptKatakana);
  EXPECT_EQ(ScriptOf(U'a'), ScriptOf(U'é'));
  EXPECT_NE(ScriptOf(U'a'), ScriptOf(U'а'));
  EXPECT_EQ(ScriptOf(0x0378), kScriptUnknown);
  // Read off the reference's UnicodeScripts pre-tokenizer: 9.0 is known to it, 10.0 is not.
  EXPECT_NE(ScriptOf(0x1E900), kScriptUnknown);
  EXPECT_EQ(ScriptOf(0x1CF7), kScriptUnknown);
  EXPECT_EQ(ScriptOf(0x9FD6), kScriptUnknown);
  EXPECT_EQ(ScriptOf(0x2CEB0), kScriptUnknown);
  EXPECT_EQ(ScriptOf(0x10FFFF), kScriptUnknown);
}

TEST(Normalize, TextbookCases) {
  // Examples of UAX #15, figures 3 to 6.
  EXPECT_EQ(Normalized(Form::kNfc, "e\u0301"), "é");
  EXPECT_EQ(Normalized(Form::kNfd, "é"), "e\u0301");
  EXPECT_EQ(Normalized(Form::kNfc, "\u212B"), "\u00C5");
  EXPECT_EQ(Normalized(Form::kNfkc, "ﬁ"), "fi");
  EXPECT_EQ(Normalized(Form::kNfc, "ﬁ"), "ﬁ");
  EXPECT_EQ(Normalized(Form::kNfkc, "2\u2075"), "25");
  EXPECT_EQ(Normalized(Form::kNfkc, "\u1E9B\u0323"), "\u1E69");
  EXPECT_EQ(Normalized(Form::kNfd, "\u1E9B\u0323"), "\u017F\u0323\u0307");
  EXPECT_EQ(Normalized(Form::kNfc, "\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(Normalized(Form::kNfd, "\uD55C"), "\u1112\u1161\u11AB");
  EXPECT_EQ(Normalized(Form::kNfc, "\uD55C"), "\uD55C");
  EXPECT_EQ(Normalized(Form::kNfc, "\u0958"), "\u0915\u093C");  // composition exclusion
  EXPECT_EQ(Normalized(Form::kNfc, ""), "");
  EXPECT_EQ(Normalized(Form::kNfc, std::string_view("a\0b", 3)), std::string_view("a\0b", 3));
}

// Chunks must not influence each other: normalizing a text in one piece and in chunks agree, and
// the forms keep the laws of UAX #15.
TEST(Normalize, ChunksAndLaws) {
  const std::vector<char32_t> alphabet = {
      U'a',   U'é',   0x301, 0x323,  0x307,  0x345,   0x1161,  0x11A8, 0x1100,  0xAC00, 0xAC01,
      0x212B, 0x1E9B, 0x958, 0x93C,  0x9C7,  0x9BE,   0xF73,   0xF71,  0xF72,   0x344,  U'ﬁ',
      U' ',   0x3099, U'か', 0xFF76, 0xFF9E, 0x1D15E, 0x1D165, U'你',  0x2F800, 0x0B47, 0x0B56};
  Rng rng(7);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t i = 0, count = rng.NextBelow(9); i < count; ++i) {
      AppendUtf8(alphabet[rng.NextBelow(alphabet.size())], &text);
    }
    for (const Form form : {Form::kNfc, Form::kNfd, Form::kNfkc, Form::kNfkd}) {
      std::string whole;
      Normalizer(form).AppendChunk(text, &whole);
      ASSERT_EQ(Normalized(form, text), whole) << "round " << round << " text " << text;
      ASSERT_EQ(Normalized(form, whole), whole) << "round " << round;  // idempotent
    }
    ASSERT_EQ(Normalized(Form::kNfc, Normalized(Form::kNfd, text)), Normalized(Form::kNfc, text));
    ASSERT_EQ(Normalized(Form::kNfd, Normalized(Form::kNfc, text)), Normalized(Form::kNfd, text));
  }
}

TEST(Normalize, LongRunsOfAccentsAreNotQuadratic) {
  // 200,000 marks in falling order of combining class: a quadratic sort would run for minutes.
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += "\u0301";
  for (int i = 0; i < 100000; ++i) text += "\u0323";
  const std::string out = Normalized(Form::kNfd, text);
  EXPECT_EQ(out.size(), text.size());
  EXPECT_EQ(out.substr(1, 2), "\u0323");
}

TEST(Grapheme, Clusters) {
  EXPECT_EQ(GraphemeEnd("e\u0301x", 0), 3u);
  EXPECT_EQ(GraphemeEnd("\r\nx", 0), 2u);
  const std::string family = "👩‍💻!";
  EXPECT_EQ(GraphemeEnd(family, 0), family.size() - 1);
  EXPECT_EQ(GraphemeEnd("ab", 1), 2u);
}

}  // namespace
}  // namespace cellm::unicode
