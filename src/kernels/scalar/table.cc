#include "kernels/scalar/scalar.h"

namespace cellm::scalar {

constinit const KernelTable kTable = {
#define CELLM_KERNEL(name, exactness, result, parameters) .name = &name,
#include "kernels/kernel_list.inc"
#undef CELLM_KERNEL
};

}  // namespace cellm::scalar
