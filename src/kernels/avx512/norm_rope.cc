// RMS norm, rotary positions and the quantisation of activations.

#include "kernels/avx512/avx512.h"
#include "kernels/avx512/simd.h"

namespace cellm::avx512 {

void rmsnorm_f32(const float* x, const float* weight, float offset, float eps, int32_t cols,
                 float* y) {
  __m512 sums = _mm512_setzero_ps();
  for (int32_t c = 0; c < cols; c += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(LaneMask(cols - c), x + c);
    sums = _mm512_fmadd_ps(v, v, sums);
  }
  const float mean = FoldLanes(sums) / static_cast<float>(cols);
  const __m512 factor = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  const __m512 shift = _mm512_set1_ps(offset);
  for (int32_t c = 0; c < cols; c += 16) {
    const __mmask16 mask = LaneMask(cols - c);
    __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + c), factor);
    if (weight != nullptr) {
      v = _mm512_mul_ps(v, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, weight + c), shift));
    }
    _mm512_mask_storeu_ps(y + c, mask, v);
  }
}

namespace {

// Halves apart: pairs (i, i + half).
void RopeHalves(float* v, int32_t half, const float* cos_sin) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  for (int32_t i = 0; i < half; i += 16) {
    const int32_t count = half - i < 16 ? half - i : 16;
    const __mmask16 mask = LaneMask(count);
    const __m512 t0 = _mm512_maskz_loadu_ps(LaneMask(2 * count), cos_sin + 2 * i);
    const __m512 t1 = 2 * count > 16
                          ? _mm512_maskz_loadu_ps(LaneMask(2 * count - 16), cos_sin + 2 * i + 16)
                          : _mm512_setzero_ps();
    const __m512 c = _mm512_permutex2var_ps(t0, even, t1);
    const __m512 s = _mm512_permutex2var_ps(t0, odd, t1);
    const __m512 x1 = _mm512_maskz_loadu_ps(mask, v + i);
    const __m512 x2 = _mm512_maskz_loadu_ps(mask, v + i + half);
    _mm512_mask_storeu_ps(v + i, mask, _mm512_sub_ps(_mm512_mul_ps(x1, c), _mm512_mul_ps(x2, s)));
    _mm512_mask_storeu_ps(v + i + half, mask,
                          _mm512_add_ps(_mm512_mul_ps(x2, c), _mm512_mul_ps(x1, s)));
  }
}

// Neighbours: pairs (2i, 2i + 1), eight pairs a vector.
void RopePairs(float* v, int32_t half, const float* cos_sin) {
  for (int32_t i = 0; i < 2 * half; i += 16) {
    const __mmask16 mask = LaneMask(2 * half - i);
    const __m512 x = _mm512_maskz_loadu_ps(mask, v + i);
    const __m512 t = _mm512_maskz_loadu_ps(mask, cos_sin + i);
    const __m512 own = _mm512_mul_ps(x, _mm512_moveldup_ps(t));
    const __m512 other = _mm512_mul_ps(_mm512_permute_ps(x, 0xB1), _mm512_movehdup_ps(t));
    // Even lanes subtract, odd lanes add.
    const __m512 sum = _mm512_mask_sub_ps(_mm512_add_ps(own, other), 0x5555, own, other);
    _mm512_mask_storeu_ps(v + i, mask, sum);
  }
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
  const __m512 infinity = _mm512_set1_ps(__builtin_inff());
  const int32_t chunks = (cols + 31) / 32;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    const int32_t left = cols - chunk * 32;
    const __m512 x0 = _mm512_maskz_loadu_ps(LaneMask(left), x + chunk * 32);
    const __m512 x1 = left > 16 ? _mm512_maskz_loadu_ps(LaneMask(left - 16), x + chunk * 32 + 16)
                                : _mm512_setzero_ps();
    const __m512 a0 = _mm512_abs_ps(x0);
    const __m512 a1 = _mm512_abs_ps(x1);
    const __mmask16 bad = static_cast<__mmask16>(_mm512_cmp_ps_mask(a0, infinity, _CMP_NLT_UQ) |
                                                 _mm512_cmp_ps_mask(a1, infinity, _CMP_NLT_UQ));
    float scale = __builtin_nanf("");
    float inverse = 0.0f;
    if (bad == 0) {
      const float largest = _mm512_reduce_max_ps(_mm512_max_ps(a0, a1));
      const bool tiny = largest < kernels::kQuantTiny;
      scale = tiny ? 0.0f : largest / 127.0f;
      inverse = tiny ? 0.0f : 127.0f / largest;
    }
    scales[chunk] = scale;
    const __m512 factor = _mm512_set1_ps(inverse);
    // Not-finite inputs times 0 are NaN, which would convert to the lowest integer: masked away.
    const __mmask16 keep = bad == 0 ? static_cast<__mmask16>(0xFFFF) : static_cast<__mmask16>(0);
    const __m512i i0 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x0, factor));
    const __m512i i1 = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(x1, factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + chunk * 32), _mm512_cvtepi32_epi8(i0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + chunk * 32 + 16),
                     _mm512_cvtepi32_epi8(i1));
    sums[2 * chunk] = _mm512_reduce_add_epi32(i0);
    sums[2 * chunk + 1] = _mm512_reduce_add_epi32(i1);
  }
}

}  // namespace cellm::avx512
