#ifndef CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_NOISE_H_
#define CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_NOISE_H_

// Weights out of a seed: the same name and seed give the same bytes on every machine.

#include <cstdint>
#include <string_view>

#include "base/hash.h"
#include "base/rng.h"

namespace cellm::tools {

class Noise {
 public:
  // A stream of its own for every tensor.
  Noise(std::string_view tensor, uint64_t seed) : rng_(HashXxh3(tensor) ^ seed) {}

  uint64_t Bits() { return rng_.NextU64(); }
  // About normal, of deviation 1: a sum of four uniform numbers.
  float Normal() {
    const uint64_t bits = rng_.NextU64();
    const int64_t sum = static_cast<int64_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                             ((bits >> 32) & 0xFFFF) + (bits >> 48));
    return static_cast<float>(sum - 2 * 65535) * (1.0f / 37836.0f);  // 65536 * sqrt(4 / 12)
  }

 private:
  Rng rng_;
};

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_BENCH_SYNTHETIC_NOISE_H_
