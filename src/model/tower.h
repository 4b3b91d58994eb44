#ifndef CELLM_SRC_MODEL_TOWER_H_
#define CELLM_SRC_MODEL_TOWER_H_

// Towers: what turns pictures and sounds into rows that stand in a prompt where tokens would.
//
// A tower is a row of a table like a text family, over the same ops: a configuration that it
// accepts, weights bound to roles, a forward pass in straight lines. It yields rows of the text
// model's width, one for each placeholder, and knows nothing of prompts.
//
//   siglip.cc        smolvlm, idefics3 (pixel shuffle), gemma3 (average pooling)
//   siglip2.cc       lfm2_vl: patches as rows, positions resized, pixel unshuffle
//   qwen_vision.cc   qwen3_5, qwen3_vl: merger, and rows for the first text layers of qwen3_vl
//   gemma4_vision.cc, gemma4_audio.cc
//
// Memory beyond the weights, all from the caller's allocator while RunTower() runs: activations of
// one batch, the products' scratch, and the rows that come out. Tiles go in batches of at most
// kTowerBatchRows patches, at least one tile. With R patches in the largest batch, S the sum of
// its tiles' patches, each rounded up to 16, width D, inner width I and P numbers a patch, floats:
//   siglip           R (2 D + max(3 D, P)) + min(R, 1024) I + 2 S D
//   siglip2, qwen    the same, and R / m^2 rows of the projector's inner width, the taps of
//   positions
//                    (4 to 9 of two numbers a patch), for qwen R (P / 2 + D / heads)
//   gemma4 picture   R (3 D + 3 A + 2 I + max(D, A, I) + P + A / heads) + 2 S A,  A the heads'
//   width gemma4 sound     of N rows (a quarter of the frames): 2 N B (B / 2) for the first
//   convolution of
//                    B bins, up to 1024 * 9 B + 9 * 1024 for its windows, N (16 D + out) for layers
// and a few integers a patch. TowerMemory() says it to the byte, by running the forward pass over
// nothing.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu_backend.h"
#include "base/allocator.h"
#include "base/status.h"
#include "media/tower_input.h"
#include "model/model.h"

namespace cellm {

// Patches that one pass over the weights takes together, unless one tile has more.
inline constexpr int32_t kTowerBatchRows = 2048;

struct TowerInfo {
  std::string family;  // "siglip"
  media::MediaKind kind = media::MediaKind::kPicture;
  int32_t hidden_size = 0;  // columns of a row: the text model's width
  int32_t deep_count = 0;   // further sets of rows, for the text layers 0 .. deep_count - 1
  int64_t parameter_count = 0;
  uint64_t weight_bytes = 0;
  HoldingReport holding;
};

struct TowerFamily;

// Immutable after LoadTower(). Borrows the model's file.
struct Tower {
  const TowerFamily* family = nullptr;
  TowerInfo info;
  FamilyWeights weights;
};

// Binds the tower for `kind` that the file of `model` holds, which must outlive it. `backend` is
// used during the call only; weights that must be repacked or loaded come from `allocator`, which
// must outlive the tower. Tables stay in memory, whatever holding.embedding_on_flash says.
//   NotFound     the model has no such tower (message says what it is)
//   Unsupported  a key or value of "vision_config" or "audio_config" that we do not run (by name)
//   NotFound, Corrupt  a tensor that is missing or has the wrong shape (by name)
//   others             of WeightHolder
Result<std::unique_ptr<const Tower>> LoadTower(const Model& model, media::MediaKind kind,
                                               Backend& backend, Allocator& allocator,
                                               const HoldingOptions& holding = {});

// Rows for the placeholders of one picture or clip, in the order in which they replace them.
struct TowerFeatures {
  Array<float> values;  // [rows, cols]
  int32_t rows = 0, cols = 0;
  std::vector<Array<float>> deep;  // TowerInfo::deep_count of [rows, cols]
};

// What RunTower() takes from its allocator for this input, in bytes.
struct TowerNeeds {
  uint64_t activations = 0;  // gone when it returns
  uint64_t features = 0;     // of the result
  ScratchNeeds scratch;      // that the backend is made to hold
};

// Rows along the way, for tests and for finding where two programs part. [rows, its own width].
struct TowerTrace {
  std::vector<float> embeddings;  // patches with their positions; sound: after the convolutions
  std::vector<float> layer0;      // after the first layer
  std::vector<float> before;      // what the projector is given
};

// Checks `input` against the tower: InvalidArgument says what does not fit.
Result<TowerNeeds> TowerMemory(const Tower& tower, const media::TowerInput& input);
// Runs the tower. The result depends on the input, the weights and the kernel tier alone: not on
// threads, nor on which other tiles there are. `backend` gets the scratch that it needs and keeps
// it. One thread at a time for a backend.
//   InvalidArgument  as TowerMemory()
//   OutOfMemory      the allocator refused; nothing is kept
Result<TowerFeatures> RunTower(const Tower& tower, CpuBackend& backend, Allocator& allocator,
                               const media::TowerInput& input, TowerTrace* trace = nullptr);

// -- For the files of towers

// One tile of an input: rows of its own that see each other and no others.
struct TowerTile {
  media::TowerInput::Grid grid;  // sound: frames by mel bins
  int32_t rows = 0;              // of the tower's layers
  int32_t features = 0;          // rows that come out
  int64_t first_value = 0;       // in TowerInput::values()
};

// What one forward pass works on.
struct TowerStep {
  std::span<const TowerTile> tiles;
  const float* values = nullptr;  // TowerInput::values(); null while measuring
  Rows out;                       // [features of all tiles, hidden]
  Rows deep[GivenRows::kMaxDeep];
  Arena* arena = nullptr;
  TowerTrace* trace = nullptr;  // may be null

  int32_t rows() const {
    int32_t sum = 0;
    for (const TowerTile& tile : tiles) sum += tile.rows;
    return sum;
  }
  const float* ValuesOf(const TowerTile& tile) const {
    return values == nullptr ? nullptr : values + tile.first_value;
  }
  // Appends `rows` to one part of the trace, when there is one.
  void Note(std::vector<float> TowerTrace::*part, Rows rows) const;
};

struct TowerContext {
  LoadContext load;     // its config: "vision_config" or "audio_config"
  json::Value wrapper;  // the root of config.json
  int32_t text_hidden = 0;
};

struct TowerFamily {
  std::string_view name;
  media::MediaKind kind;
  std::span<const std::string_view> model_types;  // of the root of config.json
  // Fills tower->weights and the counts of tower->info.
  Status (*load)(const TowerContext& context, Tower* tower);
  // The tiles of `input`, whose storage has the size that its shape says. InvalidArgument.
  Status (*tiles)(const void* weights, const media::TowerInput& input,
                  std::vector<TowerTile>* tiles);
  void (*forward)(const void* weights, Backend& backend, const TowerStep& step);
};

extern const TowerFamily kSiglipShuffleTower;  // siglip.cc
extern const TowerFamily kGemma3Tower;         // siglip.cc
extern const TowerFamily kSiglip2Tower;        // siglip2.cc
extern const TowerFamily kQwenTower;           // qwen_vision.cc
extern const TowerFamily kGemma4VisionTower;   // gemma4_vision.cc
extern const TowerFamily kGemma4AudioTower;    // gemma4_audio.cc

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_TOWER_H_
