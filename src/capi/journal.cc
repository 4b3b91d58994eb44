// Journals of an engine's sessions: listing, recovering and deleting them.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/convert_args.h"
#include "capi/generation.h"
#include "capi/handles.h"
#include "capi/session_journal.h"
#include "json/json.h"
#include "platform/file.h"
#include "platform/random_file.h"

namespace cellm::capi {
namespace {

constexpr std::string_view kSuffix = ".cellm-journal";
constexpr size_t kIdDigits = 16;
// Far beyond any conversation: a million tokens take about 40 MB.
constexpr uint64_t kMaxJournalBytes = uint64_t{1} << 30;

// Names come from callers: nothing but what BeginJournal() makes leads to a file.
bool IsJournalName(std::string_view name) {
  if (name.size() != kIdDigits + kSuffix.size() || !name.ends_with(kSuffix)) return false;
  return name.substr(0, kIdDigits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<std::string> PathOf(const EngineState& engine, const char* name, size_t name_bytes) {
  std::string_view view;
  CELLM_RETURN_IF_ERROR(ReadText(name, name_bytes, "name", &view));
  if (engine.journal_folder.empty()) return InvalidArgument("the engine has no journal_folder");
  if (!IsJournalName(view)) {
    return InvalidArgument("'%s' is no name of a journal; cellm_engine_list_journals has them",
                           std::string(view).c_str());
  }
  return platform::JoinPath(engine.journal_folder, view);
}

// A journal that nobody else has open, read and gone through.
struct OpenJournal {
  std::unique_ptr<platform::RandomFile> file;
  std::string bytes;
  JournalImage image;  // views of `bytes`
  Replayed replayed;
};

Status ReadAndReplay(const std::shared_ptr<EngineState>& engine, const std::string& path,
                     bool goes_on, OpenJournal* journal) {
  CELLM_ASSIGN_OR_RETURN(journal->file,
                         platform::OpenRandomFile(path, platform::OpenMode::kExisting));
  CELLM_ASSIGN_OR_RETURN(const uint64_t size, journal->file->Size());
  if (size > kMaxJournalBytes) {
    return Unsupported("%s: %llu bytes, at most %llu are read", path.c_str(),
                       static_cast<unsigned long long>(size),
                       static_cast<unsigned long long>(kMaxJournalBytes));
  }
  journal->bytes.resize(size);
  CELLM_RETURN_IF_ERROR(
      journal->file->ReadAt(0, {reinterpret_cast<uint8_t*>(journal->bytes.data()), size}));
  CELLM_ASSIGN_OR_RETURN(
      journal->image,
      ReadJournal({reinterpret_cast<const uint8_t*>(journal->bytes.data()), size}, path));
  CELLM_ASSIGN_OR_RETURN(journal->replayed, ReplayJournal(engine, journal->image, path, goes_on));
  return OkStatus();
}

// Not of a reply whose constraint the record does not hold.
bool CanGoOn(const RequestSettings& settings) {
  return !settings.constrained || settings.constraint_kind != CELLM_CONSTRAINT_NONE;
}

cellm_text ToText(std::string_view text) { return {text.data(), text.size()}; }

Status ListJournals(const std::shared_ptr<EngineState>& engine, cellm_journal_fn callback,
                    void* user) {
  if (engine->journal_folder.empty()) return InvalidArgument("the engine has no journal_folder");
  CELLM_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                         platform::SystemFiles().List(engine->journal_folder));
  for (const std::string& name : names) {
    if (!IsJournalName(name)) continue;
    const std::string path = platform::JoinPath(engine->journal_folder, name);
    cellm_journal_info info = CELLM_JOURNAL_INFO_INIT;
    info.name = ToText(name);
    const Result<int64_t> modified = platform::ModifiedNs(path);
    if (modified.ok()) info.modified_ns = modified.value();
    Status status;
    std::vector<int32_t> ids;
    {
      OpenJournal journal;  // let go of before the callback, which may recover it
      status = ReadAndReplay(engine, path, false, &journal);
      if (status.code() == StatusCode::kNotFound) continue;  // its session was closed meanwhile
      info.lost_bytes = journal.bytes.size() - journal.image.good_bytes;
      if (status.ok()) {
        const RequestState* const request = journal.replayed.request.get();
        ids = journal.replayed.session->transcript.ids();
        info.open_request = request != nullptr && CanGoOn(request->settings) ? 1 : 0;
        info.reply_tokens =
            info.open_request != 0 ? std::min(request->reply.size(), ids.size()) : 0;
      }
    }
    info.ids = ids.data();
    info.tokens = ids.size();
    info.status = static_cast<cellm_status>(status.code());
    info.message = ToText(status.message());
    if (callback(&info, user) != 0) return Cancelled("the journal callback asked to stop");
  }
  return OkStatus();
}

Result<Replayed> Recover(const std::shared_ptr<EngineState>& engine, const std::string& path,
                         const cellm_request_options* hooks, bool wants_request) {
  cellm_request_options known;
  CELLM_RETURN_IF_ERROR(ReadSized(hooks, "request options", &known));
  OpenJournal journal;
  CELLM_RETURN_IF_ERROR(ReadAndReplay(engine, path, wants_request, &journal));
  const uint64_t lost = journal.bytes.size() - journal.image.good_bytes;
  if (lost > 0) {
    engine->model->log.Write(
        LogLevel::kWarning, "session",
        StrFormat("%s: %llu bytes at its end are damaged or cut short and are left out",
                  path.c_str(), static_cast<unsigned long long>(lost)));
  }
  const Replayed& replayed = journal.replayed;
  RequestState* const request = replayed.request.get();
  const bool can_go_on =
      request != nullptr && (!request->settings.constrained || request->constrained != nullptr);
  const bool goes_on = wants_request && can_go_on;
  if (request != nullptr && wants_request && !can_go_on) {
    engine->model->log.Write(LogLevel::kWarning, "session",
                             path +
                                 ": the constraint of the reply under way cannot be had; it "
                                 "ends here");
  }
  if (goes_on) {
    request->settings.progress = known.progress;
    request->settings.progress_user = known.progress_user;
    request->settings.stop_flag = known.stop_flag;
    Serving::Lock lock = engine->serving->Acquire();
    CELLM_RETURN_IF_ERROR(GoOn(lock, request));
  }
  // From here on the file is the session's.
  CELLM_RETURN_IF_ERROR(journal.file->Resize(journal.image.good_bytes));
  auto writer = std::make_shared<Journal>(path, std::move(journal.file), journal.image);
  Serving::Lock lock = engine->serving->Acquire();
  replayed.session->journal = std::move(writer);
  if (request == nullptr || goes_on) return replayed;
  CloseRequest(lock, request);
  return Replayed{replayed.session, nullptr};
}

// The messages, and what was said in reply to them.
Result<std::string> MessagesOf(const SessionState& session) {
  if (session.messages.empty()) {
    return NotFound("the last request of the session was no conversation");
  }
  if (!session.has_said || session.open_request != nullptr) return session.messages;
  // A JSON array that was rendered before: its last bracket ends it.
  const size_t end = session.messages.rfind(']');
  if (end == std::string::npos) return session.messages;
  std::string all = session.messages.substr(0, end);
  const bool is_empty = all.find('{') == std::string::npos;
  all += is_empty ? "" : ", ";
  all += R"({"role": "assistant", "content": )" + json::Quote(session.said) + "}]";
  return all;
}

}  // namespace
}  // namespace cellm::capi

using cellm::InvalidArgument;
using cellm::Result;
using cellm::Serving;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_engine_list_journals(cellm_engine* engine, cellm_journal_fn callback, void* user,
                                        cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (callback == nullptr) return Report(InvalidArgument("the callback is null"), error);
  return Report(ListJournals(state, callback, user), error);
}

cellm_status cellm_engine_remove_journal(cellm_engine* engine, const char* name, size_t name_bytes,
                                         cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  const Result<std::string> path = PathOf(*state, name, name_bytes);
  if (!path.ok()) return Report(path.status(), error);
  // Opened for its lock: a session that writes it keeps it.
  const auto file =
      cellm::platform::OpenRandomFile(path.value(), cellm::platform::OpenMode::kExisting);
  if (!file.ok()) return Report(file.status(), error);
  return Report(cellm::platform::RemoveFile(path.value()), error);
}

cellm_status cellm_session_recover(cellm_engine* engine, const char* name, size_t name_bytes,
                                   const cellm_request_options* hooks, cellm_session** out,
                                   cellm_request** request, cellm_error* error) {
  const std::shared_ptr<EngineState> state = Find(engine);
  if (state == nullptr) return Report(NotOpen("engine", engine), error);
  if (out == nullptr) return Report(InvalidArgument("cellm_session_recover: out is null"), error);
  const Result<std::string> path = PathOf(*state, name, name_bytes);
  if (!path.ok()) return Report(path.status(), error);
  const Result<Replayed> recovered = Recover(state, path.value(), hooks, request != nullptr);
  if (!recovered.ok()) return Report(recovered.status(), error, MemoryDetails(recovered.status()));
  const Replayed& replayed = recovered.value();
  const Status journaled = FlushJournal(replayed.session.get(), true);
  if (!journaled.ok()) return Report(journaled, error);
  cellm_session* const session = Sessions().Open(replayed.session);
  cellm_request* open = nullptr;
  if (session != nullptr && request != nullptr && replayed.request != nullptr) {
    open = Requests().Open(replayed.request);
  }
  if (session == nullptr ||
      (replayed.request != nullptr && request != nullptr && open == nullptr)) {
    (void)Sessions().Close(session);
    return Report(cellm::Busy("too many sessions or requests are open"), error);
  }
  *out = session;
  if (request != nullptr) *request = open;
  return CELLM_OK;
}

cellm_status cellm_session_keep_journal(cellm_session* session, int32_t keep, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  const Serving::Lock lock = state->engine->serving->Acquire();
  state->flags &= ~CELLM_SESSION_KEEP_JOURNAL;
  if (keep != 0) state->flags |= CELLM_SESSION_KEEP_JOURNAL;
  return CELLM_OK;
}

cellm_status cellm_session_get_messages(const cellm_session* session, char* buffer, size_t capacity,
                                        size_t* bytes, cellm_error* error) {
  const std::shared_ptr<SessionState> state = Find(session);
  if (state == nullptr) return Report(NotOpen("session", session), error);
  Result<std::string> messages = std::string();
  {
    const Serving::Lock lock = state->engine->serving->Acquire();
    messages = MessagesOf(*state);
  }
  if (!messages.ok()) return Report(messages.status(), error);
  return Report(WriteBytes(messages.value(), buffer, capacity, bytes), error);
}

cellm_status cellm_request_get_text(const cellm_request* request, char* buffer, size_t capacity,
                                    size_t* bytes, cellm_error* error) {
  const std::shared_ptr<RequestState> state = Find(request);
  if (state == nullptr) return Report(NotOpen("request", request), error);
  const Serving::Lock lock = state->session->engine->serving->Acquire();
  return Report(WriteBytes(state->said, buffer, capacity, bytes), error);
}

}  // extern "C"
