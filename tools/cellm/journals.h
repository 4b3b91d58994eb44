#ifndef CELLM_TOOLS_CELLM_JOURNALS_H_
#define CELLM_TOOLS_CELLM_JOURNALS_H_

// --journal FOLDER: what a process that died had begun is gone on with.

#include <cstdint>
#include <string>
#include <vector>

#include "cellm/common.h"

namespace cellm::tools {

// A session from a journal, and its reply if one was under way.
struct Recovered {
  std::string name;
  SessionHandle session;  // null: there is none
  RequestHandle request;
  // Of the reply: the ids that were handed out and the text that was shown.
  std::vector<int32_t> ids;
  std::string shown;
};

// The newest journal of the engine's folder that can be gone on with. Those that cannot are named
// on stderr, unless another process writes them.
//   prompt not empty: the newest whose reply under way has exactly this prompt
Result<Recovered> RecoverNewest(cellm_engine* engine, const cellm_request_options& hooks,
                                const std::vector<int32_t>& prompt);

// The ids of a session.
Result<std::vector<int32_t>> SessionTokens(const cellm_session* session);
// cellm_session_get_messages; empty when the session's last request was no conversation.
Result<std::string> SessionMessages(const cellm_session* session);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_JOURNALS_H_
