#ifndef CELLM_TOOLS_CELLM_SERVE_GENERATION_H_
#define CELLM_TOOLS_CELLM_SERVE_GENERATION_H_

// From a request that was read to tokens: sessions, forks, the replies' order and their ends. What
// the tokens look like to a client is the shapers' business (chat.cc, completions.cc).

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cellm/serve/api_error.h"
#include "cellm/serve/models.h"
#include "cellm/serve/openai_request.h"
#include "cellm/serve/runner.h"
#include "cellm/serve/sessions.h"

namespace cellm::tools::serve {

struct GenerationChoice {
  SessionHandle owned;               // a session of its own ...
  cellm_session* session = nullptr;  // ... or a kept one
  std::shared_ptr<Reply> reply;
  bool ended = false;
  int32_t finish = CELLM_FINISH_NONE;
  cellm_receipt receipt = CELLM_RECEIPT_INIT;
};

// What a reply is shown through. All calls on the connection's thread.
class Shaper {
 public:
  virtual ~Shaper() = default;
  // False: the client is gone, stop.
  virtual bool OnToken(size_t choice, const TokenEvent& event) = 0;
  // Nothing came for a while: a sign of life. False as above.
  virtual bool OnWaiting(const Reply& reply) = 0;
};

struct GenerationSettings {
  int64_t ping_ms = 5000;
};

class Generation {
 public:
  Generation(const GenerateRequest& request, ModelLease model, SessionLease kept, int socket)
      : request_(request), model_(std::move(model)), kept_(std::move(kept)), socket_(socket) {}
  ~Generation();  // cancels what still runs

  // Starts the replies: everything that can be refused is refused here. Further flags for the C
  // API's request beside those that the request asks for.
  ApiError Start(uint32_t request_flags);
  // Runs them to their ends. An error after Start() is one of the engine or of memory; Cancelled
  // clients are no error (client_gone()).
  ApiError Run(const GenerationSettings& settings, Shaper* shaper);

  const std::vector<GenerationChoice>& choices() const { return choices_; }
  bool client_gone() const { return client_gone_; }
  const OpenModelState& model() const { return *model_; }
  // Tokens of the prompt (of all prompts), those reused, and those produced in all.
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  uint64_t cached_tokens() const { return cached_tokens_; }
  uint64_t generated_tokens() const;
  // Something that whoever runs the server should know; mostly empty.
  const std::string& note() const { return note_; }

 private:
  ApiError OpenSession(SessionHandle* session);
  ApiError Submit(size_t prompt, cellm_session* session, uint64_t seed_step, bool prompt_only,
                  std::shared_ptr<Reply>* reply);
  ApiError Fork();
  ApiError FindConstraint();
  bool Step(const GenerationSettings& settings, Shaper* shaper, GenerationChoice* choice,
            size_t index, int64_t timeout_ms, ApiError* error, bool* progressed);

  const GenerateRequest& request_;
  ModelLease model_;
  SessionLease kept_;
  int socket_;
  uint32_t flags_ = 0;
  int32_t constraint_ = 0;            // CELLM_CONSTRAINT_...
  std::string tool_text_;             // of CELLM_CONSTRAINT_STRUCTURAL
  std::string constraint_param_;      // the field that asked for it
  bool constraint_optional_ = false;  // nobody asked: without it is better than not at all
  std::string note_;
  std::vector<GenerationChoice> choices_;
  // With several choices: the evaluation of the prompt that all of them share.
  std::shared_ptr<Reply> shared_prompt_;
  bool client_gone_ = false;
  uint64_t prompt_tokens_ = 0, cached_tokens_ = 0;
  int64_t waited_ms_ = 0;
};

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_GENERATION_H_
