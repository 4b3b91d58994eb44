#ifndef CELLM_SRC_JINJA_PARSER_H_
#define CELLM_SRC_JINJA_PARSER_H_

#include <memory>
#include <string_view>

#include "jinja/ast.h"
#include "jinja/error.h"

namespace cellm::jinja {

// Parses a whole template. Null when it is refused: *error then has kind, message and line.
std::unique_ptr<ParsedTemplate> ParseTemplate(std::string_view source, std::string_view name,
                                              Error* error);

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_PARSER_H_
