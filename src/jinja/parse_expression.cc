// The expression half of the parser: one function a level of precedence, loosest first.
//
//   a if b else c  <  or  <  and  <  not  <  == != < in ...  <  + -  <  ~  <  * / // %  <  **
//   <  unary - +  <  .name [index] (call)  <  |filter  is test
//
// As in the reference, ~ binds tighter than + and looser than *, ** is left-associative and unary
// minus binds tighter than it. Chains of one level are loops, not recursion.

#include <algorithm>
#include <span>

#include "base/numbers.h"
#include "jinja/bigint.h"
#include "jinja/builtins.h"
#include "jinja/objects.h"
#include "jinja/parser_state.h"

namespace cellm::jinja {

namespace {

constexpr int kMaxNesting = 120;
constexpr std::string_view kTrueNames[] = {"true", "True"};
constexpr std::string_view kFalseNames[] = {"false", "False"};
constexpr std::string_view kNoneNames[] = {"none", "None"};

bool OneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::string ParserState::Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kString:
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
    case TokenKind::kOperator:
      break;
  }
  return token.text.size() > 60 ? token.text.substr(0, 60) + "..." : token.text;
}

bool ParserState::Fail(std::string message, int line, ErrorKind kind) {
  if (error_->kind == ErrorKind::kNone) {
    *error_ = {kind, std::move(message), line > 0 ? line : Current().line};
  }
  return false;
}

bool ParserState::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return true;
  return Fail("expected token '" + std::string(op) + "', got '" + Describe(Current()) + "'");
}

bool ParserState::Enter() {
  if (++nesting_ <= kMaxNesting) return true;
  return Fail(StrFormat("the template is nested deeper than %d levels", kMaxNesting));
}

uint32_t ParserState::Symbol(std::string_view name) {
  const auto [at, is_new] =
      symbol_numbers_.emplace(name, static_cast<uint32_t>(out_->symbols.size()));
  if (is_new) {
    out_->symbols.emplace_back(name);
    out_->globals.push_back(FindGlobal(name));
  }
  return at->second;
}

ExprPtr ParserState::NewExpr(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr ParserState::Finish(ExprPtr expr) {
  int depth = 0;
  const auto see = [&](const ExprPtr& child) {
    if (child != nullptr) depth = std::max<int>(depth, child->depth);
  };
  see(expr->a);
  see(expr->b);
  see(expr->c);
  for (const ExprPtr& item : expr->items) see(item);
  for (const Argument& arg : expr->args) see(arg.value);
  if (depth + 1 > kMaxTreeDepth) {
    Fail(StrFormat("an expression has more than %d levels", kMaxTreeDepth), expr->line);
    return nullptr;
  }
  expr->depth = static_cast<uint8_t>(depth + 1);
  return expr;
}

ExprPtr ParserState::Constant(Value value, int line) {
  MakeImmortal(value);
  if (value.IsObject()) out_->constants.push_back(value.object());
  ExprPtr expr = NewExpr(ExprKind::kConstant, line);
  expr->value = std::move(value).WithTrust(true);
  return expr;
}

ExprPtr ParserState::ParseExpression(bool with_conditional) {
  if (!Enter()) return nullptr;
  ExprPtr result = with_conditional ? ParseConditional() : ParseOr();
  Leave();
  return result;
}

ExprPtr ParserState::ParseConditional() {
  const int line = Current().line;
  ExprPtr value = ParseOr();
  while (value != nullptr && SkipName("if")) {
    ExprPtr expr = NewExpr(ExprKind::kConditional, line);
    expr->a = std::move(value);
    expr->b = ParseOr();
    if (expr->b == nullptr) return nullptr;
    if (SkipName("else")) {
      if (!Enter()) return nullptr;
      expr->c = ParseConditional();
      Leave();
      if (expr->c == nullptr) return nullptr;
    }
    value = Finish(std::move(expr));
  }
  return value;
}

ExprPtr ParserState::ParseOr() {
  const int line = Current().line;
  ExprPtr left = ParseAnd();
  while (left != nullptr && SkipName("or")) {
    ExprPtr expr = NewExpr(ExprKind::kOr, line);
    expr->a = std::move(left);
    expr->b = ParseAnd();
    left = expr->b == nullptr ? nullptr : Finish(std::move(expr));
  }
  return left;
}

ExprPtr ParserState::ParseAnd() {
  const int line = Current().line;
  ExprPtr left = ParseNot();
  while (left != nullptr && SkipName("and")) {
    ExprPtr expr = NewExpr(ExprKind::kAnd, line);
    expr->a = std::move(left);
    expr->b = ParseNot();
    left = expr->b == nullptr ? nullptr : Finish(std::move(expr));
  }
  return left;
}

ExprPtr ParserState::ParseNot() {
  const int line = Current().line;
  if (!SkipName("not")) return ParseCompare();
  if (!Enter()) return nullptr;
  ExprPtr expr = NewExpr(ExprKind::kNot, line);
  expr->a = ParseNot();
  Leave();
  return expr->a == nullptr ? nullptr : Finish(std::move(expr));
}

ExprPtr ParserState::ParseCompare() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {
      {"==", Op::kEqual},     {"!=", Op::kNotEqual}, {"<", Op::kLess},
      {"<=", Op::kLessEqual}, {">", Op::kGreater},   {">=", Op::kGreaterEqual}};
  const int line = Current().line;
  ExprPtr left = ParseSum();
  if (left == nullptr) return nullptr;
  ExprPtr compare;
  for (;;) {
    bool found = false;
    Op op = Op::kEqual;
    for (const auto& [text, candidate] : kOps) {
      if (!found && SkipOperator(text)) {
        op = candidate;
        found = true;
      }
    }
    if (!found && SkipName("in")) {
      op = Op::kIn;
      found = true;
    }
    if (!found && IsNameToken("not") && Ahead().kind == TokenKind::kName && Ahead().text == "in") {
      Next();
      Next();
      op = Op::kNotIn;
      found = true;
    }
    if (!found) break;
    if (compare == nullptr) {
      compare = NewExpr(ExprKind::kCompare, line);
      compare->a = std::move(left);
    }
    compare->ops.push_back(op);
    compare->items.push_back(ParseSum());
    if (compare->items.back() == nullptr) return nullptr;
  }
  return compare == nullptr ? std::move(left) : Finish(std::move(compare));
}

ExprPtr ParserState::BinaryChain(ExprPtr (ParserState::*operand)(),
                                 std::initializer_list<std::pair<std::string_view, Op>> ops) {
  const int line = Current().line;
  ExprPtr left = (this->*operand)();
  while (left != nullptr) {
    bool found = false;
    Op op = Op::kAdd;
    for (const auto& [text, candidate] : ops) {
      if (!found && SkipOperator(text)) {
        op = candidate;
        found = true;
      }
    }
    if (!found) break;
    ExprPtr expr = NewExpr(ExprKind::kBinary, line);
    expr->op = op;
    expr->a = std::move(left);
    expr->b = (this->*operand)();
    left = expr->b == nullptr ? nullptr : Finish(std::move(expr));
  }
  return left;
}

ExprPtr ParserState::ParseSum() {
  return BinaryChain(&ParserState::ParseConcat, {{"+", Op::kAdd}, {"-", Op::kSubtract}});
}

ExprPtr ParserState::ParseConcat() {
  const int line = Current().line;
  ExprPtr first = ParseProduct();
  if (first == nullptr || !IsOperator("~")) return first;
  ExprPtr expr = NewExpr(ExprKind::kConcat, line);
  expr->items.push_back(std::move(first));
  while (SkipOperator("~")) {
    expr->items.push_back(ParseProduct());
    if (expr->items.back() == nullptr) return nullptr;
  }
  return Finish(std::move(expr));
}

ExprPtr ParserState::ParseProduct() {
  return BinaryChain(
      &ParserState::ParsePower,
      {{"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}});
}

ExprPtr ParserState::ParsePower() {
  const int line = Current().line;
  ExprPtr left = ParseUnary(true);
  while (left != nullptr && SkipOperator("**")) {
    ExprPtr expr = NewExpr(ExprKind::kBinary, line);
    expr->op = Op::kPower;
    expr->a = std::move(left);
    expr->b = ParseUnary(true);
    left = expr->b == nullptr ? nullptr : Finish(std::move(expr));
  }
  return left;
}

ExprPtr ParserState::ParseUnary(bool with_filters) {
  const int line = Current().line;
  ExprPtr value;
  if (IsOperator("-") || IsOperator("+")) {
    ExprPtr expr = NewExpr(ExprKind::kUnary, line);
    expr->op = IsOperator("-") ? Op::kNegate : Op::kPlus;
    Next();
    if (!Enter()) return nullptr;
    expr->a = ParseUnary(false);
    Leave();
    if (expr->a == nullptr) return nullptr;
    value = Finish(std::move(expr));
  } else {
    value = ParsePrimary();
  }
  if (value == nullptr) return nullptr;
  value = ParsePostfix(std::move(value));
  if (value == nullptr || !with_filters) return value;
  return ParseFilterTail(std::move(value));
}

ExprPtr ParserState::ParsePrimary() {
  const Token& token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString:
      return ParseStrings();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (SkipOperator("(")) {
    ExprPtr tuple = ParseTuple(true, true);
    if (tuple == nullptr || !ExpectOperator(")")) return nullptr;
    return tuple;
  }
  if (IsOperator("[")) return ParseListLiteral();
  if (IsOperator("{")) return ParseDictLiteral();
  FailUnexpected();
  return nullptr;
}

ExprPtr ParserState::ParseName() {
  const std::string name = Current().text;
  const int line = Current().line;
  Next();
  if (OneOf(name, kTrueNames)) return Constant(Value::Bool(true), line);
  if (OneOf(name, kFalseNames)) return Constant(Value::Bool(false), line);
  if (OneOf(name, kNoneNames)) return Constant(Value::None(), line);
  if (name == "varargs") ++varargs_mentions_;
  if (name == "kwargs") ++kwargs_mentions_;
  if (name == "caller") ++caller_mentions_;
  ExprPtr expr = NewExpr(ExprKind::kName, line);
  expr->symbol = Symbol(name);
  if (IsOperator("(")) {
    calls_.push_back({expr->symbol, line});
  } else {
    mentioned_.insert(expr->symbol);
  }
  return expr;
}

ExprPtr ParserState::ParseStrings() {
  const int line = Current().line;
  std::string text;
  while (Current().kind == TokenKind::kString) {
    text += Current().text;
    Next();
  }
  return Constant(MakeString(Text(std::move(text), true), nullptr), line);
}

ExprPtr ParserState::ParseNumber() {
  const Token token = Current();
  Next();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    if (!ParseDouble(token.text, &value)) {
      Fail("not a number: " + token.text, token.line);
      return nullptr;
    }
    return Constant(Value::Float(value), token.line);
  }
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : (letter == 'o' ? 8 : (letter == 'b' ? 2 : 10));
    if (base != 10) digits.remove_prefix(2);
  }
  BigInt value;
  if (digits.size() > kMaxIntegerDigits || !BigInt::Parse(digits, base, &value)) {
    Fail("an integer has too many digits", token.line);
    return nullptr;
  }
  return Constant(MakeBigInt(std::move(value), nullptr), token.line);
}

ExprPtr ParserState::ParseListLiteral() {
  ExprPtr expr = NewExpr(ExprKind::kList, Current().line);
  Next();
  while (!IsOperator("]")) {
    if (!expr->items.empty() && !ExpectOperator(",")) return nullptr;
    if (IsOperator("]")) break;
    expr->items.push_back(ParseExpression());
    if (expr->items.back() == nullptr) return nullptr;
  }
  Next();
  return Finish(std::move(expr));
}

ExprPtr ParserState::ParseDictLiteral() {
  ExprPtr expr = NewExpr(ExprKind::kDict, Current().line);
  Next();
  while (!IsOperator("}")) {
    if (!expr->items.empty() && !ExpectOperator(",")) return nullptr;
    if (IsOperator("}")) break;
    expr->items.push_back(ParseExpression());
    if (expr->items.back() == nullptr || !ExpectOperator(":")) return nullptr;
    expr->items.push_back(ParseExpression());
    if (expr->items.back() == nullptr) return nullptr;
  }
  Next();
  return Finish(std::move(expr));
}

bool ParserState::AtTupleEnd() const {
  return Current().kind == TokenKind::kVariableEnd || Current().kind == TokenKind::kBlockEnd ||
         IsOperator(")");
}

ExprPtr ParserState::ParseTuple(bool with_conditional, bool explicit_parentheses) {
  const int line = Current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty() && !ExpectOperator(",")) return nullptr;
    if (AtTupleEnd()) break;
    items.push_back(ParseExpression(with_conditional));
    if (items.back() == nullptr) return nullptr;
    if (!IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!explicit_parentheses) {
      Fail("Expected an expression, got '" + Describe(Current()) + "'");
      return nullptr;
    }
  }
  ExprPtr expr = NewExpr(ExprKind::kTuple, line);
  expr->items = std::move(items);
  return Finish(std::move(expr));
}

ExprPtr ParserState::ParsePostfix(ExprPtr input) {
  while (input != nullptr) {
    if (IsOperator(".")) {
      input = ParseAttribute(std::move(input));
    } else if (IsOperator("[")) {
      input = ParseSubscript(std::move(input));
    } else if (IsOperator("(")) {
      input = ParseCall(std::move(input));
    } else {
      break;
    }
  }
  return input;
}

ExprPtr ParserState::ParseAttribute(ExprPtr input) {
  Next();
  const Token token = Current();
  Next();
  if (token.kind == TokenKind::kName) {
    ExprPtr expr = NewExpr(ExprKind::kAttribute, token.line);
    expr->text = token.text;
    expr->value = MakeString(Text(token.text, true), nullptr);
    MakeImmortal(expr->value);
    out_->constants.push_back(expr->value.object());
    expr->a = std::move(input);
    return Finish(std::move(expr));
  }
  int64_t index = 0;
  BigInt digits;
  if (token.kind == TokenKind::kInteger && BigInt::Parse(token.text, 10, &digits) &&
      digits.FitsInt64(&index)) {
    ExprPtr expr = NewExpr(ExprKind::kItem, token.line);
    expr->a = std::move(input);
    expr->b = Constant(Value::Int(index), token.line);
    return Finish(std::move(expr));
  }
  Fail("expected name or number", token.line);
  return nullptr;
}

ExprPtr ParserState::ParseSubscript(ExprPtr input) {
  const int line = Current().line;
  Next();
  bool is_slice = false;
  ExprPtr first = ParseSubscriptPart(nullptr, &is_slice);
  if (first == nullptr) return nullptr;
  if (is_slice) {
    if (!ExpectOperator("]")) return nullptr;
    first->a = std::move(input);
    return Finish(std::move(first));
  }
  if (IsOperator(",")) {  // x[1, 2] is x[(1, 2)]
    ExprPtr tuple = NewExpr(ExprKind::kTuple, line);
    tuple->items.push_back(std::move(first));
    while (SkipOperator(",")) {
      tuple->items.push_back(ParseExpression());
      if (tuple->items.back() == nullptr) return nullptr;
    }
    first = Finish(std::move(tuple));
    if (first == nullptr) return nullptr;
  }
  if (!ExpectOperator("]")) return nullptr;
  ExprPtr expr = NewExpr(ExprKind::kItem, line);
  expr->a = std::move(input);
  expr->b = std::move(first);
  return Finish(std::move(expr));
}

// An index, or a slice "from : to : step" with every part optional.
ExprPtr ParserState::ParseSubscriptPart(ExprPtr input, bool* is_slice) {
  ExprPtr slice = NewExpr(ExprKind::kSlice, Current().line);
  slice->a = std::move(input);
  slice->items.resize(3);
  if (!IsOperator(":")) {
    ExprPtr index = ParseExpression();
    if (index == nullptr || !IsOperator(":")) return index;
    slice->items[0] = std::move(index);
  }
  *is_slice = true;
  for (size_t part = 1; part <= 2 && SkipOperator(":"); ++part) {
    if (IsOperator(":") || IsOperator("]")) continue;
    slice->items[part] = ParseExpression();
    if (slice->items[part] == nullptr) return nullptr;
  }
  return slice;
}

bool ParserState::ParseArguments(std::vector<Argument>* args) {
  Next();  // the parenthesis
  bool named = false;
  bool star = false;
  while (!IsOperator(")")) {
    if (!args->empty()) {
      if (!ExpectOperator(",")) return false;
      if (IsOperator(")")) break;
    }
    Argument arg;
    if (SkipOperator("*")) {
      arg.kind = Argument::Kind::kStar;
      star = true;
    } else if (SkipOperator("**")) {
      arg.kind = Argument::Kind::kStarStar;
      named = true;
    } else if (Current().kind == TokenKind::kName && Ahead().kind == TokenKind::kOperator &&
               Ahead().text == "=") {
      arg.kind = Argument::Kind::kNamed;
      arg.name = Current().text;
      Next();
      Next();
      named = true;
    } else if (named || star) {
      return Fail("invalid syntax for function call expression");
    }
    arg.value = ParseExpression();
    if (arg.value == nullptr) return false;
    args->push_back(std::move(arg));
  }
  Next();
  return true;
}

ExprPtr ParserState::ParseCall(ExprPtr callee) {
  ExprPtr expr = NewExpr(ExprKind::kCall, Current().line);
  expr->a = std::move(callee);
  if (!ParseArguments(&expr->args)) return nullptr;
  return Finish(std::move(expr));
}

ExprPtr ParserState::ParseFilterTail(ExprPtr input) {
  while (input != nullptr) {
    if (SkipOperator("|")) {
      input = ParseFilterChain(std::move(input), true);
    } else if (IsNameToken("is")) {
      input = ParseTest(std::move(input));
    } else if (IsOperator("(")) {
      input = ParseCall(std::move(input));
    } else {
      break;
    }
  }
  return input;
}

bool ParserState::ParseDottedName(std::string* name) {
  if (Current().kind != TokenKind::kName) {
    return Fail("expected token 'name', got '" + Describe(Current()) + "'");
  }
  *name = Current().text;
  Next();
  while (IsOperator(".") && Ahead().kind == TokenKind::kName) {
    Next();
    *name += "." + Current().text;
    Next();
  }
  return true;
}

ExprPtr ParserState::ParseFilterChain(ExprPtr input, bool start_inline) {
  while (start_inline || SkipOperator("|")) {
    start_inline = false;
    ExprPtr expr = NewExpr(ExprKind::kFilter, Current().line);
    if (!ParseDottedName(&expr->text)) return nullptr;
    expr->builtin = FindFilter(expr->text);
    if (IsRefusedFilter(expr->text)) {
      Fail("the filter '" + expr->text + "' is not supported", expr->line,
           ErrorKind::kTemplateAssertionError);
      return nullptr;
    }
    if (expr->builtin < 0) {
      unknown_.push_back({"No filter named '" + expr->text + "'.", expr->line});
    }
    if (IsOperator("(") && !ParseArguments(&expr->args)) return nullptr;
    expr->a = std::move(input);
    input = Finish(std::move(expr));
    if (input == nullptr) return nullptr;
  }
  return input;
}

ExprPtr ParserState::ParseTest(ExprPtr input) {
  const int line = Current().line;
  Next();
  const bool negated = SkipName("not");
  ExprPtr expr = NewExpr(ExprKind::kTest, line);
  if (!ParseDottedName(&expr->text)) return nullptr;
  expr->builtin = FindTest(expr->text);
  if (expr->builtin < 0) unknown_.push_back({"No test named '" + expr->text + "'.", line});
  if (expr->text == "filter" || expr->text == "test") asks_for_names_ = true;
  const bool is_word = Current().kind == TokenKind::kName;
  const bool starts_value =
      is_word || Current().kind == TokenKind::kString || Current().kind == TokenKind::kInteger ||
      Current().kind == TokenKind::kFloat || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    if (!ParseArguments(&expr->args)) return nullptr;
  } else if (starts_value && !IsNameToken("else") && !IsNameToken("or") && !IsNameToken("and")) {
    if (IsNameToken("is")) {
      Fail("You cannot chain multiple tests with is");
      return nullptr;
    }
    Argument arg;
    if (!Enter()) return nullptr;
    arg.value = ParsePrimary();
    if (arg.value != nullptr) arg.value = ParsePostfix(std::move(arg.value));
    Leave();
    if (arg.value == nullptr) return nullptr;
    expr->args.push_back(std::move(arg));
  }
  expr->a = std::move(input);
  expr = Finish(std::move(expr));
  if (expr == nullptr || !negated) return expr;
  ExprPtr inverse = NewExpr(ExprKind::kNot, line);
  inverse->a = std::move(expr);
  return Finish(std::move(inverse));
}

// Names that nobody defines are refused now, with their line, unless the template asks first
// whether they exist ("x is filter", "f is defined"); then using them is an error at run time.
bool ParserState::CheckNames() {
  if (!asks_for_names_ && !unknown_.empty()) {
    return Fail(unknown_[0].message, unknown_[0].line, ErrorKind::kTemplateAssertionError);
  }
  for (const Mention& call : calls_) {
    if (out_->globals[call.symbol] < 0 && bound_.count(call.symbol) == 0 &&
        mentioned_.count(call.symbol) == 0) {
      return Fail("'" + out_->symbols[call.symbol] + "' is undefined: no function of that name",
                  call.line, ErrorKind::kUndefinedError);
    }
  }
  return true;
}

}  // namespace cellm::jinja
