#ifndef CELLM_SRC_CONSTRAIN_CHOICES_H_
#define CELLM_SRC_CONSTRAIN_CHOICES_H_

#include <string_view>

#include "base/status.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

// One of several texts: `text` is a JSON array of strings. InvalidArgument: something else, or an
// empty list.
Result<Grammar> ChoicesGrammar(std::string_view text);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_CHOICES_H_
