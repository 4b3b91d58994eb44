// The methods of str, one small function each, in one table.

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja {

namespace {

constexpr size_t kNone = std::string_view::npos;

// A call of a method: who, with what, and under which name (for messages).
struct Call {
  Interpreter& in;
  const Value& self;
  const Arguments& args;
  std::string_view name;

  const Text& text() const { return TextOf(self); }
  bool markup() const { return IsMarkup(self); }
  Status Bind(std::initializer_list<std::string_view> names, size_t required,
              std::span<Value> out) const {
    return BindArguments(in, name, args, names, required, out);
  }
  Status NeedString(const Value& value) const {
    if (value.Is(Kind::kString)) return OkStatus();
    if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
    return in.Raise(ErrorKind::kTypeError, "%.*s() argument must be str, not %s",
                    static_cast<int>(name.size()), name.data(), TypeName(value));
  }
  Status NeedInt(const Value& value, int64_t* out) const {
    if (value.missing() || value.Is(Kind::kNone)) return OkStatus();
    if (value.Is(Kind::kBigInt)) {
      *out = AsBigInt(value).negative() ? -INT64_MAX : INT64_MAX;
      return OkStatus();
    }
    if (GetInt64(value, out)) return OkStatus();
    return in.Raise(ErrorKind::kTypeError, "'%s' object cannot be interpreted as an integer",
                    TypeName(value));
  }
  // A result that is a part or a variation of self keeps its safety.
  Result<Value> String(Text text_value) const {
    return in.NewString(std::move(text_value), markup());
  }
  // An argument that becomes part of the result is escaped when self is safe HTML.
  Text Escaped(const Value& value) const {
    return markup() && !IsMarkup(value) ? Interpreter::EscapeHtml(TextOf(value)) : TextOf(value);
  }
};

Result<Value> ChangeCase(const Call& call, CaseMap map) {
  CELLM_RETURN_IF_ERROR(call.Bind({}, 0, {}));
  CELLM_RETURN_IF_ERROR(call.in.Charge(static_cast<int64_t>(call.text().size() / 4)));
  return call.String(MapCase(call.text(), map));
}
Result<Value> Upper(const Call& call) { return ChangeCase(call, CaseMap::kUpper); }
Result<Value> Lower(const Call& call) { return ChangeCase(call, CaseMap::kLower); }
Result<Value> Title(const Call& call) { return ChangeCase(call, CaseMap::kTitle); }
Result<Value> Capitalize(const Call& call) { return ChangeCase(call, CaseMap::kCapitalize); }
Result<Value> SwapCase(const Call& call) { return ChangeCase(call, CaseMap::kSwap); }
Result<Value> CaseFold(const Call& call) { return ChangeCase(call, CaseMap::kFold); }

Result<Value> StripSides(const Call& call, bool left, bool right) {
  Value chars;
  CELLM_RETURN_IF_ERROR(call.Bind({"chars"}, 0, std::span<Value>(&chars, 1)));
  CELLM_RETURN_IF_ERROR(call.in.ChargeBytes(call.text().size()));
  if (chars.missing() || chars.Is(Kind::kNone)) {
    return call.String(Strip(call.text(), nullptr, left, right));
  }
  CELLM_RETURN_IF_ERROR(call.NeedString(chars));
  if (TextOf(chars).size() > 256) {  // each character is looked up in the set
    CELLM_RETURN_IF_ERROR(
        call.in.Charge(static_cast<int64_t>(call.text().size() * (TextOf(chars).size() / 256))));
  }
  return call.String(Strip(call.text(), &TextOf(chars), left, right));
}
Result<Value> StripBoth(const Call& call) { return StripSides(call, true, true); }
Result<Value> StripLeft(const Call& call) { return StripSides(call, true, false); }
Result<Value> StripRight(const Call& call) { return StripSides(call, false, true); }

// ---- Splitting ----

// Words between blanks; at most `limit` cuts (< 0: all).
std::vector<Text> SplitBlanks(const Text& text, int64_t limit, bool from_right) {
  std::vector<Text> parts;
  const std::string_view bytes = text.bytes();
  if (!from_right) {
    size_t at = CountLeadingSpace(bytes);
    while (at < bytes.size()) {
      if (limit == 0) {
        parts.push_back(text.Slice(at, bytes.size()));  // blanks at the far end stay
        return parts;
      }
      size_t end = at;
      while (end < bytes.size()) {
        const Utf8Char c = DecodeUtf8(bytes.substr(end));
        if (IsSpace(c.code_point)) break;
        end += c.byte_count;
      }
      parts.push_back(text.Slice(at, end));
      if (limit > 0) --limit;
      at = end + CountLeadingSpace(bytes.substr(end));
    }
    return parts;
  }
  size_t end = TrimmedLength(bytes);
  while (end > 0) {
    if (limit == 0) {
      parts.push_back(text.Slice(0, end));
      break;
    }
    size_t begin = end;
    while (begin > 0) {
      size_t last = begin - 1;
      while (last > 0 && (static_cast<uint8_t>(bytes[last]) & 0xC0) == 0x80) --last;
      if (IsSpace(DecodeUtf8(bytes.substr(last)).code_point)) break;
      begin = last;
    }
    parts.push_back(text.Slice(begin, end));
    if (limit > 0) --limit;
    end = TrimmedLength(bytes.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitAt(const Text& text, std::string_view separator, int64_t limit) {
  std::vector<Text> parts;
  size_t at = 0;
  for (; limit != 0; --limit) {
    const size_t found = FindBytes(text.bytes(), separator, at);
    if (found == kNone) break;
    parts.push_back(text.Slice(at, found));
    at = found + separator.size();
  }
  parts.push_back(text.Slice(at, text.size()));
  return parts;
}

std::vector<Text> SplitAtFromRight(const Text& text, std::string_view separator, int64_t limit) {
  std::vector<Text> parts;
  std::string_view rest = text.bytes();
  for (; limit != 0; --limit) {
    // Short separators only: a long one would make this quadratic (the caller checks).
    const size_t found = rest.rfind(separator);
    if (found == kNone) break;
    parts.push_back(text.Slice(found + separator.size(), rest.size()));
    rest = rest.substr(0, found);
  }
  parts.push_back(text.Slice(0, rest.size()));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Result<Value> ListOfTexts(const Call& call, std::vector<Text> parts) {
  CELLM_RETURN_IF_ERROR(call.in.CheckItemCount(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Text& part : parts) {
    CELLM_ASSIGN_OR_RETURN(Value item, call.String(std::move(part)));
    items.push_back(std::move(item));
  }
  return call.in.NewList(std::move(items));
}

Result<Value> SplitSides(const Call& call, bool from_right) {
  Value args[2];
  CELLM_RETURN_IF_ERROR(call.Bind({"sep", "maxsplit"}, 0, args));
  int64_t limit = -1;
  CELLM_RETURN_IF_ERROR(call.NeedInt(args[1], &limit));
  CELLM_RETURN_IF_ERROR(call.in.Charge(static_cast<int64_t>(call.text().size() / 8)));
  if (args[0].missing() || args[0].Is(Kind::kNone)) {
    return ListOfTexts(call, SplitBlanks(call.text(), limit, from_right));
  }
  CELLM_RETURN_IF_ERROR(call.NeedString(args[0]));
  const std::string_view separator = BytesOf(args[0]);
  if (separator.empty()) return call.in.RaiseMessage(ErrorKind::kValueError, "empty separator");
  if (!from_right) return ListOfTexts(call, SplitAt(call.text(), separator, limit));
  if (separator.size() > 32) {
    CELLM_RETURN_IF_ERROR(
        call.in.Charge(static_cast<int64_t>(call.text().size() / 64 * (separator.size() / 32))));
  }
  return ListOfTexts(call, SplitAtFromRight(call.text(), separator, limit));
}
Result<Value> Split(const Call& call) { return SplitSides(call, false); }
Result<Value> SplitFromRight(const Call& call) { return SplitSides(call, true); }

Result<Value> SplitIntoLines(const Call& call) {
  Value keep;
  CELLM_RETURN_IF_ERROR(call.Bind({"keepends"}, 0, std::span<Value>(&keep, 1)));
  CELLM_RETURN_IF_ERROR(call.in.Charge(static_cast<int64_t>(call.text().size() / 8)));
  return ListOfTexts(call, SplitLines(call.text(), call.in.IsTrue(keep)));
}

Result<Value> PartitionAt(const Call& call, bool last) {
  Value separator;
  CELLM_RETURN_IF_ERROR(call.Bind({"sep"}, 1, std::span<Value>(&separator, 1)));
  CELLM_RETURN_IF_ERROR(call.NeedString(separator));
  if (TextOf(separator).empty()) {
    return call.in.RaiseMessage(ErrorKind::kValueError, "empty separator");
  }
  const Text& text = call.text();
  CELLM_RETURN_IF_ERROR(call.in.ChargeBytes(text.size()));
  const size_t found = last ? FindLastBytes(text.bytes(), BytesOf(separator))
                            : FindBytes(text.bytes(), BytesOf(separator));
  Text parts[3];
  if (found == kNone) {
    parts[last ? 2 : 0] = text;
  } else {
    parts[0] = text.Slice(0, found);
    parts[1] = TextOf(separator);
    parts[2] = text.Slice(found + TextOf(separator).size(), text.size());
  }
  std::vector<Value> items;
  for (Text& part : parts) {
    CELLM_ASSIGN_OR_RETURN(Value item, call.String(std::move(part)));
    items.push_back(std::move(item));
  }
  return call.in.NewTuple(std::move(items));
}
Result<Value> Partition(const Call& call) { return PartitionAt(call, false); }
Result<Value> PartitionLast(const Call& call) { return PartitionAt(call, true); }

// ---- Searching ----

// The part of self that optional start and end arguments select, in bytes.
struct Window {
  size_t begin = 0;
  size_t end = 0;
  bool valid = true;  // false: start lies behind the end
};

Result<Window> SelectWindow(const Call& call, const Value& from, const Value& to) {
  const StringObject& string = AsString(call.self);
  const int64_t length = CharCount(string);
  int64_t begin = 0;
  int64_t end = length;
  CELLM_RETURN_IF_ERROR(call.NeedInt(from, &begin));
  CELLM_RETURN_IF_ERROR(call.NeedInt(to, &end));
  if (begin < 0) begin = std::max<int64_t>(0, begin < -length ? 0 : begin + length);
  if (end < 0) end = std::max<int64_t>(0, end < -length ? 0 : end + length);
  end = std::min(end, length);
  if (begin > end) return Window{0, 0, false};
  return Window{ByteOffset(string, begin), ByteOffset(string, end), true};
}

// Where the argument occurs, as a character index; -1 for nowhere.
Result<int64_t> Search(const Call& call, bool last) {
  Value args[3];
  CELLM_RETURN_IF_ERROR(call.Bind({"sub", "start", "end"}, 1, args));
  CELLM_RETURN_IF_ERROR(call.NeedString(args[0]));
  CELLM_RETURN_IF_ERROR(call.in.ChargeBytes(call.text().size()));
  CELLM_ASSIGN_OR_RETURN(const Window window, SelectWindow(call, args[1], args[2]));
  if (!window.valid) return int64_t{-1};
  const std::string_view part =
      std::string_view(call.text().bytes()).substr(window.begin, window.end - window.begin);
  const size_t found =
      last ? FindLastBytes(part, BytesOf(args[0])) : FindBytes(part, BytesOf(args[0]));
  if (found == kNone) return int64_t{-1};
  return CharIndex(AsString(call.self), window.begin + found);
}

Result<Value> Find(const Call& call) {
  CELLM_ASSIGN_OR_RETURN(const int64_t at, Search(call, false));
  return Value::Int(at);
}
Result<Value> FindLast(const Call& call) {
  CELLM_ASSIGN_OR_RETURN(const int64_t at, Search(call, true));
  return Value::Int(at);
}
Result<Value> Index(const Call& call) {
  CELLM_ASSIGN_OR_RETURN(const int64_t at, Search(call, call.name == "rindex"));
  if (at < 0) return call.in.RaiseMessage(ErrorKind::kValueError, "substring not found");
  return Value::Int(at);
}

Result<Value> Count(const Call& call) {
  Value args[3];
  CELLM_RETURN_IF_ERROR(call.Bind({"sub", "start", "end"}, 1, args));
  CELLM_RETURN_IF_ERROR(call.NeedString(args[0]));
  CELLM_RETURN_IF_ERROR(call.in.ChargeBytes(call.text().size()));
  CELLM_ASSIGN_OR_RETURN(const Window window, SelectWindow(call, args[1], args[2]));
  if (!window.valid) return Value::Int(0);
  const std::string_view part =
      std::string_view(call.text().bytes()).substr(window.begin, window.end - window.begin);
  const std::string_view sub = BytesOf(args[0]);
  if (sub.empty()) {
    return Value::Int(CharIndex(AsString(call.self), window.end) -
                      CharIndex(AsString(call.self), window.begin) + 1);
  }
  return Value::Int(static_cast<int64_t>(SplitAt(Text(std::string(part), false), sub, -1).size()) -
                    1);
}

Result<Value> HasEdge(const Call& call, bool at_end) {
  Value args[3];
  CELLM_RETURN_IF_ERROR(call.Bind({"prefix", "start", "end"}, 1, args));
  CELLM_ASSIGN_OR_RETURN(const Window window, SelectWindow(call, args[1], args[2]));
  const std::string_view part =
      std::string_view(call.text().bytes()).substr(window.begin, window.end - window.begin);
  const auto matches = [&](const Value& edge) {
    return window.valid &&
           (at_end ? part.ends_with(BytesOf(edge)) : part.starts_with(BytesOf(edge)));
  };
  if (args[0].Is(Kind::kString)) return Value::Bool(matches(args[0]));
  if (!IsTuple(args[0])) {
    if (args[0].Is(Kind::kUndefined)) return call.in.RaiseUndefined(args[0]);
    return call.in.Raise(ErrorKind::kTypeError,
                         "%s first arg must be str or a tuple of str, not %s",
                         at_end ? "endswith" : "startswith", TypeName(args[0]));
  }
  for (const Value& edge : AsSequence(args[0]).items) {
    CELLM_RETURN_IF_ERROR(call.NeedString(edge));
    if (matches(edge)) return Value::Bool(true);
  }
  return Value::Bool(false);
}
Result<Value> StartsWith(const Call& call) { return HasEdge(call, false); }
Result<Value> EndsWith(const Call& call) { return HasEdge(call, true); }

Result<Value> RemoveEdge(const Call& call) {
  Value edge;
  CELLM_RETURN_IF_ERROR(call.Bind({"affix"}, 1, std::span<Value>(&edge, 1)));
  CELLM_RETURN_IF_ERROR(call.NeedString(edge));
  const Text& text = call.text();
  const size_t size = TextOf(edge).size();
  const std::string_view bytes = text.bytes();
  if (call.name == "removeprefix") {
    return call.String(text.Slice(bytes.starts_with(BytesOf(edge)) ? size : 0, text.size()));
  }
  const bool ends = size > 0 && bytes.ends_with(BytesOf(edge));
  return call.String(text.Slice(0, text.size() - (ends ? size : 0)));
}

// ---- Building ----

Result<Value> ReplaceMethod(const Call& call) {
  Value args[3];
  CELLM_RETURN_IF_ERROR(call.Bind({"old", "new", "count"}, 2, args));
  CELLM_RETURN_IF_ERROR(call.NeedString(args[0]));
  CELLM_RETURN_IF_ERROR(call.NeedString(args[1]));
  int64_t count = -1;
  CELLM_RETURN_IF_ERROR(call.NeedInt(args[2], &count));
  CELLM_ASSIGN_OR_RETURN(
      Text out, Replace(call.in, call.text(), TextOf(args[0]), call.Escaped(args[1]), count));
  return call.String(std::move(out));
}

Result<Value> JoinMethod(const Call& call) {
  Value iterable;
  CELLM_RETURN_IF_ERROR(call.Bind({"iterable"}, 1, std::span<Value>(&iterable, 1)));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, call.in.Iterate(iterable));
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (!call.markup() && !list.items[i].Is(Kind::kString)) {
      return call.in.Raise(ErrorKind::kTypeError,
                           "sequence item %zu: expected str instance, %s found", i,
                           TypeName(list.items[i]));
    }
  }
  CELLM_ASSIGN_OR_RETURN(Text out, Join(call.in, call.text(), list.items, call.markup()));
  return call.String(std::move(out));
}

Result<Value> FormatMethod(const Call& call) { return BraceFormat(call.in, call.self, call.args); }

Result<Value> Justify(const Call& call) {
  Value args[2];
  CELLM_RETURN_IF_ERROR(call.Bind({"width", "fillchar"}, 1, args));
  int64_t width = 0;
  CELLM_RETURN_IF_ERROR(call.NeedInt(args[0], &width));
  Text fill(" ", false);
  if (!args[1].missing()) {
    CELLM_RETURN_IF_ERROR(call.NeedString(args[1]));
    if (CharCount(AsString(args[1])) != 1) {
      return call.in.RaiseMessage(ErrorKind::kTypeError,
                                  "The fill character must be exactly one character long");
    }
    fill = call.Escaped(args[1]);
  }
  if (call.name == "center") {
    CELLM_ASSIGN_OR_RETURN(Text out, Center(call.in, call.self, width, fill));
    return call.String(std::move(out));
  }
  const int64_t length = CharCount(AsString(call.self));
  const int64_t missing = width > length ? width - length : 0;
  const bool left = call.name == "ljust";
  CELLM_ASSIGN_OR_RETURN(Text out,
                         Pad(call.in, call.self, left ? 0 : missing, left ? missing : 0, fill));
  return call.String(std::move(out));
}

Result<Value> ZeroFill(const Call& call) {
  Value width_value;
  CELLM_RETURN_IF_ERROR(call.Bind({"width"}, 1, std::span<Value>(&width_value, 1)));
  int64_t width = 0;
  CELLM_RETURN_IF_ERROR(call.NeedInt(width_value, &width));
  const int64_t length = CharCount(AsString(call.self));
  if (width <= length) return call.self;
  CELLM_RETURN_IF_ERROR(call.in.CheckStringSize(static_cast<size_t>(width)));
  const Text& text = call.text();
  const bool sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
  Text out = text.Slice(0, sign ? 1 : 0);
  out.Append(std::string(static_cast<size_t>(width - length), '0'), false);
  out.AppendSlice(text, sign ? 1 : 0, text.size());
  return call.String(std::move(out));
}

Result<Value> ExpandTabs(const Call& call) {
  Value size_value;
  CELLM_RETURN_IF_ERROR(call.Bind({"tabsize"}, 0, std::span<Value>(&size_value, 1)));
  int64_t tab = 8;
  CELLM_RETURN_IF_ERROR(call.NeedInt(size_value, &tab));
  Text out;
  int64_t column = 0;
  const Text& text = call.text();
  const std::string_view bytes = text.bytes();
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = DecodeUtf8(bytes.substr(at)).byte_count;
    if (bytes[at] == '\t') {
      const int64_t blanks = tab > 0 ? tab - column % tab : 0;
      CELLM_RETURN_IF_ERROR(call.in.CheckStringSize(out.size() + static_cast<size_t>(blanks)));
      out.Append(std::string(static_cast<size_t>(blanks), ' '), text.TrustedAt(at));
      column += blanks;
    } else {
      out.AppendSlice(text, at, at + size);
      column = bytes[at] == '\n' || bytes[at] == '\r' ? 0 : column + 1;
    }
    at += size;
  }
  return call.String(std::move(out));
}

Result<Value> Encode(const Call& call) {
  Value args[2];
  CELLM_RETURN_IF_ERROR(call.Bind({"encoding", "errors"}, 0, args));
  if (args[0].Is(Kind::kString)) {
    std::string name;
    for (const char c : BytesOf(args[0])) {
      if (c != '-' && c != '_')
        name.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
    }
    if (name != "utf8") {
      return call.in.RaiseMessage(ErrorKind::kValueError, "encode(): only utf-8 is supported");
    }
  }
  auto* bytes = new StringObject(Kind::kBytes);
  bytes->text = call.text();
  bytes->Charge(call.in.budget(), sizeof(StringObject) + bytes->text.HeapBytes());
  return Value::Adopt(Kind::kBytes, bytes);
}

// ---- Questions ----

// True when there is a character and all pass.
template <typename Test>
Result<Value> All(const Call& call, const Test& test) {
  CELLM_RETURN_IF_ERROR(call.Bind({}, 0, {}));
  CELLM_RETURN_IF_ERROR(call.in.Charge(static_cast<int64_t>(call.text().size() / 8)));
  std::string_view rest = call.text().bytes();
  bool all = !rest.empty();
  while (all && !rest.empty()) {
    const Utf8Char c = DecodeUtf8(rest);
    all = test(c.code_point);
    rest.remove_prefix(c.byte_count);
  }
  return Value::Bool(all);
}

Result<Value> IsAlphaMethod(const Call& call) { return All(call, IsAlpha); }
Result<Value> IsDigitMethod(const Call& call) { return All(call, IsDigitChar); }
Result<Value> IsDecimalMethod(const Call& call) { return All(call, IsDecimal); }
Result<Value> IsNumericMethod(const Call& call) { return All(call, IsNumeric); }
Result<Value> IsSpaceMethod(const Call& call) { return All(call, IsSpace); }
Result<Value> IsAlnumMethod(const Call& call) {
  return All(call, [](char32_t c) { return IsAlpha(c) || IsNumeric(c) || IsDigitChar(c); });
}
Result<Value> IsPrintableMethod(const Call& call) {
  if (call.text().empty()) return Value::Bool(true);
  return All(call, IsPrintable);
}
Result<Value> IsAsciiMethod(const Call& call) {
  if (call.text().empty()) return Value::Bool(true);
  return All(call, [](char32_t c) { return c < 0x80; });
}
Result<Value> IsIdentifierMethod(const Call& call) {
  bool first = true;
  return All(call, [&](char32_t c) {
    const bool good = c == '_' || IsAlpha(c) || (!first && IsDecimal(c));
    first = false;
    return good;
  });
}

// No character of the other case, and at least one of this.
Result<Value> IsOneCase(const Call& call, bool upper) {
  bool seen = false;
  CELLM_ASSIGN_OR_RETURN(const Value all, All(call, [&](char32_t c) {
                           if (upper ? IsUpper(c) : IsLower(c)) seen = true;
                           return !(upper ? IsLower(c) : IsUpper(c)) && !IsTitle(c);
                         }));
  return Value::Bool(all.boolean() && seen);
}
Result<Value> IsUpperMethod(const Call& call) { return IsOneCase(call, true); }
Result<Value> IsLowerMethod(const Call& call) { return IsOneCase(call, false); }

Result<Value> IsTitleMethod(const Call& call) {
  bool seen = false;
  bool after_cased = false;
  CELLM_ASSIGN_OR_RETURN(const Value all, All(call, [&](char32_t c) {
                           const bool big = IsUpper(c) || IsTitle(c);
                           const bool small = IsLower(c);
                           const bool good = big ? !after_cased : (!small || after_cased);
                           after_cased = big || small;
                           seen = seen || after_cased;
                           return good;
                         }));
  return Value::Bool(all.boolean() && seen);
}

struct Method {
  std::string_view name;
  Result<Value> (*run)(const Call&);
};

constexpr Method kMethods[] = {
    {"capitalize", Capitalize},
    {"casefold", CaseFold},
    {"center", Justify},
    {"count", Count},
    {"encode", Encode},
    {"endswith", EndsWith},
    {"expandtabs", ExpandTabs},
    {"find", Find},
    {"format", FormatMethod},
    {"index", Index},
    {"isalnum", IsAlnumMethod},
    {"isalpha", IsAlphaMethod},
    {"isascii", IsAsciiMethod},
    {"isdecimal", IsDecimalMethod},
    {"isdigit", IsDigitMethod},
    {"isidentifier", IsIdentifierMethod},
    {"islower", IsLowerMethod},
    {"isnumeric", IsNumericMethod},
    {"isprintable", IsPrintableMethod},
    {"isspace", IsSpaceMethod},
    {"istitle", IsTitleMethod},
    {"isupper", IsUpperMethod},
    {"join", JoinMethod},
    {"ljust", Justify},
    {"lower", Lower},
    {"lstrip", StripLeft},
    {"partition", Partition},
    {"removeprefix", RemoveEdge},
    {"removesuffix", RemoveEdge},
    {"replace", ReplaceMethod},
    {"rfind", FindLast},
    {"rindex", Index},
    {"rjust", Justify},
    {"rpartition", PartitionLast},
    {"rsplit", SplitFromRight},
    {"rstrip", StripRight},
    {"split", Split},
    {"splitlines", SplitIntoLines},
    {"startswith", StartsWith},
    {"strip", StripBoth},
    {"swapcase", SwapCase},
    {"title", Title},
    {"upper", Upper},
    {"zfill", ZeroFill},
};

}  // namespace

std::string_view FindStringMethod(std::string_view name) {
  for (const Method& method : kMethods) {
    if (method.name == name) return method.name;
  }
  return {};
}

Result<Value> CallStringMethod(Interpreter& in, const Value& self, std::string_view name,
                               const Arguments& args) {
  for (const Method& method : kMethods) {
    if (method.name == name) return method.run({in, self, args, method.name});
  }
  return Internal("a string method without code");
}

}  // namespace cellm::jinja
