#ifndef CELLM_SRC_BACKEND_ROWS_H_
#define CELLM_SRC_BACKEND_ROWS_H_

// Activations of one step, and the arena they are carved from.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"

namespace cellm {

// A view of activations: row r is data[r * stride .. r * stride + cols). Always float. A row is
// usually one token of the step; per-head operations see [rows * heads, head_dim] of the same
// bytes.
struct Rows {
  float* data = nullptr;
  int32_t rows = 0;
  int32_t cols = 0;
  int64_t stride = 0;  // floats from one row to the next, >= cols

  float* row(int32_t r) const { return data + r * stride; }
  // Columns [begin, begin + count) of every row.
  Rows Cols(int32_t begin, int32_t count) const {
    return {data == nullptr ? nullptr : data + begin, rows, count, stride};
  }
  // Rows [begin, begin + count).
  Rows Some(int32_t begin, int32_t count) const {
    return {data == nullptr ? nullptr : data + begin * stride, count, cols, stride};
  }
  // The first rows * count floats as dense rows: a narrower use of the same bytes. Requires count
  // <= stride.
  Rows Front(int32_t count) const { return {data, rows, count, count}; }
  // [rows, cols] as [rows / parts, cols * parts]: `parts` neighbours become one row.
  Rows Joined(int32_t parts) const {
    CELLM_DCHECK(stride == cols && rows % parts == 0, "joining rows with gaps");
    return {data, rows / parts, cols * parts, cols * parts};
  }
  // [rows, cols] as [rows * heads, cols / heads]. Requires stride == cols and heads | cols.
  Rows Heads(int32_t heads) const {
    CELLM_DCHECK(stride == cols && cols % heads == 0, "per-head view of rows with gaps");
    return {data, rows * heads, cols / heads, cols / heads};
  }
};

// A bump allocator over one block that the engine sized beforehand. A forward pass takes its
// buffers at the top and gives none back; the engine resets the arena before each step. In
// measuring mode there is no block: pointers are null and only the size is counted.
class Arena {
 public:
  Arena() = default;  // measuring
  Arena(std::byte* block, size_t bytes) : block_(block), capacity_(bytes) {}

  Rows TakeRows(int32_t rows, int32_t cols) {
    const size_t count = static_cast<size_t>(rows) * static_cast<size_t>(cols);
    return {static_cast<float*>(Take(count * sizeof(float))), rows, cols, cols};
  }
  int32_t* TakeInts(int64_t count) { return TakeArray<int32_t>(count); }
  // `count` uninitialised values of a trivial type.
  template <typename T>
  T* TakeArray(int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    return static_cast<T*>(Take(static_cast<size_t>(count) * sizeof(T)));
  }
  void Reset() { used_ = 0; }
  bool measuring() const { return block_ == nullptr; }
  size_t used_bytes() const { return used_; }

 private:
  void* Take(size_t bytes) {
    const size_t offset = used_;
    used_ += (bytes + 63u) / 64u * 64u;
    if (block_ == nullptr) return nullptr;
    CELLM_CHECK(used_ <= capacity_, "a forward pass took more than it took when measured");
    return block_ + offset;
  }
  std::byte* block_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_ROWS_H_
