#include "kv/sequence_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/rng.h"
#include "support/tiny_model.h"

namespace cellm {
namespace {

using ::cellm::testing::FailingAllocator;

// A model with everything: full and windowed layers of different widths, a layer that shares, and
// recurrent and convolution states.
std::vector<LayerStateSpec> MixedLayers(bool with_state) {
  std::vector<LayerStateSpec> layers(6);
  layers[0] = {.kv_heads = 2, .head_dim = 8, .head_dim_v = 8};
  layers[1] = {.kv_heads = 1, .head_dim = 16, .head_dim_v = 4, .window = 20};
  layers[2] = {.kv_heads = 2, .head_dim = 8, .head_dim_v = 8, .kv_from = 0};
  layers[3] = {.kv_heads = 1, .head_dim = 6, .head_dim_v = 6, .window = 70};
  layers[4] = {.kv_heads = 4, .head_dim = 2, .head_dim_v = 2};
  if (with_state) layers[5] = {.recurrent_floats = 12, .conv_channels = 5, .conv_taps = 4};
  return layers;
}

CacheOptions SmallOptions() {
  CacheOptions options;
  options.page_tokens = 16;
  options.context_tokens = 300;
  options.max_sequences = 5;
  return options;
}

std::unique_ptr<SequenceCache> MakeCache(const std::vector<LayerStateSpec>& layers,
                                         const CacheOptions& options,
                                         Allocator& allocator = SystemAllocator()) {
  auto cache = SequenceCache::Create(layers, options, allocator);
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return cache.ok() ? std::move(cache).value() : nullptr;
}

TEST(LayerState, BytesPerSequenceByHand) {
  const std::vector<LayerStateSpec> layers = MixedLayers(true);
  // Per token in f16: layer 0: 2 * 16 * 2 = 64; layer 1: 20 * 2 = 40; layer 3: 12 * 2 = 24;
  // layer 4: 4 * 4 * 2 = 32; layer 2 shares. Fixed: (12 + 5 * 3) * 4 = 108.
  EXPECT_EQ(BytesPerSequence(layers, KvType::kF16, 16, 0), 108);
  // 1 token: one page everywhere.
  EXPECT_EQ(BytesPerSequence(layers, KvType::kF16, 16, 1), 108 + 16 * (64 + 40 + 24 + 32));
  // 100 tokens: 7 pages full; window 20 sees from 81: pages 5, 6; window 70 from 31: pages 1..6.
  EXPECT_EQ(BytesPerSequence(layers, KvType::kF16, 16, 100),
            108 + 16 * (7 * 64 + 2 * 40 + 6 * 24 + 7 * 32));
  EXPECT_EQ(BytesPerSequence(layers, KvType::kF32, 16, 100) - 108,
            2 * (BytesPerSequence(layers, KvType::kF16, 16, 100) - 108));
  // During a step from 100 to 140 tokens nothing leaves: 9 pages full, 4 and 8 windowed.
  EXPECT_EQ(PeakBytesPerSequence(layers, KvType::kF16, 16, 100, 40),
            108 + 16 * (9 * 64 + 4 * 40 + 8 * 24 + 9 * 32));
}

TEST(LayerState, MostBytesIsTheLargestOfAllLengths) {
  const std::vector<LayerStateSpec> layers = MixedLayers(true);
  int64_t most = 0;
  for (int64_t tokens = 1; tokens <= 300; ++tokens) {
    most = std::max(most, PeakBytesPerSequence(layers, KvType::kF16, 16, tokens - 1, 1));
    // Each layer's own largest: their windows may end in different places of a page.
    EXPECT_GE(MostBytesPerSequence(layers, KvType::kF16, 16, tokens), most) << tokens;
  }
  for (const LayerStateSpec& layer : layers) {
    int64_t largest = 0;
    for (int64_t tokens = 1; tokens <= 300; ++tokens) {
      largest =
          std::max(largest, PeakBytesPerSequence({&layer, 1}, KvType::kF16, 16, tokens - 1, 1));
      EXPECT_EQ(MostBytesPerSequence({&layer, 1}, KvType::kF16, 16, tokens), largest) << tokens;
    }
  }
}

TEST(LayerState, PagesOfEveryFormatTakeWhatTheFormulaSays) {
  const std::vector<LayerStateSpec> layers = MixedLayers(true);
  for (int k = 0; k < kKvTypeCount; ++k) {
    for (int v = 0; v < kKvTypeCount; ++v) {
      CacheOptions options = SmallOptions();
      options.kv_type = KvTypes(static_cast<KvType>(k), static_cast<KvType>(v));
      const auto cache = MakeCache(layers, options);
      ASSERT_NE(cache, nullptr);
      const auto slot = cache->CreateSequence();
      ASSERT_TRUE(slot.ok());
      for (const int32_t tokens : {1, 40, 59}) {
        ASSERT_TRUE(cache->Grow(*slot, tokens).ok());
        cache->Commit(*slot, tokens);
        EXPECT_EQ(cache->stats().page_bytes_used + cache->stats().state_bytes,
                  static_cast<uint64_t>(
                      BytesPerSequence(layers, options.kv_type, 16, cache->tokens(*slot))))
            << KvStorageName(options.kv_type);
      }
      cache->CheckInvariants();
    }
  }
  // K in 8 bits and V in 4: 2 heads of 64 columns of either, a scale of 2 bytes each.
  const LayerStateSpec layer = {.kv_heads = 2, .head_dim = 64, .head_dim_v = 64};
  EXPECT_EQ(KvBytesPerToken(layer, KvTypes(KvType::kQ8, KvType::kQ4)), 2 * (64 + 2 + 32 + 2));
  EXPECT_EQ(KvBytesPerToken(layer, KvType::kTq2_5), 2 * 2 * (20 + 2));
}

// A plain model of what each sequence has written: (layer, position) -> value. Random creates,
// steps, rewinds, forks and frees; contents, invariants and the byte formula are checked.
void RandomOperations(uint64_t seed, bool with_state) {
  SCOPED_TRACE(seed);
  const std::vector<LayerStateSpec> layers = MixedLayers(with_state);
  const CacheOptions options = SmallOptions();
  FailingAllocator memory;
  {
    const auto cache = MakeCache(layers, options, memory);
    Rng rng(seed);
    struct Plain {
      std::vector<uint8_t> values;  // [tokens]
      float state = 0.0f;
    };
    std::map<int32_t, Plain> sequences;
    std::map<int32_t, Plain> snapshots;
    const auto cell = [&](int32_t slot, int32_t layer, int32_t position) {
      const KvSlice& kv = cache->layers(slot)[layer].kv;
      uint8_t* const page = kv.pages[position / kv.page_tokens];
      return page == nullptr ? nullptr : page + kv.places.k_offset + position % kv.page_tokens;
    };
    for (int step = 0; step < 400; ++step) {
      const uint64_t action = rng.NextBelow(14);
      if (action >= 10 && !snapshots.empty()) {
        auto picked = snapshots.begin();
        std::advance(picked, static_cast<int64_t>(rng.NextBelow(snapshots.size())));
        const auto& [snapshot, plain] = *picked;
        const int32_t tokens = static_cast<int32_t>(plain.values.size());
        ASSERT_EQ(cache->snapshot_tokens(snapshot), tokens);
        if (action == 10 && rng.NextBelow(8) == 0) {
          const uint64_t all = cache->SnapshotOnlyBytes();
          const uint64_t before = cache->stats().page_bytes_used + cache->stats().state_bytes;
          for (const auto& [each, past] : snapshots) cache->DropSnapshot(each);
          EXPECT_EQ(before - cache->stats().page_bytes_used - cache->stats().state_bytes, all);
          snapshots.clear();
        } else if (action == 10) {
          const uint64_t own = cache->SnapshotOwnBytes(snapshot);
          const uint64_t before = cache->stats().page_bytes_used + cache->stats().state_bytes;
          cache->DropSnapshot(snapshot);
          EXPECT_EQ(before - cache->stats().page_bytes_used - cache->stats().state_bytes, own);
          snapshots.erase(picked);
        } else if (action == 11) {
          // Out to a file and back.
          const auto copy = cache->NewSnapshot(tokens);
          ASSERT_TRUE(copy.ok());
          const auto from = cache->Contents(snapshot);
          const auto to = cache->Contents(*copy);
          ASSERT_EQ(from.size(), to.size());
          size_t bytes = 0;
          for (size_t i = 0; i < from.size(); ++i) {
            ASSERT_EQ(from[i].size(), to[i].size());
            std::copy(from[i].begin(), from[i].end(), to[i].begin());
            bytes += from[i].size();
          }
          EXPECT_EQ(static_cast<int64_t>(bytes),
                    BytesPerSequence(layers, options.kv_type, options.page_tokens, tokens));
          snapshots[*copy] = Plain(plain);
        } else {
          const int32_t position =
              rng.NextBelow(2) == 0
                  ? tokens
                  : static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(tokens) + 1));
          if (!cache->CanCut(tokens, position)) {
            EXPECT_LT(position, tokens);
            continue;
          }
          const auto slot = cache->CreateSequence();
          if (!slot.ok()) continue;
          cache->StartFrom(*slot, snapshot, position);
          sequences[*slot] = Plain(plain);
          sequences[*slot].values.resize(static_cast<size_t>(position));
          if (position == 0) sequences[*slot].state = 0.0f;
        }
        cache->CheckInvariants();
        continue;
      }
      if (sequences.empty() || action == 0) {
        const auto slot = cache->CreateSequence();
        if (slot.ok()) {
          sequences[*slot] = Plain();
          if (with_state) {
            EXPECT_EQ(cache->layers(*slot)[5].recurrent[11], 0.0f);
            EXPECT_EQ(cache->layers(*slot)[5].conv[14], 0.0f);
          }
        } else {
          EXPECT_EQ(slot.status().code(), StatusCode::kBusy);
        }
        continue;
      }
      auto picked = sequences.begin();
      std::advance(picked, static_cast<int64_t>(rng.NextBelow(sequences.size())));
      const int32_t slot = picked->first;
      Plain& plain = picked->second;
      const int32_t tokens = static_cast<int32_t>(plain.values.size());
      ASSERT_EQ(cache->tokens(slot), tokens);
      if (action == 1) {
        // What it gives back goes to nobody or to snapshots alone.
        const uint64_t own = cache->SequenceOwnBytes(slot);
        const auto others = [&cache] {
          return cache->stats().page_bytes_used + cache->stats().state_bytes -
                 cache->SnapshotOnlyBytes();
        };
        const uint64_t before = others();
        cache->FreeSequence(slot);
        EXPECT_EQ(before - others(), own);
        sequences.erase(picked);
      } else if (action == 2) {
        const auto copy = cache->Fork(slot);
        if (copy.ok()) sequences[*copy] = Plain(plain);
      } else if (action == 3) {
        const int32_t target =
            static_cast<int32_t>(rng.NextBelow(static_cast<uint64_t>(tokens) + 1));
        const Status status = cache->Rewind(slot, target);
        if (status.ok()) {
          plain.values.resize(static_cast<size_t>(target));
          if (target == 0 && tokens > 0) plain.state = 0.0f;
        } else {
          EXPECT_EQ(status.code(), StatusCode::kUnsupported);
        }
      } else if (action == 9) {
        const auto snapshot = cache->TakeSnapshot(slot);
        ASSERT_TRUE(snapshot.ok());
        snapshots[*snapshot] = Plain(plain);
      } else if (action == 4) {
        const int32_t room = options.context_tokens - tokens;
        ASSERT_TRUE(cache->Grow(slot, std::min(room, 17)).ok());
        cache->Cancel(slot);
      } else {
        const int32_t count = std::min<int32_t>(static_cast<int32_t>(1 + rng.NextBelow(40)),
                                                options.context_tokens - tokens);
        if (count == 0) continue;
        ASSERT_TRUE(cache->Grow(slot, count).ok());
        for (int32_t t = tokens; t < tokens + count; ++t) {
          const uint8_t value = static_cast<uint8_t>(rng.NextBelow(256));
          plain.values.push_back(value);
          for (const int32_t layer : {0, 1, 3, 4}) *cell(slot, layer, t) = value;
        }
        if (with_state) cache->layers(slot)[5].recurrent[11] = plain.state += 1.0f;
        cache->Commit(slot, count);
      }
      cache->CheckInvariants();
    }
    for (const auto& [slot, plain] : sequences) {
      const int32_t tokens = static_cast<int32_t>(plain.values.size());
      for (const int32_t layer : {0, 1, 2, 3, 4}) {
        const int64_t first = FirstLiveToken(layers[static_cast<size_t>(layer)].window, tokens);
        for (int32_t t = static_cast<int32_t>(first); t < tokens; ++t) {
          ASSERT_NE(cell(slot, layer, t), nullptr);
          ASSERT_EQ(*cell(slot, layer, t), plain.values[static_cast<size_t>(t)])
              << "layer " << layer << " token " << t << " of " << tokens;
        }
      }
      if (with_state) {
        EXPECT_EQ(cache->layers(slot)[5].recurrent[11], plain.state);
      }
    }
    for (const auto& [slot, plain] : sequences) cache->FreeSequence(slot);
    for (const auto& [snapshot, plain] : snapshots) cache->DropSnapshot(snapshot);
    cache->CheckInvariants();
    EXPECT_EQ(cache->stats().page_bytes_used, 0u);
    EXPECT_EQ(cache->stats().state_bytes, 0u);
    cache->Trim();
    EXPECT_EQ(cache->stats().page_bytes_free, 0u);
  }
  EXPECT_EQ(memory.live_bytes(), 0);
}

TEST(SequenceCache, RandomOperationsAgreeWithAPlainModel) {
  for (uint64_t seed = 1; seed <= 12; ++seed) RandomOperations(seed, seed % 2 == 0);
}

TEST(SequenceCache, BytesUsedAreTheFormula) {
  const std::vector<LayerStateSpec> layers = MixedLayers(true);
  const auto cache = MakeCache(layers, SmallOptions());
  const int32_t slot = *cache->CreateSequence();
  int32_t tokens = 0;
  for (const int32_t count : {1, 15, 1, 40, 3, 100, 7, 64, 69}) {
    ASSERT_TRUE(cache->Grow(slot, count).ok());
    EXPECT_EQ(cache->stats().page_bytes_used + cache->stats().state_bytes,
              static_cast<uint64_t>(PeakBytesPerSequence(layers, KvType::kF16, 16, tokens, count)));
    cache->Commit(slot, count);
    tokens += count;
    EXPECT_EQ(cache->stats().page_bytes_used + cache->stats().state_bytes,
              static_cast<uint64_t>(BytesPerSequence(layers, KvType::kF16, 16, tokens)))
        << tokens;
  }
}

TEST(SequenceCache, SharedPagesAreCopiedBeforeAWrite) {
  const std::vector<LayerStateSpec> layers = {{.kv_heads = 1, .head_dim = 4, .head_dim_v = 4}};
  const auto cache = MakeCache(layers, SmallOptions());
  const int32_t first = *cache->CreateSequence();
  ASSERT_TRUE(cache->Grow(first, 20).ok());
  cache->Commit(first, 20);
  const uint64_t used = cache->stats().page_bytes_used;
  const int32_t second = *cache->Fork(first);
  EXPECT_EQ(cache->stats().page_bytes_used, used);  // nothing copied yet
  EXPECT_EQ(cache->layers(first)[0].kv.pages[1], cache->layers(second)[0].kv.pages[1]);
  ASSERT_TRUE(cache->Grow(second, 1).ok());
  EXPECT_EQ(cache->stats().pages_copied, 1);
  EXPECT_EQ(cache->layers(first)[0].kv.pages[0], cache->layers(second)[0].kv.pages[0]);
  EXPECT_NE(cache->layers(first)[0].kv.pages[1], cache->layers(second)[0].kv.pages[1]);
  cache->Commit(second, 1);
  // The first is the only holder of its page now: no copy.
  ASSERT_TRUE(cache->Grow(first, 1).ok());
  EXPECT_EQ(cache->stats().pages_copied, 1);
  cache->Commit(first, 1);
  cache->CheckInvariants();
}

TEST(SequenceCache, BudgetIsKeptAndSaid) {
  const std::vector<LayerStateSpec> layers = MixedLayers(true);
  CacheOptions options = SmallOptions();
  options.max_bytes = static_cast<uint64_t>(2 * BytesPerSequence(layers, KvType::kF16, 16, 100));
  const auto cache = MakeCache(layers, options);
  const int32_t a = *cache->CreateSequence();
  const int32_t b = *cache->CreateSequence();
  int32_t grown = 0;
  Status status;
  while (status.ok()) {
    for (const int32_t slot : {a, b}) {
      status = cache->Grow(slot, 10);
      if (!status.ok()) break;
      cache->Commit(slot, 10);
      grown += 10;
    }
    const CacheStats& stats = cache->stats();
    ASSERT_LE(stats.page_bytes_used + stats.page_bytes_free + stats.state_bytes, options.max_bytes);
    cache->CheckInvariants();
  }
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("needed"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("available"), std::string::npos) << status.message();
  EXPECT_GE(grown, 180);
  // What one gives back the other can have, whichever group it came from.
  cache->FreeSequence(a);
  EXPECT_TRUE(cache->Grow(b, 40).ok());
  cache->Commit(b, 40);
  cache->CheckInvariants();
}

TEST(SequenceCache, EveryAllocationMayFail) {
  const std::vector<LayerStateSpec> layers = MixedLayers(true);
  for (int64_t n = 1; n < 200; ++n) {
    FailingAllocator memory(n);
    bool complete = false;
    {
      const auto cache = MakeCache(layers, SmallOptions(), memory);
      const auto slot = cache->CreateSequence();
      if (slot.ok()) {
        Status status = cache->Grow(*slot, 200);
        complete = status.ok();
        if (!status.ok()) {
          EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
          cache->CheckInvariants();
          memory.set_fail_at(0);
          ASSERT_TRUE(cache->Grow(*slot, 200).ok());
        }
        cache->Commit(*slot, 200);
        cache->CheckInvariants();
      } else {
        EXPECT_EQ(slot.status().code(), StatusCode::kOutOfMemory);
        cache->CheckInvariants();
      }
    }
    EXPECT_EQ(memory.live_bytes(), 0) << n;
    if (complete) return;
  }
  FAIL() << "never succeeded";
}

TEST(SequenceCache, RefusesBadOptionsByName) {
  const std::vector<LayerStateSpec> layers = MixedLayers(false);
  const auto code = [&](auto change) {
    CacheOptions options = SmallOptions();
    change(&options);
    return SequenceCache::Create(layers, options, SystemAllocator()).status().code();
  };
  EXPECT_EQ(code([](CacheOptions* o) { o->page_tokens = 8; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](CacheOptions* o) { o->page_tokens = 40; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](CacheOptions* o) { o->context_tokens = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code([](CacheOptions* o) { o->max_sequences = 0; }), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cellm
