// SigLIP2 in its flexible form (LFM2-VL): tiles of any grid, given as rows of patches.
//
//   x = Wpatch patch + b + position, the table of positions resized to the tile's grid
//   layers and norm as in siglip.cc; tiles do not see each other
//   f x f patches become one row;  out = W2 gelu( W1 norm(row) ), the norm only where it is said
//
// Source: the published configurations and model definitions of siglip2 and lfm2_vl.
#include <cmath>
#include <memory>
#include <utility>

#include "model/config.h"
#include "model/vit.h"

namespace cellm {
namespace {

constexpr float kProjectorEps = 1e-5f;

struct Siglip2 {
  VitSizes sizes;
  int32_t patch = 0;
  int32_t entries = 0;  // of a side of the table of positions
  int32_t factor = 0;
  int32_t projector_inner = 0;
  bool projector_norm = true, projector_bias = true;
  Activation projector_activation = Activation::kGelu;

  Weight embedding, positions;
  Vector embedding_bias, norm, norm_bias;
  std::vector<VitLayer> layers;
  Vector joined_norm, joined_norm_bias;
  Weight linear1, linear2;
  Vector linear1_bias, linear2_bias;

  int32_t patch_cols() const { return 3 * patch * patch; }
  int32_t joined_cols() const { return sizes.hidden * factor * factor; }
};

Status ReadConfig(const TowerContext& context, Siglip2* m) {
  Config config(context.load.config);
  VitSizes& s = m->sizes;
  s.hidden = config.Int("hidden_size", 768);
  s.inner = config.Int("intermediate_size", 3072);
  s.layers = config.Int("num_hidden_layers", 12);
  s.heads = config.Int("num_attention_heads", 12);
  s.eps = static_cast<float>(config.Float("layer_norm_eps", 1e-6));
  m->patch = config.Int("patch_size", 16);
  const int32_t table = config.Int("num_patches", 256);
  FinishVitSizes(config, &s);
  if (config.Int("num_channels", 3) != 3) {
    config.Fail(Unsupported("config: \"num_channels\" other than 3"));
  }
  config.Ignore({"vision_use_head"});
  CELLM_RETURN_IF_ERROR(config.Finish());
  m->entries = static_cast<int32_t>(std::lround(std::sqrt(table)));
  if (m->entries * m->entries != table || m->patch > 256) {
    return Unsupported("config: \"num_patches\" %d, \"patch_size\" %d", table, m->patch);
  }
  Config wrapper(context.wrapper);
  m->factor = wrapper.Int("downsample_factor", 2);
  m->projector_inner = wrapper.Int("projector_hidden_size", 2560);
  m->projector_norm = wrapper.Bool("projector_use_layernorm", true);
  m->projector_bias = wrapper.Bool("projector_bias", true);
  m->projector_activation = wrapper.ActivationOf("projector_hidden_act", "gelu");
  if (wrapper.Has("vision_feature_layer") && wrapper.Raw("vision_feature_layer").is_number()) {
    int64_t layer = 0;
    wrapper.Raw("vision_feature_layer").GetInt64(&layer);
    if (layer != -1) {
      wrapper.Fail(Unsupported("config: \"vision_feature_layer\": %lld is not supported",
                               static_cast<long long>(layer)));
    }
  }
  return Status(wrapper.status());
}

Status Load(const TowerContext& context, Tower* tower) {
  auto m = std::make_unique<Siglip2>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context, m.get()));
  const VitSizes& s = m->sizes;
  constexpr std::string_view kPrefixes[] = {"model.vision_tower.vision_model.",
                                            "model.vision_tower.", "vision_tower.vision_model.",
                                            "vision_tower."};
  constexpr std::string_view kProjectorPrefixes[] = {"model.multi_modal_projector.",
                                                     "multi_modal_projector."};
  Binder bind(context.load);
  bind.FindPrefix(kPrefixes, "post_layernorm.weight");
  m->embedding = bind.Linear("embeddings.patch_embedding", s.hidden, m->patch_cols());
  m->embedding_bias = bind.Floats("embeddings.patch_embedding.bias", s.hidden);
  m->positions = bind.Lookup("embeddings.position_embedding", m->entries * m->entries, s.hidden);
  for (int32_t l = 0; l < s.layers && bind.status().ok(); ++l) {
    m->layers.push_back(
        BindVitLayer(bind, "encoder.layers." + std::to_string(l) + ".", kSiglipNames, s));
  }
  m->norm = bind.Floats("post_layernorm.weight", s.hidden);
  m->norm_bias = bind.Floats("post_layernorm.bias", s.hidden);
  bind.FindPrefix(kProjectorPrefixes, "linear_1");
  if (m->projector_norm) {
    m->joined_norm = bind.Floats("layer_norm.weight", m->joined_cols());
    m->joined_norm_bias = bind.Floats("layer_norm.bias", m->joined_cols());
  }
  m->linear1 = bind.Linear("linear_1", m->projector_inner, m->joined_cols());
  m->linear1_bias = bind.Bias("linear_1", m->projector_inner, m->projector_bias);
  m->linear2 = bind.Linear("linear_2", context.text_hidden, m->projector_inner);
  m->linear2_bias = bind.Bias("linear_2", context.text_hidden, m->projector_bias);
  CELLM_RETURN_IF_ERROR(Status(bind.status()));
  tower->info.parameter_count = bind.parameter_count();
  tower->info.weight_bytes = bind.weight_bytes();
  tower->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status FindTiles(const void* weights, const media::TowerInput& input,
                 std::vector<TowerTile>* tiles) {
  const Siglip2& m = *static_cast<const Siglip2*>(weights);
  int64_t rows = 0;
  for (const media::TowerInput::Grid& grid : input.grids) {
    if (grid.rows < 1 || grid.cols < 1 || grid.rows % m.factor != 0 || grid.cols % m.factor != 0 ||
        grid.patches() > (1 << 20)) {
      return InvalidArgument("this tower takes grids of multiples of %d patches, not %d x %d",
                             m.factor, grid.rows, grid.cols);
    }
    const int32_t patches = static_cast<int32_t>(grid.patches());
    tiles->push_back(
        {grid, patches, patches / (m.factor * m.factor), rows * int64_t{m.patch_cols()}});
    rows += patches;
  }
  if (input.shape.size() != 2 || input.shape[0] != rows || input.shape[1] != m.patch_cols()) {
    return InvalidArgument("this tower takes %lld rows of %d values for its grids",
                           static_cast<long long>(rows), m.patch_cols());
  }
  return OkStatus();
}

void Embed(const Siglip2& m, Backend& backend, const TowerStep& step, const VitRows& r) {
  const Rows patches = r.wide.Front(m.patch_cols());
  backend.Input(step.ValuesOf(step.tiles.front()), patches);
  backend.Linear(patches, m.embedding, m.embedding_bias.data(), r.h);
  int32_t row = 0;
  for (const TowerTile& tile : step.tiles) {
    AddResizedPositions(backend, *step.arena, m.positions, m.entries,
                        TriangleTaps(m.entries, tile.grid.rows),
                        TriangleTaps(m.entries, tile.grid.cols), nullptr, r.h.Some(row, tile.rows),
                        r.normed.Some(row, tile.rows));
    row += tile.rows;
  }
}

void Forward(const void* weights, Backend& backend, const TowerStep& step) {
  const Siglip2& m = *static_cast<const Siglip2*>(weights);
  const VitSizes& s = m.sizes;
  Arena& arena = *step.arena;
  const VitRows r = TakeVitRows(arena, step.rows(), m.patch_cols(), s);
  const StepContext tiles = TilesAsSequences(step, s.heads, s.head_dim(), nullptr);
  const Rows inner = arena.TakeRows(step.out.rows, m.projector_inner);
  Embed(m, backend, step, r);
  step.Note(&TowerTrace::embeddings, r.h);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    RunVitLayer(backend, tiles, s, m.layers[l], nullptr, {}, r);
    if (l == 0) step.Note(&TowerTrace::layer0, r.h);
  }
  backend.LayerNorm(r.h, m.norm.data(), m.norm_bias.data(), s.eps, r.h);
  step.Note(&TowerTrace::before, r.h);

  backend.GatherRows(r.h, BlockOrderOfTiles(step, m.factor), r.normed);
  const Rows joined = r.normed.Joined(m.factor * m.factor);
  if (m.projector_norm) {
    backend.LayerNorm(joined, m.joined_norm.data(), m.joined_norm_bias.data(), kProjectorEps,
                      joined);
  }
  backend.Linear(joined, m.linear1, m.linear1_bias.data(), inner);
  backend.Act(m.projector_activation, inner, inner);
  backend.Linear(inner, m.linear2, m.linear2_bias.data(), step.out);
}

constexpr std::string_view kTypes[] = {"lfm2_vl"};

}  // namespace

constinit const TowerFamily kSiglip2Tower = {
    "siglip2", media::MediaKind::kPicture, kTypes, &Load, &FindTiles, &Forward};

}  // namespace cellm
