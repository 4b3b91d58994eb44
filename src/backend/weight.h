#ifndef CELLM_SRC_BACKEND_WEIGHT_H_
#define CELLM_SRC_BACKEND_WEIGHT_H_

// A matrix made ready for the kernels.

#include <cstdint>

#include "base/allocator.h"
#include "kernels/kernel_types.h"
#include "platform/file.h"
#include "tensor/matrix.h"

namespace cellm {

enum class WeightKind : uint8_t {
  kNone,    // absent
  kDense,   // f32, f16 or bf16 rows, usually where the file has them
  kPacked,  // tiles in kernel layout, where the file has them or packed at load
  kLookup,  // rows decoded one by one from the stored form; only Embed() takes these
};

// [rows = outputs, cols = inputs]. Borrows from the ModelFile unless `owned` holds the bytes. May
// be read by any number of threads and by every CpuBackend, whoever prepared it.
struct Weight {
  WeightKind kind = WeightKind::kNone;
  int32_t rows = 0;
  int32_t cols = 0;
  Format dense_format = Format::kF32;  // kDense
  const uint8_t* dense = nullptr;      // kDense: row-major, aligned to its element
  kernels::PackedTiles tiles{};        // kPacked
  Matrix source;  // kLookup; also what the others were made from (of a part: `data` of the whole)
  Array<uint8_t> owned;  // packed or loaded bytes, when they are not the file's
  // Set: the table's rows are read from this mapping as they are needed, and pages that were
  // touched are given back now and then. Must outlive the weight.
  const platform::FileMapping* on_flash = nullptr;

  bool exists() const { return kind != WeightKind::kNone; }
  // Bytes that one pass over the matrix reads.
  uint64_t bytes() const;
};

// Neighbouring rows [begin, begin + count) of `weight`, sharing its bytes (the result must not
// outlive it). Packed weights: InvalidArgument unless begin is a multiple of 16.
Result<Weight> RowsOf(const Weight& weight, int32_t begin, int32_t count);

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_WEIGHT_H_
