#ifndef CELLM_SRC_BASE_CHECKED_H_
#define CELLM_SRC_BASE_CHECKED_H_

// Overflow-safe arithmetic for numbers that come from outside.

#include <cstdint>
#include <limits>
#include <type_traits>

namespace cellm {

// *out = a + b; false (and *out unspecified) when the mathematical result does not fit.
template <typename T>
[[nodiscard]] bool CheckedAdd(T a, std::type_identity_t<T> b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}
// *out = a * b, likewise.
template <typename T>
[[nodiscard]] bool CheckedMul(T a, std::type_identity_t<T> b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}
// *out = a - b, likewise.
template <typename T>
[[nodiscard]] bool CheckedSub(T a, std::type_identity_t<T> b, T* out) {
  return !__builtin_sub_overflow(a, b, out);
}
// *out = value when To can hold it exactly.
template <typename To, typename From>
[[nodiscard]] bool CheckedCast(From value, To* out) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  return !__builtin_add_overflow(value, From{0}, out);
}

// True when [offset, offset + length) lies inside [0, size), without computing the sum.
[[nodiscard]] constexpr bool RangeFits(uint64_t offset, uint64_t length, uint64_t size) {
  return offset <= size && length <= size - offset;
}

// `value` rounded up to a multiple of `unit` (unit > 0). Requires that the result fits.
template <typename T>
constexpr T RoundUp(T value, std::type_identity_t<T> unit) {
  return (value + unit - 1) / unit * unit;
}
template <typename T>
constexpr T CeilDiv(T value, std::type_identity_t<T> unit) {
  return (value + unit - 1) / unit;
}

}  // namespace cellm

#endif  // CELLM_SRC_BASE_CHECKED_H_
