#include "kernels/neon_dot/neon_dot.h"

namespace cellm::neon_dot {

constinit const kernels::KernelTable kTable = {.matmul_packed_a8 = &matmul_packed_a8,
                                               .attend = &attend};

}  // namespace cellm::neon_dot
