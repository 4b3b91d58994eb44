// The gated delta rule. A block of columns of the state stays in L1 while all tokens pass over it;
// columns do not meet, so blocks change no sum. The decayed state is not stored between the two
// passes of a token but made again, which rounds the same way.

#include "kernels/neon/neon.h"
#include "kernels/neon/simd.h"

namespace cellm::neon {
namespace {

constexpr int kWidth = 4;

// V whole vectors of columns from `column`, or with kPart the `left` lanes of one.
template <int V, bool kPart>
void Columns(const DeltaRuleArgs& a, int32_t column, int32_t left) {
  const auto load = [left](const float* p) { return kPart ? LoadPart(p, left) : vld1q_f32(p); };
  const auto store = [left](float* p, float32x4_t x) {
    if (kPart) {
      StorePart(p, left, x);
    } else {
      vst1q_f32(p, x);
    }
  };
  for (int32_t t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.k_dim;
    const float* q = a.q + t * a.k_dim;
    const float32x4_t decay = vdupq_n_f32(a.decay[t]);
    float32x4_t delta[V];
    float32x4_t o[V];
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n) delta[n] = o[n] = vdupq_n_f32(0.0f);
    float* s = a.state + column;
    for (int32_t i = 0; i < a.k_dim; ++i, s += a.state_stride) {
      const float32x4_t ki = vdupq_n_f32(k[i]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        const float32x4_t held = vmulq_f32(load(s + kWidth * n), decay);
        delta[n] = vfmaq_f32(delta[n], ki, held);
      }
    }
    const float32x4_t beta = vdupq_n_f32(a.beta[t]);
    const float* v = a.v + t * a.v_stride + column;
#pragma GCC unroll 4
    for (int n = 0; n < V; ++n)
      delta[n] = vmulq_f32(beta, vsubq_f32(load(v + kWidth * n), delta[n]));
    s = a.state + column;
    for (int32_t i = 0; i < a.k_dim; ++i, s += a.state_stride) {
      const float32x4_t ki = vdupq_n_f32(k[i]);
      const float32x4_t qi = vdupq_n_f32(q[i]);
#pragma GCC unroll 4
      for (int n = 0; n < V; ++n) {
        float32x4_t held = vmulq_f32(load(s + kWidth * n), decay);
        held = vfmaq_f32(held, ki, delta[n]);
        store(s + kWidth * n, held);
        o[n] = vfmaq_f32(o[n], qi, held);
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

}  // namespace cellm::neon
