// The second half of AutomatonBuilder: from a list of edges to an Automaton that has been looked
// over: which nodes have a way to an end and how deep it goes, which rules are left recursive, and
// which bytes no edge tells apart.
#include <algorithm>

#include "constrain/automaton_builder.h"

namespace cellm::constrain {

// Edges by the node that they leave, in the order in which they were made.
Status AutomatonBuilder::SortEdges() {
  const size_t nodes = static_cast<size_t>(node_count_);
  const size_t edges = edges_.size();
  CELLM_ASSIGN_OR_RETURN(
      out_->first_edge_,
      Array<uint32_t>::Zeroed(memory_, nodes + 1, MemoryClass::kOther, "states of a constraint"));
  CELLM_ASSIGN_OR_RETURN(out_->edges_,
                         Array<Edge>::Uninitialised(memory_, edges, MemoryClass::kOther,
                                                    "transitions of a constraint"));
  for (const OwnedEdge& owned : edges_.span()) {
    ++out_->first_edge_[static_cast<size_t>(owned.from) + 1];
  }
  for (size_t i = 0; i < nodes; ++i) out_->first_edge_[i + 1] += out_->first_edge_[i];
  std::vector<uint32_t> next(out_->first_edge_.begin(), out_->first_edge_.end());
  from_.resize(edges);
  for (const OwnedEdge& owned : edges_.span()) {
    const uint32_t at = next[static_cast<size_t>(owned.from)]++;
    out_->edges_[at] = owned.edge;
    from_[at] = owned.from;
  }
  edges_.Release();

  first_in_.assign(nodes + 1, 0);
  for (const Edge& edge : out_->edges_) ++first_in_[static_cast<size_t>(edge.target) + 1];
  for (size_t i = 0; i < nodes; ++i) first_in_[i + 1] += first_in_[i];
  next.assign(first_in_.begin(), first_in_.end());
  in_.resize(edges);
  for (size_t i = 0; i < edges; ++i) {
    in_[next[static_cast<size_t>(out_->edges_[i].target)]++] = static_cast<uint32_t>(i);
  }
  return OkStatus();
}

// True when nothing can follow but the end of the rule.
bool AutomatonBuilder::OnlyReturns(int32_t node) const {
  for (int hops = 0; hops < 64; ++hops) {
    if (out_->is_end(node)) return true;
    const std::span<const Edge> edges = out_->edges(node);
    if (edges.size() != 1 || edges[0].kind != EdgeKind::kNothing) return false;
    node = edges[0].target;
  }
  return false;
}

void AutomatonBuilder::MarkTails() {
  for (Edge& edge : out_->edges_) {
    if (edge.kind == EdgeKind::kCall) edge.tail = OnlyReturns(edge.target);
  }
}

// From the ends backwards, by increasing need. A call's need is known when those of the rule and of
// the place to come back to are.
void AutomatonBuilder::FindNeeds(bool read_nothing, std::vector<uint16_t>* needs) const {
  needs->assign(static_cast<size_t>(node_count_), Automaton::kNoWay);
  const size_t deepest = read_nothing ? 0 : static_cast<size_t>(limits_.depth);
  std::vector<std::vector<int32_t>> due(deepest + 1);
  std::vector<std::vector<CallSite>> sites(called_.size());
  std::vector<int32_t> rule_of_start(static_cast<size_t>(node_count_), -1);
  for (size_t i = 0; i < from_.size(); ++i) {
    const Edge& edge = out_->edges_[i];
    if (edge.kind != EdgeKind::kCall) continue;
    sites[static_cast<size_t>(edge.data)].push_back({from_[i], edge.target, edge.tail});
  }
  for (size_t i = 0; i < starts_.size(); ++i) {
    rule_of_start[static_cast<size_t>(starts_[i])] = static_cast<int32_t>(i);
  }
  const auto call_need = [&](int32_t target, int32_t rule, bool tail) -> size_t {
    const size_t start = static_cast<size_t>(starts_[static_cast<size_t>(rule)]);
    const uint16_t inside = (*needs)[start];
    const uint16_t after = (*needs)[static_cast<size_t>(target)];
    if (inside == Automaton::kNoWay || after == Automaton::kNoWay) return deepest + 1;
    const size_t deeper = tail || read_nothing ? 0 : 1;
    return std::max<size_t>(inside + deeper, after);
  };
  for (const int32_t end : ends_) due[0].push_back(end);
  for (size_t need = 0; need <= deepest; ++need) {
    for (size_t i = 0; i < due[need].size(); ++i) {
      const int32_t node = due[need][i];
      uint16_t& known = (*needs)[static_cast<size_t>(node)];
      if (known != Automaton::kNoWay) continue;
      known = static_cast<uint16_t>(need);
      const auto push = [&](int32_t from, size_t at) {
        if (at <= deepest && (*needs)[static_cast<size_t>(from)] == Automaton::kNoWay) {
          due[std::max(at, need)].push_back(from);
        }
      };
      for (size_t k = first_in_[static_cast<size_t>(node)];
           k < first_in_[static_cast<size_t>(node) + 1]; ++k) {
        const Edge& edge = out_->edges_[in_[k]];
        if (edge.kind == EdgeKind::kCall) {
          push(from_[in_[k]], call_need(node, edge.data, edge.tail));
        } else if (edge.kind == EdgeKind::kNothing || !read_nothing) {
          push(from_[in_[k]], need);
        }
      }
      const int32_t rule = rule_of_start[static_cast<size_t>(node)];
      if (rule < 0) continue;
      for (const CallSite& site : sites[static_cast<size_t>(rule)]) {
        push(site.from, call_need(site.target, rule, site.tail));
      }
    }
    due[need].clear();
    due[need].shrink_to_fit();
  }
}

// Rules that are reached again before anything is read would call themselves for ever.
Status AutomatonBuilder::RefuseLeftRecursion(const std::vector<uint16_t>& nothing_needed) const {
  const size_t rules = called_.size();
  std::vector<std::vector<int32_t>> first_calls(rules);
  std::vector<int32_t> seen(static_cast<size_t>(node_count_), -1);
  std::vector<int32_t> pending;
  for (size_t rule = 0; rule < rules; ++rule) {
    pending = {starts_[rule]};
    while (!pending.empty()) {
      const int32_t node = pending.back();
      pending.pop_back();
      if (seen[static_cast<size_t>(node)] == static_cast<int32_t>(rule)) continue;
      seen[static_cast<size_t>(node)] = static_cast<int32_t>(rule);
      for (const Edge& edge : out_->edges(node)) {
        if (edge.kind == EdgeKind::kNothing) pending.push_back(edge.target);
        if (edge.kind != EdgeKind::kCall) continue;
        first_calls[rule].push_back(edge.data);
        const int32_t callee = starts_[static_cast<size_t>(edge.data)];
        if (nothing_needed[static_cast<size_t>(callee)] != Automaton::kNoWay) {
          pending.push_back(edge.target);
        }
      }
    }
  }
  // A cycle among first calls, by depth-first search without recursion.
  std::vector<uint8_t> colour(rules, 0);  // 1: on the path, 2: done
  struct Step {
    int32_t rule;
    size_t next;
  };
  std::vector<Step> path;
  for (size_t root = 0; root < rules; ++root) {
    if (colour[root] != 0) continue;
    path = {{static_cast<int32_t>(root), 0}};
    colour[root] = 1;
    while (!path.empty()) {
      Step& step = path.back();
      const std::vector<int32_t>& calls = first_calls[static_cast<size_t>(step.rule)];
      if (step.next == calls.size()) {
        colour[static_cast<size_t>(step.rule)] = 2;
        path.pop_back();
        continue;
      }
      const int32_t callee = calls[step.next++];
      if (colour[static_cast<size_t>(callee)] == 1) {
        const RuleId rule = called_[static_cast<size_t>(callee)];
        return InvalidArgument("rule \"%s\" is left recursive: it may begin with itself",
                               grammar_.rules()[static_cast<size_t>(rule)].name.c_str());
      }
      if (colour[static_cast<size_t>(callee)] == 0) {
        colour[static_cast<size_t>(callee)] = 1;
        path.push_back({callee, 0});
      }
    }
  }
  return OkStatus();
}

void AutomatonBuilder::MakeSymbols() {
  bool begins[257] = {};
  begins[0] = true;
  for (const Edge& edge : out_->edges_) {
    if (edge.kind != EdgeKind::kBytes) continue;
    begins[edge.first] = true;
    begins[edge.last + 1] = true;
  }
  int32_t symbol = -1;
  for (int byte = 0; byte < 256; ++byte) {
    if (begins[byte]) out_->byte_of_[++symbol] = static_cast<uint8_t>(byte);
    out_->symbol_of_[byte] = static_cast<uint8_t>(symbol);
  }
  out_->byte_symbol_count_ = symbol + 1;
  out_->other_tokens_ = other_tokens_;
  out_->symbol_count_ = out_->byte_symbol_count_ + static_cast<int32_t>(out_->token_ids_.size()) +
                        (other_tokens_ ? 1 : 0);
  // Edges name symbols from here on.
  for (Edge& edge : out_->edges_) {
    if (edge.kind != EdgeKind::kSymbol) continue;
    edge.data = edge.data < 0 ? out_->symbol_count_ - 1 : out_->symbol_of_token(edge.data);
  }
}

Status AutomatonBuilder::Finish() {
  out_.reset(new Automaton());
  const size_t nodes = static_cast<size_t>(node_count_);
  CELLM_RETURN_IF_ERROR(SortEdges());
  CELLM_ASSIGN_OR_RETURN(out_->is_end_, Array<uint8_t>::Zeroed(memory_, nodes, MemoryClass::kOther,
                                                               "states of a constraint"));
  for (const int32_t end : ends_) out_->is_end_[static_cast<size_t>(end)] = 1;
  MarkTails();
  std::sort(token_ids_.begin(), token_ids_.end());
  token_ids_.erase(std::unique(token_ids_.begin(), token_ids_.end()), token_ids_.end());
  CELLM_ASSIGN_OR_RETURN(out_->token_ids_,
                         Array<int32_t>::Zeroed(memory_, token_ids_.size(), MemoryClass::kOther,
                                                "tokens of a constraint"));
  std::copy(token_ids_.begin(), token_ids_.end(), out_->token_ids_.begin());
  MakeSymbols();

  std::vector<uint16_t> needs;
  FindNeeds(true, &needs);
  CELLM_RETURN_IF_ERROR(RefuseLeftRecursion(needs));
  FindNeeds(false, &needs);
  if (needs[static_cast<size_t>(starts_[0])] == Automaton::kNoWay) {
    return InvalidArgument(
        all_bytes_ ? "the constraint allows no text at all: it contradicts itself, never ends, or "
                     "nests deeper than %d rules"
                   : "the constraint allows no text that this vocabulary can spell within %d rules "
                     "of depth",
        limits_.depth);
  }
  CELLM_ASSIGN_OR_RETURN(out_->need_,
                         Array<uint16_t>::Uninitialised(memory_, nodes, MemoryClass::kOther,
                                                        "states of a constraint"));
  std::copy(needs.begin(), needs.end(), out_->need_.begin());
  CELLM_ASSIGN_OR_RETURN(out_->rule_start_,
                         Array<int32_t>::Uninitialised(memory_, starts_.size(), MemoryClass::kOther,
                                                       "rules of a constraint"));
  std::copy(starts_.begin(), starts_.end(), out_->rule_start_.begin());
  out_->start_ = starts_[0];
  out_->max_depth_ = limits_.depth;
  return OkStatus();
}

}  // namespace cellm::constrain
