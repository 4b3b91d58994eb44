// Quantised checkpoints of other projects, against what their own definitions give.

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "format/model_file.h"
#include "platform/file.h"
#include "support/checkpoint.h"
#include "support/paths.h"
#include "tensor/matrix.h"

namespace cellm::format {
namespace {

constexpr const char* kBase = "model.layers.0.mlp.up_proj";
constexpr int32_t kRows = 32;
constexpr int32_t kCols = 64;

struct Imported {
  const char* folder;
  Format format;
  int32_t bits;
  int32_t group;  // 0: the whole row
  bool has_codes;
  bool has_min;  // zero points differ, so that the integer form needs minimums
};
constexpr Imported kImported[] = {
    {"gptq4", Format::kGptq, 4, 32, true, true},
    {"gptq4_v2", Format::kGptq, 4, 32, true, true},
    {"gptq4_act_order", Format::kGptq, 4, 16, false, true},
    {"gptq4_symmetric", Format::kGptq, 4, 32, true, false},
    {"gptq2", Format::kGptq, 2, 32, true, true},
    {"gptq3", Format::kGptq, 3, 0, true, true},
    {"gptq8", Format::kGptq, 8, 32, true, true},
    {"awq4", Format::kAwq, 4, 32, true, true},
    {"bitnet_auto", Format::kBitnetPacked, 2, 0, true, false},
    {"bitnet_plain", Format::kBitnetPacked, 2, 0, true, false},
    {"mlx2", Format::kMlxAffine, 2, 32, true, true},
    {"mlx3", Format::kMlxAffine, 3, 0, true, true},
    {"mlx4", Format::kMlxAffine, 4, 32, true, true},
    {"mlx5", Format::kMlxAffine, 5, 32, true, true},
    {"mlx6", Format::kMlxAffine, 6, 0, true, true},
    {"mlx8", Format::kMlxAffine, 8, 32, true, true},
    {"ct_pack4", Format::kCompressedInt4, 4, 32, true, false},
    {"ct_pack4_zeros", Format::kCompressedInt4, 4, 32, true, true},
    {"ct_pack8_channel", Format::kCompressedInt4, 8, 0, true, false},
    {"ct_int8", Format::kI8V1, 0, 0, true, false},
};

std::vector<float> Expected(const Imported& imported) {
  const std::string path =
      testing::TestData(std::string("import/") + imported.folder + "/expected.safetensors");
  auto tensors = testing::ReadSafetensors(path);
  return tensors["weight"].values;
}

TEST(Import, RowsHaveTheDefinitionsValuesBitForBit) {
  for (const Imported& imported : kImported) {
    SCOPED_TRACE(imported.folder);
    auto model = OpenModelFile(platform::SystemFiles(),
                               testing::TestData(std::string("import/") + imported.folder));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_TRUE(HasMatrix(**model, kBase));
    Result<Matrix> matrix = FindMatrix(**model, kBase, kRows, kCols);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    EXPECT_EQ(matrix->format, imported.format);
    EXPECT_EQ(matrix->group, imported.group);
    EXPECT_TRUE(imported.bits == 0 || matrix->bits == imported.bits) << matrix->bits;
    const std::vector<float> expected = Expected(imported);
    ASSERT_EQ(expected.size(), size_t{kRows} * kCols);
    std::vector<float> row(kCols);
    for (int32_t r = 0; r < kRows; ++r) {
      DecodeRow(*matrix, r, row.data());
      for (int32_t c = 0; c < kCols; ++c) {
        ASSERT_EQ(row[static_cast<size_t>(c)], expected[static_cast<size_t>(r * kCols + c)])
            << r << "," << c;
      }
    }
  }
}

TEST(Import, TheIntegerFormIsTheSameWeights) {
  for (const Imported& imported : kImported) {
    SCOPED_TRACE(imported.folder);
    auto model = OpenModelFile(platform::SystemFiles(),
                               testing::TestData(std::string("import/") + imported.folder));
    ASSERT_TRUE(model.ok()) << model.status().message();
    Result<Matrix> matrix = FindMatrix(**model, kBase, kRows, kCols);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    Result<PackedLayout> layout = LosslessPackedLayout(*matrix);
    if (!imported.has_codes) {
      ASSERT_FALSE(layout.ok());
      EXPECT_EQ(layout.status().code(), StatusCode::kUnsupported);
      EXPECT_NE(layout.status().message().find("activation order"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    EXPECT_EQ(layout->has_min, imported.has_min);
    const std::vector<float> expected = Expected(imported);
    const size_t groups = static_cast<size_t>(layout->groups());
    std::vector<uint8_t> codes(kCols);
    std::vector<float> scales(groups), mins(groups);
    std::vector<uint8_t> packed(layout->total_bytes());
    for (int32_t r = 0; r < kRows; ++r) {
      DecodeRowCodes(*matrix, r, codes.data(), scales.data(), mins.data());
      // Through the packed bytes as well: the layout's types must hold what the codes need.
      PackRow(*layout, r, codes.data(), scales.data(), mins.data(), packed.data());
      UnpackRow(*layout, r, packed.data(), codes.data(), scales.data(), mins.data());
      for (size_t c = 0; c < kCols; ++c) {
        const size_t g = layout->group == 0 ? 0 : c / static_cast<size_t>(layout->group);
        const float product = static_cast<float>(2 * codes[c] - layout->zero2) * (0.5f * scales[g]);
        const float value = layout->has_min ? product + mins[g] : product;
        ASSERT_EQ(value, expected[static_cast<size_t>(r) * kCols + c]) << r << "," << c;
      }
    }
  }
}

// A model of a few tensors with a configuration, as a reader would have left it.
struct HandMade {
  ModelFile model;
  explicit HandMade(std::string_view config) {
    model.path = "hand";
    model.config = std::move(json::Document::Parse(config, "config").value());
  }
  void Add(std::string_view name, Format format, std::vector<int64_t> shape) {
    size_t bytes = static_cast<size_t>(GetFormatInfo(format).block_bytes);
    for (const int64_t dim : shape) bytes *= static_cast<size_t>(dim);
    model.owned_bytes.push_back(std::make_unique<std::vector<uint8_t>>(bytes, uint8_t{0x11}));
    Tensor tensor;
    tensor.name = name;
    tensor.format = format;
    tensor.shape = std::move(shape);
    tensor.data = *model.owned_bytes.back();
    model.tensors.push_back(std::move(tensor));
    std::sort(model.tensors.begin(), model.tensors.end(),
              [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  }
  Status Find(int32_t rows, int32_t cols) { return FindMatrix(model, "w", rows, cols).status(); }
};

TEST(Import, ConventionsThatAreNotKnownAreRefusedByName) {
  struct Case {
    const char* config;
    const char* message;
  };
  const Case kCases[] = {
      {R"({"quantization_config": {"quant_method": "aqlm"}})", "aqlm"},
      {R"({"quantization_config": {"quant_method": "gptq", "checkpoint_format": "marlin"}})",
       "marlin"},
  };
  for (const Case& c : kCases) {
    HandMade hand(c.config);
    hand.Add("w.qweight", Format::kI32, {8, 32});
    hand.Add("w.scales", Format::kF16, {2, 32});
    hand.Add("w.qzeros", Format::kI32, {2, 4});
    const Status status = hand.Find(32, 64);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.message();
    EXPECT_NE(status.message().find(c.message), std::string::npos) << status.message();
  }
  HandMade awq(R"({"quantization_config": {"quant_method": "awq", "version": "gemv"}})");
  awq.Add("w.qweight", Format::kI32, {64, 4});
  awq.Add("w.scales", Format::kF16, {2, 32});
  const Status status = awq.Find(32, 64);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported) << status.message();
}

// A bias sorts before the names that tell these packings.
TEST(Import, ABiasDoesNotHideTheWeights) {
  HandMade gptq("{}");
  gptq.Add("w.bias", Format::kF16, {32});
  gptq.Add("w.qweight", Format::kI32, {8, 32});
  gptq.Add("w.scales", Format::kF16, {2, 32});
  gptq.Add("w.qzeros", Format::kI32, {2, 4});
  EXPECT_TRUE(HasMatrix(gptq.model, "w"));
  EXPECT_TRUE(gptq.Find(32, 64).ok()) << gptq.Find(32, 64).message();
  HandMade compressed("{}");
  compressed.Add("w.bias", Format::kF16, {32});
  compressed.Add("w.weight_packed", Format::kI32, {32, 8});
  compressed.Add("w.weight_scale", Format::kF16, {32, 2});
  EXPECT_TRUE(compressed.Find(32, 64).ok()) << compressed.Find(32, 64).message();
  HandMade alone("{}");
  alone.Add("w.bias", Format::kF16, {32});
  EXPECT_EQ(alone.Find(32, 64).code(), StatusCode::kNotFound);
}

TEST(Import, SideTensorsOfTheWrongShapeAreCorrupt) {
  struct Side {
    const char* name;
    Format format;
    std::vector<int64_t> shape;
  };
  const std::vector<Side> good = {{"w.qweight", Format::kI32, {8, 32}},
                                  {"w.scales", Format::kF16, {2, 32}},
                                  {"w.qzeros", Format::kI32, {2, 4}},
                                  {"w.g_idx", Format::kI32, {64}}};
  const std::vector<Side> bad = {{"w.qweight", Format::kI32, {9, 32}},
                                 {"w.qweight", Format::kI32, {0, 32}},
                                 {"w.qweight", Format::kI32, {64, 32}},
                                 {"w.qweight", Format::kF16, {8, 32}},
                                 {"w.scales", Format::kI32, {2, 32}},
                                 {"w.scales", Format::kF16, {2, 31}},
                                 {"w.scales", Format::kF16, {0, 32}},
                                 {"w.scales", Format::kF16, {65, 32}},
                                 {"w.qzeros", Format::kI32, {2, 5}},
                                 {"w.qzeros", Format::kI32, {1, 4}},
                                 {"w.g_idx", Format::kI32, {63}},
                                 {"w.g_idx", Format::kI32, {64}}};  // 0x11111111 is no group
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    HandMade hand("{}");
    for (const Side& side : good) {
      const bool replaced = side.name == std::string_view(bad[i].name);
      if (side.name == std::string_view("w.g_idx") && !replaced) continue;
      hand.Add(side.name, replaced ? bad[i].format : side.format,
               replaced ? bad[i].shape : side.shape);
    }
    const Status status = hand.Find(32, 64);
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
  }
}

TEST(Import, OneScaleForAWholeMatrixMultiplies) {
  HandMade hand("{}");
  hand.Add("w.weight", Format::kF16, {4, 8});
  hand.Add("w.weight_scale", Format::kF32, {1});
  Result<Matrix> matrix = FindMatrix(hand.model, "w", 4, 8);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  matrix->tensor_scale = 4.0f;  // 0x11111111 as a float is hard to read
  float scaled[8];
  DecodeRow(*matrix, 0, scaled);
  matrix->tensor_scale = 1.0f;
  float plain[8];
  DecodeRow(*matrix, 0, plain);
  EXPECT_NE(plain[0], 0.0f);
  EXPECT_EQ(scaled[0], 4.0f * plain[0]);
}

}  // namespace
}  // namespace cellm::format
