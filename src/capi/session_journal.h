#ifndef CELLM_SRC_CAPI_SESSION_JOURNAL_H_
#define CELLM_SRC_CAPI_SESSION_JOURNAL_H_

// What is in a session's journal (engine/journal.h has the file), and a session made from it.
//
//   [session: as it is when the journal begins] [request] [token] [token] ... [request] ...
//
// A record is staged under the lock, together with the change that it tells of, and written after
// the lock was let go, before the caller learns of the change:
//
//   the owner    lock: take a token, JournalToken()    unlock: FlushJournal()    return the token
//
// So what a caller was told is in the file. Nothing that can be computed is: sampler, stop strings
// and the text held back are brought to where they were by going through the tokens again.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "capi/generation.h"
#include "capi/handles.h"
#include "engine/journal.h"

namespace cellm::capi {

// All of these do nothing for a session that keeps no journal. Under the lock:

// Begins the journal of a session that should have one and has none, or whose journal could not be
// written: with what the session is now.
void BeginJournal(SessionState* session);
// ids: the prompt as it is evaluated. Before the transcript changes.
void JournalRequest(SessionState* session, const RequestState& request, const Prompt& prompt,
                    std::span<const int32_t> ids);
// id -1: no further token. kept_begin, kept_end: what stayed when the context was full, else 0.
void JournalToken(SessionState* session, int32_t id, int32_t finish, size_t kept_begin,
                  size_t kept_end);
void JournalRewind(SessionState* session, size_t position);
void JournalClass(SessionState* session);

// Not under the lock: everything staged so far survives the death of the process. With `sync`, that
// of the machine too. Io: it does not, and the next request begins another journal.
Status FlushJournal(SessionState* session, bool sync);

// The session that a journal tells of, and its reply if one was under way (else null), which is not
// handed to the scheduler yet. Memory of an earlier state is not in it: tokens are evaluated again.
//   Unsupported  another model, a newer version    OutOfRange  longer than the engine's context
//   Corrupt      records that contradict each other, an id outside the vocabulary
// `name` is for messages. Takes the engine's lock. goes_on: the reply is to be gone on with, so
// that its constraint is compiled; one that cannot be is null, and the log says why.
struct Replayed {
  std::shared_ptr<SessionState> session;
  std::shared_ptr<RequestState> request;
};
Result<Replayed> ReplayJournal(const std::shared_ptr<EngineState>& engine,
                               const JournalImage& image, const std::string& name, bool goes_on);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_SESSION_JOURNAL_H_
