#ifndef CELLM_SRC_CONSTRAIN_REGEX_H_
#define CELLM_SRC_CONSTRAIN_REGEX_H_

// Regular expressions, in the part that ECMAScript, Python and RE2 understand alike:
//
//   literals . [sets] [^sets] \d \w \s \D \W \S \t \n \r \f \v \0 \xHH \uHHHH \u{H} \p{Lu} \P{L}
//   (groups) (?:groups) (?<name>groups) (?P<name>groups) | * + ? {m} {m,} {m,n}, lazy or not, ^ $
//   (?=ahead) (?!ahead) at the beginning of the text, behind ^; other lookaround is refused
//
// Refused by name, since a text alone does not say whether they hold, or engines differ:
// lookaround, backreferences, \b and \B, inline flags, atomic groups, possessive quantifiers,
// recursion.
//
// Where engines differ in what a class holds, a text must please them all: \d is 0-9 and \D is what
// no engine takes for a digit, '.' leaves out every line end that any engine leaves out.

#include <string_view>

#include "base/status.h"
#include "constrain/char_automaton.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

enum class RegexUse : uint8_t {
  kWhole,   // the text is what the expression matches
  kSearch,  // the expression matches somewhere in the text, as JSON Schema's "pattern" wants it
};

//   InvalidArgument  it is no regular expression (message: byte and what was expected)
//   Unsupported      it uses one of the things named above
//   OutOfRange       repetitions make it too large
Result<CharAutomaton> CompileRegex(std::string_view pattern, RegexUse use);

// The whole reply matches.
Result<Grammar> RegexGrammar(std::string_view pattern);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_REGEX_H_
