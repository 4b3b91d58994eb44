// Expressions: one small function a kind, so that the stack pays only for what an expression uses.

#include "jinja/interpreter.h"

namespace cellm::jinja {

Result<Value> Interpreter::Eval(const Expr& expr) {
  if (expr.kind == ExprKind::kConstant) return expr.value;
  CELLM_RETURN_IF_ERROR(Charge(1));
  line_ = expr.line;
  if (expr.kind == ExprKind::kName) return EvalName(expr);
  if (eval_depth_ >= limits().max_eval_depth) {
    return Raise(ErrorKind::kRecursionError, "maximum recursion depth exceeded (max_eval_depth %d)",
                 limits().max_eval_depth);
  }
  ++eval_depth_;
  Result<Value> result = EvalKind(expr);
  --eval_depth_;
  return result;
}

Result<Value> Interpreter::EvalKind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
      return EvalName(expr);
    case ExprKind::kTuple:
    case ExprKind::kList:
      return EvalItems(expr);
    case ExprKind::kDict:
      return EvalDict(expr);
    case ExprKind::kAttribute:
      return EvalAttribute(expr);
    case ExprKind::kItem:
      return EvalItem(expr);
    case ExprKind::kSlice:
      return EvalSlice(expr);
    case ExprKind::kCall:
      return EvalCall(expr);
    case ExprKind::kFilter:
      return EvalFilter(expr, nullptr);
    case ExprKind::kTest:
      return EvalTest(expr);
    case ExprKind::kUnary:
      return EvalUnary(expr);
    case ExprKind::kBinary:
      return EvalBinary(expr);
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot:
      return EvalLogic(expr);
    case ExprKind::kConditional:
      return EvalConditional(expr);
  }
  return Internal("an expression of unknown kind");
}

Result<Value> Interpreter::EvalName(const Expr& expr) {
  const Value* scope = &scope_;
  while (scope->Is(Kind::kScope)) {
    const ScopeObject& object = AsScope(*scope);
    for (const ScopeObject::Slot& slot : object.slots) {
      if (slot.symbol == expr.symbol && !slot.value.missing()) return slot.value;
    }
    scope = &object.parent;
  }
  const Value& root = root_values_[expr.symbol];
  if (!root.missing()) return root;
  return Undefined("'" + parsed_.symbols[expr.symbol] + "' is undefined");
}

Result<Value> Interpreter::EvalItems(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    CELLM_ASSIGN_OR_RETURN(Value value, Eval(*item));
    items.push_back(std::move(value));
  }
  return expr.kind == ExprKind::kTuple ? NewTuple(std::move(items)) : NewList(std::move(items));
}

Result<Value> Interpreter::EvalDict(const Expr& expr) {
  DictTable table;
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    CELLM_ASSIGN_OR_RETURN(Value key, Eval(*expr.items[i]));
    CELLM_ASSIGN_OR_RETURN(Value value, Eval(*expr.items[i + 1]));
    if (!IsHashable(key)) {
      return Raise(ErrorKind::kTypeError, "unhashable type: '%s'", TypeName(key));
    }
    table.Set(std::move(key), std::move(value));
  }
  return MakeDict(std::move(table), &budget_);
}

Result<Value> Interpreter::EvalAttribute(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value object, Eval(*expr.a));
  line_ = expr.line;
  return GetAttribute(object, expr.value);
}

Result<Value> Interpreter::EvalItem(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value object, Eval(*expr.a));
  CELLM_ASSIGN_OR_RETURN(const Value key, Eval(*expr.b));
  line_ = expr.line;
  return GetItem(object, key);
}

Result<Value> Interpreter::EvalSlice(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value object, Eval(*expr.a));
  Value parts[3] = {Value::None(), Value::None(), Value::None()};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.items[i] == nullptr) continue;
    CELLM_ASSIGN_OR_RETURN(parts[i], Eval(*expr.items[i]));
  }
  line_ = expr.line;
  return Slice(object, parts[0], parts[1], parts[2]);
}

Status Interpreter::EvalArguments(const std::vector<Argument>& from, Arguments* to) {
  for (const Argument& arg : from) {
    CELLM_ASSIGN_OR_RETURN(Value value, Eval(*arg.value));
    switch (arg.kind) {
      case Argument::Kind::kPositional:
        to->positional.push_back(std::move(value));
        break;
      case Argument::Kind::kNamed:
        to->named.emplace_back(arg.name, std::move(value));
        break;
      case Argument::Kind::kStar: {
        CELLM_ASSIGN_OR_RETURN(const ItemList list, Iterate(value));
        CELLM_RETURN_IF_ERROR(CheckItemCount(list.items.size()));
        to->positional.insert(to->positional.end(), list.items.begin(), list.items.end());
        break;
      }
      case Argument::Kind::kStarStar:
        if (!value.Is(Kind::kDict)) {
          return Raise(ErrorKind::kTypeError, "argument after ** must be a mapping, not %s",
                       TypeName(value));
        }
        for (const DictTable::Entry& entry : AsDict(value).entries()) {
          if (!entry.key.Is(Kind::kString)) {
            return RaiseMessage(ErrorKind::kTypeError, "keywords must be strings");
          }
          to->named.emplace_back(BytesOf(entry.key), entry.value);
        }
        break;
    }
  }
  for (size_t i = 1; i < to->named.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (to->named[i].first == to->named[j].first) {
        return Raise(ErrorKind::kTypeError, "got multiple values for keyword argument '%s'",
                     to->named[i].first.c_str());
      }
    }
    CELLM_RETURN_IF_ERROR(Charge(static_cast<int64_t>(i / 8)));
  }
  return OkStatus();
}

Result<Value> Interpreter::EvalCall(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value callee, Eval(*expr.a));
  Arguments args;
  CELLM_RETURN_IF_ERROR(EvalArguments(expr.args, &args));
  line_ = expr.line;
  return Call(callee, std::move(args));
}

Result<Value> Interpreter::EvalFilter(const Expr& expr, const Value* block_input) {
  Value input;
  if (expr.a != nullptr && expr.a->kind == ExprKind::kFilter && block_input != nullptr) {
    CELLM_ASSIGN_OR_RETURN(input, EvalFilter(*expr.a, block_input));
  } else if (expr.a != nullptr) {
    CELLM_ASSIGN_OR_RETURN(input, Eval(*expr.a));
  } else if (block_input != nullptr) {
    input = *block_input;
  }
  if (expr.builtin < 0) {
    return RaiseMessage(ErrorKind::kTemplateRuntimeError, "No filter named '" + expr.text + "'.");
  }
  Arguments args;
  CELLM_RETURN_IF_ERROR(EvalArguments(expr.args, &args));
  line_ = expr.line;
  return ApplyFilter(expr.builtin, input, std::move(args));
}

Result<Value> Interpreter::EvalTest(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value input, Eval(*expr.a));
  if (expr.builtin < 0) {
    return RaiseMessage(ErrorKind::kTemplateRuntimeError, "No test named '" + expr.text + "'.");
  }
  Arguments args;
  CELLM_RETURN_IF_ERROR(EvalArguments(expr.args, &args));
  line_ = expr.line;
  CELLM_ASSIGN_OR_RETURN(const bool result, ApplyTest(expr.builtin, input, std::move(args)));
  return Value::Bool(result);
}

Result<Value> Interpreter::EvalUnary(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value value, Eval(*expr.a));
  line_ = expr.line;
  const bool negate = expr.op == Op::kNegate;
  if (value.Is(Kind::kUndefined)) return RaiseUndefined(value);
  if (value.Is(Kind::kFloat)) {
    return Value::Float(negate ? -value.real() : value.real()).WithTrust(value.trusted());
  }
  if (!IsInteger(value)) {
    return Raise(ErrorKind::kTypeError, "bad operand type for unary %s: '%s'", negate ? "-" : "+",
                 TypeName(value));
  }
  const BigInt integer = ToBigInt(value);
  return NewInteger(negate ? integer.Negated() : integer, value.trusted());
}

Result<Value> Interpreter::EvalBinary(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value a, Eval(*expr.a));
  CELLM_ASSIGN_OR_RETURN(const Value b, Eval(*expr.b));
  line_ = expr.line;
  return Binary(expr.op, a, b);
}

Result<Value> Interpreter::EvalConcat(const Expr& expr) {
  std::vector<Value> parts;
  bool markup = false;
  for (const ExprPtr& item : expr.items) {
    CELLM_ASSIGN_OR_RETURN(Value part, Eval(*item));
    markup = markup || IsMarkup(part);
    parts.push_back(std::move(part));
  }
  markup = markup && autoescape_;
  Text text;
  for (const Value& part : parts) {
    Text piece;
    CELLM_RETURN_IF_ERROR(AppendStr(part, &piece));
    CELLM_RETURN_IF_ERROR(CheckStringSize(text.size() + piece.size()));
    text.Append(markup && !IsMarkup(part) ? EscapeHtml(piece) : piece);
  }
  return NewString(std::move(text), markup);
}

Result<bool> Interpreter::CompareOp(Op op, const Value& a, const Value& b) {
  if (op == Op::kEqual) return IsEqual(a, b);
  if (op == Op::kNotEqual) {
    CELLM_ASSIGN_OR_RETURN(const bool equal, IsEqual(a, b));
    return !equal;
  }
  if (op == Op::kIn) return Contains(b, a);
  if (op == Op::kNotIn) {
    CELLM_ASSIGN_OR_RETURN(const bool inside, Contains(b, a));
    return !inside;
  }
  if (op == Op::kLess || op == Op::kLessEqual) {
    CELLM_ASSIGN_OR_RETURN(const int order, Compare(a, b, op == Op::kLess ? "<" : "<="));
    return order == -1 || (op == Op::kLessEqual && order == 0);
  }
  CELLM_ASSIGN_OR_RETURN(const int order, Compare(a, b, op == Op::kGreater ? ">" : ">="));
  return order == 1 || (op == Op::kGreaterEqual && order == 0);
}

Result<Value> Interpreter::EvalCompare(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(Value left, Eval(*expr.a));
  for (size_t i = 0; i < expr.items.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(Value right, Eval(*expr.items[i]));
    line_ = expr.line;
    CELLM_ASSIGN_OR_RETURN(const bool holds, CompareOp(expr.ops[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Interpreter::EvalLogic(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(Value left, Eval(*expr.a));
  if (expr.kind == ExprKind::kNot) return Value::Bool(!IsTrue(left));
  if (IsTrue(left) == (expr.kind == ExprKind::kOr)) return left;
  return Eval(*expr.b);
}

Result<Value> Interpreter::EvalConditional(const Expr& expr) {
  CELLM_ASSIGN_OR_RETURN(const Value condition, Eval(*expr.b));
  if (IsTrue(condition)) return Eval(*expr.a);
  if (expr.c != nullptr) return Eval(*expr.c);
  return Undefined(
      StrFormat("the inline if-expression on line %d evaluated to false and no else "
                "section was defined.",
                expr.line));
}

}  // namespace cellm::jinja
