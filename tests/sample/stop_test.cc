#include "sample/stop.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"

namespace cellm::sample {
namespace {

struct Outcome {
  std::string text;
  std::string match;
  bool operator==(const Outcome&) const = default;
};

// The definition: the first end position at which a stop is complete; of several the longest.
Outcome Whole(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && stop.size() > best.size() &&
          text.compare(end - stop.size(), stop.size(), stop) == 0) {
        best = stop;
      }
    }
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

// Pushes `text` in pieces that end at `cuts`, and checks at each step that what was shown never
// contains more than the definition allows.
Outcome InPieces(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  Result<StopMatcher> matcher = StopMatcher::Create(stops);
  EXPECT_TRUE(matcher.ok());
  std::string whole;
  for (const std::string& piece : pieces) whole += piece;
  const Outcome expected = Whole(stops, whole);
  std::string shown;
  for (const std::string& piece : pieces) {
    const bool stop = matcher->Push(piece, &shown);
    EXPECT_EQ(expected.text.compare(0, shown.size(), shown), 0)
        << "shown '" << shown << "' of '" << whole << "'";
    if (stop) return {shown, matcher->match()};
  }
  matcher->Flush(&shown);
  return {shown, ""};
}

// users.md row 43: a stop string cut at every position and over every chunking; nothing of it is
// emitted.
TEST(StopMatcher, EveryChunkingGivesTheSameText) {
  struct Case {
    std::vector<std::string> stops;
    std::string text;
  };
  const Case cases[] = {
      {{"<end>"}, "say<end>no"},
      {{"abab", "ba"}, "xabab"},
      {{"abcd", "bc"}, "zabcd"},
      {{"aab"}, "aaaab!"},
      {{"\n\n"}, "one\ntwo\n\nthree"},
      {{"stop", "top"}, "astop"},
      {{"never"}, "nevenevneve"},
      {{"\xE2\x82\xAC"}, "a\xE2\x82\xAC!"},
      {{"x"}, "x"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    const Outcome expected = Whole(c.stops, c.text);
    const size_t gaps = c.text.size() - 1;
    ASSERT_LE(gaps, 15u);
    for (uint32_t mask = 0; mask < (1u << gaps); ++mask) {
      std::vector<std::string> pieces(1);
      for (size_t i = 0; i < c.text.size(); ++i) {
        pieces.back().push_back(c.text[i]);
        if (i < gaps && (mask >> i & 1)) pieces.emplace_back();
      }
      ASSERT_EQ(InPieces(c.stops, pieces), expected) << "mask " << mask;
    }
  }
}

TEST(StopMatcher, RandomTextsAgreeWithTheDefinition) {
  Rng rng(9);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + rng.NextBelow(4));
    for (std::string& stop : stops) {
      for (size_t i = 1 + rng.NextBelow(5); i > 0; --i) {
        stop.push_back(static_cast<char>('a' + rng.NextBelow(3)));
      }
    }
    std::vector<std::string> pieces(1 + rng.NextBelow(12));
    std::string whole;
    for (std::string& piece : pieces) {
      for (size_t i = rng.NextBelow(4); i > 0; --i) {
        piece.push_back(static_cast<char>('a' + rng.NextBelow(3)));
      }
      whole += piece;
    }
    ASSERT_EQ(InPieces(stops, pieces), Whole(stops, whole)) << "round " << round;
  }
}

TEST(StopMatcher, TextPassesAtOnceWhenNoStopCanBegin) {
  Result<StopMatcher> matcher = StopMatcher::Create({"###"});
  ASSERT_TRUE(matcher.ok());
  std::string shown;
  EXPECT_FALSE(matcher->Push("hello", &shown));
  EXPECT_EQ(shown, "hello");
  EXPECT_FALSE(matcher->Push(" ##", &shown));
  EXPECT_EQ(shown, "hello ");
  EXPECT_FALSE(matcher->Push("x", &shown));
  EXPECT_EQ(shown, "hello ##x");
  EXPECT_TRUE(matcher->Push("###after", &shown));
  EXPECT_EQ(shown, "hello ##x");
  EXPECT_EQ(matcher->match(), "###");
  EXPECT_TRUE(matcher->Push("more", &shown));
  matcher->Flush(&shown);
  EXPECT_EQ(shown, "hello ##x");
}

TEST(StopMatcher, RefusesEmptyAndOversizedStops) {
  EXPECT_FALSE(StopMatcher::Create({"a", ""}).ok());
  EXPECT_FALSE(StopMatcher::Create({std::string(kMaxStopBytes + 1, 'a')}).ok());
  EXPECT_FALSE(StopMatcher::Create(std::vector<std::string>(kMaxStopStrings + 1, "a")).ok());
  EXPECT_TRUE(StopMatcher::Create(std::vector<std::string>(kMaxStopStrings, "a")).ok());
}

// users.md row 50: every id of the set ends a turn.
TEST(StopIds, HoldsAllIds) {
  StopIds ids;
  for (const int32_t id : {7, 3, 7, 1}) ids.Add(id);
  EXPECT_EQ(ids.ids(), (std::vector<int32_t>{1, 3, 7}));
  EXPECT_TRUE(ids.Contains(1) && ids.Contains(3) && ids.Contains(7));
  EXPECT_FALSE(ids.Contains(0) || ids.Contains(4) || ids.Contains(8));
}

}  // namespace
}  // namespace cellm::sample
