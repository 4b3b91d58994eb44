#ifndef CELLM_SRC_KERNELS_AVX512_PAIR_DOT_H_
#define CELLM_SRC_KERNELS_AVX512_PAIR_DOT_H_

// Four unsigned x signed byte products into each lane, exact, without VNNI.

#include "kernels/avx512/simd.h"

namespace cellm {
namespace {

struct PairDot {
  // maddubs saturates at 16 bits: codes below 64 are safe (2 * 63 * 127), bytes go as two nibbles.
  template <int kBits>
  static CELLM_INLINE __m512i Add(__m512i sums, __m512i codes, __m512i x) {
    const __m512i ones = _mm512_set1_epi16(1);
    if constexpr (kBits < 8) {
      return _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_maddubs_epi16(codes, x), ones));
    } else {
      const __m512i mask = _mm512_set1_epi8(15);
      const __m512i low = _mm512_and_si512(codes, mask);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask);
      sums = _mm512_add_epi32(sums, _mm512_madd_epi16(_mm512_maddubs_epi16(low, x), ones));
      return _mm512_add_epi32(
          sums, _mm512_madd_epi16(_mm512_maddubs_epi16(high, x), _mm512_set1_epi16(16)));
    }
  }
};

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_PAIR_DOT_H_
