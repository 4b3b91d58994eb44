#include "cellm/serve/value_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "json/json.h"

namespace cellm::tools::serve {
namespace {

// A random JSON value as somebody may write it: spaces, escapes, numbers of all sorts.
class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}
  std::string Value(int depth) {
    switch (random_() % (depth > 3 ? 5 : 8)) {
      case 0:
        return Pick({"true", "false", "null"});
      case 1:
        return Pick({"0", "-1", "12", "9223372036854775808", "123456789012345678901234567890"});
      case 2:
        return Pick({"1.5", "-0.0", "1e3", "2.50E-7", "3.141592653589793", "100.0"});
      case 3:
      case 4:
        return Text();
      case 5:
        return Container('[', ']', depth);
      default:
        return Container('{', '}', depth);
    }
  }

 private:
  std::string Pick(const std::vector<std::string>& some) { return some[random_() % some.size()]; }
  std::string Space() { return Pick({"", "", " ", "\n  ", "\t"}); }
  std::string Text() {
    std::string text = "\"";
    for (uint64_t parts = random_() % 6; parts > 0; --parts) {
      text +=
          Pick({"a", "bc", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\\n", "\\\"", "\\\\",
                "\\/", "\\u0000", "\\u00e9", "\\uD83D\\uDE00", "\\u20ac", "}", "]", ",", ":"});
    }
    return text + "\"";
  }
  std::string Container(char open, char close, int depth) {
    std::string text(1, open);
    text += Space();
    for (uint64_t members = random_() % 4; members > 0; --members) {
      if (open == '{') text += Text() + Space() + ":" + Space();
      text += Value(depth + 1) + Space();
      if (members > 1) text += "," + Space();
    }
    return text + close;
  }
  std::mt19937_64 random_;
};

// However the text is cut: what comes out is at every moment a beginning of the value as
// json::Serialize() writes it, and at the end all of it.
TEST(ValueStream, RendersWhatTheWholeIsReadAs) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = Writer(random()).Value(0);
    const auto parsed = json::Document::Parse(text, "value");
    ASSERT_TRUE(parsed.ok()) << text;
    const std::string whole = json::Serialize((*parsed)->root());
    ValueStream stream;
    std::string out;
    size_t at = 0;
    while (at < text.size()) {
      const size_t some = std::min<size_t>(1 + random() % 5, text.size() - at);
      ASSERT_EQ(stream.Read(std::string_view(text).substr(at, some), &out), some) << text;
      at += some;
      ASSERT_EQ(out, whole.substr(0, out.size())) << text << " up to " << at;
    }
    // A scalar ends where something follows.
    EXPECT_EQ(stream.Read(",", &out), 0u);
    EXPECT_TRUE(stream.done()) << text;
    EXPECT_EQ(out, whole) << text;
  }
}

TEST(ValueStream, StopsWhereTextIsNoJson) {
  struct Case {
    const char* text;
    const char* out;
  };
  constexpr Case kCases[] = {
      {"{\"a\": 1,}", "{\"a\":1"},
      {"{\"a\" 1}", "{\"a\""},
      {"[1, True]", "[1,"},
      {"[1}", "[1"},
      {"[\"\\q\"]", "[\""},
      {"[\"a\nb\"]", "[\"a"},
      {"[\"\\ud83d\"]", "[\""},
      {"[\"\\ude00\"]", "[\""},
      {"[\"\\ud83d\\u0041\"]", "[\""},
      {"{a: 1}", "{"},
      {"[01]", "["},
      {"[Infinity]", "["},
      {"['a']", "["},
      {"[\"a\xFF\"]", "[\"a"},
      {"[\"a\xC3\"]", "[\"a"},
  };
  for (const Case& one : kCases) {
    const std::string_view text = one.text;
    for (size_t step = 1; step <= text.size(); ++step) {
      ValueStream stream;
      std::string out;
      for (size_t at = 0; at < text.size() && !stream.failed(); at += step) {
        (void)stream.Read(text.substr(at, step), &out);
      }
      EXPECT_TRUE(stream.failed()) << one.text;
      EXPECT_EQ(out, one.out) << one.text << " in steps of " << step;
    }
  }
}

}  // namespace
}  // namespace cellm::tools::serve
