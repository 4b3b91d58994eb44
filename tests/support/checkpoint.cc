#include "support/checkpoint.h"

#include <cstring>

#include "base/bytes.h"
#include "json/json.h"
#include "platform/file.h"
#include "tensor/half.h"

namespace cellm::testing {
namespace {

std::vector<float> ToFloats(const std::string& dtype, const std::vector<uint8_t>& bytes) {
  std::vector<float> values;
  if (dtype == "F32") {
    values.resize(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), values.size() * 4);
  } else if (dtype == "F16" || dtype == "BF16") {
    for (size_t at = 0; at + 2 <= bytes.size(); at += 2) {
      const uint16_t half = LoadLe16(bytes.data() + at);
      values.push_back(dtype == "F16" ? F16ToFloat(half) : Bf16ToFloat(half));
    }
  } else if (dtype == "U8") {
    for (const uint8_t byte : bytes) values.push_back(static_cast<float>(byte));
  } else if (dtype == "I8") {
    for (const uint8_t byte : bytes)
      values.push_back(static_cast<float>(static_cast<int8_t>(byte)));
  }
  return values;
}

}  // namespace

std::map<std::string, CheckpointTensor> ReadSafetensors(const std::string& path) {
  std::map<std::string, CheckpointTensor> tensors;
  Result<std::string> text = platform::SystemFiles().Read(path, uint64_t{1} << 30);
  if (!text.ok() || text->size() < 8) return tensors;
  const uint64_t header = LoadLe64(text->data());
  if (header > text->size() - 8) return tensors;
  auto document = json::Document::Parse(std::string_view(*text).substr(8, header), path);
  if (!document.ok()) return tensors;
  const json::Value root = (*document)->root();
  for (json::Value v = root.First(); v.exists(); v = root.Next(v)) {
    if (root.KeyOf(v) == "__metadata__") continue;
    CheckpointTensor tensor;
    std::string_view dtype;
    if (!v.Find("dtype").GetString(&dtype)) return {};
    tensor.dtype = dtype;
    const json::Value shape = v.Find("shape");
    for (json::Value d = shape.First(); d.exists(); d = shape.Next(d)) {
      int64_t dim = 0;
      if (!d.GetInt64(&dim)) return {};
      tensor.shape.push_back(dim);
    }
    uint64_t begin = 0;
    uint64_t end = 0;
    if (!v.Find("data_offsets").At(0).GetUint64(&begin) ||
        !v.Find("data_offsets").At(1).GetUint64(&end) || begin > end ||
        end > text->size() - 8 - header) {
      return {};
    }
    const char* data = text->data() + 8 + header;
    tensor.bytes.assign(data + begin, data + end);
    tensor.values = ToFloats(tensor.dtype, tensor.bytes);
    tensors.emplace(std::string(root.KeyOf(v)), std::move(tensor));
  }
  return tensors;
}

std::map<std::string, CheckpointTensor> ReadCheckpoint(const std::string& folder) {
  std::map<std::string, CheckpointTensor> tensors;
  Result<std::vector<std::string>> names = platform::SystemFiles().List(folder);
  if (!names.ok()) return tensors;
  for (const std::string& name : *names) {
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    tensors.merge(ReadSafetensors(platform::JoinPath(folder, name)));
  }
  return tensors;
}

}  // namespace cellm::testing
