#ifndef CELLM_FUZZ_SUPPORT_CONSTRAIN_EXERCISE_H_
#define CELLM_FUZZ_SUPPORT_CONSTRAIN_EXERCISE_H_

// Any text as a constraint: it is refused, or replies follow it to their end and never get stuck,
// within bounded memory and work.

#include <string>
#include <string_view>

#include "constrain/constraint.h"

namespace cellm::fuzz {

// Compiles `text` and, where that works, writes a few replies from a seed that depends on the text.
// Ends the program when a reply gets stuck or memory passes its bound. *reply: the last one that
// was finished; empty when none was.
void ExerciseConstraint(constrain::ConstraintKind kind, std::string_view text, std::string* reply);

}  // namespace cellm::fuzz

#endif  // CELLM_FUZZ_SUPPORT_CONSTRAIN_EXERCISE_H_
