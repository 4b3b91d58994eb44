// Promise 1: the logits of a request are the same bits under any schedule.
#include "support/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"
#include "support/tiny_model.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::AllLogits;
using ::cellm::testing::CheckSchedules;
using ::cellm::testing::kAllTinyFormats;
using ::cellm::testing::LoadTiny;
using ::cellm::testing::LogitsBesideOthers;
using ::cellm::testing::MakeEngine;
using ::cellm::testing::RandomTokens;
using ::cellm::testing::SameBits;
using ::cellm::testing::Sweep;
using ::cellm::testing::TinyFormat;
using ::cellm::testing::TinyFormatName;
using ::cellm::testing::TinyLlama;
using ::cellm::testing::TinyLlamaFile;

struct Mode {
  ActivationMode activations;
  KvTypes kv_type;
  const char* name;
};
constexpr Mode kModes[] = {
    {ActivationMode::kFloat32, KvType::kF32, "f32 kv f32"},
    {ActivationMode::kFloat32, KvType::kF16, "f32 kv f16"},
    {ActivationMode::kInt8, KvType::kF32, "i8 kv f32"},
    {ActivationMode::kInt8, KvType::kF16, "i8 kv f16"},
};
// For sweeps over models: keys and values below 16 bits.
constexpr Mode kCodedMode = {ActivationMode::kInt8, KvTypes(KvType::kTq3_5, KvType::kQ8),
                             "i8 kv k=tq3.5,v=q8"};

TEST(Schedule, SameBitsInEveryWeightFormat) {
  for (const TinyFormat format : kAllTinyFormats) {
    TinyLlama spec;
    spec.format = format;
    const auto model = LoadTiny(TinyLlamaFile(spec));
    ASSERT_NE(model, nullptr);
    for (const Mode& mode : kModes) {
      EngineOptions options;
      options.activations = mode.activations;
      options.kv_type = mode.kv_type;
      CheckSchedules(model, options, Sweep(),
                     std::string(TinyFormatName(format)) + " " + mode.name);
    }
  }
}

// Every tier that this CPU has, not only the one that would be chosen.
TEST(Schedule, SameBitsInEveryTier) {
  int tiers = 0;
  for (const kernels::Tier& tier : kernels::AllTiers()) {
    if (!tier.runs_here()) continue;
    ++tiers;
    for (const TinyFormat format :
         {TinyFormat::kF32, TinyFormat::kBF16, TinyFormat::kPackedI8, TinyFormat::kPackedI4}) {
      TinyLlama spec;
      spec.format = format;
      const auto model = LoadTiny(TinyLlamaFile(spec));
      ASSERT_NE(model, nullptr);
      for (const Mode& mode : {kModes[0], kModes[3]}) {
        EngineOptions options;
        options.kernels = tier.name;
        options.activations = mode.activations;
        options.kv_type = mode.kv_type;
        Sweep sweep;
        sweep.tokens = 24;
        sweep.chunks = {1, 7};
        sweep.threads_and_page_tokens = {{2, 16}};
        CheckSchedules(model, options, sweep,
                       std::string(tier.name) + " " + TinyFormatName(format) + " " + mode.name);
      }
    }
  }
  EXPECT_GE(tiers, 1);
}

TEST(Schedule, SameBitsWithWindowsBiasesAndTiedHead) {
  TinyLlama windowed;
  windowed.window = 20;
  TinyLlama biased;
  biased.format = TinyFormat::kPackedI8;
  biased.biases = true;
  biased.tied = true;
  biased.vocab = 99;  // no multiple of a tile
  biased.hidden = 80;
  for (const TinyLlama& spec : {windowed, biased}) {
    const auto model = LoadTiny(TinyLlamaFile(spec));
    ASSERT_NE(model, nullptr);
    for (const Mode& mode : kModes) {
      EngineOptions options;
      options.activations = mode.activations;
      options.kv_type = mode.kv_type;
      CheckSchedules(model, options, Sweep(), std::string("variant ") + mode.name);
    }
  }
}

// Every K/V format and two mixed pairs; head widths that are no multiple of 16.
TEST(Schedule, SameBitsInEveryKvFormat) {
  for (const int32_t window : {0, 20}) {
    TinyLlama spec;
    spec.window = window;
    spec.head_dim = 24;
    spec.heads = 6;
    const auto model = LoadTiny(TinyLlamaFile(spec));
    ASSERT_NE(model, nullptr);
    for (const KvTypes types :
         {KvTypes(KvType::kQ8), KvTypes(KvType::kQ4), KvTypes(KvType::kTq2_5),
          KvTypes(KvType::kTq3_5), KvTypes(KvType::kTq4), KvTypes(KvType::kQ8, KvType::kQ4),
          KvTypes(KvType::kF16, KvType::kTq3_5)}) {
      EngineOptions options;
      options.kv_type = types;
      Sweep sweep;
      sweep.threads_and_page_tokens = {{1, 16}, {2, 48}};
      CheckSchedules(model, options, sweep,
                     "window " + std::to_string(window) + " kv " + KvTypesName(types));
    }
  }
}

// Past the segments of attention: with one head of keys and several threads the segments of one
// sequence are shared out.
TEST(Schedule, SameBitsWhenThreadsShareASequence) {
  for (const int32_t window : {0, 700}) {
    TinyLlama spec;
    spec.window = window;
    spec.kv_heads = 1;
    spec.layers = 1;
    spec.max_context = 2048;
    const auto model = LoadTiny(TinyLlamaFile(spec));
    ASSERT_NE(model, nullptr);
    const std::vector<int32_t> tokens = RandomTokens(1300, spec.vocab, 12);
    for (const KvTypes types : {KvTypes(KvType::kF16), KvTypes(KvType::kTq2_5, KvType::kQ8)}) {
      std::vector<float> expected;
      for (const int32_t threads : {1, 2, 3, 8}) {
        EngineOptions options;
        options.threads = threads;
        options.kv_type = types;
        options.logit_rows = 512;
        const auto engine = MakeEngine(model, options);
        ASSERT_NE(engine, nullptr);
        for (const int32_t chunk : {400, 3}) {
          const SequenceId id = *engine->CreateSequence();
          std::vector<float> got;
          // A long beginning, then the chunks that are compared.
          for (size_t at = 0; at < tokens.size();) {
            const size_t want = at < 1020 ? 510 : static_cast<size_t>(chunk);
            const size_t length = std::min(want, tokens.size() - at);
            const StepItem item{id, {tokens.data() + at, length}, LogitRows::kAll};
            const auto output = engine->Step({&item, 1});
            ASSERT_TRUE(output.ok()) << output.status().message();
            if (at >= 1020) {
              got.insert(got.end(), output->logits.data,
                         output->logits.data + length * static_cast<size_t>(spec.vocab));
            }
            at += length;
          }
          if (expected.empty()) expected = got;
          EXPECT_TRUE(SameBits(got, expected))
              << "window " << window << ", kv " << KvTypesName(types) << ", threads " << threads
              << ", chunk " << chunk;
          ASSERT_TRUE(engine->FreeSequence(id).ok());
        }
      }
    }
  }
}

TEST(Schedule, SameBitsOnZooLlama) {
  for (const Mode& mode : {kModes[0], kModes[3]}) {
    EngineOptions options = testing::FloatPath();
    options.activations = mode.activations;
    options.kv_type = mode.kv_type;
    const auto engine = testing::OpenEngine(testing::TestData("zoo/llama"), options);
    ASSERT_NE(engine, nullptr);
    Sweep sweep;
    sweep.threads_and_page_tokens = {{1, 64}, {2, 16}};
    // Engines share the model that the first one opened.
    CheckSchedules(engine->shared_model(), options, sweep, std::string("zoo llama ") + mode.name);
  }
}

TEST(Schedule, SameBitsOnNano) {
  CELLM_SKIP_WITHOUT_SHARED(folder, "zoo/nano");
  EngineOptions options;
  options.logit_rows = 512;
  const auto engine = testing::OpenEngine(folder, options);
  ASSERT_NE(engine, nullptr);
  Sweep sweep;
  sweep.threads_and_page_tokens = {{2, 32}};
  sweep.chunks = {7, 64, 0};
  sweep.tokens = 70;
  CheckSchedules(engine->shared_model(), options, sweep, "nano");
}

// Every other family, as far as the shared zoo is on this machine.
class ScheduleOfFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(ScheduleOfFamily, SameBits) {
  CELLM_SKIP_WITHOUT_SHARED(folder, std::string("zoo/") + GetParam());
  for (const Mode& mode : {kModes[0], kModes[3], kCodedMode}) {
    EngineOptions options = testing::FloatPath();
    options.activations = mode.activations;
    options.kv_type = mode.kv_type;
    const auto engine = testing::OpenEngine(folder, options);
    ASSERT_NE(engine, nullptr);
    Sweep sweep;
    sweep.tokens = 45;  // past the zoo's windows of 32
    sweep.chunks = {1, 7, 0};
    sweep.threads_and_page_tokens = {{2, 16}};
    CheckSchedules(engine->shared_model(), options, sweep,
                   std::string(GetParam()) + " " + mode.name);
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ScheduleOfFamily,
                         ::testing::Values("apertus", "gemma3", "gemma4", "granite", "hunyuan",
                                           "lfm2", "olmo2", "phi3", "qwen2", "qwen3", "qwen3_5",
                                           "qwen3_moe", "smollm3"),
                         [](const auto& param) { return std::string(param.param); });

// users.md row 1: identical requests in the same steps give identical logits.
TEST(Schedule, IdenticalRequestsGetIdenticalLogits) {
  TinyLlama spec;
  spec.format = TinyFormat::kPackedI4;
  const auto model = LoadTiny(TinyLlamaFile(spec));
  EngineOptions options;
  options.logit_rows = 512;
  const auto engine = MakeEngine(model, options);
  const std::vector<int32_t> tokens = RandomTokens(50, spec.vocab, 5);
  const std::vector<float> expected = AllLogits(*engine, tokens);
  for (const int32_t n : {1, 2, 3, 8}) {
    std::vector<StepItem> items;
    for (int32_t i = 0; i < n; ++i) {
      items.push_back({*engine->CreateSequence(), tokens, LogitRows::kAll});
    }
    const auto output = engine->Step(items);
    ASSERT_TRUE(output.ok()) << output.status().message();
    for (const StepItemResult& result : output->items) {
      const float* const rows = output->logits.row(result.first_row);
      EXPECT_EQ(std::memcmp(rows, expected.data(), expected.size() * sizeof(float)), 0) << n;
    }
    for (const StepItem& item : items) ASSERT_TRUE(engine->FreeSequence(item.sequence).ok());
  }
}

// users.md row 2: the number of slots and the order of arrival, shuffled by seed.
TEST(Schedule, ArrivalOrderAndSlotCountDoNotMatter) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> expected;
  for (uint64_t i = 0; i < 6; ++i) {
    prompts.push_back(RandomTokens(static_cast<int32_t>(11 + 7 * i), 96, i));
  }
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Rng rng(seed);
    EngineOptions options;
    options.max_sequences = static_cast<int32_t>(6 + rng.NextBelow(20));
    options.logit_rows = 512;
    const auto engine = MakeEngine(model, options);
    if (expected.empty()) {
      for (const auto& prompt : prompts) expected.push_back(AllLogits(*engine, prompt));
    }
    std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
    for (size_t i = 5; i > 0; --i) std::swap(order[i], order[rng.NextBelow(i + 1)]);
    std::vector<SequenceId> ids(6);
    std::vector<std::vector<float>> got(6);
    for (const size_t i : order) ids[i] = *engine->CreateSequence();
    for (bool work = true; work;) {
      std::vector<StepItem> items;
      std::vector<size_t> owners;
      for (const size_t i : order) {
        const size_t at = static_cast<size_t>(*engine->Position(ids[i]));
        const size_t left = prompts[i].size() - at;
        if (left == 0 || rng.NextBelow(3) == 0) continue;
        const size_t take = 1 + rng.NextBelow(std::min<size_t>(left, 9));
        items.push_back({ids[i], {prompts[i].data() + at, take}, LogitRows::kAll});
        owners.push_back(i);
      }
      if (!items.empty()) {
        const auto output = engine->Step(items);
        ASSERT_TRUE(output.ok()) << output.status().message();
        for (size_t k = 0; k < items.size(); ++k) {
          const float* const rows = output->logits.row(output->items[k].first_row);
          got[owners[k]].insert(got[owners[k]].end(), rows, rows + items[k].tokens.size() * 96);
        }
      }
      work = false;
      for (size_t i = 0; i < 6; ++i) work = work || got[i].size() < prompts[i].size() * 96;
    }
    for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(SameBits(got[i], expected[i])) << seed << " " << i;
  }
}

// users.md row 3: cold, one token at a time, after a rewind and on a forked prefix.
TEST(Schedule, ReusedPrefixGivesTheSameBits) {
  const auto model = LoadTiny(TinyLlamaFile(TinyLlama()));
  EngineOptions options;
  options.logit_rows = 512;
  const auto engine = MakeEngine(model, options);
  const std::vector<int32_t> tokens = RandomTokens(70, 96, 9);
  const std::vector<float> cold = AllLogits(*engine, tokens);
  EXPECT_TRUE(SameBits(AllLogits(*engine, tokens, 1), cold));
  for (const int32_t kept : {1, 31, 32, 33, 50, 69}) {
    const std::span<const int32_t> all(tokens);
    const size_t k = static_cast<size_t>(kept);
    const auto check_tail = [&](SequenceId id) {
      const StepItem item{id, all.subspan(k), LogitRows::kAll};
      const auto output = engine->Step({&item, 1});
      ASSERT_TRUE(output.ok()) << output.status().message();
      EXPECT_EQ(std::memcmp(output->logits.data, cold.data() + k * 96,
                            (tokens.size() - k) * 96 * sizeof(float)),
                0)
          << kept;
    };
    const SequenceId first = *engine->CreateSequence();
    const StepItem warm{first, all, LogitRows::kNone};
    ASSERT_TRUE(engine->Step({&warm, 1}).ok());
    ASSERT_TRUE(engine->Rewind(first, kept).ok());
    const SequenceId fork = *engine->Fork(first);
    // The fork writes other tokens first, into pages that it must copy.
    const std::vector<int32_t> noise = RandomTokens(20, 96, 1234);
    const StepItem other{fork, noise, LogitRows::kNone};
    ASSERT_TRUE(engine->Step({&other, 1}).ok());
    engine->CheckInvariants();
    check_tail(first);
    ASSERT_TRUE(engine->Rewind(fork, kept).ok());
    check_tail(fork);
    engine->CheckInvariants();
    ASSERT_TRUE(engine->FreeSequence(first).ok());
    ASSERT_TRUE(engine->FreeSequence(fork).ok());
  }
}

// users.md row 6: a prompt of 64 evaluated in two parts, for every place of the cut.
TEST(Schedule, EverySplitPointGivesTheSameBits) {
  TinyLlama spec;
  spec.format = TinyFormat::kPackedI8;
  const auto model = LoadTiny(TinyLlamaFile(spec));
  EngineOptions options;
  options.logit_rows = 512;
  options.page_tokens = 16;
  const auto engine = MakeEngine(model, options);
  const std::vector<int32_t> tokens = RandomTokens(64, spec.vocab, 31);
  const std::vector<float> expected = AllLogits(*engine, tokens);
  for (size_t k = 1; k < tokens.size(); ++k) {
    const SequenceId id = *engine->CreateSequence();
    std::vector<float> got;
    for (const auto part : {std::span(tokens).first(k), std::span(tokens).subspan(k)}) {
      const StepItem item{id, part, LogitRows::kAll};
      const auto output = engine->Step({&item, 1});
      ASSERT_TRUE(output.ok());
      got.insert(got.end(), output->logits.data, output->logits.data + part.size() * 96);
    }
    EXPECT_TRUE(SameBits(got, expected)) << k;
    ASSERT_TRUE(engine->FreeSequence(id).ok());
  }
}

// users.md row 21: two logits that tie exactly stay tied, wherever their rows lie in the matrix,
// whatever the batch; and a difference of one rounding step always falls the same way.
TEST(Schedule, NearTiesDoNotDependOnTheBatch) {
  for (const TinyFormat format : {TinyFormat::kF32, TinyFormat::kPackedI8}) {
    TinyLlama spec;
    spec.format = format;
    spec.vocab = 64;
    auto file = TinyLlamaFile(spec);
    // Rows 3 and 37 of the head become equal; they lie in different tiles and places of a tile.
    testing::ModelFileBuilder builder(99);
    std::vector<float> head = builder.Random(64 * 64, 0.25f);
    std::copy_n(head.begin() + 3 * 64, 64, head.begin() + 37 * 64);
    // Row 50 is row 3 but for one last bit.
    std::copy_n(head.begin() + 3 * 64, 64, head.begin() + 50 * 64);
    head[50 * 64 + 7] = std::nextafterf(head[50 * 64 + 7], 1.0f);
    builder.AddMatrix("lm_head", 64, 64, format, head);
    auto donor = builder.Build("{}");
    for (format::Tensor& tensor : file->tensors) {
      if (tensor.name == "lm_head.weight") tensor.data = donor->tensors[0].data;
    }
    file->owned_bytes.push_back(std::move(donor->owned_bytes[0]));
    const auto model = LoadTiny(std::move(file));
    ASSERT_NE(model, nullptr);
    EngineOptions options;
    options.logit_rows = 512;
    const auto engine = MakeEngine(model, options);
    const std::vector<int32_t> tokens = RandomTokens(60, spec.vocab, 3);
    const std::vector<float> alone = AllLogits(*engine, tokens, 1);
    for (size_t t = 0; t < tokens.size(); ++t) EXPECT_EQ(alone[t * 64 + 3], alone[t * 64 + 37]);
    EXPECT_TRUE(SameBits(LogitsBesideOthers(*engine, tokens, 7), alone));
    EXPECT_TRUE(SameBits(AllLogits(*engine, tokens), alone));
  }
}

}  // namespace
}  // namespace cellm
