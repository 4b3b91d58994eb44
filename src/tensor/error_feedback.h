#ifndef CELLM_SRC_TENSOR_ERROR_FEEDBACK_H_
#define CELLM_SRC_TENSOR_ERROR_FEEDBACK_H_

// Rounding that looks at what a matrix is multiplied with.
//
// What counts is not the error of a weight but of the outputs. For a row w and its rounded values
// q, with e = w - q and inputs x seen on a calibration text,
//     sum over x of (e . x)^2  =  e^T H e,     H = sum over x of x x^T      [cols, cols]
// so an error in one column can be made good by the columns after it. Two steps minimise it:
//
//   1. Feedback. With H = M D M^T (M unit upper triangular, D diagonal) the sum is
//        sum over k of D_k (e_k + sum over i < k of e_i M[i][k])^2,
//      so columns are rounded from left to right, each after adding the errors before it. This is
//      the rule of GPTQ (Frantar et al. 2022) in the form of LDLQ (Chee et al. 2023, QuIP).
//      A group's scale is searched for when its first column is reached.
//   2. Sweeps of coordinate descent on e^T H e: each group's scale and min by least squares in this
//      norm, then each code to its own minimum, all others held. Never makes the sum larger.
//
// Rows do not influence each other. Deterministic: sums have one order.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/packed.h"

namespace cellm {

// H of a matrix's inputs, prepared for rounding.
class InputFactors {
 public:
  // `moments` [cols, cols], symmetric: sums of products of inputs, in any unit. `damping`: this
  // part of the mean of the diagonal is added to it, which stands for inputs that the text did not
  // show. Memory: 2 * cols^2 floats, and cols^2 doubles during the call; time cols^3 / 3.
  // InvalidArgument: moments that are not finite, or of a size that is not cols^2.
  static Result<InputFactors> Create(int32_t cols, std::span<const float> moments, double damping);

  int32_t cols() const { return cols_; }
  const float* moments() const { return moments_.data(); }  // [cols, cols], damped
  const float* feedback(int32_t col) const {                // M[col][0 .. cols)
    return feedback_.data() + static_cast<size_t>(col) * static_cast<size_t>(cols_);
  }
  const float* conditional() const { return conditional_.data(); }  // D [cols]

 private:
  int32_t cols_ = 0;
  std::vector<float> moments_, feedback_, conditional_;
};

// Rounds up to kTileRows rows at a time. Keeps its buffers between calls; one thread at a time.
class FeedbackRounder {
 public:
  // Both are borrowed. factors.cols() == layout.cols. `sweeps`: of step 2; 0: only step 1.
  FeedbackRounder(const PackedLayout& layout, const InputFactors& factors, int sweeps);

  // rows [count, cols], finite, count <= kTileRows -> codes [count, cols], scales and mins [count,
  // groups] (mins only with has_min).
  void Round(const float* rows, int32_t count, uint8_t* codes, float* scales, float* mins);

 private:
  struct Group;
  void Feedback(int32_t count, float* scales, float* mins);
  void Sweep(int32_t count, float* scales, float* mins);
  void Refit(const Group& group, int32_t lane, float* scale, float* min);
  void MoveColumn(int32_t col, const float* delta);

  const PackedLayout& layout_;
  const InputFactors& factors_;
  const int sweeps_;
  // Lane-major: [cols][kTileRows].
  std::vector<float> weights_, targets_, levels_, errors_, gradients_;
  std::vector<float> group_values_, group_products_, group_ones_;
};

}  // namespace cellm

#endif  // CELLM_SRC_TENSOR_ERROR_FEEDBACK_H_
