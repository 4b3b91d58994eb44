// Attention without dot products: byte products in 16 bits, widened in pairs.

#include "kernels/neon/attend.h"

namespace cellm::neon {
namespace {

struct WideningDot {
  static CELLM_INLINE int32x4_t AddFour(int32x4_t sums, int8x16_t levels, int8x16_t x) {
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(levels), vget_low_s8(x)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(levels, x));
    return vaddq_s32(sums, vpaddq_s32(low, high));
  }
};

}  // namespace

void attend(const AttendArgs* args) { Attend<WideningDot>(*args); }

}  // namespace cellm::neon
