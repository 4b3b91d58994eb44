#ifndef CELLM_SRC_JINJA_BIGINT_H_
#define CELLM_SRC_JINJA_BIGINT_H_

// Integers of any size, for template arithmetic past 64 bits: JSON may hold them and Python, whose
// arithmetic templates expect, never overflows. Schoolbook algorithms over 32-bit limbs; the
// interpreter bounds the bits before it calls.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellm::jinja {

// Sign and magnitude; limbs are little-endian without leading zeros; zero has no limbs and is not
// negative.
class BigInt {
 public:
  BigInt() = default;
  BigInt(int64_t value);  // NOLINT: implicit by design
  // Digits in `base` (2 to 36), an optional sign in front. False when a character is no digit, or
  // there is none.
  static bool Parse(std::string_view digits, int base, BigInt* out);
  // The integral part of a finite double.
  static BigInt FromDouble(double value);

  bool negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  size_t BitCount() const;
  bool FitsInt64(int64_t* out) const;
  // Nearest double, ties to even; infinite when out of range.
  double ToDouble() const;
  std::string ToString(int base = 10) const;

  static int Compare(const BigInt& a, const BigInt& b);
  BigInt Negated() const;
  static BigInt Add(const BigInt& a, const BigInt& b);
  static BigInt Subtract(const BigInt& a, const BigInt& b) { return Add(a, b.Negated()); }
  static BigInt Multiply(const BigInt& a, const BigInt& b);
  // Quotient rounded toward minus infinity and remainder with the divisor's sign, as Python has
  // them. `b` is not zero.
  static void FloorDivide(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder);
  // a / b as the nearest double. `b` is not zero.
  static double TrueDivide(const BigInt& a, const BigInt& b);
  BigInt ShiftedLeft(size_t bits) const;

 private:
  using Limbs = std::vector<uint32_t>;
  static int CompareMagnitude(const Limbs& a, const Limbs& b);
  static Limbs AddMagnitude(const Limbs& a, const Limbs& b);
  static Limbs SubtractMagnitude(const Limbs& a, const Limbs& b);  // a >= b
  static Limbs DivideMagnitude(const Limbs& a, const Limbs& b, Limbs* remainder);
  static uint32_t DivideSmall(Limbs* a, uint32_t divisor);  // returns the remainder
  void Normalize();

  bool negative_ = false;
  Limbs limbs_;
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_BIGINT_H_
