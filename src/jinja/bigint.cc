#include "jinja/bigint.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace cellm::jinja {

BigInt::BigInt(int64_t value) : negative_(value < 0) {
  uint64_t magnitude = negative_ ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  while (magnitude != 0) {
    limbs_.push_back(static_cast<uint32_t>(magnitude));
    magnitude >>= 32;
  }
}

void BigInt::Normalize() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
}

bool BigInt::Parse(std::string_view digits, int base, BigInt* out) {
  BigInt value;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty()) return false;
  for (const char c : digits) {
    int digit = 99;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'a' && c <= 'z') digit = c - 'a' + 10;
    if (c >= 'A' && c <= 'Z') digit = c - 'A' + 10;
    if (digit >= base) return false;
    uint64_t carry = static_cast<uint64_t>(digit);
    for (uint32_t& limb : value.limbs_) {
      carry += static_cast<uint64_t>(limb) * static_cast<uint64_t>(base);
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) value.limbs_.push_back(static_cast<uint32_t>(carry));
  }
  value.negative_ = negative;
  value.Normalize();
  *out = std::move(value);
  return true;
}

BigInt BigInt::FromDouble(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(std::trunc(value)), &exponent);
  // 53 bits hold the whole significand.
  const auto significand = static_cast<int64_t>(std::ldexp(fraction, 53));
  BigInt result(significand);
  const int shift = exponent - 53;
  if (shift >= 0) {
    result = result.ShiftedLeft(static_cast<size_t>(shift));
  } else {
    result = BigInt(shift > -64 ? significand >> -shift : 0);
  }
  result.negative_ = value < 0;
  result.Normalize();
  return result;
}

size_t BigInt::BitCount() const {
  if (limbs_.empty()) return 0;
  return limbs_.size() * 32 - static_cast<size_t>(std::countl_zero(limbs_.back()));
}

bool BigInt::FitsInt64(int64_t* out) const {
  if (limbs_.size() > 2) return false;
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = (magnitude << 32) | limbs_[i];
  const uint64_t limit = (uint64_t{1} << 63) - (negative_ ? 0 : 1);
  if (magnitude > limit) return false;
  *out = static_cast<int64_t>(negative_ ? ~magnitude + 1 : magnitude);
  return true;
}

double BigInt::ToDouble() const { return TrueDivide(*this, BigInt(1)); }

std::string BigInt::ToString(int base) const {
  if (is_zero()) return "0";
  std::string reversed;
  Limbs rest = limbs_;
  // Nine decimal digits (or as many of another base) a pass.
  uint32_t chunk = static_cast<uint32_t>(base);
  int digits = 1;
  while (static_cast<uint64_t>(chunk) * static_cast<uint64_t>(base) <= 0xFFFFFFFFu) {
    chunk *= static_cast<uint32_t>(base);
    ++digits;
  }
  while (!rest.empty()) {
    uint32_t part = DivideSmall(&rest, chunk);
    for (int i = 0; i < digits; ++i) {
      reversed.push_back(
          "0123456789abcdefghijklmnopqrstuvwxyz"[part % static_cast<uint32_t>(base)]);
      part /= static_cast<uint32_t>(base);
    }
  }
  while (reversed.size() > 1 && reversed.back() == '0') reversed.pop_back();
  if (negative_) reversed.push_back('-');
  std::reverse(reversed.begin(), reversed.end());
  return reversed;
}

int BigInt::CompareMagnitude(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

int BigInt::Compare(const BigInt& a, const BigInt& b) {
  if (a.negative_ != b.negative_) return a.negative_ ? -1 : 1;
  const int magnitude = CompareMagnitude(a.limbs_, b.limbs_);
  return a.negative_ ? -magnitude : magnitude;
}

BigInt BigInt::Negated() const {
  BigInt result = *this;
  result.negative_ = !negative_;
  result.Normalize();
  return result;
}

BigInt::Limbs BigInt::AddMagnitude(const Limbs& a, const Limbs& b) {
  Limbs sum;
  sum.reserve(std::max(a.size(), b.size()) + 1);
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    carry += i < a.size() ? a[i] : 0;
    carry += i < b.size() ? b[i] : 0;
    sum.push_back(static_cast<uint32_t>(carry));
    carry >>= 32;
  }
  if (carry != 0) sum.push_back(static_cast<uint32_t>(carry));
  return sum;
}

BigInt::Limbs BigInt::SubtractMagnitude(const Limbs& a, const Limbs& b) {
  Limbs difference;
  difference.reserve(a.size());
  int64_t borrow = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    borrow += static_cast<int64_t>(a[i]) - (i < b.size() ? static_cast<int64_t>(b[i]) : 0);
    difference.push_back(static_cast<uint32_t>(borrow));
    borrow >>= 32;  // arithmetic: 0 or -1
  }
  return difference;
}

BigInt BigInt::Add(const BigInt& a, const BigInt& b) {
  BigInt result;
  if (a.negative_ == b.negative_) {
    result.limbs_ = AddMagnitude(a.limbs_, b.limbs_);
    result.negative_ = a.negative_;
  } else if (CompareMagnitude(a.limbs_, b.limbs_) >= 0) {
    result.limbs_ = SubtractMagnitude(a.limbs_, b.limbs_);
    result.negative_ = a.negative_;
  } else {
    result.limbs_ = SubtractMagnitude(b.limbs_, a.limbs_);
    result.negative_ = b.negative_;
  }
  result.Normalize();
  return result;
}

BigInt BigInt::Multiply(const BigInt& a, const BigInt& b) {
  BigInt result;
  result.limbs_.assign(a.limbs_.size() + b.limbs_.size(), 0);
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size(); ++j) {
      carry += static_cast<uint64_t>(a.limbs_[i]) * b.limbs_[j] + result.limbs_[i + j];
      result.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    result.limbs_[i + b.limbs_.size()] = static_cast<uint32_t>(carry);
  }
  result.negative_ = a.negative_ != b.negative_;
  result.Normalize();
  return result;
}

uint32_t BigInt::DivideSmall(Limbs* a, uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = a->size(); i-- > 0;) {
    rest = (rest << 32) | (*a)[i];
    (*a)[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  while (!a->empty() && a->back() == 0) a->pop_back();
  return static_cast<uint32_t>(rest);
}

// Bit by bit: shift the remainder left, subtract where it fits. Slow and plain; the interpreter
// keeps operands below a few thousand bits.
BigInt::Limbs BigInt::DivideMagnitude(const Limbs& a, const Limbs& b, Limbs* remainder) {
  if (b.size() == 1) {
    Limbs quotient = a;
    const uint32_t rest = DivideSmall(&quotient, b[0]);
    remainder->clear();
    if (rest != 0) remainder->push_back(rest);
    return quotient;
  }
  Limbs quotient(a.size(), 0);
  Limbs rest;
  for (size_t bit = a.size() * 32; bit-- > 0;) {
    uint32_t carry = (a[bit / 32] >> (bit % 32)) & 1;
    for (uint32_t& limb : rest) {
      const uint32_t next = limb >> 31;
      limb = (limb << 1) | carry;
      carry = next;
    }
    if (carry != 0) rest.push_back(carry);
    if (CompareMagnitude(rest, b) >= 0) {
      rest = SubtractMagnitude(rest, b);
      while (!rest.empty() && rest.back() == 0) rest.pop_back();
      quotient[bit / 32] |= 1u << (bit % 32);
    }
  }
  while (!quotient.empty() && quotient.back() == 0) quotient.pop_back();
  *remainder = std::move(rest);
  return quotient;
}

void BigInt::FloorDivide(const BigInt& a, const BigInt& b, BigInt* quotient, BigInt* remainder) {
  BigInt q;
  BigInt r;
  q.limbs_ = DivideMagnitude(a.limbs_, b.limbs_, &r.limbs_);
  q.negative_ = a.negative_ != b.negative_;
  r.negative_ = a.negative_;
  q.Normalize();
  r.Normalize();
  if (!r.is_zero() && r.negative_ != b.negative_) {
    q = Subtract(q, BigInt(1));
    r = Add(r, b);
  }
  *quotient = std::move(q);
  *remainder = std::move(r);
}

BigInt BigInt::ShiftedLeft(size_t bits) const {
  BigInt result;
  if (is_zero()) return result;
  result.negative_ = negative_;
  result.limbs_.assign(bits / 32, 0);
  const size_t shift = bits % 32;
  uint32_t carry = 0;
  for (const uint32_t limb : limbs_) {
    result.limbs_.push_back(shift == 0 ? limb : ((limb << shift) | carry));
    carry = shift == 0 ? 0 : limb >> (32 - shift);
  }
  if (carry != 0) result.limbs_.push_back(carry);
  return result;
}

double BigInt::TrueDivide(const BigInt& a, const BigInt& b) {
  if (a.is_zero()) return b.negative_ ? -0.0 : 0.0;
  // Scale so that the integer quotient has at least 66 bits: 53 to keep, the rest to round by.
  const auto bits_a = static_cast<int64_t>(a.BitCount());
  const auto bits_b = static_cast<int64_t>(b.BitCount());
  const int64_t shift = std::max<int64_t>(0, 66 - (bits_a - bits_b));
  Limbs rest;
  BigInt quotient;
  quotient.limbs_ =
      DivideMagnitude(a.ShiftedLeft(static_cast<size_t>(shift)).limbs_, b.limbs_, &rest);
  quotient.Normalize();
  // The top 64 bits, with everything below folded into the lowest ("sticky") bit: then one
  // conversion rounds once and correctly. Subnormal results may round twice; none occur here.
  const auto bits = static_cast<int64_t>(quotient.BitCount());
  uint64_t top = 0;
  bool sticky = !rest.empty();
  for (int64_t i = bits - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    const bool bit = ((quotient.limbs_[at / 32] >> (at % 32)) & 1) != 0;
    if (i >= bits - 64) {
      top = (top << 1) | (bit ? 1u : 0u);
    } else {
      sticky = sticky || bit;
    }
  }
  if (sticky) top |= 1;
  const int64_t exponent = std::max<int64_t>(bits - 64, 0) - shift;
  const double magnitude = std::ldexp(static_cast<double>(top), static_cast<int>(exponent));
  return a.negative_ != b.negative_ ? -magnitude : magnitude;
}

}  // namespace cellm::jinja
