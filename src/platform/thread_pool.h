#ifndef CELLM_SRC_PLATFORM_THREAD_POOL_H_
#define CELLM_SRC_PLATFORM_THREAD_POOL_H_

// The thread pool of an engine: N - 1 workers and the caller.
//
// Run() splits work into tiles that threads claim one by one from a counter, so that a slow or
// preempted core delays only the tile it holds. Tiles must write disjoint outputs and must not
// depend on who runs them; then results are the same for every thread count.
//
// Between runs, workers spin for a few tens of microseconds (the next run of the same step comes
// soon) and then sleep on a condition: an idle pool uses no CPU. A pool of one thread calls the
// function in place.

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace cellm::platform {

class ThreadPool {
 public:
  // `worker` is in [0, threads()): an index for per-thread scratch, not a tile owner.
  using TileFunction = void (*)(void* arg, int32_t tile, int32_t worker);

  // `threads` >= 1, but no more than `cores` (0: those that this process may use), so that asking
  // for too many costs nothing. Io when the operating system refuses a thread (nothing is left
  // running).
  static Result<std::unique_ptr<ThreadPool>> Create(int32_t threads, int32_t cores = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // How many there are, the caller among them.
  int32_t threads() const { return threads_; }
  // How many compute, from the next Run() on: brought to between 1 and threads(); the others sleep.
  // By the thread that calls Run(), not during one.
  int32_t active() const;
  void SetActive(int32_t threads);

  // Calls function(arg, tile, worker) once for every tile in [0, tiles) and returns when all are
  // done; writes of all tiles are then visible. Allocates nothing. One caller at a time; tiles may
  // not call Run().
  void Run(int32_t tiles, TileFunction function, void* arg);

  // The same for a callable `body(tile, worker)`, which is called by reference.
  template <typename Body>
  void For(int32_t tiles, const Body& body) {
    Run(
        tiles,
        [](void* arg, int32_t tile, int32_t worker) {
          (*static_cast<const Body*>(arg))(tile, worker);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  struct Impl;
  ThreadPool(std::unique_ptr<Impl> impl, int32_t threads);
  std::unique_ptr<Impl> impl_;
  int32_t threads_ = 1;
};

}  // namespace cellm::platform

#endif  // CELLM_SRC_PLATFORM_THREAD_POOL_H_
