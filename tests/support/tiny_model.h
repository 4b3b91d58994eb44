#ifndef CELLM_TESTS_SUPPORT_TINY_MODEL_H_
#define CELLM_TESTS_SUPPORT_TINY_MODEL_H_

// Small models with random weights, built in memory: for tests of schedules, budgets and errors.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/allocator.h"
#include "base/rng.h"
#include "format/model_file.h"
#include "model/model.h"
#include "tensor/packed.h"

namespace cellm::testing {

enum class TinyFormat { kF32, kF16, kBF16, kI8V1, kI4V1, kPackedI8, kPackedI4 };
inline constexpr TinyFormat kAllTinyFormats[] = {
    TinyFormat::kF32,  TinyFormat::kF16,      TinyFormat::kBF16,    TinyFormat::kI8V1,
    TinyFormat::kI4V1, TinyFormat::kPackedI8, TinyFormat::kPackedI4};
const char* TinyFormatName(TinyFormat format);

// A model file in the making. Values are uniform in [-scale, scale], or given.
class ModelFileBuilder {
 public:
  explicit ModelFileBuilder(uint64_t seed) : rng_(seed) {}

  std::vector<float> Random(int64_t count, float scale);
  // A matrix "<name>.weight" in `format`; a vector under its full name, as f32.
  void AddMatrix(const std::string& name, int32_t rows, int32_t cols, TinyFormat format,
                 const std::vector<float>& values);
  void AddMatrix(const std::string& name, int32_t rows, int32_t cols, TinyFormat format);
  void AddVector(const std::string& name, const std::vector<float>& values);
  // A tensor of any shape under its full name, as f32.
  void AddFloats(const std::string& name, const std::vector<int64_t>& shape,
                 const std::vector<float>& values);

  std::unique_ptr<format::ModelFile> Build(const std::string& config_json);

 private:
  void Add(const std::string& name, Format format, std::vector<int64_t> shape,
           std::vector<uint8_t> bytes, const PackedLayout& packed = {});
  Rng rng_;
  std::unique_ptr<format::ModelFile> file_ = std::make_unique<format::ModelFile>();
};

struct TinyLlama {
  TinyFormat format = TinyFormat::kF32;
  int32_t vocab = 96, hidden = 64, inner = 96, layers = 2, heads = 4, kv_heads = 2, head_dim = 16;
  int32_t max_context = 512;
  int32_t window = 0;  // > 0: model_type "mistral" with that window
  bool tied = false;
  bool biases = false;
  uint64_t seed = 1;
  std::string extra_config;  // e.g. ", \"hidden_act\": \"gelu\""
};
std::unique_ptr<format::ModelFile> TinyLlamaFile(const TinyLlama& spec);

// Loads with scalar-or-best kernels on one thread. Fails the test (null) on error.
std::shared_ptr<const Model> LoadTiny(std::unique_ptr<format::ModelFile> file,
                                      Allocator& allocator = SystemAllocator());
Result<std::shared_ptr<const Model>> TryLoadTiny(std::unique_ptr<format::ModelFile> file,
                                                 Allocator& allocator = SystemAllocator());

// `count` token ids below `vocab`.
std::vector<int32_t> RandomTokens(int32_t count, int32_t vocab, uint64_t seed);

// Refuses the n-th allocation (1 is the first) and all later ones; counts all.
class FailingAllocator final : public Allocator {
 public:
  explicit FailingAllocator(int64_t fail_at = 0) : fail_at_(fail_at) {}
  void* Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) override;
  void Free(void* pointer, size_t bytes, MemoryClass memory_class) override;
  int64_t allocations() const { return allocations_; }
  int64_t live_bytes() const { return live_bytes_; }
  bool failed() const { return failed_; }
  void set_fail_at(int64_t fail_at) { fail_at_ = fail_at; }

 private:
  int64_t fail_at_;
  int64_t allocations_ = 0;
  int64_t live_bytes_ = 0;
  bool failed_ = false;
};

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_TINY_MODEL_H_
