#ifndef CELLM_SRC_CONSTRAIN_JSON_FORMATS_H_
#define CELLM_SRC_CONSTRAIN_JSON_FORMATS_H_

// The values of the keyword "format" that are ensured, as regular expressions for whole texts.
// Every text that one accepts has the format; for email, hostname and uri there are others that
// have it, too (quoted local parts, names with only digits, schemes without "//").

#include <string_view>

namespace cellm::constrain {

// Empty for formats that are not known: they are notes to the reader, as the standard has it.
std::string_view FormatRegex(std::string_view format);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_JSON_FORMATS_H_
