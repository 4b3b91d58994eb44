#include "support/zoo_mm.h"

#include <algorithm>

#include "base/bytes.h"
#include "platform/file.h"
#include "support/paths.h"
#include "tensor/quantize.h"

namespace cellm::testing {

using media::MediaKind;
using media::TowerInput;

ZooMm::ZooMm(const std::string& name) : family(name), folder(SharedData("zoo-mm") + "/" + name) {
  reference = ReadSafetensors(folder + "/reference.safetensors");
  Result<std::string> text =
      platform::SystemFiles().Read(folder + "/reference.json", uint64_t{1} << 24);
  if (!text.ok()) return;
  auto document = json::Document::Parse(*text, "reference.json");
  if (document.ok()) description = std::move(document).value();
}

const std::vector<float>& ZooMm::Values(const std::string& key) const {
  static const std::vector<float> kNone;
  const auto found = reference.find(key);
  return found == reference.end() ? kNone : found->second.values;
}

json::Value ZooMm::CaseOf(const std::string& name) const {
  const json::Value cases = description->root().Find("cases");
  for (json::Value c = cases.First(); c.exists(); c = cases.Next(c)) {
    std::string_view found;
    if (c.Find("name").GetString(&found) && found == name) return c;
  }
  return {};
}

std::vector<int32_t> ZooMm::Ints(json::Value list) {
  std::vector<int32_t> values;
  for (json::Value v = list.First(); v.exists(); v = list.Next(v)) {
    int64_t value = 0;
    v.GetInt64(&value);
    values.push_back(static_cast<int32_t>(value));
  }
  return values;
}

// Grids of a case: [rows, cols] pairs, or [1, rows, cols] for Qwen.
std::vector<TowerInput::Grid> ZooMm::Grids(const std::string& name,
                                           const std::vector<int64_t>& shape, int32_t patch) const {
  std::vector<TowerInput::Grid> grids;
  const char* const key = family == "lfm2_vl"   ? "spatial_shapes"
                          : family == "qwen3_5" ? "image_grid_thw"
                                                : "patch_grid";
  const json::Value list = CaseOf(name).Find(key);
  for (json::Value g = list.First(); g.exists(); g = list.Next(g)) {
    const size_t first = family == "qwen3_5" ? 1 : 0;
    int64_t rows = 0, cols = 0;
    g.At(first).GetInt64(&rows);
    g.At(first + 1).GetInt64(&cols);
    grids.push_back({static_cast<int32_t>(rows), static_cast<int32_t>(cols)});
  }
  if (grids.empty()) {
    const int32_t side = static_cast<int32_t>(shape.back()) / patch;
    grids.assign(static_cast<size_t>(shape[0]), {side, side});
  }
  return grids;
}

std::vector<ZooMmCase> ZooMm::Pictures() const {
  std::vector<ZooMmCase> cases;
  std::string_view backend;
  description->root().Find("default_backend").GetString(&backend);
  const std::string suffix = backend == "pil" ? "pil" : "tv";
  const std::vector<float>& lut = Values("lut_" + suffix);
  for (const char* const name : {"square", "wide", "large"}) {
    const auto found = reference.find(std::string(name) + "/pixel_" + suffix);
    if (found == reference.end() || lut.size() != 256) continue;
    ZooMmCase c;
    c.name = name;
    c.input.kind = MediaKind::kPicture;
    c.input.shape = found->second.shape;
    if (c.input.shape.size() == 5) c.input.shape.erase(c.input.shape.begin());
    for (const uint8_t code : found->second.bytes) c.input.storage.push_back(lut[code]);
    c.input.grids = Grids(name, c.input.shape, 8);
    c.after = Values(c.name + "/after");
    c.before = Values(c.name + "/before");
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<ZooMmCase> ZooMm::Clips(const std::string& name) const {
  std::vector<ZooMmCase> cases;
  const CheckpointTensor& features = reference.at(name + "/input_features");
  const CheckpointTensor& mask = reference.at(name + "/input_features_mask");
  const CheckpointTensor& mask_out = reference.at(name + "/audio_mask_out");
  const std::vector<float>& after = Values(name + "/audio_after");
  const std::vector<float>& before = Values(name + "/audio_before");
  const size_t clips = static_cast<size_t>(features.shape[0]);
  const size_t frames = static_cast<size_t>(features.shape[1]);
  const size_t bins = static_cast<size_t>(features.shape[2]);
  const size_t out = static_cast<size_t>(mask_out.shape[1]);
  size_t rows_in_all = 0;
  for (const uint8_t valid : mask_out.bytes) rows_in_all += valid;
  const size_t after_cols = after.size() / rows_in_all;
  const size_t before_cols = before.size() / rows_in_all;
  size_t row = 0;
  for (size_t i = 0; i < clips; ++i) {
    ZooMmCase c;
    c.name = name + " " + std::to_string(i);
    c.input.kind = MediaKind::kSound;
    c.input.shape = {features.shape[1], features.shape[2]};
    const auto values = features.values.begin() + static_cast<int64_t>(i * frames * bins);
    c.input.storage.assign(values, values + static_cast<int64_t>(frames * bins));
    const auto valid = mask.bytes.begin() + static_cast<int64_t>(i * frames);
    c.input.frame_valid.assign(valid, valid + static_cast<int64_t>(frames));
    size_t rows = 0;
    for (size_t t = 0; t < out; ++t) rows += mask_out.bytes[i * out + t];
    const auto part = [&](const std::vector<float>& all, size_t cols) {
      const auto begin = all.begin() + static_cast<int64_t>(row * cols);
      return std::vector<float>(begin, begin + static_cast<int64_t>(rows * cols));
    };
    c.after = part(after, after_cols);
    c.before = part(before, before_cols);
    row += rows;
    cases.push_back(std::move(c));
  }
  return cases;
}

void QuantiseTower(format::ModelFile* file, int bits) {
  std::vector<format::Tensor> scales;
  for (format::Tensor& tensor : file->tensors) {
    const bool tower = tensor.name.find("vis") != std::string::npos ||
                       tensor.name.find("audio") != std::string::npos ||
                       tensor.name.find("projec") != std::string::npos;
    const bool table = tensor.name.find("pos") != std::string::npos &&
                       tensor.name.find("post") == std::string::npos;
    if (!tower || table || tensor.shape.size() != 2 || !tensor.name.ends_with(".weight")) continue;
    const int32_t rows = static_cast<int32_t>(tensor.shape[0]);
    const int32_t cols = static_cast<int32_t>(tensor.shape[1]);
    const size_t row_bytes = static_cast<size_t>(bits == 8 ? cols : (cols + 1) / 2);
    auto codes = std::make_unique<std::vector<uint8_t>>(static_cast<size_t>(rows) * row_bytes);
    auto halves = std::make_unique<std::vector<uint8_t>>(static_cast<size_t>(rows) * 2);
    std::vector<float> row(static_cast<size_t>(cols));
    Matrix matrix;
    matrix.format = tensor.format;
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.data = tensor.data;
    for (int32_t r = 0; r < rows; ++r) {
      DecodeRow(matrix, r, row.data());
      uint16_t scale = 0;
      uint8_t* const to = codes->data() + static_cast<size_t>(r) * row_bytes;
      if (bits == 8) {
        EncodeV1I8Row(row.data(), cols, to, &scale);
      } else {
        EncodeV1I4Row(row.data(), cols, 0, to, &scale);
      }
      StoreLe<uint16_t>(halves->data() + 2 * r, scale);
    }
    tensor.format = bits == 8 ? Format::kI8V1 : Format::kI4V1;
    tensor.data = *codes;
    format::Tensor scale;
    scale.name = tensor.name + ".qscale";
    scale.format = Format::kF16;
    scale.shape = {rows};
    scale.data = *halves;
    scales.push_back(std::move(scale));
    file->owned_bytes.push_back(std::move(codes));
    file->owned_bytes.push_back(std::move(halves));
  }
  file->tensors.insert(file->tensors.end(), scales.begin(), scales.end());
  std::sort(file->tensors.begin(), file->tensors.end(),
            [](const format::Tensor& a, const format::Tensor& b) { return a.name < b.name; });
}

}  // namespace cellm::testing
