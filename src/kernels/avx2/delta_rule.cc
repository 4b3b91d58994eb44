// The gated delta rule. A block of columns of the state stays in L1 while all tokens pass over it;
// columns do not meet, so blocks change no sum. The decayed state is not stored between the two
// passes of a token but made again, which rounds the same way.

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace cellm::avx2 {
namespace {

constexpr int kWidth = 8;

// V whole vectors of columns from `column`, or with kPart the `left` lanes of one.
template <int V, bool kPart>
void Columns(const DeltaRuleArgs& a, int32_t column, int32_t left) {
  const auto load = [left](const float* p) {
    return kPart ? LoadPart(p, left) : _mm256_loadu_ps(p);
  };
  const auto store = [left](float* p, __m256 x) {
    if (kPart) {
      StorePart(p, left, x);
    } else {
      _mm256_storeu_ps(p, x);
    }
  };
  for (int32_t t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.k_dim;
    const float* q = a.q + t * a.k_dim;
    const __m256 decay = _mm256_set1_ps(a.decay[t]);
    __m256 delta[V];
    __m256 o[V];
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n) delta[n] = o[n] = _mm256_set1_ps(0.0f);
    float* s = a.state + column;
    for (int32_t i = 0; i < a.k_dim; ++i, s += a.state_stride) {
      const __m256 ki = _mm256_set1_ps(k[i]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        const __m256 held = _mm256_mul_ps(load(s + kWidth * n), decay);
        delta[n] = _mm256_fmadd_ps(ki, held, delta[n]);
      }
    }
    const __m256 beta = _mm256_set1_ps(a.beta[t]);
    const float* v = a.v + t * a.v_stride + column;
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n)
      delta[n] = _mm256_mul_ps(beta, _mm256_sub_ps(load(v + kWidth * n), delta[n]));
    s = a.state + column;
    for (int32_t i = 0; i < a.k_dim; ++i, s += a.state_stride) {
      const __m256 ki = _mm256_set1_ps(k[i]);
      const __m256 qi = _mm256_set1_ps(q[i]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        __m256 held = _mm256_mul_ps(load(s + kWidth * n), decay);
        held = _mm256_fmadd_ps(ki, delta[n], held);
        store(s + kWidth * n, held);
        o[n] = _mm256_fmadd_ps(qi, held, o[n]);
      }
    }
    float* out = a.out + t * a.out_stride + column;
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n) store(out + kWidth * n, o[n]);
  }
}

}  // namespace

void delta_rule_f32(const DeltaRuleArgs* args) {
  int32_t column = 0;
  for (; column + 4 * kWidth <= args->columns; column += 4 * kWidth) {
    Columns<4, false>(*args, column, 0);
  }
  for (; column < args->columns; column += kWidth) {
    Columns<1, true>(*args, column, args->columns - column);
  }
}

}  // namespace cellm::avx2
