#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "jinja/filters.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja::filters {

namespace {

// An optional whole number.
Status IntArgument(Interpreter& in, const Value& value, int64_t* out) {
  if (value.missing() || value.Is(Kind::kNone) || GetInt64(value, out)) return OkStatus();
  return in.Raise(ErrorKind::kTypeError, "'%s' object cannot be interpreted as an integer",
                  TypeName(value));
}

// str(value), then a method of str.
Result<Value> ByMethod(Interpreter& in, const Value& value, const char* method,
                       const Arguments& args) {
  CELLM_ASSIGN_OR_RETURN(const Value text, in.ToStringValue(value));
  return CallStringMethod(in, text, method, args);
}

bool IsWordChar(char32_t c) { return c == '_' || IsAlpha(c) || IsNumeric(c) || IsDecimal(c); }

}  // namespace

Result<Value> Upper(Interpreter& in, const Value& value, Arguments args) {
  return ByMethod(in, value, "upper", args);
}
Result<Value> Lower(Interpreter& in, const Value& value, Arguments args) {
  return ByMethod(in, value, "lower", args);
}
Result<Value> Capitalize(Interpreter& in, const Value& value, Arguments args) {
  return ByMethod(in, value, "capitalize", args);
}
Result<Value> Trim(Interpreter& in, const Value& value, Arguments args) {
  return ByMethod(in, value, "strip", args);
}

Result<Value> Title(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "title", args, {}, 0, {}));
  CELLM_ASSIGN_OR_RETURN(const Value string, in.ToStringValue(value));
  const Text& text = TextOf(string);
  CELLM_RETURN_IF_ERROR(in.Charge(static_cast<int64_t>(text.size() / 4)));
  // Words start after blanks, "-" and opening brackets.
  Text out;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  const auto is_break = [](char32_t c) {
    return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  while (begin < bytes.size()) {
    const Utf8Char first = DecodeUtf8(bytes.substr(begin));
    size_t end = begin + first.byte_count;
    if (!is_break(first.code_point)) {
      while (end < bytes.size() && !is_break(DecodeUtf8(bytes.substr(end)).code_point)) {
        end += DecodeUtf8(bytes.substr(end)).byte_count;
      }
    }
    // The first character of a word gets its full upper case (not title case), as the reference
    // does.
    const size_t second = begin + first.byte_count;
    out.Append(MapCase(text.Slice(begin, second), CaseMap::kUpper));
    out.Append(MapCase(text.Slice(second, end), CaseMap::kLower));
    begin = end;
  }
  return in.NewString(std::move(out), IsMarkup(string));
}

Result<Value> Center(Interpreter& in, const Value& value, Arguments args) {
  Value width_value;
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "center", args, {"width"}, 0, std::span<Value>(&width_value, 1)));
  int64_t width = 80;
  CELLM_RETURN_IF_ERROR(IntArgument(in, width_value, &width));
  CELLM_ASSIGN_OR_RETURN(const Value string, in.ToStringValue(value));
  CELLM_ASSIGN_OR_RETURN(Text out, jinja::Center(in, string, width, Text(" ", false)));
  return in.NewString(std::move(out), IsMarkup(string));
}

Result<Value> Escape(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "escape", args, {}, 0, {}));
  if (IsMarkup(value)) return value;
  Text text;
  CELLM_RETURN_IF_ERROR(in.AppendStr(value, &text));
  return in.NewString(Interpreter::EscapeHtml(text), true);
}

Result<Value> ForceEscape(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "forceescape", args, {}, 0, {}));
  Text text;
  CELLM_RETURN_IF_ERROR(in.AppendStr(value, &text));
  return in.NewString(Interpreter::EscapeHtml(text), true);
}

Result<Value> Safe(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "safe", args, {}, 0, {}));
  Text text;
  CELLM_RETURN_IF_ERROR(in.AppendStr(value, &text));
  return in.NewString(std::move(text), true);
}

Result<Value> String(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "string", args, {}, 0, {}));
  return in.ToStringValue(value);
}

Result<Value> Format(Interpreter& in, const Value& value, Arguments args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return in.RaiseMessage(ErrorKind::kFilterArgumentError,
                           "can't handle positional and keyword arguments at the same time");
  }
  CELLM_ASSIGN_OR_RETURN(const Value string, in.ToStringValue(value));
  if (args.named.empty()) return PercentFormat(in, string, in.NewTuple(std::move(args.positional)));
  DictTable table;
  for (auto& [name, member] : args.named) {
    CELLM_ASSIGN_OR_RETURN(Value key, in.NewString(Text(name, true)));
    table.Set(std::move(key), std::move(member));
  }
  return PercentFormat(in, string, MakeDict(std::move(table), in.budget()));
}

Result<Value> Replace(Interpreter& in, const Value& value, Arguments args) {
  Value parts[3];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "replace", args, {"old", "new", "count"}, 2, parts));
  int64_t count = -1;
  CELLM_RETURN_IF_ERROR(IntArgument(in, parts[2], &count));
  Text text[3];
  CELLM_RETURN_IF_ERROR(in.AppendStr(value, &text[0]));
  CELLM_RETURN_IF_ERROR(in.AppendStr(parts[0], &text[1]));
  CELLM_RETURN_IF_ERROR(in.AppendStr(parts[1], &text[2]));
  const bool markup =
      in.autoescape() && (IsMarkup(value) || IsMarkup(parts[0]) || IsMarkup(parts[1]));
  if (markup && !IsMarkup(value)) text[0] = Interpreter::EscapeHtml(text[0]);
  if (markup && !IsMarkup(parts[1])) text[2] = Interpreter::EscapeHtml(text[2]);
  CELLM_ASSIGN_OR_RETURN(Text out, jinja::Replace(in, text[0], text[1], text[2], count));
  return in.NewString(std::move(out), markup);
}

Result<Value> Indent(Interpreter& in, const Value& value, Arguments args) {
  Value options[3];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "indent", args, {"width", "first", "blank"}, 0, options));
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  if (!value.Is(Kind::kString)) {
    return in.Raise(ErrorKind::kTypeError, "indent needs a string, not '%s'", TypeName(value));
  }
  Text indention;
  if (options[0].Is(Kind::kString)) {
    indention = TextOf(options[0]);
  } else {
    int64_t width = 4;
    CELLM_RETURN_IF_ERROR(IntArgument(in, options[0], &width));
    CELLM_RETURN_IF_ERROR(in.CheckStringSize(static_cast<size_t>(std::max<int64_t>(width, 0))));
    indention = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), false);
  }
  const bool blank = in.IsTrue(options[2]);
  Text text = TextOf(value);
  text.Append("\n", false);
  Text out;
  if (in.IsTrue(options[1])) out.Append(indention);
  bool first = true;
  for (const Text& line : SplitLines(text, false)) {
    if (!first) out.Append("\n", false);
    if (!first && (blank || !line.empty())) out.Append(indention);
    first = false;
    out.Append(line);
    CELLM_RETURN_IF_ERROR(in.ChargeBytes(line.size()));
    if (out.size() > in.limits().max_string_bytes) return in.CheckStringSize(out.size());
  }
  return in.NewString(std::move(out), IsMarkup(value));
}

Result<Value> Truncate(Interpreter& in, const Value& value, Arguments args) {
  Value options[4];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "truncate", args, {"length", "killwords", "end", "leeway"}, 0, options));
  int64_t length = 255;
  int64_t leeway = 5;
  CELLM_RETURN_IF_ERROR(IntArgument(in, options[0], &length));
  CELLM_RETURN_IF_ERROR(IntArgument(in, options[3], &leeway));
  Text end("...", false);
  int64_t end_length = 3;
  if (options[2].Is(Kind::kString)) {
    end = TextOf(options[2]);
    end_length = CharCount(AsString(options[2]));
  }
  if (length < end_length || leeway < 0) {
    return in.Raise(ErrorKind::kRuntimeError, "expected length >= %d, got %lld",
                    static_cast<int>(end_length), static_cast<long long>(length));
  }
  CELLM_ASSIGN_OR_RETURN(const int64_t value_length, in.Length(value));
  if (value_length <= (length > INT64_MAX - leeway ? INT64_MAX : length + leeway)) return value;
  if (!value.Is(Kind::kString)) {
    return in.Raise(ErrorKind::kTypeError, "truncate needs a string, not '%s'", TypeName(value));
  }
  const StringObject& string = AsString(value);
  Text out = string.text.Slice(0, ByteOffset(string, length - end_length));
  if (!in.IsTrue(options[1])) {
    const size_t blank = out.bytes().rfind(' ');
    if (blank != std::string::npos) out = out.Slice(0, blank);
  }
  out.Append(end);
  return in.NewString(std::move(out), string.markup);
}

Result<Value> WordCount(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "wordcount", args, {}, 0, {}));
  CELLM_ASSIGN_OR_RETURN(const Value string, in.ToStringValue(value));
  CELLM_RETURN_IF_ERROR(in.Charge(static_cast<int64_t>(TextOf(string).size() / 8)));
  int64_t words = 0;
  bool inside = false;
  for (std::string_view rest = BytesOf(string); !rest.empty();) {
    const Utf8Char c = DecodeUtf8(rest);
    const bool word = IsWordChar(c.code_point);
    if (word && !inside) ++words;
    inside = word;
    rest.remove_prefix(c.byte_count);
  }
  return Value::Int(words);
}

// Lines of at most `width` characters, broken between words; words that are longer are cut when
// break_long_words is set. Hyphenated words are kept whole unless break_on_hyphens is left on, in
// which case this build refuses them rather than break at other places than the reference.
Result<Value> WordWrap(Interpreter& in, const Value& value, Arguments args) {
  Value options[4];
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "wordwrap", args,
                    {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0, options));
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  if (!value.Is(Kind::kString)) {
    return in.Raise(ErrorKind::kTypeError, "'%s' object has no attribute 'splitlines'",
                    TypeName(value));
  }
  const Value& string = value;
  int64_t width = 79;
  CELLM_RETURN_IF_ERROR(IntArgument(in, options[0], &width));
  if (width <= 0) {
    return in.RaiseMessage(ErrorKind::kValueError, "invalid width (must be > 0)");
  }
  const bool cut_words = options[1].missing() || in.IsTrue(options[1]);
  const bool hyphens = options[3].missing() || in.IsTrue(options[3]);
  if (hyphens && BytesOf(string).find('-') != std::string_view::npos) {
    return in.RaiseMessage(ErrorKind::kTemplateRuntimeError,
                           "wordwrap of hyphenated text is only supported with "
                           "break_on_hyphens=false");
  }
  const Text newline = options[2].Is(Kind::kString) ? TextOf(options[2]) : Text("\n", false);
  CELLM_RETURN_IF_ERROR(in.Charge(static_cast<int64_t>(TextOf(string).size() / 2)));
  Text out;
  bool first_paragraph = true;
  for (const Text& paragraph : SplitLines(TextOf(string), false)) {
    if (!first_paragraph) out.Append(newline);
    first_paragraph = false;
    // Chunks alternate between words and runs of ASCII blanks.
    const std::string_view bytes = paragraph.bytes();
    std::vector<std::pair<size_t, size_t>> chunks;
    const auto is_blank = [&](size_t i) {
      return bytes[i] == ' ' || (bytes[i] >= 9 && bytes[i] <= 13);
    };
    for (size_t at = 0; at < bytes.size();) {
      size_t end = at + 1;
      while (end < bytes.size() && is_blank(end) == is_blank(at)) ++end;
      chunks.emplace_back(at, end);
      at = end;
    }
    const auto chars = [&](size_t begin, size_t end) {
      int64_t count = 0;
      for (size_t i = begin; i < end; ++i) count += (static_cast<uint8_t>(bytes[i]) & 0xC0) != 0x80;
      return count;
    };
    bool first_line = true;
    size_t next = 0;
    while (next < chunks.size()) {
      if (!first_line && is_blank(chunks[next].first)) ++next;
      if (next >= chunks.size()) break;
      const size_t begin = chunks[next].first;
      size_t end = begin;
      int64_t used = 0;
      while (next < chunks.size() &&
             used + chars(chunks[next].first, chunks[next].second) <= width) {
        used += chars(chunks[next].first, chunks[next].second);
        end = chunks[next++].second;
      }
      if (next < chunks.size() && chars(chunks[next].first, chunks[next].second) > width) {
        size_t stop = chunks[next].second;
        if (cut_words) {
          stop = chunks[next].first;
          for (int64_t room = width - used; room > 0; --room) {
            stop += DecodeUtf8(bytes.substr(stop)).byte_count;
          }
          chunks[next].first = stop;
        } else if (end > begin) {
          stop = end;
        } else {
          ++next;
        }
        end = std::max(end, stop);
      }
      while (end > begin && is_blank(end - 1)) --end;
      if (end == begin) continue;
      if (!first_line) out.Append(newline);
      first_line = false;
      out.AppendSlice(paragraph, begin, end);
      if (out.size() > in.limits().max_string_bytes) return in.CheckStringSize(out.size());
    }
  }
  return in.NewString(std::move(out), IsMarkup(string));
}

// Comments and tags go, runs of blanks become one, a few entities are read.
Result<Value> StripTags(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "striptags", args, {}, 0, {}));
  Text text;
  CELLM_RETURN_IF_ERROR(in.AppendStr(value, &text));
  CELLM_RETURN_IF_ERROR(in.ChargeBytes(text.size() * 8));
  Text bare;
  std::string_view bytes = text.bytes();
  size_t at = 0;
  while (at < bytes.size()) {
    const bool comment = bytes.substr(at, 4) == "<!--";
    const size_t close =
        bytes[at] != '<' ? std::string_view::npos : bytes.find(comment ? "-->" : ">", at);
    if (bytes[at] == '<' && close != std::string_view::npos) {
      at = close + (comment ? 3 : 1);
      continue;
    }
    const size_t next = std::min(bytes.find('<', at + 1), bytes.size());
    bare.AppendSlice(text, at, next);
    at = next;
    if (at < bytes.size() && bytes.find('>', at) == std::string_view::npos) {
      bare.AppendSlice(text, at, bytes.size());  // no tag ends any more
      break;
    }
  }
  static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&lt;", "<"},   {"&gt;", ">"},  {"&quot;", "\""},
      {"&#34;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
  Text out;
  bytes = bare.bytes();
  bool pending_blank = false;
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes.substr(i));
    if (IsSpace(c.code_point)) {
      pending_blank = !out.empty();
      i += c.byte_count;
      continue;
    }
    if (pending_blank) out.Append(" ", false);
    pending_blank = false;
    bool entity = false;
    for (const auto& [name, meaning] : kEntities) {
      if (entity || bytes.substr(i, name.size()) != name) continue;
      out.Append(meaning, bare.TrustedAt(i));
      i += name.size();
      entity = true;
    }
    if (entity) continue;
    out.AppendSlice(bare, i, i + c.byte_count);
    i += c.byte_count;
  }
  return in.NewString(std::move(out));
}

namespace {

// Percent-encoding as urllib.parse.quote: letters, digits, "_.-~" and (in a path) "/" stay; in a
// query a blank is "+".
void AppendQuoted(const Text& text, bool is_path, Text* out) {
  const std::string_view bytes = text.bytes();
  text.ForEachRun(0, bytes.size(), [&](size_t begin, size_t end, bool trusted) {
    std::string piece;
    for (size_t i = begin; i < end; ++i) {
      const char c = bytes[i];
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~' ||
                         (c == '/' && is_path);
      if (c == ' ' && !is_path) {
        piece.push_back('+');
        continue;
      }
      piece += plain ? std::string(1, c)
                     : StrFormat("%%%02X", static_cast<unsigned>(static_cast<uint8_t>(c)));
    }
    out->Append(piece, trusted);
  });
}

}  // namespace

Result<Value> UrlEncode(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "urlencode", args, {}, 0, {}));
  Text out;
  const bool pairs = value.Is(Kind::kDict) || IsList(value) || IsTuple(value);
  if (!pairs) {
    Text text;
    CELLM_RETURN_IF_ERROR(in.AppendStr(value, &text));
    CELLM_RETURN_IF_ERROR(in.CheckStringSize(text.size() * 3));
    AppendQuoted(text, true, &out);
    return in.NewString(std::move(out));
  }
  const auto append_pair = [&](const Value& key, const Value& item) -> Status {
    if (!out.empty()) out.Append("&", false);
    Text text[2];
    CELLM_RETURN_IF_ERROR(in.AppendStr(key, &text[0]));
    CELLM_RETURN_IF_ERROR(in.AppendStr(item, &text[1]));
    CELLM_RETURN_IF_ERROR(in.CheckStringSize(out.size() + (text[0].size() + text[1].size()) * 3));
    AppendQuoted(text[0], false, &out);
    out.Append("=", false);
    AppendQuoted(text[1], false, &out);
    return OkStatus();
  };
  if (value.Is(Kind::kDict)) {
    for (const DictTable::Entry& entry : AsDict(value).entries()) {
      CELLM_RETURN_IF_ERROR(append_pair(entry.key, entry.value));
    }
  } else {
    for (const Value& pair : AsSequence(value).items) {
      CELLM_ASSIGN_OR_RETURN(const ItemList parts, in.Iterate(pair));
      if (parts.items.size() != 2) {
        return in.RaiseMessage(ErrorKind::kValueError, "urlencode needs pairs");
      }
      CELLM_RETURN_IF_ERROR(append_pair(parts.items[0], parts.items[1]));
    }
  }
  return in.NewString(std::move(out));
}

Result<Value> FileSizeFormat(Interpreter& in, const Value& value, Arguments args) {
  Value binary;
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "filesizeformat", args, {"binary"}, 0, std::span<Value>(&binary, 1)));
  Arguments not_a_number;
  not_a_number.positional.push_back(Value::None());
  CELLM_ASSIGN_OR_RETURN(const Value number, Float(in, value, std::move(not_a_number)));
  if (!number.Is(Kind::kFloat)) {
    return in.Raise(ErrorKind::kTypeError, "could not convert %s to float", TypeName(value));
  }
  const double size = number.real();
  const double base = in.IsTrue(binary) ? 1024 : 1000;
  if (size == 1) return in.NewString(Text("1 Byte", false));
  if (size < base)
    return in.NewString(Text(StrFormat("%.0f Bytes", std::trunc(size) + 0.0), false));
  const char* prefixes = in.IsTrue(binary) ? "KMGTPEZY" : "kMGTPEZY";
  double unit = base;
  int i = 0;
  while (i < 7 && size >= unit * base) {
    unit *= base;
    ++i;
  }
  return in.NewString(Text(
      StrFormat("%.1f %c%s", size / unit, prefixes[i], in.IsTrue(binary) ? "iB" : "B"), false));
}

}  // namespace cellm::jinja::filters
