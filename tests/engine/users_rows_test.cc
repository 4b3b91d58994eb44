// Cases that users of other engines reported, at the level of requests and sequences: each test
// names its row of the list of reports (users.md). Rows about schedules, contexts, budgets and heat
// have theirs beside the other tests of those.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/engine.h"
#include "engine/serving.h"
#include "platform/clock.h"
#include "support/paths.h"
#include "support/random_file.h"
#include "support/tiny_model.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::MemoryRandomFile;
using ::cellm::testing::RandomTokens;

constexpr int32_t kWindow = 32;
constexpr int32_t kPage = 16;

std::shared_ptr<const Model> TinyModel(int32_t window) {
  ::cellm::testing::TinyLlama spec;
  spec.window = window;
  return ::cellm::testing::LoadTiny(::cellm::testing::TinyLlamaFile(spec));
}

EngineOptions Options() {
  EngineOptions options;
  options.threads = 1;
  options.context_tokens = 320;
  options.page_tokens = kPage;
  options.chunk_rows = 64;
  return options;
}

// A greedy reply: what it said and hashes of the logits that it chose from.
struct Reply {
  int32_t limit = 0;
  std::vector<int32_t> said;
  std::vector<uint64_t> rows;

  static Result<Choice> Choose(void* user, std::span<const float> row) {
    Reply& self = *static_cast<Reply*>(user);
    self.rows.push_back(
        HashXxh3({reinterpret_cast<const uint8_t*>(row.data()), row.size() * sizeof(float)}));
    self.said.push_back(
        static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    return Choice{self.said.back(), static_cast<int32_t>(self.said.size()) >= self.limit};
  }
};

// An engine with its requests, driven by hand.
class Server {
 public:
  Server(std::shared_ptr<const Model> model, const EngineOptions& options, ServingOptions serving)
      : engine_(Engine::Create(std::move(model), options).value()) {
    serving.clock = &platform::MonotonicClock();
    serving_ = std::make_unique<Serving>(*engine_, std::move(serving));
    lock_ = serving_->Acquire();
  }

  Serving& serving() { return *serving_; }
  Serving::Lock& lock() { return lock_; }
  Engine& engine() { return *engine_; }

  uint64_t Submit(const std::vector<int32_t>& prompt, Reply* reply,
                  LatencyClass latency_class = LatencyClass::kInteractive, int32_t allowed = 1000) {
    RequestSpec spec;
    spec.tokens = prompt;
    spec.planned_tokens = static_cast<int32_t>(prompt.size()) + reply->limit;
    spec.latency_class = latency_class;
    spec.hooks = {reply, nullptr, &Reply::Choose, nullptr};
    const auto id = serving_->Submit(lock_, std::move(spec));
    EXPECT_TRUE(id.ok()) << id.status().message();
    if (!id.ok()) return 0;
    serving_->AllowTokens(lock_, *id, allowed);
    return *id;
  }
  const RequestProgress& progress(uint64_t id) { return serving_->progress(lock_, id); }
  bool Step() {
    const auto ran = serving_->DriveOnce(lock_);
    EXPECT_TRUE(ran.ok()) << ran.status().message();
    return ran.ok() && *ran;
  }
  // Submits, runs to the end, closes; returns how many tokens of the prompt were reused.
  int32_t Ask(const std::vector<int32_t>& prompt, Reply* reply) {
    const uint64_t id = Submit(prompt, reply);
    while (progress(id).end == RequestEnd::kNone && Step()) continue;
    EXPECT_EQ(progress(id).end, RequestEnd::kDone) << progress(id).status.message();
    const int32_t reused = progress(id).reused;
    serving_->Close(lock_, id);
    return reused;
  }
  ServingStats stats() { return serving_->stats(lock_); }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Serving> serving_;
  Serving::Lock lock_;
};

// users.md row 8: one request fifty times: one reply, and books that do not move.
TEST(UsersRows, FiftyRepeatsAreEqualAndLeaveTheSameBooks) {
  Server server(TinyModel(0), Options(), ServingOptions());
  const std::vector<int32_t> prompt = RandomTokens(90, 96, 8);
  std::vector<uint64_t> rows;
  CacheStats books;
  ServingStats kept;
  for (int i = 0; i < 50; ++i) {
    Reply reply;
    reply.limit = 12;
    const int32_t reused = server.Ask(prompt, &reply);
    EXPECT_EQ(reused, i == 0 ? 0 : 89);
    if (i == 0) {
      rows = reply.rows;
      books = server.engine().cache_stats();
      kept = server.stats();
    }
    EXPECT_EQ(reply.rows, rows) << "repeat " << i;
    const CacheStats& now = server.engine().cache_stats();
    EXPECT_EQ(now.page_bytes_used, books.page_bytes_used) << "repeat " << i;
    EXPECT_EQ(now.state_bytes, books.state_bytes) << "repeat " << i;
    EXPECT_EQ(server.stats().pasts, kept.pasts) << "repeat " << i;
    EXPECT_EQ(server.stats().past_bytes, kept.past_bytes) << "repeat " << i;
    server.serving().CheckInvariants(server.lock());
  }
}

// users.md row 22: models with windows or recurrent layers evaluate the new tokens of a second turn
// and not the first turn again.
void SecondTurnCostsItsTokens(const std::shared_ptr<const Model>& model) {
  ASSERT_NE(model, nullptr);
  Server server(model, Options(), ServingOptions());
  const int32_t vocabulary = model->info.vocab_size;
  std::vector<int32_t> talk = RandomTokens(200, vocabulary, 22);
  for (int turn = 0; turn < 3; ++turn) {
    Reply reply;
    reply.limit = 8;
    const int32_t reused = server.Ask(talk, &reply);
    // The last token of a reply was chosen and not evaluated.
    const int32_t evaluated = static_cast<int32_t>(talk.size()) - reused;
    EXPECT_EQ(evaluated, turn == 0 ? 200 : 21) << "turn " << turn;
    talk.insert(talk.end(), reply.said.begin(), reply.said.end());
    const std::vector<int32_t> more = RandomTokens(20, vocabulary, 23);
    talk.insert(talk.end(), more.begin(), more.end());
  }
}
TEST(UsersRows, SecondTurnCostsItsTokensWithAWindow) {
  SecondTurnCostsItsTokens(TinyModel(kWindow));
}
class UsersRowsZoo : public ::testing::TestWithParam<const char*> {};
TEST_P(UsersRowsZoo, SecondTurnCostsItsTokens) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  const auto opened = ::cellm::testing::OpenEngine(folder, EngineOptions());
  ASSERT_NE(opened, nullptr);
  SecondTurnCostsItsTokens(opened->shared_model());
}

// users.md row 23: how much of a past can be used again, by hand. Between steps a window of 32
// holds the pages of 16 that overlap the last 31 tokens; whoever starts at `position` needs the 31
// before it.
TEST(UsersRows, WhatOfAWindowCanBeUsedAgain) {
  constexpr struct {
    int32_t window, tokens, position;
    bool usable;
  } kCases[] = {
      {0, 100, 100, true},        {0, 100, 1, true},         {0, 100, 0, true},
      {kWindow, 100, 100, true},  {kWindow, 100, 95, true},  // pages from 64 on are held
      {kWindow, 100, 94, false},  {kWindow, 100, 33, false}, {kWindow, 100, 0, true},
      {kWindow, 30, 7, true},     {kWindow, 32, 1, true},     // nothing has left the window
      {kWindow, 47, 47, true},    {kWindow, 47, 46, false},   // page 0 has
      {kWindow, 320, 320, true},  {kWindow, 320, 319, true},  // pages from 288 on
      {kWindow, 320, 318, false},
  };
  for (const auto& each : kCases) {
    auto engine = Engine::Create(TinyModel(each.window), Options());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_EQ((*engine)->cache().CanCut(each.tokens, each.position), each.usable)
        << "window " << each.window << ", " << each.tokens << " tokens, from " << each.position;
  }
}

uint64_t HashOfPast(Engine& engine, SequenceId sequence) {
  const auto snapshot = engine.TakeSnapshot(sequence);
  EXPECT_TRUE(snapshot.ok());
  uint64_t hash = 0;
  for (const std::span<uint8_t> part : engine.cache().Contents(*snapshot)) {
    hash = hash * 31 + HashXxh3(part);
  }
  engine.cache().DropSnapshot(*snapshot);
  return hash;
}

// users.md row 25: a state that cannot be cut says so, and is what it was.
TEST_P(UsersRowsZoo, ARefusedCutChangesNothing) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  EngineOptions options = Options();
  options.chunk_rows = 128;
  const auto engine = ::cellm::testing::OpenEngine(folder, options);
  ASSERT_NE(engine, nullptr);
  const std::vector<int32_t> tokens = RandomTokens(120, engine->info().vocab_size, 25);
  const auto sequence = engine->CreateSequence();
  ASSERT_TRUE(sequence.ok());
  const StepItem half{*sequence, std::span<const int32_t>(tokens).first(60), LogitRows::kLast};
  ASSERT_TRUE(engine->Step({&half, 1}).ok());
  const uint64_t before = HashOfPast(*engine, *sequence);
  const Status refused = engine->Rewind(*sequence, 20);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported) << refused.message();
  EXPECT_EQ(HashOfPast(*engine, *sequence), before);
  EXPECT_EQ(*engine->Position(*sequence), 60);
  // It goes on as if nothing had been asked.
  const auto other = engine->CreateSequence();
  ASSERT_TRUE(other.ok());
  const StepItem whole{*other, tokens, LogitRows::kLast};
  auto output = engine->Step({&whole, 1});
  ASSERT_TRUE(output.ok()) << output.status().message();
  const size_t vocabulary = static_cast<size_t>(engine->info().vocab_size);
  const std::vector<float> expected(output->logits.row(0), output->logits.row(0) + vocabulary);
  const StepItem rest{*sequence, std::span<const int32_t>(tokens).subspan(60), LogitRows::kLast};
  output = engine->Step({&rest, 1});
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), output->logits.row(0)));
}
INSTANTIATE_TEST_SUITE_P(Recurrent, UsersRowsZoo, ::testing::Values("qwen3_5", "lfm2"));

// users.md row 62: whoever leaves after the third token is gone within one step, and another goes
// on. users.md row 65: after that nothing computes any more.
TEST(UsersRows, CancelledWhileReplyingEndsWithinAStep) {
  Server server(TinyModel(0), Options(), ServingOptions());
  Reply leaves, stays;
  leaves.limit = stays.limit = 100;
  const uint64_t leaving = server.Submit(RandomTokens(20, 96, 1), &leaves);
  const uint64_t staying = server.Submit(RandomTokens(20, 96, 2), &stays);
  while (leaves.said.size() < 3) ASSERT_TRUE(server.Step());
  const int64_t steps = server.stats().steps;
  server.serving().Cancel(server.lock(), leaving);
  ASSERT_TRUE(server.Step());
  EXPECT_EQ(server.progress(leaving).end, RequestEnd::kCancelled);
  EXPECT_EQ(server.stats().steps, steps + 1);
  EXPECT_EQ(server.stats().running + server.stats().waiting, 1);
  EXPECT_EQ(leaves.said.size(), 3u);
  EXPECT_EQ(server.progress(staying).end, RequestEnd::kNone);

  server.serving().Cancel(server.lock(), staying);
  (void)server.Step();
  EXPECT_EQ(server.progress(staying).end, RequestEnd::kCancelled);
  const int64_t done = server.stats().steps;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(server.Step());
  EXPECT_EQ(server.stats().steps, done);
}

// users.md row 63: cancelled inside the prompt: no chunk more than the one under way.
TEST(UsersRows, CancelledInThePromptEndsWithinAChunk) {
  ServingOptions options;
  options.chunk_tokens = 16;
  Server server(TinyModel(0), Options(), std::move(options));
  Reply reply;
  reply.limit = 5;
  const uint64_t id = server.Submit(RandomTokens(300, 96, 63), &reply);
  ASSERT_TRUE(server.Step());
  ASSERT_TRUE(server.Step());
  const int32_t evaluated = server.progress(id).evaluated;
  EXPECT_GT(evaluated, 0);
  EXPECT_LE(evaluated, 32);
  server.serving().Cancel(server.lock(), id);
  (void)server.Step();
  EXPECT_EQ(server.progress(id).end, RequestEnd::kCancelled);
  EXPECT_LE(server.progress(id).evaluated, evaluated + 16);
  EXPECT_TRUE(reply.said.empty());
}

// users.md row 64: cancelled in the queue: it never starts.
TEST(UsersRows, CancelledInTheQueueNeverStarts) {
  EngineOptions options = Options();
  options.max_sequences = 1;
  Server server(TinyModel(0), options, ServingOptions());
  Reply first, second;
  first.limit = 40;
  second.limit = 5;
  const uint64_t runs = server.Submit(RandomTokens(30, 96, 1), &first);
  while (first.said.empty()) ASSERT_TRUE(server.Step());
  const uint64_t queued = server.Submit(RandomTokens(30, 96, 2), &second);
  ASSERT_TRUE(server.Step());
  EXPECT_EQ(server.progress(queued).evaluated, 0);
  server.serving().Cancel(server.lock(), queued);
  while (server.progress(runs).end == RequestEnd::kNone) ASSERT_TRUE(server.Step());
  (void)server.Step();
  EXPECT_EQ(server.progress(queued).end, RequestEnd::kCancelled);
  EXPECT_EQ(server.progress(queued).evaluated, 0);
  EXPECT_EQ(server.progress(queued).prompt_begin_ns, 0);
  EXPECT_TRUE(second.said.empty());
}

// users.md row 70: ten thousand sequences come and go; what is free is exact.
void TenThousandComeAndGo(const std::shared_ptr<const Model>& model) {
  ASSERT_NE(model, nullptr);
  EngineOptions options = Options();
  options.max_sequences = 4;
  auto created = Engine::Create(model, options);
  ASSERT_TRUE(created.ok()) << created.status().message();
  Engine& engine = **created;
  const std::vector<int32_t> tokens = RandomTokens(40, model->info.vocab_size, 70);
  for (int i = 0; i < 10000; ++i) {
    const auto sequence = engine.CreateSequence();
    ASSERT_TRUE(sequence.ok()) << i << ": " << sequence.status().message();
    // Now and then past the window, now and then with a fork that lives longer.
    if (i % 50 == 0) {
      const StepItem item{*sequence, tokens, LogitRows::kNone};
      ASSERT_TRUE(engine.Step({&item, 1}).ok());
      const auto fork = engine.Fork(*sequence);
      ASSERT_TRUE(fork.ok());
      ASSERT_TRUE(engine.FreeSequence(*sequence).ok());
      ASSERT_TRUE(engine.FreeSequence(*fork).ok());
    } else {
      ASSERT_TRUE(engine.FreeSequence(*sequence).ok());
    }
  }
  engine.CheckInvariants();
  EXPECT_EQ(engine.cache_stats().page_bytes_used, 0u);
  EXPECT_EQ(engine.cache_stats().state_bytes, 0u);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(engine.CreateSequence().ok());
  EXPECT_EQ(engine.CreateSequence().status().code(), StatusCode::kBusy);
}
TEST(UsersRows, TenThousandComeAndGoDense) { TenThousandComeAndGo(TinyModel(0)); }
TEST(UsersRows, TenThousandComeAndGoWindow) { TenThousandComeAndGo(TinyModel(kWindow)); }
TEST_P(UsersRowsZoo, TenThousandComeAndGo) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  const auto opened = ::cellm::testing::OpenEngine(folder, EngineOptions());
  ASSERT_NE(opened, nullptr);
  TenThousandComeAndGo(opened->shared_model());
}

// users.md row 77: states that a model with recurrent layers keeps count in the budget and give
// way; forty conversations later there is no more than the budget.
TEST_P(UsersRowsZoo, KeptStatesStayInTheBudget) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  BudgetAllocator budget(SystemAllocator(), UINT64_MAX);
  EngineOptions options = Options();
  options.allocator = &budget;
  const auto opened = ::cellm::testing::OpenEngine(folder, options);
  ASSERT_NE(opened, nullptr);
  ServingOptions serving_options;
  serving_options.budget = &budget;
  serving_options.checkpoint_tokens = 32;
  Server server(opened->shared_model(), options, std::move(serving_options));
  const uint64_t one = static_cast<uint64_t>(MostBytesPerSequence(
      opened->info().layers, options.kv_type, options.page_tokens, options.context_tokens));
  const uint64_t limit = budget.used_bytes() + 3 * one + (128 << 10);
  ASSERT_TRUE(server.serving().SetBudget(server.lock(), limit).ok());
  uint64_t most_pasts = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    Reply reply;
    reply.limit = 4;
    (void)server.Ask(RandomTokens(100, opened->info().vocab_size, 7700 + i), &reply);
    EXPECT_LE(budget.used_bytes(), limit) << "conversation " << i;
    EXPECT_LE(server.stats().past_bytes, 3 * one + (128 << 10)) << "conversation " << i;
    most_pasts = std::max(most_pasts, server.stats().past_bytes);
  }
  EXPECT_GT(most_pasts, 0u);  // states were kept at all
}

// users.md row 85: under pressure what nobody uses goes first, then the background to disk, and at
// last newcomers are refused; the conversation under way is never touched.
TEST(UsersRows, PressureIsAnsweredInOrder) {
  BudgetAllocator budget(SystemAllocator(), UINT64_MAX);
  EngineOptions options = Options();
  options.allocator = &budget;
  options.context_tokens = 512;
  ServingOptions serving_options;
  serving_options.budget = &budget;
  auto file = std::make_unique<MemoryRandomFile>();
  serving_options.swap = std::move(file);
  serving_options.swap_bytes = 16 << 20;
  Server server(TinyModel(0), options, std::move(serving_options));
  const uint64_t fixed = budget.used_bytes();
  Reply past;
  past.limit = 2;
  (void)server.Ask(RandomTokens(200, 96, 1), &past);
  const uint64_t kept = server.stats().past_bytes;
  ASSERT_GT(kept, 0u);
  Reply chat, work;
  chat.limit = work.limit = 60;
  const uint64_t background =
      server.Submit(RandomTokens(150, 96, 3), &work, LatencyClass::kBackground);
  while (work.said.size() < 2) ASSERT_TRUE(server.Step());
  const uint64_t interactive =
      server.Submit(RandomTokens(150, 96, 2), &chat, LatencyClass::kInteractive);
  while (chat.said.size() < 2) ASSERT_TRUE(server.Step());
  const uint64_t all = budget.used_bytes();

  // 1. Less than everything: what is kept for reuse goes, to disk or for good; nobody is stopped.
  ASSERT_TRUE(server.serving().SetBudget(server.lock(), all - kept / 2).ok());
  ASSERT_TRUE(server.Step());
  EXPECT_LE(budget.used_bytes(), all - kept / 2);
  EXPECT_LT(server.stats().past_bytes, kept);
  EXPECT_EQ(server.progress(background).preemptions, 0);
  EXPECT_EQ(server.progress(interactive).preemptions, 0);

  // 2. Room for one: the background waits on disk, the conversation goes on. (Memory is given back
  // by whole slabs of pages, so the conversation may have to move once, after the background.)
  const uint64_t one = static_cast<uint64_t>(MostBytesPerSequence(
      server.engine().info().layers, options.kv_type, options.page_tokens, 210));
  const uint64_t tight = fixed + one + (32 << 10);
  ASSERT_TRUE(server.serving().SetBudget(server.lock(), tight).ok());
  EXPECT_EQ(server.progress(background).preemptions, 1);
  EXPECT_LE(server.progress(interactive).preemptions, 1);
  const size_t before = chat.said.size(), worked = work.said.size();
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(server.Step());
    EXPECT_LE(budget.used_bytes(), tight);
  }
  EXPECT_GE(chat.said.size(), before + 10);
  EXPECT_EQ(work.said.size(), worked);
  EXPECT_EQ(server.stats().past_bytes, 0u);

  // 3. What can never fit is refused, with what it needs and what there is.
  Reply large;
  large.limit = 20;
  RequestSpec spec;
  spec.tokens = RandomTokens(480, 96, 4);
  spec.planned_tokens = 500;
  spec.hooks = {&large, nullptr, &Reply::Choose, nullptr};
  const auto refused = server.serving().Submit(server.lock(), std::move(spec));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kOutOfMemory) << refused.status().message();

  // The pressure is over: everybody finishes.
  ASSERT_TRUE(server.serving().SetBudget(server.lock(), 0).ok());
  while (server.Step()) continue;
  EXPECT_EQ(server.progress(interactive).end, RequestEnd::kDone);
  EXPECT_EQ(server.progress(background).end, RequestEnd::kDone);
}

}  // namespace
}  // namespace cellm
