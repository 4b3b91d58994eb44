#ifndef CELLM_SRC_FORMAT_CALIBRATION_H_
#define CELLM_SRC_FORMAT_CALIBRATION_H_

// What a run over a calibration text showed of the inputs of a model's matrices. Collected by the
// engine (backend/input_statistics.h), used by ConvertModel().

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::format {

// Of one matrix: the sums of products of its inputs over all tokens that reached it.
struct InputMoments {
  std::string tensor;   // its name in the model file
  int32_t matrix = -1;  // the expert of a fused tensor; -1: the tensor is one matrix
  int32_t cols = 0;
  std::span<const float> moments;  // [cols, cols], or [cols]: the diagonal alone; borrowed
};

struct Calibration {
  std::vector<InputMoments> inputs;

  const InputMoments* Find(std::string_view tensor, int32_t matrix) const {
    const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const InputMoments& input) {
      return input.tensor == tensor && input.matrix == matrix;
    });
    return found == inputs.end() ? nullptr : &*found;
  }
};

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_CALIBRATION_H_
