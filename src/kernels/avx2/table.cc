#include "kernels/avx2/avx2.h"

namespace cellm::avx2 {

// Every row: this tier has all of them.
constinit const KernelTable kTable = {
#define CELLM_KERNEL(name, exactness, result, parameters) .name = &name,
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
};

}  // namespace cellm::avx2
