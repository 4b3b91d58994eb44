#include "cellm/serve/sessions.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cellm/serve/http_message.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kEnding = ".session";

// The file name is ID@MODEL.session with what is not plain in the model's name escaped, so that a
// later process knows both.
std::string FileName(const KeptSession& session) {
  std::string name = session.id + "@";
  for (const char c : session.model) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '-' || c == '.';
    name += plain ? std::string(1, c)
                  : StrFormat("%%%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return name.append(kEnding);
}

bool ReadFileName(std::string_view name, KeptSession* out) {
  if (!name.ends_with(kEnding)) return false;
  name.remove_suffix(kEnding.size());
  const size_t at = name.find('@');
  if (at == 0 || at == std::string_view::npos) return false;
  out->id = name.substr(0, at);
  return DecodePercent(name.substr(at + 1), &out->model);
}

ApiError UnknownSession(const std::string& id) {
  return NotFoundError("session_not_found", "no session '" + id.substr(0, 100) + "' is kept here");
}

uint64_t CountTokens(const cellm_session* session) {
  size_t count = 0;
  const cellm_status status = cellm_session_get_tokens(session, nullptr, 0, &count, nullptr);
  return status == CELLM_OK || status == CELLM_OUT_OF_RANGE ? count : 0;
}

}  // namespace

SessionLease& SessionLease::operator=(SessionLease&& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(session_, other.session_);
  return *this;
}

SessionLease::~SessionLease() {
  if (owner_ != nullptr) owner_->GiveBack(session_);
}

Sessions::Sessions(std::string folder, size_t most_live, Models* models)
    : folder_(std::move(folder)), most_live_(most_live), models_(models) {
  std::error_code error;
  if (folder_.empty()) return;
  for (std::filesystem::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    KeptSession session;
    if (!ReadFileName(entry->path().filename().string(), &session)) continue;
    session.file = entry->path().string();
    sessions_.push_back(std::move(session));
  }
}

ApiError Sessions::Take(const std::string& id, SessionLease* lease) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (KeptSession& session : sessions_) {
    if (session.id != id) continue;
    if (session.busy) return ConflictError("session_busy", "session '" + id + "' is in use");
    session.busy = true;
    session.last_used = ++uses_;
    *lease = SessionLease(this, &session);
    return {};
  }
  return UnknownSession(id);
}

void Sessions::GiveBack(KeptSession* session) {
  const uint64_t tokens =
      session->session == nullptr ? session->tokens : CountTokens(session->session.get());
  const std::lock_guard<std::mutex> lock(mutex_);
  session->tokens = tokens;
  session->busy = false;
}

// Takes it out of the list. The lease must not be given back afterwards.
void Sessions::Forget(SessionLease lease) {
  std::list<KeptSession> gone;
  KeptSession* const session = lease.get();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto place = std::find_if(sessions_.begin(), sessions_.end(),
                                    [&](const KeptSession& s) { return &s == session; });
    gone.splice(gone.end(), sessions_, place);
  }
  // Given back to nobody: `gone` ends here, after the lease.
  SessionLease ended = std::move(lease);
}

ApiError Sessions::TakeForRequest(const std::string& id, const ModelLease& model,
                                  SessionLease* lease) {
  const ApiError taken = Take(id, lease);
  if (taken.status == 409) return taken;
  if (!taken.ok()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      // Between the two looks another request may have made it.
      for (const KeptSession& session : sessions_) {
        if (session.id == id)
          return ConflictError("session_busy", "session '" + id + "' is in use");
      }
      KeptSession& made = sessions_.emplace_back();
      made.id = id;
      made.model = model->name;
      made.busy = true;
      made.last_used = ++uses_;
      *lease = SessionLease(this, &made);
    }
    cellm_session* session = nullptr;
    cellm_error error = CELLM_ERROR_INIT;
    if (cellm_session_open(model->engine.get(), nullptr, &session, &error) != CELLM_OK) {
      Forget(std::move(*lease));
      return FromCellm(error, "session_id");
    }
    lease->get()->session.reset(session);
    lease->get()->lease = model;
    LimitLive();
    return {};
  }
  if (lease->get()->model != model->name) {
    const std::string other = lease->get()->model;
    *lease = SessionLease();
    return ConflictError("session_model", "session '" + id + "' belongs to model " + other);
  }
  if (lease->get()->session != nullptr) return {};
  const ApiError resumed = ResumeTaken(lease->get(), model);
  if (!resumed.ok()) *lease = SessionLease();
  return resumed;
}

ApiError Sessions::SuspendTaken(KeptSession* session) {
  if (session->session == nullptr) return {};
  if (folder_.empty()) {
    return ConflictError("no_session_folder",
                         "sessions are suspended only when the server has a folder (--sessions)");
  }
  const std::string path = folder_ + "/" + FileName(*session);
  cellm_error error = CELLM_ERROR_INIT;
  session->tokens = CountTokens(session->session.get());
  if (cellm_session_save(session->session.get(), path.data(), path.size(), 0, &error) != CELLM_OK) {
    return FromCellm(error, "id");
  }
  session->file = path;
  session->session.reset();
  session->lease.reset();
  return {};
}

ApiError Sessions::ResumeTaken(KeptSession* session, const ModelLease& model) {
  if (session->session != nullptr) return {};
  cellm_session* resumed = nullptr;
  size_t restored = 0;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_session_restore(model->engine.get(), session->file.data(), session->file.size(),
                            nullptr, &resumed, &restored, &error) != CELLM_OK) {
    return FromCellm(error, "id");
  }
  session->session.reset(resumed);
  session->lease = model;
  session->tokens = CountTokens(resumed);
  (void)std::remove(session->file.c_str());
  session->file.clear();
  LimitLive();
  return {};
}

ApiError Sessions::Suspend(const std::string& id) {
  SessionLease lease;
  const ApiError error = Take(id, &lease);
  return error.ok() ? SuspendTaken(lease.get()) : error;
}

ApiError Sessions::Resume(const std::string& id) {
  SessionLease lease;
  ApiError error = Take(id, &lease);
  if (!error.ok()) return error;
  ModelLease model;
  error = models_->Acquire(lease.get()->model, &model);
  return error.ok() ? ResumeTaken(lease.get(), model) : error;
}

ApiError Sessions::Fork(const std::string& id, const std::string& new_id) {
  SessionLease lease;
  ApiError error = Take(id, &lease);
  if (!error.ok()) return error;
  KeptSession made;
  made.id = new_id;
  made.model = lease.get()->model;
  error = models_->Acquire(made.model, &made.lease);
  if (error.ok()) error = ResumeTaken(lease.get(), made.lease);
  if (!error.ok()) return error;
  cellm_session* copy = nullptr;
  cellm_error failure = CELLM_ERROR_INIT;
  if (cellm_session_fork(lease.get()->session.get(), &copy, &failure) != CELLM_OK) {
    return FromCellm(failure, "id");
  }
  made.session.reset(copy);
  made.tokens = CountTokens(copy);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const KeptSession& session : sessions_) {
      if (session.id == new_id) {
        return ConflictError("session_exists", "a session '" + new_id + "' is kept already");
      }
    }
    made.last_used = ++uses_;
    sessions_.push_back(std::move(made));
  }
  LimitLive();
  return {};
}

ApiError Sessions::Delete(const std::string& id) {
  SessionLease lease;
  const ApiError error = Take(id, &lease);
  if (!error.ok()) return error;
  if (!lease.get()->file.empty()) (void)std::remove(lease.get()->file.c_str());
  Forget(std::move(lease));
  return {};
}

// Suspends, or else closes, those used longest ago. Runs without the lock where it waits.
void Sessions::LimitLive() {
  for (;;) {
    SessionLease lease;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      size_t live = 0;
      KeptSession* oldest = nullptr;
      for (KeptSession& session : sessions_) {
        if (!session.busy && session.session == nullptr) continue;
        ++live;
        if (session.busy) continue;
        if (oldest == nullptr || session.last_used < oldest->last_used) oldest = &session;
      }
      if (live <= most_live_ || oldest == nullptr) return;
      oldest->busy = true;
      lease = SessionLease(this, oldest);
    }
    if (!SuspendTaken(lease.get()).ok()) Forget(std::move(lease));
  }
}

void Sessions::ReleaseIdle(const std::string& keep) {
  for (;;) {
    SessionLease lease;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (KeptSession& session : sessions_) {
        if (session.busy || session.session == nullptr) continue;
        if (!keep.empty() && session.model == keep) continue;
        session.busy = true;
        lease = SessionLease(this, &session);
        break;
      }
    }
    if (!lease) return;
    const ApiError error = SuspendTaken(lease.get());
    if (error.ok()) continue;
    if (!folder_.empty()) {
      std::fprintf(stderr, "serve: session %s is lost: %s\n", lease.get()->id.c_str(),
                   error.message.c_str());
    }
    Forget(std::move(lease));
  }
}

size_t Sessions::live() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [](const KeptSession& s) { return s.busy || s.session != nullptr; }));
}

std::string Sessions::Describe(const KeptSession& session) {
  JsonObject object;
  object.Add("id", session.id).Add("object", "session").Add("model", session.model);
  // What a busy session holds changes under its user; its count is that of the last look.
  const bool suspended = !session.busy && session.session == nullptr;
  object.Add("state", session.busy ? "busy"
                      : suspended  ? "suspended"
                                   : "idle")
      .Add("tokens", session.tokens);
  return object.Finish();
}

std::string Sessions::ListJson() {
  std::string data = "[";
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const KeptSession& session : sessions_) {
    if (data.size() > 1) data += ", ";
    data += Describe(session);
  }
  return JsonObject().Add("object", "list").AddRaw("data", data + "]").Finish();
}

ApiError Sessions::DescribeJson(const std::string& id, std::string* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const KeptSession& session : sessions_) {
    if (session.id != id) continue;
    *out = Describe(session);
    return {};
  }
  return UnknownSession(id);
}

}  // namespace cellm::tools::serve
