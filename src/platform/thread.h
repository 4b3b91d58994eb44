#ifndef CELLM_SRC_PLATFORM_THREAD_H_
#define CELLM_SRC_PLATFORM_THREAD_H_

// A thread whose creation can fail with a Status (std::thread would end the process).

#include <cstdint>

#include "base/status.h"

namespace cellm::platform {

class Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();  // joins

  // Starts function(arg) with the process's default stack. Io when the system refuses.
  static Result<Thread> Start(void (*function)(void*), void* arg);
  void Join();

 private:
  uint64_t handle_ = 0;
  bool running_ = false;
};

// For tests: the n-th Start() of this process from now on fails (0: none does).
void FailThreadStartForTest(int32_t nth);

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_THREAD_H_
