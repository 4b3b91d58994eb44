// Qwen3.5 (text): gated delta-rule layers, with a gated full-attention layer every so often; dense
// or with experts.
//
//   layer:  n = norm(h)
//           linear:  u = silu(conv(Wqkv n)) = [q | k | v];  z = Wz n;  b = Wb n;  a = Wa n
//                    h += Wout( norm(delta_rule(q, k, v, b, a)) * silu(z) )       norm per head
//           full:    per head [q | gate] = Wq n;  q, k = rope(qnorm(q)), rope(knorm(Wk n))
//                    h += Wo( attend(q, k, v) * sigmoid(gate) )                   partial rotary
//           h += mlp(norm(h))
//           with experts: n = norm(h);  h += experts(n) + sigmoid(w . n) * shared_mlp(n)
//   logits = head(norm(h))
// Norms multiply by 1 + weight, except the one inside the linear layers. In text all three axes of
// the published M-RoPE agree, so it is plain rotary here.
//
// Sources: Yang et al. 2024 (Gated Delta Networks), equation 10, and the published configuration
// and model definition of qwen3_5 and qwen3_5_moe.
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

constexpr SizeDefaults kDefaults = {.vocab = 248320,
                                    .hidden = 4096,
                                    .inner = 12288,
                                    .layers = 32,
                                    .heads = 16,
                                    .kv_heads = 4,
                                    .max_context = 32768,
                                    .eps = 1e-6,
                                    .tied = false};
constexpr SizeDefaults kMoeDefaults = {.vocab = 248320,
                                       .hidden = 2048,
                                       .inner = 0,  // not a key: the shared expert's is taken
                                       .layers = 40,
                                       .heads = 16,
                                       .kv_heads = 2,
                                       .max_context = 32768,
                                       .eps = 1e-6,
                                       .tied = false};
constexpr float kNormOffset = 1.0f;

struct Layer {
  Vector attention_norm, mlp_norm;
  // Linear layers.
  Weight in_qkv, in_z, in_b, in_a, out;
  Vector conv, a_log, dt_bias, norm;
  // Full layers. Rows of q are [query | gate] head by head.
  Attention attention;
  GatedMlp mlp;  // with experts: the shared one
  Experts experts;
  Weight shared_gate;  // [1, hidden]

  bool linear() const { return in_qkv.exists(); }
};

struct Qwen35 {
  Sizes sizes;
  Activation activation = Activation::kSilu;
  AttendSpec attend;
  RopeSpec rope;
  bool attention_bias = false;
  int32_t taps = 4;
  DeltaRuleSpec delta;
  std::vector<bool> is_linear;  // [layers]
  RouterSpec router;            // experts == 0: dense
  int32_t expert_inner = 0;

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;

  int32_t qkv_width() const {
    return 2 * delta.k_heads * delta.k_dim + delta.v_heads * delta.v_dim;
  }
  int32_t v_width() const { return delta.v_heads * delta.v_dim; }
};

void ReadLayerTypes(Config& config, Qwen35* m) {
  const size_t layers = static_cast<size_t>(m->sizes.layers);
  const std::vector<std::string> types = config.StringList("layer_types");
  const int32_t interval = config.Int("full_attention_interval", 4);
  if (!types.empty() && types.size() != layers) {
    config.Fail(
        Corrupt("config: \"layer_types\" has %zu entries for %zu layers", types.size(), layers));
    return;
  }
  for (size_t l = 0; l < layers; ++l) {
    bool linear = (l + 1) % static_cast<size_t>(interval) != 0;
    if (!types.empty()) {
      linear = types[l] == "linear_attention" || types[l] == "mamba";
      if (!linear && types[l] != "full_attention" && types[l] != "attention") {
        config.Fail(
            Unsupported("config: \"layer_types\": \"%s\" is not supported", types[l].c_str()));
      }
    }
    m->is_linear.push_back(linear);
  }
}

void ReadExperts(Config& config, Qwen35* m) {
  m->router.kind = RouterKind::kSoftmaxAll;
  m->router.experts = config.Int("num_experts", 256);
  m->router.top_k = config.Int("num_experts_per_tok", 8);
  m->router.normalise = true;
  m->expert_inner = config.Int("moe_intermediate_size", 512);
  m->sizes.inner = config.Int("shared_expert_intermediate_size", 512);
  config.Ignore({"norm_topk_prob", "intermediate_size"});  // always normalised; no dense layer
  if (config.Int("decoder_sparse_step", 1) != 1) {
    config.Fail(Unsupported("config: \"decoder_sparse_step\" other than 1 in qwen3_5_moe"));
  }
  if (m->router.experts > limits::kMaxExperts || m->router.top_k > m->router.experts) {
    config.Fail(Unsupported("config: \"num_experts\" %d with \"num_experts_per_tok\" %d",
                            m->router.experts, m->router.top_k));
  }
}

Status ReadConfig(json::Value object, bool moe, Qwen35* m, ModelInfo* info) {
  Config config(object);
  Sizes& s = m->sizes;
  s = ReadSizes(config, moe ? kMoeDefaults : kDefaults);
  if (moe) ReadExperts(config, m);
  s.head_dim = config.Int("head_dim", 256);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = config.Bool("attention_bias", false);
  m->taps = config.Int("linear_conv_kernel_dim", 4);
  m->delta.k_heads = config.Int("linear_num_key_heads", 16);
  m->delta.v_heads = config.Int("linear_num_value_heads", 32);
  m->delta.k_dim = config.Int("linear_key_head_dim", 128);
  m->delta.v_dim = config.Int("linear_value_head_dim", 128);
  if (config.ok() && m->delta.v_heads % m->delta.k_heads != 0) {
    config.Fail(Unsupported(
        "config: \"linear_num_value_heads\" %d is no multiple of \"linear_num_key_heads\" %d",
        m->delta.v_heads, m->delta.k_heads));
  }
  if (config.ok() && (m->taps > 64 || m->activation != Activation::kSilu)) {
    config.Fail(
        Unsupported("config: \"linear_conv_kernel_dim\" %d or \"hidden_act\" other than "
                    "silu is not supported in qwen3_5",
                    m->taps));
  }
  if (config.ok()) ReadLayerTypes(config, m);
  m->attend = s.Attend();
  RopeDefaults rope;
  rope.head_dim = s.head_dim;
  rope.max_position_embeddings = s.max_context;
  rope.partial_factor = 0.25;
  rope.partial_allowed = true;
  rope.mrope_section = {11, 11, 10};
  Result<RopeSpec> spec = ReadRope(config, rope);
  if (spec.ok()) m->rope = std::move(spec).value();
  // Always gated, whatever this says.
  config.Ignore({"attn_output_gate", "mamba_ssm_dtype"});
  CELLM_RETURN_IF_ERROR(FinishConfig(config, s, {}, info));
  info->axial_positions = !m->rope.axes.empty();
  for (size_t l = 0; l < m->is_linear.size(); ++l) {
    if (!m->is_linear[l]) continue;
    info->layers[l] = LayerStateSpec();
    info->layers[l].conv_channels = m->qkv_width();
    info->layers[l].conv_taps = m->taps;
    info->layers[l].recurrent_floats = int64_t{m->delta.v_heads} * m->delta.k_dim * m->delta.v_dim;
  }
  return OkStatus();
}

void BindLinearLayer(Binder& bind, const std::string& at, const Qwen35& m, Layer* layer) {
  const int32_t hidden = m.sizes.hidden;
  layer->in_qkv = bind.Linear(at + "in_proj_qkv", m.qkv_width(), hidden);
  layer->in_z = bind.Linear(at + "in_proj_z", m.v_width(), hidden);
  layer->in_b = bind.Linear(at + "in_proj_b", m.delta.v_heads, hidden);
  layer->in_a = bind.Linear(at + "in_proj_a", m.delta.v_heads, hidden);
  layer->out = bind.Linear(at + "out_proj", hidden, m.v_width());
  layer->conv = bind.Floats(at + "conv1d.weight", int64_t{m.qkv_width()} * m.taps);
  layer->a_log = bind.Floats(at + "A_log", m.delta.v_heads);
  layer->dt_bias = bind.Floats(at + "dt_bias", m.delta.v_heads);
  layer->norm = bind.Floats(at + "norm.weight", m.delta.v_dim);
}

void BindFullLayer(Binder& bind, const std::string& at, const Qwen35& m, Layer* layer) {
  const Sizes& s = m.sizes;
  Attention& a = layer->attention;
  a.q = bind.Linear(at + "q_proj", 2 * s.q_width(), s.hidden);
  a.k = bind.Linear(at + "k_proj", s.kv_width(), s.hidden);
  a.v = bind.Linear(at + "v_proj", s.kv_width(), s.hidden);
  a.o = bind.Linear(at + "o_proj", s.hidden, s.q_width());
  a.q_bias = bind.Bias(at + "q_proj", 2 * s.q_width(), m.attention_bias);
  a.k_bias = bind.Bias(at + "k_proj", s.kv_width(), m.attention_bias);
  a.v_bias = bind.Bias(at + "v_proj", s.kv_width(), m.attention_bias);
  a.o_bias = bind.Bias(at + "o_proj", s.hidden, m.attention_bias);
  a.q_norm = bind.Floats(at + "q_norm.weight", s.head_dim);
  a.k_norm = bind.Floats(at + "k_norm.weight", s.head_dim);
}

Status BindWeights(const LoadContext& context, Qwen35* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const Sizes& s = m->sizes;
  m->vocabulary = BindVocabulary(bind, s);
  for (size_t l = 0; l < m->is_linear.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", s.hidden);
    if (m->is_linear[l]) {
      BindLinearLayer(bind, at + "linear_attn.", *m, &layer);
    } else {
      BindFullLayer(bind, at + "self_attn.", *m, &layer);
    }
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", s.hidden);
    const std::string mlp = at + "mlp.";
    if (m->router.experts > 0) {
      layer.experts =
          BindExperts(bind, mlp, kUsualExpertNames, m->router.experts, s.hidden, m->expert_inner);
      layer.mlp = BindGatedMlp(bind, mlp + "shared_expert.", s.hidden, s.inner, false);
      layer.shared_gate = bind.Linear(mlp + "shared_expert_gate", 1, s.hidden);
    } else {
      layer.mlp = BindGatedMlp(bind, mlp, s.hidden, s.inner, false);
    }
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", s.hidden);
  bind.Finish(model);
  return bind.status();
}

Status LoadKind(const LoadContext& context, bool moe, Model* model) {
  auto m = std::make_unique<Qwen35>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, moe, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadDense(const LoadContext& context, Model* model) {
  return LoadKind(context, false, model);
}
Status LoadMoe(const LoadContext& context, Model* model) { return LoadKind(context, true, model); }

// The activations of both kinds of layer; one layer uses one set.
struct LinearRows {
  Rows qkv, z, b, a, mixed;
};

void RunLinearLayer(const Qwen35& m, const Layer& layer, int32_t index, Backend& backend,
                    const StepContext& step, const LinearRows& r, Rows normed, Rows out) {
  const LinearPart parts[] = {{&layer.in_qkv, nullptr, r.qkv},
                              {&layer.in_z, nullptr, r.z},
                              {&layer.in_b, nullptr, r.b},
                              {&layer.in_a, nullptr, r.a}};
  backend.Linear(normed, parts);
  const ShortConvSpec conv{m.qkv_width(), m.taps, layer.conv.data(), nullptr, Activation::kSilu};
  backend.ShortConv(step, index, conv, r.qkv, r.qkv);
  DeltaRuleSpec delta = m.delta;
  delta.a_log = layer.a_log.data();
  delta.dt_bias = layer.dt_bias.data();
  backend.DeltaRule(step, index, delta, r.qkv, r.b, r.a, r.mixed);
  backend.GatedRmsNorm(r.mixed, r.z, layer.norm.data(), /*weight_per_group=*/true, m.delta.v_dim,
                       m.sizes.eps, /*gate_first=*/false, r.mixed);
  backend.Linear(r.mixed, layer.out, nullptr, out);
}

void RunFullLayer(const Qwen35& m, const Layer& layer, int32_t index, Backend& backend,
                  const StepContext& step, Rows q_gate, Rows cos_sin, const DecoderRows& d) {
  const Sizes& s = m.sizes;
  const Attention& a = layer.attention;
  ProjectQkv(backend, a, d.normed, q_gate, d.k, d.v);
  const Rows per_head = q_gate.Heads(s.heads);  // [rows * heads, query | gate]
  const Rows query = per_head.Cols(0, s.head_dim);
  const Rows gate = per_head.Cols(s.head_dim, s.head_dim);
  backend.RmsNorm(query, a.q_norm.data(), kNormOffset, s.eps, d.q.Heads(s.heads));
  backend.RmsNorm(d.k.Heads(s.kv_heads), a.k_norm.data(), kNormOffset, s.eps,
                  d.k.Heads(s.kv_heads));
  backend.Rope(m.rope, cos_sin, s.heads, d.q);
  backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
  backend.StoreKv(step, index, m.attend, d.k, d.v);
  backend.AttendPages(step, index, m.attend, d.q, d.attended);
  backend.SigmoidGate(d.attended.Heads(s.heads), gate);
  backend.Linear(d.attended, a.o, a.o_bias.data(), d.out);
}

// The experts' sum and the shared expert, gated by one number a row.
struct SparseRows {
  RouterRows router;
  Rows gate, shared;
};

void RunSparseMlp(const Qwen35& m, const Layer& layer, Backend& backend, const SparseRows& r,
                  const DecoderRows& d) {
  RunExperts(backend, layer.experts, m.router, m.activation, m.expert_inner, d.normed, r.router,
             d.out);
  RunGatedMlp(backend, layer.mlp, m.activation, d.normed, d.inner, r.shared);
  backend.Linear(d.normed, layer.shared_gate, nullptr, r.gate);
  backend.SigmoidGate(r.shared, r.gate);
  backend.Add(d.out, r.shared, 1.0f);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Qwen35& m = *static_cast<const Qwen35*>(weights);
  const Sizes& s = m.sizes;
  Arena& arena = *step.arena;
  const DecoderRows d = TakeDecoderRows(arena, step.rows, s);
  const Rows cos_sin = arena.TakeRows(step.rows, m.rope.rotary_dim);
  const Rows q_gate = arena.TakeRows(step.rows, 2 * s.q_width());
  const LinearRows linear{
      arena.TakeRows(step.rows, m.qkv_width()), arena.TakeRows(step.rows, m.v_width()),
      arena.TakeRows(step.rows, m.delta.v_heads), arena.TakeRows(step.rows, m.delta.v_heads),
      arena.TakeRows(step.rows, m.v_width())};
  const bool moe = m.router.experts > 0;
  const SparseRows sparse{TakeRouterRows(arena, step.rows, m.router),
                          arena.TakeRows(step.rows, moe ? 1 : 0),
                          arena.TakeRows(step.rows, moe ? s.hidden : 0)};

  EmbedStep(backend, step, m.vocabulary.embedding, 1.0f, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.attention_norm.data(), kNormOffset, s.eps, d.normed);
    if (layer.linear()) {
      RunLinearLayer(m, layer, index, backend, step, linear, d.normed, d.out);
    } else {
      RunFullLayer(m, layer, index, backend, step, q_gate, cos_sin, d);
    }
    backend.Add(d.h, d.out, 1.0f);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), kNormOffset, s.eps, d.normed);
    if (moe) {
      RunSparseMlp(m, layer, backend, sparse, d);
    } else {
      RunGatedMlp(backend, layer.mlp, m.activation, d.normed, d.inner, d.out);
    }
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, kNormOffset, s.eps, m.vocabulary);
}

constexpr std::string_view kTypes[] = {"qwen3_5_text", "qwen3_5"};
constexpr std::string_view kMoeTypes[] = {"qwen3_5_moe_text", "qwen3_5_moe"};

}  // namespace

constinit const Family kQwen35Family = {"qwen3_5", kTypes, &LoadDense, &Forward};
constinit const Family kQwen35MoeFamily = {"qwen3_5_moe", kMoeTypes, &LoadMoe, &Forward};

}  // namespace cellm
