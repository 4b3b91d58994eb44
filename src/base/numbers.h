#ifndef CELLM_SRC_BASE_NUMBERS_H_
#define CELLM_SRC_BASE_NUMBERS_H_

// Text and doubles, independent of locale. One place, because older C++ libraries lack the
// floating-point half of <charconv>.

#include <string>
#include <string_view>

namespace cellm {

// The whole of `text` as a decimal number ("-1.5e3"), correctly rounded. Too large becomes an
// infinity, too small zero. False (and *out unchanged) when `text` is anything else; "inf" and
// "nan" are not numbers here.
bool ParseDouble(std::string_view text, double* out);

// Appends the shortest digits that read back as `value`, which must be finite. Always has a
// fraction or an exponent ("3.0"), so that it stays a float to readers that care.
void AppendDouble(double value, std::string* out);

}  // namespace cellm

#endif  // CELLM_SRC_BASE_NUMBERS_H_
