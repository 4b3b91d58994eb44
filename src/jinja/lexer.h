#ifndef CELLM_SRC_JINJA_LEXER_H_
#define CELLM_SRC_JINJA_LEXER_H_

// Cuts a template into tokens, with the settings of chat templates: trim_blocks (one newline after
// a block or comment goes), lstrip_blocks (blanks before a block or comment that starts a line go),
// the final newline goes, "\r\n" and "\r" become "\n".

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cellm::jinja {

enum class TokenKind {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,   // text: the unescaped value
  kInteger,  // text: the digits with their prefix, without underscores
  kFloat,
  kOperator,  // text: the operator
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;
};

// What is wrong, and where. `kind` of the error is always TemplateSyntaxError.
struct SyntaxError {
  std::string message;
  int line = 0;
};

// False when the source is not a template: *error says why. The last token is kEnd.
bool Tokenize(std::string_view source, std::vector<Token>* tokens, SyntaxError* error);

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_LEXER_H_
