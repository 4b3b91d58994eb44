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
#include "platform/thread.h"
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

// A request for the states of its tokens: their hashes by position.
struct States {
  std::vector<uint64_t> rows;

  static Status Take(void* user, int32_t position, Rows states) {
    States& self = *static_cast<States*>(user);
    for (int32_t r = 0; r < states.rows; ++r) {
      const size_t at = static_cast<size_t>(position + r);
      const uint64_t hash = Greedy::HashRow({states.row(r), static_cast<size_t>(states.cols)});
      EXPECT_LE(at, self.rows.size()) << "a token was left out";
      if (at == self.rows.size()) self.rows.push_back(hash);
      if (at >= self.rows.size()) continue;
      EXPECT_EQ(self.rows[at], hash) << "evaluated again, to other bits";
    }
    return OkStatus();
  }
};

// All tokens in one step.
States LoneStates(Engine& engine, const std::vector<int32_t>& tokens, int32_t planned) {
  States states;
  const auto sequence = engine.CreateSequence(planned);
  EXPECT_TRUE(sequence.ok()) << sequence.status().message();
  const StepItem item{*sequence, tokens, LogitRows::kNone, true};
  const auto output = engine.Step({&item, 1});
  EXPECT_TRUE(output.ok()) << output.status().message();
  EXPECT_TRUE(States::Take(&states, 0, output->items[0].states).ok());
  EXPECT_TRUE(engine.FreeSequence(*sequence).ok());
  return states;
}

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
  std::unique_ptr<States> states;  // instead of a reply
};

// What a scenario did, so that a sweep can be seen to have met everything.
struct Met {
  int64_t requests = 0, finished = 0, cancelled = 0, paused = 0, swapped = 0, dropped = 0,
          reused = 0, swap_failures = 0, refused = 0, states = 0;
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
      if (rng.NextBelow(5) == 0) {
        ++met->states;
        one_case.states = std::make_unique<States>();
        one_case.greedy->limit = 0;
        spec.wants_logits = false;
        spec.wants_states = true;
        spec.hooks.user = one_case.states.get();
        spec.hooks.states = &States::Take;
      }
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
    if (each.states != nullptr) {
      const States lone_states = LoneStates(**lone_engine, each.prompt, each.planned);
      EXPECT_EQ(progress.reused, 0);
      ASSERT_LE(each.states->rows.size(), lone_states.rows.size());
      if (!each.cancelled) {
        EXPECT_EQ(each.states->rows.size(), lone_states.rows.size());
      }
      EXPECT_TRUE(
          std::equal(each.states->rows.begin(), each.states->rows.end(), lone_states.rows.begin()));
      continue;
    }
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
  EXPECT_GT(met.states, 0);
  EXPECT_GT(met.swapped + met.dropped, 0);
}

// ---- a small model, for what is not about families ----

struct Small {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Serving> serving;
};

EngineOptions SmallOptions() {
  EngineOptions options;
  options.threads = 1;
  options.context_tokens = 256;
  options.page_tokens = 16;
  options.chunk_rows = 64;
  return options;
}

Small MakeSmall(const EngineOptions& options, ServingOptions serving_options) {
  Small small;
  ::cellm::testing::TinyLlama spec;
  small.model = ::cellm::testing::LoadTiny(::cellm::testing::TinyLlamaFile(spec));
  auto engine = Engine::Create(small.model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  small.engine = std::move(engine).value();
  if (serving_options.clock == nullptr) serving_options.clock = &platform::MonotonicClock();
  small.serving = std::make_unique<Serving>(*small.engine, std::move(serving_options));
  return small;
}

RequestSpec SpecOf(const std::vector<int32_t>& prompt, Greedy* greedy) {
  RequestSpec spec;
  spec.tokens = prompt;
  spec.planned_tokens = static_cast<int32_t>(prompt.size()) + greedy->limit;
  spec.hooks = greedy->hooks();
  return spec;
}

// Whoever waits drives; the others sleep. Each thread gets what it would get alone.
TEST(Serving, ThreadsShareTheSteps) {
  Small small = MakeSmall(SmallOptions(), ServingOptions());
  constexpr int kThreads = 4;
  constexpr int kRounds = 5;
  struct Worker {
    Serving* serving;
    int number;
    Greedy results[kRounds];
  };
  std::vector<Worker> workers(kThreads);
  std::vector<platform::Thread> threads;
  const auto prompt = [](int worker, int round) {
    return RandomTokens(20 + worker * 7 + round, 96, static_cast<uint64_t>(worker * 100 + round));
  };
  for (int i = 0; i < kThreads; ++i) {
    workers[static_cast<size_t>(i)].serving = small.serving.get();
    workers[static_cast<size_t>(i)].number = i;
    auto thread = platform::Thread::Start(
        [](void* arg) {
          Worker& worker = *static_cast<Worker*>(arg);
          for (int round = 0; round < kRounds; ++round) {
            Greedy& greedy = worker.results[round];
            greedy.limit = 12;
            Serving::Lock lock = worker.serving->Acquire();
            RequestSpec spec =
                SpecOf(RandomTokens(20 + worker.number * 7 + round, 96,
                                    static_cast<uint64_t>(worker.number * 100 + round)),
                       &greedy);
            const auto id = worker.serving->Submit(lock, std::move(spec));
            worker.serving->AllowTokens(lock, *id, 100);
            if (round == 3) worker.serving->Cancel(lock, *id);
            const Status waited = worker.serving->WaitUntil(
                lock, [&] { return worker.serving->progress(lock, *id).end != RequestEnd::kNone; });
            EXPECT_TRUE(waited.ok());
            worker.serving->Close(lock, *id);
          }
        },
        &workers[static_cast<size_t>(i)]);
    ASSERT_TRUE(thread.ok());
    threads.push_back(std::move(thread).value());
  }
  threads.clear();  // joins
  auto lone = Engine::Create(small.model, SmallOptions());
  ASSERT_TRUE(lone.ok());
  for (const Worker& worker : workers) {
    for (int round = 0; round < kRounds; ++round) {
      const Greedy& got = worker.results[round];
      if (round != 3) {
        EXPECT_EQ(got.chosen.size(), 12u);
      }
      const std::vector<int32_t> tokens = prompt(worker.number, round);
      const Greedy expected = LoneRun(**lone, tokens, static_cast<int32_t>(got.chosen.size()),
                                      static_cast<int32_t>(tokens.size()) + 12);
      EXPECT_EQ(got.rows, expected.rows) << worker.number << ", round " << round;
    }
  }
}

// users.md row 10: what a session, or another one, has evaluated is not evaluated again.
TEST(Serving, PastsAreReusedAndForgotten) {
  Small small = MakeSmall(SmallOptions(), ServingOptions());
  Serving& serving = *small.serving;
  Serving::Lock lock = serving.Acquire();
  const std::vector<int32_t> prompt = RandomTokens(100, 96, 5);
  const auto run = [&](uint64_t share_key) {
    Greedy greedy;
    greedy.limit = 3;
    RequestSpec spec = SpecOf(prompt, &greedy);
    spec.share_key = share_key;
    const auto id = serving.Submit(lock, std::move(spec));
    EXPECT_TRUE(id.ok());
    serving.AllowTokens(lock, *id, 10);
    EXPECT_TRUE(
        serving
            .WaitUntil(lock, [&] { return serving.progress(lock, *id).end != RequestEnd::kNone; })
            .ok());
    const int32_t reused = serving.progress(lock, *id).reused;
    serving.Close(lock, *id);
    return reused;
  };
  EXPECT_EQ(run(0), 0);
  EXPECT_EQ(run(0), 99);  // all but the token whose logits are wanted
  EXPECT_EQ(run(7), 0);   // another key knows nothing of it
  EXPECT_EQ(run(7), 99);
  serving.ForgetPasts(lock, 7);
  EXPECT_EQ(run(7), 0);
  EXPECT_EQ(run(0), 99);
}

// users.md row 87: after admission nothing fails for lack of memory, and the budget holds through
// every step, whatever is done to it meanwhile.
TEST(Serving, BudgetHoldsWhileItIsChanged) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    BudgetAllocator budget(SystemAllocator(), UINT64_MAX);
    EngineOptions options = SmallOptions();
    options.allocator = &budget;
    ServingOptions serving_options;
    serving_options.budget = &budget;
    serving_options.swap = std::make_unique<MemoryRandomFile>();
    serving_options.swap_bytes = 1 << 20;
    Small small = MakeSmall(options, std::move(serving_options));
    Serving& serving = *small.serving;
    Serving::Lock lock = serving.Acquire();
    const uint64_t fixed = budget.used_bytes();
    const uint64_t one = static_cast<uint64_t>(
        MostBytesPerSequence(small.model->info.layers, options.kv_type, options.page_tokens, 256));
    // Tables and counts of pages beside them.
    const uint64_t least = fixed + one + (64 << 10);
    ASSERT_TRUE(serving.SetBudget(lock, least + 3 * one).ok());
    std::vector<std::unique_ptr<Greedy>> greedy;
    std::vector<uint64_t> ids;
    for (int step = 0; step < 600; ++step) {
      if (ids.size() < 8 && rng.NextBelow(3) == 0) {
        greedy.push_back(std::make_unique<Greedy>());
        greedy.back()->limit = 1 + static_cast<int32_t>(rng.NextBelow(60));
        const auto id = serving.Submit(
            lock,
            SpecOf(RandomTokens(1 + static_cast<int32_t>(rng.NextBelow(150)), 96, rng.NextU64()),
                   greedy.back().get()));
        ASSERT_TRUE(id.ok()) << id.status().message();
        serving.AllowTokens(lock, *id, 1000);
        ids.push_back(*id);
      }
      if (rng.NextBelow(10) == 0) {
        ASSERT_TRUE(serving.SetBudget(lock, least + one * rng.NextBelow(4)).ok());
      }
      ASSERT_TRUE(serving.DriveOnce(lock).ok());
      serving.CheckInvariants(lock);
      // At the end of a step; growth beyond the limit is refused by the allocator itself.
      ASSERT_LE(budget.used_bytes(), budget.limit_bytes());
    }
    const Status done = serving.WaitUntil(lock, [&] {
      for (const uint64_t id : ids) {
        if (serving.progress(lock, id).end == RequestEnd::kNone) return false;
      }
      return true;
    });
    ASSERT_TRUE(done.ok());
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(serving.progress(lock, ids[i]).end, RequestEnd::kDone)
          << serving.progress(lock, ids[i]).status.message();
      EXPECT_EQ(static_cast<int32_t>(greedy[i]->chosen.size()), greedy[i]->limit);
      serving.Close(lock, ids[i]);
    }
  }
}

// users.md row 84: what can never fit is refused at once and says needed and available.
TEST(Serving, RefusesWhatCanNeverFit) {
  EngineOptions options = SmallOptions();
  const auto bytes = [&](int32_t tokens) {
    ::cellm::testing::TinyLlama spec;
    const auto model = ::cellm::testing::LoadTiny(::cellm::testing::TinyLlamaFile(spec));
    return MostBytesPerSequence(model->info.layers, options.kv_type, options.page_tokens, tokens);
  };
  options.context_tokens = 0;
  options.cache_bytes = static_cast<uint64_t>(bytes(100));
  BudgetAllocator budget(SystemAllocator(), UINT64_MAX);
  ServingOptions serving_options;
  Small small = MakeSmall(options, std::move(serving_options));
  Serving::Lock lock = small.serving->Acquire();
  Greedy greedy;
  greedy.limit = 10;
  const auto fits = small.serving->Submit(lock, SpecOf(RandomTokens(80, 96, 1), &greedy));
  EXPECT_TRUE(fits.ok());
  const auto never = small.serving->Submit(lock, SpecOf(RandomTokens(400, 96, 1), &greedy));
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.status().code(), StatusCode::kOutOfRange) << never.status().message();
  small.serving->Close(lock, *fits);
}

// A request that fails does so alone.
TEST(Serving, AFailureIsNobodyElses) {
  Small small = MakeSmall(SmallOptions(), ServingOptions());
  Serving& serving = *small.serving;
  Serving::Lock lock = serving.Acquire();
  Greedy good;
  good.limit = 5;
  Greedy bad;
  bad.limit = 5;
  bad.fail_next = true;
  const auto first = serving.Submit(lock, SpecOf(RandomTokens(30, 96, 1), &good));
  const auto second = serving.Submit(lock, SpecOf(RandomTokens(30, 96, 2), &bad));
  serving.AllowTokens(lock, *first, 10);
  serving.AllowTokens(lock, *second, 10);
  ASSERT_TRUE(serving
                  .WaitUntil(lock,
                             [&] {
                               return serving.progress(lock, *first).end != RequestEnd::kNone &&
                                      serving.progress(lock, *second).end != RequestEnd::kNone;
                             })
                  .ok());
  EXPECT_EQ(serving.progress(lock, *first).end, RequestEnd::kDone);
  EXPECT_EQ(serving.progress(lock, *second).end, RequestEnd::kFailed);
  EXPECT_EQ(serving.progress(lock, *second).status.message(), "this request fails on purpose");
  serving.Close(lock, *first);
  serving.Close(lock, *second);
}

// users.md row 76: requests that come and go leave nothing behind.
TEST(Serving, AThousandRequestsLeaveMemoryFlat) {
  BudgetAllocator counted(SystemAllocator(), UINT64_MAX);
  EngineOptions options = SmallOptions();
  options.allocator = &counted;
  Small small = MakeSmall(options, ServingOptions());
  Serving& serving = *small.serving;
  Serving::Lock lock = serving.Acquire();
  uint64_t after_hundred = 0;
  for (int i = 0; i < 1000; ++i) {
    Greedy greedy;
    greedy.limit = 1;
    RequestSpec spec = SpecOf(RandomTokens(10, 96, static_cast<uint64_t>(i)), &greedy);
    spec.keep_past = i % 2 == 0;
    spec.share_key = 3;
    const auto id = serving.Submit(lock, std::move(spec));
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(
        serving
            .WaitUntil(lock, [&] { return serving.progress(lock, *id).end != RequestEnd::kNone; })
            .ok());
    serving.Close(lock, *id);
    if (i % 10 == 9) serving.ForgetPasts(lock, 3);
    if (i == 99) after_hundred = counted.used_bytes();
  }
  EXPECT_EQ(counted.used_bytes(), after_hundred);
  EXPECT_EQ(serving.stats(lock).pasts, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, ServingZoo,
                         ::testing::Values("llama", "qwen3_5", "gemma3", "gemma4", "lfm2",
                                           "qwen3_moe"));

}  // namespace
}  // namespace cellm
