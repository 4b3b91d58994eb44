#ifndef CELLM_SRC_KERNELS_SCALAR_SCALAR_H_
#define CELLM_SRC_KERNELS_SCALAR_SCALAR_H_

// The scalar tier: the definition of every kernel. Plain loops, baseline instructions only.

#include "kernels/kernel_rows.h"

namespace cellm::scalar {

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

}  // namespace cellm::scalar

#endif  // CELLM_SRC_KERNELS_SCALAR_SCALAR_H_
