// /v1/completions: texts or ids in, what the model would write next out. No template, no roles.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/openai_request.h"
#include "cellm/serve/token_text.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kRoute = "/v1/completions";
// Alternatives come in the old shape: parallel lists.
constexpr double kLeastLogprob = -9999.0;

struct ChoiceText {
  std::string text;
  std::string tokens, token_logprobs, top_logprobs, offsets;  // lists without brackets
  uint64_t offset = 0;                                        // bytes of the tokens so far
  std::string finish;
};

void AddTo(std::string* list, const std::string& entry) {
  if (!list->empty()) *list += ", ";
  *list += entry;
}

std::string Number(float value) {
  return StrFormat("%.9g", std::max(static_cast<double>(value), kLeastLogprob));
}

class CompletionShaper final : public Shaper {
 public:
  CompletionShaper(const GenerateRequest& request, const OpenModelState& model,
                   HttpExchange& exchange, size_t choices)
      : request_(request),
        model_(model),
        exchange_(exchange),
        id_(NewId("cmpl")),
        created_(UnixTime()),
        choices_(choices) {}

  bool BeginStream() {
    exchange_.AddHeader("Cache-Control", "no-cache");
    exchange_.AddHeader("X-Accel-Buffering", "no");
    if (!exchange_.StartStream(200, "text/event-stream; charset=utf-8")) return false;
    for (size_t i = 0; request_.echo && i < choices_.size(); ++i) {
      if (!SendChunk(i, Echo(i), "null")) return false;
    }
    return true;
  }

  bool OnToken(size_t index, const TokenEvent& event) override {
    ChoiceText& choice = choices_[index];
    if (request_.logprobs && event.token_id >= 0) AddLogprobs(&choice, event);
    const bool last = event.finish != CELLM_FINISH_NONE;
    if (last) choice.finish = FinishReason(event.finish);
    if (!request_.stream) {
      choice.text += event.text;
      return true;
    }
    if (!last) return event.text.empty() || SendChunk(index, event.text, "null");
    return SendChunk(index, event.text, json::Quote(choice.finish));
  }

  bool OnWaiting(const Reply&) override {
    return !request_.stream || exchange_.Write(": waiting\n\n");
  }

  void EndStream(const Generation& generation, const ApiError& error) {
    bool sent = true;
    if (!error.ok()) {
      sent = Send(error.Body());
    } else if (request_.include_usage) {
      sent = Send(Head().AddRaw("choices", "[]").AddRaw("usage", Usage(generation)).Finish());
    }
    if (sent) (void)exchange_.Write("data: [DONE]\n\n");
    (void)exchange_.EndStream();
  }

  std::string Whole(const Generation& generation) {
    std::string list;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const std::string text = (request_.echo ? Echo(i) : std::string()) + choices_[i].text;
      AddTo(&list, Choice(i, text, json::Quote(choices_[i].finish)));
    }
    return Head()
        .AddRaw("choices", Bracketed(list))
        .AddRaw("usage", Usage(generation))
        .AddRaw("timings", TimingsJson(generation.choices()[0].receipt))
        .Finish();
  }

 private:
  // A prompt of ids is not shown again: the client has it in the form that it wanted.
  std::string Echo(size_t index) const {
    const size_t prompt = index / request_.choices;
    return prompt < request_.prompts.size() ? request_.prompts[prompt] : std::string();
  }
  static std::string Usage(const Generation& generation) {
    return UsageJson(generation.prompt_tokens(), generation.cached_tokens(),
                     generation.generated_tokens(), 0);
  }
  JsonObject Head() const {
    JsonObject head;
    head.Add("id", id_)
        .Add("object", "text_completion")
        .Add("created", created_)
        .Add("model", model_.name)
        .Add("system_fingerprint", std::string("cellm-") + cellm_version_string());
    return head;
  }

  void AddLogprobs(ChoiceText* choice, const TokenEvent& event) {
    const std::string token = TokenBytes(model_.model.get(), event.token_id);
    AddTo(&choice->tokens, json::Quote(token));
    AddTo(&choice->token_logprobs, Number(event.logprob));
    JsonObject top;
    for (const cellm_logprob& other : event.top) {
      top.AddRaw(TokenBytes(model_.model.get(), other.token_id), Number(other.logprob));
    }
    AddTo(&choice->top_logprobs, top.Finish());
    AddTo(&choice->offsets, std::to_string(choice->offset));
    choice->offset += token.size();
  }

  // One choice; takes the log-probabilities that have gathered.
  std::string Choice(size_t index, const std::string& text, const std::string& finish) {
    ChoiceText& choice = choices_[index];
    JsonObject object;
    object.Add("text", text).Add("index", static_cast<uint64_t>(index));
    if (request_.logprobs) {
      object.AddRaw("logprobs", JsonObject()
                                    .AddRaw("tokens", Bracketed(choice.tokens))
                                    .AddRaw("token_logprobs", Bracketed(choice.token_logprobs))
                                    .AddRaw("top_logprobs", Bracketed(choice.top_logprobs))
                                    .AddRaw("text_offset", Bracketed(choice.offsets))
                                    .Finish());
      choice.tokens.clear();
      choice.token_logprobs.clear();
      choice.top_logprobs.clear();
      choice.offsets.clear();
    } else {
      object.AddRaw("logprobs", "null");
    }
    return object.AddRaw("finish_reason", finish).Finish();
  }

  bool SendChunk(size_t index, const std::string& text, const std::string& finish) {
    return Send(Head().AddRaw("choices", Bracketed(Choice(index, text, finish))).Finish());
  }
  bool Send(const std::string& json) { return exchange_.Write("data: " + json + "\n\n"); }

  const GenerateRequest& request_;
  const OpenModelState& model_;
  HttpExchange& exchange_;
  std::string id_;
  int64_t created_;
  std::vector<ChoiceText> choices_;
};

}  // namespace

int ServeCompletion(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ApiError error = ParseBody(exchange.request().body, &body);
  GenerateRequest request;
  std::vector<std::string> unknown;
  if (error.ok()) error = ParseCompletionRequest(body->root(), &request, &unknown);
  if (!error.ok()) return Answer(exchange, error, {});
  body.reset();
  state.NoteUnknown(kRoute, unknown);

  const Admission admission(&state);
  if (!admission.error().ok()) return Answer(exchange, admission.error(), {});
  ModelLease model;
  error = state.models.Acquire(request.model, &model);
  SessionLease kept;
  if (error.ok() && !request.session_id.empty()) {
    error = state.sessions.TakeForRequest(request.session_id, model, &kept);
  }
  if (!error.ok()) return Answer(exchange, error, {});

  Generation generation(request, model, std::move(kept), exchange.socket());
  error = generation.Start(0);
  if (!error.ok()) return Answer(exchange, error, {});
  CompletionShaper shaper(request, *model, exchange, generation.choices().size());
  if (!generation.note().empty()) state.NoteOnce(generation.note());
  const bool begun = !request.stream || shaper.BeginStream();
  if (begun) error = generation.Run(state.options.generation, &shaper);
  for (const GenerationChoice& choice : generation.choices()) {
    if (choice.ended) state.metrics.CountReply(choice.receipt);
  }
  if (!begun || generation.client_gone()) {
    state.metrics.departed.fetch_add(1, std::memory_order_relaxed);
    return 499;  // as nginx counts them; nobody is there to read it
  }
  if (request.stream) {
    shaper.EndStream(generation, error);
    return 200;
  }
  if (!error.ok()) return Answer(exchange, error, {});
  ReplyJson(exchange, shaper.Whole(generation));
  return 200;
}

}  // namespace cellm::tools::serve
