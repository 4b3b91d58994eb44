#ifndef CELLM_SRC_KERNELS_AVX2_SIMD_H_
#define CELLM_SRC_KERNELS_AVX2_SIMD_H_

// Helpers of the AVX2 tier: tails by masks, the fixed fold, the shared polynomials of
// kernels/math.h in the same steps as kernels/scalar/simd.h.

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/math.h"

#define CELLM_INLINE inline __attribute__((always_inline, unused))

namespace cellm {
namespace {

// -1 in the lowest `count` of 8 lanes; none when count <= 0, all when count >= 8.
CELLM_INLINE __m256i LaneMask(int64_t count) {
  const int32_t clamped = count < 0 ? 0 : count > 8 ? 8 : static_cast<int32_t>(count);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(clamped), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

CELLM_INLINE __m256 LoadPart(const float* p, int64_t count) {
  return _mm256_maskload_ps(p, LaneMask(count));
}
CELLM_INLINE void StorePart(float* p, int64_t count, __m256 v) {
  _mm256_maskstore_ps(p, LaneMask(count), v);
}

// The first `count` of 8 two-byte elements, the rest zero; nothing past them is read.
CELLM_INLINE __m128i LoadPart16(const uint16_t* p, int64_t count) {
  alignas(16) uint16_t buffer[8] = {};
  for (int64_t i = 0; i < count && i < 8; ++i) buffer[i] = p[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(buffer));
}
CELLM_INLINE void StorePart16(uint16_t* p, int64_t count, __m128i v) {
  alignas(16) uint16_t buffer[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(buffer), v);
  for (int64_t i = 0; i < count && i < 8; ++i) p[i] = buffer[i];
}

CELLM_INLINE __m256 WidenBrains(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
CELLM_INLINE __m128i Load16(const uint16_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// The fixed tree over 16 running sums, `low` being lanes 0..7.
CELLM_INLINE float FoldLanes(__m256 low, __m256 high) {
  const __m256 a = _mm256_add_ps(low, high);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

CELLM_INLINE float MaxOf(__m256 v) {
  const __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 b = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

CELLM_INLINE int32_t SumOf(__m256i v) {
  const __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  const __m128i b = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}

// 2^n for integers n in [-126, 127].
CELLM_INLINE __m256 PowerOfTwo(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

CELLM_INLINE __m256 Exp(__m256 x) {
  // With these operand orders a NaN in x passes through.
  x = _mm256_max_ps(_mm256_set1_ps(kernels::kExpLow), x);
  x = _mm256_min_ps(_mm256_set1_ps(kernels::kExpHigh), x);
  const __m256 magic = _mm256_set1_ps(kernels::kRoundMagic);
  const __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(x, _mm256_set1_ps(kernels::kLog2E), magic), magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kernels::kLn2High), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-kernels::kLn2Low), r);
  __m256 p = _mm256_set1_ps(kernels::kExp[4]);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kernels::kExp[3]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kernels::kExp[2]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kernels::kExp[1]));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kernels::kExp[0]));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
  p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  return _mm256_mul_ps(_mm256_mul_ps(p, PowerOfTwo(half)),
                       PowerOfTwo(_mm256_sub_epi32(exponent, half)));
}

CELLM_INLINE __m256 Tanh(__m256 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_andnot_ps(sign, x);
  const __m256 z = _mm256_mul_ps(x, x);
  __m256 p = _mm256_set1_ps(kernels::kTanh[4]);
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kernels::kTanh[3]));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kernels::kTanh[2]));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kernels::kTanh[1]));
  p = _mm256_fmadd_ps(p, z, _mm256_set1_ps(kernels::kTanh[0]));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(p, z), x, x);
  const __m256 e = Exp(_mm256_mul_ps(_mm256_set1_ps(2.0f), a));
  const __m256 m = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), _mm256_add_ps(e, one)));
  const __m256 large = _mm256_or_ps(_mm256_andnot_ps(sign, m), _mm256_and_ps(sign, x));
  const __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(kernels::kTanhSmall), _CMP_LT_OQ);
  return _mm256_blendv_ps(large, small, is_small);
}

CELLM_INLINE __m256 Negate(__m256 x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX2_SIMD_H_
