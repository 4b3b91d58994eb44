// Python's two ways to format: "%05.1f" % value and "{:>5}".format(value).
//
// Text of the format keeps its own mark of origin; what is put in keeps that of the value.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/utf8.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja {

namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxPrecision = 1000;  // of numbers

// How one value is laid out, from either syntax.
struct Spec {
  Text fill{" ", false};
  char align = '\0';  // '<' '>' '^' '=' or none
  char sign = '-';    // '-' '+' ' '
  bool alternate = false;
  char grouping = '\0';
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

int64_t CharsOf(const Text& text) {
  int64_t count = 0;
  for (const char c : text.bytes()) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

// `body` with `prefix` (a sign, "0x") in front, filled up to the width. Filling is the engine's
// unless a fill character was given.
Text Lay(const Spec& spec, const Text& prefix, const Text& body, char default_align) {
  const int64_t missing = spec.width - CharsOf(prefix) - CharsOf(body);
  const char align = spec.align != '\0' ? spec.align : default_align;
  int64_t left = 0;
  int64_t right = 0;
  int64_t inner = 0;
  if (missing > 0) {
    if (align == '<') right = missing;
    if (align == '>') left = missing;
    if (align == '=') inner = missing;
    if (align == '^') {
      left = missing / 2;
      right = missing - left;
    }
  }
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(spec.fill);
  out.Append(prefix);
  for (int64_t i = 0; i < inner; ++i) out.Append(spec.fill);
  out.Append(body);
  for (int64_t i = 0; i < right; ++i) out.Append(spec.fill);
  return out;
}

void Group(std::string* digits, char separator, size_t group) {
  size_t end = digits->find_first_not_of("0123456789abcdefABCDEF");
  if (end == std::string::npos) end = digits->size();
  for (size_t at = end; at > group; at -= group) digits->insert(at - group, 1, separator);
}

Text Sign(const Spec& spec, bool negative, bool trusted) {
  if (negative) return Text("-", trusted);
  if (spec.sign == '+' || spec.sign == ' ') return Text(std::string(1, spec.sign), trusted);
  return Text(std::string(), trusted);
}

Result<Text> LayInteger(Interpreter& in, const Spec& spec, const BigInt& value, bool trusted) {
  const int base = spec.type == 'x' || spec.type == 'X' ? 16
                   : spec.type == 'o'                   ? 8
                   : spec.type == 'b'                   ? 2
                                                        : 10;
  CELLM_RETURN_IF_ERROR(in.ChargeBytes(value.BitCount() * 16));
  std::string digits = (value.negative() ? value.Negated() : value).ToString(base);
  if (static_cast<int64_t>(digits.size()) < spec.precision) {
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  }
  if (spec.type == 'X') {
    for (char& c : digits) c = c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c;
  }
  if (spec.grouping != '\0') Group(&digits, spec.grouping, base == 10 ? 3 : 4);
  Text prefix = Sign(spec, value.negative(), trusted);
  if (spec.alternate && base != 10) {
    const char mark[] = {'0', spec.type};
    prefix.Append(std::string_view(mark, 2), trusted);
  }
  return Lay(spec, prefix, Text(std::move(digits), trusted), '>');
}

Result<Text> LayFloat(Interpreter& in, const Spec& spec, double value, bool trusted) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') {
      for (char& c : digits) c = static_cast<char>(c - 32);
    }
  } else if (spec.type == '\0' && spec.precision < 0) {
    digits = FloatRepr(magnitude);
  } else {
    const bool percent = spec.type == '%';
    auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
    char type = percent ? 'f' : spec.type;
    if (spec.type == 'n') type = 'g';
    if (spec.type == '\0') {
      // Like "g", but one digit behind the point is kept free: an exponent comes one place earlier.
      if (precision == 0) precision = 1;
      std::string trial(400 + static_cast<size_t>(precision), '\0');
      std::snprintf(trial.data(), trial.size(), "%.*e", precision - 1, magnitude);
      type = std::atoi(trial.c_str() + trial.find('e') + 1) == precision - 1 ? 'e' : 'g';
      if (type == 'e') --precision;
    }
    const char format[] = {'%',
                           spec.alternate ? '#' : '.',
                           spec.alternate ? '.' : '*',
                           spec.alternate ? '*' : type,
                           spec.alternate ? type : '\0',
                           '\0'};
    digits.resize(400 + static_cast<size_t>(precision));
    const double scaled = percent ? magnitude * 100 : magnitude;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const int length = std::snprintf(digits.data(), digits.size(), format, precision, scaled);
#pragma GCC diagnostic pop
    digits.resize(static_cast<size_t>(length));
    if (spec.type == '\0' && type == 'e') {  // no zeros before the exponent
      const size_t e = digits.find('e');
      size_t keep = e;
      while (keep > 0 && digits[keep - 1] == '0' && digits.find('.') < keep) --keep;
      if (keep > 0 && digits[keep - 1] == '.') --keep;
      digits.erase(keep, e - keep);
    }
    // Python's format() without a type keeps a float a float: "1e+20" stays, "5" becomes "5.0".
    if (spec.type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
    if (percent) digits += "%";
  }
  CELLM_RETURN_IF_ERROR(in.ChargeBytes(digits.size()));
  if (spec.grouping != '\0') Group(&digits, spec.grouping, 3);
  Spec use = spec;
  if (!std::isfinite(value) && use.align == '=' && use.fill.bytes() == "0")
    use.fill = Text(" ", false);
  return Lay(use, Sign(spec, negative, trusted), Text(std::move(digits), trusted), '>');
}

// The first `precision` characters (all when it is negative).
Text Cut(const Text& text, int64_t precision) {
  if (precision < 0) return text;
  size_t end = 0;
  const std::string_view bytes = text.bytes();
  for (; precision > 0 && end < bytes.size(); --precision) {
    end += DecodeUtf8(bytes.substr(end)).byte_count;
  }
  return text.Slice(0, end);
}

// ---- "%" ----

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& in, const Value& format, const Value& args)
      : in_(in), format_(format), text_(TextOf(format)), bytes_(text_.bytes()), args_(args) {
    if (IsTuple(args)) {
      items_ = AsSequence(args).items;
    } else {
      items_ = std::span<const Value>(&args_, 1);
    }
  }

  Result<Value> Run() {
    Text out(std::string(), text_.all_trusted());
    while (at_ < bytes_.size()) {
      const size_t percent = std::min(bytes_.find('%', at_), bytes_.size());
      out.AppendSlice(text_, at_, percent);
      at_ = percent;
      if (at_ >= bytes_.size()) break;
      const size_t begin = at_++;
      CELLM_RETURN_IF_ERROR(Field(begin, &out));
      CELLM_RETURN_IF_ERROR(in_.ChargeBytes(64));
      if (out.size() > in_.limits().max_string_bytes) return in_.CheckStringSize(out.size());
    }
    const bool all_used = next_ >= items_.size() || mapping_used_;
    // Whatever can be indexed and is no tuple passes for a mapping, which may stay unused.
    const bool mapping = args_.Is(Kind::kDict) || IsList(args_) || args_.Is(Kind::kRange) ||
                         args_.Is(Kind::kUndefined);
    if (!all_used && !mapping) {
      return in_.RaiseMessage(ErrorKind::kTypeError,
                              "not all arguments converted during string formatting");
    }
    return in_.NewString(std::move(out), IsMarkup(format_));
  }

 private:
  char Peek() const { return at_ < bytes_.size() ? bytes_[at_] : '\0'; }

  Result<Value> NextItem() {
    if (next_ >= items_.size()) {
      return in_.RaiseMessage(ErrorKind::kTypeError, "not enough arguments for format string");
    }
    return items_[next_++];
  }

  // A number, or "*" for one taken from the arguments.
  Status ReadNumber(int64_t limit, int64_t* out) {
    if (Peek() == '*') {
      ++at_;
      CELLM_ASSIGN_OR_RETURN(const Value value, NextItem());
      if (!GetInt64(value, out)) return in_.RaiseMessage(ErrorKind::kTypeError, "* wants int");
    } else {
      *out = 0;
      while (Peek() >= '0' && Peek() <= '9' && *out <= limit)
        *out = *out * 10 + (bytes_[at_++] - '0');
    }
    if (*out > limit) return in_.RaiseMessage(ErrorKind::kValueError, "width or precision too big");
    return OkStatus();
  }

  Status Field(size_t begin, Text* out) {
    Value value;
    if (Peek() == '(') {
      const size_t close = bytes_.find(')', at_);
      if (close == std::string_view::npos) {
        return in_.RaiseMessage(ErrorKind::kValueError, "incomplete format key");
      }
      if (!args_.Is(Kind::kDict)) {
        return in_.RaiseMessage(ErrorKind::kTypeError, "format requires a mapping");
      }
      const Value* member = AsDict(args_).Find(bytes_.substr(at_ + 1, close - at_ - 1));
      if (member == nullptr) {
        return in_.Raise(ErrorKind::kKeyError, "'%s'",
                         std::string(bytes_.substr(at_ + 1, close - at_ - 1)).c_str());
      }
      value = *member;
      mapping_used_ = true;
      at_ = close + 1;
    }
    Spec spec;
    bool zero = false;
    for (;; ++at_) {
      const char c = Peek();
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+') {
        spec.sign = '+';
      } else if (c == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0') {
        zero = true;
      } else {
        break;
      }
    }
    CELLM_RETURN_IF_ERROR(ReadNumber(kMaxWidth, &spec.width));
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max<int64_t>(spec.width, -kMaxWidth);
    }
    if (Peek() == '.') {
      ++at_;
      CELLM_RETURN_IF_ERROR(ReadNumber(kMaxWidth, &spec.precision));
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    while (Peek() == 'l' || Peek() == 'h' || Peek() == 'L') ++at_;
    if (at_ >= bytes_.size()) return in_.RaiseMessage(ErrorKind::kValueError, "incomplete format");
    const char type = bytes_[at_++];
    if (type == '%') {
      out->Append("%", text_.TrustedAt(begin));
      return OkStatus();
    }
    if (zero && spec.align == '\0') {
      spec.align = '=';
      spec.fill = Text("0", false);
    }
    if (value.missing()) {
      CELLM_ASSIGN_OR_RETURN(value, NextItem());
    }
    CELLM_ASSIGN_OR_RETURN(const Text piece, Convert(spec, type, value));
    out->Append(piece);
    return OkStatus();
  }

  Result<Text> Convert(Spec spec, char type, const Value& value) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        Text text;
        if (type == 's') {
          CELLM_RETURN_IF_ERROR(in_.AppendStr(value, &text));
        } else {
          CELLM_RETURN_IF_ERROR(in_.AppendRepr(value, &text));
        }
        if (IsMarkup(format_) && !IsMarkup(value)) text = Interpreter::EscapeHtml(text);
        if (spec.align == '=') {
          spec.align = '>';
          spec.fill = Text(" ", false);
        }
        return Lay(spec, Text(), Cut(text, spec.precision), '>');
      }
      case 'c': {
        int64_t code = 0;
        Text text;
        if (value.Is(Kind::kString) && CharCount(AsString(value)) == 1) {
          text = TextOf(value);
        } else if (GetInt64(value, &code) && code >= 0 && code <= 0x10FFFF) {
          std::string bytes;
          AppendUtf8(static_cast<char32_t>(code), &bytes);
          text = Text(std::move(bytes), value.trusted());
        } else {
          return in_.RaiseMessage(ErrorKind::kTypeError, "%c requires int or char");
        }
        return Lay(spec, Text(), text, '>');
      }
      case 'd':
      case 'i':
      case 'u':
        spec.type = 'd';
        if (value.Is(Kind::kFloat)) {
          if (!std::isfinite(value.real())) {
            return in_.RaiseMessage(ErrorKind::kOverflowError, "cannot convert float to integer");
          }
          return LayInteger(in_, spec, BigInt::FromDouble(value.real()), value.trusted());
        }
        [[fallthrough]];
      case 'o':
      case 'x':
      case 'X':
        if (spec.type != 'd') spec.type = type;
        if (value.Is(Kind::kUndefined)) return in_.RaiseUndefined(value);
        if (!IsInteger(value)) {
          return in_.Raise(ErrorKind::kTypeError, "%%%c format: a real number is required, not %s",
                           type, TypeName(value));
        }
        spec.precision = std::min(spec.precision, kMaxPrecision);
        return LayInteger(in_, spec, ToBigInt(value), value.trusted());
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.Is(Kind::kUndefined)) return in_.RaiseUndefined(value);
        if (!IsNumber(value)) {
          return in_.Raise(ErrorKind::kTypeError, "must be real number, not %s", TypeName(value));
        }
        spec.type = type;
        if (spec.precision < 0) spec.precision = 6;
        spec.precision = std::min(spec.precision, kMaxPrecision);
        return LayFloat(in_, spec, ToDouble(value), value.trusted());
      default:
        return in_.Raise(ErrorKind::kValueError, "unsupported format character '%c' (0x%x)", type,
                         static_cast<unsigned>(static_cast<uint8_t>(type)));
    }
  }

  Interpreter& in_;
  const Value& format_;
  const Text& text_;
  const std::string_view bytes_;
  const Value args_;
  std::span<const Value> items_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool mapping_used_ = false;
};

// ---- "{}" ----

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, const Value& format, const Arguments& args)
      : in_(in), format_(format), args_(args) {}

  // Appends `text` formatted; fields may hold fields once (in their format specification).
  Status Run(const Text& text, int depth, Text* out) {
    const std::string_view bytes = text.bytes();
    size_t at = 0;
    while (at < bytes.size()) {
      const char c = bytes[at];
      if (c != '{' && c != '}') {
        const size_t next = std::min(bytes.find_first_of("{}", at), bytes.size());
        out->AppendSlice(text, at, next);
        at = next;
        continue;
      }
      if (at + 1 < bytes.size() && bytes[at + 1] == c) {
        out->AppendSlice(text, at, at + 1);
        at += 2;
        continue;
      }
      if (c == '}') {
        return in_.RaiseMessage(ErrorKind::kValueError, "Single '}' encountered in format string");
      }
      size_t end = at + 1;
      int open = 1;
      for (; end < bytes.size() && open > 0; ++end) {
        if (bytes[end] == '{') ++open;
        if (bytes[end] == '}') --open;
      }
      if (open > 0) {
        return in_.RaiseMessage(ErrorKind::kValueError, "expected '}' before end of string");
      }
      CELLM_RETURN_IF_ERROR(Field(text.Slice(at + 1, end - 1), depth, out));
      if (out->size() > in_.limits().max_string_bytes) return in_.CheckStringSize(out->size());
      at = end;
    }
    return OkStatus();
  }

 private:
  Status Field(const Text& field, int depth, Text* out) {
    CELLM_RETURN_IF_ERROR(in_.ChargeBytes(64 + field.size()));
    if (depth > 1) return in_.RaiseMessage(ErrorKind::kValueError, "Max string recursion exceeded");
    const std::string_view bytes = field.bytes();
    // name[!conversion][:specification]; brackets in the name may hold anything.
    size_t name_end = 0;
    bool bracket = false;
    while (name_end < bytes.size()) {
      const char c = bytes[name_end];
      if (c == '[') bracket = true;
      if (c == ']') bracket = false;
      if (!bracket && (c == '!' || c == ':')) break;
      ++name_end;
    }
    CELLM_ASSIGN_OR_RETURN(Value value, Resolve(bytes.substr(0, name_end)));
    size_t at = name_end;
    char conversion = '\0';
    if (at < bytes.size() && bytes[at] == '!') {
      conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      at += 2;
      if (conversion != 's' && conversion != 'r' && conversion != 'a') {
        return in_.RaiseMessage(ErrorKind::kValueError, "Unknown conversion specifier");
      }
      if (at < bytes.size() && bytes[at] != ':') {
        return in_.RaiseMessage(ErrorKind::kValueError, "expected ':' after conversion specifier");
      }
    }
    Text spec;
    if (at < bytes.size()) {
      CELLM_RETURN_IF_ERROR(Run(field.Slice(at + 1, bytes.size()), depth + 1, &spec));
    }
    const bool escape = IsMarkup(format_) && !IsMarkup(value);
    if (conversion != '\0') {
      Text text;
      if (conversion == 's') {
        CELLM_RETURN_IF_ERROR(in_.AppendStr(value, &text));
      } else {
        CELLM_RETURN_IF_ERROR(in_.AppendRepr(value, &text));
      }
      CELLM_ASSIGN_OR_RETURN(value, in_.NewString(std::move(text)));
    }
    CELLM_ASSIGN_OR_RETURN(Text piece, FormatValue(value, spec));
    out->Append(escape ? Interpreter::EscapeHtml(piece) : piece);
    return OkStatus();
  }

  // "0.name[key]": an argument, then ways into it.
  Result<Value> Resolve(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    const bool digits =
        first.find_first_not_of("0123456789") == std::string_view::npos && first.size() < 10;
    Value value;
    if (digits) {
      size_t index = 0;
      if (first.empty()) {
        index = next_++;
        automatic_ = true;
      } else {
        for (const char c : first) index = index * 10 + static_cast<size_t>(c - '0');
        manual_ = true;
      }
      if (automatic_ && manual_) {
        return in_.RaiseMessage(ErrorKind::kValueError,
                                "cannot switch between manual and automatic field numbering");
      }
      if (index >= args_.positional.size()) {
        return in_.Raise(ErrorKind::kIndexError,
                         "Replacement index %zu out of range for positional args tuple", index);
      }
      value = args_.positional[index];
    } else {
      for (const auto& [key, named] : args_.named) {
        if (key == first) value = named;
      }
      if (value.missing()) {
        return in_.Raise(ErrorKind::kKeyError, "'%s'", std::string(first).c_str());
      }
    }
    size_t at = first_end;
    while (at < name.size()) {
      const bool item = name[at] == '[';
      const size_t stop =
          item ? name.find(']', at) : std::min(name.find_first_of(".[", at + 1), name.size());
      if (stop == std::string_view::npos) {
        return in_.RaiseMessage(ErrorKind::kValueError, "Missing ']' in format string");
      }
      const std::string_view part = name.substr(at + 1, stop - at - 1);
      if (part.empty()) {
        return in_.RaiseMessage(ErrorKind::kValueError, "Empty attribute in format string");
      }
      CELLM_ASSIGN_OR_RETURN(const Value key, in_.NewString(Text(std::string(part), false)));
      if (!item) {
        CELLM_ASSIGN_OR_RETURN(value, in_.GetAttribute(value, key));
      } else if (part.find_first_not_of("0123456789") == std::string_view::npos &&
                 part.size() < 18) {
        int64_t index = 0;
        for (const char c : part) index = index * 10 + (c - '0');
        CELLM_ASSIGN_OR_RETURN(value, in_.GetItem(value, Value::Int(index)));
      } else {
        CELLM_ASSIGN_OR_RETURN(value, in_.GetItem(value, key));
      }
      at = item ? stop + 1 : stop;
    }
    return value;
  }

  Status Invalid() { return in_.RaiseMessage(ErrorKind::kValueError, "Invalid format specifier"); }

  // [[fill]align][sign][z][#][0][width][grouping][.precision][type]
  Status ParseSpec(const Text& text, Spec* spec) {
    const std::string_view bytes = text.bytes();
    size_t at = 0;
    const auto is_align = [&](size_t i) {
      return i < bytes.size() && std::string_view("<>=^").find(bytes[i]) != std::string_view::npos;
    };
    const size_t first = bytes.empty() ? 0 : DecodeUtf8(bytes).byte_count;
    if (first > 0 && is_align(first)) {
      spec->fill = text.Slice(0, first);
      spec->align = bytes[first];
      at = first + 1;
    } else if (is_align(0)) {
      spec->align = bytes[0];
      at = 1;
    }
    const auto peek = [&] { return at < bytes.size() ? bytes[at] : '\0'; };
    if (peek() == '+' || peek() == '-' || peek() == ' ') spec->sign = bytes[at++];
    if (peek() == '#') {
      spec->alternate = true;
      ++at;
    }
    if (peek() == '0') {
      ++at;
      if (spec->align == '\0') {
        spec->align = '=';
        spec->fill = Text("0", false);
      }
    }
    const auto number = [&](int64_t limit, int64_t* out) {
      *out = 0;
      while (peek() >= '0' && peek() <= '9' && *out <= limit)
        *out = *out * 10 + (bytes[at++] - '0');
      return *out <= limit;
    };
    if (!number(kMaxWidth, &spec->width)) return Invalid();
    if (peek() == ',' || peek() == '_') spec->grouping = bytes[at++];
    if (peek() == '.') {
      ++at;
      if (peek() < '0' || peek() > '9') {
        return in_.RaiseMessage(ErrorKind::kValueError, "Format specifier missing precision");
      }
      if (!number(kMaxWidth, &spec->precision)) return Invalid();
    }
    if (at < bytes.size()) spec->type = bytes[at++];
    return at == bytes.size() ? OkStatus() : Invalid();
  }

  Result<Text> FormatValue(const Value& value, const Text& spec_text) {
    if (spec_text.empty()) {
      Text text;
      CELLM_RETURN_IF_ERROR(in_.AppendStr(value, &text));
      return text;
    }
    Spec spec;
    CELLM_RETURN_IF_ERROR(ParseSpec(spec_text, &spec));
    const auto unknown = [&]() -> Status {
      return in_.Raise(ErrorKind::kValueError, "Unknown format code '%c' for object of type '%s'",
                       spec.type, TypeName(value));
    };
    const bool float_type =
        spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    const bool is_float = value.Is(Kind::kFloat);
    if (value.Is(Kind::kString)) {
      if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
          spec.alternate || spec.grouping != '\0') {
        // "{:05}" of a string fills with zeros on the right; only the "=" form by hand is refused.
        if (!(spec.align == '=' && (spec.type == '\0' || spec.type == 's') &&
              spec.fill.bytes() == "0")) {
          return unknown();
        }
        spec.align = '<';
      }
      return Lay(spec, Text(), Cut(TextOf(value), spec.precision), '<');
    }
    if (IsNumber(value) && (float_type || is_float)) {
      if (spec.type != '\0' && spec.type != 'n' && !float_type) return unknown();
      spec.precision = std::min(spec.precision, kMaxPrecision);
      return LayFloat(in_, spec, ToDouble(value), value.trusted());
    }
    if (IsInteger(value)) {
      if (spec.type == 'c') {
        int64_t code = 0;
        std::string bytes;
        if (!GetInt64(value, &code) || code < 0 || code > 0x10FFFF) {
          return in_.RaiseMessage(ErrorKind::kOverflowError, "%c arg not in range(0x110000)");
        }
        AppendUtf8(static_cast<char32_t>(code), &bytes);
        return Lay(spec, Text(), Text(std::move(bytes), value.trusted()), '<');
      }
      if (spec.type != '\0' &&
          std::string_view("dnboxX").find(spec.type) == std::string_view::npos) {
        return unknown();
      }
      if (spec.precision >= 0) {
        return in_.RaiseMessage(ErrorKind::kValueError,
                                "Precision not allowed in integer format specifier");
      }
      if (value.Is(Kind::kBool) && spec.type == '\0') spec.type = 'd';
      return LayInteger(in_, spec, ToBigInt(value), value.trusted());
    }
    return in_.Raise(ErrorKind::kTypeError, "unsupported format string passed to %s.__format__",
                     TypeName(value));
  }

  Interpreter& in_;
  const Value& format_;
  const Arguments& args_;
  size_t next_ = 0;
  bool automatic_ = false;
  bool manual_ = false;
};

}  // namespace

Result<Value> PercentFormat(Interpreter& in, const Value& format, const Value& args) {
  return PercentFormatter(in, format, args).Run();
}

Result<Value> BraceFormat(Interpreter& in, const Value& format, const Arguments& args) {
  Text out(std::string(), TextOf(format).all_trusted());
  CELLM_RETURN_IF_ERROR(BraceFormatter(in, format, args).Run(TextOf(format), 0, &out));
  return in.NewString(std::move(out), IsMarkup(format));
}

}  // namespace cellm::jinja
