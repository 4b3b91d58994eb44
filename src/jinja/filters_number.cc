#include <cmath>
#include <cstdio>

#include "base/numbers.h"
#include "jinja/filters.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja::filters {

namespace {

// Python's int(text, base): blanks around, a sign, an optional prefix for the base, single
// underscores between digits. Base 0 takes the prefix's word for it.
bool ParsePythonInt(std::string_view text, int64_t base, BigInt* out) {
  text = text.substr(CountLeadingSpace(text));
  text = text.substr(0, TrimmedLength(text));
  std::string digits;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    digits.push_back(text[0]);
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int64_t named = letter == 'x' ? 16 : (letter == 'o' ? 8 : (letter == 'b' ? 2 : 0));
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      text.remove_prefix(2);
      if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    }
  }
  if (base == 0) base = 10;
  if (text.empty() || text.front() == '_' || text.back() == '_' ||
      text.size() > kMaxIntegerDigits) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && text[i + 1] == '_') return false;
    if (text[i] != '_') digits.push_back(text[i]);
  }
  return BigInt::Parse(digits, static_cast<int>(base), out);
}

bool ParsePythonFloat(std::string_view text, double* out) {
  text = text.substr(CountLeadingSpace(text));
  text = text.substr(0, TrimmedLength(text));
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                         text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '_' && between) continue;
    clean.push_back(text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] | 0x20) : text[i]);
  }
  std::string_view rest = clean;
  const bool negative = !rest.empty() && rest[0] == '-';
  if (!rest.empty() && (rest[0] == '-' || rest[0] == '+')) rest.remove_prefix(1);
  double value = 0;
  if (rest == "inf" || rest == "infinity") {
    value = HUGE_VAL;
  } else if (rest == "nan") {
    value = std::nan("");
  } else if (rest.starts_with('-') || !ParseDouble(rest, &value)) {
    return false;
  }
  *out = negative ? -value : value;
  return true;
}

Result<Value> IntFromDouble(Interpreter& in, double real, bool trusted) {
  if (std::isnan(real)) {
    return in.RaiseMessage(ErrorKind::kValueError, "cannot convert float NaN to integer");
  }
  if (std::isinf(real)) {
    return in.RaiseMessage(ErrorKind::kOverflowError, "cannot convert float infinity to integer");
  }
  return in.NewInteger(BigInt::FromDouble(real), trusted);
}

Status NeedNumber(Interpreter& in, const Value& value, const char* what) {
  if (IsNumber(value)) return OkStatus();
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  return in.Raise(ErrorKind::kTypeError, "bad operand type for %s: '%s'", what, TypeName(value));
}

}  // namespace

Result<Value> Abs(Interpreter& in, const Value& value, Arguments args) {
  CELLM_RETURN_IF_ERROR(BindArguments(in, "abs", args, {}, 0, {}));
  CELLM_RETURN_IF_ERROR(NeedNumber(in, value, "abs()"));
  if (value.Is(Kind::kFloat))
    return Value::Float(std::fabs(value.real())).WithTrust(value.trusted());
  const BigInt integer = ToBigInt(value);
  return in.NewInteger(integer.negative() ? integer.Negated() : integer, value.trusted());
}

Result<Value> Int(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "int", args, {"default", "base"}, 0, options));
  const Value fallback = options[0].missing() ? Value::Int(0) : options[0];
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  if (IsInteger(value)) return in.NewInteger(ToBigInt(value), value.trusted());
  if (value.Is(Kind::kFloat)) {
    if (std::isnan(value.real())) return fallback;
    return IntFromDouble(in, value.real(), value.trusted());
  }
  if (!value.Is(Kind::kString)) return fallback;
  int64_t base = 10;
  if (!options[1].missing() && !GetInt64(options[1], &base)) {
    return in.Raise(ErrorKind::kTypeError, "'%s' object cannot be interpreted as an integer",
                    TypeName(options[1]));
  }
  BigInt integer;
  const bool base_exists = base == 0 || (base >= 2 && base <= 36);
  if (base_exists && ParsePythonInt(BytesOf(value), base, &integer)) {
    return in.NewInteger(std::move(integer), false);
  }
  double real = 0;
  if (!ParsePythonFloat(BytesOf(value), &real) || std::isnan(real)) return fallback;
  return IntFromDouble(in, real, false);
}

Result<Value> Float(Interpreter& in, const Value& value, Arguments args) {
  Value fallback;
  CELLM_RETURN_IF_ERROR(
      BindArguments(in, "float", args, {"default"}, 0, std::span<Value>(&fallback, 1)));
  if (fallback.missing()) fallback = Value::Float(0.0);
  if (value.Is(Kind::kUndefined)) return in.RaiseUndefined(value);
  if (IsNumber(value)) {
    const double real = ToDouble(value);
    if (std::isinf(real) && !value.Is(Kind::kFloat)) {
      return in.RaiseMessage(ErrorKind::kOverflowError, "int too large to convert to float");
    }
    return Value::Float(real).WithTrust(value.trusted());
  }
  double real = 0;
  if (value.Is(Kind::kString) && ParsePythonFloat(BytesOf(value), &real)) return Value::Float(real);
  return fallback;
}

Result<Value> Round(Interpreter& in, const Value& value, Arguments args) {
  Value options[2];
  CELLM_RETURN_IF_ERROR(BindArguments(in, "round", args, {"precision", "method"}, 0, options));
  CELLM_RETURN_IF_ERROR(NeedNumber(in, value, "round()"));
  int64_t precision = 0;
  if (!options[0].missing() && !GetInt64(options[0], &precision)) {
    return in.Raise(ErrorKind::kTypeError, "'%s' object cannot be interpreted as an integer",
                    TypeName(options[0]));
  }
  const std::string_view method =
      options[1].Is(Kind::kString) ? BytesOf(options[1]) : std::string_view("common");
  if (method != "common" && method != "ceil" && method != "floor") {
    return in.RaiseMessage(ErrorKind::kFilterArgumentError, "method must be common, ceil or floor");
  }
  const bool trusted = value.trusted();
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = ToDouble(value) * scale;
    if (!std::isfinite(scaled) || scale == 0) {
      return in.RaiseMessage(ErrorKind::kOverflowError, "cannot round a number of that size");
    }
    const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
    return Value::Float((whole + 0.0) / scale).WithTrust(trusted);  // -0.0 becomes 0.0
  }
  if (IsInteger(value)) {
    if (precision >= 0) return in.NewInteger(ToBigInt(value), trusted);
    // Half to even among multiples of 10 ** -precision.
    if (precision < -1000) return Value::Int(0).WithTrust(trusted);
    BigInt unit(1);
    for (int64_t i = 0; i < -precision; ++i) unit = BigInt::Multiply(unit, BigInt(10));
    BigInt quotient;
    BigInt rest;
    BigInt::FloorDivide(ToBigInt(value), unit, &quotient, &rest);
    const int order = BigInt::Compare(BigInt::Multiply(rest, BigInt(2)), unit);
    BigInt half;
    BigInt odd;
    BigInt::FloorDivide(quotient, BigInt(2), &half, &odd);
    if (order > 0 || (order == 0 && !odd.is_zero())) quotient = BigInt::Add(quotient, BigInt(1));
    return in.NewInteger(BigInt::Multiply(quotient, unit), trusted);
  }
  const double real = value.real();
  if (!std::isfinite(real) || precision > 330) return value;
  if (precision < 0) {
    if (precision < -310) return Value::Float(std::copysign(0.0, real)).WithTrust(trusted);
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    return Value::Float(std::nearbyint(real / scale) * scale).WithTrust(trusted);
  }
  // The decimal that printf gives is correctly rounded (half to even on the exact value), which
  // is what Python's round() does.
  std::string digits(400 + static_cast<size_t>(precision), '\0');
  const int length =
      std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), real);
  double rounded = 0;
  if (!ParseDouble(std::string_view(digits).substr(0, static_cast<size_t>(length)), &rounded)) {
    return Internal("a printed number does not read back");
  }
  return Value::Float(rounded).WithTrust(trusted);
}

}  // namespace cellm::jinja::filters
