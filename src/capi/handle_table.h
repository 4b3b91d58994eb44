#ifndef CELLM_SRC_CAPI_HANDLE_TABLE_H_
#define CELLM_SRC_CAPI_HANDLE_TABLE_H_

// What a handle of the C API is: a slot of a table and the generation of what lives there, spelled
// as a pointer that points nowhere.
//
//   64-bit pointer   [generation: 32][slot + 1: 32]        32-bit   [generation: 16][slot + 1: 16]
//
// So a handle that was closed, or never was one, is found out instead of followed: closing twice or
// using what was closed is an error and never a crash. Generations are not used again before all
// others of the slot were. The tables are the only state of the library that no handle owns; they
// need no start-up code, and keep a few dozen bytes for each handle that was ever open at once.

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cellm::capi {

// Handle: the opaque C type. T: what it stands for. Any thread.
template <typename Handle, typename T>
class HandleTable {
 public:
  constexpr HandleTable() = default;

  // Null when all slots are in use.
  Handle* Open(std::shared_ptr<T> object) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (slots_ == nullptr) slots_ = new std::vector<Slot>();
    size_t index = 0;
    if (free_ != kNone) {
      index = free_;
      free_ = (*slots_)[index].next_free;
    } else {
      index = slots_->size();
      if (index >= kMost) return nullptr;
      slots_->emplace_back();
    }
    Slot& slot = (*slots_)[index];
    slot.generation = (slot.generation + 1) & kMask;
    if (slot.generation == 0) slot.generation = 1;
    slot.object = std::move(object);
    return reinterpret_cast<Handle*>((slot.generation << kShift) | (index + 1));
  }

  // Null: stale, null or never a handle.
  std::shared_ptr<T> Get(const Handle* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot* const slot = Find(handle);
    return slot == nullptr ? nullptr : slot->object;
  }

  // Likewise; from now on the handle is stale. What it stood for goes when the last user lets go.
  std::shared_ptr<T> Close(const Handle* handle) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Slot* const slot = Find(handle);
    if (slot == nullptr) return nullptr;
    std::shared_ptr<T> object = std::move(slot->object);
    slot->object = nullptr;
    slot->next_free = free_;
    free_ = static_cast<size_t>(slot - slots_->data());
    return object;
  }

 private:
  static constexpr int kShift = sizeof(uintptr_t) * 4;
  static constexpr uintptr_t kMask = (uintptr_t{1} << kShift) - 1;
  static constexpr size_t kMost = static_cast<size_t>(kMask) - 1;
  static constexpr size_t kNone = SIZE_MAX;

  struct Slot {
    uintptr_t generation = 0;
    std::shared_ptr<T> object;
    size_t next_free = kNone;
  };

  Slot* Find(const Handle* handle) {
    const uintptr_t bits = reinterpret_cast<uintptr_t>(handle);
    const uintptr_t index = (bits & kMask) - 1;  // wraps for null
    if (slots_ == nullptr || index >= slots_->size()) return nullptr;
    Slot& slot = (*slots_)[index];
    return slot.object != nullptr && slot.generation == bits >> kShift ? &slot : nullptr;
  }
  std::mutex mutex_;
  std::vector<Slot>* slots_ = nullptr;  // made at the first use, never freed
  size_t free_ = kNone;
};

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_HANDLE_TABLE_H_
