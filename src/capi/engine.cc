// cellm_engine: binding weights, the budget, what the scheduler does.
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "backend/cpu_backend.h"
#include "base/limits.h"
#include "capi/convert_args.h"
#include "capi/generation.h"
#include "capi/handles.h"
#include "engine/session_file.h"
#include "json/json.h"
#include "kernels/kernel_table.h"
#include "model/model.h"
#include "platform/clock.h"
#include "platform/cores.h"
#include "platform/memory.h"
#include "platform/thread_pool.h"

namespace cellm::capi {
namespace {

constexpr uint32_t kDefaultChunkTokens = 512;
constexpr uint32_t kDefaultLogitRows = 32;
constexpr uint32_t kDefaultPageTokens = 32;
constexpr uint32_t kDefaultSessions = 64;
constexpr uint32_t kDefaultDemoteAfter = 512;
constexpr uint32_t kMaxSessions = 65536;

static_assert(CELLM_HEAT_NOMINAL == static_cast<int>(ThermalLevel::kNominal));
static_assert(CELLM_HEAT_ELEVATED == static_cast<int>(ThermalLevel::kElevated));
static_assert(CELLM_HEAT_CRITICAL == static_cast<int>(ThermalLevel::kCritical));
static_assert(CELLM_HEAT_EMERGENCY == static_cast<int>(ThermalLevel::kEmergency));
static_assert(CELLM_POWER_NORMAL == static_cast<int>(PowerHint::kNormal));
static_assert(CELLM_POWER_SAVER == static_cast<int>(PowerHint::kSaver));
static_assert(CELLM_POWER_PLUGGED == static_cast<int>(PowerHint::kPlugged));

// By CELLM_KV_ constant; [0] is the default.
constexpr KvType kKvConstants[] = {KvType::kF16, KvType::kF16,   KvType::kF32,   KvType::kQ8,
                                   KvType::kQ4,  KvType::kTq2_5, KvType::kTq3_5, KvType::kTq4};

// False when `kv` is neither a constant nor a pair of them.
bool ReadKvTypes(int32_t kv, KvTypes* out) {
  const uint32_t bits = static_cast<uint32_t>(kv);
  const uint32_t k = bits & 0xFFu;
  const uint32_t v = bits >> 8;
  if (k >= std::size(kKvConstants) || v >= std::size(kKvConstants)) return false;
  *out = v == 0 ? KvTypes(kKvConstants[k]) : KvTypes(kKvConstants[k], kKvConstants[v]);
  return true;
}

Status ReadEngineOptions(const cellm_engine_options* given, cellm_engine_options* out) {
  CELLM_RETURN_IF_ERROR(ReadSized(given, "engine options", out));
  const auto limit = [](const char* name, uint64_t value, uint64_t most) {
    return value <= most ? OkStatus()
                         : InvalidArgument("%s is %llu; at most %llu is taken", name,
                                           static_cast<unsigned long long>(value),
                                           static_cast<unsigned long long>(most));
  };
  if (out->threads < 0) return InvalidArgument("threads is %d; it must be 0 or more", out->threads);
  CELLM_RETURN_IF_ERROR(
      limit("threads", static_cast<uint64_t>(out->threads), platform::kMaxThreads));
  CELLM_RETURN_IF_ERROR(limit("chunk_tokens", out->chunk_tokens, limits::kMaxContext));
  CELLM_RETURN_IF_ERROR(limit("step_tokens", out->step_tokens, limits::kMaxContext));
  CELLM_RETURN_IF_ERROR(limit("logit_rows", out->logit_rows, limits::kMaxContext));
  CELLM_RETURN_IF_ERROR(limit("page_tokens", out->page_tokens, limits::kMaxContext));
  CELLM_RETURN_IF_ERROR(limit("max_sessions", out->max_sessions, kMaxSessions));
  KvTypes kv;
  if (!ReadKvTypes(out->kv, &kv)) {
    return InvalidArgument("kv is %d, which is no CELLM_KV_ constant", out->kv);
  }
  if (!ReadKvTypes(out->kv_demote, &kv)) {
    return InvalidArgument("kv_demote is %d, which is no CELLM_KV_ constant", out->kv_demote);
  }
  if (out->kv_demote == 0 && out->kv_demote_after != 0) {
    return InvalidArgument("kv_demote_after is %u, but kv_demote is not given",
                           out->kv_demote_after);
  }
  CELLM_RETURN_IF_ERROR(limit("kv_demote_after", out->kv_demote_after, limits::kMaxContext));
  if (out->activations < CELLM_ACTIVATIONS_DEFAULT || out->activations > CELLM_ACTIVATIONS_F32) {
    return InvalidArgument("activations is %d, which is no CELLM_ACTIVATIONS_ constant",
                           out->activations);
  }
  if (out->policy != CELLM_POLICY_DEADLINE && out->policy != CELLM_POLICY_ROUND_ROBIN) {
    return InvalidArgument("policy is %d, which is no CELLM_POLICY_ constant", out->policy);
  }
  constexpr uint32_t kKnownFlags = CELLM_ENGINE_PRIVATE_SESSIONS | CELLM_ENGINE_JOURNAL_SYNC;
  if ((out->flags & ~kKnownFlags) != 0) {
    return Unsupported("engine options: unknown flags 0x%x", out->flags & ~kKnownFlags);
  }
  CELLM_RETURN_IF_ERROR(limit("step_ms", out->step_ms, 60'000));
  if ((out->allocate == nullptr) != (out->release == nullptr)) {
    return InvalidArgument("allocate and release must be given together");
  }
  return OkStatus();
}

std::shared_ptr<Budget> MakeBudget(const cellm_engine_options& options) {
  auto budget = std::make_shared<Budget>();
  Allocator* parent = &platform::HugePageAllocator();
  if (options.allocate != nullptr) {
    budget->hooks =
        std::make_unique<HookAllocator>(options.allocate, options.release, options.allocator_user);
    parent = budget->hooks.get();
  }
  const uint64_t limit = options.memory_bytes == 0 ? UINT64_MAX : options.memory_bytes;
  budget->allocator = std::make_unique<BudgetAllocator>(*parent, limit);
  return budget;
}

// What may be spent on weights without being asked to: as the constants of cellm.h say.
uint64_t AvailableForWeights(const cellm_engine_options& options) {
  if (options.allocate != nullptr) return 0;
  const uint64_t left = platform::ReadMemoryInfo().left_bytes();
  return options.memory_bytes == 0 ? left : std::min(left, options.memory_bytes);
}

// The model's weights for these kernels and activations: those of an earlier engine when they are
// the same, else bound now.
Result<std::shared_ptr<BoundWeights>> BindWeights(ModelState* model, const std::string& kernels,
                                                  ActivationMode activations, int32_t threads,
                                                  const cellm_engine_options& options,
                                                  const std::shared_ptr<Budget>& memory) {
  CELLM_ASSIGN_OR_RETURN(const kernels::ChosenKernels chosen, kernels::ChooseKernels(kernels));
  const std::string bound_for =
      std::string(chosen.tier) + (activations == ActivationMode::kInt8 ? " i8" : " f32");
  const std::lock_guard<std::mutex> lock(model->mutex);
  if (model->bound != nullptr && model->bound->bound_for == bound_for) return model->bound;

  std::unique_ptr<format::ModelFile> file = std::move(model->file);
  if (file == nullptr) {
    CELLM_ASSIGN_OR_RETURN(file, format::OpenModelFile(platform::SystemFiles(), model->path));
  }
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<platform::ThreadPool> pool,
                         platform::ThreadPool::Create(threads));
  CpuBackend backend(chosen.table, *pool, activations);
  auto bound = std::make_shared<BoundWeights>();
  bound->memory = memory;
  bound->bound_for = bound_for;
  HoldingOptions holding = model->holding;
  holding.pool = pool.get();
  holding.available_bytes = AvailableForWeights(options);
  if (holding.holding == Holding::kAuto && options.memory_bytes != 0 &&
      TensorBytesOf(*file) > options.memory_bytes / 4) {
    holding.holding = Holding::kMapped;
  }
  CELLM_ASSIGN_OR_RETURN(
      bound->model, LoadModel(std::move(file), backend, *memory->allocator, model->log, holding));
  model->bound = bound;
  return bound;
}

// The engine, with a context whose cache fits into what the budget leaves. A context that was asked
// for and does not fit is OutOfMemory.
Status CreateWithinBudget(uint64_t memory_bytes, EngineOptions inner, EngineState* state) {
  const std::shared_ptr<const Model>& model = state->weights->model;
  CELLM_ASSIGN_OR_RETURN(state->engine, Engine::Create(model, inner));
  if (memory_bytes == 0) return OkStatus();
  const uint64_t used = state->memory->allocator->used_bytes();
  const uint64_t left = memory_bytes > used ? memory_bytes - used : 0;
  const int64_t needed = BytesPerSequence(model->info.layers, inner.storage(), inner.page_tokens,
                                          state->engine->context_tokens());
  if (static_cast<uint64_t>(needed) <= left) return OkStatus();
  state->engine.reset();
  inner.cache_bytes = inner.cache_bytes == 0 ? left : std::min(inner.cache_bytes, left);
  inner.cache_bytes = std::max<uint64_t>(inner.cache_bytes, 1);  // 0 would mean no limit
  CELLM_ASSIGN_OR_RETURN(state->engine, Engine::Create(model, inner));
  return OkStatus();
}

// Small models lose most from few bits, and each loses differently: says so unless the file's
// ledger has what this format costs this model (docs/format.md, "cellm_quality").
void WarnOfUnmeasuredKv(const ModelState& model, const format::ModelFile& file, KvTypes types) {
  if (!KvIsCoded(types.k) && !KvIsCoded(types.v)) return;
  const std::string kv = KvTypesName(types);
  if (!file.quality_json.empty()) {
    const auto ledger = json::Document::Parse(file.quality_json, "cellm_quality");
    double divergence = 0;
    if (ledger.ok() &&
        (*ledger)->root().Find("kv").Find(kv).Find("kl_divergence").GetDouble(&divergence)) {
      model.log.Write(LogLevel::kInfo, "engine",
                      StrFormat("K/V format %s: KL divergence %.5f nats by the file's ledger",
                                kv.c_str(), divergence));
      return;
    }
  }
  model.log.Write(LogLevel::kWarning, "engine",
                  StrFormat("what K/V format %s costs this model was not measured; cellm "
                            "perplexity --kv %s --store --text FILE does",
                            kv.c_str(), kv.c_str()));
}

// Many requests on the engine: scheduler, kept pasts, swap file.
Status MakeServing(const cellm_engine_options& options, EngineState* state) {
  ServingOptions serving;
  serving.policy = options.policy == CELLM_POLICY_ROUND_ROBIN ? SchedulePolicy::kRoundRobin
                                                              : SchedulePolicy::kDeadline;
  serving.step_budget_ns = int64_t{options.step_ms} * 1'000'000;
  serving.chunk_tokens = static_cast<int32_t>(state->chunk_tokens);
  if (options.past_bytes > 0) serving.past_bytes = options.past_bytes;
  serving.budget = state->memory->allocator.get();
  serving.clock = &platform::MonotonicClock();
  std::string_view folder;
  CELLM_RETURN_IF_ERROR(ReadText(options.swap_folder, "swap_folder", &folder));
  if (!folder.empty()) {
    CELLM_ASSIGN_OR_RETURN(serving.swap, platform::OpenScratchFile(std::string(folder)));
    serving.swap_bytes =
        options.swap_bytes > 0
            ? options.swap_bytes
            : std::max(4 * std::min<uint64_t>(options.memory_bytes, 1ULL << 60), uint64_t{1} << 30);
  }
  state->serving = std::make_unique<Serving>(*state->engine, std::move(serving));
  state->private_pasts = (options.flags & CELLM_ENGINE_PRIVATE_SESSIONS) != 0;
  CELLM_RETURN_IF_ERROR(ReadText(options.journal_folder, "journal_folder", &folder));
  state->journal_folder = folder;
  state->journal_sync = (options.flags & CELLM_ENGINE_JOURNAL_SYNC) != 0;
  if (folder.empty()) return OkStatus();
  if (!platform::SystemFiles().IsDirectory(state->journal_folder)) {
    return NotFound("journal_folder: %s is no folder", state->journal_folder.c_str());
  }
  state->model_hash = ModelHash(*state->weights->model);
  return OkStatus();
}

Result<std::shared_ptr<EngineState>> OpenEngine(const std::shared_ptr<ModelState>& model,
                                                const cellm_engine_options& options) {
  if (model->text_only) {
    return InvalidArgument("%s was opened for its tokenizer only", model->path.c_str());
  }
  std::string_view kernels;
  CELLM_RETURN_IF_ERROR(ReadText(options.kernels, "kernels", &kernels));
  EngineOptions inner;
  inner.threads = options.threads;
  inner.kernels = kernels;
  inner.activations = options.activations == CELLM_ACTIVATIONS_F32 ? ActivationMode::kFloat32
                                                                   : ActivationMode::kInt8;
  (void)ReadKvTypes(options.kv, &inner.kv_type);  // checked
  if (options.kv_demote != 0) {
    (void)ReadKvTypes(options.kv_demote, &inner.demoted_type);  // checked
    inner.demote_after = static_cast<int32_t>(
        options.kv_demote_after == 0 ? kDefaultDemoteAfter : options.kv_demote_after);
  }
  const auto or_default = [](uint32_t value, uint32_t otherwise) {
    return static_cast<int32_t>(value == 0 ? otherwise : value);
  };
  inner.page_tokens = or_default(options.page_tokens, kDefaultPageTokens);
  inner.max_sequences = or_default(options.max_sessions, kDefaultSessions);
  inner.log = model->log;

  auto state = std::make_shared<EngineState>();
  state->model = model;
  state->memory = MakeBudget(options);
  const uint64_t tokenizer = model->tokenizer_memory.used_bytes();
  if (!state->memory->allocator->Charge(tokenizer, MemoryClass::kTokenizer)) {
    return OutOfMemory("memory_bytes is %llu, the tokenizer alone takes %llu",
                       static_cast<unsigned long long>(options.memory_bytes),
                       static_cast<unsigned long long>(tokenizer));
  }
  inner.allocator = state->memory->allocator.get();
  state->constraints = std::make_unique<ConstraintCache>(*state->memory->allocator);
  const int32_t threads = options.threads == 0 ? platform::UsableCores() : options.threads;
  CELLM_ASSIGN_OR_RETURN(state->weights, BindWeights(model.get(), inner.kernels, inner.activations,
                                                     threads, options, state->memory));
  const ModelInfo& info = state->weights->model->info;
  if (options.context_tokens > static_cast<uint32_t>(info.max_context)) {
    return OutOfRange("context: %u tokens asked for, the model allows %d", options.context_tokens,
                      info.max_context);
  }
  inner.context_tokens = static_cast<int32_t>(options.context_tokens);

  // No more rows than a context can hold: a small model needs no large scratch.
  const int32_t context = inner.context_tokens > 0 ? inner.context_tokens : info.max_context;
  const int32_t chunk = or_default(options.chunk_tokens, kDefaultChunkTokens);
  state->chunk_tokens = static_cast<uint32_t>(std::max(1, std::min(chunk, context)));
  inner.chunk_rows =
      std::max(or_default(options.step_tokens, state->chunk_tokens),
               static_cast<int32_t>(options.step_tokens == 0 ? state->chunk_tokens : 1));
  inner.logit_rows = std::min(or_default(options.logit_rows, kDefaultLogitRows), inner.chunk_rows);
  if (options.max_pages > 0) {
    // Pages of the largest group decide; the cache takes bytes.
    inner.cache_bytes = 0;
    for (const LayerStateSpec& layer : info.layers) {
      if (layer.stores_kv()) {
        inner.cache_bytes += static_cast<uint64_t>(KvBytesPerToken(layer, inner.kv_type)) *
                             static_cast<uint64_t>(inner.page_tokens) * options.max_pages;
      }
    }
  }
  CELLM_RETURN_IF_ERROR(CreateWithinBudget(options.memory_bytes, inner, state.get()));
  CELLM_RETURN_IF_ERROR(MakeServing(options, state.get()));
  WarnOfUnmeasuredKv(*model, *state->weights->model->file, inner.kv_type);
  if (options.kv_demote != 0) {
    model->log.Write(LogLevel::kInfo, "engine",
                     "keys and values: " + KvStorageName(inner.storage()));
  }
  for (const int32_t id : info.eos_ids) state->end_ids.Add(id);
  if (model->tokenizer != nullptr && model->tokenizer->eos_id() >= 0) {
    state->end_ids.Add(model->tokenizer->eos_id());
  }
  return state;
}

}  // namespace
}  // namespace cellm::capi

using cellm::InvalidArgument;
using cellm::Result;
using cellm::Serving;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_engine_open(cellm_model* model, const cellm_engine_options* options,
                               cellm_engine** out, cellm_error* error) {
  const std::shared_ptr<ModelState> model_state = Find(model);
  if (model_state == nullptr) return Report(NotOpen("model", model), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_engine_open: out is null"), error);
  cellm_engine_options known;
  Status status = ReadEngineOptions(options, &known);
  if (!status.ok()) return Report(status, error);
  Result<std::shared_ptr<EngineState>> state = OpenEngine(model_state, known);
  if (!state.ok()) return Report(state.status(), error, MemoryDetails(state.status()));
  cellm_engine* const handle = Engines().Open(std::move(state).value());
  if (handle == nullptr) return Report(cellm::Busy("too many engines are open"), error);
  *out = handle;
  return CELLM_OK;
}

void cellm_engine_close(cellm_engine* engine) { (void)Engines().Close(engine); }

cellm_status cellm_engine_step(cellm_engine* engine, int32_t* ran, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  Serving::Lock lock = state->serving->Acquire();
  const Result<bool> did = state->serving->DriveOnce(lock);
  if (!did.ok()) return Report(did.status(), error);
  if (ran != nullptr) *ran = did.value() ? 1 : 0;
  return CELLM_OK;
}

cellm_status cellm_engine_set_memory_budget(cellm_engine* engine, uint64_t bytes,
                                            cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  Serving::Lock lock = state->serving->Acquire();
  return Report(state->serving->SetBudget(lock, bytes), error);
}

cellm_status cellm_engine_set_limits(cellm_engine* engine, const cellm_limits* limits,
                                     cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  cellm_limits known;
  Status status = ReadSized(limits, "limits", &known);
  if (status.ok() && known.tokens_per_second > INT32_MAX) {
    status = InvalidArgument("tokens_per_second is %u", known.tokens_per_second);
  }
  if (!status.ok()) return Report(status, error);
  Serving::Lock lock = state->serving->Acquire();
  state->serving->SetLimits(lock, known.stop_background == 0, known.stop_interactive == 0,
                            static_cast<int32_t>(known.tokens_per_second));
  return CELLM_OK;
}

cellm_status cellm_engine_report_heat(cellm_engine* engine, int32_t level, int32_t power,
                                      uint32_t flags, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (level < 0 || level >= cellm::kThermalLevels) {
    return Report(InvalidArgument("level is %d, which is no CELLM_HEAT_ constant", level), error);
  }
  if (power < 0 || power >= cellm::kPowerHints) {
    return Report(InvalidArgument("power is %d, which is no CELLM_POWER_ constant", power), error);
  }
  if ((flags & ~CELLM_HEAT_AT_ONCE) != 0) {
    return Report(cellm::Unsupported("heat: unknown flags 0x%x", flags & ~CELLM_HEAT_AT_ONCE),
                  error);
  }
  Serving::Lock lock = state->serving->Acquire();
  state->serving->ReportHeat(lock, static_cast<cellm::ThermalLevel>(level),
                             static_cast<cellm::PowerHint>(power),
                             (flags & CELLM_HEAT_AT_ONCE) != 0);
  return CELLM_OK;
}

cellm_status cellm_engine_report_temperature(cellm_engine* engine, double celsius,
                                             cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  Serving::Lock lock = state->serving->Acquire();
  state->serving->ReportTemperature(lock, celsius);
  return CELLM_OK;
}

cellm_status cellm_engine_get_heat(cellm_engine* engine, cellm_heat* heat, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  cellm_heat filled = CELLM_HEAT_INIT;
  {
    Serving::Lock lock = state->serving->Acquire();
    const cellm::ServingHeat from = state->serving->heat(lock);
    filled.level = static_cast<int32_t>(from.level);
    filled.power = static_cast<int32_t>(from.power);
    filled.background = from.limits.background ? 1 : 0;
    filled.duty_percent = from.limits.duty_percent;
    filled.tokens_per_second = from.limits.tokens_per_second;
    filled.wait_ns = static_cast<uint64_t>(from.wait_ns);
  }
  return Report(WriteSized(filled, "heat", heat), error);
}

cellm_status cellm_engine_get_stats(const cellm_engine* engine, cellm_engine_stats* stats,
                                    cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  Serving::Lock lock = state->serving->Acquire();
  const cellm::ServingStats from = state->serving->stats(lock);
  cellm_engine_stats filled = CELLM_ENGINE_STATS_INIT;
  filled.steps = static_cast<uint64_t>(from.steps);
  filled.running = static_cast<uint64_t>(from.running);
  filled.waiting = static_cast<uint64_t>(from.waiting);
  filled.paused = static_cast<uint64_t>(from.preempted_paused);
  filled.swapped = static_cast<uint64_t>(from.preempted_swapped);
  filled.dropped = static_cast<uint64_t>(from.preempted_dropped);
  filled.swap_failures = static_cast<uint64_t>(from.swap_failures);
  filled.pasts = static_cast<uint64_t>(from.pasts);
  filled.past_bytes = from.past_bytes;
  filled.swapped_bytes = from.swapped_bytes;
  return Report(WriteSized(filled, "stats", stats), error);
}

cellm_status cellm_engine_get_info(const cellm_engine* engine, cellm_engine_info* info,
                                   cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  const cellm::Engine& inner = *state->engine;
  cellm_engine_info filled = CELLM_ENGINE_INFO_INIT;
  filled.threads = inner.threads();
  filled.context_tokens = static_cast<uint32_t>(inner.context_tokens());
  filled.vocabulary = inner.info().vocab_size;
  const std::string_view tier = inner.kernel_tier();
  std::copy_n(tier.begin(), std::min(tier.size(), sizeof(filled.kernels) - 1), filled.kernels);
  const cellm::HoldingReport& holding = inner.info().holding;
  filled.weights =
      holding.holding == cellm::Holding::kLoaded ? CELLM_WEIGHTS_LOAD : CELLM_WEIGHTS_MAP;
  filled.weights_locked = holding.locked ? 1 : 0;
  filled.mapped_bytes = holding.mapped_bytes;
  filled.loaded_bytes = holding.loaded_bytes;
  filled.packed_bytes = holding.packed_bytes;
  filled.flash_bytes = holding.flash_bytes;
  return Report(WriteSized(filled, "info", info), error);
}

cellm_status cellm_engine_get_memory(const cellm_engine* engine, cellm_memory* memory,
                                     cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  cellm_memory filled;
  FillMemory(*state, &filled);
  return Report(WriteSized(filled, "memory", memory), error);
}

}  // extern "C"
