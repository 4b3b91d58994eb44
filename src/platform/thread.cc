#include "platform/thread.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

namespace cellm::platform {
namespace {

constinit std::atomic<int32_t> starts_until_failure{0};

struct Entry {
  void (*function)(void*);
  void* arg;
};

void* Enter(void* raw) {
  const std::unique_ptr<Entry> entry(static_cast<Entry*>(raw));
  entry->function(entry->arg);
  return nullptr;
}

}  // namespace

static_assert(sizeof(pthread_t) <= sizeof(uint64_t));

Thread::Thread(Thread&& other) noexcept
    : handle_(other.handle_), running_(std::exchange(other.running_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    Join();
    handle_ = other.handle_;
    running_ = std::exchange(other.running_, false);
  }
  return *this;
}

Thread::~Thread() { Join(); }

Result<Thread> Thread::Start(void (*function)(void*), void* arg) {
  auto entry = std::make_unique<Entry>(Entry{function, arg});
  pthread_t handle{};
  int error = 0;
  if (starts_until_failure.load() > 0 && starts_until_failure.fetch_sub(1) == 1) {
    error = EAGAIN;
  } else {
    error = pthread_create(&handle, nullptr, &Enter, entry.get());
  }
  if (error != 0) return IoError("thread: the system refuses another one: %s", strerror(error));
  static_cast<void>(entry.release());  // Enter() owns it now
  Thread thread;
  std::memcpy(&thread.handle_, &handle, sizeof(handle));
  thread.running_ = true;
  return thread;
}

void Thread::Join() {
  if (!running_) return;
  pthread_t handle{};
  std::memcpy(&handle, &handle_, sizeof(handle));
  pthread_join(handle, nullptr);
  running_ = false;
}

void FailThreadStartForTest(int32_t nth) { starts_until_failure.store(nth); }

uint64_t CurrentThread() {
  // The address of something that each thread has for itself.
  static thread_local char mine;
  return reinterpret_cast<uintptr_t>(&mine);
}

void WaitFor(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, int64_t ns) {
  condition.wait_for(lock, std::chrono::nanoseconds(ns));
}

}  // namespace cellm::platform
