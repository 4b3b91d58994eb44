#ifndef CELLM_SRC_CONSTRAIN_BUFFER_H_
#define CELLM_SRC_CONSTRAIN_BUFFER_H_

// A growing array of a trivial type whose memory comes from an Allocator, so that what a request
// makes grow is counted in the budget and refused by it.

#include <algorithm>
#include <cstring>
#include <span>

#include "base/allocator.h"
#include "base/status.h"

namespace cellm::constrain {

template <typename T>
class Buffer {
 public:
  // `what` (a literal) is what messages call it.
  Buffer(Allocator& allocator, const char* what) : allocator_(&allocator), what_(what) {}

  // Room for `count` elements in all. OutOfMemory.
  Status Reserve(size_t count) {
    if (count <= array_.size()) return OkStatus();
    const size_t capacity = std::max<size_t>({count, array_.size() + array_.size() / 2, 64});
    CELLM_ASSIGN_OR_RETURN(
        Array<T> grown, Array<T>::Uninitialised(*allocator_, capacity, MemoryClass::kOther, what_));
    if (size_ > 0) std::memcpy(static_cast<void*>(grown.data()), array_.data(), size_ * sizeof(T));
    array_ = std::move(grown);
    return OkStatus();
  }
  Status Push(const T& value) {
    CELLM_RETURN_IF_ERROR(Reserve(size_ + 1));
    array_[size_++] = value;
    return OkStatus();
  }
  // `count` copies of `value` at the end.
  Status Append(size_t count, const T& value) {
    CELLM_RETURN_IF_ERROR(Reserve(size_ + count));
    std::fill_n(array_.data() + size_, count, value);
    size_ += count;
    return OkStatus();
  }
  void Clear() { size_ = 0; }
  void Shrink(size_t size) { size_ = std::min(size_, size); }
  void Release() {
    size_ = 0;
    array_ = Array<T>();
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t index) { return array_[index]; }
  const T& operator[](size_t index) const { return array_[index]; }
  T* data() { return array_.data(); }
  const T* data() const { return array_.data(); }
  std::span<const T> span() const { return {array_.data(), size_}; }
  size_t bytes() const { return array_.size() * sizeof(T); }

 private:
  Allocator* allocator_;
  const char* what_;
  Array<T> array_;
  size_t size_ = 0;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_BUFFER_H_
