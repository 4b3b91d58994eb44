// /tokenize, /detokenize, /apply-template, /count_tokens: text and ids, without computing anything.
#include <memory>
#include <string>
#include <vector>

#include "cellm/serve/endpoints.h"
#include "cellm/serve/openai_request.h"
#include "cellm/serve/reply_format.h"
#include "cellm/serve/token_text.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

// Calls `call(buffer, capacity, needed, error)` of the C API once for the size and once to fill.
template <typename Element, typename Call>
ApiError Fill(std::vector<Element>* out, const char* param, const Call& call) {
  cellm_error error = CELLM_ERROR_INIT;
  size_t count = 0;
  cellm_status status = call(nullptr, 0, &count, &error);
  if (status == CELLM_OUT_OF_RANGE && count > 0) {
    out->resize(count);
    status = call(out->data(), out->size(), &count, &error);
  }
  return status == CELLM_OK ? ApiError() : FromCellm(error, param);
}

ApiError Tokenize(const OpenModelState& model, const std::string& text, uint32_t flags,
                  std::vector<int32_t>* ids) {
  return Fill(ids, "content", [&](int32_t* data, size_t room, size_t* count, cellm_error* error) {
    return cellm_model_tokenize(model.model.get(), text.data(), text.size(), flags, data, room,
                                count, error);
  });
}

// The model of a body, and the body's fields that every endpoint here has.
ApiError Begin(ServerState& state, HttpExchange& exchange, std::unique_ptr<json::Document>* body,
               ModelLease* model) {
  ApiError error = ParseBody(exchange.request().body, body);
  std::string name;
  if (error.ok()) {
    Fields fields((*body)->root());
    (void)fields.Text("model", &name);
    error = fields.error();
  }
  return error.ok() ? state.models.Acquire(name, model) : error;
}

// The pieces of text that the ids stand for, beside them.
std::string PiecesJson(const OpenModelState& model, const std::vector<int32_t>& ids) {
  std::string list;
  for (const int32_t id : ids) {
    if (!list.empty()) list += ", ";
    list += JsonObject().Add("id", id).Add("piece", TokenBytes(model.model.get(), id)).Finish();
  }
  return Bracketed(list);
}

}  // namespace

int ServeTokenize(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ModelLease model;
  ApiError error = Begin(state, exchange, &body, &model);
  if (!error.ok()) return Answer(exchange, error, {});
  Fields fields(body->root());
  std::string text;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
  if (!fields.Text("content", &text) && !fields.Text("text", &text) && fields.ok()) {
    fields.Fail("content", "missing", "missing_required_parameter");
  }
  (void)fields.Bool("add_special", &add_special);
  (void)fields.Bool("parse_special", &parse_special);
  (void)fields.Bool("with_pieces", &with_pieces);
  std::vector<int32_t> ids;
  error = fields.error();
  const uint32_t flags = (add_special ? CELLM_TOKENIZE_ADD_SPECIAL : 0) |
                         (parse_special ? CELLM_TOKENIZE_PARSE_SPECIAL : 0);
  if (error.ok()) error = Tokenize(*model, text, flags, &ids);
  return Answer(exchange, error,
                JsonObject()
                    .AddRaw("tokens", with_pieces ? PiecesJson(*model, ids) : JsonIds(ids))
                    .Add("count", static_cast<uint64_t>(ids.size()))
                    .Finish());
}

int ServeDetokenize(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ModelLease model;
  ApiError error = Begin(state, exchange, &body, &model);
  if (!error.ok()) return Answer(exchange, error, {});
  Fields fields(body->root());
  json::Value tokens;
  bool skip_special = false;
  if (!fields.Array("tokens", &tokens) && fields.ok()) {
    fields.Fail("tokens", "missing", "missing_required_parameter");
  }
  (void)fields.Bool("skip_special", &skip_special);
  std::vector<int32_t> ids;
  for (json::Value v = tokens.First(); fields.ok() && v.exists(); v = tokens.Next(v)) {
    int64_t id = 0;
    if (!v.GetInt64(&id) || id < 0 || id >= model->vocabulary) {
      fields.Fail("tokens", StrFormat("expected ids from 0 to %d", model->vocabulary - 1),
                  "invalid_value");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  error = fields.error();
  std::vector<char> text;
  if (error.ok()) {
    error =
        Fill(&text, "tokens", [&](char* data, size_t room, size_t* count, cellm_error* failure) {
          return cellm_model_detokenize(model->model.get(), ids.data(), ids.size(),
                                        skip_special ? CELLM_DETOKENIZE_SKIP_SPECIAL : 0, data,
                                        room, count, failure);
        });
  }
  return Answer(exchange, error,
                JsonObject().Add("content", std::string_view(text.data(), text.size())).Finish());
}

int ServeApplyTemplate(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ModelLease model;
  ApiError error = Begin(state, exchange, &body, &model);
  GenerateRequest request;
  std::vector<std::string> unknown;
  if (error.ok()) error = ParseChatRequest(body->root(), &request, &unknown);
  bool prompt_mark = true;
  if (error.ok()) {
    Fields fields(body->root());
    (void)fields.Bool("add_generation_prompt", &prompt_mark);
    error = fields.error();
  }
  std::string prompt;
  if (error.ok()) {
    error = RenderPrompt(*model, request, prompt_mark ? 0 : CELLM_CHAT_NO_PROMPT, &prompt);
  }
  return Answer(exchange, error, JsonObject().Add("prompt", prompt).Finish());
}

// What the same body would cost as a chat request, or a text as a prompt: equals the prompt_tokens
// of the usage that comes later.
int ServeCountTokens(ServerState& state, HttpExchange& exchange) {
  std::unique_ptr<json::Document> body;
  ModelLease model;
  ApiError error = Begin(state, exchange, &body, &model);
  if (!error.ok()) return Answer(exchange, error, {});
  std::vector<int32_t> ids;
  GenerateRequest request;
  std::vector<std::string> unknown;
  if (body->root().Find("messages").exists()) {
    error = ParseChatRequest(body->root(), &request, &unknown);
    cellm_chat chat = CELLM_CHAT_INIT;
    chat.messages = ToText(request.messages);
    chat.tools = ToText(request.tools);
    chat.template_args = ToText(request.template_args);
    if (error.ok()) {
      error = Fill(
          &ids, "messages", [&](int32_t* data, size_t room, size_t* count, cellm_error* failure) {
            return cellm_model_tokenize_chat(model->model.get(), &chat, data, room, count, failure);
          });
    }
  } else {
    error = ParseCompletionRequest(body->root(), &request, &unknown);
    if (error.ok() && request.prompts.size() != 1) {
      error = BadField("messages", "expected messages, or a prompt of text", "invalid_type");
    }
    if (error.ok()) error = Tokenize(*model, request.prompts[0], CELLM_TOKENIZE_ADD_SPECIAL, &ids);
  }
  const uint64_t context = model->context_tokens;
  const uint64_t count = ids.size();
  return Answer(exchange, error,
                JsonObject()
                    .Add("object", "token_count")
                    .Add("input_tokens", count)
                    .Add("context_tokens", context)
                    .Add("available", context > count ? context - count : uint64_t{0})
                    .Finish());
}

}  // namespace cellm::tools::serve
