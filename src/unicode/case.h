#ifndef CELLM_SRC_UNICODE_CASE_H_
#define CELLM_SRC_UNICODE_CASE_H_

// Case and numeric classes as Python's str methods see them: full case mappings (one character may
// become three) without context, and the properties behind isupper, islower, isdigit, isnumeric.

#include <cstdint>
#include <string>

namespace cellm::unicode {

// Each appends the mapping of one character.
void AppendUpper(char32_t code_point, std::string* out);
void AppendLower(char32_t code_point, std::string* out);
void AppendTitle(char32_t code_point, std::string* out);
// Full case folding: utf8proc's, which is Unicode's status C and F.
void AppendFolded(char32_t code_point, std::string* out);

bool IsUppercase(char32_t code_point);    // property Uppercase
bool IsLowercase(char32_t code_point);    // property Lowercase
bool HasDigitValue(char32_t code_point);  // Numeric_Type Decimal or Digit
bool HasNumericValue(char32_t code_point);

}  // namespace cellm::unicode

#endif  // CELLM_SRC_UNICODE_CASE_H_
