// Elementwise functions by the shared polynomials, and conversions.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {

void exp_f32(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Exp(x[i]);
}

void tanh_f32(const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Tanh(x[i]);
}

void silu_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void sigmoid_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = 1.0f / (1.0f + Exp(-gate[i])) * up[i];
}

void gelu_tanh_mul_f32(const float* gate, const float* up, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i];
    const float v = Fma(g * g, kernels::kGeluCubic, kernels::kGeluLinear);
    y[i] = g / (1.0f + Exp(g * v)) * up[i];
  }
}

void axpy_f32(float s, const float* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Fma(s, x[i], y[i]);
}

void mul_add_f32(const float* a, const float* b, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Fma(a[i], b[i], y[i]);
}

void f32_to_f16(const float* x, int64_t count, uint16_t* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = FloatToF16(x[i]);
}

void f16_to_f32(const uint16_t* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = F16ToFloat(x[i]);
}

void bf16_to_f32(const uint16_t* x, int64_t count, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = Bf16ToFloat(x[i]);
}

int64_t argmax_f32(const float* x, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (x[i] != x[i]) return -1;
    if (best < 0 || x[i] > x[best]) best = i;
  }
  return best;
}

}  // namespace cellm::scalar
