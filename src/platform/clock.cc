#include "platform/clock.h"

#include <time.h>

namespace cellm::platform {
namespace {

int64_t Read(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

class SystemClock final : public Clock {
 public:
  int64_t NowNs() override { return Read(CLOCK_MONOTONIC); }
};

constinit SystemClock system_clock;

}  // namespace

Clock& MonotonicClock() { return system_clock; }
int64_t WallClockSeconds() { return Read(CLOCK_REALTIME) / 1000000000; }

}  // namespace cellm::platform
