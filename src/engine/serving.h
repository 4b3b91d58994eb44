#ifndef CELLM_SRC_ENGINE_SERVING_H_
#define CELLM_SRC_ENGINE_SERVING_H_

// Many requests on one engine: continuous batching within one memory budget.
//
//   Submit --> waiting --Scheduler--> running --> ended
//                 ^                      |
//                 +-- swapped, dropped <-+   when memory is short: nothing is lost, only time
//
// A request is a list of tokens that grows: its prompt, then what is chosen from the logits. What
// was evaluated of it lives in the cache; when memory is short that part is paused, written to the
// swap file or dropped and evaluated again, and none of this can be seen in the logits. When a
// request ends, its past is kept for the next one that begins with the same tokens (past_store.h).
//
// Threads: there is no thread of its own. Whoever waits for a request drives the steps for all of
// them while nobody else does (leader and followers); the others sleep. All public functions may be
// called from any thread; hooks are called by the thread that drives, and may not call in here.
//
// Memory: Submit() admits only what fits the budget by itself, so that an admitted request can
// always be finished by taking memory from others. The order in which others give way:
//   1. prefill chunks become smaller          4. background requests are preempted, then
//   interactive
//   2. pasts that nobody uses are dropped        ones of later deadline (paused, swapped, dropped)
//      or written to the swap file            5. new requests that can never fit are refused
//      (cold pages are demoted by position, before there is a need: KvStorage)
//   3. swapping, where it is cheaper than computing

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/allocator.h"
#include "base/clock.h"
#include "base/status.h"
#include "engine/cost_model.h"
#include "engine/engine.h"
#include "engine/past_store.h"
#include "engine/scheduler.h"
#include "engine/swap_file.h"
#include "engine/thermal.h"
#include "platform/thread.h"

namespace cellm {

struct ServingOptions {
  SchedulePolicy policy = SchedulePolicy::kDeadline;
  int64_t step_budget_ns = 0;  // 0: SchedulerOptions' default
  int32_t chunk_tokens = 512;  // most tokens of one request in a step
  // Most bytes of pasts kept for reuse when nothing else limits them.
  uint64_t past_bytes = uint64_t{256} << 20;
  // States are kept at multiples of this many tokens of a prompt, for models that cannot start just
  // anywhere in a past. 0: only where prompts end or part.
  int32_t checkpoint_tokens = 512;
  std::unique_ptr<platform::RandomFile> swap;  // null: nothing is swapped
  uint64_t swap_bytes = 0;
  // Limits and counts everything the engine allocates; null: no limit but the engine's own.
  BudgetAllocator* budget = nullptr;
  Clock* clock = nullptr;  // never null
  ThermalOptions thermal;
};

// What becomes of the logits after the last known token.
struct Choice {
  int32_t token = -1;  // goes on with this one; < 0: nothing is added
  bool last = false;   // the request ends (the last token, if any, is not evaluated)
  // Tokens that follow `token` and need no logits: they are evaluated together. Valid until the
  // hook is called again.
  std::span<const int32_t> more = {};
};

struct RequestHooks {
  void* user = nullptr;
  // Asked before each step, under the lock: true ends the request. May be null.
  bool (*cancelled)(void* user) = nullptr;
  // By the driving thread, not under the lock. Not called without wants_logits.
  Result<Choice> (*choose)(void* user, std::span<const float> logits) = nullptr;
  // Under the lock, after choose() and at the end: what was chosen may be shown now.
  void (*publish)(void* user) = nullptr;
  // By the driving thread, not under the lock: the states after the last norm of the tokens from
  // `position` on. Positions come in order, but start again from 0 when the request had to give way
  // to others. An error ends the request. Called with wants_states only.
  Status (*states)(void* user, int32_t position, Rows states) = nullptr;
};

struct RequestSpec {
  std::vector<int32_t> tokens;  // at least one; checked by the caller against the vocabulary
  int32_t planned_tokens = 0;   // the length that it may reach
  bool wants_logits = true;     // false: the prompt is evaluated, nothing is chosen
  bool wants_states = false;    // of every token, so no past is reused; without wants_logits
  LatencyClass latency_class = LatencyClass::kInteractive;
  uint32_t weight = 1;
  int64_t token_interval_ns = 0;  // a token is due so long after the one before; 0: no deadline
  // Requests of one key share pasts. 0: everyone's.
  uint64_t share_key = 0;
  bool keep_past = true;
  RequestHooks hooks;
};

enum class RequestEnd : uint8_t { kNone, kDone, kCancelled, kFailed };

struct RequestProgress {
  RequestEnd end = RequestEnd::kNone;
  Status status;  // of kFailed
  int32_t prompt_tokens = 0;
  int32_t evaluated = 0;                           // of all its tokens
  int32_t reused = 0;                              // of the prompt, found in a past
  int64_t prompt_begin_ns = 0, prompt_end_ns = 0;  // 0: not yet
  int32_t preemptions = 0;
};

struct ServingStats {
  int64_t steps = 0, preempted_paused = 0, preempted_swapped = 0, preempted_dropped = 0;
  int64_t swap_failures = 0;
  uint64_t swapped_bytes = 0;  // in the swap file now
  uint64_t past_bytes = 0;     // reusable, in memory
  int64_t pasts = 0;
  int64_t waiting = 0, running = 0;
};

// What heat and power allow now.
struct ServingHeat {
  ThermalLevel level = ThermalLevel::kNominal;
  PowerHint power = PowerHint::kNormal;
  ThermalLimits limits;
  int64_t wait_ns = 0;  // until the next step may begin or the next token be produced
};

class Serving {
 public:
  // `engine` outlives it.
  Serving(Engine& engine, ServingOptions options);
  ~Serving();

  using Lock = std::unique_lock<std::mutex>;
  // Guards everything here, and whatever the caller wants to change together with it.
  Lock Acquire() { return Lock(mutex_); }

  // All of the following take the lock that Acquire() gave.

  // A new request; it runs while somebody drives. OutOfMemory (needed and available) when it can
  // never fit the budget, OutOfRange past the context.
  Result<uint64_t> Submit(const Lock& lock, RequestSpec spec);
  // The request stops within the step under way; its past is kept. As does hooks.cancelled.
  void Cancel(const Lock& lock, uint64_t id);
  // At most this many further tokens are chosen before it waits for more.
  void AllowTokens(const Lock& lock, uint64_t id, int32_t count);
  const RequestProgress& progress(const Lock& lock, uint64_t id) const;
  // Its tokens: the prompt and what was chosen.
  std::span<const int32_t> tokens(const Lock& lock, uint64_t id) const;
  // Ends it if need be and forgets it. Waits for the step under way to let go of its hooks.
  void Close(Lock& lock, uint64_t id);
  // Forgets pasts of a share key.
  void ForgetPasts(Lock& lock, uint64_t share_key);

  // Drives steps until ready() holds (checked under the lock), sleeping while another thread does.
  // Busy when called from a hook or a callback of the driving thread.
  template <typename Ready>
  Status WaitUntil(Lock& lock, const Ready& ready) {
    for (;;) {
      if (ready()) return OkStatus();
      CELLM_RETURN_IF_ERROR(DriveOrWait(lock));
    }
  }
  // One step if anything can run. Returns false when there was nothing to do.
  Result<bool> DriveOnce(Lock& lock);

  // What is kept of a beginning of `tokens`, the longest that there is: `write(count, contents)` is
  // called with how many tokens it covers and its bytes (none: 0). Returns what `write` does.
  template <typename Write>
  Status WithPast(Lock& lock, uint64_t share_key, int32_t planned_tokens,
                  std::span<const int32_t> tokens, const Write& write) {
    std::vector<std::span<uint8_t>> contents;
    Lead(lock);
    const int32_t count = FindPast(share_key, planned_tokens, tokens, &contents);
    const Status status = write(count, contents);
    StopLeading(lock);
    return status;
  }
  // Keeps a past whose bytes come from elsewhere. Corrupt: not as many as `tokens` need.
  // OutOfMemory: they do not fit.
  Status AddPast(Lock& lock, uint64_t share_key, int32_t planned_tokens,
                 std::span<const int32_t> tokens, std::span<const uint8_t> contents);

  // The engine for the caller alone, between steps and without the lock: for work that is no
  // request. Busy as above, else what `run` returns.
  template <typename Run>
  Status RunAlone(Lock& lock, const Run& run) {
    if (leads_already()) return Busy("the engine is in use by the caller of this function");
    Lead(lock);
    NoteCache();
    lock.unlock();
    const Status status = run();
    lock.lock();
    StopLeading(lock);
    return status;
  }
  // From within `run`, when the engine said OutOfMemory or Busy: takes memory from a past or a
  // request. False when there is none.
  bool FreeSomethingAlone();

  // Takes effect before the next step, at once when nobody drives. 0: no limit.
  Status SetBudget(Lock& lock, uint64_t bytes);
  void SetLimits(const Lock& lock, bool background_allowed, bool interactive_allowed,
                 int32_t tokens_per_second);  // 0: no cap
  // The operating system's own level and a power hint, whenever they change: a level rises at once
  // and falls step by step (thermal.h), or `at_once` when the caller has steadied it.
  void ReportHeat(const Lock& lock, ThermalLevel level, PowerHint power, bool at_once);
  // Instead of levels: readings of a sensor, about once a second.
  void ReportTemperature(const Lock& lock, double celsius);
  ServingHeat heat(const Lock& lock);
  ServingStats stats(const Lock& lock) const;
  const CostModel& cost() const { return estimator_.model(); }
  // Aborts when requests, pasts and cache disagree. For tests, while nobody drives.
  void CheckInvariants(const Lock& lock) const;

 private:
  struct Request;

  Request* Find(uint64_t id) const;
  bool leads_already() const { return leading_ && leader_ == platform::CurrentThread(); }
  // Whether another thread has the engine, without the lock: the cache may not be looked at.
  bool others_lead() const { return leading_ && !leads_already(); }
  // By whoever leads, before it lets go of the lock.
  void NoteCache();
  // To be the only one to touch the engine: waits for the step under way.
  void Lead(Lock& lock);
  void StopLeading(Lock& lock);
  Status DriveOrWait(Lock& lock);
  // The rest is for whoever leads.
  bool RunStep(Lock& lock);  // whether anything was done
  void BuildViews();
  Resources Available(int64_t now_ns);
  bool Rearrange(const StepPlan& plan);
  void GatherItems(const StepPlan& plan, int64_t now_ns);
  // Limits of the moment; by time alone a level may have fallen.
  const ThermalLimits& UpdateHeat(int64_t now_ns);
  int32_t CutAtCheckpoint(const Request& request, int32_t count) const;
  bool IsCheckpoint(const Request& request) const;
  void Evaluate(Lock& lock);
  void AfterItem(Request* request, int32_t count, int64_t now_ns);
  void StepFailed(const Status& status);
  Status Begin(Request* request);
  Status SwapIn(Request* request);
  void Preempt(Request* request, PreemptBy by);
  bool FreeSomething();
  void KeepPast(Request* request);
  void End(Request* request, RequestEnd end, Status status);
  void Leave(Request* request);  // gives up its memory, keeping its past
  uint64_t CacheKey(uint64_t share_key, int32_t planned_tokens) const;
  uint64_t CacheKey(const Request& request) const;
  int32_t FindPast(uint64_t share_key, int32_t planned_tokens, std::span<const int32_t> tokens,
                   std::vector<std::span<uint8_t>>* contents);
  uint64_t CacheLimit() const;
  int64_t FreeBytes() const;
  static uint64_t SequenceBytes(const void* user, int32_t position, int32_t chunk);

  Engine& engine_;
  ServingOptions options_;
  bool cut_anywhere_;
  std::unique_ptr<SwapFile> swap_;
  PastStore pasts_;
  Scheduler scheduler_;
  SchedulerState scheduler_state_;
  CostEstimator estimator_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool leading_ = false;
  int32_t nested_ = 0;                               // calls of Lead() by who leads already
  int32_t exclusive_waiters_ = 0;                    // in Lead(): they come before the next step
  uint64_t leader_ = 0;                              // the thread
  uint64_t noted_limit_ = 0, noted_past_bytes_ = 0;  // CacheLimit() and the like, by NoteCache()
  std::vector<std::unique_ptr<Request>> requests_;
  uint64_t next_id_ = 1;
  int64_t wake_ns_ = 0;  // after an empty plan: when to plan again
  bool class_allowed_[kLatencyClasses] = {true, true};
  int32_t tokens_per_second_ = 0;
  double token_credit_ = 0;
  int64_t credit_ns_ = 0;
  ThermalGovernor governor_{options_.thermal};
  bool has_level_ = false;  // levels are reported, no temperatures
  ThermalLevel reported_level_ = ThermalLevel::kNominal;
  ThermalLimits limits_;
  Pacer pacer_;
  Pacer::Grant grant_;  // of the step that is planned
  ServingStats stats_;

  std::vector<int32_t> borrowed_;  // snapshots that WithPast() shows
  // Of the step under way; kept to be used again.
  std::vector<RequestView> views_;
  std::vector<Request*> viewed_;
  std::vector<Request*> in_step_;
  std::vector<StepItem> items_;
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_SERVING_H_
