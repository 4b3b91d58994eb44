#include "unicode/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace cellm::unicode {
namespace {

static_assert(static_cast<int>(Category::kLu) == UTF8PROC_CATEGORY_LU);
static_assert(static_cast<int>(Category::kNd) == UTF8PROC_CATEGORY_ND);
static_assert(static_cast<int>(Category::kSm) == UTF8PROC_CATEGORY_SM);
static_assert(static_cast<int>(Category::kZs) == UTF8PROC_CATEGORY_ZS);
static_assert(static_cast<int>(Category::kCo) == UTF8PROC_CATEGORY_CO);

constexpr Category AsciiCategory(unsigned c) {
  if (c < 32 || c == 127) return Category::kCc;
  if (c >= 'A' && c <= 'Z') return Category::kLu;
  if (c >= 'a' && c <= 'z') return Category::kLl;
  if (c >= '0' && c <= '9') return Category::kNd;
  switch (c) {
    case ' ':
      return Category::kZs;
    case '$':
      return Category::kSc;
    case '+':
    case '<':
    case '=':
    case '>':
    case '|':
    case '~':
      return Category::kSm;
    case '^':
    case '`':
      return Category::kSk;
    case '(':
    case '[':
    case '{':
      return Category::kPs;
    case ')':
    case ']':
    case '}':
      return Category::kPe;
    case '-':
      return Category::kPd;
    case '_':
      return Category::kPc;
    default:
      return Category::kPo;
  }
}

constexpr internal::AsciiMasks MakeAsciiTable() {
  internal::AsciiMasks table{};
  for (unsigned c = 0; c < 128; ++c) {
    uint32_t mask = MaskOf(AsciiCategory(c));
    if (c == ' ' || (c >= 9 && c <= 13)) mask |= kSpace;
    if (c == '\r' || c == '\n') mask |= kCrLf;
    table.masks[c] = mask;
  }
  return table;
}

struct Range {
  char32_t first;
  char32_t last;
};

// Other_Alphabetic characters that are neither L, M, N nor Pc: circled and squared letters.
constexpr Range kAlphabeticSymbols[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

constexpr Range kCjkIdeographs[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                    {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};

struct NewerRange {
  char32_t first;
  char32_t last;
  Category category;
};

#include "unicode/newer_categories.inc"

// The category, where utf8proc's tables say "unassigned".
Category NewerCategory(char32_t c) {
  const NewerRange* range = std::upper_bound(
      std::begin(kNewerRanges), std::end(kNewerRanges), c,
      [](char32_t value, const NewerRange& candidate) { return value < candidate.first; });
  if (range == std::begin(kNewerRanges)) return Category::kCn;
  --range;
  return c <= range->last ? range->category : Category::kCn;
}

template <size_t kCount>
bool InRanges(const Range (&ranges)[kCount], char32_t c) {
  for (const Range& range : ranges) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

}  // namespace

namespace internal {

constinit const AsciiMasks kAscii = MakeAsciiTable();

uint32_t NonAsciiMask(char32_t code_point) {
  const utf8proc_property_t* property =
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  uint32_t mask = 1u << static_cast<unsigned>(property->category);
  if (mask == MaskOf(Category::kCn)) mask = MaskOf(NewerCategory(code_point));
  // Outside ASCII, White_Space is Z and U+0085.
  return (mask & kSeparator) != 0 || code_point == 0x85 ? mask | kSpace : mask;
}

}  // namespace internal

Category GeneralCategory(char32_t code_point) {
  if (code_point < 128) return AsciiCategory(static_cast<unsigned>(code_point));
  const Category category = static_cast<Category>(
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->category);
  return category == Category::kCn ? NewerCategory(code_point) : category;
}

bool IsWordCharacter(char32_t code_point) {
  constexpr uint32_t kWord =
      kLetter | kMark | MaskOf(Category::kNd) | MaskOf(Category::kNl) | MaskOf(Category::kPc);
  if ((CharMask(code_point) & kWord) != 0) return true;
  if (code_point < 0x200C) return false;
  return code_point == 0x200C || code_point == 0x200D || InRanges(kAlphabeticSymbols, code_point);
}

bool IsCjkIdeograph(char32_t code_point) {
  return code_point >= 0x3400 && InRanges(kCjkIdeographs, code_point);
}

void AppendLowercase(char32_t code_point, std::string* out) {
  if (code_point < 128) {
    out->push_back(
        static_cast<char>(code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point));
    return;
  }
  if (code_point == 0x130) {  // the only character whose full mapping is longer
    out->append("i\xCC\x87");
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
             out);
}

char32_t FoldCase(char32_t code_point) {
  utf8proc_int32_t folded[8];
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), folded, 8, UTF8PROC_CASEFOLD, &boundary_class);
  return count == 1 ? static_cast<char32_t>(folded[0]) : code_point;
}

}  // namespace cellm::unicode
