#include "model/parts.h"

#include <cmath>
#include <utility>

#include "base/limits.h"

namespace cellm {

AttendSpec Sizes::Attend() const {
  AttendSpec spec;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = spec.head_dim_v = head_dim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  return spec;
}

Sizes ReadSizesOf(Config& config, const SizeDefaults& defaults) {
  Sizes s;
  s.vocab = config.Int("vocab_size", defaults.vocab);
  s.hidden = config.Int("hidden_size", defaults.hidden);
  s.inner = config.Int("intermediate_size", defaults.inner);
  s.layers = config.Int("num_hidden_layers", defaults.layers);
  s.heads = config.Int("num_attention_heads", defaults.heads);
  s.kv_heads = KvHeads(config, s.heads, defaults.kv_heads);
  s.head_dim = HeadDim(config, s.hidden, s.heads);
  s.max_context = config.Int("max_position_embeddings", defaults.max_context);
  s.eps = static_cast<float>(config.Float("rms_norm_eps", defaults.eps));
  s.tied = config.Bool("tie_word_embeddings", defaults.tied);
  if (config.ok() && s.layers > limits::kMaxLayers) {
    config.Fail(Unsupported("config: \"num_hidden_layers\": %d is more than %d", s.layers,
                            limits::kMaxLayers));
  }
  return s;
}

Sizes ReadSizes(Config& config, const SizeDefaults& defaults) {
  CheckQuantization(config);
  return ReadSizesOf(config, defaults);
}

std::vector<int32_t> WindowsOfLayerTypes(Config& config, int32_t layers, int32_t width) {
  const std::vector<std::string> types = config.StringList("layer_types");
  std::vector<int32_t> windows;
  if (types.empty()) return windows;
  if (static_cast<int32_t>(types.size()) != layers) {
    config.Fail(
        Corrupt("config: \"layer_types\" has %zu entries for %d layers", types.size(), layers));
    return windows;
  }
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      config.Fail(Unsupported("config: \"layer_types\": \"%s\" is not supported", type.c_str()));
    }
    windows.push_back(type == "sliding_attention" ? width : 0);
  }
  return windows;
}

RopeSpec ReadOneRope(Config& config, const Sizes& sizes, double theta) {
  RopeDefaults defaults;
  defaults.head_dim = sizes.head_dim;
  defaults.max_position_embeddings = sizes.max_context;
  defaults.theta = theta;
  Result<RopeSpec> spec = ReadRope(config, defaults);
  return spec.ok() ? std::move(spec).value() : RopeSpec();
}

Status FinishConfig(Config& config, const Sizes& sizes, const std::vector<int32_t>& windows,
                    ModelInfo* info) {
  info->bos_id = BosId(config);
  info->eos_ids = EosIds(config);
  CELLM_RETURN_IF_ERROR(config.Finish());
  info->vocab_size = sizes.vocab;
  info->hidden_size = sizes.hidden;
  info->layer_count = sizes.layers;
  info->max_context = sizes.max_context;
  for (size_t l = 0; l < static_cast<size_t>(sizes.layers); ++l) {
    LayerStateSpec state;
    state.kv_heads = sizes.kv_heads;
    state.head_dim = state.head_dim_v = sizes.head_dim;
    state.window = windows.empty() ? 0 : windows[l];
    info->layers.push_back(state);
  }
  return OkStatus();
}

Attention BindAttention(Binder& bind, const std::string& at, const Sizes& sizes, bool qkv_bias,
                        bool o_bias) {
  Attention a;
  a.q = bind.Linear(at + "q_proj", sizes.q_width(), sizes.hidden);
  a.k = bind.Linear(at + "k_proj", sizes.kv_width(), sizes.hidden);
  a.v = bind.Linear(at + "v_proj", sizes.kv_width(), sizes.hidden);
  a.o = bind.Linear(at + "o_proj", sizes.hidden, sizes.q_width());
  a.q_bias = bind.Bias(at + "q_proj", sizes.q_width(), qkv_bias);
  a.k_bias = bind.Bias(at + "k_proj", sizes.kv_width(), qkv_bias);
  a.v_bias = bind.Bias(at + "v_proj", sizes.kv_width(), qkv_bias);
  a.o_bias = bind.Bias(at + "o_proj", sizes.hidden, o_bias);
  return a;
}

GatedMlp BindGatedMlp(Binder& bind, const std::string& at, int32_t hidden, int32_t inner,
                      bool bias) {
  GatedMlp mlp;
  mlp.gate = bind.Linear(at + "gate_proj", inner, hidden);
  mlp.up = bind.Linear(at + "up_proj", inner, hidden);
  mlp.down = bind.Linear(at + "down_proj", hidden, inner);
  mlp.gate_bias = bind.Bias(at + "gate_proj", inner, bias);
  mlp.up_bias = bind.Bias(at + "up_proj", inner, bias);
  mlp.down_bias = bind.Bias(at + "down_proj", hidden, bias);
  return mlp;
}

Vocabulary BindVocabulary(Binder& bind, const Sizes& sizes) {
  Vocabulary v;
  v.head = bind.Head(sizes.tied, sizes.vocab, sizes.hidden);
  v.embedding = v.head.exists() ? bind.Lookup("embed_tokens", sizes.vocab, sizes.hidden)
                                : bind.Linear("embed_tokens", sizes.vocab, sizes.hidden);
  return v;
}

Experts BindExperts(Binder& bind, const std::string& at, const ExpertNames& names, int32_t count,
                    int32_t hidden, int32_t inner) {
  Experts e;
  e.router = bind.Linear(at + names.router, count, hidden);
  const bool fused = bind.Has(at + names.fused_up);
  for (int32_t i = 0; i < count && bind.status().ok(); ++i) {
    if (!fused) {
      const std::string expert = at + "experts." + std::to_string(i) + ".";
      e.gate.push_back(bind.Linear(expert + names.gate, inner, hidden));
      e.up.push_back(bind.Linear(expert + names.up, inner, hidden));
      e.down.push_back(bind.Linear(expert + names.down, hidden, inner));
      continue;
    }
    e.fused.push_back(bind.Expert(at + names.fused_up, i, 2 * inner, hidden));
    e.down.push_back(bind.Expert(at + names.fused_down, i, hidden, inner));
    if (!bind.status().ok()) break;
    Result<Weight> gate = RowsOf(e.fused.back(), 0, inner);
    Result<Weight> up = RowsOf(e.fused.back(), inner, inner);
    if (!gate.ok() || !up.ok()) {
      bind.Fail(Status(gate.ok() ? up.status() : gate.status()).WithContext(at + names.fused_up));
      break;
    }
    e.gate.push_back(std::move(gate).value());
    e.up.push_back(std::move(up).value());
  }
  return e;
}

RouterRows TakeRouterRows(Arena& arena, int32_t rows, const RouterSpec& router) {
  RouterRows r;
  r.logits = arena.TakeRows(rows, router.experts);
  r.routing = {arena.TakeInts(rows * router.top_k), arena.TakeRows(rows, router.top_k).data, rows,
               router.top_k};
  return r;
}

void RunExperts(Backend& backend, const Experts& experts, const RouterSpec& router,
                Activation activation, int32_t inner, Rows x, const RouterRows& r, Rows out) {
  backend.Linear(x, experts.router, nullptr, r.logits);
  backend.RouteExperts(router, r.logits, r.routing);
  backend.ExpertMlp(x, experts.Spec(activation, inner), r.routing, out);
}

DecoderRows TakeDecoderRows(Arena& arena, int32_t rows, const Sizes& sizes) {
  DecoderRows d;
  d.h = arena.TakeRows(rows, sizes.hidden);
  d.normed = arena.TakeRows(rows, sizes.hidden);
  d.out = arena.TakeRows(rows, sizes.hidden);
  d.q = arena.TakeRows(rows, sizes.q_width());
  d.k = arena.TakeRows(rows, sizes.kv_width());
  d.v = arena.TakeRows(rows, sizes.kv_width());
  d.attended = arena.TakeRows(rows, sizes.q_width());
  d.inner = arena.TakeRows(rows, sizes.inner);
  return d;
}

void EmbedStep(Backend& backend, const StepContext& step, const Weight& table, float scale,
               Rows h) {
  backend.Embed(table, step.token_ids(), scale, h);
  if (step.given == nullptr) return;
  backend.ScatterRows(step.given->embeddings, step.given->rows, /*add=*/false, h);
}

void AddDeep(Backend& backend, const StepContext& step, int32_t layer, Rows h) {
  if (step.given == nullptr || layer >= step.given->deep_count) return;
  backend.ScatterRows(step.given->deep[layer], step.given->rows, /*add=*/true, h);
}

void ProjectQkv(Backend& backend, const Attention& a, Rows x, Rows q, Rows k, Rows v) {
  const LinearPart parts[] = {
      {&a.q, a.q_bias.data(), q}, {&a.k, a.k_bias.data(), k}, {&a.v, a.v_bias.data(), v}};
  backend.Linear(x, parts);
}

void RunGatedMlp(Backend& backend, const GatedMlp& mlp, Activation activation, Rows x, Rows inner,
                 Rows out) {
  backend.GatedLinear(x, {&mlp.gate, mlp.gate_bias.data(), {}}, {&mlp.up, mlp.up_bias.data(), {}},
                      activation, inner);
  backend.Linear(inner, mlp.down, mlp.down_bias.data(), out);
}

void RunHead(Backend& backend, const StepContext& step, Rows h, const Vector& norm, float offset,
             float eps, const Weight& head) {
  if (!step.logit_rows.empty()) {
    const Rows last = step.arena->TakeRows(static_cast<int32_t>(step.logit_rows.size()), h.cols);
    backend.GatherRows(h, step.logit_rows, last);
    backend.RmsNorm(last, norm.data(), offset, eps, last);
    backend.Linear(last, head, nullptr, step.logits);
  }
  if (step.states != nullptr) {
    // Nobody reads h any more, so its place serves.
    backend.RmsNorm(h, norm.data(), offset, eps, h);
    *step.states = h;
  }
}

}  // namespace cellm
