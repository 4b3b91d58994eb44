// LFM2: short convolutions with a few attention layers; LFM2-MoE adds experts.
//
//   layer:  n = norm(h)
//           conv layers:      [B | C | x] = Win n;  h += Wout( C * conv(B * x) )
//           attention layers: q, k = rope(qnorm(Wq n)), rope(knorm(Wk n));  h += Wo attend(q, k, v)
//           h += W2( silu(W1 norm(h)) * (W3 norm(h)) )
//           with experts: sigmoid(Wr n); chosen by that + bias, weighted without it
//   logits = head(norm(h))
// The convolution is causal, depthwise, a few taps wide, without activation.
//
// Source: the published configurations and model definitions of lfm2 and lfm2_moe.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

struct Layer {
  Vector operator_norm, mlp_norm;
  // Convolution layers.
  Weight conv_in, conv_out;
  Vector conv_weight, conv_bias, conv_in_bias, conv_out_bias;
  // Attention layers.
  Attention attention;
  // MLP.
  GatedMlp mlp;
  Experts experts;
  Vector expert_bias;

  bool convolves() const { return conv_in.exists(); }
};

struct Lfm2 {
  Sizes sizes;
  AttendSpec attend;
  RopeSpec rope;
  int32_t taps = 3;
  bool conv_bias = false, expert_bias = false;
  int32_t dense_layers = 0, expert_inner = 0;
  RouterSpec router;               // experts == 0: none
  std::vector<bool> is_attention;  // [layers]

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

// The width of the MLP: block_ff_dim wins; then, unless switched off, two thirds, a factor, and
// rounding up, as the family was trained with.
int32_t InnerWidth(Config& config) {
  int64_t inner = config.Int("intermediate_size", 12288);
  inner = config.Int("block_ff_dim", static_cast<int32_t>(inner));
  const int32_t multiple = config.Int("block_multiple_of", 256);
  const bool no_factor = config.IsNull("block_ffn_dim_multiplier");
  const double factor = config.Float("block_ffn_dim_multiplier", 1.0);
  if (config.Bool("block_auto_adjust_ff_dim", true)) {
    inner = 2 * inner / 3;
    if (!no_factor) {
      inner = static_cast<int64_t>(factor * static_cast<double>(inner));
      inner = (inner + multiple - 1) / multiple * multiple;
    }
  }
  if (inner < 1 || inner > limits::kMaxDimension) {
    config.Fail(Corrupt("config: \"intermediate_size\" and its factors give %lld",
                        static_cast<long long>(inner)));
    return 1;
  }
  return static_cast<int32_t>(inner);
}

void ReadLayerTypes(Config& config, bool moe, Lfm2* m) {
  const size_t layers = static_cast<size_t>(m->sizes.layers);
  const std::vector<std::string> types = config.StringList("layer_types");
  const bool has_indices = config.Has("full_attn_idxs");
  const std::vector<int32_t> indices = config.IntList("full_attn_idxs");
  if (types.empty() && moe) {
    config.Fail(Corrupt("config: \"layer_types\" is missing, which lfm2_moe needs"));
    return;
  }
  if (!types.empty() && types.size() != layers) {
    config.Fail(
        Corrupt("config: \"layer_types\" has %zu entries for %zu layers", types.size(), layers));
    return;
  }
  m->is_attention.assign(layers, types.empty() && !has_indices);
  for (const int32_t index : indices) {
    if (types.empty() && index >= 0 && static_cast<size_t>(index) < layers) {
      m->is_attention[static_cast<size_t>(index)] = true;
    }
  }
  for (size_t l = 0; l < types.size(); ++l) {
    m->is_attention[l] = types[l] == "full_attention" || types[l] == "attention";
    if (!m->is_attention[l] && types[l] != "conv") {
      config.Fail(
          Unsupported("config: \"layer_types\": \"%s\" is not supported", types[l].c_str()));
    }
  }
}

void ReadExperts(Config& config, Lfm2* m) {
  m->dense_layers = config.Int("num_dense_layers", 2, 0);
  m->expert_inner = config.Int("moe_intermediate_size", 1792);
  m->router.kind = RouterKind::kSigmoid;
  m->router.experts = config.Int("num_experts", 32);
  m->router.top_k = config.Int("num_experts_per_tok", 4);
  m->router.normalise = config.Bool("norm_topk_prob", true);
  m->router.normalise_eps = 1e-6f;
  m->router.scale = static_cast<float>(config.Float("routed_scaling_factor", 1.0));
  m->expert_bias = config.Bool("use_expert_bias", true);
  if (m->router.experts > limits::kMaxExperts || m->router.top_k > m->router.experts) {
    config.Fail(Unsupported("config: \"num_experts\" %d with \"num_experts_per_tok\" %d",
                            m->router.experts, m->router.top_k));
  }
}

Status ReadConfig(json::Value object, bool moe, Lfm2* m, ModelInfo* info) {
  Config config(object);
  Sizes& s = m->sizes;
  s = ReadSizes(config, {.vocab = 65536,
                         .hidden = moe ? 2048 : 2560,
                         .inner = moe ? 7168 : 12288,
                         .layers = 32,
                         .heads = 32,
                         .kv_heads = 8,
                         .max_context = 128000,
                         .eps = 1e-5,
                         .tied = true});
  if (!moe) s.inner = InnerWidth(config);
  s.eps = static_cast<float>(config.Float("norm_eps", 1e-5));
  // The older key wins where both are there.
  s.tied = config.Bool("tie_embedding", s.tied);
  m->taps = config.Int("conv_L_cache", 3);
  m->conv_bias = config.Bool("conv_bias", false);
  if (config.ok() && m->taps > 64) {
    config.Fail(Unsupported("config: \"conv_L_cache\": %d is more than 64", m->taps));
  }
  if (config.ok()) ReadLayerTypes(config, moe, m);
  if (moe) ReadExperts(config, m);
  m->attend = s.Attend();
  m->rope = ReadOneRope(config, s, 1e6);
  // Keys of the family that name what is fixed, or the convolution's own width.
  config.Ignore({"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale",
                 "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out",
                 "conv_use_xavier_init", "num_heads", "use_pos_enc"});
  CELLM_RETURN_IF_ERROR(FinishConfig(config, s, {}, info));
  for (size_t l = 0; l < m->is_attention.size(); ++l) {
    if (m->is_attention[l]) continue;
    info->layers[l] = LayerStateSpec();
    info->layers[l].conv_channels = s.hidden;
    info->layers[l].conv_taps = m->taps;
  }
  return OkStatus();
}

void BindMlp(Binder& bind, const std::string& at, const Lfm2& m, size_t l, Layer* layer) {
  const Sizes& s = m.sizes;
  if (m.router.experts == 0 || static_cast<int32_t>(l) < m.dense_layers) {
    layer->mlp.gate = bind.Linear(at + "w1", s.inner, s.hidden);
    layer->mlp.up = bind.Linear(at + "w3", s.inner, s.hidden);
    layer->mlp.down = bind.Linear(at + "w2", s.hidden, s.inner);
    return;
  }
  constexpr ExpertNames kNames = {
      "gate", "w1", "w3", "w2", "experts.gate_up_proj", "experts.down_proj"};
  layer->experts = BindExperts(bind, at, kNames, m.router.experts, s.hidden, m.expert_inner);
  if (m.expert_bias) layer->expert_bias = bind.Floats(at + "expert_bias", m.router.experts);
}

Status BindWeights(const LoadContext& context, Lfm2* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const Sizes& s = m->sizes;
  m->vocabulary = BindVocabulary(bind, s);
  for (size_t l = 0; l < m->is_attention.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.operator_norm = bind.Floats(at + "operator_norm.weight", s.hidden);
    layer.mlp_norm = bind.Floats(at + "ffn_norm.weight", s.hidden);
    if (m->is_attention[l]) {
      const std::string attn = at + "self_attn.";
      Attention& a = layer.attention;
      a.q = bind.Linear(attn + "q_proj", s.q_width(), s.hidden);
      a.k = bind.Linear(attn + "k_proj", s.kv_width(), s.hidden);
      a.v = bind.Linear(attn + "v_proj", s.kv_width(), s.hidden);
      a.o = bind.Linear(attn + "out_proj", s.hidden, s.q_width());
      a.q_norm = bind.Floats(attn + "q_layernorm.weight", s.head_dim);
      a.k_norm = bind.Floats(attn + "k_layernorm.weight", s.head_dim);
    } else {
      const std::string conv = at + "conv.";
      layer.conv_in = bind.Linear(conv + "in_proj", 3 * s.hidden, s.hidden);
      layer.conv_out = bind.Linear(conv + "out_proj", s.hidden, s.hidden);
      layer.conv_weight = bind.Floats(conv + "conv.weight", int64_t{s.hidden} * m->taps);
      layer.conv_in_bias = bind.Bias(conv + "in_proj", 3 * s.hidden, m->conv_bias);
      layer.conv_bias = bind.Bias(conv + "conv", s.hidden, m->conv_bias);
      layer.conv_out_bias = bind.Bias(conv + "out_proj", s.hidden, m->conv_bias);
    }
    BindMlp(bind, at + "feed_forward.", *m, l, &layer);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("embedding_norm.weight", s.hidden);
  bind.Finish(model);
  return bind.status();
}

Status LoadKind(const LoadContext& context, bool moe, Model* model) {
  auto m = std::make_unique<Lfm2>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, moe, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}
Status LoadLfm2(const LoadContext& context, Model* model) {
  return LoadKind(context, false, model);
}
Status LoadLfm2Moe(const LoadContext& context, Model* model) {
  return LoadKind(context, true, model);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Lfm2& m = *static_cast<const Lfm2*>(weights);
  const Sizes& s = m.sizes;
  Arena& arena = *step.arena;
  const DecoderRows d = TakeDecoderRows(arena, step.rows, s);
  const Rows cos_sin = arena.TakeRows(step.rows, m.rope.rotary_dim);
  const Rows bcx = arena.TakeRows(step.rows, 3 * s.hidden);
  const Rows b = bcx.Cols(0, s.hidden);
  const Rows c = bcx.Cols(s.hidden, s.hidden);
  const Rows x = bcx.Cols(2 * s.hidden, s.hidden);
  const RouterRows router_rows = TakeRouterRows(arena, step.rows, m.router);

  EmbedStep(backend, step, m.vocabulary.embedding, 1.0f, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.operator_norm.data(), 0.0f, s.eps, d.normed);
    if (layer.convolves()) {
      backend.Linear(d.normed, layer.conv_in, layer.conv_in_bias.data(), bcx);
      backend.Mul(b, x, x);
      const ShortConvSpec conv{s.hidden, m.taps, layer.conv_weight.data(), layer.conv_bias.data(),
                               Activation::kNone};
      backend.ShortConv(step, index, conv, x, x);
      backend.Mul(c, x, x);
      backend.Linear(x, layer.conv_out, layer.conv_out_bias.data(), d.out);
    } else {
      const Attention& a = layer.attention;
      ProjectQkv(backend, a, d.normed, d.q, d.k, d.v);
      backend.RmsNorm(d.q.Heads(s.heads), a.q_norm.data(), 0.0f, s.eps, d.q.Heads(s.heads));
      backend.RmsNorm(d.k.Heads(s.kv_heads), a.k_norm.data(), 0.0f, s.eps, d.k.Heads(s.kv_heads));
      backend.Rope(m.rope, cos_sin, s.heads, d.q);
      backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
      backend.StoreKv(step, index, m.attend, d.k, d.v);
      backend.AttendPages(step, index, m.attend, d.q, d.attended);
      backend.Linear(d.attended, a.o, nullptr, d.out);
    }
    backend.Add(d.h, d.out, 1.0f);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    if (layer.experts.exists()) {
      RouterSpec router = m.router;
      router.bias = layer.expert_bias.data();
      RunExperts(backend, layer.experts, router, Activation::kSilu, m.expert_inner, d.normed,
                 router_rows, d.out);
    } else {
      RunGatedMlp(backend, layer.mlp, Activation::kSilu, d.normed, d.inner, d.out);
    }
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kLfm2Types[] = {"lfm2"};
constexpr std::string_view kLfm2MoeTypes[] = {"lfm2_moe"};

}  // namespace

constinit const Family kLfm2Family = {"lfm2", kLfm2Types, &LoadLfm2, &Forward};
constinit const Family kLfm2MoeFamily = {"lfm2_moe", kLfm2MoeTypes, &LoadLfm2Moe, &Forward};

}  // namespace cellm
