#ifndef CELLM_SRC_ENGINE_ENGINE_H_
#define CELLM_SRC_ENGINE_ENGINE_H_

// The engine: sequences of tokens on one model, advanced by steps.
//
// A step is one pass over the weights, whatever mix of prompt chunks and single tokens it carries.
// The logits of a token depend on the sequence's own tokens, the model and the kernel tier, and on
// nothing else: not on chunking, neighbours or threads, bit for bit.
//
// The engine knows nothing about text or sampling. An Engine belongs to one thread at a time; a
// Model may be shared by several engines.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu_backend.h"
#include "backend/input_statistics.h"
#include "backend/measure_backend.h"
#include "backend/rows.h"
#include "backend/step_context.h"
#include "base/allocator.h"
#include "base/log.h"
#include "base/status.h"
#include "kv/sequence_cache.h"
#include "model/model.h"
#include "platform/thread_pool.h"

namespace cellm {

struct EngineOptions {
  int32_t threads = 0;  // 0: the cores that this process may use
  std::string kernels;  // tier name; empty: the best that runs here
  ActivationMode activations = ActivationMode::kInt8;
  KvTypes kv_type;
  // Of tokens that are so far back (kv/layer_state.h): their format. < 0: nothing is demoted.
  KvTypes demoted_type;
  int32_t demote_after = -1;
  KvStorage storage() const { return {kv_type, demoted_type, demote_after}; }
  int32_t page_tokens = 32;    // a multiple of 16
  int32_t context_tokens = 0;  // of one sequence; 0: the model's limit
  int32_t chunk_rows = 512;    // most rows of a step
  int32_t logit_rows = 32;     // most rows of a step that ask for logits
  int32_t max_sequences = 64;
  // Most bytes of K/V pages and states; 0: as much as the allocator gives.
  uint64_t cache_bytes = 0;
  Allocator* allocator = nullptr;  // null: SystemAllocator(); must outlive engine and model
  LogSink log;
};

// A sequence of an engine: slot and generation, so that a handle of a freed one is an error.
struct SequenceId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // 0 is never valid
};

enum class LogitRows : uint8_t { kNone, kLast, kAll };

struct StepItem {
  SequenceId sequence;
  std::span<const int32_t> tokens;  // appended to the sequence; at least one
  LogitRows logits = LogitRows::kLast;
  bool states = false;  // the states after the last norm are wanted, of every token
};

struct StepItemResult {
  int32_t first_row = 0;  // of StepOutput::logits
  int32_t row_count = 0;
  bool has_nan = false;  // a logit of this item is NaN: its rows must not be sampled from
  Rows states;           // [tokens, hidden_size]; only when they were asked for
};

struct StepOutput {
  Rows logits;                            // valid until the next Step(), like states
  std::span<const StepItemResult> items;  // one per StepItem, in order; likewise
};

class Engine {
 public:
  // Opens nothing: takes a loaded model. OutOfMemory, Unsupported (tier), InvalidArgument (options,
  // by name), OutOfRange (context_tokens beyond the model's), Io (threads).
  static Result<std::unique_ptr<Engine>> Create(std::shared_ptr<const Model> model,
                                                const EngineOptions& options);
  // Opens the model at `path` with the same kernels and threads, then as above.
  static Result<std::unique_ptr<Engine>> Open(platform::FileSystem& files, const std::string& path,
                                              const EngineOptions& options);
  ~Engine();

  const Model& model() const { return *model_; }
  // For further engines on the same weights.
  const std::shared_ptr<const Model>& shared_model() const { return model_; }
  const ModelInfo& info() const { return model_->info; }
  int32_t context_tokens() const { return context_tokens_; }
  int32_t threads() const;
  // How many of them compute, from the next step on. Results do not depend on it.
  int32_t active_threads() const;
  void SetActiveThreads(int32_t threads);
  std::string_view kernel_tier() const;
  const EngineOptions& options() const { return options_; }

  // A new, empty sequence. planned_total_tokens: the length that it may reach (prompt and reply),
  // fixed for its life, because rotary kinds that depend on length choose by it; 0 means the
  // engine's context. OutOfRange beyond the context, Busy when max_sequences exist,
  // OutOfMemory for its fixed-size state.
  Result<SequenceId> CreateSequence(int32_t planned_total_tokens = 0);
  // Gives its pages back. A stale id is NotFound.
  Status FreeSequence(SequenceId id);
  // Forgets tokens from `position` on. Unsupported when the model keeps state that cannot be wound
  // back to there (recurrent layers, pages that left a window): only 0 works then.
  Status Rewind(SequenceId id, int32_t position);
  // A second sequence with the same past. Pages are shared and copied when written.
  Result<SequenceId> Fork(SequenceId id);
  Result<int32_t> Position(SequenceId id) const;

  // Two sequences with the same tokens hold the same K/V exactly when their planned lengths are of
  // one class (see RopeSpec); 0 for nearly every model.
  int64_t LengthClass(int32_t planned_total_tokens) const;

  // The past of a sequence, for cache().StartFrom() and the rest there. OutOfMemory, NotFound.
  Result<int32_t> TakeSnapshot(SequenceId id);
  // A new sequence that begins with the first `position` tokens of a snapshot of the same length
  // class. Errors as for CreateSequence().
  Result<SequenceId> CreateSequenceFrom(int32_t snapshot, int32_t position,
                                        int32_t planned_total_tokens);
  SequenceCache& cache();
  // Of cache().SequenceOwnBytes() and the like. Requires a sequence that exists.
  int32_t CacheSlot(SequenceId id) const;

  // How many tokens a step may add to a sequence of `position` tokens: what is demoted at that
  // position is for all of them.
  int32_t MostTokens(int32_t position) const;
  // Of a sequence of so many tokens, how many are in fewer bits.
  int32_t DemotedTokens(int32_t tokens) const;

  // Advances the sequences of the plan, each at most once. On failure nothing has changed.
  //   InvalidArgument  empty item, token id outside the vocabulary, a sequence named twice
  //   NotFound         stale sequence
  //   OutOfRange       past the context (message: needed and available), too many rows or logits,
  //                    more than MostTokens()
  //   OutOfMemory      pages cannot be had (message: needed and available)
  Result<StepOutput> Step(std::span<const StepItem> items);

  // From now on every step adds to statistics of the matrices' inputs, for calibration: slower, and
  // up to `max_bytes` of memory. 0: stops and forgets. inputs() is null when nothing is collected.
  void CollectInputs(uint64_t max_bytes);
  const InputStatistics* inputs() const;

  const CacheStats& cache_stats() const;
  // Aborts when pages, tables and counts disagree. For tests.
  void CheckInvariants() const;
  uint64_t activation_bytes() const { return arena_bytes_; }
  // What one token is multiplied with, by a pass that computes nothing.
  TokenWork MeasureToken() const;

 private:
  struct Impl;
  Engine();
  static Result<std::unique_ptr<Engine>> Finish(std::unique_ptr<Impl> impl,
                                                std::shared_ptr<const Model> model,
                                                const EngineOptions& options);
  std::shared_ptr<const Model> model_;
  EngineOptions options_;
  int32_t context_tokens_ = 0;
  uint64_t arena_bytes_ = 0;
  int32_t rope_long_from_ = 0, rope_dynamic_from_ = 0;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellm

#endif  // CELLM_SRC_ENGINE_ENGINE_H_
