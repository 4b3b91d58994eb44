#include "cellm/serve/reply_format.h"

#include <algorithm>

#include "cellm/serve/token_text.h"

namespace cellm::tools::serve {
namespace {

enum TokenKind : uint8_t { kUnknown = 0, kPlain = 1, kMark = 2, kSpecial = 3 };

// Special: what the tokenizer leaves out when it is asked to skip special tokens.
uint8_t KindOf(const OpenModelState& model, int32_t id) {
  const size_t index = static_cast<size_t>(id);
  if (id < 0 || index >= model.token_kinds.size()) return kPlain;
  // Relaxed: every thread finds the same out, and nothing else depends on it.
  uint8_t kind = model.token_kinds[index].load(std::memory_order_relaxed);
  if (kind != kUnknown) return kind;
  size_t bytes = 0;
  (void)cellm_model_detokenize(model.model.get(), &id, 1, CELLM_DETOKENIZE_SKIP_SPECIAL, nullptr, 0,
                               &bytes, nullptr);
  const std::string text = TokenBytes(model.model.get(), id);
  kind = bytes > 0 || text.empty() ? kPlain : IsMark(text) ? kMark : kSpecial;
  model.token_kinds[index].store(kind, std::memory_order_relaxed);
  return kind;
}

}  // namespace

ApiError RenderPrompt(const OpenModelState& model, const GenerateRequest& request,
                      uint32_t chat_flags, std::string* prompt) {
  cellm_chat chat = CELLM_CHAT_INIT;
  chat.flags = chat_flags;
  chat.messages = ToText(request.messages);
  chat.tools = ToText(request.tools);
  chat.template_args = ToText(request.template_args);
  cellm_error error = CELLM_ERROR_INIT;
  size_t bytes = 0;
  cellm_status status =
      cellm_model_render_chat(model.model.get(), &chat, nullptr, 0, &bytes, &error);
  if (status == CELLM_OUT_OF_RANGE) {
    // A template that asks for the time may write a longer text the second time; not in practice.
    prompt->resize(bytes);
    status = cellm_model_render_chat(model.model.get(), &chat, prompt->data(), prompt->size(),
                                     &bytes, &error);
    prompt->resize(std::min(prompt->size(), bytes));
  }
  return status == CELLM_OK ? ApiError() : FromCellm(error, "messages");
}

ApiError FindReplyFormat(const OpenModelState& model, const GenerateRequest& request,
                         ReplyFormat* format) {
  std::string prompt;
  const ApiError error = RenderPrompt(model, request, 0, &prompt);
  if (!error.ok()) return error;
  ReadPromptEnd(prompt, format);
  format->split_reasoning = request.split_reasoning;
  format->one_call = !request.parallel_tool_calls;
  if (request.tool_choice != ToolChoice::kNone) format->tools = request.tool_list;
  return {};
}

std::string_view VisibleText(const OpenModelState& model, const TokenEvent& event,
                             ReplyParser* parser) {
  std::string_view text = event.text;
  if (event.token_id < 0) return text;
  if (event.finish == CELLM_FINISH_END) {
    const std::string end = TokenBytes(model.model.get(), event.token_id);
    if (text.ends_with(end)) text.remove_suffix(end.size());
    return text;
  }
  if (KindOf(model, event.token_id) == kSpecial) {
    parser->Drop(TokenBytes(model.model.get(), event.token_id));
  }
  return text;
}

}  // namespace cellm::tools::serve
