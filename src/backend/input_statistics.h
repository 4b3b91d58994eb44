#ifndef CELLM_SRC_BACKEND_INPUT_STATISTICS_H_
#define CELLM_SRC_BACKEND_INPUT_STATISTICS_H_

// The second moments of the inputs of every matrix of a model: sums of x x^T over all rows that it
// was multiplied with. Quantising weighs errors by them (tensor/error_feedback.h).
//
// Matrices that share an input (q, k and v) share one sum. A matrix is told by where its bytes lie
// in the model file, so nothing else of the engine knows of calibration. When the sums of all pairs
// of columns would pass the limit on memory, later matrices get those of each column alone.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/linear_observer.h"
#include "base/allocator.h"
#include "base/status.h"
#include "format/model_file.h"
#include "kernels/kernel_table.h"
#include "platform/thread_pool.h"

namespace cellm {

class InputStatistics final : public LinearObserver {
 public:
  // Borrows all; the file is the one that the observed weights were bound from.
  InputStatistics(const format::ModelFile& file, const kernels::KernelTable& kernels,
                  platform::ThreadPool& pool, Allocator& allocator, uint64_t max_bytes);

  void Observe(Rows x, std::span<const uint8_t* const> sources) override;

  // What was seen, by tensor name and matrix.
  struct Entry {
    std::string_view tensor;  // name in the file
    int32_t matrix = -1;      // the expert of a fused tensor; -1: the tensor is one matrix
    int32_t cols = 0;
    uint64_t rows = 0;               // how many inputs
    std::span<const float> moments;  // [cols, cols], or [cols]: the diagonal alone
  };
  // Valid until the next Observe().
  std::vector<Entry> Entries() const;
  // OutOfMemory when a sum could not be had; what was collected before stays valid.
  const Status& status() const { return status_; }

 private:
  struct Sum {
    int32_t cols = 0;
    bool diagonal = false;
    uint64_t rows = 0;
    Array<float> moments;
  };
  struct Source {  // of one matrix
    std::string_view tensor;
    int32_t matrix = -1;
    size_t sum = 0;
  };
  struct Extent {  // of a tensor's bytes
    const uint8_t *begin, *end;
    const format::Tensor* tensor;
  };
  const Source* Find(const uint8_t* source) const;
  Result<size_t> NewSum(int32_t cols);
  void Name(const uint8_t* source, size_t sum);
  Status Add(Sum* sum, Rows x);

  const kernels::KernelTable& kernels_;
  platform::ThreadPool& pool_;
  Allocator& allocator_;
  uint64_t bytes_left_;
  std::vector<Extent> extents_;               // by address
  std::map<const uint8_t*, Source> sources_;  // by where the matrix begins
  std::vector<std::unique_ptr<Sum>> sums_;
  Array<float> transposed_, products_;
  Status status_;
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_INPUT_STATISTICS_H_
