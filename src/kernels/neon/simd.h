#ifndef CELLM_SRC_KERNELS_NEON_SIMD_H_
#define CELLM_SRC_KERNELS_NEON_SIMD_H_

// Helpers of the NEON tiers: tails through small buffers, the fixed fold, the shared polynomials of
// kernels/math.h in the same steps as kernels/scalar/simd.h.

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/math.h"

#define CELLM_INLINE inline __attribute__((always_inline, unused))

namespace cellm {
namespace {

// The first `count` of 4 elements, the rest zero; nothing past them is read or written.
CELLM_INLINE float32x4_t LoadPart(const float* p, int64_t count) {
  if (count >= 4) return vld1q_f32(p);
  float buffer[4] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return vld1q_f32(buffer);
}
CELLM_INLINE uint16x4_t LoadPart(const uint16_t* p, int64_t count) {
  if (count >= 4) return vld1_u16(p);
  uint16_t buffer[4] = {};
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return vld1_u16(buffer);
}
CELLM_INLINE void StorePart(float* p, int64_t count, float32x4_t v) {
  if (count >= 4) return vst1q_f32(p, v);
  float buffer[4];
  vst1q_f32(buffer, v);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}
CELLM_INLINE void StorePart(uint16_t* p, int64_t count, uint16x4_t v) {
  if (count >= 4) return vst1_u16(p, v);
  uint16_t buffer[4];
  vst1_u16(buffer, v);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
}

CELLM_INLINE float32x4_t WidenHalves(uint16x4_t bits) {
  return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}
CELLM_INLINE float32x4_t WidenBrains(uint16x4_t bits) {
  return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
}

// All ones in the lanes whose index is below `count`.
CELLM_INLINE uint32x4_t LaneMask(int64_t count) {
  const int32_t indices[4] = {0, 1, 2, 3};
  const int32_t clamped = count < 0 ? 0 : count > 4 ? 4 : static_cast<int32_t>(count);
  return vcltq_s32(vld1q_s32(indices), vdupq_n_s32(clamped));
}

// The fixed tree over 16 running sums.
CELLM_INLINE float FoldLanes(float32x4_t s0, float32x4_t s1, float32x4_t s2, float32x4_t s3) {
  const float32x4_t b = vaddq_f32(vaddq_f32(s0, s2), vaddq_f32(s1, s3));
  const float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
  return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}

// 2^n for integers n in [-126, 127].
CELLM_INLINE float32x4_t PowerOfTwo(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}

CELLM_INLINE float32x4_t Exp(float32x4_t x) {
  // fmax and fmin pass NaN on.
  x = vmaxq_f32(vdupq_n_f32(kernels::kExpLow), x);
  x = vminq_f32(vdupq_n_f32(kernels::kExpHigh), x);
  const float32x4_t magic = vdupq_n_f32(kernels::kRoundMagic);
  const float32x4_t n = vsubq_f32(vfmaq_f32(magic, x, vdupq_n_f32(kernels::kLog2E)), magic);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-kernels::kLn2High));
  r = vfmaq_f32(r, n, vdupq_n_f32(-kernels::kLn2Low));
  float32x4_t p = vdupq_n_f32(kernels::kExp[4]);
  p = vfmaq_f32(vdupq_n_f32(kernels::kExp[3]), p, r);
  p = vfmaq_f32(vdupq_n_f32(kernels::kExp[2]), p, r);
  p = vfmaq_f32(vdupq_n_f32(kernels::kExp[1]), p, r);
  p = vfmaq_f32(vdupq_n_f32(kernels::kExp[0]), p, r);
  p = vfmaq_f32(r, p, vmulq_f32(r, r));
  p = vaddq_f32(p, vdupq_n_f32(1.0f));
  const int32x4_t exponent = vcvtq_s32_f32(n);
  const int32x4_t half = vshrq_n_s32(exponent, 1);
  return vmulq_f32(vmulq_f32(p, PowerOfTwo(half)), PowerOfTwo(vsubq_s32(exponent, half)));
}

CELLM_INLINE float32x4_t Tanh(float32x4_t x) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  const float32x4_t a = vabsq_f32(x);
  const float32x4_t z = vmulq_f32(x, x);
  float32x4_t p = vdupq_n_f32(kernels::kTanh[4]);
  p = vfmaq_f32(vdupq_n_f32(kernels::kTanh[3]), p, z);
  p = vfmaq_f32(vdupq_n_f32(kernels::kTanh[2]), p, z);
  p = vfmaq_f32(vdupq_n_f32(kernels::kTanh[1]), p, z);
  p = vfmaq_f32(vdupq_n_f32(kernels::kTanh[0]), p, z);
  const float32x4_t small = vfmaq_f32(x, vmulq_f32(p, z), x);
  const float32x4_t e = Exp(vmulq_f32(vdupq_n_f32(2.0f), a));
  const float32x4_t m = vsubq_f32(one, vdivq_f32(vdupq_n_f32(2.0f), vaddq_f32(e, one)));
  const float32x4_t large = vbslq_f32(vdupq_n_u32(0x80000000u), x, m);
  return vbslq_f32(vcltq_f32(a, vdupq_n_f32(kernels::kTanhSmall)), small, large);
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_NEON_SIMD_H_
