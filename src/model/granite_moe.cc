// Granite with experts, and Granite 4: attention or Mamba2 layers, experts beside a shared MLP.
//
//   h = embed[token] * embedding_multiplier
//   layer:  n = norm(h)
//           attention: h += residual * Wo attend(q, k, v)         with rotary, or without any
//           mamba:     [z | x B C | dt] = Win n;  u = silu(conv(x B C))
//                      h += residual * Wout( norm(state(u, dt) * silu(z)) )
//           n = norm(h);  h += residual * ( experts(n) + shared(n) )       either may be absent
//   logits = head(norm(h)) / logits_scaling
// Scores are scaled by attention_multiplier. Experts: softmax over the top_k logits.
//
// Sources: the published configurations and model definitions of granitemoe, granitemoeshared and
// granitemoehybrid; Dao and Gu 2024 (Mamba2) for the state update.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "model/families.h"
#include "model/parts.h"

namespace cellm {
namespace {

enum class Kind { kMoe, kShared, kHybrid };

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
  // Mamba layers.
  Weight mamba_in, mamba_out;
  Vector conv, conv_bias, a_log, dt_bias, d, mamba_norm;
  Experts experts;
  // The shared MLP: shared_in's rows are gate, then up; GGUF files keep the two apart.
  Weight shared_in, shared_gate, shared_up, shared_out;

  bool mamba() const { return mamba_in.exists(); }
};

struct GraniteMoe {
  Kind kind = Kind::kMoe;
  Sizes sizes;
  Activation activation = Activation::kSilu;
  AttendSpec attend;
  RopeSpec rope;
  bool rotary = true, attention_bias = false, conv_bias = true;
  float embedding_multiplier = 1.0f, residual_multiplier = 1.0f, logits_scaling = 1.0f;
  RouterSpec router;
  int32_t shared_inner = 0;
  SelectiveStateSpec state;
  int32_t taps = 4;
  std::vector<bool> is_mamba;  // [layers]

  Vocabulary vocabulary;
  Vector norm;
  std::vector<Layer> layers;

  int32_t mamba_width() const { return state.heads * state.head_dim; }
  int32_t xbc_width() const { return mamba_width() + 2 * state.groups * state.state_size; }
};

void ReadMamba(Config& config, GraniteMoe* m) {
  const size_t layers = static_cast<size_t>(m->sizes.layers);
  std::vector<std::string> types = config.StringList("layer_types");
  if (types.empty()) types = config.StringList("layers_block_type");
  config.Ignore({"layers_block_type", "mamba_chunk_size", "mamba_expand"});
  if (types.empty()) types.assign(layers, "linear_attention");
  if (types.size() != layers) {
    config.Fail(
        Corrupt("config: \"layer_types\" has %zu entries for %zu layers", types.size(), layers));
    return;
  }
  bool any = false;
  for (const std::string& type : types) {
    const bool mamba = type == "mamba" || type == "linear_attention";
    if (!mamba && type != "attention" && type != "full_attention") {
      config.Fail(Unsupported("config: \"layer_types\": \"%s\" is not supported", type.c_str()));
    }
    m->is_mamba.push_back(mamba);
    any = any || mamba;
  }
  m->rotary = config.String("position_embedding_type", "") == "rope";
  m->state.heads = config.Int("mamba_n_heads", 128);
  m->state.groups = config.Int("mamba_n_groups", 1);
  m->state.state_size = config.Int("mamba_d_state", 256);
  const int32_t expand = config.Int("mamba_expand", 2);
  const int64_t width = int64_t{expand} * m->sizes.hidden;
  const bool automatic = !config.Has("mamba_d_head") || config.Raw("mamba_d_head").is_string();
  m->state.head_dim =
      automatic ? static_cast<int32_t>(width / m->state.heads) : config.Int("mamba_d_head", 1);
  m->taps = config.Int("mamba_d_conv", 4);
  m->conv_bias = config.Bool("mamba_conv_bias", true);
  config.RefuseTrue("mamba_proj_bias", "biases of mamba projections");
  if (!any || !config.ok()) return;
  if (m->state.head_dim < 1 || int64_t{m->state.heads} * m->state.head_dim != width ||
      m->state.heads % m->state.groups != 0 || m->taps > 64) {
    config.Fail(Unsupported("config: mamba sizes: %d heads of %d, %d groups, %d taps, width %lld",
                            m->state.heads, m->state.head_dim, m->state.groups, m->taps,
                            static_cast<long long>(width)));
  }
  const json::Value limit = config.Raw("time_step_limit");
  double low = 0.0;
  double high = 0.0;
  // Only (0, infinity): a finite limit clamps the time step, which prefill and decode do
  // differently in the reference.
  if (limit.has_value() && limit.is_array()) {
    const bool open =
        limit.At(0).GetDouble(&low) && low <= 0.0 && (!limit.At(1).GetDouble(&high) || high > 1e30);
    if (!open) config.Fail(Unsupported("config: \"time_step_limit\" other than (0, inf)"));
  }
}

Status ReadConfig(json::Value object, GraniteMoe* m, ModelInfo* info) {
  Config config(object);
  m->sizes = ReadSizes(config, kDefaults);
  m->activation = config.ActivationOf("hidden_act", "silu");
  m->attention_bias = config.Bool("attention_bias", false);
  m->attend = m->sizes.Attend();
  m->attend.scale = static_cast<float>(config.Float("attention_multiplier", 1.0));
  m->embedding_multiplier = static_cast<float>(config.Float("embedding_multiplier", 1.0));
  m->residual_multiplier = static_cast<float>(config.Float("residual_multiplier", 1.0));
  m->logits_scaling = static_cast<float>(config.Float("logits_scaling", 1.0));
  if (!(m->logits_scaling > 0.0f)) {
    config.Fail(Unsupported("config: \"logits_scaling\": %g is not positive",
                            static_cast<double>(m->logits_scaling)));
  }
  m->router.kind = RouterKind::kSoftmaxTopK;
  m->router.experts = config.Int("num_local_experts", 8, 0);
  m->router.top_k = config.Int("num_experts_per_tok", 2, 0);
  if (m->router.experts > limits::kMaxExperts ||
      (m->router.experts > 0 && (m->router.top_k < 1 || m->router.top_k > m->router.experts))) {
    config.Fail(Unsupported("config: \"num_local_experts\" %d with \"num_experts_per_tok\" %d",
                            m->router.experts, m->router.top_k));
  }
  if (m->router.experts == 0) m->router.top_k = 0;
  if (m->kind != Kind::kMoe) {
    m->shared_inner =
        config.Int("shared_intermediate_size", m->kind == Kind::kHybrid ? 1024 : 0, 0);
  }
  m->is_mamba.clear();
  if (m->kind == Kind::kHybrid) {
    if (config.ok()) ReadMamba(config, m);
  } else {
    m->is_mamba.assign(static_cast<size_t>(m->sizes.layers), false);
  }
  m->rope = ReadOneRope(config, m->sizes);
  CELLM_RETURN_IF_ERROR(FinishConfig(config, m->sizes, {}, info));
  for (size_t l = 0; l < m->is_mamba.size(); ++l) {
    if (!m->is_mamba[l]) continue;
    info->layers[l] = LayerStateSpec();
    info->layers[l].conv_channels = m->xbc_width();
    info->layers[l].conv_taps = m->taps;
    info->layers[l].recurrent_floats = int64_t{m->mamba_width()} * m->state.state_size;
  }
  return OkStatus();
}

void BindMamba(Binder& bind, const std::string& at, const GraniteMoe& m, Layer* layer) {
  const int32_t hidden = m.sizes.hidden;
  const int32_t heads = m.state.heads;
  layer->mamba_in = bind.Linear(at + "in_proj", m.mamba_width() + m.xbc_width() + heads, hidden);
  layer->mamba_out = bind.Linear(at + "out_proj", hidden, m.mamba_width());
  layer->conv = bind.Floats(at + "conv1d.weight", int64_t{m.xbc_width()} * m.taps);
  layer->conv_bias = bind.Bias(at + "conv1d", m.xbc_width(), m.conv_bias);
  layer->a_log = bind.Floats(at + "A_log", heads);
  layer->dt_bias = bind.Floats(at + "dt_bias", heads);
  layer->d = bind.Floats(at + "D", heads);
  layer->mamba_norm = bind.Floats(at + "norm.weight", m.mamba_width());
}

Status BindWeights(const LoadContext& context, GraniteMoe* m, Model* model) {
  Binder bind(context);
  bind.FindPrefix("embed_tokens");
  const Sizes& s = m->sizes;
  m->rope.interleaved = context.file.rope_interleaved;
  m->vocabulary = BindVocabulary(bind, s);
  for (size_t l = 0; l < m->is_mamba.size() && bind.status().ok(); ++l) {
    const std::string at = "layers." + std::to_string(l) + ".";
    const std::string moe = at + "block_sparse_moe.";
    Layer layer;
    layer.attention_norm = bind.Floats(at + "input_layernorm.weight", s.hidden);
    layer.mlp_norm = bind.Floats(at + "post_attention_layernorm.weight", s.hidden);
    if (m->is_mamba[l]) {
      BindMamba(bind, at + "mamba.", *m, &layer);
    } else {
      layer.attention =
          BindAttention(bind, at + "self_attn.", s, m->attention_bias, m->attention_bias);
    }
    if (m->router.experts > 0) {
      const bool published = bind.Has(moe + "input_linear");
      const ExpertNames names = {bind.Has(moe + "router.layer") ? "router.layer" : "router",
                                 "gate_proj",
                                 "up_proj",
                                 "down_proj",
                                 published ? "input_linear" : "experts.gate_up_proj",
                                 published ? "output_linear" : "experts.down_proj"};
      layer.experts = BindExperts(bind, moe, names, m->router.experts, s.hidden, s.inner);
    }
    if (m->shared_inner > 0) {
      const std::string shared = at + "shared_mlp.";
      if (bind.Has(shared + "gate_proj")) {
        layer.shared_gate = bind.Linear(shared + "gate_proj", m->shared_inner, s.hidden);
        layer.shared_up = bind.Linear(shared + "up_proj", m->shared_inner, s.hidden);
      } else {
        layer.shared_in = bind.Linear(shared + "input_linear", 2 * m->shared_inner, s.hidden);
      }
      layer.shared_out = bind.Linear(shared + "output_linear", s.hidden, m->shared_inner);
    }
    m->layers.push_back(std::move(layer));
  }
  m->norm = bind.Floats("norm.weight", s.hidden);
  bind.Finish(model);
  return bind.status();
}

Status LoadKind(const LoadContext& context, Kind kind, Model* model) {
  auto m = std::make_unique<GraniteMoe>();
  m->kind = kind;
  CELLM_RETURN_IF_ERROR(ReadConfig(context.config, m.get(), &model->info));
  CELLM_RETURN_IF_ERROR(BindWeights(context, m.get(), model));
  model->weights = FamilyWeights(std::move(m));
  return OkStatus();
}
Status LoadMoe(const LoadContext& context, Model* model) {
  return LoadKind(context, Kind::kMoe, model);
}
Status LoadShared(const LoadContext& context, Model* model) {
  return LoadKind(context, Kind::kShared, model);
}
Status LoadHybrid(const LoadContext& context, Model* model) {
  return LoadKind(context, Kind::kHybrid, model);
}

// z, u = xBC and dt are columns of one projection.
void RunMamba(const GraniteMoe& m, const Layer& layer, int32_t index, Backend& backend,
              const StepContext& step, Rows normed, Rows projected, Rows mixed, Rows out) {
  const Rows z = projected.Cols(0, m.mamba_width());
  const Rows xbc = projected.Cols(m.mamba_width(), m.xbc_width());
  const Rows dt = projected.Cols(m.mamba_width() + m.xbc_width(), m.state.heads);
  backend.Linear(normed, layer.mamba_in, nullptr, projected);
  const ShortConvSpec conv{m.xbc_width(), m.taps, layer.conv.data(), layer.conv_bias.data(),
                           Activation::kSilu};
  backend.ShortConv(step, index, conv, xbc, xbc);
  SelectiveStateSpec state = m.state;
  state.a_log = layer.a_log.data();
  state.dt_bias = layer.dt_bias.data();
  state.d = layer.d.data();
  backend.SelectiveState(step, index, state, xbc, dt, mixed);
  backend.GatedRmsNorm(mixed, z, layer.mamba_norm.data(), /*weight_per_group=*/false,
                       m.mamba_width(), m.sizes.eps, /*gate_first=*/true, mixed);
  backend.Linear(mixed, layer.mamba_out, nullptr, out);
}

void Forward(const void* weights, Backend& backend, const StepContext& step) {
  const GraniteMoe& m = *static_cast<const GraniteMoe*>(weights);
  const Sizes& s = m.sizes;
  Arena& arena = *step.arena;
  const DecoderRows d = TakeDecoderRows(arena, step.rows, s);
  const Rows cos_sin = arena.TakeRows(step.rows, m.rope.rotary_dim);
  const RouterRows router = TakeRouterRows(arena, step.rows, m.router);
  const Rows shared = arena.TakeRows(step.rows, 2 * m.shared_inner);
  const Rows shared_inner = arena.TakeRows(step.rows, m.shared_inner);
  const Rows mlp_out = arena.TakeRows(step.rows, s.hidden);
  bool any_mamba = false;
  for (const Layer& layer : m.layers) any_mamba = any_mamba || layer.mamba();
  const Rows projected =
      arena.TakeRows(step.rows, any_mamba ? m.mamba_width() + m.xbc_width() + m.state.heads : 0);
  const Rows mixed = arena.TakeRows(step.rows, any_mamba ? m.mamba_width() : 0);

  backend.Embed(m.vocabulary.embedding, step.token_ids(), m.embedding_multiplier, d.h);
  backend.RopeTable(step, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    const Layer& layer = m.layers[l];
    const int32_t index = static_cast<int32_t>(l);
    backend.RmsNorm(d.h, layer.attention_norm.data(), 0.0f, s.eps, d.normed);
    if (layer.mamba()) {
      RunMamba(m, layer, index, backend, step, d.normed, projected, mixed, d.out);
    } else {
      ProjectQkv(backend, layer.attention, d.normed, d.q, d.k, d.v);
      if (m.rotary) {
        backend.Rope(m.rope, cos_sin, s.heads, d.q);
        backend.Rope(m.rope, cos_sin, s.kv_heads, d.k);
      }
      backend.StoreKv(step, index, m.attend, d.k, d.v);
      backend.AttendPages(step, index, m.attend, d.q, d.attended);
      backend.Linear(d.attended, layer.attention.o, layer.attention.o_bias.data(), d.out);
    }
    backend.Add(d.h, d.out, m.residual_multiplier);

    backend.RmsNorm(d.h, layer.mlp_norm.data(), 0.0f, s.eps, d.normed);
    const bool sparse = layer.experts.exists();
    if (sparse) {
      RunExperts(backend, layer.experts, m.router, m.activation, s.inner, d.normed, router, d.out);
    }
    if (layer.shared_out.exists()) {
      const Rows out = sparse ? mlp_out : d.out;
      const Rows gate = shared.Cols(0, m.shared_inner);
      const Rows up = shared.Cols(m.shared_inner, m.shared_inner);
      if (layer.shared_in.exists()) {
        backend.Linear(d.normed, layer.shared_in, nullptr, shared);
      } else {
        backend.Linear(d.normed, layer.shared_gate, nullptr, gate);
        backend.Linear(d.normed, layer.shared_up, nullptr, up);
      }
      backend.GatedAct(m.activation, gate, up, shared_inner);
      backend.Linear(shared_inner, layer.shared_out, nullptr, out);
      if (sparse) backend.Add(d.out, mlp_out, 1.0f);
    }
    backend.Add(d.h, d.out, m.residual_multiplier);
  }
  RunHead(backend, step, d.h, m.norm, 0.0f, s.eps, m.vocabulary);
  if (!step.logit_rows.empty()) backend.Scale(step.logits, 1.0f / m.logits_scaling);
}

constexpr std::string_view kMoeTypes[] = {"granitemoe"};
constexpr std::string_view kSharedTypes[] = {"granitemoeshared"};
constexpr std::string_view kHybridTypes[] = {"granitemoehybrid"};

}  // namespace

constinit const Family kGraniteMoeFamily = {"granitemoe", kMoeTypes, &LoadMoe, &Forward};
constinit const Family kGraniteSharedFamily = {"granitemoeshared", kSharedTypes, &LoadShared,
                                               &Forward};
constinit const Family kGraniteHybridFamily = {"granitemoehybrid", kHybridTypes, &LoadHybrid,
                                               &Forward};

}  // namespace cellm
