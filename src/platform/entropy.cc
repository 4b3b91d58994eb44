#include "platform/entropy.h"

#include <time.h>
#include <unistd.h>

namespace cellm::platform {

uint64_t RandomBits() {
  uint64_t bits = 0;
  if (getentropy(&bits, sizeof(bits)) == 0) return bits;
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_nsec) * 0x9E3779B97F4A7C15u ^
         static_cast<uint64_t>(now.tv_sec) ^ reinterpret_cast<uintptr_t>(&bits);
}

}  // namespace cellm::platform
