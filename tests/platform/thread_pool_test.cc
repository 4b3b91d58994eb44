#include "platform/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "platform/clock.h"
#include "platform/cores.h"
#include "platform/thread.h"

namespace cellm::platform {
namespace {

// As many threads as said, whatever the machine has.
std::unique_ptr<ThreadPool> MakePool(int32_t threads) {
  auto pool = ThreadPool::Create(threads, threads);
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return std::move(pool).value();
}

TEST(ThreadPool, RunsEveryTileExactlyOnce) {
  for (const int32_t threads : {1, 2, 3, 8}) {
    const std::unique_ptr<ThreadPool> pool = MakePool(threads);
    for (int round = 0; round < 300; ++round) {
      const int32_t tiles = round % 37;
      std::vector<std::atomic<int32_t>> calls(static_cast<size_t>(tiles));
      pool->For(tiles, [&](int32_t tile, int32_t worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        calls[static_cast<size_t>(tile)].fetch_add(1);
      });
      for (const auto& count : calls) ASSERT_EQ(count.load(), 1) << threads << " " << round;
    }
  }
}

TEST(ThreadPool, WritesOfAllTilesAreVisibleAfterRun) {
  const std::unique_ptr<ThreadPool> pool = MakePool(4);
  std::vector<int64_t> values(4096);
  for (int64_t round = 1; round <= 200; ++round) {
    pool->For(64, [&](int32_t tile, int32_t) {
      for (size_t i = 0; i < 64; ++i) values[static_cast<size_t>(tile) * 64 + i] += round;
    });
    for (const int64_t value : values) ASSERT_EQ(value, round * (round + 1) / 2);
  }
}

// users.md row 91: one slow worker must not hold the tiles of the others.
TEST(ThreadPool, SlowWorkerHoldsOnlyItsOwnTile) {
  const std::unique_ptr<ThreadPool> pool = MakePool(2);
  // The thread that takes tile 0 stays in it until all other tiles are done: with a static split,
  // or with claims in batches, this would never end.
  constexpr int32_t kTiles = 40;
  std::atomic<int32_t> done{0};
  pool->For(kTiles, [&](int32_t tile, int32_t) {
    if (tile == 0) {
      while (done.load() < kTiles - 1) {
      }
    }
    done.fetch_add(1);
  });
  EXPECT_EQ(done.load(), kTiles);
}

// users.md row 89: an idle pool uses no CPU.
TEST(ThreadPool, IdleWorkersSleep) {
  const std::unique_ptr<ThreadPool> pool = MakePool(4);
  std::atomic<int32_t> sum{0};
  pool->For(16, [&](int32_t tile, int32_t) { sum.fetch_add(tile); });
  EXPECT_EQ(sum.load(), 120);
  const auto cpu_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
  };
  const int64_t before = cpu_ns();
  timespec wait{0, 60 * 1000000};
  nanosleep(&wait, nullptr);
  // Workers spin for well below a millisecond each; spinning on would cost 60 ms and more.
  EXPECT_LT(cpu_ns() - before, 20 * 1000000);
  pool->For(16, [&](int32_t tile, int32_t) { sum.fetch_add(tile); });
  EXPECT_EQ(sum.load(), 240);
}

// A hot device computes with fewer threads, and with all of them again when it has cooled.
TEST(ThreadPool, FewerCanBeActive) {
  const std::unique_ptr<ThreadPool> pool = MakePool(4);
  EXPECT_EQ(pool->active(), 4);
  const std::vector<int32_t> asked = {1, 2, 4, 3, 1, 4, 0, 9};
  for (int round = 0; round < 50; ++round) {
    for (const int32_t active : asked) {
      pool->SetActive(active);
      const int32_t expected = std::clamp(active, 1, 4);
      EXPECT_EQ(pool->active(), expected);
      std::atomic<int32_t> running{0}, most{0}, sum{0};
      pool->For(32, [&](int32_t tile, int32_t) {
        const int32_t now = running.fetch_add(1) + 1;
        for (int32_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        sum.fetch_add(tile);
        running.fetch_sub(1);
      });
      EXPECT_EQ(sum.load(), 32 * 31 / 2);
      if (expected == 1) {
        EXPECT_EQ(most.load(), 1);
      }
    }
  }
  // All of them help again: the thread in tile 0 waits there for the other three.
  pool->SetActive(4);
  std::atomic<int32_t> inside{0};
  pool->For(4, [&](int32_t, int32_t) {
    inside.fetch_add(1);
    while (inside.load() < 4) {
    }
  });
  EXPECT_EQ(inside.load(), 4);
}

// users.md row 90: more threads than cores are not started.
TEST(ThreadPool, NoMoreThreadsThanCores) {
  for (const int32_t cores : {1, 2, 3}) {
    auto pool = ThreadPool::Create(9, cores);
    ASSERT_TRUE(pool.ok());
    EXPECT_EQ((*pool)->threads(), cores);
    std::atomic<int32_t> running{0};
    std::atomic<int32_t> most{0};
    for (int round = 0; round < 300; ++round) {
      (*pool)->For(24, [&](int32_t, int32_t worker) {
        EXPECT_LT(worker, cores);
        const int32_t now = running.fetch_add(1) + 1;
        for (int32_t seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        running.fetch_sub(1);
      });
    }
    EXPECT_LE(most.load(), cores);
  }
  auto pool = ThreadPool::Create(kMaxThreads);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->threads(), UsableCores());
}

TEST(ThreadPool, RefusedThreadIsAStatusAndLeavesNothingRunning) {
  for (int32_t nth = 1; nth <= 3; ++nth) {
    FailThreadStartForTest(nth);
    const auto pool = ThreadPool::Create(4, 4);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.status().code(), StatusCode::kIo);
  }
  FailThreadStartForTest(0);
  EXPECT_TRUE(ThreadPool::Create(4, 4).ok());
}

TEST(ThreadPool, RejectsCountsOutOfRange) {
  for (const int32_t threads : {0, -1, kMaxThreads + 1}) {
    const auto pool = ThreadPool::Create(threads);
    ASSERT_FALSE(pool.ok());
    EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cellm::platform
