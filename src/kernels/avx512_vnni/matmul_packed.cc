// Packed products by vpdpbusd: four unsigned x signed products into each lane, exact.

#include "kernels/avx512/packed.h"
#include "kernels/avx512_vnni/avx512_vnni.h"
#include "kernels/avx512_vnni/vnni_dot.h"

namespace cellm::avx512_vnni {
void matmul_packed_a8(const kernels::PackedTiles* w, const kernels::QuantRows* x,
                      int32_t tile_begin, int32_t tile_end, float* out, int64_t out_stride) {
  MatmulPacked<VnniDot>(w, x, tile_begin, tile_end, out, out_stride);
}

}  // namespace cellm::avx512_vnni
