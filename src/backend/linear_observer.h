#ifndef CELLM_SRC_BACKEND_LINEAR_OBSERVER_H_
#define CELLM_SRC_BACKEND_LINEAR_OBSERVER_H_

// Sees what matrices are multiplied with. For calibration; a backend without one does no more than
// compare a pointer with null.

#include <cstdint>
#include <span>

#include "backend/rows.h"

namespace cellm {

class LinearObserver {
 public:
  virtual ~LinearObserver() = default;
  // Called once for each op, on the thread that called the op, before its products. `sources`:
  // where the stored bytes of the matrices begin in the ModelFile that they were bound from; all
  // are multiplied with the rows of `x`, which are valid during the call.
  virtual void Observe(Rows x, std::span<const uint8_t* const> sources) = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_BACKEND_LINEAR_OBSERVER_H_
