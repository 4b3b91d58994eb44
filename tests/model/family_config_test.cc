// What a family does not understand is refused by the name of the key (users.md row 88).
// For every family; configurations are refused before weights are looked at, so that any will do.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "json/json.h"
#include "model/model.h"
#include "platform/file.h"
#include "support/memory_files.h"
#include "support/paths.h"
#include "support/zoo.h"

namespace cellm {
namespace {

using ::cellm::testing::MemoryFiles;
using ::cellm::testing::TestData;

std::string Weights(const std::string& folder) {
  auto bytes = platform::SystemFiles().Read(folder + "/model.safetensors", 1 << 20);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? std::move(bytes).value() : std::string();
}

Status OpenWith(const std::string& config, const std::string& weights) {
  MemoryFiles memory;
  memory.files["m/config.json"] = config;
  memory.files["m/model.safetensors"] = weights;
  return Engine::Open(memory, "m", testing::FloatPath()).status();
}

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

class FamilyConfig : public ::testing::TestWithParam<std::string_view> {
 protected:
  // A configuration of the family's defaults and `members` is refused, with `in_message` in one
  // line.
  void ExpectRefused(const std::string& members, const std::string& in_message) {
    const std::string config =
        R"({"model_type": ")" + std::string(GetParam()) + "\", " + members + "}";
    const Status status = OpenWith(config, weights_);
    ASSERT_FALSE(status.ok()) << config;
    EXPECT_TRUE(status.code() == StatusCode::kUnsupported || status.code() == StatusCode::kCorrupt)
        << status.message();
    EXPECT_NE(status.message().find(in_message), std::string::npos) << config << "\n"
                                                                    << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  // Keys without a default.
  static std::string Needed() {
    const bool types = GetParam() == "lfm2_moe";
    return types ? R"("num_hidden_layers": 1, "layer_types": ["conv"], )" : "";
  }
  const std::string weights_ = Weights(TestData("oracle/mistral"));
};

TEST_P(FamilyConfig, UnknownSettings) {
  ExpectRefused(Needed() + R"("wormhole_factor": 3)", "\"wormhole_factor\": 3");
  ExpectRefused(Needed() + R"("use_wormholes": true)", "use_wormholes");
  ExpectRefused(Needed() + R"("wormholes": {"deep": [1]})", "wormholes");
}

TEST_P(FamilyConfig, HeadsThatDoNotDivide) {
  ExpectRefused(R"("hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 4)",
                "\"num_key_value_heads\" 4");
}

TEST_P(FamilyConfig, LayerTypes) {
  ExpectRefused(R"("num_hidden_layers": 2, "layer_types": ["full_attention", "sideways"])",
                "layer_types");
  ExpectRefused(R"("num_hidden_layers": 2, "layer_types": ["full_attention"])", "layer_types");
}

TEST_P(FamilyConfig, WindowsWithoutSupport) {
  const bool has_windows =
      IsOneOf(GetParam(), {"mistral", "ministral3", "phi3", "qwen2", "qwen3", "qwen3_vl_text",
                           "qwen3_moe", "smollm3", "gemma2", "gemma3", "gemma3_text", "gemma4",
                           "gemma4_text", "olmo3", "exaone4"});
  if (GetParam() == "smollm3") {  // looks at the width only when windows are on
    ExpectRefused(R"("use_sliding_window": true, "sliding_window": -5)", "sliding_window");
    return;
  }
  // Those that have windows take no nonsense for one.
  const char* const width = has_windows ? "\"sliding_window\": -5" : "\"sliding_window\": 64";
  ExpectRefused(Needed() + width, "sliding_window");
}

TEST_P(FamilyConfig, RotaryKinds) {
  ExpectRefused(Needed() + R"("rope_scaling": {"rope_type": "cubic", "factor": 2.0})", "cubic");
}

TEST_P(FamilyConfig, QuantisationMethods) {
  ExpectRefused(R"("quantization_config": {"quant_method": "magic"})", "magic");
}

TEST_P(FamilyConfig, Sizes) {
  ExpectRefused(R"("num_hidden_layers": 1000000)", "num_hidden_layers");
  ExpectRefused(R"("hidden_size": -4)", "hidden_size");
  ExpectRefused(R"("num_attention_heads": "many")", "num_attention_heads");
  ExpectRefused(R"("vocab_size": 0)", "vocab_size");
}

std::vector<std::string_view> AllModelTypes() {
  std::vector<std::string_view> types;
  for (const Family* const family : AllFamilies()) {
    types.insert(types.end(), family->model_types.begin(), family->model_types.end());
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyConfig, ::testing::ValuesIn(AllModelTypes()),
                         [](const auto& param) { return std::string(param.param); });

// What single families refuse, beside the above.
TEST(FamilyRefusals, ByName) {
  const std::string weights = Weights(TestData("oracle/mistral"));
  const struct {
    const char* config;
    const char* in_message;
  } cases[] = {
      {R"("model_type": "mistral", "layer_types": ["full_attention"])", "layer_types"},
      {R"("model_type": "llama", "layer_sharing": true)", "layer_sharing"},
      {R"("model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2.0,
          "llama_4_scaling_beta": 0.1})",
       "llama_4_scaling_beta"},
      {R"("model_type": "ministral3", "rope_parameters": {"rope_type": "yarn", "factor": 2.0,
          "original_max_position_embeddings": 64})",
       "llama_4_scaling_beta"},
      {R"("model_type": "minicpm", "num_experts": 4)", "num_experts"},
      {R"("model_type": "minicpm", "sparse_config": {"block_size": 64})", "sparse_config"},
      {R"("model_type": "minicpm", "use_mup": false)", "use_mup"},
      {R"("model_type": "exaone4", "sliding_window_pattern": "LLLG")", "sliding_window_pattern"},
      {R"("model_type": "olmo2", "clip_qkv": 8.0)", "clip_qkv"},
      {R"("model_type": "lfm2_moe")", "layer_types"},
      {R"("model_type": "granitemoehybrid", "mamba_proj_bias": true)", "mamba_proj_bias"},
      {R"("model_type": "granitemoehybrid", "mamba_n_heads": 3, "num_hidden_layers": 1)", "mamba"},
      {R"("model_type": "granitemoe", "num_experts_per_tok": 9)", "num_experts_per_tok"},
      {R"("model_type": "qwen3_moe", "num_experts_per_tok": 999)", "num_experts_per_tok"},
      {R"("model_type": "gemma2", "use_bidirectional_attention": true)", "use_bidirectional"},
      {R"("model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0],
          "long_factor": [1.0]})",
       "short_factor"},
      {R"("model_type": "granite", "logits_scaling": 0.0)", "logits_scaling"},
      {R"("model_type": "starfish")", "starfish"},
      {R"("hidden_size": 32)", "model_type"},
  };
  for (const auto& test : cases) {
    const Status status = OpenWith("{" + std::string(test.config) + "}", weights);
    ASSERT_FALSE(status.ok()) << test.config;
    EXPECT_NE(status.message().find(test.in_message), std::string::npos) << test.config << "\n"
                                                                         << status.message();
  }
}

// A wrapper's tie_word_embeddings decides; the text model's own does not. The file has a head.
TEST(Wrapper, ItsOwnTieDecides) {
  const std::string folder = TestData("oracle/mistral3_wrapper");
  const std::string weights = Weights(folder);
  const std::string config = *platform::SystemFiles().Read(folder + "/config.json", 1 << 16);
  const std::string tied = "\"tie_word_embeddings\": true";
  ASSERT_NE(config.find(tied), std::string::npos);
  const auto parameters = [&weights](const std::string& text) {
    MemoryFiles memory;
    memory.files["m/config.json"] = text;
    memory.files["m/model.safetensors"] = weights;
    const auto engine = Engine::Open(memory, "m", testing::FloatPath());
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.ok() ? (*engine)->info().parameter_count : 0;
  };
  std::string untied = config;
  untied.replace(untied.find(tied), tied.size(), "\"tie_word_embeddings\": false");
  std::string silent = config;
  silent.replace(silent.find(tied), tied.size(), "\"nothing\": false");
  // The text model's says the contrary in both.
  const auto flip = [](std::string text, const char* from, const char* to) {
    const size_t at = text.find(from, text.find("text_config"));
    EXPECT_NE(at, std::string::npos);
    if (at != std::string::npos) text.replace(at, std::string(from).size(), to);
    return text;
  };
  const int64_t head = 97 * 32;
  const int64_t with_tie = parameters(config);
  EXPECT_EQ(parameters(untied), with_tie + head);
  const char* const no = "\"tie_word_embeddings\": false";
  EXPECT_EQ(parameters(flip(untied, no, tied.c_str())), with_tie + head);
  EXPECT_EQ(parameters(flip(silent, no, tied.c_str())), with_tie + head);  // the family's default
}

TEST(Wrapper, ItsQuantisationIsSeen) {
  const std::string folder = TestData("oracle/mistral3_wrapper");
  std::string config = *platform::SystemFiles().Read(folder + "/config.json", 1 << 16);
  config.insert(config.find('{') + 1, R"("quantization_config": {"quant_method": "magic"},)");
  const Status status = OpenWith(config, Weights(folder));
  ASSERT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("magic"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace cellm
