#include "sample/candidates.h"

#include <bit>
#include <limits>

namespace cellm::sample {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Names the first entry that CheckLogits() refuses. Only runs when there is one.
Status BadLogit(std::span<const float> row) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i] != row[i]) return Internal("logits: token %zu has the value NaN", i);
    if (row[i] == kInfinity) return Internal("logits: token %zu has the value +infinity", i);
  }
  return Internal("logits: all %zu tokens are banned (-infinity)", row.size());
}

}  // namespace

Status CheckLogits(std::span<const float> row) {
  // As integers: magnitude bits above 0x7F800000 are NaN; the exact word 0x7F800000 is +infinity;
  // 0xFF800000 is -infinity. Branch-free, so that the compiler makes a vector loop of it.
  uint32_t bad = 0;
  uint32_t usable = 0;
  for (const float value : row) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    bad |= static_cast<uint32_t>((bits & 0x7FFFFFFFu) > 0x7F800000u);
    bad |= static_cast<uint32_t>(bits == 0x7F800000u);
    usable |= static_cast<uint32_t>(bits != 0xFF800000u);
  }
  return bad == 0 && usable != 0 ? OkStatus() : BadLogit(row);
}

int32_t ArgMax(std::span<const float> row) {
  // The largest value first (a reduction over independent lanes), then where it first stands.
  constexpr size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) {
      lanes[k] = row[i + k] > lanes[k] ? row[i + k] : lanes[k];
    }
  }
  float best = -kInfinity;
  for (const float lane : lanes) best = std::max(best, lane);
  for (; i < row.size(); ++i) best = std::max(best, row[i]);
  return static_cast<int32_t>(std::find(row.begin(), row.end(), best) - row.begin());
}

size_t SelectTop(std::span<const float> row, size_t k, std::span<Candidate> out) {
  const size_t capacity = std::min(2 * k, row.size());
  size_t count = 0;
  // Entries below `floor` cannot be among the best k: k better ones are already held. A full
  // buffer is cut back to k, which raises the floor; cuts get rarer as the floor rises.
  float floor = -kInfinity;
  constexpr size_t kBlock = 32;
  for (size_t i = 0; i < row.size(); ++i) {
    // Most blocks have nothing above the floor; seeing that takes vector compares only.
    while (i % kBlock == 0 && i + kBlock <= row.size()) {
      uint32_t any = 0;
      for (size_t j = 0; j < kBlock; ++j) any |= static_cast<uint32_t>(row[i + j] > floor);
      if (any != 0) break;
      i += kBlock;
    }
    if (i == row.size() || !(row[i] > floor)) continue;
    out[count++] = {static_cast<int32_t>(i), row[i]};
    if (count == capacity && count > k) {
      const auto middle = out.begin() + static_cast<std::ptrdiff_t>(k - 1);
      std::nth_element(out.begin(), middle, out.begin() + static_cast<std::ptrdiff_t>(count),
                       Better);
      // Later entries equal to the floor have larger ids and lose the tie, hence '>' above.
      floor = middle->logit;
      count = k;
    }
  }
  const auto end = out.begin() + static_cast<std::ptrdiff_t>(count);
  if (count > k) {
    std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(k - 1), end, Better);
    count = k;
  }
  std::sort(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), Better);
  return count;
}

}  // namespace cellm::sample
