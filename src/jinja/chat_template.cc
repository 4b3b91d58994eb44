#include "jinja/chat_template.h"

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "jinja/python_text.h"

namespace cellm::jinja {

namespace {

constexpr std::string_view kContinueMarker = "CONTINUE_FINAL_MESSAGE_TAG ";

// ---- Built-in formats ----

// The text of a message: its content, or the text parts of a content that is a list.
#define CELLM_SET_TEXT                                                                \
  "{%- set text = message.content if message.content is string else message.content " \
  "| selectattr('type', 'equalto', 'text') | map(attribute='text') | join -%}\n"

constexpr std::string_view kChatMlSource = "{%- for message in messages -%}\n" CELLM_SET_TEXT
                                           "<|im_start|>{{ message.role }}\n"
                                           "{{ text }}<|im_end|>{{ '\\n' }}\n"
                                           "{%- endfor -%}\n"
                                           "{%- if add_generation_prompt -%}\n"
                                           "<|im_start|>assistant{{ '\\n' }}\n"
                                           "{%- endif -%}\n";

// Gemma has no system turn: a system message opens the first user turn.
constexpr std::string_view kGemmaSource =
    "{{ bos_token if bos_token is defined else '' }}\n"
    "{%- set ns = namespace(system='') -%}\n"
    "{%- for message in messages -%}\n" CELLM_SET_TEXT
    "{%- if message.role == 'system' -%}\n"
    "{%- set ns.system = text ~ '\\n\\n' -%}\n"
    "{%- else -%}\n"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{{ (ns.system if message.role == 'user' else '') ~ text | trim }}"
    "<end_of_turn>{{ '\\n' }}\n"
    "{%- if message.role == 'user' -%}{%- set ns.system = '' -%}{%- endif -%}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "<start_of_turn>model{{ '\\n' }}\n"
    "{%- endif -%}\n";

constexpr std::string_view kLlama3Source =
    "{{ bos_token if bos_token is defined else '' }}\n"
    "{%- for message in messages -%}\n" CELLM_SET_TEXT
    "<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ text | trim }}<|eot_id|>\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}\n"
    "{%- endif -%}\n";

// For models that were never trained on turns: a transcript in words.
constexpr std::string_view kPlainSource =
    "{{ bos_token if bos_token is defined else '' }}\n"
    "{%- for message in messages -%}\n" CELLM_SET_TEXT
    "{%- if message.role == 'system' -%}\n"
    "{{ text ~ '\\n\\n' }}\n"
    "{%- else -%}\n"
    "{{ message.role | capitalize ~ ': ' ~ text ~ '\\n' }}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "Assistant:\n"
    "{%- endif -%}\n";

#undef CELLM_SET_TEXT

struct Format {
  std::string_view name;
  ChatFormat format;
  std::string_view source;
};
constexpr Format kFormats[] = {
    {"chatml", ChatFormat::kChatMl, kChatMlSource},
    {"gemma", ChatFormat::kGemma, kGemmaSource},
    {"llama3", ChatFormat::kLlama3, kLlama3Source},
    {"plain", ChatFormat::kPlain, kPlainSource},
};

// ---- Roles ----

// Templates build control tokens around a role: "<|" + message.role + "|>". These names are part of
// the protocol, not of what a user wrote, so they count as the template's own; any other role stays
// untrusted and can never complete a control token.
constexpr std::string_view kKnownRoles[] = {
    "system", "user",    "assistant",   "tool",        "developer", "function",      "ipython",
    "model",  "context", "observation", "environment", "critic",    "tool_response", "documents"};

Value WithKnownRole(const Value& message) {
  const Value role = message.Member("role");
  if (!role.Is(Kind::kString)) return message;
  const std::string& name = role.text()->bytes();
  const bool known =
      std::find(std::begin(kKnownRoles), std::end(kKnownRoles), name) != std::end(kKnownRoles);
  return known ? message.WithMember("role", Value::String(name, true)) : message;
}

Value WithKnownRoles(const Value& messages) {
  std::vector<Value> marked;
  marked.reserve(messages.ItemCount());
  for (size_t i = 0; i < messages.ItemCount(); ++i)
    marked.push_back(WithKnownRole(messages.Item(i)));
  return Value::List(std::move(marked));
}

Status Fail(Error* error, ErrorKind kind, std::string message) {
  if (error != nullptr) *error = {kind, message, 0};
  return Status(StatusCode::kInvalidArgument,
                "chat template: " + std::string(ErrorKindName(kind)) + ": " + message);
}

// `text` cut at byte `end`.
void CutAt(Rendered* rendered, size_t end) {
  rendered->text.resize(end);
  std::vector<Run>& runs = rendered->runs;
  while (!runs.empty() && runs.size() > 1 && runs[runs.size() - 2].end >= end) runs.pop_back();
  if (!runs.empty()) runs.back().end = end;
  if (end == 0) runs.clear();
}

}  // namespace

bool ParseChatFormat(std::string_view name, ChatFormat* out) {
  for (const Format& row : kFormats) {
    if (row.name != name) continue;
    *out = row.format;
    return true;
  }
  return false;
}

std::string_view ChatFormatSource(ChatFormat format) {
  for (const Format& row : kFormats) {
    if (row.format == format) return row.source;
  }
  return {};
}

Result<ChatTemplate> ChatTemplate::FromNamed(
    const std::vector<std::pair<std::string, std::string>>& sources, SpecialTokens tokens,
    Error* error) {
  if (sources.empty()) return InvalidArgument("chat_template: the file names no template");
  ChatTemplate chat(std::move(tokens));
  for (const auto& [name, source] : sources) {
    const std::string title = sources.size() == 1 ? "chat_template" : "chat_template " + name;
    CELLM_ASSIGN_OR_RETURN(Template parsed, Template::Parse(source, title, error));
    chat.templates_.push_back({name, HashXxh3(source), std::move(parsed)});
  }
  return chat;
}

Result<ChatTemplate> ChatTemplate::FromSource(std::string_view source, SpecialTokens tokens,
                                              Error* error) {
  return FromNamed({{"default", std::string(source)}}, std::move(tokens), error);
}

Result<ChatTemplate> ChatTemplate::FromFormat(ChatFormat format, SpecialTokens tokens) {
  return FromSource(ChatFormatSource(format), std::move(tokens), nullptr);
}

const ChatTemplate::Named& ChatTemplate::Select(bool with_tools) const {
  const Named* chosen = &templates_[0];
  for (const Named& named : templates_) {
    if (named.name == "default") chosen = &named;
  }
  for (const Named& named : templates_) {
    if (with_tools && named.name == "tool_use") chosen = &named;
  }
  return *chosen;
}

uint64_t ChatTemplate::SourceHash(bool with_tools) const { return Select(with_tools).hash; }

bool ChatTemplate::Mentions(std::string_view name) const {
  return Select(false).parsed.Mentions(name);
}

std::vector<std::pair<std::string, Value>> ChatTemplate::TokenVariables() const {
  std::vector<std::pair<std::string, Value>> variables;
  const auto add = [&](const char* name, const std::optional<std::string>& text) {
    if (text.has_value()) variables.emplace_back(name, Value::String(*text, true));
  };
  add("bos_token", tokens_.bos_token);
  add("eos_token", tokens_.eos_token);
  add("unk_token", tokens_.unk_token);
  add("sep_token", tokens_.sep_token);
  add("pad_token", tokens_.pad_token);
  add("cls_token", tokens_.cls_token);
  add("mask_token", tokens_.mask_token);
  if (!tokens_.additional_special_tokens.empty()) {
    std::vector<Value> list;
    for (const std::string& token : tokens_.additional_special_tokens) {
      list.push_back(Value::String(token, true));
    }
    variables.emplace_back("additional_special_tokens", Value::List(std::move(list)));
  }
  return variables;
}

Result<Rendered> ChatTemplate::RenderVariables(const Value& variables, const RenderOptions& options,
                                               Error* error) const {
  Value all = Value::Dict(TokenVariables());
  all = all.MergedWith(variables);
  const Value messages = all.Member("messages");
  if (messages.Is(Kind::kSequence)) all = all.WithMember("messages", WithKnownRoles(messages));
  const Value tools = all.Member("tools");
  return Select(tools.ItemCount() > 0).parsed.Render(all, options, error);
}

Result<Rendered> ChatTemplate::Render(const ChatInput& input, const RenderOptions& options,
                                      Error* error) const {
  if (!input.messages.Is(Kind::kSequence)) {
    return Fail(error, ErrorKind::kValueError, "messages is not a list");
  }
  if (input.continue_final_message) return RenderContinued(input, options, error);
  const auto or_none = [](const Value& value) { return value.missing() ? Value::None() : value; };
  std::vector<std::pair<std::string, Value>> members;
  members.emplace_back("messages", input.messages);
  members.emplace_back("tools", or_none(input.tools));
  members.emplace_back("documents", or_none(input.documents));
  members.emplace_back("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  for (const auto& [name, value] : input.arguments) members.emplace_back(name, value);
  return RenderVariables(Value::Dict(std::move(members)), options, error);
}

// As the reference does: a marker behind the last message's text shows where that text ends in the
// rendered chat, and everything from there on is cut off.
Result<Rendered> ChatTemplate::RenderContinued(const ChatInput& input, const RenderOptions& options,
                                               Error* error) const {
  if (input.add_generation_prompt) {
    return Fail(error, ErrorKind::kValueError,
                "continue_final_message and add_generation_prompt exclude each other");
  }
  if (input.messages.ItemCount() == 0) {
    return Fail(error, ErrorKind::kValueError, "continue_final_message: there is no message");
  }
  std::vector<Value> messages;
  for (size_t i = 0; i < input.messages.ItemCount(); ++i)
    messages.push_back(input.messages.Item(i));
  const Value content = messages.back().Member("content");
  if (content.text() == nullptr) {
    return Fail(error, ErrorKind::kValueError,
                "continue_final_message: the final message has no text");
  }
  const std::string final_text = content.text()->bytes();
  messages.back() = messages.back().WithMember(
      "content", Value::String(final_text + std::string(kContinueMarker), false));
  ChatInput marked = input;
  marked.messages = Value::List(std::move(messages));
  marked.continue_final_message = false;
  CELLM_ASSIGN_OR_RETURN(Rendered rendered, Render(marked, options, error));

  const std::string_view bare_marker = kContinueMarker.substr(0, kContinueMarker.size() - 1);
  std::string_view bare_text = std::string_view(final_text).substr(CountLeadingSpace(final_text));
  bare_text = bare_text.substr(0, TrimmedLength(bare_text));
  const size_t at = rendered.text.rfind(bare_marker);
  if (at == std::string::npos || rendered.text.find(bare_text) == std::string::npos) {
    return Fail(error, ErrorKind::kValueError,
                "continue_final_message: the final message is not in the rendered chat");
  }
  // A template that trimmed the marker's own blank would have trimmed the message's.
  const bool kept_blank = rendered.text.compare(at, kContinueMarker.size(), kContinueMarker) == 0;
  const size_t end = kept_blank ? at : TrimmedLength(std::string_view(rendered.text).substr(0, at));
  CutAt(&rendered, end);
  return rendered;
}

}  // namespace cellm::jinja
