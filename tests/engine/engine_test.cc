// The engine: limits, budgets, errors, and what users of other engines report.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/heap_count.h"
#include "support/paths.h"
#include "support/tiny_model.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::AllLogits;
using ::cellm::testing::FailingAllocator;
using ::cellm::testing::LoadTiny;
using ::cellm::testing::RandomTokens;
using ::cellm::testing::TinyFormat;
using ::cellm::testing::TinyLlama;
using ::cellm::testing::TinyLlamaFile;
using ::cellm::testing::TryLoadTiny;

std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model,
                                   const EngineOptions& options = {}) {
  auto engine = Engine::Create(std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

StatusCode StepCode(Engine& engine, SequenceId id, const std::vector<int32_t>& tokens,
                    LogitRows rows = LogitRows::kLast, std::string* message = nullptr) {
  const StepItem item{id, tokens, rows};
  const auto output = engine.Step({&item, 1});
  if (message != nullptr) *message = output.status().message();
  return output.ok() ? StatusCode::kOk : output.status().code();
}

// users.md row 28: fill the context to n - 1, n and n + 1 tokens, in one go and token by token.
TEST(Engine, FullContextIsATypedError) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  EngineOptions options;
  options.context_tokens = 50;
  const auto engine = MakeEngine(model, options);
  std::string message;
  for (const int32_t count : {49, 50, 51}) {
    const SequenceId id = *engine->CreateSequence();
    EXPECT_EQ(StepCode(*engine, id, RandomTokens(count, 96, 1), LogitRows::kLast, &message),
              count <= 50 ? StatusCode::kOk : StatusCode::kOutOfRange);
    if (count > 50) {
      EXPECT_NE(message.find("51 tokens needed, 50 available"), std::string::npos) << message;
      EXPECT_EQ(*engine->Position(id), 0);
    }
    ASSERT_TRUE(engine->FreeSequence(id).ok());
  }
  const SequenceId id = *engine->CreateSequence();
  for (int32_t i = 0; i < 50; ++i) ASSERT_EQ(StepCode(*engine, id, {i}), StatusCode::kOk);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(StepCode(*engine, id, {1}), StatusCode::kOutOfRange);
  EXPECT_EQ(*engine->Position(id), 50);
  // The sequence is alive: wind back and go on.
  ASSERT_TRUE(engine->Rewind(id, 10).ok());
  EXPECT_EQ(StepCode(*engine, id, {1, 2, 3}), StatusCode::kOk);
  EXPECT_EQ(*engine->Position(id), 13);
  engine->CheckInvariants();
}

// users.md row 30: a prompt of exactly context - reply tokens is evaluated in full.
TEST(Engine, PromptOfContextMinusReplyIsEvaluatedInFull) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  EngineOptions options;
  options.context_tokens = 100;
  options.logit_rows = 100;
  const auto engine = MakeEngine(model, options);
  const std::vector<int32_t> prompt = RandomTokens(90, 96, 8);
  const SequenceId id = *engine->CreateSequence(100);
  const StepItem item{id, prompt, LogitRows::kLast};
  const auto output = engine->Step({&item, 1});
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(*engine->Position(id), 90);
  const std::vector<float> last(output->logits.data, output->logits.data + 96);
  // Every token counts: another first token gives other logits at the end.
  std::vector<int32_t> other = prompt;
  other[0] = (other[0] + 1) % 96;
  const std::vector<float> changed = AllLogits(*engine, other);
  EXPECT_FALSE(std::equal(last.begin(), last.end(), changed.end() - 96));
  for (int32_t i = 0; i < 10; ++i) ASSERT_EQ(StepCode(*engine, id, {i}), StatusCode::kOk);
  EXPECT_EQ(StepCode(*engine, id, {1}), StatusCode::kOutOfRange);
}

// users.md row 32: the default context is what model and memory allow, and it is said.
// users.md row 34: it is known as soon as the engine exists, and never 0.
TEST(Engine, DefaultContextIsTheModelsOrWhatMemoryAllows) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  std::string log;
  EngineOptions options;
  options.log = {[](void* user, LogLevel, std::string_view, std::string_view text) {
                   static_cast<std::string*>(user)->append(text).append("\n");
                 },
                 &log};
  EXPECT_EQ(MakeEngine(model, options)->context_tokens(), 512);
  EXPECT_NE(log.find("context 512 tokens (model limit 512)"), std::string::npos) << log;
  const int64_t bytes_of_100 = BytesPerSequence(model->info.layers, KvType::kF16, 32, 100);
  options.cache_bytes = static_cast<uint64_t>(bytes_of_100);
  log.clear();
  const auto engine = MakeEngine(model, options);
  EXPECT_EQ(engine->context_tokens(), 128);  // 100 tokens need four pages of 32; so do 128
  EXPECT_NE(log.find("context 128 tokens (model limit 512)"), std::string::npos) << log;
  const SequenceId id = *engine->CreateSequence();
  EXPECT_EQ(StepCode(*engine, id, RandomTokens(128, 96, 1)), StatusCode::kOk);

  options.cache_bytes = 16;
  const auto none = Engine::Create(model, options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), StatusCode::kOutOfMemory);
  options.cache_bytes = static_cast<uint64_t>(bytes_of_100);
  options.context_tokens = 200;
  EXPECT_EQ(Engine::Create(model, options).status().code(), StatusCode::kOutOfMemory);
  options.cache_bytes = 0;
  options.context_tokens = 513;
  EXPECT_EQ(Engine::Create(model, options).status().code(), StatusCode::kOutOfRange);
}

// users.md row 35: position counters at 2^15, 2^16 and 2^17.
TEST(Engine, PositionsBeyondTwoToTheSeventeen) {
  TinyLlama spec;
  spec.hidden = 8;
  spec.inner = 16;
  spec.layers = 1;
  spec.heads = spec.kv_heads = 1;
  spec.head_dim = 8;
  spec.vocab = 16;
  spec.window = 24;
  spec.max_context = 140000;
  const auto model = LoadTiny(TinyLlamaFile(spec));
  EngineOptions options = testing::FloatPath();
  options.threads = 1;
  const auto engine = MakeEngine(model, options);
  const std::vector<int32_t> tokens = RandomTokens((1 << 17) + 40, spec.vocab, 12);
  const SequenceId id = *engine->CreateSequence();
  const uint64_t page_bytes = static_cast<uint64_t>(
      options.page_tokens * KvBytesPerToken(model->info.layers[0], KvType::kF32));
  size_t at = 0;
  while (at < tokens.size()) {
    // Around each power of two single steps, elsewhere large ones.
    size_t take = 500;
    for (const size_t power : {size_t{1} << 15, size_t{1} << 16, size_t{1} << 17}) {
      if (at < power - 4 && at + take > power - 4) take = power - 4 - at;
      if (at >= power - 4 && at < power + 4) take = 1;
    }
    take = std::min(take, tokens.size() - at);
    const StepItem item{id, {tokens.data() + at, take}, LogitRows::kLast};
    const auto output = engine->Step({&item, 1});
    ASSERT_TRUE(output.ok()) << output.status().message();
    at += take;
    ASSERT_EQ(*engine->Position(id), static_cast<int32_t>(at));
    ASSERT_LE(engine->cache_stats().page_bytes_used, 2 * page_bytes) << at;
    if (take != 1) continue;
    // With one layer a logit depends on the window alone, and rotary positions only on
    // differences: a fresh sequence of the window's tokens must say (almost) the same. Angles near
    // 2^17 have a float error of 0.008.
    const std::vector<int32_t> tail(tokens.begin() + static_cast<int64_t>(at) - 24,
                                    tokens.begin() + static_cast<int64_t>(at));
    const std::vector<float> here(output->logits.data, output->logits.data + spec.vocab);
    const std::vector<float> fresh = AllLogits(*engine, tail);
    for (size_t v = 0; v < 16; ++v) {
      EXPECT_NEAR(here[v], fresh[fresh.size() - 16 + v], 0.02f) << at << " " << v;
    }
  }
}

// users.md row 36: tiny budgets, several turns, nothing written out of place (run under ASan too).
TEST(Engine, TinyBudgetsFailCleanly) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  for (int32_t budget = 1; budget <= 64; ++budget) {
    EngineOptions options;
    options.context_tokens = budget;
    options.page_tokens = 16;
    options.chunk_rows = 16;
    options.logit_rows = 16;
    options.cache_bytes =
        static_cast<uint64_t>(BytesPerSequence(model->info.layers, options.kv_type, 16, budget));
    const auto engine = MakeEngine(model, options);
    const SequenceId id = *engine->CreateSequence();
    int32_t held = 0;
    for (int32_t turn = 0; turn < 12; ++turn) {
      const int32_t count = 1 + (turn * 7 + budget) % 16;
      const bool fits = held + count <= budget;
      ASSERT_EQ(StepCode(*engine, id, RandomTokens(count, 96, 3), LogitRows::kAll),
                fits ? StatusCode::kOk : StatusCode::kOutOfRange)
          << budget << " " << turn;
      held += fits ? count : 0;
      if (!fits) {
        ASSERT_TRUE(engine->Rewind(id, held / 2).ok());
        held /= 2;
      }
      ASSERT_EQ(*engine->Position(id), held);
      engine->CheckInvariants();
    }
    // A second sequence finds no pages, and says what it needs.
    const SequenceId other = *engine->CreateSequence();
    std::string message;
    const int32_t left = (budget + 15) / 16 * 16 - (held + 15) / 16 * 16;
    if (left < 16) {
      EXPECT_EQ(StepCode(*engine, other, {1}, LogitRows::kLast, &message),
                StatusCode::kOutOfMemory);
      EXPECT_NE(message.find("needed"), std::string::npos) << message;
      EXPECT_EQ(*engine->Position(other), 0);
    }
    ASSERT_TRUE(engine->FreeSequence(id).ok());
    EXPECT_EQ(StepCode(*engine, other, {1}), StatusCode::kOk);
    engine->CheckInvariants();
  }
}

// users.md row 78: a short chat on a model with a long window stays small.
TEST(Engine, CacheGrowsByPages) {
  TinyLlama spec;
  spec.max_context = 131072;
  const auto model = LoadTiny(TinyLlamaFile(spec));
  EngineOptions options;
  BudgetAllocator memory(SystemAllocator(), uint64_t{1} << 40);
  options.allocator = &memory;
  const auto engine = MakeEngine(model, options);
  const SequenceId id = *engine->CreateSequence();
  const uint64_t page = static_cast<uint64_t>(
      BytesPerSequence(model->info.layers, options.kv_type, options.page_tokens, 1));
  for (int32_t tokens = 1; tokens <= 200; ++tokens) {
    ASSERT_EQ(StepCode(*engine, id, {tokens % 96}), StatusCode::kOk);
    const CacheStats& stats = engine->cache_stats();
    const uint64_t pages = static_cast<uint64_t>((tokens + 31) / 32);
    ASSERT_EQ(stats.page_bytes_used, pages * page);
    ASSERT_EQ(stats.page_bytes_used, static_cast<uint64_t>(BytesPerSequence(
                                         model->info.layers, options.kv_type, 32, tokens)));
    ASSERT_LE(stats.page_bytes_free, stats.page_bytes_used);
  }
  // Pages, their counts, and the page table of 131072 / 32 entries; nothing near 131072 tokens.
  EXPECT_LT(memory.used_bytes(MemoryClass::kCache), 16 * page + 4096 * 16 + 4096);
}

TEST(Engine, StepAllocatesNothing) {
  for (const TinyFormat format : {TinyFormat::kBF16, TinyFormat::kPackedI4}) {
    TinyLlama spec;
    spec.format = format;
    spec.window = 24;
    const auto model = LoadTiny(TinyLlamaFile(spec));
    FailingAllocator memory;
    EngineOptions options;
    options.allocator = &memory;
    options.threads = 2;
    const auto engine = MakeEngine(model, options);
    const std::vector<int32_t> tokens = RandomTokens(400, 96, 2);
    std::vector<SequenceId> ids;
    for (int i = 0; i < 3; ++i) ids.push_back(*engine->CreateSequence());
    std::vector<StepItem> items;
    // Warm-up: the pages come.
    for (const SequenceId id : ids) items.push_back({id, std::span(tokens).first(100)});
    ASSERT_TRUE(engine->Step(items).ok());
    for (const SequenceId id : ids) ASSERT_TRUE(engine->Rewind(id, 0).ok());
    const int64_t heap_before = testing::HeapAllocations();
    const int64_t memory_before = memory.allocations();
    bool ok = true;
    for (size_t at = 0; at < 96; at += 12) {
      for (size_t i = 0; i < 3; ++i) items[i].tokens = std::span(tokens).subspan(at, 12);
      ok = ok && engine->Step(items).ok();
    }
    EXPECT_EQ(testing::HeapAllocations() - heap_before, 0);
    EXPECT_EQ(memory.allocations() - memory_before, 0);
    EXPECT_TRUE(ok);
  }
}

TEST(Engine, BadPlansChangeNothing) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  EngineOptions options;
  options.chunk_rows = 20;
  options.logit_rows = 4;
  const auto engine = MakeEngine(model, options);
  const SequenceId a = *engine->CreateSequence();
  const SequenceId b = *engine->CreateSequence();
  const std::vector<int32_t> good = {1, 2, 3};
  const std::vector<int32_t> negative = {1, -1};
  const std::vector<int32_t> large = {96};
  const std::vector<int32_t> many = RandomTokens(21, 96, 1);
  const struct {
    const char* name;
    std::vector<StepItem> items;
    StatusCode expected;
  } cases[] = {
      {"no items", {}, StatusCode::kInvalidArgument},
      {"no tokens", {{a, {}, LogitRows::kLast}}, StatusCode::kInvalidArgument},
      {"twice", {{a, good}, {b, good}, {a, good}}, StatusCode::kInvalidArgument},
      {"negative id", {{b, good}, {a, negative}}, StatusCode::kInvalidArgument},
      {"id past the vocabulary", {{a, large}}, StatusCode::kInvalidArgument},
      {"stale", {{b, good}, {SequenceId{0, 999}, good}}, StatusCode::kNotFound},
      {"no such slot", {{SequenceId{1000000, 1}, good}}, StatusCode::kNotFound},
      {"generation 0", {{SequenceId{5, 0}, good}}, StatusCode::kNotFound},
      {"too many rows", {{a, many}}, StatusCode::kOutOfRange},
      {"too many logits",
       {{a, good, LogitRows::kAll}, {b, good, LogitRows::kAll}},
       StatusCode::kOutOfRange},
  };
  for (const auto& test : cases) {
    const auto output = engine->Step(test.items);
    ASSERT_FALSE(output.ok()) << test.name;
    EXPECT_EQ(output.status().code(), test.expected) << test.name;
    EXPECT_EQ(*engine->Position(a), 0) << test.name;
    EXPECT_EQ(*engine->Position(b), 0) << test.name;
    engine->CheckInvariants();
  }
  EXPECT_EQ(StepCode(*engine, a, good), StatusCode::kOk);
}

TEST(Engine, StaleHandlesAreErrors) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  EngineOptions options;
  options.max_sequences = 2;
  const auto engine = MakeEngine(model, options);
  const SequenceId a = *engine->CreateSequence();
  ASSERT_TRUE(engine->CreateSequence().ok());
  EXPECT_EQ(engine->CreateSequence().status().code(), StatusCode::kBusy);
  EXPECT_EQ(engine->Fork(a).status().code(), StatusCode::kBusy);
  ASSERT_TRUE(engine->FreeSequence(a).ok());
  EXPECT_EQ(engine->FreeSequence(a).code(), StatusCode::kNotFound);
  const SequenceId again = *engine->CreateSequence();
  EXPECT_EQ(again.slot, a.slot);
  EXPECT_NE(again.generation, a.generation);
  EXPECT_EQ(engine->Position(a).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(engine->Rewind(a, 0).code(), StatusCode::kNotFound);
  EXPECT_EQ(engine->Fork(a).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(StepCode(*engine, a, {1}), StatusCode::kNotFound);
  EXPECT_EQ(engine->CreateSequence(100000).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(engine->Rewind(again, 1).code(), StatusCode::kOutOfRange);
}

TEST(Engine, BadOptionsAreRefusedByName) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  const auto with = [](auto change) {
    EngineOptions options;
    change(&options);
    return options;
  };
  const struct {
    EngineOptions options;
    StatusCode code;
    const char* name;
  } cases[] = {
      {with([](EngineOptions* o) { o->threads = -1; }), StatusCode::kInvalidArgument, "threads"},
      {with([](EngineOptions* o) { o->threads = 100000; }), StatusCode::kInvalidArgument,
       "threads"},
      {with([](EngineOptions* o) { o->chunk_rows = 0; }), StatusCode::kInvalidArgument, "chunk"},
      {with([](EngineOptions* o) { o->page_tokens = 24; }), StatusCode::kInvalidArgument, "page"},
      {with([](EngineOptions* o) { o->page_tokens = 0; }), StatusCode::kInvalidArgument, "page"},
      {with([](EngineOptions* o) { o->context_tokens = -5; }), StatusCode::kInvalidArgument,
       "context"},
      {with([](EngineOptions* o) { o->kernels = "sse9"; }), StatusCode::kInvalidArgument, "sse9"},
  };
  for (const auto& test : cases) {
    const auto engine = Engine::Create(model, test.options);
    ASSERT_FALSE(engine.ok()) << test.name;
    EXPECT_EQ(engine.status().code(), test.code) << engine.status().message();
    EXPECT_NE(engine.status().message().find(test.name), std::string::npos)
        << engine.status().message();
  }
}

TEST(Engine, NanLogitsAreReportedAndStayWithTheirSequence) {
  TinyLlama spec;
  auto file = TinyLlamaFile(spec);
  // The embedding of token 7 becomes NaN.
  std::vector<uint8_t>& bytes = [&]() -> std::vector<uint8_t>& {
    for (size_t i = 0; i < file->tensors.size(); ++i) {
      if (file->tensors[i].name != "model.embed_tokens.weight") continue;
      for (auto& owned : file->owned_bytes) {
        if (owned->data() == file->tensors[i].data.data()) return *owned;
      }
    }
    std::abort();
  }();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 7 * 64 * sizeof(float), &nan, sizeof(nan));
  const auto engine = MakeEngine(LoadTiny(std::move(file)));
  const SequenceId bad = *engine->CreateSequence();
  const SequenceId good = *engine->CreateSequence();
  const std::vector<int32_t> with_nan = {1, 7, 2};
  const std::vector<int32_t> without = {1, 6, 2};
  const StepItem items[] = {{bad, with_nan}, {good, without}};
  const auto output = engine->Step(items);
  ASSERT_TRUE(output.ok());
  EXPECT_TRUE(output->items[0].has_nan);
  EXPECT_FALSE(output->items[1].has_nan);
}

// Each allocation of load, creation and a step is refused in turn: the right code, no leak, and
// what existed before still works.
TEST(Engine, EveryAllocationMayFail) {
  TinyLlama spec;
  spec.format = TinyFormat::kI4V1;  // repacked at load
  const std::vector<int32_t> tokens = RandomTokens(40, 96, 4);
  int64_t n = 1;
  for (;; ++n) {
    FailingAllocator memory(n);
    bool complete = false;
    {
      auto model = TryLoadTiny(TinyLlamaFile(spec), memory);
      if (model.ok()) {
        EngineOptions options;
        options.allocator = &memory;
        options.threads = 1;
        options.chunk_rows = 64;
        auto engine = Engine::Create(*model, options);
        if (engine.ok()) {
          const auto id = (*engine)->CreateSequence();
          if (id.ok()) {
            const StatusCode code = StepCode(**engine, *id, tokens);
            (*engine)->CheckInvariants();
            if (code == StatusCode::kOk) {
              complete = true;
            } else {
              EXPECT_EQ(code, StatusCode::kOutOfMemory);
              // With memory again, the same step works.
              memory.set_fail_at(0);
              EXPECT_EQ(StepCode(**engine, *id, tokens), StatusCode::kOk);
            }
          } else {
            EXPECT_EQ(id.status().code(), StatusCode::kOutOfMemory);
          }
        } else {
          EXPECT_EQ(engine.status().code(), StatusCode::kOutOfMemory);
        }
      } else {
        EXPECT_EQ(model.status().code(), StatusCode::kOutOfMemory) << model.status().message();
      }
      EXPECT_EQ(complete, !memory.failed());
    }
    EXPECT_EQ(memory.live_bytes(), 0) << n;
    if (complete) break;
    ASSERT_LT(n, 1000);
  }
  EXPECT_GT(n, 40);
}

TEST(Engine, SlidingWindowForgetsAndFreesPages) {
  TinyLlama spec;
  spec.window = 20;
  const auto model = LoadTiny(TinyLlamaFile(spec));
  EngineOptions options;
  options.page_tokens = 16;
  options.logit_rows = 512;
  const auto engine = MakeEngine(model, options);
  const std::vector<int32_t> tokens = RandomTokens(120, 96, 6);
  const SequenceId id = *engine->CreateSequence();
  for (size_t at = 0; at < tokens.size(); at += 10) {
    const StepItem item{id, std::span(tokens).subspan(at, 10), LogitRows::kNone};
    ASSERT_TRUE(engine->Step({&item, 1}).ok());
    EXPECT_EQ(engine->cache_stats().page_bytes_used,
              static_cast<uint64_t>(BytesPerSequence(model->info.layers, options.kv_type, 16,
                                                     static_cast<int64_t>(at) + 10)));
    engine->CheckInvariants();
  }
  // What has left the window cannot come back, except by starting over.
  EXPECT_EQ(engine->Rewind(id, 50).code(), StatusCode::kUnsupported);
  EXPECT_TRUE(engine->Rewind(id, 119).ok());
  EXPECT_TRUE(engine->Rewind(id, 0).ok());
  EXPECT_EQ(engine->cache_stats().page_bytes_used, 0u);
  engine->CheckInvariants();
}

}  // namespace
}  // namespace cellm
