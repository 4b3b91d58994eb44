#include "json/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "base/limits.h"
#include "base/numbers.h"
#include "base/rng.h"
#include "json/tape.h"
#include "platform/file.h"
#include "support/paths.h"

namespace cellm::json {
namespace {

std::unique_ptr<Document> MustParse(std::string_view text) {
  auto document = Document::Parse(text, "test");
  EXPECT_TRUE(document.ok()) << document.status().message() << " in " << text;
  return document.ok() ? std::move(document).value() : nullptr;
}

// Vocabularies have pieces such as \ud: an escaped backslash, no surrogate.
TEST(Json, EscapedBackslashBeforeUd) {
  auto document = MustParse(R"(["\\ud800","\\\\ud","\\\\\\uDfff"])");
  const Value root = document->root();
  std::string_view text;
  ASSERT_TRUE(root.At(0).GetString(&text));
  EXPECT_EQ(text, "\\ud800");
  ASSERT_TRUE(root.At(1).GetString(&text));
  EXPECT_EQ(text, "\\\\ud");
  ASSERT_TRUE(root.At(2).GetString(&text));
  EXPECT_EQ(text, "\\\\\\uDfff");
}

TEST(Json, WalksObjectsInFileOrderAndFindsTheLastDuplicate) {
  auto document = MustParse(R"({"b":1,"a":[true,null,"x",{"k":-2.5}],"b":3,"e":{},"f":[]})");
  const Value root = document->root();
  ASSERT_TRUE(root.is_object());
  EXPECT_EQ(root.size(), 5u);
  std::string keys;
  for (Value v = root.First(); v.exists(); v = root.Next(v)) keys += root.KeyOf(v);
  EXPECT_EQ(keys, "babef");
  int64_t b = 0;
  ASSERT_TRUE(root.Find("b").GetInt64(&b));
  EXPECT_EQ(b, 3);
  const Value a = root.Find("a");
  ASSERT_TRUE(a.is_array());
  EXPECT_EQ(a.size(), 4u);
  bool flag = false;
  EXPECT_TRUE(a.At(0).GetBool(&flag));
  EXPECT_TRUE(flag);
  EXPECT_TRUE(a.At(1).is_null());
  EXPECT_FALSE(a.At(1).has_value());
  std::string_view text;
  EXPECT_TRUE(a.At(2).GetString(&text));
  EXPECT_EQ(text, "x");
  EXPECT_TRUE(a.KeyOf(a.At(2)).empty());
  double k = 0;
  EXPECT_TRUE(a.At(3).Find("k").GetDouble(&k));
  EXPECT_EQ(k, -2.5);
  EXPECT_FALSE(a.At(4).exists());
  EXPECT_FALSE(root.Find("e").First().exists());
  EXPECT_FALSE(root.Find("f").First().exists());
  EXPECT_FALSE(root.Find("nothing").exists());
  EXPECT_FALSE(root.Next(root).exists());
  EXPECT_FALSE(Value().Find("x").exists());
}

TEST(Json, ReadsNumbersOfEveryKind) {
  auto document = MustParse(
      "[0,-0,9223372036854775807,-9223372036854775808,9223372036854775808,18446744073709551615,"
      "18446744073709551616,-9223372036854775809,128.0,128.5,1e3,Infinity,-Infinity,NaN,1e999,"
      "1e-999,-1e30]");
  const Value root = document->root();
  struct Case {
    bool is_integer, fits_int64, fits_uint64;
    double value;
    const char* digits;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const Case cases[] = {
      {true, true, true, 0, ""},
      {true, true, true, 0, ""},
      {true, true, true, 9223372036854775807.0, ""},
      {true, true, false, -9223372036854775808.0, ""},
      {true, false, true, 9223372036854775808.0, ""},
      {true, false, true, 18446744073709551615.0, ""},
      {true, false, false, 18446744073709551616.0, "18446744073709551616"},
      {true, false, false, -9223372036854775809.0, "-9223372036854775809"},
      {false, true, true, 128, ""},
      {false, false, false, 128.5, ""},
      {false, true, true, 1000, ""},
      {false, false, false, inf, ""},
      {false, false, false, -inf, ""},
      {false, false, false, std::nan(""), ""},
      {false, false, false, inf, ""},
      {false, true, true, 0, ""},
      {false, false, false, -1e30, ""},
  };
  ASSERT_EQ(root.size(), std::size(cases));
  size_t i = 0;
  for (Value v = root.First(); v.exists(); v = root.Next(v), ++i) {
    SCOPED_TRACE(i);
    const Case& expected = cases[i];
    int64_t narrow = 0;
    uint64_t wide = 0;
    double real = 0;
    EXPECT_TRUE(v.is_number());
    EXPECT_EQ(v.is_integer(), expected.is_integer);
    EXPECT_EQ(v.GetInt64(&narrow), expected.fits_int64);
    EXPECT_EQ(v.GetUint64(&wide), expected.fits_uint64);
    ASSERT_TRUE(v.GetDouble(&real));
    if (std::isnan(expected.value)) {
      EXPECT_TRUE(std::isnan(real));
    } else {
      EXPECT_EQ(real, expected.value);
    }
    EXPECT_EQ(v.NumberText(), expected.digits);
  }
  int64_t kept = 7;
  EXPECT_FALSE(root.At(9).GetInt64(&kept));
  EXPECT_EQ(kept, 7);
}

TEST(Json, UnescapesStrings) {
  auto document = MustParse(
      "[\"a\\u0000b\",\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"\\u00e9\\u20ac\",\"\\ud83d\\ude00\","
      "\"gr\xC3\xBC\xC3\x9F\"]");
  using namespace std::string_literals;
  const std::string expected[] = {"a\0b"s, "\"\\/\b\f\n\r\t", "\xC3\xA9\xE2\x82\xAC",
                                  "\xF0\x9F\x98\x80", "gr\xC3\xBC\xC3\x9F"};
  for (size_t i = 0; i < std::size(expected); ++i) {
    std::string_view text;
    ASSERT_TRUE(document->root().At(i).GetString(&text));
    EXPECT_EQ(text, expected[i]);
  }
}

TEST(Json, NamesPlaceAndExpectationOfEveryFault) {
  struct Case {
    std::string_view text, message;
  };
  const Case cases[] = {
      {"", "f: JSON ends at byte 0, expected a value"},
      {"  ", "f: JSON ends at byte 2, expected a value"},
      {"{", "f: JSON ends at byte 1, expected a key in quotes or '}'"},
      {"{\"a\"", "f: JSON ends at byte 4, expected ':'"},
      {"{\"a\":1,}", "f: byte 7: found '}', expected a key in quotes"},
      {"{\"a\":1 \"b\"", "f: byte 7: found '\"', expected ',' or '}'"},
      {"[1 2]", "f: byte 3: found '2', expected ',' or ']'"},
      {"[1,]", "f: byte 3: found ']', expected a value"},
      {"[01]", "f: byte 1: found '0', expected a number without leading zeros"},
      {"[-]", "f: byte 2: found ']', expected a digit"},
      {"[1.]", "f: byte 3: found ']', expected a digit after '.'"},
      {"[1e]", "f: byte 3: found ']', expected a digit in the exponent"},
      {"[\"a", "f: JSON ends at byte 3, expected the end of a string"},
      {"[\"\\q\"]", "f: byte 3: found 'q', expected one of \"\\/bfnrtu after a backslash"},
      {"[\"\\u12x4\"]", "f: byte 6: found 'x', expected a hexadecimal digit"},
      {"[\"\\ud800\"]",
       "f: byte 2: found '\\', expected a surrogate pair (its second half is "
       "missing)"},
      {"[\"\\udc00\"]",
       "f: byte 2: found '\\', expected a surrogate pair (its first half is "
       "missing)"},
      {"[\"\n\"]",
       "f: byte 2: found byte 0x0a, expected an escape (a control character stands "
       "bare in a string)"},
      {"[\"\xFF\"]", "f: byte 2: found byte 0xff, expected well-formed UTF-8"},
      {"[\"\xED\xA0\x80\"]", "f: byte 2: found byte 0xed, expected well-formed UTF-8"},
      {"tru", "f: byte 0: found 't', expected a value"},
      {"1 2", "f: byte 2: found '2', expected the end of the text"},
      {"<!DOCTYPE html>", "f: byte 0: found '<', expected a value"},
      {"'a'", "f: byte 0: found ''', expected a value"},
      {"\xEF\xBB\xBF{}",
       "f: byte 0: found byte 0xef, expected JSON (the text begins with a byte "
       "order mark; remove its three bytes)"},
  };
  for (const Case& c : cases) {
    auto document = Document::Parse(c.text, "f");
    ASSERT_FALSE(document.ok()) << c.text;
    EXPECT_EQ(document.status().code(), StatusCode::kCorrupt) << c.text;
    EXPECT_EQ(document.status().message(), c.message) << c.text;
  }
}

TEST(Json, CapsDepth) {
  const std::string deepest =
      std::string(limits::kMaxJsonDepth, '[') + std::string(limits::kMaxJsonDepth, ']');
  EXPECT_TRUE(Document::Parse(deepest, "f").ok());
  for (const std::string& text : {"[" + deepest + "]", std::string(1 << 20, '['),
                                  std::string(limits::kMaxJsonDepth + 1, '[')}) {
    auto document = Document::Parse(text, "f");
    ASSERT_FALSE(document.ok());
    EXPECT_EQ(document.status().code(), StatusCode::kOutOfRange);
  }
}

TEST(Json, RefusesWhatIsTooLarge) {
  // Never touched: only the length is looked at.
  const std::string_view huge(static_cast<const char*>("[]"), limits::kMaxJsonBytes + 1);
  auto document = Document::Parse(huge, "f");
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.status().code(), StatusCode::kOutOfRange);
}

TEST(Json, CutAnywhereIsAnErrorNotACrash) {
  const std::string text = R"({"a":[1,-2.5e3,"x\u00e9\ud83d\ude00"],"b":{"c":null,"d":true}})";
  ASSERT_TRUE(Document::Parse(text, "f").ok());
  for (size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_FALSE(Document::Parse(text.substr(0, cut), "f").ok()) << cut;
  }
}

// Both parsers, on the same texts: whatever the fast one takes the strict one reads alike.
void ExpectParsersAgree(std::string_view text) {
  Tape fast;
  Tape strict;
  if (ParseFast(text, &fast) != FastResult::kParsed) return;
  const Status status = ParseStrict(text, "f", &strict);
  ASSERT_TRUE(status.ok()) << status.message() << " in " << text;
  const uint64_t count = fast.words[0] & kPayloadMask;
  ASSERT_EQ(strict.words[0] & kPayloadMask, count);
  for (uint64_t i = 1; i + 1 < count; ++i) {
    const char type = static_cast<char>(static_cast<unsigned char>(fast.words[i] >> 56));
    if (type == '"') {
      ASSERT_EQ(strict.words[i] >> 56, fast.words[i] >> 56);
      const uint8_t* a = fast.strings.get() + (fast.words[i] & kPayloadMask);
      const uint8_t* b = strict.strings.get() + (strict.words[i] & kPayloadMask);
      uint32_t length = 0;
      std::memcpy(&length, a, 4);
      ASSERT_EQ(std::memcmp(a, b, length + 5), 0);
    } else {
      ASSERT_EQ(strict.words[i], fast.words[i]) << "word " << i << " of " << text;
      if (type == 'l' || type == 'u' || type == 'd') {
        ++i;
        ASSERT_EQ(strict.words[i], fast.words[i]);
      }
    }
  }
}

TEST(Json, TheTwoParsersAgreeOnDamagedTexts) {
  const std::string seed =
      R"({"a":[1,-2.5e3,0.1,1e-7,"x\u00e9\n",[],{}],"b":{"c":null,"d":true,"d":false},"n":-0})";
  ExpectParsersAgree(seed);
  Rng rng(20240817);
  static constexpr std::string_view kBytes = "{}[],:\"\\0123456789-+.eEtruefalsn \n\xC3\xA9u";
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (uint64_t edits = rng.NextBelow(4) + 1; edits > 0; --edits) {
      const size_t at = static_cast<size_t>(rng.NextBelow(text.size()));
      const char byte = kBytes[rng.NextBelow(kBytes.size())];
      if (rng.NextBelow(2) == 0) {
        text[at] = byte;
      } else {
        text.insert(at, 1, byte);
      }
    }
    ExpectParsersAgree(text);
    if (HasFatalFailure()) return;
  }
}

TEST(Json, SerializesWhatItRead) {
  const std::string text =
      "{\"a\":[1,-2.5,1e+100,18446744073709551616,3.0,NaN,-Infinity,0.1],\"b\":{\"c\":null,"
      "\"d\":true},\"s\":\"q\\\"\\\\\\n\\u0001\xC3\xA9/\",\"e\":[],\"f\":{}}";
  auto document = MustParse(text);
  EXPECT_EQ(Serialize(document->root()), text);
  EXPECT_EQ(Serialize(Value()), "null");
  EXPECT_EQ(Quote("a\xFF"), "\"a\xEF\xBF\xBD\"");
}

TEST(Json, CountsMoreMembersThanTheTapeCanHold) {
  if (std::getenv("CELLM_TEST_LONG") == nullptr) GTEST_SKIP() << "needs 0.5 GB: CELLM_TEST_LONG=1";
  std::string text = "[";
  const size_t count = (size_t{1} << 24) + 5;
  text.reserve(count * 2 + 2);
  for (size_t i = 0; i < count; ++i) text += i == 0 ? "1" : ",1";
  text += "]";
  auto document = MustParse(text);
  EXPECT_EQ(document->root().size(), count);
}

TEST(Json, ReadsARealTokenizer) {
  CELLM_SKIP_WITHOUT_SHARED(path, "zoo/nano/tokenizer.json");
  auto text = platform::SystemFiles().Read(path, limits::kMaxJsonBytes);
  ASSERT_TRUE(text.ok());
  auto document = MustParse(*text);
  EXPECT_GT(document->root().Find("model").Find("vocab").size(), 1000u);
  ExpectParsersAgree(*text);
}

// Expected texts are what Python's repr() gives.
TEST(Numbers, AppendDoubleWritesAsPythonDoes) {
  const struct {
    double value;
    const char* text;
  } cases[] = {{0.0, "0.0"},
               {-0.0, "-0.0"},
               {500000.0, "500000.0"},
               {1e-05, "1e-05"},
               {0.0001, "0.0001"},
               {1e16, "1e+16"},
               {9999999999999998.0, "9999999999999998.0"},
               {-1.5, "-1.5"},
               {1e100, "1e+100"},
               {0.1, "0.1"},
               {1.7976931348623157e308, "1.7976931348623157e+308"},
               {5e-324, "5e-324"}};
  for (const auto& c : cases) {
    std::string text;
    AppendDouble(c.value, &text);
    EXPECT_EQ(text, c.text);
  }
}

TEST(Numbers, ParseDoubleTellsOverflowFromUnderflow) {
  struct Case {
    const char* text;
    double value;
  };
  const double inf = std::numeric_limits<double>::infinity();
  const Case cases[] = {{"1e400", inf},
                        {"-1e400", -inf},
                        {"1e-400", 0},
                        {"0.0000001e400", inf},
                        {"100000e-400", 0},
                        {"1e99999999999999999999", inf},
                        {"1e-99999999999999999999", 0},
                        {"0e99999999999999999999", 0},
                        {"4.9406564584124654e-324", 4.9406564584124654e-324}};
  for (const Case& c : cases) {
    double value = 1;
    EXPECT_TRUE(ParseDouble(c.text, &value)) << c.text;
    EXPECT_EQ(value, c.value) << c.text;
  }
  double value = 1;
  for (const char* text : {"", "-", "inf", "nan", "+1", "1x", "--1"}) {
    EXPECT_FALSE(ParseDouble(text, &value)) << text;
  }
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace cellm::json
