#include "engine/serving.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace cellm {
namespace {

// Bytes that stand for "no limit": far from overflow when added up.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;
// A point where pasts part is worth a state of its own when it saves this many tokens.
constexpr int32_t kWorthACheckpoint = 32;
constexpr int64_t kFlagPollNs = 20'000'000;

// Whether a past can be cut at any token, as far as its layers go. That older tokens are demoted
// does not count: states kept at places of a prompt would hold their pages as they were.
bool CutsAnywhere(Engine& engine) {
  const int32_t context = engine.context_tokens();
  if (!engine.options().storage().demotes()) return engine.cache().CanCut(context, 1);
  for (const LayerStateSpec& layer : engine.info().layers) {
    if (layer.recurrent_floats > 0 || layer.conv_floats() > 0) return false;
    if (layer.stores_kv() && layer.window > 0 && layer.window < context) return false;
  }
  return true;
}

}  // namespace

struct Serving::Request {
  uint64_t id = 0;
  RequestSpec spec;
  RequestProgress progress;
  Residency residency = Residency::kNone;
  bool paused = false;
  SequenceId sequence;   // of kResident
  SwapExtent extent;     // of kSwapped
  int32_t position = 0;  // tokens evaluated: in memory or in the swap file
  int32_t allowed = 1;   // tokens that may still be chosen before the owner asks for more
  int32_t checkpoint_at = 0;
  bool cancel = false;
  uint64_t final_bytes = 0;
  int64_t arrival_ns = 0, last_served_ns = 0, due_ns = 0, virtual_ns = 0;
  int32_t served_since_restore = 0;  // begins below 0 after a drop: what was lost comes first
  double run_ns_since_restore = 0;
  int32_t lost_tokens = 0;  // by the last drop
  // Of the step under way.
  bool has_choice = false;
  Result<Choice> choice{Choice()};

  int32_t size() const { return static_cast<int32_t>(spec.tokens.size()); }
  bool ended() const { return progress.end != RequestEnd::kNone; }
  // Everything but the token just chosen is evaluated.
  bool decoding() const {
    return residency != Residency::kNone && position >= progress.prompt_tokens &&
           position == size() - 1;
  }
  // Tokens that the scheduler may give it; 0 while its owner has not asked for more.
  int32_t tokens_left() const {
    return ended() || (spec.wants_logits && allowed <= 0) ? 0 : size() - position;
  }
};

Serving::Serving(Engine& engine, ServingOptions options)
    : engine_(engine),
      options_(std::move(options)),
      cut_anywhere_(CutsAnywhere(engine)),
      swap_(options_.swap != nullptr
                ? std::make_unique<SwapFile>(std::move(options_.swap), options_.swap_bytes)
                : nullptr),
      pasts_(engine, swap_.get()),
      scheduler_([this] {
        SchedulerOptions scheduler;
        scheduler.policy = options_.policy;
        scheduler.step_rows = engine_.options().chunk_rows;
        scheduler.logit_rows = std::min(engine_.options().logit_rows, scheduler.step_rows);
        scheduler.max_running = engine_.options().max_sequences;
        if (options_.step_budget_ns > 0) scheduler.step_budget_ns = options_.step_budget_ns;
        scheduler.sequence_bytes = &Serving::SequenceBytes;
        scheduler.sequence_bytes_user = this;
        return scheduler;
      }()),
      estimator_(CostModel()) {}

Serving::~Serving() {
  for (const std::unique_ptr<Request>& request : requests_) {
    request->spec.keep_past = false;
    Leave(request.get());
  }
}

uint64_t Serving::SequenceBytes(const void* user, int32_t position, int32_t chunk) {
  const Engine& engine = static_cast<const Serving*>(user)->engine_;
  const EngineOptions& options = engine.options();
  const std::span<const LayerStateSpec> layers = engine.info().layers;
  return static_cast<uint64_t>(
      chunk == 0
          ? BytesPerSequence(layers, options.storage(), options.page_tokens, position)
          : PeakBytesPerSequence(layers, options.storage(), options.page_tokens, position, chunk));
}

// What pages and states could take in all: the budget less what everything else holds.
uint64_t Serving::CacheLimit() const {
  uint64_t limit = kNoLimit;
  if (options_.budget != nullptr && options_.budget->limit_bytes() < kNoLimit) {
    const CacheStats& cache = engine_.cache_stats();
    const uint64_t held = cache.page_bytes_used + cache.page_bytes_free + cache.state_bytes;
    const uint64_t used = options_.budget->used_bytes();
    const uint64_t others = used > held ? used - held : 0;
    limit = options_.budget->limit_bytes() > others ? options_.budget->limit_bytes() - others : 0;
  }
  const uint64_t cache_bytes = engine_.options().cache_bytes;
  return cache_bytes > 0 ? std::min(limit, cache_bytes) : limit;
}

void Serving::NoteCache() {
  noted_limit_ = CacheLimit();
  noted_past_bytes_ = pasts_.memory_bytes();
}

int64_t Serving::FreeBytes() const {
  const CacheStats& cache = engine_.cache_stats();
  return static_cast<int64_t>(CacheLimit()) -
         static_cast<int64_t>(cache.page_bytes_used + cache.state_bytes);
}

uint64_t Serving::CacheKey(uint64_t share_key, int32_t planned_tokens) const {
  // Keys are few and small: a mix of the two is enough, and 0 stays the key of everyone.
  return share_key ^
         (static_cast<uint64_t>(engine_.LengthClass(planned_tokens)) * 0x9E3779B97F4A7C15u);
}

uint64_t Serving::CacheKey(const Request& request) const {
  return CacheKey(request.spec.share_key, request.spec.planned_tokens);
}

Serving::Request* Serving::Find(uint64_t id) const {
  for (const std::unique_ptr<Request>& request : requests_) {
    if (request->id == id) return request.get();
  }
  CELLM_CHECK(false, "a request does not exist");
  return nullptr;
}

// ---- what owners ask for ----

Result<uint64_t> Serving::Submit(const Lock&, RequestSpec spec) {
  CELLM_CHECK(!spec.tokens.empty(), "a request without tokens");
  auto request = std::make_unique<Request>();
  const int32_t size = static_cast<int32_t>(spec.tokens.size());
  if (spec.planned_tokens < size || spec.planned_tokens > engine_.context_tokens()) {
    return OutOfRange("request of %d tokens, planned to be %d: the context has %d", size,
                      spec.planned_tokens, engine_.context_tokens());
  }
  request->final_bytes = static_cast<uint64_t>(
      MostBytesPerSequence(engine_.info().layers, engine_.options().storage(),
                           engine_.options().page_tokens, spec.planned_tokens));
  const uint64_t limit = others_lead() ? noted_limit_ : CacheLimit();
  if (request->final_bytes > limit) {
    return OutOfMemory("a request of %d tokens needs %llu bytes of cache, %llu available",
                       spec.planned_tokens, static_cast<unsigned long long>(request->final_bytes),
                       static_cast<unsigned long long>(limit));
  }
  request->id = next_id_++;
  request->spec = std::move(spec);
  request->progress.prompt_tokens = size;
  request->arrival_ns = options_.clock->NowNs();
  requests_.push_back(std::move(request));
  changed_.notify_all();
  return requests_.back()->id;
}

void Serving::Cancel(const Lock&, uint64_t id) {
  Find(id)->cancel = true;
  changed_.notify_all();
}

void Serving::AllowTokens(const Lock&, uint64_t id, int32_t count) {
  Request* const request = Find(id);
  if (request->allowed >= count) return;
  const bool was_idle = request->allowed <= 0;
  request->allowed = count;
  if (was_idle) changed_.notify_all();
}

const RequestProgress& Serving::progress(const Lock&, uint64_t id) const {
  return Find(id)->progress;
}

std::span<const int32_t> Serving::tokens(const Lock&, uint64_t id) const {
  return Find(id)->spec.tokens;
}

void Serving::Lead(Lock& lock) {
  if (leads_already()) {  // from within RunAlone()
    ++nested_;
    return;
  }
  ++exclusive_waiters_;
  changed_.wait(lock, [this] { return !leading_; });
  --exclusive_waiters_;
  leading_ = true;
  leader_ = platform::CurrentThread();
}

void Serving::StopLeading(Lock&) {
  for (const int32_t snapshot : borrowed_) engine_.cache().DropSnapshot(snapshot);
  borrowed_.clear();
  if (nested_ > 0) {
    --nested_;
    return;
  }
  leading_ = false;
  leader_ = 0;
  changed_.notify_all();
}

void Serving::Close(Lock& lock, uint64_t id) {
  Request* const request = Find(id);
  request->cancel = true;
  Lead(lock);
  if (!request->ended()) End(request, RequestEnd::kCancelled, OkStatus());
  std::erase_if(requests_, [request](const auto& other) { return other.get() == request; });
  StopLeading(lock);
}

void Serving::ForgetPasts(Lock& lock, uint64_t share_key) {
  Lead(lock);
  pasts_.Forget(share_key);
  engine_.cache().Trim();
  StopLeading(lock);
}

int32_t Serving::FindPast(uint64_t share_key, int32_t planned_tokens,
                          std::span<const int32_t> tokens,
                          std::vector<std::span<uint8_t>>* contents) {
  const uint64_t key = CacheKey(share_key, planned_tokens);
  for (;;) {
    PastStore::Found found = pasts_.Find(key, tokens, static_cast<int32_t>(tokens.size()));
    if (found.position == 0) return 0;
    if (pasts_.Length(found.entry) > found.position) {
      // It goes on beyond: a past of exactly these tokens is made from it.
      const Result<SequenceId> sequence = pasts_.Start(found, planned_tokens);
      if (!sequence.ok()) return 0;
      const std::span<const int32_t> covered = tokens.first(static_cast<size_t>(found.position));
      const Result<int32_t> snapshot = engine_.TakeSnapshot(sequence.value());
      (void)engine_.FreeSequence(sequence.value()).ok();
      if (!snapshot.ok()) return 0;
      *contents = engine_.cache().Contents(snapshot.value());
      borrowed_.push_back(snapshot.value());
      return static_cast<int32_t>(covered.size());
    }
    Result<std::vector<std::span<uint8_t>>> bytes = pasts_.Contents(found.entry);
    if (bytes.ok()) {
      *contents = std::move(bytes).value();
      return found.position;
    }
    if (bytes.status().code() == StatusCode::kOutOfMemory) return 0;
    ++stats_.swap_failures;  // that past is forgotten; there may be another
  }
}

Status Serving::AddPast(Lock& lock, uint64_t share_key, int32_t planned_tokens,
                        std::span<const int32_t> tokens, std::span<const uint8_t> contents) {
  const int32_t count = static_cast<int32_t>(tokens.size());
  if (contents.size() != SequenceBytes(this, count, 0)) {
    return Corrupt("%zu bytes of keys, values and states; %d tokens have %llu", contents.size(),
                   count, static_cast<unsigned long long>(SequenceBytes(this, count, 0)));
  }
  Lead(lock);
  Result<int32_t> snapshot = engine_.cache().NewSnapshot(count);
  while (!snapshot.ok() && FreeSomething()) snapshot = engine_.cache().NewSnapshot(count);
  if (snapshot.ok()) {
    for (const std::span<uint8_t> piece : engine_.cache().Contents(snapshot.value())) {
      std::copy_n(contents.begin(), piece.size(), piece.begin());
      contents = contents.subspan(piece.size());
    }
    pasts_.KeepSnapshot(CacheKey(share_key, planned_tokens), tokens, snapshot.value(),
                        estimator_.model());
  }
  StopLeading(lock);
  return snapshot.status();
}

bool Serving::FreeSomethingAlone() {
  const Lock lock(mutex_);
  CELLM_CHECK(leads_already(), "memory is freed while another thread runs steps");
  return FreeSomething();
}

Status Serving::SetBudget(Lock& lock, uint64_t bytes) {
  Lead(lock);
  if (options_.budget != nullptr) {
    options_.budget->set_limit_bytes(bytes == 0 ? UINT64_MAX : bytes);
    // At once: pasts first, then requests. Pages are given back by whole slabs, so this may be more
    // than the pages that are too many.
    in_step_.clear();
    const auto over = [this] {
      return options_.budget->used_bytes() > options_.budget->limit_bytes();
    };
    if (over()) engine_.cache().Trim();
    while (over() && FreeSomething()) {
    }
  }
  StopLeading(lock);
  return OkStatus();
}

void Serving::SetLimits(const Lock&, bool background_allowed, bool interactive_allowed,
                        int32_t tokens_per_second) {
  class_allowed_[static_cast<int>(LatencyClass::kInteractive)] = interactive_allowed;
  class_allowed_[static_cast<int>(LatencyClass::kBackground)] = background_allowed;
  tokens_per_second_ = tokens_per_second;
  token_credit_ = 0;
  credit_ns_ = options_.clock->NowNs();
  changed_.notify_all();
}

const ThermalLimits& Serving::UpdateHeat(int64_t now_ns) {
  if (has_level_) governor_.ObserveLevel(reported_level_, now_ns);
  limits_ = governor_.limits();
  return limits_;
}

void Serving::ReportHeat(const Lock&, ThermalLevel level, PowerHint power, bool at_once) {
  has_level_ = true;
  reported_level_ = level;
  governor_.SetPowerHint(power);
  if (at_once) governor_.SetLevel(level);
  (void)UpdateHeat(options_.clock->NowNs());
  changed_.notify_all();
}

void Serving::ReportTemperature(const Lock&, double celsius) {
  has_level_ = false;
  governor_.ObserveTemperature(celsius, options_.clock->NowNs());
  limits_ = governor_.limits();
  changed_.notify_all();
}

ServingHeat Serving::heat(const Lock&) {
  const int64_t now_ns = options_.clock->NowNs();
  ServingHeat heat;
  heat.limits = UpdateHeat(now_ns);
  heat.level = governor_.level();
  heat.power = governor_.power();
  const Pacer::Grant grant = pacer_.Ask(heat.limits, now_ns);
  const int64_t begins_ns = grant.tokens > 0 ? grant.start_ns : grant.more_ns;
  heat.wait_ns = std::max<int64_t>(0, begins_ns - now_ns);
  return heat;
}

ServingStats Serving::stats(const Lock&) const {
  ServingStats stats = stats_;
  stats.swapped_bytes = swap_ != nullptr ? swap_->used_bytes() : 0;
  stats.past_bytes = others_lead() ? noted_past_bytes_ : pasts_.memory_bytes();
  stats.pasts = static_cast<int64_t>(pasts_.size());
  for (const std::unique_ptr<Request>& request : requests_) {
    if (request->ended()) continue;
    const bool runs = request->residency == Residency::kResident && !request->paused;
    ++(runs ? stats.running : stats.waiting);
  }
  return stats;
}

// ---- driving ----

Status Serving::DriveOrWait(Lock& lock) {
  if (leads_already()) return Busy("a callback may not wait for the engine that called it");
  if (leading_ || exclusive_waiters_ > 0) {
    changed_.wait(lock);
    return OkStatus();
  }
  leading_ = true;
  leader_ = platform::CurrentThread();
  const bool ran = RunStep(lock);
  StopLeading(lock);
  if (ran) return OkStatus();
  // Nothing can run until something changes, or until heat allows more.
  // Signal handlers cannot wake us: their flags are looked at now and then.
  int64_t ns = kFlagPollNs;
  if (wake_ns_ != INT64_MAX) ns = std::min(ns, wake_ns_ - options_.clock->NowNs());
  if (ns > 0) platform::WaitFor(changed_, lock, ns);
  return OkStatus();
}

Result<bool> Serving::DriveOnce(Lock& lock) {
  if (leads_already()) return Busy("a callback may not drive the engine that called it");
  Lead(lock);
  const bool ran = RunStep(lock);
  StopLeading(lock);
  return ran;
}

Resources Serving::Available(int64_t now_ns) {
  Resources resources;
  resources.free_bytes = FreeBytes();
  const bool scarce = CacheLimit() < kNoLimit;
  resources.reclaimable_bytes = scarce ? pasts_.memory_bytes() : 0;
  resources.budget_bytes = CacheLimit();
  resources.swap_free_bytes = swap_ != nullptr ? swap_->free_bytes() : 0;
  for (int c = 0; c < kLatencyClasses; ++c) resources.class_allowed[c] = class_allowed_[c];
  if (tokens_per_second_ > 0) {
    // A bucket of a quarter of a second, at least one token.
    const double rate = static_cast<double>(tokens_per_second_);
    token_credit_ += rate * static_cast<double>(now_ns - credit_ns_) / 1e9;
    token_credit_ = std::min(token_credit_, std::max(1.0, rate / 4));
    credit_ns_ = now_ns;
    resources.decode_rows_allowed = static_cast<int32_t>(token_credit_);
    const double missing = std::floor(token_credit_) + 1 - token_credit_;
    resources.rows_again_ns = now_ns + static_cast<int64_t>(missing / rate * 1e9) + 1;
  }
  if (grant_.tokens < resources.decode_rows_allowed) {
    resources.decode_rows_allowed = grant_.tokens;
    resources.rows_again_ns = std::max(resources.rows_again_ns, grant_.more_ns);
  }
  if (!limits_.background) {
    resources.class_allowed[static_cast<int>(LatencyClass::kBackground)] = false;
  }
  return resources;
}

void Serving::BuildViews() {
  views_.clear();
  viewed_.clear();
  for (const std::unique_ptr<Request>& owned : requests_) {
    Request& request = *owned;
    if (request.ended()) continue;
    RequestView view;
    view.id = request.id;
    view.latency_class = request.spec.latency_class;
    view.weight = std::max<uint32_t>(1, request.spec.weight);
    view.arrival_ns = request.arrival_ns;
    view.last_served_ns = request.last_served_ns;
    view.deadline_ns = request.due_ns;
    view.virtual_ns = request.virtual_ns;
    view.tokens_left = request.tokens_left();
    view.decoding = request.decoding();
    view.paused = request.paused;
    view.position = request.position;
    view.served_since_restore = request.served_since_restore;
    view.run_ns_since_restore = request.run_ns_since_restore;
    view.residency = request.residency;
    view.final_bytes = request.final_bytes;
    view.recompute_tokens = request.position;
    if (request.residency == Residency::kResident) {
      const int32_t slot = engine_.CacheSlot(request.sequence);
      view.bytes_held = engine_.cache().SequenceOwnBytes(slot);
      view.copy_bytes = engine_.cache().CopyBytes(slot);
    } else {
      view.restore_bytes = request.residency == Residency::kSwapped ? request.extent.bytes
                                                                    : SequenceBytes(this, 0, 0);
      if (request.residency == Residency::kNone && view.tokens_left > 0 &&
          !request.spec.wants_states) {
        view.position =
            pasts_.Find(CacheKey(request), request.spec.tokens, request.size() - 1).position;
        view.tokens_left -= view.position;
      }
    }
    views_.push_back(view);
    viewed_.push_back(&request);
  }
}

bool Serving::RunStep(Lock& lock) {
  for (const std::unique_ptr<Request>& request : requests_) {
    if (request->ended()) continue;
    const RequestHooks& hooks = request->spec.hooks;
    if (request->cancel || (hooks.cancelled != nullptr && hooks.cancelled(hooks.user))) {
      End(request.get(), RequestEnd::kCancelled, OkStatus());
    }
  }
  BuildViews();
  wake_ns_ = INT64_MAX;
  if (views_.empty()) return false;
  const int64_t now_ns = options_.clock->NowNs();
  grant_ = pacer_.Ask(UpdateHeat(now_ns), now_ns);
  if (grant_.start_ns > now_ns) {  // too hot for a step so soon after the last
    wake_ns_ = grant_.start_ns;
    return false;
  }
  const StepPlan& plan =
      scheduler_.Plan(views_, Available(now_ns), estimator_.model(), scheduler_state_, now_ns);
  scheduler_state_ = plan.next_state;
  const bool moved = Rearrange(plan);
  GatherItems(plan, now_ns);
  if (items_.empty()) {
    if (!moved) wake_ns_ = plan.wake_ns;
    return moved;
  }
  Evaluate(lock);
  return true;
}

// Everything of a plan but its items. Returns whether anything changed.
bool Serving::Rearrange(const StepPlan& plan) {
  for (const uint32_t view : plan.refuse) {
    End(viewed_[view], RequestEnd::kFailed,
        OutOfMemory("the request needs %llu bytes of cache, %llu are left of the budget",
                    static_cast<unsigned long long>(viewed_[view]->final_bytes),
                    static_cast<unsigned long long>(CacheLimit())));
  }
  if (plan.reclaim_bytes > 0) (void)pasts_.Reclaim(plan.reclaim_bytes, estimator_.model());
  for (const Preemption& preemption : plan.preempt) {
    Preempt(viewed_[preemption.view], preemption.by);
  }
  for (const Restoration& restoration : plan.restore) {
    Request* const request = viewed_[restoration.view];
    Status status;
    if (restoration.by == RestoreBy::kResume) {
      request->paused = false;
      request->served_since_restore = 0;
      request->run_ns_since_restore = 0;
    } else if (restoration.by == RestoreBy::kSwapIn) {
      status = SwapIn(request);
    } else {
      status = Begin(request);
    }
    // Memory that the plan counted on is not there after all: the next plan sees it.
    if (!status.ok()) (void)FreeSomething();
  }
  return !plan.refuse.empty() || !plan.preempt.empty() || !plan.restore.empty();
}

// The rows of the step: what the plan gives to requests that are in memory by now.
void Serving::GatherItems(const StepPlan& plan, int64_t now_ns) {
  in_step_.clear();
  items_.clear();
  for (const PlanItem& item : plan.items) {
    Request* const request = viewed_[item.view];
    if (request->ended() || request->residency != Residency::kResident || request->paused) continue;
    const int32_t count = CutAtCheckpoint(
        *request, std::min({item.tokens, request->size() - request->position, options_.chunk_tokens,
                            engine_.MostTokens(request->position)}));
    const bool last = request->position + count == request->size();
    request->virtual_ns = item.virtual_ns;
    request->run_ns_since_restore += item.run_ns;
    request->last_served_ns = now_ns;
    if (request->progress.prompt_begin_ns == 0) request->progress.prompt_begin_ns = now_ns;
    in_step_.push_back(request);
    items_.push_back(
        {request->sequence,
         std::span<const int32_t>(request->spec.tokens)
             .subspan(static_cast<size_t>(request->position), static_cast<size_t>(count)),
         last && request->spec.wants_logits ? LogitRows::kLast : LogitRows::kNone,
         request->spec.wants_states});
  }
}

// Models that cannot start just anywhere in a past keep states at certain places of a prompt: where
// known pasts part, at multiples of checkpoint_tokens, at its end. A chunk ends there.
int32_t Serving::CutAtCheckpoint(const Request& request, int32_t count) const {
  if (!request.spec.keep_past || cut_anywhere_) return count;
  const int32_t begin = request.position;
  const auto cut = [&](int32_t at) {
    if (at > begin && at < begin + count) count = at - begin;
  };
  cut(request.progress.prompt_tokens);
  if (begin >= request.progress.prompt_tokens) return count;
  cut(request.checkpoint_at);
  if (options_.checkpoint_tokens > 0) {
    cut((begin / options_.checkpoint_tokens + 1) * options_.checkpoint_tokens);
  }
  return count;
}

bool Serving::IsCheckpoint(const Request& request) const {
  if (!request.spec.keep_past || request.position > request.progress.prompt_tokens) return false;
  if (request.position == request.progress.prompt_tokens) return true;
  if (cut_anywhere_) return false;
  return request.position == request.checkpoint_at ||
         (options_.checkpoint_tokens > 0 && request.position % options_.checkpoint_tokens == 0);
}

void Serving::Evaluate(Lock& lock) {
  const ThermalLimits limits = limits_;
  NoteCache();
  lock.unlock();
  engine_.SetActiveThreads(limits.Threads(engine_.threads()));
  const int64_t begin_ns = options_.clock->NowNs();
  Result<StepOutput> output = engine_.Step(items_);
  const int64_t end_ns = options_.clock->NowNs();
  if (output.ok()) {
    const size_t columns = static_cast<size_t>(engine_.info().vocab_size);
    for (size_t i = 0; i < items_.size(); ++i) {
      Request& request = *in_step_[i];
      if (items_[i].states) {
        const Status status = request.spec.hooks.states(request.spec.hooks.user, request.position,
                                                        output.value().items[i].states);
        request.has_choice = !status.ok();
        if (!status.ok()) request.choice = status;
        continue;
      }
      request.has_choice = items_[i].logits == LogitRows::kLast;
      if (!request.has_choice) continue;
      const float* const row = output.value().logits.row(output.value().items[i].first_row);
      request.choice = request.spec.hooks.choose(request.spec.hooks.user, {row, columns});
    }
  }
  lock.lock();
  if (!output.ok()) {
    StepFailed(output.status());
    return;
  }
  ++stats_.steps;
  StepShape shape;
  for (size_t i = 0; i < items_.size(); ++i) {
    const int64_t count = static_cast<int64_t>(items_[i].tokens.size());
    if (in_step_[i]->decoding()) {
      shape.AddDecode(in_step_[i]->position);
    } else {
      shape.AddPrompt(in_step_[i]->position, count);
    }
  }
  estimator_.ObserveStep(shape, end_ns - begin_ns);
  int32_t tokens = 0;
  for (const StepItem& item : items_) tokens += item.logits == LogitRows::kLast ? 1 : 0;
  pacer_.Done(limits, begin_ns, end_ns, tokens);
  for (size_t i = 0; i < items_.size(); ++i) {
    AfterItem(in_step_[i], static_cast<int32_t>(items_[i].tokens.size()), end_ns);
  }
}

void Serving::AfterItem(Request* request, int32_t count, int64_t now_ns) {
  request->position += count;
  request->served_since_restore += count;
  request->progress.evaluated = request->position;
  if (IsCheckpoint(*request)) KeepPast(request);
  const bool prompt_done = request->position >= request->progress.prompt_tokens;
  if (prompt_done && request->progress.prompt_end_ns == 0) {
    request->progress.prompt_end_ns = now_ns;
  }
  if (!request->has_choice) {
    if (!request->spec.wants_logits && request->position == request->size()) {
      End(request, RequestEnd::kDone, OkStatus());
    }
    return;
  }
  request->has_choice = false;
  if (!request->choice.ok()) {
    End(request, RequestEnd::kFailed, request->choice.status());
    return;
  }
  const Choice choice = request->choice.value();
  if (choice.token >= 0) {
    request->spec.tokens.push_back(choice.token);
    request->spec.tokens.insert(request->spec.tokens.end(), choice.more.begin(), choice.more.end());
    request->allowed -= 1 + static_cast<int32_t>(choice.more.size());
    token_credit_ -= 1;
    if (request->spec.token_interval_ns > 0) {
      request->due_ns = now_ns + request->spec.token_interval_ns;
    }
  }
  if (choice.last || request->size() > request->spec.planned_tokens) {
    End(request, RequestEnd::kDone, OkStatus());
    return;
  }
  if (request->spec.hooks.publish != nullptr) request->spec.hooks.publish(request->spec.hooks.user);
}

// The step could not be run; nothing has changed. Short memory is made up for by others; when there
// are none, by shorter chunks, and at last by starting over in an empty cache.
void Serving::StepFailed(const Status& status) {
  if (status.code() != StatusCode::kOutOfMemory) {
    for (Request* const request : in_step_) End(request, RequestEnd::kFailed, status);
    return;
  }
  if (FreeSomething()) return;
  Request* const last = in_step_.back();
  if (in_step_.size() == 1 && last->served_since_restore <= 0 && items_[0].tokens.size() == 1) {
    End(last, RequestEnd::kFailed, status);
    return;
  }
  Preempt(last, PreemptBy::kDrop);
}

// ---- memory of one request ----

Status Serving::Begin(Request* request) {
  if (request->extent.bytes > 0) swap_->Free(request->extent);
  request->extent = SwapExtent();
  const int32_t most = request->size() - 1;
  for (;;) {
    PastStore::Found found;
    if (!request->spec.wants_states) {
      found = pasts_.Find(CacheKey(*request), request->spec.tokens, most);
    }
    Result<SequenceId> sequence = found.position > 0
                                      ? pasts_.Start(found, request->spec.planned_tokens)
                                      : engine_.CreateSequence(request->spec.planned_tokens);
    if (!sequence.ok()) {
      const StatusCode code = sequence.status().code();
      if (code == StatusCode::kOutOfMemory || code == StatusCode::kBusy) return sequence.status();
      ++stats_.swap_failures;  // that past is forgotten; there may be another
      continue;
    }
    request->sequence = sequence.value();
    request->position = found.position;
    const int32_t common = std::min(found.common, most);
    if (common - found.position >= kWorthACheckpoint) request->checkpoint_at = common;
    if (request->progress.preemptions == 0) {
      request->progress.reused = std::min(found.position, request->progress.prompt_tokens);
    }
    break;
  }
  request->progress.evaluated = request->position;
  request->residency = Residency::kResident;
  request->paused = false;
  request->served_since_restore = std::min(0, request->position - request->lost_tokens);
  request->run_ns_since_restore = 0;
  return OkStatus();
}

Status Serving::SwapIn(Request* request) {
  Result<int32_t> snapshot =
      ReadSnapshot(engine_.cache(), request->position, request->extent, *swap_);
  if (!snapshot.ok() && snapshot.status().code() == StatusCode::kOutOfMemory) {
    return snapshot.status();
  }
  if (!snapshot.ok()) {  // lost on disk: its tokens are here, so only time is lost
    ++stats_.swap_failures;
    swap_->Free(request->extent);
    request->extent = SwapExtent();
    request->residency = Residency::kNone;
    request->position = 0;
    return Begin(request);
  }
  Result<SequenceId> sequence =
      engine_.CreateSequenceFrom(snapshot.value(), request->position, request->spec.planned_tokens);
  engine_.cache().DropSnapshot(snapshot.value());
  if (!sequence.ok()) return sequence.status();
  swap_->Free(request->extent);
  request->extent = SwapExtent();
  request->sequence = sequence.value();
  request->residency = Residency::kResident;
  request->paused = false;
  request->served_since_restore = 0;
  request->run_ns_since_restore = 0;
  return OkStatus();
}

void Serving::Preempt(Request* request, PreemptBy by) {
  if (request->ended() || request->residency != Residency::kResident) return;
  ++request->progress.preemptions;
  if (by == PreemptBy::kPause) {
    ++stats_.preempted_paused;
    request->paused = true;
    return;
  }
  bool swapped = false;
  if (by == PreemptBy::kSwap && swap_ != nullptr) {
    Result<int32_t> snapshot = engine_.TakeSnapshot(request->sequence);
    if (snapshot.ok()) {
      Result<SwapExtent> extent = WriteSnapshot(engine_.cache(), snapshot.value(), *swap_);
      engine_.cache().DropSnapshot(snapshot.value());
      if (extent.ok()) {
        request->extent = extent.value();
        swapped = true;
      }
    }
    if (!swapped) ++stats_.swap_failures;
  }
  (void)engine_.FreeSequence(request->sequence).ok();
  request->residency = swapped ? Residency::kSwapped : Residency::kNone;
  request->paused = false;
  ++(swapped ? stats_.preempted_swapped : stats_.preempted_dropped);
  if (!swapped) request->lost_tokens = std::exchange(request->position, 0);
  engine_.cache().Trim();
}

// Frees memory of whoever is not in the step: unused pasts, then a request, background first, the
// latest of them. False when there is nobody.
bool Serving::FreeSomething() {
  if (pasts_.Reclaim(1, estimator_.model()) > 0) return true;
  if (pasts_.size() > 0) {
    // What is left shares its pages with requests. A page that one of them is to write need not be
    // copied when nobody else holds it.
    pasts_.ForgetAll();
    return true;
  }
  Request* victim = nullptr;
  for (const std::unique_ptr<Request>& request : requests_) {
    if (request->ended() || request->residency != Residency::kResident) continue;
    if (std::find(in_step_.begin(), in_step_.end(), request.get()) != in_step_.end()) continue;
    if (victim == nullptr || request->spec.latency_class > victim->spec.latency_class ||
        (request->spec.latency_class == victim->spec.latency_class &&
         request->arrival_ns > victim->arrival_ns)) {
      victim = request.get();
    }
  }
  if (victim == nullptr) return false;
  Preempt(victim, swap_ != nullptr ? PreemptBy::kSwap : PreemptBy::kDrop);
  return true;
}

void Serving::KeepPast(Request* request) {
  pasts_.Keep(
      CacheKey(*request),
      std::span<const int32_t>(request->spec.tokens).first(static_cast<size_t>(request->position)),
      request->sequence, estimator_.model());
  if (CacheLimit() >= kNoLimit) pasts_.Trim(options_.past_bytes, estimator_.model());
}

void Serving::End(Request* request, RequestEnd end, Status status) {
  request->progress.end = end;
  request->progress.status = std::move(status);
  Leave(request);
  if (request->spec.hooks.publish != nullptr) request->spec.hooks.publish(request->spec.hooks.user);
}

void Serving::Leave(Request* request) {
  if (request->residency == Residency::kResident) {
    if (request->spec.keep_past && request->position > 0) KeepPast(request);
    (void)engine_.FreeSequence(request->sequence).ok();
  }
  if (request->extent.bytes > 0) swap_->Free(request->extent);
  request->extent = SwapExtent();
  request->residency = Residency::kNone;
}

void Serving::CheckInvariants(const Lock&) const {
  engine_.CheckInvariants();
  pasts_.CheckInvariants();
  for (const std::unique_ptr<Request>& request : requests_) {
    const bool resident = request->residency == Residency::kResident;
    CELLM_CHECK(!resident || !request->ended(), "an ended request holds memory");
    if (!resident) continue;
    const Result<int32_t> position = engine_.Position(request->sequence);
    CELLM_CHECK(position.ok() && position.value() == request->position,
                "a request is not where its sequence is");
  }
}

}  // namespace cellm
