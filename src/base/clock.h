#ifndef CELLM_SRC_BASE_CLOCK_H_
#define CELLM_SRC_BASE_CLOCK_H_

#include <cstdint>

namespace cellm {

// Time as the engine sees it; injected so that tests move it by hand. The real one is
// platform::MonotonicClock().
class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary start; never goes back. Any thread.
  virtual int64_t NowNs() = 0;
};

}  // namespace cellm

#endif  // CELLM_SRC_BASE_CLOCK_H_
