#ifndef CELLM_SRC_MODEL_BINDER_H_
#define CELLM_SRC_MODEL_BINDER_H_

// Binding tensor names to roles, with shapes checked.
//
// A Binder remembers the first error; calls after it return empty weights, so that a family binds a
// whole layer in straight lines and looks at status() once. It also counts parameters and bytes,
// and releases pages of the file whose contents were repacked.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/allocator.h"
#include "base/status.h"
#include "model/model.h"

namespace cellm {

// A small tensor in float: norm weights, biases. Null data() when absent.
using Vector = Array<float>;

class Binder {
 public:
  explicit Binder(const LoadContext& context) : context_(context) {}

  const Status& status() const { return status_; }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // Chooses where the text model's tensors live: the first prefix of "model.",
  // "model.language_model.", "language_model.model.", "model.text_model.", "" under which `probe`
  // exists. NotFound otherwise. Names given to the functions below are completed by it, unless they
  // start with '/', which stands for the root of the file ("/lm_head").
  void FindPrefix(std::string_view probe);
  // The same over prefixes of the caller's, in the order given.
  void FindPrefix(std::span<const std::string_view> prefixes, std::string_view probe);
  const std::string& prefix() const { return prefix_; }

  // The matrix [rows, cols] under `name` (without ".weight").
  Weight Linear(const std::string& name, int32_t rows, int32_t cols);
  // The same for a table that is only looked up by row.
  Weight Lookup(const std::string& name, int32_t rows, int32_t cols);
  // The matrix [rows, cols] whose floats are stored as [cols, rows] under the full tensor name;
  // they are turned round in memory.
  Weight Transposed(const std::string& name, int32_t rows, int32_t cols);
  // Expert `expert` of a fused [experts, rows, cols] tensor.
  Weight Expert(const std::string& name, int32_t expert, int32_t rows, int32_t cols);
  // A vector of `count` floats under the full tensor name ("norm.weight").
  Vector Floats(const std::string& name, int64_t count);
  // As Floats, but an empty Vector when the tensor is absent.
  Vector OptionalFloats(const std::string& name, int64_t count);
  // Floats(name + ".bias") when `present`, else empty.
  Vector Bias(const std::string& name, int64_t count, bool present);

  bool Has(const std::string& name) const;  // a matrix or tensor of this (completed) name
  // Output head: "/lm_head" when untied or when the file has no such key and a head exists; an
  // empty Weight means "use the embedding". See families for the tie rule.
  Weight Head(bool tied, int32_t vocab, int32_t hidden);

  // Elements and bytes of all that was bound.
  int64_t parameter_count() const { return parameters_; }
  uint64_t weight_bytes() const { return bytes_; }
  // Adds the counts to model->info.
  void Finish(Model* model) const;

 private:
  std::string Complete(const std::string& name) const;
  Weight Bind(const std::string& name, int32_t rows, int32_t cols, int32_t expert, WeightUse use);

  const LoadContext& context_;
  std::string prefix_;
  Status status_;
  int64_t parameters_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_BINDER_H_
