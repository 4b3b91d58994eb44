#ifndef CELLM_SRC_KERNELS_AVX2_AVX2_H_
#define CELLM_SRC_KERNELS_AVX2_AVX2_H_

// The AVX2 tier (with FMA, F16C and BMI2): two ymm are the 16 lanes of the stated orders.

#include "kernels/kernel_rows.h"

namespace cellm::avx2 {

using kernels::AttendArgs;
using kernels::AttendState;
using kernels::DeltaRuleArgs;
using kernels::KernelTable;
using kernels::KvCodes;
using kernels::KvPages;
using kernels::PackedTiles;
using kernels::QuantRows;

extern const KernelTable kTable;

#define CELLM_KERNEL(name, exactness, result, parameters) result name parameters;
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL

}  // namespace cellm::avx2

#endif  // CELLM_SRC_KERNELS_AVX2_AVX2_H_
