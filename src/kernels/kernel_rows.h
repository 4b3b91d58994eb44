#ifndef CELLM_SRC_KERNELS_KERNEL_ROWS_H_
#define CELLM_SRC_KERNELS_KERNEL_ROWS_H_

// The table of kernels as a plain struct, apart from its choice, so that tier files may include it.

#include "kernels/kernel_types.h"

namespace cellm::kernels {

struct KernelTable {
#define CELLM_KERNEL(name, exactness, result, parameters) result(*name) parameters = nullptr;
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
};

}  // namespace cellm::kernels

#endif  // CELLM_SRC_KERNELS_KERNEL_ROWS_H_
