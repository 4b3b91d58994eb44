// Attention without VNNI: byte products in nibbles and 16-bit pairs.

#include "kernels/avx512/attend.h"

#include "kernels/avx512/pair_dot.h"

namespace cellm::avx512 {

void attend(const AttendArgs* args) { Attend<PairDot>(*args); }

}  // namespace cellm::avx512
