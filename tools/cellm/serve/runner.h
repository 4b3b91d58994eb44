#ifndef CELLM_TOOLS_CELLM_SERVE_RUNNER_H_
#define CELLM_TOOLS_CELLM_SERVE_RUNNER_H_

// Who computes: one thread an engine, for all replies of that engine.
//
//   connection threads                       engine thread
//   submit -> Start() ---------------------> [ replies ] --+
//      ^                                                   |  clients that left? cancel them
//      |  Next(): sleeps until there is something          |  cellm_engine_step
//      +----------------- tokens of each reply <-----------+  cellm_request_poll
//
// The C API would let every connection thread wait in cellm_request_next, where one of them
// computes for all. A thread that sleeps there sees nothing else, though: not that its client left,
// not that it is time to tell a waiting client that the connection lives. With a thread that does
// nothing but step, connection threads wait on a condition with a time, and the sockets of all
// replies are looked at between two steps: who is gone is cancelled before the next step, waiting
// or running.
//
// Embeddings are no replies: the connection's thread computes them (cellm_engine_embed) and sees
// nothing meanwhile. The engine thread looks at their sockets, too, between its steps, or every
// kIdleNs while it has none, and sets the flag that ends them.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "cellm/common.h"
#include "platform/thread.h"

namespace cellm::tools::serve {

struct TokenEvent {
  int32_t token_id = -1;
  std::string text;
  int32_t finish = CELLM_FINISH_NONE;
  float logprob = 0;
  std::vector<cellm_logprob> top;
};

// A client whose request is computed in its connection's thread. Made by Runner::Watch.
class Watch {
 public:
  // Not 0 once the client has left: a stop_flag of the C API. Valid as long as this.
  const volatile int32_t* gone_flag() const { return &gone_; }
  bool client_gone() const { return __atomic_load_n(&gone_, __ATOMIC_RELAXED) != 0; }

 private:
  friend class Runner;
  int socket_ = -1;
  int32_t gone_ = 0;  // atomic: written by the engine thread, read by whoever computes
};

// One reply in production. Made by Runner::Start; Next() by one thread at a time.
class Reply {
 public:
  enum class Outcome : uint8_t { kToken, kNothingYet, kFailed };
  // The next token, waiting for it at most timeout_ms. After a token with a finish, or kFailed
  // (error() says why), nothing more comes.
  Outcome Next(int64_t timeout_ms, TokenEvent* event);
  const cellm_error& error() const { return error_; }
  // Ends it within the step under way. Any thread.
  void Cancel();
  // Cancels it and waits until it has ended, at most timeout_ms; then its session is free for the
  // next request. By the thread that calls Next().
  void Finish(int64_t timeout_ms);
  bool client_gone() const;
  // Tokens of the prompt that are evaluated, of how many.
  void PromptProgress(uint64_t* done, uint64_t* total) const;
  // What it cost; all zeros before its end.
  cellm_receipt receipt() const;

 private:
  friend class Runner;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenEvent> events_;  // guarded by mutex_, as all below
  bool ended_ = false;             // no further events come
  bool failed_ = false;
  bool client_gone_ = false;
  uint64_t prompt_done_ = 0, prompt_total_ = 0;
  cellm_error error_ = CELLM_ERROR_INIT;
  RequestHandle request_;  // null once it has ended and its receipt was taken
  cellm_receipt receipt_ = CELLM_RECEIPT_INIT;
  int socket_ = -1;  // of the client; -1: nobody can leave
};

class Runner {
 public:
  // Starts the thread. The engine must outlive this.
  static Result<std::unique_ptr<Runner>> Create(cellm_engine* engine);
  // Cancels what runs and ends the thread.
  ~Runner();

  // What makes a request: called with the options for progress already set. Returns a status of the
  // C API and fills the error.
  using Submit = std::function<cellm_status(const cellm_request_options& progress_options,
                                            cellm_request** request, cellm_error* error)>;
  // Runs a request whose progress and client are watched. `options` gets its progress hook from
  // here. The status and error are those of `submit`.
  cellm_status Start(cellm_request_options options, int socket, const Submit& submit,
                     std::shared_ptr<Reply>* reply, cellm_error* error);
  // Replies under way, waiting ones included.
  size_t active() const;
  // Looks at this client until the result is let go of.
  std::shared_ptr<const Watch> WatchClient(int socket);

 private:
  explicit Runner(cellm_engine* engine) : engine_(engine) {}
  void Run();
  bool Collect(Reply* reply);
  std::vector<std::shared_ptr<Watch>> LiveWatches();

  cellm_engine* engine_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Reply>> replies_;  // guarded by mutex_
  std::vector<std::weak_ptr<Watch>> watches_;    // guarded by mutex_
  bool stopping_ = false;                        // guarded by mutex_
  platform::Thread thread_;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_RUNNER_H_
