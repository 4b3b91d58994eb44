#include "tensor/quantize_group.h"

#include <cmath>

#include "tensor/half.h"

namespace cellm {
namespace {

// The group under search and the best that was found.
struct Search {
  const CodeRange& range;
  const float* values;
  const float* importance;  // or null
  int32_t count;
  GroupFit best;
  float best_error = 0;

  float Weight(int32_t i) const { return importance == nullptr ? 1.0f : importance[i]; }
};

// Sums over a group for one scale and min: the error, and those of a line fit of values over
// levels.
struct Sums {
  float error = 0, w = 0, l = 0, ll = 0, v = 0, lv = 0;

  // The best line; false when the levels do not determine one.
  bool Solve(bool has_min, GroupFit* fit) const {
    if (!has_min) {
      if (!(ll > 0)) return false;
      fit->scale = lv / ll;
      return true;
    }
    const double determinant = double{w} * double{ll} - double{l} * double{l};
    if (!(determinant > 1e-6 * double{w} * double{ll})) return false;
    const double scale = (double{w} * double{lv} - double{l} * double{v}) / determinant;
    fit->scale = static_cast<float>(scale);
    fit->min = static_cast<float>((double{v} - scale * double{l}) / double{w});
    return true;
  }
};

// Eight running sums, element i to sum i % 8, folded in a fixed tree: the same on every machine.
template <bool kWeighted>
Sums Measure(const Search& search, const GroupFit& fit) {
  constexpr int32_t kLanes = 8;
  float error[kLanes] = {}, w[kLanes] = {}, l[kLanes] = {}, ll[kLanes] = {}, v[kLanes] = {},
        lv[kLanes] = {};
  const CodeRange range = search.range;
  const float inverse = 1.0f / fit.scale;
  const GroupFit line = fit;
  const float* const values = search.values;
  const float* const importance = search.importance;
  const auto add = [&](int32_t i, int32_t lane) {
    const float value = values[i];
    const float level = LevelAt(range, (value - line.min) * inverse);
    const float difference = value - ValueOf(line, level);
    const float weight = kWeighted ? importance[i] : 1.0f;
    error[lane] += weight * (difference * difference);
    w[lane] += weight;
    l[lane] += weight * level;
    ll[lane] += weight * (level * level);
    v[lane] += weight * value;
    lv[lane] += weight * (level * value);
  };
  int32_t i = 0;
  for (; i + kLanes <= search.count; i += kLanes) {
    for (int32_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (; i < search.count; ++i) add(i, i % kLanes);
  for (int32_t width = kLanes / 2; width > 0; width /= 2) {
    for (int32_t lane = 0; lane < width; ++lane) {
      error[lane] += error[lane + width];
      w[lane] += w[lane + width];
      l[lane] += l[lane + width];
      ll[lane] += ll[lane + width];
      v[lane] += v[lane + width];
      lv[lane] += lv[lane + width];
    }
  }
  return {error[0], w[0], l[0], ll[0], v[0], lv[0]};
}

// Tries `fit`, then `rounds` times the line that is best for the levels that it gives.
void Try(Search* search, GroupFit fit, int rounds) {
  const CodeRange& range = search->range;
  for (int round = 0; round <= rounds; ++round) {
    fit.scale = RoundStored(range.scale_type, fit.scale);
    fit.min = range.has_min ? RoundStored(range.scale_type, fit.min) : 0.0f;
    if (fit.scale == 0 || !std::isfinite(1.0f / fit.scale)) return;
    const Sums sums =
        search->importance == nullptr ? Measure<false>(*search, fit) : Measure<true>(*search, fit);
    // Strictly better: among equals the first candidate stays.
    if (sums.error < search->best_error) {
      search->best_error = sums.error;
      search->best = fit;
    }
    if (!sums.Solve(range.has_min, &fit)) return;
  }
}

// How far ranges are tightened: few levels leave more to gain by clipping.
float TightestRange(const CodeRange& range) {
  const float levels = range.highest - range.lowest;
  return levels > 64 ? 0.88f : levels > 8 ? 0.7f : levels > 3 ? 0.5f : 0.3f;
}

void SearchScale(Search* search) {
  const CodeRange& range = search->range;
  float largest = 0;  // with its sign
  for (int32_t i = 0; i < search->count; ++i) {
    const float value = search->values[i];
    if (std::fabs(value) > std::fabs(largest)) largest = value;
    search->best_error += search->Weight(i) * (value * value);  // of scale 0, to be beaten
  }
  if (largest == 0) return;
  constexpr int kSteps = 12;
  const float step_size = (1.0f - TightestRange(range)) / kSteps;
  for (int step = -3; step <= kSteps; ++step) {
    const float shrink = 1.0f - step_size * static_cast<float>(step);
    Try(search, {std::fabs(largest) / range.highest * shrink, 0}, 0);
    // With an uneven range the side with one more level is tried for the largest value too.
    if (range.lowest != -range.highest) Try(search, {largest / range.lowest * shrink, 0}, 0);
  }
  // From the best onwards: levels give a scale, the scale gives levels.
  if (search->best.scale != 0) Try(search, search->best, 4);
}

void SearchScaleAndMin(Search* search) {
  const CodeRange& range = search->range;
  float low = search->values[0];
  float high = low;
  float weight = 0;
  float sum = 0;
  for (int32_t i = 0; i < search->count; ++i) {
    low = std::fmin(low, search->values[i]);
    high = std::fmax(high, search->values[i]);
    weight += search->Weight(i);
    sum += search->Weight(i) * search->values[i];
  }
  // All values onto one, to be beaten: the mean, or with no weight at all the middle.
  const float mean = weight > 0 ? sum / weight : low / 2 + high / 2;
  search->best = {0, RoundStored(range.scale_type, mean)};
  for (int32_t i = 0; i < search->count; ++i) {
    const float difference = search->values[i] - search->best.min;
    search->best_error += search->Weight(i) * (difference * difference);
  }
  const float width = high - low;
  if (!(width > 0)) return;
  const float levels = range.highest - range.lowest;
  constexpr int kSteps = 4;
  const float cut = width * (1.0f - TightestRange(range)) / (2 * kSteps);
  for (int below = 0; below <= kSteps; ++below) {
    for (int above = 0; above <= kSteps; ++above) {
      const float bottom = low + cut * static_cast<float>(below);
      const float top = high - cut * static_cast<float>(above);
      const float scale = (top - bottom) / levels;
      Try(search, {scale, bottom - scale * range.lowest}, 1);
    }
  }
  if (search->best.scale != 0) Try(search, search->best, 4);
}

}  // namespace

CodeRange RangeOf(const PackedLayout& layout) {
  CodeRange range;
  range.zero = static_cast<float>(layout.zero2) / 2;
  range.offset = layout.zero2 % 2 != 0 ? 0.5f : 0.0f;
  range.has_min = layout.has_min;
  range.scale_type = layout.scale_type;
  const bool skip_lowest = layout.bits == 8 && layout.zero2 == 256 && !layout.has_min;
  const bool ternary = layout.bits == 2 && layout.zero2 == 2 && !layout.has_min;
  range.lowest = (skip_lowest ? 1.0f : 0.0f) - range.zero;
  range.highest = static_cast<float>(ternary ? 2 : (1 << layout.bits) - 1) - range.zero;
  return range;
}

float RoundStored(ScaleType type, float value) {
  if (type == ScaleType::kF32) return value;
  const float rounded = F16ToFloat(FloatToF16(value));
  return std::isinf(rounded) ? std::copysign(65504.0f, value) : rounded;
}

GroupFit FitGroup(const CodeRange& range, const float* values, const float* importance,
                  int32_t count) {
  Search search{range, values, importance, count, {}, 0};
  if (range.has_min) {
    SearchScaleAndMin(&search);
  } else {
    SearchScale(&search);
  }
  return search.best;
}

}  // namespace cellm
