// Activations to 8 bits, one scale for every 32 columns.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {

void quantize_row_a8(const float* x, int32_t cols, int8_t* values, float* scales, int32_t* sums) {
  const int32_t chunks = (cols + 31) / 32;
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    const int32_t begin = chunk * 32;
    const int32_t count = cols - begin < 32 ? cols - begin : 32;
    float largest = 0.0f;
    bool finite = true;
    for (int32_t i = 0; i < count; ++i) {
      const float magnitude = __builtin_fabsf(x[begin + i]);
      if (!(magnitude <= 0x1.fffffep127f)) finite = false;
      if (magnitude > largest) largest = magnitude;
    }
    for (int32_t i = 0; i < 32; ++i) values[begin + i] = 0;
    sums[2 * chunk] = 0;
    sums[2 * chunk + 1] = 0;
    if (!finite) {
      scales[chunk] = __builtin_nanf("");
      continue;
    }
    if (largest < kernels::kQuantTiny) {
      scales[chunk] = 0.0f;
      continue;
    }
    scales[chunk] = largest / 127.0f;
    const float inverse = 127.0f / largest;
    for (int32_t i = 0; i < count; ++i) {
      // Adding and taking away 1.5 * 2^23 rounds to the nearest integer, ties to even.
      const float rounded = (x[begin + i] * inverse + kernels::kRoundMagic) - kernels::kRoundMagic;
      const int32_t value = static_cast<int32_t>(rounded);
      values[begin + i] = static_cast<int8_t>(value);
      sums[2 * chunk + i / 16] += value;
    }
  }
}

}  // namespace cellm::scalar
