#ifndef CELLM_SRC_CONSTRAIN_AUTOMATON_H_
#define CELLM_SRC_CONSTRAIN_AUTOMATON_H_

// A grammar as a nondeterministic automaton over bytes, with calls.
//
// Each rule that is not written out where it is used has a start and an end node of its own. An
// edge reads a byte of a range, reads a control token, reads nothing, or calls a rule: a call
// remembers the edge's target, goes to the rule's start, and comes back when the rule's end is
// reached. Characters are spelled out as UTF-8, so that a token may end anywhere inside one.
//
//   value:  o --'{'--> o --call member, come back to--> o --'}'--> end
//
// What is remembered is at most max_depth targets deep. For each node, need() is how deep a way to
// its rule's end goes at least; a way is only taken while depth + need <= max_depth, so that a text
// that has begun can always be finished, at every depth. Nodes without any way have no need() and
// are never entered. A call that has nothing left to do after it remembers nothing, so that the
// rules for lists (list ::= item list) are not limited by the depth.
//
// Immutable. Any thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/allocator.h"
#include "base/status.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

// Bytes that the vocabulary can spell with a token of its own each. Others are left out of the
// automaton, since a text that needs one might begin and never end.
struct ByteSet {
  bool has[256] = {};
};

struct AutomatonLimits {
  size_t nodes = 400'000;    // 4 MB of nodes and ends, and
  size_t edges = 1'500'000;  // 18 MB of edges: beyond any schema that people write
  int32_t depth = 256;       // rules within rules; at most kMaxDepth
};
inline constexpr int32_t kMaxDepth = 4096;

class Automaton {
 public:
  enum class EdgeKind : uint8_t { kNothing, kBytes, kSymbol, kCall };
  struct Edge {
    int32_t target = 0;
    int32_t data = 0;  // kCall: the rule; kSymbol: which symbol
    EdgeKind kind = EdgeKind::kNothing;
    uint8_t first = 0, last = 0;  // kBytes
    bool tail = false;            // kCall: nothing is left to do after it
  };
  static constexpr uint16_t kNoWay = UINT16_MAX;

  // InvalidArgument  the grammar allows no text at all, or is left recursive (message: which rule)
  // OutOfRange       larger than `limits`             OutOfMemory  refused by `memory`
  static Result<std::unique_ptr<Automaton>> Build(const Grammar& grammar, const ByteSet& bytes,
                                                  const AutomatonLimits& limits, Allocator& memory);

  std::span<const Edge> edges(int32_t node) const {
    const size_t n = static_cast<size_t>(node);
    return edges_.span().subspan(first_edge_[n], first_edge_[n + 1] - first_edge_[n]);
  }
  int32_t need(int32_t node) const { return need_[static_cast<size_t>(node)]; }
  bool has_way(int32_t node) const { return need_[static_cast<size_t>(node)] != kNoWay; }
  bool is_end(int32_t node) const { return is_end_[static_cast<size_t>(node)] != 0; }
  int32_t rule_start(int32_t rule) const { return rule_start_[static_cast<size_t>(rule)]; }
  int32_t start() const { return start_; }
  int32_t max_depth() const { return max_depth_; }
  size_t node_count() const { return first_edge_.size() - 1; }
  size_t edge_count() const { return edges_.size(); }

  // What an edge reads is one of symbol_count() symbols: bytes that no edge tells apart are one
  // symbol; then come the control tokens by id that the grammar names, then all others as one.
  int32_t symbol_count() const { return symbol_count_; }
  int32_t symbol_of(uint8_t byte) const { return symbol_of_[byte]; }
  // A byte of the symbol; requires symbol < byte_symbol_count().
  uint8_t byte_of(int32_t symbol) const { return byte_of_[symbol]; }
  int32_t byte_symbol_count() const { return byte_symbol_count_; }
  // -1: the grammar reads no such token.
  int32_t symbol_of_token(int32_t token_id) const;
  bool reads_tokens() const { return symbol_count_ > byte_symbol_count_; }

 private:
  friend class AutomatonBuilder;
  Automaton() = default;

  Array<uint32_t> first_edge_;  // [nodes + 1]
  Array<Edge> edges_;
  Array<uint16_t> need_;
  Array<uint8_t> is_end_;
  Array<int32_t> rule_start_;
  Array<int32_t> token_ids_;  // named control tokens, ascending
  bool other_tokens_ = false;
  int32_t start_ = 0;
  int32_t max_depth_ = 0;
  int32_t symbol_count_ = 0;
  int32_t byte_symbol_count_ = 0;
  uint8_t symbol_of_[256] = {};
  uint8_t byte_of_[256] = {};
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_AUTOMATON_H_
