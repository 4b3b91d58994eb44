// Granite (dense) and MiniCPM: llama with multipliers.
//
//   h = embed[token] * embedding_multiplier
//   layer:  h += residual_multiplier * Wo attend(rope(q), rope(k), v)     of norm(h)
//           h += residual_multiplier * mlp(norm(h))
//   logits = head(norm(h)) / logits_scaling
// granite: scores are scaled by attention_multiplier instead of head_dim^-0.5.
// minicpm: the multipliers are scale_emb, scale_depth / sqrt(layers) and hidden / dim_model_base;
// scores are scaled as usual.
//
// Sources: the published configurations and model definitions of granite 3 and of MiniCPM 1, 2
// and 4; Hu et al. 2024 (MiniCPM).
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

constexpr SizeDefaults kDefaults = {.vocab = 32000,
                                    .hidden = 4096,
                                    .inner = 11008,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 0,
                                    .max_context = 2048,
                                    .eps = 1e-6,
                                    .tied = false};

struct Layer {
  Vector attention_norm, mlp_norm;
  Attention attention;
  GatedMlp mlp;
};

struct Granite {
  Sizes sizes;
  Activation activation = Activation::kSilu;
  AttendSpec attend;
  RopeSpec rope;
  bool attention_bias = false, mlp_bias = false;
  float embedding_multiplier = 1.0f, residual_multiplier = 1.0f, logits_scaling = 1.0f;

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

Status ReadConfig(json::Value object, Granite* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, kDefaults);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = config.Bool("attention_bias", false);
  m->mlp_bias = config.Bool("mlp_bias", false);
  m->attend = m->sizes.Attend();
  if (!config.Has("attention_multiplier")) {
    info->notes.push_back(
        "config.json has no attention_multiplier; 1.0 is taken, as the model's definition says");
  }
  m->attend.scale = static_cast<float>(config.Float("attention_multiplier", 1.0));
  m->embedding_multiplier = static_cast<float>(config.Float("embedding_multiplier", 1.0));
  m->residual_multiplier = static_cast<float>(config.Float("residual_multiplier", 1.0));
  m->logits_scaling = static_cast<float>(config.Float("logits_scaling", 1.0));
  if (!(m->logits_scaling > 0.0f)) {
    config.Fail(Unsupported("config: \"logits_scaling\": %g is not positive",
                            static_cast<double>(m->logits_scaling)));
  }
  m->rope = ReadOneRope(config, m->sizes);
  return FinishConfig(config, m->sizes, {}, info);
}

Status ReadMiniCpmConfig(json::Value object, Granite* m, ModelInfo* info) {
  Config config(object);
  SizeDefaults defaults = kDefaults;
  defaults.tied = true;
  m->sizes = ReadSizes(config, defaults);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = config.Bool("attention_bias", false);
  m->attend = m->sizes.Attend();
  m->embedding_multiplier = static_cast<float>(config.Float("scale_emb", 1.0));
  m->residual_multiplier = static_cast<float>(config.Float("scale_depth", 1.0) /
                                              std::sqrt(static_cast<double>(m->sizes.layers)));
  m->logits_scaling =
      static_cast<float>(static_cast<double>(m->sizes.hidden) / config.Int("dim_model_base", 1));
  config.RefuseIfPresent("sparse_config", "block-sparse attention");
  if (config.Int("num_experts", 0, 0) > 0) {
    config.Fail(Unsupported("config: \"num_experts\": minicpm with experts is not supported"));
  }
  if (!config.Bool("use_mup", true)) {
    config.Fail(Unsupported("config: \"use_mup\": false is not supported"));
  }
  m->rope = ReadOneRope(config, m->sizes);
  // The model's own code builds its table once, for the longest text that it was made for.
  if (!m->rope.long_inv_freq.empty() && m->sizes.max_context > m->rope.long_from) {
    m->rope.inv_freq = m->rope.long_inv_freq;
  }
  return FinishConfig(config, m->sizes, {}, info);
}

Status BindWeights(const LoadContext& context, Granite* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  m->rope.interleaved = context.file.rope_interleaved;
  m->vocabulary = BindVocabulary(bind, m->sizes);
  for (int32_t l = 0; l < m->sizes.layers && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", m->sizes.hidden);
    layer.attention =
        BindAttention(bind, at + "self_attn.", m->sizes, m->attention_bias, m->attention_bias);
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", m->sizes.hidden);
    layer.mlp = BindGatedMlp(bind, at + "mlp.", m->sizes.hidden, m->sizes.inner, m->mlp_bias);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", m->sizes.hidden);
  bind.Finish(model);
  return bind.status();
}

using ReadFunction = Status (*)(json::Value object, Granite* m, ModelInfo* info);

Status Load(const LoadContext& context, ReadFunction read, Model* model) {
  auto m = std::make_unique<Granite>();
  CELLM_RETURN_IF_ERROR(read(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadGranite(const LoadContext& context, Model* model) {
  return Load(context, &ReadConfig, model);
}
Status LoadMiniCpm(const LoadContext& context, Model* model) {
  return Load(context, &ReadMiniCpmConfig, model);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Granite& m = *static_cast<const Granite*>(weights);
  const Sizes& s = m.sizes;
  const DecoderRows d = TakeDecoderRows(*step.arena, step.rows, s);
  const Rows cos_sin = step.arena->TakeRows(step.rows, m.rope.rotary_dim);

  backend.Embed(m.vocabulary.embedding, step.token_ids(), m.embedding_multiplier, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.attention_norm.data(), 0.0f, s.eps, d.normed);
    ProjectQkv(backend, layer.attention, d.normed, d.q, d.k, d.v);
    backend.Rope(m.rope, cos_sin, s.heads, d.q);
    backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
    backend.StoreKv(step, index, m.attend, d.k, d.v);
    backend.AttendPages(step, index, m.attend, d.q, d.attended);
    backend.Linear(d.attended, layer.attention.o, layer.attention.o_bias.data(), d.out);
    backend.Add(d.h, d.out, m.residual_multiplier);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    RunGatedMlp(backend, layer.mlp, m.activation, d.normed, d.inner, d.out);
    backend.Add(d.h, d.out, m.residual_multiplier);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
  if (!step.logit_rows.empty()) backend.Scale(step.logits, 1.0f / m.logits_scaling);
}

constexpr std::string_view kGraniteTypes[] = {"granite"};
constexpr std::string_view kMiniCpmTypes[] = {"minicpm"};

}  // namespace

constinit const Family kGraniteFamily = {"granite", kGraniteTypes, &LoadGranite, &Forward};
constinit const Family kMiniCpmFamily = {"minicpm", kMiniCpmTypes, &LoadMiniCpm, &Forward};

}  // namespace cellm
