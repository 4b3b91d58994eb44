#ifndef CELLM_SRC_CONSTRAIN_JSON_NUMBERS_H_
#define CELLM_SRC_CONSTRAIN_JSON_NUMBERS_H_

// JSON numbers within bounds, as automata over their digits.
//
// Readers hold numbers in doubles, so bounded fractions are written with at most 15 significant
// digits: then two different texts are two different doubles in the same order, and a text within
// the bounds is a number within them.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "constrain/char_automaton.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

// A bound as it was written: a finite number without an exponent that is out of hand.
struct Decimal {
  bool negative = false;
  std::string whole;     // digits without leading zeros; "0" for none
  std::string fraction;  // digits without trailing zeros
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
// From a JSON number. False when it has more than 30 digits or is not finite.
bool ParseDecimal(std::string_view text, Decimal* out);
// Whether value / factor is a whole number, computed with decimals: 0.3 is a multiple of 0.1, which
// quotients of doubles deny. False, too, when the numbers have more than 38 digits together or the
// factor is not above 0.
bool IsMultiple(const Decimal& value, const Decimal& factor);
// -1, 0, 1.
int Compare(const Decimal& a, const Decimal& b);

struct NumberBounds {
  bool has_low = false, has_high = false;
  Decimal low, high;
  bool low_open = false, high_open = false;  // the bound itself is not allowed
  int64_t multiple_of = 0;                   // 0: any
  // A fraction that numbers are multiples of, step / 10^step_digits. It divides 1, so that what
  // stands before the point does not matter, and whole numbers are multiples. 0: none.
  int64_t step = 0;
  size_t step_digits = 0;
  bool bounded() const { return has_low || has_high || multiple_of != 0 || step != 0; }

  void RaiseLow(const Decimal& bound, bool open);
  void LowerHigh(const Decimal& bound, bool open);
  // False: it is no fraction that divides 1, or has more than 6 digits.
  bool SetStep(const Decimal& factor);
};

// Integers have at most 18 digits, so that 64 bits hold them.
//   InvalidArgument  there is no such number      Unsupported  multiples that need too many states
Result<ExprId> IntegerExpr(const NumberBounds& bounds, Grammar* grammar);
// Without bounds: 18 digits, 16 behind the point, exponents of two digits.
Result<ExprId> NumberExpr(const NumberBounds& bounds, Grammar* grammar);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_JSON_NUMBERS_H_
