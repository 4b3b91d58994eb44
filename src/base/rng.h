#ifndef CELLM_SRC_BASE_RNG_H_
#define CELLM_SRC_BASE_RNG_H_

#include <cstdint>

namespace cellm {

// xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018),
// seeded by splitmix64 from one number. The sequence for a seed never changes between versions:
// a replayed seed must give the same text.
class Rng {
 public:
  explicit Rng(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }

  uint64_t NextU64() {
    const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = RotateLeft(state_[3], 45);
    return result;
  }

  // Uniform in [0, 1), 53 bits.
  double NextDouble() { return static_cast<double>(NextU64() >> 11) * 0x1.0p-53; }
  // Uniform in [0, 1), 24 bits.
  float NextFloat() { return static_cast<float>(NextU64() >> 40) * 0x1.0p-24f; }
  // Uniform in [0, bound), bound > 0; the bias is below bound / 2^64.
  uint64_t NextBelow(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(NextU64()) * bound) >> 64);
  }

 private:
  static uint64_t RotateLeft(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  uint64_t state_[4];
};

}  // namespace cellm

#endif  // CELLM_SRC_BASE_RNG_H_
