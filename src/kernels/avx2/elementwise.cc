// Elementwise functions, conversions and the largest element, 8 at a time.

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace cellm::avx2 {
namespace {

// y[i] = f(a[i]) or f(a[i], b[i]); the tail by masks, lanes past the end read as 0.
template <typename Function>
CELLM_INLINE void Map(const float* a, int64_t count, float* y, Function function) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, function(_mm256_loadu_ps(a + i)));
  if (i < count) StorePart(y + i, count - i, function(LoadPart(a + i, count - i)));
}

template <typename Function>
CELLM_INLINE void Map2(const float* a, const float* b, int64_t count, float* y, Function function) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(y + i, function(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i)));
  }
  if (i < count) {
    StorePart(y + i, count - i, function(LoadPart(a + i, count - i), LoadPart(b + i, count - i)));
  }
}

}  // namespace

void exp_f32(const float* x, int64_t count, float* y) {
  Map(x, count, y, [](__m256 v) { return Exp(v); });
}

void tanh_f32(const float* x, int64_t count, float* y) {
  Map(x, count, y, [](__m256 v) { return Tanh(v); });
}

void silu_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](__m256 g, __m256 u) {
    const __m256 d = _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(Negate(g)));
    return _mm256_mul_ps(_mm256_div_ps(g, d), u);
  });
}

void sigmoid_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](__m256 g, __m256 u) {
    const __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_mul_ps(_mm256_div_ps(one, _mm256_add_ps(one, Exp(Negate(g)))), u);
  });
}

void gelu_tanh_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  Map2(gate, up, count, y, [](__m256 g, __m256 u) {
    const __m256 v = _mm256_fmadd_ps(_mm256_mul_ps(g, g), _mm256_set1_ps(kernels::kGeluCubic),
                                     _mm256_set1_ps(kernels::kGeluLinear));
    const __m256 d = _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(_mm256_mul_ps(g, v)));
    return _mm256_mul_ps(_mm256_div_ps(g, d), u);
  });
}

void axpy_f32(float s, const float* x, int64_t count, float* y) {
  const __m256 factor = _mm256_set1_ps(s);
  Map2(x, y, count, y, [factor](__m256 a, __m256 b) { return _mm256_fmadd_ps(factor, a, b); });
}

void mul_add_f32(const float* a, const float* b, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(y + i, _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i),
                                            _mm256_loadu_ps(y + i)));
  }
  const int64_t left = count - i;
  if (left == 0) return;
  StorePart(y + i, left,
            _mm256_fmadd_ps(LoadPart(a + i, left), LoadPart(b + i, left), LoadPart(y + i, left)));
}

void f32_to_f16(const float* x, int64_t count, uint16_t* y) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), kNearest));
  }
  if (i < count) {
    StorePart16(y + i, count - i, _mm256_cvtps_ph(LoadPart(x + i, count - i), kNearest));
  }
}

void f16_to_f32(const uint16_t* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(Load16(x + i)));
  if (i < count) StorePart(y + i, count - i, _mm256_cvtph_ps(LoadPart16(x + i, count - i)));
}

void bf16_to_f32(const uint16_t* x, int64_t count, float* y) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, WidenBrains(Load16(x + i)));
  if (i < count) StorePart(y + i, count - i, WidenBrains(LoadPart16(x + i, count - i)));
}

int64_t argmax_f32(const float* x, int64_t count) {
  if (count <= 0) return -1;
  // First the largest value, then where it is first.
  const __m256 first = _mm256_set1_ps(x[0]);
  __m256 best = first;
  __m256 unordered = _mm256_setzero_ps();
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 mask = _mm256_castsi256_ps(LaneMask(count - i));
    const __m256 v = _mm256_blendv_ps(first, LoadPart(x + i, count - i), mask);
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    best = _mm256_max_ps(best, v);
  }
  if (_mm256_movemask_ps(unordered) != 0) return -1;
  const __m256 largest = _mm256_set1_ps(MaxOf(best));
  for (int64_t i = 0; i < count; i += 8) {
    const __m256 mask = _mm256_castsi256_ps(LaneMask(count - i));
    const __m256 equal = _mm256_cmp_ps(LoadPart(x + i, count - i), largest, _CMP_EQ_OQ);
    const int bits = _mm256_movemask_ps(_mm256_and_ps(equal, mask));
    if (bits != 0) return i + __builtin_ctz(static_cast<unsigned>(bits));
  }
  return -1;
}

}  // namespace cellm::avx2
