// The gated delta rule. A block of columns of the state stays in L1 while all tokens pass over it;
// columns do not meet, so blocks change no sum. The decayed state is not stored between the two
// passes of a token but made again, which rounds the same way.

#include "kernels/avx512/avx512.h"
#include "kernels/avx512/simd.h"

namespace cellm::avx512 {
namespace {

constexpr int kWidth = 16;

// V vectors of columns from `column`; `mask` has the lanes of the last one.
template <int V>
void Columns(const DeltaRuleArgs& a, int32_t column, __mmask16 mask) {
  const __mmask16 all = 0xFFFF;
  for (int32_t t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.k_dim;
    const float* q = a.q + t * a.k_dim;
    const __m512 decay = _mm512_set1_ps(a.decay[t]);
    __m512 delta[V];
    __m512 o[V];
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n) delta[n] = o[n] = _mm512_setzero_ps();
    float* s = a.state + column;
    for (int32_t i = 0; i < a.k_dim; ++i, s += a.state_stride) {
      const __m512 ki = _mm512_set1_ps(k[i]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        const __m512 held = _mm512_maskz_loadu_ps(n == V - 1 ? mask : all, s + kWidth * n);
        delta[n] = _mm512_fmadd_ps(ki, _mm512_mul_ps(held, decay), delta[n]);
      }
    }
    const __m512 beta = _mm512_set1_ps(a.beta[t]);
    const float* v = a.v + t * a.v_stride + column;
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n) {
      const __m512 value = _mm512_maskz_loadu_ps(n == V - 1 ? mask : all, v + kWidth * n);
      delta[n] = _mm512_mul_ps(beta, _mm512_sub_ps(value, delta[n]));
    }
    s = a.state + column;
    for (int32_t i = 0; i < a.k_dim; ++i, s += a.state_stride) {
      const __m512 ki = _mm512_set1_ps(k[i]);
      const __m512 qi = _mm512_set1_ps(q[i]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        const __mmask16 lanes = n == V - 1 ? mask : all;
        __m512 held = _mm512_maskz_loadu_ps(lanes, s + kWidth * n);
        held = _mm512_fmadd_ps(ki, delta[n], _mm512_mul_ps(held, decay));
        _mm512_mask_storeu_ps(s + kWidth * n, lanes, held);
        o[n] = _mm512_fmadd_ps(qi, held, o[n]);
      }
    }
    float* out = a.out + t * a.out_stride + column;
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n) {
      _mm512_mask_storeu_ps(out + kWidth * n, n == V - 1 ? mask : all, o[n]);
    }
  }
}

}  // namespace

void delta_rule_f32(const DeltaRuleArgs* args) {
  const __mmask16 all = 0xFFFF;
  int32_t column = 0;
  for (; column + 2 * kWidth <= args->columns; column += 2 * kWidth) Columns<2>(*args, column, all);
  for (; column < args->columns; column += kWidth) {
    Columns<1>(*args, column, LaneMask(args->columns - column));
  }
}

}  // namespace cellm::avx512
