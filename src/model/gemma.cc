// Gemma 2 and Gemma 3 (text).
//
//   h = embed[token] * sqrt(hidden)
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n
//           q, k = rope(qnorm(q)), rope(knorm(k))               gemma3 only; rotary by layer type
//           h += norm( Wo attend(q, k, v) )                     full, or in a window
//           n = norm(h);  h += norm( Wdown( gelu(Wgate n) * (Wup n) ) )
//   logits = softcap( embed norm(h) )
// All norms multiply by 1 + weight. Scores are scaled by query_pre_attn_scalar^-0.5; gemma2 caps
// them.
//
// Sources: Gemma 2 and Gemma 3 technical reports, and the published configurations.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "model/binder.h"
#include "model/config.h"
#include "model/families.h"
#include "model/parts.h"
#include "model/rope_config.h"

namespace cellm {
namespace {

constexpr float kNormOffset = 1.0f;

struct Layer {
  AttendSpec attend;
  bool full = false;  // which of the two rotary tables
  Vector attention_norm, attention_out_norm, mlp_norm, mlp_out_norm;
  Weight q, k, v, o;
  Vector q_bias, k_bias, v_bias, o_bias;
  Vector q_norm, k_norm;  // gemma3
  Weight gate, up, down;
};

struct Gemma {
  int32_t hidden = 0, inner = 0, vocab = 0;
  float eps = 0.0f;
  Activation activation = Activation::kGeluTanh;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0f, score_cap = 0.0f, logit_cap = 0.0f;
  bool head_norms = false, bias = false, tied = true;
  RopeSpec full_rope, sliding_rope;
  std::vector<int32_t> window;       // [layers]; 0: full attention
  bool pictures_are_blocks = false;  // gemma3, in every layer

  Weight embedding, head;
  Vector norm;
  std::vector<Layer> layers;
};

enum class Kind { kGemma2, kGemma3 };

// layer_types, or every pattern-th layer full: 2 in gemma2, "sliding_window_pattern" in gemma3.
// "_sliding_window_pattern" need not match the layers and is never read.
void ReadWindows(Config& config, Kind kind, int32_t layer_count, std::vector<int32_t>* window) {
  const int32_t width = config.Int("sliding_window", 4096);
  const int32_t pattern = kind == Kind::kGemma2 ? 2 : config.Int("sliding_window_pattern", 6);
  const std::vector<std::string> types = config.StringList("layer_types");
  if (!types.empty() && static_cast<int32_t>(types.size()) != layer_count) {
    config.Fail(Corrupt("config: \"layer_types\" has %zu entries for %d layers", types.size(),
                        layer_count));
    return;
  }
  for (int32_t l = 0; l < layer_count; ++l) {
    bool full = (l + 1) % pattern == 0;
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(l)];
      full = type == "full_attention";
      if (!full && type != "sliding_attention") {
        config.Fail(Unsupported("config: \"layer_types\": \"%s\" is not supported", type.c_str()));
      }
    }
    window->push_back(full ? 0 : width);
  }
}

// gemma2 has one table. gemma3 has two: full layers take rope_theta (1e6) with rope_scaling,
// sliding layers rope_local_base_freq (1e4) unscaled. New files nest a dictionary by layer type,
// which may leave out rope_theta.
void ReadRopes(Config& config, Kind kind, int32_t max_context, Gemma* m) {
  RopeDefaults defaults;
  defaults.head_dim = m->head_dim;
  defaults.max_position_embeddings = max_context;
  if (kind == Kind::kGemma2) {
    const Result<RopeSpec> spec = ReadRope(config, defaults);
    if (spec.ok()) m->full_rope = m->sliding_rope = *spec;
    return;
  }
  const json::Value nested = config.Raw("rope_parameters");
  if (nested.is_object() && nested.size() > 0 && !nested.Find("full_attention").exists() &&
      !nested.Find("sliding_attention").exists()) {
    config.Fail(Unsupported(
        "config: \"rope_parameters\" has no entries by layer type, which gemma3 needs"));
  }
  defaults.theta = config.Float("rope_theta", 1e6);
  const json::Value scaling = config.Raw("rope_scaling");
  const json::Value full = nested.Find("full_attention");
  if (scaling.has_value() && scaling.size() > 0 && full.has_value() && full.size() > 0 &&
      json::Serialize(full).find("\"default\"") == std::string::npos) {
    config.Fail(Unsupported(
        "config: both \"rope_scaling\" and \"rope_parameters\" scale the full-attention layers"));
  }
  double theta = defaults.theta;
  full.Find("rope_theta").GetDouble(&theta);
  defaults.theta = theta;
  const bool scaled = scaling.has_value() && scaling.size() > 0;
  const Result<RopeSpec> full_spec = RopeFromDictionary(scaled ? scaling : full, config, defaults);
  if (full_spec.ok()) m->full_rope = *full_spec;
  defaults.theta = config.Float("rope_local_base_freq", 1e4);
  const Result<RopeSpec> sliding_spec =
      RopeFromDictionary(nested.Find("sliding_attention"), config, defaults);
  if (sliding_spec.ok()) m->sliding_rope = *sliding_spec;
  config.Ignore({"partial_rotary_factor"});
}

Status ReadConfig(json::Value object, Kind kind, Gemma* m, ModelInfo* info) {
  const bool gemma3 = kind == Kind::kGemma3;
  Config config(object);
  m->vocab = config.Int("vocab_size", gemma3 ? 262208 : 256000);
  m->hidden = config.Int("hidden_size", 2304);
  m->inner = config.Int("intermediate_size", 9216);
  info->layer_count = config.Int("num_hidden_layers", 26);
  info->max_context = config.Int("max_position_embeddings", gemma3 ? 131072 : 8192);
  m->heads = config.Int("num_attention_heads", 8);
  m->kv_heads = KvHeads(config, m->heads, 4);
  m->head_dim = config.Int("head_dim", 256);
  m->eps = static_cast<float>(config.Float("rms_norm_eps", 1e-6));
  // The old key "hidden_act" of early gemma2 files is not read by the reference.
  m->activation = config.ActivationOf("hidden_activation", "gelu_pytorch_tanh");
  config.Ignore({"hidden_act"});
  m->tied = config.Bool("tie_word_embeddings", true);
  m->bias = config.Bool("attention_bias", false);
  m->scale = static_cast<float>(1.0 / std::sqrt(config.Float("query_pre_attn_scalar", 256.0)));
  if (!gemma3) {
    m->score_cap = config.IsNull("attn_logit_softcapping")
                       ? 0.0f
                       : static_cast<float>(config.Float("attn_logit_softcapping", 50.0));
    m->logit_cap = config.IsNull("final_logit_softcapping")
                       ? 0.0f
                       : static_cast<float>(config.Float("final_logit_softcapping", 30.0));
  } else {
    config.RefuseIfPresent("attn_logit_softcapping", "gemma3 does not apply it");
    m->logit_cap = static_cast<float>(config.Float("final_logit_softcapping", 0.0));
  }
  config.RefuseTrue("use_bidirectional_attention", "an embedding model");
  CheckQuantization(config);
  m->head_norms = gemma3;
  if (info->layer_count > limits::kMaxLayers) {
    return Unsupported("config: \"num_hidden_layers\": %d is more than %d", info->layer_count,
                       limits::kMaxLayers);
  }
  ReadWindows(config, kind, info->layer_count, &m->window);
  ReadRopes(config, kind, info->max_context, m);
  info->bos_id = BosId(config);
  info->eos_ids = EosIds(config);
  CELLM_RETURN_IF_ERROR(config.Finish());
  info->pictures_are_blocks = m->pictures_are_blocks = gemma3;
  info->vocab_size = m->vocab;
  info->hidden_size = m->hidden;
  for (const int32_t window : m->window) {
    LayerStateSpec state;
    state.kv_heads = m->kv_heads;
    state.head_dim = state.head_dim_v = m->head_dim;
    state.window = window;
    info->layers.push_back(state);
  }
  return OkStatus();
}

Status BindWeights(const LoadContext& context, Gemma* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const int32_t q_width = m->heads * m->head_dim;
  const int32_t kv_width = m->kv_heads * m->head_dim;
  m->head = bind.Head(m->tied, m->vocab, m->hidden);
  m->embedding = m->head.exists() ? bind.Lookup("embed_tokens", m->vocab, m->hidden)
                                  : bind.Linear("embed_tokens", m->vocab, m->hidden);
  for (size_t l = 0; l < m->window.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    Layer layer;
    layer.full = m->window[l] == 0;
    layer.attend = {.heads = m->heads,
                    .kv_heads = m->kv_heads,
                    .head_dim = m->head_dim,
                    .head_dim_v = m->head_dim,
                    .window = m->window[l],
                    .scale = m->scale,
                    .softcap = m->score_cap,
                    .two_way = m->pictures_are_blocks};
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", m->hidden);
    layer.attention_out_norm = bind.Floats(at + "post_attention_layernorm.weight", m->hidden);
    layer.mlp_norm = bind.Floats(at + "pre_feedforward_layernorm.weight", m->hidden);
    layer.mlp_out_norm = bind.Floats(at + "post_feedforward_layernorm.weight", m->hidden);
    layer.q = bind.Linear(attn + "q_proj", q_width, m->hidden);
    layer.k = bind.Linear(attn + "k_proj", kv_width, m->hidden);
    layer.v = bind.Linear(attn + "v_proj", kv_width, m->hidden);
    layer.o = bind.Linear(attn + "o_proj", m->hidden, q_width);
    layer.q_bias = bind.Bias(attn + "q_proj", q_width, m->bias);
    layer.k_bias = bind.Bias(attn + "k_proj", kv_width, m->bias);
    layer.v_bias = bind.Bias(attn + "v_proj", kv_width, m->bias);
    layer.o_bias = bind.Bias(attn + "o_proj", m->hidden, m->bias);
    if (m->head_norms) {
      layer.q_norm = bind.Floats(attn + "q_norm.weight", m->head_dim);
      layer.k_norm = bind.Floats(attn + "k_norm.weight", m->head_dim);
    }
    layer.gate = bind.Linear(mlp + "gate_proj", m->inner, m->hidden);
    layer.up = bind.Linear(mlp + "up_proj", m->inner, m->hidden);
    layer.down = bind.Linear(mlp + "down_proj", m->hidden, m->inner);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", m->hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Kind kind, Model* model) {
  auto m = std::make_unique<Gemma>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, kind, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadGemma2(const LoadContext& context, Model* model) {
  return Load(context, Kind::kGemma2, model);
}
Status LoadGemma3(const LoadContext& context, Model* model) {
  return Load(context, Kind::kGemma3, model);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Gemma& m = *static_cast<const Gemma*>(weights);
  Arena& arena = *step.arena;
  const Rows h = arena.TakeRows(step.rows, m.hidden);
  const Rows normed = arena.TakeRows(step.rows, m.hidden);
  const Rows out = arena.TakeRows(step.rows, m.hidden);
  const Rows q = arena.TakeRows(step.rows, m.heads * m.head_dim);
  const Rows k = arena.TakeRows(step.rows, m.kv_heads * m.head_dim);
  const Rows v = arena.TakeRows(step.rows, m.kv_heads * m.head_dim);
  const Rows attended = arena.TakeRows(step.rows, m.heads * m.head_dim);
  const Rows inner = arena.TakeRows(step.rows, m.inner);
  const Rows full_cos_sin = arena.TakeRows(step.rows, m.full_rope.rotary_dim);
  const Rows sliding_cos_sin = arena.TakeRows(step.rows, m.sliding_rope.rotary_dim);

  EmbedStep(backend, step, m.embedding, std::sqrt(static_cast<float>(m.hidden)), h);
  backend.RopeTable(step, m.full_rope, full_cos_sin);
  backend.RopeTable(step, m.sliding_rope, sliding_cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    const RopeSpec& rope = layer.full ? m.full_rope : m.sliding_rope;
    const Rows cos_sin = layer.full ? full_cos_sin : sliding_cos_sin;
    backend.RmsNorm(h, layer.attention_norm.data(), kNormOffset, m.eps, normed);
    const LinearPart qkv[] = {{&layer.q, layer.q_bias.data(), q},
                              {&layer.k, layer.k_bias.data(), k},
                              {&layer.v, layer.v_bias.data(), v}};
    backend.Linear(normed, qkv);
    if (m.head_norms) {
      backend.RmsNorm(q.Heads(m.heads), layer.q_norm.data(), kNormOffset, m.eps, q.Heads(m.heads));
      backend.RmsNorm(k.Heads(m.kv_heads), layer.k_norm.data(), kNormOffset, m.eps,
                      k.Heads(m.kv_heads));
    }
    backend.Rope(rope, cos_sin, m.heads, q);
    backend.Rope(rope, cos_sin, m.kv_heads, k);
    backend.StoreKv(step, index, layer.attend, k, v);
    backend.AttendPages(step, index, layer.attend, q, attended);
    backend.Linear(attended, layer.o, layer.o_bias.data(), out);
    backend.RmsNorm(out, layer.attention_out_norm.data(), kNormOffset, m.eps, out);
    backend.Add(h, out, 1.0f);

    backend.RmsNorm(h, layer.mlp_norm.data(), kNormOffset, m.eps, normed);
    backend.GatedLinear(normed, {&layer.gate, nullptr, {}}, {&layer.up, nullptr, {}}, m.activation,
                        inner);
    backend.Linear(inner, layer.down, nullptr, out);
    backend.RmsNorm(out, layer.mlp_out_norm.data(), kNormOffset, m.eps, out);
    backend.Add(h, out, 1.0f);
  }
  RunHead(backend, step, h, m.norm, kNormOffset, m.eps, m.head.exists() ? m.head : m.embedding);
  if (!step.logit_rows.empty() && m.logit_cap > 0.0f) backend.SoftCap(step.logits, m.logit_cap);
}

constexpr std::string_view kGemma2Types[] = {"gemma2"};
constexpr std::string_view kGemma3Types[] = {"gemma3_text"};

}  // namespace

constinit const Family kGemma2Family = {"gemma2", kGemma2Types, &LoadGemma2, &Forward};
constinit const Family kGemma3Family = {"gemma3", kGemma3Types, &LoadGemma3, &Forward};

}  // namespace cellm
