#ifndef CELLM_SRC_CONSTRAIN_AUTOMATON_BUILDER_H_
#define CELLM_SRC_CONSTRAIN_AUTOMATON_BUILDER_H_

// The making of an Automaton: expressions become nodes and edges, then the whole is looked over.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "constrain/automaton.h"
#include "constrain/buffer.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

class AutomatonBuilder {
 public:
  AutomatonBuilder(const Grammar& grammar, const ByteSet& bytes, const AutomatonLimits& limits,
                   Allocator& memory);
  Result<std::unique_ptr<Automaton>> Run();

 private:
  using EdgeKind = Automaton::EdgeKind;
  using Edge = Automaton::Edge;
  struct OwnedEdge {
    int32_t from;
    Edge edge;
  };
  struct CallSite {
    int32_t from;
    int32_t target;
    bool tail;
  };

  // Nodes and edges. Past a limit they set failure_ and do nothing more.
  int32_t NewNode();
  void AddEdge(int32_t from, const Edge& edge);
  void AddNothing(int32_t from, int32_t to) { AddEdge(from, {to, 0, EdgeKind::kNothing, 0, 0}); }
  void AddBytes(int32_t from, int32_t to, int first, int last);

  // Each makes the ways from `from` to `to` that read the expression. Nothing is added that leads
  // into `from` or out of `to` (unless they are one node).
  void BuildExpr(ExprId id, int32_t from, int32_t to, int depth, bool repeated);
  void BuildText(std::string_view text, int32_t from, int32_t to);
  void BuildTexts(const std::vector<std::string>& texts, int32_t from, int32_t to);
  void BuildChars(const CodePoints& set, int32_t from, int32_t to);
  void BuildRepeat(const Expr& expr, int32_t from, int32_t to, int depth, bool repeated);
  void BuildGraph(const Graph& graph, int32_t from, int32_t to, int depth, bool repeated);
  void BuildRule(RuleId rule, int32_t from, int32_t to, int depth, bool repeated);
  // UTF-8: values of `ranges` (below 64^continuations * leads) as one byte and continuations.
  using Ranges = std::vector<CodeRange>;
  void BuildUtf8(int32_t from, int32_t to, int continuations, int lead, const Ranges& ranges,
                 std::map<std::pair<int, Ranges>, int32_t>* shared);

  void CountUses();
  size_t Estimate(RuleId rule);
  size_t EstimateExpr(ExprId id, int depth);

  Status Finish();
  Status SortEdges();
  void MarkTails();
  bool OnlyReturns(int32_t node) const;
  // For each node the depth that a way to its rule's end needs; kNoWay without one.
  //   read_nothing   only ways that read nothing, however deep
  void FindNeeds(bool read_nothing, std::vector<uint16_t>* needs) const;
  Status RefuseLeftRecursion(const std::vector<uint16_t>& nothing_needed) const;
  void MakeSymbols();
  int32_t RuleOfNode(int32_t rule_start) const;

  const Grammar& grammar_;
  const ByteSet& bytes_;
  const AutomatonLimits limits_;
  Allocator& memory_;
  bool all_bytes_ = true;
  Status failure_;

  int32_t node_count_ = 0;
  Buffer<OwnedEdge> edges_;
  std::vector<int32_t> uses_;          // of each rule
  std::vector<size_t> estimates_;      // nodes of each rule; 0: not known yet
  std::vector<bool> being_written_;    // rules that are written out around the current place
  std::vector<RuleId> called_;         // rules with nodes of their own
  std::vector<int32_t> called_index_;  // of each rule in called_, or -1
  std::vector<int32_t> starts_, ends_;
  std::vector<int32_t> token_ids_;
  bool other_tokens_ = false;

  std::unique_ptr<Automaton> out_;
  // The edges turned round, for FindNeeds().
  std::vector<uint32_t> first_in_;
  std::vector<uint32_t> in_;  // numbers of edges
  std::vector<int32_t> from_;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_AUTOMATON_BUILDER_H_
