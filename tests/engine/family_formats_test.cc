// Promise 1 over every family in every weight format that its shapes allow, and every tier of this
// CPU: the same bits in chunks of 1, 7, 64 and whole, on one thread and two, alone and beside three
// other sequences.
//
// Weights are noise in the family's own shapes (support/weight_formats.h). Families are those of
// testdata/oracle and of the shared zoo; formats in blocks of 256 fit few of their widths, so two
// models of ours, 256 wide, take all formats: one dense, one of experts. Everyday runs cover each
// family, each format and each tier; CELLM_TEST_LONG=1 takes the whole product of families,
// formats, modes and schedules, with the tiers in turn.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "format/model_file.h"
#include "kernels/kernel_table.h"
#include "platform/file.h"
#include "support/paths.h"
#include "support/schedule.h"
#include "support/tiny_model.h"
#include "support/weight_formats.h"

namespace cellm {
namespace {

using testing::AllWeightFormats;
using testing::CheckSchedules;
using testing::LoadTiny;
using testing::Sweep;
using testing::WeightFormat;

bool Long() { return ::getenv("CELLM_TEST_LONG") != nullptr; }

std::vector<std::string> TiersHere() {
  std::vector<std::string> names;
  for (const kernels::Tier& tier : kernels::AllTiers()) {
    if (tier.runs_here()) names.emplace_back(tier.name);
  }
  return names;
}

struct Mode {
  ActivationMode activations;
  KvType kv_type;
  const char* name;
};
constexpr Mode kModes[] = {{ActivationMode::kInt8, KvType::kF16, "i8 kv f16"},
                           {ActivationMode::kFloat32, KvType::kF32, "f32 kv f32"}};

// `turn` chooses the tier, and the mode of an everyday run, which has `tokens`.
void CheckPair(const std::shared_ptr<const Model>& model, size_t turn, int32_t tokens,
               const std::string& name) {
  const std::vector<std::string> tiers = TiersHere();
  Sweep sweep;
  sweep.tokens = 66;  // one more than a chunk of 64 and a bit; past windows of 32
  sweep.threads_and_page_tokens = {{1, 16}, {2, 32}};
  sweep.chunks_beside = {7, 0};
  if (!Long()) {
    sweep.tokens = tokens;
    sweep.chunks = {7};
    sweep.threads_and_page_tokens = {{2, 16}};
  }
  // Two of three turns of the scalar tier, which is slow, go to the best one.
  const size_t chosen = turn % tiers.size() == 0 && turn / tiers.size() % 3 != 0
                            ? tiers.size() - 1
                            : turn % tiers.size();
  for (size_t m = 0; m < std::size(kModes); ++m) {
    if (!Long() && m != turn / tiers.size() % std::size(kModes)) continue;
    EngineOptions options;
    options.kernels = tiers[chosen];
    options.activations = kModes[m].activations;
    options.kv_type = kModes[m].kv_type;
    CheckSchedules(model, options, sweep, name + ", " + tiers[chosen] + ", " + kModes[m].name);
  }
}

// -- Families

struct FamilyModel {
  const char* name;
  bool zoo = false;
};

constexpr FamilyModel kFamilies[] = {
    {"exaone4"},
    {"exaone4_window"},
    {"gemma2"},
    {"granitemoe"},
    {"granitemoe_fused"},
    {"granitemoehybrid"},
    {"granitemoehybrid_dense"},
    {"granitemoeshared"},
    {"lfm2_moe"},
    {"llama_dynamic"},
    {"llama_longrope"},
    {"llama_yarn"},
    {"minicpm"},
    {"ministral3"},
    {"mistral"},
    {"mobilellm"},
    {"olmo3"},
    {"phi3_longrope"},
    {"qwen2_window"},
    {"qwen3_5_moe"},
    {"qwen3_window"},
    {"apertus", true},
    {"bitnet", true},
    {"gemma3", true},
    {"gemma4", true},
    {"granite", true},
    {"hunyuan", true},
    {"lfm2", true},
    {"llama", true},
    {"olmo2", true},
    {"phi3", true},
    {"qwen2", true},
    {"qwen3", true},
    {"qwen3_5", true},
    {"qwen3_moe", true},
    {"smollm3", true},
};

class FamilyFormats : public ::testing::TestWithParam<size_t> {};

TEST_P(FamilyFormats, SameBitsUnderEverySchedule) {
  const FamilyModel& family = kFamilies[GetParam()];
  std::string folder;
  if (family.zoo) {
    CELLM_SKIP_WITHOUT_SHARED(shared, std::string("zoo/") + family.name);
    folder = shared;
  } else {
    folder = testing::TestData(std::string("oracle/") + family.name);
  }
  const std::vector<WeightFormat> formats = AllWeightFormats();
  int pairs = 0;
  for (size_t i = 0; i < formats.size(); ++i) {
    // Another format for each family to begin with; every day the first two that its shapes allow.
    const WeightFormat& format = formats[(i + 7 * GetParam()) % formats.size()];
    auto file = format::OpenModelFile(platform::SystemFiles(), folder);
    ASSERT_TRUE(file.ok()) << file.status().message();
    if (Reformat(format, 1 + i, file->get()) == 0) continue;
    const std::string name = std::string(family.name) + " in " + format.name;
    SCOPED_TRACE(name);
    const auto model = LoadTiny(std::move(*file));
    ASSERT_NE(model, nullptr);
    CheckPair(model, GetParam() + i, 36, name);
    ++pairs;
    if (!Long() && pairs == (family.zoo ? 1 : 2)) break;
  }
  EXPECT_GT(pairs, 0);
  RecordProperty("pairs", pairs);
}

INSTANTIATE_TEST_SUITE_P(Promise1, FamilyFormats, ::testing::Range<size_t>(0, std::size(kFamilies)),
                         [](const auto& param) {
                           return std::string(kFamilies[param.param].name);
                         });

// -- Formats

// One layer of width 256: dense, or of four experts with two at work.
std::unique_ptr<format::ModelFile> Wide(bool experts) {
  testing::ModelFileBuilder builder(7);
  constexpr int32_t kWidth = 256;
  const auto matrix = [&](const std::string& name, int32_t rows) {
    builder.AddMatrix(name, rows, kWidth, testing::TinyFormat::kF32);
  };
  const auto norm = [&](const std::string& name, int32_t count) {
    std::vector<float> weights = builder.Random(count, 0.3f);
    for (float& weight : weights) weight += 1.0f;
    builder.AddVector(name, weights);
  };
  matrix("model.embed_tokens", 96);
  norm("model.norm.weight", kWidth);
  const std::string layer = "model.layers.0.";
  norm(layer + "input_layernorm.weight", kWidth);
  norm(layer + "post_attention_layernorm.weight", kWidth);
  norm(layer + "self_attn.q_norm.weight", 64);
  norm(layer + "self_attn.k_norm.weight", 64);
  matrix(layer + "self_attn.q_proj", kWidth);
  matrix(layer + "self_attn.k_proj", 128);
  matrix(layer + "self_attn.v_proj", 128);
  matrix(layer + "self_attn.o_proj", kWidth);
  if (experts) matrix(layer + "mlp.gate", 4);
  for (int32_t e = 0; e < (experts ? 4 : 1); ++e) {
    const std::string mlp =
        layer + "mlp." + (experts ? "experts." + std::to_string(e) + "." : std::string());
    for (const char* const name : {"gate_proj", "up_proj", "down_proj"}) matrix(mlp + name, kWidth);
  }
  std::string config = R"({"vocab_size": 96, "hidden_size": 256, "intermediate_size": 256,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
      "max_position_embeddings": 512, "tie_word_embeddings": true, "eos_token_id": 2, )";
  config += experts ? R"("moe_intermediate_size": 256, "num_experts": 4, "num_experts_per_tok": 2,
      "norm_topk_prob": true, "model_type": "qwen3_moe"})"
                    : R"("model_type": "qwen3"})";
  return builder.Build(config);
}

TEST(WeightFormats, SameBitsUnderEverySchedule) {
  const std::vector<WeightFormat> formats = AllWeightFormats();
  int pairs = 0;
  for (size_t i = 0; i < formats.size(); ++i) {
    for (const bool experts : {false, true}) {
      if (!Long() && experts != (i % 3 == 0)) continue;
      auto file = Wide(experts);
      // 7 matrices and the embedding, or 4 and 12; formats of other projects leave the embedding.
      EXPECT_GE(Reformat(formats[i], 1 + i, file.get()), experts ? 16 : 7) << formats[i].name;
      const std::string name = (experts ? "experts in " : "dense in ") + formats[i].name;
      SCOPED_TRACE(name);
      const auto model = LoadTiny(std::move(file));
      ASSERT_NE(model, nullptr);
      CheckPair(model, i, 16, name);
      ++pairs;
    }
  }
  EXPECT_GE(pairs, static_cast<int>(formats.size()));
  RecordProperty("pairs", pairs);
}

}  // namespace
}  // namespace cellm
