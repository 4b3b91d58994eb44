// The tower of Qwen3.5 and Qwen3-VL.
//
//   x = Wpatch [patch, patch] + b + position           a still picture is its own second time slice
//   layers:  h += Wo attend(rope(q), rope(k), v) of norm1 h;  h += W2 gelu(W1 norm2 h)
//            half of a head's pairs turn by the patch's row, the other half by its column
//   out = W2 gelu( W1 [norm h of m x m patches] )
//   deepstack (qwen3_vl): after some layers out_i = W2 gelu( W1 norm([h of m x m patches]) )
//
// Patches come block by block (m x m), so that merging takes neighbours. Positions are read from a
// square table whose corners are the picture's corners.
//
// Source: the published configurations and model definitions of qwen3_vl and qwen3_5.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "model/config.h"
#include "model/vit.h"

namespace cellm {
namespace {

constexpr VitNames kNames = {.norm1 = "norm1",
                             .norm2 = "norm2",
                             .q = nullptr,
                             .k = nullptr,
                             .v = nullptr,
                             .qkv = "attn.qkv",
                             .o = "attn.proj",
                             .fc1 = "mlp.linear_fc1",
                             .fc2 = "mlp.linear_fc2"};
constexpr float kEps = 1e-6f;
constexpr int32_t kSlices = 2;  // in time

struct Merger {
  Vector norm, norm_bias;
  Weight fc1, fc2;
  Vector fc1_bias, fc2_bias;
};

struct QwenVision {
  VitSizes sizes;
  RopeSpec rope;
  int32_t patch = 0, merge = 0;
  int32_t entries = 0;             // of a side of the table of positions
  std::vector<int32_t> deep_from;  // layers whose output goes to the text model's first layers

  Weight embedding, positions;
  Vector embedding_bias;
  std::vector<VitLayer> layers;
  Merger merger;
  std::vector<Merger> deep;

  int32_t slice_cols() const { return patch * patch; }  // of one channel
  int32_t value_cols() const { return 3 * slice_cols(); }
  int32_t patch_cols() const { return kSlices * value_cols(); }
  int32_t joined_cols() const { return sizes.hidden * merge * merge; }
};

// Pairs of a head: the first half by the row, the second by the column, both with the frequencies
// of a head of half the width.
RopeSpec RopeOf(int32_t head_dim, double theta) {
  RopeSpec rope;
  rope.head_dim = rope.rotary_dim = head_dim;
  const int32_t quarter = head_dim / 4;
  for (uint8_t axis = 0; axis < 2; ++axis) {
    for (int32_t j = 0; j < quarter; ++j) {
      rope.inv_freq.push_back(static_cast<float>(1.0 / std::pow(theta, 2.0 * j / (head_dim / 2))));
      rope.axes.push_back(axis);
    }
  }
  return rope;
}

Status ReadConfig(const TowerContext& context, QwenVision* m) {
  Config config(context.load.config);
  VitSizes& s = m->sizes;
  s.hidden = config.Int("hidden_size", 1152);
  s.inner = config.Int("intermediate_size", 4304);
  s.layers = config.Int("depth", 27);
  s.heads = config.Int("num_heads", 16);
  s.eps = kEps;
  m->patch = config.Int("patch_size", 16);
  m->merge = config.Int("spatial_merge_size", 2);
  const int32_t table = config.Int("num_position_embeddings", 2304);
  const int32_t out = config.Int("out_hidden_size", 3584);
  m->deep_from = config.IntList("deepstack_visual_indexes");
  FinishVitSizes(config, &s);
  if (config.Int("in_channels", 3) != 3 || config.Int("temporal_patch_size", kSlices) != kSlices) {
    config.Fail(
        Unsupported("config: \"in_channels\" other than 3 or \"temporal_patch_size\" other "
                    "than 2"));
  }
  if (config.ok() && s.head_dim() % 4 != 0) {
    config.Fail(
        Unsupported("config: heads of %d channels do not turn by rows and columns", s.head_dim()));
  }
  if (config.ok()) m->rope = RopeOf(s.head_dim(), ReadAxialTheta(config, 10000.0));
  CELLM_RETURN_IF_ERROR(config.Finish());
  m->entries = static_cast<int32_t>(std::lround(std::sqrt(table)));
  if (m->entries * m->entries != table || m->patch > 256 || m->merge > 64) {
    return Unsupported(
        "config: \"num_position_embeddings\" %d, \"patch_size\" %d, "
        "\"spatial_merge_size\" %d",
        table, m->patch, m->merge);
  }
  if (out != context.text_hidden) {
    return Corrupt("config: \"out_hidden_size\" %d, the text model has %d", out,
                   context.text_hidden);
  }
  if (m->deep_from.size() > GivenRows::kMaxDeep) {
    return Unsupported("config: %zu \"deepstack_visual_indexes\"", m->deep_from.size());
  }
  for (const int32_t layer : m->deep_from) {
    if (layer < 0 || layer >= s.layers) {
      return Corrupt("config: \"deepstack_visual_indexes\": layer %d of %d", layer, s.layers);
    }
  }
  return OkStatus();
}

Merger BindMerger(Binder& bind, const std::string& at, const QwenVision& m, int32_t norm_cols,
                  int32_t out) {
  Merger merger;
  merger.norm = bind.Floats(at + "norm.weight", norm_cols);
  merger.norm_bias = bind.Floats(at + "norm.bias", norm_cols);
  merger.fc1 = bind.Linear(at + "linear_fc1", m.joined_cols(), m.joined_cols());
  merger.fc1_bias = bind.Floats(at + "linear_fc1.bias", m.joined_cols());
  merger.fc2 = bind.Linear(at + "linear_fc2", out, m.joined_cols());
  merger.fc2_bias = bind.Floats(at + "linear_fc2.bias", out);
  return merger;
}

Status Load(const TowerContext& context, Tower* tower) {
  auto m = std::make_unique<QwenVision>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context, m.get()));
  const VitSizes& s = m->sizes;
  constexpr std::string_view kPrefixes[] = {"model.visual.", "visual."};
  Binder bind(context.load);
  bind.FindPrefix(kPrefixes, "merger.norm.weight");
  m->embedding = bind.Linear("patch_embed.proj", s.hidden, m->patch_cols());
  m->embedding_bias = bind.Floats("patch_embed.proj.bias", s.hidden);
  m->positions = bind.Lookup("pos_embed", m->entries * m->entries, s.hidden);
  for (int32_t l = 0; l < s.layers && bind.status().ok(); ++l) {
    m->layers.push_back(BindVitLayer(bind, "blocks." + std::to_string(l) + ".", kNames, s));
  }
  m->merger = BindMerger(bind, "merger.", *m, s.hidden, context.text_hidden);
  for (size_t i = 0; i < m->deep_from.size(); ++i) {
    m->deep.push_back(BindMerger(bind, "deepstack_merger_list." + std::to_string(i) + ".", *m,
                                 m->joined_cols(), context.text_hidden));
  }
  CELLM_RETURN_IF_ERROR(Status(bind.status()));
  tower->info.parameter_count = bind.parameter_count();
  tower->info.weight_bytes = bind.weight_bytes();
  tower->info.deep_count = static_cast<int32_t>(m->deep_from.size());
  tower->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status FindTiles(const void* weights, const media::TowerInput& input,
                 std::vector<TowerTile>* tiles) {
  const QwenVision& m = *static_cast<const QwenVision*>(weights);
  int64_t rows = 0;
  for (const media::TowerInput::Grid& grid : input.grids) {
    if (grid.rows < 1 || grid.cols < 1 || grid.rows % m.merge != 0 || grid.cols % m.merge != 0 ||
        grid.patches() > (1 << 20)) {
      return InvalidArgument("this tower takes grids of multiples of %d patches, not %d x %d",
                             m.merge, grid.rows, grid.cols);
    }
    const int32_t patches = static_cast<int32_t>(grid.patches());
    tiles->push_back(
        {grid, patches, patches / (m.merge * m.merge), rows * int64_t{m.value_cols()}});
    rows += patches;
  }
  if (input.shape.size() != 4 || input.shape[0] != rows || input.shape[1] != 3 ||
      input.shape[2] != m.patch || input.shape[3] != m.patch) {
    return InvalidArgument("this tower takes %lld patches of 3 x %d x %d values for its grids",
                           static_cast<long long>(rows), m.patch, m.patch);
  }
  return OkStatus();
}

// Row and column of every row of the step, as positions for the rotary table.
const int32_t* PatchPositions(const TowerStep& step, std::span<const int32_t> order) {
  int32_t* const positions = step.arena->TakeInts(int64_t{3} * step.rows());
  if (positions == nullptr) return nullptr;
  int32_t row = 0;
  for (const TowerTile& tile : step.tiles) {
    const int32_t first = row;
    for (; row < first + tile.rows; ++row) {
      const int32_t patch = order[static_cast<size_t>(row)] - first;
      positions[3 * row] = patch / tile.grid.cols;
      positions[3 * row + 1] = patch % tile.grid.cols;
      positions[3 * row + 2] = 0;
    }
  }
  return positions;
}

void Embed(const QwenVision& m, Backend& backend, const TowerStep& step, const VitRows& r) {
  const Rows patches = r.wide.Front(m.patch_cols());
  const Rows values = step.arena->TakeRows(step.rows(), m.value_cols());
  backend.Input(step.ValuesOf(step.tiles.front()), values);
  // Channel by channel, the slice twice.
  const int32_t slice = m.slice_cols();
  for (int32_t part = 0; part < 3 * kSlices; ++part) {
    backend.Act(Activation::kNone, values.Cols(part / kSlices * slice, slice),
                patches.Cols(part * slice, slice));
  }
  backend.Linear(patches, m.embedding, m.embedding_bias.data(), r.h);
}

void AddPositions(const QwenVision& m, Backend& backend, const TowerStep& step, const VitRows& r) {
  int32_t row = 0;
  for (const TowerTile& tile : step.tiles) {
    int32_t* const order = step.arena->TakeInts(tile.rows);
    if (order != nullptr) BlockOrder(tile.grid, m.merge, 0, order);
    AddResizedPositions(backend, *step.arena, m.positions, m.entries,
                        CornerTaps(m.entries, tile.grid.rows),
                        CornerTaps(m.entries, tile.grid.cols), order, r.h.Some(row, tile.rows),
                        r.normed.Some(row, tile.rows));
    row += tile.rows;
  }
}

void RunMerger(const QwenVision& m, const Merger& merger, Backend& backend, Rows normed, Rows inner,
               Rows out) {
  backend.Linear(normed.Joined(m.merge * m.merge), merger.fc1, merger.fc1_bias.data(), inner);
  backend.Act(Activation::kGelu, inner, inner);
  backend.Linear(inner, merger.fc2, merger.fc2_bias.data(), out);
}

void Forward(const void* weights, Backend& backend, const TowerStep& step) {
  const QwenVision& m = *static_cast<const QwenVision*>(weights);
  const VitSizes& s = m.sizes;
  Arena& arena = *step.arena;
  const VitRows r = TakeVitRows(arena, step.rows(), m.patch_cols(), s);
  const Rows cos_sin = arena.TakeRows(step.rows(), m.rope.rotary_dim);
  const Rows inner = arena.TakeRows(step.out.rows, m.joined_cols());
  const std::span<const int32_t> order = BlockOrderOfTiles(step, m.merge);
  const StepContext tiles =
      TilesAsSequences(step, s.heads, s.head_dim(), PatchPositions(step, order));
  Embed(m, backend, step, r);
  step.Note(&TowerTrace::embeddings, r.h);
  AddPositions(m, backend, step, r);
  backend.RopeTable(tiles, m.rope, cos_sin);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    RunVitLayer(backend, tiles, s, m.layers[l], &m.rope, cos_sin, r);
    if (l == 0) step.Note(&TowerTrace::layer0, r.h);
    for (size_t i = 0; i < m.deep.size(); ++i) {
      if (m.deep_from[i] != static_cast<int32_t>(l)) continue;
      const Merger& deep = m.deep[i];
      const int32_t joined = m.merge * m.merge;
      backend.LayerNorm(r.h.Joined(joined), deep.norm.data(), deep.norm_bias.data(), kEps,
                        r.normed.Joined(joined));
      RunMerger(m, deep, backend, r.normed, inner, step.deep[i]);
    }
  }
  step.Note(&TowerTrace::before, r.h);
  backend.LayerNorm(r.h, m.merger.norm.data(), m.merger.norm_bias.data(), kEps, r.normed);
  RunMerger(m, m.merger, backend, r.normed, inner, step.out);
}

constexpr std::string_view kTypes[] = {"qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"};

}  // namespace

constinit const TowerFamily kQwenTower = {
    "qwen_vision", media::MediaKind::kPicture, kTypes, &Load, &FindTiles, &Forward};

}  // namespace cellm
