#ifndef CELLM_SRC_PLATFORM_CORES_H_
#define CELLM_SRC_PLATFORM_CORES_H_

// How many threads are worth having, and how much memory there is, as this process may use them:
// affinity, hyper-threads, slow cores, and the quotas of control groups (versions 1 and 2).

#include <algorithm>
#include <cstdint>
#include <string>

namespace cellm::platform {

// More threads than any machine for small models has use for; bounds what an option can ask.
inline constexpr int32_t kMaxThreads = 256;

// The default thread count, >= 1: physical cores in the affinity mask whose capacity is at least
// half of the fastest one's, at most the control group's CPU quota rounded down. Files are read
// below `root` ("" is the real system; tests give a folder with a fake /proc and /sys).
int32_t UsableCores(const std::string& root = "");
// The quota part alone: whole CPUs, or 0 when there is no limit.
int32_t CpuQuota(const std::string& root = "");

struct MemoryInfo {
  uint64_t total_bytes = 0;      // of the machine; 0: unknown
  uint64_t available_bytes = 0;  // that could be used without swapping; 0: unknown
  uint64_t limit_bytes = 0;      // the lowest of this process's control groups; 0: none
  // What those groups leave: limit minus use, file pages that can be dropped not counted as used.
  // The least of all groups with a limit; meaningful when limit_bytes is not 0.
  uint64_t limit_left_bytes = 0;

  // What can still be taken: the smaller of the machine's and the groups'; 0: unknown.
  uint64_t left_bytes() const {
    return limit_bytes == 0 ? available_bytes : std::min(available_bytes, limit_left_bytes);
  }
};
MemoryInfo ReadMemoryInfo(const std::string& root = "");
// Resident bytes of this process that no file backs (RssAnon); 0: unknown.
uint64_t AnonymousBytes();

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_CORES_H_
