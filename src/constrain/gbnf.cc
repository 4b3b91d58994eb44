#include "constrain/gbnf.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace cellm::constrain {
namespace {

constexpr int kMaxGroups = 100;  // nested
constexpr size_t kMaxRules = 20'000;

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<Grammar> Run() {
    SkipSpace(true);
    while (at_ < text_.size()) CELLM_RETURN_IF_ERROR(ParseRule());
    for (const Rule& rule : grammar_.rules()) {
      if (rule.expr < 0) {
        return InvalidArgument("the rule \"%s\" is used and not defined", rule.name.c_str());
      }
    }
    const auto root = names_.find("root");
    if (root == names_.end()) return InvalidArgument("there is no rule \"root\" to begin with");
    grammar_.root = root->second;
    return std::move(grammar_);
  }

 private:
  size_t Line() const {
    return 1 + static_cast<size_t>(std::count(
                   text_.begin(),
                   text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size())), '\n'));
  }
  Status Wrong(const char* what) const { return InvalidArgument("line %zu: %s", Line(), what); }
  char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool Take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  // Blanks and comments; line ends, too, with `lines`.
  void SkipSpace(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }
  Result<RuleId> RuleOf(std::string_view name) {
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
    if (names_.size() >= kMaxRules) return OutOfRange("more than %zu rules", kMaxRules);
    const RuleId rule = grammar_.AddRule(name);
    names_.emplace(name, rule);
    return rule;
  }
  std::string_view TakeName() {
    const size_t begin = at_;
    while (IsNameByte(Peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Status ParseRule() {
    const std::string_view name = TakeName();
    if (name.empty()) return Wrong("expected the name of a rule");
    SkipSpace(false);
    if (!Take("::=")) return Wrong("expected \"::=\"");
    SkipSpace(true);
    CELLM_ASSIGN_OR_RETURN(const RuleId rule, RuleOf(name));
    CELLM_ASSIGN_OR_RETURN(const ExprId expr, ParseAlternatives(0));
    grammar_.SetRule(rule, expr);
    if (at_ < text_.size() && Peek() != '\n' && Peek() != '\r') {
      return Wrong("expected the end of the line");
    }
    SkipSpace(true);
    return OkStatus();
  }

  Result<ExprId> ParseAlternatives(int depth) {
    std::vector<ExprId> children;
    for (;;) {
      CELLM_ASSIGN_OR_RETURN(const ExprId child, ParseSequence(depth));
      children.push_back(child);
      if (!Take("|")) break;
      SkipSpace(true);
    }
    return grammar_.Alternatives(std::move(children));
  }

  Result<ExprId> ParseSequence(int depth) {
    std::vector<ExprId> children;
    for (;;) {
      ExprId item = -1;
      const char c = Peek();
      if (c == '"') {
        CELLM_ASSIGN_OR_RETURN(item, ParseText());
      } else if (c == '[') {
        CELLM_ASSIGN_OR_RETURN(item, ParseSet());
      } else if (c == '(') {
        if (depth >= kMaxGroups) return OutOfRange("line %zu: groups nest deeper than 100", Line());
        ++at_;
        SkipSpace(true);
        CELLM_ASSIGN_OR_RETURN(item, ParseAlternatives(depth + 1));
        if (!Take(")")) return Wrong("expected ')'");
      } else if (c == '.') {
        ++at_;
        item = grammar_.Chars(CodePoints::Any());
      } else if (IsNameByte(c)) {
        CELLM_ASSIGN_OR_RETURN(const RuleId rule, RuleOf(TakeName()));
        item = grammar_.UseRule(rule);
      } else if (c == '<' || c == '!') {
        return Unsupported("line %zu: references to tokens (<...>) are not known; write the text",
                           Line());
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        return Wrong("nothing to repeat");
      } else {
        return grammar_.Sequence(std::move(children));
      }
      SkipSpace(depth > 0);
      CELLM_ASSIGN_OR_RETURN(item, ParseRepeats(item, depth));
      children.push_back(item);
    }
  }

  Result<ExprId> ParseRepeats(ExprId item, int depth) {
    for (;;) {
      int32_t min = 0;
      int32_t max = kUnbounded;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Take("{")) {
        CELLM_RETURN_IF_ERROR(ParseCounts(&min, &max));
      } else {
        return item;
      }
      item = grammar_.Repeat(item, min, max);
      SkipSpace(depth > 0);
    }
  }

  Status ParseNumber(int32_t* out) {
    if (Peek() < '0' || Peek() > '9') return Wrong("expected a number");
    int64_t value = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      value = std::min<int64_t>(value * 10 + (text_[at_++] - '0'), INT32_MAX);
    }
    *out = static_cast<int32_t>(value);
    SkipSpace(true);
    return OkStatus();
  }
  Status ParseCounts(int32_t* min, int32_t* max) {
    SkipSpace(true);
    CELLM_RETURN_IF_ERROR(ParseNumber(min));
    *max = *min;
    if (Take(",")) {
      SkipSpace(true);
      *max = kUnbounded;
      if (Peek() != '}') CELLM_RETURN_IF_ERROR(ParseNumber(max));
    }
    if (!Take("}")) return Wrong("expected '}'");
    if (*max != kUnbounded && *max < *min) return Wrong("{m,n} with n below m");
    return OkStatus();
  }

  Result<char32_t> ParseHex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = Peek();
      if (c >= '0' && c <= '9') {
        value = value * 16 + static_cast<char32_t>(c - '0');
      } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
        value = value * 16 + static_cast<char32_t>((c | 0x20) - 'a' + 10);
      } else {
        return Wrong("expected a hexadecimal digit");
      }
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      return Wrong("an escape that is no character");
    }
    return value;
  }

  Result<char32_t> ParseChar() {
    if (at_ >= text_.size()) return Wrong("the text ends too early");
    if (!Take("\\")) {
      const Utf8Char c = DecodeUtf8(text_.substr(at_));
      if (!c.valid) return Wrong("not UTF-8");
      at_ += c.byte_count;
      return c.code_point;
    }
    const char c = Peek();
    ++at_;
    switch (c) {
      case 'x':
        return ParseHex(2);
      case 'u':
        return ParseHex(4);
      case 'U':
        return ParseHex(8);
      case 't':
        return char32_t{'\t'};
      case 'r':
        return char32_t{'\r'};
      case 'n':
        return char32_t{'\n'};
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<char32_t>(c);
      default:
        return Wrong("an escape that is not known");
    }
  }

  Result<ExprId> ParseText() {
    Take("\"");
    std::string bytes;
    while (!Take("\"")) {
      CELLM_ASSIGN_OR_RETURN(const char32_t c, ParseChar());
      AppendUtf8(c, &bytes);
    }
    return grammar_.Bytes(bytes);
  }

  Result<ExprId> ParseSet() {
    Take("[");
    const bool negated = Take("^");
    CodePoints set;
    while (!Take("]")) {
      CELLM_ASSIGN_OR_RETURN(const char32_t first, ParseChar());
      char32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        CELLM_ASSIGN_OR_RETURN(last, ParseChar());
        if (last < first) return Wrong("a range whose end is before its beginning");
      }
      set.Add(first, last);
    }
    return grammar_.Chars(negated ? set.Complement() : set);
  }

  std::string_view text_;
  size_t at_ = 0;
  Grammar grammar_;
  std::map<std::string, RuleId, std::less<>> names_;
};

}  // namespace

Result<Grammar> GbnfGrammar(std::string_view text) { return GbnfParser(text).Run(); }

}  // namespace cellm::constrain
