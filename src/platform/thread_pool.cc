// How a run is published and claimed.
//
// One 64-bit word holds (run number, next tile). A thread claims a tile by compare-and-swap on the
// whole word, so a claim can only succeed for the run whose fields it has read: before the fields
// change, the caller moves the word to the next run number with the tile part "closed". Nobody has
// to check in for a run to end; the caller waits for the tiles that were claimed, not for threads.
// So a worker that sleeps or is preempted between tiles costs nothing but its help.
//
// Sleep and wake: a worker that found nothing to do reads `signal_`, announces itself in
// `sleepers_`, looks at the word once more and waits on `signal_`. The caller publishes the word
// and then looks at `sleepers_`. Both sides use sequentially consistent operations, so either the
// worker sees the run or the caller sees the sleeper.
#include "platform/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "platform/clock.h"
#include "platform/cores.h"
#include "platform/thread.h"

namespace cellm::platform {
namespace {

constexpr uint32_t kClosed = 0x7FFFFFFF;
// How long a thread spins before it sleeps: longer than the serial part between two products of a
// layer, shorter than a scheduler's time slice.
constexpr int64_t kSpinNs = 40000;

uint64_t Word(uint32_t run, uint32_t tile) { return (uint64_t{run} << 32) | tile; }

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::Impl {
  std::atomic<uint64_t> word{Word(0, kClosed)};
  std::atomic<int32_t> tiles{0};
  std::atomic<TileFunction> function{nullptr};
  std::atomic<void*> arg{nullptr};
  std::atomic<int32_t> unfinished{0};  // tiles of the run that are not done

  std::atomic<uint32_t> signal{0};
  std::atomic<int32_t> sleepers{0};
  std::atomic<bool> stop{false};
  // Workers from this number on have nothing to do; they wait for `activations` to move.
  std::atomic<int32_t> active{1};
  std::atomic<uint32_t> activations{0};

  uint32_t run = 0;
  std::atomic<int32_t> next_worker{1};
  std::vector<Thread> workers;

  // Runs one tile if there is one. False when there was none to claim.
  bool RunOneTile(int32_t worker) {
    uint64_t seen = word.load(std::memory_order_acquire);  // pairs with the store in Publish()
    for (;;) {
      const uint32_t tile = static_cast<uint32_t>(seen);
      // The fields may be those of a later run; having read one (acquire, pairs with Publish())
      // means that the word has moved on, and then the exchange below fails.
      const int32_t count = tiles.load(std::memory_order_acquire);
      const TileFunction call = function.load(std::memory_order_acquire);
      void* const with = arg.load(std::memory_order_acquire);
      if (tile >= static_cast<uint32_t>(count)) return false;
      if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        continue;
      }
      call(with, static_cast<int32_t>(tile), worker);
      // Release: the tile's writes; the caller's acquire load of 0 sees them.
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
      return true;
    }
  }

  void Publish(int32_t count, TileFunction call, void* with) {
    ++run;
    word.store(Word(run, kClosed), std::memory_order_seq_cst);
    tiles.store(count, std::memory_order_release);
    function.store(call, std::memory_order_release);
    arg.store(with, std::memory_order_release);
    unfinished.store(count, std::memory_order_relaxed);
    word.store(Word(run, 0), std::memory_order_seq_cst);
    Wake();
  }

  void Wake() {
    if (sleepers.load(std::memory_order_seq_cst) == 0) return;
    signal.fetch_add(1, std::memory_order_seq_cst);
    signal.notify_all();
  }

  bool HasWork() const {
    const uint64_t seen = word.load(std::memory_order_seq_cst);
    return static_cast<uint32_t>(seen) < static_cast<uint32_t>(tiles.load());
  }

  // Waits without sleeping until `ready()` or the spin time is over.
  template <typename Ready>
  static bool Spin(const Ready& ready) {
    const int64_t end = MonotonicClock().NowNs() + kSpinNs;
    do {
      for (int i = 0; i < 64; ++i) {
        if (ready()) return true;
        Pause();
      }
    } while (MonotonicClock().NowNs() < end);
    return ready();
  }

  void Work(int32_t worker) {
    while (!stop.load(std::memory_order_seq_cst)) {
      if (worker >= active.load(std::memory_order_seq_cst)) {
        const uint32_t before = activations.load(std::memory_order_seq_cst);
        if (worker >= active.load(std::memory_order_seq_cst) &&
            !stop.load(std::memory_order_seq_cst)) {
          activations.wait(before);
        }
        continue;
      }
      while (RunOneTile(worker)) {
      }
      if (Spin([this] { return HasWork() || stop.load(std::memory_order_relaxed); })) continue;
      const uint32_t before = signal.load(std::memory_order_seq_cst);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      if (!HasWork() && !stop.load(std::memory_order_seq_cst)) signal.wait(before);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  void WaitForTiles() {
    if (Spin([this] { return unfinished.load(std::memory_order_acquire) == 0; })) return;
    for (int32_t left = unfinished.load(std::memory_order_acquire); left != 0;
         left = unfinished.load(std::memory_order_acquire)) {
      unfinished.wait(left, std::memory_order_acquire);
    }
  }

  static void Enter(void* self) {
    Impl* const impl = static_cast<Impl*>(self);
    impl->Work(impl->next_worker.fetch_add(1));
  }
};

ThreadPool::ThreadPool(std::unique_ptr<Impl> impl, int32_t threads)
    : impl_(std::move(impl)), threads_(threads) {}

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int32_t threads, int32_t cores) {
  if (threads < 1 || threads > kMaxThreads) {
    return InvalidArgument("threads: %d is not between 1 and %d", threads, kMaxThreads);
  }
  // Threads beyond the cores could only push each other off: spinning they would take the time of
  // those with work, sleeping they would cost a wake-up a run.
  threads = std::min(threads, cores > 0 ? cores : UsableCores());
  std::unique_ptr<ThreadPool> pool(new ThreadPool(std::make_unique<Impl>(), threads));
  Impl& impl = *pool->impl_;
  impl.active.store(threads);
  impl.workers.reserve(static_cast<size_t>(threads));
  for (int32_t i = 1; i < threads; ++i) {
    CELLM_ASSIGN_OR_RETURN(Thread worker, Thread::Start(&Impl::Enter, &impl));
    impl.workers.push_back(std::move(worker));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  impl_->stop.store(true);
  impl_->signal.fetch_add(1);
  impl_->signal.notify_all();
  impl_->activations.fetch_add(1);
  impl_->activations.notify_all();
  for (Thread& worker : impl_->workers) worker.Join();
}

int32_t ThreadPool::active() const { return impl_->active.load(std::memory_order_relaxed); }

void ThreadPool::SetActive(int32_t threads) {
  threads = std::clamp(threads, 1, threads_);
  if (threads == impl_->active.load(std::memory_order_relaxed)) return;  // only we store it
  impl_->active.store(threads, std::memory_order_seq_cst);
  impl_->activations.fetch_add(1, std::memory_order_seq_cst);
  impl_->activations.notify_all();
}

void ThreadPool::Run(int32_t tiles, TileFunction function, void* arg) {
  if (impl_->active.load(std::memory_order_relaxed) == 1 || tiles <= 1) {
    for (int32_t tile = 0; tile < tiles; ++tile) function(arg, tile, 0);
    return;
  }
  impl_->Publish(tiles, function, arg);
  while (impl_->RunOneTile(0)) {
  }
  impl_->WaitForTiles();
}

}  // namespace cellm::platform
