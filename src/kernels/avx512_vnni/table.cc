#include "kernels/avx512_vnni/avx512_vnni.h"

namespace cellm::avx512_vnni {

constinit const kernels::KernelTable kTable = {.matmul_packed_a8 = &matmul_packed_a8,
                                               .attend = &attend};

}  // namespace cellm::avx512_vnni
