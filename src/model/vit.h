#ifndef CELLM_SRC_MODEL_VIT_H_
#define CELLM_SRC_MODEL_VIT_H_

// Parts that towers share word for word: tiles as the sequences of a step, and the encoder layer
// that SigLIP and the Qwen towers have. What a tower does with them stays in its file.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/binder.h"
#include "model/config.h"
#include "model/tower.h"

namespace cellm {

// -- Tiles

// A step whose sequences are the tiles of `step`, rows one after another, each row seeing all of
// its own tile; layer 0 has room for keys and values of so many heads. Everything lies in the
// arena. `rope_positions` is null or [rows][3] in the arena.
StepContext TilesAsSequences(const TowerStep& step, int32_t heads, int32_t head_dim,
                             const int32_t* rope_positions);

// Rows of a grid block by block: blocks of side x side row by row, and row by row within. Requires
// sides that are multiples of `side`. Fills order[grid.patches()] with first + row * cols + col.
void BlockOrder(const media::TowerInput::Grid& grid, int32_t side, int32_t first, int32_t* order);
// The same for all tiles of a step, in the arena; null while measuring.
std::span<const int32_t> BlockOrderOfTiles(const TowerStep& step, int32_t side);

// How one side of a table of positions is read for a side of a picture: output i is the sum over
// j < taps of weight[i * taps + j] * entry[index[i * taps + j]].
struct Taps {
  int32_t taps = 0;
  std::vector<int32_t> index;
  std::vector<float> weight;
};
// Half-pixel centres, a triangle that widens where the side shrinks, no entry beyond the edges
// (what image libraries call bilinear with antialiasing).
Taps TriangleTaps(int32_t entries, int32_t out);
// First entry for the first output, last for the last, straight lines between.
Taps CornerTaps(int32_t entries, int32_t out);
// Adds the position of every patch to `h`: table [rows.entries * columns.entries, D], row by row,
// read through `rows` and `cols`; order (null: as they come) says which patch a row of h is. `room`
// is of the shape of h.
void AddResizedPositions(Backend& backend, Arena& arena, const Weight& table, int32_t entries,
                         const Taps& rows, const Taps& cols, const int32_t* order, Rows h,
                         Rows room);

// -- The encoder layer:  h += Wo attend(norm1 h);  h += W2 act(W1 norm2 h)

struct VitSizes {
  int32_t hidden = 0, inner = 0, layers = 0, heads = 0;
  float eps = 1e-6f;
  Activation activation = Activation::kGeluTanh;

  int32_t head_dim() const { return hidden / heads; }
  AttendSpec Attend() const;
};

// Reads "hidden_act" and fails `config` for heads that do not divide the width, and for more layers
// than we take.
void FinishVitSizes(Config& config, VitSizes* sizes);

struct VitNames {
  const char *norm1, *norm2;
  const char *q, *k, *v;  // or
  const char* qkv;        // one matrix of all three
  const char *o, *fc1, *fc2;
};
// As SigLIP's two versions name them.
inline constexpr VitNames kSiglipNames = {.norm1 = "layer_norm1",
                                          .norm2 = "layer_norm2",
                                          .q = "self_attn.q_proj",
                                          .k = "self_attn.k_proj",
                                          .v = "self_attn.v_proj",
                                          .qkv = nullptr,
                                          .o = "self_attn.out_proj",
                                          .fc1 = "mlp.fc1",
                                          .fc2 = "mlp.fc2"};

// The base of a tower's rotary angles along rows and columns. Newer files have "rope_parameters",
// which say what the class always did; without them it is `otherwise`. Errors are the config's.
double ReadAxialTheta(Config& config, double otherwise);

struct VitLayer {
  Vector norm1, norm1_bias, norm2, norm2_bias;
  Weight q, k, v, qkv, o, fc1, fc2;
  Vector q_bias, k_bias, v_bias, qkv_bias, o_bias, fc1_bias, fc2_bias;
};
VitLayer BindVitLayer(Binder& bind, const std::string& at, const VitNames& names,
                      const VitSizes& sizes);

struct VitRows {
  Rows h, normed;
  Rows wide;   // [rows, max(3 hidden, patch_cols)]: patches, then q, k and v
  Rows inner;  // of up to kVitInnerRows rows
};
inline constexpr int32_t kVitInnerRows = 1024;
VitRows TakeVitRows(Arena& arena, int32_t rows, int32_t patch_cols, const VitSizes& sizes);

// `rope` null: none.
void RunVitLayer(Backend& backend, const StepContext& tiles, const VitSizes& sizes,
                 const VitLayer& layer, const RopeSpec* rope, Rows cos_sin, const VitRows& r);

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_VIT_H_
