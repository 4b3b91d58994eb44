// Attention with byte products by sdot.

#include "kernels/neon/attend.h"

#include "kernels/neon_dot/neon_dot.h"

namespace cellm::neon_dot {
namespace {

struct ElementDot {
  static CELLM_INLINE int32x4_t AddFour(int32x4_t sums, int8x16_t levels, int8x16_t x) {
    return vdotq_s32(sums, levels, x);
  }
};

}  // namespace

void attend(const kernels::AttendArgs* args) { Attend<ElementDot>(*args); }

}  // namespace cellm::neon_dot
