#include "support/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu_backend.h"
#include "tensor/half.h"
#include "tensor/quantize.h"

namespace cellm::testing {
namespace {

template <typename T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

const char* TinyFormatName(TinyFormat format) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "i8v1", "i4v1", "packed i8", "packed i4"};
  return kNames[static_cast<size_t>(format)];
}

std::vector<float> ModelFileBuilder::Random(int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = (rng_.NextFloat() * 2.0f - 1.0f) * scale;
  return values;
}

void ModelFileBuilder::Add(const std::string& name, Format format, std::vector<int64_t> shape,
                           std::vector<uint8_t> bytes, const PackedLayout& packed) {
  file_->owned_bytes.push_back(std::make_unique<std::vector<uint8_t>>(std::move(bytes)));
  format::Tensor tensor;
  tensor.name = name;
  tensor.format = format;
  tensor.shape = std::move(shape);
  tensor.data = *file_->owned_bytes.back();
  tensor.packed = packed;
  file_->tensors.push_back(std::move(tensor));
}

void ModelFileBuilder::AddMatrix(const std::string& name, int32_t rows, int32_t cols,
                                 TinyFormat format, const std::vector<float>& values) {
  const std::string weight = name + ".weight";
  const std::vector<int64_t> shape = {rows, cols};
  std::vector<uint16_t> halves;
  std::vector<uint8_t> codes;
  switch (format) {
    case TinyFormat::kF32:
      Add(weight, Format::kF32, shape, BytesOf(values));
      return;
    case TinyFormat::kF16:
      for (const float value : values) halves.push_back(FloatToF16(value));
      Add(weight, Format::kF16, shape, BytesOf(halves));
      return;
    case TinyFormat::kBF16:
      for (const float value : values) halves.push_back(FloatToBf16(value));
      Add(weight, Format::kBF16, shape, BytesOf(halves));
      return;
    case TinyFormat::kI8V1: {
      codes.resize(values.size());
      halves.resize(static_cast<size_t>(rows));
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        const size_t at = r * static_cast<size_t>(cols);
        EncodeV1I8Row(values.data() + at, cols, codes.data() + at, &halves[r]);
      }
      Add(weight, Format::kI8V1, shape, codes);
      Add(weight + ".qscale", Format::kF16, {rows}, BytesOf(halves));
      return;
    }
    case TinyFormat::kI4V1: {
      const size_t row_bytes = static_cast<size_t>(cols + 1) / 2;
      const size_t groups = static_cast<size_t>((cols + 31) / 32);
      codes.resize(static_cast<size_t>(rows) * row_bytes);
      halves.resize(static_cast<size_t>(rows) * groups);
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        EncodeV1I4Row(values.data() + r * static_cast<size_t>(cols), cols, 32,
                      codes.data() + r * row_bytes, halves.data() + r * groups);
      }
      Add(weight, Format::kI4V1, shape, codes);
      Add(weight + ".qscale", Format::kF16, {rows, static_cast<int64_t>(groups)}, BytesOf(halves));
      return;
    }
    case TinyFormat::kPackedI8:
    case TinyFormat::kPackedI4: {
      PackedLayout layout;
      layout.rows = rows;
      layout.cols = cols;
      layout.bits = format == TinyFormat::kPackedI8 ? 8 : 4;
      layout.group = format == TinyFormat::kPackedI8 ? 0 : 32;
      layout.zero2 = 1 << layout.bits;
      std::vector<uint8_t> packed(layout.total_bytes());
      std::vector<float> scales(static_cast<size_t>(layout.groups()));
      codes.resize(static_cast<size_t>(cols));
      for (int32_t r = 0; r < rows; ++r) {
        QuantizeRow(layout, values.data() + int64_t{r} * cols, nullptr, codes.data(),
                    scales.data());
        PackRow(layout, r, codes.data(), scales.data(), nullptr, packed.data());
      }
      Add(weight, Format::kPacked, shape, std::move(packed), layout);
      return;
    }
  }
}

void ModelFileBuilder::AddMatrix(const std::string& name, int32_t rows, int32_t cols,
                                 TinyFormat format) {
  AddMatrix(name, rows, cols, format, Random(int64_t{rows} * cols, 0.25f));
}

void ModelFileBuilder::AddVector(const std::string& name, const std::vector<float>& values) {
  AddFloats(name, {static_cast<int64_t>(values.size())}, values);
}

void ModelFileBuilder::AddFloats(const std::string& name, const std::vector<int64_t>& shape,
                                 const std::vector<float>& values) {
  Add(name, Format::kF32, shape, BytesOf(values));
}

std::unique_ptr<format::ModelFile> ModelFileBuilder::Build(const std::string& config_json) {
  file_->path = "tiny";
  file_->container = "safetensors";
  std::sort(file_->tensors.begin(), file_->tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  auto config = json::Document::Parse(config_json, "config");
  EXPECT_TRUE(config.ok()) << config.status().message();
  if (config.ok()) file_->config = std::move(config).value();
  return std::move(file_);
}

std::unique_ptr<format::ModelFile> TinyLlamaFile(const TinyLlama& spec) {
  ModelFileBuilder builder(spec.seed);
  const int32_t q = spec.heads * spec.head_dim;
  const int32_t kv = spec.kv_heads * spec.head_dim;
  builder.AddMatrix("model.embed_tokens", spec.vocab, spec.hidden, spec.format);
  if (!spec.tied) builder.AddMatrix("lm_head", spec.vocab, spec.hidden, spec.format);
  std::vector<float> norm = builder.Random(spec.hidden, 0.3f);
  for (float& value : norm) value += 1.0f;
  builder.AddVector("model.norm.weight", norm);
  for (int32_t l = 0; l < spec.layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    builder.AddVector(at + "input_layernorm.weight", norm);
    builder.AddVector(at + "post_attention_layernorm.weight", norm);
    const struct {
      const char* name;
      int32_t rows, cols;
    } matrices[] = {
        {"self_attn.q_proj", q, spec.hidden},       {"self_attn.k_proj", kv, spec.hidden},
        {"self_attn.v_proj", kv, spec.hidden},      {"self_attn.o_proj", spec.hidden, q},
        {"mlp.gate_proj", spec.inner, spec.hidden}, {"mlp.up_proj", spec.inner, spec.hidden},
        {"mlp.down_proj", spec.hidden, spec.inner},
    };
    for (const auto& m : matrices) {
      builder.AddMatrix(at + m.name, m.rows, m.cols, spec.format);
      if (spec.biases) builder.AddVector(at + m.name + ".bias", builder.Random(m.rows, 0.2f));
    }
  }
  std::string config = "{";
  const auto number = [&config](const char* key, int32_t value) {
    config += std::string("\"") + key + "\": " + std::to_string(value) + ", ";
  };
  number("vocab_size", spec.vocab);
  number("hidden_size", spec.hidden);
  number("intermediate_size", spec.inner);
  number("num_hidden_layers", spec.layers);
  number("num_attention_heads", spec.heads);
  number("num_key_value_heads", spec.kv_heads);
  number("head_dim", spec.head_dim);
  number("max_position_embeddings", spec.max_context);
  if (spec.window > 0) number("sliding_window", spec.window);
  if (spec.biases) config += "\"attention_bias\": true, \"mlp_bias\": true, ";
  config += spec.tied ? "\"tie_word_embeddings\": true, " : "\"tie_word_embeddings\": false, ";
  config += "\"eos_token_id\": 2, \"model_type\": ";
  config += spec.window > 0 ? "\"mistral\"" : "\"llama\"";
  return builder.Build(config + spec.extra_config + "}");
}

Result<std::shared_ptr<const Model>> TryLoadTiny(std::unique_ptr<format::ModelFile> file,
                                                 Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(const kernels::ChosenKernels kernels, kernels::ChooseKernels(""));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::ThreadPool> pool,
                         platform::ThreadPool::Create(1));
  CpuBackend backend(kernels.table, *pool, ActivationMode::kInt8);
  return LoadModel(std::move(file), backend, allocator, LogSink());
}

std::shared_ptr<const Model> LoadTiny(std::unique_ptr<format::ModelFile> file,
                                      Allocator& allocator) {
  auto model = TryLoadTiny(std::move(file), allocator);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(model).value() : nullptr;
}

std::vector<int32_t> RandomTokens(int32_t count, int32_t vocab, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(vocab))));
  }
  return tokens;
}

void* FailingAllocator::Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) {
  if (fail_at_ > 0 && allocations_ + 1 >= fail_at_) {
    failed_ = true;
    return nullptr;
  }
  ++allocations_;
  void* const memory = SystemAllocator().Allocate(bytes, alignment, memory_class);
  if (memory != nullptr) live_bytes_ += static_cast<int64_t>(bytes);
  return memory;
}

void FailingAllocator::Free(void* pointer, size_t bytes, MemoryClass memory_class) {
  if (pointer != nullptr) live_bytes_ -= static_cast<int64_t>(bytes);
  SystemAllocator().Free(pointer, bytes, memory_class);
}

}  // namespace cellm::testing
