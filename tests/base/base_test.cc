#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "base/allocator.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/utf8.h"

namespace cellm {
namespace {

TEST(Status, CarriesCodeMessageAndContext) {
  Status status = Corrupt("byte %d", 7);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(std::move(status).WithContext("model.cellm").message(), "model.cellm: byte 7");
}

TEST(Result, MovesItsValue) {
  Result<std::string> a = std::string(100, 'x');
  Result<std::string> b = std::move(a);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->size(), 100u);
  b = Result<std::string>(NotFound("gone"));
  EXPECT_FALSE(b.ok());
  EXPECT_EQ(b.status().message(), "gone");
}

TEST(Checked, RefusesWhatDoesNotFit) {
  uint64_t out = 0;
  EXPECT_TRUE(CheckedAdd<uint64_t>(1, 2, &out));
  EXPECT_EQ(out, 3u);
  EXPECT_FALSE(CheckedAdd<uint64_t>(std::numeric_limits<uint64_t>::max(), 1, &out));
  EXPECT_FALSE(CheckedMul<uint64_t>(uint64_t{1} << 33, uint64_t{1} << 33, &out));
  int32_t narrow = 0;
  EXPECT_FALSE(CheckedCast(int64_t{1} << 31, &narrow));
  EXPECT_TRUE(CheckedCast(int64_t{-5}, &narrow));
  EXPECT_EQ(narrow, -5);
  EXPECT_TRUE(RangeFits(5, 5, 10));
  EXPECT_FALSE(RangeFits(5, 6, 10));
  EXPECT_FALSE(RangeFits(11, 0, 10));
  EXPECT_FALSE(RangeFits(1, std::numeric_limits<uint64_t>::max(), 10));
}

TEST(BudgetAllocator, RefusesPastTheLimitAndCounts) {
  BudgetAllocator budget(SystemAllocator(), 1000);
  {
    auto a = Array<uint8_t>::Zeroed(budget, 600, MemoryClass::kCache, "a");
    ASSERT_TRUE(a.ok());
    EXPECT_EQ(budget.used_bytes(MemoryClass::kCache), 600u);
    auto b = Array<uint8_t>::Zeroed(budget, 401, MemoryClass::kCache, "b");
    ASSERT_FALSE(b.ok());
    EXPECT_EQ(b.status().code(), StatusCode::kOutOfMemory);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  EXPECT_EQ(budget.peak_bytes(), 600u);
  auto overflow = Array<uint64_t>::Zeroed(budget, std::numeric_limits<size_t>::max() / 4,
                                          MemoryClass::kOther, "overflow");
  EXPECT_FALSE(overflow.ok());
}

TEST(Utf8, ReplacesMaximalIllFormedParts) {
  // Unicode 15, section 3.9, table 3-8: E1 80 E2 F0 91 92 F1 BF 41 -> four replacements and "A".
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                               "A"),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "A");
  EXPECT_TRUE(IsValidUtf8("gr\xC3\xBC\xC3\x9F"));
  EXPECT_FALSE(IsValidUtf8("\xED\xA0\x80"));  // a surrogate
  EXPECT_TRUE(DecodeUtf8("\xF0\x9F\x98").truncated);
  EXPECT_FALSE(DecodeUtf8("\xF0\x9F"
                          "a")
                   .truncated);
}

TEST(Hash, AgreesWithThePublishedVectors) {
  // xxHash 0.8 specification: XXH3-64 of the empty input with seed 0.
  EXPECT_EQ(HashXxh3(std::string_view("")), 0x2D06800538D394C2u);
  Xxh3Stream stream;
  const std::string text(1000, 'q');
  stream.Update({reinterpret_cast<const uint8_t*>(text.data()), 300});
  stream.Update({reinterpret_cast<const uint8_t*>(text.data()) + 300, 700});
  EXPECT_EQ(stream.Digest(), HashXxh3(text));
}

TEST(Rng, StaysInRange) {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const double x = rng.NextDouble();
    EXPECT_GE(x, 0.0);
    EXPECT_LT(x, 1.0);
    EXPECT_LT(rng.NextBelow(7), 7u);
  }
}

}  // namespace
}  // namespace cellm
