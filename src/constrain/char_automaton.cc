#include "constrain/char_automaton.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"

namespace cellm::constrain {
namespace {

const char kHex[] = "0123456789abcdef";

}  // namespace

int32_t CharAutomaton::AddState(bool is_final) {
  edges.emplace_back();
  finals.push_back(is_final);
  return static_cast<int32_t>(finals.size() - 1);
}

void CharAutomaton::AddEdge(int32_t from, int32_t to, CodePoints set) {
  if (!set.empty()) edges[static_cast<size_t>(from)].push_back({to, std::move(set)});
}

size_t CharAutomaton::edge_count() const {
  size_t count = 0;
  for (const std::vector<CharEdge>& out : edges) count += out.size();
  return count;
}

bool CharAutomaton::Accepts(std::string_view text) const {
  std::vector<bool> at(finals.size(), false);
  at[0] = true;
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    if (!c.valid) return false;
    text.remove_prefix(c.byte_count);
    std::vector<bool> next(finals.size(), false);
    for (size_t state = 0; state < at.size(); ++state) {
      if (!at[state]) continue;
      for (const CharEdge& edge : edges[state]) {
        if (edge.set.Contains(c.code_point)) next[static_cast<size_t>(edge.target)] = true;
      }
    }
    at = std::move(next);
  }
  for (size_t state = 0; state < at.size(); ++state) {
    if (at[state] && finals[state]) return true;
  }
  return false;
}

CharAutomaton AllTexts(const CodePoints& set) {
  CharAutomaton out;
  out.AddState(true);
  out.AddEdge(0, 0, set);
  return out;
}

CharAutomaton TextsOfLength(int64_t min, int64_t max) {
  CharAutomaton out;
  const int64_t count = max == kUnbounded ? min : max;
  for (int64_t i = 0; i <= count; ++i) out.AddState(i >= min);
  for (int64_t i = 0; i < count; ++i) {
    out.AddEdge(static_cast<int32_t>(i), static_cast<int32_t>(i + 1), CodePoints::Any());
  }
  if (max == kUnbounded) {
    out.AddEdge(static_cast<int32_t>(count), static_cast<int32_t>(count), CodePoints::Any());
  }
  return out;
}

CharAutomaton AllTextsBut(const std::vector<std::string>& texts) {
  CharAutomaton out;
  out.AddState(true);
  // A tree of the texts; whoever leaves it has become another text.
  std::vector<std::map<char32_t, int32_t>> children(1);
  for (std::string_view text : texts) {
    size_t node = 0;
    while (!text.empty()) {
      const Utf8Char c = DecodeUtf8(text);
      text.remove_prefix(c.byte_count);
      const auto found = children[node].find(c.code_point);
      if (found != children[node].end()) {
        node = static_cast<size_t>(found->second);
        continue;
      }
      const int32_t made = out.AddState(true);
      children[node].emplace(c.code_point, made);
      children.emplace_back();
      node = static_cast<size_t>(made);
    }
    out.finals[node] = false;
  }
  const int32_t other = out.AddState(true);
  out.AddEdge(other, other, CodePoints::Any());
  for (size_t node = 0; node < children.size(); ++node) {
    CodePoints rest;
    for (const auto& [c, child] : children[node]) {
      out.AddEdge(static_cast<int32_t>(node), child, CodePoints(c, c));
      rest.Add(c);
    }
    out.AddEdge(static_cast<int32_t>(node), other, rest.Complement());
  }
  return out;
}

CharAutomaton OnlyTexts(const std::vector<std::string>& texts) {
  CharAutomaton out;
  out.AddState(false);
  for (std::string_view text : texts) {
    int32_t at = 0;
    while (!text.empty()) {
      const Utf8Char c = DecodeUtf8(text);
      text.remove_prefix(c.byte_count);
      const int32_t next = out.AddState(false);
      out.AddEdge(at, next, CodePoints(c.code_point, c.code_point));
      at = next;
    }
    out.finals[static_cast<size_t>(at)] = true;
  }
  return out;
}

Result<CharAutomaton> Intersect(const CharAutomaton& a, const CharAutomaton& b) {
  CharAutomaton out;
  std::map<std::pair<int32_t, int32_t>, int32_t> known;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  size_t edge_count = 0;
  size_t range_count = 0;
  const auto state_of = [&](int32_t x, int32_t y) {
    const auto [at, is_new] = known.emplace(std::make_pair(x, y), 0);
    if (is_new) {
      at->second =
          out.AddState(a.finals[static_cast<size_t>(x)] && b.finals[static_cast<size_t>(y)]);
      pairs.emplace_back(x, y);
    }
    return at->second;
  };
  state_of(0, 0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    for (const CharEdge& p : a.edges[static_cast<size_t>(x)]) {
      for (const CharEdge& q : b.edges[static_cast<size_t>(y)]) {
        CodePoints both = p.set.Intersect(q.set);
        if (both.empty()) continue;
        range_count += both.ranges().size();
        if (++edge_count > kMaxCharEdges || range_count > kMaxCharRanges) {
          return OutOfRange(
              "a pattern together with a length or another pattern needs more than "
              "%zu transitions; make the bounds smaller",
              kMaxCharEdges);
        }
        out.AddEdge(static_cast<int32_t>(i), state_of(p.target, q.target), std::move(both));
      }
    }
  }
  return out;
}

// Made deterministic first: a state is a set of states, and between two borders of the sets of its
// edges all characters lead to the same ones.
Result<CharAutomaton> Complement(const CharAutomaton& automaton) {
  CharAutomaton out;
  std::map<std::vector<int32_t>, int32_t> known;
  std::vector<std::vector<int32_t>> subsets;
  size_t range_count = 0;
  const auto state_of = [&](const std::vector<int32_t>& subset) {
    const auto [at, is_new] = known.emplace(subset, 0);
    if (is_new) {
      bool accepts = false;
      for (const int32_t state : subset) accepts |= automaton.finals[static_cast<size_t>(state)];
      at->second = out.AddState(!accepts);
      subsets.push_back(subset);
    }
    return at->second;
  };
  state_of({0});
  struct Border {
    char32_t at;
    int32_t target;
    int change;
  };
  for (size_t i = 0; i < subsets.size(); ++i) {
    std::vector<Border> borders = {{0, 0, 0}, {0x110000, 0, 0}};
    for (const int32_t state : subsets[i]) {
      for (const CharEdge& edge : automaton.edges[static_cast<size_t>(state)]) {
        for (const CodeRange& range : edge.set.ranges()) {
          borders.push_back({range.first, edge.target, 1});
          borders.push_back({range.last + 1, edge.target, -1});
        }
      }
    }
    std::sort(borders.begin(), borders.end(),
              [](const Border& a, const Border& b) { return a.at < b.at; });
    std::map<int32_t, int> open;  // targets of the edges that read the characters from here on
    std::map<std::vector<int32_t>, CodePoints> reads;
    for (size_t k = 0; k + 1 < borders.size(); ++k) {
      open[borders[k].target] += borders[k].change;
      if (borders[k].at == borders[k + 1].at) continue;
      std::vector<int32_t> targets;
      for (const auto& [target, count] : open) {
        if (count > 0) targets.push_back(target);
      }
      reads[targets].Add(borders[k].at, borders[k + 1].at - 1);
    }
    for (auto& [targets, set] : reads) {
      range_count += set.ranges().size() + targets.size();
      if (range_count > kMaxCharRanges) {
        return OutOfRange("a negative lookahead is too large: more than %zu parts", kMaxCharRanges);
      }
      out.AddEdge(static_cast<int32_t>(i), state_of(targets), std::move(set));
    }
  }
  return out;
}

bool Trim(CharAutomaton* automaton) {
  const size_t count = automaton->finals.size();
  std::vector<std::vector<int32_t>> from(count);
  for (size_t state = 0; state < count; ++state) {
    for (const CharEdge& edge : automaton->edges[state]) {
      from[static_cast<size_t>(edge.target)].push_back(static_cast<int32_t>(state));
    }
  }
  std::vector<bool> useful = automaton->finals;
  std::vector<int32_t> pending;
  for (size_t state = 0; state < count; ++state) {
    if (useful[state]) pending.push_back(static_cast<int32_t>(state));
  }
  while (!pending.empty()) {
    const size_t state = static_cast<size_t>(pending.back());
    pending.pop_back();
    for (const int32_t before : from[state]) {
      if (useful[static_cast<size_t>(before)]) continue;
      useful[static_cast<size_t>(before)] = true;
      pending.push_back(before);
    }
  }
  for (size_t state = 0; state < count; ++state) {
    std::erase_if(automaton->edges[state],
                  [&](const CharEdge& edge) { return !useful[static_cast<size_t>(edge.target)]; });
  }
  return useful[0];
}

namespace {

// \uXXXX for everything but surrogates, and surrogates in pairs.
ExprId FreeEscapes(Grammar* grammar) {
  const auto hex = [&](std::string_view digits) { return grammar->Chars(CodePoints::Of(digits)); };
  const ExprId any = hex("0123456789abcdefABCDEF");
  const ExprId surrogate = hex("dD");
  const ExprId single =
      grammar->Alternatives({grammar->Sequence({hex("0123456789abcefABCEF"), any}),
                             grammar->Sequence({surrogate, hex("01234567")})});
  const ExprId pair = grammar->Sequence({surrogate, hex("89abAB"), any, any, grammar->Bytes("\\u"),
                                         surrogate, hex("cdefCDEF"), any, any});
  return grammar->Sequence(
      {grammar->Bytes("\\"),
       grammar->Alternatives(
           {grammar->Chars(CodePoints::Of("\"\\/bfnrt")),
            grammar->Sequence(
                {grammar->Bytes("u"),
                 grammar->Alternatives({grammar->Sequence({single, any, any}), pair})})})});
}

}  // namespace

ExprId SpellChars(const CodePoints& set, Spelling spelling, Grammar* grammar) {
  if (spelling == Spelling::kPlain) return grammar->Chars(set);
  CodePoints escaped(0, 0x1F);
  escaped.Add('"');
  escaped.Add('\\');
  const ExprId plain = grammar->Chars(set.Minus(escaped));
  if (spelling == Spelling::kJsonFree) {
    return grammar->Alternatives({plain, FreeEscapes(grammar)});
  }
  std::vector<std::string> texts;
  const CodePoints special = set.Intersect(escaped);
  for (const CodeRange& range : special.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      const char* const short_forms = "\"\"\\\\\bb\ff\nn\rr\tt";
      std::string text = "\\";
      for (const char* form = short_forms; *form != '\0'; form += 2) {
        if (static_cast<char32_t>(*form) == c) text.push_back(form[1]);
      }
      if (text.size() == 1) {
        text += "u00";
        text.push_back(kHex[c >> 4]);
        text.push_back(kHex[c & 15]);
      }
      texts.push_back(std::move(text));
    }
  }
  if (texts.empty()) return plain;
  return grammar->Alternatives({plain, grammar->Texts(std::move(texts))});
}

ExprId SpellAutomaton(const CharAutomaton& automaton, Spelling spelling, Grammar* grammar) {
  Graph graph;
  graph.node_count = static_cast<int32_t>(automaton.finals.size());
  for (size_t state = 0; state < automaton.edges.size(); ++state) {
    for (const CharEdge& edge : automaton.edges[state]) {
      graph.AddEdge(static_cast<int32_t>(state), edge.target,
                    SpellChars(edge.set, spelling, grammar));
    }
    if (automaton.finals[state]) graph.finals.push_back(static_cast<int32_t>(state));
  }
  return grammar->AddGraph(std::move(graph));
}

}  // namespace cellm::constrain
