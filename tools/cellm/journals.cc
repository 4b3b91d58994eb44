#include "cellm/journals.h"

#include <algorithm>
#include <utility>

namespace cellm::tools {
namespace {

struct Candidate {
  std::string name;
  int64_t modified_ns = 0;
};

struct Search {
  const std::vector<int32_t>* prompt = nullptr;
  std::vector<Candidate> candidates;

  // Whether the reply under way has this prompt; an empty one fits all.
  bool Fits(const cellm_journal_info& info) const {
    if (prompt->empty()) return true;
    return info.open_request != 0 && info.tokens - info.reply_tokens == prompt->size() &&
           std::equal(prompt->begin(), prompt->end(), info.ids);
  }
};

int32_t OnJournal(const cellm_journal_info* info, void* user) {
  Search& search = *static_cast<Search*>(user);
  if (info->status == CELLM_OK) {
    if (search.Fits(*info)) {
      search.candidates.push_back(
          {std::string(info->name.data, info->name.bytes), info->modified_ns});
    }
  } else if (info->status != CELLM_BUSY) {
    Note(false, "cellm: " + std::string(info->message.data, info->message.bytes) +
                    "; it is left where it is");
  }
  return 0;
}

// The text of functions that report the size they need.
template <typename Get>
Result<std::string> ReadText(const Get& get) {
  cellm_error error = CELLM_ERROR_INIT;
  size_t bytes = 0;
  cellm_status status = get(nullptr, 0, &bytes, &error);
  std::string text(bytes, '\0');
  if (status == CELLM_OUT_OF_RANGE) status = get(text.data(), text.size(), &bytes, &error);
  if (status != CELLM_OK) return ToStatus(error);
  return text;
}

Result<Recovered> RecoverOne(cellm_engine* engine, const std::string& name,
                             const cellm_request_options& hooks) {
  cellm_error error = CELLM_ERROR_INIT;
  cellm_session* session = nullptr;
  cellm_request* request = nullptr;
  if (cellm_session_recover(engine, name.data(), name.size(), &hooks, &session, &request, &error) !=
      CELLM_OK) {
    return ToStatus(error);
  }
  Recovered recovered;
  recovered.name = name;
  recovered.session.reset(session);
  recovered.request.reset(request);
  if (request == nullptr) return recovered;
  CELLM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, SessionTokens(session));
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
  if (cellm_request_get_receipt(request, &receipt, &error) != CELLM_OK) return ToStatus(error);
  const size_t said = std::min<size_t>(ids.size(), receipt.generated_tokens);
  recovered.ids.assign(ids.end() - static_cast<std::ptrdiff_t>(said), ids.end());
  CELLM_ASSIGN_OR_RETURN(recovered.shown, ReadText([request](char* buffer, size_t capacity,
                                                             size_t* bytes, cellm_error* e) {
                           return cellm_request_get_text(request, buffer, capacity, bytes, e);
                         }));
  return recovered;
}

}  // namespace

Result<std::vector<int32_t>> SessionTokens(const cellm_session* session) {
  cellm_error error = CELLM_ERROR_INIT;
  size_t count = 0;
  cellm_status status = cellm_session_get_tokens(session, nullptr, 0, &count, &error);
  std::vector<int32_t> ids(count);
  if (status == CELLM_OUT_OF_RANGE) {
    status = cellm_session_get_tokens(session, ids.data(), ids.size(), &count, &error);
  }
  if (status != CELLM_OK) return ToStatus(error);
  return ids;
}

Result<std::string> SessionMessages(const cellm_session* session) {
  const Result<std::string> messages =
      ReadText([session](char* buffer, size_t capacity, size_t* bytes, cellm_error* error) {
        return cellm_session_get_messages(session, buffer, capacity, bytes, error);
      });
  if (messages.status().code() == StatusCode::kNotFound) return std::string();
  return messages;
}

Result<Recovered> RecoverNewest(cellm_engine* engine, const cellm_request_options& hooks,
                                const std::vector<int32_t>& prompt) {
  Search search;
  search.prompt = &prompt;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_engine_list_journals(engine, OnJournal, &search, &error) != CELLM_OK) {
    return ToStatus(error);
  }
  std::vector<Candidate>& candidates = search.candidates;
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.modified_ns > b.modified_ns; });
  for (const Candidate& candidate : candidates) {
    Result<Recovered> recovered = RecoverOne(engine, candidate.name, hooks);
    // Another process was quicker.
    if (recovered.status().code() == StatusCode::kBusy) continue;
    return recovered;
  }
  return Recovered();
}

}  // namespace cellm::tools
