// The published vectors of the version-1 format, and matrices in general.
#include "tensor/v1_formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tensor/half.h"
#include "tensor/plain_formats.h"
#include "tensor/quantize.h"

namespace cellm {
namespace {

using Bytes = std::vector<uint8_t>;

struct Vector {
  const char* name;
  Format format;
  int32_t rows, cols, group;
  Bytes data, scales, biases;
  Format scale_format;
  int32_t bits;
  std::vector<float> values;
};

std::vector<float> Ones(size_t count, float value) { return std::vector<float>(count, value); }

std::vector<Vector> Vectors() {
  using enum Format;
  std::vector<float> v10 = Ones(128, -0.5f);
  v10[0] = v10[2] = 0.5f;
  Bytes q10(18, 0);
  q10[1] = 0x38;
  q10[2] = 0x05;
  Bytes q11(18, 0xFF);
  q11[0] = 0x00;
  q11[1] = 0x34;
  const Bytes half = {0, 0, 0, 0x3F};
  const Bytes quarter = {0, 0, 0x80, 0x3E};
  const Bytes one = {0, 0, 0x80, 0x3F};
  const Bytes zero = {0, 0, 0, 0};
  const Bytes minus_one = {0, 0, 0x80, 0xBF};
  return {
      {"V1",
       kF16,
       1,
       5,
       0,
       {0x00, 0x3C, 0x00, 0xC0, 0x00, 0x38, 0x01, 0x00, 0xFF, 0x7B},
       {},
       {},
       kF16,
       0,
       {1.0f, -2.0f, 0.5f, 0x1.0p-24f, 65504.0f}},
      {"V2",
       kBF16,
       1,
       3,
       0,
       {0x80, 0x3F, 0x20, 0xC0, 0x49, 0x40},
       {},
       {},
       kF16,
       0,
       {1.0f, -2.5f, 3.140625f}},
      {"V3",
       kI8V1,
       1,
       4,
       0,
       {0x40, 0x81, 0x20, 0x0D},
       {0x08, 0x20},
       {},
       kF16,
       0,
       {0.50390625f, -0.99993896484375f, 0.251953125f, 0.10235595703125f}},
      {"V4",
       kI8V1,
       2,
       2,
       0,
       {0x7F, 0x81, 0x01, 0x80},
       {0x00, 0x3C, 0x00, 0x38},
       {},
       kF16,
       0,
       {127.0f, -127.0f, 0.5f, -64.0f}},
      {"V5",
       kI4V1,
       1,
       5,
       0,
       {0x1F, 0x8B, 0x87},
       {0x66, 0x2E},
       {},
       kF16,
       0,
       {0.6998291015625f, -0.6998291015625f, 0.2999267578125f, 0.0f, -0.0999755859375f}},
      {"V6", kI4V1, 1, 4, 0, {0xF0, 0x98}, {0x00, 0x40}, {}, kF16, 0, {-16.0f, 14.0f, 0.0f, 2.0f}},
      {"V7",
       kI4V1,
       1,
       4,
       2,
       {0x9F, 0xF1},
       {0x00, 0x3C, 0x00, 0x38},
       {},
       kF16,
       0,
       {7.0f, 1.0f, -3.5f, 3.5f}},
      {"V8", kI2V1, 1, 4, 0, {0xE4}, {0x00, 0x3C}, {}, kF16, 0, {-1.5f, -0.5f, 0.5f, 1.5f}},
      {"V9",
       kI2V1,
       1,
       6,
       0,
       {0x1B, 0x01},
       {0x00, 0x40},
       {},
       kF16,
       0,
       {3.0f, 1.0f, -1.0f, -3.0f, -1.0f, -3.0f}},
      {"V10", kQ1_0, 1, 128, 0, q10, {}, {}, kF16, 0, v10},
      {"V11", kQ1_0, 1, 128, 0, q11, {}, {}, kF16, 0, Ones(128, 0.25f)},
      {"V11, a row that ends inside its block",
       kQ1_0,
       1,
       5,
       0,
       q11,
       {},
       {},
       kF16,
       0,
       Ones(5, 0.25f)},
      {"V12",
       kF8E4M3V1,
       1,
       13,
       0,
       {0x00, 0x01, 0x07, 0x08, 0x2C, 0x30, 0x38, 0x3C, 0x40, 0xB8, 0x77, 0x7F, 0xF7},
       {},
       {},
       kF16,
       0,
       {0, 0.001953125f, 0.013671875f, 0.015625f, 0.375f, 0.5f, 1, 1.5f, 2, -1, 240, 240, -240}},
      {"V13",
       kMlxAffine,
       1,
       8,
       64,
       {0x10, 0x32, 0x54, 0x76},
       half,
       minus_one,
       kF32,
       4,
       {-1, -0.5f, 0, 0.5f, 1, 1.5f, 2, 2.5f}},
      {"V14",
       kMlxAffine,
       1,
       8,
       64,
       {0xEF, 0xCD, 0xAB, 0x89},
       quarter,
       zero,
       kF32,
       4,
       {3.75f, 3.5f, 3.25f, 3.0f, 2.75f, 2.5f, 2.25f, 2.0f}},
      {"V15",
       kMlxAffine,
       1,
       10,
       64,
       {0x88, 0xC6, 0xFA, 0x0D},
       one,
       zero,
       kF32,
       3,
       {0, 1, 2, 3, 4, 5, 6, 7, 5, 1}},
  };
}

Matrix View(const Vector& v) {
  Matrix matrix;
  matrix.format = v.format;
  matrix.rows = v.rows;
  matrix.cols = v.cols;
  matrix.group = v.group;
  matrix.bits = v.bits;
  matrix.data = v.data;
  matrix.scales = v.scales;
  matrix.biases = v.biases;
  matrix.scale_format = v.scale_format;
  return matrix;
}

TEST(V1Formats, DecodeThePublishedVectors) {
  for (const Vector& v : Vectors()) {
    SCOPED_TRACE(v.name);
    const Matrix matrix = View(v);
    const Status status = ValidateMatrix(matrix);
    ASSERT_TRUE(status.ok()) << status.message();
    for (int32_t row = 0; row < v.rows; ++row) {
      std::vector<float> out(static_cast<size_t>(v.cols));
      DecodeRow(matrix, row, out.data());
      for (size_t c = 0; c < out.size(); ++c) {
        EXPECT_EQ(out[c], v.values[static_cast<size_t>(row * v.cols) + c]) << row << ' ' << c;
      }
    }
  }
}

// A vector one byte shorter or longer, or with one byte less of scales, is refused.
TEST(V1Formats, WrongSizesAreRefused) {
  for (const Vector& v : Vectors()) {
    SCOPED_TRACE(v.name);
    Vector changed = v;
    changed.data.push_back(0);
    EXPECT_FALSE(ValidateMatrix(View(changed)).ok());
    changed.data.resize(v.data.size() - 1);
    EXPECT_FALSE(ValidateMatrix(View(changed)).ok());
    changed = v;
    if (!v.scales.empty()) {
      changed.scales.pop_back();
      EXPECT_FALSE(ValidateMatrix(View(changed)).ok());
    }
    changed = v;
    if (!v.biases.empty()) {
      changed.biases.pop_back();
      EXPECT_FALSE(ValidateMatrix(View(changed)).ok());
    }
    changed = v;
    changed.rows = 0;
    EXPECT_FALSE(ValidateMatrix(View(changed)).ok());
    changed.rows = 1;
    changed.cols = INT32_MAX;
    EXPECT_FALSE(ValidateMatrix(View(changed)).ok());
  }
}

TEST(V1Formats, EncodersGiveThePublishedBytes) {
  const float v3[] = {0.5f, -1.0f, 0.25f, 0.1f};
  uint8_t i8[4];
  uint16_t scale = 0;
  EncodeV1I8Row(v3, 4, i8, &scale);
  EXPECT_EQ(Bytes(i8, i8 + 4), (Bytes{0x40, 0x81, 0x20, 0x0D}));
  EXPECT_EQ(scale, 0x2008);
  const float v5[] = {0.7f, -0.7f, 0.3f, 0.0f, -0.1f};
  uint8_t i4[3];
  EncodeV1I4Row(v5, 5, 0, i4, &scale);
  EXPECT_EQ(Bytes(i4, i4 + 3), (Bytes{0x1F, 0x8B, 0x87}));
  EXPECT_EQ(scale, 0x2E66);
  const float v8[] = {1.5f, -1.5f, 0.2f, 0.0f};
  uint8_t i2[1];
  EncodeV1I2Row(v8, 4, i2, &scale);
  EXPECT_EQ(i2[0], 0xA3);
  EXPECT_EQ(scale, 0x3C00);
  const float zeros[4] = {};
  EncodeV1I8Row(zeros, 4, i8, &scale);
  EXPECT_EQ(scale, 0x3C00);
  EXPECT_EQ(Bytes(i8, i8 + 4), Bytes(4, 0));
  // Groups: one scale each, and bytes may be shared by two groups.
  const float grouped[] = {7, 1, -7, 3.5f};
  uint16_t scales[2];
  EncodeV1I4Row(grouped, 4, 2, i4, scales);
  EXPECT_EQ(scales[0], 0x3C00);
  EXPECT_EQ(scales[1], 0x3C00);
  EXPECT_EQ(Bytes(i4, i4 + 2), (Bytes{0x9F, 0xC1}));  // 3.5 rounds away from zero, to 4
  std::vector<float> bits(130, -0.25f);
  bits[0] = 0.25f;
  bits[9] = 0.0f;  // becomes -d
  bits[129] = 4.0f;
  uint8_t q1[36];
  EncodeQ10Row(bits.data(), 130, q1);
  EXPECT_EQ(q1[2], 0x01);
  EXPECT_EQ(q1[3], 0x00);
  EXPECT_EQ(q1[18 + 2], 0x02);
}

// For every format with an integer form: value(c) = (2 code - zero2) * scale / 2 + min.
void ExpectCodesMeanValues(const Matrix& matrix) {
  auto layout = LosslessPackedLayout(matrix);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  const size_t cols = static_cast<size_t>(matrix.cols);
  const size_t groups = static_cast<size_t>(layout->groups());
  std::vector<uint8_t> packed(layout->total_bytes());
  Matrix repacked;
  repacked.format = Format::kPacked;
  repacked.rows = matrix.rows;
  repacked.cols = matrix.cols;
  repacked.packed = *layout;
  repacked.data = packed;
  for (int32_t row = 0; row < matrix.rows; ++row) {
    std::vector<uint8_t> codes(cols);
    std::vector<float> scales(groups);
    std::vector<float> mins(groups);
    std::vector<float> values(cols);
    std::vector<float> again(cols);
    DecodeRowCodes(matrix, row, codes.data(), scales.data(), mins.data());
    DecodeRow(matrix, row, values.data());
    PackRow(*layout, row, codes.data(), scales.data(), mins.data(), packed.data());
    DecodeRow(repacked, row, again.data());
    for (size_t c = 0; c < cols; ++c) {
      const size_t g = layout->group == 0 ? 0 : c / static_cast<size_t>(layout->group);
      const float level = 0.5f * static_cast<float>(2 * codes[c] - layout->zero2);
      const float value = layout->has_min ? level * scales[g] + mins[g] : level * scales[g];
      ASSERT_EQ(value, values[c]) << row << ' ' << c;
      ASSERT_EQ(again[c], values[c]) << row << ' ' << c;
    }
  }
}

Bytes RandomBytes(Rng* rng, size_t count) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng->NextBelow(256));
  return bytes;
}

Bytes RandomHalves(Rng* rng, size_t count) {
  Bytes bytes(count * 2);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = FloatToF16(static_cast<float>(rng->NextDouble() * 2 - 1));
    memcpy(&bytes[2 * i], &half, 2);
  }
  return bytes;
}

TEST(Matrix, PacksWithoutLoss) {
  Rng rng(3);
  const struct {
    Format format;
    int32_t cols, group, bits;
  } cases[] = {{Format::kI8V1, 37, 0, 0},        {Format::kI4V1, 96, 32, 0},
               {Format::kI4V1, 100, 48, 0},      {Format::kI4V1, 33, 0, 0},
               {Format::kI2V1, 66, 64, 0},       {Format::kMlxAffine, 128, 64, 2},
               {Format::kMlxAffine, 128, 32, 3}, {Format::kMlxAffine, 128, 64, 4},
               {Format::kMlxAffine, 96, 32, 5},  {Format::kMlxAffine, 128, 64, 6},
               {Format::kMlxAffine, 64, 64, 8}};
  for (const auto& c : cases) {
    SCOPED_TRACE(std::string(GetFormatInfo(c.format).name) + " " + std::to_string(c.cols));
    const int32_t rows = 18;
    Matrix matrix;
    matrix.format = c.format;
    matrix.rows = rows;
    matrix.cols = c.cols;
    matrix.group = c.group;
    matrix.bits = c.bits;
    auto bytes = MatrixBytes(matrix);
    ASSERT_TRUE(bytes.ok());
    const Bytes data = RandomBytes(&rng, *bytes);
    const size_t scale_count =
        static_cast<size_t>(rows) * static_cast<size_t>(ScaleGroups(c.cols, c.group));
    const Bytes scales = RandomHalves(&rng, scale_count);
    const Bytes biases = RandomHalves(&rng, scale_count);
    matrix.data = data;
    matrix.scales = scales;
    if (c.format == Format::kMlxAffine) matrix.biases = biases;
    ExpectCodesMeanValues(matrix);
    if (HasFatalFailure()) return;
  }
}

TEST(Matrix, UndoesStoredOrders) {
  Rng rng(4);
  Matrix matrix;
  matrix.format = Format::kI4V1;
  matrix.rows = 3;
  matrix.cols = 96;
  matrix.group = 96;
  const Bytes data = RandomBytes(&rng, 3 * 48);
  const Bytes scales = RandomHalves(&rng, 3);
  matrix.data = data;
  matrix.scales = scales;
  std::vector<float> plain(3 * 96);
  for (int32_t row = 0; row < 3; ++row) DecodeRow(matrix, row, plain.data() + row * 96);
  const int32_t rows[] = {2, 0, 1};
  const int32_t units[] = {1, 2, 0};
  matrix.row_order = rows;
  matrix.column_order = units;
  matrix.column_unit = 32;
  std::vector<float> out(96);
  DecodeRow(matrix, 0, out.data());
  for (size_t c = 0; c < 96; ++c) {
    const size_t unit = static_cast<size_t>(units[c / 32]);
    EXPECT_EQ(out[c], plain[2 * 96 + unit * 32 + c % 32]);
  }
  ExpectCodesMeanValues(matrix);
  // With groups smaller and larger than a unit, scales move along.
  matrix.group = 48;
  const Bytes more_scales = RandomHalves(&rng, 6);
  matrix.scales = more_scales;
  ExpectCodesMeanValues(matrix);
  matrix.group = 32;
  const Bytes most_scales = RandomHalves(&rng, 9);
  matrix.scales = most_scales;
  ExpectCodesMeanValues(matrix);
  const int32_t beyond[] = {1, 3, 0};
  matrix.column_order = beyond;
  EXPECT_FALSE(ValidateMatrix(matrix).ok());
  matrix.column_order = units;
  matrix.column_unit = 31;
  EXPECT_FALSE(ValidateMatrix(matrix).ok());
  matrix.column_unit = 32;
  matrix.row_order = std::span<const int32_t>(rows, 2);
  EXPECT_FALSE(ValidateMatrix(matrix).ok());
}

TEST(Matrix, SaysWhatCannotBePacked) {
  const uint8_t data[32] = {};
  const uint8_t scales[32] = {};
  Matrix matrix;
  matrix.format = Format::kF8E4M3V1;
  matrix.rows = 1;
  matrix.cols = 32;
  matrix.data = data;
  auto no_integers = LosslessPackedLayout(matrix);
  ASSERT_FALSE(no_integers.ok());
  EXPECT_EQ(no_integers.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(no_integers.status().message().find("f8e4m3"), std::string::npos);
  matrix.format = Format::kI4V1;
  matrix.group = 2;
  matrix.scales = scales;
  matrix.data = std::span<const uint8_t>(data, 16);
  auto odd_group = LosslessPackedLayout(matrix);
  ASSERT_FALSE(odd_group.ok());
  EXPECT_EQ(odd_group.status().code(), StatusCode::kUnsupported);
}

// The search may never be worse than the plain recipe, and must find exact grids exactly.
TEST(Quantize, BeatsTheScaleOfTheLargestMagnitude) {
  Rng rng(21);
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    PackedLayout layout;
    layout.rows = 1;
    layout.cols = 200;
    layout.bits = bits;
    layout.group = 64;
    layout.zero2 = 1 << bits;
    const int32_t top = (1 << (bits - 1)) - 1;
    double ours = 0;
    double plain = 0;
    for (int round = 0; round < 50; ++round) {
      std::vector<float> row(200);
      for (float& value : row) {
        // Roughly normal: the sum of three uniform numbers.
        value = static_cast<float>(rng.NextDouble() + rng.NextDouble() + rng.NextDouble() - 1.5);
      }
      std::vector<uint8_t> codes(200);
      std::vector<float> scales(4);
      QuantizeRow(layout, row.data(), nullptr, codes.data(), scales.data());
      for (size_t g = 0; g < 4; ++g) {
        float largest = 0;
        for (size_t c = g * 64; c < std::min<size_t>(200, g * 64 + 64); ++c) {
          largest = std::max(largest, std::fabs(row[c]));
        }
        const float scale = F16ToFloat(FloatToF16(largest / static_cast<float>(top)));
        EXPECT_EQ(F16ToFloat(FloatToF16(scales[g])), scales[g]) << "not a half";
        for (size_t c = g * 64; c < std::min<size_t>(200, g * 64 + 64); ++c) {
          ASSERT_LT(codes[c], 1 << bits);
          if (bits == 8) {
            ASSERT_GE(codes[c], 1);
          }
          const double value = static_cast<double>(scales[g]) * (codes[c] - (1 << (bits - 1)));
          ours += (value - double{row[c]}) * (value - double{row[c]});
          const double nearest = std::nearbyint(double{row[c]} / double{scale}) * double{scale};
          plain += (nearest - double{row[c]}) * (nearest - double{row[c]});
        }
      }
    }
    EXPECT_LE(ours, plain * (bits <= 4 ? 0.97 : 1.0)) << bits << " bits";
  }
}

TEST(Quantize, EdgeRows) {
  PackedLayout layout;
  layout.rows = 1;
  layout.cols = 32;
  layout.bits = 4;
  layout.group = 32;
  layout.zero2 = 16;
  std::vector<uint8_t> codes(32);
  float scale = 1;
  std::vector<float> row(32, 0.0f);
  QuantizeRow(layout, row.data(), nullptr, codes.data(), &scale);
  EXPECT_EQ(scale, 0.0f);
  EXPECT_EQ(codes, std::vector<uint8_t>(32, 8));
  // Values on a grid come back exactly.
  for (int i = 0; i < 32; ++i) row[static_cast<size_t>(i)] = 0.25f * static_cast<float>(i % 16 - 8);
  QuantizeRow(layout, row.data(), nullptr, codes.data(), &scale);
  for (size_t c = 0; c < 32; ++c) EXPECT_EQ(scale * static_cast<float>(codes[c] - 8), row[c]);
  // Too large for a half: clamped, not infinite.
  row.assign(32, 1e9f);
  QuantizeRow(layout, row.data(), nullptr, codes.data(), &scale);
  EXPECT_TRUE(std::isfinite(scale));
  // Too small for a half: zero, not noise.
  row.assign(32, 1e-12f);
  QuantizeRow(layout, row.data(), nullptr, codes.data(), &scale);
  for (size_t c = 0; c < 32; ++c) {
    EXPECT_LE(std::fabs(scale * static_cast<float>(codes[c] - 8)), 1e-12f);
  }
  // A weight that alone matters is met more closely than without importance.
  Rng rng(1);
  std::vector<float> importance(32, 0.0f);
  importance[3] = 1.0f;
  for (float& value : row) value = static_cast<float>(rng.NextDouble());
  QuantizeRow(layout, row.data(), importance.data(), codes.data(), &scale);
  EXPECT_NEAR(scale * static_cast<float>(codes[3] - 8), row[3], 2e-3f * row[3]);
  row[5] = INFINITY;
  EXPECT_FALSE(IsAllFinite(row.data(), 32));
  EXPECT_TRUE(IsAllFinite(row.data(), 5));
}

}  // namespace
}  // namespace cellm
