// Every GGUF block type against the values that the reference library gives for the same bytes.

#include "tensor/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "platform/file.h"
#include "support/paths.h"
#include "tensor/half.h"
#include "tensor/matrix.h"

namespace cellm {
namespace {

// The bytes of tensor `name` in a safetensors file made by our own script (one header line whose
// keys are in a known order), found by text.
std::vector<uint8_t> LoadVector(const std::string& path, const std::string& name) {
  Result<std::string> text = platform::SystemFiles().Read(path, 1 << 20);
  if (!text.ok()) return {};
  const uint64_t header = LoadLe64(text->data());
  const size_t at = text->find("\"" + name + "\":");
  const std::string key = "\"data_offsets\": [";
  const size_t offsets = text->find(key, at) + key.size();
  const size_t begin = std::strtoull(text->c_str() + offsets, nullptr, 10);
  const size_t comma = text->find(',', offsets);
  const size_t end = std::strtoull(text->c_str() + comma + 1, nullptr, 10);
  const char* data = text->data() + 8 + header;
  return std::vector<uint8_t>(data + begin, data + end);
}

struct NamedType {
  const char* name;
  Format format;
};
constexpr NamedType kTypes[] = {
    {"Q4_0", Format::kQ4_0},       {"Q4_1", Format::kQ4_1},     {"Q5_0", Format::kQ5_0},
    {"Q5_1", Format::kQ5_1},       {"Q8_0", Format::kQ8_0},     {"Q2_K", Format::kQ2_K},
    {"Q3_K", Format::kQ3_K},       {"Q4_K", Format::kQ4_K},     {"Q5_K", Format::kQ5_K},
    {"Q6_K", Format::kQ6_K},       {"IQ1_S", Format::kIQ1_S},   {"IQ1_M", Format::kIQ1_M},
    {"IQ2_XXS", Format::kIQ2_XXS}, {"IQ2_XS", Format::kIQ2_XS}, {"IQ2_S", Format::kIQ2_S},
    {"IQ3_XXS", Format::kIQ3_XXS}, {"IQ3_S", Format::kIQ3_S},   {"IQ4_NL", Format::kIQ4_NL},
    {"IQ4_XS", Format::kIQ4_XS},   {"TQ1_0", Format::kTQ1_0},   {"TQ2_0", Format::kTQ2_0},
    {"MXFP4", Format::kMXFP4},     {"Q1_0", Format::kQ1_0},     {"Q2_0", Format::kQ2_0},
    {"NVFP4", Format::kNVFP4},
};
constexpr int32_t kRows = 6;
constexpr int32_t kCols = 512;

struct Vectors {
  std::vector<uint8_t> raw;
  std::vector<float> values;
};

Vectors Load(const char* name) {
  const std::string path = testing::TestData(std::string("gguf_blocks/") + name + ".safetensors");
  Vectors vectors;
  vectors.raw = LoadVector(path, "raw");
  const std::vector<uint8_t> values = LoadVector(path, "values");
  vectors.values.resize(values.size() / 4);
  std::memcpy(vectors.values.data(), values.data(), values.size());
  return vectors;
}

TEST(GgufBlocks, TheTableHasEveryBlockFormatOnce) {
  std::set<Format> formats;
  std::set<uint16_t> ids;
  for (const GgufBlock& block : GgufBlocks()) {
    formats.insert(block.format);
    ids.insert(block.type_id);
    EXPECT_EQ(block.weights % block.group, 0);
    EXPECT_EQ(FormatOfGgufType(block.type_id), block.format);
  }
  EXPECT_EQ(formats.size(), std::size(kTypes));
  EXPECT_EQ(ids.size(), std::size(kTypes));
  EXPECT_EQ(FormatOfGgufType(0), Format::kF32);
  EXPECT_EQ(FormatOfGgufType(30), Format::kBF16);
  for (const uint32_t unknown : {4u, 5u, 9u, 15u, 31u, 38u, 43u, 0xFFFFFFFFu}) {
    EXPECT_EQ(FormatOfGgufType(unknown), Format::kCount) << unknown;
  }
}

TEST(GgufBlocks, DecodeTheReferenceVectorsBitForBit) {
  for (const NamedType& type : kTypes) {
    SCOPED_TRACE(type.name);
    const GgufBlock* block = FindGgufBlock(type.format);
    ASSERT_NE(block, nullptr);
    const Vectors vectors = Load(type.name);
    const size_t row_bytes = static_cast<size_t>(kCols / block->weights * block->bytes);
    ASSERT_EQ(vectors.raw.size(), row_bytes * kRows);
    ASSERT_EQ(vectors.values.size(), size_t{kRows} * kCols);
    int32_t wrong = 0;
    std::vector<float> out(kCols);
    for (size_t row = 0; row < kRows; ++row) {
      DecodeGgufRow(*block, vectors.raw.data() + row * row_bytes, kCols, out.data());
      for (size_t i = 0; i < kCols; ++i) {
        const float expected = vectors.values[row * kCols + i];
        if (std::bit_cast<uint32_t>(out[i]) == std::bit_cast<uint32_t>(expected)) continue;
        // A block whose scale is 0: a product has the sign of the code, a sum of zeros has none.
        if (block->has_min && out[i] == 0 && expected == 0) continue;
        if (++wrong < 5) ADD_FAILURE() << row << "," << i << ": " << out[i] << " != " << expected;
      }
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(GgufBlocks, PlainHalvesAgreeWithTheReferenceVectors) {
  for (const char* name : {"F16", "BF16"}) {
    const Vectors vectors = Load(name);
    ASSERT_EQ(vectors.raw.size(), size_t{2} * kRows * kCols);
    for (size_t i = 0; i < vectors.values.size(); ++i) {
      const uint16_t half = LoadLe16(vectors.raw.data() + 2 * i);
      const float got = name[0] == 'F' ? F16ToFloat(half) : Bf16ToFloat(half);
      EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(vectors.values[i])) << i;
    }
  }
}

// The integers that kernels work on are the same weights: value = (2 c - zero2) s / 2 + m, codes
// fit their bits, and every scale and minimum survives the type in which it will be packed.
TEST(GgufBlocks, TheIntegerFormLosesNothing) {
  for (const NamedType& type : kTypes) {
    SCOPED_TRACE(type.name);
    const GgufBlock& block = *FindGgufBlock(type.format);
    const Vectors vectors = Load(type.name);
    const PackedLayout layout = GgufPackedLayout(block, kRows, kCols, vectors.raw);
    EXPECT_EQ(layout.rows, kRows);
    EXPECT_EQ(layout.cols, kCols);
    ASSERT_TRUE(layout.group == 16 || layout.group % 32 == 0);
    ASSERT_TRUE((layout.bits >= 1 && layout.bits <= 6) || layout.bits == 8);
    const size_t groups = static_cast<size_t>(layout.groups());
    const size_t row_bytes = vectors.raw.size() / kRows;
    std::vector<uint8_t> codes(kCols);
    std::vector<float> scales(groups), mins(groups);
    for (size_t row = 0; row < kRows; ++row) {
      DecodeGgufRowCodes(block, vectors.raw.data() + row * row_bytes, kCols, codes.data(),
                         scales.data(), mins.data());
      for (size_t g = 0; g < groups; ++g) {
        if (layout.scale_type != ScaleType::kF16 || layout.nested()) continue;
        EXPECT_EQ(F16ToFloat(FloatToF16(scales[g])), scales[g]);
        if (!layout.has_min) continue;
        EXPECT_EQ(F16ToFloat(FloatToF16(mins[g])), mins[g]);
      }
      for (size_t i = 0; i < kCols; ++i) {
        ASSERT_LT(codes[i], 1 << block.bits);
        const size_t g = i / static_cast<size_t>(layout.group);
        const float product = static_cast<float>(2 * codes[i] - layout.zero2) * (scales[g] / 2.0f);
        const float value = layout.has_min ? product + mins[g] : product;
        ASSERT_EQ(value, vectors.values[row * kCols + i]) << row << "," << i;
      }
    }
  }
}

Matrix MatrixOf(const NamedType& type, const Vectors& vectors) {
  Matrix matrix;
  matrix.format = type.format;
  matrix.rows = kRows;
  matrix.cols = kCols;
  matrix.data = vectors.raw;
  return matrix;
}

// Packs every row and reads the packed matrix back: the reference's values, bit for bit.
void ExpectPackedHasTheValues(const Matrix& matrix, std::span<const float> values) {
  auto layout = LosslessPackedLayout(matrix);
  ASSERT_TRUE(layout.ok()) << layout.status().message();
  std::vector<uint8_t> packed(layout->total_bytes());
  std::vector<uint8_t> codes(kCols);
  std::vector<float> floats(static_cast<size_t>(PackingFloats(*layout)));
  for (int32_t row = 0; row < kRows; ++row) {
    PackMatrixRow(matrix, row, *layout, row, codes.data(), floats.data(), packed.data());
  }
  Matrix again;
  again.format = Format::kPacked;
  again.rows = kRows;
  again.cols = kCols;
  again.packed = *layout;
  again.data = packed;
  ASSERT_TRUE(ValidateMatrix(again).ok());
  std::vector<float> out(kCols);
  for (int32_t row = 0; row < kRows; ++row) {
    DecodeRow(again, row, out.data());
    for (size_t i = 0; i < kCols; ++i) {
      ASSERT_EQ(out[i], values[static_cast<size_t>(row) * kCols + i]) << row << "," << i;
    }
  }
  // A packed matrix has its own layout, and packing it again changes nothing.
  auto same = LosslessPackedLayout(again);
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(PackedName(*same), PackedName(*layout));
  std::vector<uint8_t> twice(packed.size());
  for (int32_t row = 0; row < kRows; ++row) {
    PackMatrixRow(again, row, *same, row, codes.data(), floats.data(), twice.data());
  }
  EXPECT_EQ(twice, packed);
}

TEST(GgufBlocks, PackingLosesNothing) {
  for (const NamedType& type : kTypes) {
    SCOPED_TRACE(type.name);
    const Vectors vectors = Load(type.name);
    ExpectPackedHasTheValues(MatrixOf(type, vectors), vectors.values);
  }
}

// Columns that change place in units narrower than a super-block split its super-scale.
TEST(GgufBlocks, PackingReorderedColumnsLosesNothing) {
  for (const int32_t unit : {16, 32, 64, 128}) {
    const int32_t units = kCols / unit;
    std::vector<int32_t> order(static_cast<size_t>(units));
    for (int32_t u = 0; u < units; ++u) order[static_cast<size_t>(u)] = (u * 3 + 1) % units;
    for (const NamedType& type : kTypes) {
      if (FindGgufBlock(type.format)->sub == SubScale::kNone) continue;
      SCOPED_TRACE(std::string(type.name) + ", units of " + std::to_string(unit));
      const Vectors vectors = Load(type.name);
      Matrix matrix = MatrixOf(type, vectors);
      matrix.column_order = order;
      matrix.column_unit = unit;
      std::vector<float> values(vectors.values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t col = i % kCols;
        const size_t width = static_cast<size_t>(unit);
        const size_t from = static_cast<size_t>(order[col / width]) * width + col % width;
        values[i] = vectors.values[i / kCols * kCols + from];
      }
      ExpectPackedHasTheValues(matrix, values);
      // A factor for the whole matrix: scales are written out in float.
      matrix.tensor_scale = 0.75f;
      auto layout = LosslessPackedLayout(matrix);
      ASSERT_TRUE(layout.ok());
      EXPECT_FALSE(layout->nested());
      EXPECT_EQ(layout->scale_type, ScaleType::kF32);
    }
  }
}

// Bits a weight in memory beside those in the file, at a width without padding.
TEST(GgufBlocks, PackedBitsAreNearTheFiles) {
  const struct {
    Format format;
    double file, packed;
  } rows[] = {{Format::kQ4_0, 4.5, 4.5},         {Format::kQ4_1, 5.0, 5.0},
              {Format::kQ5_0, 5.5, 5.5},         {Format::kQ5_1, 6.0, 6.0},
              {Format::kQ8_0, 8.5, 8.5},         {Format::kQ2_K, 2.625, 2.625},
              {Format::kQ3_K, 3.4375, 3.5625},   {Format::kQ4_K, 4.5, 4.625},
              {Format::kQ5_K, 5.5, 5.625},       {Format::kQ6_K, 6.5625, 6.5625},
              {Format::kIQ1_S, 1.5625, 2.75},    {Format::kIQ1_M, 1.75, 4.625},
              {Format::kIQ2_XXS, 2.0625, 3.375}, {Format::kIQ2_XS, 2.3125, 3.625},
              {Format::kIQ2_S, 2.5625, 3.625},   {Format::kIQ3_XXS, 3.0625, 4.375},
              {Format::kIQ3_S, 3.4375, 4.375},   {Format::kIQ4_NL, 4.5, 4.5},
              {Format::kIQ4_XS, 4.25, 4.3125},   {Format::kTQ1_0, 1.6875, 2.0625},
              {Format::kTQ2_0, 2.0625, 2.0625},  {Format::kMXFP4, 4.25, 5.0},
              {Format::kNVFP4, 4.5, 5.0},        {Format::kQ1_0, 1.125, 1.125},
              {Format::kQ2_0, 2.25, 2.25}};
  EXPECT_EQ(std::size(rows), std::size(kTypes));
  for (const auto& row : rows) {
    const GgufBlock& block = *FindGgufBlock(row.format);
    SCOPED_TRACE(GetFormatInfo(row.format).name);
    EXPECT_EQ(8.0 * block.bytes / block.weights, row.file);
    const PackedLayout layout = GgufPackedLayout(block, 16, 4096, {});
    EXPECT_EQ(8.0 * static_cast<double>(layout.total_bytes()) / (16.0 * 4096.0), row.packed);
  }
}

TEST(GgufBlocks, AOneBitScaleTooLargeForAHalfIsKeptInFloat) {
  std::vector<uint8_t> block(18, 0x0F);
  StoreLe<uint16_t>(block.data(), FloatToF16(40000.0f));
  const GgufBlock& q1 = *FindGgufBlock(Format::kQ1_0);
  EXPECT_EQ(GgufPackedLayout(q1, 1, 128, block).scale_type, ScaleType::kF32);
  StoreLe<uint16_t>(block.data(), FloatToF16(30000.0f));
  EXPECT_EQ(GgufPackedLayout(q1, 1, 128, block).scale_type, ScaleType::kF16);
}

// Values worked out by hand from the layout, independent of the vectors. Facts: cellm-facts V10,
// V11 and the nibble order of 4-bit blocks.
TEST(GgufBlocks, DecodeSmallBlocksByHand) {
  std::vector<uint8_t> q1 = {0x00, 0x38, 0x05};
  q1.resize(18, 0);
  float out[128];
  DecodeGgufRow(*FindGgufBlock(Format::kQ1_0), q1.data(), 128, out);
  EXPECT_EQ(out[0], 0.5f);
  EXPECT_EQ(out[1], -0.5f);
  EXPECT_EQ(out[2], 0.5f);
  EXPECT_EQ(out[127], -0.5f);

  std::vector<uint8_t> q4 = {0x00, 0x3C, 0x1F};  // d = 1; weight 0 is 15 - 8, weight 16 is 1 - 8
  q4.resize(18, 0x88);
  DecodeGgufRow(*FindGgufBlock(Format::kQ4_0), q4.data(), 32, out);
  EXPECT_EQ(out[0], 7.0f);
  EXPECT_EQ(out[16], -7.0f);
  EXPECT_EQ(out[1], 0.0f);
}

}  // namespace
}  // namespace cellm
