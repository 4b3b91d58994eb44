#include "constrain/structural.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "constrain/json_schema.h"
#include "json/json.h"

namespace cellm::constrain {
namespace {

constexpr size_t kMaxTags = 1000;
constexpr size_t kMaxTriggers = 100;
constexpr size_t kMaxLabelBytes = 4096;  // of a trigger, begin or end

// What is read one after the other: bytes, and control tokens above them.
constexpr int32_t kFirstToken = 256;
using Symbols = std::vector<int32_t>;

struct Tag {
  std::string begin, end;
  json::Value schema;  // missing: any value
};

struct Form {
  std::vector<std::string> triggers;
  std::vector<Tag> tags;
  bool at_least_one = false;
  bool stop_after_first = false;
};

Status ReadLabel(json::Value value, const char* what, std::string* out) {
  std::string_view text;
  if (!value.GetString(&text)) return InvalidArgument("%s must be a string", what);
  if (text.size() > kMaxLabelBytes) {
    return OutOfRange("%s has %zu bytes; at most %zu are taken", what, text.size(), kMaxLabelBytes);
  }
  *out = text;
  return OkStatus();
}

Status ReadFlag(json::Value root, const char* name, bool* out) {
  const json::Value value = root.Find(name);
  if (!value.exists() || value.GetBool(out)) return OkStatus();
  return InvalidArgument("\"%s\" must be true or false", name);
}

Status ReadForm(json::Value root, Form* form) {
  if (!root.is_object()) return InvalidArgument("not a JSON object");
  const json::Value triggers = root.Find("triggers");
  if (triggers.has_value() && !triggers.is_array()) {
    return InvalidArgument("\"triggers\" must be a list of strings");
  }
  if (triggers.size() > kMaxTriggers) {
    return OutOfRange("%zu triggers; at most %zu are taken", triggers.size(), kMaxTriggers);
  }
  for (json::Value t = triggers.is_array() ? triggers.First() : json::Value(); t.exists();
       t = triggers.Next(t)) {
    std::string text;
    CELLM_RETURN_IF_ERROR(ReadLabel(t, "a trigger", &text));
    if (text.empty()) return InvalidArgument("a trigger is empty");
    form->triggers.push_back(std::move(text));
  }
  const json::Value tags = root.Find("tags");
  if (!tags.is_array() || tags.size() == 0) {
    return InvalidArgument("\"tags\" must be a list of objects, not empty");
  }
  if (tags.size() > kMaxTags) {
    return OutOfRange("%zu tags; at most %zu are taken", tags.size(), kMaxTags);
  }
  for (json::Value t = tags.First(); t.exists(); t = tags.Next(t)) {
    if (!t.is_object()) return InvalidArgument("tag %zu is not an object", form->tags.size());
    Tag tag;
    CELLM_RETURN_IF_ERROR(ReadLabel(t.Find("begin"), "\"begin\" of a tag", &tag.begin));
    CELLM_RETURN_IF_ERROR(ReadLabel(t.Find("end"), "\"end\" of a tag", &tag.end));
    tag.schema = t.Find("schema");
    form->tags.push_back(std::move(tag));
  }
  CELLM_RETURN_IF_ERROR(ReadFlag(root, "at_least_one", &form->at_least_one));
  return ReadFlag(root, "stop_after_first", &form->stop_after_first);
}

class StructuralBuilder {
 public:
  StructuralBuilder(const Form& form, std::span<const TokenTrie::Control> controls)
      : form_(form), controls_(controls) {}

  Result<Grammar> Run() {
    grammar_.root = grammar_.AddRule("structural");
    CELLM_RETURN_IF_ERROR(AddTagBodies());
    CELLM_ASSIGN_OR_RETURN(const ExprId root, form_.triggers.empty() ? TagsOnly() : FreeText());
    grammar_.SetRule(grammar_.root, root);
    return std::move(grammar_);
  }

 private:
  // A state of the search for triggers: the longest beginning of one that the text ends with.
  struct Search {
    std::map<int32_t, int32_t> next;  // by symbol, as in the tree of triggers
    int32_t fallback = 0;
    int32_t trigger = -1;  // complete here; the longest of several
  };

  // A text's symbols, with its control tokens as such.
  Symbols SymbolsOf(std::string_view text) const {
    Symbols out;
    for (size_t at = 0; at < text.size();) {
      const TokenTrie::Control* longest = nullptr;
      for (const TokenTrie::Control& control : controls_) {
        const bool here =
            !control.text.empty() && text.substr(at, control.text.size()) == control.text;
        if (here && (longest == nullptr || control.text.size() > longest->text.size())) {
          longest = &control;
        }
      }
      if (longest != nullptr) {
        out.push_back(kFirstToken + longest->id);
        at += longest->text.size();
      } else {
        out.push_back(static_cast<uint8_t>(text[at++]));
      }
    }
    return out;
  }
  static Symbols BytesOf(std::string_view text) {
    Symbols out;
    for (const char c : text) out.push_back(static_cast<uint8_t>(c));
    return out;
  }

  // The text, each control token as itself or in letters.
  ExprId Spell(std::string_view text) {
    std::vector<ExprId> parts;
    size_t at = 0;
    std::string bytes;
    for (const int32_t symbol : SymbolsOf(text)) {
      if (symbol < kFirstToken) {
        bytes.push_back(text[at++]);
        continue;
      }
      const int32_t id = symbol - kFirstToken;
      const auto control = std::find_if(controls_.begin(), controls_.end(),
                                        [&](const TokenTrie::Control& c) { return c.id == id; });
      parts.push_back(grammar_.Bytes(bytes));
      bytes.clear();
      parts.push_back(grammar_.Alternatives({grammar_.Token(id), grammar_.Bytes(control->text)}));
      named_tokens_.push_back(id);
      at += control->text.size();
    }
    parts.push_back(grammar_.Bytes(bytes));
    return grammar_.Sequence(std::move(parts));
  }

  Status AddTagBodies() {
    for (size_t i = 0; i < form_.tags.size(); ++i) {
      const Tag& tag = form_.tags[i];
      const std::string name = "tag " + std::to_string(i);
      const RuleId rule = grammar_.AddRule(name);
      Result<ExprId> value = AddJsonSchema(tag.schema, tag.schema, &grammar_);
      if (!value.ok()) return Status(value.status()).WithContext(name);
      grammar_.SetRule(rule, grammar_.Sequence({value.value(), Spell(tag.end)}));
      bodies_.push_back(grammar_.UseRule(rule));
    }
    return OkStatus();
  }

  Result<ExprId> TagsOnly() {
    std::vector<ExprId> tags;
    for (size_t i = 0; i < form_.tags.size(); ++i) {
      tags.push_back(grammar_.Sequence({Spell(form_.tags[i].begin), bodies_[i]}));
    }
    const ExprId tag = grammar_.Alternatives(std::move(tags));
    Graph graph;
    const int32_t after = graph.AddNode();
    graph.AddEdge(0, after, tag);
    if (!form_.stop_after_first) {
      const ExprId blank = grammar_.Repeat(grammar_.Chars(CodePoints::Of(" \t\r\n")), 0, 2);
      graph.AddEdge(after, after, grammar_.Sequence({blank, tag}));
    }
    graph.finals = {after};
    if (!form_.at_least_one) graph.finals.push_back(0);
    return grammar_.AddGraph(std::move(graph));
  }

  // The tree of all spellings of all triggers, with fallbacks (Aho and Corasick 1975).
  void BuildSearch() {
    search_.emplace_back();
    for (size_t i = 0; i < form_.triggers.size(); ++i) {
      for (const Symbols& symbols : {BytesOf(form_.triggers[i]), SymbolsOf(form_.triggers[i])}) {
        int32_t at = 0;
        for (const int32_t symbol : symbols) {
          if (symbol >= kFirstToken) named_tokens_.push_back(symbol - kFirstToken);
          const auto [edge, is_new] = search_[static_cast<size_t>(at)].next.emplace(
              symbol, static_cast<int32_t>(search_.size()));
          at = edge->second;
          if (is_new) search_.emplace_back();
        }
        search_[static_cast<size_t>(at)].trigger = static_cast<int32_t>(i);
      }
    }
    std::vector<int32_t> order = {0};
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t state = order[i];
      for (const auto& [symbol, child] : search_[static_cast<size_t>(state)].next) {
        order.push_back(child);
        Search& target = search_[static_cast<size_t>(child)];
        target.fallback =
            state == 0 ? 0 : Step(search_[static_cast<size_t>(state)].fallback, symbol);
        if (target.trigger < 0) {
          target.trigger = search_[static_cast<size_t>(target.fallback)].trigger;
        }
      }
    }
  }
  int32_t Step(int32_t state, int32_t symbol) const {
    for (;;) {
      const Search& here = search_[static_cast<size_t>(state)];
      const auto edge = here.next.find(symbol);
      if (edge != here.next.end()) return edge->second;
      if (state == 0) return 0;
      state = here.fallback;
    }
  }

  // The free text: one node a state of the search. Where a trigger is complete, a tag goes on.
  Result<ExprId> FreeText() {
    BuildSearch();
    std::sort(named_tokens_.begin(), named_tokens_.end());
    named_tokens_.erase(std::unique(named_tokens_.begin(), named_tokens_.end()),
                        named_tokens_.end());
    std::vector<std::vector<ExprId>> tags(form_.triggers.size());
    for (size_t t = 0; t < form_.tags.size(); ++t) {
      bool begins = false;
      for (size_t i = 0; i < form_.triggers.size(); ++i) {
        const std::string& trigger = form_.triggers[i];
        if (form_.tags[t].begin.compare(0, trigger.size(), trigger) != 0) continue;
        begins = true;
        const std::string_view rest = std::string_view(form_.tags[t].begin).substr(trigger.size());
        tags[i].push_back(grammar_.Sequence({Spell(rest), bodies_[t]}));
      }
      if (!begins) {
        return InvalidArgument("tag %zu: \"begin\" must start with one of the triggers", t);
      }
    }
    Graph graph;
    std::vector<int32_t> before;  // no tag yet
    for (size_t i = 0; i < search_.size(); ++i) before.push_back(i == 0 ? 0 : graph.AddNode());
    int32_t done = 0;  // behind a tag
    if (form_.stop_after_first) {
      done = graph.AddNode();
      graph.finals.push_back(done);
    } else if (form_.at_least_one) {
      std::vector<int32_t> after;
      for (size_t i = 0; i < search_.size(); ++i) after.push_back(graph.AddNode());
      done = after[0];
      AddSearch(after, done, true, tags, &graph);
    }
    AddSearch(before, done, !form_.at_least_one, tags, &graph);
    return grammar_.AddGraph(std::move(graph));
  }

  void AddSearch(const std::vector<int32_t>& nodes, int32_t done, bool may_end,
                 const std::vector<std::vector<ExprId>>& tags, Graph* graph) {
    for (size_t state = 0; state < search_.size(); ++state) {
      const int32_t trigger = search_[state].trigger;
      if (trigger >= 0) {
        for (const ExprId tag : tags[static_cast<size_t>(trigger)]) {
          graph->AddEdge(nodes[state], done, tag);
        }
        continue;
      }
      if (may_end) graph->finals.push_back(nodes[state]);
      const auto target = [&](int32_t symbol) {
        return nodes[static_cast<size_t>(Step(static_cast<int32_t>(state), symbol))];
      };
      for (int32_t first = 0; first < kFirstToken;) {
        int32_t last = first;
        while (last + 1 < kFirstToken && target(last + 1) == target(first)) ++last;
        graph->AddEdge(nodes[state], target(first), grammar_.ByteRange(first, last));
        first = last + 1;
      }
      for (const int32_t id : named_tokens_) {
        graph->AddEdge(nodes[state], target(kFirstToken + id), grammar_.Token(id));
      }
      graph->AddEdge(nodes[state], nodes[0], grammar_.OtherTokens());
    }
  }

  const Form& form_;
  std::span<const TokenTrie::Control> controls_;
  Grammar grammar_;
  std::vector<ExprId> bodies_;         // of each tag: its value and its end
  std::vector<int32_t> named_tokens_;  // in any of the texts
  std::vector<Search> search_;
};

}  // namespace

Result<Grammar> StructuralGrammar(std::string_view text,
                                  std::span<const TokenTrie::Control> controls) {
  Result<std::unique_ptr<json::Document>> document = json::Document::Parse(text, "the constraint");
  if (!document.ok()) return InvalidArgument("%s", document.status().message().c_str());
  Form form;
  CELLM_RETURN_IF_ERROR(ReadForm(document.value()->root(), &form));
  return StructuralBuilder(form, controls).Run();
}

}  // namespace cellm::constrain
