#include "tensor/error_feedback.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/quantize_group.h"

namespace cellm {
namespace {

constexpr size_t kLanes = kTileRows;

// Turns the lower triangle of `a` [n, n] into N (unit lower, diagonal not stored) and returns D
// with a = N^T D N; that is M = N^T. From the last row up, so that M is upper triangular.
std::vector<double> Factor(size_t n, std::vector<double>* matrix) {
  std::vector<double>& a = *matrix;
  std::vector<double> diagonal(n);
  for (size_t k = n; k-- > 0;) {
    double* const row = a.data() + k * n;
    // Damping keeps this positive; rounding must not make it zero.
    diagonal[k] = std::fmax(row[k], 1e-12);
    const double inverse = 1.0 / diagonal[k];
    for (size_t i = 0; i < k; ++i) {
      const double factor = row[i] * inverse;
      double* const target = a.data() + i * n;
      for (size_t j = 0; j <= i; ++j) target[j] -= factor * row[j];
    }
    for (size_t i = 0; i < k; ++i) row[i] *= inverse;
  }
  return diagonal;
}

}  // namespace

Result<InputFactors> InputFactors::Create(int32_t cols, std::span<const float> moments,
                                          double damping) {
  const size_t n = static_cast<size_t>(cols);
  if (cols < 1 || moments.size() != n * n) {
    return InvalidArgument("moments of %d columns have %zu elements", cols, moments.size());
  }
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += double{moments[i * n + i]};
  for (const float value : moments) {
    if (!std::isfinite(value)) return InvalidArgument("input moments that are not finite");
  }
  // Unit: a diagonal of 1 on average. Inputs that are all zero leave the plain squared error.
  const double unit = trace > 0 ? static_cast<double>(n) / trace : 0.0;
  const double added = trace > 0 ? damping : 1.0;
  InputFactors factors;
  factors.cols_ = cols;
  factors.moments_.resize(n * n);
  std::vector<double> work(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double value = double{moments[i * n + j]} * unit + (i == j ? added : 0.0);
      work[i * n + j] = value;
      factors.moments_[i * n + j] = factors.moments_[j * n + i] = static_cast<float>(value);
    }
  }
  const std::vector<double> diagonal = Factor(n, &work);
  factors.conditional_.assign(diagonal.begin(), diagonal.end());
  factors.feedback_.assign(n * n, 0.0f);
  for (size_t k = 0; k < n; ++k) {
    for (size_t i = 0; i < k; ++i) {
      factors.feedback_[i * n + k] = static_cast<float>(work[k * n + i]);
    }
  }
  return factors;
}

struct FeedbackRounder::Group {
  int32_t index, begin, count;
};

FeedbackRounder::FeedbackRounder(const PackedLayout& layout, const InputFactors& factors,
                                 int sweeps)
    : layout_(layout), factors_(factors), sweeps_(sweeps) {
  CELLM_CHECK(layout.cols == factors.cols(), "factors of another matrix");
  const size_t size = static_cast<size_t>(layout.cols) * kLanes;
  weights_.resize(size);
  targets_.resize(size);
  levels_.resize(size);
  errors_.resize(size);
  gradients_.resize(size);
  const size_t group = static_cast<size_t>(layout.group == 0 ? layout.cols : layout.group);
  group_values_.resize(group);
  group_products_.resize(group);
  group_ones_.resize(group);
}

void FeedbackRounder::Round(const float* rows, int32_t count, uint8_t* codes, float* scales,
                            float* mins) {
  const size_t cols = static_cast<size_t>(layout_.cols);
  for (size_t c = 0; c < cols; ++c) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const bool used = lane < static_cast<size_t>(count);
      weights_[c * kLanes + lane] = used ? rows[lane * cols + c] : 0.0f;
    }
  }
  Feedback(count, scales, mins);
  if (sweeps_ > 0) {
    // gradients = H e.
    std::memset(gradients_.data(), 0, gradients_.size() * sizeof(float));
    for (int32_t c = 0; c < layout_.cols; ++c) {
      MoveColumn(c, errors_.data() + static_cast<size_t>(c) * kLanes);
    }
    for (int sweep = 0; sweep < sweeps_; ++sweep) Sweep(count, scales, mins);
  }
  const float zero = RangeOf(layout_).zero;
  for (size_t lane = 0; lane < static_cast<size_t>(count); ++lane) {
    for (size_t c = 0; c < cols; ++c) {
      codes[lane * cols + c] = static_cast<uint8_t>(levels_[c * kLanes + lane] + zero);
    }
  }
}

void FeedbackRounder::Feedback(int32_t count, float* scales, float* mins) {
  const CodeRange range = RangeOf(layout_);
  const int32_t cols = layout_.cols;
  const int32_t group_cols = layout_.group == 0 ? cols : layout_.group;
  const size_t groups = static_cast<size_t>(layout_.groups());
  GroupFit fits[kLanes];
  targets_ = weights_;
  std::memset(errors_.data(), 0, errors_.size() * sizeof(float));
  for (int32_t c = 0; c < cols; ++c) {
    if (c % group_cols == 0) {
      const int32_t size = cols - c < group_cols ? cols - c : group_cols;
      for (int32_t lane = 0; lane < count; ++lane) {
        for (int32_t i = 0; i < size; ++i) {
          group_values_[static_cast<size_t>(i)] =
              targets_[static_cast<size_t>(c + i) * kLanes + static_cast<size_t>(lane)];
        }
        const GroupFit fit =
            FitGroup(range, group_values_.data(), factors_.conditional() + c, size);
        fits[lane] = fit;
        const size_t at = static_cast<size_t>(lane) * groups + static_cast<size_t>(c / group_cols);
        scales[at] = fit.scale;
        if (range.has_min) mins[at] = fit.min;
      }
    }
    const size_t base = static_cast<size_t>(c) * kLanes;
    for (size_t lane = 0; lane < static_cast<size_t>(count); ++lane) {
      const float level = NearestLevel(range, fits[lane], targets_[base + lane]);
      levels_[base + lane] = level;
      errors_[base + lane] = weights_[base + lane] - ValueOf(fits[lane], level);
    }
    const float* const error = errors_.data() + base;
    const float* const feedback = factors_.feedback(c);
    for (int32_t k = c + 1; k < cols; ++k) {
      float* const target = targets_.data() + static_cast<size_t>(k) * kLanes;
      const float factor = feedback[k];
      for (size_t lane = 0; lane < kLanes; ++lane) target[lane] += factor * error[lane];
    }
  }
}

// gradients += H[:, col] * delta.
void FeedbackRounder::MoveColumn(int32_t col, const float* delta) {
  const size_t cols = static_cast<size_t>(layout_.cols);
  const float* const h = factors_.moments() + static_cast<size_t>(col) * cols;
  float d[kLanes];
  std::memcpy(d, delta, sizeof(d));
  for (size_t k = 0; k < cols; ++k) {
    float* const gradient = gradients_.data() + k * kLanes;
    for (size_t lane = 0; lane < kLanes; ++lane) gradient[lane] += h[k] * d[lane];
  }
}

// The scale and min that minimise e^T H e with the levels and all other groups held; unchanged when
// that is no better after rounding to the stored type.
void FeedbackRounder::Refit(const Group& group, int32_t lane, float* scale, float* min) {
  const CodeRange range = RangeOf(layout_);
  const size_t cols = static_cast<size_t>(layout_.cols);
  const size_t count = static_cast<size_t>(group.count);
  const size_t begin = static_cast<size_t>(group.begin);
  const size_t at = begin * kLanes + static_cast<size_t>(lane);
  for (size_t i = 0; i < count; ++i) {
    group_products_[i] = 0;
    group_ones_[i] = 0;
  }
  for (size_t j = 0; j < count; ++j) {
    const float level = levels_[at + j * kLanes];
    const float* const h = factors_.moments() + (begin + j) * cols + begin;
    for (size_t i = 0; i < count; ++i) group_products_[i] += h[i] * level;
    if (!range.has_min) continue;
    for (size_t i = 0; i < count; ++i) group_ones_[i] += h[i];
  }
  double ll = 0, l1 = 0, one = 0, lr = 0, r1 = 0;
  for (size_t i = 0; i < count; ++i) {
    const double level = double{levels_[at + i * kLanes]};
    const double gradient = double{gradients_[at + i * kLanes]};
    ll += level * double{group_products_[i]};
    l1 += level * double{group_ones_[i]};
    one += double{group_ones_[i]};
    lr += level * gradient;
    r1 += gradient;
  }
  double scale_step = 0, min_step = 0;
  if (!range.has_min) {
    if (!(ll > 0)) return;
    scale_step = lr / ll;
  } else {
    const double determinant = ll * one - l1 * l1;
    if (!(determinant > 1e-9 * ll * one)) return;
    scale_step = (lr * one - r1 * l1) / determinant;
    min_step = (r1 * ll - lr * l1) / determinant;
  }
  const float new_scale =
      RoundStored(range.scale_type, static_cast<float>(double{*scale} + scale_step));
  const float new_min =
      range.has_min ? RoundStored(range.scale_type, static_cast<float>(double{*min} + min_step))
                    : 0.0f;
  if (new_scale == 0 || !std::isfinite(1.0f / new_scale)) return;
  scale_step = double{new_scale} - double{*scale};
  min_step = range.has_min ? double{new_min} - double{*min} : 0;
  const double change = scale_step * scale_step * ll + 2 * scale_step * min_step * l1 +
                        min_step * min_step * one - 2 * (scale_step * lr + min_step * r1);
  if (!(change < 0)) return;
  *scale = new_scale;
  if (range.has_min) *min = new_min;
}

void FeedbackRounder::Sweep(int32_t count, float* scales, float* mins) {
  const CodeRange range = RangeOf(layout_);
  const int32_t cols = layout_.cols;
  const int32_t group_cols = layout_.group == 0 ? cols : layout_.group;
  const size_t groups = static_cast<size_t>(layout_.groups());
  const size_t stride = static_cast<size_t>(cols) + 1;
  GroupFit fits[kLanes];
  for (int32_t g = 0; g < layout_.groups(); ++g) {
    const Group group{g, g * group_cols,
                      cols - g * group_cols < group_cols ? cols - g * group_cols : group_cols};
    bool moved = false;
    for (int32_t lane = 0; lane < count; ++lane) {
      const size_t at = static_cast<size_t>(lane) * groups + static_cast<size_t>(g);
      const float before = scales[at];
      float* const min = range.has_min ? &mins[at] : nullptr;
      const float min_before = range.has_min ? *min : 0.0f;
      Refit(group, lane, &scales[at], min);
      fits[lane] = {scales[at], range.has_min ? *min : 0.0f};
      moved = moved || scales[at] != before || fits[lane].min != min_before;
    }
    for (int32_t c = group.begin; c < group.begin + group.count; ++c) {
      // First the change of scale alone, for all columns; then codes one by one.
      const size_t base = static_cast<size_t>(c) * kLanes;
      if (!moved) break;
      float delta[kLanes] = {};
      for (size_t lane = 0; lane < static_cast<size_t>(count); ++lane) {
        const float error = weights_[base + lane] - ValueOf(fits[lane], levels_[base + lane]);
        delta[lane] = error - errors_[base + lane];
        errors_[base + lane] = error;
      }
      MoveColumn(c, delta);
    }
    for (int32_t c = group.begin; c < group.begin + group.count; ++c) {
      const size_t base = static_cast<size_t>(c) * kLanes;
      const float inverse = 1.0f / factors_.moments()[static_cast<size_t>(c) * stride];
      float delta[kLanes] = {};
      bool changed = false;
      for (size_t lane = 0; lane < static_cast<size_t>(count); ++lane) {
        const float ideal =
            weights_[base + lane] - errors_[base + lane] + gradients_[base + lane] * inverse;
        const float level = NearestLevel(range, fits[lane], ideal);
        if (level == levels_[base + lane]) continue;
        levels_[base + lane] = level;
        const float error = weights_[base + lane] - ValueOf(fits[lane], level);
        delta[lane] = error - errors_[base + lane];
        errors_[base + lane] = error;
        changed = true;
      }
      if (changed) MoveColumn(c, delta);
    }
  }
}

}  // namespace cellm
