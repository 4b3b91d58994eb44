// Hunyuan (v1, dense): llama with norms per head after rotary.
//
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n
//           q, k = qnorm(rope(q)), knorm(rope(k))
//           h += Wo attend(q, k, v);  h += mlp(norm(h))
//   logits = head(norm(h))
// Its rotary kind "dynamic" with alpha raises the base once: theta * alpha^(d / (d - 2)).
//
// Source: the published configuration and model definition of hunyuan_v1_dense.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

constexpr SizeDefaults kDefaults = {.vocab = 290943,
                                    .hidden = 4096,
                                    .inner = 11008,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 0,
                                    .max_context = 2048,
                                    .eps = 1e-5,
                                    .tied = false};

struct Layer {
  Vector attention_norm, mlp_norm;
  Attention attention;
  GatedMlp mlp;
};

struct Hunyuan {
  Sizes sizes;
  Activation activation = Activation::kSilu;
  AttendSpec attend;
  RopeSpec rope;
  bool attention_bias = false;

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

// "dynamic" with a non-zero alpha is a fixed base; other keys of that dictionary play no part.
RopeSpec ReadRotary(Config& config, const Sizes& sizes) {
  json::Value dictionary = config.Raw("rope_scaling");
  if (!dictionary.has_value() || dictionary.size() == 0) dictionary = config.Raw("rope_parameters");
  std::string_view kind;
  if (!dictionary.Find("rope_type").GetString(&kind)) dictionary.Find("type").GetString(&kind);
  double alpha = 0.0;
  if (kind != "dynamic" || !dictionary.Find("alpha").GetDouble(&alpha) || alpha == 0.0) {
    return ReadOneRope(config, sizes);
  }
  double theta = config.Float("rope_theta", 10000.0);
  dictionary.Find("rope_theta").GetDouble(&theta);
  const double d = sizes.head_dim;
  if (!(alpha > 0.0) || !(theta > 0.0) || sizes.head_dim < 4) {
    config.Fail(Unsupported("config: rotary scaling: alpha %g, theta %g", alpha, theta));
    return {};
  }
  RopeDefaults defaults;
  defaults.head_dim = sizes.head_dim;
  defaults.max_position_embeddings = sizes.max_context;
  defaults.theta = theta * std::pow(alpha, d / (d - 2.0));
  Result<RopeSpec> spec = RopeFromDictionary(json::Value(), config, defaults);
  return spec.ok() ? std::move(spec).value() : RopeSpec();
}

Status ReadConfig(json::Value object, Hunyuan* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, kDefaults);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = config.Bool("attention_bias", false);
  m->attend = m->sizes.Attend();
  if (!config.Bool("use_qk_norm", true)) {
    config.Fail(Unsupported("config: \"use_qk_norm\": false is not supported"));
  }
  config.RefuseTrue("use_cla", "layers that share keys and values");
  config.Ignore({"cla_share_factor"});
  if (config.Int("num_experts", 1, 0) > 1) {
    config.Fail(Unsupported("config: \"num_experts\" above 1 is not supported"));
  }
  m->rope = ReadRotary(config, m->sizes);
  return FinishConfig(config, m->sizes, {}, info);
}

Status BindWeights(const LoadContext& context, Hunyuan* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  m->rope.interleaved = context.file.rope_interleaved;
  m->vocabulary = BindVocabulary(bind, m->sizes);
  for (int32_t l = 0; l < m->sizes.layers && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", m->sizes.hidden);
    layer.attention = BindAttention(bind, attn, m->sizes, m->attention_bias, m->attention_bias);
    layer.attention.q_norm = bind.Floats(attn + "query_layernorm.weight", m->sizes.head_dim);
    layer.attention.k_norm = bind.Floats(attn + "key_layernorm.weight", m->sizes.head_dim);
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", m->sizes.hidden);
    layer.mlp = BindGatedMlp(bind, at + "mlp.", m->sizes.hidden, m->sizes.inner, false);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", m->sizes.hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Model* model) {
  auto m = std::make_unique<Hunyuan>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Hunyuan& m = *static_cast<const Hunyuan*>(weights);
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
    backend.Rope(m.rope, cos_sin, s.heads, d.q);
    backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
    backend.RmsNorm(d.q.Heads(s.heads), a.q_norm.data(), 0.0f, s.eps, d.q.Heads(s.heads));
    backend.RmsNorm(d.k.Heads(s.kv_heads), a.k_norm.data(), 0.0f, s.eps, d.k.Heads(s.kv_heads));
    backend.StoreKv(step, index, m.attend, d.k, d.v);
    backend.AttendPages(step, index, m.attend, d.q, d.attended);
    backend.Linear(d.attended, a.o, a.o_bias.data(), d.out);
    backend.Add(d.h, d.out, 1.0f);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    RunGatedMlp(backend, layer.mlp, m.activation, d.normed, d.inner, d.out);
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kTypes[] = {"hunyuan_v1_dense"};

}  // namespace

constinit const Family kHunyuanFamily = {"hunyuan", kTypes, &Load, &Forward};

}  // namespace cellm
