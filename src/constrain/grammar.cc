#include "constrain/grammar.h"

#include <utility>

namespace cellm::constrain {

Grammar::Grammar() {
  for (const ExprKind kind : {ExprKind::kEmpty, ExprKind::kNever}) {
    Expr expr;
    expr.kind = kind;
    Add(std::move(expr));
  }
}

ExprId Grammar::Add(Expr expr) {
  size_ += 1 + expr.children.size();
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Grammar::Bytes(std::string_view text) {
  if (text.empty()) return Empty();
  Expr expr;
  expr.kind = ExprKind::kBytes;
  expr.index = static_cast<int32_t>(bytes_.size());
  bytes_.emplace_back(text);
  size_ += text.size();
  return Add(std::move(expr));
}

ExprId Grammar::ByteRange(int32_t first, int32_t last) {
  Expr expr;
  expr.kind = ExprKind::kByteRange;
  expr.min = first;
  expr.max = last;
  return Add(std::move(expr));
}

ExprId Grammar::Chars(CodePoints set) {
  if (set.empty()) return Never();
  Expr expr;
  expr.kind = ExprKind::kChars;
  // Neighbours often use the same set: one look back saves most copies.
  if (chars_.empty() || !(chars_.back() == set)) {
    size_ += set.ranges().size();
    chars_.push_back(std::move(set));
  }
  expr.index = static_cast<int32_t>(chars_.size() - 1);
  return Add(std::move(expr));
}

ExprId Grammar::Texts(std::vector<std::string> texts) {
  if (texts.empty()) return Never();
  Expr expr;
  expr.kind = ExprKind::kTexts;
  expr.index = static_cast<int32_t>(texts_.size());
  for (const std::string& text : texts) size_ += 1 + text.size();
  texts_.push_back(std::move(texts));
  return Add(std::move(expr));
}

ExprId Grammar::Sequence(std::vector<ExprId> children) {
  if (children.empty()) return Empty();
  if (children.size() == 1) return children[0];
  Expr expr;
  expr.kind = ExprKind::kSequence;
  expr.children = std::move(children);
  return Add(std::move(expr));
}

ExprId Grammar::Alternatives(std::vector<ExprId> children) {
  if (children.empty()) return Never();
  if (children.size() == 1) return children[0];
  Expr expr;
  expr.kind = ExprKind::kAlternatives;
  expr.children = std::move(children);
  return Add(std::move(expr));
}

ExprId Grammar::Repeat(ExprId child, int32_t min, int32_t max) {
  if (max == 0) return Empty();
  if (min == 1 && max == 1) return child;
  Expr expr;
  expr.kind = ExprKind::kRepeat;
  expr.min = min;
  expr.max = max;
  expr.children = {child};
  return Add(std::move(expr));
}

ExprId Grammar::UseRule(RuleId rule) {
  Expr expr;
  expr.kind = ExprKind::kRule;
  expr.index = rule;
  return Add(std::move(expr));
}

ExprId Grammar::AddGraph(Graph graph) {
  Expr expr;
  expr.kind = ExprKind::kGraph;
  expr.index = static_cast<int32_t>(graphs_.size());
  size_ += static_cast<size_t>(graph.node_count) + graph.edges.size();
  graphs_.push_back(std::move(graph));
  return Add(std::move(expr));
}

ExprId Grammar::Token(int32_t token_id) {
  Expr expr;
  expr.kind = ExprKind::kToken;
  expr.index = token_id;
  return Add(std::move(expr));
}

ExprId Grammar::OtherTokens() {
  Expr expr;
  expr.kind = ExprKind::kOtherTokens;
  return Add(std::move(expr));
}

RuleId Grammar::AddRule(std::string_view name) {
  rules_.push_back({std::string(name), -1});
  return static_cast<RuleId>(rules_.size() - 1);
}

}  // namespace cellm::constrain
