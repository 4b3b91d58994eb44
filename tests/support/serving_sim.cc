#include "support/serving_sim.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/hash.h"

namespace cellm::testing {
namespace {

size_t Index(LatencyClass c) { return static_cast<size_t>(c); }

uint64_t Mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * 0x9E3779B97F4A7C15u + (hash >> 29);
}

}  // namespace

uint64_t SimSequenceBytes(const void* sim_model, int32_t position, int32_t chunk) {
  const auto& m = *static_cast<const SimModel*>(sim_model);
  const auto pages = [&m](int32_t tokens) {
    return static_cast<uint64_t>((tokens + m.page_tokens - 1) / m.page_tokens);
  };
  uint64_t bytes = m.state_bytes + m.page_bytes * pages(position + chunk);
  if (m.window_tokens > 0) {
    const int32_t first = std::max(0, position - m.window_tokens + 1);
    bytes += m.window_page_bytes *
             (pages(position + chunk) - static_cast<uint64_t>(first / m.page_tokens));
  }
  return bytes;
}

ServingSim::ServingSim(const SimOptions& options, std::vector<SimTurn> turns)
    : options_(options),
      turns_(std::move(turns)),
      results_(turns_.size()),
      scheduler_([this] {
        SchedulerOptions o = options_.scheduler;
        o.sequence_bytes = SimSequenceBytes;
        o.sequence_bytes_user = &options_.model;
        return o;
      }()),
      estimator_(CostModel{}),
      rng_(options.seed),
      budget_bytes_(options.budget_bytes),
      prefix_bytes_(options.prefix_bytes) {
  std::map<uint64_t, size_t> known;
  for (size_t i = 0; i < turns_.size(); ++i) {
    const auto [it, added] = known.try_emplace(turns_[i].session, sessions_.size());
    if (added) {
      sessions_.emplace_back();
      sessions_.back().id = turns_[i].session;
    }
    sessions_[it->second].turns.push_back(i);
  }
  for (size_t i = 0; i < sessions_.size(); ++i) by_arrival_.push_back(i);
  std::stable_sort(by_arrival_.begin(), by_arrival_.end(), [this](size_t a, size_t b) {
    return turns_[sessions_[a].turns[0]].arrival_ns < turns_[sessions_[b].turns[0]].arrival_ns;
  });
}

bool ServingSim::finished() const { return next_arrival_ == by_arrival_.size() && live_.empty(); }

uint64_t ServingSim::Held() const {
  uint64_t bytes = prefix_bytes_;
  for (const size_t i : live_) bytes += sessions_[i].view.bytes_held;
  return bytes;
}

void ServingSim::Violation(std::string text) {
  if (violations_.size() < 20) {
    violations_.push_back("step " + std::to_string(step_) + ": " + std::move(text));
  }
}

// Turns whose time has come begin; sessions of which this is the first come to life.
void ServingSim::Arrive() {
  while (next_arrival_ < by_arrival_.size() &&
         turns_[sessions_[by_arrival_[next_arrival_]].turns[0]].arrival_ns <= now_ns_) {
    live_.push_back(by_arrival_[next_arrival_++]);
  }
  for (const size_t index : live_) {
    Session& s = sessions_[index];
    if (s.turn >= 0 || s.next_turn == s.turns.size()) continue;
    const SimTurn& t = turns_[s.turns[s.next_turn]];
    if (t.arrival_ns > now_ns_) continue;
    s.turn = static_cast<int64_t>(s.turns[s.next_turn++]);
    RequestView& v = s.view;
    v.id = s.id;
    v.latency_class = t.latency_class;
    v.weight = t.weight;
    v.arrival_ns = t.arrival_ns;
    v.deadline_ns = t.token_period_ns > 0 ? t.arrival_ns + t.token_period_ns : 0;
    v.decoding = false;
    v.paused = v.residency == Residency::kResident;
    s.history += t.prompt_tokens;
    v.tokens_left = s.history - v.position;
    s.output_left = t.output_tokens;
    s.last_token_ns = t.arrival_ns;
    s.last_token_step = step_;
  }
}

void ServingSim::BuildViews() {
  views_.clear();
  for (const size_t index : live_) {
    Session& s = sessions_[index];
    RequestView& v = s.view;
    if (v.residency == Residency::kMoving && s.moving_steps-- <= 0) {
      v.residency = Residency::kResident;
    }
    if (v.residency == Residency::kNone) {
      v.restore_bytes = SimSequenceBytes(&options_.model, 0, 0);
      v.bytes_held = 0;
    }
    v.recompute_tokens = v.position;
    const int32_t last = s.history + s.output_left;
    v.final_bytes = 0;
    for (int32_t p = std::max(0, last - 2 * options_.model.page_tokens); p < last; ++p) {
      v.final_bytes = std::max(v.final_bytes, SimSequenceBytes(&options_.model, p, 1));
    }
    views_.push_back(v);
  }
}

// What the scheduler promises, with sums of our own.
void ServingSim::Check(const StepPlan& plan, const Resources& resources) {
  const SchedulerOptions& o = options_.scheduler;
  const bool by_class = o.policy == SchedulePolicy::kDeadline;
  std::vector<int> preempted(views_.size(), 0), restored(views_.size(), 0), item(views_.size(), 0);
  uint64_t held = Held(), swap = swap_used_;
  bool over = resources.free_bytes < 0;
  bool forced = plan.items.size() + plan.restore.size() <= 1;
  if (plan.reclaim_bytes > prefix_bytes_) Violation("reclaims more than there is");
  held -= std::min(plan.reclaim_bytes, prefix_bytes_);
  for (const Preemption& p : plan.preempt) {
    const RequestView& v = views_[p.view];
    if (++preempted[p.view] > 1) Violation("preempted twice");
    if (v.residency != Residency::kResident) Violation("preempts what is not in memory");
    if (p.by == PreemptBy::kPause && (v.paused || v.tokens_left == 0)) Violation("idle pause");
    const bool allowed = resources.class_allowed[Index(v.latency_class)];
    if (v.tokens_left > 0 && !v.paused && allowed && !over &&
        v.served_since_restore < o.min_run_tokens && v.final_bytes <= resources.budget_bytes) {
      // Only where otherwise nothing would go on.
      if (forced) {
        ++forced_;
      } else {
        Violation("preempts a protected request");
      }
    }
    if (p.by == PreemptBy::kSwap) swap += v.bytes_held;
    if (p.by != PreemptBy::kPause) held -= v.bytes_held;
  }
  if (swap > options_.swap_bytes) Violation("swap file too small");
  for (const Restoration& r : plan.restore) {
    const RequestView& v = views_[r.view];
    if (++restored[r.view] > 1 || preempted[r.view]) Violation("restored twice, or preempted too");
    if (v.tokens_left == 0) Violation("restores an idle session");
    const RestoreBy right = v.residency == Residency::kSwapped    ? RestoreBy::kSwapIn
                            : v.residency == Residency::kResident ? RestoreBy::kResume
                                                                  : RestoreBy::kRecompute;
    if (r.by != right || (right == RestoreBy::kResume && !v.paused)) Violation("wrong restore");
    if (right != RestoreBy::kResume) held += v.restore_bytes;
  }
  int64_t rows = 0, logits = 0;
  double interactive_ns = 0, cheapest_piece = 0;
  for (const PlanItem& i : plan.items) {
    const RequestView& v = views_[i.view];
    if (++item[i.view] > 1 || preempted[i.view]) Violation("item twice, or preempted");
    if (i.tokens < 1 || i.tokens > v.tokens_left) Violation("tokens of an item");
    if (v.residency != Residency::kResident &&
        !(restored[i.view] && v.residency == Residency::kNone)) {
      Violation("item that is not in memory");
    }
    if (v.paused && !restored[i.view]) Violation("item that is paused");
    if (!resources.class_allowed[Index(v.latency_class)]) Violation("class not served");
    if (i.wants_logits != (i.tokens == v.tokens_left)) Violation("wants_logits");
    rows += i.tokens;
    logits += i.wants_logits;
    held += SimSequenceBytes(&options_.model, v.position, i.tokens) -
            SimSequenceBytes(&options_.model, v.position, 0);
  }
  if (rows > o.step_rows) Violation("too many rows");
  if (logits > o.logit_rows) Violation("too many rows of logits");
  if (logits > resources.decode_rows_allowed) Violation("more tokens than the heat allows");
  const bool grows = !plan.items.empty() || !plan.restore.empty();
  if (held > budget_bytes_ && (grows || !plan.preempt.empty())) {
    Violation("memory: " + std::to_string(held) + " of " + std::to_string(budget_bytes_));
  }
  peak_bytes_ = std::max(peak_bytes_, held);

  int32_t running = 0, decodes = 0, runnable = 0;
  bool moving = false, background = false;
  for (size_t i = 0; i < views_.size(); ++i) {
    const RequestView& v = views_[i];
    moving |= v.residency == Residency::kMoving;
    if (v.tokens_left == 0 || !resources.class_allowed[Index(v.latency_class)]) continue;
    if (v.tokens_left > 1 || resources.decode_rows_allowed > 0) ++runnable;
    const bool runs =
        (v.residency == Residency::kResident && !v.paused && !preempted[i]) || restored[i];
    if (!runs) continue;
    ++running;
    background |= v.latency_class == LatencyClass::kBackground;
    if (v.residency == Residency::kSwapped) continue;  // its pages are only on their way
    if (v.decoding && (!by_class || v.latency_class == LatencyClass::kInteractive)) {
      ++decodes;
      interactive_ns += options_.cost.DecodeNs(v.position);
    }
    const double piece =
        v.decoding ? options_.cost.DecodeNs(v.position)
                   : options_.cost.PromptNs(v.position, std::min(o.min_chunk, v.tokens_left));
    cheapest_piece = std::max(cheapest_piece, piece);
  }
  if (running > o.max_running && !over && !forced) Violation("too many running");
  const bool empty = plan.items.empty() && plan.restore.empty() && plan.preempt.empty();
  if (runnable > 0 && empty && !moving && plan.refuse.empty()) Violation("no progress");
  if (empty && plan.wake_ns < now_ns_) Violation("wakes in the past");

  // Each running decode has its token as long as the rows of logits reach.
  if (by_class && decodes <= std::min(o.logit_rows, o.step_rows) - 2 &&
      decodes <= resources.decode_rows_allowed - 1 && !over) {
    for (size_t i = 0; i < views_.size(); ++i) {
      const RequestView& v = views_[i];
      const bool due = v.decoding && v.tokens_left > 0 && !v.paused && !preempted[i] &&
                       v.residency == Residency::kResident &&
                       v.latency_class == LatencyClass::kInteractive && resources.class_allowed[0];
      const int64_t growth =
          static_cast<int64_t>(SimSequenceBytes(&options_.model, v.position, 1)) -
          static_cast<int64_t>(SimSequenceBytes(&options_.model, v.position, 0));
      if (due && !item[i] && growth == 0) Violation("a running decode has no token");
    }
  }
  if (options_.check_time && !plan.items.empty()) {
    const double fixed = options_.cost.step_ns + interactive_ns;
    double budget = static_cast<double>(o.step_budget_ns);
    if (by_class && interactive_ns > 0) {
      budget = std::min(budget, fixed * o.decode_stretch_percent / 100);
    }
    const double bound = std::max(budget, fixed) + cheapest_piece * (background ? 2 : 1);
    if (plan.predicted_ns > bound * (1 + 1e-9)) {
      Violation("step of " + std::to_string(plan.predicted_ns) + " ns, bound " +
                std::to_string(bound));
    }
    worst_plan_ns_ = std::max(worst_plan_ns_, plan.predicted_ns);
  }
}

void ServingSim::Apply(const StepPlan& plan) {
  std::vector<Session*> by_view;
  for (const size_t index : live_) by_view.push_back(&sessions_[index]);
  const int64_t start_ns = now_ns_;
  prefix_bytes_ -= std::min(prefix_bytes_, plan.reclaim_bytes);
  double move_ns = 0;
  for (const uint32_t view : plan.refuse) {
    Session& s = *by_view[view];
    results_[static_cast<size_t>(s.turn)].refused = true;
    results_[static_cast<size_t>(s.turn)].finish_ns = now_ns_;
    s.closed = true;
  }
  for (const Preemption& p : plan.preempt) {
    Session& s = *by_view[p.view];
    RequestView& v = s.view;
    ++preemptions_[static_cast<size_t>(p.by)];
    if (p.by == PreemptBy::kPause) {
      v.paused = true;
      continue;
    }
    v.paused = false;
    if (p.by == PreemptBy::kSwap) {
      v.residency = Residency::kSwapped;
      v.restore_bytes = v.bytes_held;
      swap_used_ += v.bytes_held;
      move_ns += options_.cost.SwapOutNs(v.bytes_held);
    } else {
      v.residency = Residency::kNone;
      s.lost = v.position;
      v.position = 0;
      if (s.turn >= 0) v.tokens_left = s.history;
      v.decoding = false;
    }
    v.bytes_held = 0;
  }
  for (const Restoration& r : plan.restore) {
    Session& s = *by_view[r.view];
    RequestView& v = s.view;
    worst_wait_[Index(v.latency_class)] = std::max(
        worst_wait_[Index(v.latency_class)], now_ns_ - std::max(v.arrival_ns, v.last_served_ns));
    v.paused = false;
    v.run_ns_since_restore = 0;
    v.served_since_restore = r.by == RestoreBy::kRecompute ? -s.lost : 0;
    s.lost = 0;
    if (r.by == RestoreBy::kResume) continue;
    v.bytes_held = v.restore_bytes;
    if (r.by == RestoreBy::kSwapIn) {
      swap_used_ -= v.restore_bytes;
      move_ns += options_.cost.SwapInNs(v.restore_bytes);
      v.residency = Residency::kMoving;
      s.moving_steps = options_.swap_in_steps;
    } else {
      v.residency = Residency::kResident;
    }
  }
  StepShape shape;
  for (const PlanItem& i : plan.items) {
    const RequestView& v = by_view[i.view]->view;
    if (v.decoding) {
      shape.AddDecode(v.position);
    } else {
      shape.AddPrompt(v.position, i.tokens);
    }
  }
  if (!plan.items.empty()) {
    const double noise = 1 + options_.noise * (2 * rng_.NextDouble() - 1);
    const auto ns = static_cast<int64_t>(options_.cost.StepNs(shape) * noise);
    now_ns_ += ns;
    if (options_.learn) estimator_.ObserveStep(shape, ns);
  }
  now_ns_ += static_cast<int64_t>(move_ns);

  bool class_served[kLatencyClasses] = {}, class_active[kLatencyClasses] = {};
  for (const RequestView& v : views_) class_active[Index(v.latency_class)] |= v.tokens_left > 0;
  for (const PlanItem& i : plan.items) {
    Session& s = *by_view[i.view];
    RequestView& v = s.view;
    const SimTurn& t = turns_[static_cast<size_t>(s.turn)];
    SimResult& result = results_[static_cast<size_t>(s.turn)];
    class_served[Index(v.latency_class)] = true;
    const double cost = v.decoding ? options_.cost.DecodeNs(v.position)
                                   : options_.cost.PromptNs(v.position, i.tokens);
    result.served_ns += static_cast<int64_t>(cost);
    class_ns_[Index(v.latency_class)] += static_cast<int64_t>(cost);
    v.position += i.tokens;
    v.bytes_held = SimSequenceBytes(&options_.model, v.position, 0);
    v.last_served_ns = start_ns;
    v.virtual_ns = i.virtual_ns;
    v.served_since_restore += i.tokens;
    v.run_ns_since_restore += i.run_ns;
    v.tokens_left -= i.tokens;
    if (v.tokens_left > 0) continue;
    // A token was sampled.
    if (result.tokens++ == 0) {
      result.first_token_ns = now_ns_ - t.arrival_ns;
    } else {
      result.worst_gap_ns = std::max(result.worst_gap_ns, now_ns_ - s.last_token_ns);
      result.worst_gap_steps =
          std::max(result.worst_gap_steps, static_cast<int32_t>(step_ - s.last_token_step));
    }
    if (v.deadline_ns > 0) {
      result.late_tokens += now_ns_ > v.deadline_ns;
      v.deadline_ns = now_ns_ + t.token_period_ns;
    }
    s.last_token_ns = now_ns_;
    s.last_token_step = step_;
    ++s.history;
    if (--s.output_left > 0) {
      v.tokens_left = 1;
      v.decoding = true;
      continue;
    }
    result.finish_ns = now_ns_;
    s.turn = -1;
    v.tokens_left = 0;
    v.decoding = false;
    if (t.last || s.next_turn == s.turns.size()) s.closed = true;
  }
  for (size_t c = 0; c < kLatencyClasses; ++c) {
    class_gap_[c] = class_active[c] && !class_served[c] ? class_gap_[c] + 1 : 0;
    worst_class_gap_[c] = std::max(worst_class_gap_[c], class_gap_[c]);
  }
  std::erase_if(live_, [this](size_t i) {
    if (!sessions_[i].closed) return false;
    if (sessions_[i].view.residency == Residency::kSwapped) {
      swap_used_ -= sessions_[i].view.restore_bytes;
    }
    return true;
  });
}

int64_t ServingSim::Run(int64_t until_ns, int64_t max_steps) {
  int64_t steps = 0;
  while (!finished() && now_ns_ < until_ns && steps < max_steps) {
    Arrive();
    BuildViews();
    Resources r = extra;
    const auto held = static_cast<int64_t>(Held());
    r.free_bytes = static_cast<int64_t>(budget_bytes_) - held;
    r.reclaimable_bytes = prefix_bytes_;
    r.budget_bytes = budget_bytes_;
    r.swap_free_bytes = options_.swap_bytes - swap_used_;
    const CostModel& cost = options_.learn ? estimator_.model() : options_.cost;
    const StepPlan& plan = scheduler_.Plan(views_, r, cost, state_, now_ns_);
    for (const PlanItem& i : plan.items) {
      plan_hash_ =
          Mix(plan_hash_, (uint64_t{views_[i.view].id} << 20) + static_cast<uint64_t>(i.tokens));
    }
    for (const Preemption& p : plan.preempt) plan_hash_ = Mix(plan_hash_, ~views_[p.view].id);
    Check(plan, r);
    const bool empty = plan.items.empty() && plan.restore.empty() && plan.preempt.empty();
    const int64_t wake_ns = plan.wake_ns;
    state_ = plan.next_state;
    bool moving = false;
    for (const RequestView& v : views_) moving |= v.residency == Residency::kMoving;
    Apply(plan);
    ++step_;
    ++steps;
    if (empty && !moving) {
      int64_t next = wake_ns;
      if (next_arrival_ < by_arrival_.size()) {
        next = std::min(next, turns_[sessions_[by_arrival_[next_arrival_]].turns[0]].arrival_ns);
      }
      for (const size_t index : live_) {
        const Session& s = sessions_[index];
        if (s.turn < 0 && s.next_turn < s.turns.size()) {
          next = std::min(next, turns_[s.turns[s.next_turn]].arrival_ns);
        }
      }
      if (next == INT64_MAX) break;
      now_ns_ = std::max(now_ns_ + 1, std::min(next, until_ns));
    }
  }
  return steps;
}

}  // namespace cellm::testing
