#ifndef CELLM_SRC_KERNELS_NEON_NEON_H_
#define CELLM_SRC_KERNELS_NEON_NEON_H_

// The NEON tier of 64-bit Arm (base instructions only): four q registers are the 16 lanes of the
// stated orders.

#include "kernels/kernel_rows.h"

namespace cellm::neon {

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

}  // namespace cellm::neon

#endif  // CELLM_SRC_KERNELS_NEON_NEON_H_
