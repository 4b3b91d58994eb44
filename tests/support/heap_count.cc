#include "support/heap_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
constinit std::atomic<int64_t> allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }

namespace cellm::testing {

int64_t HeapAllocations() { return allocations.load(); }

}  // namespace cellm::testing
