#ifndef CELLM_SRC_KERNELS_NEON_DOT_NEON_DOT_H_
#define CELLM_SRC_KERNELS_NEON_DOT_NEON_DOT_H_

// What the dot product extension adds to the NEON tier: byte dot products in one instruction.

#include "kernels/kernel_rows.h"

namespace cellm::neon_dot {

extern const kernels::KernelTable kTable;

void matmul_packed_a8(const kernels::PackedTiles* w, const kernels::QuantRows* x,
                      int32_t tile_begin, int32_t tile_end, float* out, int64_t out_stride);
void attend(const kernels::AttendArgs* args);

}  // namespace cellm::neon_dot

#endif  // CELLM_SRC_KERNELS_NEON_DOT_NEON_DOT_H_
