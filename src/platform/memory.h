#ifndef CELLM_SRC_PLATFORM_MEMORY_H_
#define CELLM_SRC_PLATFORM_MEMORY_H_

// Memory for weights and caches: in huge pages, and locked where that is asked for.
//
// Matrix products stream through hundreds of megabytes. With pages of 4 KiB a core spends up to a
// sixth of the time walking page tables, and more in virtual machines, where every walk is two. So
// weights and cache pages are cut from blocks that begin at a multiple of 2 MiB and are marked for
// huge pages (madvise). Where the system gives none, they are ordinary memory.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/allocator.h"
#include "base/status.h"

namespace cellm::platform {

// Weights of kSharedBlockFromBytes or more are cut from common blocks as above, caches of
// kOwnBlockFromBytes or more get a block each, everything else comes from malloc. A common block is
// given back when the last piece of it was freed; freed pieces are not used again meanwhile, which
// suits memory that lives as long as a model. Pages that nobody wrote cost nothing. One object,
// alive for ever, any thread.
Allocator& HugePageAllocator();
inline constexpr size_t kSharedBlockFromBytes = size_t{32} << 10;
inline constexpr size_t kOwnBlockFromBytes = size_t{1} << 20;

// Keeps the pages of `bytes` in memory until they are unmapped or freed (mlock). OutOfMemory when
// the system's limit does not allow it (message: the limit), Io for other reasons.
Status LockInMemory(std::span<const uint8_t> bytes);

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_MEMORY_H_
