#include "cellm/serve/generation.h"

#include <algorithm>
#include <utility>

#include "cellm/serve/tool_constraint.h"

namespace cellm::tools::serve {
namespace {

// With several replies at once: how long to wait for one before looking at the others. They run in
// the same steps, so what one has, the others have soon.
constexpr int64_t kTurnMs = 10;
// Longer than any step: a cancelled reply ends with the one under way.
constexpr int64_t kFinishMs = 5000;

}  // namespace

Generation::~Generation() {
  if (shared_prompt_ != nullptr) shared_prompt_->Cancel();
  for (const GenerationChoice& choice : choices_) {
    if (choice.reply == nullptr || choice.ended) continue;
    // A kept session must be free again when it is given back.
    if (kept_) {
      choice.reply->Finish(kFinishMs);
    } else {
      choice.reply->Cancel();
    }
  }
}

uint64_t Generation::generated_tokens() const {
  uint64_t sum = 0;
  for (const GenerationChoice& choice : choices_) sum += choice.receipt.generated_tokens;
  return sum;
}

ApiError Generation::OpenSession(SessionHandle* session) {
  cellm_session_options options = CELLM_SESSION_OPTIONS_INIT;
  if (request_.background) options.latency_class = CELLM_CLASS_BACKGROUND;
  cellm_session* opened = nullptr;
  cellm_error error = CELLM_ERROR_INIT;
  if (cellm_session_open(model_->engine.get(), &options, &opened, &error) != CELLM_OK) {
    return FromCellm(error, {});
  }
  session->reset(opened);
  return {};
}

ApiError Generation::Submit(size_t prompt, cellm_session* session, uint64_t seed_step,
                            bool prompt_only, std::shared_ptr<Reply>* reply) {
  cellm_sampling sampling = request_.sampling;
  sampling.seed += seed_step;  // each of n choices has its own, and all replay
  sampling.logit_bias = request_.bias.data();
  sampling.logit_bias_count = static_cast<uint32_t>(request_.bias.size());
  std::vector<cellm_text> stops;
  for (const std::string& stop : request_.stops) stops.push_back(ToText(stop));
  cellm_request_options options = CELLM_REQUEST_OPTIONS_INIT;
  options.flags = flags_;
  if (request_.logprobs) options.flags |= CELLM_REQUEST_LOGPROBS;
  options.top_logprobs = request_.top_logprobs;
  options.max_tokens = request_.max_tokens;
  options.sampling = &sampling;
  options.stops = stops.data();
  options.stop_count = stops.size();
  options.constraint = constraint_;
  options.constraint_text =
      ToText(constraint_ == CELLM_CONSTRAINT_STRUCTURAL ? tool_text_ : request_.constraint.text);
  if (constraint_ == CELLM_CONSTRAINT_NONE) options.constraint_text = {};
  if (prompt_only) {
    options.constraint = CELLM_CONSTRAINT_NONE;
    options.constraint_text = {};
    options.flags |= CELLM_REQUEST_PROMPT_ONLY;
    options.max_tokens = 0;
  }
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.messages = ToText(request_.messages);
  chat.tools = ToText(request_.tools);
  chat.template_args = ToText(request_.template_args);
  const char* param = request_.messages.empty() ? "prompt" : "messages";
  cellm_error error = CELLM_ERROR_INIT;
  const cellm_status status = model_->runner->Start(
      options, socket_,
      [&](const cellm_request_options& full, cellm_request** out, cellm_error* failure) {
        if (!request_.messages.empty()) {
          return cellm_session_submit_chat(session, &chat, &full, out, failure);
        }
        if (!request_.prompts.empty()) {
          const std::string& text = request_.prompts[prompt];
          return cellm_session_submit_text(session, text.data(), text.size(), &full, out, failure);
        }
        const std::vector<int32_t>& ids = request_.prompt_ids[prompt];
        return cellm_session_submit_tokens(session, ids.data(), ids.size(), &full, out, failure);
      },
      reply, &error);
  if (status == CELLM_OK) return {};
  const bool by_constraint = options.constraint != CELLM_CONSTRAINT_NONE &&
                             error.reason == CELLM_REASON_NONE && status != CELLM_BUSY;
  if (by_constraint && constraint_optional_) {
    note_ = "arguments of calls are not held to their schemas: " + std::string(error.message);
    constraint_ = CELLM_CONSTRAINT_NONE;
    return Submit(prompt, session, seed_step, prompt_only, reply);
  }
  // The template has rendered the messages before, so what is refused now is the constraint.
  return FromCellm(error, by_constraint ? constraint_param_.c_str() : param);
}

// What the reply is held to. Forced calls come before a form for the text: both cannot be had.
ApiError Generation::FindConstraint() {
  const Constraint& constraint = request_.constraint;
  const bool forced =
      request_.tool_choice == ToolChoice::kRequired || request_.tool_choice == ToolChoice::kNamed;
  if (constraint.kind == Constraint::Kind::kNone) {
    tool_text_ = ToolConstraint(model_->call_style, request_);
    constraint_ = tool_text_.empty() ? CELLM_CONSTRAINT_NONE : CELLM_CONSTRAINT_STRUCTURAL;
    constraint_param_ = forced ? "tool_choice" : "tools";
    constraint_optional_ = !forced;
    return {};
  }
  if (forced) {
    return BadField("tool_choice",
                    "tool_choice: a reply cannot be a call and follow " + constraint.param,
                    "invalid_value");
  }
  constraint_param_ = constraint.param;
  switch (constraint.kind) {
    case Constraint::Kind::kJsonObject:
    case Constraint::Kind::kJsonSchema:
      constraint_ = CELLM_CONSTRAINT_JSON_SCHEMA;
      break;
    case Constraint::Kind::kGrammar:
      constraint_ = CELLM_CONSTRAINT_GRAMMAR;
      break;
    case Constraint::Kind::kRegex:
      constraint_ = CELLM_CONSTRAINT_REGEX;
      break;
    case Constraint::Kind::kChoices:
      constraint_ = CELLM_CONSTRAINT_CHOICES;
      break;
    case Constraint::Kind::kNone:
      break;
  }
  return {};
}

ApiError Generation::Start(uint32_t request_flags) {
  flags_ = request_flags;
  const ApiError bad_constraint = FindConstraint();
  if (!bad_constraint.ok()) return bad_constraint;
  const size_t prompts = std::max<size_t>(1, request_.prompts.size() + request_.prompt_ids.size());
  if (kept_ && (request_.choices > 1 || prompts > 1)) {
    return BadField("session_id", "session_id: a kept session has one reply at a time",
                    "unsupported");
  }
  // Every prompt's first reply; forks of it come once it is evaluated.
  choices_.resize(prompts * request_.choices);
  if (request_.choices == 1) {
    for (size_t i = 0; i < prompts; ++i) {
      GenerationChoice& choice = choices_[i];
      if (kept_) {
        choice.session = kept_.get()->session.get();
      } else {
        const ApiError error = OpenSession(&choice.owned);
        if (!error.ok()) return error;
        choice.session = choice.owned.get();
      }
      const ApiError error = Submit(i, choice.session, i, false, &choice.reply);
      if (!error.ok()) return error;
    }
    return {};
  }
  if (prompts > 1) {
    return BadField("n", "n: more than one reply to more than one prompt is not supported",
                    "unsupported");
  }
  const ApiError error = OpenSession(&choices_[0].owned);
  if (!error.ok()) return error;
  choices_[0].session = choices_[0].owned.get();
  return Submit(0, choices_[0].session, 0, true, &shared_prompt_);
}

// The prompt is evaluated: every choice starts from a session that shares it.
ApiError Generation::Fork() {
  cellm_error error = CELLM_ERROR_INIT;
  // What the session holds now is the prompt; the choices are given the whole prompt again, of
  // which all but the last token is reused.
  for (size_t i = 1; i < choices_.size(); ++i) {
    cellm_session* copy = nullptr;
    if (cellm_session_fork(choices_[0].session, &copy, &error) != CELLM_OK) {
      return FromCellm(error, "n");
    }
    choices_[i].owned.reset(copy);
    choices_[i].session = copy;
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    // A text is added after what a session holds; a chat is compared with it.
    if (request_.messages.empty() && cellm_session_clear(choices_[i].session, &error) != CELLM_OK) {
      return FromCellm(error, "n");
    }
    const ApiError failed = Submit(0, choices_[i].session, i, false, &choices_[i].reply);
    if (!failed.ok()) return failed;
  }
  return {};
}

// Takes what one reply has. False: the client is gone, or *error is set.
bool Generation::Step(const GenerationSettings& settings, Shaper* shaper, GenerationChoice* choice,
                      size_t index, int64_t timeout_ms, ApiError* error, bool* progressed) {
  TokenEvent event;
  switch (choice->reply->Next(timeout_ms, &event)) {
    case Reply::Outcome::kFailed:
      choice->ended = true;
      *error = FromCellm(choice->reply->error(), {});
      // What was admitted and cannot go on is no fault of the request.
      if (error->status == 400) error->status = 503;
      return false;
    case Reply::Outcome::kNothingYet:
      waited_ms_ += timeout_ms;
      if (waited_ms_ < settings.ping_ms) return true;
      waited_ms_ = 0;
      client_gone_ = !shaper->OnWaiting(*choice->reply);
      return !client_gone_;
    case Reply::Outcome::kToken:
      break;
  }
  *progressed = true;
  waited_ms_ = 0;
  if (event.finish != CELLM_FINISH_NONE) {
    choice->ended = true;
    choice->finish = event.finish;
    choice->receipt = choice->reply->receipt();
  }
  if (event.finish == CELLM_FINISH_CANCELLED) {
    client_gone_ = choice->reply->client_gone();
    if (!client_gone_) *error = FromStatus(503, "the server is shutting down");
    return false;
  }
  client_gone_ = !shaper->OnToken(index, event);
  return !client_gone_;
}

ApiError Generation::Run(const GenerationSettings& settings, Shaper* shaper) {
  ApiError error;
  bool progressed = false;
  if (shared_prompt_ != nullptr) {
    GenerationChoice prompt;
    prompt.reply = shared_prompt_;
    class Quiet final : public Shaper {
     public:
      explicit Quiet(Shaper* inner) : inner_(inner) {}
      bool OnToken(size_t, const TokenEvent&) override { return true; }
      bool OnWaiting(const Reply& reply) override { return inner_->OnWaiting(reply); }

     private:
      Shaper* inner_;
    } quiet(shaper);
    while (!prompt.ended) {
      if (!Step(settings, &quiet, &prompt, 0, settings.ping_ms, &error, &progressed)) return error;
    }
    prompt_tokens_ = prompt.receipt.prompt_tokens;
    cached_tokens_ = prompt.receipt.reused_tokens;
    shared_prompt_.reset();
    error = Fork();
    if (!error.ok()) return error;
  }
  size_t running = choices_.size();
  while (running > 0) {
    progressed = false;
    running = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
      GenerationChoice& choice = choices_[i];
      if (choice.ended) continue;
      // Wait only when nobody has had anything in this turn.
      const int64_t timeout = progressed ? 0 : choices_.size() == 1 ? settings.ping_ms : kTurnMs;
      if (!Step(settings, shaper, &choice, i, timeout, &error, &progressed)) return error;
      if (!choice.ended) ++running;
    }
  }
  if (request_.choices == 1) {
    for (const GenerationChoice& choice : choices_) {
      prompt_tokens_ += choice.receipt.prompt_tokens;
      cached_tokens_ += choice.receipt.reused_tokens;
    }
  }
  return {};
}

}  // namespace cellm::tools::serve
