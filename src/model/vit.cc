#include "model/vit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/limits.h"
#include "model/config.h"

namespace cellm {

StepContext TilesAsSequences(const TowerStep& step, int32_t heads, int32_t head_dim,
                             const int32_t* rope_positions) {
  Arena& arena = *step.arena;
  const int64_t count = static_cast<int64_t>(step.tiles.size());
  SequenceSlice* const sequences = arena.TakeArray<SequenceSlice>(count);
  LayerState* const states = arena.TakeArray<LayerState>(count);
  uint8_t** const pages = arena.TakeArray<uint8_t*>(count);
  int32_t* const key_ends = arena.TakeInts(step.rows());
  StepContext context;
  context.rows = step.rows();
  context.kv_type = KvType::kF32;
  context.arena = step.arena;
  context.rope_positions = rope_positions;
  int32_t row = 0;
  for (size_t i = 0; i < step.tiles.size(); ++i) {
    // One page a tile: keys, then values, head by head; whole blocks of 16 rows.
    const int32_t tile_rows = step.tiles[i].rows;
    const int32_t page_rows = (tile_rows + 15) / 16 * 16;
    const Rows page = arena.TakeRows(2 * heads, page_rows * head_dim);
    if (arena.measuring()) continue;
    const size_t head_bytes = sizeof(float) * static_cast<size_t>(page.cols);
    pages[i] = reinterpret_cast<uint8_t*>(page.data);
    states[i] = LayerState();
    KvSlice& kv = states[i].kv;
    kv.pages = pages + i;
    kv.page_tokens = page_rows;
    kv.places.v_offset = static_cast<size_t>(heads) * head_bytes;
    kv.places.k_head_stride = kv.places.v_head_stride = head_bytes;
    sequences[i] = {row, tile_rows, 0, tile_rows, states + i};
    std::fill_n(key_ends + row, tile_rows, tile_rows);
    row += tile_rows;
  }
  if (arena.measuring()) return context;
  context.key_ends = key_ends;
  context.sequences = {sequences, static_cast<size_t>(count)};
  return context;
}

void BlockOrder(const media::TowerInput::Grid& grid, int32_t side, int32_t first, int32_t* order) {
  for (int32_t top = 0; top < grid.rows; top += side) {
    for (int32_t left = 0; left < grid.cols; left += side) {
      for (int32_t i = 0; i < side; ++i) {
        for (int32_t j = 0; j < side; ++j) *order++ = first + (top + i) * grid.cols + left + j;
      }
    }
  }
}

std::span<const int32_t> BlockOrderOfTiles(const TowerStep& step, int32_t side) {
  int32_t* const order = step.arena->TakeInts(step.rows());
  if (order == nullptr) return {};
  int32_t row = 0;
  for (const TowerTile& tile : step.tiles) {
    BlockOrder(tile.grid, side, row, order + row);
    row += tile.rows;
  }
  return {order, static_cast<size_t>(row)};
}

Taps TriangleTaps(int32_t entries, int32_t out) {
  const double scale = static_cast<double>(entries) / out;
  const double support = std::max(scale, 1.0);
  Taps taps;
  taps.taps = std::min(entries, static_cast<int32_t>(std::ceil(2 * support)) + 1);
  for (int32_t i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    const int32_t low = static_cast<int32_t>(std::floor(centre - support));
    const int32_t first = std::clamp(low, 0, entries - taps.taps);
    std::vector<double> weights;
    double sum = 0.0;
    for (int32_t j = 0; j < taps.taps; ++j) {
      const double distance = std::fabs((first + j + 0.5 - centre) / support);
      weights.push_back(std::max(0.0, 1.0 - distance));
      sum += weights.back();
    }
    for (int32_t j = 0; j < taps.taps; ++j) {
      taps.index.push_back(first + j);
      taps.weight.push_back(static_cast<float>(weights[static_cast<size_t>(j)] / sum));
    }
  }
  return taps;
}

Taps CornerTaps(int32_t entries, int32_t out) {
  Taps taps;
  taps.taps = 2;
  for (int32_t i = 0; i < out; ++i) {
    const double at = out == 1 ? 0.0 : static_cast<double>(i) * (entries - 1) / (out - 1);
    const int32_t below = static_cast<int32_t>(std::floor(at));
    const float part = static_cast<float>(at - below);
    taps.index.insert(taps.index.end(), {below, std::min(below + 1, entries - 1)});
    taps.weight.insert(taps.weight.end(), {1.0f - part, part});
  }
  return taps;
}

void AddResizedPositions(Backend& backend, Arena& arena, const Weight& table, int32_t entries,
                         const Taps& rows, const Taps& cols, const int32_t* order, Rows h,
                         Rows room) {
  const int32_t taps = rows.taps * cols.taps;
  const int64_t count = int64_t{h.rows} * taps;
  int32_t* const ids = arena.TakeInts(count);
  float* const weights = arena.TakeArray<float>(count);
  if (ids != nullptr) {
    const int32_t width = static_cast<int32_t>(cols.index.size()) / cols.taps;
    int64_t at = 0;
    for (int32_t r = 0; r < h.rows; ++r) {
      const int32_t patch = order == nullptr ? r : order[r];
      const size_t row = static_cast<size_t>(patch / width * rows.taps);
      const size_t col = static_cast<size_t>(patch % width * cols.taps);
      for (size_t i = 0; i < static_cast<size_t>(rows.taps); ++i) {
        for (size_t j = 0; j < static_cast<size_t>(cols.taps); ++j, ++at) {
          ids[at] = rows.index[row + i] * entries + cols.index[col + j];
          weights[at] = rows.weight[row + i] * cols.weight[col + j];
        }
      }
    }
  }
  backend.EmbedTaps(table, {ids, ids == nullptr ? 0 : static_cast<size_t>(count)}, weights, taps,
                    room);
  backend.Add(h, room, 1.0f);
}

AttendSpec VitSizes::Attend() const {
  AttendSpec spec;
  spec.heads = spec.kv_heads = heads;
  spec.head_dim = spec.head_dim_v = head_dim();
  spec.scale = 1.0f / std::sqrt(static_cast<float>(head_dim()));
  spec.two_way = true;
  return spec;
}

void FinishVitSizes(Config& config, VitSizes* sizes) {
  sizes->activation = config.ActivationOf("hidden_act", "gelu_pytorch_tanh");
  if (!config.ok()) return;
  if (sizes->hidden % sizes->heads != 0) {
    config.Fail(Unsupported("config: \"hidden_size\" %d is no multiple of %d heads", sizes->hidden,
                            sizes->heads));
  }
  if (sizes->layers > limits::kMaxLayers) {
    config.Fail(
        Unsupported("config: %d layers are more than %d", sizes->layers, limits::kMaxLayers));
  }
}

double ReadAxialTheta(Config& config, double otherwise) {
  const json::Value parameters = config.Raw("rope_parameters");
  if (!parameters.has_value()) return otherwise;
  Config rope(parameters);
  const double theta = rope.Float("rope_theta", otherwise);
  const std::string type = rope.String("rope_type", "axial");
  Status status = rope.Finish();
  if (status.ok() && ((type != "axial" && type != "default") || !(theta > 1.0))) {
    status = Unsupported("config: \"rope_parameters\": type \"%s\", theta %g", type.c_str(), theta);
  }
  if (!status.ok()) config.Fail(std::move(status));
  return theta;
}

VitLayer BindVitLayer(Binder& bind, const std::string& at, const VitNames& names,
                      const VitSizes& sizes) {
  const int32_t hidden = sizes.hidden;
  const auto bias = [&](const char* name, int32_t count) {
    return bind.Floats(at + name + ".bias", count);
  };
  VitLayer layer;
  layer.norm1 = bind.Floats(at + names.norm1 + ".weight", hidden);
  layer.norm1_bias = bias(names.norm1, hidden);
  if (names.qkv != nullptr) {
    layer.qkv = bind.Linear(at + names.qkv, 3 * hidden, hidden);
    layer.qkv_bias = bias(names.qkv, 3 * hidden);
  } else {
    layer.q = bind.Linear(at + names.q, hidden, hidden);
    layer.q_bias = bias(names.q, hidden);
    layer.k = bind.Linear(at + names.k, hidden, hidden);
    layer.k_bias = bias(names.k, hidden);
    layer.v = bind.Linear(at + names.v, hidden, hidden);
    layer.v_bias = bias(names.v, hidden);
  }
  layer.o = bind.Linear(at + names.o, hidden, hidden);
  layer.o_bias = bias(names.o, hidden);
  layer.norm2 = bind.Floats(at + names.norm2 + ".weight", hidden);
  layer.norm2_bias = bias(names.norm2, hidden);
  layer.fc1 = bind.Linear(at + names.fc1, sizes.inner, hidden);
  layer.fc1_bias = bias(names.fc1, sizes.inner);
  layer.fc2 = bind.Linear(at + names.fc2, hidden, sizes.inner);
  layer.fc2_bias = bias(names.fc2, hidden);
  return layer;
}

VitRows TakeVitRows(Arena& arena, int32_t rows, int32_t patch_cols, const VitSizes& sizes) {
  VitRows r;
  r.h = arena.TakeRows(rows, sizes.hidden);
  r.normed = arena.TakeRows(rows, sizes.hidden);
  r.wide = arena.TakeRows(rows, std::max(3 * sizes.hidden, patch_cols));
  r.inner = arena.TakeRows(std::min(rows, kVitInnerRows), sizes.inner);
  return r;
}

void RunVitLayer(Backend& backend, const StepContext& tiles, const VitSizes& sizes,
                 const VitLayer& layer, const RopeSpec* rope, Rows cos_sin, const VitRows& r) {
  const int32_t hidden = sizes.hidden;
  const AttendSpec attend = sizes.Attend();
  const Rows qkv = r.wide.Front(3 * hidden);
  const Rows q = qkv.Cols(0, hidden);
  const Rows k = qkv.Cols(hidden, hidden);
  const Rows v = qkv.Cols(2 * hidden, hidden);
  backend.LayerNorm(r.h, layer.norm1.data(), layer.norm1_bias.data(), sizes.eps, r.normed);
  if (layer.qkv.exists()) {
    backend.Linear(r.normed, layer.qkv, layer.qkv_bias.data(), qkv);
  } else {
    const LinearPart parts[] = {{&layer.q, layer.q_bias.data(), q},
                                {&layer.k, layer.k_bias.data(), k},
                                {&layer.v, layer.v_bias.data(), v}};
    backend.Linear(r.normed, parts);
  }
  if (rope != nullptr) {
    backend.Rope(*rope, cos_sin, sizes.heads, q);
    backend.Rope(*rope, cos_sin, sizes.heads, k);
  }
  backend.StoreKv(tiles, 0, attend, k, v);
  backend.AttendPages(tiles, 0, attend, q, r.normed);
  backend.Linear(r.normed, layer.o, layer.o_bias.data(), q);
  backend.Add(r.h, q, 1.0f);

  backend.LayerNorm(r.h, layer.norm2.data(), layer.norm2_bias.data(), sizes.eps, r.normed);
  // Some rows at a time, so that the inner rows of a large tile need not all be there.
  for (int32_t begin = 0; begin < r.h.rows; begin += kVitInnerRows) {
    const int32_t count = std::min(kVitInnerRows, r.h.rows - begin);
    const Rows inner = r.inner.Some(0, count);
    backend.Linear(r.normed.Some(begin, count), layer.fc1, layer.fc1_bias.data(), inner);
    backend.Act(sizes.activation, inner, inner);
    backend.Linear(inner, layer.fc2, layer.fc2_bias.data(), q.Some(begin, count));
  }
  backend.Add(r.h, q, 1.0f);
}

}  // namespace cellm
