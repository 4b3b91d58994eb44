#ifndef CELLM_SRC_ENGINE_SCHEDULER_H_
#define CELLM_SRC_ENGINE_SCHEDULER_H_

// The scheduler: who computes in the next step, and whose memory has to give way.
//
// A pure function from a description of all requests, the resources of the moment and a clock
// reading to a StepPlan. It knows nothing of tensors, pages, files or threads, and equal arguments
// give equal plans. The engine carries a plan out, measures it, updates its requests and asks
// again.
//
//   views of requests --+
//   Resources ----------+--> Scheduler::Plan --> StepPlan: refuse, preempt, restore, items
//   CostModel, clock ---+                           |
//   SchedulerState <------------- plan.next_state --+
//
// A step carries one token of every running conversation and, in the time that these leave, chunks
// of prompts. What is promised (docs/serving.md has the reasons, scheduler_test.cc the proof):
//
//   Step time   is predicted to be at most
//                 max(budget, fixed part + interactive decodes) + one smallest chunk
//                   + one smallest piece of background work   (+ moved bytes, see preempt)
//               where budget = options.step_budget_ns, while interactive conversations are decoding
//               at most options.decode_stretch_percent of what they would take alone.
//   Decodes     Of d running interactive decodes each gets its token within
//               ceil(d / (row slots - 2)) steps; in each step when d <= row slots - 2.
//   Prompts     Each step advances a prompt of a class that has its turn; no running request waits
//               longer than max_wait_ns[class] plus one step for each running request.
//   Background  Gets at least its share of step time, class_weight against class_weight, whenever
//               it has work, in pieces of at least one smallest chunk.
//   Memory      What the plan's items and restores take is at most free + reclaimable bytes + what
//               its preemptions free. Who waits for memory longer than max_wait_ns takes it from
//               whoever has run for its turn (min_run_tokens, run_per_restore) since its own
//               restore: no starvation, no thrashing.
//   Progress    While something may run, a plan is not empty.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/cost_model.h"

namespace cellm {

enum class LatencyClass : uint8_t { kInteractive = 0, kBackground = 1 };
inline constexpr int kLatencyClasses = 2;

enum class SchedulePolicy : uint8_t {
  kDeadline,    // classes, deadlines and weights as above
  kRoundRobin,  // a ring: whoever was served longest ago is next; classes and deadlines do not
                // count
};

enum class Residency : uint8_t {
  kNone,      // nothing evaluated yet, or dropped: its tokens are to be evaluated (again)
  kResident,  // what is evaluated lies in memory
  kSwapped,   // lies in the swap file
  kMoving,    // on its way; not to be touched until it has arrived
};

// One request, or a session that waits for its next turn. The engine fills it in before each plan.
struct RequestView {
  uint64_t id = 0;  // unique among the views
  LatencyClass latency_class = LatencyClass::kInteractive;
  uint32_t weight = 1;         // share inside its class, 1 to 1000
  int64_t arrival_ns = 0;      // when it was submitted
  int64_t last_served_ns = 0;  // start of the last step that advanced it; 0: none yet
  int64_t deadline_ns = 0;     // when its next token is due; 0: no deadline
  int64_t virtual_ns = 0;      // PlanItem::virtual_ns of the last step that advanced it; 0 at first

  // Tokens to be evaluated before its next token can be sampled: the rest of the prompt, after a
  // drop also what was said since; 1 while decoding. 0: idle, only its memory matters.
  int32_t tokens_left = 0;
  bool decoding = false;  // tokens_left is the token just sampled
  // Resident but not running: from PreemptBy::kPause, or from the beginning of a turn of a session
  // whose past is still in memory, until RestoreBy::kResume.
  bool paused = false;
  int32_t position = 0;  // tokens before those: in memory, in the swap file, or kept by the tree
  // Tokens evaluated since it was last started, restored or resumed. After a drop it starts at
  // minus the tokens that were lost: who has to evaluate them again is not dropped again before it
  // has come further than the last time.
  int32_t served_since_restore = 0;
  // Sum of PlanItem::run_ns since then. Who does not keep it has only min_run_tokens against
  // equals.
  double run_ns_since_restore = std::numeric_limits<double>::infinity();

  Residency residency = Residency::kNone;
  uint64_t bytes_held = 0;  // in memory, its own: what preempting it frees
  // What restoring it takes before anything more is evaluated: its bytes in the swap file; for
  // kNone its fixed-size state. Shared pages that the tree keeps for it do not count here; the
  // engine must not count them as reclaimable either.
  uint64_t restore_bytes = 0;
  uint64_t copy_bytes = 0;       // extra bytes of its next write, when that copies a shared page
  uint64_t final_bytes = 0;      // the most that it will ever hold, evaluated token by token
  int32_t recompute_tokens = 0;  // to be evaluated anew after a drop: position less what is shared
};

// Bytes that a sequence of `position` tokens holds at most while `chunk` more are evaluated; chunk
// 0: between steps. Grows with chunk. Must depend on its arguments alone (`user` being constant).
// See PeakBytesPerSequence() of kv/layer_state.h.
using SequenceBytesFn = uint64_t (*)(const void* user, int32_t position, int32_t chunk);

struct SchedulerOptions {
  SchedulePolicy policy = SchedulePolicy::kDeadline;
  int32_t step_rows = 512;   // most rows of a step
  int32_t logit_rows = 32;   // most rows of a step whose logits are asked for
  int32_t max_running = 64;  // most requests that run without being paused
  // Time. A lone prompt is cut into chunks of step_budget_ns.
  int64_t step_budget_ns = 200'000'000;
  int32_t decode_stretch_percent = 150;
  int32_t chunk_quantum = 16;  // longer chunks are multiples of it, unless they end the prompt
  int32_t min_chunk = 4;       // the smallest chunk, unless it ends the prompt
  uint32_t class_weight[kLatencyClasses] = {8, 1};
  int64_t max_wait_ns[kLatencyClasses] = {2'000'000'000, 20'000'000'000};
  // A started or restored request evaluates this many tokens before it may be preempted. Its equals
  // cannot preempt it before it has run for run_per_restore times the predicted time of bringing
  // it back either: with 3, at most a third of the time goes into coming back.
  int32_t min_run_tokens = 32;
  double run_per_restore = 3;
  SequenceBytesFn sequence_bytes = nullptr;  // never null
  const void* sequence_bytes_user = nullptr;
};

// What there is at this moment.
struct Resources {
  int64_t free_bytes = 0;          // of the budget; negative after the budget was cut
  uint64_t reclaimable_bytes = 0;  // of prefixes that nobody uses
  uint64_t budget_bytes = 0;       // all that requests could have together
  uint64_t swap_free_bytes = 0;    // 0: no swap file
  // Heat (thermal.h).
  bool class_allowed[kLatencyClasses] = {true, true};
  int32_t decode_rows_allowed = INT32_MAX;  // tokens that may be produced in this step
  int64_t rows_again_ns = 0;                // when decode_rows_allowed would be larger
};

// What the scheduler remembers between steps, kept by the engine: starts as {}.
struct SchedulerState {
  double background_credit_ns = 0;             // step time owed to the background class
  int64_t floor_ns[kLatencyClasses] = {0, 0};  // virtual time of the least served
};

enum class PreemptBy : uint8_t {
  kPause,  // keeps its pages, gives up its place among the running
  kSwap,   // pages to the swap file
  kDrop,   // pages are forgotten; its tokens are evaluated again later
};
enum class RestoreBy : uint8_t {
  kResume,     // what it has is in memory
  kSwapIn,     // pages from the swap file; may be in the items of a later plan
  kRecompute,  // starts, or starts again; whatever it has in the swap file is forgotten
};

struct PlanItem {
  uint32_t view = 0;  // index into the views
  int32_t tokens = 0;
  bool wants_logits = false;  // its last token here is the last before sampling
  int64_t virtual_ns = 0;     // to be kept in RequestView::virtual_ns
  double cost_ns = 0;         // predicted, of its rows
  double run_ns = 0;          // the same with an equal part of the pass over the weights
};
struct Preemption {
  uint32_t view = 0;
  PreemptBy by = PreemptBy::kPause;
};
struct Restoration {
  uint32_t view = 0;
  RestoreBy by = RestoreBy::kResume;
};

// To be carried out in this order: refuse, reclaim, preempt, restore, evaluate items.
struct StepPlan {
  std::vector<uint32_t> refuse;  // views that can never fit the budget
  uint64_t reclaim_bytes = 0;    // to be freed of unused prefixes
  std::vector<Preemption> preempt;
  std::vector<Restoration> restore;
  std::vector<PlanItem> items;  // each view at most once, all of them resident by then
  StepShape shape;
  double predicted_ns = 0;       // of the items
  double predicted_move_ns = 0;  // of swapping out and in
  // Of an empty plan: when to ask again unless something changes; INT64_MAX: not before it does.
  int64_t wake_ns = 0;
  SchedulerState next_state;
};

// Stateless but for memory that it uses again: after the largest number of views was seen once, a
// plan allocates nothing. Belongs to one thread at a time.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // The plan is valid until the next call. O(n log n) for n views.
  const StepPlan& Plan(std::span<const RequestView> views, const Resources& resources,
                       const CostModel& cost, const SchedulerState& state, int64_t now_ns);

  SchedulerOptions& options() { return options_; }

 private:
  // What Plan works out about a view.
  struct Entry {
    uint32_t view = 0;
    bool active = false;    // has tokens to evaluate
    bool runnable = false;  // active, its class is served, not moving, not refused
    bool running = false;   // active, resident and not paused
    bool overdue = false;   // waited longer than max_wait_ns
    bool taken = false;     // preempted by this plan
    bool restored = false;  // by this plan
    bool item = false;      // of this plan
    int32_t tier = 0;       // as a victim; smaller gives way first
    int64_t waiting_since_ns = 0;
    int64_t virtual_ns = 0;
    double loss_ns = 0;  // predicted time that preempting and restoring it takes
    int32_t rank = 0;    // place in order_; smaller goes first
  };
  class Step;  // the plan in the making; in the .cc

  SchedulerOptions options_;
  StepPlan plan_;
  std::vector<Entry> entries_;     // one per view
  std::vector<uint32_t> order_;    // runnable views, first to last
  std::vector<uint32_t> victims_;  // views, best victim first
  std::vector<uint32_t> ring_;     // decoding views, longest unserved first
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_SCHEDULER_H_
