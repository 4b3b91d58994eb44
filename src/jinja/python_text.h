#ifndef CELLM_SRC_JINJA_PYTHON_TEXT_H_
#define CELLM_SRC_JINJA_PYTHON_TEXT_H_

// What Python says about characters and numbers as text: its notion of blank, letter and case, and
// how repr() prints.

#include <cstddef>
#include <string>
#include <string_view>

#include "jinja/text.h"

namespace cellm::jinja {

bool IsSpace(char32_t c);  // str.isspace, and what strip() and split() remove
bool IsAlpha(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigitChar(char32_t c);
bool IsNumeric(char32_t c);
bool IsPrintable(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);

// Bytes of blanks at the start; length without blanks at the end.
size_t CountLeadingSpace(std::string_view text);
size_t TrimmedLength(std::string_view text);

// str.upper(), .lower(), .title(), .capitalize(), .swapcase(), casefold(): full mappings, so the
// length may change. Each result character has the mark of the one that it came from.
enum class CaseMap { kUpper, kLower, kTitle, kCapitalize, kSwap, kFold };
Text MapCase(const Text& text, CaseMap map);

// repr(float): shortest digits that read back the same, exponent form from 1e16 and below 1e-4.
std::string FloatRepr(double value);
// Appends repr(str): quoted, unprintable characters escaped. Quotes and escapes carry the mark of
// the neighbouring character.
void AppendStringRepr(const Text& text, Text* out);

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_PYTHON_TEXT_H_
