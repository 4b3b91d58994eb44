#include "model_exercise.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "format/convert.h"
#include "format/gguf_metadata.h"
#include "format/model_file.h"
#include "support/heap_bound.h"
#include "support/memory_files.h"

namespace cellm::fuzz {
namespace {

using format::ModelFile;
using format::Tensor;

// Shapes without bytes behind them could ask for any memory: nothing here may be larger than this.
constexpr int64_t kMostColumns = 1 << 20;

void ExerciseTensor(const ModelFile& file, const Tensor& tensor) {
  CELLM_CHECK(file.Find(tensor.name) == &tensor, "a tensor is not found by its name");
  const size_t rank = tensor.shape.size();
  int64_t count = 1;
  for (const int64_t dimension : tensor.shape) {
    count =
        dimension > 0 && count > kMostColumns / dimension ? kMostColumns + 1 : count * dimension;
  }
  auto vector = FindVector(file, tensor.name, count);
  CELLM_CHECK(!vector.ok() || static_cast<int64_t>(vector->size()) == count, "a vector's length");
  if (rank < 2 || tensor.shape[rank - 2] > kMostColumns || tensor.shape[rank - 1] > kMostColumns) {
    return;
  }
  std::string base = tensor.name;
  if (base.ends_with(".weight")) base.resize(base.size() - 7);
  const int32_t rows = static_cast<int32_t>(tensor.shape[rank - 2]);
  // Packed words: the columns that 2, 3, 4 and 8 bits would give, besides the stated ones.
  for (const int32_t factor : {1, 16, 10, 8, 4}) {
    const int64_t cols = tensor.shape[rank - 1] * factor;
    if (cols > kMostColumns) continue;
    auto matrix = FindMatrix(file, base, rows, static_cast<int32_t>(cols), rank == 3 ? 0 : -1);
    if (!matrix.ok()) continue;
    std::vector<float> row(static_cast<size_t>(cols));
    DecodeRow(*matrix, 0, row.data());
    DecodeRow(*matrix, rows - 1, row.data());
    auto layout = LosslessPackedLayout(*matrix);
    if (!layout.ok()) continue;
    std::vector<uint8_t> codes(static_cast<size_t>(cols));
    std::vector<float> scales(static_cast<size_t>(layout->groups()));
    std::vector<float> mins(scales.size());
    DecodeRowCodes(*matrix, rows - 1, codes.data(), scales.data(), mins.data());
  }
}

// What opens also converts, or says why not; what was converted opens and verifies.
void ExerciseConversion(testing::MemoryFiles& files, const ModelFile& file) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : file.tensors) {
    bytes += tensor.data.size();
    for (const int64_t dimension : tensor.shape) {
      if (dimension > 4096) return;  // padding may make a small tensor large
    }
  }
  if (bytes > (1 << 16)) return;
  for (const format::ConvertOptions& options :
       {format::ConvertOptions{}, format::Int4Options(32)}) {
    auto out = files.Create("converted");
    CELLM_CHECK(out.ok(), "a memory file cannot be made");
    if (!ConvertModel(file, options, out->get()).ok()) continue;
    auto again = format::OpenModelFile(files, "converted");
    CELLM_CHECK(again.ok(), again.status().message().c_str());
    const Status verified = VerifyChecksums(**again);
    CELLM_CHECK(verified.ok(), verified.message().c_str());
  }
}

}  // namespace

void ExerciseModel(std::span<const uint8_t> bytes, const std::string& path,
                   const std::string& config) {
  testing::MemoryFiles files;
  files.poison_tails = true;
  files.files[path].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!config.empty()) files.files["config.json"] = config;
  const auto open = [&] {
    // The mapping is the tests' own copy of the file.
    const HeapBound bound(4 * (bytes.size() + config.size()));
    return format::OpenModelFile(files, path);
  };
  auto opened = open();
  if (!opened.ok()) {
    const std::string& message = opened.status().message();
    CELLM_CHECK(!message.empty() && message.find('\n') == std::string::npos,
                "an error is one line");
    return;
  }
  const ModelFile& file = **opened;
  CELLM_CHECK(file.config != nullptr, "a model without a configuration");
  for (const Tensor& tensor : file.tensors) ExerciseTensor(file, tensor);
  (void)VerifyChecksums(file).ok();
  (void)format::ReadGgufTokenizer(file.tokenizer_gguf, path).ok();
  ExerciseConversion(files, file);
}

}  // namespace cellm::fuzz
