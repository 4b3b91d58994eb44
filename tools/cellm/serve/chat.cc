// /v1/chat/completions: a conversation in, a reply out, whole or as server-sent events.
//
// A stream shows calls while they are written. One that turns out to be none cannot be taken back
// there: its deltas end, its text follows as content, and the reply does not finish with
// "tool_calls", so that nobody runs half a call. A whole reply has no trace of it but the content.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/openai_request.h"
#include "cellm/serve/reply_format.h"
#include "cellm/serve/reply_parser.h"
#include "cellm/serve/token_text.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kRoute = "/v1/chat/completions";

struct ChatCall {
  std::string id, name, arguments;
  bool whole = false, broken = false;
};

// What has come of one choice.
struct ChoiceText {
  explicit ChoiceText(const ReplyFormat& format) : parser(format) {}
  ReplyParser parser;
  std::string content, reasoning;
  std::vector<ChatCall> calls;  // by their numbers
  std::string logprobs;         // entries that were not shown yet, comma-separated
  uint64_t reasoning_tokens = 0;
  bool in_reasoning = false;
  std::string finish;
};

// Turns tokens into chunks, or collects them for one reply.
class ChatShaper final : public Shaper {
 public:
  ChatShaper(ServerState& state, const GenerateRequest& request, const OpenModelState& model,
             HttpExchange& exchange, const ReplyFormat& format)
      : state_(state),
        request_(request),
        model_(model),
        exchange_(exchange),
        id_(NewId("chatcmpl")),
        created_(UnixTime()) {
    choices_.assign(request.choices, ChoiceText(format));
  }

  // The head, and the role of every choice.
  bool BeginStream() {
    exchange_.AddHeader("Cache-Control", "no-cache");
    exchange_.AddHeader("X-Accel-Buffering", "no");  // a proxy must not wait for more
    if (!exchange_.StartStream(200, "text/event-stream; charset=utf-8")) return false;
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (!SendDelta(i, R"({"role": "assistant", "content": ""})")) return false;
    }
    return true;
  }

  bool OnToken(size_t index, const TokenEvent& event) override {
    ChoiceText& choice = choices_[index];
    if (request_.logprobs && event.token_id >= 0) {
      if (!choice.logprobs.empty()) choice.logprobs += ", ";
      choice.logprobs += LogprobEntry(model_.model.get(), event);
    }
    pieces_.clear();
    const bool last = event.finish != CELLM_FINISH_NONE;
    choice.parser.Feed(VisibleText(model_, event, &choice.parser), &pieces_);
    if (last) choice.parser.Finish(&pieces_);
    for (const ReplyPiece& piece : pieces_) {
      if (!Take(index, piece)) return false;
    }
    if (choice.in_reasoning && event.token_id >= 0) ++choice.reasoning_tokens;
    if (!last) return true;
    choice.finish = EndsInCalls(choice) ? "tool_calls" : std::string(FinishReason(event.finish));
    return !request_.stream || SendChunk(index, "{}", json::Quote(choice.finish));
  }

  bool OnWaiting(const Reply& reply) override {
    if (!request_.stream) return true;
    uint64_t done = 0;
    uint64_t total = 0;
    reply.PromptProgress(&done, &total);
    return exchange_.Write(total > done ? StrFormat(": prompt %llu of %llu tokens\n\n",
                                                    static_cast<unsigned long long>(done),
                                                    static_cast<unsigned long long>(total))
                                        : std::string(": waiting\n\n"));
  }

  void EndStream(const Generation& generation, const ApiError& error) {
    bool sent = true;
    if (!error.ok()) {
      sent = Send(error.Body());
    } else if (request_.include_usage) {
      sent = Send(Head("chat.completion.chunk")
                      .AddRaw("choices", "[]")
                      .AddRaw("usage", Usage(generation))
                      .AddRaw("timings", Timings(generation))
                      .Finish());
    }
    if (sent) (void)exchange_.Write("data: [DONE]\n\n");
    (void)exchange_.EndStream();
  }

  std::string Whole(const Generation& generation) {
    std::string list = "[";
    for (size_t i = 0; i < choices_.size(); ++i) {
      const ChoiceText& choice = choices_[i];
      JsonObject message;
      message.Add("role", "assistant");
      const std::string calls = CallList(choice.calls);
      const bool no_content = choice.content.empty() && !calls.empty();
      message.AddRaw("content", no_content ? "null" : json::Quote(choice.content));
      message.AddRaw("refusal", "null");
      if (!choice.reasoning.empty()) message.Add("reasoning_content", choice.reasoning);
      if (!calls.empty()) message.AddRaw("tool_calls", Bracketed(calls));
      JsonObject object;
      object.Add("index", static_cast<uint64_t>(i)).AddRaw("message", message.Finish());
      object.AddRaw("logprobs", request_.logprobs ? Logprobs(choice.logprobs) : "null");
      object.Add("finish_reason", choice.finish);
      if (i > 0) list += ", ";
      list += object.Finish();
    }
    return Head("chat.completion")
        .AddRaw("choices", list + "]")
        .AddRaw("usage", Usage(generation))
        .AddRaw("timings", Timings(generation))
        .Finish();
  }

 private:
  JsonObject Head(const char* object) const {
    JsonObject head;
    head.Add("id", id_)
        .Add("object", object)
        .Add("created", created_)
        .Add("model", model_.name)
        .Add("system_fingerprint", std::string("cellm-") + cellm_version_string());
    return head;
  }
  static std::string Logprobs(const std::string& entries) {
    return JsonObject().AddRaw("content", Bracketed(entries)).AddRaw("refusal", "null").Finish();
  }
  // The whole ones, comma-separated.
  static std::string CallList(const std::vector<ChatCall>& calls) {
    std::string list;
    for (const ChatCall& call : calls) {
      if (!call.whole) continue;
      if (!list.empty()) list += ", ";
      list +=
          JsonObject()
              .Add("id", call.id)
              .Add("type", "function")
              .AddRaw("function",
                      JsonObject().Add("name", call.name).Add("arguments", call.arguments).Finish())
              .Finish();
    }
    return list;
  }
  // Whether the client is to run calls. In a stream it has seen the broken ones, too.
  bool EndsInCalls(const ChoiceText& choice) const {
    bool whole = false;
    bool broken = false;
    for (const ChatCall& call : choice.calls) {
      whole |= call.whole;
      broken |= call.broken;
    }
    return whole && !(broken && request_.stream);
  }
  std::string Usage(const Generation& generation) const {
    uint64_t reasoning = 0;
    for (const ChoiceText& choice : choices_) reasoning += choice.reasoning_tokens;
    return UsageJson(generation.prompt_tokens(), generation.cached_tokens(),
                     generation.generated_tokens(), reasoning);
  }
  static std::string Timings(const Generation& generation) {
    return TimingsJson(generation.choices()[0].receipt);
  }

  bool Take(size_t index, const ReplyPiece& piece) {
    ChoiceText& choice = choices_[index];
    choice.in_reasoning = piece.kind == ReplyPiece::Kind::kReasoning;
    switch (piece.kind) {
      case ReplyPiece::Kind::kContent:
        if (request_.stream) {
          return SendDelta(index, JsonObject().Add("content", piece.text).Finish());
        }
        choice.content += piece.text;
        return true;
      case ReplyPiece::Kind::kReasoning:
        if (request_.stream) {
          return SendDelta(index, JsonObject().Add("reasoning_content", piece.text).Finish());
        }
        choice.reasoning += piece.text;
        return true;
      case ReplyPiece::Kind::kCallBegin: {
        choice.calls.push_back({NewId("call"), piece.tool_name, {}, false, false});
        JsonObject begin;
        begin.Add("id", choice.calls[piece.call].id).Add("type", "function");
        return SendCallDelta(index, piece.call, std::move(begin),
                             JsonObject().Add("name", piece.tool_name).Add("arguments", ""));
      }
      case ReplyPiece::Kind::kCallArguments:
        choice.calls[piece.call].arguments += piece.text;
        return SendCallDelta(index, piece.call, JsonObject(),
                             JsonObject().Add("arguments", piece.text));
      case ReplyPiece::Kind::kCallEnd:
        choice.calls[piece.call].whole = true;
        state_.metrics.tool_calls.fetch_add(1, std::memory_order_relaxed);
        return true;
      case ReplyPiece::Kind::kCallBroken:
        choice.calls[piece.call].broken = true;
        return true;
    }
    return true;
  }

  bool SendCallDelta(size_t index, size_t call, JsonObject entry, const JsonObject& function) {
    if (!request_.stream) return true;
    entry.Add("index", static_cast<uint64_t>(call)).AddRaw("function", function.Finish());
    return SendDelta(index, JsonObject().AddRaw("tool_calls", Bracketed(entry.Finish())).Finish());
  }

  bool SendDelta(size_t index, const std::string& delta) { return SendChunk(index, delta, "null"); }
  bool SendChunk(size_t index, const std::string& delta, const std::string& finish) {
    ChoiceText& choice = choices_[index];
    JsonObject object;
    object.Add("index", static_cast<uint64_t>(index)).AddRaw("delta", delta);
    object.AddRaw("logprobs", choice.logprobs.empty() ? "null" : Logprobs(choice.logprobs));
    object.AddRaw("finish_reason", finish);
    choice.logprobs.clear();
    return Send(
        Head("chat.completion.chunk").AddRaw("choices", Bracketed(object.Finish())).Finish());
  }
  bool Send(const std::string& json) { return exchange_.Write("data: " + json + "\n\n"); }

  ServerState& state_;
  const GenerateRequest& request_;
  const OpenModelState& model_;
  HttpExchange& exchange_;
  std::string id_;
  int64_t created_;
  std::vector<ChoiceText> choices_;
  std::vector<ReplyPiece> pieces_;
};

}  // namespace

int ServeChat(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ApiError error = ParseBody(exchange.request().body, &body);
  GenerateRequest request;
  std::vector<std::string> unknown;
  if (error.ok()) error = ParseChatRequest(body->root(), &request, &unknown);
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

  ReplyFormat format;
  error = FindReplyFormat(*model, request, &format);
  if (!error.ok()) return Answer(exchange, error, {});
  Generation generation(request, model, std::move(kept), exchange.socket());
  error = generation.Start(CELLM_REQUEST_SHOW_SPECIAL);
  if (!error.ok()) return Answer(exchange, error, {});
  ChatShaper shaper(state, request, *model, exchange, format);
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
