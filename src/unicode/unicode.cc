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

// Lowercase mappings of Unicode 16.0 and 17.0 that utf8proc's tables do not have; 0: none.
char32_t NewerLowercase(char32_t c) {
  switch (c) {
    case 0x1C89:
      return 0x1C8A;
    case 0xA7CB:
      return 0x264;
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    case 0xA7DC:
      return 0x19B;
    default:
      if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
      return c >= 0x16EA0 && c <= 0x16EB8 ? c + 0x1B : 0;
  }
}

// Punctuation added after Unicode 8.0 (DerivedAge.txt). Sorted.
constexpr Range kNewerPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},
    {0xC84, 0xC84},     {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},
    {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9},
    {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1},
    {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
};

#include "unicode/newer_marks.inc"

// Cf added after Unicode 8.0. Sorted.
constexpr Range kNewerFormats[] = {
    {0x890, 0x891}, {0x8E2, 0x8E2}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}};

// Nd and No that Unicode 17.0 added.
constexpr Range kNewerNumbers[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};

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

bool IsPunctuationOfUnicode8(char32_t code_point) {
  if (code_point < 128) return (CharMask(code_point) & kPunctuation) != 0;
  // Categories that later versions changed: to So in 12.0, to Mn in 11.0.
  if (code_point == 0x166D || code_point == 0x111C9) return true;
  return (CharMask(code_point) & kPunctuation) != 0 && !InRanges(kNewerPunctuation, code_point);
}

bool IsMarkOfUnicode8(char32_t code_point) {
  if (code_point < 0x300) return false;
  if (code_point == 0x1734) return true;  // Mc since 14.0
  return (CharMask(code_point) & MaskOf(Category::kMn)) != 0 && !InRanges(kNewerMarks, code_point);
}

bool IsControlOfUnicode8(char32_t code_point) {
  constexpr uint32_t kControl =
      MaskOf(Category::kCc) | MaskOf(Category::kCf) | MaskOf(Category::kCo);
  return (CharMask(code_point) & kControl) != 0 && !InRanges(kNewerFormats, code_point);
}

bool IsNumberOfUnicode17(char32_t code_point) {
  return (CharMask(code_point) & kNumber) != 0 || InRanges(kNewerNumbers, code_point);
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
  if (const char32_t newer = NewerLowercase(code_point)) return AppendUtf8(newer, out);
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
