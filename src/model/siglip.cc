// SigLIP towers: pictures cut into square patches, an encoder that sees a whole tile, and two ways
// to the text model's width.
//
//   x = Wpatch patch + b + position[patch]                 patches row by row
//   layers:  h += Wo attend(norm1 h);  h += W2 gelu(W1 norm2 h)
//   h = norm(h)
//   smolvlm, idefics3   s x s patches become one row (pixel shuffle), out = W row
//   gemma3              k x k patches are averaged, out = W^T rmsnorm(mean)
//
// A tile is always fully valid here, so its positions are 0, 1, 2, ...: the published bucket
// arithmetic for partly valid tiles gives the same for these, up to rounding faults of its own.
//
// Source: the published configurations and model definitions of idefics3, smolvlm and gemma3.
#include <cmath>
#include <memory>
#include <utility>

#include "model/config.h"
#include "model/vit.h"

namespace cellm {
namespace {

// What a class assumes when a key is absent.
struct Defaults {
  int32_t hidden, inner, layers, heads, image, patch;
};
constexpr Defaults kIdefics3Defaults = {1152, 3072, 12, 16, 224, 32};
constexpr Defaults kSiglipDefaults = {768, 3072, 12, 12, 224, 16};

struct Siglip {
  VitSizes sizes;
  int32_t image = 0, patch = 0;
  int32_t side = 0;    // patches of a tile's side
  int32_t factor = 0;  // patches of a side that become one row

  Weight embedding, positions;
  Vector embedding_bias, norm, norm_bias;
  std::vector<VitLayer> layers;
  Weight projection;
  Vector projection_norm;  // gemma3

  int32_t patch_cols() const { return 3 * patch * patch; }
  int32_t patches() const { return side * side; }
  int32_t features() const { return patches() / (factor * factor); }
};

Status ReadConfig(json::Value object, const Defaults& defaults, Siglip* m) {
  Config config(object);
  VitSizes& s = m->sizes;
  s.hidden = config.Int("hidden_size", defaults.hidden);
  s.inner = config.Int("intermediate_size", defaults.inner);
  s.layers = config.Int("num_hidden_layers", defaults.layers);
  s.heads = config.Int("num_attention_heads", defaults.heads);
  s.eps = static_cast<float>(config.Float("layer_norm_eps", 1e-6));
  m->image = config.Int("image_size", defaults.image);
  m->patch = config.Int("patch_size", defaults.patch);
  FinishVitSizes(config, &s);
  if (config.Int("num_channels", 3) != 3) {
    config.Fail(Unsupported("config: \"num_channels\" other than 3"));
  }
  // Heads that these models do not use; what only processors read; the text model's business.
  config.Ignore(
      {"vision_use_head", "max_image_size", "size", "use_base_siglip", "tie_word_embeddings"});
  CELLM_RETURN_IF_ERROR(config.Finish());
  m->side = m->image / m->patch;
  if (m->side < 1 || m->image > 8192) {
    return Unsupported("config: \"image_size\" %d with \"patch_size\" %d", m->image, m->patch);
  }
  return OkStatus();
}

// The encoder, under the prefix that was found.
void BindEncoder(Binder& bind, Siglip* m) {
  const VitSizes& s = m->sizes;
  m->embedding = bind.Linear("embeddings.patch_embedding", s.hidden, m->patch_cols());
  m->embedding_bias = bind.Floats("embeddings.patch_embedding.bias", s.hidden);
  m->positions = bind.Lookup("embeddings.position_embedding", m->patches(), s.hidden);
  for (int32_t l = 0; l < s.layers && bind.status().ok(); ++l) {
    m->layers.push_back(
        BindVitLayer(bind, "encoder.layers." + std::to_string(l) + ".", kSiglipNames, s));
  }
  m->norm = bind.Floats("post_layernorm.weight", s.hidden);
  m->norm_bias = bind.Floats("post_layernorm.bias", s.hidden);
}

Status Finish(const Binder& bind, std::unique_ptr<Siglip> m, Tower* tower) {
  CELLM_RETURN_IF_ERROR(Status(bind.status()));
  tower->info.parameter_count = bind.parameter_count();
  tower->info.weight_bytes = bind.weight_bytes();
  tower->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status LoadShuffle(const TowerContext& context, Tower* tower) {
  auto m = std::make_unique<Siglip>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.load.config, kIdefics3Defaults, m.get()));
  Config wrapper(context.wrapper);
  m->factor = wrapper.Int("scale_factor", 2);
  CELLM_RETURN_IF_ERROR(Status(wrapper.status()));
  if (m->side % m->factor != 0) {
    return Unsupported("config: %d patches a side are no multiple of \"scale_factor\" %d", m->side,
                       m->factor);
  }
  constexpr std::string_view kPrefixes[] = {"model.vision_model.", "vision_model."};
  Binder bind(context.load);
  bind.FindPrefix(kPrefixes, "post_layernorm.weight");
  BindEncoder(bind, m.get());
  m->projection = bind.Linear("/model.connector.modality_projection.proj", context.text_hidden,
                              m->sizes.hidden * m->factor * m->factor);
  return Finish(bind, std::move(m), tower);
}

Status LoadGemma3(const TowerContext& context, Tower* tower) {
  auto m = std::make_unique<Siglip>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.load.config, kSiglipDefaults, m.get()));
  Config wrapper(context.wrapper);
  const int32_t tokens = wrapper.Int("mm_tokens_per_image", 256);
  CELLM_RETURN_IF_ERROR(Status(wrapper.status()));
  const int32_t across = static_cast<int32_t>(std::lround(std::sqrt(tokens)));
  if (across * across != tokens || m->side % across != 0) {
    return Unsupported("config: \"mm_tokens_per_image\" %d of %d x %d patches", tokens, m->side,
                       m->side);
  }
  m->factor = m->side / across;
  constexpr std::string_view kPrefixes[] = {"vision_tower.vision_model.",
                                            "model.vision_tower.vision_model.",
                                            "model.vision_tower.", "vision_tower."};
  constexpr std::string_view kProjectorPrefixes[] = {"multi_modal_projector.",
                                                     "model.multi_modal_projector."};
  Binder bind(context.load);
  bind.FindPrefix(kPrefixes, "post_layernorm.weight");
  BindEncoder(bind, m.get());
  bind.FindPrefix(kProjectorPrefixes, "mm_soft_emb_norm.weight");
  m->projection_norm = bind.Floats("mm_soft_emb_norm.weight", m->sizes.hidden);
  m->projection =
      bind.Transposed("mm_input_projection_weight", context.text_hidden, m->sizes.hidden);
  return Finish(bind, std::move(m), tower);
}

Status FindTiles(const void* weights, const media::TowerInput& input,
                 std::vector<TowerTile>* tiles) {
  const Siglip& m = *static_cast<const Siglip*>(weights);
  if (input.shape.size() != 4 || input.shape[1] != 3 || input.shape[2] != m.image ||
      input.shape[3] != m.image) {
    return InvalidArgument("this tower takes tiles of 3 x %d x %d values", m.image, m.image);
  }
  for (int64_t i = 0; i < input.shape[0]; ++i) {
    tiles->push_back(
        {{m.side, m.side}, m.patches(), m.features(), i * 3 * int64_t{m.image} * m.image});
  }
  return OkStatus();
}

// Patches with their positions into r.h.
void Embed(const Siglip& m, Backend& backend, const TowerStep& step, const VitRows& r) {
  const int32_t count = m.patches();
  const int64_t image = m.image;
  const WindowsSpec windows{3, m.image, m.image, image * image, image, 1, m.patch, m.patch, 0};
  const Rows patches = r.wide.Front(m.patch_cols());
  int32_t row = 0;
  for (const TowerTile& tile : step.tiles) {
    backend.Windows(step.ValuesOf(tile), windows, 0, patches.Some(row, count));
    row += count;
  }
  backend.Linear(patches, m.embedding, m.embedding_bias.data(), r.h);
  int32_t* const ids = step.arena->TakeInts(count);
  for (int32_t i = 0; ids != nullptr && i < count; ++i) ids[i] = i;
  const Rows positions = r.normed.Some(0, count);
  backend.Embed(m.positions, {ids, ids == nullptr ? 0 : static_cast<size_t>(count)}, 1.0f,
                positions);
  for (row = 0; row < r.h.rows; row += count) {
    backend.Add(r.h.Some(row, count), positions, 1.0f);
  }
}

// Everything before the projector, into r.h.
void Encode(const Siglip& m, Backend& backend, const TowerStep& step, const VitRows& r) {
  const VitSizes& s = m.sizes;
  const StepContext tiles = TilesAsSequences(step, s.heads, s.head_dim(), nullptr);
  Embed(m, backend, step, r);
  step.Note(&TowerTrace::embeddings, r.h);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    RunVitLayer(backend, tiles, s, m.layers[l], nullptr, {}, r);
    if (l == 0) step.Note(&TowerTrace::layer0, r.h);
  }
  backend.LayerNorm(r.h, m.norm.data(), m.norm_bias.data(), s.eps, r.h);
  step.Note(&TowerTrace::before, r.h);
}

void ForwardShuffle(const void* weights, Backend& backend, const TowerStep& step) {
  const Siglip& m = *static_cast<const Siglip*>(weights);
  const VitRows r = TakeVitRows(*step.arena, step.rows(), m.patch_cols(), m.sizes);
  Encode(m, backend, step, r);
  backend.GatherRows(r.h, BlockOrderOfTiles(step, m.factor), r.normed);
  backend.Linear(r.normed.Joined(m.factor * m.factor), m.projection, nullptr, step.out);
}

void ForwardGemma3(const void* weights, Backend& backend, const TowerStep& step) {
  const Siglip& m = *static_cast<const Siglip*>(weights);
  const VitRows r = TakeVitRows(*step.arena, step.rows(), m.patch_cols(), m.sizes);
  Encode(m, backend, step, r);
  const Rows pooled = r.normed.Some(0, step.out.rows);
  backend.MeanRows(r.h, BlockOrderOfTiles(step, m.factor), m.factor * m.factor, pooled);
  backend.RmsNorm(pooled, m.projection_norm.data(), 1.0f, m.sizes.eps, pooled);
  backend.Linear(pooled, m.projection, nullptr, step.out);
}

constexpr std::string_view kShuffleTypes[] = {"idefics3", "smolvlm"};
constexpr std::string_view kGemma3Types[] = {"gemma3"};

}  // namespace

constinit const TowerFamily kSiglipShuffleTower = {
    "siglip", media::MediaKind::kPicture, kShuffleTypes, &LoadShuffle, &FindTiles, &ForwardShuffle};
constinit const TowerFamily kGemma3Tower = {"gemma3_siglip", media::MediaKind::kPicture,
                                            kGemma3Types,    &LoadGemma3,
                                            &FindTiles,      &ForwardGemma3};

}  // namespace cellm
