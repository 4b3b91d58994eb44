#ifndef CELLM_SRC_MODEL_CLIPPED_LINEAR_H_
#define CELLM_SRC_MODEL_CLIPPED_LINEAR_H_

// A product whose input and output are held in stated bounds; the towers of Gemma 4 have them.

#include <string>

#include "model/binder.h"

namespace cellm {

struct ClippedLinear {
  Weight weight;
  bool clipped = false;
  float input_min = 0.0f, input_max = 0.0f, output_min = 0.0f, output_max = 0.0f;
};

// `name`.linear.weight, and with `clipped` the four bounds beside it.
ClippedLinear BindClipped(Binder& bind, const std::string& name, int32_t rows, int32_t cols,
                          bool clipped);

// out = clip(W clip(x)). `room` holds the clipped input: at least x.rows rows of x.cols floats; it
// may be x itself when x is not needed afterwards, and must not be out.
void RunClipped(Backend& backend, const ClippedLinear& linear, Rows x, Rows room, Rows out);

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_CLIPPED_LINEAR_H_
