// The gated delta rule, as kernel_list.inc states it.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {

void delta_rule_f32(const DeltaRuleArgs* args) {
  const DeltaRuleArgs& a = *args;
  for (int32_t t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.k_dim;
    const float* q = a.q + t * a.k_dim;
    for (int32_t j = 0; j < a.columns; ++j) {
      float held = 0.0f;
      for (int32_t i = 0; i < a.k_dim; ++i) {
        float& s = a.state[i * a.state_stride + j];
        s = s * a.decay[t];
        held = Fma(k[i], s, held);
      }
      const float delta = a.beta[t] * (a.v[t * a.v_stride + j] - held);
      float o = 0.0f;
      for (int32_t i = 0; i < a.k_dim; ++i) {
        float& s = a.state[i * a.state_stride + j];
        s = Fma(k[i], delta, s);
        o = Fma(q[i], s, o);
      }
      a.out[t * a.out_stride + j] = o;
    }
  }
}

}  // namespace cellm::scalar
