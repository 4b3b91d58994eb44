#ifndef CELLM_SRC_JINJA_PARSER_STATE_H_
#define CELLM_SRC_JINJA_PARSER_STATE_H_

// What the two halves of the parser (statements in parser.cc, expressions in parse_expression.cc)
// share: the token stream, the symbol table and the first error.
//
// Functions return null (or false) after Fail(); callers pass that on at once.

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "jinja/ast.h"
#include "jinja/error.h"
#include "jinja/lexer.h"

namespace cellm::jinja {

class ParserState {
 public:
  ParserState(ParsedTemplate* out, std::vector<Token> tokens, Error* error)
      : out_(out), tokens_(std::move(tokens)), error_(error) {}

  // ---- Expressions ----
  ExprPtr ParseExpression(bool with_conditional = true);
  // One expression, or a tuple when commas follow. Empty only with `explicit_parentheses`.
  ExprPtr ParseTuple(bool with_conditional, bool explicit_parentheses);
  // "name(args)|name ..." after a "|" that is already consumed; `input` may be null.
  ExprPtr ParseFilterChain(ExprPtr input, bool start_inline);

 protected:
  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool IsOperator(std::string_view op) const {
    return Current().kind == TokenKind::kOperator && Current().text == op;
  }
  bool IsNameToken(std::string_view name) const {
    return Current().kind == TokenKind::kName && Current().text == name;
  }
  bool SkipOperator(std::string_view op) {
    if (!IsOperator(op)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!IsNameToken(name)) return false;
    Next();
    return true;
  }
  bool ExpectOperator(std::string_view op);
  // Keeps the first error. Always false.
  bool Fail(std::string message, int line = 0, ErrorKind kind = ErrorKind::kTemplateSyntaxError);
  bool FailUnexpected() { return Fail("unexpected '" + Describe(Current()) + "'"); }
  static std::string Describe(const Token& token);
  uint32_t Symbol(std::string_view name);
  ExprPtr NewExpr(ExprKind kind, int line) const;
  // Sets the depth from the children; null when the tree is too deep.
  ExprPtr Finish(ExprPtr expr);
  // Parsing recurses at most this deep.
  bool Enter();
  void Leave() { --nesting_; }

  // Names that the template gives a value to somewhere, and those that it calls or only mentions.
  void Bind(uint32_t symbol) { bound_.insert(symbol); }
  bool CheckNames();

  ParsedTemplate* out_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  Error* error_;
  // How often the special names of macros were mentioned so far: a macro whose body raises a count
  // accepts that kind of argument.
  int varargs_mentions_ = 0;
  int kwargs_mentions_ = 0;
  int caller_mentions_ = 0;

 private:
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  ExprPtr ParseStrings();
  ExprPtr ParseNumber();
  ExprPtr ParseListLiteral();
  ExprPtr ParseDictLiteral();
  ExprPtr ParsePostfix(ExprPtr input);
  ExprPtr ParseAttribute(ExprPtr input);
  ExprPtr ParseSubscript(ExprPtr input);
  ExprPtr ParseSubscriptPart(ExprPtr input, bool* is_slice);
  ExprPtr ParseCall(ExprPtr callee);
  ExprPtr ParseFilterTail(ExprPtr input);
  ExprPtr ParseTest(ExprPtr input);
  bool ParseArguments(std::vector<Argument>* args);
  bool ParseDottedName(std::string* name);
  ExprPtr BinaryChain(ExprPtr (ParserState::*operand)(),
                      std::initializer_list<std::pair<std::string_view, Op>> ops);
  ExprPtr Constant(Value value, int line);
  bool AtTupleEnd() const;

  struct Unknown {
    std::string message;
    int line;
  };
  struct Mention {
    uint32_t symbol;
    int line;
  };
  std::unordered_map<std::string, uint32_t> symbol_numbers_;
  std::vector<Unknown> unknown_;  // filters and tests that nobody defines
  bool asks_for_names_ = false;   // an "is filter" or "is test" guard was seen
  std::vector<Mention> calls_;    // of plain names
  std::set<uint32_t> mentioned_;  // other than called
  std::set<uint32_t> bound_;
  int nesting_ = 0;
};

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_PARSER_STATE_H_
