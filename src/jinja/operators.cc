// Python's arithmetic and comparisons.

#include <cmath>
#include <limits>

#include "base/checked.h"
#include "jinja/interpreter.h"
#include "jinja/strings.h"

namespace cellm::jinja {

namespace {

const char* OpName(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSubtract:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    case Op::kPower:
      return "** or pow()";
    default:
      return "?";
  }
}

bool BothTrusted(const Value& a, const Value& b) { return a.trusted() && b.trusted(); }

Value NewFloat(double value, const Value& a, const Value& b) {
  return Value::Float(value).WithTrust(BothTrusted(a, b));
}

}  // namespace

Status Interpreter::RaiseOperands(const char* op, const Value& a, const Value& b) {
  return Raise(ErrorKind::kTypeError, "unsupported operand type(s) for %s: '%s' and '%s'", op,
               TypeName(a), TypeName(b));
}

Result<Value> Interpreter::Binary(Op op, const Value& a, const Value& b) {
  if (op == Op::kModulo && a.Is(Kind::kString)) {
    // An undefined argument is formatted like any other value.
    return PercentFormat(*this, a, b);
  }
  if (a.Is(Kind::kUndefined)) return RaiseUndefined(a);
  if (b.Is(Kind::kUndefined)) return RaiseUndefined(b);
  switch (op) {
    case Op::kAdd:
      return Add(a, b);
    case Op::kMultiply:
      return Multiply(a, b);
    default:
      break;
  }
  if (!IsNumber(a) || !IsNumber(b)) return RaiseOperands(OpName(op), a, b);
  switch (op) {
    case Op::kSubtract:
      if (IsInteger(a) && IsInteger(b)) return IntegerArithmetic(op, a, b);
      return NewFloat(ToDouble(a) - ToDouble(b), a, b);
    case Op::kDivide:
      return Divide(a, b);
    case Op::kFloorDivide:
    case Op::kModulo:
      return FloorDivide(op, a, b);
    case Op::kPower:
      return Power(a, b);
    default:
      return Internal("an operator of unknown kind");
  }
}

Result<Value> Interpreter::IntegerArithmetic(Op op, const Value& a, const Value& b) {
  int64_t x = 0;
  int64_t y = 0;
  int64_t small = 0;
  if (GetInt64(a, &x) && GetInt64(b, &y)) {
    const bool fits = op == Op::kAdd        ? CheckedAdd(x, y, &small)
                      : op == Op::kSubtract ? CheckedSub(x, y, &small)
                                            : CheckedMul(x, y, &small);
    if (fits) return Value::Int(small).WithTrust(BothTrusted(a, b));
  }
  const BigInt p = ToBigInt(a);
  const BigInt q = ToBigInt(b);
  CELLM_RETURN_IF_ERROR(ChargeBytes(p.BitCount() + q.BitCount()));
  if (op == Op::kMultiply && p.BitCount() + q.BitCount() > limits().max_integer_bits + 1) {
    return Raise(ErrorKind::kLimit, "max_integer_bits: an integer would have more than %zu bits",
                 limits().max_integer_bits);
  }
  BigInt result = op == Op::kAdd        ? BigInt::Add(p, q)
                  : op == Op::kSubtract ? BigInt::Subtract(p, q)
                                        : BigInt::Multiply(p, q);
  return NewInteger(std::move(result), BothTrusted(a, b));
}

Result<Value> Interpreter::Add(const Value& a, const Value& b) {
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    // Safe HTML stays safe: the other side is escaped.
    const bool markup = IsMarkup(a) || IsMarkup(b);
    Text text;
    CELLM_RETURN_IF_ERROR(CheckStringSize(TextOf(a).size() + TextOf(b).size()));
    text.Reserve(TextOf(a).size() + TextOf(b).size());
    text.Append(markup && !IsMarkup(a) ? EscapeHtml(TextOf(a)) : TextOf(a));
    text.Append(markup && !IsMarkup(b) ? EscapeHtml(TextOf(b)) : TextOf(b));
    return NewString(std::move(text), markup);
  }
  if (IsNumber(a) && IsNumber(b)) {
    if (IsInteger(a) && IsInteger(b)) return IntegerArithmetic(Op::kAdd, a, b);
    return NewFloat(ToDouble(a) + ToDouble(b), a, b);
  }
  if ((IsList(a) && IsList(b)) || (IsTuple(a) && IsTuple(b))) {
    std::vector<Value> items;
    CELLM_RETURN_IF_ERROR(CheckItemCount(AsSequence(a).items.size() + AsSequence(b).items.size()));
    items.reserve(AsSequence(a).items.size() + AsSequence(b).items.size());
    items = AsSequence(a).items;
    items.insert(items.end(), AsSequence(b).items.begin(), AsSequence(b).items.end());
    return IsList(a) ? NewList(std::move(items)) : NewTuple(std::move(items));
  }
  if (a.Is(Kind::kString) || IsList(a) || IsTuple(a)) {
    const char* type = a.Is(Kind::kString) ? "str" : (IsList(a) ? "list" : "tuple");
    return Raise(ErrorKind::kTypeError, "can only concatenate %s (not \"%s\") to %s", type,
                 TypeName(b), type);
  }
  return RaiseOperands("+", a, b);
}

Result<Value> Interpreter::Repeat(const Value& sequence, const Value& count_value) {
  if (count_value.Is(Kind::kBigInt) && !AsBigInt(count_value).negative()) {
    return RaiseMessage(ErrorKind::kOverflowError, "cannot fit 'int' into an index-sized integer");
  }
  int64_t count = 0;
  GetInt64(count_value, &count);
  const auto times = static_cast<size_t>(count > 0 ? count : 0);
  const size_t unit =
      sequence.Is(Kind::kString) ? TextOf(sequence).size() : AsSequence(sequence).items.size();
  size_t total = 0;
  if (!CheckedMul(unit, times, &total)) total = std::numeric_limits<size_t>::max();
  if (sequence.Is(Kind::kString)) {
    CELLM_RETURN_IF_ERROR(CheckStringSize(total));
    Text text;
    text.Reserve(total);
    for (size_t i = 0; i < times && unit > 0; ++i) text.Append(TextOf(sequence));
    return NewString(std::move(text), IsMarkup(sequence));
  }
  CELLM_RETURN_IF_ERROR(CheckItemCount(total));
  std::vector<Value> items;
  items.reserve(total);
  const std::vector<Value>& from = AsSequence(sequence).items;
  for (size_t i = 0; i < times && unit > 0; ++i)
    items.insert(items.end(), from.begin(), from.end());
  return IsList(sequence) ? NewList(std::move(items)) : NewTuple(std::move(items));
}

Result<Value> Interpreter::Multiply(const Value& a, const Value& b) {
  const auto repeatable = [](const Value& v) {
    return v.Is(Kind::kString) || IsList(v) || IsTuple(v);
  };
  if (repeatable(a) && IsInteger(b)) return Repeat(a, b);
  if (repeatable(b) && IsInteger(a)) return Repeat(b, a);
  if (!IsNumber(a) || !IsNumber(b)) {
    if (repeatable(a) || repeatable(b)) {
      return Raise(ErrorKind::kTypeError, "can't multiply sequence by non-int of type '%s'",
                   TypeName(repeatable(a) ? b : a));
    }
    return RaiseOperands("*", a, b);
  }
  if (IsInteger(a) && IsInteger(b)) return IntegerArithmetic(Op::kMultiply, a, b);
  return NewFloat(ToDouble(a) * ToDouble(b), a, b);
}

Result<Value> Interpreter::Divide(const Value& a, const Value& b) {
  if (IsInteger(a) && IsInteger(b)) {
    const BigInt divisor = ToBigInt(b);
    if (divisor.is_zero()) return RaiseMessage(ErrorKind::kZeroDivisionError, "division by zero");
    const BigInt dividend = ToBigInt(a);
    CELLM_RETURN_IF_ERROR(ChargeBytes(dividend.BitCount() * 8));
    const double quotient = BigInt::TrueDivide(dividend, divisor);
    if (std::isinf(quotient)) {
      return RaiseMessage(ErrorKind::kOverflowError,
                          "integer division result too large for a float");
    }
    return NewFloat(quotient, a, b);
  }
  if (ToDouble(b) == 0)
    return RaiseMessage(ErrorKind::kZeroDivisionError, "float division by zero");
  return NewFloat(ToDouble(a) / ToDouble(b), a, b);
}

Result<Value> Interpreter::FloorDivide(Op op, const Value& a, const Value& b) {
  const bool modulo = op == Op::kModulo;
  if (IsInteger(a) && IsInteger(b)) {
    const BigInt divisor = ToBigInt(b);
    if (divisor.is_zero()) {
      return RaiseMessage(ErrorKind::kZeroDivisionError, "integer division or modulo by zero");
    }
    const BigInt dividend = ToBigInt(a);
    CELLM_RETURN_IF_ERROR(ChargeBytes(dividend.BitCount() * 8));
    BigInt quotient;
    BigInt remainder;
    BigInt::FloorDivide(dividend, divisor, &quotient, &remainder);
    return NewInteger(modulo ? std::move(remainder) : std::move(quotient), BothTrusted(a, b));
  }
  const double x = ToDouble(a);
  const double y = ToDouble(b);
  if (y == 0) {
    return RaiseMessage(ErrorKind::kZeroDivisionError,
                        modulo ? "float modulo" : "float floor division by zero");
  }
  double rest = std::fmod(x, y);
  double quotient = (x - rest) / y;
  if (rest != 0) {
    if ((y < 0) != (rest < 0)) {
      rest += y;
      quotient -= 1.0;
    }
  } else {
    rest = std::copysign(0.0, y);
  }
  if (modulo) return NewFloat(rest, a, b);
  double whole = std::copysign(0.0, x / y);
  if (quotient != 0) {
    whole = std::floor(quotient);
    if (quotient - whole > 0.5) whole += 1.0;
  }
  return NewFloat(whole, a, b);
}

Result<Value> Interpreter::Power(const Value& a, const Value& b) {
  const bool integral = IsInteger(a) && IsInteger(b);
  if (integral && !ToBigInt(b).negative()) {
    BigInt base = ToBigInt(a);
    int64_t exponent = 0;
    const size_t bits = base.BitCount();
    const bool fits = ToBigInt(b).FitsInt64(&exponent);
    // |base| >= 2 needs at least (bits - 1) * exponent bits.
    if (bits > 1 &&
        (!fits || static_cast<uint64_t>(exponent) > limits().max_integer_bits / (bits - 1))) {
      return Raise(ErrorKind::kLimit, "max_integer_bits: an integer would have more than %zu bits",
                   limits().max_integer_bits);
    }
    if (bits <= 1 && !fits) exponent = 2 + (ToBigInt(b).ToString().back() - '0') % 2;
    BigInt result(1);
    for (; exponent > 0; exponent >>= 1) {
      CELLM_RETURN_IF_ERROR(ChargeBytes(result.BitCount() + base.BitCount()));
      if ((exponent & 1) != 0) result = BigInt::Multiply(result, base);
      if (exponent > 1) base = BigInt::Multiply(base, base);
    }
    return NewInteger(std::move(result), BothTrusted(a, b));
  }
  const double x = ToDouble(a);
  const double y = ToDouble(b);
  if (x == 0 && y < 0) {
    return RaiseMessage(ErrorKind::kZeroDivisionError, "0.0 cannot be raised to a negative power");
  }
  if (x < 0 && std::isfinite(y) && y != std::floor(y)) {
    return RaiseMessage(ErrorKind::kTypeError, "complex numbers are not supported");
  }
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) {
    return RaiseMessage(ErrorKind::kOverflowError, "(34, 'Numerical result out of range')");
  }
  return NewFloat(result, a, b);
}

// ---- Comparisons ----

Result<bool> Interpreter::IsEqual(const Value& a, const Value& b) {
  CompareCost cost;
  cost.max_steps = 4 * (limits().max_steps - steps_);
  const bool equal = Equal(a, b, &cost);
  CELLM_RETURN_IF_ERROR(Charge(cost.steps > cost.max_steps ? limits().max_steps : cost.steps / 4));
  if (cost.too_deep) {
    return RaiseMessage(ErrorKind::kRecursionError,
                        "maximum recursion depth exceeded in comparison");
  }
  return equal;
}

Result<int> Interpreter::CompareSequences(const Value& a, const Value& b, const char* op) {
  const std::vector<Value>& x = AsSequence(a).items;
  const std::vector<Value>& y = AsSequence(b).items;
  if (++compare_depth_ > 100) {
    return RaiseMessage(ErrorKind::kRecursionError,
                        "maximum recursion depth exceeded in comparison");
  }
  const size_t common = x.size() < y.size() ? x.size() : y.size();
  for (size_t i = 0; i < common; ++i) {
    CELLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(x[i], y[i]));
    CELLM_RETURN_IF_ERROR(Charge(1));
    if (equal) continue;
    CELLM_ASSIGN_OR_RETURN(const int order, Compare(x[i], y[i], op));
    --compare_depth_;
    return order;
  }
  --compare_depth_;
  return x.size() < y.size() ? -1 : (x.size() > y.size() ? 1 : 0);
}

Result<int> Interpreter::Compare(const Value& a, const Value& b, const char* op) {
  if (a.Is(Kind::kUndefined)) return RaiseUndefined(a);
  if (b.Is(Kind::kUndefined)) return RaiseUndefined(b);
  if (IsNumber(a) && IsNumber(b)) return CompareNumbers(a, b);
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    // UTF-8 sorts like code points.
    CELLM_RETURN_IF_ERROR(Charge(static_cast<int64_t>(TextOf(a).size() / 256)));
    const int order = BytesOf(a).compare(BytesOf(b));
    return order < 0 ? -1 : (order > 0 ? 1 : 0);
  }
  if ((IsList(a) && IsList(b)) || (IsTuple(a) && IsTuple(b))) return CompareSequences(a, b, op);
  return Raise(ErrorKind::kTypeError, "'%s' not supported between instances of '%s' and '%s'", op,
               TypeName(a), TypeName(b));
}

Result<bool> Interpreter::Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (item.Is(Kind::kUndefined)) {
        return RaiseMessage(ErrorKind::kTypeError,
                            "'in <string>' requires string as left operand, not Undefined");
      }
      if (!item.Is(Kind::kString)) {
        return Raise(ErrorKind::kTypeError, "'in <string>' requires string as left operand, not %s",
                     TypeName(item));
      }
      CELLM_RETURN_IF_ERROR(ChargeBytes(TextOf(container).size()));
      return FindBytes(BytesOf(container), BytesOf(item)) != std::string_view::npos;
    case Kind::kDict:
      if (!IsHashable(item)) {
        return Raise(ErrorKind::kTypeError, "unhashable type: '%s'", TypeName(item));
      }
      return AsDict(container).Find(item) != nullptr;
    case Kind::kUndefined:
    case Kind::kSequence:
    case Kind::kRange:
      break;
    default:
      return Raise(ErrorKind::kTypeError, "argument of type '%s' is not iterable",
                   TypeName(container));
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, Iterate(container));
  for (const Value& other : list.items) {
    CELLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(other, item));
    if (equal) return true;
    CELLM_RETURN_IF_ERROR(Charge(1));
  }
  return false;
}

}  // namespace cellm::jinja
