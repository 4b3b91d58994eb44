#include "capi/chat_template.h"

#include <algorithm>

namespace cellm::capi {
namespace {

// Built-in formats, each with a token that shows that a tokenizer is made for it. gemma4 is not
// one of the engine's own four: an ancestor's flag names it, and files without a template exist.
struct BuiltIn {
  std::string_view name;
  std::string_view sign;
  std::string_view source;  // empty: the template engine has it
};
constexpr BuiltIn kBuiltIns[] = {
    {"chatml", "<|im_start|>", ""},
    {"gemma4", "<|turn>",
     "{{- bos_token }}{%- set ns = namespace(system='') %}{%- for message in messages %}"
     "{%- if message.role == 'system' %}{%- set ns.system = message.content ~ '\n\n' %}"
     "{%- else %}"
     "{{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}"
     "{{- ns.system }}{{- message.content }}{{- '<turn|>\n' }}{%- set ns.system = '' %}"
     "{%- endif %}{%- endfor %}"
     "{%- if add_generation_prompt %}{{- '<|turn>model\n' }}{%- endif %}"},
    {"gemma", "<start_of_turn>", ""},
    {"llama3", "<|start_header_id|>", ""},
    {"plain", "", ""},
};

// Tokens that end a turn wherever a template writes them.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>", "<end_of_turn>", "<turn|>", "<|eot_id|>",
                                          "<|eom_id|>"};

Result<const BuiltIn*> FindBuiltIn(std::string_view name) {
  for (const BuiltIn& format : kBuiltIns) {
    if (format.name == name) return &format;
  }
  return InvalidArgument(
      "chat_format \"%.*s\" is unknown; there are auto, chatml, gemma, gemma4, "
      "llama3 and plain",
      static_cast<int>(std::min<size_t>(name.size(), 40)), name.data());
}

// The format whose sign the tokenizer has; plain is last and has none.
const BuiltIn* GuessBuiltIn(const tokenizer::Tokenizer& tokenizer) {
  for (const BuiltIn& format : kBuiltIns) {
    if (format.sign.empty() || tokenizer.TokenToId(format.sign) >= 0) return &format;
  }
  return nullptr;
}

std::string_view SourceOf(const BuiltIn& format) {
  jinja::ChatFormat known = jinja::ChatFormat::kPlain;
  if (!format.source.empty() || !jinja::ParseChatFormat(format.name, &known)) return format.source;
  return jinja::ChatFormatSource(known);
}

}  // namespace

Status ChooseTemplate(const TemplateSources& sources, const jinja::SpecialTokens& tokens,
                      const tokenizer::Tokenizer& tokenizer, ModelTemplate* out) {
  const BuiltIn* built_in = nullptr;
  if (!sources.format.empty() && sources.format != "auto") {
    CELLM_ASSIGN_OR_RETURN(built_in, FindBuiltIn(sources.format));
  } else if (sources.given.empty() && sources.own.empty()) {
    built_in = GuessBuiltIn(tokenizer);
  }
  std::vector<std::pair<std::string, std::string>> chosen = sources.own;
  out->name = "the model's own";
  if (built_in != nullptr) {
    chosen = {{"default", std::string(SourceOf(*built_in))}};
    out->name = built_in->name;
  } else if (!sources.given.empty()) {
    chosen = {{"default", std::string(sources.given)}};
    out->name = "the caller's";
  }
  CELLM_ASSIGN_OR_RETURN(out->parsed, jinja::ChatTemplate::FromNamed(chosen, tokens));
  out->hash = built_in != nullptr ? 0 : out->parsed->SourceHash(false);
  for (const std::string_view token : kTurnEnds) {
    const int32_t id = tokenizer.TokenToId(token);
    const bool written = std::any_of(chosen.begin(), chosen.end(), [&](const auto& named) {
      return named.second.find(token) != std::string::npos;
    });
    if (id >= 0 && written) out->end_ids.push_back(id);
  }
  return OkStatus();
}

}  // namespace cellm::capi
