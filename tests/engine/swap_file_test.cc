#include "engine/swap_file.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/rng.h"
#include "support/random_file.h"

namespace cellm {
namespace {

using ::cellm::testing::MemoryRandomFile;

std::vector<std::span<uint8_t>> Pieces(std::vector<uint8_t>& bytes, size_t piece) {
  std::vector<std::span<uint8_t>> pieces;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    pieces.push_back(std::span<uint8_t>(bytes).subspan(at, std::min(piece, bytes.size() - at)));
  }
  return pieces;
}

TEST(SwapFile, RandomExtentsComeBackAndSpaceIsUsedAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    auto owned = std::make_unique<MemoryRandomFile>();
    MemoryRandomFile* const disk = owned.get();
    constexpr uint64_t kMost = 5000;
    SwapFile swap(std::move(owned), kMost);
    std::vector<std::pair<SwapExtent, std::vector<uint8_t>>> held;
    uint64_t used = 0;
    for (int step = 0; step < 400; ++step) {
      if (rng.NextBelow(2) == 0) {
        std::vector<uint8_t> bytes(rng.NextBelow(700));
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.NextBelow(256));
        const auto extent = swap.Write(Pieces(bytes, 1 + rng.NextBelow(100)));
        if (used + bytes.size() > kMost) {
          ASSERT_EQ(extent.status().code(), StatusCode::kOutOfMemory);
          continue;
        }
        ASSERT_TRUE(extent.ok());
        used += bytes.size();
        held.emplace_back(*extent, std::move(bytes));
      } else if (!held.empty()) {
        const size_t picked = rng.NextBelow(held.size());
        std::vector<uint8_t> back(held[picked].second.size());
        ASSERT_TRUE(swap.Read(held[picked].first, Pieces(back, 64)).ok());
        ASSERT_EQ(back, held[picked].second);
        swap.Free(held[picked].first);
        used -= back.size();
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(picked));
      }
      ASSERT_EQ(swap.used_bytes(), used);
    }
    // Holes are used: the file is not much longer than what was ever held at once.
    EXPECT_LE(disk->bytes.size(), 2 * kMost);
    for (const auto& [extent, bytes] : held) swap.Free(extent);
    EXPECT_EQ(swap.used_bytes(), 0u);
  }
}

TEST(SwapFile, DamageAndAFullDiskAreErrorsThatHoldNothing) {
  auto owned = std::make_unique<MemoryRandomFile>();
  MemoryRandomFile* const disk = owned.get();
  SwapFile swap(std::move(owned), 1000);
  std::vector<uint8_t> bytes(100, 7);
  disk->set_full(true);
  EXPECT_EQ(swap.Write(Pieces(bytes, 30)).status().code(), StatusCode::kIo);
  EXPECT_EQ(swap.used_bytes(), 0u);
  disk->set_full(false);
  const auto extent = swap.Write(Pieces(bytes, 30));
  ASSERT_TRUE(extent.ok());
  disk->bytes[40] ^= 1;
  EXPECT_EQ(swap.Read(*extent, Pieces(bytes, 50)).code(), StatusCode::kCorrupt);
  disk->bytes.resize(60);
  EXPECT_EQ(swap.Read(*extent, Pieces(bytes, 50)).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace cellm
