#ifndef CELLM_SRC_CAPI_GENERATION_H_
#define CELLM_SRC_CAPI_GENERATION_H_

// One reply: from a prompt of ids to the last token.
//
//   driving thread     Choose(): samples, turns the token into text, decides whether it is the last
//   under the lock     Publish(): what was chosen goes to the queue
//   the owner          NextToken(): takes from the queue; only now the token belongs to the session
//
// So a step may run a few tokens ahead of a slow owner, and what the owner never saw was never
// said. The last token of a reply is not evaluated before the next request needs it.

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "capi/constrained_reply.h"
#include "capi/convert_args.h"
#include "capi/handles.h"
#include "cellm/cellm.h"
#include "constrain/constraint.h"
#include "sample/log_probs.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "tokenizer/stream_decoder.h"

namespace cellm::capi {

inline constexpr uint32_t kKnownRequestFlags =
    CELLM_REQUEST_IGNORE_END | CELLM_REQUEST_PROMPT_ONLY | CELLM_REQUEST_PARSE_SPECIAL |
    CELLM_REQUEST_NO_SPECIAL | CELLM_REQUEST_LOGPROBS | CELLM_REQUEST_SHOW_SPECIAL |
    CELLM_REQUEST_KEEP_NOTHING;

// A caller's cellm_request_options, checked and copied. What a reply depends on is in the journal's
// record of a request, too (session_journal.cc).
struct RequestSettings {
  uint32_t flags = 0;
  uint32_t max_tokens = 0;
  uint32_t top_logprobs = 0;
  sample::SamplingOptions sampling;
  bool has_seed = false;
  uint64_t seed = 0;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_ids;
  cellm_progress_fn progress = nullptr;
  void* progress_user = nullptr;
  const volatile int32_t* stop_flag = nullptr;
  std::shared_ptr<constrain::Constraint> constraint;  // null: none
  bool constrained = false;  // there is a constraint, or was when the journal was written
  int32_t constraint_kind = CELLM_CONSTRAINT_NONE;  // as it was given, for the journal
  std::string constraint_text;
};

// One chosen token on its way to the owner.
struct Shown {
  int32_t id = -1;
  std::string text;  // to be shown
  std::string raw;   // as it came, before stop strings cut it
  bool special = false;
  int32_t finish = CELLM_FINISH_NONE;
  bool overflows = false;  // the context is full and the session's policy is to forget
  float logprob = 0;
  std::vector<cellm_logprob> top;
  int64_t chosen_ns = 0;
};

struct RequestState {
  std::shared_ptr<SessionState> session;
  RequestSettings settings;
  bool is_chat = false;
  std::atomic<bool> cancel{false};
  bool cancelled() const {
    return cancel.load(std::memory_order_relaxed) ||
           (settings.stop_flag != nullptr && *settings.stop_flag != 0);
  }

  // Of the driving thread.
  std::unique_ptr<sample::Sampler> sampler;
  sample::StopMatcher stops;
  sample::StopIds end_ids;
  std::unique_ptr<tokenizer::StreamDecoder> decoder;  // null: ids only
  std::unique_ptr<ConstrainedReply> constrained;      // null: no constraint
  std::vector<int32_t> chosen_ids;                    // of this step
  // Of a reply that was brought back in the middle of tokens that are certain: the rest of them.
  std::vector<int32_t> certain;
  std::vector<sample::Candidate> scratch;
  std::vector<sample::TokenLogProb> top;
  size_t chosen = 0;          // tokens of the reply
  size_t context_used = 0;    // of the context, by prompt and reply
  std::vector<Shown> staged;  // chosen in this step

  // Guarded by the lock.
  uint64_t id = 0;  // of engine->serving; 0: closed
  std::deque<Shown> queue;
  Status failure;
  bool in_callback = false;            // of cellm_request_run, which shows `current`
  bool waited_for = false;             // a thread is in NextToken()
  int32_t finish = CELLM_FINISH_NONE;  // set when the last token was taken
  Shown current;                       // what the owner looks at
  std::vector<int32_t> reply;
  std::string reply_text;  // as it came
  std::string said;        // as it was shown
  bool reply_has_special = false;
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;
  size_t forgotten_tokens = 0;
  size_t demoted_tokens = 0;
  uint64_t preemptions = 0;
  int32_t progress_shown = 0;
  int64_t submit_ns = 0, prompt_begin_ns = 0, prompt_end_ns = 0, first_ns = 0, last_ns = 0;

  // A reply that nobody finished still belongs to the session.
  ~RequestState();
};

// Copies and checks. InvalidArgument, Unsupported.
Status ReadRequestOptions(const cellm_request_options* given, const ModelState& model,
                          int32_t vocabulary, RequestSettings* out);

// What a request is to evaluate: the whole sequence from position 0.
struct Prompt {
  std::vector<int32_t> ids;
  bool is_chat = false;
  // Chat only: where the rendering leaves what the transcript knows.
  Transcript::Mark mark;
  MarkedText rendering;
  // Beside the model's own: ends of a turn in this chat's template.
  std::vector<int32_t> end_ids;
  std::string messages;  // as they were given
};

// Makes the request and hands it to the scheduler.
//   OutOfRange       longer than the context; *details has needed and available
//   InvalidArgument  empty, an id outside the vocabulary      Busy  a request is open
//   OutOfMemory      the budget can never hold it
Result<std::shared_ptr<RequestState>> StartRequest(Serving::Lock& lock,
                                                   const std::shared_ptr<SessionState>& session,
                                                   Prompt prompt, RequestSettings settings,
                                                   ErrorDetails* details);

// The next token, computing while there is none. Requires finish == NONE. On failure the request is
// finished with ERROR and the session stays usable. With `wait` false *ready says whether there was
// one.
Status NextToken(Serving::Lock& lock, RequestState* request, bool wait, cellm_token* out,
                 bool* ready);
// Ends it with CELLM_FINISH_ERROR if it has not ended.
void FailRequest(Serving::Lock& lock, RequestState* request);
// Ends it if it has not ended and lets go of the engine. The receipt stays.
void CloseRequest(Serving::Lock& lock, RequestState* request);

// ---- bringing a request back to where it was (session_journal.h) ----

// The sampler, stop strings and decoder of a reply to `ids`. Errors of StartRequest.
Status PrepareReply(RequestState* request, std::span<const int32_t> ids,
                    std::span<const int32_t> chat_end_ids);
// Goes through what Choose() and TakeFront() did for a token (-1: none) that ended the reply with
// `finish`. Needs no lock where nobody else knows the request and its constraint. InvalidArgument,
// Internal: not a token that the constraint allows there.
Status RepeatToken(RequestState* request, int32_t id, int32_t finish);
// The ids that stay when the first `begin` and the last `end` are kept.
void Forget(RequestState* request, size_t begin, size_t end);
// Hands an open request whose tokens were repeated to the scheduler.
Status GoOn(Serving::Lock& lock, RequestState* request);

void FillReceipt(const RequestState& request, cellm_receipt* receipt);
void FillMemory(const EngineState& engine, cellm_memory* memory);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_GENERATION_H_
