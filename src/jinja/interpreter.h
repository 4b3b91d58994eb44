#ifndef CELLM_SRC_JINJA_INTERPRETER_H_
#define CELLM_SRC_JINJA_INTERPRETER_H_

// Runs a parsed template once: a walk over the tree, with the state of one render. Internal.
//
// Every function that can fail returns a Status whose text is the message that the reference would
// give; what kind of error it is and where it happened stay in error(). Built-ins (filters, tests,
// methods, global functions) are plain functions that get the interpreter as their first argument.

#include <cstdarg>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "jinja/ast.h"
#include "jinja/error.h"
#include "jinja/objects.h"
#include "jinja/options.h"
#include "jinja/value.h"

namespace cellm::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// What a loop or a filter runs over. `items` borrows from `owner` or from `storage`.
struct ItemList {
  std::span<const Value> items;
  Value owner;
  std::vector<Value> storage;
};

class Interpreter {
 public:
  // All three must outlive the interpreter.
  Interpreter(const ParsedTemplate& parsed, const Value& variables, const RenderOptions& options);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  Status Run();
  Text TakeOutput() { return std::move(root_output_); }
  const Error& error() const { return error_; }

  // ---- Services for built-ins ----
  Status Raise(ErrorKind kind, const char* format, ...) CELLM_PRINTF_LIKE(3, 4);
  Status RaiseMessage(ErrorKind kind, std::string message);
  Status RaiseUndefined(const Value& undefined);
  const RenderOptions& options() const { return options_; }
  const Limits& limits() const { return options_.limits; }
  Budget* budget() { return &budget_; }
  Rng& rng() { return rng_; }
  bool autoescape() const { return autoescape_; }
  // Counts work; fails past max_steps.
  Status Charge(int64_t steps);
  Status ChargeBytes(size_t bytes) { return Charge(1 + static_cast<int64_t>(bytes / 64)); }
  Status ChargeItems(size_t items) { return Charge(1 + static_cast<int64_t>(items / 8)); }
  // Fails when a string of so many bytes (or a list of so many items) must not be made.
  Status CheckStringSize(size_t bytes);
  Status CheckItemCount(size_t items);

  Result<Value> NewString(Text text, bool markup = false);
  Value NewList(std::vector<Value> items) {
    return MakeSequence(SequenceObject::Flavor::kList, std::move(items), &budget_);
  }
  Value NewTuple(std::vector<Value> items) {
    return MakeSequence(SequenceObject::Flavor::kTuple, std::move(items), &budget_);
  }
  Value NewGenerator(std::vector<Value> items) {
    return MakeSequence(SequenceObject::Flavor::kGenerator, std::move(items), &budget_);
  }
  Result<Value> NewInteger(BigInt value, bool trusted);
  Value Undefined(std::string message) { return MakeUndefined(std::move(message), &budget_); }
  void RegisterForCleanup(const Value& value) { cleanup_.push_back(value); }

  bool IsTrue(const Value& value) const;
  // Appends str(value), or repr(value).
  Status AppendStr(const Value& value, Text* out);
  Status AppendRepr(const Value& value, Text* out, int depth = 0);
  // str(value) as a string value; strings are returned as they are.
  Result<Value> ToStringValue(const Value& value);
  // What iterating gives; TypeError for values that cannot be. Consumes generators.
  Result<ItemList> Iterate(const Value& value);
  Result<int64_t> Length(const Value& value);
  Result<bool> IsEqual(const Value& a, const Value& b);
  // -1, 0, 1, or 2 for unordered; TypeError (naming `op`) for types that have no order.
  Result<int> Compare(const Value& a, const Value& b, const char* op = "<");
  Result<bool> Contains(const Value& container, const Value& item);
  Result<Value> GetAttribute(const Value& object, const Value& name);
  Result<Value> GetItem(const Value& object, const Value& key);
  Result<Value> Slice(const Value& object, const Value& from, const Value& to, const Value& step);
  Result<Value> Binary(Op op, const Value& a, const Value& b);
  Result<Value> Call(const Value& callee, Arguments args);
  Result<Value> ApplyFilter(int builtin, const Value& input, Arguments args);
  Result<bool> ApplyTest(int builtin, const Value& input, Arguments args);
  Result<Value> CallMacro(const MacroObject& macro, Arguments args);
  Result<Value> CallLoop(const LoopObject& loop, const Arguments& args);
  // "<" and friends become entities.
  static Text EscapeHtml(const Text& text);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // ---- Statements (interpreter.cc) ----
  Result<Flow> RunBody(const Body& body);
  Result<Flow> RunStatement(const Stmt& stmt);
  Result<Flow> RunIf(const Stmt& stmt);
  Result<Flow> RunFor(const Stmt& stmt);
  Status RunLoop(const Stmt& stmt, std::vector<Value> items, int64_t depth0);
  Result<std::vector<Value>> FilterLoopItems(const Stmt& stmt, std::span<const Value> items);
  Status RunSet(const Stmt& stmt);
  Result<Flow> RunSetBlock(const Stmt& stmt);
  Result<Flow> RunWith(const Stmt& stmt);
  Status RunMacroDefinition(const Stmt& stmt);
  Status RunCallBlock(const Stmt& stmt);
  Result<Flow> RunFilterBlock(const Stmt& stmt);
  Result<Flow> RunScoped(const Stmt& stmt, const Value& parent);
  Result<Flow> RunAutoescape(const Stmt& stmt);
  Status Print(const Value& value);
  Status Emit(const Text& text);
  // Runs a body in a new scope with its output caught.
  Result<Flow> Capture(const Body& body, Text* text);
  Status Assign(const Target& target, Value value);
  void Set(uint32_t symbol, Value value);
  Value NewScope(const Value& parent);
  Value NewMacro(const Stmt& stmt);
  Status BindMacroArguments(const MacroObject& macro, Arguments* args, const Value& scope);

  // ---- Expressions (evaluate.cc) ----
  Result<Value> Eval(const Expr& expr);
  Result<Value> EvalKind(const Expr& expr);
  Result<Value> EvalName(const Expr& expr);
  Result<Value> EvalItems(const Expr& expr);
  Result<Value> EvalDict(const Expr& expr);
  Result<Value> EvalAttribute(const Expr& expr);
  Result<Value> EvalItem(const Expr& expr);
  Result<Value> EvalSlice(const Expr& expr);
  Result<Value> EvalCall(const Expr& expr);
  Result<Value> EvalFilter(const Expr& expr, const Value* block_input);
  Result<Value> EvalTest(const Expr& expr);
  Result<Value> EvalUnary(const Expr& expr);
  Result<Value> EvalBinary(const Expr& expr);
  Result<Value> EvalConcat(const Expr& expr);
  Result<Value> EvalCompare(const Expr& expr);
  Result<Value> EvalLogic(const Expr& expr);
  Result<Value> EvalConditional(const Expr& expr);
  Result<bool> CompareOp(Op op, const Value& a, const Value& b);
  Status EvalArguments(const std::vector<Argument>& from, Arguments* to);

  // ---- Operators (operators.cc) ----
  Result<Value> Add(const Value& a, const Value& b);
  Result<Value> Multiply(const Value& a, const Value& b);
  Result<Value> Repeat(const Value& sequence, const Value& count);
  Result<Value> Divide(const Value& a, const Value& b);
  Result<Value> FloorDivide(Op op, const Value& a, const Value& b);
  Result<Value> Power(const Value& a, const Value& b);
  Result<Value> IntegerArithmetic(Op op, const Value& a, const Value& b);
  Status RaiseOperands(const char* op, const Value& a, const Value& b);
  Result<int> CompareSequences(const Value& a, const Value& b, const char* op);

  const ParsedTemplate& parsed_;
  const RenderOptions& options_;
  Budget budget_;
  Rng rng_;
  Error error_;
  int line_ = 0;
  int64_t steps_ = 0;
  int eval_depth_ = 0;
  int call_depth_ = 0;
  int compare_depth_ = 0;
  bool autoescape_ = false;
  std::vector<Value> root_values_;  // per symbol: the variable or built-in of that name
  Value scope_;
  Value root_scope_;
  Text root_output_;
  Text* output_ = &root_output_;
  size_t captured_bytes_ = 0;
  std::vector<Value> cleanup_;  // scopes and namespaces that may be part of a cycle
};

// Sorts arguments into the parameters `names`, of which the first `required` must be given; the
// rest are missing Values when absent. `out` has one place a name. TypeError as Python words it.
Status BindArguments(Interpreter& in, std::string_view function, const Arguments& args,
                     std::initializer_list<std::string_view> names, size_t required,
                     std::span<Value> out);

inline bool IsMarkup(const Value& v) { return v.Is(Kind::kString) && AsString(v).markup; }
inline const Text& TextOf(const Value& string) { return AsString(string).text; }
inline std::string_view BytesOf(const Value& string) { return AsString(string).text.bytes(); }

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_INTERPRETER_H_
