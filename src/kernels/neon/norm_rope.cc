// RMS norm, rotary positions and the quantisation of activations.

#include "kernels/neon/neon.h"
#include "kernels/neon/simd.h"

namespace cellm::neon {

void rmsnorm_f32(const float* x, const float* weight, float offset, float eps, int32_t cols,
                 float* y) {
  float32x4_t sums[4] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f), vdupq_n_f32(0.0f),
                         vdupq_n_f32(0.0f)};
  for (int32_t c = 0; c < cols; c += 16) {
#pragma GCC unroll 4
    for (int32_t i = 0; i < 4; ++i) {
      if (c + 4 * i >= cols) continue;
      const float32x4_t v = LoadPart(x + c + 4 * i, cols - c - 4 * i);
      sums[i] = vfmaq_f32(sums[i], v, v);
    }
  }
  const float mean = FoldLanes(sums[0], sums[1], sums[2], sums[3]) / static_cast<float>(cols);
  const float32x2_t root = vsqrt_f32(vdup_n_f32(mean + eps));
  const float32x4_t factor = vdupq_n_f32(1.0f / vget_lane_f32(root, 0));
  const float32x4_t shift = vdupq_n_f32(offset);
  for (int32_t c = 0; c < cols; c += 4) {
    float32x4_t v = vmulq_f32(LoadPart(x + c, cols - c), factor);
    if (weight != nullptr) v = vmulq_f32(v, vaddq_f32(LoadPart(weight + c, cols - c), shift));
    StorePart(y + c, cols - c, v);
  }
}

namespace {

// One pair, each product rounded (the file is built without contraction).
CELLM_INLINE void RotatePair(float* first, float* second, const float* cos_sin) {
  const float x1 = *first;
  const float x2 = *second;
  *first = x1 * cos_sin[0] - x2 * cos_sin[1];
  *second = x2 * cos_sin[0] + x1 * cos_sin[1];
}

// Halves apart: pairs (i, i + half).
void RopeHalves(float* v, int32_t half, const float* cos_sin) {
  int32_t i = 0;
  for (; i + 4 <= half; i += 4) {
    const float32x4x2_t t = vld2q_f32(cos_sin + 2 * i);
    const float32x4_t x1 = vld1q_f32(v + i);
    const float32x4_t x2 = vld1q_f32(v + i + half);
    vst1q_f32(v + i, vsubq_f32(vmulq_f32(x1, t.val[0]), vmulq_f32(x2, t.val[1])));
    vst1q_f32(v + i + half, vaddq_f32(vmulq_f32(x2, t.val[0]), vmulq_f32(x1, t.val[1])));
  }
  for (; i < half; ++i) RotatePair(v + i, v + i + half, cos_sin + 2 * i);
}

// Neighbours: pairs (2i, 2i + 1).
void RopePairs(float* v, int32_t half, const float* cos_sin) {
  int32_t i = 0;
  for (; i + 4 <= half; i += 4) {
    const float32x4x2_t t = vld2q_f32(cos_sin + 2 * i);
    float32x4x2_t x = vld2q_f32(v + 2 * i);
    const float32x4_t x1 = x.val[0];
    const float32x4_t x2 = x.val[1];
    x.val[0] = vsubq_f32(vmulq_f32(x1, t.val[0]), vmulq_f32(x2, t.val[1]));
    x.val[1] = vaddq_f32(vmulq_f32(x2, t.val[0]), vmulq_f32(x1, t.val[1]));
    vst2q_f32(v + 2 * i, x);
  }
  for (; i < half; ++i) RotatePair(v + 2 * i, v + 2 * i + 1, cos_sin + 2 * i);
}

}  // namespace

void rope_f32(float* x, int32_t heads, int32_t head_dim, int32_t rotary_dim, const float* cos_sin,
              int32_t interleaved) {
  for (int32_t head = 0; head < heads; ++head) {
    float* v = x + static_cast<int64_t>(head) * head_dim;
    if (interleaved != 0) {
      RopePairs(v, rotary_dim / 2, cos_sin);
    } else {
      RopeHalves(v, rotary_dim / 2, cos_sin);
    }
  }
}

void quantize_row_a8(const float* x, int32_t cols, int8_t* values, float* scales, int32_t* sums) {
  const float32x4_t infinity = vdupq_n_f32(__builtin_inff());
  const int32_t chunks = (cols + 31) / 32;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    const int32_t begin = chunk * 32;
    float32x4_t v[8];
    float32x4_t most = vdupq_n_f32(0.0f);
    uint32x4_t good = vdupq_n_u32(~0u);
    for (int32_t i = 0; i < 8; ++i) {
      const int32_t left = cols - begin - 4 * i;
      v[i] = left > 0 ? LoadPart(x + begin + 4 * i, left) : vdupq_n_f32(0.0f);
      const float32x4_t magnitude = vabsq_f32(v[i]);
      good = vandq_u32(good, vcltq_f32(magnitude, infinity));
      most = vmaxq_f32(most, magnitude);
    }
    float scale = __builtin_nanf("");
    float inverse = 0.0f;
    const bool finite = vminvq_u32(good) != 0;
    if (finite) {
      const float largest = vmaxvq_f32(most);
      const bool tiny = largest < kernels::kQuantTiny;
      scale = tiny ? 0.0f : largest / 127.0f;
      inverse = tiny ? 0.0f : 127.0f / largest;
    }
    scales[chunk] = scale;
    int32x4_t q[8];
    for (int32_t i = 0; i < 8; ++i) {
      q[i] = finite ? vcvtnq_s32_f32(vmulq_f32(v[i], vdupq_n_f32(inverse))) : vdupq_n_s32(0);
    }
    for (int32_t half = 0; half < 2; ++half) {
      const int32x4_t* h = q + 4 * half;
      sums[2 * chunk + half] = vaddvq_s32(vaddq_s32(vaddq_s32(h[0], h[1]), vaddq_s32(h[2], h[3])));
      const int16x8_t low = vcombine_s16(vmovn_s32(h[0]), vmovn_s32(h[1]));
      const int16x8_t high = vcombine_s16(vmovn_s32(h[2]), vmovn_s32(h[3]));
      vst1q_s8(values + begin + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    }
  }
}

}  // namespace cellm::neon
