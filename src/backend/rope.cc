#include "backend/rope.h"

#include <cmath>

namespace cellm {

void RopeFrequencies(const RopeSpec& spec, int32_t planned_total_tokens, float* inv_freq) {
  const int32_t half = spec.rotary_dim / 2;
  if (spec.dynamic_from > 0 && planned_total_tokens > spec.dynamic_from) {
    const double r = spec.rotary_dim;
    const double growth =
        spec.dynamic_factor * planned_total_tokens / spec.dynamic_from - (spec.dynamic_factor - 1);
    const double base = spec.base * std::pow(growth, r / (r - 2));
    for (int32_t j = 0; j < half; ++j) {
      inv_freq[j] = static_cast<float>(1.0 / std::pow(base, 2.0 * j / r));
    }
    return;
  }
  const bool use_long = !spec.long_inv_freq.empty() && planned_total_tokens > spec.long_from;
  const std::vector<float>& chosen = use_long ? spec.long_inv_freq : spec.inv_freq;
  for (int32_t j = 0; j < half; ++j) inv_freq[j] = chosen[static_cast<size_t>(j)];
}

namespace {

void RopePair(float inv_freq, float attention_factor, int32_t position, float* cos_sin) {
  const double angle = static_cast<double>(static_cast<float>(position) * inv_freq);
  cos_sin[0] = static_cast<float>(std::cos(angle)) * attention_factor;
  cos_sin[1] = static_cast<float>(std::sin(angle)) * attention_factor;
}

}  // namespace

void RopeRow(const float* inv_freq, int32_t half, float attention_factor, int32_t position,
             float* cos_sin) {
  for (int32_t j = 0; j < half; ++j) {
    RopePair(inv_freq[j], attention_factor, position, cos_sin + 2 * j);
  }
}

void RopeRow(const float* inv_freq, const uint8_t* axes, int32_t half, float attention_factor,
             const int32_t* positions, float* cos_sin) {
  for (int32_t j = 0; j < half; ++j) {
    RopePair(inv_freq[j], attention_factor, positions[axes[j]], cos_sin + 2 * j);
  }
}

}  // namespace cellm
