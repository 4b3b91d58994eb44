#ifndef CELLM_SRC_BACKEND_ROPE_H_
#define CELLM_SRC_BACKEND_ROPE_H_

// Rotary position embedding: the frequencies of a model, and which of them a sequence uses.
//
// All kinds of scaling come down to one list of frequencies and one factor on cos and sin; two
// kinds choose the list by the planned length of the sequence. model/rope_config.h builds this from
// a configuration.

#include <cstdint>
#include <vector>

namespace cellm {

struct RopeSpec {
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;       // channels [0, rotary_dim) of a head are rotated; even
  bool interleaved = false;     // pairs (2i, 2i+1) instead of (i, i + rotary_dim / 2)
  std::vector<float> inv_freq;  // [rotary_dim / 2]; a zero leaves its pair alone
  // Which of StepContext::rope_positions a pair turns by, [rotary_dim / 2]; empty: all by the
  // first.
  std::vector<uint8_t> axes;
  float attention_factor = 1.0f;  // multiplies cos and sin
  // longrope: used instead of inv_freq when planned_total_tokens > long_from. Empty elsewhere.
  std::vector<float> long_inv_freq;
  int32_t long_from = 0;
  // dynamic NTK: when planned_total_tokens n > dynamic_from (> 0),
  //   base' = base * (factor * n / dynamic_from - (factor - 1)) ^ (rotary_dim / (rotary_dim - 2)).
  int32_t dynamic_from = 0;
  double dynamic_factor = 1.0;
  double base = 10000.0;

  bool exists() const { return rotary_dim > 0; }
};

// The frequencies for a sequence planned to be `planned_total_tokens` long, into
// inv_freq[rotary_dim / 2].
void RopeFrequencies(const RopeSpec& spec, int32_t planned_total_tokens, float* inv_freq);

// cos and sin for one position into cos_sin[rotary_dim / 2][2], as the kernels take them: the angle
// is the float product position * inv_freq, its cos and sin are correctly rounded from double, then
// multiplied by attention_factor in float.
void RopeRow(const float* inv_freq, int32_t half, float attention_factor, int32_t position,
             float* cos_sin);
// The same with a position for each axis: pair j turns by positions[axes[j]].
void RopeRow(const float* inv_freq, const uint8_t* axes, int32_t half, float attention_factor,
             const int32_t* positions, float* cos_sin);

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_ROPE_H_
