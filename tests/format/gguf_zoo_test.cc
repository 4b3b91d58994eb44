// GGUF files made by another program from known checkpoints, held to those checkpoints.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "platform/file.h"
#include "support/checkpoint.h"
#include "support/paths.h"
#include "tensor/matrix.h"

namespace cellm::format {
namespace {

using testing::CheckpointTensor;

// A tensor as the engine will see it.
std::vector<float> Decode(const Tensor& tensor) {
  Matrix matrix;
  matrix.format = tensor.format;
  matrix.rows = 1;
  int64_t count = 1;
  for (const int64_t dim : tensor.shape) count *= dim;
  if (tensor.shape.size() == 2) matrix.rows = static_cast<int32_t>(tensor.shape[0]);
  matrix.cols = static_cast<int32_t>(count / matrix.rows);
  matrix.data = tensor.data;
  matrix.row_order = tensor.row_order;
  matrix.column_order = tensor.column_order;
  matrix.column_unit = tensor.column_unit;
  const Status valid = ValidateMatrix(matrix);
  EXPECT_TRUE(valid.ok()) << tensor.name << ": " << valid.message();
  std::vector<float> values(static_cast<size_t>(count));
  if (!valid.ok()) return values;
  for (int32_t row = 0; row < matrix.rows; ++row) {
    DecodeRow(matrix, row, values.data() + static_cast<ptrdiff_t>(row) * matrix.cols);
  }
  return values;
}

// Root of the mean squared difference over that of the expected values.
double RelativeError(const std::vector<float>& got, const std::vector<float>& expected) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    size += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(difference / (size + 1e-30));
}

// What each type may lose on trained weights. A wrong order of rows or columns gives about 1.4.
double AllowedError(Format format) {
  switch (format) {
    case Format::kF32:
      return 2e-7;
    case Format::kF16:
      return 3e-4;
    case Format::kBF16:
      return 0;  // the checkpoints are bf16
    case Format::kQ8_0:
      return 0.012;
    case Format::kQ6_K:
      return 0.03;
    case Format::kQ4_1:
    case Format::kQ4_0:
    case Format::kQ4_K:
    case Format::kQ5_K:
    case Format::kIQ4_XS:
      return 0.13;
    case Format::kQ3_K:
      return 0.25;
    case Format::kQ2_K:
      return 0.45;
    case Format::kTQ2_0:
      return 0.84;
    default:
      return -1;
  }
}

std::map<std::string, CheckpointTensor> ZooCheckpoint(const std::string& model) {
  std::map<std::string, CheckpointTensor> tensors;
  for (auto& [name, tensor] : testing::ReadCheckpoint(testing::SharedData("zoo/" + model))) {
    std::string plain = name;
    const std::string wrapper = "model.language_model.";
    if (plain.starts_with(wrapper)) plain = "model." + plain.substr(wrapper.size());
    tensors.emplace(plain, std::move(tensor));
  }
  return tensors;
}

// The checkpoint's values of `name` in the form that the GGUF writer could express; false when it
// expressed them in other tensors.
bool Adapt(const std::string& model, const std::string& name, CheckpointTensor* tensor) {
  if (model == "qwen3_moe") {
    // The dense layer 1 became experts; experts of 96 columns were padded to 128 with zeros.
    if (name.starts_with("model.layers.1.mlp.")) return false;
    if (name.find(".experts.") != std::string::npos) {
      const bool down = name.find("down_proj") != std::string::npos;
      const size_t rows = static_cast<size_t>(tensor->shape[0]);
      const size_t cols = static_cast<size_t>(tensor->shape[1]);
      const size_t new_rows = down ? rows : 128;
      const size_t new_cols = down ? 128 : cols;
      std::vector<float> padded(new_rows * new_cols);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < cols; ++c) padded[r * new_cols + c] = tensor->values[r * cols + c];
      }
      tensor->values = padded;
      tensor->shape = {static_cast<int64_t>(new_rows), static_cast<int64_t>(new_cols)};
    }
  }
  if (model == "gemma3" && name.ends_with("self_attn.q_norm.weight")) {
    // query_pre_attn_scalar 64 at head size 48, folded into the norm.
    for (float& value : tensor->values) {
      value = static_cast<float>((1.0 + static_cast<double>(value)) * std::sqrt(48.0 / 64.0) - 1.0);
    }
  }
  return true;
}

void CompareWithCheckpoint(const std::string& path, const std::string& model) {
  SCOPED_TRACE(path);
  Result<std::unique_ptr<ModelFile>> opened = OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  std::map<std::string, const Tensor*> by_name;
  for (const Tensor& tensor : (*opened)->tensors) by_name[tensor.name] = &tensor;

  std::map<std::string, CheckpointTensor> checkpoint = ZooCheckpoint(model);
  ASSERT_FALSE(checkpoint.empty());
  size_t compared = 0;
  for (auto& [name, expected] : checkpoint) {
    SCOPED_TRACE(name);
    if (name == "lm_head.weight" && by_name.find(name) == by_name.end()) continue;  // tied
    if (name.ends_with("weight_scale")) continue;  // multiplied into the weights
    if (!Adapt(model, name, &expected)) continue;
    const auto found = by_name.find(name);
    ASSERT_NE(found, by_name.end());
    const Tensor& tensor = *found->second;
    if (expected.dtype == "U8") {  // packed ternary: four row quarters a byte
      const float scale = checkpoint.at(name + "_scale").values[0];
      std::vector<float> unpacked;
      for (int shift = 0; shift < 8; shift += 2) {
        for (const uint8_t byte : expected.bytes) {
          unpacked.push_back((static_cast<float>((byte >> shift) & 3) - 1.0f) * scale);
        }
      }
      expected.values = unpacked;
      expected.shape[0] *= 4;
    }
    if (expected.shape.empty()) expected.shape = {1};
    EXPECT_EQ(tensor.shape, expected.shape);
    const std::vector<float> values = Decode(tensor);
    ASSERT_EQ(values.size(), expected.values.size());
    EXPECT_LE(RelativeError(values, expected.values), AllowedError(tensor.format));
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

struct ZooFile {
  const char* file;
  const char* model;
};
constexpr ZooFile kZooFiles[] = {
    {"gemma3-Q8_0.gguf", "gemma3"},
    {"granite-Q4_1.gguf", "granite"},
    {"lfm2-Q8_0.gguf", "lfm2"},
    {"llama-F16.gguf", "llama"},
    {"qwen2-Q8_0-00001-of-00002.gguf", "qwen2"},
    {"qwen2-Q8_0-00002-of-00002.gguf", "qwen2"},
    {"qwen3-IQ4_XS.gguf", "qwen3"},
    {"qwen3-Q2_K.gguf", "qwen3"},
    {"qwen3-Q3_K_M.gguf", "qwen3"},
    {"qwen3-Q4_0.gguf", "qwen3"},
    {"qwen3-Q4_K_M.gguf", "qwen3"},
    {"qwen3-Q8_0.gguf", "qwen3"},
    {"qwen3-TQ2_0.gguf", "qwen3"},
    {"qwen3_5-Q8_0.gguf", "qwen3_5"},
    {"qwen3_moe-Q4_0.gguf", "qwen3_moe"},
};

TEST(GgufZoo, TensorsHaveTheCheckpointsNamesShapesAndValues) {
  for (const ZooFile& zoo : kZooFiles) {
    CELLM_SKIP_WITHOUT_SHARED(path, std::string("zoo/gguf/") + zoo.file);
    CompareWithCheckpoint(path, zoo.model);
  }
}

// Members that differ on purpose: spelling, or what a GGUF file does not hold.
bool SameMember(const json::Value& expected, const json::Value& got) {
  double a = 0;
  double b = 0;
  if (expected.GetDouble(&a) && got.GetDouble(&b))
    return static_cast<float>(a) == static_cast<float>(b);
  return json::Serialize(expected) == json::Serialize(got);
}

void CompareWithConfig(const std::string& path, const std::string& model) {
  // Names of members, one space apart.
  std::string_view keys =
      "hidden_size intermediate_size num_hidden_layers num_attention_heads "
      "num_key_value_heads rms_norm_eps norm_eps max_position_embeddings vocab_size "
      "tie_word_embeddings rope_theta hidden_act hidden_activation bos_token_id pad_token_id "
      "attention_multiplier embedding_multiplier residual_multiplier logits_scaling "
      "sliding_window rope_local_base_freq conv_L_cache conv_bias layer_types num_experts "
      "num_experts_per_tok norm_topk_prob linear_conv_kernel_dim linear_key_head_dim "
      "linear_value_head_dim linear_num_key_heads linear_num_value_heads "
      "partial_rotary_factor model_type head_dim final_logit_softcapping attention_bias "
      "mlp_bias global_head_dim num_kv_shared_layers use_double_wide_mlp "
      "hidden_size_per_layer_input vocab_size_per_layer_input attention_k_eq_v "
      "enable_moe_block original_max_position_embeddings ";
  SCOPED_TRACE(path);
  Result<std::unique_ptr<ModelFile>> opened = OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::string config_path = testing::SharedData("zoo/" + model + "/config.json");
  Result<std::string> text = platform::SystemFiles().Read(config_path, 1 << 20);
  ASSERT_TRUE(text.ok());
  auto document = json::Document::Parse(*text, config_path);
  ASSERT_TRUE(document.ok());
  json::Value expected = (*document)->root();
  if (expected.Find("text_config").is_object()) expected = expected.Find("text_config");
  const json::Value got = (*opened)->config->root();
  size_t compared = 0;
  while (!keys.empty()) {
    const std::string_view key = keys.substr(0, keys.find(' '));
    keys.remove_prefix(std::min(keys.size(), key.size() + 1));
    if (!expected.Find(key).has_value()) continue;
    EXPECT_TRUE(SameMember(expected.Find(key), got.Find(key)))
        << key << ": " << json::Serialize(got.Find(key)) << ", expected "
        << json::Serialize(expected.Find(key));
    ++compared;
  }
  EXPECT_GT(compared, 12u);
}

TEST(GgufZoo, TheConfigurationIsTheCheckpoints) {
  for (const ZooFile& zoo : kZooFiles) {
    CELLM_SKIP_WITHOUT_SHARED(path, std::string("zoo/gguf/") + zoo.file);
    CompareWithConfig(path, zoo.model);
  }
}

TEST(GgufZoo, TextsAndEndIdsArrive) {
  CELLM_SKIP_WITHOUT_SHARED(path, "zoo/gguf/llama-F16.gguf");
  Result<std::unique_ptr<ModelFile>> opened = OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const ModelFile& model = **opened;
  ASSERT_NE(model.gguf_tokenizer, nullptr);
  EXPECT_EQ(model.gguf_tokenizer->model, "gpt2");
  EXPECT_EQ(model.gguf_tokenizer->pre, "llama-bpe");
  EXPECT_EQ(model.gguf_tokenizer->tokens.size(), 2048u);
  EXPECT_EQ(model.gguf_tokenizer->merges.size(), 1786u);
  EXPECT_EQ(model.gguf_tokenizer->tokens[2042], "<|begin_of_text|>");
  EXPECT_EQ(model.gguf_tokenizer->bos_id, 2042);
  EXPECT_EQ(model.gguf_tokenizer->add_bos, std::optional<bool>(true));
  EXPECT_TRUE(model.chat_template.starts_with("{{- bos_token }}"));
  EXPECT_NE(model.generation_config_json.find("\"eos_token_id\": [2046, 2043]"),
            std::string_view::npos)
      << model.generation_config_json;
  // llama3 scaling arrives as divisors; the first pair turns as it is, the last 8 times slower.
  const json::Value scaling = model.config->root().Find("rope_scaling");
  double first = 0;
  double last = 0;
  ASSERT_TRUE(scaling.Find("long_factor").At(0).GetDouble(&first));
  ASSERT_TRUE(scaling.Find("short_factor").At(15).GetDouble(&last));
  EXPECT_EQ(first, 1.0);
  EXPECT_EQ(last, 8.0);
}

TEST(GgufZoo, GemmaLinearScalingIsOfTheGlobalLayersOnly) {
  CELLM_SKIP_WITHOUT_SHARED(path, "zoo/gguf/gemma3-Q8_0.gguf");
  Result<std::unique_ptr<ModelFile>> opened = OpenModelFile(platform::SystemFiles(), path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const json::Value config = (*opened)->config->root();
  EXPECT_EQ(json::Serialize(config.Find("rope_scaling")),
            "{\"rope_type\":\"linear\",\"factor\":2.0}");
  EXPECT_EQ(json::Serialize(config.Find("layer_types")),
            "[\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\"]");
  int64_t scalar = 0;
  EXPECT_TRUE(config.Find("query_pre_attn_scalar").GetInt64(&scalar));
  EXPECT_EQ(scalar, 48);
}

// The families of which the zoo has no GGUF file: written now by our converter, where it can run.
TEST(GgufZoo, FilesOfTheOtherFamiliesCarryTheirCheckpoints) {
  CELLM_SKIP_WITHOUT_SHARED(script, "tools/hf2gguf.py");
  const std::string folder = testing::TempFolder();
  std::string python;
  for (const char* candidate : {"python3", "/usr/bin/python3"}) {
    const std::string probe = std::string(candidate) + " -c 'import numpy' 2>/dev/null";
    if (python.empty() && std::system(probe.c_str()) == 0) python = candidate;
  }
  if (python.empty()) GTEST_SKIP() << "SKIPPED: no python3 with numpy, which writes the files";
  for (const char* model : {"nano", "apertus", "bitnet", "gemma4", "hunyuan", "olmo2", "phi3"}) {
    const std::string path = folder + "/" + model + ".gguf";
    const std::string command = python + " '" + script + "' '" +
                                testing::SharedData(std::string("zoo/") + model) + "' '" + path +
                                "' --type bf16";
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    CompareWithCheckpoint(path, model);
    CompareWithConfig(path, model);
  }
}

}  // namespace
}  // namespace cellm::format
