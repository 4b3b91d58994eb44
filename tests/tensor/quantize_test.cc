// Encoders of the packed layout: every format on random rows, against plain rounding and against
// its own reader; error feedback against plain rounding in the norm that it minimises.
#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/error_feedback.h"
#include "tensor/matrix.h"
#include "tensor/quantize_group.h"

namespace cellm {
namespace {

PackedLayout MakeLayout(int32_t rows, int32_t cols, int32_t bits, int32_t group, int32_t zero2,
                        bool has_min) {
  PackedLayout layout;
  layout.rows = rows;
  layout.cols = cols;
  layout.bits = bits;
  layout.group = group;
  layout.zero2 = zero2;
  layout.has_min = has_min;
  return layout;
}

std::vector<PackedLayout> AllLayouts(int32_t rows, int32_t cols) {
  std::vector<PackedLayout> layouts;
  for (const int32_t group : {0, 16, 32, 64, 128}) {
    for (const int32_t bits : {3, 4, 5, 6, 8}) {
      layouts.push_back(MakeLayout(rows, cols, bits, group, 1 << bits, false));
    }
    for (const int32_t bits : {2, 3, 4, 5, 6, 8}) {
      layouts.push_back(MakeLayout(rows, cols, bits, group, 0, true));
    }
    layouts.push_back(MakeLayout(rows, cols, 2, group, 3, false));
    layouts.push_back(MakeLayout(rows, cols, 2, group, 2, false));
    layouts.push_back(MakeLayout(rows, cols, 1, group, 1, false));
  }
  return layouts;
}

// Roughly normal with a few outliers, and an offset for each row.
std::vector<float> RandomRows(Rng& rng, int32_t rows, int32_t cols) {
  std::vector<float> values;
  for (int32_t r = 0; r < rows; ++r) {
    const double offset = 0.01 * (rng.NextDouble() - 0.5);
    for (int32_t c = 0; c < cols; ++c) {
      double value = -2;
      for (int i = 0; i < 4; ++i) value += rng.NextDouble();
      if (rng.NextDouble() < 0.01) value *= 4;
      values.push_back(static_cast<float>(0.05 * value + offset));
    }
  }
  return values;
}

struct Encoded {
  std::vector<uint8_t> codes;
  std::vector<float> scales, mins;
};

Encoded Encode(const PackedLayout& layout, const float* row, const float* importance) {
  Encoded e;
  e.codes.resize(static_cast<size_t>(layout.cols));
  e.scales.resize(static_cast<size_t>(layout.groups()));
  e.mins.resize(static_cast<size_t>(layout.groups()));
  QuantizeRow(layout, row, importance, e.codes.data(), e.scales.data(), e.mins.data());
  return e;
}

// The definition of packed.h.
double Value(const PackedLayout& layout, const Encoded& e, int32_t col) {
  const size_t g = layout.group == 0 ? 0 : static_cast<size_t>(col / layout.group);
  return (2.0 * e.codes[static_cast<size_t>(col)] - layout.zero2) * double{e.scales[g]} / 2 +
         (layout.has_min ? double{e.mins[g]} : 0.0);
}

// The squared error of rounding to the widest range: largest magnitude (or minimum and maximum)
// onto the last level, scales in float. What a plain quantiser does.
double PlainError(const PackedLayout& layout, const float* row) {
  const CodeRange range = RangeOf(layout);
  const int32_t width = layout.group == 0 ? layout.cols : layout.group;
  double error = 0;
  for (int32_t begin = 0; begin < layout.cols; begin += width) {
    const int32_t end = std::min(layout.cols, begin + width);
    double low = double{row[begin]}, high = low;
    for (int32_t c = begin; c < end; ++c) {
      low = std::min(low, double{row[c]});
      high = std::max(high, double{row[c]});
    }
    double scale = (high - low) / double{range.highest - range.lowest};
    if (!layout.has_min) scale = std::max(-low, high) / double{range.highest};
    if (scale == 0) continue;
    for (int32_t c = begin; c < end; ++c) {
      const double min = layout.has_min ? low : 0;
      double level = (double{row[c]} - min) / scale;
      level = std::nearbyint(level - double{range.offset}) + double{range.offset};
      level = std::clamp(level, double{range.lowest}, double{range.highest});
      const double difference = level * scale + min - double{row[c]};
      error += difference * difference;
    }
  }
  return error;
}

TEST(QuantizeRow, NeverLosesToPlainRoundingAndKeepsTheCodesInRange) {
  constexpr int32_t kRows = 24;
  constexpr int32_t kCols = 200;  // no multiple of a group
  Rng rng(2026);
  const std::vector<float> rows = RandomRows(rng, kRows, kCols);
  for (const PackedLayout& layout : AllLayouts(kRows, kCols)) {
    SCOPED_TRACE(PackedName(layout));
    const CodeRange range = RangeOf(layout);
    double ours = 0, plain = 0;
    for (int32_t r = 0; r < kRows; ++r) {
      const float* const row = rows.data() + r * kCols;
      const Encoded e = Encode(layout, row, nullptr);
      double error = 0;
      for (int32_t c = 0; c < kCols; ++c) {
        const int code = e.codes[static_cast<size_t>(c)];
        ASSERT_GE(static_cast<float>(code) - range.zero, range.lowest);
        ASSERT_LE(static_cast<float>(code) - range.zero, range.highest);
        const double difference = Value(layout, e, c) - double{row[c]};
        error += difference * difference;
      }
      ours += error;
      plain += PlainError(layout, row);
    }
    // Few bits gain much; with 8 the f16 of the scale costs what the search gains.
    const int32_t levels = 1 << layout.bits;
    EXPECT_LE(ours, plain * (levels <= 4 ? 0.9 : levels <= 16 ? 0.99 : 1.005));
  }
}

TEST(QuantizeRow, PackedRowsDecodeToTheSameValues) {
  Rng rng(7);
  for (const PackedLayout& layout : AllLayouts(17, 100)) {
    SCOPED_TRACE(PackedName(layout));
    const std::vector<float> rows = RandomRows(rng, layout.rows, layout.cols);
    std::vector<uint8_t> packed(layout.total_bytes());
    std::vector<Encoded> encoded;
    for (int32_t r = 0; r < layout.rows; ++r) {
      encoded.push_back(Encode(layout, rows.data() + r * layout.cols, nullptr));
      const Encoded& e = encoded.back();
      PackRow(layout, r, e.codes.data(), e.scales.data(), e.mins.data(), packed.data());
    }
    Matrix matrix;
    matrix.format = Format::kPacked;
    matrix.rows = layout.rows;
    matrix.cols = layout.cols;
    matrix.packed = layout;
    matrix.data = packed;
    ASSERT_TRUE(ValidateMatrix(matrix).ok());
    std::vector<float> decoded(static_cast<size_t>(layout.cols));
    for (int32_t r = 0; r < layout.rows; ++r) {
      DecodeRow(matrix, r, decoded.data());
      for (int32_t c = 0; c < layout.cols; ++c) {
        const double expected = Value(layout, encoded[static_cast<size_t>(r)], c);
        ASSERT_NEAR(double{decoded[static_cast<size_t>(c)]}, expected,
                    1e-6 * std::fabs(expected) + 1e-7);
      }
    }
  }
}

TEST(QuantizeRow, ValuesOnTheLevelsComeBackExactly) {
  Rng rng(5);
  for (const PackedLayout& layout : AllLayouts(1, 64)) {
    if (layout.has_min) continue;
    SCOPED_TRACE(PackedName(layout));
    const CodeRange range = RangeOf(layout);
    std::vector<float> row(64);
    for (size_t c = 0; c < row.size(); ++c) {
      const float levels = range.highest - range.lowest;
      const double pick = std::floor(rng.NextDouble() * (double{levels} + 1));
      row[c] = 0.125f * (range.lowest + std::min(levels, static_cast<float>(pick)));
      // Each group reaches its last level.
      if (c % 16 == 3) row[c] = 0.125f * range.highest;
    }
    const Encoded e = Encode(layout, row.data(), nullptr);
    for (int32_t c = 0; c < 64; ++c) {
      EXPECT_EQ(Value(layout, e, c), double{row[static_cast<size_t>(c)]}) << c;
    }
  }
}

TEST(QuantizeRow, TernaryRowsAreRecognised) {
  const float ternary[] = {0, 0.3f, -0.3f, 0, 0.3f};
  float scale = -1;
  EXPECT_TRUE(TernaryScale(ternary, 5, &scale));
  EXPECT_EQ(scale, 0.3f);
  const float zeros[] = {0, -0.0f};
  EXPECT_TRUE(TernaryScale(zeros, 2, &scale));
  EXPECT_EQ(scale, 0.0f);
  const float others[] = {0, 0.3f, -0.31f};
  EXPECT_FALSE(TernaryScale(others, 3, &scale));
  const float infinite[] = {0, INFINITY};
  EXPECT_FALSE(TernaryScale(infinite, 2, &scale));
}

// Inputs with strongly mixed columns, and their moments.
std::vector<float> MixedMoments(Rng& rng, int32_t cols, int32_t samples) {
  const size_t n = static_cast<size_t>(cols);
  std::vector<float> moments(n * n, 0.0f);
  std::vector<double> x(n);
  for (int32_t s = 0; s < samples; ++s) {
    const double common = rng.NextDouble() - 0.5;
    for (size_t c = 0; c < n; ++c) {
      const double own = rng.NextDouble() - 0.5;
      const double before = c == 0 ? 0 : x[c - 1];
      x[c] = 0.5 * common + 0.6 * before + own * (c % 7 == 0 ? 3.0 : 1.0);
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) moments[i * n + j] += static_cast<float>(x[i] * x[j]);
    }
  }
  return moments;
}

double OutputError(const std::vector<float>& moments, const PackedLayout& layout, const Encoded& e,
                   const float* row) {
  const size_t n = static_cast<size_t>(layout.cols);
  std::vector<double> error(n);
  for (size_t c = 0; c < n; ++c) {
    error[c] = double{row[c]} - Value(layout, e, static_cast<int32_t>(c));
  }
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) sum += error[i] * double{moments[i * n + j]} * error[j];
  }
  return sum;
}

Encoded RoundWithFeedback(const PackedLayout& layout, const InputFactors& factors, int sweeps,
                          const float* row) {
  Encoded e;
  e.codes.resize(static_cast<size_t>(layout.cols));
  e.scales.resize(static_cast<size_t>(layout.groups()));
  e.mins.resize(static_cast<size_t>(layout.groups()));
  FeedbackRounder rounder(layout, factors, sweeps);
  rounder.Round(row, 1, e.codes.data(), e.scales.data(), e.mins.data());
  return e;
}

TEST(ErrorFeedback, LosesLessOfTheOutputsThanRoundingAloneAndSweepsLessStill) {
  Rng rng(11);
  constexpr int32_t kCols = 96;
  const std::vector<float> moments = MixedMoments(rng, kCols, 300);
  const auto factors = InputFactors::Create(kCols, moments, 0.001);
  ASSERT_TRUE(factors.ok());
  constexpr int32_t kRows = 12;
  const std::vector<float> rows = RandomRows(rng, kRows, kCols);
  for (const PackedLayout& layout : AllLayouts(1, kCols)) {
    if (layout.group == 128) continue;
    SCOPED_TRACE(PackedName(layout));
    double plain = 0, feedback = 0, swept = 0;
    for (int32_t r = 0; r < kRows; ++r) {
      const float* const row = rows.data() + r * kCols;
      plain += OutputError(moments, layout, Encode(layout, row, nullptr), row);
      feedback += OutputError(moments, layout, RoundWithFeedback(layout, *factors, 0, row), row);
      swept += OutputError(moments, layout, RoundWithFeedback(layout, *factors, 2, row), row);
    }
    EXPECT_LT(feedback, 0.9 * plain);
    EXPECT_LT(swept, 1.0001 * feedback);
  }
}

TEST(ErrorFeedback, RowsDoNotInfluenceEachOtherAndRunsRepeat) {
  Rng rng(12);
  constexpr int32_t kCols = 64;
  const auto factors = InputFactors::Create(kCols, MixedMoments(rng, kCols, 100), 0.01);
  ASSERT_TRUE(factors.ok());
  const std::vector<float> rows = RandomRows(rng, kTileRows, kCols);
  const PackedLayout layout = MakeLayout(1, kCols, 3, 32, 0, true);
  const size_t groups = static_cast<size_t>(layout.groups());
  std::vector<uint8_t> codes(kTileRows * kCols);
  std::vector<float> scales(kTileRows * groups), mins(kTileRows * groups);
  FeedbackRounder rounder(layout, *factors, 2);
  rounder.Round(rows.data(), kTileRows, codes.data(), scales.data(), mins.data());
  for (size_t r = 0; r < kTileRows; ++r) {
    const Encoded e = RoundWithFeedback(layout, *factors, 2, rows.data() + r * kCols);
    EXPECT_TRUE(std::equal(e.codes.begin(), e.codes.end(),
                           codes.begin() + static_cast<int64_t>(r) * kCols));
    EXPECT_TRUE(std::equal(e.scales.begin(), e.scales.end(),
                           scales.begin() + static_cast<int64_t>(r * groups)));
    EXPECT_TRUE(
        std::equal(e.mins.begin(), e.mins.end(), mins.begin() + static_cast<int64_t>(r * groups)));
  }
}

TEST(ErrorFeedback, IndependentInputsGivePlainRounding) {
  // A diagonal of equal moments: no column can make good another's error.
  constexpr int32_t kCols = 64;
  std::vector<float> moments(kCols * kCols, 0.0f);
  for (size_t c = 0; c < kCols; ++c) moments[c * kCols + c] = 3.0f;
  const auto factors = InputFactors::Create(kCols, moments, 0.01);
  ASSERT_TRUE(factors.ok());
  Rng rng(13);
  const std::vector<float> row = RandomRows(rng, 1, kCols);
  const PackedLayout layout = MakeLayout(1, kCols, 4, 32, 16, false);
  const Encoded plain = Encode(layout, row.data(), nullptr);
  const Encoded feedback = RoundWithFeedback(layout, *factors, 0, row.data());
  EXPECT_EQ(plain.codes, feedback.codes);
  EXPECT_EQ(plain.scales, feedback.scales);
}

TEST(ErrorFeedback, RefusesMomentsThatAreNone) {
  EXPECT_FALSE(InputFactors::Create(4, std::vector<float>(15, 1.0f), 0.01).ok());
  std::vector<float> moments(16, 1.0f);
  moments[5] = NAN;
  EXPECT_FALSE(InputFactors::Create(4, moments, 0.01).ok());
  // Columns that are always zero, and rank 1: damping carries both.
  std::vector<float> flat(16, 1.0f);
  for (size_t c = 0; c < 4; ++c) flat[c * 4 + 2] = flat[2 * 4 + c] = 0;
  const auto factors = InputFactors::Create(4, flat, 0.01);
  ASSERT_TRUE(factors.ok());
  for (int32_t c = 0; c < 4; ++c) EXPECT_GT(factors->conditional()[c], 0.0f);
  EXPECT_TRUE(InputFactors::Create(4, std::vector<float>(16, 0.0f), 0.01).ok());
}

}  // namespace
}  // namespace cellm
