#include "platform/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "base/checked.h"

namespace cellm::platform {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kBlockBytes = size_t{32} << 20;
constexpr size_t kPage = 4096;

// A mapping that begins at a multiple of kHugePage. Its pieces are told apart from malloc's by
// size and class, and a piece's block is found by a header in front of the piece.
struct Block {
  uint8_t* begin = nullptr;
  size_t bytes = 0;
  size_t used = 0;
  std::atomic<int64_t> pieces{0};  // plus one while it is the one to cut from
};

// In front of every piece, so that Free() finds the block.
struct alignas(64) Header {
  Block* block;
};

Block* MapBlock(size_t bytes) {
  size_t wanted = 0;
  if (__builtin_add_overflow(bytes, kHugePage, &wanted)) return nullptr;
  void* const memory =
      ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Cut to the aligned part.
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t aligned = (start + kHugePage - 1) / kHugePage * kHugePage;
  if (aligned > start) ::munmap(memory, aligned - start);
  const uintptr_t end = aligned + bytes;
  if (start + wanted > end) ::munmap(reinterpret_cast<void*>(end), start + wanted - end);
  Block* const block = new (std::nothrow) Block;
  if (block == nullptr) {
    ::munmap(reinterpret_cast<void*>(aligned), bytes);
    return nullptr;
  }
  block->begin = reinterpret_cast<uint8_t*>(aligned);
  block->bytes = bytes;
#if defined(MADV_HUGEPAGE)
  (void)::madvise(block->begin, bytes, MADV_HUGEPAGE);
#endif
  return block;
}

void Release(Block* block) {
  if (block->pieces.fetch_sub(1) != 1) return;
  ::munmap(block->begin, block->bytes);
  delete block;
}

class HugePages final : public Allocator {
 public:
  constexpr HugePages() = default;

  void* Allocate(size_t bytes, size_t alignment, MemoryClass memory_class) override {
    CELLM_CHECK(alignment <= 64, "alignments beyond a cache line are nobody's wish");
    if (!IsHuge(bytes, memory_class)) {
      return SystemAllocator().Allocate(bytes, alignment, memory_class);
    }
    const size_t needed = sizeof(Header) + (bytes + 63) / 64 * 64;
    if (needed < bytes) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    // What would fill half a block gets one of its own, so that little is lost at the ends.
    if (memory_class == MemoryClass::kCache || needed > kBlockBytes / 2) {
      Block* const own = MapBlock((needed + kPage - 1) / kPage * kPage);
      return own == nullptr ? nullptr : Cut(own, needed);
    }
    if (current_ == nullptr || current_->bytes - current_->used < needed) {
      Block* const fresh = MapBlock(kBlockBytes);
      if (fresh == nullptr) return nullptr;
      fresh->pieces.store(1);
      if (current_ != nullptr) cellm::platform::Release(current_);
      current_ = fresh;
    }
    return Cut(current_, needed);
  }

  void Free(void* pointer, size_t bytes, MemoryClass memory_class) override {
    if (pointer == nullptr) return;
    if (!IsHuge(bytes, memory_class)) {
      SystemAllocator().Free(pointer, bytes, memory_class);
      return;
    }
    Block* const block = (static_cast<Header*>(pointer) - 1)->block;
    const std::lock_guard<std::mutex> lock(mutex_);
    // The last piece of the block that is being cut takes the block with it, so that an idle
    // process holds none.
    if (block == current_ && block->pieces.load() == 2) {
      current_ = nullptr;
      block->pieces.fetch_sub(1);
    }
    cellm::platform::Release(block);
  }

 private:
  static bool IsHuge(size_t bytes, MemoryClass memory_class) {
    return (memory_class == MemoryClass::kWeights && bytes >= kSharedBlockFromBytes) ||
           (memory_class == MemoryClass::kCache && bytes >= kOwnBlockFromBytes);
  }
  static void* Cut(Block* block, size_t needed) {
    Header* const header = new (block->begin + block->used) Header{block};
    block->used += needed;
    block->pieces.fetch_add(1);
    return header + 1;
  }

  std::mutex mutex_;
  Block* current_ = nullptr;
};

constinit HugePages g_huge_pages;

}  // namespace

Allocator& HugePageAllocator() { return g_huge_pages; }

Status LockInMemory(std::span<const uint8_t> bytes) {
  if (bytes.empty() || ::mlock(bytes.data(), bytes.size()) == 0) return OkStatus();
  const int error = errno;
  if (error == ENOMEM || error == EPERM || error == EAGAIN) {
    struct rlimit limit = {};
    (void)::getrlimit(RLIMIT_MEMLOCK, &limit);
    return OutOfMemory(
        "cannot lock the weights in memory: this process may lock %llu bytes (raise it with "
        "\"ulimit -l\", or run without locking)",
        static_cast<unsigned long long>(limit.rlim_cur));
  }
  return IoError("cannot lock the weights in memory: %s", std::strerror(error));
}

}  // namespace cellm::platform
