#ifndef CELLM_SRC_SAMPLE_CANDIDATES_H_
#define CELLM_SRC_SAMPLE_CANDIDATES_H_

// Picking the best entries of a logits row without sorting the row.
//
// A row has up to 262k entries and a caller wants 1 to 100 of them, so every function here is a
// pass over the row plus work on the few that survive. The order is total: larger logit first,
// and between equal logits the smaller id. So the result never depends on how the work was done.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace cellm::sample {

struct Candidate {
  int32_t id = 0;
  float logit = 0;
};

// The order described above: true when `a` comes before `b`.
inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// Checks that `row` can be chosen from: no NaN, no +infinity, and not all -infinity (-infinity
// marks a banned token and is fine). Internal names the first offending id. O(row).
Status CheckLogits(std::span<const float> row);

// The id of the largest entry, the smallest such id if several are equal. `row` must have passed
// CheckLogits(). O(row).
int32_t ArgMax(std::span<const float> row);

// Writes the best min(k, entries above -infinity) entries of `row` to `out`, best first, and
// returns how many. `out` must hold min(2 * k, row.size()) candidates: the second half is scratch.
// Requires k >= 1 and a row that passed CheckLogits(). O(row + k log k) on average.
size_t SelectTop(std::span<const float> row, size_t k, std::span<Candidate> out);

// Sorts just as much of `items` by `before` as is needed to reach `target` mass, and returns the
// length of that prefix (at least 1 for a non-empty span; all of it when the mass never gets
// there). `mass(item)` is each item's share. O(items) for short prefixes.
template <typename Before, typename Mass>
size_t SortUntilMass(std::span<Candidate> items, double target, Before before, Mass mass) {
  double sum = 0;
  size_t sorted = 0;
  size_t step = 64;  // most nuclei are smaller than this
  while (sorted < items.size()) {
    const size_t take = std::min(step, items.size() - sorted);
    const auto first = items.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto middle = first + static_cast<std::ptrdiff_t>(take);
    if (middle != items.end()) std::nth_element(first, middle, items.end(), before);
    std::sort(first, middle, before);
    for (size_t i = 0; i < take; ++i) {
      sum += mass(items[sorted + i]);
      if (sum >= target) return sorted + i + 1;
    }
    sorted += take;
    step *= 4;
  }
  return items.size();
}

}  // namespace cellm::sample

#endif  // CELLM_SRC_SAMPLE_CANDIDATES_H_
