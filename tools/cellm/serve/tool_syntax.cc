#include "cellm/serve/tool_syntax.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "cellm/common.h"
#include "json/json.h"

namespace cellm::tools::serve {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr int kMaxDepth = 32;
constexpr size_t kMaxNameBytes = 128;

constexpr CallMarker kMarkers[] = {
    {"<tool_call>", "</tool_call>", CallBody::kTagged},
    {"<|tool_call|>", "<|/tool_call|>", CallBody::kJson},
    {"<|tool_call_start|>", "<|tool_call_end|>", CallBody::kPython},
    {"<|tool_call>", "<tool_call|>", CallBody::kGemma},
    {"[TOOL_CALLS]", "", CallBody::kMistral},
    {"<|python_tag|>", "", CallBody::kJson},
    {"<|START_ACTION|>", "<|END_ACTION|>", CallBody::kJson},
    {"<|tools_prefix|>", "<|tools_suffix|>", CallBody::kJson},
    {kFunctionTag, "</function>", CallBody::kFunctionTag},
};

std::string_view Trim(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  const size_t end = text.find_last_not_of(kSpace);
  return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

// What our JSON reader takes beyond JSON (NaN, infinities) is no argument that a client can read.
bool AllFinite(json::Value value) {
  double number = 0;
  if (value.is_number()) return value.GetDouble(&number) && std::isfinite(number);
  if (!value.is_array() && !value.is_object()) return true;
  for (json::Value v = value.First(); v.exists(); v = value.Next(v)) {
    if (!AllFinite(v)) return false;
  }
  return true;
}

bool ArgumentsOf(json::Value value, std::string* out) {
  std::string_view text;
  if (!value.has_value()) {
    *out = "{}";
    return true;
  }
  if (value.GetString(&text))
    return Trim(text).empty() ? (*out = "{}", true) : ReadArguments(text, out);
  if (!value.is_object() || !AllFinite(value)) return false;
  *out = json::Serialize(value);
  return true;
}

bool ReadOneCall(json::Value value, std::span<const Tool> tools, bool known_only,
                 std::vector<ToolCall>* out) {
  if (!value.is_object()) return false;
  const json::Value function = value.Find("function");
  if (function.is_object()) return ReadOneCall(function, tools, known_only, out);
  std::string_view name;
  json::Value arguments;
  for (const std::string_view key : kNameKeys) {
    if (name.empty() && !value.Find(key).GetString(&name)) name = {};
  }
  if (!name.empty()) {
    for (const std::string_view key : kArgumentKeys) {
      if (!arguments.exists()) arguments = value.Find(key);
    }
  } else if (value.size() == 1 && value.First().is_object()) {
    // {"f": {...}}, which could be anything unless f is a tool.
    name = value.KeyOf(value.First());
    arguments = value.First();
    known_only = true;
  }
  if (!IsFunctionName(name) || (known_only && FindTool(tools, name) == nullptr)) return false;
  ToolCall call = {std::string(name), {}};
  if (!ArgumentsOf(arguments, &call.arguments)) return false;
  out->push_back(std::move(call));
  return true;
}

// A reader for values of Python and of Gemma's notation, which differ in quotes, in the names of
// constants and in whether keys are quoted. Writes JSON.
class ValueReader {
 public:
  ValueReader(std::string_view text, bool python) : text_(text), python_(python) {}

  void SkipSpace() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  bool Take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  bool Identifier(std::string* out) {
    const size_t begin = at_;
    while (!AtEnd() && IsNameByte(Peek())) ++at_;
    *out = text_.substr(begin, at_ - begin);
    return !out->empty();
  }

  bool Value(int depth, std::string* out) {
    SkipSpace();
    if (depth > kMaxDepth) return false;
    if (python_ && (Peek() == '"' || Peek() == '\'')) return PythonString(out);
    if (!python_ && text_.substr(at_).starts_with(kGemmaQuote)) return GemmaString(out);
    if (Peek() == '[' || Peek() == '(') return List(depth, out);
    if (Peek() == '{') return Map(depth, out);
    return Scalar(out);
  }

  // key=value or key:value pairs up to `close`, as a JSON object.
  bool Pairs(char separator, char close, int depth, std::string* out) {
    JsonObject object;
    SkipSpace();
    while (Peek() != close) {
      std::string key;
      std::string value;
      SkipSpace();
      if (!Key(&key)) return false;
      SkipSpace();
      if (!Take({&separator, 1}) || !Value(depth + 1, &value)) return false;
      object.AddRaw(key, value);
      SkipSpace();
      if (Peek() == ',') {
        ++at_;
        SkipSpace();
      } else if (Peek() != close) {
        return false;
      }
    }
    ++at_;
    *out += object.Finish();
    return true;
  }

 private:
  bool Key(std::string* out) {
    std::string quoted;
    if (python_ ? Peek() == '"' || Peek() == '\'' : text_.substr(at_).starts_with(kGemmaQuote)) {
      if (!(python_ ? PythonString(&quoted) : GemmaString(&quoted))) return false;
      const auto parsed = json::Document::Parse(quoted, "key");
      std::string_view text;
      if (!parsed.ok() || !(*parsed)->root().GetString(&text)) return false;
      *out = text;
      return true;
    }
    return Identifier(out);
  }

  bool GemmaString(std::string* out) {
    at_ += kGemmaQuote.size();
    const size_t end = text_.find(kGemmaQuote, at_);
    if (end == std::string_view::npos) return false;
    *out += json::Quote(text_.substr(at_, end - at_));
    at_ = end + kGemmaQuote.size();
    return true;
  }

  bool PythonString(std::string* out) {
    const char quote = Peek();
    ++at_;
    std::string text;
    for (; !AtEnd() && Peek() != quote; ++at_) {
      if (Peek() != '\\') {
        text.push_back(Peek());
        continue;
      }
      if (++at_ >= text_.size()) return false;
      constexpr std::string_view kFrom = "ntrbf0";
      constexpr std::string_view kTo = {"\n\t\r\b\f\0", 6};
      const size_t known = kFrom.find(Peek());
      if (Peek() == 'u' || Peek() == 'x') return false;  // seldom, and easy to read wrongly
      text.push_back(known == std::string_view::npos ? Peek() : kTo[known]);
    }
    if (AtEnd()) return false;
    ++at_;
    *out += json::Quote(text);
    return true;
  }

  bool List(int depth, std::string* out) {
    const char close = Peek() == '[' ? ']' : ')';
    ++at_;
    *out += '[';
    bool first = true;
    SkipSpace();
    while (Peek() != close) {
      if (!first) *out += ", ";
      first = false;
      if (!Value(depth + 1, out)) return false;
      SkipSpace();
      if (Peek() == ',') {
        ++at_;
        SkipSpace();
      } else if (Peek() != close) {
        return false;
      }
    }
    ++at_;
    *out += ']';
    return true;
  }

  bool Map(int depth, std::string* out) {
    ++at_;
    return Pairs(':', '}', depth, out);
  }

  bool Scalar(std::string* out) {
    const size_t end = std::min(text_.find_first_of(kScalarEnds, at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    return ReadScalar(word, true, out);
  }

  std::string_view text_;
  size_t at_ = 0;
  bool python_;
};

}  // namespace

std::span<const CallMarker> CallMarkers() { return kMarkers; }

bool IsFunctionName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), IsNameByte);
}

const Tool* FindTool(std::span<const Tool> tools, std::string_view name) {
  for (const Tool& tool : tools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

bool IsNameByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.';
}

bool ReadScalar(std::string_view word, bool any_notation, std::string* out) {
  constexpr std::pair<std::string_view, std::string_view> kConstants[] = {
      {"true", "true"}, {"false", "false"}, {"null", "null"},
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (const auto& [from, to] : std::span(kConstants).first(any_notation ? 6 : 3)) {
    if (word != from) continue;
    *out += to;
    return true;
  }
  const auto parsed = json::Document::Parse(word, "value");
  if (!parsed.ok() || !(*parsed)->root().is_number() || !AllFinite((*parsed)->root())) {
    return false;
  }
  *out += json::Serialize((*parsed)->root());
  return true;
}

bool IsTextParameter(const Tool* tool, std::string_view key) {
  if (tool == nullptr || tool->parameters.empty()) return false;
  const auto schema = json::Document::Parse(tool->parameters, "parameters");
  if (!schema.ok()) return false;
  std::string_view type;
  return (*schema)->root().Find("properties").Find(key).Find("type").GetString(&type) &&
         type == "string";
}

std::string ParameterValue(std::string_view text, const Tool* tool, std::string_view key) {
  // One line break on each side belongs to the layout.
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (!IsTextParameter(tool, key)) {
    const auto parsed = json::Document::Parse(text, "value");
    if (parsed.ok() && AllFinite((*parsed)->root())) return json::Serialize((*parsed)->root());
  }
  return json::Quote(text);
}

size_t PartialMarker(std::string_view text, std::string_view marker) {
  size_t length = std::min(text.size(), marker.empty() ? 0 : marker.size() - 1);
  while (length > 0 && text.substr(text.size() - length) != marker.substr(0, length)) --length;
  return length;
}

bool ReadArguments(std::string_view text, std::string* out) {
  const auto parsed = json::Document::Parse(text, "arguments");
  if (!parsed.ok() || !(*parsed)->root().is_object() || !AllFinite((*parsed)->root())) return false;
  *out = json::Serialize((*parsed)->root());
  return true;
}

bool ReadJsonCalls(std::string_view text, std::span<const Tool> tools, bool known_only,
                   std::vector<ToolCall>* out) {
  const auto parsed = json::Document::Parse(text, "call");
  if (!parsed.ok()) return false;
  const json::Value root = (*parsed)->root();
  if (!root.is_array()) return ReadOneCall(root, tools, known_only, out);
  for (json::Value v = root.First(); v.exists(); v = root.Next(v)) {
    if (!ReadOneCall(v, tools, known_only, out)) return false;
  }
  return root.size() > 0;
}

bool ReadPythonCalls(std::string_view text, std::span<const Tool> tools,
                     std::vector<ToolCall>* out) {
  text = Trim(text);
  if (text.starts_with("[{") || text.starts_with('{')) {
    return ReadJsonCalls(text, tools, false, out);
  }
  ValueReader reader(text, true);
  const bool list = reader.Take("[");
  for (;;) {
    ToolCall call;
    reader.SkipSpace();
    if (!reader.Identifier(&call.name) || !IsFunctionName(call.name)) return false;
    reader.SkipSpace();
    if (!reader.Take("(") || !reader.Pairs('=', ')', 0, &call.arguments)) return false;
    out->push_back(std::move(call));
    reader.SkipSpace();
    if (reader.Take(",")) continue;
    if (list && !reader.Take("]")) return false;
    reader.SkipSpace();
    return reader.AtEnd();
  }
}

bool ReadGemmaCall(std::string_view text, std::vector<ToolCall>* out) {
  ValueReader reader(Trim(text), false);
  ToolCall call;
  if (!reader.Take("call:") || !reader.Identifier(&call.name) || !IsFunctionName(call.name) ||
      !reader.Take("{") || !reader.Pairs(':', '}', 0, &call.arguments)) {
    return false;
  }
  reader.SkipSpace();
  if (!reader.AtEnd()) return false;
  out->push_back(std::move(call));
  return true;
}

bool ReadFunctionTag(std::string_view text, std::span<const Tool> tools,
                     std::vector<ToolCall>* out) {
  constexpr std::string_view kClose = "</function>";
  text = Trim(text);
  if (!text.starts_with(kFunctionTag) || !text.ends_with(kClose)) return false;
  text = text.substr(kFunctionTag.size(), text.size() - kFunctionTag.size() - kClose.size());
  const size_t name_end = text.find('>');
  if (name_end == std::string_view::npos) return false;
  ToolCall call = {std::string(text.substr(0, name_end)), {}};
  if (!IsFunctionName(call.name)) return false;
  text = Trim(text.substr(name_end + 1));
  if (text.starts_with('{')) {
    if (!ReadArguments(text, &call.arguments)) return false;
    out->push_back(std::move(call));
    return true;
  }
  const Tool* const tool = FindTool(tools, call.name);
  JsonObject arguments;
  while (!text.empty()) {
    const size_t key_end = text.find('>');
    const size_t end = text.find(kParameterEnd);
    if (!text.starts_with(kParameterTag) || key_end == std::string_view::npos ||
        end == std::string_view::npos || end < key_end) {
      return false;
    }
    const std::string_view key = text.substr(kParameterTag.size(), key_end - kParameterTag.size());
    arguments.AddRaw(key, ParameterValue(text.substr(key_end + 1, end - key_end - 1), tool, key));
    text = Trim(text.substr(end + kParameterEnd.size()));
  }
  call.arguments = arguments.Finish();
  out->push_back(std::move(call));
  return true;
}

bool ValueExtent::Find(std::string_view text, size_t from, size_t* end) {
  for (seen_ = std::max(seen_, from); seen_ < text.size(); ++seen_) {
    const char c = text[seen_];
    if (quote_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
      continue;
    }
    if (quotes_.find(c) != std::string_view::npos) {
      quote_ = c;
    } else if (c == '{' || c == '[' || c == '(') {
      ++depth_;
    } else if ((c == '}' || c == ']' || c == ')') && --depth_ <= 0) {
      *end = ++seen_;
      return true;
    }
  }
  return false;
}

}  // namespace cellm::tools::serve
