#ifndef CELLM_SRC_CONSTRAIN_CHAR_AUTOMATON_H_
#define CELLM_SRC_CONSTRAIN_CHAR_AUTOMATON_H_

// Small automata over characters, for what must hold at the same time: a pattern and a length, two
// patterns, a key that is none of several.
//
// Each edge reads one character of a set; there are no others. State 0 is the start.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "constrain/code_points.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

struct CharEdge {
  int32_t target = 0;
  CodePoints set;
};

struct CharAutomaton {
  std::vector<std::vector<CharEdge>> edges;  // of each state
  std::vector<bool> finals;

  int32_t AddState(bool is_final);
  void AddEdge(int32_t from, int32_t to, CodePoints set);
  size_t edge_count() const;
  // True when it accepts `text` (UTF-8).
  bool Accepts(std::string_view text) const;
};

// Edges of one automaton, and ranges of all its sets, beyond which a pattern is refused as too
// large: about 10 MB each.
inline constexpr size_t kMaxCharEdges = 100'000;
inline constexpr size_t kMaxCharRanges = 1'000'000;

// Every text over `set`.
CharAutomaton AllTexts(const CodePoints& set);
// Texts of min to max characters; max may be kUnbounded.
CharAutomaton TextsOfLength(int64_t min, int64_t max);
// Every text but these.
CharAutomaton AllTextsBut(const std::vector<std::string>& texts);
// These texts and no others.
CharAutomaton OnlyTexts(const std::vector<std::string>& texts);
// Texts that both accept. OutOfRange: too large.
Result<CharAutomaton> Intersect(const CharAutomaton& a, const CharAutomaton& b);
// Texts that it does not accept. OutOfRange: too large.
Result<CharAutomaton> Complement(const CharAutomaton& automaton);
// States from which no final state is reached are gone; false when nothing is left.
bool Trim(CharAutomaton* automaton);

// How one character set is written: as it is, or inside a JSON string.
enum class Spelling : uint8_t {
  kPlain,
  kJson,      // '"', '\' and control characters with a backslash, all others as they are
  kJsonFree,  // further: \/ and \uXXXX are understood, too, with surrogates in pairs only. Only for
              // sets that do not tell these characters apart (all characters)
};
ExprId SpellChars(const CodePoints& set, Spelling spelling, Grammar* grammar);
// The automaton as an expression.
ExprId SpellAutomaton(const CharAutomaton& automaton, Spelling spelling, Grammar* grammar);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_CHAR_AUTOMATON_H_
