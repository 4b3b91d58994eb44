#ifndef CELLM_TOOLS_CELLM_SERVE_SESSIONS_H_
#define CELLM_TOOLS_CELLM_SERVE_SESSIONS_H_

// Sessions that clients keep by name ("session_id" in a request). Without a name a conversation
// needs no session: the engine finds its beginning again by its tokens. A name adds three things:
// the reply's own ids stay (a template may render them differently), a session can be forked, and
// it can be suspended to a file and resumed later, by another process too.
//
//   live --suspend--> file in the folder of --sessions --resume (or the next request)--> live
//
// When there are more live sessions than may be kept, those used longest ago are suspended, or
// closed where there is no folder.

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cellm/common.h"
#include "cellm/serve/api_error.h"
#include "cellm/serve/models.h"

namespace cellm::tools::serve {

class Sessions;

struct KeptSession {
  std::string id;
  std::string model;
  ModelLease lease;       // null while suspended
  SessionHandle session;  // likewise
  std::string file;       // where it is suspended; empty while live
  uint64_t tokens = 0;    // when it was last looked at
  bool busy = false;      // a request or another call has it
  uint64_t last_used = 0;
};

// A kept session for one user at a time; given back at destruction. Empty when made by default.
class SessionLease {
 public:
  SessionLease() = default;
  SessionLease(Sessions* owner, KeptSession* session) : owner_(owner), session_(session) {}
  SessionLease(SessionLease&& other) noexcept { *this = std::move(other); }
  SessionLease& operator=(SessionLease&& other) noexcept;
  ~SessionLease();
  KeptSession* get() const { return session_; }
  explicit operator bool() const { return session_ != nullptr; }

 private:
  Sessions* owner_ = nullptr;
  KeptSession* session_ = nullptr;
};

class Sessions {
 public:
  // `folder` may be empty: nothing is suspended then. Suspended sessions that are there are known
  // from the start.
  Sessions(std::string folder, size_t most_live, Models* models);

  // The session of this name for a request to `model`; made or resumed when it is not there.
  //   409 in use, or of another model
  ApiError TakeForRequest(const std::string& id, const ModelLease& model, SessionLease* lease);
  ApiError Suspend(const std::string& id);
  ApiError Resume(const std::string& id);
  ApiError Fork(const std::string& id, const std::string& new_id);
  ApiError Delete(const std::string& id);
  // {"object": "list", "data": [...]}
  std::string ListJson();
  // One of them. 404.
  ApiError DescribeJson(const std::string& id, std::string* out);

  // Suspends what is live and not in use; closes what cannot be suspended. Of all models, or of all
  // but `keep`.
  void ReleaseIdle(const std::string& keep);
  size_t live() const;

 private:
  friend class SessionLease;
  ApiError Take(const std::string& id, SessionLease* lease);
  void GiveBack(KeptSession* session);
  void Forget(SessionLease lease);
  ApiError SuspendTaken(KeptSession* session);
  ApiError ResumeTaken(KeptSession* session, const ModelLease& model);
  void LimitLive();
  static std::string Describe(const KeptSession& session);

  std::string folder_;
  size_t most_live_;
  Models* models_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; the fields of a busy session belong to who has it.
  std::list<KeptSession> sessions_;
  uint64_t uses_ = 0;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_SESSIONS_H_
