#ifndef CELLM_SRC_KERNELS_AVX512_VNNI_AVX512_VNNI_H_
#define CELLM_SRC_KERNELS_AVX512_VNNI_AVX512_VNNI_H_

// What VNNI adds to the AVX-512 tier: byte dot products in one instruction.

#include "kernels/kernel_rows.h"

namespace cellm::avx512_vnni {

extern const kernels::KernelTable kTable;

void matmul_packed_a8(const kernels::PackedTiles* w, const kernels::QuantRows* x,
                      int32_t tile_begin, int32_t tile_end, float* out, int64_t out_stride);
void attend(const kernels::AttendArgs* args);

}  // namespace cellm::avx512_vnni

#endif  // CELLM_SRC_KERNELS_AVX512_VNNI_AVX512_VNNI_H_
