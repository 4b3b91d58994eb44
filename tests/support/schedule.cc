#include "support/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "support/tiny_model.h"
#include "support/zoo.h"

namespace cellm::testing {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && !a.empty() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model,
                                   const EngineOptions& options) {
  auto engine = Engine::Create(std::move(model), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<float> LogitsBesideOthers(Engine& engine, const std::vector<int32_t>& tokens,
                                      int32_t chunk) {
  const int32_t count = static_cast<int32_t>(tokens.size());
  const size_t vocab = static_cast<size_t>(engine.info().vocab_size);
  if (chunk == 0) chunk = count;
  std::vector<float> logits;
  const auto mine = engine.CreateSequence(count);
  EXPECT_TRUE(mine.ok());
  constexpr int32_t kOthers = 3;
  std::vector<SequenceId> others(kOthers);
  std::vector<std::vector<int32_t>> texts;
  for (int32_t i = 0; i < kOthers; ++i) {
    const auto other = engine.CreateSequence();
    EXPECT_TRUE(other.ok()) << other.status().message();
    others[static_cast<size_t>(i)] = *other;
    texts.push_back(RandomTokens(200, engine.info().vocab_size, 77 + static_cast<uint64_t>(i)));
  }
  int32_t step = 0;
  for (int32_t begin = 0; begin < count; begin += chunk, ++step) {
    const size_t length = static_cast<size_t>(std::min(chunk, count - begin));
    std::vector<StepItem> items;
    for (int32_t i = 0; i < kOthers; ++i) {
      const SequenceId id = others[static_cast<size_t>(i)];
      const size_t want = static_cast<size_t>(1 + (step * 5 + i * 3) % 6);
      size_t at = static_cast<size_t>(*engine.Position(id));
      if (at + want > texts[static_cast<size_t>(i)].size()) {
        EXPECT_TRUE(engine.Rewind(id, 0).ok());
        at = 0;
      }
      items.push_back({id, {texts[static_cast<size_t>(i)].data() + at, want}, LogitRows::kLast});
    }
    // Mine goes in another place each step.
    items.insert(items.begin() + step % 4,
                 StepItem{*mine, {tokens.data() + begin, length}, LogitRows::kAll});
    const auto output = engine.Step(items);
    EXPECT_TRUE(output.ok()) << output.status().message();
    if (!output.ok()) break;
    const StepItemResult& result = output->items[static_cast<size_t>(step % 4)];
    EXPECT_EQ(result.row_count, static_cast<int32_t>(length));
    const float* const rows = output->logits.row(result.first_row);
    logits.insert(logits.end(), rows, rows + length * vocab);
  }
  EXPECT_TRUE(engine.FreeSequence(*mine).ok());
  for (const SequenceId id : others) EXPECT_TRUE(engine.FreeSequence(id).ok());
  engine.CheckInvariants();
  return logits;
}

void CheckSchedules(const std::shared_ptr<const Model>& model, EngineOptions options,
                    const Sweep& sweep, const std::string& name) {
  const std::vector<int32_t> tokens = RandomTokens(sweep.tokens, model->info.vocab_size, 4242);
  options.logit_rows = 512;
  options.threads = 1;
  options.page_tokens = 32;
  const auto reference_engine = MakeEngine(model, options);
  ASSERT_NE(reference_engine, nullptr);
  const std::vector<float> expected = AllLogits(*reference_engine, tokens);
  for (const auto& [threads, page_tokens] : sweep.threads_and_page_tokens) {
    options.threads = threads;
    options.page_tokens = page_tokens;
    const auto engine = MakeEngine(model, options);
    ASSERT_NE(engine, nullptr);
    for (const int32_t chunk : sweep.chunks) {
      const std::string what = name + ", chunk " + std::to_string(chunk) + ", threads " +
                               std::to_string(threads) + ", page " + std::to_string(page_tokens);
      EXPECT_TRUE(SameBits(AllLogits(*engine, tokens, chunk), expected)) << what;
      const std::vector<int32_t>& beside = sweep.chunks_beside;
      if (!beside.empty() && std::find(beside.begin(), beside.end(), chunk) == beside.end()) {
        continue;
      }
      EXPECT_TRUE(SameBits(LogitsBesideOthers(*engine, tokens, chunk), expected))
          << what << ", beside others";
    }
    engine->CheckInvariants();
  }
}

}  // namespace cellm::testing
