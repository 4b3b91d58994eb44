#include "constrain/choices.h"

#include <memory>
#include <utility>

#include "json/json.h"

namespace cellm::constrain {

Result<Grammar> ChoicesGrammar(std::string_view text) {
  Result<std::unique_ptr<json::Document>> document = json::Document::Parse(text, "choices");
  if (!document.ok()) return InvalidArgument("%s", document.status().message().c_str());
  const json::Value list = document.value()->root();
  if (!list.is_array()) return InvalidArgument("not a JSON array of strings");
  std::vector<std::string> texts;
  for (json::Value item = list.First(); item.exists(); item = list.Next(item)) {
    std::string_view choice;
    if (!item.GetString(&choice)) {
      return InvalidArgument("entry %zu is not a string", texts.size());
    }
    texts.emplace_back(choice);
  }
  if (texts.empty()) return InvalidArgument("the list is empty: give at least one text");
  Grammar grammar;
  grammar.root = grammar.AddRule("choices");
  grammar.SetRule(grammar.root, grammar.Texts(std::move(texts)));
  return grammar;
}

}  // namespace cellm::constrain
