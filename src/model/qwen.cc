// Qwen2 (and 2.5), Qwen3, and Qwen3 with experts.
//
//   h = embed[token]
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n          qwen2: with biases
//           q, k = rope(qnorm(q)), rope(knorm(k))             qwen3: norms per head, before rotary
//           h += Wo attend(q, k, v)                           causal, optionally in a window
//           n = norm(h);  h += mlp(n)
//   mlp:    Wdown( silu(Wgate n) * (Wup n) )                  dense layers
//           sum over the top_k experts of softmax(Wr n) of the same, each with its own weights
//   logits = head(norm(h))
//
// Sources: the published configurations and model definitions of qwen2, qwen3 and qwen3_moe.
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

struct Layer {
  AttendSpec attend;  // windows differ by layer
  Vector attention_norm, mlp_norm;
  Weight q, k, v, o;
  Vector q_bias, k_bias, v_bias, o_bias;
  Vector q_norm, k_norm;
  Weight gate, up, down;  // dense layers
  Experts experts;        // the others
};

struct Qwen {
  int32_t hidden = 0, inner = 0, expert_inner = 0, vocab = 0;
  float eps = 0.0f;
  Activation activation = Activation::kSilu;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  RopeSpec rope;
  bool qkv_bias = false, o_bias = false, head_norms = false, tied = false;
  RouterSpec router;            // experts == 0: none
  std::vector<bool> is_sparse;  // [layers]
  std::vector<int32_t> window;  // [layers], 0: none

  Weight embedding, head;  // head absent: the embedding serves
  Vector norm;
  std::vector<Layer> layers;
};

enum class Kind { kQwen2, kQwen3, kQwen3Moe };

// Windows by layer. qwen2 and qwen3 name them in layer_types, or from max_window_layers on;
// qwen3_moe has one for all. All of them only with use_sliding_window.
void ReadWindows(Config& config, Kind kind, int32_t layer_count, std::vector<int32_t>* window) {
  const bool use = config.Bool("use_sliding_window", false);
  const int32_t width = config.IsNull("sliding_window") ? 0 : config.Int("sliding_window", 4096);
  const int32_t first = config.Int("max_window_layers", 28, 0);
  const std::vector<std::string> types = config.StringList("layer_types");
  if (!types.empty() && static_cast<int32_t>(types.size()) != layer_count) {
    config.Fail(Corrupt("config: \"layer_types\" has %zu entries for %d layers", types.size(),
                        layer_count));
  }
  for (int32_t l = 0; l < layer_count; ++l) {
    bool sliding = use && (kind == Kind::kQwen3Moe || l >= first);
    if (l < static_cast<int32_t>(types.size())) {
      const std::string& type = types[static_cast<size_t>(l)];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention") {
        config.Fail(Unsupported("config: \"layer_types\": \"%s\" is not supported", type.c_str()));
      }
    }
    // Without use_sliding_window the reference forces the width to null, whatever a layer is
    // called.
    window->push_back(sliding && use ? width : 0);
  }
}

void ReadExperts(Config& config, int32_t layer_count, Qwen* m) {
  const char* const alias = config.Has("num_experts") ? "num_experts" : "num_local_experts";
  m->router.kind = RouterKind::kSoftmaxAll;
  m->router.experts = config.Int(alias, 128, 0);
  config.Ignore({"num_local_experts"});
  m->router.top_k = config.Int("num_experts_per_tok", 8);
  m->router.normalise = config.Bool("norm_topk_prob", false);
  m->expert_inner = config.Int("moe_intermediate_size", 768);
  const int32_t step = config.Int("decoder_sparse_step", 1);
  const std::vector<int32_t> dense = config.IntList("mlp_only_layers");
  m->is_sparse.assign(static_cast<size_t>(layer_count), false);
  for (int32_t l = 0; l < layer_count; ++l) {
    m->is_sparse[static_cast<size_t>(l)] = m->router.experts > 0 && (l + 1) % step == 0;
  }
  for (const int32_t l : dense) {
    if (l >= 0 && l < layer_count) m->is_sparse[static_cast<size_t>(l)] = false;
  }
  if (m->router.experts > 0 && m->router.top_k > m->router.experts) {
    config.Fail(Corrupt("config: \"num_experts_per_tok\" %d is more than \"%s\" %d",
                        m->router.top_k, alias, m->router.experts));
  }
  if (m->router.experts > limits::kMaxExperts) {
    config.Fail(Unsupported("config: \"%s\": %d is more than %d", alias, m->router.experts,
                            limits::kMaxExperts));
  }
}

Status ReadConfig(json::Value object, Kind kind, Qwen* m, ModelInfo* info) {
  const bool moe = kind == Kind::kQwen3Moe;
  Config config(object);
  m->vocab = config.Int("vocab_size", 151936);
  m->hidden = config.Int("hidden_size", moe ? 2048 : 4096);
  m->inner = config.Int("intermediate_size", moe ? 6144 : 22016);
  info->layer_count = config.Int("num_hidden_layers", moe ? 24 : 32);
  info->max_context = config.Int("max_position_embeddings", 32768);
  m->heads = config.Int("num_attention_heads", 32);
  m->kv_heads = KvHeads(config, m->heads, moe ? 4 : 32);
  m->head_dim =
      kind == Kind::kQwen3 ? config.Int("head_dim", 128) : HeadDim(config, m->hidden, m->heads);
  m->eps = static_cast<float>(config.Float("rms_norm_eps", 1e-6));
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->tied = config.Bool("tie_word_embeddings", false);
  m->head_norms = kind != Kind::kQwen2;
  m->qkv_bias = kind == Kind::kQwen2 || config.Bool("attention_bias", false);
  m->o_bias = kind != Kind::kQwen2 && m->qkv_bias;
  if (info->layer_count > limits::kMaxLayers) {
    return Unsupported("config: \"num_hidden_layers\": %d is more than %d", info->layer_count,
                       limits::kMaxLayers);
  }
  ReadWindows(config, kind, info->layer_count, &m->window);
  if (moe) ReadExperts(config, info->layer_count, m);
  if (!moe) m->is_sparse.assign(static_cast<size_t>(info->layer_count), false);
  CheckQuantization(config);
  RopeDefaults rope;
  rope.head_dim = m->head_dim;
  rope.max_position_embeddings = info->max_context;
  if (config.String("model_type", "") == "qwen3_vl_text") {
    rope.theta = 5e5;
    rope.mrope_section = {24, 20, 20};
  }
  const Result<RopeSpec> spec = ReadRope(config, rope);
  if (spec.ok()) m->rope = *spec;
  info->bos_id = BosId(config);
  info->eos_ids = EosIds(config);
  CELLM_RETURN_IF_ERROR(config.Finish());
  info->axial_positions = !m->rope.axes.empty();
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

Status BindWeights(const LoadContext& context, Qwen* m, Model* model) {
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
    layer.attend = {.heads = m->heads,
                    .kv_heads = m->kv_heads,
                    .head_dim = m->head_dim,
                    .head_dim_v = m->head_dim,
                    .window = m->window[l],
                    .scale = 1.0f / std::sqrt(static_cast<float>(m->head_dim))};
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", m->hidden);
    layer.q = bind.Linear(attn + "q_proj", q_width, m->hidden);
    layer.k = bind.Linear(attn + "k_proj", kv_width, m->hidden);
    layer.v = bind.Linear(attn + "v_proj", kv_width, m->hidden);
    layer.o = bind.Linear(attn + "o_proj", m->hidden, q_width);
    layer.q_bias = bind.Bias(attn + "q_proj", q_width, m->qkv_bias);
    layer.k_bias = bind.Bias(attn + "k_proj", kv_width, m->qkv_bias);
    layer.v_bias = bind.Bias(attn + "v_proj", kv_width, m->qkv_bias);
    layer.o_bias = bind.Bias(attn + "o_proj", m->hidden, m->o_bias);
    if (m->head_norms) {
      layer.q_norm = bind.Floats(attn + "q_norm.weight", m->head_dim);
      layer.k_norm = bind.Floats(attn + "k_norm.weight", m->head_dim);
    }
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", m->hidden);
    if (m->is_sparse[l]) {
      layer.experts =
          BindExperts(bind, mlp, kUsualExpertNames, m->router.experts, m->hidden, m->expert_inner);
    } else {
      layer.gate = bind.Linear(mlp + "gate_proj", m->inner, m->hidden);
      layer.up = bind.Linear(mlp + "up_proj", m->inner, m->hidden);
      layer.down = bind.Linear(mlp + "down_proj", m->hidden, m->inner);
    }
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", m->hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, Kind kind, Model* model) {
  auto m = std::make_unique<Qwen>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, kind, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadQwen2(const LoadContext& context, Model* model) {
  return Load(context, Kind::kQwen2, model);
}
Status LoadQwen3(const LoadContext& context, Model* model) {
  return Load(context, Kind::kQwen3, model);
}
Status LoadQwen3Moe(const LoadContext& context, Model* model) {
  return Load(context, Kind::kQwen3Moe, model);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Qwen& m = *static_cast<const Qwen*>(weights);
  Arena& arena = *step.arena;
  const Rows h = arena.TakeRows(step.rows, m.hidden);
  const Rows normed = arena.TakeRows(step.rows, m.hidden);
  const Rows out = arena.TakeRows(step.rows, m.hidden);
  const Rows q = arena.TakeRows(step.rows, m.heads * m.head_dim);
  const Rows k = arena.TakeRows(step.rows, m.kv_heads * m.head_dim);
  const Rows v = arena.TakeRows(step.rows, m.kv_heads * m.head_dim);
  const Rows attended = arena.TakeRows(step.rows, m.heads * m.head_dim);
  const Rows inner = arena.TakeRows(step.rows, m.inner);
  const Rows cos_sin = arena.TakeRows(step.rows, m.rope.rotary_dim);
  const RouterRows router = TakeRouterRows(arena, step.rows, m.router);

  EmbedStep(backend, step, m.embedding, 1.0f, h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(h, layer.attention_norm.data(), 0.0f, m.eps, normed);
    const LinearPart qkv[] = {{&layer.q, layer.q_bias.data(), q},
                              {&layer.k, layer.k_bias.data(), k},
                              {&layer.v, layer.v_bias.data(), v}};
    backend.Linear(normed, qkv);
    if (m.head_norms) {
      backend.RmsNorm(q.Heads(m.heads), layer.q_norm.data(), 0.0f, m.eps, q.Heads(m.heads));
      backend.RmsNorm(k.Heads(m.kv_heads), layer.k_norm.data(), 0.0f, m.eps, k.Heads(m.kv_heads));
    }
    backend.Rope(m.rope, cos_sin, m.heads, q);
    backend.Rope(m.rope, cos_sin, m.kv_heads, k);
    backend.StoreKv(step, index, layer.attend, k, v);
    backend.AttendPages(step, index, layer.attend, q, attended);
    backend.Linear(attended, layer.o, layer.o_bias.data(), out);
    backend.Add(h, out, 1.0f);

    backend.RmsNorm(h, layer.mlp_norm.data(), 0.0f, m.eps, normed);
    if (layer.experts.exists()) {
      RunExperts(backend, layer.experts, m.router, m.activation, m.expert_inner, normed, router,
                 out);
    } else {
      backend.GatedLinear(normed, {&layer.gate, nullptr, {}}, {&layer.up, nullptr, {}},
                          m.activation, inner);
      backend.Linear(inner, layer.down, nullptr, out);
    }
    backend.Add(h, out, 1.0f);
    AddDeep(backend, step, index, h);
  }
  RunHead(backend, step, h, m.norm, 0.0f, m.eps, m.head.exists() ? m.head : m.embedding);
}

constexpr std::string_view kQwen2Types[] = {"qwen2"};
constexpr std::string_view kQwen3Types[] = {"qwen3", "qwen3_vl_text"};
constexpr std::string_view kQwen3MoeTypes[] = {"qwen3_moe"};

}  // namespace

constinit const Family kQwen2Family = {"qwen2", kQwen2Types, &LoadQwen2, &Forward};
constinit const Family kQwen3Family = {"qwen3", kQwen3Types, &LoadQwen3, &Forward};
constinit const Family kQwen3MoeFamily = {"qwen3_moe", kQwen3MoeTypes, &LoadQwen3Moe, &Forward};

}  // namespace cellm
