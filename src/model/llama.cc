// Llama, and what differs from it by a key or two: TinyLlama, SmolLM, Llama 3.x, Mistral,
// Ministral 3, MobileLLM.
//
//   h = embed[token]
//   layer:  n = norm(h);  q, k, v = Wq n, Wk n, Wv n;  q, k = rope(q), rope(k)
//           ministral3: q *= 1 + beta ln(1 + floor(position / original))
//           h += Wo attend(q, k, v)                     causal, optionally in a sliding window
//           n = norm(h);  h += Wdown( silu(Wgate n) * (Wup n) )
//   logits = head(norm(h))
// mobilellm with layer_sharing applies each stored layer twice in a row, each time with keys and
// values of its own.
//
// Sources: Touvron et al. 2023 (LLaMA), Jiang et al. 2023 (Mistral), Liu et al. 2024 (MobileLLM),
// and the published configurations of these models.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/limits.h"
#include "json/json.h"
#include "model/binder.h"
#include "model/config.h"
#include "model/families.h"
#include "model/parts.h"
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
  int32_t repeats = 1;            // applications of each stored layer, in a row
  float position_beta = 0.0f;     // ministral3: the query's growth; 0: none
  int32_t position_original = 1;  // ministral3: positions that it leaves alone

  Weight embedding, head;  // head absent: the embedding serves
  Vector norm;
  std::vector<Layer> layers;
};

enum class Kind { kLlama, kMistral, kMinistral3, kMobileLlm };

// What the published classes assume when a key is absent.
struct Defaults {
  int32_t vocab, hidden, inner, layers, heads, kv_heads, head_dim, max_context;  // 0: as usual
  double eps;
};
Defaults DefaultsOf(Kind kind) {
  if (kind == Kind::kMistral) return {32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-6};
  if (kind == Kind::kMinistral3) return {131072, 4096, 14336, 34, 32, 8, 128, 262144, 1e-5};
  return {32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6};
}

// The rotary scaling of ministral3 where the configuration has none.
constexpr std::string_view kMinistralRope =
    R"({"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
        "original_max_position_embeddings": 16384, "beta_fast": 32.0, "beta_slow": 1.0,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})";

void ReadRotary(Config& config, Kind kind, Llama* m, ModelInfo* info) {
  RopeDefaults rope;
  rope.head_dim = m->attend.head_dim;
  rope.max_position_embeddings = info->max_context;
  if (kind != Kind::kMinistral3) {
    const Result<RopeSpec> spec = ReadRope(config, rope);
    if (!spec.ok()) return;
    m->rope = *spec;
    // Dynamic scaling exists for texts beyond max_position_embeddings, up to its factor.
    if (m->rope.dynamic_from > 0 && m->rope.dynamic_factor > 1.0) {
      info->max_context = static_cast<int32_t>(
          std::min<double>(limits::kMaxContext, info->max_context * m->rope.dynamic_factor));
    }
    return;
  }
  rope.theta = 1e6;
  rope.query_growth_allowed = true;
  json::Value dictionary = config.Raw("rope_scaling");
  if (!dictionary.has_value() || dictionary.size() == 0) dictionary = config.Raw("rope_parameters");
  const auto absent = json::Document::Parse(kMinistralRope, "the default of ministral3");
  CELLM_CHECK(absent.ok(), "a constant that does not parse");
  const bool has_own = dictionary.has_value() && dictionary.size() > 0;
  Result<RopeSpec> spec =
      has_own ? ReadRope(config, rope) : RopeFromDictionary((*absent)->root(), config, rope);
  if (spec.ok()) m->rope = std::move(spec).value();
  const json::Value chosen = has_own ? dictionary : (*absent)->root();
  double beta = 0.0;
  int64_t original = 0;
  if (!chosen.Find("llama_4_scaling_beta").GetDouble(&beta) || !std::isfinite(beta)) {
    config.Fail(Corrupt("config: rotary scaling: \"llama_4_scaling_beta\" is missing"));
  }
  if (!chosen.Find("original_max_position_embeddings").GetInt64(&original) || original < 1 ||
      original > limits::kMaxContext) {
    config.Fail(Corrupt("config: rotary scaling: \"original_max_position_embeddings\" is missing"));
    return;
  }
  m->position_beta = static_cast<float>(beta);
  m->position_original = static_cast<int32_t>(original);
}

void ReadWindow(Config& config, Kind kind, Llama* m) {
  if (kind == Kind::kLlama || kind == Kind::kMobileLlm) {
    config.RefuseIfPresent("sliding_window", "llama has no window");
    return;
  }
  config.RefuseIfPresent("layer_types", "windows that differ by layer");
  // Absent means 4096 in mistral, and none in ministral3.
  const bool none = config.IsNull("sliding_window") ||
                    (kind == Kind::kMinistral3 && !config.Has("sliding_window"));
  m->attend.window = none ? 0 : config.Int("sliding_window", 4096);
}

Status ReadConfig(json::Value object, Kind kind, Llama* m, ModelInfo* info) {
  const Defaults defaults = DefaultsOf(kind);
  Config config(object);
  m->vocab = config.Int("vocab_size", defaults.vocab);
  m->hidden = config.Int("hidden_size", defaults.hidden);
  m->inner = config.Int("intermediate_size", defaults.inner);
  info->layer_count = config.Int("num_hidden_layers", defaults.layers);
  info->max_context = config.Int("max_position_embeddings", defaults.max_context);
  m->attend.heads = config.Int("num_attention_heads", defaults.heads);
  m->attend.kv_heads = KvHeads(config, m->attend.heads, defaults.kv_heads);
  m->attend.head_dim = m->attend.head_dim_v = defaults.head_dim > 0
                                                  ? config.Int("head_dim", defaults.head_dim)
                                                  : HeadDim(config, m->hidden, m->attend.heads);
  m->eps = static_cast<float>(config.Float("rms_norm_eps", defaults.eps));
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->tied = config.Bool("tie_word_embeddings", false);
  if (kind == Kind::kLlama || kind == Kind::kMobileLlm) {
    m->attention_bias = config.Bool("attention_bias", false);
    m->mlp_bias = config.Bool("mlp_bias", false);
  }
  if (kind == Kind::kMobileLlm) {
    m->tied = config.Bool("share_embedding", m->tied);
    m->repeats = config.Bool("layer_sharing", false) ? 2 : 1;
  } else {
    config.RefuseTrue("layer_sharing", "only mobilellm applies a layer twice");
  }
  ReadWindow(config, kind, m);
  CheckQuantization(config);
  config.RefuseTrue("rope_interleaved", "neighbouring pairs");
  ReadRotary(config, kind, m, info);
  info->bos_id = BosId(config);
  info->eos_ids = EosIds(config);
  CELLM_RETURN_IF_ERROR(config.Finish());
  if (info->layer_count * m->repeats > limits::kMaxLayers) {
    return Unsupported("config: \"num_hidden_layers\": %d is more than %d", info->layer_count,
                       limits::kMaxLayers / m->repeats);
  }
  m->attend.scale = 1.0f / std::sqrt(static_cast<float>(m->attend.head_dim));
  info->vocab_size = m->vocab;
  info->hidden_size = m->hidden;
  LayerStateSpec state;
  state.kv_heads = m->attend.kv_heads;
  state.head_dim = state.head_dim_v = m->attend.head_dim;
  state.window = m->attend.window;
  info->layers.assign(static_cast<size_t>(info->layer_count * m->repeats), state);
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

Status Load(const LoadContext& context, Kind kind, Model* model) {
  auto m = std::make_unique<Llama>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, kind, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadLlama(const LoadContext& context, Model* model) {
  return Load(context, Kind::kLlama, model);
}
Status LoadMistral(const LoadContext& context, Model* model) {
  return Load(context, Kind::kMistral, model);
}
Status LoadMinistral3(const LoadContext& context, Model* model) {
  return Load(context, Kind::kMinistral3, model);
}
Status LoadMobileLlm(const LoadContext& context, Model* model) {
  return Load(context, Kind::kMobileLlm, model);
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

  EmbedStep(backend, step, m.embedding, 1.0f, h);
  backend.RopeTable(step, m.rope, cos_sin);
  const int32_t applications = static_cast<int32_t>(m.layers.size()) * m.repeats;
  for (int32_t index = 0; index < applications; ++index) {
    const Layer& layer = m.layers[static_cast<size_t>(index / m.repeats)];
    backend.RmsNorm(h, layer.attention_norm.data(), 0.0f, m.eps, normed);
    const LinearPart qkv[] = {{&layer.q, layer.q_bias.data(), q},
                              {&layer.k, layer.k_bias.data(), k},
                              {&layer.v, layer.v_bias.data(), v}};
    backend.Linear(normed, qkv);
    backend.Rope(m.rope, cos_sin, spec.heads, q);
    backend.Rope(m.rope, cos_sin, spec.kv_heads, k);
    if (m.position_beta != 0.0f) {
      backend.ScaleByPosition(step, m.position_beta, m.position_original, q);
    }
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
  RunHead(backend, step, h, m.norm, 0.0f, m.eps, m.head.exists() ? m.head : m.embedding);
}

constexpr std::string_view kLlamaTypes[] = {"llama"};
constexpr std::string_view kMistralTypes[] = {"mistral"};
constexpr std::string_view kMinistral3Types[] = {"ministral3"};
constexpr std::string_view kMobileLlmTypes[] = {"mobilellm"};

}  // namespace

constinit const Family kLlamaFamily = {"llama", kLlamaTypes, &LoadLlama, &Forward};
constinit const Family kMistralFamily = {"mistral", kMistralTypes, &LoadMistral, &Forward};
constinit const Family kMinistral3Family = {"ministral3", kMinistral3Types, &LoadMinistral3,
                                            &Forward};
constinit const Family kMobileLlmFamily = {"mobilellm", kMobileLlmTypes, &LoadMobileLlm, &Forward};

}  // namespace cellm
