#include "jinja/python_text.h"

#include <charconv>
#include <cmath>

#include "base/status.h"
#include "base/utf8.h"
#include "unicode/case.h"
#include "unicode/unicode.h"

namespace cellm::jinja {

// Python's isspace(): bidirectional class WS, B or S, or category Zs. Slightly more than
// White_Space: the four ASCII separators count.
bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return unicode::IsWhiteSpace(c);
}

bool IsAlpha(char32_t c) { return (unicode::CharMask(c) & unicode::kLetter) != 0; }
bool IsDecimal(char32_t c) { return unicode::GeneralCategory(c) == unicode::Category::kNd; }
bool IsDigitChar(char32_t c) { return unicode::HasDigitValue(c); }
bool IsNumeric(char32_t c) { return unicode::HasNumericValue(c); }
bool IsPrintable(char32_t c) {
  return c == ' ' || (unicode::CharMask(c) & (unicode::kOther | unicode::kSeparator)) == 0;
}
bool IsUpper(char32_t c) { return unicode::IsUppercase(c); }
bool IsLower(char32_t c) { return unicode::IsLowercase(c); }
bool IsTitle(char32_t c) { return unicode::GeneralCategory(c) == unicode::Category::kLt; }

size_t CountLeadingSpace(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text.substr(at));
    if (!IsSpace(c.code_point)) break;
    at += c.byte_count;
  }
  return at;
}

size_t TrimmedLength(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    if (!IsSpace(DecodeUtf8(text.substr(begin, end - begin)).code_point)) break;
    end = begin;
  }
  return end;
}

namespace {

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Characters that a final sigma looks through (property Case_Ignorable, the part that matters:
// marks, modifiers, format characters and the apostrophes).
bool IsCaseIgnorable(char32_t c) {
  const uint32_t mask = unicode::MaskOf(unicode::Category::kMn) |
                        unicode::MaskOf(unicode::Category::kMe) |
                        unicode::MaskOf(unicode::Category::kCf) | unicode::kLm |
                        unicode::MaskOf(unicode::Category::kSk);
  return (unicode::CharMask(c) & mask) != 0 || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x2018 || c == 0x2019;
}

// A capital sigma at the end of a word: a cased letter before it and none after.
bool IsFinalSigma(std::string_view text, size_t at) {
  size_t before = at;
  bool cased_before = false;
  while (before > 0) {
    size_t begin = before - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    const char32_t c = DecodeUtf8(text.substr(begin)).code_point;
    before = begin;
    if (IsCaseIgnorable(c)) continue;
    cased_before = IsCased(c);
    break;
  }
  if (!cased_before) return false;
  for (size_t after = at + 2; after < text.size();) {  // sigma has two bytes
    const Utf8Char c = DecodeUtf8(text.substr(after));
    after += c.byte_count;
    if (IsCaseIgnorable(c.code_point)) continue;
    return !IsCased(c.code_point);
  }
  return true;
}

void AppendLowerAt(std::string_view text, size_t at, char32_t c, std::string* out) {
  if (c == 0x3A3) {
    AppendUtf8(IsFinalSigma(text, at) ? 0x3C2 : 0x3C3, out);
  } else {
    unicode::AppendLower(c, out);
  }
}

}  // namespace

Text MapCase(const Text& text, CaseMap map) {
  Text out(std::string(), text.all_trusted());
  out.Reserve(text.size());
  const std::string_view bytes = text.bytes();
  bool first = true;
  bool after_cased = false;
  std::string piece;
  text.ForEachRun(0, bytes.size(), [&](size_t begin, size_t end, bool trusted) {
    piece.clear();
    while (begin < end) {
      const Utf8Char c = DecodeUtf8(bytes.substr(begin));
      const char32_t point = c.code_point;
      switch (map) {
        case CaseMap::kUpper:
          unicode::AppendUpper(point, &piece);
          break;
        case CaseMap::kLower:
          AppendLowerAt(bytes, begin, point, &piece);
          break;
        case CaseMap::kFold:
          unicode::AppendFolded(point, &piece);
          break;
        case CaseMap::kCapitalize:
          if (first) {
            unicode::AppendTitle(point, &piece);
          } else {
            AppendLowerAt(bytes, begin, point, &piece);
          }
          break;
        case CaseMap::kTitle:
          if (after_cased) {
            AppendLowerAt(bytes, begin, point, &piece);
          } else {
            unicode::AppendTitle(point, &piece);
          }
          break;
        case CaseMap::kSwap:
          if (IsUpper(point)) {
            AppendLowerAt(bytes, begin, point, &piece);
          } else if (IsLower(point)) {
            unicode::AppendUpper(point, &piece);
          } else {
            AppendUtf8(point, &piece);
          }
          break;
      }
      after_cased = IsCased(point);
      first = false;
      begin += c.byte_count;
    }
    out.Append(piece, trusted);
  });
  return out;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const std::to_chars_result result = std::to_chars(
      buffer, buffer + sizeof(buffer), std::fabs(value), std::chars_format::scientific);
  // d.ddde[+-]xx: take it apart and lay the digits out as Python does.
  std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  std::string_view exponent_text = text.substr(e + 1);
  if (exponent_text[0] == '+') exponent_text.remove_prefix(1);
  std::from_chars(exponent_text.data(), exponent_text.data() + exponent_text.size(), exponent);

  std::string out;
  if (std::signbit(value)) out.push_back('-');
  if (exponent < -4 || exponent >= 16) {
    out.push_back(digits[0]);
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out += StrFormat("e%c%02d", exponent < 0 ? '-' : '+', exponent < 0 ? -exponent : exponent);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  } else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) {
      out.append(digits).append(whole - digits.size(), '0').append(".0");
    } else {
      out.append(digits, 0, whole).append(".").append(digits, whole);
    }
  }
  return out;
}

void AppendStringRepr(const Text& text, Text* out) {
  const std::string_view bytes = text.bytes();
  const bool double_quotes =
      bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out->Append(std::string_view(&quote, 1), false);
  text.ForEachRun(0, bytes.size(), [&](size_t begin, size_t end, bool trusted) {
    std::string piece;
    while (begin < end) {
      const Utf8Char c = DecodeUtf8(bytes.substr(begin));
      const char32_t point = c.code_point;
      if (point == '\\' || point == static_cast<char32_t>(quote)) {
        piece.push_back('\\');
        piece.push_back(static_cast<char>(point));
      } else if (point == '\n') {
        piece += "\\n";
      } else if (point == '\r') {
        piece += "\\r";
      } else if (point == '\t') {
        piece += "\\t";
      } else if (IsPrintable(point)) {
        piece += bytes.substr(begin, c.byte_count);
      } else {
        const auto value = static_cast<unsigned>(point);
        piece +=
            StrFormat(value < 0x100 ? "\\x%02x" : (value < 0x10000 ? "\\u%04x" : "\\U%08x"), value);
      }
      begin += c.byte_count;
    }
    out->Append(piece, trusted);
  });
  out->Append(std::string_view(&quote, 1), false);
}

}  // namespace cellm::jinja
