// Apertus: an ungated MLP with xIELU, and norms per head before rotary.
//
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n
//           q, k = rope(qnorm(q)), rope(knorm(k));  h += Wo attend(q, k, v)
//           h += Wdown xielu( Wup norm(h) )
//   logits = head(norm(h))
//
// Source: the published configuration and model definition of apertus; xIELU from Huang and Schlag
// 2024, equation 13 (two trained scalars a layer).
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

constexpr SizeDefaults kDefaults = {.vocab = 131072,
                                    .hidden = 4096,
                                    .inner = 14336,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 0,
                                    .max_context = 65536,
                                    .eps = 1e-5,
                                    .tied = false};

struct Layer {
  Vector attention_norm, mlp_norm;
  Attention attention;
  Weight up, down;
  float a_p = 0.0f, a_n = 0.0f, beta = 0.5f, xielu_eps = -1e-6f;
};

struct Apertus {
  Sizes sizes;
  AttendSpec attend;
  RopeSpec rope;
  bool attention_bias = false;

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

float Softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Without rotary keys the class scales as its published models do.
RopeSpec ReadRotary(Config& config, const Sizes& sizes) {
  const auto says_something = [](json::Value v) { return v.has_value() && v.size() > 0; };
  if (says_something(config.Raw("rope_scaling")) || says_something(config.Raw("rope_parameters"))) {
    return ReadOneRope(config, sizes, 1.2e7);
  }
  if (config.Has("rope_theta")) {
    config.Fail(Unsupported("config: \"rope_theta\" without a rotary dictionary is not supported"));
    return {};
  }
  const auto dictionary = json::Document::Parse(
      R"({"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,)"
      R"( "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})",
      "rotary defaults");
  CELLM_CHECK(dictionary.ok(), "a literal of ours is not JSON");
  RopeDefaults defaults;
  defaults.head_dim = sizes.head_dim;
  defaults.max_position_embeddings = sizes.max_context;
  Result<RopeSpec> spec = RopeFromDictionary((*dictionary)->root(), config, defaults);
  return spec.ok() ? std::move(spec).value() : RopeSpec();
}

Status ReadConfig(json::Value object, Apertus* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, kDefaults);
  const std::string activation = config.String("hidden_act", "xielu");
  if (activation != "xielu") {
    config.Fail(Unsupported("config: \"hidden_act\": \"%s\" is not supported in apertus",
                            activation.c_str()));
  }
  m->attention_bias = config.Bool("attention_bias", false);
  config.RefuseTrue("mlp_bias", "apertus has none");
  config.Ignore({"qk_norm", "post_norm"});
  m->attend = m->sizes.Attend();
  m->rope = ReadRotary(config, m->sizes);
  return FinishConfig(config, m->sizes, {}, info);
}

float OneFloat(Binder& bind, const std::string& name, float fallback) {
  const Vector value = bind.OptionalFloats(name, 1);
  return value.empty() ? fallback : value[0];
}

Status BindWeights(const LoadContext& context, Apertus* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  m->vocabulary = BindVocabulary(bind, m->sizes);
  for (int32_t l = 0; l < m->sizes.layers && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "attention_layernorm.weight", m->sizes.hidden);
    layer.attention = BindAttention(bind, attn, m->sizes, m->attention_bias, m->attention_bias);
    layer.attention.q_norm = bind.Floats(attn + "q_norm.weight", m->sizes.head_dim);
    layer.attention.k_norm = bind.Floats(attn + "k_norm.weight", m->sizes.head_dim);
    layer.mlp_norm = bind.Floats(at + "feedforward_layernorm.weight", m->sizes.hidden);
    layer.up = bind.Linear(mlp + "up_proj", m->sizes.inner, m->sizes.hidden);
    layer.down = bind.Linear(mlp + "down_proj", m->sizes.hidden, m->sizes.inner);
    const Vector alpha_p = bind.Floats(mlp + "act_fn.alpha_p", 1);
    const Vector alpha_n = bind.Floats(mlp + "act_fn.alpha_n", 1);
    if (!bind.status().ok()) break;
    layer.beta = OneFloat(bind, mlp + "act_fn.beta", 0.5f);
    layer.xielu_eps = OneFloat(bind, mlp + "act_fn.eps", -1e-6f);
    layer.a_p = Softplus(alpha_p[0]);
    layer.a_n = layer.beta + Softplus(alpha_n[0]);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", m->sizes.hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Model* model) {
  auto m = std::make_unique<Apertus>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Apertus& m = *static_cast<const Apertus*>(weights);
  const Sizes& s = m.sizes;
  const DecoderRows d = TakeDecoderRows(*step.arena, step.rows, s);
  const Rows cos_sin = step.arena->TakeRows(step.rows, m.rope.rotary_dim);

  backend.Embed(m.vocabulary.embedding, step.token_ids(), 1.0f, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const Attention& a = layer.attention;
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.attention_norm.data(), 0.0f, s.eps, d.normed);
    ProjectQkv(backend, a, d.normed, d.q, d.k, d.v);
    backend.RmsNorm(d.q.Heads(s.heads), a.q_norm.data(), 0.0f, s.eps, d.q.Heads(s.heads));
    backend.RmsNorm(d.k.Heads(s.kv_heads), a.k_norm.data(), 0.0f, s.eps, d.k.Heads(s.kv_heads));
    backend.Rope(m.rope, cos_sin, s.heads, d.q);
    backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
    backend.StoreKv(step, index, m.attend, d.k, d.v);
    backend.AttendPages(step, index, m.attend, d.q, d.attended);
    backend.Linear(d.attended, a.o, a.o_bias.data(), d.out);
    backend.Add(d.h, d.out, 1.0f);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    backend.Linear(d.normed, layer.up, nullptr, d.inner);
    backend.Xielu(layer.a_p, layer.a_n, layer.beta, layer.xielu_eps, d.inner);
    backend.Linear(d.inner, layer.down, nullptr, d.out);
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kTypes[] = {"apertus"};

}  // namespace

constinit const Family kApertusFamily = {"apertus", kTypes, &Load, &Forward};

}  // namespace cellm
