#ifndef CELLM_SRC_KERNELS_MATH_H_
#define CELLM_SRC_KERNELS_MATH_H_

// The shared polynomials: every tier takes these steps with these constants, so that bits agree.
//
// exp(x)
//   x is clamped to [kExpLow, kExpHigh] (NaN stays NaN); beyond them the result is 0 or infinity
//   n = fma(x, kLog2E, kRoundMagic) - kRoundMagic           nearest integer to x / ln 2
//   r = fma(n, -kLn2High, x); r = fma(n, -kLn2Low, r)       |r| <= ln 2 / 2
//   p = kExp[4]; p = fma(p, r, kExp[3]) ... kExp[0]         (e^r - 1 - r) / r^2
//   p = fma(p, r * r, r); p = p + 1
//   result = p * 2^n, rounded once. Two exact steps do it: h = n >> 1, (p * 2^h) * 2^(n - h).
// The polynomial is a minimax fit of relative error 0.05 * 2^-24; the result is within 1 ULP (2
// where subnormal) of the true value.
//
// tanh(x), a = |x|
//   a < kTanhSmall:  z = x * x; p = kTanh[4]; p = fma(p, z, kTanh[3]) ... kTanh[0];
//                    result = fma(p * z, x, x)
//   else:            result = 1 - 2 / (exp(2 a) + 1), with the sign of x
//
// sigmoid(x) = 1 / (1 + exp(-x));  silu(x) = x / (1 + exp(-x))
// gelu_tanh(x) = x / (1 + exp(-2 u)), which is 0.5 x (1 + tanh(u)) without the cancellation, with
//   u = sqrt(2 / pi) (x + 0.044715 x^3):  v = fma(x * x, kGeluCubic, kGeluLinear); exp(x * v)
//   where both constants hold the factor -2 sqrt(2 / pi)
//
// Tier files may include this: constants only.

namespace cellm::kernels {

constexpr float kExpLow = -104.0f;
constexpr float kExpHigh = 89.0f;
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kRoundMagic = 0x1.8p23f;
constexpr float kLn2High = 0x1.62e4p-1f;
constexpr float kLn2Low = 0x1.7f7d1cp-20f;
constexpr float kExp[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.1239e2p-7f,
                           0x1.6a2432p-10f};
constexpr float kTanhSmall = 0.625f;
constexpr float kTanh[5] = {-0x1.555524p-2f, 0x1.1103f2p-3f, -0x1.b7cff2p-5f, 0x1.4f5ef4p-6f,
                            -0x1.69710ap-8f};
constexpr float kGeluLinear = -2.0f * 0x1.988454p-1f;
constexpr float kGeluCubic = kGeluLinear * 0.044715f;

// A chunk whose largest magnitude is below this becomes zero: 127 / max must stay finite.
constexpr float kQuantTiny = 0x1p-100f;

// The largest weight of a block of coded values as an integer: 127 * 256, two signed bytes.
constexpr float kWeightMost = 32512.0f;

}  // namespace cellm::kernels

#endif  // CELLM_SRC_KERNELS_MATH_H_
