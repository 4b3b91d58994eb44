#ifndef CELLM_SRC_PLATFORM_CLOCK_H_
#define CELLM_SRC_PLATFORM_CLOCK_H_

#include "base/clock.h"

namespace cellm::platform {

// The system's monotonic clock. One object, alive for ever, any thread.
Clock& MonotonicClock();

// Seconds since the epoch (UTC), for dates that people see.
int64_t WallClockSeconds();

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_CLOCK_H_
