#ifndef CELLM_SRC_CONSTRAIN_JSON_SCHEMA_H_
#define CELLM_SRC_CONSTRAIN_JSON_SCHEMA_H_

// JSON schemas as grammars: every text of the grammar is JSON that the schema accepts.
//
// The grammar may allow less than the schema does (docs/constrained-output.md says where: white
// space, key order, properties that nobody named), never more. What cannot be ensured is refused
// with the keyword and its place.

#include <string_view>

#include "base/status.h"
#include "constrain/grammar.h"
#include "json/json.h"

namespace cellm::constrain {

//   InvalidArgument  no JSON, no schema, or one that accepts nothing (message: where)
//   Unsupported      a keyword that cannot be ensured               OutOfRange  too large
Result<Grammar> JsonSchemaGrammar(std::string_view text);

// The values of a schema inside of another document, as an expression of `grammar`. `root` is what
// "$ref" starts from. A missing schema: any value.
Result<ExprId> AddJsonSchema(json::Value root, json::Value schema, Grammar* grammar);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_JSON_SCHEMA_H_
