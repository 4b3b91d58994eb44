// Phi-3, Phi-3.5, Phi-4, Phi-4-mini: llama with fused projections and longrope.
//
//   layer:  [q | k | v] = Wqkv norm(h);  q, k = rope(q), rope(k)      rotary may be partial
//           h += Wo attend(q, k, v)
//           [g | u] = Wgate_up norm(h);  h += Wdown( silu(g) * u )
//   logits = head(norm(h))
// longrope has two lists of frequency factors; which one a sequence uses is decided by its planned
// length, once, so that its cache never mixes the two.
//
// Sources: the published configurations and model definition of phi3; Ding et al. 2024 (LongRoPE).
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

constexpr SizeDefaults kDefaults = {.vocab = 32064,
                                    .hidden = 3072,
                                    .inner = 8192,
                                    .layers = 32,
                                    .heads = 32,
                                    .kv_heads = 0,
                                    .max_context = 4096,
                                    .eps = 1e-5,
                                    .tied = false};

struct Layer {
  Vector attention_norm, mlp_norm;
  Weight qkv, o, gate_up, down;
};

struct Phi3 {
  Sizes sizes;
  Activation activation = Activation::kSilu;
  AttendSpec attend;
  RopeSpec rope;

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;
};

Status ReadConfig(json::Value object, Phi3* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, kDefaults);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attend = m->sizes.Attend();
  if (config.Has("sliding_window")) m->attend.window = config.Int("sliding_window", 1);
  config.RefuseTrue("attention_bias", "phi3 has none");
  config.RefuseTrue("mlp_bias", "phi3 has none");
  RopeDefaults rope;
  rope.head_dim = m->sizes.head_dim;
  rope.max_position_embeddings = m->sizes.max_context;
  rope.partial_allowed = true;
  rope.legacy_yarn_is_longrope = true;
  Result<RopeSpec> spec = ReadRope(config, rope);
  if (spec.ok()) m->rope = std::move(spec).value();
  return FinishConfig(config, m->sizes,
                      std::vector<int32_t>(static_cast<size_t>(m->sizes.layers), m->attend.window),
                      info);
}

Status BindWeights(const LoadContext& context, Phi3* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const Sizes& s = m->sizes;
  m->vocabulary = BindVocabulary(bind, s);
  for (int32_t l = 0; l < s.layers && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", s.hidden);
    layer.qkv = bind.Linear(at + "self_attn.qkv_proj", s.q_width() + 2 * s.kv_width(), s.hidden);
    layer.o = bind.Linear(at + "self_attn.o_proj", s.hidden, s.q_width());
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", s.hidden);
    layer.gate_up = bind.Linear(at + "mlp.gate_up_proj", 2 * s.inner, s.hidden);
    layer.down = bind.Linear(at + "mlp.down_proj", s.hidden, s.inner);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", s.hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Model* model) {
  auto m = std::make_unique<Phi3>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Phi3& m = *static_cast<const Phi3*>(weights);
  const Sizes& s = m.sizes;
  Arena& arena = *step.arena;
  const Rows h = arena.TakeRows(step.rows, s.hidden);
  const Rows normed = arena.TakeRows(step.rows, s.hidden);
  const Rows out = arena.TakeRows(step.rows, s.hidden);
  const Rows qkv = arena.TakeRows(step.rows, s.q_width() + 2 * s.kv_width());
  const Rows q = qkv.Cols(0, s.q_width());
  const Rows k = qkv.Cols(s.q_width(), s.kv_width());
  const Rows v = qkv.Cols(s.q_width() + s.kv_width(), s.kv_width());
  const Rows attended = arena.TakeRows(step.rows, s.q_width());
  const Rows gate_up = arena.TakeRows(step.rows, 2 * s.inner);
  const Rows inner = arena.TakeRows(step.rows, s.inner);
  const Rows cos_sin = arena.TakeRows(step.rows, m.rope.rotary_dim);

  backend.Embed(m.vocabulary.embedding, step.token_ids(), 1.0f, h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(h, layer.attention_norm.data(), 0.0f, s.eps, normed);
    backend.Linear(normed, layer.qkv, nullptr, qkv);
    backend.Rope(m.rope, cos_sin, s.heads, q);
    backend.Rope(m.rope, cos_sin, s.kv_heads, k);
    backend.StoreKv(step, index, m.attend, k, v);
    backend.AttendPages(step, index, m.attend, q, attended);
    backend.Linear(attended, layer.o, nullptr, out);
    backend.Add(h, out, 1.0f);

    backend.RmsNorm(h, layer.mlp_norm.data(), 0.0f, s.eps, normed);
    backend.Linear(normed, layer.gate_up, nullptr, gate_up);
    backend.GatedAct(m.activation, gate_up.Cols(0, s.inner), gate_up.Cols(s.inner, s.inner), inner);
    backend.Linear(inner, layer.down, nullptr, out);
    backend.Add(h, out, 1.0f);
  }
  RunHead(backend, step, h, m.norm, 0.0f, s.eps, m.vocabulary);
}

constexpr std::string_view kTypes[] = {"phi3"};

}  // namespace

constinit const Family kPhi3Family = {"phi3", kTypes, &Load, &Forward};

}  // namespace cellm
