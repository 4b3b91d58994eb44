// Sizes are those of the published configurations; mobilemoe-1.3b is a mixture of experts of the
// size that phones run, not a published model.
#include "cellm/bench/synthetic_shapes.h"

#include <algorithm>
#include <cmath>

namespace cellm::tools {
namespace {

constexpr SyntheticShape kShapes[] = {
    {"smollm2-135m", "llama", "smollm", 576, 1536, 30, 9, 3, 64, 49152, 8192, 1e5, 1e-5, 0},
    {"smollm2-360m", "llama", "smollm", 960, 2560, 32, 15, 5, 64, 49152, 8192, 1e5, 1e-5, 0},
    {"qwen2.5-0.5b", "qwen2", "qwen2", 896, 4864, 24, 14, 2, 64, 151936, 32768, 1e6, 1e-6, 0},
    {"qwen3-0.6b", "qwen3", "qwen2", 1024, 3072, 28, 16, 8, 128, 151936, 40960, 1e6, 1e-6, 0},
    {"qwen3.5-0.8b", "", "", 1024, 3584, 24, 8, 2, 256, 248320, 32768, 1e7, 1e-6, 0},
    {"llama-3.2-1b", "llama", "llama-bpe", 2048, 8192, 16, 32, 8, 64, 128256, 131072, 5e5, 1e-5, 0},
    {"gemma-3-1b", "gemma3", "", 1152, 6912, 26, 4, 1, 256, 262144, 32768, 1e6, 1e-6, 512},
    {"lfm2-350m", "", "", 1024, 4608, 16, 16, 8, 64, 65536, 128000, 1e6, 1e-5, 0},
    {"bitnet-2b", "", "", 2560, 6912, 30, 20, 5, 128, 128256, 4096, 5e5, 1e-5, 0},
    {"mobilemoe-1.3b", "", "", 1024, 512, 24, 16, 4, 64, 49152, 8192, 1e6, 1e-6, 0},
};

constexpr int32_t kExperts = 32;
constexpr int32_t kChosenExperts = 4;
// Of the recurrent layers of qwen3.5.
constexpr int32_t kDeltaHeads = 16;
constexpr int32_t kDeltaDim = 128;
constexpr int32_t kDeltaTaps = 4;
constexpr int32_t kFullInterval = 4;
// LFM2: the attention layers, and the taps of the convolutions in the others.
constexpr int32_t kLfm2Attention[] = {2, 5, 8, 10, 12, 14};
constexpr int32_t kLfm2Taps = 3;

enum class Kind { kLlama, kQwen2, kQwen3, kQwen35, kGemma3, kLfm2, kBitNet, kMoe };

Kind KindOf(const SyntheticShape& shape) {
  if (shape.name == "qwen2.5-0.5b") return Kind::kQwen2;
  if (shape.name == "qwen3-0.6b") return Kind::kQwen3;
  if (shape.name == "qwen3.5-0.8b") return Kind::kQwen35;
  if (shape.name == "gemma-3-1b") return Kind::kGemma3;
  if (shape.name == "lfm2-350m") return Kind::kLfm2;
  if (shape.name == "bitnet-2b") return Kind::kBitNet;
  if (shape.name == "mobilemoe-1.3b") return Kind::kMoe;
  return Kind::kLlama;
}

bool Lfm2Attends(int32_t layer) {
  return std::find(std::begin(kLfm2Attention), std::end(kLfm2Attention), layer) !=
         std::end(kLfm2Attention);
}

float Root(int64_t fan_in) { return 1.0f / std::sqrt(static_cast<float>(fan_in)); }

// Adds tensors under the names of both containers.
class Lister {
 public:
  explicit Lister(std::vector<SyntheticTensor>* out) : out_(out) {}

  void SetLayer(int32_t layer) {
    at_ = StrFormat("model.layers.%d.", layer);
    gguf_at_ = StrFormat("blk.%d.", layer);
  }
  void Matrix(const std::string& name, const std::string& gguf, int64_t rows, int64_t cols,
              float deviation) {
    SyntheticTensor tensor = Make(name + ".weight", gguf, {rows, cols});
    tensor.deviation = deviation;
    tensor.quantised = rows % 16 == 0;
    out_->push_back(std::move(tensor));
  }
  void Experts(const std::string& name, int64_t count, int64_t rows, int64_t cols,
               float deviation) {
    SyntheticTensor tensor = Make(name, "", {count, rows, cols});
    tensor.deviation = deviation;
    tensor.quantised = true;
    out_->push_back(std::move(tensor));
  }
  void Norm(const std::string& name, const std::string& gguf, int64_t count) {
    SyntheticTensor tensor = Make(name + ".weight", gguf, {count});
    tensor.fill = Fill::kNorm;
    out_->push_back(std::move(tensor));
  }
  void Floats(const std::string& name, const std::string& gguf, std::vector<int64_t> shape,
              float deviation, Fill fill = Fill::kNoise) {
    SyntheticTensor tensor = Make(name, gguf, std::move(shape));
    tensor.deviation = deviation;
    tensor.fill = fill;
    out_->push_back(std::move(tensor));
  }
  // A tensor outside the layers; names are whole.
  void Outside(SyntheticTensor tensor) { out_->push_back(std::move(tensor)); }

 private:
  SyntheticTensor Make(const std::string& name, const std::string& gguf,
                       std::vector<int64_t> shape) {
    SyntheticTensor tensor;
    tensor.name = at_ + name;
    if (!gguf.empty()) tensor.gguf_name = gguf_at_ + gguf;
    tensor.shape = std::move(shape);
    return tensor;
  }
  std::vector<SyntheticTensor>* out_;
  std::string at_, gguf_at_;
};

struct Widths {
  int64_t d, ff, q, kv;
  float damp;  // of what a branch adds, so that it stays small beside the residual stream
};

void ListAttention(Lister& list, Kind kind, const SyntheticShape& s, const Widths& w) {
  const std::string at = "self_attn.";
  // Qwen3.5: rows of q hold a gate beside each query.
  const int64_t q_rows = kind == Kind::kQwen35 ? 2 * w.q : w.q;
  list.Matrix(at + "q_proj", "attn_q.weight", q_rows, w.d, Root(w.d));
  list.Matrix(at + "k_proj", "attn_k.weight", w.kv, w.d, Root(w.d));
  list.Matrix(at + "v_proj", "attn_v.weight", w.kv, w.d, Root(w.d));
  list.Matrix(at + (kind == Kind::kLfm2 ? "out_proj" : "o_proj"), "attn_output.weight", w.d, w.q,
              w.damp * Root(w.q));
  if (kind == Kind::kQwen2) {
    list.Floats(at + "q_proj.bias", "attn_q.bias", {w.q}, 0.1f);
    list.Floats(at + "k_proj.bias", "attn_k.bias", {w.kv}, 0.1f);
    list.Floats(at + "v_proj.bias", "attn_v.bias", {w.kv}, 0.1f);
  }
  if (kind == Kind::kBitNet) list.Norm(at + "attn_sub_norm", "", w.q);
  if (kind == Kind::kLfm2) {
    list.Norm(at + "q_layernorm", "", s.head_dim);
    list.Norm(at + "k_layernorm", "", s.head_dim);
  } else if (kind == Kind::kQwen3 || kind == Kind::kQwen35 || kind == Kind::kGemma3 ||
             kind == Kind::kMoe) {
    list.Norm(at + "q_norm", "attn_q_norm.weight", s.head_dim);
    list.Norm(at + "k_norm", "attn_k_norm.weight", s.head_dim);
  }
}

void ListDeltaRule(Lister& list, const Widths& w) {
  const std::string at = "linear_attn.";
  const int64_t width = int64_t{kDeltaHeads} * kDeltaDim;
  list.Matrix(at + "in_proj_qkv", "", 3 * width, w.d, Root(w.d));
  list.Matrix(at + "in_proj_z", "", width, w.d, Root(w.d));
  list.Matrix(at + "in_proj_b", "", kDeltaHeads, w.d, Root(w.d));
  list.Matrix(at + "in_proj_a", "", kDeltaHeads, w.d, Root(w.d));
  list.Matrix(at + "out_proj", "", w.d, width, w.damp * Root(width));
  list.Floats(at + "conv1d.weight", "", {3 * width, 1, kDeltaTaps}, 0.3f);
  list.Floats(at + "A_log", "", {kDeltaHeads}, 0.0f, Fill::kConstant);
  list.Floats(at + "dt_bias", "", {kDeltaHeads}, -2.0f, Fill::kConstant);
  // This norm, unlike the family's others, multiplies by the weight alone.
  list.Floats(at + "norm.weight", "", {kDeltaDim}, 1.0f, Fill::kConstant);
}

void ListMlp(Lister& list, Kind kind, const Widths& w) {
  if (kind == Kind::kMoe) {
    list.Floats("mlp.gate.weight", "", {kExperts, w.d}, Root(w.d));
    list.Experts("mlp.experts.gate_up_proj", kExperts, 2 * w.ff, w.d, Root(w.d));
    list.Experts("mlp.experts.down_proj", kExperts, w.d, w.ff, w.damp * Root(w.ff));
    return;
  }
  if (kind == Kind::kLfm2) {
    list.Matrix("feed_forward.w1", "", w.ff, w.d, Root(w.d));
    list.Matrix("feed_forward.w3", "", w.ff, w.d, Root(w.d));
    list.Matrix("feed_forward.w2", "", w.d, w.ff, w.damp * Root(w.ff));
    return;
  }
  list.Matrix("mlp.gate_proj", "ffn_gate.weight", w.ff, w.d, Root(w.d));
  list.Matrix("mlp.up_proj", "ffn_up.weight", w.ff, w.d, Root(w.d));
  if (kind == Kind::kBitNet) list.Norm("mlp.ffn_sub_norm", "", w.ff);
  list.Matrix("mlp.down_proj", "ffn_down.weight", w.d, w.ff, w.damp * Root(w.ff));
}

void ListLayer(Lister& list, Kind kind, const SyntheticShape& s, const Widths& w, int32_t layer) {
  list.SetLayer(layer);
  if (kind == Kind::kLfm2) {
    list.Norm("operator_norm", "", w.d);
    list.Norm("ffn_norm", "", w.d);
    if (Lfm2Attends(layer)) {
      ListAttention(list, kind, s, w);
    } else {
      list.Matrix("conv.in_proj", "", 3 * w.d, w.d, Root(w.d));
      list.Matrix("conv.out_proj", "", w.d, w.d, w.damp * Root(w.d));
      list.Floats("conv.conv.weight", "", {w.d, 1, kLfm2Taps}, 0.3f);
    }
    ListMlp(list, kind, w);
    return;
  }
  list.Norm("input_layernorm", "attn_norm.weight", w.d);
  if (kind == Kind::kQwen35 && (layer + 1) % kFullInterval != 0) {
    ListDeltaRule(list, w);
  } else {
    ListAttention(list, kind, s, w);
  }
  if (kind == Kind::kGemma3) {
    list.Norm("post_attention_layernorm", "post_attention_norm.weight", w.d);
    list.Norm("pre_feedforward_layernorm", "ffn_norm.weight", w.d);
    list.Norm("post_feedforward_layernorm", "post_ffw_norm.weight", w.d);
  } else {
    list.Norm("post_attention_layernorm", "ffn_norm.weight", w.d);
  }
  ListMlp(list, kind, w);
}

std::string Number(const char* key, int64_t value) {
  return StrFormat("\"%s\":%lld,", key, static_cast<long long>(value));
}

std::string LayerTypes(Kind kind, const SyntheticShape& s) {
  std::string out = "\"layer_types\":[";
  for (int32_t l = 0; l < s.layers; ++l) {
    const char* type = "full_attention";
    if (kind == Kind::kQwen35 && (l + 1) % kFullInterval != 0) type = "linear_attention";
    if (kind == Kind::kGemma3 && (l + 1) % 6 != 0) type = "sliding_attention";
    if (kind == Kind::kLfm2 && !Lfm2Attends(l)) type = "conv";
    out += StrFormat("%s\"%s\"", l == 0 ? "" : ",", type);
  }
  return out + "],";
}

}  // namespace

std::string SyntheticShape::ConfigJson() const {
  const Kind kind = KindOf(*this);
  constexpr const char* kTypes[] = {"llama",       "qwen2", "qwen3",  "qwen3_5_text",
                                    "gemma3_text", "lfm2",  "bitnet", "qwen3_moe"};
  std::string out = "{";
  out += Number("vocab_size", vocab) + Number("hidden_size", hidden) +
         Number("num_hidden_layers", layers) + Number("num_attention_heads", heads) +
         Number("num_key_value_heads", kv_heads) + Number("max_position_embeddings", context) +
         Number("bos_token_id", vocab - 3) + Number("eos_token_id", vocab - 2);
  out += StrFormat("\"rope_theta\":%.1f,\"%s\":%g,\"tie_word_embeddings\":true,", theta,
                   kind == Kind::kLfm2 ? "norm_eps" : "rms_norm_eps", eps);
  if (kind != Kind::kLfm2) out += Number("head_dim", head_dim);
  switch (kind) {
    case Kind::kLlama:
      out += Number("intermediate_size", inner) + "\"hidden_act\":\"silu\",";
      if (name == "llama-3.2-1b") {
        out +=
            "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":32.0,\"low_freq_factor\":1.0,"
            "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192},";
      }
      break;
    case Kind::kQwen2:
    case Kind::kQwen3:
      out += Number("intermediate_size", inner) + "\"hidden_act\":\"silu\",";
      break;
    case Kind::kQwen35:
      out += Number("intermediate_size", inner) + "\"hidden_act\":\"silu\"," +
             LayerTypes(kind, *this) + Number("linear_conv_kernel_dim", kDeltaTaps) +
             Number("linear_num_key_heads", kDeltaHeads) +
             Number("linear_num_value_heads", kDeltaHeads) +
             Number("linear_key_head_dim", kDeltaDim) + Number("linear_value_head_dim", kDeltaDim) +
             "\"partial_rotary_factor\":0.25,";
      break;
    case Kind::kGemma3:
      out += Number("intermediate_size", inner) +
             "\"hidden_activation\":\"gelu_pytorch_tanh\",\"rope_local_base_freq\":10000.0," +
             Number("query_pre_attn_scalar", head_dim) + Number("sliding_window", window) +
             LayerTypes(kind, *this);
      break;
    case Kind::kLfm2:
      out += Number("intermediate_size", inner) + LayerTypes(kind, *this) +
             Number("conv_L_cache", kLfm2Taps) +
             "\"conv_bias\":false,\"block_auto_adjust_ff_dim\":false,";
      break;
    case Kind::kBitNet:
      out += Number("intermediate_size", inner) +
             "\"hidden_act\":\"relu2\",\"quantization_config\":{\"quant_method\":\"bitnet\","
             "\"linear_class\":\"autobitlinear\",\"quantization_mode\":\"offline\"},";
      break;
    case Kind::kMoe:
      out += Number("intermediate_size", inner) + Number("moe_intermediate_size", inner) +
             Number("num_experts", kExperts) + Number("num_experts_per_tok", kChosenExperts) +
             "\"norm_topk_prob\":true,\"decoder_sparse_step\":1,\"hidden_act\":\"silu\",";
      break;
  }
  return out + StrFormat("\"model_type\":\"%s\"}", kTypes[static_cast<int>(kind)]);
}

std::vector<SyntheticTensor> SyntheticShape::Tensors() const {
  const Kind kind = KindOf(*this);
  std::vector<SyntheticTensor> out;
  Lister list(&out);
  const Widths widths{hidden, inner, int64_t{heads} * head_dim, int64_t{kv_heads} * head_dim,
                      1.0f / std::sqrt(2.0f * static_cast<float>(layers))};
  SyntheticTensor embedding;
  embedding.name = "model.embed_tokens.weight";
  embedding.gguf_name = "token_embd.weight";
  embedding.shape = {vocab, hidden};
  embedding.deviation = Root(hidden);
  embedding.quantised = embedding.is_embedding = true;
  list.Outside(std::move(embedding));
  for (int32_t l = 0; l < layers; ++l) ListLayer(list, kind, *this, widths, l);
  if (name == "llama-3.2-1b") {
    SyntheticTensor factors;
    factors.gguf_name = "rope_freqs.weight";  // .cellm files say it in the configuration
    factors.shape = {head_dim / 2};
    factors.fill = Fill::kRopeFactors;
    list.Outside(std::move(factors));
  }
  SyntheticTensor norm;
  norm.name = kind == Kind::kLfm2 ? "model.embedding_norm.weight" : "model.norm.weight";
  norm.gguf_name = "output_norm.weight";
  norm.shape = {hidden};
  norm.fill = Fill::kNorm;
  list.Outside(std::move(norm));
  for (SyntheticTensor& tensor : out) {
    if (tensor.fill != Fill::kNorm) continue;
    tensor.deviation = kind == Kind::kGemma3 || kind == Kind::kQwen35 ? 0.0f : 1.0f;
  }
  return out;
}

std::span<const SyntheticShape> SyntheticShapes() { return kShapes; }

std::string SyntheticNames(std::string_view separator) {
  std::string out;
  for (const SyntheticShape& shape : kShapes) {
    if (!out.empty()) out += separator;
    out += shape.name;
  }
  return out;
}

Result<const SyntheticShape*> FindSyntheticShape(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const SyntheticShape& shape : kShapes) {
    if (shape.name == lower) return &shape;
  }
  return InvalidArgument("--synthetic: '%s' is not one of %s", std::string(name).c_str(),
                         SyntheticNames(", ").c_str());
}

}  // namespace cellm::tools
