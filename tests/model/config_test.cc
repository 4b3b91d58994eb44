#include "model/config.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "json/json.h"
#include "support/tiny_model.h"

namespace cellm {
namespace {

using ::cellm::testing::TinyLlama;
using ::cellm::testing::TinyLlamaFile;
using ::cellm::testing::TryLoadTiny;

std::unique_ptr<json::Document> Parse(const std::string& text) {
  auto document = json::Document::Parse(text, "config");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return std::move(document).value();
}

TEST(Config, AbsentAndNullMeanTheDefault) {
  const auto document = Parse(R"({"a": null, "b": 3.0, "c": true})");
  Config config(document->root());
  EXPECT_EQ(config.Int("a", 5), 5);
  EXPECT_EQ(config.Int("absent", 6), 6);
  EXPECT_EQ(config.Int("b", 5), 3);  // a float with an integral value
  EXPECT_TRUE(config.Bool("c", false));
  EXPECT_TRUE(config.IsNull("a"));
  EXPECT_FALSE(config.IsNull("absent"));
  EXPECT_TRUE(config.Finish().ok());
}

TEST(Config, WrongTypesAndRangesNameTheKey) {
  const char* const texts[] = {R"({"n": "four"})",  R"({"n": 0})",    R"({"n": -3})",
                               R"({"n": 2.5})",     R"({"n": 1e30})", R"({"n": [1]})",
                               R"({"n": 99999999})"};
  for (const char* const text : texts) {
    const auto document = Parse(text);
    Config config(document->root());
    EXPECT_EQ(config.Int("n", 7), 7);
    EXPECT_EQ(config.status().code(), StatusCode::kCorrupt) << text;
    EXPECT_NE(config.status().message().find("\"n\""), std::string::npos);
  }
}

TEST(Config, LeftOverSettingsAreRefusedByName) {
  const struct {
    const char* text;
    bool refused;
  } cases[] = {
      {R"({"use_wormholes": true})", true},
      {R"({"use_wormholes": false, "wormholes": 0, "list": [], "none": null})", false},
      {R"({"wormhole_count": 3})", true},
      {R"({"wormholes": [1, 2]})", true},
      {R"({"wormholes": {"deep": 1}})", true},
      {R"({"author": "someone", "note": "a string is not a switch"})", false},
      {R"({"transformers_version": "5.0", "use_cache": true, "initializer_range": 0.02})", false},
      {R"({"_name_or_path": "x", "mtp_layers": 3})", false},
  };
  for (const auto& test : cases) {
    const auto document = Parse(test.text);
    Config config(document->root());
    const Status status = config.Finish();
    EXPECT_EQ(!status.ok(), test.refused) << test.text;
    if (test.refused) {
      EXPECT_EQ(status.code(), StatusCode::kUnsupported);
      EXPECT_NE(status.message().find("wormhole"), std::string::npos) << status.message();
    }
  }
}

TEST(Config, EndIdsComeAsNumberOrList) {
  const auto one = Parse(R"({"eos_token_id": 4, "bos_token_id": null})");
  const auto list = Parse(R"({"eos_token_id": [4, 9, -1, "x"], "bos_token_id": 3})");
  Config first(one->root());
  Config second(list->root());
  EXPECT_EQ(EosIds(first), std::vector<int32_t>({4}));
  EXPECT_EQ(BosId(first), -1);
  EXPECT_EQ(EosIds(second), std::vector<int32_t>({4, 9}));
  EXPECT_EQ(BosId(second), 3);
}

// Every value of a llama configuration that we do not run is refused with its key.
TEST(LlamaConfig, RefusesByName) {
  const struct {
    const char* extra;
    const char* in_message;
    StatusCode code;
  } cases[] = {
      {R"(, "hidden_act": "wiggle")", "wiggle", StatusCode::kUnsupported},
      {R"(, "sliding_window": 128)", "sliding_window", StatusCode::kUnsupported},
      {R"(, "quantization_config": {"quant_method": "magic"})", "quantization_config",
       StatusCode::kUnsupported},
      {R"(, "layer_sharing": true)", "layer_sharing", StatusCode::kUnsupported},
      {R"(, "num_experts": 8)", "num_experts", StatusCode::kUnsupported},
      {R"(, "num_key_value_heads": 3)", "num_key_value_heads", StatusCode::kUnsupported},
      {R"(, "num_hidden_layers": 100000)", "num_hidden_layers", StatusCode::kUnsupported},
      {R"(, "rms_norm_eps": "small")", "rms_norm_eps", StatusCode::kCorrupt},
      {R"(, "rope_scaling": {"rope_type": "cubic"})", "cubic", StatusCode::kUnsupported},
      {R"(, "model_type": "starfish")", "starfish", StatusCode::kUnsupported},
      {R"(, "model_type": 3)", "model_type", StatusCode::kCorrupt},
      {R"(, "hidden_size": 60)", "[96, 60]", StatusCode::kCorrupt},
      {R"(, "num_hidden_layers": 3)", "layers.2", StatusCode::kNotFound},
  };
  for (const auto& test : cases) {
    TinyLlama spec;
    spec.extra_config = test.extra;
    const auto model = TryLoadTiny(TinyLlamaFile(spec));
    ASSERT_FALSE(model.ok()) << test.extra;
    EXPECT_EQ(model.status().code(), test.code) << model.status().message();
    EXPECT_NE(model.status().message().find(test.in_message), std::string::npos)
        << model.status().message();
    // Names the file, once.
    EXPECT_EQ(model.status().message().find("tiny: "), 0u) << model.status().message();
    EXPECT_EQ(model.status().message().rfind("tiny: "), 0u) << model.status().message();
  }
}

TEST(LlamaConfig, ReadsWhatItSays) {
  TinyLlama spec;
  spec.extra_config = R"(, "bos_token_id": 1, "eos_token_id": [2, 5])";
  const auto model = TryLoadTiny(TinyLlamaFile(spec));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const ModelInfo& info = (*model)->info;
  EXPECT_EQ(info.family, "llama");
  EXPECT_EQ(info.vocab_size, 96);
  EXPECT_EQ(info.max_context, 512);
  EXPECT_EQ(info.bos_id, 1);
  EXPECT_EQ(info.eos_ids, std::vector<int32_t>({2, 5}));
  EXPECT_EQ(info.layers.size(), 2u);
  // Embedding and head, final norm, and per layer q k v o, gate up down, two norms.
  const int64_t layer = 64 * 64 * 2 + 32 * 64 * 2 + 3 * 96 * 64 + 2 * 64;
  EXPECT_EQ(info.parameter_count, 2 * 96 * 64 + 64 + 2 * layer);
  EXPECT_EQ(info.weight_bytes, 4u * static_cast<uint64_t>(info.parameter_count));
}

TEST(MistralConfig, WindowAbsentNullAndSet) {
  TinyLlama spec;
  spec.window = 33;
  auto model = TryLoadTiny(TinyLlamaFile(spec));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->info.layers[0].window, 33);
  spec.extra_config = R"(, "sliding_window": null)";
  EXPECT_EQ((*TryLoadTiny(TinyLlamaFile(spec)))->info.layers[0].window, 0);
  TinyLlama absent;
  absent.extra_config = R"(, "model_type": "mistral")";
  EXPECT_EQ((*TryLoadTiny(TinyLlamaFile(absent)))->info.layers[0].window, 4096);
}

}  // namespace
}  // namespace cellm
