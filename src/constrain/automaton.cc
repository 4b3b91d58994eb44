#include "constrain/automaton.h"

#include <algorithm>

#include "constrain/automaton_builder.h"

namespace cellm::constrain {
namespace {

// Rules up to this size, in nodes, are written out wherever they are used.
constexpr size_t kSmallRule = 48;
// Rules are written out in rules at most so deep: the builder recurses.
constexpr int kMaxBuildDepth = 300;

}  // namespace

Result<std::unique_ptr<Automaton>> Automaton::Build(const Grammar& grammar, const ByteSet& bytes,
                                                    const AutomatonLimits& limits,
                                                    Allocator& memory) {
  return AutomatonBuilder(grammar, bytes, limits, memory).Run();
}

int32_t Automaton::symbol_of_token(int32_t token_id) const {
  const int32_t* const at = std::lower_bound(token_ids_.begin(), token_ids_.end(), token_id);
  if (at != token_ids_.end() && *at == token_id) {
    return byte_symbol_count_ + static_cast<int32_t>(at - token_ids_.begin());
  }
  return other_tokens_ ? symbol_count_ - 1 : -1;
}

AutomatonBuilder::AutomatonBuilder(const Grammar& grammar, const ByteSet& bytes,
                                   const AutomatonLimits& limits, Allocator& memory)
    : grammar_(grammar),
      bytes_(bytes),
      limits_(limits),
      memory_(memory),
      edges_(memory, "edges of a constraint") {
  for (const bool has : bytes.has) all_bytes_ &= has;
}

int32_t AutomatonBuilder::NewNode() {
  if (static_cast<size_t>(node_count_) >= limits_.nodes) {
    if (failure_.ok()) {
      failure_ = OutOfRange(
          "the constraint needs more than %zu states; make bounds such as maxLength, maxItems or "
          "{m,n} smaller",
          limits_.nodes);
    }
    return 0;
  }
  return node_count_++;
}

void AutomatonBuilder::AddEdge(int32_t from, const Edge& edge) {
  if (!failure_.ok()) return;
  if (edges_.size() >= limits_.edges) {
    failure_ = OutOfRange("the constraint needs more than %zu transitions", limits_.edges);
    return;
  }
  failure_ = edges_.Push({from, edge});
}

void AutomatonBuilder::AddBytes(int32_t from, int32_t to, int first, int last) {
  if (all_bytes_) {
    AddEdge(from,
            {to, 0, EdgeKind::kBytes, static_cast<uint8_t>(first), static_cast<uint8_t>(last)});
    return;
  }
  // Runs of bytes that the vocabulary has.
  for (int begin = first; begin <= last; ++begin) {
    if (!bytes_.has[begin]) continue;
    int end = begin;
    while (end < last && bytes_.has[end + 1]) ++end;
    AddEdge(from,
            {to, 0, EdgeKind::kBytes, static_cast<uint8_t>(begin), static_cast<uint8_t>(end)});
    begin = end;
  }
}

void AutomatonBuilder::BuildText(std::string_view text, int32_t from, int32_t to) {
  for (size_t i = 0; i < text.size(); ++i) {
    const int byte = static_cast<uint8_t>(text[i]);
    const int32_t next = i + 1 == text.size() ? to : NewNode();
    AddBytes(from, next, byte, byte);
    from = next;
  }
}

// A tree of the texts, so that the state at their start is one node and not as many as texts.
void AutomatonBuilder::BuildTexts(const std::vector<std::string>& texts, int32_t from, int32_t to) {
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::vector<int32_t> path = {from};  // node after each byte of the text before
  std::string_view before;
  for (const std::string_view text : sorted) {
    size_t shared = 0;
    while (shared < before.size() && shared < text.size() && before[shared] == text[shared]) {
      ++shared;
    }
    path.resize(shared + 1);
    for (size_t i = shared; i < text.size(); ++i) {
      const int byte = static_cast<uint8_t>(text[i]);
      const int32_t next = NewNode();
      AddBytes(path.back(), next, byte, byte);
      path.push_back(next);
    }
    AddNothing(path.back(), to);
    before = text;
    if (!failure_.ok()) return;
  }
}

// One byte that stands for the top digits (base 64) of the values, then `continuations` bytes with
// six bits each. Top bytes behind which the same values follow share an edge, and places with the
// same values to come share a node.
void AutomatonBuilder::BuildUtf8(int32_t from, int32_t to, int continuations, int lead,
                                 const Ranges& ranges,
                                 std::map<std::pair<int, Ranges>, int32_t>* shared) {
  const char32_t unit = char32_t{1} << (6 * continuations);
  struct Piece {
    char32_t first_top, last_top;
    Ranges rest;
  };
  std::vector<Piece> pieces;
  const auto add = [&](char32_t first_top, char32_t last_top, char32_t first, char32_t last) {
    if (!pieces.empty() && pieces.back().first_top == first_top &&
        pieces.back().last_top == last_top) {
      pieces.back().rest.push_back({first, last});
    } else {
      pieces.push_back({first_top, last_top, {{first, last}}});
    }
  };
  for (const CodeRange& range : ranges) {
    char32_t top = range.first / unit;
    const char32_t last_top = range.last / unit;
    if (range.first % unit != 0 || top == last_top) {
      add(top, top, range.first % unit, top == last_top ? range.last % unit : unit - 1);
      ++top;
    }
    const bool whole_end = range.last % unit == unit - 1;
    const char32_t whole = whole_end ? last_top + 1 : last_top;  // tops below are whole
    if (top < whole) add(top, whole - 1, 0, unit - 1);
    if (top <= last_top && !whole_end) add(last_top, last_top, 0, range.last % unit);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    size_t end = i + 1;
    while (end < pieces.size() && pieces[end].first_top == pieces[end - 1].last_top + 1 &&
           pieces[end].rest == pieces[i].rest) {
      ++end;
    }
    int32_t target = to;
    if (continuations > 0) {
      const auto key = std::make_pair(continuations, pieces[i].rest);
      const auto found = shared->find(key);
      if (found != shared->end()) {
        target = found->second;
      } else {
        target = NewNode();
        BuildUtf8(target, to, continuations - 1, 0x80, pieces[i].rest, shared);
        shared->emplace(key, target);
      }
    }
    AddBytes(from, target, lead + static_cast<int>(pieces[i].first_top),
             lead + static_cast<int>(pieces[end - 1].last_top));
    i = end - 1;
  }
}

void AutomatonBuilder::BuildChars(const CodePoints& set, int32_t from, int32_t to) {
  struct Form {
    char32_t first, last;
    int continuations, lead;
  };
  constexpr Form kForms[] = {{0, 0x7F, 0, 0},
                             {0x80, 0x7FF, 1, 0xC0},
                             {0x800, 0xFFFF, 2, 0xE0},
                             {0x10000, 0x10FFFF, 3, 0xF0}};
  std::map<std::pair<int, Ranges>, int32_t> shared;
  for (const Form& form : kForms) {
    Ranges ranges;
    for (const CodeRange& range : set.ranges()) {
      const char32_t first = std::max(range.first, form.first);
      const char32_t last = std::min(range.last, form.last);
      if (first <= last) ranges.push_back({first, last});
    }
    if (!ranges.empty()) {
      BuildUtf8(from, to, form.continuations, form.lead, ranges, &shared);
    }
  }
}

void AutomatonBuilder::BuildRepeat(const Expr& expr, int32_t from, int32_t to, int depth,
                                   bool repeated) {
  const ExprId child = expr.children[0];
  const bool many = repeated || expr.min > 2 || expr.max > 2;
  int32_t at = from;
  for (int32_t i = 0; i < expr.min && failure_.ok(); ++i) {
    const int32_t next = NewNode();
    BuildExpr(child, at, next, depth + 1, many);
    at = next;
  }
  if (expr.max == kUnbounded) {
    const int32_t loop = NewNode();
    AddNothing(at, loop);
    BuildExpr(child, loop, loop, depth + 1, repeated);
    AddNothing(loop, to);
    return;
  }
  for (int32_t i = expr.min; i < expr.max && failure_.ok(); ++i) {
    const int32_t next = NewNode();
    AddNothing(at, to);
    BuildExpr(child, at, next, depth + 1, many);
    at = next;
  }
  AddNothing(at, to);
}

void AutomatonBuilder::BuildGraph(const Graph& graph, int32_t from, int32_t to, int depth,
                                  bool repeated) {
  std::vector<int32_t> nodes(static_cast<size_t>(graph.node_count));
  for (int32_t& node : nodes) node = NewNode();
  AddNothing(from, nodes[0]);
  for (const GraphEdge& edge : graph.edges) {
    if (!failure_.ok()) return;
    const int32_t a = nodes[static_cast<size_t>(edge.from)];
    const int32_t b = nodes[static_cast<size_t>(edge.to)];
    if (edge.label < 0) {
      AddNothing(a, b);
    } else {
      BuildExpr(edge.label, a, b, depth + 1, repeated);
    }
  }
  for (const int32_t node : graph.finals) AddNothing(nodes[static_cast<size_t>(node)], to);
}

void AutomatonBuilder::BuildRule(RuleId rule, int32_t from, int32_t to, int depth, bool repeated) {
  const size_t index = static_cast<size_t>(rule);
  const bool small = Estimate(rule) <= kSmallRule;
  const bool only_here = uses_[index] == 1 && !repeated;
  if ((small || only_here) && !being_written_[index] && depth < kMaxBuildDepth) {
    being_written_[index] = true;
    BuildExpr(grammar_.rules()[index].expr, from, to, depth + 1, repeated);
    being_written_[index] = false;
    return;
  }
  if (called_index_[index] < 0) {
    called_index_[index] = static_cast<int32_t>(called_.size());
    called_.push_back(rule);
    starts_.push_back(NewNode());
    ends_.push_back(NewNode());
  }
  AddEdge(from, {to, called_index_[index], EdgeKind::kCall, 0, 0});
}

void AutomatonBuilder::BuildExpr(ExprId id, int32_t from, int32_t to, int depth, bool repeated) {
  if (!failure_.ok()) return;
  const Expr& expr = grammar_.expr(id);
  switch (expr.kind) {
    case ExprKind::kEmpty:
      AddNothing(from, to);
      break;
    case ExprKind::kNever:
      break;
    case ExprKind::kBytes:
      BuildText(grammar_.bytes(expr), from, to);
      break;
    case ExprKind::kByteRange:
      AddBytes(from, to, expr.min, expr.max);
      break;
    case ExprKind::kChars:
      BuildChars(grammar_.chars(expr), from, to);
      break;
    case ExprKind::kTexts:
      BuildTexts(grammar_.texts(expr), from, to);
      break;
    case ExprKind::kSequence:
      for (size_t i = 0; i < expr.children.size(); ++i) {
        const int32_t next = i + 1 == expr.children.size() ? to : NewNode();
        BuildExpr(expr.children[i], from, next, depth + 1, repeated);
        from = next;
      }
      break;
    case ExprKind::kAlternatives:
      for (const ExprId child : expr.children) BuildExpr(child, from, to, depth + 1, repeated);
      break;
    case ExprKind::kRepeat:
      BuildRepeat(expr, from, to, depth, repeated);
      break;
    case ExprKind::kRule:
      BuildRule(expr.index, from, to, depth, repeated);
      break;
    case ExprKind::kGraph:
      BuildGraph(grammar_.graph(expr), from, to, depth, repeated);
      break;
    case ExprKind::kToken:
      AddEdge(from, {to, expr.index, EdgeKind::kSymbol, 0, 0});
      token_ids_.push_back(expr.index);
      break;
    case ExprKind::kOtherTokens:
      AddEdge(from, {to, -1, EdgeKind::kSymbol, 0, 0});
      other_tokens_ = true;
      break;
  }
}

void AutomatonBuilder::CountUses() {
  const size_t rules = grammar_.rules().size();
  uses_.assign(rules, 0);
  estimates_.assign(rules, 0);
  being_written_.assign(rules, false);
  called_index_.assign(rules, -1);
  for (ExprId id = 0; id < grammar_.expr_count(); ++id) {
    const Expr& expr = grammar_.expr(id);
    if (expr.kind == ExprKind::kRule) ++uses_[static_cast<size_t>(expr.index)];
  }
}

// About how many nodes writing the rule out would take; anything above kSmallRule is just large.
size_t AutomatonBuilder::Estimate(RuleId rule) {
  size_t& known = estimates_[static_cast<size_t>(rule)];
  if (known == 0) {
    known = kSmallRule + 1;  // what a recursive use sees
    known = 1 + EstimateExpr(grammar_.rules()[static_cast<size_t>(rule)].expr, 0);
  }
  return known;
}

size_t AutomatonBuilder::EstimateExpr(ExprId id, int depth) {
  constexpr size_t kLarge = kSmallRule + 1;
  if (depth > 100) return kLarge;
  const Expr& expr = grammar_.expr(id);
  switch (expr.kind) {
    case ExprKind::kBytes:
      return grammar_.bytes(expr).size();
    case ExprKind::kChars:
      return 1 + 2 * grammar_.chars(expr).ranges().size();
    case ExprKind::kTexts:
    case ExprKind::kGraph:
      return kLarge;
    case ExprKind::kRule:
      return Estimate(expr.index);
    default:
      break;
  }
  size_t sum = 1;
  for (const ExprId child : expr.children) {
    sum += EstimateExpr(child, depth + 1);
    if (sum > kLarge) return kLarge;
  }
  if (expr.kind == ExprKind::kRepeat) {
    const size_t copies = static_cast<size_t>(std::max({expr.min + 1, expr.max, 1}));
    sum = copies > kLarge ? kLarge : sum * copies;
  }
  return std::min(sum, kLarge);
}

Result<std::unique_ptr<Automaton>> AutomatonBuilder::Run() {
  for (const Rule& rule : grammar_.rules()) {
    CELLM_CHECK(rule.expr >= 0, "a rule of a grammar has no expression");
  }
  CountUses();
  // The root is a called rule of its own, so that its end is nobody else's.
  called_index_[static_cast<size_t>(grammar_.root)] = 0;
  called_.push_back(grammar_.root);
  starts_.push_back(NewNode());
  ends_.push_back(NewNode());
  for (size_t i = 0; i < called_.size() && failure_.ok(); ++i) {
    const size_t rule = static_cast<size_t>(called_[i]);
    being_written_[rule] = true;
    BuildExpr(grammar_.rules()[rule].expr, starts_[i], ends_[i], 0, false);
    being_written_[rule] = false;
  }
  CELLM_RETURN_IF_ERROR(failure_);
  CELLM_RETURN_IF_ERROR(Finish());
  return std::move(out_);
}

}  // namespace cellm::constrain
