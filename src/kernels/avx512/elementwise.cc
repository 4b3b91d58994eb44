// Elementwise functions, conversions and the largest element, 16 at a time.

#include "kernels/avx512/avx512.h"
#include "kernels/avx512/simd.h"

namespace cellm::avx512 {
namespace {

// y[i] = f(a[i]) or f(a[i], b[i]); the tail by masks, lanes past the end read as 0.
template <typename Function>
CELLM_INLINE void Map(const float* a, int64_t count, float* y, Function function) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) _mm512_storeu_ps(y + i, function(_mm512_loadu_ps(a + i)));
  if (i < count) {
    const __mmask16 mask = LaneMask(count - i);
    _mm512_mask_storeu_ps(y + i, mask, function(_mm512_maskz_loadu_ps(mask, a + i)));
  }
}

template <typename Function>
CELLM_INLINE void Map2(const float* a, const float* b, int64_t count, float* y, Function function) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(y + i, function(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i)));
  }
  if (i < count) {
    const __mmask16 mask = LaneMask(count - i);
    _mm512_mask_storeu_ps(
        y + i, mask,
        function(_mm512_maskz_loadu_ps(mask, a + i), _mm512_maskz_loadu_ps(mask, b + i)));
  }
}

}  // namespace

void exp_f32(const float* x, int64_t count, float* y) {
  Map(x, count, y, [](__m512 v) { return Exp(v); });
}

void tanh_f32(const float* x, int64_t count, float* y) {
  Map(x, count, y, [](__m512 v) { return Tanh(v); });
}

void silu_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](__m512 g, __m512 u) {
    const __m512 d = _mm512_add_ps(_mm512_set1_ps(1.0f), Exp(Negate(g)));
    return _mm512_mul_ps(_mm512_div_ps(g, d), u);
  });
}

void sigmoid_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](__m512 g, __m512 u) {
    const __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_mul_ps(_mm512_div_ps(one, _mm512_add_ps(one, Exp(Negate(g)))), u);
  });
}

void gelu_tanh_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](__m512 g, __m512 u) {
    const __m512 v = _mm512_fmadd_ps(_mm512_mul_ps(g, g), _mm512_set1_ps(kernels::kGeluCubic),
                                     _mm512_set1_ps(kernels::kGeluLinear));
    const __m512 d = _mm512_add_ps(_mm512_set1_ps(1.0f), Exp(_mm512_mul_ps(g, v)));
    return _mm512_mul_ps(_mm512_div_ps(g, d), u);
  });
}

void axpy_f32(float s, const float* x, int64_t count, float* y) {
  const __m512 factor = _mm512_set1_ps(s);
  Map2(x, y, count, y, [factor](__m512 a, __m512 b) { return _mm512_fmadd_ps(factor, a, b); });
}

void mul_add_f32(const float* a, const float* b, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    _mm512_storeu_ps(y + i, _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i),
                                            _mm512_loadu_ps(y + i)));
  }
  if (i == count) return;
  const __mmask16 mask = LaneMask(count - i);
  const __m512 sum =
      _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, a + i), _mm512_maskz_loadu_ps(mask, b + i),
                      _mm512_maskz_loadu_ps(mask, y + i));
  _mm512_mask_storeu_ps(y + i, mask, sum);
}

void f32_to_f16(const float* x, int64_t count, uint16_t* y) {
  int64_t i = 0;
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  for (; i + 16 <= count; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + i),
                        _mm512_cvtps_ph(_mm512_loadu_ps(x + i), kNearest));
  }
  if (i < count) {
    const __mmask16 mask = LaneMask(count - i);
    _mm256_mask_storeu_epi16(y + i, mask,
                             _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, x + i), kNearest));
  }
}

void f16_to_f32(const uint16_t* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) _mm512_storeu_ps(y + i, LoadHalves(x + i));
  if (i < count) {
    const __mmask16 mask = LaneMask(count - i);
    _mm512_mask_storeu_ps(y + i, mask, LoadHalves(x + i, mask));
  }
}

void bf16_to_f32(const uint16_t* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) _mm512_storeu_ps(y + i, LoadBrains(x + i));
  if (i < count) {
    const __mmask16 mask = LaneMask(count - i);
    _mm512_mask_storeu_ps(y + i, mask, LoadBrains(x + i, mask));
  }
}

int64_t argmax_f32(const float* x, int64_t count) {
  if (count <= 0) return -1;
  // First the largest value, then where it is first.
  __m512 best = _mm512_set1_ps(x[0]);
  __mmask16 unordered = 0;
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = LaneMask(count - i);
    const __m512 v = _mm512_mask_loadu_ps(best, mask, x + i);
    unordered = static_cast<__mmask16>(unordered | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q));
    best = _mm512_max_ps(best, v);
  }
  if (unordered != 0) return -1;
  const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(best));
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 mask = LaneMask(count - i);
    const __mmask16 equal =
        _mm512_mask_cmp_ps_mask(mask, _mm512_maskz_loadu_ps(mask, x + i), largest, _CMP_EQ_OQ);
    if (equal != 0) return i + __builtin_ctz(equal);
  }
  return -1;
}

}  // namespace cellm::avx512
