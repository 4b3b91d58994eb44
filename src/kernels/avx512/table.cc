#include "kernels/avx512/avx512.h"

namespace cellm::avx512 {

// Every row: this tier has all of them.
constinit const KernelTable kTable = {
#define CELLM_KERNEL(name, exactness, result, parameters) .name = &name,
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
};

}  // namespace cellm::avx512
