// Text and ids: the calls of cellm_model that need no engine, and templates alone.
#include <string>
#include <vector>

#include "capi/chat.h"
#include "capi/convert_args.h"
#include "capi/handles.h"

namespace cellm::capi {
namespace {

// The model behind the handle, which must have a tokenizer.
Result<std::shared_ptr<ModelState>> WithTokenizer(const cellm_model* model) {
  std::shared_ptr<ModelState> state = Find(model);
  if (state == nullptr) return NotOpen("model", model);
  if (state->tokenizer == nullptr) {
    return NotFound("%s has no tokenizer: give one, or use token ids", state->path.c_str());
  }
  return state;
}

Result<std::vector<int32_t>> Tokenize(const cellm_model* model, const char* text, size_t text_bytes,
                                      uint32_t flags) {
  CELLM_ASSIGN_OR_RETURN(const std::shared_ptr<ModelState> state, WithTokenizer(model));
  if ((flags & ~(CELLM_TOKENIZE_ADD_SPECIAL | CELLM_TOKENIZE_PARSE_SPECIAL)) != 0) {
    return Unsupported("cellm_model_tokenize: unknown flags 0x%x", flags);
  }
  std::string_view view;
  CELLM_RETURN_IF_ERROR(ReadText(text, text_bytes, "text", &view));
  tokenizer::EncodeOptions options;
  options.add_special = (flags & CELLM_TOKENIZE_ADD_SPECIAL) != 0;
  options.parse_special = (flags & CELLM_TOKENIZE_PARSE_SPECIAL) != 0;
  return state->tokenizer->Encode(view, options);
}

Result<std::string> Detokenize(const cellm_model* model, const int32_t* ids, size_t count,
                               uint32_t flags) {
  CELLM_ASSIGN_OR_RETURN(const std::shared_ptr<ModelState> state, WithTokenizer(model));
  if ((flags & ~CELLM_DETOKENIZE_SKIP_SPECIAL) != 0) {
    return Unsupported("cellm_model_detokenize: unknown flags 0x%x", flags);
  }
  if (ids == nullptr && count != 0) return InvalidArgument("ids is null but has %zu ids", count);
  return state->tokenizer->Decode({ids, count}, (flags & CELLM_DETOKENIZE_SKIP_SPECIAL) != 0);
}

Result<std::vector<int32_t>> TokenizeChat(const cellm_model* model, const cellm_chat* chat,
                                          ErrorDetails* details) {
  CELLM_ASSIGN_OR_RETURN(const std::shared_ptr<ModelState> state, WithTokenizer(model));
  CELLM_ASSIGN_OR_RETURN(const MarkedText text, RenderChat(*state, chat, details));
  return EncodeMarked(*state, text, 0);
}

Status CheckRenderFlags(uint32_t flags) {
  if ((flags & ~CELLM_CHAT_CONTINUE_FINAL) == 0) return OkStatus();
  return Unsupported("render: unknown flags 0x%x", flags);
}

}  // namespace
}  // namespace cellm::capi

using cellm::InvalidArgument;
using cellm::Result;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_model_tokenize(const cellm_model* model, const char* text, size_t text_bytes,
                                  uint32_t flags, int32_t* ids, size_t capacity, size_t* count,
                                  cellm_error* error) {
  const Result<std::vector<int32_t>> result = Tokenize(model, text, text_bytes, flags);
  if (!result.ok()) return Report(result.status(), error);
  return Report(WriteIds(result->data(), result->size(), ids, capacity, count), error);
}

cellm_status cellm_model_detokenize(const cellm_model* model, const int32_t* ids, size_t count,
                                    uint32_t flags, char* buffer, size_t capacity, size_t* bytes,
                                    cellm_error* error) {
  const Result<std::string> result = Detokenize(model, ids, count, flags);
  if (!result.ok()) return Report(result.status(), error);
  return Report(WriteBytes(*result, buffer, capacity, bytes), error);
}

cellm_status cellm_model_render_chat(const cellm_model* model, const cellm_chat* chat, char* buffer,
                                     size_t capacity, size_t* bytes, cellm_error* error) {
  const std::shared_ptr<ModelState> state = Find(model);
  if (state == nullptr) return Report(NotOpen("model", model), error);
  if (chat == nullptr) return Report(InvalidArgument("chat is null"), error);
  ErrorDetails details;
  const Result<MarkedText> result = RenderChat(*state, chat, &details);
  if (!result.ok()) return Report(result.status(), error, details);
  return Report(WriteBytes(result->bytes, buffer, capacity, bytes), error);
}

cellm_status cellm_model_tokenize_chat(const cellm_model* model, const cellm_chat* chat,
                                       int32_t* ids, size_t capacity, size_t* count,
                                       cellm_error* error) {
  if (chat == nullptr) return Report(InvalidArgument("chat is null"), error);
  ErrorDetails details;
  const Result<std::vector<int32_t>> result = TokenizeChat(model, chat, &details);
  if (!result.ok()) return Report(result.status(), error, details);
  return Report(WriteIds(result->data(), result->size(), ids, capacity, count), error);
}

cellm_status cellm_model_render_variables(const cellm_model* model, const char* variables,
                                          size_t variables_bytes, const char* now, size_t now_bytes,
                                          uint32_t flags, char* buffer, size_t capacity,
                                          size_t* bytes, cellm_error* error) {
  std::string_view variables_text;
  std::string_view now_text;
  const Result<std::shared_ptr<ModelState>> state = WithTokenizer(model);
  Status status = state.status();
  if (status.ok()) status = state.value()->template_status;
  if (status.ok()) status = CheckRenderFlags(flags);
  if (status.ok()) status = ReadText(variables, variables_bytes, "variables", &variables_text);
  if (status.ok()) status = ReadText(now, now_bytes, "now", &now_text);
  if (!status.ok()) return Report(status, error);
  ErrorDetails details;
  const Result<MarkedText> result =
      RenderFromJson(*state.value()->chat_template.parsed, variables_text, now_text,
                     (flags & CELLM_CHAT_CONTINUE_FINAL) != 0, &details);
  if (!result.ok()) return Report(result.status(), error, details);
  return Report(WriteBytes(result->bytes, buffer, capacity, bytes), error);
}

cellm_status cellm_template_render(const char* source, size_t source_bytes, const char* variables,
                                   size_t variables_bytes, const char* now, size_t now_bytes,
                                   uint32_t flags, char* buffer, size_t capacity, size_t* bytes,
                                   cellm_error* error) {
  std::string_view source_text;
  std::string_view variables_text;
  std::string_view now_text;
  Status status = CheckRenderFlags(flags);
  if (status.ok()) status = ReadText(source, source_bytes, "source", &source_text);
  if (status.ok()) status = ReadText(variables, variables_bytes, "variables", &variables_text);
  if (status.ok()) status = ReadText(now, now_bytes, "now", &now_text);
  if (!status.ok()) return Report(status, error);
  ErrorDetails details;
  cellm::jinja::Error problem;
  const Result<cellm::jinja::ChatTemplate> parsed =
      cellm::jinja::ChatTemplate::FromSource(source_text, {}, &problem);
  if (!parsed.ok()) {
    details.kind = cellm::jinja::ErrorKindName(problem.kind);
    return Report(parsed.status(), error, details);
  }
  const Result<MarkedText> result = RenderFromJson(
      *parsed, variables_text, now_text, (flags & CELLM_CHAT_CONTINUE_FINAL) != 0, &details);
  if (!result.ok()) return Report(result.status(), error, details);
  return Report(WriteBytes(result->bytes, buffer, capacity, bytes), error);
}

}  // extern "C"
