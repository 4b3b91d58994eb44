#ifndef CELLM_SRC_TENSOR_QUANTIZE_GROUP_H_
#define CELLM_SRC_TENSOR_QUANTIZE_GROUP_H_

// The search for the scale (and minimum) of one group of weights: the core of every encoder of the
// packed layout.
//
// A code stands for the level code - zero2 / 2, and a weight for level * scale + min. For a given
// set of levels the best scale and min are a weighted least-squares line through the weights; for a
// given scale and min the best level is the nearest. The search starts from several ranges (the
// widest value onto the last level, and tighter ones: a few clipped outliers cost less than coarse
// steps for all others), alternates the two a few times from each, and keeps the best that it saw.
// Scales and mins are rounded to their stored type before levels are chosen, so nothing is rounded
// twice.

#include <cstdint>

#include "tensor/packed.h"

namespace cellm {

// The levels that codes of a layout may stand for.
struct CodeRange {
  float lowest = 0, highest = 0;  // levels; step 1 between neighbours
  float zero = 0;                 // code = level + zero
  float offset = 0;               // 0.5: levels lie halfway between integers
  bool has_min = false;
  ScaleType scale_type = ScaleType::kF16;
};

// Of `layout`, with two rules of writers: 8 bits with zero2 256 leave code 0 unused (-127 .. 127),
// and 2 bits with zero2 2 are ternary (codes 0 1 2).
CodeRange RangeOf(const PackedLayout& layout);

// As the file stores it; beyond f16: clamped to 65504.
float RoundStored(ScaleType type, float value);

struct GroupFit {
  float scale = 0;
  float min = 0;  // 0 without has_min
};

// The level nearest to `place`, ties to even (of place - offset). Adding and taking away 1.5 * 2^23
// rounds a float below 2^22 in two instructions that vectorise everywhere; clamped first, since the
// place may be beyond any integer.
inline float LevelAt(const CodeRange& range, float place) {
  constexpr float kRounder = 12582912.0f;
  float level = place < range.lowest ? range.lowest : place;
  level = level > range.highest ? range.highest : level;
  return ((level - range.offset) + kRounder) - kRounder + range.offset;
}

// The level nearest to (value - min) / scale; with scale 0, of the least magnitude.
inline float NearestLevel(const CodeRange& range, const GroupFit& fit, float value) {
  const float inverse = fit.scale == 0 ? 0.0f : 1.0f / fit.scale;
  return LevelAt(range, (value - fit.min) * inverse);
}

inline float ValueOf(const GroupFit& fit, float level) { return level * fit.scale + fit.min; }

// The scale and min of `count` finite values. `importance` [count] weighs the squared errors; null:
// all equal. Cost: 20 to 60 passes over the group. Any thread.
GroupFit FitGroup(const CodeRange& range, const float* values, const float* importance,
                  int32_t count);

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_QUANTIZE_GROUP_H_
