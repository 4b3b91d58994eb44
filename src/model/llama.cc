// Llama, and what differs from it by a key or two: TinyLlama, SmolLM, Llama 3.x, Mistral.
//
//   h = embed[token]
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n;  q, k = rope(q), rope(k)
//           h += Wo attend(q, k, v)                     causal, optionally in a sliding window
//           n = norm(h);  h += Wdown( silu(Wgate n) * (Wup n) )
//   logits = head(norm(h))
//
// Sources: Touvron et al. 2023 (LLaMA), Jiang et al. 2023 (Mistral), and the published
// configurations of these models.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "model/binder.h"
#include "model/config.h"
#include "model/families.h"
#include "model/rope_config.h"

namespace cellm {
namespace {

struct Layer {
  Vector attention_norm, mlp_norm;
  Weight q, k, v, o;
  Vector q_bias, k_bias, v_bias, o_bias;
  Weight gate, up, down;
  Vector gate_bias, up_bias, down_bias;
};

struct Llama {
  int32_t hidden = 0, inner = 0, vocab = 0;
  float eps = 0.0f;
  Activation activation = Activation::kSilu;
  AttendSpec attend;
  RopeSpec rope;
  bool attention_bias = false, mlp_bias = false, tied = false;

  Weight embedding, head;  // head absent: the embedding serves
  Vector norm;
  std::vector<Layer> layers;
};

// What the published classes assume when a key is absent.
struct Defaults {
  int32_t vocab, hidden, inner, layers, heads, kv_heads, max_context;
  int32_t window;  // of an absent "sliding_window"; 0: the key is not the family's
};
constexpr Defaults kLlamaDefaults = {32000, 4096, 11008, 32, 32, 0, 2048, 0};
constexpr Defaults kMistralDefaults = {32000, 4096, 14336, 32, 32, 8, 131072, 4096};

Status ReadConfig(json::Value object, const Defaults& defaults, Llama* m, ModelInfo* info) {
  Config config(object);
  m->vocab = config.Int("vocab_size", defaults.vocab);
  m->hidden = config.Int("hidden_size", defaults.hidden);
  m->inner = config.Int("intermediate_size", defaults.inner);
  info->layer_count = config.Int("num_hidden_layers", defaults.layers);
  info->max_context = config.Int("max_position_embeddings", defaults.max_context);
  m->attend.heads = config.Int("num_attention_heads", defaults.heads);
  m->attend.kv_heads = KvHeads(config, m->attend.heads, defaults.kv_heads);
  m->attend.head_dim = m->attend.head_dim_v = HeadDim(config, m->hidden, m->attend.heads);
  m->eps = static_cast<float>(config.Float("rms_norm_eps", 1e-6));
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->tied = config.Bool("tie_word_embeddings", false);
  if (defaults.window == 0) {
    m->attention_bias = config.Bool("attention_bias", false);
    m->mlp_bias = config.Bool("mlp_bias", false);
    config.RefuseTrue("layer_sharing", "each layer applied twice");
    config.RefuseIfPresent("sliding_window", "llama has no window");
  } else {
    m->attend.window =
        config.IsNull("sliding_window") ? 0 : config.Int("sliding_window", defaults.window);
    config.RefuseIfPresent("layer_types", "windows that differ by layer");
  }
  CheckQuantization(config);
  config.RefuseTrue("rope_interleaved", "neighbouring pairs");
  RopeDefaults rope;
  rope.head_dim = m->attend.head_dim;
  rope.max_position_embeddings = info->max_context;
  const Result<RopeSpec> spec = ReadRope(config, rope);
  if (spec.ok()) m->rope = *spec;
  info->bos_id = BosId(config);
  info->eos_ids = EosIds(config);
  CELLM_RETURN_IF_ERROR(config.Finish());
  if (info->layer_count > limits::kMaxLayers) {
    return Unsupported("config: \"num_hidden_layers\": %d is more than %d", info->layer_count,
                       limits::kMaxLayers);
  }
  m->attend.scale = 1.0f / std::sqrt(static_cast<float>(m->attend.head_dim));
  info->vocab_size = m->vocab;
  info->hidden_size = m->hidden;
  LayerStateSpec state;
  state.kv_heads = m->attend.kv_heads;
  state.head_dim = state.head_dim_v = m->attend.head_dim;
  state.window = m->attend.window;
  info->layers.assign(static_cast<size_t>(info->layer_count), state);
  return OkStatus();
}

Status BindWeights(const LoadContext& context, Llama* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  m->rope.interleaved = context.file.rope_interleaved;
  const int32_t q_width = m->attend.heads * m->attend.head_dim;
  const int32_t kv_width = m->attend.kv_heads * m->attend.head_dim;
  m->head = bind.Head(m->tied, m->vocab, m->hidden);
  m->embedding = m->head.exists() ? bind.Lookup("embed_tokens", m->vocab, m->hidden)
                                  : bind.Linear("embed_tokens", m->vocab, m->hidden);
  for (int32_t l = 0; l < model->info.layer_count && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    const std::string attn = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", m->hidden);
    layer.q = bind.Linear(attn + "q_proj", q_width, m->hidden);
    layer.k = bind.Linear(attn + "k_proj", kv_width, m->hidden);
    layer.v = bind.Linear(attn + "v_proj", kv_width, m->hidden);
    layer.o = bind.Linear(attn + "o_proj", m->hidden, q_width);
    layer.q_bias = bind.Bias(attn + "q_proj", q_width, m->attention_bias);
    layer.k_bias = bind.Bias(attn + "k_proj", kv_width, m->attention_bias);
    layer.v_bias = bind.Bias(attn + "v_proj", kv_width, m->attention_bias);
    layer.o_bias = bind.Bias(attn + "o_proj", m->hidden, m->attention_bias);
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", m->hidden);
    layer.gate = bind.Linear(mlp + "gate_proj", m->inner, m->hidden);
    layer.up = bind.Linear(mlp + "up_proj", m->inner, m->hidden);
    layer.down = bind.Linear(mlp + "down_proj", m->hidden, m->inner);
    layer.gate_bias = bind.Bias(mlp + "gate_proj", m->inner, m->mlp_bias);
    layer.up_bias = bind.Bias(mlp + "up_proj", m->inner, m->mlp_bias);
    layer.down_bias = bind.Bias(mlp + "down_proj", m->hidden, m->mlp_bias);
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", m->hidden);
  bind.Finish(model);
  return bind.status();
}

Status Load(const LoadContext& context, const Defaults& defaults, Model* model) {
  auto m = std::make_unique<Llama>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, defaults, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadLlama(const LoadContext& context, Model* model) {
  return Load(context, kLlamaDefaults, model);
}
Status LoadMistral(const LoadContext& context, Model* model) {
  return Load(context, kMistralDefaults, model);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const Llama& m = *static_cast<const Llama*>(weights);
  const AttendSpec& spec = m.attend;
  Arena& arena = *step.arena;
  const Rows h = arena.TakeRows(step.rows, m.hidden);
  const Rows normed = arena.TakeRows(step.rows, m.hidden);
  const Rows out = arena.TakeRows(step.rows, m.hidden);
  const Rows q = arena.TakeRows(step.rows, spec.heads * spec.head_dim);
  const Rows k = arena.TakeRows(step.rows, spec.kv_heads * spec.head_dim);
  const Rows v = arena.TakeRows(step.rows, spec.kv_heads * spec.head_dim);
  const Rows attended = arena.TakeRows(step.rows, spec.heads * spec.head_dim);
  const Rows inner = arena.TakeRows(step.rows, m.inner);
  const Rows cos_sin = arena.TakeRows(step.rows, m.rope.rotary_dim);

  backend.Embed(m.embedding, step.token_ids(), 1.0f, h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(h, layer.attention_norm.data(), 0.0f, m.eps, normed);
    const LinearPart qkv[] = {{&layer.q, layer.q_bias.data(), q},
                              {&layer.k, layer.k_bias.data(), k},
                              {&layer.v, layer.v_bias.data(), v}};
    backend.Linear(normed, qkv);
    backend.Rope(m.rope, cos_sin, spec.heads, q);
    backend.Rope(m.rope, cos_sin, spec.kv_heads, k);
    backend.StoreKv(step, index, spec, k, v);
    backend.AttendPages(step, index, spec, q, attended);
    backend.Linear(attended, layer.o, layer.o_bias.data(), out);
    backend.Add(h, out, 1.0f);

    backend.RmsNorm(h, layer.mlp_norm.data(), 0.0f, m.eps, normed);
    backend.GatedLinear(normed, {&layer.gate, layer.gate_bias.data(), {}},
                        {&layer.up, layer.up_bias.data(), {}}, m.activation, inner);
    backend.Linear(inner, layer.down, layer.down_bias.data(), out);
    backend.Add(h, out, 1.0f);
  }
  if (step.logit_rows.empty()) return;
  const Rows last = arena.TakeRows(static_cast<int32_t>(step.logit_rows.size()), m.hidden);
  backend.GatherRows(h, step.logit_rows, last);
  backend.RmsNorm(last, m.norm.data(), 0.0f, m.eps, last);
  backend.Linear(last, m.head.exists() ? m.head : m.embedding, nullptr, step.logits);
}

constexpr std::string_view kLlamaTypes[] = {"llama"};
constexpr std::string_view kMistralTypes[] = {"mistral"};

}  // namespace

constinit const Family kLlamaFamily = {"llama", kLlamaTypes, &LoadLlama, &Forward};
constinit const Family kMistralFamily = {"mistral", kMistralTypes, &LoadMistral, &Forward};

}  // namespace cellm
