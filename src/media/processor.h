#ifndef CELLM_SRC_MEDIA_PROCESSOR_H_
#define CELLM_SRC_MEDIA_PROCESSOR_H_

// Processors: from pixels or samples to what a tower takes, as the checkpoint's own files say.
//
//   ReadProcessor(files)           settings, checked; once a model
//   PlanPicture(size), PlanSound   how large everything gets, before any memory is asked for
//   ProcessPicture, ProcessSound   the numbers (tower_input.h)
//   placeholders.h                 the text that stands for it in the prompt
//
// Each family is one file named after it: smolvlm.cc (also Idefics3), lfm2_vl.cc, qwen_vl.cc
// (Qwen3.5 and Qwen3-VL), gemma3.cc, gemma4.cc and gemma4_sound.cc. Pixels equal the published
// processors' to the last level in either arithmetic (resize.h).

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/allocator.h"
#include "base/status.h"
#include "media/picture.h"
#include "media/resize.h"
#include "media/tower_input.h"

namespace cellm::media {

enum class Family { kSmolVlm, kLfm2Vl, kQwenVl, kGemma3, kGemma4 };

struct Size {
  int32_t width = 0;
  int32_t height = 0;
  bool operator==(const Size&) const = default;
};

// How bytes become floats: (byte * rescale - mean) / std, or byte * rescale alone.
struct Scaling {
  double rescale = 1.0 / 255.0;
  double mean[3] = {0.5, 0.5, 0.5};
  double std[3] = {0.5, 0.5, 0.5};
  bool normalize = true;
};

struct SmolVlmSettings {
  int32_t longest_edge = 4 * 364;
  int32_t tile = 364;  // side of a tile
  bool split = true;
  int32_t patch = 32;
  int32_t shuffle = 2;
};
struct Lfm2VlSettings {
  int32_t patch = 16;
  int32_t downsample = 2;
  int32_t min_tokens = 64;
  int32_t max_tokens = 256;
  int32_t tile = 512;
  int32_t min_tiles = 2;
  int32_t max_tiles = 10;
  double tolerance = 2.0;  // how far a picture may pass max_tokens before it is cut into tiles
  bool split = true;
  bool thumbnail = true;
};
struct QwenVlSettings {
  int32_t patch = 16;
  int32_t merge = 2;
  int32_t min_pixels = 65536;
  int32_t max_pixels = 16777216;
};
struct Gemma3Settings {
  int32_t side = 896;
  int32_t patch = 14;
  int32_t tokens = 256;
};
struct Gemma4Settings {
  int32_t patch = 16;
  int32_t pool = 3;
  int32_t max_tokens = 280;
  // Sound.
  bool sound = false;
  int32_t rate_hz = 16000;
  int32_t mel_bins = 128;
  int32_t frame = 320;  // samples
  int32_t hop = 160;
  int32_t fft = 512;
  double low_hz = 0.0;
  double high_hz = 8000.0;
  double floor = 0.001;
  int32_t max_tokens_sound = 750;
};

// The settings of one checkpoint. Plain data: copied and shared freely; only the block of `family`
// has a meaning.
struct Processor {
  Family family = Family::kSmolVlm;
  Backend backend = Backend::kTorchvision;
  Filter filter = Filter::kBilinear;
  Scaling scaling;
  SmolVlmSettings smolvlm;
  Lfm2VlSettings lfm2_vl;
  QwenVlSettings qwen_vl;
  Gemma3Settings gemma3;
  Gemma4Settings gemma4;
};

// The texts of a checkpoint's files; empty where it has none. config.json is needed.
struct ProcessorFiles {
  std::string_view config;        // config.json
  std::string_view preprocessor;  // preprocessor_config.json
  std::string_view processor;     // processor_config.json
};
// What a caller may ask for in place of what the files say.
struct ProcessorOverrides {
  std::optional<Backend> backend;
  std::optional<bool> split;            // smolvlm, idefics3, lfm2_vl
  std::optional<int32_t> longest_edge;  // smolvlm, idefics3
};

// Reads and checks the settings. Without `overrides.backend` the backend is the one that the
// published processors choose: PIL for SmolVLM and Idefics3, torchvision for all others.
//   NotFound     no processor file
//   Corrupt      not JSON, or the files contradict each other or the model's configuration
//   Unsupported  a family that has no processor here, a key that we do not know, a value that we
//                do not follow: the message has file, key and value
//   InvalidArgument  an override that the family does not have
// Any thread.
Result<Processor> ReadProcessor(const ProcessorFiles& files, const ProcessorOverrides& overrides);

// How a picture of a given size will be cut.
struct PicturePlan {
  Size first;   // smolvlm: after the first of its resizes; elsewhere as `canvas`
  Size canvas;  // what the tiles are cut from; without tiles the whole picture as the tower sees it
  int32_t tile_rows = 1;
  int32_t tile_cols = 1;
  Size overview;             // the global picture or thumbnail that follows the tiles; zero: none
  int64_t feature_rows = 0;  // placeholders that the tower's features replace
  int64_t tower_values = 0;  // floats of the TowerInput

  bool tiled() const { return tile_rows * tile_cols > 1; }
};

// The plan for a picture of width x height. OutOfRange when the sides are not positive, beyond
// limits, too different for the family, or when the result would be larger than limits allow. Costs
// nothing. Any thread.
Result<PicturePlan> PlanPicture(const Processor& processor, Size picture);

// The picture as the tower takes it. Errors of PlanPicture(), and OutOfMemory. Working memory comes
// from `allocator`: at most twice the picture and the canvas together. Any thread.
Result<TowerInput> ProcessPicture(const Processor& processor, const PictureView& picture,
                                  Allocator& allocator);

struct SoundPlan {
  int64_t frames = 0;        // rows of the TowerInput
  int64_t valid_frames = 0;  // those that end inside of real samples
  int64_t feature_rows = 0;
};

// Samples a second that ProcessSound() expects; 0 when the model does not take sound.
int32_t SoundRate(const Processor& processor);

// The plan for a clip of `samples` at SoundRate().
//   Unsupported  the model does not take sound
//   OutOfRange   no samples, fewer than one frame, or more than the model takes at once
Result<SoundPlan> PlanSound(const Processor& processor, int64_t samples);

// Mel features of a clip. Errors of PlanSound(); InvalidArgument for a sample that is not a finite
// number; OutOfMemory. Any thread.
Result<TowerInput> ProcessSound(const Processor& processor, std::span<const float> samples,
                                Allocator& allocator);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_PROCESSOR_H_
