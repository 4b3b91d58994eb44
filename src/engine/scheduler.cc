#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

namespace cellm {
namespace {

constexpr uint32_t kMaxWeight = 1000;

constexpr size_t Index(LatencyClass c) { return static_cast<size_t>(c); }
constexpr LatencyClass kInteractive = LatencyClass::kInteractive;
constexpr LatencyClass kBackground = LatencyClass::kBackground;

}  // namespace

// One plan in the making. Plan() calls the public functions in their order here.
//
// `available_` is what may still be taken: free bytes, reclaimable bytes and what this plan's
// preemptions free, less what it took. It is negative only before Shed().
class Scheduler::Step {
 public:
  Step(Scheduler& scheduler, std::span<const RequestView> views, const Resources& resources,
       const CostModel& cost, const SchedulerState& state, int64_t now_ns)
      : options_(scheduler.options_),
        views_(views),
        resources_(resources),
        cost_(cost),
        state_(state),
        now_ns_(now_ns),
        plan_(scheduler.plan_),
        entries_(scheduler.entries_),
        order_(scheduler.order_),
        victims_(scheduler.victims_),
        ring_(scheduler.ring_),
        available_(resources.free_bytes + static_cast<int64_t>(resources.reclaimable_bytes)),
        swap_left_(resources.swap_free_bytes) {}

  void Classify();
  void Order();
  void OrderVictims();
  void Shed();
  void Admit();
  void FillStep();
  void ForceProgress();
  void Finish();

 private:
  bool by_class() const { return options_.policy == SchedulePolicy::kDeadline; }
  const RequestView& view(const Entry& entry) const { return views_[entry.view]; }
  // When it has waited for as long as its class may.
  int64_t DueNs(const Entry& entry) const {
    return entry.waiting_since_ns + options_.max_wait_ns[Index(view(entry).latency_class)];
  }
  // From everybody, and from its equals: it would hardly have run before it has to come back.
  bool HasJustBegun(const Entry& entry) const {
    return view(entry).served_since_restore < options_.min_run_tokens;
  }
  bool HasItsTurn(const Entry& entry) const {
    return view(entry).run_ns_since_restore < options_.run_per_restore * entry.loss_ns;
  }
  uint64_t SequenceBytes(int32_t position, int32_t chunk) const {
    return options_.sequence_bytes(options_.sequence_bytes_user, position, chunk);
  }
  int64_t Growth(const RequestView& v, int32_t tokens) const;
  int64_t Reserve(const RequestView& v) const;
  bool MayTake(const Entry& taker, const Entry& victim, bool force) const;
  void Preempt(Entry& victim, PreemptBy by);
  PreemptBy CheapestWay(const RequestView& v) const;
  bool MakeRoom(const Entry& taker, int64_t bytes, bool force);
  bool FreePlace(const Entry& taker, bool force);
  bool AdmitOne(Entry& entry, bool force);
  bool AddDecode(Entry& entry, bool force);
  bool AddChunk(Entry& entry, double time_ns, bool at_least_smallest, bool force);
  void AddItem(Entry& entry, int32_t tokens, double cost_ns);
  void AddDecodes(LatencyClass c, int32_t keep_slots, int32_t keep_tokens, double until_ns);
  void AddChunks(LatencyClass c, double until_ns, bool at_least_smallest);
  void AddBackgroundPiece(double until_ns);
  void ExtendFirstChunk(double until_ns);
  bool OfClass(const Entry& entry, LatencyClass c) const {
    return !by_class() || view(entry).latency_class == c;
  }

  const SchedulerOptions& options_;
  std::span<const RequestView> views_;
  const Resources& resources_;
  const CostModel& cost_;
  const SchedulerState& state_;
  const int64_t now_ns_;
  StepPlan& plan_;
  std::vector<Entry>& entries_;
  std::vector<uint32_t>& order_;
  std::vector<uint32_t>& victims_;
  std::vector<uint32_t>& ring_;

  int64_t available_;
  uint64_t swap_left_;
  int64_t reserved_ = 0;  // what running requests will take soon; admission leaves it alone
  int32_t running_ = 0;
  bool background_runs_ = false;
  int32_t rows_left_ = 0;
  int32_t slots_left_ = 0;
  int32_t tokens_allowed_ = 0;
  double spent_ns_ = 0;
  double background_paid_ns_ = 0;  // of pieces that were owed
  double background_gift_ns_ = 0;  // of pieces in time that nobody else wanted
};

// What evaluating `tokens` tokens takes beyond what it holds.
int64_t Scheduler::Step::Growth(const RequestView& v, int32_t tokens) const {
  const uint64_t before = SequenceBytes(v.position, 0);
  const uint64_t most = SequenceBytes(v.position, tokens);
  return static_cast<int64_t>(std::max(most, before) - before + v.copy_bytes);
}

// What it will take until its prompt is evaluated and min_run_tokens more, but no more than it ever
// needs. Admission keeps this much for everyone that runs, so that who is let in is not thrown out
// by the next page that a neighbour needs.
int64_t Scheduler::Step::Reserve(const RequestView& v) const {
  const int32_t end = v.position + v.tokens_left - 1 + options_.min_run_tokens;
  const uint64_t before = SequenceBytes(v.position, 0);
  const uint64_t most = std::min(SequenceBytes(end, 1), std::max(v.final_bytes, before));
  return std::max(Growth(v, 1), static_cast<int64_t>(std::max(most, before) - before));
}

void Scheduler::Step::Classify() {
  for (uint32_t i = 0; i < views_.size(); ++i) {
    const RequestView& v = views_[i];
    Entry& e = entries_.emplace_back();
    e.view = i;
    e.active = v.tokens_left > 0;
    if (!e.active) continue;
    if (v.final_bytes > resources_.budget_bytes) {
      plan_.refuse.push_back(i);
      e.active = false;  // its memory may be taken like that of an idle session
      continue;
    }
    const size_t c = Index(v.latency_class);
    e.running = v.residency == Residency::kResident && !v.paused;
    e.runnable = v.residency != Residency::kMoving && resources_.class_allowed[c];
    e.waiting_since_ns = std::max(v.arrival_ns, v.last_served_ns);
    e.overdue = e.runnable && now_ns_ > DueNs(e);
    e.virtual_ns = std::max(v.virtual_ns, state_.floor_ns[c]);
    if (e.running || v.residency == Residency::kMoving) ++running_;
    if (e.running) reserved_ += Reserve(v);
    if (e.running && v.latency_class == kBackground) background_runs_ = true;
    if (e.runnable) order_.push_back(i);
  }
}

// Who waits for memory and is overdue, by when it became so, the background class before the others
// while none of it runs; then interactive before background; then earliest deadline, those without
// one behind; then who had the least of its weighted share; then the shortest.
void Scheduler::Step::Order() {
  const auto key = [this](uint32_t index) {
    const Entry& e = entries_[index];
    const RequestView& v = view(e);
    if (!by_class()) return std::tuple(0, 0, e.waiting_since_ns, int64_t{0}, 0, v.arrival_ns, v.id);
    const int c = static_cast<int>(v.latency_class);
    if (e.overdue && !e.running) {
      const bool ahead = v.latency_class == kBackground && !background_runs_;
      return std::tuple(0, ahead ? 0 : 1, DueNs(e), int64_t{0}, 0, v.arrival_ns, v.id);
    }
    const int64_t deadline = v.deadline_ns > 0 ? v.deadline_ns : INT64_MAX;
    return std::tuple(1, c, deadline, e.virtual_ns, v.tokens_left, v.arrival_ns, v.id);
  };
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  for (size_t i = 0; i < order_.size(); ++i) entries_[order_[i]].rank = static_cast<int32_t>(i);
}

// Who gives way first: idle sessions, then whoever cannot run now, then background, then the
// others; among equals the latest deadline, then what is cheapest to bring back, then who came
// last.
void Scheduler::Step::OrderVictims() {
  for (Entry& e : entries_) {
    const RequestView& v = view(e);
    if (v.residency != Residency::kResident) continue;
    const bool background = by_class() && v.latency_class == kBackground;
    if (!e.active) {
      e.tier = 0;
    } else if (!e.running || !e.runnable) {
      e.tier = background ? 1 : 2;
    } else {
      e.tier = background ? 3 : 4;
    }
    e.loss_ns = CheapestWay(v) == PreemptBy::kSwap
                    ? cost_.SwapOutNs(v.bytes_held) + cost_.SwapInNs(v.bytes_held)
                    : cost_.RecomputeNs(v.recompute_tokens, options_.step_rows);
    victims_.push_back(e.view);
  }
  const auto key = [this](uint32_t index) {
    const Entry& e = entries_[index];
    const RequestView& v = view(e);
    const int64_t deadline =
        e.active && by_class() && v.deadline_ns > 0 ? v.deadline_ns : INT64_MAX;
    const double loss = e.loss_ns / static_cast<double>(std::max<uint64_t>(1, v.bytes_held));
    return std::tuple(e.tier, -deadline, loss, -v.arrival_ns, ~v.id);
  };
  std::sort(victims_.begin(), victims_.end(),
            [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
}

PreemptBy Scheduler::Step::CheapestWay(const RequestView& v) const {
  if (v.bytes_held > swap_left_) return PreemptBy::kDrop;
  const double swap = cost_.SwapOutNs(v.bytes_held) + cost_.SwapInNs(v.bytes_held);
  const double drop = cost_.RecomputeNs(v.recompute_tokens, options_.step_rows);
  return swap < drop ? PreemptBy::kSwap : PreemptBy::kDrop;
}

// Whether `taker` may have the memory or the place of `victim`.
bool Scheduler::Step::MayTake(const Entry& taker, const Entry& victim, bool force) const {
  if (victim.taken || victim.restored || victim.item || victim.view == taker.view) return false;
  if (!victim.active) return true;
  if (force) return !victim.runnable || victim.rank > taker.rank;
  if (!victim.runnable) return true;  // its class is not served: it cannot run off its protection
  const bool lower_class = by_class() && view(taker).latency_class == kInteractive &&
                           view(victim).latency_class == kBackground && !victim.overdue;
  if (!victim.running) return lower_class || victim.rank > taker.rank;
  if (HasJustBegun(victim)) return false;
  if (lower_class) return true;
  if (HasItsTurn(victim)) return false;
  if (taker.overdue) return !victim.overdue;
  // Between equals only who runs already may push out another, and only one behind it.
  return taker.running && OfClass(victim, view(taker).latency_class) && victim.rank > taker.rank;
}

void Scheduler::Step::Preempt(Entry& victim, PreemptBy by) {
  const RequestView& v = view(victim);
  victim.taken = true;
  if (victim.running) {
    --running_;
    reserved_ -= Reserve(v);
    victim.running = false;
  }
  if (by != PreemptBy::kPause) available_ += static_cast<int64_t>(v.bytes_held);
  if (by == PreemptBy::kSwap) {
    swap_left_ -= v.bytes_held;
    plan_.predicted_move_ns += cost_.SwapOutNs(v.bytes_held);
  }
  plan_.preempt.push_back({victim.view, by});
}

// Makes at least `bytes` available beyond what is reserved, by preempting whom `taker` may take.
// False when it cannot be had, or not in this step because moving the bytes takes its time; in the
// first case nobody was preempted.
bool Scheduler::Step::MakeRoom(const Entry& taker, int64_t bytes, bool force) {
  if (bytes <= 0) return true;
  const bool is_running = taker.running || force;  // then nothing is held back for others
  const auto room = [&] { return available_ - (is_running ? 0 : reserved_); };
  if (room() >= bytes) return true;
  const auto gain = [&](const Entry& e) {
    const auto held = static_cast<int64_t>(view(e).bytes_held);
    return held + (!is_running && e.running ? Reserve(view(e)) : 0);
  };
  int64_t surplus = room() - bytes;
  // One idle session that is enough by itself: the cheapest of those to bring back.
  Entry* enough = nullptr;
  for (const uint32_t index : victims_) {
    Entry& e = entries_[index];
    if (e.tier > 0) break;
    if (e.taken || surplus + gain(e) < 0 || view(e).bytes_held == 0) continue;
    if (enough == nullptr || e.loss_ns < enough->loss_ns) enough = &e;
  }
  if (enough != nullptr) {
    Preempt(*enough, CheapestWay(view(*enough)));
    return true;
  }
  size_t count = 0;  // of victims to be looked at
  for (; count < victims_.size() && surplus < 0; ++count) {
    const Entry& e = entries_[victims_[count]];
    if (view(e).bytes_held > 0 && MayTake(taker, e, force)) surplus += gain(e);
  }
  if (surplus < 0) return false;
  for (size_t i = 0; i < count; ++i) {
    Entry& e = entries_[victims_[i]];
    if (view(e).bytes_held == 0 || !MayTake(taker, e, force)) continue;
    if (gain(e) <= surplus) {  // what a later one has to give covers it
      surplus -= gain(e);
      continue;
    }
    Preempt(e, CheapestWay(view(e)));
    // Who only waits to be let in can wait for the next step too.
    if (!is_running && plan_.predicted_move_ns > static_cast<double>(options_.step_budget_ns)) {
      break;
    }
  }
  return room() >= bytes;
}

// A place among the running for `taker`: pausing costs nothing and is all that this needs.
bool Scheduler::Step::FreePlace(const Entry& taker, bool force) {
  if (running_ < options_.max_running) return true;
  for (const uint32_t index : victims_) {
    Entry& e = entries_[index];
    if (!e.running || !MayTake(taker, e, force)) continue;
    Preempt(e, PreemptBy::kPause);
    return true;
  }
  return false;
}

// The budget was cut: memory that is held beyond it goes at once, whoever holds it, last first.
void Scheduler::Step::Shed() {
  for (const bool all : {false, true}) {
    for (auto it = victims_.begin(); it != victims_.end() && available_ < 0; ++it) {
      Entry& e = entries_[*it];
      if (e.taken || view(e).bytes_held == 0) continue;
      if (!all && e.running && HasJustBegun(e)) continue;
      Preempt(e, CheapestWay(view(e)));
    }
  }
}

bool Scheduler::Step::AdmitOne(Entry& entry, bool force) {
  const RequestView& v = view(entry);
  const auto restore =
      static_cast<int64_t>(v.residency == Residency::kResident ? 0 : v.restore_bytes);
  const int64_t later = force ? Growth(v, 1) : Reserve(v);
  if (!MakeRoom(entry, restore + later, force)) return false;
  if (!FreePlace(entry, force)) return false;
  available_ -= restore;
  reserved_ += later;
  ++running_;
  entry.restored = true;
  if (v.residency == Residency::kSwapped) {  // runs when its pages have arrived
    plan_.restore.push_back({entry.view, RestoreBy::kSwapIn});
    plan_.predicted_move_ns += cost_.SwapInNs(v.restore_bytes);
  } else {
    const bool resumed = v.residency == Residency::kResident;
    plan_.restore.push_back({entry.view, resumed ? RestoreBy::kResume : RestoreBy::kRecompute});
    entry.running = true;
  }
  return true;
}

// Lets waiting requests in, in order. The first that does not fit ends it: were smaller ones let
// past, a large one would wait for ever.
void Scheduler::Step::Admit() {
  for (const uint32_t index : order_) {
    Entry& e = entries_[index];
    if (e.running || e.taken) continue;
    if (!AdmitOne(e, false)) break;
    if (plan_.predicted_move_ns > static_cast<double>(options_.step_budget_ns)) break;
  }
}

void Scheduler::Step::AddItem(Entry& entry, int32_t tokens, double cost_ns) {
  const RequestView& v = view(entry);
  PlanItem item;
  item.view = entry.view;
  item.tokens = tokens;
  item.wants_logits = tokens == v.tokens_left;
  item.cost_ns = cost_ns;
  item.virtual_ns = entry.virtual_ns;
  plan_.items.push_back(item);
  if (v.decoding) {
    plan_.shape.AddDecode(v.position);
  } else {
    plan_.shape.AddPrompt(v.position, tokens);
  }
  entry.item = true;
  available_ -= Growth(v, tokens);
  spent_ns_ += cost_ns;
  rows_left_ -= tokens;
  if (item.wants_logits) {
    --slots_left_;
    --tokens_allowed_;
  }
}

bool Scheduler::Step::AddDecode(Entry& entry, bool force) {
  const RequestView& v = view(entry);
  if (rows_left_ < 1 || slots_left_ < 1 || tokens_allowed_ < 1) return false;
  if (!MakeRoom(entry, Growth(v, 1), force)) return false;
  AddItem(entry, 1, cost_.DecodeNs(v.position));
  return true;
}

// A chunk of as many rows as `time_ns` pays for. With `at_least_smallest` the smallest chunk is
// taken even where the time does not pay for it.
bool Scheduler::Step::AddChunk(Entry& entry, double time_ns, bool at_least_smallest, bool force) {
  const RequestView& v = view(entry);
  int32_t most = std::min(v.tokens_left, rows_left_);
  // The last token of a prompt needs a row of logits; without one, all but that token.
  if (most == v.tokens_left && (slots_left_ < 1 || tokens_allowed_ < 1)) --most;
  if (most < 1) return false;
  const int32_t smallest = std::min(options_.min_chunk, most);
  int32_t rows = cost_.PromptRowsWithin(time_ns, v.position, most);
  if (rows < smallest) {
    if (!at_least_smallest) return false;
    rows = smallest;
  }
  if (rows < most && rows > options_.chunk_quantum) rows -= rows % options_.chunk_quantum;

  // Smaller chunks come before anybody else's memory.
  if (Growth(v, rows) > available_) {
    int32_t fits = 0, beyond = rows;
    while (beyond - fits > 1) {
      const int32_t middle = fits + (beyond - fits) / 2;
      (Growth(v, middle) <= available_ ? fits : beyond) = middle;
    }
    if (fits == 0) {
      if (!MakeRoom(entry, Growth(v, 1), force)) return false;
      fits = Growth(v, smallest) <= available_ ? smallest : 1;
    }
    rows = fits;
  }
  AddItem(entry, rows, cost_.PromptNs(v.position, rows));
  return true;
}

// Tokens for decoding requests, whoever was served longest ago first, while `keep_slots` rows of
// logits and `keep_tokens` tokens stay for others and the step's time is below `until_ns`. A ring,
// not deadlines: where rows are too few for all, everyone's turn comes in a number of steps that is
// known.
void Scheduler::Step::AddDecodes(LatencyClass c, int32_t keep_slots, int32_t keep_tokens,
                                 double until_ns) {
  ring_.clear();
  for (const uint32_t index : order_) {
    const Entry& e = entries_[index];
    if (e.running && !e.taken && !e.item && view(e).decoding && OfClass(e, c)) {
      ring_.push_back(index);
    }
  }
  if (ring_.size() > static_cast<size_t>(std::max(0, std::min(slots_left_, tokens_allowed_)))) {
    std::sort(ring_.begin(), ring_.end(), [this](uint32_t a, uint32_t b) {
      const Entry &left = entries_[a], &right = entries_[b];
      return std::tuple(left.waiting_since_ns, left.rank) <
             std::tuple(right.waiting_since_ns, right.rank);
    });
  }
  for (const uint32_t index : ring_) {
    Entry& e = entries_[index];
    if (e.taken) continue;  // meanwhile, by one before it
    if (slots_left_ <= keep_slots || tokens_allowed_ <= keep_tokens || rows_left_ <= keep_slots) {
      return;
    }
    if (spent_ns_ + cost_.DecodeNs(view(e).position) > until_ns) return;
    AddDecode(e, false);
  }
}

// Makes the chunk that is the plan's first item longer, as far as time and memory are left.
void Scheduler::Step::ExtendFirstChunk(double until_ns) {
  PlanItem& item = plan_.items.front();
  const RequestView& v = views_[item.view];
  const int32_t begin = v.position + item.tokens;
  int32_t most = std::min(v.tokens_left - item.tokens, rows_left_);
  if (most == v.tokens_left - item.tokens && (slots_left_ < 1 || tokens_allowed_ < 1)) --most;
  if (most < 1) return;
  int32_t rows = cost_.PromptRowsWithin(until_ns - spent_ns_, begin, most);
  if (rows < most) rows -= (item.tokens + rows) % options_.chunk_quantum;
  const int64_t had = Growth(v, item.tokens);
  while (rows > 0 && Growth(v, item.tokens + rows) - had > available_) rows /= 2;
  if (rows < 1) return;
  available_ -= Growth(v, item.tokens + rows) - had;
  const double cost_ns = cost_.PromptNs(begin, rows);
  plan_.shape.AddPrompt(begin, rows);
  item.tokens += rows;
  item.cost_ns += cost_ns;
  spent_ns_ += cost_ns;
  rows_left_ -= rows;
  item.wants_logits = item.tokens == v.tokens_left;
  if (item.wants_logits) {
    --slots_left_;
    --tokens_allowed_;
  }
}

// Chunks for prompts in order, up to `until_ns` of the step's time. With `at_least_smallest` the
// first that can advance gets its smallest chunk whatever the time.
void Scheduler::Step::AddChunks(LatencyClass c, double until_ns, bool at_least_smallest) {
  for (const uint32_t index : order_) {
    Entry& e = entries_[index];
    if (!e.running || e.taken || e.item || view(e).decoding || !OfClass(e, c)) continue;
    if (rows_left_ < 1 || (!at_least_smallest && spent_ns_ >= until_ns)) return;
    if (AddChunk(e, until_ns - spent_ns_, at_least_smallest, false)) at_least_smallest = false;
  }
}

// What the background class is owed: its first request's token or chunk, and more while the credit
// and the step's time last.
void Scheduler::Step::AddBackgroundPiece(double until_ns) {
  const double start = spent_ns_;
  bool first = true;
  for (const uint32_t index : order_) {
    Entry& e = entries_[index];
    if (!e.running || e.taken || e.item || view(e).latency_class != kBackground) continue;
    const double time =
        std::min(state_.background_credit_ns - (spent_ns_ - start), until_ns - spent_ns_);
    if (!first && time <= 0) return;
    if (view(e).decoding) {
      if (first || cost_.DecodeNs(view(e).position) <= time) first &= !AddDecode(e, false);
    } else {
      first &= !AddChunk(e, time, first, false);
    }
  }
}

void Scheduler::Step::FillStep() {
  rows_left_ = options_.step_rows;
  slots_left_ = std::min(options_.logit_rows, options_.step_rows);
  tokens_allowed_ = resources_.decode_rows_allowed;
  spent_ns_ = cost_.step_ns;
  bool any[kLatencyClasses] = {false, false};
  bool prompts = false;
  Entry* lead = nullptr;          // the one that is overdue longest
  const Entry* oldest = nullptr;  // the one that was served longest ago
  for (const uint32_t index : order_) {
    Entry& e = entries_[index];
    if (!e.running || e.taken) continue;
    any[Index(view(e).latency_class)] = true;
    prompts |= !view(e).decoding;
    if (e.overdue && (lead == nullptr || DueNs(e) < DueNs(*lead))) lead = &e;
    if (oldest == nullptr || e.waiting_since_ns < oldest->waiting_since_ns) oldest = &e;
  }
  if (!any[0] && !any[1]) return;
  const LatencyClass first = any[Index(kInteractive)] ? kInteractive : kBackground;
  const bool two_classes = by_class() && any[Index(kInteractive)] && any[Index(kBackground)];
  bool owed = two_classes && state_.background_credit_ns > 0;

  double decode_ns = 0;
  bool chunk_given = false;
  if (lead != nullptr && by_class()) {
    const double before = spent_ns_;
    const bool added =
        view(*lead).decoding ? AddDecode(*lead, false) : AddChunk(*lead, 0, true, false);
    if (added && two_classes && view(*lead).latency_class == kBackground) {
      background_paid_ns_ += spent_ns_ - before;
      owed = false;
    } else if (added && view(*lead).decoding) {
      decode_ns += spent_ns_ - before;
    } else if (added) {
      chunk_given = true;
    }
  }

  // Rows of logits are kept for a prompt that ends and for what the background class is owed. Where
  // there is only one, a prompt that lacks nothing else gets it when its turn has come.
  const bool only_last_left = !view(*oldest).decoding && view(*oldest).tokens_left == 1;
  const int32_t for_prompt = prompts && (slots_left_ > 1 || only_last_left) ? 1 : 0;
  const int32_t for_background = owed && slots_left_ - for_prompt >= 1 ? 1 : 0;
  const int32_t tokens_kept =
      for_prompt + for_background > 0 && (tokens_allowed_ > 1 || only_last_left) ? 1 : 0;
  double before = spent_ns_;
  AddDecodes(first, for_prompt + for_background, tokens_kept, HUGE_VAL);
  decode_ns += spent_ns_ - before;

  double budget = static_cast<double>(options_.step_budget_ns);
  if (by_class() && first == kInteractive && decode_ns > 0) {
    budget = std::min(budget, (cost_.step_ns + decode_ns) * options_.decode_stretch_percent / 100);
  }
  if (owed) {
    before = spent_ns_;
    AddBackgroundPiece(budget);
    background_paid_ns_ += spent_ns_ - before;
  }
  AddChunks(first, budget, !chunk_given);
  if (two_classes) {
    before = spent_ns_;
    AddDecodes(kBackground, 0, 0, budget);
    AddChunks(kBackground, budget, false);
    background_gift_ns_ += spent_ns_ - before;
  }
  AddDecodes(first, 0, 0, budget);  // with the rows that were kept and not used
  if (chunk_given) ExtendFirstChunk(budget);
}

// Nothing could be planned although something may run: memory is held by those that wait for each
// other. The first takes what it needs from those behind it, protected or not. If even that is not
// enough, the budget cannot hold it.
void Scheduler::Step::ForceProgress() {
  if (!plan_.items.empty() || !plan_.restore.empty() || !plan_.preempt.empty()) return;
  for (const RequestView& v : views_) {
    if (v.residency == Residency::kMoving) return;
  }
  if (order_.empty()) return;
  for (const uint32_t index : order_) {  // some wait for the heat, not for memory
    if (tokens_allowed_ < 1 && entries_[index].running && views_[index].tokens_left == 1) return;
  }
  Entry& e = entries_[order_.front()];
  const RequestView& v = view(e);
  bool moves = e.running || AdmitOne(e, true);
  if (moves && e.running) {
    moves = v.decoding ? AddDecode(e, true) : AddChunk(e, 0, true, true);
  }
  if (moves) return;
  // Those behind it may hold nothing of their own because they share all of it with each other, or
  // with the first, which would have to copy it. One that goes leaves it to the rest.
  for (const uint32_t index : victims_) {
    Entry& sharer = entries_[index];
    if (!MayTake(e, sharer, true)) continue;
    Preempt(sharer, PreemptBy::kDrop);
    return;
  }
  plan_.refuse.push_back(e.view);
}

void Scheduler::Step::Finish() {
  const int64_t free_end = available_ - static_cast<int64_t>(resources_.reclaimable_bytes);
  if (free_end < 0) {
    plan_.reclaim_bytes = std::min(static_cast<uint64_t>(-free_end), resources_.reclaimable_bytes);
  }
  plan_.predicted_ns = plan_.items.empty() ? 0 : spent_ns_;

  // Everyone in the step pays for its rows; the pass over the weights is for all.
  bool interactive_served = false, background_active = false;
  for (PlanItem& item : plan_.items) {
    const RequestView& v = views_[item.view];
    const uint32_t weight = std::clamp(v.weight, 1u, kMaxWeight);
    item.virtual_ns += static_cast<int64_t>(item.cost_ns / weight);
    item.run_ns = item.cost_ns + cost_.step_ns / static_cast<double>(plan_.items.size());
    interactive_served |= v.latency_class == kInteractive;
  }
  SchedulerState& next = plan_.next_state;
  next = state_;
  bool backlogged[kLatencyClasses] = {false, false};
  int64_t least[kLatencyClasses] = {INT64_MAX, INT64_MAX};
  for (const uint32_t index : order_) {
    const Entry& e = entries_[index];
    const size_t c = Index(view(e).latency_class);
    backlogged[c] = true;
    least[c] = std::min(least[c], e.virtual_ns);
  }
  for (size_t c = 0; c < kLatencyClasses; ++c) {
    if (backlogged[c]) next.floor_ns[c] = std::max(state_.floor_ns[c], least[c]);
  }
  background_active = backlogged[Index(kBackground)];

  // The background class earns its share of every step that also served interactive work, and pays
  // for the pieces that it was owed. Time that nobody else wanted lowers what it is owed, but never
  // below nothing: it must not starve later for having used idle time now.
  if (!by_class() || !background_active) {
    next.background_credit_ns = 0;
  } else if (interactive_served) {
    const double weights = static_cast<double>(options_.class_weight[0]) + options_.class_weight[1];
    const double share = options_.class_weight[1] / std::max(1.0, weights);
    const double most = share * static_cast<double>(options_.step_budget_ns);
    double credit = state_.background_credit_ns + share * plan_.predicted_ns - background_paid_ns_;
    if (credit > 0) credit = std::max(0.0, credit - background_gift_ns_);
    next.background_credit_ns = std::min(credit, most);
  } else if (!plan_.items.empty()) {
    next.background_credit_ns = std::min(0.0, state_.background_credit_ns);
  }

  plan_.wake_ns = now_ns_;
  if (plan_.items.empty() && plan_.restore.empty() && plan_.preempt.empty()) {
    plan_.wake_ns = INT64_MAX;
    for (const uint32_t index : order_) {
      const Entry& e = entries_[index];
      if (!e.running && !e.overdue) {
        plan_.wake_ns = std::min(plan_.wake_ns, DueNs(e) + 1);
      }
      if (tokens_allowed_ < 1) plan_.wake_ns = std::min(plan_.wake_ns, resources_.rows_again_ns);
    }
    plan_.wake_ns = std::max(plan_.wake_ns, now_ns_);
  }
}

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options) {
  CELLM_CHECK(options.sequence_bytes != nullptr, "a scheduler without a formula of bytes");
}

const StepPlan& Scheduler::Plan(std::span<const RequestView> views, const Resources& resources,
                                const CostModel& cost, const SchedulerState& state,
                                int64_t now_ns) {
  plan_.refuse.clear();
  plan_.reclaim_bytes = 0;
  plan_.preempt.clear();
  plan_.restore.clear();
  plan_.items.clear();
  plan_.shape = {};
  plan_.predicted_ns = 0;
  plan_.predicted_move_ns = 0;
  entries_.clear();
  order_.clear();
  victims_.clear();

  Step step(*this, views, resources, cost, state, now_ns);
  step.Classify();
  step.Order();
  step.OrderVictims();
  step.Shed();
  step.Admit();
  step.FillStep();
  step.ForceProgress();
  step.Finish();
  return plan_;
}

}  // namespace cellm
