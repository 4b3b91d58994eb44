// Evaluation without sampling: logits of token lists, and embeddings.
//
// Logits are handed out row by row while the engine is the caller's alone. Embeddings are requests
// like any other, in the same steps as the replies of sessions: each step's states are added to
// what their lists have so far.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/allocator.h"
#include "base/checked.h"
#include "capi/convert_args.h"
#include "capi/handles.h"

namespace cellm::capi {
namespace {

// ---- logits ----

struct Evaluated {
  const cellm_token_list* list = nullptr;
  SequenceId sequence;
  size_t done = 0;
};

// Frees the sequences of an evaluation, however it ends.
class Sequences {
 public:
  explicit Sequences(Engine& engine) : engine_(engine) {}
  ~Sequences() {
    for (const Evaluated& item : items) (void)engine_.FreeSequence(item.sequence).ok();
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;
  std::vector<Evaluated> items;

 private:
  Engine& engine_;
};

// After a lack of memory or sequences: whether what others held could be taken.
bool MayRetry(EngineState* state, const Status& status) {
  const bool lack = status.code() == StatusCode::kOutOfMemory || status.code() == StatusCode::kBusy;
  return lack && state->serving->FreeSomethingAlone();
}

Status EvaluateLists(EngineState* state, std::span<const cellm_token_list> lists,
                     cellm_logits_fn callback, void* user) {
  Engine& engine = *state->engine;
  const int32_t vocabulary = engine.info().vocab_size;
  Sequences sequences(engine);
  for (const cellm_token_list& list : lists) {
    const uint32_t planned =
        list.planned_tokens == 0 ? static_cast<uint32_t>(list.count) : list.planned_tokens;
    Result<SequenceId> id = engine.CreateSequence(static_cast<int32_t>(planned));
    while (!id.ok() && MayRetry(state, id.status())) {
      id = engine.CreateSequence(static_cast<int32_t>(planned));
    }
    if (!id.ok()) return id.status();
    sequences.items.push_back({&list, id.value(), 0});
  }
  const size_t most_rows = static_cast<size_t>(engine.options().chunk_rows);
  const size_t most_logits = static_cast<size_t>(engine.options().logit_rows);
  std::vector<StepItem> plan;
  std::vector<size_t> owners;
  for (;;) {
    plan.clear();
    owners.clear();
    size_t rows = 0;
    size_t logits = 0;
    for (size_t i = 0; i < sequences.items.size(); ++i) {
      const Evaluated& item = sequences.items[i];
      const bool wants = (item.list->flags & CELLM_EVALUATE_NO_LOGITS) == 0;
      size_t count = std::min<size_t>(state->chunk_tokens, item.list->count - item.done);
      count =
          std::min(count, static_cast<size_t>(engine.MostTokens(static_cast<int32_t>(item.done))));
      count = std::min(count, most_rows - rows);
      if (wants) count = std::min(count, most_logits - logits);
      if (count == 0) continue;
      plan.push_back({item.sequence,
                      {item.list->ids + item.done, count},
                      wants ? LogitRows::kAll : LogitRows::kNone});
      owners.push_back(i);
      rows += count;
      if (wants) logits += count;
    }
    if (plan.empty()) return OkStatus();
    Result<StepOutput> stepped = engine.Step(plan);
    while (!stepped.ok() && MayRetry(state, stepped.status())) stepped = engine.Step(plan);
    if (!stepped.ok()) return stepped.status();
    const StepOutput& output = stepped.value();
    for (size_t p = 0; p < plan.size(); ++p) {
      Evaluated& item = sequences.items[owners[p]];
      const StepItemResult& result = output.items[p];
      for (int32_t r = 0; r < result.row_count; ++r) {
        if (callback(owners[p], item.done + static_cast<size_t>(r),
                     output.logits.row(result.first_row + r), vocabulary, user) != 0) {
          return Cancelled("the logits callback asked to stop");
        }
      }
      item.done += plan[p].tokens.size();
    }
  }
}

// Copies and checks a caller's lists.
Status CheckLists(const EngineState& state, const cellm_token_list* given, size_t count,
                  std::vector<cellm_token_list>* lists, ErrorDetails* details) {
  const ModelInfo& info = state.engine->info();
  const size_t context = static_cast<size_t>(state.engine->context_tokens());
  if (count == 0 || given == nullptr) return InvalidArgument("no token lists");
  // The caller's array has elements of its own struct size.
  const unsigned char* at = reinterpret_cast<const unsigned char*>(given);
  const uint32_t stride = given->struct_size;
  if (stride % alignof(cellm_token_list) != 0) {
    return InvalidArgument("token list.struct_size is %u; it must be set by the _INIT macro",
                           stride);
  }
  for (size_t i = 0; i < count; ++i, at += stride) {
    cellm_token_list list;
    CELLM_RETURN_IF_ERROR(
        ReadSized(reinterpret_cast<const cellm_token_list*>(at), "token list", &list));
    if (reinterpret_cast<const cellm_token_list*>(at)->struct_size != stride) {
      return InvalidArgument("token list %zu: another struct_size than the first list's", i);
    }
    if (list.count == 0 || list.ids == nullptr) {
      return InvalidArgument("token list %zu is empty", i);
    }
    if (list.count > context) {
      *details = {CELLM_REASON_CONTEXT_LENGTH, list.count, context, {}};
      return OutOfRange("token list %zu needs %zu tokens, the context has %zu", i, list.count,
                        context);
    }
    if (list.planned_tokens > context) {
      return OutOfRange("token list %zu plans %u tokens, the context has %zu", i,
                        list.planned_tokens, context);
    }
    for (size_t k = 0; k < list.count; ++k) {
      if (list.ids[k] < 0 || list.ids[k] >= info.vocab_size) {
        return InvalidArgument("token list %zu: id %d is outside the vocabulary of %d", i,
                               list.ids[k], info.vocab_size);
      }
    }
    lists->push_back(list);
  }
  return OkStatus();
}

// ---- embeddings ----

// One list while it is evaluated.
struct Pooling {
  uint64_t id = 0;  // of its request; 0: none
  size_t list = 0;
  int32_t count = 0;  // its tokens
  int32_t seen = 0;   // tokens whose states were taken
  bool mean = false;
  std::span<double> sum;  // [hidden]
  const volatile int32_t* stop_flag = nullptr;
};

// RequestHooks::states: takes those that were not seen before.
Status AddStates(void* user, int32_t position, Rows states) {
  Pooling& pooling = *static_cast<Pooling*>(user);
  const int32_t first = pooling.mean ? pooling.seen : pooling.count - 1;
  for (int32_t r = 0; r < states.rows; ++r) {
    if (position + r < first || position + r < pooling.seen) continue;
    const float* const row = states.row(r);
    for (size_t c = 0; c < pooling.sum.size(); ++c) {
      if (!std::isfinite(row[c])) {
        return Internal("the model computes NaN or infinity for token %d of list %zu", position + r,
                        pooling.list);
      }
      pooling.sum[c] += static_cast<double>(row[c]);
    }
  }
  pooling.seen = std::max(pooling.seen, position + states.rows);
  return OkStatus();
}

bool StopAsked(void* user) {
  const Pooling& pooling = *static_cast<Pooling*>(user);
  // Another thread may set it; nothing else depends on it.
  return pooling.stop_flag != nullptr && __atomic_load_n(pooling.stop_flag, __ATOMIC_RELAXED) != 0;
}

// The embedding of a list that was evaluated to its end.
void WriteEmbedding(const Pooling& pooling, bool normalize, float* out) {
  double scale = pooling.mean ? 1.0 / static_cast<double>(pooling.count) : 1.0;
  if (normalize) {
    double squares = 0.0;
    for (const double value : pooling.sum) squares += value * value;
    // A vector of zeros has no direction and stays as it is.
    scale = squares > 0.0 ? 1.0 / std::sqrt(squares) : 1.0;
  }
  for (size_t c = 0; c < pooling.sum.size(); ++c) {
    out[c] = static_cast<float>(pooling.sum[c] * scale);
  }
}

// The lists of one call. However it ends, no request of it is left.
class Embedder {
 public:
  Embedder(EngineState* state, const cellm_embed_options& options, Serving::Lock& lock)
      : state_(*state), options_(options), lock_(lock) {}
  ~Embedder() {
    for (Pooling& pooling : open_) Close(&pooling);
  }
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  // As many lists at a time as the engine has sessions. rows: [lists, hidden].
  Status Run(std::span<const cellm_token_list> lists, std::span<float> rows) {
    const size_t hidden = static_cast<size_t>(state_.engine->info().hidden_size);
    const size_t most =
        std::min(lists.size(), static_cast<size_t>(state_.engine->options().max_sequences));
    CELLM_ASSIGN_OR_RETURN(sums_, Array<double>::Zeroed(*state_.memory->allocator, most * hidden,
                                                        MemoryClass::kOther, "sums of embeddings"));
    open_.resize(most);  // hooks point into it
    size_t next = 0;
    size_t done = 0;
    for (size_t i = 0; i < most; ++i) {
      open_[i].sum = sums_.span().subspan(i * hidden, hidden);
      CELLM_RETURN_IF_ERROR(Submit(lists[next], next, &open_[i]));
      ++next;
    }
    while (done < lists.size()) {
      CELLM_RETURN_IF_ERROR(state_.serving->WaitUntil(lock_, [this] { return AnyEnded(); }));
      for (Pooling& pooling : open_) {
        if (!Ended(pooling)) continue;
        const RequestProgress progress = state_.serving->progress(lock_, pooling.id);
        if (progress.end == RequestEnd::kCancelled) return Cancelled("stop_flag asked to stop");
        CELLM_RETURN_IF_ERROR(progress.status);
        WriteEmbedding(pooling, (options_.flags & CELLM_EMBED_NORMALIZE) != 0,
                       rows.subspan(pooling.list * hidden).data());
        Close(&pooling);
        ++done;
        if (next == lists.size()) continue;
        CELLM_RETURN_IF_ERROR(Submit(lists[next], next, &pooling));
        ++next;
      }
    }
    return OkStatus();
  }

 private:
  Status Submit(const cellm_token_list& list, size_t index, Pooling* pooling) {
    pooling->list = index;
    pooling->count = static_cast<int32_t>(list.count);
    pooling->seen = 0;
    pooling->mean = options_.pooling == CELLM_POOLING_MEAN;
    pooling->stop_flag = options_.stop_flag;
    std::fill(pooling->sum.begin(), pooling->sum.end(), 0.0);
    RequestSpec spec;
    spec.tokens.assign(list.ids, list.ids + list.count);
    spec.planned_tokens = std::max(static_cast<int32_t>(list.planned_tokens), pooling->count);
    spec.wants_logits = false;
    spec.wants_states = true;
    spec.keep_past = false;
    spec.latency_class = options_.latency_class == CELLM_CLASS_BACKGROUND
                             ? LatencyClass::kBackground
                             : LatencyClass::kInteractive;
    spec.hooks.user = pooling;
    spec.hooks.cancelled = &StopAsked;
    spec.hooks.states = &AddStates;
    CELLM_ASSIGN_OR_RETURN(pooling->id, state_.serving->Submit(lock_, std::move(spec)));
    return OkStatus();
  }
  bool Ended(const Pooling& pooling) const {
    return pooling.id != 0 && state_.serving->progress(lock_, pooling.id).end != RequestEnd::kNone;
  }
  bool AnyEnded() const {
    return std::any_of(open_.begin(), open_.end(),
                       [this](const Pooling& pooling) { return Ended(pooling); });
  }
  void Close(Pooling* pooling) {
    const uint64_t id = std::exchange(pooling->id, 0);
    if (id != 0) state_.serving->Close(lock_, id);
  }

  EngineState& state_;
  const cellm_embed_options& options_;
  Serving::Lock& lock_;
  Array<double> sums_;
  std::vector<Pooling> open_;
};

Status ReadEmbedOptions(const cellm_embed_options* given, cellm_embed_options* out) {
  CELLM_RETURN_IF_ERROR(ReadSized(given, "embed options", out));
  if ((out->flags & ~CELLM_EMBED_NORMALIZE) != 0) {
    return Unsupported("embed options: unknown flags 0x%x", out->flags & ~CELLM_EMBED_NORMALIZE);
  }
  if (out->pooling != CELLM_POOLING_MEAN && out->pooling != CELLM_POOLING_LAST) {
    return InvalidArgument("pooling is %d, which is no CELLM_POOLING_ constant", out->pooling);
  }
  if (out->latency_class != CELLM_CLASS_INTERACTIVE &&
      out->latency_class != CELLM_CLASS_BACKGROUND) {
    return InvalidArgument("latency_class is %d, which is no CELLM_CLASS_ constant",
                           out->latency_class);
  }
  return OkStatus();
}

Status Embed(EngineState* state, std::span<const cellm_token_list> lists,
             const cellm_embed_options& options, float* vectors, size_t capacity, size_t* floats) {
  if (floats == nullptr) return InvalidArgument("the pointer for the number of floats is null");
  if (vectors == nullptr && capacity != 0) return InvalidArgument("the buffer is null");
  const size_t hidden = static_cast<size_t>(state->engine->info().hidden_size);
  size_t needed = 0;
  if (!CheckedMul(lists.size(), hidden, &needed)) {
    return OutOfRange("%zu token lists are too many", lists.size());
  }
  *floats = needed;
  if (needed > capacity) {
    return OutOfRange("the buffer has room for %zu floats, %zu embeddings of %zu need %zu",
                      capacity, lists.size(), hidden, needed);
  }
  // The caller's buffer stays untouched on failure.
  CELLM_ASSIGN_OR_RETURN(Array<float> rows,
                         Array<float>::Uninitialised(*state->memory->allocator, needed,
                                                     MemoryClass::kOther, "embeddings"));
  {
    Serving::Lock lock = state->serving->Acquire();
    Embedder embedder(state, options, lock);
    CELLM_RETURN_IF_ERROR(embedder.Run(lists, rows.span()));
  }
  std::copy(rows.begin(), rows.end(), vectors);
  return OkStatus();
}

}  // namespace
}  // namespace cellm::capi

using cellm::InvalidArgument;
using cellm::Serving;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_engine_evaluate(cellm_engine* engine, const cellm_token_list* lists,
                                   size_t list_count, cellm_logits_fn logits, void* user,
                                   cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (logits == nullptr) return Report(InvalidArgument("the logits callback is null"), error);
  std::vector<cellm_token_list> known;
  ErrorDetails details;
  Status status = CheckLists(*state, lists, list_count, &known, &details);
  if (status.ok() && list_count > static_cast<size_t>(state->engine->options().max_sequences)) {
    status = cellm::OutOfRange("%zu token lists; the engine has %d sessions", list_count,
                               state->engine->options().max_sequences);
  }
  if (!status.ok()) return Report(status, error, details);
  Serving::Lock lock = state->serving->Acquire();
  status = state->serving->RunAlone(
      lock, [&] { return EvaluateLists(state.get(), known, logits, user); });
  return Report(status, error, MemoryDetails(status));
}

cellm_status cellm_engine_embed(cellm_engine* engine, const cellm_token_list* lists,
                                size_t list_count, const cellm_embed_options* options,
                                float* vectors, size_t capacity, size_t* floats,
                                cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  std::vector<cellm_token_list> known;
  cellm_embed_options known_options;
  ErrorDetails details;
  Status status = ReadEmbedOptions(options, &known_options);
  if (status.ok()) status = CheckLists(*state, lists, list_count, &known, &details);
  if (!status.ok()) return Report(status, error, details);
  status = Embed(state.get(), known, known_options, vectors, capacity, floats);
  return Report(status, error, MemoryDetails(status));
}

}  // extern "C"
