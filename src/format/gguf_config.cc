#include "format/gguf_config.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/limits.h"
#include "format/gguf_keys.h"
#include "format/json_object.h"

namespace cellm::format {
namespace {

constexpr int64_t kMaxWidth = limits::kMaxDimension;

double Shortest(double value) {
  return std::isfinite(value) ? ShortestDouble(static_cast<float>(value)) : value;
}

// What the functions below share while they write one configuration.
struct Writer {
  const GgufArch& arch;
  const GgufFile& file;
  const GgufIndex& index;
  const GgufShape& shape;
  GgufKeys keys;
  JsonObject json;

  bool Is(std::string_view name) const { return arch.name == name; }
  bool HasInLayers(std::string_view suffix) const {
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      if (index.Find("blk." + std::to_string(layer) + "." + std::string(suffix))) return true;
    }
    return false;
  }
  void Float(std::string_view name, double value) { json.Float(name, Shortest(value)); }
};

std::vector<float> LoadFactors(Writer& w, std::string_view name, int64_t count) {
  const GgufTensor* tensor = w.index.Find(name);
  if (tensor == nullptr) return {};
  if (tensor->format != Format::kF32 || tensor->rank != 1 ||
      tensor->dims[0] != static_cast<uint64_t>(count)) {
    w.keys.Refuse(StatusCode::kCorrupt, "rope.dimension_count",
                  StrFormat("asks for %" PRId64 " floats in tensor \"%.*s\", which has others",
                            count, static_cast<int>(name.size()), name.data()));
    return {};
  }
  std::vector<float> factors(static_cast<size_t>(count));
  for (size_t i = 0; i < factors.size(); ++i) {
    factors[i] = LoadLe<float>(tensor->data.data() + 4 * i);
    if (std::isfinite(factors[i]) && factors[i] > 0) continue;
    w.keys.Refuse(StatusCode::kCorrupt, "rope.dimension_count",
                  StrFormat("belongs to tensor \"%.*s\", whose entry %zu is not positive",
                            static_cast<int>(name.size()), name.data(), i));
    return {};
  }
  return factors;
}

int64_t RotaryWidth(Writer& w) {
  return w.keys.Int("rope.dimension_count", w.shape.head_dim, 2, w.shape.head_dim);
}

// Rotary width smaller than the head, for the families that have it; others must rotate all.
double PartialFactor(Writer& w) {
  const int64_t width = RotaryWidth(w);
  const double factor = static_cast<double>(width) / w.shape.head_dim;
  // Readers take the integer part of head_dim * factor.
  if (static_cast<int64_t>(factor * w.shape.head_dim) == width) return factor;
  return (static_cast<double>(width) + 0.5) / w.shape.head_dim;
}

double RopeBase(Writer& w) {
  const double base = w.keys.Float("rope.freq_base", 10000.0);
  if (base <= 0) w.keys.Refuse(StatusCode::kCorrupt, "rope.freq_base", "is not positive");
  return base;
}

void AddYarn(Writer& w, JsonObject& rope) {
  rope.Text("rope_type", "yarn");
  rope.Float("factor", Shortest(w.keys.NeedFloat("rope.scaling.factor")));
  rope.Int("original_max_position_embeddings",
           w.keys.NeedInt("rope.scaling.original_context_length", 1, limits::kMaxContext));
  struct Pair {
    std::string_view gguf, hf;
  };
  constexpr Pair kPairs[] = {{"rope.scaling.yarn_beta_fast", "beta_fast"},
                             {"rope.scaling.yarn_beta_slow", "beta_slow"},
                             {"rope.scaling.yarn_attn_factor", "attention_factor"}};
  for (const Pair& pair : kPairs) {
    if (w.keys.Has(pair.gguf)) rope.Float(pair.hf, Shortest(w.keys.Float(pair.gguf, 0)));
  }
  const double extension = w.keys.Float("rope.scaling.yarn_ext_factor", 1.0);
  if (extension != 1.0) {
    w.keys.Refuse(StatusCode::kUnsupported, "rope.scaling.yarn_ext_factor", "is not 1");
  }
  if (w.Is("mistral3")) {
    // One number for both scale terms of the formula would cancel; the file keeps the second.
    rope.Float("mscale", 1.0);
    rope.Float("mscale_all_dim", Shortest(w.keys.Float("rope.scaling.yarn_log_multiplier", 0.0)));
    rope.Float("llama_4_scaling_beta", Shortest(w.keys.Float("attention.temperature_scale", 0.0)));
  } else if (w.keys.Has("rope.scaling.yarn_log_multiplier")) {
    w.keys.Refuse(StatusCode::kUnsupported, "rope.scaling.yarn_log_multiplier",
                  "is not known for this architecture");
  }
}

void AddLongRope(JsonObject& rope, std::span<const float> long_factors,
                 std::span<const float> short_factors, int64_t original, double attention_factor) {
  rope.Text("rope_type", "longrope");
  rope.Raw("long_factor", JsonFloats(long_factors));
  rope.Raw("short_factor", JsonFloats(short_factors));
  rope.Int("original_max_position_embeddings", original);
  rope.Float("attention_factor", Shortest(attention_factor));
}

// The scaling of the frequencies as the members of a rope dictionary; false when there is none.
bool AddScaling(Writer& w, JsonObject& rope) {
  const int64_t context = w.keys.Int("context_length", 1, 1, INT32_MAX);
  const int64_t pairs = RotaryWidth(w) / 2;
  const std::vector<float> divisors = LoadFactors(w, "rope_freqs.weight", pairs);
  const std::vector<float> longs = LoadFactors(w, "rope_factors_long.weight", pairs);
  const std::vector<float> shorts = LoadFactors(w, "rope_factors_short.weight", pairs);
  std::string_view type = w.keys.Text("rope.scaling.type", "none");
  // "none" beside factor tensors is what converters of llama3 and phi3 write.
  if (longs.empty() != shorts.empty()) {
    w.keys.Refuse(StatusCode::kCorrupt, "rope.scaling.type", "has only one of two factor tensors");
  }
  if (!longs.empty()) {
    const int64_t original =
        w.keys.Int("rope.scaling.original_context_length", context, 1, limits::kMaxContext);
    double attention = w.keys.Float("rope.scaling.attn_factor", 0.0);
    if (attention == 0.0) {
      const double factor = static_cast<double>(context) / static_cast<double>(original);
      attention = factor <= 1 || original == 1
                      ? 1.0
                      : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
    }
    AddLongRope(rope, longs, shorts, original, attention);
    return true;
  }
  const bool divided =
      std::any_of(divisors.begin(), divisors.end(), [](float d) { return d != 1.0f; });
  if (divided) {
    if (type != "none") {
      w.keys.Refuse(StatusCode::kUnsupported, "rope.scaling.type",
                    "comes with rope_freqs.weight, which is known only alone");
    }
    AddLongRope(rope, divisors, divisors, context, 1.0);
    return true;
  }
  if (type == "none") {
    const double linear = w.keys.Float("rope.scale_linear", 1.0);  // the key of old files
    if (linear == 1.0) return false;
    rope.Text("rope_type", "linear");
    rope.Float("factor", Shortest(linear));
    return true;
  }
  if (type == "linear") {
    const double factor = w.keys.NeedFloat("rope.scaling.factor");
    if (factor <= 0) w.keys.Refuse(StatusCode::kCorrupt, "rope.scaling.factor", "is not positive");
    rope.Text("rope_type", "linear");
    rope.Float("factor", Shortest(factor));
    return true;
  }
  if (type == "yarn") {
    AddYarn(w, rope);
    return true;
  }
  w.keys.Refuse(StatusCode::kUnsupported, "rope.scaling.type",
                "is \"" + std::string(type.substr(0, 40)) +
                    "\"; known are none, linear, yarn, and "
                    "factor tensors");
  return false;
}

// rope_theta and rope_scaling beside each other, as most families write them.
void AddRope(Writer& w) {
  w.Float("rope_theta", RopeBase(w));
  JsonObject rope;
  if (AddScaling(w, rope)) {
    w.json.Raw("rope_scaling", rope.Take());
  } else {
    w.json.Raw("rope_scaling", "null");
  }
}

void NeedFullRotary(Writer& w) {
  if (RotaryWidth(w) == w.shape.head_dim) return;
  w.keys.Refuse(StatusCode::kUnsupported, "rope.dimension_count",
                "is smaller than a head, which this architecture does not have");
}

// True for each layer that slides. `period` is the rule when the file states none: every layer but
// each period-th.
std::vector<bool> SlidingLayers(Writer& w, int64_t period) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  const size_t layers = static_cast<size_t>(w.shape.layers);
  std::vector<bool> sliding(layers);
  if (w.keys.IsArray(kKey)) {
    const std::vector<int64_t> flags = w.keys.Ints(kKey, layers, 0, 1);
    for (size_t i = 0; i < layers; ++i) sliding[i] = flags[i] != 0;
    return sliding;
  }
  period = w.keys.Int(kKey, period, 0, limits::kMaxLayers);
  for (size_t i = 0; i < layers; ++i) {
    sliding[i] = period == 0 || (static_cast<int64_t>(i) + 1) % period != 0;
  }
  return sliding;
}

void AddLayerTypes(Writer& w, const std::vector<bool>& special, std::string_view special_name) {
  std::vector<std::string_view> types;
  for (const bool is_special : special)
    types.push_back(is_special ? special_name : "full_attention");
  w.json.Raw("layer_types", JsonTexts(types));
}

constexpr std::string_view kSliding = "sliding_attention";

// Window and kinds of layers; without the key all layers see everything.
void AddWindow(Writer& w, int64_t period) {
  const int64_t window = w.keys.Int("attention.sliding_window", 0, 0, INT32_MAX);
  if (window == 0) {
    w.json.Raw("sliding_window", "null");
    AddLayerTypes(w, std::vector<bool>(static_cast<size_t>(w.shape.layers)), kSliding);
    return;
  }
  w.json.Int("sliding_window", window);
  AddLayerTypes(w, SlidingLayers(w, period), kSliding);
}

void AddExperts(Writer& w, std::string_view count_name, std::string_view used_name) {
  const int64_t count = w.keys.NeedInt("expert_count", 1, 4096);
  w.json.Int(count_name, count);
  w.json.Int(used_name, w.keys.NeedInt("expert_used_count", 1, count));
}

// ---- families, each with what it alone has

void AddQwen3Moe(Writer& w) {
  AddExperts(w, "num_experts", "num_experts_per_tok");
  w.json.Int("moe_intermediate_size", w.keys.NeedInt("expert_feed_forward_length", 1, kMaxWidth));
  w.json.Bool("norm_topk_prob", w.keys.Bool("expert_weights_norm", true));
  w.json.Int("decoder_sparse_step", 1);
  w.json.Raw("mlp_only_layers", "[]");
  const double scale = w.keys.Float("expert_weights_scale", 1.0);
  if (scale != 1.0 && scale != 0.0) {
    w.keys.Refuse(StatusCode::kUnsupported, "expert_weights_scale", "is not 1");
  }
}

void AddQwen35(Writer& w) {
  w.json.Int("linear_conv_kernel_dim", w.keys.NeedInt("ssm.conv_kernel", 1, 64));
  w.json.Int("linear_key_head_dim", w.shape.linear_key_dim);
  w.json.Int("linear_value_head_dim", w.shape.linear_value_dim);
  w.json.Int("linear_num_key_heads", w.shape.linear_key_heads);
  w.json.Int("linear_num_value_heads", w.shape.linear_value_heads);
  const int64_t interval = w.keys.Int("full_attention_interval", 4, 1, limits::kMaxLayers);
  std::vector<bool> linear;
  for (int64_t i = 0; i < w.shape.layers; ++i) linear.push_back((i + 1) % interval != 0);
  AddLayerTypes(w, linear, "linear_attention");

  JsonObject rope;
  rope.Float("rope_theta", Shortest(RopeBase(w)));
  rope.Float("partial_rotary_factor", PartialFactor(w));
  if (w.keys.Has("rope.dimension_sections")) {
    const std::vector<int64_t> sections =
        w.keys.Ints("rope.dimension_sections", 3, 0, w.shape.head_dim);
    rope.Raw("mrope_section", JsonInts(sections));
    rope.Bool("mrope_interleaved", true);
  }
  if (!AddScaling(w, rope)) rope.Text("rope_type", "default");
  w.json.Raw("rope_parameters", rope.Take());
  w.json.Float("partial_rotary_factor", PartialFactor(w));
}

void AddGemmaCommon(Writer& w, double default_cap = 0.0) {
  w.json.Text("hidden_activation", "gelu_pytorch_tanh");
  const double cap = w.keys.Float("final_logit_softcapping", default_cap);
  if (cap != 0.0) {
    w.Float("final_logit_softcapping", cap);
  } else {
    w.json.Raw("final_logit_softcapping", "null");
  }
}

// GGUF has no key for it: readers scale scores by 1 / sqrt(head size), except in the one size of
// each family (told by its layers) that was trained with 1 / sqrt(hidden / heads).
void AddQueryScalar(Writer& w, int32_t odd_size_layers) {
  const int32_t scalar =
      w.shape.layers == odd_size_layers ? w.shape.hidden / w.shape.heads : w.shape.head_dim;
  w.json.Int("query_pre_attn_scalar", scalar);
}

void AddGemma2(Writer& w) {
  AddGemmaCommon(w, 30.0);
  AddQueryScalar(w, 46);
  w.Float("attn_logit_softcapping", w.keys.Float("attn_logit_softcapping", 50.0));
  AddWindow(w, 2);
  AddRope(w);
}

void AddGemma3(Writer& w) {
  AddGemmaCommon(w);
  AddQueryScalar(w, 62);
  w.json.Raw("attn_logit_softcapping", "null");
  AddWindow(w, 6);
  AddRope(w);
  w.Float("rope_local_base_freq", w.keys.Float("rope.freq_base_swa", 10000.0));
}

// Live angles of the proportional kind: leading ones in rope_freqs.weight, the rest turned off.
int64_t LiveAngles(Writer& w, int64_t pairs) {
  const std::vector<float> divisors = LoadFactors(w, "rope_freqs.weight", pairs);
  if (divisors.empty()) return pairs;
  int64_t live = 0;
  while (live < pairs && divisors[static_cast<size_t>(live)] == 1.0f) ++live;
  for (int64_t i = live; i < pairs; ++i) {
    if (divisors[static_cast<size_t>(i)] >= 1e20f) continue;
    w.keys.Refuse(StatusCode::kUnsupported, "rope.dimension_count",
                  "belongs to a rope_freqs.weight that is not ones and then huge values");
  }
  return live;
}

void AddGemma4Rope(Writer& w, int64_t sliding_dim) {
  const int64_t pairs = w.shape.head_dim / 2;
  const int64_t live = LiveAngles(w, pairs);
  double partial = static_cast<double>(live) / static_cast<double>(pairs);
  // Readers take the integer part of partial * head_dim / 2.
  if (std::floor(partial * w.shape.head_dim / 2) != static_cast<double>(live)) {
    partial = (static_cast<double>(live) + 0.25) / static_cast<double>(pairs);
  }
  if (w.keys.Int("rope.dimension_count_swa", sliding_dim, 1, INT32_MAX) != sliding_dim) {
    w.keys.Refuse(StatusCode::kUnsupported, "rope.dimension_count_swa",
                  "is not the size of a sliding head");
  }
  if (w.keys.Text("rope.scaling.type", "none") != "none") {
    w.keys.Refuse(StatusCode::kUnsupported, "rope.scaling.type", "is not known for gemma4");
  }
  JsonObject full;
  full.Text("rope_type", "proportional");
  full.Float("rope_theta", Shortest(RopeBase(w)));
  full.Float("partial_rotary_factor", partial);
  JsonObject sliding;
  sliding.Text("rope_type", "default");
  sliding.Float("rope_theta", Shortest(w.keys.Float("rope.freq_base_swa", 10000.0)));
  JsonObject both;
  both.Raw("full_attention", full.Take());
  both.Raw("sliding_attention", sliding.Take());
  w.json.Raw("rope_parameters", both.Take());
}

// One width, or a doubled one in the layers that share keys and values.
void AddGemma4Widths(Writer& w, int64_t shared) {
  const size_t layers = static_cast<size_t>(w.shape.layers);
  const std::vector<int64_t> widths = w.keys.Ints("feed_forward_length", layers, 1, kMaxWidth);
  const bool doubled = shared > 0 && shared < w.shape.layers && widths.back() == 2 * widths[0];
  for (size_t i = 0; i < layers; ++i) {
    const bool wide = doubled && static_cast<int64_t>(i) >= w.shape.layers - shared;
    if (widths[i] == (wide ? 2 : 1) * widths[0]) continue;
    w.keys.Refuse(StatusCode::kUnsupported, "feed_forward_length",
                  "is neither one width nor doubled in the layers that share keys");
    return;
  }
  w.json.Int("intermediate_size", widths[0]);
  w.json.Bool("use_double_wide_mlp", doubled);
}

void AddGemma4Heads(Writer& w, const std::vector<bool>& sliding, int64_t sliding_dim) {
  w.json.Int("head_dim", sliding_dim);
  w.json.Int("global_head_dim", w.shape.head_dim);
  std::optional<int32_t> sliding_heads, full_heads;
  for (size_t i = 0; i < sliding.size(); ++i) {
    std::optional<int32_t>& heads = sliding[i] ? sliding_heads : full_heads;
    if (!heads.has_value()) heads = w.shape.kv_heads[i];
    if (*heads == w.shape.kv_heads[i]) continue;
    w.keys.Refuse(StatusCode::kUnsupported, "attention.head_count_kv",
                  "differs between layers of one kind");
    return;
  }
  // A full layer without attn_v takes its keys for values.
  bool keys_as_values = false;
  for (size_t i = 0; i < sliding.size(); ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".attn_";
    if (!sliding[i] && w.index.Find(prefix + "k.weight") && !w.index.Find(prefix + "v.weight")) {
      keys_as_values = true;
    }
  }
  w.json.Bool("attention_k_eq_v", keys_as_values);
  w.json.Int("num_key_value_heads", sliding_heads.value_or(full_heads.value_or(1)));
  if (full_heads.has_value() && sliding_heads.has_value() && *full_heads != *sliding_heads) {
    if (!keys_as_values) {
      w.keys.Refuse(StatusCode::kUnsupported, "attention.head_count_kv",
                    "differs between full and sliding layers, known only with keys as values");
    }
    w.json.Int("num_global_key_value_heads", *full_heads);
  } else if (keys_as_values && full_heads.has_value()) {
    w.json.Int("num_global_key_value_heads", *full_heads);
  }
}

void AddGemma4(Writer& w) {
  AddGemmaCommon(w);
  const int64_t shared =
      w.keys.Int("attention.shared_kv_layers", 0, 0, std::max(0, w.shape.layers - 1));
  w.json.Int("num_kv_shared_layers", shared);
  w.json.Int("sliding_window", w.keys.NeedInt("attention.sliding_window", 1, INT32_MAX));
  if (!w.keys.IsArray("attention.sliding_window_pattern")) {
    w.keys.Refuse(StatusCode::kNotFound, "attention.sliding_window_pattern", "is no array");
  }
  const std::vector<bool> sliding = SlidingLayers(w, 6);
  AddLayerTypes(w, sliding, kSliding);
  const int64_t sliding_dim =
      w.keys.Int("attention.key_length_swa", w.shape.head_dim, 2, kMaxWidth);
  AddGemma4Heads(w, sliding, sliding_dim);
  AddGemma4Widths(w, shared);
  AddGemma4Rope(w, sliding_dim);

  const int64_t per_layer = w.keys.Int("embedding_length_per_layer_input", 0, 0, kMaxWidth);
  w.json.Int("hidden_size_per_layer_input", per_layer);
  if (const GgufTensor* table = w.index.Find("per_layer_token_embd.weight"); table != nullptr) {
    w.json.Int("vocab_size_per_layer_input", static_cast<int64_t>(table->dims[1] & INT32_MAX));
  }
  const bool experts = w.keys.Int("expert_count", 0, 0, 4096) > 0;
  w.json.Bool("enable_moe_block", experts);
  if (experts) {
    AddExperts(w, "num_experts", "top_k_experts");
    w.json.Int("moe_intermediate_size", w.keys.NeedInt("expert_feed_forward_length", 1, kMaxWidth));
  }
}

void AddLfm2(Writer& w) {
  std::vector<bool> convolution;
  for (const int32_t heads : w.shape.kv_heads) convolution.push_back(heads == 0);
  AddLayerTypes(w, convolution, "conv");
  w.json.Int("conv_L_cache", w.keys.NeedInt("shortconv.l_cache", 2, 64));
  w.json.Bool("conv_bias", w.HasInLayers("shortconv.in_proj.bias"));
  w.json.Bool("block_auto_adjust_ff_dim", false);  // the width is the width
  AddRope(w);
  if (!w.Is("lfm2moe")) return;
  AddExperts(w, "num_experts", "num_experts_per_tok");
  w.json.Int("moe_intermediate_size", w.keys.NeedInt("expert_feed_forward_length", 1, kMaxWidth));
  w.json.Int("num_dense_layers", w.keys.Int("leading_dense_block_count", 0, 0, w.shape.layers));
  w.json.Bool("norm_topk_prob", w.keys.Bool("expert_weights_norm", true));
  w.json.Bool("use_expert_bias", w.HasInLayers("exp_probs_b.bias"));
  w.Float("routed_scaling_factor", w.keys.Float("expert_weights_scale", 1.0));
  if (w.keys.Int("expert_gating_func", 2, 0, 255) != 2) {  // 2: sigmoid
    w.keys.Refuse(StatusCode::kUnsupported, "expert_gating_func", "is not the sigmoid (2)");
  }
}

// Layers without keys and values are Mamba's. With any of them nothing rotates, as the file says.
void AddGraniteHybrid(Writer& w) {
  std::vector<std::string_view> types;
  bool any = false;
  for (const int32_t heads : w.shape.kv_heads) {
    types.push_back(heads == 0 ? "mamba" : "attention");
    any = any || heads == 0;
  }
  w.json.Raw("layer_types", JsonTexts(types));
  const bool rotates = w.keys.Bool("rope.scaling.finetuned", !any);
  w.json.Text("position_embedding_type", rotates ? "rope" : "nope");
  if (w.keys.Int("expert_count", 0, 0, 4096) > 0) {
    AddExperts(w, "num_local_experts", "num_experts_per_tok");
  } else {
    w.json.Int("num_local_experts", 0);
  }
  // The width of the shared MLP is that of its tensor: files differ in the key for it.
  int64_t shared = 0;
  for (const char* const name : {"blk.0.ffn_gate_shexp.weight", "blk.0.ffn_gate.weight"}) {
    const GgufTensor* const tensor = w.index.Find(name);
    if (shared == 0 && tensor != nullptr && tensor->rank == 2 &&
        tensor->dims[1] <= static_cast<uint64_t>(kMaxWidth)) {
      shared = static_cast<int64_t>(tensor->dims[1]);
    }
  }
  w.json.Int("shared_intermediate_size", shared);
  if (!any) return;
  const int64_t heads = w.keys.NeedInt("ssm.time_step_rank", 1, 65536);
  const int64_t width = w.keys.NeedInt("ssm.inner_size", 1, kMaxWidth);
  if (!w.keys.status().ok()) return;
  if (width % heads != 0 || width % w.shape.hidden != 0) {
    w.keys.Refuse(StatusCode::kUnsupported, "ssm.inner_size",
                  "is no multiple of the heads and of the hidden size");
    return;
  }
  w.json.Int("mamba_n_heads", heads);
  w.json.Int("mamba_d_head", width / heads);
  w.json.Int("mamba_expand", width / w.shape.hidden);
  w.json.Int("mamba_n_groups", w.keys.NeedInt("ssm.group_count", 1, 4096));
  w.json.Int("mamba_d_state", w.keys.NeedInt("ssm.state_size", 1, 65536));
  w.json.Int("mamba_d_conv", w.keys.NeedInt("ssm.conv_kernel", 1, 64));
  w.json.Bool("mamba_conv_bias", w.HasInLayers("ssm_conv1d.bias"));
}

void AddGranite(Writer& w) {
  w.Float("attention_multiplier",
          w.keys.Float("attention.scale", 1.0 / std::sqrt(static_cast<double>(w.shape.head_dim))));
  w.Float("embedding_multiplier", w.keys.Float("embedding_scale", 1.0));
  w.Float("residual_multiplier", w.keys.Float("residual_scale", 1.0));
  w.Float("logits_scaling", w.keys.Float("logit_scale", 1.0));
  if (w.Is("granitehybrid")) {
    AddGraniteHybrid(w);
  } else if (!w.keys.Bool("rope.scaling.finetuned", true)) {
    w.keys.Refuse(StatusCode::kUnsupported, "rope.scaling.finetuned",
                  "is false: granite without rotary positions");
  }
  AddRope(w);
  if (!w.Is("granitemoe")) return;
  AddExperts(w, "num_local_experts", "num_experts_per_tok");
  const int64_t shared = w.keys.Int("expert_shared_feed_forward_length", 0, 0, kMaxWidth);
  if (shared > 0) w.json.Int("shared_intermediate_size", shared);
}

// The file has the products that the configuration's three numbers make.
void AddMiniCpm(Writer& w) {
  const double layers = static_cast<double>(w.shape.layers);
  w.Float("scale_emb", w.keys.NeedFloat("embedding_scale"));
  w.Float("scale_depth", w.keys.NeedFloat("residual_scale") * std::sqrt(layers));
  const double logit_scale = w.keys.NeedFloat("logit_scale");
  const double base = std::round(static_cast<double>(w.shape.hidden) / logit_scale);
  if (!(base >= 1.0 && base <= kMaxWidth)) {
    w.keys.Refuse(StatusCode::kUnsupported, "logit_scale", "is not hidden / dim_model_base");
  } else {
    w.json.Int("dim_model_base", static_cast<int64_t>(base));
  }
  AddRope(w);
}

void AddBitnet(Writer& w) {
  // A key that only some converters write; common readers know SiLU alone.
  w.json.Text("hidden_act", w.keys.Text("hidden_activation", "silu"));
  // Ternary weights, already multiplied by their scale (or with it in weight_scale); the model was
  // trained with activations of 8 bits.
  w.json.Raw("quantization_config",
             "{\"quant_method\": \"bitnet\", \"linear_class\": \"autobitlinear\", "
             "\"quantization_mode\": \"offline\"}");
  AddRope(w);
}

void AddSmolLm3(Writer& w) {
  // Not in the file: every fourth layer is without rotary. 1 means that a layer rotates.
  std::vector<int64_t> rotates;
  for (int64_t i = 0; i < w.shape.layers; ++i) rotates.push_back((i + 1) % 4 != 0 ? 1 : 0);
  w.json.Raw("no_rope_layers", JsonInts(rotates));
  w.json.Int("no_rope_layer_interval", 4);
  w.json.Bool("use_sliding_window", false);
  AddRope(w);
}

void AddPhi3(Writer& w) {
  const int64_t window = w.keys.Int("attention.sliding_window", 0, 0, INT32_MAX);
  if (window > 0) {
    w.json.Int("sliding_window", window);
  } else {
    w.json.Raw("sliding_window", "null");
  }
  const int64_t context = w.keys.Int("context_length", 4096, 1, INT32_MAX);
  w.json.Int("original_max_position_embeddings",
             w.keys.Int("rope.scaling.original_context_length", context, 1, limits::kMaxContext));
  w.json.Float("partial_rotary_factor", PartialFactor(w));
  AddRope(w);
}

// olmo2, or olmo3 when there is a window: then only full layers have scaled frequencies.
void AddOlmo(Writer& w) {
  if (!w.keys.Has("attention.sliding_window")) {
    AddRope(w);
    return;
  }
  AddWindow(w, 4);
  const double base = Shortest(RopeBase(w));
  JsonObject full;
  full.Float("rope_theta", base);
  if (!AddScaling(w, full)) full.Text("rope_type", "default");
  JsonObject sliding;
  sliding.Float("rope_theta", Shortest(w.keys.Float("rope.freq_base_swa", base)));
  sliding.Text("rope_type", "default");
  JsonObject both;
  both.Raw("full_attention", full.Take());
  both.Raw("sliding_attention", sliding.Take());
  w.json.Raw("rope_parameters", both.Take());
}

// The 64-layer size is known to slide even where the file does not say so.
void AddExaone4(Writer& w) {
  if (!w.keys.Has("attention.sliding_window") && w.shape.layers == 64) {
    w.json.Int("sliding_window", 4096);
    AddLayerTypes(w, SlidingLayers(w, 4), kSliding);
  } else {
    AddWindow(w, 4);
  }
  AddRope(w);
}

void AddMistral3(Writer& w) {
  w.json.Raw("sliding_window", "null");
  JsonObject rope;
  rope.Float("rope_theta", Shortest(RopeBase(w)));
  if (!AddScaling(w, rope)) rope.Text("rope_type", "default");
  w.json.Raw("rope_parameters", rope.Take());
}

void AddFamily(Writer& w) {
  const std::string_view name = w.arch.name;
  if (name == "gemma2") return AddGemma2(w);
  if (name == "gemma3") return AddGemma3(w);
  if (name == "gemma4") return AddGemma4(w);
  if (name == "apertus") w.json.Text("hidden_act", "xielu");
  if (name == "bitnet") return AddBitnet(w);
  if (name != "apertus") w.json.Text("hidden_act", "silu");
  if (name == "qwen35") return AddQwen35(w);
  if (name == "phi3") return AddPhi3(w);
  NeedFullRotary(w);
  if (name == "lfm2" || name == "lfm2moe") return AddLfm2(w);
  if (name.starts_with("granite")) return AddGranite(w);
  if (name == "minicpm") return AddMiniCpm(w);
  if (name == "smollm3") return AddSmolLm3(w);
  if (name == "olmo2") return AddOlmo(w);
  if (name == "exaone4") return AddExaone4(w);
  if (name == "mistral3") return AddMistral3(w);
  if (name == "qwen3moe") AddQwen3Moe(w);
  if (name == "qwen2" || name == "qwen3" || name == "qwen3moe") {
    w.json.Bool("use_sliding_window", false);
    AddLayerTypes(w, std::vector<bool>(static_cast<size_t>(w.shape.layers)), kSliding);
  }
  AddRope(w);
}

void AddIds(Writer& w) {
  struct Pair {
    std::string_view gguf, hf;
  };
  constexpr Pair kPairs[] = {{"bos_token_id", "bos_token_id"},
                             {"eos_token_id", "eos_token_id"},
                             {"padding_token_id", "pad_token_id"}};
  GgufKeys tokenizer(w.file, "tokenizer.ggml");
  for (const Pair& pair : kPairs) {
    const int64_t id = tokenizer.Int(pair.gguf, -1, 0, limits::kMaxVocabulary);
    if (id >= 0) w.json.Int(pair.hf, id);
  }
  if (!tokenizer.status().ok()) {
    w.keys.Refuse(tokenizer.status().code(), "vocab_size",
                  "stands beside " + tokenizer.status().message());
  }
}

// model_type and architecture: mostly the table's, with what one GGUF name stands for two of.
void AddNames(Writer& w) {
  std::string_view type = w.arch.model_type;
  std::string_view architecture = w.arch.architecture;
  if (w.Is("olmo2") && w.keys.Has("attention.sliding_window")) {
    type = "olmo3";
    architecture = "Olmo3ForCausalLM";
  }
  if (w.Is("granitemoe") && w.keys.Has("expert_shared_feed_forward_length")) {
    type = "granitemoeshared";
    architecture = "GraniteMoeSharedForCausalLM";
  }
  if (w.Is("mistral3") && !w.keys.Has("attention.temperature_scale")) {
    type = "mistral";
    architecture = "MistralForCausalLM";
  }
  w.json.Raw("architectures", JsonTexts({&architecture, 1}));
  w.json.Text("model_type", type);
}

void AddSizes(Writer& w) {
  const GgufShape& shape = w.shape;
  w.json.Int("hidden_size", shape.hidden);
  w.json.Int("num_hidden_layers", shape.layers);
  w.json.Int("num_attention_heads", shape.heads);
  w.json.Int("vocab_size", shape.vocabulary);
  w.json.Int("max_position_embeddings", w.keys.NeedInt("context_length", 1, INT32_MAX));
  const double epsilon = w.keys.NeedFloat("attention.layer_norm_rms_epsilon");
  w.Float(w.arch.name.starts_with("lfm2") ? "norm_eps" : "rms_norm_eps", epsilon);
  w.json.Bool("tie_word_embeddings", w.index.Find("output.weight") == nullptr);
  w.json.Bool("attention_bias", !w.Is("qwen2") && w.HasInLayers("attn_q.bias"));
  w.json.Bool("mlp_bias", w.HasInLayers("ffn_up.bias"));
  if (w.Is("gemma4")) return;  // widths and heads differ by kind of layer
  w.json.Int("head_dim", shape.head_dim);
  w.json.Int("num_key_value_heads",
             *std::max_element(shape.kv_heads.begin(), shape.kv_heads.end()));
  const std::vector<int64_t> widths =
      w.keys.Ints("feed_forward_length", static_cast<size_t>(shape.layers), 0, kMaxWidth);
  if (*std::min_element(widths.begin(), widths.end()) !=
      *std::max_element(widths.begin(), widths.end())) {
    w.keys.Refuse(StatusCode::kUnsupported, "feed_forward_length", "differs between layers");
  }
  w.json.Int("intermediate_size", widths[0]);
}

void RefuseUnknownKinds(Writer& w) {
  if (!w.keys.Bool("attention.causal", true)) {
    w.keys.Refuse(StatusCode::kUnsupported, "attention.causal", "is false: not a text generator");
  }
  const bool has_experts = w.Is("qwen3moe") || w.Is("lfm2moe") || w.Is("granitemoe") ||
                           w.Is("granitehybrid") || w.Is("gemma4");
  if (!has_experts && w.keys.Int("expert_count", 0, 0, INT32_MAX) > 0) {
    w.keys.Refuse(StatusCode::kUnsupported, "expert_count", "is not 0: experts in a dense family");
  }
  if (w.keys.Has("attention.value_length") &&
      w.keys.Int("attention.value_length", 0, 0, kMaxWidth) != w.shape.head_dim) {
    w.keys.Refuse(StatusCode::kUnsupported, "attention.value_length", "is not key_length");
  }
}

}  // namespace

void GgufIndex::Sort() {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->name < b->name; });
}

const GgufTensor* GgufIndex::Find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const GgufTensor* tensor, std::string_view n) { return tensor->name < n; });
  return at == tensors_.end() || (*at)->name != name ? nullptr : *at;
}

Result<GgufShape> ReadGgufShape(const GgufArch& arch, const GgufFile& file,
                                const GgufIndex& index) {
  GgufKeys keys(file, arch.name);
  GgufShape shape;
  const int64_t blocks = keys.NeedInt("block_count", 1, limits::kMaxLayers);
  const int64_t ahead = keys.Int("nextn_predict_layers", 0, 0, blocks - 1);
  shape.layers = static_cast<int32_t>(blocks - ahead);
  shape.hidden = static_cast<int32_t>(keys.NeedInt("embedding_length", 1, kMaxWidth));
  const size_t layers = static_cast<size_t>(shape.layers);

  const std::vector<int64_t> heads = keys.Ints("attention.head_count", layers, 0, 65536);
  const int64_t most_heads = *std::max_element(heads.begin(), heads.end());
  shape.heads = static_cast<int32_t>(most_heads);
  if (most_heads == 0) keys.Refuse(StatusCode::kCorrupt, "attention.head_count", "is 0");
  for (const int64_t count : heads) {
    if (count == 0 || count == most_heads) continue;
    keys.Refuse(StatusCode::kUnsupported, "attention.head_count", "differs between layers");
  }
  if (keys.Has("attention.head_count_kv")) {
    const std::vector<int64_t> kv = keys.Ints("attention.head_count_kv", layers, 0, 65536);
    shape.kv_heads.assign(kv.begin(), kv.end());
  } else {
    shape.kv_heads.assign(heads.begin(), heads.end());
  }
  const bool some_without = arch.name.starts_with("lfm2") || arch.name == "granitehybrid";
  for (const int32_t count : shape.kv_heads) {
    if (count == 0 && !some_without) {
      keys.Refuse(StatusCode::kUnsupported, "attention.head_count_kv", "is 0 in some layer");
    }
  }
  if (!keys.status().ok()) return keys.status();

  shape.head_dim =
      static_cast<int32_t>(keys.Int("attention.key_length", shape.hidden / shape.heads, 2, 65536));
  if (shape.head_dim < 2 || shape.head_dim % 2 != 0) {
    keys.Refuse(StatusCode::kCorrupt, "attention.key_length", "gives heads of an odd size");
  }
  const GgufTensor* embedding = index.Find("token_embd.weight");
  if (embedding == nullptr) {
    return NotFound("%.*s: tensor \"token_embd.weight\" is missing",
                    static_cast<int>(file.name.size()), file.name.data());
  }
  if (embedding->rank != 2 || embedding->dims[0] != static_cast<uint64_t>(shape.hidden) ||
      embedding->dims[1] > static_cast<uint64_t>(limits::kMaxVocabulary)) {
    return Corrupt("%.*s: tensor \"token_embd.weight\" is [%" PRIu64 ", %" PRIu64
                   "], expected rows of %d, at most %d of them",
                   static_cast<int>(file.name.size()), file.name.data(), embedding->dims[1],
                   embedding->dims[0], shape.hidden, limits::kMaxVocabulary);
  }
  shape.vocabulary = static_cast<int32_t>(embedding->dims[1]);

  if (arch.name == "qwen35") {
    shape.linear_key_dim = static_cast<int32_t>(keys.NeedInt("ssm.state_size", 1, 65536));
    shape.linear_key_heads = static_cast<int32_t>(keys.NeedInt("ssm.group_count", 1, 4096));
    shape.linear_value_heads = static_cast<int32_t>(keys.NeedInt("ssm.time_step_rank", 1, 4096));
    const int32_t inner = static_cast<int32_t>(keys.NeedInt("ssm.inner_size", 1, kMaxWidth));
    shape.linear_value_dim = inner / shape.linear_value_heads;
    if (inner % shape.linear_value_heads != 0 || shape.linear_value_dim == 0 ||
        shape.linear_value_heads % shape.linear_key_heads != 0) {
      keys.Refuse(StatusCode::kCorrupt, "ssm.inner_size", "does not divide into value heads");
    }
  }
  if (!keys.status().ok()) return keys.status();
  return shape;
}

Result<std::string> GgufConfigJson(const GgufArch& arch, const GgufFile& file,
                                   const GgufIndex& index, const GgufShape& shape) {
  Writer w{arch, file, index, shape, GgufKeys(file, arch.name), JsonObject()};
  AddNames(w);
  AddSizes(w);
  AddIds(w);
  RefuseUnknownKinds(w);
  AddFamily(w);
  if (!w.keys.status().ok()) return w.keys.status();
  return w.json.Take();
}

}  // namespace cellm::format
