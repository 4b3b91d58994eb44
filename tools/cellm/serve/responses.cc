// /v1/responses: the text subset of the newer API. Input items become messages, the reply becomes
// output items (reasoning, message, function calls), whole or as named events. Nothing is stored:
// previous_response_id is refused, and a client sends the conversation, whose beginning the engine
// has kept.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/messages.h"
#include "cellm/serve/openai_request.h"
#include "cellm/serve/reply_format.h"
#include "cellm/serve/reply_parser.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kRoute = "/v1/responses";

std::string_view TextOf(json::Value value) {
  std::string_view text;
  (void)value.GetString(&text);
  return text;
}

// One input item as a message; an item that is no message of ours is refused by name.
ApiError ItemToMessage(json::Value item, const std::string& place, std::string* out) {
  const std::string_view type = TextOf(item.Find("type"));
  JsonObject message;
  if (type == "function_call") {
    JsonObject function;
    function.Add("name", TextOf(item.Find("name")))
        .Add("arguments", TextOf(item.Find("arguments")));
    JsonObject call;
    call.Add("id", TextOf(item.Find("call_id")))
        .Add("type", "function")
        .AddRaw("function", function.Finish());
    message.Add("role", "assistant").AddRaw("tool_calls", Bracketed(call.Finish()));
  } else if (type == "function_call_output") {
    const json::Value output = item.Find("output");
    message.Add("role", "tool").Add("tool_call_id", TextOf(item.Find("call_id")));
    message.AddRaw("content", output.is_string() || output.is_array()
                                  ? json::Serialize(output)
                                  : json::Quote(json::Serialize(output)));
  } else if (type == "reasoning") {
    return {};  // what a model once thought is not shown to it again
  } else if (item.is_object() && (type == "message" || type.empty())) {
    message.AddRaw("role", json::Serialize(item.Find("role")));
    message.AddRaw("content", json::Serialize(item.Find("content")));
  } else {
    return BadField(
        place,
        place + ": items of type '" + std::string(type.substr(0, 40)) + "' are not read here",
        "unsupported");
  }
  if (!out->empty()) *out += ", ";
  *out += message.Finish();
  return {};
}

ApiError ReadInput(Fields* fields, std::string* messages) {
  std::string list;
  std::string text;
  if (fields->Text("instructions", &text)) {
    list = JsonObject().Add("role", "system").Add("content", text).Finish();
  }
  json::Value input;
  if (!fields->Any("input", &input)) {
    fields->Fail("input", "missing", "missing_required_parameter");
    return fields->error();
  }
  if (input.is_string()) {
    if (!list.empty()) list += ", ";
    list += JsonObject().Add("role", "user").AddRaw("content", json::Serialize(input)).Finish();
  } else if (input.is_array()) {
    size_t index = 0;
    for (json::Value item = input.First(); item.exists(); item = input.Next(item), ++index) {
      const ApiError error = ItemToMessage(item, "input[" + std::to_string(index) + "]", &list);
      if (!error.ok()) return error;
    }
  } else {
    fields->Fail("input", "expected a string or an array of items", "invalid_type");
    return fields->error();
  }
  const auto parsed = json::Document::Parse(Bracketed(list), "input");
  if (!parsed.ok()) return BadField("input", parsed.status().message(), "invalid_value");
  return NormalizeMessages((*parsed)->root(), "input", messages);
}

ApiError ParseResponsesRequest(json::Value body, GenerateRequest* out,
                               std::vector<std::string>* unknown) {
  Fields fields(body);
  ReadCommon(&fields, out);
  ReadTools(&fields, out);
  std::string text;
  if (fields.Text("previous_response_id", &text)) {
    fields.Fail("previous_response_id", "responses are not stored here; send the whole input",
                "unsupported");
  }
  json::Value value;
  if (fields.Object("text", &value) && value.Find("format").is_object()) {
    const json::Value format = value.Find("format");
    if (TextOf(format.Find("type")) == "json_schema" && format.Find("schema").is_object()) {
      out->constraint = {Constraint::Kind::kJsonSchema, json::Serialize(format.Find("schema")),
                         "text"};
    } else if (TextOf(format.Find("type")) == "json_object") {
      out->constraint = {Constraint::Kind::kJsonObject, R"({"type": "object"})", "text"};
    } else if (TextOf(format.Find("type")) != "text") {
      fields.Fail("text", "format: expected text, json_object or json_schema", "invalid_value");
    }
  }
  for (const char* name : {"reasoning", "include", "truncation", "background"}) {
    (void)fields.Any(name, &value);  // without a meaning here
  }
  out->choices = 1;
  const ApiError error = fields.ok() ? ReadInput(&fields, &out->messages) : fields.error();
  if (error.ok()) *unknown = fields.Unknown();
  return error;
}

class ResponseShaper final : public Shaper {
 public:
  ResponseShaper(ServerState& state, const GenerateRequest& request, const OpenModelState& model,
                 HttpExchange& exchange, const ReplyFormat& format)
      : state_(state),
        request_(request),
        model_(model),
        exchange_(exchange),
        parser_(format),
        id_(NewId("resp")),
        message_id_(NewId("msg")),
        created_(UnixTime()) {}

  bool BeginStream() {
    exchange_.AddHeader("Cache-Control", "no-cache");
    exchange_.AddHeader("X-Accel-Buffering", "no");
    if (!exchange_.StartStream(200, "text/event-stream; charset=utf-8")) return false;
    const std::string response = Response("in_progress", "null", "null");
    return Send("response.created", JsonObject().AddRaw("response", response)) &&
           Send("response.in_progress", JsonObject().AddRaw("response", response));
  }

  bool OnToken(size_t, const TokenEvent& event) override {
    pieces_.clear();
    const bool last = event.finish != CELLM_FINISH_NONE;
    parser_.Feed(VisibleText(model_, event, &parser_), &pieces_);
    if (last) parser_.Finish(&pieces_);
    for (const ReplyPiece& piece : pieces_) {
      if (!Take(piece)) return false;
    }
    if (last) cut_ = FinishReason(event.finish) == "length";
    return true;
  }

  bool OnWaiting(const Reply&) override {
    return !request_.stream || exchange_.Write(": waiting\n\n");
  }

  void EndStream(const Generation& generation, const ApiError& error) {
    if (!error.ok()) {
      JsonObject failed;
      failed.Add("code", error.code.empty() ? "server_error" : error.code)
          .Add("message", error.message);
      (void)Send("error", std::move(failed));
    } else if (CloseMessage()) {
      (void)Send(cut_ ? "response.incomplete" : "response.completed",
                 JsonObject().AddRaw("response", Whole(generation)));
    }
    (void)exchange_.EndStream();
  }

  std::string Whole(const Generation& generation) {
    if (!request_.stream && (message_open_ || items_.empty())) AddMessageItem();
    JsonObject usage;
    usage.Add("input_tokens", generation.prompt_tokens())
        .AddRaw("input_tokens_details",
                JsonObject().Add("cached_tokens", generation.cached_tokens()).Finish())
        .Add("output_tokens", generation.generated_tokens())
        .AddRaw("output_tokens_details", JsonObject().Add("reasoning_tokens", uint64_t{0}).Finish())
        .Add("total_tokens", generation.prompt_tokens() + generation.generated_tokens());
    const char* details = cut_ ? R"({"reason": "max_output_tokens"})" : "null";
    return Response(cut_ ? "incomplete" : "completed", usage.Finish(), details);
  }

 private:
  // A call that is shown while it is written.
  struct OpenCall {
    std::string item_id, call_id, name, arguments;
    uint64_t output_index = 0;
  };

  std::string Response(const char* status, const std::string& usage, const char* incomplete) const {
    std::string items;
    for (const std::string& item : items_) {
      if (!items.empty()) items += ", ";
      items += item;
    }
    return JsonObject()
        .Add("id", id_)
        .Add("object", "response")
        .Add("created_at", created_)
        .Add("status", status)
        .AddRaw("error", "null")
        .AddRaw("incomplete_details", incomplete)
        .AddRaw("instructions", "null")
        .Add("model", model_.name)
        .AddRaw("output", Bracketed(items))
        .Add("parallel_tool_calls", request_.parallel_tool_calls)
        .AddRaw("tools", request_.tools.empty() ? "[]" : request_.tools)
        .Add("tool_choice", "auto")
        .AddRaw("metadata", "{}")
        .AddRaw("usage", usage)
        .Finish();
  }

  std::string TextPart() const {
    return JsonObject()
        .Add("type", "output_text")
        .Add("text", text_)
        .AddRaw("annotations", "[]")
        .Finish();
  }
  std::string MessageItem(const char* status, const std::string& parts) const {
    return JsonObject()
        .Add("id", message_id_)
        .Add("type", "message")
        .Add("status", status)
        .Add("role", "assistant")
        .AddRaw("content", Bracketed(parts))
        .Finish();
  }
  void AddMessageItem() {
    items_.push_back(MessageItem("completed", TextPart()));
    message_open_ = false;
  }
  JsonObject AtItem() const {
    JsonObject object;
    object.Add("item_id", message_id_)
        .Add("output_index", static_cast<uint64_t>(items_.size()))
        .Add("content_index", uint64_t{0});
    return object;
  }

  bool Take(const ReplyPiece& piece) {
    switch (piece.kind) {
      case ReplyPiece::Kind::kReasoning:
        return true;  // the API does not show it
      case ReplyPiece::Kind::kContent:
        if (!message_open_) {
          message_open_ = true;
          if (request_.stream && !OpenMessage()) return false;
        }
        text_ += piece.text;
        return !request_.stream ||
               Send("response.output_text.delta", AtItem().Add("delta", piece.text));
      case ReplyPiece::Kind::kCallBegin:
        return BeginCall(piece.tool_name);
      case ReplyPiece::Kind::kCallArguments: {
        OpenCall& call = calls_[piece.call];
        call.arguments += piece.text;
        return !request_.stream || Send("response.function_call_arguments.delta",
                                        AtCall(call).Add("delta", piece.text));
      }
      case ReplyPiece::Kind::kCallEnd:
        state_.metrics.tool_calls.fetch_add(1, std::memory_order_relaxed);
        return EndCall(calls_[piece.call]);
      case ReplyPiece::Kind::kCallBroken:
        return BreakCall(calls_[piece.call]);
    }
    return true;
  }

  bool OpenMessage() {
    return Send("response.output_item.added",
                JsonObject()
                    .Add("output_index", static_cast<uint64_t>(items_.size()))
                    .AddRaw("item", MessageItem("in_progress", ""))) &&
           Send("response.content_part.added", AtItem().AddRaw("part", TextPart()));
  }

  // Ends the message that is open; a reply without anything gets an empty one.
  bool CloseMessage() {
    if (!message_open_ && !items_.empty()) return true;
    if (!message_open_ && !OpenMessage()) return false;
    const bool sent = Send("response.output_text.done", AtItem().Add("text", text_)) &&
                      Send("response.content_part.done", AtItem().AddRaw("part", TextPart())) &&
                      Send("response.output_item.done",
                           JsonObject()
                               .Add("output_index", static_cast<uint64_t>(items_.size()))
                               .AddRaw("item", MessageItem("completed", TextPart())));
    AddMessageItem();
    return sent;
  }

  static std::string CallItem(const OpenCall& call, const char* status) {
    return JsonObject()
        .Add("id", call.item_id)
        .Add("type", "function_call")
        .Add("status", status)
        .Add("call_id", call.call_id)
        .Add("name", call.name)
        .Add("arguments", call.arguments)
        .Finish();
  }
  static JsonObject AtCall(const OpenCall& call) {
    JsonObject object;
    object.Add("item_id", call.item_id).Add("output_index", call.output_index);
    return object;
  }
  bool SendItem(const char* type, const OpenCall& call, const std::string& item) {
    return Send(type, JsonObject().Add("output_index", call.output_index).AddRaw("item", item));
  }

  bool BeginCall(const std::string& name) {
    calls_.push_back({NewId("fc"), NewId("call"), name, {}, 0});
    if (!request_.stream) return true;  // it may still turn out to be none
    if (!EndMessage()) return false;
    OpenCall& call = calls_.back();
    call.output_index = items_.size();
    items_.push_back(CallItem(call, "in_progress"));
    return SendItem("response.output_item.added", call, items_.back());
  }

  bool EndCall(const OpenCall& call) {
    if (!request_.stream) {
      (void)EndMessage();
      items_.push_back(CallItem(call, "completed"));
      return true;
    }
    std::string& item = items_[call.output_index];
    item = CallItem(call, "completed");
    return Send("response.function_call_arguments.done",
                AtCall(call).Add("name", call.name).Add("arguments", call.arguments)) &&
           SendItem("response.output_item.done", call, item);
  }

  // What was no call stays in a stream as an item that is incomplete; its text comes as a message.
  bool BreakCall(const OpenCall& call) {
    if (!request_.stream) return true;
    std::string& item = items_[call.output_index];
    item = CallItem(call, "incomplete");
    return SendItem("response.output_item.done", call, item);
  }

  // Before a call: the message that is open ends, and what follows the call is another.
  bool EndMessage() {
    if (!message_open_) return true;
    if (request_.stream && !CloseMessage()) return false;
    if (!request_.stream) AddMessageItem();
    text_.clear();
    message_id_ = NewId("msg");
    return true;
  }

  bool Send(const char* type, JsonObject object) {
    object.Add("type", type).Add("sequence_number", sequence_++);
    std::string event = "event: ";
    return exchange_.Write(
        event.append(type).append("\ndata: ").append(object.Finish()).append("\n\n"));
  }

  ServerState& state_;
  const GenerateRequest& request_;
  const OpenModelState& model_;
  HttpExchange& exchange_;
  ReplyParser parser_;
  std::string id_, message_id_;
  int64_t created_;
  std::vector<ReplyPiece> pieces_;
  std::vector<std::string> items_;  // output items, but for the message that is open
  std::vector<OpenCall> calls_;     // by their numbers
  std::string text_;                // of the message that is open
  bool message_open_ = false;
  bool cut_ = false;
  uint64_t sequence_ = 0;
};

}  // namespace

int ServeResponses(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ApiError error = ParseBody(exchange.request().body, &body);
  GenerateRequest request;
  std::vector<std::string> unknown;
  if (error.ok()) error = ParseResponsesRequest(body->root(), &request, &unknown);
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
  ReplyFormat format;
  if (error.ok()) error = FindReplyFormat(*model, request, &format);
  if (!error.ok()) return Answer(exchange, error, {});
  Generation generation(request, model, std::move(kept), exchange.socket());
  error = generation.Start(CELLM_REQUEST_SHOW_SPECIAL);
  if (!error.ok()) return Answer(exchange, error, {});
  ResponseShaper shaper(state, request, *model, exchange, format);
  if (!generation.note().empty()) state.NoteOnce(generation.note());
  const bool begun = !request.stream || shaper.BeginStream();
  if (begun) error = generation.Run(state.options.generation, &shaper);
  for (const GenerationChoice& choice : generation.choices()) {
    if (choice.ended) state.metrics.CountReply(choice.receipt);
  }
  if (!begun || generation.client_gone()) {
    state.metrics.departed.fetch_add(1, std::memory_order_relaxed);
    return 499;
  }
  if (request.stream) {
    shaper.EndStream(generation, error);
    return 200;
  }
  return Answer(exchange, error, error.ok() ? shaper.Whole(generation) : std::string());
}

}  // namespace cellm::tools::serve
