#ifndef CELLM_SRC_BASE_UTF8_H_
#define CELLM_SRC_BASE_UTF8_H_

// UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstdint>
#include <string>
#include <string_view>

namespace cellm {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct Utf8Char {
  char32_t code_point = 0;  // kReplacementCharacter when !valid
  uint32_t byte_count = 0;  // bytes consumed: the character, or the maximal ill-formed part; >= 1
  bool valid = false;
  bool truncated = false;  // !valid, but more bytes could still complete it
};

// Decodes the character at the start of `text`, which must not be empty. An ill-formed sequence is
// consumed as Unicode 15 section 3.9 ("U+FFFD substitution of maximal subparts") recommends.
Utf8Char DecodeUtf8(std::string_view text);

// Appends `code_point` (a valid scalar value; others become U+FFFD).
void AppendUtf8(char32_t code_point, std::string* out);

bool IsValidUtf8(std::string_view text);

// `text` with every maximal ill-formed part replaced by one U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace cellm

#endif  // CELLM_SRC_BASE_UTF8_H_
