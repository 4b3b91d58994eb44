#ifndef CELLM_SRC_CONSTRAIN_STRUCTURAL_H_
#define CELLM_SRC_CONSTRAIN_STRUCTURAL_H_

// Free text with parts that have a form, as tool calls are written:
//
//   {"triggers": ["<tool_call>"],                       optional
//    "tags": [{"begin": "<tool_call>\n{\"name\": \"f\", \"arguments\": ",
//              "schema": {...},                         optional: any JSON value
//              "end": "}\n</tool_call>"}, ...],
//    "at_least_one": false, "stop_after_first": false}
//
// With triggers the text is free until one of them is written; then it goes on with a tag that
// begins with it, and is free again behind the tag. Without triggers it is made of tags from the
// start, with up to two blanks or line ends between them. at_least_one: the text may not end before
// the first tag is complete. stop_after_first: it ends there.
//
// Where the name of a control token stands in `begin`, `end` or a trigger, the token itself is
// meant as well as its letters: models write [TOOL_CALLS] as one token.

#include <span>
#include <string_view>

#include "base/status.h"
#include "constrain/grammar.h"
#include "constrain/token_trie.h"

namespace cellm::constrain {

// InvalidArgument  not of this form (message: which field); a tag that begins with no trigger.
// Otherwise as JsonSchemaGrammar() for the schemas.
Result<Grammar> StructuralGrammar(std::string_view text,
                                  std::span<const TokenTrie::Control> controls);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_STRUCTURAL_H_
