#ifndef CELLM_TESTS_SUPPORT_SERVING_SIM_H_
#define CELLM_TESTS_SUPPORT_SERVING_SIM_H_

// A serving engine made of numbers: it carries out the scheduler's plans on requests that have no
// tokens, pages that have no bytes and a clock that moves by what a step would have cost.
//
// Every plan is checked against what the scheduler promises (Violations()), with sums of its own:
// memory from the sizes that it keeps itself, time from its own cost model.

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/scheduler.h"

namespace cellm::testing {

struct SimModel {
  int32_t page_tokens = 16;
  uint64_t page_bytes = 16 << 10;  // layers that remember everything
  uint64_t window_page_bytes = 0;  // layers with a window
  int32_t window_tokens = 0;
  uint64_t state_bytes = 0;  // fixed-size state
};
uint64_t SimSequenceBytes(const void* sim_model, int32_t position, int32_t chunk);

struct SimTurn {
  int64_t arrival_ns = 0;
  uint64_t session = 0;  // turns of one session come in order of arrival and never overlap
  LatencyClass latency_class = LatencyClass::kInteractive;
  uint32_t weight = 1;
  int32_t prompt_tokens = 1;
  int32_t output_tokens = 1;
  int64_t token_period_ns = 0;  // deadline of each token after the one before; 0: none
  bool last = true;             // the session closes after it
};

struct SimResult {
  int64_t first_token_ns = -1;  // after arrival
  int64_t finish_ns = -1;       // absolute
  int64_t worst_gap_ns = 0;     // between tokens
  int32_t worst_gap_steps = 0;
  int64_t served_ns = 0;  // cost of its rows, without the fixed part
  int32_t tokens = 0;
  int32_t late_tokens = 0;  // after their deadline
  bool refused = false;
};

struct SimOptions {
  SchedulerOptions scheduler;
  SimModel model;
  CostModel cost;      // the truth
  bool learn = false;  // the scheduler learns costs from steps instead of knowing them
  double noise = 0;    // of measured times, relative, uniform
  uint64_t budget_bytes = 64 << 20;
  uint64_t prefix_bytes = 0;  // of the budget, at first held by unused prefixes
  uint64_t swap_bytes = 0;
  int32_t swap_in_steps = 0;  // steps that a restore keeps moving after the step that began it
  uint64_t seed = 1;
  bool check_time = true;  // false where costs are guessed
};

class ServingSim {
 public:
  explicit ServingSim(const SimOptions& options, std::vector<SimTurn> turns);

  // Until all turns are finished, `until_ns` has passed or `max_steps` are done. Returns steps.
  int64_t Run(int64_t until_ns = INT64_MAX, int64_t max_steps = INT64_MAX);

  const std::vector<SimResult>& results() const { return results_; }
  const std::vector<std::string>& violations() const { return violations_; }
  int64_t now_ns() const { return now_ns_; }
  uint64_t plan_hash() const { return plan_hash_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  int64_t preemptions(PreemptBy by) const { return preemptions_[static_cast<size_t>(by)]; }
  int64_t forced() const { return forced_; }
  int64_t class_ns(LatencyClass c) const { return class_ns_[static_cast<size_t>(c)]; }
  int32_t worst_class_gap_steps(LatencyClass c) const {
    return worst_class_gap_[static_cast<size_t>(c)];
  }
  int64_t worst_wait_ns(LatencyClass c) const { return worst_wait_[static_cast<size_t>(c)]; }
  double worst_plan_ns() const { return worst_plan_ns_; }
  bool finished() const;

  Resources extra;  // heat: class_allowed, decode_rows_allowed, rows_again_ns
  void AdvanceTo(int64_t now_ns) { now_ns_ = now_ns > now_ns_ ? now_ns : now_ns_; }
  void SetBudget(uint64_t bytes) { budget_bytes_ = bytes; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct Session {
    uint64_t id = 0;
    std::vector<size_t> turns;  // indices, by arrival
    size_t next_turn = 0;       // that has not begun
    int64_t turn = -1;          // in progress
    RequestView view;
    int32_t lost = 0;     // tokens that a drop made it lose
    int32_t history = 0;  // tokens of the session, evaluated or not
    int32_t output_left = 0;
    int64_t last_token_ns = 0;
    int64_t last_token_step = 0;
    int32_t moving_steps = 0;
    bool closed = false;
  };

  void Arrive();
  void BuildViews();
  void Check(const StepPlan& plan, const Resources& resources);
  void Apply(const StepPlan& plan);
  void Violation(std::string text);
  uint64_t Held() const;

  SimOptions options_;
  std::vector<SimTurn> turns_;
  std::vector<SimResult> results_;
  std::vector<Session> sessions_;
  std::vector<size_t> live_;  // sessions that have arrived and are not closed
  std::vector<size_t> by_arrival_;
  size_t next_arrival_ = 0;
  Scheduler scheduler_;
  CostEstimator estimator_;
  SchedulerState state_;
  std::vector<RequestView> views_;
  std::vector<std::string> violations_;
  Rng rng_;
  int64_t now_ns_ = 0;
  int64_t step_ = 0;
  uint64_t budget_bytes_;
  uint64_t prefix_bytes_;
  uint64_t swap_used_ = 0;
  uint64_t peak_bytes_ = 0;
  uint64_t plan_hash_ = 0;
  int64_t preemptions_[3] = {};
  int64_t forced_ = 0;
  int64_t class_ns_[kLatencyClasses] = {};
  int32_t class_gap_[kLatencyClasses] = {};
  int32_t worst_class_gap_[kLatencyClasses] = {};
  int64_t worst_wait_[kLatencyClasses] = {};
  double worst_plan_ns_ = 0;
};

}  // namespace cellm::testing

#endif  // CELLM_TESTS_SUPPORT_SERVING_SIM_H_
