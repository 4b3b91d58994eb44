// Gemma 4 (text): per-layer inputs, layers that reuse keys and values, two head widths.
//
//   h = embed[token] * sqrt(hidden)
//   p = ( norm(Wm h * hidden^-0.5) + table[token] * sqrt(P) ) * 2^-0.5          [layers, P]
//   layer:  n = norm(h);  q = rope(qnorm(Wq n))
//           k = rope(knorm(Wk n));  v = vnorm(Wv n)      own; or an earlier layer's, stored once
//           h += norm( Wo attend(q, k, v) )              full, or in a window; scores not scaled
//           h += norm( Wdown( gelu(Wgate n) * (Wup n) ) ) of n = norm(h)
//           h += norm( Wp( gelu(Wi h) * p[layer] ) )
//           h *= scalar
//   logits = softcap( embed norm(h) )
// Norms multiply by the plain weight; vnorm has none. Full layers have their own head width and a
// rotary that turns a share of the pairs of the whole width.
//
// Source: the published configuration and model definition of gemma4.
#include <algorithm>
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

constexpr SizeDefaults kDefaults = {.vocab = 262144,
                                    .hidden = 2304,
                                    .inner = 9216,
                                    .layers = 30,
                                    .heads = 8,
                                    .kv_heads = 4,
                                    .max_context = 131072,
                                    .eps = 1e-6,
                                    .tied = true};

// What differs by layer, known from the configuration.
struct LayerPlan {
  bool full = false;
  int32_t head_dim = 0, kv_heads = 0, inner = 0;
  int32_t kv_from = -1;  // >= 0: reads that layer's keys and values
  bool v_is_k = false;   // the value is the raw key projection
};

struct Layer {
  LayerPlan plan;
  AttendSpec attend;
  Vector attention_norm, attention_out_norm, mlp_norm, mlp_out_norm;
  Weight q, k, v, o;
  Vector q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
  GatedMlp mlp;
  Weight input_gate, input_projection;
  Vector input_norm;
  float scalar = 1.0f;
};

struct Gemma4 {
  Sizes sizes;
  Activation activation = Activation::kGeluTanh;
  RopeSpec full_rope, sliding_rope;
  int32_t window = 512;
  bool bias = false;
  bool pictures_are_blocks = false;  // in sliding layers
  float logit_cap = 0.0f;
  int32_t input_width = 0, input_vocab = 0;  // per-layer inputs; width 0: none
  std::vector<LayerPlan> plan;
  int32_t widest_q = 0, widest_kv = 0, widest_inner = 0;

  Vocabulary vocabulary;
  Weight input_table, input_model;
  Vector input_model_norm, norm;
  std::vector<Layer> layers;
};

// The head widths and K/V heads of layer types: the global_* keys, or "per_layer_config", which
// replaces them whole.
void ReadLayerWidths(Config& config, Gemma4* m) {
  const json::Value overrides = config.Raw("per_layer_config");
  const bool k_is_v = config.Bool("attention_k_eq_v", false);
  const int32_t global_dim = config.Int("global_head_dim", 512);
  const int32_t global_kv = config.Int("num_global_key_value_heads", m->sizes.kv_heads);
  for (LayerPlan& layer : m->plan) {
    layer.head_dim = m->sizes.head_dim;
    layer.kv_heads = m->sizes.kv_heads;
    layer.v_is_k = k_is_v && layer.full;
    if (overrides.has_value()) continue;
    if (layer.full) layer.head_dim = global_dim;
    if (layer.v_is_k) layer.kv_heads = global_kv;
  }
  for (json::Value v = overrides.First(); v.exists(); v = overrides.Next(v)) {
    const std::string index(overrides.KeyOf(v));
    size_t l = 0;
    bool is_index = !index.empty() && index.size() < 5;
    for (const char c : index) {
      is_index = is_index && c >= '0' && c <= '9';
      l = l * 10 + static_cast<size_t>(c - '0');
    }
    if (!is_index || l >= m->plan.size() || !v.is_object()) {
      config.Fail(Corrupt("config: \"per_layer_config\": \"%s\" is no layer", index.c_str()));
      return;
    }
    for (json::Value o = v.First(); o.exists(); o = v.Next(o)) {
      const std::string key(v.KeyOf(o));
      int64_t number = 0;
      if ((key != "head_dim" && key != "num_key_value_heads") || !o.GetInt64(&number) ||
          number < 1 || number > limits::kMaxDimension) {
        config.Fail(Unsupported("config: \"per_layer_config\": layer %s: \"%s\" is not supported",
                                index.c_str(), key.c_str()));
        return;
      }
      (key == "head_dim" ? m->plan[l].head_dim : m->plan[l].kv_heads) =
          static_cast<int32_t>(number);
    }
  }
}

void ReadLayerTypes(Config& config, Gemma4* m) {
  const size_t layers = static_cast<size_t>(m->sizes.layers);
  m->window = config.Int("sliding_window", 512);
  const std::vector<int32_t> windows = WindowsOfLayerTypes(config, m->sizes.layers, m->window);
  m->plan.resize(layers);
  for (size_t l = 0; l < layers; ++l) {
    m->plan[l].full = windows.empty() ? (l + 1) % 6 == 0 : windows[l] == 0;
  }
  if (layers > 0) m->plan[layers - 1].full = true;  // the last layer is full in any case
}

// Which layers store keys and values, and which read the last earlier one of their type.
void PlanSharing(Config& config, Gemma4* m) {
  const int32_t shared = config.Int("num_kv_shared_layers", 0, 0);
  const bool wide = config.Bool("use_double_wide_mlp", false);
  const size_t layers = m->plan.size();
  if (static_cast<size_t>(shared) >= layers) {
    config.Fail(Unsupported("config: \"num_kv_shared_layers\": %d of %zu layers", shared, layers));
    return;
  }
  const size_t first = layers - static_cast<size_t>(shared);
  for (size_t l = 0; l < layers; ++l) {
    LayerPlan& layer = m->plan[l];
    layer.inner = m->sizes.inner;
    if (l < first) continue;
    if (wide) layer.inner = 2 * m->sizes.inner;
    for (size_t donor = 0; donor < first; ++donor) {
      if (m->plan[donor].full == layer.full) layer.kv_from = static_cast<int32_t>(donor);
    }
    if (layer.kv_from < 0) {
      config.Fail(
          Corrupt("config: layer %zu shares keys and values, but no earlier layer of its "
                  "type stores any",
                  l));
      return;
    }
    const LayerPlan& donor = m->plan[static_cast<size_t>(layer.kv_from)];
    if (donor.head_dim != layer.head_dim || donor.kv_heads != layer.kv_heads) {
      config.Fail(
          Unsupported("config: layer %zu and layer %d share keys and values of different "
                      "widths",
                      l, layer.kv_from));
    }
  }
}

// One table a layer type. A given rope_parameters is complete; absent, the class has defaults.
void ReadRotary(Config& config, Gemma4* m) {
  config.RefuseIfPresent("rope_scaling", "gemma4 reads rope_parameters only");
  config.Ignore({"rope_theta", "partial_rotary_factor"});
  const json::Value nested = config.Raw("rope_parameters");
  for (const bool full : {false, true}) {
    RopeDefaults defaults;
    defaults.max_position_embeddings = m->sizes.max_context;
    defaults.theta = full ? 1e6 : 1e4;
    bool used = false;
    for (const LayerPlan& layer : m->plan) {
      if (layer.full != full) continue;
      if (used && defaults.head_dim != layer.head_dim) {
        config.Fail(Unsupported("config: layers of one type differ in head width"));
        return;
      }
      defaults.head_dim = layer.head_dim;
      used = true;
    }
    if (!used) continue;
    const char* const type = full ? "full_attention" : "sliding_attention";
    const json::Value entry = nested.Find(type);
    RopeSpec& out = full ? m->full_rope : m->sliding_rope;
    if (nested.has_value() && !entry.is_object()) {
      config.Fail(Corrupt("config: \"rope_parameters\" has no entry \"%s\"", type));
      return;
    }
    if (nested.has_value() || !full) {
      Result<RopeSpec> spec = RopeFromDictionary(entry, config, defaults);
      if (spec.ok()) out = std::move(spec).value();
      continue;
    }
    const auto dictionary = json::Document::Parse(
        R"({"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0})",
        "rotary defaults");
    CELLM_CHECK(dictionary.ok(), "a literal of ours is not JSON");
    Result<RopeSpec> spec = RopeFromDictionary((*dictionary)->root(), config, defaults);
    if (spec.ok()) out = std::move(spec).value();
  }
}

Status ReadConfig(json::Value object, Gemma4* m, ModelInfo* info) {
  Config config(object);
  Sizes& s = m->sizes;
  s = ReadSizes(config, kDefaults);
  s.head_dim = config.Int("head_dim", 256);
  m->activation = config.ActivationOf("hidden_activation", "gelu_pytorch_tanh");
  m->bias = config.Bool("attention_bias", false);
  m->logit_cap = static_cast<float>(config.Float("final_logit_softcapping", 0.0));
  m->input_width = config.IsNull("hidden_size_per_layer_input")
                       ? 0
                       : config.Int("hidden_size_per_layer_input", 256, 0);
  m->input_vocab = config.Int("vocab_size_per_layer_input", 262144);
  config.RefuseTrue("enable_moe_block", "gemma4 with experts");
  config.Ignore({"num_experts", "top_k_experts", "moe_intermediate_size"});
  const std::string both_ways = config.Raw("use_bidirectional_attention").is_string()
                                    ? config.String("use_bidirectional_attention", "")
                                    : std::string();
  m->pictures_are_blocks = both_ways == "vision";
  int64_t pad = 0;
  config.Raw("pad_token_id").GetInt64(&pad);
  info->given_id = pad >= 0 && pad < s.vocab ? static_cast<int32_t>(pad) : 0;
  if (both_ways == "all") {
    config.Fail(Unsupported("config: \"use_bidirectional_attention\": \"all\" is not supported"));
  }
  if (config.ok()) ReadLayerTypes(config, m);
  if (config.ok()) ReadLayerWidths(config, m);
  if (config.ok()) PlanSharing(config, m);
  if (config.ok()) ReadRotary(config, m);
  info->pictures_are_blocks = m->pictures_are_blocks;
  CELLM_RETURN_IF_ERROR(FinishConfig(config, s, {}, info));
  for (size_t l = 0; l < m->plan.size(); ++l) {
    const LayerPlan& layer = m->plan[l];
    if (s.heads % layer.kv_heads != 0) {
      return Unsupported("config: %d heads are no multiple of %d key/value heads", s.heads,
                         layer.kv_heads);
    }
    LayerStateSpec& state = info->layers[l];
    state.kv_heads = layer.kv_heads;
    state.head_dim = state.head_dim_v = layer.head_dim;
    state.window = layer.full ? 0 : m->window;
    state.kv_from = layer.kv_from;
    m->widest_q = std::max(m->widest_q, s.heads * layer.head_dim);
    m->widest_kv = std::max(m->widest_kv, layer.kv_heads * layer.head_dim);
    m->widest_inner = std::max(m->widest_inner, layer.inner);
  }
  return OkStatus();
}

void BindAttentionOf(Binder& bind, const std::string& at, const Gemma4& m, Layer* layer) {
  const LayerPlan& plan = layer->plan;
  const int32_t hidden = m.sizes.hidden;
  const int32_t q_width = m.sizes.heads * plan.head_dim;
  const int32_t kv_width = plan.kv_heads * plan.head_dim;
  layer->q = bind.Linear(at + "q_proj", q_width, hidden);
  layer->o = bind.Linear(at + "o_proj", hidden, q_width);
  layer->q_bias = bind.Bias(at + "q_proj", q_width, m.bias);
  layer->o_bias = bind.Bias(at + "o_proj", hidden, m.bias);
  layer->q_norm = bind.Floats(at + "q_norm.weight", plan.head_dim);
  if (plan.kv_from >= 0) return;  // stored copies of shared layers are not read
  layer->k = bind.Linear(at + "k_proj", kv_width, hidden);
  layer->k_bias = bind.Bias(at + "k_proj", kv_width, m.bias);
  layer->k_norm = bind.Floats(at + "k_norm.weight", plan.head_dim);
  if (plan.v_is_k) return;
  layer->v = bind.Linear(at + "v_proj", kv_width, hidden);
  layer->v_bias = bind.Bias(at + "v_proj", kv_width, m.bias);
}

Status BindWeights(const LoadContext& context, Gemma4* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const int32_t hidden = m->sizes.hidden;
  const int32_t inputs = m->sizes.layers * m->input_width;
  m->vocabulary = BindVocabulary(bind, m->sizes);
  if (inputs > 0) {
    m->input_table = bind.Lookup("embed_tokens_per_layer", m->input_vocab, inputs);
    m->input_model = bind.Linear("per_layer_model_projection", inputs, hidden);
    m->input_model_norm = bind.Floats("per_layer_projection_norm.weight", m->input_width);
  }
  for (size_t l = 0; l < m->plan.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    Layer layer;
    layer.plan = m->plan[l];
    layer.attend = {.heads = m->sizes.heads,
                    .kv_heads = layer.plan.kv_heads,
                    .head_dim = layer.plan.head_dim,
                    .head_dim_v = layer.plan.head_dim,
                    .window = layer.plan.full ? 0 : m->window,
                    .scale = 1.0f,
                    .two_way = m->pictures_are_blocks && !layer.plan.full};
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", hidden);
    layer.attention_out_norm = bind.Floats(at + "post_attention_layernorm.weight", hidden);
    layer.mlp_norm = bind.Floats(at + "pre_feedforward_layernorm.weight", hidden);
    layer.mlp_out_norm = bind.Floats(at + "post_feedforward_layernorm.weight", hidden);
    BindAttentionOf(bind, at + "self_attn.", *m, &layer);
    layer.mlp = BindGatedMlp(bind, at + "mlp.", hidden, layer.plan.inner, false);
    if (inputs > 0) {
      layer.input_gate = bind.Linear(at + "per_layer_input_gate", m->input_width, hidden);
      layer.input_projection = bind.Linear(at + "per_layer_projection", hidden, m->input_width);
      layer.input_norm = bind.Floats(at + "post_per_layer_input_norm.weight", hidden);
    }
    const Vector scalar = bind.Floats(at + "layer_scalar", 1);
    if (!scalar.empty()) layer.scalar = scalar[0];
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Model* model) {
  auto m = std::make_unique<Gemma4>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

// The per-layer inputs of every row, [rows, layers * width].
void RunInputs(const Gemma4& m, Backend& backend, const StepContext& step, Rows h, Rows inputs,
               Rows table_rows) {
  const float hidden = static_cast<float>(m.sizes.hidden);
  const float width = static_cast<float>(m.input_width);
  backend.Linear(h, m.input_model, nullptr, inputs);
  backend.Scale(inputs, 1.0f / std::sqrt(hidden));
  const Rows per_layer = inputs.Heads(m.sizes.layers);
  backend.RmsNorm(per_layer, m.input_model_norm.data(), 0.0f, m.sizes.eps, per_layer);
  backend.Embed(m.input_table, step.token_ids(), std::sqrt(width), table_rows);
  backend.Add(inputs, table_rows, 1.0f);
  backend.Scale(inputs, std::sqrt(0.5f));
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Gemma4& m = *static_cast<const Gemma4*>(weights);
  const Sizes& s = m.sizes;
  Arena& arena = *step.arena;
  const int32_t rows = step.rows;
  const Rows h = arena.TakeRows(rows, s.hidden);
  const Rows normed = arena.TakeRows(rows, s.hidden);
  const Rows out = arena.TakeRows(rows, s.hidden);
  const Rows q_all = arena.TakeRows(rows, m.widest_q);
  const Rows k_all = arena.TakeRows(rows, m.widest_kv);
  const Rows v_all = arena.TakeRows(rows, m.widest_kv);
  const Rows attended_all = arena.TakeRows(rows, m.widest_q);
  const Rows inner_all = arena.TakeRows(rows, m.widest_inner);
  const Rows full_cos_sin = arena.TakeRows(rows, m.full_rope.rotary_dim);
  const Rows sliding_cos_sin = arena.TakeRows(rows, m.sliding_rope.rotary_dim);
  const Rows inputs = arena.TakeRows(rows, s.layers * m.input_width);
  const Rows table_rows = arena.TakeRows(rows, s.layers * m.input_width);
  const Rows gated = arena.TakeRows(rows, m.input_width);
  // Layers differ in width; each sees the front of the widest buffer as dense rows.
  const auto front = [rows](Rows all, int32_t cols) { return Rows{all.data, rows, cols, cols}; };

  EmbedStep(backend, step, m.vocabulary.embedding, std::sqrt(static_cast<float>(s.hidden)), h);
  if (m.input_width > 0) RunInputs(m, backend, step, h, inputs, table_rows);
  if (m.full_rope.exists()) backend.RopeTable(step, m.full_rope, full_cos_sin);
  if (m.sliding_rope.exists()) backend.RopeTable(step, m.sliding_rope, sliding_cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const AttendSpec& spec = layer.attend;
    const int32_t index = static_cast<int32_t>(l);
    const RopeSpec& rope = layer.plan.full ? m.full_rope : m.sliding_rope;
    const Rows cos_sin = layer.plan.full ? full_cos_sin : sliding_cos_sin;
    const Rows q = front(q_all, spec.heads * spec.head_dim);
    const Rows k = front(k_all, spec.kv_heads * spec.head_dim);
    const Rows v = front(v_all, spec.kv_heads * spec.head_dim);
    const Rows attended = front(attended_all, spec.heads * spec.head_dim);
    backend.RmsNorm(h, layer.attention_norm.data(), 0.0f, s.eps, normed);
    backend.Linear(normed, layer.q, layer.q_bias.data(), q);
    backend.RmsNorm(q.Heads(spec.heads), layer.q_norm.data(), 0.0f, s.eps, q.Heads(spec.heads));
    backend.Rope(rope, cos_sin, spec.heads, q);
    if (layer.plan.kv_from < 0) {
      const Rows k_heads = k.Heads(spec.kv_heads);
      const Rows v_heads = v.Heads(spec.kv_heads);
      backend.Linear(normed, layer.k, layer.k_bias.data(), k);
      if (layer.plan.v_is_k) {
        backend.RmsNorm(k_heads, nullptr, 0.0f, s.eps, v_heads);
      } else {
        backend.Linear(normed, layer.v, layer.v_bias.data(), v);
        backend.RmsNorm(v_heads, nullptr, 0.0f, s.eps, v_heads);
      }
      backend.RmsNorm(k_heads, layer.k_norm.data(), 0.0f, s.eps, k_heads);
      backend.Rope(rope, cos_sin, spec.kv_heads, k);
      backend.StoreKv(step, index, spec, k, v);
    }
    const int32_t source = layer.plan.kv_from < 0 ? index : layer.plan.kv_from;
    backend.AttendPages(step, source, spec, q, attended);
    backend.Linear(attended, layer.o, layer.o_bias.data(), out);
    backend.RmsNorm(out, layer.attention_out_norm.data(), 0.0f, s.eps, out);
    backend.Add(h, out, 1.0f);

    backend.RmsNorm(h, layer.mlp_norm.data(), 0.0f, s.eps, normed);
    RunGatedMlp(backend, layer.mlp, m.activation, normed, front(inner_all, layer.plan.inner), out);
    backend.RmsNorm(out, layer.mlp_out_norm.data(), 0.0f, s.eps, out);
    backend.Add(h, out, 1.0f);

    if (m.input_width > 0) {
      backend.Linear(h, layer.input_gate, nullptr, gated);
      backend.GatedAct(m.activation, gated, inputs.Cols(index * m.input_width, m.input_width),
                       gated);
      backend.Linear(gated, layer.input_projection, nullptr, out);
      backend.RmsNorm(out, layer.input_norm.data(), 0.0f, s.eps, out);
      backend.Add(h, out, 1.0f);
    }
    backend.Scale(h, layer.scalar);
  }
  RunHead(backend, step, h, m.norm, 0.0f, s.eps, m.vocabulary);
  if (!step.logit_rows.empty() && m.logit_cap > 0.0f) backend.SoftCap(step.logits, m.logit_cap);
}

constexpr std::string_view kTypes[] = {"gemma4_text"};

}  // namespace

constinit const Family kGemma4Family = {"gemma4", kTypes, &Load, &Forward};

}  // namespace cellm
