#include "kernels/neon/neon.h"

namespace cellm::neon {

// Every row: this tier has all of them.
constinit const KernelTable kTable = {
#define CELLM_KERNEL(name, exactness, result, parameters) .name = &name,
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
};

}  // namespace cellm::neon
