#ifndef CELLM_SRC_KERNELS_SCALAR_SIMD_H_
#define CELLM_SRC_KERNELS_SCALAR_SIMD_H_

// Helpers of the scalar tier: the shared polynomials (kernels/math.h) and the fixed fold.

#include <string.h>

#include "kernels/math.h"
#include "tensor/half.h"

namespace cellm::scalar {
namespace {

// House rule: a fused multiply-add is always written out.
[[maybe_unused]] inline float Fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// 2^n for n in [-126, 127].
[[maybe_unused]] inline float PowerOfTwo(int32_t n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

[[maybe_unused]] inline float Exp(float x) {
  if (x != x) return x;
  x = x < kernels::kExpLow ? kernels::kExpLow : x;
  x = x > kernels::kExpHigh ? kernels::kExpHigh : x;
  const float n = Fma(x, kernels::kLog2E, kernels::kRoundMagic) - kernels::kRoundMagic;
  float r = Fma(n, -kernels::kLn2High, x);
  r = Fma(n, -kernels::kLn2Low, r);
  float p = kernels::kExp[4];
  for (int i = 3; i >= 0; --i) p = Fma(p, r, kernels::kExp[i]);
  p = Fma(p, r * r, r);
  p = p + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n);
  const int32_t half = exponent >> 1;
  return (p * PowerOfTwo(half)) * PowerOfTwo(exponent - half);
}

[[maybe_unused]] inline float Tanh(float x) {
  const float a = __builtin_fabsf(x);
  if (a < kernels::kTanhSmall) {
    const float z = x * x;
    float p = kernels::kTanh[4];
    for (int i = 3; i >= 0; --i) p = Fma(p, z, kernels::kTanh[i]);
    return Fma(p * z, x, x);
  }
  const float magnitude = 1.0f - 2.0f / (Exp(2.0f * a) + 1.0f);
  return __builtin_copysignf(magnitude, x);
}

// The fixed tree of kernel_list.inc over 16 running sums.
[[maybe_unused]] inline float FoldLanes(const float s[16]) {
  float a[8];
  float b[4];
  float c[2];
  for (int i = 0; i < 8; ++i) a[i] = s[i] + s[i + 8];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  for (int i = 0; i < 2; ++i) c[i] = b[i] + b[i + 2];
  return c[0] + c[1];
}

}  // namespace
}  // namespace cellm::scalar

#endif  // CELLM_SRC_KERNELS_SCALAR_SIMD_H_
