// Published models that are a configuration on a family's ops: their config.json, with every key
// that the publisher wrote, must be accepted and mean what it says. Sizes are cut down to those of
// a small checkpoint of the family, whose weights are used; everything else is as published.

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "format/model_file.h"
#include "json/json.h"
#include "platform/file.h"
#include "support/paths.h"
#include "support/tiny_model.h"
#include "support/weight_formats.h"
#include "support/zoo.h"

namespace cellm {
namespace {

struct Published {
  const char* name;
  const char* folder;     // of testdata, or "zoo/..." of the shared data
  const char* overrides;  // members that only fit the sizes, after those of kSizes
  const char* config;
  // What must come out.
  const char* family;
  int32_t max_context;
  std::vector<int32_t> end_ids;
  const char* weights = "";  // a format of support/weight_formats.h
};

// Taken from the small checkpoint.
constexpr std::string_view kSizes[] = {
    "vocab_size",          "hidden_size",         "intermediate_size",        "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "shared_intermediate_size", "mamba_n_heads",
    "mamba_n_groups",      "mamba_d_state"};

const Published kPublished[] = {
    {"SmolLM2_135M_Instruct",
     "zoo/llama",
     "",
     R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
      "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
      "is_llama_config": true, "max_position_embeddings": 8192, "mlp_bias": false,
      "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
      "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
      "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
      "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152)",
     "llama",
     8192,
     {2}},
    {"TinyLlama_1_1B_Chat",
     "zoo/llama",
     "",
     R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 5632, "max_position_embeddings": 2048, "model_type": "llama",
      "num_attention_heads": 32, "num_hidden_layers": 22, "num_key_value_heads": 4,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.35.0",
      "use_cache": true, "vocab_size": 32000)",
     "llama",
     2048,
     {2}},
    {"Llama_3_2_1B_Instruct",
     "zoo/llama",
     "\"head_dim\": 32",
     R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 64,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
      "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
      "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256)",
     "llama",
     131072,
     {128001, 128008, 128009}},
    {"Qwen2_5_0_5B_Instruct",
     "oracle/qwen2_window",
     "\"head_dim\": 16",
     R"({
      "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
      "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896,
      "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
      "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
      "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936)",
     "qwen2",
     32768,
     {151645}},
    // Bonsai: Qwen3 with one bit a weight and a scale for 128.
    {"Bonsai_of_Qwen3_0_6B",
     "zoo/qwen3",
     "\"head_dim\": 64",
     R"({
      "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
      "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
      "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
      "vocab_size": 151936)",
     "qwen3",
     40960,
     {151645},
     "q1_0"},
    {"Phi_3_5_mini_instruct",
     "oracle/phi3_longrope",
     R"("head_dim": 16, "rope_scaling": {"type": "longrope",
         "long_factor": [1.08, 1.1, 1.3, 1.9, 2.6, 3.1, 4.4, 6.0],
         "short_factor": [1.0, 1.0, 1.0, 1.05, 1.1, 1.2, 1.2, 1.3]})",
     R"({
      "_name_or_path": "Phi-3.5-mini-instruct", "architectures": ["Phi3ForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
                   "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
      "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu",
      "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "model_type": "phi3", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32,
      "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 262144,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.43.3", "use_cache": true, "vocab_size": 32064)",
     "phi3",
     131072,
     {32000}},
    {"LFM2_5_1_2B_Instruct",
     "zoo/lfm2",
     R"("layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
        "block_auto_adjust_ff_dim": false, "block_ff_dim": 320)",
     R"({
      "architectures": ["Lfm2ForCausalLM"], "block_dim": 2048,
      "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0,
      "block_multiple_of": 256, "block_norm_eps": 1e-05, "block_out_init_scale": 1.0,
      "block_use_swiglu": true, "block_use_xavier_init": true, "bos_token_id": 1,
      "conv_L_cache": 3, "conv_bias": false, "conv_dim": 2048, "conv_dim_out": 2048,
      "conv_use_xavier_init": true, "dtype": "bfloat16", "eos_token_id": 7,
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 12288,
      "max_position_embeddings": 128000, "model_type": "lfm2", "norm_eps": 1e-05,
      "num_attention_heads": 32, "num_heads": 32, "num_hidden_layers": 16,
      "num_key_value_heads": 8, "pad_token_id": 0,
      "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
      "tie_embedding": true, "transformers_version": "4.57.1", "use_cache": true,
      "use_pos_enc": true, "vocab_size": 65536)",
     "lfm2",
     128000,
     {7}},
    {"MobileLLM_125M_with_layer_sharing",
     "oracle/mobilellm",
     "\"head_dim\": 16, \"layer_sharing\": true",
     R"({
      "architectures": ["MobileLLMForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_mobilellm.MobileLLMConfig",
                   "AutoModelForCausalLM": "modeling_mobilellm.MobileLLMForCausalLM"},
      "bos_token_id": 1, "eos_token_id": 2, "head_dim": 64, "hidden_act": "silu",
      "hidden_size": 576, "initializer_range": 0.02, "intermediate_size": 1536,
      "max_position_embeddings": 2048, "mlp_bias": false, "model_type": "mobilellm",
      "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "share_embedding": true, "tie_word_embeddings": false, "torch_dtype": "float16",
      "transformers_version": "4.41.2", "use_cache": true, "vocab_size": 32000)",
     "mobilellm",
     2048,
     {2}},
    {"MiniCPM_2B_sft",
     "oracle/minicpm",
     "\"head_dim\": 16",
     R"({
      "_name_or_path": "openbmb/CPM-2B", "architectures": ["MiniCPMForCausalLM"],
      "auto_map": {"AutoConfig": "configuration_minicpm.MiniCPMConfig",
                   "AutoModel": "modeling_minicpm.MiniCPMModel",
                   "AutoModelForCausalLM": "modeling_minicpm.MiniCPMForCausalLM"},
      "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2304,
      "initializer_range": 0.1, "intermediate_size": 5760, "max_position_embeddings": 4096,
      "num_attention_heads": 36, "num_hidden_layers": 40, "num_key_value_heads": 36,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "torch_dtype": "bfloat16",
      "transformers_version": "4.36.0", "use_cache": true, "vocab_size": 122753,
      "scale_emb": 12, "dim_model_base": 256, "scale_depth": 1.4, "model_type": "minicpm")",
     "minicpm",
     4096,
     {2}},
    {"Granite_4_0_350M",
     "oracle/granitemoehybrid_dense",
     R"("head_dim": 16, "layer_types": ["attention", "attention", "attention"],
        "mamba_d_head": 16)",
     R"({
      "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attention_multiplier": 0.015625, "bos_token_id": 100257,
      "embedding_multiplier": 12, "eos_token_id": 100257, "hidden_act": "silu",
      "hidden_size": 1024, "init_method": "mup", "initializer_range": 0.1,
      "intermediate_size": 2048, "logits_scaling": 4, "mamba_chunk_size": 256,
      "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 32, "mamba_d_state": 256,
      "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 64, "mamba_proj_bias": false,
      "max_position_embeddings": 32768, "model_type": "granitemoehybrid",
      "normalization_function": "rmsnorm", "num_attention_heads": 16,
      "num_experts_per_tok": 0, "num_hidden_layers": 28, "num_key_value_heads": 4,
      "num_local_experts": 0, "output_router_logits": false, "pad_token_id": 100256,
      "position_embedding_type": "rope", "residual_multiplier": 0.263, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.01,
      "shared_intermediate_size": 2048, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.56.0", "use_cache": true,
      "vocab_size": 100352)",
     "granitemoehybrid",
     32768,
     {100257}},
};

class PublishedConfig : public ::testing::TestWithParam<size_t> {};

TEST_P(PublishedConfig, IsAcceptedAndRuns) {
  const Published& published = kPublished[GetParam()];
  std::string folder = testing::TestData(published.folder);
  if (!platform::SystemFiles().IsDirectory(folder)) {
    CELLM_SKIP_WITHOUT_SHARED(shared, published.folder);
    folder = shared;
  }
  auto file = format::OpenModelFile(platform::SystemFiles(), folder);
  ASSERT_TRUE(file.ok()) << file.status().message();
  // Of a repeated member the last one counts.
  std::string config = published.config;
  const json::Value small = (*file)->config->root();
  for (const std::string_view key : kSizes) {
    const json::Value value = small.Find(key);
    if (value.has_value()) {
      config += ", \"" + std::string(key) + "\": " + json::Serialize(value);
    }
  }
  if (published.overrides[0] != '\0') config += std::string(", ") + published.overrides;
  auto document = json::Document::Parse(config + "}", published.name);
  ASSERT_TRUE(document.ok()) << document.status().message();
  (*file)->config = std::move(*document);
  (*file)->generation_config_json = {};
  if (published.weights[0] != '\0') {
    for (const testing::WeightFormat& format : testing::AllWeightFormats()) {
      if (format.name != published.weights) continue;
      EXPECT_GT(testing::Reformat(format, 1, file->get()), 20);
    }
  }
  const auto model = testing::LoadTiny(std::move(*file));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->info.family, published.family);
  EXPECT_EQ(model->info.max_context, published.max_context);
  EXPECT_EQ(model->info.eos_ids, published.end_ids);
  EngineOptions options = testing::FloatPath();
  options.context_tokens = 64;
  const auto engine = Engine::Create(model, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const std::vector<int32_t> tokens = testing::RandomTokens(20, model->info.vocab_size, 3);
  for (const float logit : testing::AllLogits(**engine, tokens)) {
    ASSERT_TRUE(std::isfinite(logit));
  }
}

INSTANTIATE_TEST_SUITE_P(Published, PublishedConfig,
                         ::testing::Range<size_t>(0, std::size(kPublished)), [](const auto& param) {
                           return std::string(kPublished[param.param].name);
                         });

}  // namespace
}  // namespace cellm
