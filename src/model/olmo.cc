// OLMo 2, OLMo 3 and EXAONE 4: norms after the blocks instead of before them.
//
//   layer:  q, k, v = Wq h, Wk h, Wv h
//           q, k = rope(qnorm(q)), rope(knorm(k))
//           h += norm( Wo attend(q, k, v) );  h += norm( mlp(h) )
//   logits = head(norm(h))
// olmo: q and k norms run over the whole width of the projection. exaone4: per head.
// olmo3 and exaone4 alternate windows and full attention. olmo3 scales the rotary of full layers
// only; exaone4 with windows has rotary in windowed layers only.
//
// Sources: the published configurations and model definitions of olmo2, olmo3 and exaone4.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

enum class Kind { kOlmo2, kOlmo3, kExaone4 };

struct Layer {
  AttendSpec attend;
  bool rotary = true;
  bool full = true;  // which rotary table
  Vector attention_norm, mlp_norm;
  Attention attention;
  GatedMlp mlp;
};

struct Olmo {
  Kind kind = Kind::kOlmo2;
  Sizes sizes;
  Activation activation = Activation::kSilu;
  RopeSpec full_rope, sliding_rope;
  bool attention_bias = false;
  std::vector<int32_t> windows;  // [layers]; 0: full

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

SizeDefaults DefaultsOf(Kind kind) {
  const bool exaone = kind == Kind::kExaone4;
  return {.vocab = exaone ? 102400 : 50304,
          .hidden = 4096,
          .inner = exaone ? 16384 : 11008,
          .layers = 32,
          .heads = 32,
          .kv_heads = exaone ? 32 : 0,
          .max_context = 2048,
          .eps = 1e-5,
          .tied = false};
}

// Every pattern-th layer is full where layer_types is absent.
void ReadWindows(Config& config, Olmo* m) {
  const size_t layers = static_cast<size_t>(m->sizes.layers);
  if (m->kind == Kind::kOlmo2) {
    m->windows.assign(layers, 0);
    return;
  }
  const bool none = m->kind == Kind::kExaone4 && config.IsNull("sliding_window");
  const int32_t width = none ? 0 : config.Int("sliding_window", 4096);
  int32_t pattern = 4;
  if (m->kind == Kind::kExaone4) {
    const json::Value value = config.Raw("sliding_window_pattern");
    if (value.is_string() && !config.Has("layer_types")) {
      config.Fail(Unsupported(
          "config: \"sliding_window_pattern\" as a text needs \"layer_types\", which is absent"));
    }
    if (value.is_number()) pattern = config.Int("sliding_window_pattern", 4);
  }
  m->windows = WindowsOfLayerTypes(config, m->sizes.layers, width);
  if (!m->windows.empty()) return;
  for (size_t l = 0; l < layers; ++l) {
    m->windows.push_back((l + 1) % static_cast<size_t>(pattern) == 0 ? 0 : width);
  }
}

void ReadRotary(Config& config, Olmo* m) {
  if (m->kind != Kind::kOlmo3) {
    m->full_rope = m->sliding_rope = ReadOneRope(config, m->sizes);
    return;
  }
  RopeDefaults defaults;
  defaults.head_dim = m->sizes.head_dim;
  defaults.max_position_embeddings = m->sizes.max_context;
  const json::Value nested = config.Raw("rope_parameters");
  const json::Value scaling = config.Raw("rope_scaling");
  if (nested.is_object() && nested.size() > 0 && !nested.Find("full_attention").exists() &&
      !nested.Find("sliding_attention").exists()) {
    config.Fail(
        Unsupported("config: \"rope_parameters\" has no entries by layer type, which olmo3 needs"));
    return;
  }
  defaults.theta = config.Float("rope_theta", 500000.0);
  const bool scaled = scaling.has_value() && scaling.size() > 0;
  Result<RopeSpec> full =
      RopeFromDictionary(scaled ? scaling : nested.Find("full_attention"), config, defaults);
  if (full.ok()) m->full_rope = std::move(full).value();
  // A top-level rope_theta belongs to the full layers alone.
  defaults.theta = 500000.0;
  Result<RopeSpec> sliding = RopeFromDictionary(nested.Find("sliding_attention"), config, defaults);
  if (sliding.ok()) m->sliding_rope = std::move(sliding).value();
  config.Ignore({"original_max_position_embeddings"});
}

Status ReadConfig(json::Value object, Olmo* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, DefaultsOf(m->kind));
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = m->kind != Kind::kExaone4 && config.Bool("attention_bias", false);
  if (config.ok()) ReadWindows(config, m);
  if (config.ok()) ReadRotary(config, m);
  config.RefuseIfPresent("clip_qkv", "olmo of the first version");
  return FinishConfig(config, m->sizes, m->windows, info);
}

Status BindWeights(const LoadContext& context, Olmo* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const Sizes& s = m->sizes;
  const bool per_head = m->kind == Kind::kExaone4;
  bool any_window = false;
  for (const int32_t window : m->windows) any_window = any_window || window > 0;
  m->vocabulary = BindVocabulary(bind, s);
  for (size_t l = 0; l < m->windows.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.";
    Layer layer;
    layer.attend = s.Attend();
    layer.attend.window = m->windows[l];
    layer.full = m->windows[l] == 0;
    layer.rotary = !(per_head && any_window && layer.full);
    layer.attention = BindAttention(bind, attn, s, m->attention_bias, m->attention_bias);
    layer.attention.q_norm =
        bind.Floats(attn + "q_norm.weight", per_head ? s.head_dim : s.q_width());
    layer.attention.k_norm =
        bind.Floats(attn + "k_norm.weight", per_head ? s.head_dim : s.kv_width());
    layer.attention_norm = bind.Floats(at + "post_attention_layernorm.weight", s.hidden);
    layer.mlp = BindGatedMlp(bind, at + "mlp.", s.hidden, s.inner, false);
    layer.mlp_norm = bind.Floats(at + "post_feedforward_layernorm.weight", s.hidden);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", s.hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Kind kind, Model* model) {
  auto m = std::make_unique<Olmo>();
  m->kind = kind;
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadOlmo2(const LoadContext& context, Model* model) {
  return Load(context, Kind::kOlmo2, model);
}
Status LoadOlmo3(const LoadContext& context, Model* model) {
  return Load(context, Kind::kOlmo3, model);
}
Status LoadExaone4(const LoadContext& context, Model* model) {
  return Load(context, Kind::kExaone4, model);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Olmo& m = *static_cast<const Olmo*>(weights);
  const Sizes& s = m.sizes;
  const DecoderRows d = TakeDecoderRows(*step.arena, step.rows, s);
  const Rows full_cos_sin = step.arena->TakeRows(step.rows, m.full_rope.rotary_dim);
  const Rows sliding_cos_sin = step.arena->TakeRows(step.rows, m.sliding_rope.rotary_dim);
  const bool per_head = m.kind == Kind::kExaone4;
  const Rows q_normed = per_head ? d.q.Heads(s.heads) : d.q;
  const Rows k_normed = per_head ? d.k.Heads(s.kv_heads) : d.k;

  backend.Embed(m.vocabulary.embedding, step.token_ids(), 1.0f, d.h);
  backend.RopeTable(step, m.full_rope, full_cos_sin);
  backend.RopeTable(step, m.sliding_rope, sliding_cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const Attention& a = layer.attention;
    const int32_t index = static_cast<int32_t>(l);
    ProjectQkv(backend, a, d.h, d.q, d.k, d.v);
    backend.RmsNorm(q_normed, a.q_norm.data(), 0.0f, s.eps, q_normed);
    backend.RmsNorm(k_normed, a.k_norm.data(), 0.0f, s.eps, k_normed);
    if (layer.rotary) {
      const RopeSpec& rope = layer.full ? m.full_rope : m.sliding_rope;
      const Rows cos_sin = layer.full ? full_cos_sin : sliding_cos_sin;
      backend.Rope(rope, cos_sin, s.heads, d.q);
      backend.Rope(rope, cos_sin, s.kv_heads, d.k);
    }
    backend.StoreKv(step, index, layer.attend, d.k, d.v);
    backend.AttendPages(step, index, layer.attend, d.q, d.attended);
    backend.Linear(d.attended, a.o, a.o_bias.data(), d.out);
    backend.RmsNorm(d.out, layer.attention_norm.data(), 0.0f, s.eps, d.out);
    backend.Add(d.h, d.out, 1.0f);

    RunGatedMlp(backend, layer.mlp, m.activation, d.h, d.inner, d.out);
    backend.RmsNorm(d.out, layer.mlp_norm.data(), 0.0f, s.eps, d.out);
    backend.Add(d.h, d.out, 1.0f);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kOlmo2Types[] = {"olmo2"};
constexpr std::string_view kOlmo3Types[] = {"olmo3"};
constexpr std::string_view kExaone4Types[] = {"exaone4"};

}  // namespace

constinit const Family kOlmo2Family = {"olmo2", kOlmo2Types, &LoadOlmo2, &Forward};
constinit const Family kOlmo3Family = {"olmo3", kOlmo3Types, &LoadOlmo3, &Forward};
constinit const Family kExaone4Family = {"exaone4", kExaone4Types, &LoadExaone4, &Forward};

}  // namespace cellm
