#include "support/heap_bound.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

#include "base/check.h"

namespace {

// Limits of the bound that is in force; 0 and 0 when there is none.
size_t most_at_once = 0;
size_t most_in_all = 0;
size_t held = 0;  // since the bound began; what was there before and is freed does not count

void* Counted(void* memory) {
  if (memory == nullptr) std::abort();
  if (most_in_all == 0) return memory;
  const size_t bytes = malloc_usable_size(memory);
  held += bytes;
  if (bytes > most_at_once || held > most_in_all) {
    most_in_all = 0;  // the message below allocates
    CELLM_CHECK(false, "a reader took more memory than its input is worth");
  }
  return memory;
}

void Free(void* memory) {
  if (memory != nullptr && most_in_all != 0) {
    const size_t bytes = malloc_usable_size(memory);
    held -= bytes < held ? bytes : held;
  }
  std::free(memory);
}

void* New(size_t bytes) { return Counted(std::malloc(bytes == 0 ? 1 : bytes)); }
void* New(size_t bytes, std::align_val_t alignment) {
  const size_t unit = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}

}  // namespace

void* operator new(size_t bytes) { return New(bytes); }
void* operator new[](size_t bytes) { return New(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return New(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return New(bytes); }
void* operator new(size_t bytes, std::align_val_t unit) { return New(bytes, unit); }
void* operator new[](size_t bytes, std::align_val_t unit) { return New(bytes, unit); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace cellm::fuzz {

HeapBound::HeapBound(size_t input_bytes) {
  held = 0;
  most_at_once = input_bytes + kFixed;
  most_in_all = kMultiple * input_bytes + kFixed;
}

HeapBound::~HeapBound() { most_in_all = 0; }

}  // namespace cellm::fuzz
