// Many requests on one engine: the logits of each are those of its lone run, whatever happened to
// it and around it.
#include "engine/serving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "platform/clock.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "support/random_file.h"
#include "support/tiny_model.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::MemoryRandomFile;
using ::cellm::testing::RandomTokens;

// One greedy request: hashes of the rows of logits that it chose from, and what it chose.
struct Greedy {
  int32_t limit = 0;
  std::vector<uint64_t> rows;
  std::vector<int32_t> chosen;
  bool fail_next = false;

  static uint64_t HashRow(std::span<const float> row) {
    return HashXxh3({reinterpret_cast<const uint8_t*>(row.data()), row.size() * sizeof(float)});
  }
  static int32_t Largest(std::span<const float> row) {
    return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
  }
  static Result<Choice> Choose(void* user, std::span<const float> row) {
    Greedy& self = *static_cast<Greedy*>(user);
    if (self.fail_next) return Internal("this request fails on purpose");
    self.rows.push_back(HashRow(row));
    self.chosen.push_back(Largest(row));
    return Choice{self.chosen.back(), static_cast<int32_t>(self.chosen.size()) >= self.limit};
  }
  RequestHooks hooks() { return {this, nullptr, &Greedy::Choose, nullptr}; }
};

// The same without anything around it.
Greedy LoneRun(Engine& engine, const std::vector<int32_t>& prompt, int32_t limit, int32_t planned) {
  Greedy run;
  const auto sequence = engine.CreateSequence(planned);
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  std::vector<int32_t> tokens = prompt;
  size_t at = 0;
  while (static_cast<int32_t>(run.chosen.size()) < limit) {
    const StepItem item{*sequence, std::span<const int32_t>(tokens).subspan(at), LogitRows::kLast};
    const auto output = engine.Step({&item, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    if (!output.ok()) break;
    at = tokens.size();
    const std::span<const float> row(output->logits.row(0),
                                     static_cast<size_t>(engine.info().vocab_size));
    run.rows.push_back(Greedy::HashRow(row));
    run.chosen.push_back(Greedy::Largest(row));
    tokens.push_back(run.chosen.back());
  }
  EXPECT_TRUE(engine.FreeSequence(*sequence).ok());
  return run;
}

struct Case {
  Serving* serving = nullptr;
  uint64_t id = 0;
  std::vector<int32_t> prompt;
  int32_t planned = 0;
  bool cancelled = false;
  std::unique_ptr<Greedy> greedy = std::make_unique<Greedy>();
};

// What a scenario did, so that a sweep can be seen to have met everything.
struct Met {
  int64_t requests = 0, finished = 0, cancelled = 0, paused = 0, swapped = 0, dropped = 0,
          reused = 0, swap_failures = 0, refused = 0;
};

// One random scenario on one model.
void RunScenario(const std::shared_ptr<const Model>& model, uint64_t seed, Met* met) {
  SCOPED_TRACE(::testing::Message() << model->info.family << ", seed " << seed);
  Rng rng(seed);
  EngineOptions options;
  options.threads = 1 + static_cast<int32_t>(rng.NextBelow(2));
  options.context_tokens = 160;
  options.page_tokens = rng.NextBelow(2) == 0 ? 16 : 32;
  options.chunk_rows = 24 + static_cast<int32_t>(rng.NextBelow(60));
  options.logit_rows = 1 + static_cast<int32_t>(rng.NextBelow(6));
  options.max_sequences = 2 + static_cast<int32_t>(rng.NextBelow(6));
  const int64_t one = MostBytesPerSequence(model->info.layers, options.kv_type, options.page_tokens,
                                           options.context_tokens);
  // From barely one sequence to room for five.
  options.cache_bytes = static_cast<uint64_t>(one) + static_cast<uint64_t>(one) * rng.NextBelow(5);
  auto created = Engine::Create(model, options);
  ASSERT_TRUE(created.ok()) << created.status().message();
  Engine& engine = **created;

  ServingOptions serving_options;
  serving_options.clock = &platform::MonotonicClock();
  serving_options.policy =
      rng.NextBelow(2) == 0 ? SchedulePolicy::kDeadline : SchedulePolicy::kRoundRobin;
  serving_options.chunk_tokens = 1 + static_cast<int32_t>(rng.NextBelow(40));
  serving_options.checkpoint_tokens = rng.NextBelow(2) == 0 ? 0 : 32;
  serving_options.step_budget_ns = 1 + static_cast<int64_t>(rng.NextBelow(3'000'000));
  MemoryRandomFile* disk = nullptr;
  if (rng.NextBelow(3) != 0) {
    auto file = std::make_unique<MemoryRandomFile>();
    disk = file.get();
    serving_options.swap = std::move(file);
    serving_options.swap_bytes = static_cast<uint64_t>(one) * (1 + rng.NextBelow(6));
  }
  Serving serving(engine, std::move(serving_options));
  Serving::Lock lock = serving.Acquire();

  // Prompts begin alike now and then.
  const int32_t vocabulary = model->info.vocab_size;
  const std::vector<int32_t> stem = RandomTokens(90, vocabulary, seed * 3 + 1);
  std::vector<Case> cases;
  const int32_t submissions = 3 + static_cast<int32_t>(rng.NextBelow(6));
  int32_t submitted = 0;
  for (int step = 0; step < 4000; ++step) {
    if (submitted < submissions && rng.NextBelow(4) == 0) {
      ++submitted;
      ++met->requests;
      Case one_case;
      const size_t shared = rng.NextBelow(3) == 0 ? 0 : rng.NextBelow(stem.size());
      one_case.prompt.assign(stem.begin(), stem.begin() + static_cast<std::ptrdiff_t>(shared));
      const std::vector<int32_t> own =
          RandomTokens(1 + static_cast<int32_t>(rng.NextBelow(50)), vocabulary, rng.NextU64());
      one_case.prompt.insert(one_case.prompt.end(), own.begin(), own.end());
      one_case.greedy->limit = 1 + static_cast<int32_t>(rng.NextBelow(14));
      one_case.planned =
          std::min<int32_t>(options.context_tokens,
                            static_cast<int32_t>(one_case.prompt.size()) + one_case.greedy->limit);
      RequestSpec spec;
      spec.tokens = one_case.prompt;
      spec.planned_tokens = one_case.planned;
      spec.latency_class =
          rng.NextBelow(3) == 0 ? LatencyClass::kBackground : LatencyClass::kInteractive;
      spec.weight = 1 + static_cast<uint32_t>(rng.NextBelow(3));
      spec.keep_past = rng.NextBelow(4) != 0;
      spec.share_key = rng.NextBelow(5) == 0 ? 7 : 0;
      spec.hooks = one_case.greedy->hooks();
      const auto id = serving.Submit(lock, std::move(spec));
      ASSERT_TRUE(id.ok()) << id.status().message();
      one_case.id = *id;
      serving.AllowTokens(lock, *id, 1 + static_cast<int32_t>(rng.NextBelow(3)));
      cases.push_back(std::move(one_case));
    }
    if (rng.NextBelow(60) == 0 && !cases.empty()) {
      Case& victim = cases[rng.NextBelow(cases.size())];
      if (serving.progress(lock, victim.id).end == RequestEnd::kNone) {
        serving.Cancel(lock, victim.id);
        victim.cancelled = true;
      }
    }
    if (rng.NextBelow(200) == 0) serving.ForgetPasts(lock, rng.NextBelow(2) * 7);
    if (disk != nullptr && rng.NextBelow(100) == 0) disk->set_full(rng.NextBelow(2) == 0);
    if (disk != nullptr && rng.NextBelow(100) == 0) disk->Damage(rng.NextU64());
    bool all_ended = submitted == submissions;
    for (const Case& each : cases) {
      if (serving.progress(lock, each.id).end != RequestEnd::kNone) continue;
      all_ended = false;
      if (rng.NextBelow(2) == 0) serving.AllowTokens(lock, each.id, 2);
    }
    if (all_ended) break;
    const auto ran = serving.DriveOnce(lock);
    ASSERT_TRUE(ran.ok());
    serving.CheckInvariants(lock);
    const CacheStats& cache = engine.cache_stats();
    ASSERT_LE(cache.page_bytes_used + cache.page_bytes_free + cache.state_bytes,
              options.cache_bytes);
  }
  const ServingStats stats = serving.stats(lock);
  met->paused += stats.preempted_paused;
  met->swapped += stats.preempted_swapped;
  met->dropped += stats.preempted_dropped;
  met->swap_failures += stats.swap_failures;

  EngineOptions plain = options;
  plain.threads = 1;
  plain.cache_bytes = 0;
  plain.chunk_rows = 160;
  auto lone_engine = Engine::Create(model, plain);
  ASSERT_TRUE(lone_engine.ok());
  for (const Case& each : cases) {
    const RequestProgress& progress = serving.progress(lock, each.id);
    if (each.cancelled) {
      ASSERT_NE(progress.end, RequestEnd::kNone);
      ++met->cancelled;
    } else {
      ASSERT_EQ(progress.end, RequestEnd::kDone) << progress.status.message();
      ++met->finished;
      EXPECT_EQ(static_cast<int32_t>(each.greedy->chosen.size()), each.greedy->limit);
    }
    met->reused += progress.reused > 0 ? 1 : 0;
    // Also of a cancelled one: what it had chosen by then was right.
    const Greedy lone = LoneRun(**lone_engine, each.prompt,
                                static_cast<int32_t>(each.greedy->chosen.size()), each.planned);
    EXPECT_EQ(each.greedy->chosen, lone.chosen);
    EXPECT_EQ(each.greedy->rows, lone.rows);
  }
  for (const Case& each : cases) serving.Close(lock, each.id);
  serving.CheckInvariants(lock);
}

int32_t ScenariosPerModel() {
  const char* const wanted = std::getenv("CELLM_TEST_SCENARIOS");
  if (wanted != nullptr) return std::atoi(wanted);
  return std::getenv("CELLM_TEST_LONG") != nullptr ? 1700 : 34;
}

class ServingZoo : public ::testing::TestWithParam<const char*> {};

TEST_P(ServingZoo, EveryRequestIsItsLoneRun) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  const auto opened = ::cellm::testing::OpenEngine(folder, EngineOptions());
  ASSERT_NE(opened, nullptr);
  Met met;
  for (int32_t i = 0; i < ScenariosPerModel() && !HasFatalFailure(); ++i) {
    RunScenario(opened->shared_model(), 1000 + static_cast<uint64_t>(i), &met);
  }
  std::printf(
      "%lld requests: %lld finished, %lld cancelled, %lld reused a past; %lld paused, "
      "%lld swapped, %lld dropped, %lld swaps failed\n",
      static_cast<long long>(met.requests), static_cast<long long>(met.finished),
      static_cast<long long>(met.cancelled), static_cast<long long>(met.reused),
      static_cast<long long>(met.paused), static_cast<long long>(met.swapped),
      static_cast<long long>(met.dropped), static_cast<long long>(met.swap_failures));
  if (ScenariosPerModel() < 30) return;
  // A sweep that meets none of these proves nothing about them.
  EXPECT_GT(met.cancelled, 0);
  EXPECT_GT(met.reused, 0);
  EXPECT_GT(met.swapped + met.dropped, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ServingZoo,
                         ::testing::Values("llama", "qwen3_5", "gemma3", "gemma4", "lfm2",
                                           "qwen3_moe"));

}  // namespace
}  // namespace cellm
