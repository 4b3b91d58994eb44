#include "unicode/case.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "base/utf8.h"
#include "unicode/unicode.h"

namespace cellm::unicode {
namespace {

struct SpecialCase {
  char32_t code_point;
  char32_t upper[3];
  char32_t lower[3];
  char32_t title[3];
};
struct CharRange {
  char32_t first;
  char32_t last;
};
#include "unicode/case_table.inc"

const SpecialCase* FindSpecial(char32_t c) {
  const SpecialCase* at = std::lower_bound(
      std::begin(kSpecialCase), std::end(kSpecialCase), c,
      [](const SpecialCase& row, char32_t value) { return row.code_point < value; });
  return at != std::end(kSpecialCase) && at->code_point == c ? at : nullptr;
}

bool Inside(std::span<const CharRange> ranges, char32_t c) {
  const auto at =
      std::lower_bound(ranges.begin(), ranges.end(), c,
                       [](const CharRange& range, char32_t value) { return range.last < value; });
  return at != ranges.end() && at->first <= c;
}

void AppendAll(std::span<const char32_t, 3> points, std::string* out) {
  for (const char32_t point : points) {
    if (point != 0) AppendUtf8(point, out);
  }
}

bool InCategory(char32_t c, uint32_t mask) { return (CharMask(c) & mask) != 0; }

}  // namespace

void AppendUpper(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecial(c)) return AppendAll(special->upper, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
}

void AppendLower(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecial(c)) return AppendAll(special->lower, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

void AppendTitle(char32_t c, std::string* out) {
  if (const SpecialCase* special = FindSpecial(c)) return AppendAll(special->title, out);
  AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
}

void AppendFolded(char32_t c, std::string* out) {
  utf8proc_int32_t folded[8];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded,
                                                         8, UTF8PROC_CASEFOLD, &boundary);
  if (count < 0 || count > 8) return AppendUtf8(c, out);
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(folded[i]), out);
}

bool IsUppercase(char32_t c) { return InCategory(c, kLu) || Inside(kOtherUpper, c); }
bool IsLowercase(char32_t c) { return InCategory(c, kLl) || Inside(kOtherLower, c); }
bool HasDigitValue(char32_t c) { return Inside(kDigits, c); }
bool HasNumericValue(char32_t c) { return InCategory(c, kNumber) || Inside(kNumerics, c); }

}  // namespace cellm::unicode
