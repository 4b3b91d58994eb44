// Products of row-major float weights: lanes16 over the columns, one output at a time.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {
namespace {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

template <typename T>
float ToFloat(T value);
template <>
float ToFloat<float>(float value) {
  return value;
}
template <>
float ToFloat<F16>(F16 value) {
  return F16ToFloat(value.bits);
}
template <>
float ToFloat<Bf16>(Bf16 value) {
  return Bf16ToFloat(value.bits);
}

// T reads one weight at w + index * sizeof(T).
template <typename T, typename Stored>
float Dot(const Stored* w, const float* x, int32_t cols) {
  float sums[16] = {};
  for (int32_t c = 0; c < cols; ++c) {
    sums[c % 16] = Fma(ToFloat(T{w[c]}), x[c], sums[c % 16]);
  }
  return FoldLanes(sums);
}

template <typename T, typename Stored>
void Matmul(const Stored* w, int64_t w_stride, const float* x, int64_t x_stride, int32_t rows,
            int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  for (int32_t t = 0; t < tokens; ++t) {
    for (int32_t r = 0; r < rows; ++r) {
      out[t * out_stride + r] = Dot<T>(w + r * w_stride, x + t * x_stride, cols);
    }
  }
}

}  // namespace

void matmul_f32_f32(const float* w, int64_t w_stride, const float* x, int64_t x_stride,
                    int32_t rows, int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  Matmul<float>(w, w_stride, x, x_stride, rows, cols, tokens, out, out_stride);
}

void matmul_f16_f32(const uint16_t* w, int64_t w_stride, const float* x, int64_t x_stride,
                    int32_t rows, int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  Matmul<F16>(w, w_stride, x, x_stride, rows, cols, tokens, out, out_stride);
}

void matmul_bf16_f32(const uint16_t* w, int64_t w_stride, const float* x, int64_t x_stride,
                     int32_t rows, int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  Matmul<Bf16>(w, w_stride, x, x_stride, rows, cols, tokens, out, out_stride);
}

float dot_f32(const float* a, const float* b, int32_t count) { return Dot<float>(a, b, count); }

}  // namespace cellm::scalar
