// Work on whole strings that filters and methods share. Everything keeps the marks of origin.

#include "jinja/strings.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "jinja/python_text.h"

namespace cellm::jinja {

namespace {

constexpr size_t kNone = std::string_view::npos;

// Knuth-Morris-Pratt: the length of the longest proper border of every prefix of the needle.
std::vector<size_t> Borders(std::string_view needle) {
  std::vector<size_t> border(needle.size(), 0);
  for (size_t i = 1, k = 0; i < needle.size(); ++i) {
    while (k > 0 && needle[i] != needle[k]) k = border[k - 1];
    if (needle[i] == needle[k]) ++k;
    border[i] = k;
  }
  return border;
}

size_t ScanWithBorders(std::string_view haystack, std::string_view needle, size_t from, bool last) {
  const std::vector<size_t> border = Borders(needle);
  size_t found = kNone;
  for (size_t i = from, k = 0; i < haystack.size(); ++i) {
    while (k > 0 && haystack[i] != needle[k]) k = border[k - 1];
    if (haystack[i] == needle[k]) ++k;
    if (k < needle.size()) continue;
    found = i + 1 - k;
    if (!last) return found;
    k = border[k - 1];
  }
  return found;
}

}  // namespace

size_t FindBytes(std::string_view haystack, std::string_view needle, size_t from) {
  // Short needles cost at most their length a byte, and memchr makes them fast.
  if (needle.size() <= 32) return haystack.find(needle, from);
  return ScanWithBorders(haystack, needle, from, false);
}

size_t FindLastBytes(std::string_view haystack, std::string_view needle) {
  if (needle.size() <= 32) return haystack.rfind(needle);
  return ScanWithBorders(haystack, needle, 0, true);
}

Result<Text> Replace(Interpreter& in, const Text& text, const Text& from, const Text& to,
                     int64_t count) {
  CELLM_RETURN_IF_ERROR(in.ChargeBytes(text.size()));
  Text out(std::string(), text.all_trusted());
  const std::string_view bytes = text.bytes();
  size_t done = 0;
  for (size_t at = 0; count != 0; --count) {
    if (from.empty()) {
      // Between all characters, and at both ends.
      out.Append(to);
      if (at >= bytes.size()) break;
      const size_t next = at + DecodeUtf8(bytes.substr(at)).byte_count;
      out.AppendSlice(text, at, next);
      done = at = next;
    } else {
      const size_t found = FindBytes(bytes, from.bytes(), at);
      if (found == kNone) break;
      out.AppendSlice(text, done, found);
      out.Append(to);
      done = at = found + from.size();
    }
    if (out.size() > in.limits().max_string_bytes) return in.CheckStringSize(out.size());
  }
  out.AppendSlice(text, done, text.size());
  CELLM_RETURN_IF_ERROR(in.CheckStringSize(out.size()));
  return out;
}

Text Strip(const Text& text, const Text* characters, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t end = bytes.size();
  if (characters == nullptr) {
    if (left) begin = CountLeadingSpace(bytes);
    if (right && begin < end) end = begin + TrimmedLength(bytes.substr(begin));
    return text.Slice(begin, end);
  }
  const std::string_view set = characters->bytes();
  while (left && begin < end) {
    const size_t size = DecodeUtf8(bytes.substr(begin)).byte_count;
    if (set.find(bytes.substr(begin, size)) == kNone) break;
    begin += size;
  }
  while (right && begin < end) {
    size_t last = end - 1;
    while (last > begin && (static_cast<uint8_t>(bytes[last]) & 0xC0) == 0x80) --last;
    if (set.find(bytes.substr(last, end - last)) == kNone) break;
    end = last;
  }
  return text.Slice(begin, end);
}

Result<Text> Pad(Interpreter& in, const Value& string, int64_t left, int64_t right,
                 const Text& fill) {
  const auto before = static_cast<size_t>(left > 0 ? left : 0);
  const auto after = static_cast<size_t>(right > 0 ? right : 0);
  size_t total = 0;
  if (!CheckedAdd(before, after, &total) || !CheckedMul(total, fill.size(), &total) ||
      !CheckedAdd(total, TextOf(string).size(), &total)) {
    total = SIZE_MAX;
  }
  CELLM_RETURN_IF_ERROR(in.CheckStringSize(total));
  Text out;
  for (size_t i = 0; i < before; ++i) out.Append(fill);
  out.Append(TextOf(string));
  for (size_t i = 0; i < after; ++i) out.Append(fill);
  return out;
}

Result<Text> Center(Interpreter& in, const Value& string, int64_t width, const Text& fill) {
  const int64_t length = CharCount(AsString(string));
  if (width <= length) return TextOf(string);
  const int64_t margin = width - length;
  // Python puts the odd character left when both numbers are odd.
  const int64_t left = margin / 2 + (margin & width & 1);
  return Pad(in, string, left, margin - left, fill);
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char c = DecodeUtf8(bytes.substr(at));
    const char32_t p = c.code_point;
    const bool ends = (p >= 0x0A && p <= 0x0D) || (p >= 0x1C && p <= 0x1E) || p == 0x85 ||
                      p == 0x2028 || p == 0x2029;
    size_t next = at + c.byte_count;
    if (ends) {
      if (p == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.Slice(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

Result<Text> Join(Interpreter& in, const Text& separator, std::span<const Value> items,
                  bool markup) {
  Text out(std::string(), separator.all_trusted());
  bool first = true;
  for (const Value& item : items) {
    if (!first) out.Append(separator);
    first = false;
    Text piece;
    CELLM_RETURN_IF_ERROR(in.AppendStr(item, &piece));
    out.Append(markup && !IsMarkup(item) ? Interpreter::EscapeHtml(piece) : piece);
    CELLM_RETURN_IF_ERROR(in.ChargeBytes(piece.size() + separator.size()));
    if (out.size() > in.limits().max_string_bytes) return in.CheckStringSize(out.size());
  }
  return out;
}

}  // namespace cellm::jinja
