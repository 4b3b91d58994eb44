#ifndef CELLM_SRC_UNICODE_UNICODE_H_
#define CELLM_SRC_UNICODE_UNICODE_H_

// What a character is: categories and the few properties that tokenizers ask for.
//
// A character's facts come as one 32-bit mask (CharMask): bit c is set for general category c, so
// that a class such as [\p{L}\p{N}] is one AND with a constant. Two more bits carry White_Space
// and "CR or LF". Data: Unicode 15.0, through utf8proc, which only this folder includes;
// categories of characters that 15.1 and 16.0 added come from a table of ours.

#include <cstdint>
#include <string>

namespace cellm::unicode {

// General categories, Unicode 15 table 4-4.
enum class Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,  //
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
};

// Sets of characters as masks over CharMask().
constexpr uint32_t MaskOf(Category category) { return 1u << static_cast<unsigned>(category); }
inline constexpr uint32_t kLu = MaskOf(Category::kLu);
inline constexpr uint32_t kLl = MaskOf(Category::kLl);
inline constexpr uint32_t kLt = MaskOf(Category::kLt);
inline constexpr uint32_t kLm = MaskOf(Category::kLm);
inline constexpr uint32_t kLo = MaskOf(Category::kLo);
inline constexpr uint32_t kLetter = kLu | kLl | kLt | kLm | kLo;  // \p{L}
inline constexpr uint32_t kMark =
    MaskOf(Category::kMn) | MaskOf(Category::kMc) | MaskOf(Category::kMe);  // \p{M}
inline constexpr uint32_t kNumber =
    MaskOf(Category::kNd) | MaskOf(Category::kNl) | MaskOf(Category::kNo);  // \p{N}
inline constexpr uint32_t kPunctuation =
    MaskOf(Category::kPc) | MaskOf(Category::kPd) | MaskOf(Category::kPs) | MaskOf(Category::kPe) |
    MaskOf(Category::kPi) | MaskOf(Category::kPf) | MaskOf(Category::kPo);  // \p{P}
inline constexpr uint32_t kSymbol = MaskOf(Category::kSm) | MaskOf(Category::kSc) |
                                    MaskOf(Category::kSk) | MaskOf(Category::kSo);  // \p{S}
inline constexpr uint32_t kSeparator =
    MaskOf(Category::kZs) | MaskOf(Category::kZl) | MaskOf(Category::kZp);  // \p{Z}
inline constexpr uint32_t kOther = MaskOf(Category::kCn) | MaskOf(Category::kCc) |
                                   MaskOf(Category::kCf) | MaskOf(Category::kCs) |
                                   MaskOf(Category::kCo);  // \p{C}
inline constexpr uint32_t kSpace = 1u << 30;               // White_Space: what \s means
inline constexpr uint32_t kCrLf = 1u << 31;                // U+000D or U+000A

namespace internal {
struct AsciiMasks {
  uint32_t masks[128];
};
extern const AsciiMasks kAscii;
uint32_t NonAsciiMask(char32_t code_point);
}  // namespace internal

// The facts of one scalar value; code points past U+10FFFF count as unassigned (Cn).
inline uint32_t CharMask(char32_t code_point) {
  return code_point < 128 ? internal::kAscii.masks[code_point] : internal::NonAsciiMask(code_point);
}
Category GeneralCategory(char32_t code_point);

inline bool IsWhiteSpace(char32_t code_point) { return (CharMask(code_point) & kSpace) != 0; }
// One of the 32 printable ASCII characters that are neither letters nor digits.
constexpr bool IsAsciiPunctuation(char32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}
// \p{P} of Unicode 8.0, which is what the Punctuation and BERT pre-tokenizers cut at.
bool IsPunctuationOfUnicode8(char32_t code_point);
// Mn, and Cc, Cf or Co, of Unicode 8.0: what BERT's normalizer drops.
bool IsMarkOfUnicode8(char32_t code_point);
bool IsControlOfUnicode8(char32_t code_point);
// \p{N} of Unicode 17.0: what the Digits pre-tokenizer cuts at.
bool IsNumberOfUnicode17(char32_t code_point);
// What \w means in UTS #18 annex C: Alphabetic, M, Nd, Pc and Join_Control.
bool IsWordCharacter(char32_t code_point);
// Ideographs that BERT's normalizer surrounds with spaces (CJK Unified Ideographs, extensions A to
// F, and the compatibility blocks; kana and hangul are not among them).
bool IsCjkIdeograph(char32_t code_point);

// Appends the full lowercase mapping (SpecialCasing without context: U+0130 gives two characters,
// a final sigma stays U+03C3).
void AppendLowercase(char32_t code_point, std::string* out);
// Simple case folding (status C and S).
char32_t FoldCase(char32_t code_point);

}  // namespace cellm::unicode

#endif  // CELLM_SRC_UNICODE_UNICODE_H_
