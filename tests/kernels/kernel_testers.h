#ifndef CELLM_TESTS_KERNELS_KERNEL_TESTERS_H_
#define CELLM_TESTS_KERNELS_KERNEL_TESTERS_H_

// One tester a kernel, declared from the list: a row without a tester does not link.
//
// A tester runs `tier`'s kernel and the scalar one on the same inputs and expects the same bits
// (NaN counts as equal to NaN). Inputs and outputs lie in Guarded buffers, so that a read or write
// past either end faults.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/kernel_table.h"
#include "kernels/scalar/scalar.h"

namespace cellm::kernels {

#define CELLM_KERNEL(name, exactness, result, parameters) \
  void Check_##name(const KernelTable& tier);
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL

inline bool LongTests() { return std::getenv("CELLM_TEST_LONG") != nullptr; }

// `count` elements between two unreadable pages, touching the one after them (or, with `at_start`,
// the one before them). Unused bytes between are filled with a canary, checked at destruction.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, bool at_start = false, size_t offset_bytes = 0)
      : count_(count), at_start_(at_start) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = count * sizeof(T) + offset_bytes;
    inner_ = (bytes + page - 1) / page * page;
    if (inner_ == 0) inner_ = page;
    mapped_ = inner_ + 2 * page;
    void* base = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) std::abort();
    base_ = static_cast<uint8_t*>(base);
    first_ = base_ + page;
    if (mprotect(first_, inner_, PROT_READ | PROT_WRITE) != 0) std::abort();
    std::memset(first_, kCanary, inner_);
    uint8_t* data =
        at_start ? first_ + offset_bytes : first_ + inner_ - count * sizeof(T) - offset_bytes;
    data_ = reinterpret_cast<T*>(data);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    const uint8_t* begin = reinterpret_cast<const uint8_t*>(data_);
    const uint8_t* end = begin + count_ * sizeof(T);
    for (const uint8_t* p = first_; p < begin; ++p) {
      if (*p != kCanary) ADD_FAILURE() << "written " << begin - p << " bytes before the buffer";
    }
    for (const uint8_t* p = end; p < first_ + inner_; ++p) {
      if (*p != kCanary) ADD_FAILURE() << "written " << p - end << " bytes past the buffer";
    }
    munmap(base_, mapped_);
  }

  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  static constexpr uint8_t kCanary = 0xA5;
  size_t count_;
  bool at_start_;
  size_t inner_ = 0;
  size_t mapped_ = 0;
  uint8_t* base_ = nullptr;
  uint8_t* first_ = nullptr;
  T* data_ = nullptr;
};

inline bool SameFloat(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Same bits all along; reports the first difference.
template <typename Want, typename Got>
void ExpectSame(const Want& want, const Got& got, size_t count, const std::string& what) {
  for (size_t i = 0; i < count; ++i) {
    if (!SameFloat(want[i], got[i])) {
      ADD_FAILURE() << what << ": element " << i << " of " << count << " is " << std::hexfloat
                    << got[i] << ", scalar has " << want[i];
      return;
    }
  }
}

enum class Values {
  kNoise,
  kWide,
  kZero,
  kMinusZero,
  kDenormal,
  kLargest,
  kNan,
  kInfinity,
  kEqual,
  kAlternating,
  kCount
};

// One float of the given kind; `scale` bounds the noise.
inline float MakeValue(Values kind, size_t index, Rng& rng, float scale = 4.0f) {
  const float noise = (rng.NextFloat() - 0.5f) * 2.0f * scale;
  switch (kind) {
    case Values::kWide:  // any exponent from 2^-40 to 2^40
      return std::ldexp(noise, static_cast<int>(rng.NextBelow(80)) - 40);
    case Values::kZero:
      return 0.0f;
    case Values::kMinusZero:
      return -0.0f;
    case Values::kDenormal:
      return std::ldexp(noise, -130);
    case Values::kLargest:
      return index % 3 == 0 ? std::numeric_limits<float>::max() : -noise;
    case Values::kNan:
      return index % 7 == 5 ? std::numeric_limits<float>::quiet_NaN() : noise;
    case Values::kInfinity:
      return index % 5 == 3
                 ? (index % 2 == 0 ? -1.0f : 1.0f) * std::numeric_limits<float>::infinity()
                 : noise;
    case Values::kEqual:
      return 0.75f;
    case Values::kAlternating:
      return index % 2 == 0 ? 1.5f : -1.5f;
    default:
      return noise;
  }
}

// Lengths 0 to two vectors of the widest tier plus 3, then real ones.
inline std::vector<int32_t> TestLengths() {
  std::vector<int32_t> lengths;
  for (int32_t n = 0; n <= 35; ++n) lengths.push_back(n);
  for (const int32_t n : {47, 48, 49, 63, 64, 65, 96, 127, 128, 576, 896, 1152})
    lengths.push_back(n);
  return lengths;
}

}  // namespace cellm::kernels

#endif  // CELLM_TESTS_KERNELS_KERNEL_TESTERS_H_
