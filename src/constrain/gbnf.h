#ifndef CELLM_SRC_CONSTRAIN_GBNF_H_
#define CELLM_SRC_CONSTRAIN_GBNF_H_

// GBNF, the grammar notation of llama.cpp:
//
//   root  ::= item ("," ws item)*        # a comment
//   item  ::= "\"" [^"\x00-\x1F]{1,20} "\"" | "nul" "l"? | .
//   ws    ::= [ \t\n]*
//
// Names are letters, digits, '-' and '_'. Characters are code points. Escapes in texts and sets:
// \n \r \t \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH. A repetition counts for the text, set, name or group
// before it: * + ? {m} {m,} {m,n}. A rule ends with its line, except inside of parentheses and
// around '|'. A name that is defined twice means what was said last. The reply is a text of "root".

#include <string_view>

#include "base/status.h"
#include "constrain/grammar.h"

namespace cellm::constrain {

//   InvalidArgument  the notation (message: line and what was expected), a name that is not defined
//   Unsupported      token references <...>      OutOfRange  groups nest too deep
Result<Grammar> GbnfGrammar(std::string_view text);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_GBNF_H_
