// RMS norm, rotary positions and the quantisation of activations.

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace cellm::avx2 {

void rmsnorm_f32(const float* x, const float* weight, float offset, float eps, int32_t cols,
                 float* y) {
  __m256 low = _mm256_setzero_ps();
  __m256 high = _mm256_setzero_ps();
  for (int32_t c = 0; c < cols; c += 16) {
    const __m256 a = LoadPart(x + c, cols - c);
    low = _mm256_fmadd_ps(a, a, low);
    if (cols - c > 8) {
      const __m256 b = LoadPart(x + c + 8, cols - c - 8);
      high = _mm256_fmadd_ps(b, b, high);
    }
  }
  const float mean = FoldLanes(low, high) / static_cast<float>(cols);
  const __m256 factor = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  const __m256 shift = _mm256_set1_ps(offset);
  for (int32_t c = 0; c < cols; c += 8) {
    __m256 v = _mm256_mul_ps(LoadPart(x + c, cols - c), factor);
    if (weight != nullptr) {
      v = _mm256_mul_ps(v, _mm256_add_ps(LoadPart(weight + c, cols - c), shift));
    }
    StorePart(y + c, cols - c, v);
  }
}

namespace {

// Halves apart: pairs (i, i + half).
void RopeHalves(float* v, int32_t half, const float* cos_sin) {
  const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
  for (int32_t i = 0; i < half; i += 8) {
    const int32_t count = half - i;
    const __m256 t0 = LoadPart(cos_sin + 2 * i, 2 * count);
    const __m256 t1 =
        count > 4 ? LoadPart(cos_sin + 2 * i + 8, 2 * count - 8) : _mm256_setzero_ps();
    // Neighbouring pairs apart: shuffle within halves, then put the quarters in order.
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(t0, t1, 0x88), order);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_shuffle_ps(t0, t1, 0xDD), order);
    const __m256 x1 = LoadPart(v + i, count);
    const __m256 x2 = LoadPart(v + i + half, count);
    StorePart(v + i, count, _mm256_sub_ps(_mm256_mul_ps(x1, c), _mm256_mul_ps(x2, s)));
    StorePart(v + i + half, count, _mm256_add_ps(_mm256_mul_ps(x2, c), _mm256_mul_ps(x1, s)));
  }
}

// Neighbours: pairs (2i, 2i + 1), four pairs a vector.
void RopePairs(float* v, int32_t half, const float* cos_sin) {
  for (int32_t i = 0; i < 2 * half; i += 8) {
    const int32_t count = 2 * half - i;
    const __m256 x = LoadPart(v + i, count);
    const __m256 t = LoadPart(cos_sin + i, count);
    const __m256 own = _mm256_mul_ps(x, _mm256_moveldup_ps(t));
    const __m256 other = _mm256_mul_ps(_mm256_permute_ps(x, 0xB1), _mm256_movehdup_ps(t));
    StorePart(v + i, count, _mm256_addsub_ps(own, other));
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
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  const int32_t chunks = (cols + 31) / 32;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    const int32_t begin = chunk * 32;
    __m256 v[4];
    __m256 most = _mm256_setzero_ps();
    __m256 bad = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      const int32_t left = cols - begin - 8 * i;
      v[i] = left > 0 ? LoadPart(x + begin + 8 * i, left) : _mm256_setzero_ps();
      const __m256 magnitude = _mm256_andnot_ps(sign, v[i]);
      bad = _mm256_or_ps(bad, _mm256_cmp_ps(magnitude, infinity, _CMP_NLT_UQ));
      most = _mm256_max_ps(most, magnitude);
    }
    float scale = __builtin_nanf("");
    float inverse = 0.0f;
    const bool finite = _mm256_movemask_ps(bad) == 0;
    if (finite) {
      const float largest = MaxOf(most);
      const bool tiny = largest < kernels::kQuantTiny;
      scale = tiny ? 0.0f : largest / 127.0f;
      inverse = tiny ? 0.0f : 127.0f / largest;
    }
    scales[chunk] = scale;
    __m256i q[4];
    for (int i = 0; i < 4; ++i) {
      // Not-finite inputs times 0 are NaN, which would convert to the lowest integer.
      q[i] = finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)))
                    : _mm256_setzero_si256();
    }
    sums[2 * chunk] = SumOf(_mm256_add_epi32(q[0], q[1]));
    sums[2 * chunk + 1] = SumOf(_mm256_add_epi32(q[2], q[3]));
    // Packing works within 128-bit halves; the last step puts the quarters in order.
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + begin),
                        _mm256_permutevar8x32_epi32(bytes, order));
  }
}

}  // namespace cellm::avx2
