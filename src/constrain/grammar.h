#ifndef CELLM_SRC_CONSTRAIN_GRAMMAR_H_
#define CELLM_SRC_CONSTRAIN_GRAMMAR_H_

// What every kind of constraint is compiled to first: rules, each an expression over characters.
//
//   JSON schema, GBNF, regex, choices, structural  --->  Grammar  --->  Automaton  --->  Machine
//                                                     (expressions)   (bytes, calls)  (masks)
//
// Expressions live in one pool and are named by their number. A rule may be used before its
// expression is set, so rules may be recursive; left recursion is refused later.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "constrain/code_points.h"

namespace cellm::constrain {

using ExprId = int32_t;
using RuleId = int32_t;

enum class ExprKind : uint8_t {
  kEmpty,         // the empty text
  kNever,         // nothing: no text at all
  kBytes,         // text, byte for byte
  kByteRange,     // one byte from min to max
  kChars,         // one character of a set
  kTexts,         // one of several texts
  kSequence,      // children, one after the other
  kAlternatives,  // one of the children
  kRepeat,        // child, min to max times
  kRule,          // what the rule says
  kGraph,         // a path through a graph whose edges are expressions
  kToken,         // one control token, by id
  kOtherTokens,   // any one control token that no kToken of the grammar names
};

struct GraphEdge {
  int32_t from = 0;
  int32_t to = 0;
  ExprId label = -1;  // -1: nothing is read
};
// Paths lead from node 0 to a final node.
struct Graph {
  int32_t node_count = 1;
  std::vector<GraphEdge> edges;
  std::vector<int32_t> finals;

  int32_t AddNode() { return node_count++; }
  void AddEdge(int32_t from, int32_t to, ExprId label) { edges.push_back({from, to, label}); }
};

inline constexpr int32_t kUnbounded = -1;

struct Expr {
  ExprKind kind = ExprKind::kEmpty;
  int32_t index =
      0;  // kBytes, kChars, kTexts, kGraph: in the grammar's list; kRule; kToken: the id
  int32_t min = 0, max = 0;  // kRepeat, where max may be kUnbounded; kByteRange
  std::vector<ExprId> children;
};

struct Rule {
  std::string name;  // for messages
  ExprId expr = -1;  // -1: not set yet
};

class Grammar {
 public:
  Grammar();

  ExprId Empty() const { return 0; }
  ExprId Never() const { return 1; }
  ExprId ByteRange(int32_t first, int32_t last);
  ExprId Bytes(std::string_view text);
  ExprId Chars(CodePoints set);
  ExprId Texts(std::vector<std::string> texts);
  ExprId Sequence(std::vector<ExprId> children);
  ExprId Alternatives(std::vector<ExprId> children);
  ExprId Repeat(ExprId child, int32_t min, int32_t max);
  ExprId Optional(ExprId child) { return Repeat(child, 0, 1); }
  ExprId UseRule(RuleId rule);
  ExprId AddGraph(Graph graph);
  ExprId Token(int32_t token_id);
  ExprId OtherTokens();

  RuleId AddRule(std::string_view name);
  void SetRule(RuleId rule, ExprId expr) { rules_[static_cast<size_t>(rule)].expr = expr; }

  ExprId expr_count() const { return static_cast<ExprId>(exprs_.size()); }
  const Expr& expr(ExprId id) const { return exprs_[static_cast<size_t>(id)]; }
  const std::string& bytes(const Expr& e) const { return bytes_[static_cast<size_t>(e.index)]; }
  const CodePoints& chars(const Expr& e) const { return chars_[static_cast<size_t>(e.index)]; }
  const std::vector<std::string>& texts(const Expr& e) const {
    return texts_[static_cast<size_t>(e.index)];
  }
  const Graph& graph(const Expr& e) const { return graphs_[static_cast<size_t>(e.index)]; }
  const std::vector<Rule>& rules() const { return rules_; }
  // Expressions, graph edges and text bytes so far: what compilers compare with their limit.
  size_t size() const { return size_; }

  RuleId root = -1;

 private:
  ExprId Add(Expr expr);

  std::vector<Expr> exprs_;
  std::vector<std::string> bytes_;
  std::vector<CodePoints> chars_;
  std::vector<std::vector<std::string>> texts_;
  std::vector<Graph> graphs_;
  std::vector<Rule> rules_;
  size_t size_ = 0;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_GRAMMAR_H_
