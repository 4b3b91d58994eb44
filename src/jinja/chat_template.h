#ifndef CELLM_SRC_JINJA_CHAT_TEMPLATE_H_
#define CELLM_SRC_JINJA_CHAT_TEMPLATE_H_

// From a conversation to the prompt that a model was trained on.
//
// A model file carries a template, or several under names ("default", "tool_use"); files without
// one use a built-in format that the user names. The environment is filled as the reference
// (transformers) does: the names of the special tokens that the model has, messages, tools and
// documents (none when absent), add_generation_prompt and the caller's own arguments. Nothing is
// guessed from a model's name.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/template.h"

namespace cellm::jinja {

// Texts of the special tokens, under the names that templates know. What is absent is undefined
// in the template, as the reference has it.
struct SpecialTokens {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> unk_token;
  std::optional<std::string> sep_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> cls_token;
  std::optional<std::string> mask_token;
  std::vector<std::string> additional_special_tokens;
};

enum class ChatFormat { kChatMl, kGemma, kLlama3, kPlain };
// "chatml", "gemma", "llama3", "plain". False for other names.
bool ParseChatFormat(std::string_view name, ChatFormat* out);
// The Jinja source of a built-in format.
std::string_view ChatFormatSource(ChatFormat format);

// What to render. Values come from Value::FromJson(..., false): whatever a caller sends is
// untrusted, whichever way it comes in.
struct ChatInput {
  Value messages;  // a list of dicts
  Value tools;     // missing: none
  Value documents;
  bool add_generation_prompt = true;
  // The last message is the beginning of the reply: the prompt ends where that message's text ends.
  // Requires add_generation_prompt false.
  bool continue_final_message = false;
  std::vector<std::pair<std::string, Value>> arguments;  // override every other variable
};

class ChatTemplate {
 public:
  // One template text.
  static Result<ChatTemplate> FromSource(std::string_view source, SpecialTokens tokens,
                                         Error* error = nullptr);
  // Named ones, in the file's order. InvalidArgument when there is none.
  static Result<ChatTemplate> FromNamed(
      const std::vector<std::pair<std::string, std::string>>& sources, SpecialTokens tokens,
      Error* error = nullptr);
  static Result<ChatTemplate> FromFormat(ChatFormat format, SpecialTokens tokens);

  // Renders; errors as Template::Render. With several templates: "tool_use" when there are tools
  // and it exists, else "default".
  //   InvalidArgument  also when messages is not a list, or the message to continue has no text,
  //                    or the template left that text out
  Result<Rendered> Render(const ChatInput& input, const RenderOptions& options,
                          Error* error = nullptr) const;
  // Renders with exactly these variables (a dict) plus the special tokens that it does not name.
  Result<Rendered> RenderVariables(const Value& variables, const RenderOptions& options,
                                   Error* error = nullptr) const;

  // XXH3 of the source that `input` selects, for receipts: which template made this prompt.
  uint64_t SourceHash(bool with_tools) const;
  // Whether the template (the default one) asks for a variable of this name, e.g.
  // "enable_thinking".
  bool Mentions(std::string_view name) const;
  const SpecialTokens& tokens() const { return tokens_; }

 private:
  struct Named {
    std::string name;
    uint64_t hash;
    Template parsed;
  };
  explicit ChatTemplate(SpecialTokens tokens) : tokens_(std::move(tokens)) {}
  const Named& Select(bool with_tools) const;
  std::vector<std::pair<std::string, Value>> TokenVariables() const;
  Result<Rendered> RenderContinued(const ChatInput& input, const RenderOptions& options,
                                   Error* error) const;

  SpecialTokens tokens_;
  std::vector<Named> templates_;  // at least one
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_CHAT_TEMPLATE_H_
