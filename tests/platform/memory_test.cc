#include "platform/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "platform/cores.h"

namespace cellm::platform {
namespace {

// Random pieces in random order: no two overlap, all are aligned, and all go back.
TEST(HugePages, PiecesAreApart) {
  Allocator& memory = HugePageAllocator();
  struct Piece {
    uint8_t* data;
    size_t bytes;
    MemoryClass memory_class;
    uint8_t mark;
  };
  std::vector<Piece> pieces;
  Rng rng(11);
  for (int round = 0; round < 400; ++round) {
    if (!pieces.empty() && rng.NextBelow(3) == 0) {
      const size_t index = rng.NextBelow(pieces.size());
      const Piece piece = pieces[index];
      for (size_t i = 0; i < piece.bytes; i += 997) ASSERT_EQ(piece.data[i], piece.mark);
      ASSERT_EQ(piece.data[piece.bytes - 1], piece.mark);
      memory.Free(piece.data, piece.bytes, piece.memory_class);
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(index));
      continue;
    }
    const size_t bytes = size_t{1} + rng.NextBelow(uint64_t{1} << (4 + rng.NextBelow(18)));
    const MemoryClass memory_class =
        rng.NextBelow(3) == 0 ? MemoryClass::kCache : MemoryClass::kWeights;
    uint8_t* const data = static_cast<uint8_t*>(memory.Allocate(bytes, 64, memory_class));
    ASSERT_NE(data, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    const uint8_t mark = static_cast<uint8_t>(round);
    std::memset(data, mark, bytes);
    pieces.push_back({data, bytes, memory_class, mark});
  }
  for (const Piece& piece : pieces) {
    ASSERT_EQ(piece.data[0], piece.mark);
    ASSERT_EQ(piece.data[piece.bytes - 1], piece.mark);
    memory.Free(piece.data, piece.bytes, piece.memory_class);
  }
}

TEST(HugePages, ImpossibleSizesAreRefused) {
  Allocator& memory = HugePageAllocator();
  EXPECT_EQ(memory.Allocate(0, 64, MemoryClass::kWeights), nullptr);
  EXPECT_EQ(memory.Allocate(SIZE_MAX, 64, MemoryClass::kWeights), nullptr);
  EXPECT_EQ(memory.Allocate(SIZE_MAX - (size_t{1} << 21), 64, MemoryClass::kCache), nullptr);
  EXPECT_EQ(memory.Allocate(size_t{1} << 60, 64, MemoryClass::kWeights), nullptr);
}

// Whoever frees everything gets everything back to the system.
TEST(HugePages, FreedBlocksReturn) {
  Allocator& memory = HugePageAllocator();
  const uint64_t before = AnonymousBytes();
  constexpr size_t kBytes = size_t{5} << 20;
  std::vector<void*> pieces;
  for (int i = 0; i < 20; ++i) {
    pieces.push_back(memory.Allocate(kBytes, 64, MemoryClass::kWeights));
    ASSERT_NE(pieces.back(), nullptr);
    std::memset(pieces.back(), 1, kBytes);
  }
  EXPECT_GE(AnonymousBytes(), before + 19 * kBytes);
  for (void* const piece : pieces) memory.Free(piece, kBytes, MemoryClass::kWeights);
#ifdef CELLM_ASAN
  constexpr size_t kShadow = 20 * kBytes / 8;  // the sanitizer's own, which it keeps
#else
  constexpr size_t kShadow = 0;
#endif
  EXPECT_LE(AnonymousBytes(), before + kBytes + kShadow);
}

}  // namespace
}  // namespace cellm::platform
