#include "cellm/serve/models.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace cellm::tools::serve {
namespace {

// Below this an engine has no room for a conversation of any length.
constexpr uint64_t kLeastShare = uint64_t{24} << 20;
constexpr int kRetrySeconds = 5;
constexpr std::chrono::seconds kPatience(1);  // with models that others use

std::string NameOfPath(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash != std::string::npos) path.erase(0, slash + 1);
  for (const char* ending : {".cellm", ".safetensors", ".gguf"}) {
    const std::string_view suffix = ending;
    if (path.size() > suffix.size() && path.ends_with(suffix)) {
      path.resize(path.size() - suffix.size());
    }
  }
  return path;
}

// Of a file, or of all files in a folder.
uint64_t BytesAt(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    return error ? 0 : bytes;
  }
  uint64_t sum = 0;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const uintmax_t bytes = entry->file_size(ignored);
    if (!ignored) sum += bytes;
  }
  return sum;
}

// Templates that know no calls, or none at all, are taken for bare JSON.
CallStyle FindCallStyle(const cellm_model* model) {
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.flags = CELLM_CHAT_NO_PROMPT;
  chat.messages = ToText(kProbeMessages);
  chat.tools = ToText(kProbeTools);
  size_t bytes = 0;
  std::string text;
  if (cellm_model_render_chat(model, &chat, nullptr, 0, &bytes, nullptr) == CELLM_OUT_OF_RANGE) {
    text.resize(bytes);
    if (cellm_model_render_chat(model, &chat, text.data(), text.size(), &bytes, nullptr) !=
        CELLM_OK) {
      text.clear();
    }
  }
  return ReadCallStyle(text);
}

}  // namespace

Result<std::vector<ModelSpec>> ReadModelSpecs(const std::vector<std::string>& given) {
  std::vector<ModelSpec> specs;
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    const bool named = equals != std::string::npos && text.find('/') > equals;
    ModelSpec spec;
    spec.path = named ? text.substr(equals + 1) : text;
    spec.name = named ? text.substr(0, equals) : NameOfPath(text);
    if (spec.name.empty() || spec.path.empty()) {
      return InvalidArgument("--model '%s': expected PATH or NAME=PATH", text.c_str());
    }
    for (const ModelSpec& other : specs) {
      if (other.name != spec.name) continue;
      return InvalidArgument("two models are named '%s': give one another name with NAME=PATH",
                             spec.name.c_str());
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

Models::Models(std::vector<ModelSpec> specs, const Arguments& arguments, uint64_t memory_bytes,
               uint32_t parallel)
    : arguments_(arguments), memory_bytes_(memory_bytes), parallel_(parallel) {
  for (ModelSpec& spec : specs) {
    Entry entry;
    struct stat info = {};
    if (::stat(spec.path.c_str(), &info) == 0) entry.created = int64_t{info.st_mtime};
    entry.file_bytes = BytesAt(spec.path);
    entry.spec = std::move(spec);
    entries_.push_back(std::move(entry));
  }
}

uint64_t Models::ShareWith(const Entry* extra) const {
  uint64_t files = 0;
  uint64_t count = 0;
  for (const Entry& entry : entries_) {
    if (entry.open == nullptr && &entry != extra) continue;
    files += entry.file_bytes;
    ++count;
  }
  return files < memory_bytes_ && count > 0 ? (memory_bytes_ - files) / count : 0;
}

// A single model gets all, whatever its file has: only its engine knows whether it fits.
void Models::SetBudgets(const Entry* extra) {
  const uint64_t share = ShareWith(extra);
  for (const Entry& entry : entries_) {
    if (entry.open == nullptr) continue;
    (void)cellm_engine_set_memory_budget(entry.open->engine.get(), entry.file_bytes + share,
                                         nullptr);
  }
}

// Closes models that nobody uses until `wanted` leaves everyone a share. False: too many are used.
bool Models::MakeRoom(const Entry& wanted) {
  for (;;) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t open = static_cast<size_t>(std::count_if(
        entries_.begin(), entries_.end(), [](const Entry& e) { return e.open != nullptr; }));
    if (memory_bytes_ == 0 || open == 0 || ShareWith(&wanted) >= kLeastShare) return true;
    Entry* oldest = nullptr;
    for (Entry& entry : entries_) {
      // One owner: the registry itself. New leases are given out under the lock that we hold.
      if (entry.open == nullptr || entry.open.use_count() > 1) continue;
      if (oldest == nullptr || entry.last_used < oldest->last_used) oldest = &entry;
    }
    if (oldest == nullptr) return false;
    std::fprintf(stderr, "serve: closing %s to make room for %s\n", oldest->spec.name.c_str(),
                 wanted.spec.name.c_str());
    oldest->open.reset();
  }
}

ModelLease Models::Lend(const std::shared_ptr<OpenModelState>& open) const {
  return ModelLease(open.get(), [this, kept = open](OpenModelState*) mutable {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      // The registry has let go of it: this is the last, and it ends outside the lock.
      if (kept.use_count() > 1) kept.reset();
      ++returns_;
    }
    returned_.notify_all();
  });
}

Result<std::shared_ptr<OpenModelState>> Models::OpenEntry(Entry* entry) {
  CELLM_ASSIGN_OR_RETURN(LoadedModel loaded, OpenModelAt(arguments_, entry->spec.path, true));
  uint64_t budget = memory_bytes_;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool alone = std::all_of(entries_.begin(), entries_.end(),
                                   [](const Entry& e) { return e.open == nullptr; });
    if (memory_bytes_ > 0 && !alone) {
      SetBudgets(entry);
      budget = entry->file_bytes + ShareWith(entry);
    }
  }
  auto state = std::make_shared<OpenModelState>();
  state->name = entry->spec.name;
  state->model = std::move(loaded.model);
  CELLM_ASSIGN_OR_RETURN(state->engine, OpenEngineWith(arguments_, state->model.get(),
                                                       [&](cellm_engine_options* options) {
                                                         options->memory_bytes = budget;
                                                         options->max_sessions = parallel_;
                                                       }));
  cellm_engine_info info = CELLM_ENGINE_INFO_INIT;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_engine_get_info(state->engine.get(), &info, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  state->context_tokens = info.context_tokens;
  state->vocabulary = info.vocabulary;
  state->token_kinds =
      std::vector<std::atomic<uint8_t>>(static_cast<size_t>(std::max(info.vocabulary, 0)));
  cellm_model_info model_info = CELLM_MODEL_INFO_INIT;
  if (cellm_model_get_info(state->model.get(), &model_info, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  state->hidden = model_info.hidden;
  state->call_style = FindCallStyle(state->model.get());
  CELLM_ASSIGN_OR_RETURN(state->runner, Runner::Create(state->engine.get()));
  std::fprintf(stderr, "serve: %s: context of %u tokens, %d threads, %s kernels\n",
               state->name.c_str(), info.context_tokens, info.threads, info.kernels);
  return state;
}

ApiError Models::Acquire(const std::string& name, ModelLease* lease) {
  Entry* entry = nullptr;
  const auto take = [&] {
    ModelLease taken;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      entry->last_used = ++uses_;
      if (entry->open != nullptr) taken = Lend(entry->open);
    }
    *lease = std::move(taken);
    return *lease != nullptr;
  };
  for (Entry& candidate : entries_) {
    if (candidate.spec.name == name) entry = &candidate;
  }
  if (entry == nullptr && (name.empty() || entries_.size() == 1)) entry = &entries_[0];
  if (entry == nullptr) {
    std::string names;
    for (const Entry& candidate : entries_) names += " " + candidate.spec.name;
    ApiError error = NotFoundError(
        "model_not_found", "no model '" + name.substr(0, 100) + "' here; there are:" + names);
    error.param = "model";
    return error;
  }
  if (take()) return {};
  const std::lock_guard<std::mutex> lock(opening_);
  if (take()) return {};  // somebody else has opened it meanwhile
  if (!MakeRoom(*entry)) {
    if (release_idle_) release_idle_(entry->spec.name);
    // Who has just been answered lets go of its model a moment later.
    const auto until = std::chrono::steady_clock::now() + kPatience;
    for (bool waited = true;;) {
      uint64_t seen = 0;
      {
        const std::lock_guard<std::mutex> now(mutex_);
        seen = returns_;
      }
      if (MakeRoom(*entry)) break;
      if (!waited) {
        return TooBusy("the memory is in use by other models; try again later", kRetrySeconds);
      }
      std::unique_lock<std::mutex> now(mutex_);
      waited = returned_.wait_until(now, until, [&] { return returns_ != seen; });
    }
  }
  Result<std::shared_ptr<OpenModelState>> opened = OpenEntry(entry);
  {
    const std::lock_guard<std::mutex> both(mutex_);
    if (!opened.ok()) {
      if (memory_bytes_ > 0) SetBudgets(nullptr);
      return ServerError("model '" + entry->spec.name + "': " + opened.status().message());
    }
    ++entry->loads;
    entry->open = std::move(opened).value();
  }
  (void)take();
  return {};
}

Status Models::OpenFirst() {
  ModelLease lease;
  const ApiError error = Acquire(entries_[0].spec.name, &lease);
  return error.ok() ? OkStatus() : Internal("%s", error.message.c_str());
}

std::vector<ModelListing> Models::List() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<ModelListing> list;
  for (const Entry& entry : entries_) {
    list.push_back(
        {entry.spec.name, entry.spec.path, entry.created, entry.open != nullptr, entry.loads});
  }
  return list;
}

std::vector<ModelLease> Models::Open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<ModelLease> open;
  for (const Entry& entry : entries_) {
    if (entry.open != nullptr) open.push_back(Lend(entry.open));
  }
  return open;
}

}  // namespace cellm::tools::serve
