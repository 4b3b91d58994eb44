// Older tokens in fewer bits: by position alone, so that no schedule shows in the logits; what is
// not old, and what belongs to others, stays as it is to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "engine/serving.h"
#include "support/memory_files.h"
#include "support/random_file.h"
#include "support/tiny_model.h"

namespace cellm {
namespace {

using ::cellm::testing::RandomTokens;

constexpr int32_t kContext = 1600;
constexpr int32_t kAfter = 100;
// The first position that sees a demoted segment: that of the 100th token behind the first 512.
constexpr int32_t kFirst = kKvSegment + kAfter;

std::shared_ptr<const Model> LoadSmall(int32_t window = 0) {
  ::cellm::testing::TinyLlama spec;
  spec.max_context = kContext;
  spec.window = window;
  return ::cellm::testing::LoadTiny(::cellm::testing::TinyLlamaFile(spec));
}

EngineOptions Demoting(KvTypes newer, KvTypes older) {
  EngineOptions options;
  options.threads = 1;
  options.page_tokens = 32;
  options.logit_rows = 512;
  options.kv_type = newer;
  options.demoted_type = older;
  options.demote_after = kAfter;
  return options;
}

std::unique_ptr<Engine> MakeEngine(const std::shared_ptr<const Model>& model,
                                   const EngineOptions& options) {
  auto engine = Engine::Create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

// The logits after each of `tokens`, in chunks of 1 to `most_chunk` tokens drawn from `seed`.
std::vector<std::vector<float>> LogitsOf(Engine& engine, const std::vector<int32_t>& tokens,
                                         int32_t most_chunk, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::vector<float>> rows;
  const SequenceId id = *engine.CreateSequence();
  for (size_t at = 0; at < tokens.size();) {
    const int32_t position = static_cast<int32_t>(at);
    const size_t count =
        std::min({tokens.size() - at, 1 + rng.NextBelow(static_cast<uint64_t>(most_chunk)),
                  static_cast<size_t>(engine.MostTokens(position))});
    const StepItem item{id, std::span(tokens).subspan(at, count), LogitRows::kAll};
    const auto output = engine.Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    if (!output.ok()) return rows;
    for (int32_t r = 0; r < output->items[0].row_count; ++r) {
      const float* const row = output->logits.row(r);
      rows.emplace_back(row, row + engine.info().vocab_size);
    }
    at += count;
    engine.CheckInvariants();
    EXPECT_EQ(engine.cache_stats().page_bytes_used,
              static_cast<uint64_t>(
                  BytesPerSequence(engine.info().layers, engine.options().storage(),
                                   engine.options().page_tokens, static_cast<int64_t>(at))));
  }
  EXPECT_TRUE(engine.FreeSequence(id).ok());
  engine.CheckInvariants();
  EXPECT_EQ(engine.cache_stats().page_bytes_used, 0u);
  return rows;
}

// |a - b| over |b|.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

TEST(Demotion, BytesByHand) {
  LayerStateSpec full;
  full.kv_heads = 2;
  full.head_dim = full.head_dim_v = 32;
  LayerStateSpec window = full;
  window.window = 64;
  const KvStorage storage(KvType::kF16, KvType::kQ4, kAfter);
  const int64_t newer = 2 * (64 + 64);  // bytes of a token
  const int64_t older = 2 * 2 * (32 / 2 + 2);
  EXPECT_EQ(BytesPerSequence({&full, 1}, storage, 32, kFirst - 1), 20 * 32 * newer);
  EXPECT_EQ(BytesPerSequence({&full, 1}, storage, 32, kFirst), 4 * 32 * newer + 512 * older);
  EXPECT_EQ(BytesPerSequence({&full, 1}, storage, 32, 1500), 15 * 32 * newer + 1024 * older);
  // The step that demotes holds the 16 pages in both forms.
  EXPECT_EQ(PeakBytesPerSequence({&full, 1}, storage, 32, kFirst - 1, 1),
            20 * 32 * newer + 512 * older);
  EXPECT_EQ(BytesPerSequence({&window, 1}, storage, 32, 1500),
            BytesPerSequence({&window, 1}, KvType::kF16, 32, 1500));
  for (const LayerStateSpec& layer : {full, window}) {
    int64_t most = 0;
    for (int64_t tokens = 1; tokens <= kContext; ++tokens) {
      most = std::max(most, PeakBytesPerSequence({&layer, 1}, storage, 32, tokens - 1, 1));
      ASSERT_EQ(MostBytesPerSequence({&layer, 1}, storage, 32, tokens), most) << tokens;
    }
  }
}

struct Pair {
  KvTypes newer, older;
};
class DemotionPairs : public ::testing::TestWithParam<Pair> {};

TEST_P(DemotionPairs, OldTokensAloneAreOther) {
  const auto model = LoadSmall();
  const std::vector<int32_t> tokens = RandomTokens(1300, 96, 5);
  EngineOptions options = Demoting(GetParam().newer, GetParam().older);
  const auto demoting = MakeEngine(model, options);
  const auto by_chunks = LogitsOf(*demoting, tokens, 200, 1);
  ASSERT_EQ(by_chunks.size(), tokens.size());

  // Chunks and threads cannot be seen.
  options.threads = 3;
  const auto threaded = MakeEngine(model, options);
  EXPECT_EQ(LogitsOf(*threaded, tokens, 17, 2), by_chunks);

  // Before the first demotion it is the engine that never demotes. Behind it, it lies between that
  // one and the engine that keeps all tokens in fewer bits.
  options.demote_after = -1;
  const auto plain_rows = LogitsOf(*MakeEngine(model, options), tokens, 200, 3);
  options.kv_type = GetParam().older;
  const auto low_rows = LogitsOf(*MakeEngine(model, options), tokens, 200, 4);
  double demoted = 0;
  double low = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (static_cast<int32_t>(i) < kFirst) {
      ASSERT_EQ(by_chunks[i], plain_rows[i]) << i;
      continue;
    }
    demoted += Distance(by_chunks[i], plain_rows[i]);
    low += Distance(low_rows[i], plain_rows[i]);
  }
  EXPECT_GT(demoted, 0) << "nothing was demoted";
  EXPECT_LT(demoted, low);
  std::printf("mean distance of logits: %.4f demoted, %.4f all in fewer bits\n",
              demoted / (1300 - kFirst), low / (1300 - kFirst));
}

INSTANTIATE_TEST_SUITE_P(Formats, DemotionPairs,
                         ::testing::Values(Pair{KvType::kF32, KvType::kQ8},
                                           Pair{KvType::kF16, KvType::kQ4},
                                           Pair{KvType::kF16, KvTypes(KvType::kQ8, KvType::kQ4)},
                                           Pair{KvType::kQ8, KvType::kTq3_5},
                                           Pair{KvType::kQ4, KvType::kTq2_5}));

// What a fork or a snapshot holds stays as it was when the other goes on.
TEST(Demotion, PagesOfOthersStay) {
  const auto model = LoadSmall();
  const std::vector<int32_t> tokens = RandomTokens(700, 96, 6);
  const auto engine = MakeEngine(model, Demoting(KvType::kF16, KvType::kQ4));
  const auto alone = LogitsOf(*engine, tokens, 100, 4);
  const SequenceId first = *engine->CreateSequence();
  const auto step = [&](SequenceId id, size_t at, size_t count) {
    const StepItem item{id, std::span(tokens).subspan(at, count), LogitRows::kLast};
    const auto output = engine->Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    const float* const row = output->logits.row(0);
    engine->CheckInvariants();
    return std::vector<float>(row, row + engine->info().vocab_size);
  };
  EXPECT_EQ(step(first, 0, 300), alone[299]);
  EXPECT_EQ(step(first, 300, 300), alone[599]);
  const SequenceId second = *engine->Fork(first);
  const int32_t snapshot = *engine->TakeSnapshot(first);
  const auto contents = [&] {
    uint64_t hash = 0;
    for (const std::span<uint8_t> piece : engine->cache().Contents(snapshot)) {
      hash = hash * 31 + HashXxh3(piece);
    }
    return hash;
  };
  const uint64_t before = contents();
  EXPECT_EQ(step(first, 600, static_cast<size_t>(engine->MostTokens(600))), alone[kFirst - 1]);
  EXPECT_EQ(step(first, kFirst, 88), alone[699]);
  EXPECT_EQ(contents(), before);
  // The fork is still where all tokens are as they were.
  EXPECT_EQ(step(second, 600, 5), alone[604]);
  EXPECT_EQ(step(second, 605, 7), alone[kFirst - 1]);
  EXPECT_EQ(step(second, kFirst, 88), alone[699]);

  // Nobody can begin where they were whole from where they are not.
  const int32_t later = *engine->TakeSnapshot(first);
  EXPECT_FALSE(engine->cache().CanCut(700, kFirst - 1));
  EXPECT_TRUE(engine->cache().CanCut(700, kFirst));
  const SequenceId third = *engine->CreateSequenceFrom(later, 650, 0);
  EXPECT_EQ(step(third, 650, 50), alone[699]);
  EXPECT_EQ(engine->Rewind(third, 600).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(engine->Rewind(third, 620).ok());
  EXPECT_EQ(step(third, 620, 80), alone[699]);
  EXPECT_TRUE(engine->Rewind(third, 0).ok());
  EXPECT_EQ(step(third, 0, 300), alone[299]);
  engine->cache().DropSnapshot(snapshot);
  engine->cache().DropSnapshot(later);
  for (const SequenceId id : {first, second, third}) EXPECT_TRUE(engine->FreeSequence(id).ok());
  EXPECT_EQ(engine->cache_stats().page_bytes_used, 0u);
  engine->CheckInvariants();
}

TEST(Demotion, WindowsForgetInstead) {
  const auto model = LoadSmall(128);
  const std::vector<int32_t> tokens = RandomTokens(900, 96, 7);
  EngineOptions options = Demoting(KvType::kF16, KvType::kQ4);
  const auto demoting = MakeEngine(model, options);
  options.demote_after = -1;
  const auto plain = MakeEngine(model, options);
  EXPECT_EQ(LogitsOf(*demoting, tokens, 100, 1), LogitsOf(*plain, tokens, 100, 1));
  EXPECT_EQ(demoting->DemotedTokens(900), 0);
}

TEST(Demotion, SaysWhatIsWrong) {
  const auto model = LoadSmall();
  const auto refused = [&](KvTypes newer, KvTypes older, int32_t page_tokens) {
    EngineOptions options = Demoting(newer, older);
    options.page_tokens = page_tokens;
    return Engine::Create(model, options).status().code();
  };
  EXPECT_EQ(refused(KvType::kF16, KvType::kF16, 32), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(KvType::kQ4, KvType::kQ8, 32), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(KvType::kF16, KvType::kQ4, 48), StatusCode::kUnsupported);
  const auto engine = MakeEngine(model, Demoting(KvType::kF16, KvType::kQ4));
  const SequenceId id = *engine->CreateSequence();
  const std::vector<int32_t> tokens = RandomTokens(700, 96, 8);
  StepItem item{id, std::span(tokens).first(512), LogitRows::kNone};
  ASSERT_TRUE(engine->Step({&item, 1}).ok());
  EXPECT_EQ(engine->MostTokens(512), kAfter);
  item.tokens = std::span(tokens).subspan(512, kAfter + 1);
  EXPECT_EQ(engine->Step({&item, 1}).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(*engine->Position(id), 512);
}

// ---- under pressure ----

struct Reply {
  size_t limit = 0;
  std::vector<int32_t> chosen;
  std::vector<uint64_t> rows;
  static Result<Choice> Choose(void* user, std::span<const float> row) {
    Reply& self = *static_cast<Reply*>(user);
    self.rows.push_back(
        HashXxh3({reinterpret_cast<const uint8_t*>(row.data()), row.size() * sizeof(float)}));
    self.chosen.push_back(
        static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    return Choice{self.chosen.back(), self.chosen.size() >= self.limit};
  }
};

// Every reading is a millisecond after the one before: who gives way does not depend on how fast
// this build is.
class TickingClock final : public Clock {
 public:
  int64_t NowNs() override { return now_ns_ += 1'000'000; }

 private:
  int64_t now_ns_ = 0;
};

Reply Alone(Engine& engine, std::vector<int32_t> tokens, size_t limit) {
  Reply reply;
  reply.limit = limit;
  const SequenceId id = *engine.CreateSequence();
  for (size_t at = 0; reply.chosen.size() < limit;) {
    const size_t most = static_cast<size_t>(engine.MostTokens(static_cast<int32_t>(at)));
    const size_t count = std::min({tokens.size() - at, most, size_t{256}});
    const bool last = at + count == tokens.size();
    const StepItem item{id, std::span(tokens).subspan(at, count),
                        last ? LogitRows::kLast : LogitRows::kNone};
    const auto output = engine.Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    if (!output.ok()) return reply;
    at += count;
    if (!last) continue;
    (void)Reply::Choose(&reply,
                        {output->logits.row(0), static_cast<size_t>(engine.info().vocab_size)});
    tokens.push_back(reply.chosen.back());
  }
  EXPECT_TRUE(engine.FreeSequence(id).ok());
  return reply;
}

// Room for less than two, with and without a swap file, beginnings shared: each reply is the lone
// one, also where a request was dropped after its tokens had been demoted.
TEST(Demotion, EachReplyIsTheLoneOneUnderPressure) {
  const auto model = LoadSmall();
  for (const bool with_swap : {false, true}) {
    SCOPED_TRACE(with_swap);
    Rng rng(with_swap ? 11 : 12);
    EngineOptions options = Demoting(KvType::kF16, KvType::kQ4);
    options.chunk_rows = 256;
    options.max_sequences = 4;
    const auto lone = MakeEngine(model, options);
    const uint64_t one = static_cast<uint64_t>(
        MostBytesPerSequence(model->info.layers, options.storage(), 32, kContext));
    options.cache_bytes = one + one * 2 / 3;
    const auto engine = MakeEngine(model, options);
    ServingOptions serving_options;
    TickingClock clock;
    serving_options.clock = &clock;
    if (with_swap) {
      serving_options.swap = std::make_unique<::cellm::testing::MemoryRandomFile>();
      serving_options.swap_bytes = 8 * one;
    }
    Serving serving(*engine, std::move(serving_options));
    Serving::Lock lock = serving.Acquire();
    const std::vector<int32_t> stem = RandomTokens(1000, 96, 9);
    struct Case {
      uint64_t id;
      std::vector<int32_t> prompt;
      std::unique_ptr<Reply> reply = std::make_unique<Reply>();
    };
    std::vector<Case> cases;
    for (int i = 0; i < 6; ++i) {
      Case one_case;
      one_case.prompt.assign(stem.begin(),
                             stem.begin() + static_cast<ptrdiff_t>(rng.NextBelow(900)));
      const std::vector<int32_t> own =
          RandomTokens(1 + static_cast<int32_t>(rng.NextBelow(500)), 96, rng.NextU64());
      one_case.prompt.insert(one_case.prompt.end(), own.begin(), own.end());
      one_case.reply->limit = 20 + rng.NextBelow(60);
      RequestSpec spec;
      spec.tokens = one_case.prompt;
      spec.planned_tokens = kContext;
      spec.latency_class = i % 2 == 0 ? LatencyClass::kInteractive : LatencyClass::kBackground;
      spec.hooks = {one_case.reply.get(), nullptr, &Reply::Choose, nullptr};
      const auto id = serving.Submit(lock, std::move(spec));
      ASSERT_TRUE(id.ok()) << id.status().message();
      one_case.id = *id;
      serving.AllowTokens(lock, *id, 1000);
      cases.push_back(std::move(one_case));
    }
    const auto done = [&] {
      return std::all_of(cases.begin(), cases.end(), [&](const Case& each) {
        return serving.progress(lock, each.id).end != RequestEnd::kNone;
      });
    };
    for (int step = 0; step < 20000 && !done(); ++step) {
      ASSERT_TRUE(serving.DriveOnce(lock).ok());
      serving.CheckInvariants(lock);
      const CacheStats& cache = engine->cache_stats();
      ASSERT_LE(cache.page_bytes_used + cache.page_bytes_free + cache.state_bytes,
                options.cache_bytes);
    }
    const ServingStats stats = serving.stats(lock);
    EXPECT_GT(stats.preempted_swapped + stats.preempted_dropped + stats.preempted_paused, 0);
    for (const Case& each : cases) {
      const RequestProgress& progress = serving.progress(lock, each.id);
      ASSERT_EQ(progress.end, RequestEnd::kDone) << progress.status.message();
      const Reply expected = Alone(*lone, each.prompt, each.reply->limit);
      EXPECT_EQ(each.reply->chosen, expected.chosen);
      EXPECT_EQ(each.reply->rows, expected.rows);
    }
    for (const Case& each : cases) serving.Close(lock, each.id);
  }
}

}  // namespace
}  // namespace cellm
