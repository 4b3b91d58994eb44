// RMS norm and rotary positions.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {

void rmsnorm_f32(const float* x, const float* weight, float offset, float eps, int32_t cols,
                 float* y) {
  float sums[16] = {};
  for (int32_t c = 0; c < cols; ++c) sums[c % 16] = Fma(x[c], x[c], sums[c % 16]);
  const float mean = FoldLanes(sums) / static_cast<float>(cols);
  const float factor = 1.0f / __builtin_sqrtf(mean + eps);
  for (int32_t c = 0; c < cols; ++c) {
    const float scaled = x[c] * factor;
    y[c] = weight == nullptr ? scaled : scaled * (weight[c] + offset);
  }
}

void rope_f32(float* x, int32_t heads, int32_t head_dim, int32_t rotary_dim, const float* cos_sin,
              int32_t interleaved) {
  const int32_t half = rotary_dim / 2;
  for (int32_t head = 0; head < heads; ++head) {
    float* v = x + static_cast<int64_t>(head) * head_dim;
    for (int32_t i = 0; i < half; ++i) {
      const float c = cos_sin[2 * i];
      const float s = cos_sin[2 * i + 1];
      const int32_t first = interleaved != 0 ? 2 * i : i;
      const int32_t second = interleaved != 0 ? 2 * i + 1 : i + half;
      const float x1 = v[first];
      const float x2 = v[second];
      v[first] = x1 * c - x2 * s;
      v[second] = x2 * c + x1 * s;
    }
  }
}

}  // namespace cellm::scalar
