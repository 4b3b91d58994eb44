#ifndef CELLM_SRC_PLATFORM_THREAD_H_
#define CELLM_SRC_PLATFORM_THREAD_H_

// A thread whose creation can fail with a Status (std::thread would end the process).

#include <condition_variable>
#include <cstdint>
#include <mutex>

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

// A number for the calling thread, unlike that of any other thread that runs; never 0.
uint64_t CurrentThread();

// Waits on `condition` for at most `ns` nanoseconds; returns early when notified, or for no reason.
void WaitFor(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, int64_t ns);

// For tests: the n-th Start() of this process from now on fails (0: none does).
void FailThreadStartForTest(int32_t nth);

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_THREAD_H_
