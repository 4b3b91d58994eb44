// The tables of filters and tests, and the tests themselves.

#include "jinja/builtins.h"

#include <iterator>

#include "jinja/filters.h"
#include "jinja/python_text.h"
#include "jinja/strings.h"

namespace cellm::jinja {

namespace {

struct FilterEntry {
  std::string_view name;
  filters::Filter* run;
};

constexpr FilterEntry kFilters[] = {
    {"abs", filters::Abs},
    {"attr", filters::Attr},
    {"batch", filters::Batch},
    {"capitalize", filters::Capitalize},
    {"center", filters::Center},
    {"count", filters::Length},
    {"d", filters::Default},
    {"default", filters::Default},
    {"dictsort", filters::DictSort},
    {"e", filters::Escape},
    {"escape", filters::Escape},
    {"filesizeformat", filters::FileSizeFormat},
    {"first", filters::First},
    {"float", filters::Float},
    {"forceescape", filters::ForceEscape},
    {"format", filters::Format},
    {"groupby", filters::GroupBy},
    {"indent", filters::Indent},
    {"int", filters::Int},
    {"items", filters::Items},
    {"join", filters::Join},
    {"last", filters::Last},
    {"length", filters::Length},
    {"list", filters::List},
    {"lower", filters::Lower},
    {"map", filters::Map},
    {"max", filters::Max},
    {"min", filters::Min},
    {"random", filters::Random},
    {"reject", filters::Reject},
    {"rejectattr", filters::RejectAttr},
    {"replace", filters::Replace},
    {"reverse", filters::Reverse},
    {"round", filters::Round},
    {"safe", filters::Safe},
    {"select", filters::Select},
    {"selectattr", filters::SelectAttr},
    {"slice", filters::Slice},
    {"sort", filters::Sort},
    {"string", filters::String},
    {"striptags", filters::StripTags},
    {"sum", filters::Sum},
    {"title", filters::Title},
    {"tojson",
     [](Interpreter& in, const Value& value, Arguments args) -> Result<Value> {
       return ToJson(in, value, args);
     }},
    {"trim", filters::Trim},
    {"truncate", filters::Truncate},
    {"unique", filters::Unique},
    {"upper", filters::Upper},
    {"urlencode", filters::UrlEncode},
    {"wordcount", filters::WordCount},
    {"wordwrap", filters::WordWrap},
};

// The reference has these; they make HTML, or print for a human who debugs.
constexpr std::string_view kRefusedFilters[] = {"pprint", "urlize", "xmlattr"};

// A test of `value` against one optional argument.
using Test = Result<bool>(Interpreter& in, const Value& value, const Value& arg);

struct TestEntry {
  std::string_view name;
  int arguments;  // 0 or 1
  Test* run;
};

Result<bool> Remainder(Interpreter& in, const Value& value, const Value& divisor,
                       int64_t expected) {
  CELLM_ASSIGN_OR_RETURN(const Value rest, in.Binary(Op::kModulo, value, divisor));
  return in.IsEqual(rest, Value::Int(expected));
}

Result<bool> IsLetterCase(Interpreter& in, const Value& value, const char* method) {
  CELLM_ASSIGN_OR_RETURN(const Value text, in.ToStringValue(value));
  CELLM_ASSIGN_OR_RETURN(const Value result, CallStringMethod(in, text, method, {}));
  return result.boolean();
}

template <int kFirst, int kSecond>
Result<bool> Ordered(Interpreter& in, const Value& value, const Value& arg) {
  CELLM_ASSIGN_OR_RETURN(const int order, in.Compare(value, arg, kFirst < 0 ? "<" : ">"));
  return order == kFirst || order == kSecond;
}

Result<bool> TestEqual(Interpreter& in, const Value& value, const Value& arg) {
  return in.IsEqual(value, arg);
}
Result<bool> TestNotEqual(Interpreter& in, const Value& value, const Value& arg) {
  CELLM_ASSIGN_OR_RETURN(const bool equal, in.IsEqual(value, arg));
  return !equal;
}
Result<bool> TestIn(Interpreter& in, const Value& value, const Value& arg) {
  return in.Contains(arg, value);
}
Result<bool> TestSameAs(Interpreter& in, const Value& value, const Value& arg) {
  // Identity of what Python makes one object of: singletons, small integers, equal constants.
  if (value.kind() != arg.kind()) return false;
  if (value.IsObject() && !value.Is(Kind::kString)) return value.object() == arg.object();
  return in.IsEqual(value, arg);
}
Result<bool> TestDivisibleBy(Interpreter& in, const Value& value, const Value& arg) {
  return Remainder(in, value, arg, 0);
}
Result<bool> TestOdd(Interpreter& in, const Value& value, const Value&) {
  return Remainder(in, value, Value::Int(2), 1);
}
Result<bool> TestEven(Interpreter& in, const Value& value, const Value&) {
  return Remainder(in, value, Value::Int(2), 0);
}
Result<bool> TestDefined(Interpreter&, const Value& value, const Value&) {
  return !value.Is(Kind::kUndefined);
}
Result<bool> TestUndefined(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kUndefined);
}
Result<bool> TestNone(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kNone);
}
Result<bool> TestBoolean(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kBool);
}
Result<bool> TestTrue(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kBool) && value.boolean();
}
Result<bool> TestFalse(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kBool) && !value.boolean();
}
Result<bool> TestInteger(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kInt) || value.Is(Kind::kBigInt);
}
Result<bool> TestFloat(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kFloat);
}
Result<bool> TestNumber(Interpreter&, const Value& value, const Value&) { return IsNumber(value); }
Result<bool> TestString(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kString);
}
Result<bool> TestEscaped(Interpreter&, const Value& value, const Value&) { return IsMarkup(value); }
Result<bool> TestMapping(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kDict);
}
Result<bool> TestSequence(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kString) || value.Is(Kind::kBytes) || value.Is(Kind::kDict) ||
         value.Is(Kind::kRange) || value.Is(Kind::kUndefined) || IsList(value) || IsTuple(value);
}
Result<bool> TestIterable(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kString) || value.Is(Kind::kBytes) || value.Is(Kind::kDict) ||
         value.Is(Kind::kRange) || value.Is(Kind::kUndefined) || value.Is(Kind::kSequence) ||
         value.Is(Kind::kLoop);
}
Result<bool> TestCallable(Interpreter&, const Value& value, const Value&) {
  return value.Is(Kind::kFunction) || value.Is(Kind::kMethod) || value.Is(Kind::kMacro) ||
         value.Is(Kind::kLoop) || value.Is(Kind::kJoiner) || value.Is(Kind::kUndefined);
}
Result<bool> TestLower(Interpreter& in, const Value& value, const Value&) {
  return IsLetterCase(in, value, "islower");
}
Result<bool> TestUpper(Interpreter& in, const Value& value, const Value&) {
  return IsLetterCase(in, value, "isupper");
}
Status NeedHashable(Interpreter& in, const Value& value) {
  if (IsHashable(value)) return OkStatus();
  return in.Raise(ErrorKind::kTypeError, "unhashable type: '%s'", TypeName(value));
}
Result<bool> TestFilter(Interpreter& in, const Value& value, const Value&) {
  CELLM_RETURN_IF_ERROR(NeedHashable(in, value));
  return value.Is(Kind::kString) && FindFilter(BytesOf(value)) >= 0;
}
Result<bool> TestTest(Interpreter& in, const Value& value, const Value&) {
  CELLM_RETURN_IF_ERROR(NeedHashable(in, value));
  return value.Is(Kind::kString) && FindTest(BytesOf(value)) >= 0;
}

constexpr TestEntry kTests[] = {
    {"odd", 0, TestOdd},
    {"even", 0, TestEven},
    {"divisibleby", 1, TestDivisibleBy},
    {"defined", 0, TestDefined},
    {"undefined", 0, TestUndefined},
    {"filter", 0, TestFilter},
    {"test", 0, TestTest},
    {"none", 0, TestNone},
    {"boolean", 0, TestBoolean},
    {"false", 0, TestFalse},
    {"true", 0, TestTrue},
    {"integer", 0, TestInteger},
    {"float", 0, TestFloat},
    {"lower", 0, TestLower},
    {"upper", 0, TestUpper},
    {"string", 0, TestString},
    {"mapping", 0, TestMapping},
    {"number", 0, TestNumber},
    {"sequence", 0, TestSequence},
    {"iterable", 0, TestIterable},
    {"callable", 0, TestCallable},
    {"sameas", 1, TestSameAs},
    {"escaped", 0, TestEscaped},
    {"in", 1, TestIn},
    {"==", 1, TestEqual},
    {"eq", 1, TestEqual},
    {"equalto", 1, TestEqual},
    {"!=", 1, TestNotEqual},
    {"ne", 1, TestNotEqual},
    {">", 1, Ordered<1, 1>},
    {"gt", 1, Ordered<1, 1>},
    {"greaterthan", 1, Ordered<1, 1>},
    {">=", 1, Ordered<1, 0>},
    {"ge", 1, Ordered<1, 0>},
    {"<", 1, Ordered<-1, -1>},
    {"lt", 1, Ordered<-1, -1>},
    {"lessthan", 1, Ordered<-1, -1>},
    {"<=", 1, Ordered<-1, 0>},
    {"le", 1, Ordered<-1, 0>},
};

}  // namespace

int FindFilter(std::string_view name) {
  for (size_t i = 0; i < std::size(kFilters); ++i) {
    if (kFilters[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

bool IsRefusedFilter(std::string_view name) {
  for (const std::string_view refused : kRefusedFilters) {
    if (refused == name) return true;
  }
  return false;
}

int FindTest(std::string_view name) {
  for (size_t i = 0; i < std::size(kTests); ++i) {
    if (kTests[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Result<Value> Interpreter::ApplyFilter(int builtin, const Value& input, Arguments args) {
  return kFilters[static_cast<size_t>(builtin)].run(*this, input, std::move(args));
}

Result<bool> Interpreter::ApplyTest(int builtin, const Value& input, Arguments args) {
  const TestEntry& test = kTests[static_cast<size_t>(builtin)];
  const auto expected = static_cast<size_t>(test.arguments);
  Value arg;
  if (args.named.size() == 1 && args.positional.empty() && expected == 1) {
    arg = args.named[0].second;
  } else if (args.positional.size() == expected && args.named.empty()) {
    if (expected == 1) arg = args.positional[0];
  } else {
    return Raise(ErrorKind::kTypeError, "the test '%s' takes %d argument(s)",
                 std::string(test.name).c_str(), test.arguments);
  }
  return test.run(*this, input, arg);
}

std::string_view ErrorKindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kNone:
      return "";
    case ErrorKind::kTemplateError:
      return "TemplateError";
    case ErrorKind::kTemplateSyntaxError:
      return "TemplateSyntaxError";
    case ErrorKind::kTemplateAssertionError:
      return "TemplateAssertionError";
    case ErrorKind::kTemplateRuntimeError:
      return "TemplateRuntimeError";
    case ErrorKind::kUndefinedError:
      return "UndefinedError";
    case ErrorKind::kSecurityError:
      return "SecurityError";
    case ErrorKind::kFilterArgumentError:
      return "FilterArgumentError";
    case ErrorKind::kRuntimeError:
      return "RuntimeError";
    case ErrorKind::kTypeError:
      return "TypeError";
    case ErrorKind::kValueError:
      return "ValueError";
    case ErrorKind::kIndexError:
      return "IndexError";
    case ErrorKind::kKeyError:
      return "KeyError";
    case ErrorKind::kOverflowError:
      return "OverflowError";
    case ErrorKind::kZeroDivisionError:
      return "ZeroDivisionError";
    case ErrorKind::kRecursionError:
      return "RecursionError";
    case ErrorKind::kLimit:
      return "LimitError";
  }
  return "";
}

}  // namespace cellm::jinja
