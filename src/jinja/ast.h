#ifndef CELLM_SRC_JINJA_AST_H_
#define CELLM_SRC_JINJA_AST_H_

// The parsed template: expressions and statements as plain trees. Internal to src/jinja.
//
// Names are numbers ("symbols") into ParsedTemplate::symbols, so that looking a variable up
// compares integers. Trees are at most kMaxTreeDepth deep, so recursion over them is bounded.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace cellm::jinja {

// Published templates stay below 40; Python's own parser gives up at about 100 brackets.
inline constexpr int kMaxTreeDepth = 200;

// The names that the engine itself binds are the first symbols of every template.
enum : uint32_t { kSymbolCaller, kSymbolLoop, kSymbolVarargs, kSymbolKwargs };

enum class ExprKind : uint8_t {
  kConstant,   // value
  kName,       // symbol
  kTuple,      // items
  kList,       // items
  kDict,       // items: key, value, key, value ...
  kAttribute,  // a.text
  kItem,       // a[b]
  kSlice,      // a[items[0]:items[1]:items[2]], null where absent
  kCall,       // a(args)
  kFilter,     // a|builtin(args); a is null at the start of a filter block
  kTest,       // a is builtin(args)
  kUnary,      // op a
  kBinary,     // a op b
  kConcat,     // items joined by ~
  kCompare,    // a ops[0] items[0] ops[1] items[1] ...
  kAnd,        // a and b
  kOr,
  kNot,
  kConditional,  // a if b else c; c may be null
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kPlus,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  enum class Kind : uint8_t { kPositional, kNamed, kStar, kStarStar };
  Kind kind = Kind::kPositional;
  std::string name;  // kNamed
  ExprPtr value;
};

struct Expr {
  ExprKind kind;
  Op op = Op::kAdd;
  uint8_t depth = 1;  // of this tree
  int line = 0;
  uint32_t symbol = 0;
  int builtin = -1;  // number of the filter or test; -1: unknown, an error if it is ever reached
  Value value;       // kConstant; kAttribute: the name as a string
  std::string text;  // attribute, filter or test name
  ExprPtr a, b, c;
  std::vector<ExprPtr> items;
  std::vector<Op> ops;
  std::vector<Argument> args;
};

enum class StmtKind : uint8_t {
  kText,       // value
  kPrint,      // expr
  kIf,         // branches: expr, body; the last may have a null expr
  kFor,        // target, expr, condition, body, otherwise, recursive
  kSet,        // target, expr
  kSetBlock,   // target, body, filter
  kWith,       // targets, values, body
  kMacro,      // symbol, parameters, defaults, body
  kCallBlock,  // expr (a call), parameters, defaults, body
  kFilterBlock,
  kScopeBlock,  // block, generation: body in a scope of its own
  kRootBlock,   // {% block %}: body sees only top-level variables
  kAutoescape,  // expr, body
  kBreak,
  kContinue,
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// What may stand left of "=": a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  enum class Kind : uint8_t { kName, kNamespace, kTuple };
  Kind kind = Kind::kName;
  uint32_t symbol = 0;
  std::string attribute;
  std::vector<Target> items;
};

struct Branch {
  ExprPtr condition;
  Body body;
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  bool recursive = false;
  bool uses_varargs = false;  // the macro's body mentions varargs, kwargs, caller
  bool uses_kwargs = false;
  bool uses_caller = false;
  uint32_t symbol = 0;
  Value value;
  ExprPtr expr;
  ExprPtr condition;
  ExprPtr filter;  // a chain of kFilter whose innermost a is null
  Target target;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::vector<uint32_t> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
};

struct ParsedTemplate {
  ParsedTemplate() = default;
  ParsedTemplate(const ParsedTemplate&) = delete;
  ParsedTemplate& operator=(const ParsedTemplate&) = delete;
  ~ParsedTemplate();

  std::string name;
  std::vector<std::string> symbols;
  std::vector<int> globals;  // per symbol: the built-in function of that name, or -1
  Body body;
  std::vector<Object*> constants;  // owned; immortal while the template lives
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_AST_H_
