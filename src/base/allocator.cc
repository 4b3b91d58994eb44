#include "base/allocator.h"

#include <cstdlib>

namespace cellm {
namespace {

class MallocAllocator final : public Allocator {
 public:
  void* Allocate(size_t bytes, size_t alignment, MemoryClass) override {
    if (bytes == 0) return nullptr;
    void* pointer = nullptr;
    if (alignment < sizeof(void*)) alignment = sizeof(void*);
    if (::posix_memalign(&pointer, alignment, bytes) != 0) return nullptr;
    return pointer;
  }
  void Free(void* pointer, size_t, MemoryClass) override { std::free(pointer); }
};

constinit MallocAllocator g_system_allocator;

}  // namespace

Allocator& SystemAllocator() { return g_system_allocator; }

void* BudgetAllocator::Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) {
  if (bytes == 0) return nullptr;
  // Reserve first, so that two threads cannot both pass the limit.
  if (!Reserve(bytes)) return nullptr;
  void* pointer = parent_.Allocate(bytes, alignment, memory_class);
  if (pointer == nullptr) {
    used_.fetch_sub(bytes);
    return nullptr;
  }
  by_class_[static_cast<size_t>(memory_class)].fetch_add(bytes);
  return pointer;
}

bool BudgetAllocator::Charge(size_t bytes, MemoryClass memory_class) {
  if (!Reserve(bytes)) return false;
  by_class_[static_cast<size_t>(memory_class)].fetch_add(bytes);
  return true;
}

bool BudgetAllocator::Reserve(size_t bytes) {
  uint64_t used = used_.load();
  do {
    const uint64_t limit = limit_.load();
    if (used > limit || bytes > limit - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  uint64_t peak = peak_.load();
  while (peak < used + bytes && !peak_.compare_exchange_weak(peak, used + bytes)) {
  }
  return true;
}

void BudgetAllocator::Free(void* pointer, size_t bytes, MemoryClass memory_class) {
  if (pointer == nullptr) return;
  parent_.Free(pointer, bytes, memory_class);
  by_class_[static_cast<size_t>(memory_class)].fetch_sub(bytes);
  used_.fetch_sub(bytes);
}

}  // namespace cellm
