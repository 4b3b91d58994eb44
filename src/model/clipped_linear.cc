#include "model/clipped_linear.h"

namespace cellm {

ClippedLinear BindClipped(Binder& bind, const std::string& name, int32_t rows, int32_t cols,
                          bool clipped) {
  ClippedLinear linear;
  linear.weight = bind.Linear(name + ".linear", rows, cols);
  linear.clipped = clipped;
  if (!clipped) return linear;
  const auto bound = [&](const char* which) {
    const Vector value = bind.Floats(name + which, 1);
    return value.empty() ? 0.0f : value[0];
  };
  linear.input_min = bound(".input_min");
  linear.input_max = bound(".input_max");
  linear.output_min = bound(".output_min");
  linear.output_max = bound(".output_max");
  return linear;
}

void RunClipped(Backend& backend, const ClippedLinear& linear, Rows x, Rows room, Rows out) {
  if (!linear.clipped) {
    backend.Linear(x, linear.weight, nullptr, out);
    return;
  }
  backend.Clamp(x, linear.input_min, linear.input_max, room);
  backend.Linear(room, linear.weight, nullptr, out);
  backend.Clamp(out, linear.output_min, linear.output_max, out);
}

}  // namespace cellm
