// The eyes of Gemma 4: pictures of any shape, patches placed by two tables and turned by both of
// their coordinates.
//
//   x = W (2 v - 1) + column_table[x] + row_table[y]
//   layers:  n = norm(h);  q = rope2(qnorm(Wq n)), k = rope2(knorm(Wk n)), v = vnorm(Wv n)
//            h += norm( Wo attend(q, k, v) )                     scores not scaled
//            h += norm( Wdown( gelu(Wgate n) * (Wup n) ) ) of n = norm(h)
//   out = W vnorm( mean of k x k patches * sqrt(width) )          first standardised where it is
//   said
// Norms multiply by the plain weight; vnorm has none. The first half of a head turns by the column,
// the second by the row. Products hold their inputs and outputs in bounds where the file has them.
//
// Source: the published configuration and model definition of gemma4.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/limits.h"
#include "model/clipped_linear.h"
#include "model/config.h"
#include "model/vit.h"

namespace cellm {
namespace {

struct Layer {
  Vector attention_norm, attention_out_norm, mlp_norm, mlp_out_norm, q_norm, k_norm;
  ClippedLinear q, k, v, o, gate, up, down;
};

struct Gemma4Vision {
  int32_t hidden = 0, inner = 0, layer_count = 0, heads = 0, head_dim = 0;
  int32_t patch = 0, pool = 0, entries = 0;
  float eps = 1e-6f;
  Activation activation = Activation::kGeluTanh;
  bool clipped = false, standardize = false;
  RopeSpec by_column, by_row;
  AttendSpec attend;

  Weight embedding, column_table, row_table;
  Array<float> minus_one;  // [patch_cols]
  std::vector<Layer> layers;
  Vector std_bias, std_scale;  // std_bias with its sign turned
  Weight projection;

  int32_t width() const { return heads * head_dim; }
  int32_t patch_cols() const { return 3 * patch * patch; }
};

// One half of a head, by one coordinate.
RopeSpec RopeOf(int32_t head_dim, double theta, uint8_t axis) {
  RopeSpec rope;
  const int32_t half = head_dim / 2;
  rope.head_dim = head_dim;
  rope.rotary_dim = half;
  for (int32_t j = 0; j < half / 2; ++j) {
    rope.inv_freq.push_back(static_cast<float>(1.0 / std::pow(theta, 2.0 * j / half)));
    rope.axes.push_back(axis);
  }
  return rope;
}

Status ReadConfig(json::Value object, Gemma4Vision* m) {
  Config config(object);
  m->hidden = config.Int("hidden_size", 768);
  m->inner = config.Int("intermediate_size", 3072);
  m->layer_count = config.Int("num_hidden_layers", 16);
  m->heads = config.Int("num_attention_heads", 12);
  const int32_t kv_heads = config.Int("num_key_value_heads", m->heads);
  m->head_dim = config.Int("head_dim", 64);
  m->patch = config.Int("patch_size", 16);
  m->pool = config.Int("pooling_kernel_size", 3);
  m->entries = config.Int("position_embedding_size", 10240);
  m->eps = static_cast<float>(config.Float("rms_norm_eps", 1e-6));
  m->activation = config.ActivationOf("hidden_activation", "gelu_pytorch_tanh");
  m->clipped = config.Bool("use_clipped_linears", false);
  m->standardize = config.Bool("standardize", false);
  config.RefuseTrue("attention_bias", "gemma4 vision");
  if (config.ok() && (kv_heads != m->heads || m->head_dim % 4 != 0)) {
    config.Fail(Unsupported("config: %d heads of %d channels with \"num_key_value_heads\" %d",
                            m->heads, m->head_dim, kv_heads));
  }
  if (config.ok()) {
    const double theta = ReadAxialTheta(config, 100.0);
    m->by_column = RopeOf(m->head_dim, theta, 0);
    m->by_row = RopeOf(m->head_dim, theta, 1);
  }
  // The patches' own bound is the processor's; "position_embedding_size" is ours.
  config.Ignore({"max_position_embeddings", "default_output_length"});
  CELLM_RETURN_IF_ERROR(config.Finish());
  if (m->patch > 256 || m->pool > 64 || m->layer_count > limits::kMaxLayers ||
      m->entries > limits::kMaxDimension / 2 || m->heads > limits::kMaxDimension / m->head_dim) {
    return Unsupported("config: a tower of %d layers, patches of %d, pooled by %d", m->layer_count,
                       m->patch, m->pool);
  }
  m->attend = {.heads = m->heads,
               .kv_heads = m->heads,
               .head_dim = m->head_dim,
               .head_dim_v = m->head_dim,
               .scale = 1.0f,
               .two_way = true};
  return OkStatus();
}

Layer BindLayer(Binder& bind, const std::string& at, const Gemma4Vision& m) {
  const auto clipped = [&](const char* name, int32_t rows, int32_t cols) {
    return BindClipped(bind, at + name, rows, cols, m.clipped);
  };
  Layer layer;
  layer.attention_norm = bind.Floats(at + "input_layernorm.weight", m.hidden);
  layer.attention_out_norm = bind.Floats(at + "post_attention_layernorm.weight", m.hidden);
  layer.mlp_norm = bind.Floats(at + "pre_feedforward_layernorm.weight", m.hidden);
  layer.mlp_out_norm = bind.Floats(at + "post_feedforward_layernorm.weight", m.hidden);
  layer.q_norm = bind.Floats(at + "self_attn.q_norm.weight", m.head_dim);
  layer.k_norm = bind.Floats(at + "self_attn.k_norm.weight", m.head_dim);
  layer.q = clipped("self_attn.q_proj", m.width(), m.hidden);
  layer.k = clipped("self_attn.k_proj", m.width(), m.hidden);
  layer.v = clipped("self_attn.v_proj", m.width(), m.hidden);
  layer.o = clipped("self_attn.o_proj", m.hidden, m.width());
  layer.gate = clipped("mlp.gate_proj", m.inner, m.hidden);
  layer.up = clipped("mlp.up_proj", m.inner, m.hidden);
  layer.down = clipped("mlp.down_proj", m.hidden, m.inner);
  return layer;
}

Status Load(const TowerContext& context, Tower* tower) {
  auto m = std::make_unique<Gemma4Vision>();
  CELLM_RETURN_IF_ERROR(ReadConfig(context.load.config, m.get()));
  constexpr std::string_view kPrefixes[] = {"model.vision_tower.", "vision_tower."};
  constexpr std::string_view kProjectorPrefixes[] = {"model.embed_vision.", "embed_vision."};
  Binder bind(context.load);
  bind.FindPrefix(kPrefixes, "patch_embedder.input_proj");
  m->embedding = bind.Linear("patch_embedder.input_proj", m->hidden, m->patch_cols());
  const std::string tables = "patch_embedder.position_embedding_table";
  m->column_table = bind.Expert(tables, 0, m->entries, m->hidden);
  m->row_table = bind.Expert(tables, 1, m->entries, m->hidden);
  CELLM_ASSIGN_OR_RETURN(m->minus_one, Array<float>::Zeroed(context.load.allocator,
                                                            static_cast<size_t>(m->patch_cols()),
                                                            MemoryClass::kWeights, "a vector"));
  std::fill(m->minus_one.begin(), m->minus_one.end(), -1.0f);
  for (int32_t l = 0; l < m->layer_count && bind.status().ok(); ++l) {
    m->layers.push_back(BindLayer(bind, "encoder.layers." + std::to_string(l) + ".", *m));
  }
  if (m->standardize) {
    m->std_bias = bind.Floats("std_bias", m->hidden);
    m->std_scale = bind.Floats("std_scale", m->hidden);
    for (float& value : m->std_bias) value = -value;
  }
  bind.FindPrefix(kProjectorPrefixes, "embedding_projection");
  m->projection = bind.Linear("embedding_projection", context.text_hidden, m->hidden);
  CELLM_RETURN_IF_ERROR(Status(bind.status()));
  tower->info.parameter_count = bind.parameter_count();
  tower->info.weight_bytes = bind.weight_bytes();
  tower->weights = FamilyWeights(std::move(m));
  return OkStatus();
}

Status FindTiles(const void* weights, const media::TowerInput& input,
                 std::vector<TowerTile>* tiles) {
  const Gemma4Vision& m = *static_cast<const Gemma4Vision*>(weights);
  int64_t rows = 0;
  for (const media::TowerInput::Grid& grid : input.grids) {
    if (grid.rows < 1 || grid.cols < 1 || grid.rows % m.pool != 0 || grid.cols % m.pool != 0 ||
        grid.rows > m.entries || grid.cols > m.entries || grid.patches() > (1 << 20)) {
      return InvalidArgument(
          "this tower takes grids of multiples of %d patches up to %d, not %d x %d", m.pool,
          m.entries, grid.rows, grid.cols);
    }
    const int32_t patches = static_cast<int32_t>(grid.patches());
    tiles->push_back({grid, patches, patches / (m.pool * m.pool), rows * int64_t{m.patch_cols()}});
    rows += patches;
  }
  if (input.shape.size() != 2 || input.shape[0] != rows || input.shape[1] != m.patch_cols()) {
    return InvalidArgument("this tower takes %lld rows of %d values for its grids",
                           static_cast<long long>(rows), m.patch_cols());
  }
  return OkStatus();
}

// Where every patch is. All in the arena, empty while measuring.
struct Places {
  std::span<int32_t> columns, rows;    // [rows of the step]
  const int32_t* positions = nullptr;  // [rows][3], as the rotary tables take them
};
Places PlacesOf(const TowerStep& step) {
  const int32_t count = step.rows();
  int32_t* const columns = step.arena->TakeInts(count);
  int32_t* const rows = step.arena->TakeInts(count);
  int32_t* const positions = step.arena->TakeInts(int64_t{3} * count);
  if (positions == nullptr) return {};
  int32_t row = 0;
  for (const TowerTile& tile : step.tiles) {
    for (int32_t y = 0; y < tile.grid.rows; ++y) {
      for (int32_t x = 0; x < tile.grid.cols; ++x, ++row) {
        columns[row] = positions[3 * row] = x;
        rows[row] = positions[3 * row + 1] = y;
        positions[3 * row + 2] = 0;
      }
    }
  }
  const size_t size = static_cast<size_t>(count);
  return {{columns, size}, {rows, size}, positions};
}

struct LayerRows {
  Rows h, normed, out;
  Rows q, k, v;         // [rows, heads * head_dim]
  Rows gate, up, room;  // room: clipped inputs of any product
};

void Embed(const Gemma4Vision& m, Backend& backend, const TowerStep& step, const Places& places,
           const LayerRows& r) {
  const Rows patches = step.arena->TakeRows(step.rows(), m.patch_cols());
  backend.Input(step.ValuesOf(step.tiles.front()), patches);
  backend.Scale(patches, 2.0f);
  backend.AddVector(patches, m.minus_one.data());
  backend.Linear(patches, m.embedding, nullptr, r.h);
  backend.Embed(m.column_table, places.columns, 1.0f, r.normed);
  backend.Add(r.h, r.normed, 1.0f);
  backend.Embed(m.row_table, places.rows, 1.0f, r.normed);
  backend.Add(r.h, r.normed, 1.0f);
}

struct Turns {
  Rows by_column, by_row;
};
void Turn(const Gemma4Vision& m, Backend& backend, const Turns& turns, Rows x) {
  const int32_t half = m.head_dim / 2;
  backend.Rope(m.by_column, turns.by_column, m.heads, x);
  backend.Rope(m.by_row, turns.by_row, m.heads, x.Cols(half, x.cols - half));
}

void RunLayer(const Gemma4Vision& m, const Layer& layer, Backend& backend, const StepContext& tiles,
              const Turns& turns, const LayerRows& r) {
  const Rows hidden_room = r.room.Front(m.hidden);
  backend.RmsNorm(r.h, layer.attention_norm.data(), 0.0f, m.eps, r.normed);
  RunClipped(backend, layer.q, r.normed, hidden_room, r.q);
  RunClipped(backend, layer.k, r.normed, hidden_room, r.k);
  RunClipped(backend, layer.v, r.normed, hidden_room, r.v);
  backend.RmsNorm(r.q.Heads(m.heads), layer.q_norm.data(), 0.0f, m.eps, r.q.Heads(m.heads));
  backend.RmsNorm(r.k.Heads(m.heads), layer.k_norm.data(), 0.0f, m.eps, r.k.Heads(m.heads));
  backend.RmsNorm(r.v.Heads(m.heads), nullptr, 0.0f, m.eps, r.v.Heads(m.heads));
  Turn(m, backend, turns, r.q);
  Turn(m, backend, turns, r.k);
  backend.StoreKv(tiles, 0, m.attend, r.k, r.v);
  backend.AttendPages(tiles, 0, m.attend, r.q, r.v);
  RunClipped(backend, layer.o, r.v, r.room.Front(m.width()), r.out);
  backend.RmsNorm(r.out, layer.attention_out_norm.data(), 0.0f, m.eps, r.out);
  backend.Add(r.h, r.out, 1.0f);

  backend.RmsNorm(r.h, layer.mlp_norm.data(), 0.0f, m.eps, r.normed);
  RunClipped(backend, layer.gate, r.normed, hidden_room, r.gate);
  RunClipped(backend, layer.up, r.normed, hidden_room, r.up);
  backend.GatedAct(m.activation, r.gate, r.up, r.gate);
  RunClipped(backend, layer.down, r.gate, r.room.Front(m.inner), r.out);
  backend.RmsNorm(r.out, layer.mlp_out_norm.data(), 0.0f, m.eps, r.out);
  backend.Add(r.h, r.out, 1.0f);
}

void Forward(const void* weights, Backend& backend, const TowerStep& step) {
  const Gemma4Vision& m = *static_cast<const Gemma4Vision*>(weights);
  Arena& arena = *step.arena;
  const int32_t rows = step.rows();
  const int32_t widest = std::max({m.hidden, m.inner, m.width()});
  const LayerRows r = {arena.TakeRows(rows, m.hidden),  arena.TakeRows(rows, m.hidden),
                       arena.TakeRows(rows, m.hidden),  arena.TakeRows(rows, m.width()),
                       arena.TakeRows(rows, m.width()), arena.TakeRows(rows, m.width()),
                       arena.TakeRows(rows, m.inner),   arena.TakeRows(rows, m.inner),
                       arena.TakeRows(rows, widest)};
  const Turns turns = {arena.TakeRows(rows, m.by_column.rotary_dim),
                       arena.TakeRows(rows, m.by_row.rotary_dim)};
  const Places places = PlacesOf(step);
  const StepContext tiles = TilesAsSequences(step, m.heads, m.head_dim, places.positions);
  Embed(m, backend, step, places, r);
  step.Note(&TowerTrace::embeddings, r.h);
  backend.RopeTable(tiles, m.by_column, turns.by_column);
  backend.RopeTable(tiles, m.by_row, turns.by_row);
  for (size_t l = 0; l < m.layers.size(); ++l) {
    RunLayer(m, m.layers[l], backend, tiles, turns, r);
    if (l == 0) step.Note(&TowerTrace::layer0, r.h);
  }
  const Rows pooled = r.normed.Some(0, step.out.rows);
  backend.MeanRows(r.h, BlockOrderOfTiles(step, m.pool), m.pool * m.pool, pooled);
  backend.Scale(pooled, std::sqrt(static_cast<float>(m.hidden)));
  if (m.standardize) {
    backend.AddVector(pooled, m.std_bias.data());
    backend.MulVector(pooled, m.std_scale.data());
  }
  step.Note(&TowerTrace::before, pooled);
  backend.RmsNorm(pooled, nullptr, 0.0f, m.eps, pooled);
  backend.Linear(pooled, m.projection, nullptr, step.out);
}

constexpr std::string_view kTypes[] = {"gemma4"};

}  // namespace

constinit const TowerFamily kGemma4VisionTower = {
    "gemma4_vision", media::MediaKind::kPicture, kTypes, &Load, &FindTiles, &Forward};

}  // namespace cellm
