// Statements: the walk over a template's body, scopes, loops and macros.
//
// Scopes are linked blocks of variables. A loop round, a macro call, "with", "call", "filter" and
// "set ... endset" open one; "if" does not. Names are looked up from the inside out, which gives
// the reference's rules: an assignment inside a loop is not seen outside it, a macro sees the
// variables around its definition as they are when it runs.

#include "jinja/interpreter.h"

#include <cstdio>

#include "jinja/builtins.h"
#include "jinja/strings.h"

namespace cellm::jinja {

Interpreter::Interpreter(const ParsedTemplate& parsed, const Value& variables,
                         const RenderOptions& options)
    : parsed_(parsed), options_(options), rng_(options.random_seed) {
  root_values_.resize(parsed.symbols.size());
  for (size_t i = 0; i < parsed.symbols.size(); ++i) {
    const Value* found =
        variables.Is(Kind::kDict) ? AsDict(variables).Find(parsed.symbols[i]) : nullptr;
    if (found != nullptr) {
      root_values_[i] = *found;
    } else if (parsed.globals[i] >= 0) {
      root_values_[i] = Value::Function(parsed.globals[i]);
    }
  }
  scope_ = NewScope(Value());
  root_scope_ = scope_;
}

Interpreter::~Interpreter() {
  cleanup_.push_back(root_scope_);
  for (const Value& value : cleanup_) {
    if (value.Is(Kind::kScope)) {
      std::vector<ScopeObject::Slot> slots;
      slots.swap(AsScope(value).slots);
      AsScope(value).parent = Value();
    } else if (value.Is(Kind::kNamespace)) {
      DictTable table;
      std::swap(table, AsNamespace(value));
    }
  }
}

Status Interpreter::Run() {
  CELLM_ASSIGN_OR_RETURN(Flow flow, RunBody(parsed_.body));
  static_cast<void>(flow);
  return OkStatus();
}

// ---- Errors and bounds ----

Status Interpreter::RaiseMessage(ErrorKind kind, std::string message) {
  if (error_.kind == ErrorKind::kNone) error_ = {kind, message, line_};
  const bool bound = kind == ErrorKind::kLimit || kind == ErrorKind::kRecursionError;
  return Status(bound ? StatusCode::kOutOfRange : StatusCode::kInvalidArgument, std::move(message));
}

Status Interpreter::Raise(ErrorKind kind, const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list copy;
  va_copy(copy, args);
  const int length = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  std::string message(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  std::vsnprintf(message.data(), message.size() + 1, format, args);
  va_end(args);
  return RaiseMessage(kind, std::move(message));
}

Status Interpreter::RaiseUndefined(const Value& undefined) {
  if (!undefined.IsObject()) return RaiseMessage(ErrorKind::kUndefinedError, "undefined");
  const auto& object = *static_cast<const UndefinedObject*>(undefined.object());
  return RaiseMessage(object.security ? ErrorKind::kSecurityError : ErrorKind::kUndefinedError,
                      object.message);
}

Status Interpreter::Charge(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits().max_steps) {
    return Raise(ErrorKind::kLimit, "max_steps: the template ran more than %lld steps",
                 static_cast<long long>(limits().max_steps));
  }
  if (budget_.live_bytes > limits().max_memory_bytes) {
    return Raise(ErrorKind::kLimit, "max_memory_bytes: the template's values passed %zu bytes",
                 limits().max_memory_bytes);
  }
  return OkStatus();
}

Status Interpreter::CheckStringSize(size_t bytes) {
  if (bytes <= limits().max_string_bytes) return ChargeBytes(bytes);
  return Raise(ErrorKind::kLimit, "max_string_bytes: a string would have more than %zu bytes",
               limits().max_string_bytes);
}

Status Interpreter::CheckItemCount(size_t items) {
  if (items <= limits().max_memory_bytes / sizeof(Value)) return ChargeItems(items);
  return Raise(ErrorKind::kLimit, "max_memory_bytes: a list of %zu items would pass %zu bytes",
               items, limits().max_memory_bytes);
}

Result<Value> Interpreter::NewString(Text text, bool markup) {
  CELLM_RETURN_IF_ERROR(CheckStringSize(text.size()));
  return MakeString(std::move(text), &budget_, markup);
}

Result<Value> Interpreter::NewInteger(BigInt value, bool trusted) {
  if (value.BitCount() > limits().max_integer_bits) {
    return Raise(ErrorKind::kLimit, "max_integer_bits: an integer would have more than %zu bits",
                 limits().max_integer_bits);
  }
  return MakeBigInt(std::move(value), &budget_).WithTrust(trusted);
}

// ---- Scopes ----

Value Interpreter::NewScope(const Value& parent) {
  auto* scope = new ScopeObject;
  scope->Charge(&budget_, sizeof(ScopeObject) + 4 * sizeof(ScopeObject::Slot));
  scope->parent = parent;
  return Value::Adopt(Kind::kScope, scope);
}

void Interpreter::Set(uint32_t symbol, Value value) {
  std::vector<ScopeObject::Slot>& slots = AsScope(scope_).slots;
  for (ScopeObject::Slot& slot : slots) {
    if (slot.symbol == symbol) {
      slot.value = std::move(value);
      return;
    }
  }
  slots.push_back({symbol, std::move(value)});
}

Status Interpreter::Assign(const Target& target, Value value) {
  switch (target.kind) {
    case Target::Kind::kName:
      Set(target.symbol, std::move(value));
      return OkStatus();
    case Target::Kind::kNamespace: {
      Expr name{};
      name.kind = ExprKind::kName;
      name.symbol = target.symbol;
      CELLM_ASSIGN_OR_RETURN(const Value space, EvalName(name));
      if (!space.Is(Kind::kNamespace)) {
        return RaiseMessage(ErrorKind::kTemplateRuntimeError,
                            "cannot assign attribute on non-namespace object");
      }
      CELLM_ASSIGN_OR_RETURN(Value key, NewString(Text(target.attribute, true)));
      AsNamespace(space).Set(std::move(key), std::move(value));
      return OkStatus();
    }
    case Target::Kind::kTuple:
      break;
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, Iterate(value));
  if (list.items.size() < target.items.size()) {
    return Raise(ErrorKind::kValueError, "not enough values to unpack (expected %zu, got %zu)",
                 target.items.size(), list.items.size());
  }
  if (list.items.size() > target.items.size()) {
    return Raise(ErrorKind::kValueError, "too many values to unpack (expected %zu)",
                 target.items.size());
  }
  for (size_t i = 0; i < target.items.size(); ++i) {
    CELLM_RETURN_IF_ERROR(Assign(target.items[i], list.items[i]));
  }
  return OkStatus();
}

// ---- Output ----

Status Interpreter::Emit(const Text& text) {
  CELLM_RETURN_IF_ERROR(ChargeBytes(text.size()));
  const size_t limit =
      output_ == &root_output_ ? limits().max_output_bytes : limits().max_string_bytes;
  if (text.size() > limit || output_->size() > limit - text.size()) {
    return Raise(ErrorKind::kLimit, "max_output_bytes: the output passed %zu bytes", limit);
  }
  output_->Append(text);
  return OkStatus();
}

Status Interpreter::Print(const Value& value) {
  if (value.Is(Kind::kString)) {
    if (autoescape_ && !IsMarkup(value)) return Emit(EscapeHtml(TextOf(value)));
    return Emit(TextOf(value));
  }
  Text text;
  CELLM_RETURN_IF_ERROR(AppendStr(value, &text));
  return Emit(autoescape_ ? EscapeHtml(text) : text);
}

Result<Interpreter::Flow> Interpreter::Capture(const Body& body, Text* text) {
  Text* outer_output = output_;
  const Value outer_scope = scope_;
  scope_ = NewScope(outer_scope);
  output_ = text;
  Result<Flow> flow = RunBody(body);
  output_ = outer_output;
  scope_ = outer_scope;
  return flow;
}

// ---- Statements ----

Result<Interpreter::Flow> Interpreter::RunBody(const Body& body) {
  if (eval_depth_ >= limits().max_eval_depth) {
    return Raise(ErrorKind::kRecursionError, "maximum recursion depth exceeded (max_eval_depth %d)",
                 limits().max_eval_depth);
  }
  ++eval_depth_;
  Flow flow = Flow::kNormal;
  for (const StmtPtr& stmt : body) {
    CELLM_ASSIGN_OR_RETURN(flow, RunStatement(*stmt));
    if (flow != Flow::kNormal) break;
  }
  --eval_depth_;
  return flow;
}

Result<Interpreter::Flow> Interpreter::RunStatement(const Stmt& stmt) {
  CELLM_RETURN_IF_ERROR(Charge(1));
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText:
      CELLM_RETURN_IF_ERROR(Emit(TextOf(stmt.value)));
      return Flow::kNormal;
    case StmtKind::kPrint: {
      CELLM_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
      CELLM_RETURN_IF_ERROR(Print(value));
      return Flow::kNormal;
    }
    case StmtKind::kIf:
      return RunIf(stmt);
    case StmtKind::kFor:
      return RunFor(stmt);
    case StmtKind::kSet:
      CELLM_RETURN_IF_ERROR(RunSet(stmt));
      return Flow::kNormal;
    case StmtKind::kSetBlock:
      return RunSetBlock(stmt);
    case StmtKind::kWith:
      return RunWith(stmt);
    case StmtKind::kMacro:
      CELLM_RETURN_IF_ERROR(RunMacroDefinition(stmt));
      return Flow::kNormal;
    case StmtKind::kCallBlock:
      CELLM_RETURN_IF_ERROR(RunCallBlock(stmt));
      return Flow::kNormal;
    case StmtKind::kFilterBlock:
      return RunFilterBlock(stmt);
    case StmtKind::kScopeBlock:
      return RunScoped(stmt, scope_);
    case StmtKind::kRootBlock:
      return RunScoped(stmt, root_scope_);
    case StmtKind::kAutoescape:
      return RunAutoescape(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Internal("a statement of unknown kind");
}

Result<Interpreter::Flow> Interpreter::RunIf(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches) {
    if (branch.condition == nullptr) return RunBody(branch.body);
    CELLM_ASSIGN_OR_RETURN(const Value condition, Eval(*branch.condition));
    if (IsTrue(condition)) return RunBody(branch.body);
  }
  return Flow::kNormal;
}

Result<std::vector<Value>> Interpreter::FilterLoopItems(const Stmt& stmt,
                                                        std::span<const Value> items) {
  std::vector<Value> kept;
  const Value outer = scope_;
  for (const Value& item : items) {
    scope_ = NewScope(outer);
    Status status = Assign(stmt.target, item);
    bool keep = false;
    if (status.ok()) {
      Result<Value> condition = Eval(*stmt.condition);
      if (condition.ok()) keep = IsTrue(condition.value());
      status = condition.status();
    }
    scope_ = outer;
    CELLM_RETURN_IF_ERROR(std::move(status));
    if (keep) kept.push_back(item);
  }
  return kept;
}

Result<Interpreter::Flow> Interpreter::RunFor(const Stmt& stmt) {
  CELLM_ASSIGN_OR_RETURN(const Value iterable, Eval(*stmt.expr));
  CELLM_ASSIGN_OR_RETURN(const ItemList list, Iterate(iterable));
  std::vector<Value> items;
  if (stmt.condition != nullptr) {
    CELLM_ASSIGN_OR_RETURN(items, FilterLoopItems(stmt, list.items));
  } else {
    items.assign(list.items.begin(), list.items.end());
  }
  CELLM_RETURN_IF_ERROR(ChargeItems(items.size()));
  if (items.empty()) {
    if (stmt.otherwise.empty()) return Flow::kNormal;
    const Value outer = scope_;
    scope_ = NewScope(outer);
    Result<Flow> flow = RunBody(stmt.otherwise);
    scope_ = outer;
    return flow;
  }
  CELLM_RETURN_IF_ERROR(RunLoop(stmt, std::move(items), 0));
  return Flow::kNormal;
}

// The rounds of a loop over `items`, in scopes whose parent is the current one.
Status Interpreter::RunLoop(const Stmt& stmt, std::vector<Value> items, int64_t depth0) {
  auto* loop = new LoopObject;
  loop->Charge(&budget_, sizeof(LoopObject) + items.capacity() * sizeof(Value));
  const Value loop_value = Value::Adopt(Kind::kLoop, loop);
  loop->items = std::move(items);
  loop->depth0 = depth0;
  const Value outer = scope_;
  if (stmt.recursive) {
    loop->recursive = &stmt;
    loop->scope = outer;
    RegisterForCleanup(outer);
  }
  Status status;
  for (size_t i = 0; i < loop->items.size() && status.ok(); ++i) {
    loop->index0 = i;
    scope_ = NewScope(outer);
    status = Charge(1);
    if (status.ok()) status = Assign(stmt.target, loop->items[i]);
    if (!status.ok()) break;
    Set(kSymbolLoop, loop_value);
    const Result<Flow> flow = RunBody(stmt.body);
    if (!flow.ok()) {
      status = flow.status();
    } else if (flow.value() == Flow::kBreak) {
      break;
    }
  }
  scope_ = outer;
  return status;
}

Result<Value> Interpreter::CallLoop(const LoopObject& loop, const Arguments& args) {
  if (loop.recursive == nullptr) {
    return RaiseMessage(ErrorKind::kTypeError,
                        "The loop must have the 'recursive' marker to be called recursively.");
  }
  Value iterable;
  CELLM_RETURN_IF_ERROR(
      BindArguments(*this, "loop", args, {"iterable"}, 1, std::span<Value>(&iterable, 1)));
  if (++call_depth_ > limits().max_call_depth) {
    return Raise(ErrorKind::kRecursionError, "maximum recursion depth exceeded (max_call_depth %d)",
                 limits().max_call_depth);
  }
  CELLM_ASSIGN_OR_RETURN(const ItemList list, Iterate(iterable));
  const Stmt& stmt = *loop.recursive;
  Text text;
  Text* outer_output = output_;
  const Value outer_scope = scope_;
  const int64_t depth0 = loop.depth0 + 1;
  scope_ = loop.scope;
  output_ = &text;
  std::vector<Value> items(list.items.begin(), list.items.end());
  Status status;
  if (stmt.condition != nullptr) {
    Result<std::vector<Value>> kept = FilterLoopItems(stmt, list.items);
    status = kept.status();
    if (kept.ok()) items = std::move(kept).value();
  }
  if (status.ok() && items.empty()) {
    status = RunBody(stmt.otherwise).status();
  } else if (status.ok()) {
    status = RunLoop(stmt, std::move(items), depth0);
  }
  scope_ = outer_scope;
  output_ = outer_output;
  --call_depth_;
  CELLM_RETURN_IF_ERROR(std::move(status));
  return NewString(std::move(text), autoescape_);
}

Status Interpreter::RunSet(const Stmt& stmt) {
  CELLM_ASSIGN_OR_RETURN(Value value, Eval(*stmt.expr));
  return Assign(stmt.target, std::move(value));
}

Result<Interpreter::Flow> Interpreter::RunSetBlock(const Stmt& stmt) {
  Text text;
  CELLM_ASSIGN_OR_RETURN(const Flow flow, Capture(stmt.body, &text));
  if (flow != Flow::kNormal) return flow;
  CELLM_ASSIGN_OR_RETURN(Value value, NewString(std::move(text), autoescape_));
  if (stmt.filter != nullptr) {
    CELLM_ASSIGN_OR_RETURN(value, EvalFilter(*stmt.filter, &value));
  }
  CELLM_RETURN_IF_ERROR(Assign(stmt.target, std::move(value)));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::RunWith(const Stmt& stmt) {
  std::vector<Value> values;
  for (const ExprPtr& expr : stmt.values) {
    CELLM_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.push_back(std::move(value));
  }
  const Value outer = scope_;
  scope_ = NewScope(outer);
  Status status;
  for (size_t i = 0; i < values.size() && status.ok(); ++i) {
    status = Assign(stmt.targets[i], values[i]);
  }
  Result<Flow> flow = status.ok() ? RunBody(stmt.body) : Result<Flow>(std::move(status));
  scope_ = outer;
  return flow;
}

Result<Interpreter::Flow> Interpreter::RunScoped(const Stmt& stmt, const Value& parent) {
  const Value outer = scope_;
  scope_ = NewScope(parent);
  Result<Flow> flow = RunBody(stmt.body);
  scope_ = outer;
  return flow;
}

Result<Interpreter::Flow> Interpreter::RunFilterBlock(const Stmt& stmt) {
  Text text;
  CELLM_ASSIGN_OR_RETURN(const Flow flow, Capture(stmt.body, &text));
  CELLM_ASSIGN_OR_RETURN(const Value caught, NewString(std::move(text), autoescape_));
  CELLM_ASSIGN_OR_RETURN(const Value result, EvalFilter(*stmt.filter, &caught));
  CELLM_RETURN_IF_ERROR(Print(result));
  return flow;
}

Result<Interpreter::Flow> Interpreter::RunAutoescape(const Stmt& stmt) {
  CELLM_ASSIGN_OR_RETURN(const Value on, Eval(*stmt.expr));
  const bool outer = autoescape_;
  autoescape_ = IsTrue(on);
  Result<Flow> flow = RunScoped(stmt, scope_);
  autoescape_ = outer;
  return flow;
}

// ---- Macros ----

Value Interpreter::NewMacro(const Stmt& stmt) {
  auto* macro = new MacroObject;
  macro->Charge(&budget_, sizeof(MacroObject));
  macro->node = &stmt;
  macro->scope = scope_;
  if (cleanup_.empty() || cleanup_.back().object() != scope_.object()) RegisterForCleanup(scope_);
  return Value::Adopt(Kind::kMacro, macro);
}

Status Interpreter::RunMacroDefinition(const Stmt& stmt) {
  Set(stmt.symbol, NewMacro(stmt));
  return OkStatus();
}

Status Interpreter::RunCallBlock(const Stmt& stmt) {
  CELLM_ASSIGN_OR_RETURN(const Value callee, Eval(*stmt.expr->a));
  Arguments args;
  CELLM_RETURN_IF_ERROR(EvalArguments(stmt.expr->args, &args));
  args.named.emplace_back("caller", NewMacro(stmt));
  CELLM_ASSIGN_OR_RETURN(const Value result, Call(callee, std::move(args)));
  return Print(result);
}

// Fills the macro's parameters in `scope` (the current one) and returns an error for arguments
// that it does not take. Parameters without argument stay missing; their defaults come after.
Status Interpreter::BindMacroArguments(const MacroObject& macro, Arguments* args,
                                       const Value& scope) {
  const Stmt& node = *macro.node;
  const std::string& name = parsed_.symbols[node.symbol];
  const size_t count = node.parameters.size();
  std::vector<ScopeObject::Slot>& slots = AsScope(scope).slots;
  for (size_t i = 0; i < count; ++i) {
    Value value;
    if (i < args->positional.size()) {
      value = args->positional[i];
    } else {
      for (auto& [key, named] : args->named) {
        if (key == parsed_.symbols[node.parameters[i]]) std::swap(value, named);
      }
    }
    slots.push_back({node.parameters[i], std::move(value)});
  }
  DictTable extra;
  Value caller;
  for (auto& [key, value] : args->named) {
    if (value.missing()) continue;
    if (key == "caller" && node.uses_caller) {
      caller = value;
      continue;
    }
    if (!node.uses_kwargs) {
      if (key == "caller") {
        return Raise(ErrorKind::kTypeError,
                     "macro '%s' was invoked with two values for the special caller argument. This "
                     "is most likely a bug.",
                     name.c_str());
      }
      return Raise(ErrorKind::kTypeError, "macro '%s' takes no keyword argument '%s'", name.c_str(),
                   key.c_str());
    }
    CELLM_ASSIGN_OR_RETURN(Value key_value, NewString(Text(key, true)));
    extra.Set(std::move(key_value), value);
  }
  if (node.uses_caller && node.kind == StmtKind::kMacro) {
    if (caller.missing()) caller = Undefined("No caller defined");
    slots.push_back({kSymbolCaller, caller});
  }
  if (node.uses_kwargs) {
    slots.push_back({kSymbolKwargs, MakeDict(std::move(extra), &budget_)});
  }
  if (node.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args->positional.size(); ++i) rest.push_back(args->positional[i]);
    slots.push_back({kSymbolVarargs, NewTuple(std::move(rest))});
  } else if (args->positional.size() > count) {
    return Raise(ErrorKind::kTypeError, "macro '%s' takes not more than %zu argument(s)",
                 name.c_str(), count);
  }
  return OkStatus();
}

Result<Value> Interpreter::CallMacro(const MacroObject& macro, Arguments args) {
  if (++call_depth_ > limits().max_call_depth) {
    return Raise(ErrorKind::kRecursionError, "maximum recursion depth exceeded (max_call_depth %d)",
                 limits().max_call_depth);
  }
  const Stmt& node = *macro.node;
  const Value outer_scope = scope_;
  Text* outer_output = output_;
  Text text;
  scope_ = NewScope(macro.scope);
  output_ = &text;
  Status status = BindMacroArguments(macro, &args, scope_);
  const size_t first_default = node.parameters.size() - node.defaults.size();
  for (size_t i = 0; i < node.parameters.size() && status.ok(); ++i) {
    if (!AsScope(scope_).slots[i].value.missing()) continue;
    if (i < first_default) {
      AsScope(scope_).slots[i].value =
          Undefined("parameter '" + parsed_.symbols[node.parameters[i]] + "' was not provided");
      continue;
    }
    Result<Value> value = Eval(*node.defaults[i - first_default]);
    status = value.status();
    if (value.ok()) AsScope(scope_).slots[i].value = std::move(value).value();
  }
  if (status.ok()) status = RunBody(node.body).status();
  scope_ = outer_scope;
  output_ = outer_output;
  --call_depth_;
  CELLM_RETURN_IF_ERROR(std::move(status));
  return NewString(std::move(text), autoescape_);
}

}  // namespace cellm::jinja
