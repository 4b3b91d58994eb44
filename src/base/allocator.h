#ifndef CELLM_SRC_BASE_ALLOCATOR_H_
#define CELLM_SRC_BASE_ALLOCATOR_H_

// The one door for memory whose size a file or a request decides.
//
// Allocate() may return null, which the caller turns into OutOfMemory. BudgetAllocator counts
// bytes by class and refuses past its limit; tests wrap it to fail on purpose.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace cellm {

// What the bytes are for; the memory table (docs/memory.md) has one row a class.
enum class MemoryClass : int { kWeights, kCache, kActivations, kTokenizer, kOther, kCount };

class Allocator {
 public:
  virtual ~Allocator() = default;
  // `alignment` is a power of two. Null when the bytes cannot be had. bytes == 0 gives null.
  virtual void* Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) = 0;
  // The same bytes and class as at Allocate(). Null is ignored.
  virtual void Free(void* pointer, size_t bytes, MemoryClass memory_class) = 0;
};

// malloc. One object, alive for ever, any thread.
Allocator& SystemAllocator();

// Counts what is in use and refuses what would pass `limit_bytes`. Any thread.
class BudgetAllocator final : public Allocator {
 public:
  BudgetAllocator(Allocator& parent, uint64_t limit_bytes) : parent_(parent), limit_(limit_bytes) {}
  void* Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) override;
  void Free(void* pointer, size_t bytes, MemoryClass memory_class) override;

  uint64_t used_bytes() const { return used_.load(); }
  uint64_t peak_bytes() const { return peak_.load(); }
  uint64_t limit_bytes() const { return limit_.load(); }
  uint64_t used_bytes(MemoryClass memory_class) const {
    return by_class_[static_cast<size_t>(memory_class)].load();
  }
  // Lowering it below used_bytes() is allowed: nothing is freed, growth is refused.
  void set_limit_bytes(uint64_t limit) { limit_.store(limit); }
  // Counts bytes that are held elsewhere from now on. False when they pass the limit.
  bool Charge(size_t bytes, MemoryClass memory_class);

 private:
  // Counts `bytes` unless they pass the limit.
  bool Reserve(size_t bytes);

  Allocator& parent_;
  std::atomic<uint64_t> limit_;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> peak_{0};
  std::atomic<uint64_t> by_class_[static_cast<size_t>(MemoryClass::kCount)]{};
};

// An owned, fixed-size array of a trivial type from an Allocator. Movable, not copyable.
template <typename T>
class Array {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Array() = default;
  Array(Array&& other) noexcept { Swap(other); }
  Array& operator=(Array&& other) noexcept {
    Array moved(std::move(other));
    Swap(moved);
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    if (data_ != nullptr) allocator_->Free(data_, size_ * sizeof(T), class_);
  }

  // `count` elements, zeroed, 64-byte aligned. OutOfMemory names `what`.
  static Result<Array> Zeroed(Allocator& allocator, size_t count, MemoryClass memory_class,
                              const char* what) {
    CELLM_ASSIGN_OR_RETURN(Array array, Uninitialised(allocator, count, memory_class, what));
    if (count > 0) __builtin_memset(static_cast<void*>(array.data_), 0, count * sizeof(T));
    return array;
  }
  // The same without zeroing: pages that are not written cost nothing.
  static Result<Array> Uninitialised(Allocator& allocator, size_t count, MemoryClass memory_class,
                                     const char* what) {
    Array array;
    if (count == 0) return array;
    size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes)) {
      return OutOfMemory("%s: %zu elements overflow the address space", what, count);
    }
    void* memory = allocator.Allocate(bytes, 64, memory_class);
    if (memory == nullptr) return OutOfMemory("%s: %zu bytes refused", what, bytes);
    array.allocator_ = &allocator;
    array.data_ = static_cast<T*>(memory);
    array.size_ = count;
    array.class_ = memory_class;
    return array;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t index) { return data_[index]; }
  const T& operator[](size_t index) const { return data_[index]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  void Swap(Array& other) {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(class_, other.class_);
  }

  Allocator* allocator_ = nullptr;
  T* data_ = nullptr;
  size_t size_ = 0;
  MemoryClass class_ = MemoryClass::kOther;
};

}  // namespace cellm

#endif  // CELLM_SRC_BASE_ALLOCATOR_H_
