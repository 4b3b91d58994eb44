// Packed products by sdot: four signed products into each lane, exact; the activations' four bytes
// are an element of a register, so they need no broadcast.

#include "kernels/neon/packed.h"
#include "kernels/neon_dot/neon_dot.h"

namespace cellm::neon_dot {
namespace {

struct SdotDot {
  using Sums = int32x4_t;
  static CELLM_INLINE Sums Zero() { return vdupq_n_s32(0); }
  static CELLM_INLINE int32x4_t Total(Sums sums) { return sums; }
  template <int kLane>
  static CELLM_INLINE Sums Add2(Sums sums, int8x16_t a, int8x16_t b, int8x16_t x) {
    sums = vdotq_laneq_s32(sums, a, x, kLane);
    return vdotq_laneq_s32(sums, b, x, kLane + 1);
  }
};

}  // namespace

void matmul_packed_a8(const kernels::PackedTiles* w, const kernels::QuantRows* x,
                      int32_t tile_begin, int32_t tile_end, float* out, int64_t out_stride) {
  MatmulPacked<SdotDot>(w, x, tile_begin, tile_end, out, out_stride);
}

}  // namespace cellm::neon_dot
