// Side tensors of any shapes and bytes around one quantised weight: a Status or a matrix whose rows
// can be read. The input is a list of tensors: name, format, rank, dimensions, then their bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/model_file.h"
#include "support/heap_bound.h"

namespace {

using cellm::Format;
using cellm::format::ModelFile;
using cellm::format::Tensor;

constexpr const char* kNames[] = {
    "w.weight",        "w.qweight",      "w.qzeros",        "w.scales",
    "w.biases",        "w.g_idx",        "w.weight_scale",  "w.weight_zero_point",
    "w.weight_packed", "w.weight_shape", "w.weight.qscale", "w.weight_g_idx"};
constexpr Format kFormats[] = {Format::kI32,  Format::kU32,  Format::kU8,  Format::kI8,
                               Format::kF16,  Format::kBF16, Format::kF32, Format::kI8V1,
                               Format::kI4V1, Format::kQ4_0, Format::kQ1_0};
constexpr const char* kConfigs[] = {
    "{}",
    R"({"quantization_config": {"quant_method": "gptq"}})",
    R"({"quantization_config": {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}})",
    R"({"quantization_config": {"quant_method": "awq", "version": "gemm"}})",
    R"({"quantization_config": {"quant_method": "bitnet", "linear_class": "autobitlinear"}})",
    R"({"quantization_config": {"quant_method": "bitnet"}})",
    R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}})",
};

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Byte() { return size_ == 0 ? uint8_t{0} : (--size_, *data_++); }
  bool empty() const { return size_ == 0; }

 private:
  const uint8_t* data_;
  size_t size_;
};

// A dimension: small, or a multiple of 8 or 32.
int64_t Dimension(Input& input) {
  const uint8_t byte = input.Byte();
  const int64_t units[] = {1, 8, 32, 4};
  return (byte & 63) * units[byte >> 6];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  ModelFile model;
  model.path = "fuzz";
  model.config = std::move(
      cellm::json::Document::Parse(kConfigs[input.Byte() % std::size(kConfigs)], "config").value());
  const int32_t rows = static_cast<int32_t>(Dimension(input));
  const int32_t cols = static_cast<int32_t>(Dimension(input));
  while (!input.empty() && model.tensors.size() < 8) {
    Tensor tensor;
    tensor.name = kNames[input.Byte() % std::size(kNames)];
    tensor.format = kFormats[input.Byte() % std::size(kFormats)];
    const uint8_t rank = input.Byte() % 4;
    size_t count = 1;
    for (uint8_t i = 0; i < rank; ++i) {
      tensor.shape.push_back(Dimension(input));
      count *= static_cast<size_t>(tensor.shape.back());
    }
    if (count > size_t{1} << 16) continue;
    // Readers promise that plain tensors have the bytes of their shape; blocks need not fit.
    const cellm::FormatInfo& info = cellm::GetFormatInfo(tensor.format);
    const size_t bytes = count * static_cast<size_t>(std::max(1, info.block_bytes)) /
                         static_cast<size_t>(std::max(1, info.block_weights));
    auto owned = std::make_unique<std::vector<uint8_t>>(bytes);
    for (size_t i = 0; i < std::min<size_t>(bytes, 64); ++i) (*owned)[i] = input.Byte();
    tensor.data = *owned;
    const bool known = std::any_of(model.tensors.begin(), model.tensors.end(),
                                   [&](const Tensor& t) { return t.name == tensor.name; });
    if (known) continue;
    model.owned_bytes.push_back(std::move(owned));
    model.tensors.push_back(std::move(tensor));
  }
  std::sort(model.tensors.begin(), model.tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  size_t tensor_bytes = 0;
  for (const Tensor& tensor : model.tensors) tensor_bytes += tensor.data.size();
  const auto find = [&] {
    const cellm::fuzz::HeapBound bound(tensor_bytes);
    return cellm::format::FindMatrix(model, "w", rows, cols);
  };
  const cellm::Result<cellm::Matrix> matrix = find();
  if (!matrix.ok()) return 0;
  std::vector<float> row(static_cast<size_t>(matrix->cols));
  cellm::DecodeRow(*matrix, 0, row.data());
  cellm::DecodeRow(*matrix, matrix->rows - 1, row.data());
  const cellm::Result<cellm::PackedLayout> layout = cellm::LosslessPackedLayout(*matrix);
  if (!layout.ok()) return 0;
  std::vector<uint8_t> codes(row.size());
  std::vector<float> scales(static_cast<size_t>(layout->groups()));
  std::vector<float> mins(scales.size());
  cellm::DecodeRowCodes(*matrix, matrix->rows - 1, codes.data(), scales.data(), mins.data());
  return 0;
}
