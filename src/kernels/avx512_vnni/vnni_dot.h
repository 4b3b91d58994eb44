#ifndef CELLM_SRC_KERNELS_AVX512_VNNI_VNNI_DOT_H_
#define CELLM_SRC_KERNELS_AVX512_VNNI_VNNI_DOT_H_

// Four unsigned x signed byte products into each lane, exact, by vpdpbusd.

#include "kernels/avx512/simd.h"

namespace cellm {
namespace {

struct VnniDot {
  template <int kBits>
  static CELLM_INLINE __m512i Add(__m512i sums, __m512i codes, __m512i x) {
    return _mm512_dpbusd_epi32(sums, codes, x);
  }
};

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_VNNI_VNNI_DOT_H_
