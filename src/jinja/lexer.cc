#include "jinja/lexer.h"

#include <algorithm>

#include "base/utf8.h"
#include "jinja/python_text.h"

namespace cellm::jinja {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameByte(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (static_cast<uint8_t>(c) & 0x80) != 0;
}

// Line ends become "\n"; a single one at the very end is dropped.
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string source, std::vector<Token>* tokens, SyntaxError* error)
      : source_(std::move(source)), tokens_(tokens), error_(error) {}

  bool Run() {
    while (at_ < source_.size()) {
      if (!LexText()) return false;
    }
    Add(TokenKind::kEnd, "");
    return true;
  }

 private:
  bool Fail(std::string message) {
    *error_ = {std::move(message), line_};
    return false;
  }
  void Add(TokenKind kind, std::string text) { tokens_->push_back({kind, line_, std::move(text)}); }
  bool StartsWith(size_t at, std::string_view what) const {
    return std::string_view(source_).substr(at, what.size()) == what;
  }
  // Moves on to `to`, counting lines and whether the text passed ends one.
  void MoveTo(size_t to) {
    if (to == at_) return;
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
    line_starting_ = source_[to - 1] == '\n';
  }
  size_t SkipSpace(size_t at) const {
    return at + CountLeadingSpace(std::string_view(source_).substr(at));
  }

  // Text up to the next tag, then the tag.
  bool LexText() {
    const size_t tag = FindTag(at_);
    if (tag == std::string::npos) {
      AddData(at_, source_.size());
      MoveTo(source_.size());
      return true;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    AddData(at_, StripBefore(at_, tag, kind, sign));
    MoveTo(tag);
    const size_t inside = tag + (sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return LexComment(inside);
    if (kind == '%') {
      size_t raw_text = 0;
      if (IsRawBegin(inside, &raw_text)) return LexRaw(raw_text);
    }
    Add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    MoveTo(inside);
    return LexTag(kind == '{');
  }

  size_t FindTag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 >= source_.size()) break;
      const char next = source_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  // Where the text [begin, tag) ends once the tag has eaten the blanks that are its due.
  size_t StripBefore(size_t begin, size_t tag, char kind, char sign) const {
    const std::string_view text = std::string_view(source_).substr(begin, tag - begin);
    if (sign == '-') return begin + TrimmedLength(text);
    if (sign == '+' || kind == '{') return tag;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return tag;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const std::string_view blanks = text.substr(line_begin);
    return CountLeadingSpace(blanks) == blanks.size() ? begin + line_begin : tag;
  }

  void AddData(size_t begin, size_t end) {
    if (end > begin) Add(TokenKind::kData, source_.substr(begin, end - begin));
  }

  // The end of a tag at `at` ("%}", "-%}" and the blanks after it, "+%}"); npos when there is none.
  size_t MatchEnd(size_t at, std::string_view close, bool plus_allowed, bool trim) const {
    if (StartsWith(at, close)) {
      at += close.size();
      if (trim && at < source_.size() && source_[at] == '\n') ++at;
      return at;
    }
    if (at >= source_.size() || !StartsWith(at + 1, close)) return std::string::npos;
    if (source_[at] == '-') return SkipSpace(at + 1 + close.size());
    if (source_[at] == '+' && plus_allowed) return at + 1 + close.size();
    return std::string::npos;
  }

  // A comment that opens at the very end of the template counts as empty, as in the reference.
  bool LexComment(size_t inside) {
    if (inside >= source_.size()) {
      MoveTo(source_.size());
      return true;
    }
    for (size_t at = inside; at < source_.size(); ++at) {
      const size_t end = MatchEnd(at, "#}", true, true);
      if (end != std::string::npos) {
        MoveTo(end);
        return true;
      }
    }
    return Fail("Missing end of comment tag");
  }

  bool IsRawBegin(size_t at, size_t* text_begin) const {
    at = SkipSpace(at);
    if (!StartsWith(at, "raw")) return false;
    at = SkipSpace(at + 3);
    if (StartsWith(at, "%}")) {
      *text_begin = at + 2;
      return true;
    }
    if (!StartsWith(at, "-%}")) return false;
    *text_begin = SkipSpace(at + 3);
    return true;
  }

  bool LexRaw(size_t text_begin) {
    MoveTo(text_begin);
    if (at_ >= source_.size()) return true;
    for (size_t at = source_.find("{%", at_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      const char sign = at + 2 < source_.size() ? source_[at + 2] : '\0';
      size_t inside = SkipSpace(at + (sign == '-' || sign == '+' ? 3 : 2));
      if (!StartsWith(inside, "endraw")) continue;
      const size_t end = MatchEnd(SkipSpace(inside + 6), "%}", true, true);
      if (end == std::string::npos) continue;
      AddData(at_, StripBefore(at_, at, '%', sign));
      MoveTo(end);
      return true;
    }
    return Fail("Missing end of raw directive");
  }

  // The inside of {{ }} or {% %}, up to and with its end.
  bool LexTag(bool variable) {
    std::string open;  // brackets that wait for their partner
    const std::string_view close = variable ? "}}" : "%}";
    while (at_ < source_.size()) {
      if (open.empty()) {
        const size_t end = MatchEnd(at_, close, !variable, !variable);
        if (end != std::string::npos) {
          Add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          MoveTo(end);
          return true;
        }
      }
      const size_t space = SkipSpace(at_);
      if (space > at_) {
        MoveTo(space);
        continue;
      }
      if (!LexToken(&open)) return false;
    }
    return true;  // the parser reports the missing end
  }

  bool LexToken(std::string* open) {
    const char c = source_[at_];
    if (IsDigit(c)) return LexNumber();
    if (IsNameByte(c)) return LexName();
    if (c == '\'' || c == '"') return LexString(c);
    return LexOperator(open);
  }

  bool LexName() {
    size_t end = at_;
    while (end < source_.size() && IsNameByte(source_[end])) ++end;
    const std::string name = source_.substr(at_, end - at_);
    for (std::string_view rest = name; !rest.empty();) {
      const Utf8Char c = DecodeUtf8(rest);
      if (c.code_point >= 0x80 && !IsAlpha(c.code_point)) {
        return Fail("Invalid character in identifier");
      }
      rest.remove_prefix(c.byte_count);
    }
    Add(TokenKind::kName, name);
    MoveTo(end);
    return true;
  }

  // Digits with single underscores between them; returns the end (== at when there are none).
  template <typename IsOne>
  size_t Digits(size_t at, const IsOne& is_digit) const {
    const size_t begin = at;
    while (at < source_.size()) {
      if (is_digit(source_[at])) {
        ++at;
      } else if (source_[at] == '_' && at > begin && at + 1 < source_.size() &&
                 is_digit(source_[at + 1])) {
        ++at;
      } else {
        break;
      }
    }
    return at;
  }

  bool LexNumber() {
    const size_t begin = at_;
    size_t end = Digits(begin, IsDigit);
    bool real = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';  // l.0 is an index
    if (!after_dot) {
      const size_t fraction = end + 1;
      if (end < source_.size() && source_[end] == '.' && Digits(fraction, IsDigit) > fraction) {
        end = Digits(fraction, IsDigit);
        real = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
          ++exponent;
        }
        if (Digits(exponent, IsDigit) > exponent) {
          end = Digits(exponent, IsDigit);
          real = true;
        }
      }
    }
    if (!real) end = IntegerEnd(begin);
    std::string text = source_.substr(begin, end - begin);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    if (text.size() > 5000) return Fail("number is too long");
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
    MoveTo(end);
    return true;
  }

  size_t IntegerEnd(size_t begin) const {
    if (source_[begin] != '0') return Digits(begin, IsDigit);
    const auto prefixed = [&](char lower, const auto& is_digit) -> size_t {
      if (begin + 1 >= source_.size() || (source_[begin + 1] | 0x20) != lower) return 0;
      size_t at = begin + 2;
      if (at < source_.size() && source_[at] == '_') ++at;
      const size_t end = Digits(at, is_digit);
      return end > at ? end : 0;
    };
    const size_t hex = prefixed(
        'x', [](char c) { return IsDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
    const size_t octal = prefixed('o', [](char c) { return c >= '0' && c <= '7'; });
    const size_t binary = prefixed('b', [](char c) { return c == '0' || c == '1'; });
    const size_t any = std::max({hex, octal, binary});
    return any > 0 ? any : Digits(begin, [](char c) { return c == '0'; });
  }

  bool LexString(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2u : 1u;
    if (end >= source_.size()) {
      return Fail(StrFormat("unexpected char \"%c\" at %zu", quote, at_));
    }
    std::string value;
    if (!Unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), &value)) return false;
    Add(TokenKind::kString, std::move(value));
    MoveTo(end + 1);
    return true;
  }

  // Python's escapes. Unknown ones stay as they are, backslash included.
  bool Unescape(std::string_view raw, std::string* out) {
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out->push_back(raw[i]);
        continue;
      }
      const char c = raw[++i];
      static constexpr std::string_view kPlain = "abfnrtv\\'\"";
      static constexpr std::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t at = kPlain.find(c); at != std::string_view::npos) {
        out->push_back(kMeaning[at]);
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        uint32_t value = 0;
        size_t used = 0;
        while (used < 3 && i + used < raw.size() && raw[i + used] >= '0' && raw[i + used] <= '7') {
          value = value * 8 + static_cast<uint32_t>(raw[i + used++] - '0');
        }
        AppendUtf8(value, out);
        i += used - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : 8);
        if (!AppendHex(raw.substr(i + 1), digits, out)) return false;
        i += digits;
      } else if (c == 'N') {
        return Fail("the escape \\N{...} in a string is not supported");
      } else {
        out->push_back('\\');
        out->push_back(c);
      }
    }
    return true;
  }

  bool AppendHex(std::string_view text, size_t digits, std::string* out) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = i < text.size() ? text[i] : '\0';
      uint32_t digit = 99;
      if (IsDigit(c)) digit = static_cast<uint32_t>(c - '0');
      if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        digit = static_cast<uint32_t>((c | 0x20) - 'a') + 10;
      if (digit > 15) return Fail("truncated hexadecimal escape in a string");
      value = (value << 4) | digit;
    }
    if (value > 0x10FFFF) return Fail("illegal Unicode character");
    AppendUtf8(value, out);
    return true;
  }

  bool LexOperator(std::string* open) {
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    const char c = source_[at_];
    for (const std::string_view op : kLong) {
      if (StartsWith(at_, op)) {
        Add(TokenKind::kOperator, std::string(op));
        MoveTo(at_ + 2);
        return true;
      }
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      return Fail(StrFormat("unexpected char '%c' at %zu", c, at_));
    }
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c == '(' ? ')' : (c == '[' ? ']' : '}'));
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty()) return Fail(StrFormat("unexpected '%c'", c));
      if (open->back() != c) {
        return Fail(StrFormat("unexpected '%c', expected '%c'", c, open->back()));
      }
      open->pop_back();
    }
    Add(TokenKind::kOperator, std::string(1, c));
    MoveTo(at_ + 1);
    return true;
  }

  const std::string source_;
  std::vector<Token>* tokens_;
  SyntaxError* error_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

bool Tokenize(std::string_view source, std::vector<Token>* tokens, SyntaxError* error) {
  return Lexer(NormalizeLines(source), tokens, error).Run();
}

}  // namespace cellm::jinja
