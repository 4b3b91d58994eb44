// Attention with byte products by vpdpbusd.

#include "kernels/avx512/attend.h"

#include "kernels/avx512_vnni/vnni_dot.h"

namespace cellm::avx512_vnni {

void attend(const kernels::AttendArgs* args) { Attend<VnniDot>(*args); }

}  // namespace cellm::avx512_vnni
