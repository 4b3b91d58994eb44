#include "base/numbers.h"

#include <charconv>
#include <limits>

namespace cellm {
namespace {

// from_chars reports overflow and underflow alike. The sign of the decimal exponent of the first
// non-zero digit tells them apart.
bool IsHuge(std::string_view digits) {
  int64_t leading = 0;  // decimal exponent of the first non-zero digit, before "e"
  bool seen_digit = false;
  bool after_point = false;
  size_t i = 0;
  for (; i < digits.size() && digits[i] != 'e' && digits[i] != 'E'; ++i) {
    if (digits[i] == '.') {
      after_point = true;
    } else if (seen_digit || digits[i] != '0') {
      seen_digit = true;
      if (!after_point) ++leading;
    } else if (after_point) {
      --leading;
    }
  }
  if (i == digits.size()) return leading > 0;
  const bool negative = i + 1 < digits.size() && digits[i + 1] == '-';
  i += (negative || (i + 1 < digits.size() && digits[i + 1] == '+')) ? 2u : 1u;
  int64_t exponent = 0;
  for (; i < digits.size() && exponent < (int64_t{1} << 40); ++i) {
    exponent = exponent * 10 + (digits[i] - '0');
  }
  return leading + (negative ? -exponent : exponent) > 0;
}

}  // namespace

bool ParseDouble(std::string_view text, double* out) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  if (digits.empty() || ((digits[0] < '0' || digits[0] > '9') && digits[0] != '.')) return false;
  double value = 0;
  const char* end = digits.data() + digits.size();
  const std::from_chars_result result = std::from_chars(digits.data(), end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return false;
  if (result.ec == std::errc::result_out_of_range) {
    value = IsHuge(digits) ? std::numeric_limits<double>::infinity() : 0.0;
  }
  *out = negative ? -value : value;
  return true;
}

void AppendDouble(double value, std::string* out) {
  char buffer[40];
  // Python's choice: digits in full unless the exponent would be below -4 or above 15.
  const double magnitude = value < 0 ? -value : value;
  const bool in_full = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const std::to_chars_result result =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    in_full ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  out->append(text);
  if (text.find_first_of(".en") == std::string_view::npos) out->append(".0");
}

}  // namespace cellm
