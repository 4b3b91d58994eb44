#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "backend/measure_backend.h"
#include "base/check.h"
#include "base/limits.h"
#include "kernels/kernel_table.h"
#include "platform/cores.h"

namespace cellm {
namespace {

struct Slot {
  uint32_t generation = 0;  // of the sequence that lives here, or lived here last
  bool used = false;
  int32_t cache_slot = 0;
  int32_t planned_total_tokens = 0;
  bool in_step = false;  // named by the step under way
};

Status CheckOptions(const EngineOptions& options) {
  const struct {
    const char* name;
    int32_t value, minimum, maximum;
  } rows[] = {
      {"threads", options.threads, 0, platform::kMaxThreads},
      {"context", options.context_tokens, 0, limits::kMaxContext},
      {"chunk", options.chunk_rows, 1, 1 << 16},
      {"logit rows", options.logit_rows, 1, 1 << 16},
      {"sequences", options.max_sequences, 1, 1 << 16},
  };
  for (const auto& row : rows) {
    if (row.value < row.minimum || row.value > row.maximum) {
      return InvalidArgument("%s: %d is not in [%d, %d]", row.name, row.value, row.minimum,
                             row.maximum);
    }
  }
  return OkStatus();
}

// The longest context whose cache fits in `cache_bytes`, at most `limit`.
int32_t ContextThatFits(const ModelInfo& info, const EngineOptions& options, int32_t limit) {
  if (options.cache_bytes == 0) return limit;
  int32_t low = 0;
  int32_t high = limit;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    const int64_t bytes =
        MostBytesPerSequence(info.layers, options.storage(), options.page_tokens, middle);
    if (static_cast<uint64_t>(bytes) <= options.cache_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

struct Engine::Impl {
  kernels::ChosenKernels kernels;
  std::unique_ptr<platform::ThreadPool> pool;
  std::unique_ptr<CpuBackend> backend;
  std::unique_ptr<InputStatistics> inputs;
  Allocator* allocator = nullptr;
  std::unique_ptr<SequenceCache> cache;
  std::vector<Slot> slots;

  Array<std::byte> arena_block;
  Arena arena;
  Array<float> logits;
  // Rows of the step under way.
  Array<int32_t> tokens, positions, logit_rows;
  Array<SequenceSlice> slices;
  Array<StepItemResult> results;

  Slot* Find(SequenceId id) {
    if (id.slot >= slots.size()) return nullptr;
    Slot& slot = slots[id.slot];
    return slot.used && slot.generation == id.generation ? &slot : nullptr;
  }

  Status CheckItems(std::span<const StepItem> items, const Engine& engine);
  Status GrowAll(std::span<const StepItem> items);
  void LayOut(std::span<const StepItem> items);
};

namespace {

Status StaleSequence(SequenceId id) {
  return NotFound("sequence %u.%u does not exist", id.slot, id.generation);
}

int32_t LogitCount(const StepItem& item) {
  switch (item.logits) {
    case LogitRows::kNone:
      return 0;
    case LogitRows::kLast:
      return 1;
    case LogitRows::kAll:
      return static_cast<int32_t>(item.tokens.size());
  }
  return 0;
}

}  // namespace

Engine::Engine() = default;
Engine::~Engine() = default;

// Kernels, threads and backend, which loading a model needs already.
static Result<std::unique_ptr<CpuBackend>> MakeBackend(
    const EngineOptions& options, kernels::ChosenKernels* kernels,
    std::unique_ptr<platform::ThreadPool>* pool) {
  CELLM_RETURN_IF_ERROR(CheckOptions(options));
  CELLM_ASSIGN_OR_RETURN(*kernels, kernels::ChooseKernels(options.kernels));
  const int32_t threads = options.threads > 0 ? options.threads : platform::UsableCores();
  CELLM_ASSIGN_OR_RETURN(*pool, platform::ThreadPool::Create(threads));
  return std::make_unique<CpuBackend>(kernels->table, **pool, options.activations);
}

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                               const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  CELLM_ASSIGN_OR_RETURN(impl->backend, MakeBackend(options, &impl->kernels, &impl->pool));
  return Finish(std::move(impl), std::move(model), options);
}

Result<std::unique_ptr<Engine>> Engine::Open(platform::FileSystem& files, const std::string& path,
                                             const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  CELLM_ASSIGN_OR_RETURN(impl->backend, MakeBackend(options, &impl->kernels, &impl->pool));
  CELLM_ASSIGN_OR_RETURN(std::unique_ptr<format::ModelFile> file,
                         format::OpenModelFile(files, path));
  Allocator& allocator = options.allocator != nullptr ? *options.allocator : SystemAllocator();
  CELLM_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model,
                         LoadModel(std::move(file), *impl->backend, allocator, options.log));
  return Finish(std::move(impl), std::move(model), options);
}

Result<std::unique_ptr<Engine>> Engine::Finish(std::unique_ptr<Impl> impl_in,
                                               std::shared_ptr<const Model> model,
                                               const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine());
  engine->impl_ = std::move(impl_in);
  engine->model_ = std::move(model);
  engine->options_ = options;
  Impl& impl = *engine->impl_;
  const ModelInfo& info = engine->model_->info;
  impl.allocator = options.allocator != nullptr ? options.allocator : &SystemAllocator();
  Allocator& allocator = *impl.allocator;

  // The context: what was asked for, else what the model allows and the cache can hold.
  if (options.context_tokens > info.max_context) {
    return OutOfRange("context: %d tokens asked for, the model allows %d", options.context_tokens,
                      info.max_context);
  }
  const int32_t wanted = options.context_tokens > 0 ? options.context_tokens : info.max_context;
  const int32_t fits = ContextThatFits(info, options, wanted);
  if (fits < 1 || (options.context_tokens > 0 && fits < wanted)) {
    const int64_t needed =
        MostBytesPerSequence(info.layers, options.storage(), options.page_tokens, wanted);
    return OutOfMemory("context: %d tokens need %lld bytes of cache, %llu are allowed", wanted,
                       static_cast<long long>(needed),
                       static_cast<unsigned long long>(options.cache_bytes));
  }
  engine->context_tokens_ = fits;
  options.log.Write(
      LogLevel::kInfo, "engine",
      StrFormat("context %d tokens (model limit %d), %d threads, %s kernels", fits,
                info.max_context, impl.pool->threads(), std::string(impl.kernels.tier).c_str()));

  CacheOptions cache;
  cache.kv_type = options.storage();
  cache.pool = impl.pool.get();
  cache.page_tokens = options.page_tokens;
  cache.context_tokens = fits;
  cache.max_sequences = options.max_sequences;
  cache.max_bytes = options.cache_bytes;
  CELLM_ASSIGN_OR_RETURN(impl.cache, SequenceCache::Create(info.layers, cache, allocator));
  impl.slots.resize(static_cast<size_t>(options.max_sequences));

  // One pass over a backend that only measures tells how much a step needs at most.
  MeasureBackend measure;
  Arena measured;
  const int32_t chunk_rows = options.chunk_rows;
  const int32_t logit_rows = std::min(options.logit_rows, chunk_rows);
  const size_t rows = static_cast<size_t>(chunk_rows);
  const auto make = [&allocator](auto* array, size_t count) -> Status {
    using T = std::remove_reference_t<decltype((*array)[0])>;
    CELLM_ASSIGN_OR_RETURN(
        *array, Array<T>::Zeroed(allocator, count, MemoryClass::kActivations, "activations"));
    return OkStatus();
  };
  CELLM_RETURN_IF_ERROR(make(&impl.tokens, rows));
  CELLM_RETURN_IF_ERROR(make(&impl.positions, rows));
  CELLM_RETURN_IF_ERROR(make(&impl.logit_rows, static_cast<size_t>(logit_rows)));
  const size_t items = std::min(rows, static_cast<size_t>(options.max_sequences));
  CELLM_RETURN_IF_ERROR(make(&impl.slices, items));
  CELLM_RETURN_IF_ERROR(make(&impl.results, items));
  StepContext step;
  step.rows = chunk_rows;
  step.tokens = impl.tokens.data();
  step.positions = impl.positions.data();
  step.logit_rows = impl.logit_rows.span();
  step.logits = {nullptr, logit_rows, info.vocab_size, info.vocab_size};
  step.kv_type = options.kv_type;
  step.demoted_type = options.storage().demoted;
  step.arena = &measured;
  engine->model_->family->forward(engine->model_->weights.get(), measure, step);

  engine->rope_long_from_ = measure.rope_long_from();
  engine->rope_dynamic_from_ = measure.rope_dynamic_from();
  CELLM_RETURN_IF_ERROR(impl.backend->Reserve(measure.needs(), allocator));
  CELLM_ASSIGN_OR_RETURN(impl.arena_block,
                         Array<std::byte>::Uninitialised(allocator, measured.used_bytes(),
                                                         MemoryClass::kActivations, "activations"));
  impl.arena = Arena(impl.arena_block.data(), impl.arena_block.size());
  CELLM_ASSIGN_OR_RETURN(
      impl.logits,
      Array<float>::Uninitialised(
          allocator, static_cast<size_t>(logit_rows) * static_cast<size_t>(info.vocab_size),
          MemoryClass::kActivations, "logits"));
  engine->arena_bytes_ =
      impl.arena_block.size() + impl.logits.size() * sizeof(float) + impl.backend->scratch_bytes();
  return engine;
}

TokenWork Engine::MeasureToken() const {
  // Two rows, one of which asks for logits: the rows tell the head from the rest.
  const int32_t tokens[2] = {};
  const int32_t positions[2] = {0, 1};
  const int32_t logit_rows[1] = {1};
  MeasureBackend measure;
  Arena measured;
  StepContext step;
  step.rows = 2;
  step.tokens = tokens;
  step.positions = positions;
  step.logit_rows = logit_rows;
  step.logits = {nullptr, 1, info().vocab_size, info().vocab_size};
  step.kv_type = options_.kv_type;
  step.demoted_type = options_.storage().demoted;
  step.arena = &measured;
  model_->family->forward(model_->weights.get(), measure, step);
  return measure.WorkOf(step.rows);
}

int32_t Engine::threads() const { return impl_->pool->threads(); }
int32_t Engine::active_threads() const { return impl_->pool->active(); }
void Engine::SetActiveThreads(int32_t threads) { impl_->pool->SetActive(threads); }
std::string_view Engine::kernel_tier() const { return impl_->kernels.tier; }
void Engine::CollectInputs(uint64_t max_bytes) {
  if (max_bytes == 0) {
    impl_->backend->set_observer(nullptr);
    impl_->inputs.reset();
    return;
  }
  impl_->inputs = std::make_unique<InputStatistics>(*model_->file, impl_->kernels.table,
                                                    *impl_->pool, *impl_->allocator, max_bytes);
  impl_->backend->set_observer(impl_->inputs.get());
}

const InputStatistics* Engine::inputs() const { return impl_->inputs.get(); }

int32_t Engine::MostTokens(int32_t position) const { return impl_->cache->MostTokens(position); }
int32_t Engine::DemotedTokens(int32_t tokens) const {
  for (const LayerStateSpec& layer : info().layers) {
    if (!layer.stores_kv() || layer.window > 0) continue;
    return static_cast<int32_t>(options_.storage().DemotedTokens(tokens));
  }
  return 0;
}
const CacheStats& Engine::cache_stats() const { return impl_->cache->stats(); }
void Engine::CheckInvariants() const { impl_->cache->CheckInvariants(); }

Result<SequenceId> Engine::CreateSequence(int32_t planned_total_tokens) {
  if (planned_total_tokens < 0 || planned_total_tokens > context_tokens_) {
    return OutOfRange("sequence of %d tokens: the context has %d", planned_total_tokens,
                      context_tokens_);
  }
  for (uint32_t i = 0; i < impl_->slots.size(); ++i) {
    Slot& slot = impl_->slots[i];
    if (slot.used) continue;
    CELLM_ASSIGN_OR_RETURN(slot.cache_slot, impl_->cache->CreateSequence());
    slot.used = true;
    slot.generation = slot.generation == UINT32_MAX ? 1 : slot.generation + 1;
    slot.planned_total_tokens = planned_total_tokens > 0 ? planned_total_tokens : context_tokens_;
    return SequenceId{i, slot.generation};
  }
  return Busy("all %zu sequences are in use", impl_->slots.size());
}

Status Engine::FreeSequence(SequenceId id) {
  Slot* const slot = impl_->Find(id);
  if (slot == nullptr) return StaleSequence(id);
  impl_->cache->FreeSequence(slot->cache_slot);
  slot->used = false;
  return OkStatus();
}

Status Engine::Rewind(SequenceId id, int32_t position) {
  Slot* const slot = impl_->Find(id);
  if (slot == nullptr) return StaleSequence(id);
  return impl_->cache->Rewind(slot->cache_slot, position);
}

Result<SequenceId> Engine::Fork(SequenceId id) {
  const Slot* const from = impl_->Find(id);
  if (from == nullptr) return StaleSequence(id);
  for (uint32_t i = 0; i < impl_->slots.size(); ++i) {
    Slot& slot = impl_->slots[i];
    if (slot.used) continue;
    CELLM_ASSIGN_OR_RETURN(slot.cache_slot, impl_->cache->Fork(from->cache_slot));
    slot.used = true;
    slot.generation = slot.generation == UINT32_MAX ? 1 : slot.generation + 1;
    slot.planned_total_tokens = from->planned_total_tokens;
    return SequenceId{i, slot.generation};
  }
  return Busy("all %zu sequences are in use", impl_->slots.size());
}

int64_t Engine::LengthClass(int32_t planned_total_tokens) const {
  if (rope_dynamic_from_ > 0 && planned_total_tokens > rope_dynamic_from_) {
    return planned_total_tokens;
  }
  return rope_long_from_ > 0 && planned_total_tokens > rope_long_from_ ? 1 : 0;
}

Result<int32_t> Engine::TakeSnapshot(SequenceId id) {
  const Slot* const slot = impl_->Find(id);
  if (slot == nullptr) return StaleSequence(id);
  return impl_->cache->TakeSnapshot(slot->cache_slot);
}

Result<SequenceId> Engine::CreateSequenceFrom(int32_t snapshot, int32_t position,
                                              int32_t planned_total_tokens) {
  CELLM_ASSIGN_OR_RETURN(const SequenceId id, CreateSequence(planned_total_tokens));
  impl_->cache->StartFrom(impl_->Find(id)->cache_slot, snapshot, position);
  return id;
}

SequenceCache& Engine::cache() { return *impl_->cache; }

int32_t Engine::CacheSlot(SequenceId id) const {
  const Slot* const slot = impl_->Find(id);
  CELLM_CHECK(slot != nullptr, "a sequence does not exist");
  return slot->cache_slot;
}

Result<int32_t> Engine::Position(SequenceId id) const {
  const Slot* const slot = impl_->Find(id);
  if (slot == nullptr) return StaleSequence(id);
  return impl_->cache->tokens(slot->cache_slot);
}

Status Engine::Impl::CheckItems(std::span<const StepItem> items, const Engine& engine) {
  const int32_t vocab = engine.info().vocab_size;
  int64_t rows = 0;
  int64_t wanted_logits = 0;
  Status status;
  for (const StepItem& item : items) {
    Slot* const slot = Find(item.sequence);
    if (slot == nullptr) {
      status = StaleSequence(item.sequence);
    } else if (slot->in_step) {
      status = InvalidArgument("step: sequence %u is named twice", item.sequence.slot);
    } else if (item.tokens.empty()) {
      status = InvalidArgument("step: sequence %u has no tokens", item.sequence.slot);
    }
    if (!status.ok()) break;
    slot->in_step = true;
    const int64_t held = cache->tokens(slot->cache_slot);
    const int64_t needed = held + static_cast<int64_t>(item.tokens.size());
    if (needed > slot->planned_total_tokens) {
      status = OutOfRange("context: %lld tokens needed, %d available",
                          static_cast<long long>(needed), slot->planned_total_tokens);
      break;
    }
    const int32_t most = engine.MostTokens(static_cast<int32_t>(held));
    if (static_cast<int64_t>(item.tokens.size()) > most) {
      status = OutOfRange("step: %zu tokens at %lld; older ones are demoted after %d",
                          item.tokens.size(), static_cast<long long>(held), most);
      break;
    }
    for (const int32_t token : item.tokens) {
      if (token >= 0 && token < vocab) continue;
      status = InvalidArgument("step: token id %d is not in [0, %d)", token, vocab);
      break;
    }
    rows += static_cast<int64_t>(item.tokens.size());
    wanted_logits += LogitCount(item);
  }
  for (const StepItem& item : items) {
    if (Slot* const slot = Find(item.sequence); slot != nullptr) slot->in_step = false;
  }
  CELLM_RETURN_IF_ERROR(status);
  if (items.empty()) return InvalidArgument("step: no sequences");
  if (rows > static_cast<int64_t>(tokens.size())) {
    return OutOfRange("step: %lld rows needed, %zu available", static_cast<long long>(rows),
                      tokens.size());
  }
  if (wanted_logits > static_cast<int64_t>(logit_rows.size())) {
    return OutOfRange("step: %lld rows of logits needed, %zu available",
                      static_cast<long long>(wanted_logits), logit_rows.size());
  }
  return OkStatus();
}

Status Engine::Impl::GrowAll(std::span<const StepItem> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    const Status status = cache->Grow(Find(items[i].sequence)->cache_slot,
                                      static_cast<int32_t>(items[i].tokens.size()));
    if (status.ok()) continue;
    for (size_t j = 0; j < i; ++j) cache->Cancel(Find(items[j].sequence)->cache_slot);
    return status;
  }
  return OkStatus();
}

void Engine::Impl::LayOut(std::span<const StepItem> items) {
  int32_t row = 0;
  int32_t logit = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const Slot& slot = *Find(items[i].sequence);
    const int32_t count = static_cast<int32_t>(items[i].tokens.size());
    const int32_t begin = cache->tokens(slot.cache_slot);
    slices[i] = {row, count, begin, slot.planned_total_tokens, cache->layers(slot.cache_slot)};
    const int32_t wanted = LogitCount(items[i]);
    results[i] = {logit, wanted, false, {}};
    for (int32_t t = 0; t < count; ++t) {
      tokens[static_cast<size_t>(row + t)] = items[i].tokens[static_cast<size_t>(t)];
      positions[static_cast<size_t>(row + t)] = begin + t;
      if (t >= count - wanted) logit_rows[static_cast<size_t>(logit++)] = row + t;
    }
    row += count;
  }
}

Result<StepOutput> Engine::Step(std::span<const StepItem> items) {
  Impl& impl = *impl_;
  CELLM_RETURN_IF_ERROR(impl.CheckItems(items, *this));
  CELLM_RETURN_IF_ERROR(impl.GrowAll(items));
  impl.LayOut(items);

  StepContext step;
  size_t logit_count = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    step.rows += static_cast<int32_t>(items[i].tokens.size());
    logit_count += static_cast<size_t>(impl.results[i].row_count);
  }
  step.tokens = impl.tokens.data();
  step.positions = impl.positions.data();
  step.sequences = {impl.slices.data(), items.size()};
  step.logit_rows = {impl.logit_rows.data(), logit_count};
  step.logits = {impl.logits.data(), static_cast<int32_t>(logit_count), info().vocab_size,
                 info().vocab_size};
  step.kv_type = options_.kv_type;
  step.demoted_type = options_.storage().demoted;
  step.arena = &impl.arena;
  Rows states;
  for (const StepItem& item : items) {
    if (item.states) step.states = &states;
  }
  impl.arena.Reset();
  model_->family->forward(model_->weights.get(), *impl.backend, step);

  for (size_t i = 0; i < items.size(); ++i) {
    impl.cache->Commit(impl.Find(items[i].sequence)->cache_slot,
                       static_cast<int32_t>(items[i].tokens.size()));
    StepItemResult& result = impl.results[i];
    if (items[i].states) {
      const SequenceSlice& slice = impl.slices[i];
      result.states = {states.row(slice.row_begin), slice.row_count, states.cols, states.stride};
    }
    for (int32_t r = 0; r < result.row_count; ++r) {
      const float* const row = step.logits.row(result.first_row + r);
      if (impl.kernels.table.argmax_f32(row, info().vocab_size) < 0) result.has_nan = true;
    }
  }
  return StepOutput{step.logits, {impl.results.data(), items.size()}};
}

}  // namespace cellm
