// SmolLM3: llama in which every fourth layer (or those that no_rope_layers says) has no rotary.
//
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n
//           q, k = rope(q), rope(k)                      in layers that use it
//           h += Wo attend(q, k, v);  h += mlp(norm(h))
//   logits = head(norm(h))
//
// Source: the published configuration and model definition of smollm3. Its key no_rope_layers is
// named backwards: 1 means that the layer does use rotary.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

constexpr SizeDefaults kDefaults = {.vocab = 128256,
                                    .hidden = 2048,
                                    .inner = 11008,
                                    .layers = 36,
                                    .heads = 16,
                                    .kv_heads = 4,
                                    .max_context = 32768,
                                    .eps = 1e-6,
                                    .tied = true};

struct Layer {
  AttendSpec attend;
  bool rotary = true;
  Vector attention_norm, mlp_norm;
  Attention attention;
  GatedMlp mlp;
};

struct SmolLm3 {
  Sizes sizes;
  Activation activation = Activation::kSilu;
  RopeSpec rope;
  bool attention_bias = false, mlp_bias = false;
  std::vector<bool> rotary;      // [layers]
  std::vector<int32_t> windows;  // [layers]

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

void ReadLayerKinds(Config& config, SmolLm3* m) {
  const size_t layers = static_cast<size_t>(m->sizes.layers);
  const std::vector<int32_t> uses_rotary = config.IntList("no_rope_layers");
  const int32_t interval = config.Int("no_rope_layer_interval", 4);
  if (!uses_rotary.empty() && uses_rotary.size() != layers) {
    config.Fail(Corrupt("config: \"no_rope_layers\" has %zu entries for %zu layers",
                        uses_rotary.size(), layers));
    return;
  }
  for (size_t l = 0; l < layers; ++l) {
    m->rotary.push_back(uses_rotary.empty() ? (l + 1) % static_cast<size_t>(interval) != 0
                                            : uses_rotary[l] != 0);
  }
  const bool use = config.Bool("use_sliding_window", false);
  const int32_t width = config.Has("sliding_window") && use ? config.Int("sliding_window", 1) : 0;
  m->windows = WindowsOfLayerTypes(config, m->sizes.layers, width);
  if (m->windows.empty()) {
    for (size_t l = 0; l < layers; ++l) m->windows.push_back(m->rotary[l] ? 0 : width);
  }
}

Status ReadConfig(json::Value object, SmolLm3* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, kDefaults);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = config.Bool("attention_bias", false);
  m->mlp_bias = config.Bool("mlp_bias", false);
  m->rope = ReadOneRope(config, m->sizes, 2e6);
  if (config.ok()) ReadLayerKinds(config, m);
  config.Ignore({"max_window_layers"});
  return FinishConfig(config, m->sizes, m->windows, info);
}

Status BindWeights(const LoadContext& context, SmolLm3* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  m->rope.interleaved = context.file.rope_interleaved;
  m->vocabulary = BindVocabulary(bind, m->sizes);
  for (size_t l = 0; l < m->rotary.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.attend = m->sizes.Attend();
    layer.attend.window = m->windows[l];
    layer.rotary = m->rotary[l];
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

Status Load(const LoadContext& context, Model* model) {
  auto m = std::make_unique<SmolLm3>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const SmolLm3& m = *static_cast<const SmolLm3*>(weights);
  const Sizes& s = m.sizes;
  const DecoderRows d = TakeDecoderRows(*step.arena, step.rows, s);
  const Rows cos_sin = step.arena->TakeRows(step.rows, m.rope.rotary_dim);

  backend.Embed(m.vocabulary.embedding, step.token_ids(), 1.0f, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.attention_norm.data(), 0.0f, s.eps, d.normed);
    ProjectQkv(backend, layer.attention, d.normed, d.q, d.k, d.v);
    if (layer.rotary) {
      backend.Rope(m.rope, cos_sin, s.heads, d.q);
      backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
    }
    backend.StoreKv(step, index, layer.attend, d.k, d.v);
    backend.AttendPages(step, index, layer.attend, d.q, d.attended);
    backend.Linear(d.attended, layer.attention.o, layer.attention.o_bias.data(), d.out);
    backend.Add(d.h, d.out, 1.0f);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    RunGatedMlp(backend, layer.mlp, m.activation, d.normed, d.inner, d.out);
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kTypes[] = {"smollm3"};

}  // namespace

constinit const Family kSmolLm3Family = {"smollm3", kTypes, &Load, &Forward};

}  // namespace cellm
