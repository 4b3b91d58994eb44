#ifndef CELLM_TOOLS_CELLM_CONVERSATION_H_
#define CELLM_TOOLS_CELLM_CONVERSATION_H_

// The conversation of `cellm chat`, in memory and as a file:
//
//   {"messages": [{"role": "system", "content": "..."}, {"role": "user", "content": "..."}, ...]}
//
// Beside FILE, FILE.state holds what a model remembers of it (cellm_session_save). The conversation
// is what counts: without the state, or with another model's, its tokens are evaluated again.

#include <string>
#include <vector>

#include "cellm/common.h"

namespace cellm::tools {

struct Message {
  std::string role;
  std::string content;
};

struct Conversation {
  std::string system;  // empty: no system message
  std::vector<Message> messages;

  // The array that cellm_chat.messages takes.
  std::string MessagesJson() const;
};

// From such an array. `name` is for messages. Corrupt: it is none.
Result<Conversation> ParseMessages(const std::string& json, const std::string& name);

// Corrupt: not such a file; Io. A file that does not exist is an empty conversation.
Result<Conversation> ReadConversation(const std::string& path);
// The file appears whole or not at all. Io.
Status WriteConversation(const Conversation& conversation, const std::string& path);

// The session that goes on from the state beside `path`, or a new one where there is none or none
// that can be used, which is said on stderr.
Result<SessionHandle> OpenSession(cellm_engine* engine, const cellm_session_options& options,
                                  const std::string& path, bool quiet);
Status SaveState(cellm_session* session, const std::string& path);

}  // namespace cellm::tools

#endif  // CELLM_TOOLS_CELLM_CONVERSATION_H_
