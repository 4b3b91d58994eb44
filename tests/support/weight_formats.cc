#include "support/weight_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "base/rng.h"
#include "format/convert.h"
#include "support/checkpoint.h"
#include "support/paths.h"
#include "tensor/half.h"

namespace cellm::testing {
namespace {

using Kind = WeightFormat::Kind;
using format::TensorRole;

std::string UpperCase(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// One matrix, or one an expert, that is to be written anew.
struct Place {
  std::string name;  // of the weight
  std::string stem;  // without ".weight"
  int64_t experts;   // 0: a plain matrix
  int32_t rows, cols;
  TensorRole role;
};

class Reformatter {
 public:
  Reformatter(const WeightFormat& format, uint64_t seed) : format_(format), rng_(seed) {
    if (format.kind != Kind::kBlocks) return;
    const std::string path = "gguf_blocks/" + UpperCase(std::string(format.name)) + ".safetensors";
    auto tensors = ReadSafetensors(TestData(path));
    const std::vector<uint8_t>& raw = tensors["raw"].bytes;
    EXPECT_FALSE(raw.empty()) << path;
    // Rows 1 and 2 of six: normal numbers times 0.02 and 0.3, with outliers.
    const size_t row = raw.size() / 6;
    blocks_.assign(raw.begin() + static_cast<int64_t>(row),
                   raw.begin() + static_cast<int64_t>(3 * row));
  }

  // False when the format does not hold this matrix; then nothing was added.
  bool Write(const Place& place, std::vector<format::Tensor>* out, format::ModelFile* file) {
    out_ = out;
    file_ = file;
    const int32_t cols = place.cols;
    const int32_t rows = place.rows;
    const bool plain = place.experts == 0;
    const bool layer = place.role == TensorRole::kAttention || place.role == TensorRole::kMlp;
    const int32_t bits = format_.bits;
    switch (format_.kind) {
      case Kind::kFloats:
        return Floats(place);
      case Kind::kScheme:
        // Fused experts are cut between tiles.
        return (plain || rows % 32 == 0) && Packed(place);
      case Kind::kBlocks:
        return cols % GetFormatInfo(format_.format).block_weights == 0 && Blocks(place);
      case Kind::kVersion1:
        Add(place.name, format_.format, ShapeOf(place, cols),
            Noise(Count(place) * RowBytes(cols, bits)));
        Add(place.name + ".qscale", Format::kF16, ShapeOf(place, Groups(cols)),
            Halves(Count(place) * Groups(cols), Spread(cols)));
        return true;
      case Kind::kMlx:
        if (cols % 32 != 0) return false;
        Add(place.stem + ".weight", Format::kU32, ShapeOf(place, cols * bits / 32),
            Noise(Count(place) * RowBytes(cols, bits)));
        Add(place.stem + ".scales", Format::kF16, ShapeOf(place, cols / 32),
            Halves(Count(place) * (cols / 32), Spread(cols)));
        Add(place.stem + ".biases", Format::kF16, ShapeOf(place, cols / 32),
            Halves(Count(place) * (cols / 32), 0.2f / std::sqrt(static_cast<float>(cols))));
        return true;
      case Kind::kGptq:
      case Kind::kGptqOrdered:
        if (!plain || !layer || cols % 32 != 0 || rows % 32 != 0) return false;
        Add(place.stem + ".qweight", Format::kI32, {int64_t{cols} * bits / 32, rows},
            Noise(int64_t{rows} * cols * bits / 8));
        Add(place.stem + ".qzeros", Format::kI32, {cols / 32, int64_t{rows} * bits / 32},
            Noise(int64_t{cols} / 32 * rows * bits / 8));
        Add(place.stem + ".scales", Format::kF16, {cols / 32, rows},
            Halves(int64_t{cols} / 32 * rows, Spread(cols)));
        if (format_.kind == Kind::kGptqOrdered) AddOrder(place);
        return true;
      case Kind::kAwq:
        if (!plain || !layer || cols % 32 != 0 || rows % 8 != 0) return false;
        Add(place.stem + ".qweight", Format::kI32, {cols, rows / 8},
            Noise(int64_t{rows} * cols / 2));
        Add(place.stem + ".qzeros", Format::kI32, {cols / 32, rows / 8},
            Noise(int64_t{cols} / 32 * rows / 2));
        Add(place.stem + ".scales", Format::kF16, {cols / 32, rows},
            Halves(int64_t{cols} / 32 * rows, Spread(cols)));
        return true;
      case Kind::kCompressed:
        if (!plain || !layer || cols % 32 != 0) return false;
        Add(place.stem + ".weight_packed", Format::kI32, {rows, cols * bits / 32},
            Noise(int64_t{rows} * cols * bits / 8));
        Add(place.stem + ".weight_scale", Format::kBF16, {rows, cols / 32},
            Brains(int64_t{rows} * cols / 32, Spread(cols)));
        return true;
      case Kind::kCompressedInt8:
        if (!plain || !layer) return false;
        Add(place.stem + ".weight", Format::kI8, {rows, cols}, Noise(int64_t{rows} * cols));
        Add(place.stem + ".weight_scale", Format::kBF16, {rows, 1}, Brains(rows, Spread(cols)));
        return true;
      case Kind::kBitnet:
        if (!plain || !layer || rows % 4 != 0) return false;
        Add(place.stem + ".weight", Format::kU8, {rows / 4, cols},
            Ternary(int64_t{rows} / 4 * cols));
        Add(place.stem + ".weight_scale", Format::kBF16, {1}, Brains(1, 8.0f));
        return true;
    }
    return false;
  }

 private:
  static int64_t Count(const Place& place) {
    return std::max<int64_t>(1, place.experts) * place.rows;
  }
  static std::vector<int64_t> ShapeOf(const Place& place, int64_t last) {
    if (place.experts == 0) return {place.rows, last};
    return {place.experts, place.rows, last};
  }
  static int64_t RowBytes(int32_t cols, int32_t bits) { return (int64_t{cols} * bits + 7) / 8; }
  static int64_t Groups(int32_t cols) { return (cols + 31) / 32; }
  // A scale with which codes of this width give weights that keep activations near one.
  float Spread(int32_t cols) const {
    return 2.0f / (std::sqrt(static_cast<float>(cols)) *
                   static_cast<float>(int32_t{1} << std::min(format_.bits, 8)));
  }

  void Add(std::string name, Format format, std::vector<int64_t> shape, std::vector<uint8_t> bytes,
           const PackedLayout& packed = {}) {
    file_->owned_bytes.push_back(std::make_unique<std::vector<uint8_t>>(std::move(bytes)));
    format::Tensor tensor;
    tensor.name = std::move(name);
    tensor.format = format;
    tensor.shape = std::move(shape);
    tensor.data = *file_->owned_bytes.back();
    tensor.packed = packed;
    out_->push_back(std::move(tensor));
  }

  std::vector<uint8_t> Noise(int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng_.NextBelow(256));
    return bytes;
  }
  float Around(float size) { return size * (0.5f + rng_.NextFloat()); }
  std::vector<uint8_t> Words(int64_t count, float size, uint16_t (*convert)(float)) {
    std::vector<uint8_t> bytes;
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t bits = convert(Around(size));
      bytes.push_back(static_cast<uint8_t>(bits & 0xFF));
      bytes.push_back(static_cast<uint8_t>(bits >> 8));
    }
    return bytes;
  }
  std::vector<uint8_t> Halves(int64_t count, float size) { return Words(count, size, FloatToF16); }
  std::vector<uint8_t> Brains(int64_t count, float size) { return Words(count, size, FloatToBf16); }
  // Four codes of 0, 1 or 2 a byte.
  std::vector<uint8_t> Ternary(int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    for (uint8_t& byte : bytes) {
      for (int shift = 0; shift < 8; shift += 2) {
        byte = static_cast<uint8_t>(byte | (rng_.NextBelow(3) << shift));
      }
    }
    return bytes;
  }
  // A group for each column, in no order.
  void AddOrder(const Place& place) {
    std::vector<uint8_t> bytes;
    for (int32_t col = 0; col < place.cols; ++col) {
      bytes.push_back(static_cast<uint8_t>(rng_.NextBelow(static_cast<uint64_t>(place.cols / 32))));
      bytes.insert(bytes.end(), 3, 0);
    }
    Add(place.stem + ".g_idx", Format::kI32, {place.cols}, std::move(bytes));
  }

  bool Floats(const Place& place) {
    const int64_t count = Count(place) * place.cols;
    const float size = 1.0f / std::sqrt(static_cast<float>(place.cols));
    std::vector<uint8_t> bytes;
    for (int64_t i = 0; i < count; ++i) {
      const float value = (rng_.NextFloat() * 2 - 1) * size;
      if (format_.format == Format::kF32) {
        uint8_t four[4];
        std::memcpy(four, &value, 4);
        bytes.insert(bytes.end(), four, four + 4);
      } else if (format_.format == Format::kF16 || format_.format == Format::kBF16) {
        const uint16_t bits =
            format_.format == Format::kF16 ? FloatToF16(value) : FloatToBf16(value);
        bytes.push_back(static_cast<uint8_t>(bits & 0xFF));
        bytes.push_back(static_cast<uint8_t>(bits >> 8));
      } else {
        // One byte: a sign, an exponent around that of a quarter, any mantissa.
        const bool e4 = format_.format == Format::kF8E4M3;
        const uint64_t low = e4 ? (3u << 3) : (11u << 2);
        bytes.push_back(static_cast<uint8_t>((rng_.NextBelow(2) << 7) | (low + rng_.NextBelow(8))));
      }
    }
    Add(place.name, format_.format, ShapeOf(place, place.cols), std::move(bytes));
    return true;
  }

  bool Packed(const Place& place) {
    const auto layout = format::QuantLayout(format_.scheme, place.rows, place.cols);
    EXPECT_TRUE(layout.ok()) << layout.status().message();
    if (!layout.ok()) return false;
    const uint64_t levels =
        format_.scheme.kind == format::QuantKind::kTernary ? 3 : uint64_t{1} << layout->bits;
    const size_t one = layout->total_bytes();
    const size_t count = static_cast<size_t>(std::max<int64_t>(1, place.experts));
    std::vector<uint8_t> bytes(one * count);
    std::vector<uint8_t> codes(static_cast<size_t>(place.cols));
    std::vector<float> scales(static_cast<size_t>(layout->groups()));
    std::vector<float> mins(scales.size());
    for (size_t m = 0; m < count; ++m) {
      for (int32_t row = 0; row < place.rows; ++row) {
        for (uint8_t& code : codes) code = static_cast<uint8_t>(rng_.NextBelow(levels));
        for (float& scale : scales) scale = Around(Spread(place.cols));
        const float middle = static_cast<float>(levels - 1) / 2;
        for (size_t g = 0; g < mins.size(); ++g) mins[g] = -middle * scales[g];
        PackRow(*layout, row, codes.data(), scales.data(), mins.data(), bytes.data() + m * one);
      }
    }
    Add(place.name, Format::kPacked, ShapeOf(place, place.cols), std::move(bytes), *layout);
    return true;
  }

  bool Blocks(const Place& place) {
    const FormatInfo& info = GetFormatInfo(format_.format);
    const size_t size = static_cast<size_t>(info.block_bytes);
    const int64_t count = Count(place) * (place.cols / info.block_weights);
    std::vector<uint8_t> bytes;
    for (int64_t i = 0; i < count; ++i) {
      const size_t at = size * static_cast<size_t>(rng_.NextBelow(blocks_.size() / size));
      bytes.insert(bytes.end(), blocks_.begin() + static_cast<int64_t>(at),
                   blocks_.begin() + static_cast<int64_t>(at + size));
    }
    Add(place.name, format_.format, ShapeOf(place, place.cols), std::move(bytes));
    return true;
  }

  const WeightFormat& format_;
  Rng rng_;
  std::vector<uint8_t> blocks_;
  std::vector<format::Tensor>* out_ = nullptr;
  format::ModelFile* file_ = nullptr;
};

}  // namespace

std::vector<WeightFormat> AllWeightFormats() {
  std::vector<WeightFormat> all;
  for (const Format format :
       {Format::kF32, Format::kF16, Format::kBF16, Format::kF8E4M3, Format::kF8E5M2}) {
    all.push_back({Kind::kFloats, std::string(GetFormatInfo(format).name), format, {}, 0});
  }
  for (const char* const word :
       {"i8",     "i8:16",  "i8:64",  "i8a:32", "i6",    "i6:64",   "i6a:64",
        "i5",     "i5:128", "i5a",    "i4",     "i4:16", "i4:64",   "i4:128",
        "i4:row", "i4a",    "i4a:64", "i3:64",  "i3a",   "i3:row",  "i2",
        "i2:16",  "i2:64",  "i2a",    "i1",     "i1:32", "ternary", "ternary:64"}) {
    const auto scheme = format::ParseQuantScheme(word);
    EXPECT_TRUE(scheme.ok()) << word;
    all.push_back({Kind::kScheme, word, Format::kPacked, *scheme, scheme->bits});
  }
  // The enumeration has GGUF's block types in one run.
  for (int i = static_cast<int>(Format::kQ4_0); i < static_cast<int>(Format::kPacked); ++i) {
    const Format format = static_cast<Format>(i);
    all.push_back({Kind::kBlocks, std::string(GetFormatInfo(format).name), format, {}, 0});
  }
  all.push_back({Kind::kVersion1, "v1 i8", Format::kI8V1, {}, 8});
  all.push_back({Kind::kVersion1, "v1 i4", Format::kI4V1, {}, 4});
  all.push_back({Kind::kVersion1, "v1 i2", Format::kI2V1, {}, 2});
  for (const int32_t bits : {2, 3, 4, 5, 6, 8}) {
    all.push_back({Kind::kMlx, "mlx " + std::to_string(bits), Format::kMlxAffine, {}, bits});
  }
  for (const int32_t bits : {2, 3, 4, 8}) {
    all.push_back({Kind::kGptq, "gptq " + std::to_string(bits), Format::kGptq, {}, bits});
  }
  all.push_back({Kind::kGptqOrdered, "gptq 4 in activation order", Format::kGptq, {}, 4});
  all.push_back({Kind::kAwq, "awq", Format::kAwq, {}, 4});
  all.push_back({Kind::kCompressed, "compressed 4", Format::kCompressedInt4, {}, 4});
  all.push_back({Kind::kCompressed, "compressed 8", Format::kCompressedInt4, {}, 8});
  all.push_back({Kind::kCompressedInt8, "compressed int8", Format::kI8V1, {}, 8});
  all.push_back({Kind::kBitnet, "bitnet", Format::kBitnetPacked, {}, 2});
  return all;
}

int Reformat(const WeightFormat& format, uint64_t seed, format::ModelFile* file) {
  Reformatter writer(format, seed);
  std::vector<format::Tensor> tensors;
  int count = 0;
  for (format::Tensor& tensor : file->tensors) {
    const size_t rank = tensor.shape.size();
    const TensorRole role = format::RoleOf(tensor.name, rank);
    // Packed ternary weights (four rows a byte) have their scale beside them, and a configuration
    // that says so: what GPTQ and its like hold, it contradicts.
    const bool ternary = tensor.format == Format::kU8;
    if (ternary && (format.format == Format::kGptq || format.format == Format::kAwq)) return 0;
    const bool floats = IsDenseFloat(tensor.format);
    if (tensor.name.ends_with(".weight_scale")) continue;
    if ((!floats && !ternary) || role == TensorRole::kKept || (rank != 2 && rank != 3)) {
      tensors.push_back(std::move(tensor));
      continue;
    }
    Place place;
    place.name = tensor.name;
    place.stem = tensor.name.ends_with(".weight") ? tensor.name.substr(0, tensor.name.size() - 7)
                                                  : tensor.name;
    place.experts = rank == 3 ? tensor.shape[0] : 0;
    place.rows = static_cast<int32_t>(tensor.shape[rank - 2]) * (ternary ? 4 : 1);
    place.cols = static_cast<int32_t>(tensor.shape[rank - 1]);
    place.role = role;
    if (writer.Write(place, &tensors, file)) {
      ++count;
      continue;
    }
    if (ternary) {
      // Its scale is gone: floats in its place.
      const WeightFormat plain{Kind::kFloats, "f32", Format::kF32, {}, 0};
      Reformatter(plain, seed).Write(place, &tensors, file);
      continue;
    }
    tensors.push_back(std::move(tensor));
  }
  file->tensors = std::move(tensors);
  std::sort(file->tensors.begin(), file->tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return count;
}

}  // namespace cellm::testing
