#include "model/binder.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace cellm {

std::string Binder::Complete(const std::string& name) const {
  return !name.empty() && name[0] == '/' ? name.substr(1) : prefix_ + name;
}

void Binder::FindPrefix(std::string_view probe) {
  constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.",
                                            "language_model.model.", "model.text_model.", ""};
  FindPrefix(kPrefixes, probe);
}

void Binder::FindPrefix(std::span<const std::string_view> prefixes, std::string_view probe) {
  for (const std::string_view prefix : prefixes) {
    const std::string name = std::string(prefix) + std::string(probe);
    if (context_.file.Find(name) != nullptr || format::HasMatrix(context_.file, name)) {
      prefix_ = prefix;
      return;
    }
  }
  Fail(NotFound("tensor \"%s%s\": not in the file, nor under another known prefix",
                std::string(prefixes.front()).c_str(), std::string(probe).c_str()));
}

bool Binder::Has(const std::string& name) const {
  const std::string full = Complete(name);
  return context_.file.Find(full) != nullptr || format::HasMatrix(context_.file, full);
}

Weight Binder::Bind(const std::string& name, int32_t rows, int32_t cols, int32_t expert,
                    WeightUse use) {
  if (!status_.ok()) return {};
  Result<Matrix> matrix = format::FindMatrix(context_.file, Complete(name), rows, cols, expert);
  if (!matrix.ok()) {
    Fail(matrix.status());
    return {};
  }
  Result<Weight> weight = context_.backend.Prepare(*matrix, use, context_.allocator);
  if (!weight.ok()) {
    Fail(Status(weight.status()).WithContext("tensor \"" + Complete(name) + "\""));
    return {};
  }
  if (!weight->owned.empty()) {
    // Repacked: the file's bytes are needed no more, so let the kernel drop them.
    for (const platform::FileMapping& file : context_.file.files) {
      const uint8_t* const begin = file.bytes().data();
      const uint8_t* const data = matrix->data.data();
      if (data < begin || data >= begin + file.bytes().size()) continue;
      file.Release(static_cast<uint64_t>(data - begin), matrix->data.size());
    }
  }
  Status held = context_.holder.Take(use == WeightUse::kLookup, &*weight);
  if (!held.ok()) {
    Fail(std::move(held).WithContext("tensor \"" + Complete(name) + "\""));
    return {};
  }
  parameters_ += int64_t{rows} * cols;
  bytes_ += weight->bytes();
  return std::move(weight).value();
}

Weight Binder::Linear(const std::string& name, int32_t rows, int32_t cols) {
  return Bind(name, rows, cols, -1, WeightUse::kLinear);
}
Weight Binder::Lookup(const std::string& name, int32_t rows, int32_t cols) {
  return Bind(name, rows, cols, -1, WeightUse::kLookup);
}
Weight Binder::Transposed(const std::string& name, int32_t rows, int32_t cols) {
  if (!status_.ok()) return {};
  const std::string full = Complete(name);
  const format::Tensor* const tensor = format::FindByRole(context_.file, full);
  if (tensor == nullptr) {
    Fail(NotFound("tensor \"%s\": not in the file", full.c_str()));
    return {};
  }
  if (tensor->shape.size() != 2 || tensor->shape[0] != cols || tensor->shape[1] != rows ||
      !IsDenseFloat(tensor->format)) {
    Fail(Corrupt("tensor \"%s\": expected floats of shape [%d, %d]", full.c_str(), cols, rows));
    return {};
  }
  const size_t item = tensor->format == Format::kF32 ? 4 : 2;
  const size_t height = static_cast<size_t>(rows);
  const size_t width = static_cast<size_t>(cols);
  Result<Array<uint8_t>> turned = Array<uint8_t>::Uninitialised(
      context_.allocator, height * width * item, MemoryClass::kWeights, "turned weights");
  if (!turned.ok()) {
    Fail(Status(turned.status()).WithContext("tensor \"" + full + "\""));
    return {};
  }
  for (size_t r = 0; r < height; ++r) {
    for (size_t c = 0; c < width; ++c) {
      std::memcpy(turned->data() + (r * width + c) * item,
                  tensor->data.data() + (c * height + r) * item, item);
    }
  }
  Weight weight;
  weight.kind = WeightKind::kDense;
  weight.rows = rows;
  weight.cols = cols;
  weight.dense_format = tensor->format;
  weight.dense = turned->data();
  weight.source.data = tensor->data;  // which tensor it is of
  weight.owned = std::move(turned).value();
  Status held = context_.holder.Take(false, &weight);
  if (!held.ok()) Fail(std::move(held).WithContext("tensor \"" + full + "\""));
  parameters_ += int64_t{rows} * cols;
  bytes_ += weight.bytes();
  return weight;
}
Weight Binder::Expert(const std::string& name, int32_t expert, int32_t rows, int32_t cols) {
  return Bind(name, rows, cols, expert, WeightUse::kLinear);
}

Vector Binder::Floats(const std::string& name, int64_t count) {
  if (!status_.ok()) return {};
  Result<std::vector<float>> values = format::FindVector(context_.file, Complete(name), count);
  if (!values.ok()) {
    Fail(values.status());
    return {};
  }
  Result<Vector> vector = Vector::Zeroed(context_.allocator, static_cast<size_t>(count),
                                         MemoryClass::kWeights, "vector");
  if (!vector.ok()) {
    Fail(Status(vector.status()).WithContext("tensor \"" + Complete(name) + "\""));
    return {};
  }
  std::copy(values->begin(), values->end(), vector->begin());
  parameters_ += count;
  bytes_ += static_cast<uint64_t>(count) * sizeof(float);
  return std::move(vector).value();
}

Vector Binder::OptionalFloats(const std::string& name, int64_t count) {
  return context_.file.Find(Complete(name)) != nullptr ? Floats(name, count) : Vector();
}

Vector Binder::Bias(const std::string& name, int64_t count, bool present) {
  return present ? Floats(name + ".bias", count) : Vector();
}

Weight Binder::Head(bool tied, int32_t vocab, int32_t hidden) {
  if (tied) return {};
  for (const char* const name : {"/lm_head", "/language_model.lm_head", "/model.lm_head"}) {
    if (Has(name)) return Linear(name, vocab, hidden);
  }
  return {};
}

void Binder::Finish(Model* model) const {
  model->info.parameter_count = parameters_;
  model->info.weight_bytes = bytes_;
}

}  // namespace cellm
