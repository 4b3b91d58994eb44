#ifndef CELLM_SRC_PLATFORM_ENTROPY_H_
#define CELLM_SRC_PLATFORM_ENTROPY_H_

#include <cstdint>

namespace cellm::platform {

// 64 unpredictable bits from the operating system; from clock and address where it has none to
// give. Any thread.
uint64_t RandomBits();

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_ENTROPY_H_
