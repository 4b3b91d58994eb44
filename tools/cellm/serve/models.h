#ifndef CELLM_TOOLS_CELLM_SERVE_MODELS_H_
#define CELLM_TOOLS_CELLM_SERVE_MODELS_H_

// The models that a server was given: opened when they are first asked for, closed again when
// another one needs the room.
//
// --memory is the budget of all of them together. A model that is open may use its file's bytes
// (where weights are read into memory) and an equal share of what the files leave; the shares
// change as models come and go. When a new one would leave a share below kLeastShare, the model
// that was used longest ago and that nobody uses now is closed first; when all are in use, and none
// becomes free within a second, the caller is told to come back.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "cellm/common.h"
#include "cellm/flags.h"
#include "cellm/serve/api_error.h"
#include "cellm/serve/runner.h"
#include "cellm/serve/tool_constraint.h"

namespace cellm::tools::serve {

// A model that is open. Closed when the last lease is gone and the registry has let go of it.
struct OpenModelState {
  std::string name;
  ModelHandle model;
  EngineHandle engine;
  std::unique_ptr<Runner> runner;  // ends before the engine
  uint32_t context_tokens = 0;
  int32_t vocabulary = 0;
  int32_t hidden = 0;
  CallStyle call_style = CallStyle::kBare;  // how its template writes tool calls
  // By token: whether it is special; found out when it first occurs (TokenKind). Any thread.
  mutable std::vector<std::atomic<uint8_t>> token_kinds;
};
// Keeps a model open while something runs on it.
using ModelLease = std::shared_ptr<OpenModelState>;

struct ModelSpec {
  std::string name;
  std::string path;
};
// "NAME=PATH", or a path, whose file name without its ending is the name. Two models may not have
// one name. InvalidArgument.
Result<std::vector<ModelSpec>> ReadModelSpecs(const std::vector<std::string>& given);

struct ModelListing {
  std::string name;
  std::string path;
  int64_t created = 0;  // Unix time of the file
  bool open = false;
  uint64_t loads = 0;
};

class Models {
 public:
  // `arguments` has the flags of models and engines and must outlive this. memory_bytes 0: no
  // limit.
  Models(std::vector<ModelSpec> specs, const Arguments& arguments, uint64_t memory_bytes,
         uint32_t parallel);

  // The model of this name, opened if need be ("": the first; with only one model, any name).
  //   404 no such model   429 all memory is in use   500 it cannot be opened
  ApiError Acquire(const std::string& name, ModelLease* lease);
  // Opens the first model and says what is wrong with it.
  Status OpenFirst();
  std::vector<ModelListing> List() const;
  // Those that are open now.
  std::vector<ModelLease> Open() const;
  // Called, without a lock, before room is needed: lets go of leases that can be done without.
  void set_release_idle(std::function<void(const std::string& name)> release) {
    release_idle_ = std::move(release);
  }

 private:
  struct Entry {
    ModelSpec spec;
    int64_t created = 0;
    uint64_t file_bytes = 0;
    std::shared_ptr<OpenModelState> open;
    uint64_t last_used = 0;
    uint64_t loads = 0;
  };
  Result<std::shared_ptr<OpenModelState>> OpenEntry(Entry* entry);
  bool MakeRoom(const Entry& wanted);
  // Requires mutex_. A lease that says so when it ends.
  ModelLease Lend(const std::shared_ptr<OpenModelState>& open) const;
  uint64_t ShareWith(const Entry* extra) const;
  void SetBudgets(const Entry* extra);

  const Arguments& arguments_;
  uint64_t memory_bytes_;
  uint32_t parallel_;
  std::function<void(const std::string& name)> release_idle_;
  std::mutex opening_;  // one model is opened at a time; taken before mutex_
  mutable std::mutex mutex_;
  mutable std::condition_variable returned_;  // a lease has ended
  mutable uint64_t returns_ = 0;              // guarded by mutex_: how many have
  std::vector<Entry> entries_;  // guarded by mutex_; never grows after the constructor
  uint64_t uses_ = 0;           // guarded by mutex_: a clock for "used longest ago"
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_MODELS_H_
