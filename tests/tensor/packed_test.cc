#include "tensor/packed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"
#include "tensor/matrix.h"

namespace cellm {
namespace {

PackedLayout Layout(int32_t rows, int32_t cols, int32_t bits, int32_t group, int32_t zero2,
                    ScaleType type = ScaleType::kF16, bool has_min = false) {
  PackedLayout layout;
  layout.rows = rows;
  layout.cols = cols;
  layout.bits = bits;
  layout.group = group;
  layout.zero2 = zero2;
  layout.scale_type = type;
  layout.has_min = has_min;
  return layout;
}

PackedLayout Nested(PackedLayout layout, SubScale sub, int32_t super) {
  layout.sub = sub;
  layout.super = super;
  return layout;
}

PackedLayout WithBook(PackedLayout layout, CodeBook book) {
  layout.book = book;
  return layout;
}

TEST(Packed, NamesRoundTrip) {
  const struct {
    PackedLayout layout;
    const char* name;
  } cases[] = {
      {Layout(16, 32, 4, 32, 16), "x16.u4.g32.z16.f16"},
      {Layout(16, 64, 4, 64, 0, ScaleType::kF16, true), "x16.u4.g64.z0.f16.min"},
      {Layout(1, 1, 8, 0, 256), "x16.u8.grow.z256.f16"},
      {Layout(5, 999, 6, 16, 64, ScaleType::kF32), "x16.u6.g16.z64.f32"},
      {Nested(Layout(16, 512, 4, 32, 0, ScaleType::kF16, true), SubScale::kI8, 256),
       "x16.u4.g32.z0.f16.min.i8s256"},
      {Nested(Layout(16, 512, 2, 16, 0, ScaleType::kF16, true), SubScale::kN4, 128),
       "x16.u2.g16.z0.f16.min.n4s128"},
      {WithBook(Layout(16, 64, 4, 32, 256), CodeBook::kIq4), "x16.u4.g32.z256.f16.iq4"},
      {WithBook(Nested(Layout(16, 256, 3, 16, 256, ScaleType::kF32), SubScale::kI8, 256),
                CodeBook::kIq2),
       "x16.u3.g16.z256.f32.i8s256.iq2"},
  };
  for (const auto& c : cases) {
    ASSERT_TRUE(ValidatePackedLayout(c.layout).ok()) << c.name;
    EXPECT_EQ(PackedName(c.layout), c.name);
    auto parsed = ParsePackedName(c.name, c.layout.rows, c.layout.cols);
    ASSERT_TRUE(parsed.ok()) << c.name;
    EXPECT_EQ(PackedName(*parsed), c.name);
    EXPECT_EQ(parsed->total_bytes(), c.layout.total_bytes());
  }
  for (const char* name :
       {"", "x16", "x8.u4.g32.z16.f16", "x16.u4.g032.z16.f16", "x16.u4.g32.z16.f16.min.min",
        "x16.u4.g32.z16.f64", "x16.u4.g32.z16.f16 ", "x16.u+4.g32.z16.f16", "x16.u4.g0.z16.f16",
        "x16.u99999999999.g32.z16.f16", "x16.u4.g-32.z16.f16", "i4", "x16.u4.g32.z16.f16.i8s",
        "x16.u4.g32.z16.f16.i8s256.min", "x16.u4.g32.z16.f16.i8s256.n4s256",
        "x16.u4.g32.z16.f16.iq4.i8s256", "x16.u4.g32.z16.f16.iq5", "x16.u4.g32.z16.f16.n4s0256"}) {
    auto parsed = ParsePackedName(name, 16, 32);
    ASSERT_FALSE(parsed.ok()) << name;
    EXPECT_EQ(parsed.status().code(), StatusCode::kUnsupported) << name;
  }
  // Well spelt, but breaking a rule: the field is named.
  auto seven = ParsePackedName("x16.u7.g32.z16.f16", 16, 32);
  ASSERT_FALSE(seven.ok());
  EXPECT_NE(seven.status().message().find("7 bits"), std::string::npos);
}

TEST(Packed, ValidateNamesTheField) {
  const struct {
    PackedLayout layout;
    const char* word;
  } cases[] = {{Layout(0, 32, 4, 32, 16), "rows"},
               {Layout(1, 0, 4, 32, 16), "columns"},
               {Layout(1, 32, 0, 32, 16), "bits"},
               {Layout(1, 32, 4, 8, 16), "group"},
               {Layout(1, 32, 4, -32, 16), "group"},
               {Layout(1, 32, 4, 48, 16), "group"},
               {Layout(1, 32, 4, 32, -1), "zero2"},
               {Layout(1, 32, 4, 32, 33), "zero2"},
               {Layout(1 << 30, 32, 4, 32, 16), "rows"},
               {Nested(Layout(1, 512, 4, 32, 16), SubScale::kI8, 0), "super-scales"},
               {Nested(Layout(1, 512, 4, 32, 16), SubScale::kI8, 96), "super-scales"},
               {Nested(Layout(1, 512, 4, 32, 16), SubScale::kI8, 1024), "super-scales"},
               {Nested(Layout(1, 512, 4, 32, 16), SubScale::kI8, -256), "super-scales"},
               {Nested(Layout(1, 512, 4, 0, 16), SubScale::kN4, 256), "super-scales"},
               {Nested(Layout(1, 512, 4, 32, 16), SubScale::kNone, 256), "super-scales"},
               {Nested(Layout(1, 512, 4, 32, 16), static_cast<SubScale>(3), 256), "sub-scales"},
               {WithBook(Layout(1, 32, 3, 32, 16), CodeBook::kIq4), "code book"},
               {WithBook(Layout(1, 32, 4, 32, 16), static_cast<CodeBook>(9)), "code book"},
               {WithBook(Layout(1, 32, 4, 32, 513), CodeBook::kIq4), "zero2"}};
  for (const auto& c : cases) {
    const Status status = ValidatePackedLayout(c.layout);
    ASSERT_FALSE(status.ok()) << c.word;
    EXPECT_NE(status.message().find(c.word), std::string::npos) << status.message();
  }
}

// The reading of packed.h's table, written down once more and in the other direction: from a bit's
// address to its meaning.
void FillFromBytes(const PackedLayout& layout, const std::vector<uint8_t>& packed,
                   std::vector<std::vector<int>>* codes) {
  codes->assign(static_cast<size_t>(layout.rows),
                std::vector<int>(static_cast<size_t>(layout.cols), 0));
  for (int tile = 0; tile < layout.tiles(); ++tile) {
    size_t at = static_cast<size_t>(tile) * layout.tile_bytes() + layout.codes_offset();
    for (int chunk = 0; chunk < layout.chunks(); ++chunk) {
      int low_bit = 0;
      for (const int plane : {8, 4, 2, 1}) {
        if ((layout.bits & plane) == 0) continue;
        for (int vector = 0; vector < plane; ++vector) {
          for (int byte = 0; byte < 64; ++byte, ++at) {
            for (int part = 0; part < 8 / plane; ++part) {
              const int value = (packed[at] >> (part * plane)) & ((1 << plane) - 1);
              const int row = tile * 16 + byte / 4;
              // Columns that share a shift: 32, 16, 8, 4 for planes of 8, 4, 2, 1.
              const int col = chunk * 32 + part * 4 * plane + 4 * vector + byte % 4;
              if (row < layout.rows && col < layout.cols) {
                (*codes)[static_cast<size_t>(row)][static_cast<size_t>(col)] |= value << low_bit;
              } else {
                EXPECT_EQ(value, 0) << "padding is not zero";
              }
            }
          }
        }
        low_bit += plane;
      }
    }
    EXPECT_EQ(at, static_cast<size_t>(tile + 1) * layout.tile_bytes());
  }
}

TEST(Packed, PlacesCodesWhereTheTableSays) {
  Rng rng(11);
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const int cols : {1, 31, 32, 33, 100}) {
      SCOPED_TRACE(bits * 1000 + cols);
      const PackedLayout layout =
          Layout(19, cols, bits, cols > 32 ? 32 : 0, 1, ScaleType::kF16, true);
      std::vector<uint8_t> packed(layout.total_bytes());
      std::vector<std::vector<uint8_t>> codes;
      const size_t groups = static_cast<size_t>(layout.groups());
      for (int row = 0; row < layout.rows; ++row) {
        std::vector<uint8_t>& line = codes.emplace_back(static_cast<size_t>(cols));
        for (uint8_t& code : line) code = static_cast<uint8_t>(rng.NextBelow(1u << bits));
        std::vector<float> scales(groups);
        std::vector<float> mins(groups);
        for (size_t g = 0; g < groups; ++g) {
          scales[g] = static_cast<float>(row) + 0.25f * static_cast<float>(g);
          mins[g] = -scales[g];
        }
        PackRow(layout, row, line.data(), scales.data(), mins.data(), packed.data());
      }
      std::vector<std::vector<int>> read;
      FillFromBytes(layout, packed, &read);
      for (int row = 0; row < layout.rows; ++row) {
        const size_t r = static_cast<size_t>(row);
        std::vector<uint8_t> back(static_cast<size_t>(cols));
        std::vector<float> scales(groups);
        std::vector<float> mins(groups);
        UnpackRow(layout, row, packed.data(), back.data(), scales.data(), mins.data());
        EXPECT_EQ(back, codes[r]);
        for (size_t c = 0; c < back.size(); ++c) ASSERT_EQ(read[r][c], back[c]);
        for (size_t g = 0; g < groups; ++g) {
          const float scale = static_cast<float>(row) + 0.25f * static_cast<float>(g);
          EXPECT_EQ(scales[g], scale);
          EXPECT_EQ(mins[g], -scale);
          // scales [groups][16] at the tile's start, then mins.
          const size_t tile = r / 16 * layout.tile_bytes();
          uint16_t half = 0;
          memcpy(&half, packed.data() + tile + (g * 16 + r % 16) * 2, 2);
          EXPECT_EQ(F16ToFloat(half), scale);
        }
      }
    }
  }
}

TEST(Packed, RowsDecodeToCodeTimesScalePlusMin) {
  Rng rng(5);
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (const bool has_min : {false, true}) {
      const PackedLayout layout = Layout(17, 75, bits, 16, 3, ScaleType::kF32, has_min);
      std::vector<uint8_t> packed(layout.total_bytes());
      Matrix matrix;
      matrix.format = Format::kPacked;
      matrix.rows = layout.rows;
      matrix.cols = layout.cols;
      matrix.packed = layout;
      std::vector<uint8_t> codes(75);
      std::vector<float> scales(5);
      std::vector<float> mins(5);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(rng.NextBelow(1u << bits));
      for (float& scale : scales) scale = static_cast<float>(rng.NextDouble());
      for (float& min : mins) min = static_cast<float>(rng.NextDouble());
      PackRow(layout, 16, codes.data(), scales.data(), mins.data(), packed.data());
      matrix.data = packed;
      ASSERT_TRUE(ValidateMatrix(matrix).ok());
      std::vector<float> row(75);
      DecodeRow(matrix, 16, row.data());
      for (size_t c = 0; c < 75; ++c) {
        // (2 code - zero2) / 2 is exact, so one rounding for the product and one for the sum.
        const float level = (2.0f * codes[c] - 3.0f) / 2.0f;
        const float product = level * scales[c / 16];
        EXPECT_EQ(row[c], has_min ? product + mins[c / 16] : product);
      }
    }
  }
}

// packed.h's table of a nested tile, written down once more: where each byte is and what it means.
TEST(Packed, PlacesScalesOfScalesWhereTheTableSays) {
  Rng rng(13);
  for (const SubScale sub : {SubScale::kI8, SubScale::kN4}) {
    PackedLayout layout =
        Nested(Layout(18, 300, 4, 32, 0, ScaleType::kF16, true), sub, 128);  // 10 groups, 3 supers
    ASSERT_EQ(layout.groups(), 10);
    ASSERT_EQ(layout.supers(), 3);
    std::vector<uint8_t> packed(layout.total_bytes());
    std::vector<std::vector<int>> subs(18, std::vector<int>(20));
    const std::vector<uint8_t> codes(300, 5);
    for (int row = 0; row < layout.rows; ++row) {
      const float supers[3] = {0.5f + static_cast<float>(row), -2.0f, 0.0f};
      const float super_mins[3] = {-0.25f, 3.0f, 1.0f};
      float scales[10];
      float mins[10];
      for (int g = 0; g < 10; ++g) {
        int* const s = subs[static_cast<size_t>(row)].data();
        const int low = sub == SubScale::kI8 ? -128 : 0;
        const uint32_t span = sub == SubScale::kI8 ? 256 : 16;
        s[g] = g >= 8 ? 0 : low + static_cast<int>(rng.NextBelow(span));
        s[10 + g] = low + static_cast<int>(rng.NextBelow(span));
        scales[g] = static_cast<float>(s[g]) * supers[g / 4];
        mins[g] = static_cast<float>(s[10 + g]) * super_mins[g / 4];
      }
      PackRow(layout, row, codes.data(), {scales, mins, supers, super_mins}, packed.data());
      float back[10];
      float back_mins[10];
      float back_supers[3];
      float back_super_mins[3];
      std::vector<uint8_t> back_codes(300);
      UnpackRow(layout, row, packed.data(), back_codes.data(), back, back_mins);
      UnpackSupers(layout, row, packed.data(), back_supers, back_super_mins);
      EXPECT_EQ(back_codes, codes);
      for (int g = 0; g < 10; ++g) {
        EXPECT_EQ(back[g], scales[g]);
        EXPECT_EQ(back_mins[g], mins[g]);
      }
      for (int s = 0; s < 3; ++s) {
        EXPECT_EQ(back_supers[s], supers[s]);
        EXPECT_EQ(back_super_mins[s], super_mins[s]);
      }
    }
    for (int row = 0; row < layout.rows; ++row) {
      const uint8_t* const tile =
          packed.data() + static_cast<size_t>(row / 16) * layout.tile_bytes();
      const uint8_t* const first = tile + 2 * 16 * 3 * 2;  // supers and super mins in halves
      for (int g = 0; g < 10; ++g) {
        const int* const s = subs[static_cast<size_t>(row)].data();
        const uint8_t byte = first[16 * g + row % 16];
        if (sub == SubScale::kN4) {
          EXPECT_EQ(byte, s[g] | (s[10 + g] << 4));
        } else {
          EXPECT_EQ(static_cast<int8_t>(byte), s[g]);
          EXPECT_EQ(static_cast<int8_t>(first[160 + 16 * g + row % 16]), s[10 + g]);
        }
      }
    }
    EXPECT_EQ(layout.codes_offset(), sub == SubScale::kI8 ? 512u : 384u);
  }
}

// Scales that hostile files can hold: what no small integer gives stays what it is.
TEST(Packed, NestedScalesKeepInfinitiesAndNan) {
  PackedLayout layout = Nested(Layout(1, 64, 4, 32, 16), SubScale::kI8, 64);
  const float inf = __builtin_inff();
  const float nan = __builtin_nanf("");
  const std::vector<uint8_t> codes(64, 1);
  const struct {
    float super, first, second;
  } cases[] = {{inf, inf, nan}, {-inf, inf, -inf}, {nan, nan, nan}, {inf, -inf, inf}};
  for (const auto& c : cases) {
    std::vector<uint8_t> packed(layout.total_bytes());
    const float scales[2] = {c.first, c.second};
    PackRow(layout, 0, codes.data(), {scales, nullptr, &c.super, nullptr}, packed.data());
    for (int g = 0; g < 2; ++g) {
      float scale = 0;
      UnpackScale(layout, 0, g, packed.data(), &scale, nullptr);
      if (std::isnan(scales[g])) {
        EXPECT_TRUE(std::isnan(scale));
      } else {
        EXPECT_EQ(scale, scales[g]);
      }
    }
  }
}

TEST(Packed, BooksAreAscendingAndRoundTrip) {
  const struct {
    CodeBook book;
    int bits, levels;
  } books[] = {{CodeBook::kIq4, 4, 16},
               {CodeBook::kE2M1, 4, 15},
               {CodeBook::kIq2, 3, 6},
               {CodeBook::kIq3, 4, 16}};
  EXPECT_EQ(CodeBookBytes(CodeBook::kNone), nullptr);
  for (const auto& b : books) {
    const uint8_t* const bytes = CodeBookBytes(b.book);
    ASSERT_NE(bytes, nullptr);
    PackedLayout layout = WithBook(Layout(3, 50, b.bits, 0, 0), b.book);
    ASSERT_TRUE(ValidatePackedLayout(layout).ok());
    std::vector<uint8_t> packed(layout.total_bytes());
    std::vector<uint8_t> codes(50);
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = bytes[i % static_cast<size_t>(b.levels)];
      if (i > 0 && i < static_cast<size_t>(b.levels)) {
        EXPECT_LT(bytes[i - 1], bytes[i]);
      }
    }
    const float scale = 0.5f;
    PackRow(layout, 2, codes.data(), &scale, nullptr, packed.data());
    std::vector<uint8_t> back(50);
    float back_scale = 0;
    UnpackRow(layout, 2, packed.data(), back.data(), &back_scale, nullptr);
    EXPECT_EQ(back, codes);
  }
}

}  // namespace
}  // namespace cellm
