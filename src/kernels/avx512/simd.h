#ifndef CELLM_SRC_KERNELS_AVX512_SIMD_H_
#define CELLM_SRC_KERNELS_AVX512_SIMD_H_

// Helpers of the 512-bit tiers: tails by masks, the fixed fold, the shared polynomials of
// kernels/math.h in the same steps as kernels/scalar/simd.h.

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/math.h"

#define CELLM_INLINE inline __attribute__((always_inline, unused))

namespace cellm {
namespace {

// The lowest `count` of 16 lanes; all when count >= 16.
CELLM_INLINE __mmask16 LaneMask(int64_t count) {
  return count >= 16 ? static_cast<__mmask16>(0xFFFF)
                     : static_cast<__mmask16>((1u << static_cast<uint32_t>(count)) - 1u);
}

// The fixed tree over 16 running sums.
CELLM_INLINE float FoldLanes(__m512 s) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  const __m128 d = _mm_add_ss(c, _mm_movehdup_ps(c));
  return _mm_cvtss_f32(d);
}

// 16 halves, exactly.
CELLM_INLINE __m512 LoadHalves(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
CELLM_INLINE __m512 LoadHalves(const uint16_t* p, __mmask16 mask) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}
CELLM_INLINE __m512 LoadBrains(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
CELLM_INLINE __m512 LoadBrains(const uint16_t* p, __mmask16 mask) {
  const __m256i bits = _mm256_maskz_loadu_epi16(mask, p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

CELLM_INLINE __m512 Exp(__m512 x) {
  // With these operand orders a NaN in x passes through.
  x = _mm512_max_ps(_mm512_set1_ps(kernels::kExpLow), x);
  x = _mm512_min_ps(_mm512_set1_ps(kernels::kExpHigh), x);
  const __m512 magic = _mm512_set1_ps(kernels::kRoundMagic);
  const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(x, _mm512_set1_ps(kernels::kLog2E), magic), magic);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kernels::kLn2High), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-kernels::kLn2Low), r);
  __m512 p = _mm512_set1_ps(kernels::kExp[4]);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kernels::kExp[3]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kernels::kExp[2]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kernels::kExp[1]));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kernels::kExp[0]));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
  p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);  // rounds once, as the two steps of the definition do
}

CELLM_INLINE __m512 Tanh(__m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_andnot_ps(sign, x);
  const __m512 z = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(kernels::kTanh[4]);
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kernels::kTanh[3]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kernels::kTanh[2]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kernels::kTanh[1]));
  p = _mm512_fmadd_ps(p, z, _mm512_set1_ps(kernels::kTanh[0]));
  const __m512 small = _mm512_fmadd_ps(_mm512_mul_ps(p, z), x, x);
  const __m512 e = Exp(_mm512_mul_ps(_mm512_set1_ps(2.0f), a));
  const __m512 m = _mm512_sub_ps(one, _mm512_div_ps(_mm512_set1_ps(2.0f), _mm512_add_ps(e, one)));
  const __m512 large = _mm512_or_ps(_mm512_andnot_ps(sign, m), _mm512_and_ps(sign, x));
  const __mmask16 is_small = _mm512_cmp_ps_mask(a, _mm512_set1_ps(kernels::kTanhSmall), _CMP_LT_OQ);
  return _mm512_mask_blend_ps(is_small, large, small);
}

CELLM_INLINE __m512 Negate(__m512 x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_SIMD_H_
