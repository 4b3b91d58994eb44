#include "constrain/json_numbers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cellm::constrain {
namespace {

constexpr int64_t kLargestInteger = 999'999'999'999'999'999;
constexpr int64_t kLargestExact = 999'999'999'999'999;  // 15 digits
constexpr int64_t kMostListed = 2000;                   // multiples that are written out one by one
constexpr int64_t kMostRemainders = 1000;
constexpr size_t kMostStepDigits = 6;  // up to 5^6 remainders

CodePoints Digit(char first, char last) {
  return CodePoints(static_cast<char32_t>(first), static_cast<char32_t>(last));
}

// ---- whole numbers ----------------------------------------------------------------------------

// Grows an automaton that accepts ranges of whole numbers >= 0 from any of its states.
class RangeBuilder {
 public:
  explicit RangeBuilder(CharAutomaton* out) : out_(out) {}

  void Add(int32_t from, int64_t low, int64_t high) {
    const std::string first = std::to_string(low);
    const std::string last = std::to_string(high);
    for (size_t length = first.size(); length <= last.size(); ++length) {
      const bool cut_low = length == first.size();
      const bool cut_high = length == last.size();
      if (!cut_low && !cut_high) {
        out_->AddEdge(from, Free(length - 1), Digit('1', '9'));
        continue;
      }
      low_ = std::string(length, '0');
      low_[0] = '1';
      if (cut_low) low_ = first;
      high_ = cut_high ? last : std::string(length, '9');
      AddDigits(from, 0, true, true);
    }
  }

 private:
  // The state after which exactly `count` digits come.
  int32_t Free(size_t count) {
    while (free_.size() <= count) {
      const int32_t state = out_->AddState(free_.empty());
      if (!free_.empty()) out_->AddEdge(state, free_.back(), Digit('0', '9'));
      free_.push_back(state);
    }
    return free_[count];
  }
  // Digit `at` and those behind it. at_low: so far they are those of low_; likewise at_high.
  void AddDigits(int32_t from, size_t at, bool at_low, bool at_high) {
    const size_t left = low_.size() - at - 1;
    const char low = at_low ? low_[at] : '0';
    const char high = at_high ? high_[at] : '9';
    const auto tight = [&](char digit, bool stays_low, bool stays_high) {
      if (left == 0) {
        out_->AddEdge(from, Free(0), Digit(digit, digit));
        return;
      }
      const int32_t next = out_->AddState(false);
      out_->AddEdge(from, next, Digit(digit, digit));
      AddDigits(next, at + 1, stays_low, stays_high);
    };
    char first = low;
    char last = high;
    if (at_low && at_high && low == high) {
      tight(low, true, true);
      return;
    }
    if (at_low) {
      tight(low, true, false);
      ++first;
    }
    if (at_high) {
      tight(high, false, true);
      --last;
    }
    if (first <= last) out_->AddEdge(from, Free(left), Digit(first, last));
  }

  CharAutomaton* out_;
  std::string low_, high_;
  std::vector<int32_t> free_;
};

// Whole numbers from low to high, with a minus sign where they are below zero.
CharAutomaton IntegerRange(int64_t low, int64_t high) {
  CharAutomaton out;
  out.AddState(false);
  RangeBuilder builder(&out);
  if (high >= 0) builder.Add(0, std::max<int64_t>(low, 0), high);
  if (low < 0) {
    const int32_t minus = out.AddState(false);
    out.AddEdge(0, minus, Digit('-', '-'));
    builder.Add(minus, std::max<int64_t>(1, -high), -low);
  }
  return out;
}

// Digits, after a sign or not, whose number is a multiple: one state a remainder.
CharAutomaton MultiplesOf(int64_t factor) {
  CharAutomaton out;
  for (int64_t i = 0; i < factor; ++i) out.AddState(i == 0);
  const int32_t start = out.AddState(false);
  // State 0 is where everything starts, so the start and remainder 0 trade places.
  const auto place = [&](int64_t remainder) {
    return remainder == 0 ? start : static_cast<int32_t>(remainder);
  };
  out.finals[0] = false;
  out.finals[static_cast<size_t>(start)] = true;
  for (int64_t remainder = -1; remainder < factor; ++remainder) {
    const int32_t from = remainder < 0 ? 0 : place(remainder);
    for (int64_t digit = 0; digit <= 9; ++digit) {
      const int64_t next = (std::max<int64_t>(remainder, 0) * 10 + digit) % factor;
      const char32_t c = static_cast<char32_t>('0' + digit);
      out.AddEdge(from, place(next), CodePoints(c, c));
    }
  }
  const int32_t signed_start = out.AddState(false);
  out.AddEdge(0, signed_start, Digit('-', '-'));
  for (const CharEdge& edge : std::vector<CharEdge>(out.edges[0])) {
    if (edge.target != signed_start) out.AddEdge(signed_start, edge.target, edge.set);
  }
  return out;
}

// The whole part as a number, not above `most`.
int64_t WholePart(const Decimal& d, int64_t most) {
  int64_t value = 0;
  for (const char c : d.whole) {
    if (value > most / 10) return most;
    value = value * 10 + (c - '0');
  }
  return std::min(value, most);
}

// The smallest integer that is not below the bound, or above it when it is open.
int64_t CeilingOf(const Decimal& d, bool open) {
  const int64_t whole = WholePart(d, kLargestInteger);
  if (d.negative) return d.fraction.empty() && open ? -whole + 1 : -whole;
  return d.fraction.empty() && !open ? whole : whole + 1;
}

int64_t FloorOf(Decimal d, bool open) {
  d.negative = !d.negative;
  return -CeilingOf(d, open);
}

Status NoNumber() { return InvalidArgument("no number lies within the bounds"); }

// ---- fractions --------------------------------------------------------------------------------

// What stands behind the whole part: nothing, or a point and up to `digits` digits.
//   at_least   0.text >= 0.bound (> when open)      else   0.text <= 0.bound (<)
CharAutomaton FractionAgainst(bool at_least, const std::string& bound, bool open, size_t digits) {
  CharAutomaton out;
  const bool is_zero = bound.empty();
  const int32_t start = out.AddState(at_least ? is_zero && !open : !is_zero || !open);
  std::vector<int32_t> free;  // free[k]: up to k more digits
  for (size_t k = 0; k < digits; ++k) {
    free.push_back(out.AddState(true));
    if (k > 0) out.AddEdge(free[k], free[k - 1], Digit('0', '9'));
  }
  // tight: the digits so far are those of the bound, then zeros
  std::vector<int32_t> tight;
  for (size_t i = 0; i <= digits; ++i) {
    const bool equal = i >= bound.size();
    const bool good = at_least ? equal && !open : !equal || !open;
    tight.push_back(out.AddState(i > 0 && good));
  }
  out.AddEdge(start, tight[0], Digit('.', '.'));
  for (size_t i = 0; i < digits; ++i) {
    const char here = i < bound.size() ? bound[i] : '0';
    out.AddEdge(tight[i], tight[i + 1], Digit(here, here));
    if (at_least && here < '9') {
      out.AddEdge(tight[i], free[digits - i - 1], Digit(static_cast<char>(here + 1), '9'));
    }
    if (!at_least && here > '0') {
      out.AddEdge(tight[i], free[digits - i - 1], Digit('0', static_cast<char>(here - 1)));
    }
  }
  return out;
}

// What may stand behind a whole part so that the number is a multiple of step / 10^digits, which
// divides 1: nothing, or a point and up to `digits` digits. One state for each number of digits and
// remainder.
CharAutomaton FractionMultiples(int64_t step, size_t digits) {
  CharAutomaton out;
  const int32_t start = out.AddState(true);
  std::vector<int64_t> scale(digits + 1, 1);  // scale[k] = 10^k
  for (size_t k = 1; k <= digits; ++k) scale[k] = scale[k - 1] * 10;
  const int32_t point = out.AddState(false);
  out.AddEdge(start, point, Digit('.', '.'));
  std::map<int64_t, int32_t> row = {{0, point}};  // by what the digits so far leave, as a number
  for (size_t k = 1; k <= digits; ++k) {
    std::map<int64_t, int32_t> next;
    for (const auto& [rest, from] : row) {
      for (int64_t digit = 0; digit <= 9; ++digit) {
        // Digits that are equal in what they leave for those behind them share a state.
        const int64_t value = (rest + digit * scale[digits - k]) % step;
        const auto [place, is_new] = next.try_emplace(value, 0);
        if (is_new) place->second = out.AddState(value == 0);
        const char c = static_cast<char>('0' + digit);
        out.AddEdge(from, place->second, Digit(c, c));
      }
    }
    row = std::move(next);
  }
  return out;
}

struct Side {
  Decimal bound;  // not negative
  bool open = false;
};

// Numbers from low to high, both >= 0, with up to `digits` digits behind the point. `step`:
// multiples of step / 10^digits; 0: all.
Status AddMagnitudes(const Side& low, const Side& high, size_t digits, int64_t step,
                     std::string_view sign, Grammar* grammar, std::vector<ExprId>* out) {
  const int64_t first = WholePart(low.bound, kLargestExact);
  const int64_t last = WholePart(high.bound, kLargestExact);
  const auto add = [&](ExprId whole, CharAutomaton fraction) -> Status {
    if (step != 0) {
      CELLM_ASSIGN_OR_RETURN(fraction, Intersect(fraction, FractionMultiples(step, digits)));
    }
    if (!Trim(&fraction)) return OkStatus();
    out->push_back(grammar->Sequence(
        {grammar->Bytes(sign), whole, SpellAutomaton(fraction, Spelling::kPlain, grammar)}));
    return OkStatus();
  };
  CharAutomaton above = FractionAgainst(true, low.bound.fraction, low.open, digits);
  CharAutomaton below = FractionAgainst(false, high.bound.fraction, high.open, digits);
  if (first > last) return OkStatus();
  const ExprId first_text = grammar->Bytes(std::to_string(first));
  if (first == last) {
    CELLM_ASSIGN_OR_RETURN(CharAutomaton both, Intersect(above, below));
    return add(first_text, std::move(both));
  }
  CELLM_RETURN_IF_ERROR(add(first_text, std::move(above)));
  CELLM_RETURN_IF_ERROR(add(grammar->Bytes(std::to_string(last)), std::move(below)));
  if (first + 1 >= last) return OkStatus();
  return add(SpellAutomaton(IntegerRange(first + 1, last - 1), Spelling::kPlain, grammar),
             FractionAgainst(true, "", false, digits));
}

}  // namespace

bool ParseDecimal(std::string_view text, Decimal* out) {
  Decimal result;
  std::string digits;
  int64_t point = -1;
  size_t at = 0;
  if (!text.empty() && text[0] == '-') {
    result.negative = true;
    ++at;
  }
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.' && point < 0) {
      point = static_cast<int64_t>(digits.size());
    } else if (text[at] >= '0' && text[at] <= '9') {
      digits.push_back(text[at]);
    } else {
      return false;  // NaN, Infinity
    }
  }
  if (digits.empty() || digits.size() > 400) return false;
  if (point < 0) point = static_cast<int64_t>(digits.size());
  if (at < text.size()) {
    ++at;
    const bool minus = at < text.size() && text[at] == '-';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    int64_t exponent = 0;
    for (; at < text.size(); ++at)
      exponent = std::min<int64_t>(exponent * 10 + text[at] - '0', 999);
    point += minus ? -exponent : exponent;
  }
  while (point < 0 && digits.size() <= 400) {
    digits.insert(digits.begin(), '0');
    ++point;
  }
  if (point < 0 || point > 400) return false;
  digits.resize(std::max(digits.size(), static_cast<size_t>(point)), '0');
  result.whole = digits.substr(0, static_cast<size_t>(point));
  result.fraction = digits.substr(static_cast<size_t>(point));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole.push_back('0');
  result.fraction.resize(result.fraction.find_last_not_of('0') + 1);
  if (result.whole.size() + result.fraction.size() > 30) return false;
  if (result.is_zero()) result.negative = false;
  *out = std::move(result);
  return true;
}

int Compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int size = 0;
  if (a.whole.size() != b.whole.size()) {
    size = a.whole.size() < b.whole.size() ? -1 : 1;
  } else {
    size = a.whole.compare(b.whole);
    if (size == 0) size = a.fraction.compare(b.fraction);
  }
  size = size < 0 ? -1 : size > 0 ? 1 : 0;
  return a.negative ? -size : size;
}

bool IsMultiple(const Decimal& value, const Decimal& factor) {
  const size_t digits = std::max(value.fraction.size(), factor.fraction.size());
  if (factor.negative || factor.is_zero()) return false;
  const auto scaled = [&](const Decimal& d, unsigned __int128* out) {
    if (d.whole.size() + digits > 38) return false;
    *out = 0;
    for (const char c : d.whole + d.fraction) *out = *out * 10 + static_cast<unsigned>(c - '0');
    for (size_t i = d.fraction.size(); i < digits; ++i) *out *= 10;
    return true;
  };
  unsigned __int128 dividend = 0;
  unsigned __int128 divisor = 0;
  return scaled(value, &dividend) && scaled(factor, &divisor) && dividend % divisor == 0;
}

bool NumberBounds::SetStep(const Decimal& factor) {
  if (factor.negative || factor.whole != "0" || factor.fraction.empty() ||
      factor.fraction.size() > kMostStepDigits) {
    return false;
  }
  int64_t one = 1;
  int64_t numerator = 0;
  for (const char c : factor.fraction) {
    numerator = numerator * 10 + (c - '0');
    one *= 10;
  }
  if (one % numerator != 0) return false;
  step = numerator;
  step_digits = factor.fraction.size();
  return true;
}

void NumberBounds::RaiseLow(const Decimal& bound, bool open) {
  const int order = has_low ? Compare(bound, low) : 1;
  if (order > 0) low_open = open;
  if (order == 0) low_open |= open;
  if (order >= 0) low = bound;
  has_low = true;
}

void NumberBounds::LowerHigh(const Decimal& bound, bool open) {
  const int order = has_high ? Compare(bound, high) : -1;
  if (order < 0) high_open = open;
  if (order == 0) high_open |= open;
  if (order <= 0) high = bound;
  has_high = true;
}

Result<ExprId> IntegerExpr(const NumberBounds& bounds, Grammar* grammar) {
  const int64_t low = bounds.has_low ? CeilingOf(bounds.low, bounds.low_open) : -kLargestInteger;
  const int64_t high = bounds.has_high ? FloorOf(bounds.high, bounds.high_open) : kLargestInteger;
  if (low > high || low > kLargestInteger || high < -kLargestInteger) return NoNumber();
  const int64_t factor = bounds.multiple_of;
  CharAutomaton range =
      IntegerRange(std::max(low, -kLargestInteger), std::min(high, kLargestInteger));
  if (factor <= 1) return SpellAutomaton(range, Spelling::kPlain, grammar);
  const int64_t first = low / factor - 1;  // rounded down or one too low
  const int64_t last = high / factor + 1;
  if (last - first <= kMostListed) {
    std::vector<std::string> texts;
    for (int64_t i = first; i <= last; ++i) {
      int64_t value = 0;
      if (__builtin_mul_overflow(i, factor, &value) || value < low || value > high) continue;
      texts.push_back(std::to_string(value));
    }
    if (texts.empty()) return NoNumber();
    return grammar->Texts(std::move(texts));
  }
  if (factor > kMostRemainders) {
    return Unsupported("\"multipleOf\" above %lld needs bounds that leave at most %lld multiples",
                       static_cast<long long>(kMostRemainders),
                       static_cast<long long>(kMostListed));
  }
  CELLM_ASSIGN_OR_RETURN(CharAutomaton both, Intersect(range, MultiplesOf(factor)));
  if (!Trim(&both)) return NoNumber();
  return SpellAutomaton(both, Spelling::kPlain, grammar);
}

namespace {

ExprId AnyNumber(Grammar* grammar) {
  const ExprId digit = grammar->Chars(Digit('0', '9'));
  const ExprId sign = grammar->Chars(CodePoints::Of("+-"));
  const ExprId fraction = grammar->Sequence({grammar->Bytes("."), grammar->Repeat(digit, 1, 16)});
  const ExprId exponent =
      grammar->Sequence({grammar->Chars(CodePoints::Of("eE")), grammar->Optional(sign),
                         grammar->Repeat(digit, 1, 2)});
  const ExprId whole = grammar->Alternatives(
      {grammar->Bytes("0"),
       grammar->Sequence({grammar->Chars(Digit('1', '9')), grammar->Repeat(digit, 0, 17)})});
  return grammar->Sequence({grammar->Optional(grammar->Bytes("-")), whole,
                            grammar->Optional(fraction), grammar->Optional(exponent)});
}

}  // namespace

Result<ExprId> NumberExpr(const NumberBounds& bounds, Grammar* grammar) {
  if (!bounds.bounded()) return AnyNumber(grammar);
  if (bounds.multiple_of != 0) return IntegerExpr(bounds, grammar);
  size_t whole = 1;
  size_t fraction = bounds.step_digits;
  for (const bool is_low : {true, false}) {
    if (!(is_low ? bounds.has_low : bounds.has_high)) continue;
    const Decimal& bound = is_low ? bounds.low : bounds.high;
    whole = std::max(whole, bound.whole.size());
    fraction = std::max(fraction, bound.fraction.size());
  }
  if (whole + fraction > 15 && fraction > 0) {
    return Unsupported("a bound of a number has more than 15 digits; round it");
  }
  if (whole >= 15) return IntegerExpr(bounds, grammar);  // multiples of a fraction that divides 1
  // Where one side is open, numbers go on to ten digits with a fraction and to 15 without.
  const bool both = bounds.has_low && bounds.has_high;
  if (!both) whole = std::max(whole + 1, std::min<size_t>(10, 15 - fraction));
  whole = std::min<size_t>(whole, 15);
  const size_t digits = bounds.step != 0
                            ? bounds.step_digits
                            : std::max<size_t>({1, 15 - std::min<size_t>(whole, 14), fraction});
  Decimal end;
  end.whole = std::string(whole, '9');
  const auto magnitude = [](Decimal d) {
    d.negative = false;
    return d;
  };
  Decimal zero;
  zero.whole.push_back('0');
  std::vector<ExprId> parts;
  if (!bounds.has_high || !bounds.high.negative) {
    const bool from_zero = !bounds.has_low || bounds.low.negative;
    const Side low = from_zero ? Side{zero, false} : Side{bounds.low, bounds.low_open};
    const Side high = bounds.has_high ? Side{bounds.high, bounds.high_open} : Side{end, false};
    CELLM_RETURN_IF_ERROR(AddMagnitudes(low, high, digits, bounds.step, "", grammar, &parts));
  }
  if (!bounds.has_low || bounds.low.negative) {
    const bool to_zero = !bounds.has_high || !bounds.high.negative;
    const Side low = to_zero ? Side{zero, true} : Side{magnitude(bounds.high), bounds.high_open};
    const Side high =
        bounds.has_low ? Side{magnitude(bounds.low), bounds.low_open} : Side{end, false};
    CELLM_RETURN_IF_ERROR(AddMagnitudes(low, high, digits, bounds.step, "-", grammar, &parts));
  }
  if (!both && whole < 15) {
    const int64_t edge = WholePart(end, kLargestExact) + 1;
    const auto add = [&](int64_t low, int64_t high) {
      parts.push_back(SpellAutomaton(IntegerRange(low, high), Spelling::kPlain, grammar));
    };
    if (!bounds.has_high) add(edge, kLargestExact);
    if (!bounds.has_low) add(-kLargestExact, -edge);
  }
  if (parts.empty()) return NoNumber();
  return grammar->Alternatives(std::move(parts));
}

}  // namespace cellm::constrain
