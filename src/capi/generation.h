#ifndef CELLM_SRC_CAPI_GENERATION_H_
#define CELLM_SRC_CAPI_GENERATION_H_

// One reply: from a prompt of ids to the last token.
//
//   submit: which ids, what of them the session already holds    (StartRequest)
//   first Next(): evaluates the rest of the prompt in chunks
//   each Next(): samples a token, turns it into text, decides whether it was the last
//
// The session's ids are those that are known; the engine's position says how many of them are
// evaluated. A chosen token becomes known at once and is evaluated by the Next() after it, so the
// last token of a reply is never evaluated for nothing.

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "capi/convert_args.h"
#include "capi/handles.h"
#include "cellm/cellm.h"
#include "sample/log_probs.h"
#include "sample/sampler.h"
#include "sample/stop.h"
#include "tokenizer/stream_decoder.h"

namespace cellm::capi {

// A caller's cellm_request_options, checked and copied.
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
};

struct RequestState {
  std::shared_ptr<SessionState> session;
  RequestSettings settings;
  std::unique_ptr<sample::Sampler> sampler;
  sample::StopMatcher stops;
  sample::StopIds end_ids;
  std::unique_ptr<tokenizer::StreamDecoder> decoder;  // null: ids only
  bool is_chat = false;

  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;
  std::vector<int32_t> reply;
  std::string reply_text;  // as it came, before stop strings cut it
  bool reply_has_special = false;
  std::string visible;  // of the current token
  std::vector<sample::Candidate> scratch;
  std::vector<sample::TokenLogProb> top;
  std::vector<cellm_logprob> top_out;

  std::atomic<bool> cancelled{false};
  bool prompt_done = false;
  int32_t finish = CELLM_FINISH_NONE;
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
};

// Winds the session back to what it shares with the prompt and makes the request.
//   OutOfRange       longer than the context; *details has needed and available
//   InvalidArgument  empty, an id outside the vocabulary      Busy  a request is open
//   OutOfMemory      pages or sampler memory
Result<std::unique_ptr<RequestState>> StartRequest(const std::shared_ptr<SessionState>& session,
                                                   Prompt prompt, RequestSettings settings,
                                                   ErrorDetails* details);

// The next token. Requires finish == NONE. On failure the request is finished with ERROR and the
// session stays usable.
Status NextToken(RequestState* request, cellm_token* out);

void FillReceipt(const RequestState& request, cellm_receipt* receipt);
void FillMemory(const EngineState& engine, cellm_memory* memory);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_GENERATION_H_
