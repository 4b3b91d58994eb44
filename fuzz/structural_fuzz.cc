// Any bytes as structural constraints.
#include <cstdint>
#include <string>
#include <string_view>

#include "support/constrain_exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) return 0;
  std::string reply;
  cellm::fuzz::ExerciseConstraint(cellm::constrain::ConstraintKind::kStructural,
                                  std::string_view(reinterpret_cast<const char*>(data), size),
                                  &reply);
  return 0;
}
