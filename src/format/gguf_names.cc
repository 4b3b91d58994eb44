#include "format/gguf_names.h"

#include "base/limits.h"

namespace cellm::format {
namespace {

// Tensors outside the layers.
constexpr NameRule kTopRules[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output.weight", "lm_head.weight"},
    {"output_norm.weight", "model.norm.weight", Step::kNorm},
    {"rope_freqs.weight", "", Step::kIgnore},  // the three go to the configuration
    {"rope_factors_long.weight", "", Step::kIgnore},
    {"rope_factors_short.weight", "", Step::kIgnore},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", Step::kNorm},
};
// lfm2 calls its last norm after the embedding.
constexpr NameRule kLfm2TopRules[] = {
    {"token_embd_norm.weight", "model.embedding_norm.weight", Step::kNorm},
    {"output_norm.weight", "model.embedding_norm.weight", Step::kNorm},
};

constexpr NameRule kCommonRules[] = {
    {"attn_norm", "input_layernorm", Step::kNorm},
    {"attn_q", "self_attn.q_proj", Step::kQuery},
    {"attn_k", "self_attn.k_proj", Step::kKey},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm", Step::kNorm},
    {"attn_k_norm", "self_attn.k_norm", Step::kNorm},
    {"ffn_norm", "post_attention_layernorm", Step::kNorm},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"attn_rot_embd", "", Step::kIgnore},  // old files: the rotary frequencies
};

// Norms before and after each half of a layer, or only after.
constexpr NameRule kSandwichRules[] = {
    {"post_attention_norm", "post_attention_layernorm", Step::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Step::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Step::kNorm},
};

constexpr NameRule kQwen3MoeRules[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj", Step::kExperts},
    {"ffn_up_exps", "mlp.experts.*.up_proj", Step::kExperts},
    {"ffn_down_exps", "mlp.experts.*.down_proj", Step::kExperts},
};

constexpr NameRule kQwen35Rules[] = {
    {"post_attention_norm", "post_attention_layernorm", Step::kNorm},
    {"attn_qkv", "linear_attn.in_proj_qkv", Step::kMixedRows},
    {"attn_gate", "linear_attn.in_proj_z", Step::kValueRows},
    {"ssm_alpha", "linear_attn.in_proj_a", Step::kValueGates},
    {"ssm_beta", "linear_attn.in_proj_b", Step::kValueGates},
    {"ssm_conv1d", "linear_attn.conv1d", Step::kMixedConv},
    {"ssm_a", "linear_attn.A_log", Step::kDecay},
    {"ssm_dt.bias", "linear_attn.dt_bias", Step::kValueHeads},
    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj", Step::kValueColumns},
};

constexpr NameRule kGemma4Rules[] = {
    {"post_attention_norm", "post_attention_layernorm", Step::kNorm},
    {"ffn_norm", "pre_feedforward_layernorm", Step::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Step::kNorm},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm", Step::kNorm},
    {"layer_output_scale.weight", "layer_scalar", Step::kScalar},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2", Step::kNorm},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1", Step::kNorm},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2", Step::kNorm},
    {"ffn_gate_inp.weight", "router.proj.weight"},
    {"ffn_gate_inp.scale", "router.scale"},
    {"ffn_down_exps.scale", "router.per_expert_scale"},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    {"ffn_gate_exps", "experts.*.gate_proj", Step::kExperts},
    {"ffn_up_exps", "experts.*.up_proj", Step::kExperts},
    {"ffn_down_exps", "experts.*.down_proj", Step::kExperts},
};

constexpr NameRule kLfm2Rules[] = {
    {"attn_norm", "operator_norm", Step::kNorm},
    {"ffn_norm", "ffn_norm", Step::kNorm},
    {"attn_output", "self_attn.out_proj"},
    {"attn_q_norm", "self_attn.q_layernorm", Step::kNorm},
    {"attn_k_norm", "self_attn.k_layernorm", Step::kNorm},
    {"ffn_gate", "feed_forward.w1"},
    {"ffn_up", "feed_forward.w3"},
    {"ffn_down", "feed_forward.w2"},
    {"shortconv.conv", "conv.conv", Step::kConv},
    {"shortconv.in_proj", "conv.in_proj"},
    {"shortconv.out_proj", "conv.out_proj"},
    {"ffn_gate_inp", "feed_forward.gate"},
    {"exp_probs_b.bias", "feed_forward.expert_bias"},
    {"ffn_gate_exps", "feed_forward.experts.*.w1", Step::kExperts},
    {"ffn_up_exps", "feed_forward.experts.*.w3", Step::kExperts},
    {"ffn_down_exps", "feed_forward.experts.*.w2", Step::kExperts},
};

// The checkpoint keeps gate and up in one tensor of all experts; here they are apart.
constexpr NameRule kGraniteMoeRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.gate_proj", Step::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.*.up_proj", Step::kExperts},
    {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj", Step::kExperts},
    {"ffn_gate_shexp", "shared_mlp.gate_proj"},
    {"ffn_up_shexp", "shared_mlp.up_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
};

// Without experts the shared MLP has the plain names.
constexpr NameRule kGraniteHybridRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.experts.*.gate_proj", Step::kExperts},
    {"ffn_up_exps", "block_sparse_moe.experts.*.up_proj", Step::kExperts},
    {"ffn_down_exps", "block_sparse_moe.experts.*.down_proj", Step::kExperts},
    {"ffn_gate_shexp", "shared_mlp.gate_proj"},
    {"ffn_up_shexp", "shared_mlp.up_proj"},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
    {"ffn_gate", "shared_mlp.gate_proj"},
    {"ffn_up", "shared_mlp.up_proj"},
    {"ffn_down", "shared_mlp.output_linear"},
    {"ssm_in", "mamba.in_proj"},
    {"ssm_conv1d", "mamba.conv1d", Step::kConv},
    {"ssm_a", "mamba.A_log", Step::kDecay},
    {"ssm_d", "mamba.D", Step::kFlat},
    {"ssm_dt.bias", "mamba.dt_bias"},
    {"ssm_norm", "mamba.norm", Step::kFlat},
    {"ssm_out", "mamba.out_proj"},
};

constexpr NameRule kBitnetRules[] = {
    {"attn_sub_norm", "self_attn.attn_sub_norm", Step::kNorm},
    {"ffn_sub_norm", "mlp.ffn_sub_norm", Step::kNorm},
};

constexpr NameRule kPhi3Rules[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
};

constexpr NameRule kApertusRules[] = {
    {"attn_norm", "attention_layernorm", Step::kNorm},
    {"ffn_norm", "feedforward_layernorm", Step::kNorm},
};

constexpr NameRule kHunyuanRules[] = {
    {"attn_q_norm", "self_attn.query_layernorm", Step::kNorm},
    {"attn_k_norm", "self_attn.key_layernorm", Step::kNorm},
};

// name, model_type, architecture, rules, interleaved heads, norms plus one
constexpr GgufArch kArchs[] = {
    {"llama", "llama", "LlamaForCausalLM", {}, true, false},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", {}, false, false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", {}, false, false},
    {"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", kQwen3MoeRules, false, false},
    {"qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM", kQwen35Rules, false, true},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", kSandwichRules, false, true},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", kSandwichRules, false, true},
    {"gemma4", "gemma4_text", "Gemma4ForCausalLM", kGemma4Rules, false, false},
    {"lfm2", "lfm2", "Lfm2ForCausalLM", kLfm2Rules, false, false},
    {"lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM", kLfm2Rules, false, false},
    {"granite", "granite", "GraniteForCausalLM", {}, true, false},
    {"granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM", kGraniteHybridRules, true,
     false},
    {"minicpm", "minicpm", "MiniCPMForCausalLM", {}, true, false},
    {"granitemoe", "granitemoe", "GraniteMoeForCausalLM", kGraniteMoeRules, true, false},
    {"bitnet", "bitnet", "BitNetForCausalLM", kBitnetRules, false, false},
    {"smollm3", "smollm3", "SmolLM3ForCausalLM", {}, true, false},
    {"phi3", "phi3", "Phi3ForCausalLM", kPhi3Rules, false, false},
    {"olmo2", "olmo2", "Olmo2ForCausalLM", kSandwichRules, false, false},
    {"apertus", "apertus", "ApertusForCausalLM", kApertusRules, false, false},
    {"hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", kHunyuanRules, false, false},
    {"exaone4", "exaone4", "Exaone4ForCausalLM", kSandwichRules, false, false},
    {"mistral3", "ministral3", "Ministral3ForCausalLM", {}, true, false},
};

const NameRule* FindRule(std::span<const NameRule> rules, std::string_view name) {
  for (const NameRule& rule : rules) {
    if (rule.gguf == name) return &rule;
  }
  return nullptr;
}

// "17.attn_q.weight" -> 17 and "attn_q.weight". False unless a small decimal number leads.
bool SplitLayer(std::string_view text, int32_t* layer, std::string_view* rest) {
  int32_t number = 0;
  size_t at = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number >= limits::kMaxLayers) return false;
  }
  if (at == 0 || at >= text.size() || text[at] != '.') return false;
  if (text[0] == '0' && at > 1) return false;  // "00" would be a second name of layer 0
  *layer = number;
  *rest = text.substr(at + 1);
  return true;
}

}  // namespace

const GgufArch* FindGgufArch(std::string_view name) {
  for (const GgufArch& arch : kArchs) {
    if (arch.name == name) return &arch;
  }
  return nullptr;
}

std::string GgufArchNames() {
  std::string names;
  for (const GgufArch& arch : kArchs) {
    if (!names.empty()) names += ", ";
    names += arch.name;
  }
  return names;
}

int32_t GgufLayerOf(std::string_view name) {
  int32_t layer = -1;
  std::string_view rest;
  if (!name.starts_with("blk.") || !SplitLayer(name.substr(4), &layer, &rest)) return -1;
  return layer;
}

std::optional<MappedName> MapGgufName(const GgufArch& arch, std::string_view name) {
  if (!name.starts_with("blk.")) {
    const NameRule* rule = nullptr;
    if (arch.name.starts_with("lfm2")) rule = FindRule(kLfm2TopRules, name);
    if (rule == nullptr) rule = FindRule(kTopRules, name);
    if (rule == nullptr) return std::nullopt;
    return MappedName{std::string(rule->hf), rule->step, -1};
  }
  MappedName mapped;
  std::string_view suffix;
  if (!SplitLayer(name.substr(4), &mapped.layer, &suffix)) return std::nullopt;
  const std::string prefix = "model.layers." + std::to_string(mapped.layer) + ".";

  // The whole suffix first, then without its last part.
  for (const std::span<const NameRule> rules :
       {arch.rules, std::span<const NameRule>(kCommonRules)}) {
    if (const NameRule* rule = FindRule(rules, suffix); rule != nullptr) {
      mapped.name = prefix + std::string(rule->hf);
      mapped.step = rule->step;
      return mapped;
    }
    const size_t dot = suffix.rfind('.');
    if (dot == std::string_view::npos) continue;
    const std::string_view leaf = suffix.substr(dot);
    if (leaf != ".weight" && leaf != ".bias" && leaf != ".scale") continue;
    const NameRule* rule = FindRule(rules, suffix.substr(0, dot));
    if (rule == nullptr) continue;
    mapped.step = rule->step;
    mapped.name = prefix + std::string(rule->hf);
    // One factor for a whole matrix: what bitnet checkpoints call its weight_scale.
    if (leaf == ".scale") {
      if (mapped.step == Step::kExperts) return std::nullopt;
      mapped.step = Step::kScalar;
      mapped.name += ".weight_scale";
    } else {
      mapped.name += leaf;
    }
    return mapped;
  }
  return std::nullopt;
}

}  // namespace cellm::format
