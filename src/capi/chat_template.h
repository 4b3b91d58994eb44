#ifndef CELLM_SRC_CAPI_CHAT_TEMPLATE_H_
#define CELLM_SRC_CAPI_CHAT_TEMPLATE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace cellm::capi {

// The template that a model's chats are rendered with, and why that one.
struct ModelTemplate {
  std::string name;   // "the model's own", "the caller's", "chatml", "gemma", ...
  uint64_t hash = 0;  // XXH3-64 of the text; 0 for a built-in format
  std::optional<jinja::ChatTemplate> parsed;
  // Ids of tokens that end a turn in this template, beside the end ids of the model's files.
  std::vector<int32_t> end_ids;
};

// What there is to choose from.
struct TemplateSources {
  // The model's: one, or several under names. Empty: none.
  std::vector<std::pair<std::string, std::string>> own;
  std::string_view given;   // the caller's text; empty: none
  std::string_view format;  // a built-in format by name; empty or "auto": the above, else by tokens
};

// Picks and parses: the format that is named, else the caller's text, else the model's own, else
// the built-in format whose tokens the tokenizer has, else plain.
//   InvalidArgument  an unknown format
//   Unsupported, Corrupt  a template that we cannot run (message: line and symbol)
Status ChooseTemplate(const TemplateSources& sources, const jinja::SpecialTokens& tokens,
                      const tokenizer::Tokenizer& tokenizer, ModelTemplate* out);

}  // namespace cellm::capi

#endif  // CELLM_SRC_CAPI_CHAT_TEMPLATE_H_
