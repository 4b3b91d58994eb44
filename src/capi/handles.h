#ifndef CELLM_SRC_CAPI_HANDLES_H_
#define CELLM_SRC_CAPI_HANDLES_H_

// What the opaque handles stand for.
//
// The parts keep what they depend on alive, so that handles may be closed in any order:
//
//   Request --> Session --> EngineState --> ModelState
//
// shared_ptr is used here and nowhere below: the C API promises any order of closing, and nothing
// else in the library needs shared ownership but the loaded model itself.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/allocator.h"
#include "base/log.h"
#include "capi/chat_template.h"
#include "capi/constraints.h"
#include "capi/handle_table.h"
#include "capi/transcript.h"
#include "cellm/cellm.h"
#include "engine/engine.h"
#include "engine/journal.h"
#include "engine/serving.h"
#include "format/model_file.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "tokenizer/tokenizer.h"

namespace cellm::capi {

// A caller's memory hooks as an Allocator.
class HookAllocator final : public Allocator {
 public:
  HookAllocator(cellm_allocate_fn allocate, cellm_free_fn release, void* user)
      : allocate_(allocate), release_(release), user_(user) {}
  void* Allocate(size_t bytes, size_t alignment, MemoryClass) override {
    return bytes == 0 ? nullptr : allocate_(bytes, alignment, user_);
  }
  void Free(void* pointer, size_t bytes, MemoryClass) override {
    if (pointer != nullptr) release_(pointer, bytes, user_);
  }

 private:
  cellm_allocate_fn allocate_;
  cellm_free_fn release_;
  void* user_;
};

// The memory of an engine: hooks (if any) below a budget. Shared with the weights that the engine
// had bound, which may outlive it.
struct Budget {
  std::unique_ptr<HookAllocator> hooks;
  std::unique_ptr<BudgetAllocator> allocator;
};

// Weights bound to roles, and the memory that they were bound in, which must outlive them.
struct BoundWeights {
  std::shared_ptr<Budget> memory;
  std::shared_ptr<const Model> model;
  std::string bound_for;  // kernels and activations
};

struct LogTarget {
  cellm_log_fn write = nullptr;
  void* user = nullptr;
};

struct ModelState {
  std::string path;
  LogTarget log_target;
  LogSink log;
  // Counts what the tokenizer takes, all of it when it is made; lives as long as the tokenizer.
  // Each engine's budget is charged with it.
  BudgetAllocator tokenizer_memory{SystemAllocator(), UINT64_MAX};
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: the model has none
  ModelTemplate chat_template;                      // only with a tokenizer
  Status template_status;  // why there is none; Ok when chat_template can be used
  bool has_own_template = false;
  sample::SamplingOptions sampling;  // the model's defaults
  std::vector<std::string> notes;
  bool text_only = false;  // a tokenizer without weights
  HoldingOptions holding;  // what was asked for

  // Serialises binding: engines of different threads may be the first at the same time.
  std::mutex mutex;
  std::unique_ptr<format::ModelFile> file;  // until the weights are bound
  std::shared_ptr<BoundWeights> bound;

  // What the configuration says, before weights are bound; 0 where it says nothing.
  std::string model_type;
  std::string container;
  int32_t vocabulary = 0;
  int32_t max_context = 0;
  int32_t layers = 0;
  int32_t hidden = 0;
};

struct EngineState {
  std::shared_ptr<ModelState> model;
  std::shared_ptr<Budget> memory;
  std::shared_ptr<BoundWeights> weights;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Serving> serving;  // its lock guards the sessions and requests of the engine
  uint32_t chunk_tokens = 0;
  bool private_pasts = false;   // no session sees another's pasts
  sample::StopIds end_ids;      // what the file says ends a text
  uint64_t next_share_key = 1;  // of private sessions
  std::unique_ptr<ConstraintCache> constraints;
  // Where sessions keep journals; empty: nowhere. Do not change once the engine is open.
  std::string journal_folder;
  bool journal_sync = false;  // every token is on the disk before it is handed out
  uint64_t model_hash = 0;    // with a journal folder
};

struct RequestState;

// What the sessions of one share key have in common: a session and its forks.
struct PrivatePasts {
  std::shared_ptr<EngineState> engine;
  uint64_t share_key = 0;
  ~PrivatePasts();
};

// What a session remembers of its conversation.
struct SessionMemory {
  Transcript transcript;
  int32_t planned_tokens = 0;  // 0: no request yet
  uint32_t keep_tokens = 0;    // by CELLM_OVERFLOW_SHIFT; 0: the first message
  // The messages of the last submit_chat as JSON, empty when the last request was none, and what
  // was said in reply.
  std::string messages;
  std::string said;
  bool has_said = false;
};

// Guarded by the lock of engine->serving.
struct SessionState : SessionMemory {
  std::shared_ptr<EngineState> engine;
  uint32_t flags = 0;
  LatencyClass latency_class = LatencyClass::kInteractive;
  uint32_t weight = 1;
  int64_t token_interval_ns = 0;
  int32_t overflow = 0;                       // CELLM_OVERFLOW_...
  uint64_t share_key = 0;                     // 0: shares pasts with everyone
  std::shared_ptr<PrivatePasts> share_owner;  // forgets them with the last session of the key
  RequestState* open_request = nullptr;
  // What is written before it is acknowledged; null: nothing yet, or never (session_journal.h).
  std::shared_ptr<Journal> journal;
  std::shared_ptr<Journal> replaced_journal;  // goes when `journal` is in its file

  // Forgets the tokens from `position` on, which is at most as many as there are.
  void Rewind(size_t position) {
    if (position == 0) {
      transcript.Clear();
      planned_tokens = 0;
    } else {
      transcript.Truncate(position);
    }
    messages.clear();
    has_said = false;
  }

  SessionState() = default;
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;
  // The journal of a session that was closed is deleted, unless CELLM_SESSION_KEEP_JOURNAL.
  ~SessionState();
};

// The objects behind the handles. Null for a handle that was closed or never was one.
std::shared_ptr<ModelState> Find(const cellm_model* model);
std::shared_ptr<EngineState> Find(const cellm_engine* engine);
std::shared_ptr<SessionState> Find(const cellm_session* session);
std::shared_ptr<RequestState> Find(const cellm_request* request);
using ModelTable = HandleTable<cellm_model, ModelState>;
using EngineTable = HandleTable<cellm_engine, EngineState>;
using SessionTable = HandleTable<cellm_session, SessionState>;
using RequestTable = HandleTable<cellm_request, RequestState>;
ModelTable& Models();
EngineTable& Engines();
SessionTable& Sessions();
RequestTable& Requests();
// The InvalidArgument for a handle that Find() does not know. what: "model", ...
Status NotOpen(const char* what, const void* handle);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_HANDLES_H_
