#include "support/heap_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
constinit std::atomic<int64_t> allocations{0};
}  // namespace

// Every form that the library or a third party may call, so that none of them pairs one of ours
// with one of the system's (AddressSanitizer reports such pairs).
namespace {

void* CountedNew(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* CountedNewOrAbort(size_t bytes) {
  void* const memory = CountedNew(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void* CountedAlignedNew(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t unit = static_cast<size_t>(alignment);
  void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return CountedNewOrAbort(bytes); }
void* operator new[](size_t bytes) { return CountedNewOrAbort(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return CountedNew(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return CountedNew(bytes); }
void* operator new(size_t bytes, std::align_val_t unit) { return CountedAlignedNew(bytes, unit); }
void* operator new[](size_t bytes, std::align_val_t unit) { return CountedAlignedNew(bytes, unit); }
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, size_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { std::free(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { std::free(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t, std::align_val_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, size_t, std::align_val_t) noexcept { std::free(pointer); }

namespace cellm::testing {

int64_t HeapAllocations() { return allocations.load(); }

}  // namespace cellm::testing
