// The statement half of the parser: text, {{ print }}, and one function a tag.

#include "jinja/parser.h"

#include <span>

#include "base/utf8.h"
#include "jinja/objects.h"
#include "jinja/parser_state.h"

namespace cellm::jinja {

ParsedTemplate::~ParsedTemplate() {
  body.clear();  // before the constants that it refers to
  for (Object* constant : constants) FreeImmortal(constant);
}

namespace {

using EndNames = std::span<const std::string_view>;

class Parser : public ParserState {
 public:
  using ParserState::ParserState;

  bool Run() {
    // In the order of kSymbolCaller and its followers.
    for (const std::string_view name : {"caller", "loop", "varargs", "kwargs"}) Bind(Symbol(name));
    return ParseBody(&out_->body, {}) && CheckNames();
  }

 private:
  bool ExpectBlockEnd() {
    if (Current().kind == TokenKind::kBlockEnd) {
      Next();
      return true;
    }
    if (Current().kind == TokenKind::kEnd) {
      return Fail("unexpected end of template, expected 'end of statement block'.");
    }
    return Fail("expected token 'end of statement block', got '" + Describe(Current()) + "'");
  }

  // Statements up to a tag named in `ends`, which stays current (its name, not the "{%"). With no
  // `ends`: up to the end of the template.
  bool ParseBody(Body* body, EndNames ends) {
    if (!Enter()) return false;
    for (;;) {
      const Token& token = Current();
      if (token.kind == TokenKind::kEnd) {
        if (!ends.empty()) return FailOpen(ends);
        break;
      }
      if (token.kind == TokenKind::kData) {
        AddText(body);
      } else if (token.kind == TokenKind::kVariableBegin) {
        if (!ParsePrintTag(body)) return false;
      } else {
        Next();  // the "{%"
        bool at_end = false;
        for (const std::string_view end : ends) at_end = at_end || IsNameToken(end);
        if (at_end) break;
        if (!ParseStatement(body) || !ExpectBlockEnd()) return false;
      }
    }
    Leave();
    return true;
  }

  bool FailOpen(EndNames ends) {
    std::string names;
    for (const std::string_view end : ends) {
      names += (names.empty() ? "'" : " or '") + std::string(end) + "'";
    }
    return Fail("Unexpected end of template. Jinja was looking for the following tags: " + names +
                ". The innermost block that needs to be closed is '" + open_tag_ + "'.");
  }

  // A body that ends with the tag `end`, which is consumed up to its "%}".
  bool ParseBodyUntil(Body* body, std::string_view end) {
    const std::string outer = open_tag_;
    open_tag_ = end.substr(3);  // "endfor" -> "for"
    if (!ExpectBlockEnd() || !ParseBody(body, EndNames(&end, 1))) return false;
    open_tag_ = outer;
    Next();
    return true;
  }

  StmtPtr NewStmt(StmtKind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = Current().line;
    return stmt;
  }

  void AddText(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kText);
    stmt->value = MakeString(Text(Current().text, true), nullptr);
    MakeImmortal(stmt->value);
    out_->constants.push_back(stmt->value.object());
    body->push_back(std::move(stmt));
    Next();
  }

  bool ParsePrintTag(Body* body) {
    Next();
    StmtPtr stmt = NewStmt(StmtKind::kPrint);
    stmt->expr = ParseTuple(true, false);
    if (stmt->expr == nullptr) return false;
    if (Current().kind != TokenKind::kVariableEnd) {
      return Fail("expected token 'end of print statement', got '" + Describe(Current()) + "'");
    }
    Next();
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseStatement(Body* body) {
    if (Current().kind != TokenKind::kName) return Fail("tag name expected");
    struct Tag {
      std::string_view name;
      bool (Parser::*parse)(Body*);
    };
    static constexpr Tag kTags[] = {
        {"if", &Parser::ParseIf},
        {"for", &Parser::ParseFor},
        {"set", &Parser::ParseSet},
        {"macro", &Parser::ParseMacro},
        {"call", &Parser::ParseCallBlock},
        {"filter", &Parser::ParseFilterBlock},
        {"with", &Parser::ParseWith},
        {"print", &Parser::ParsePrintStatement},
        {"block", &Parser::ParseBlock},
        {"autoescape", &Parser::ParseAutoescape},
        {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseBreak},
        {"continue", &Parser::ParseContinue},
    };
    for (const Tag& tag : kTags) {
      if (IsNameToken(tag.name)) return (this->*tag.parse)(body);
    }
    const std::string& name = Current().text;
    for (const std::string_view other : {"include", "extends", "import", "from"}) {
      if (name == other) {
        return Fail("the tag '" + name + "' needs other templates; a chat template stands alone");
      }
    }
    return Fail("Encountered unknown tag '" + name + "'.");
  }

  bool ParseIf(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kIf);
    static constexpr std::string_view kEnds[] = {"elif", "else", "endif"};
    const std::string outer = open_tag_;
    open_tag_ = "if";
    while (SkipName("if") || SkipName("elif")) {
      Branch branch;
      branch.condition = ParseTuple(false, false);
      if (branch.condition == nullptr || !ExpectBlockEnd()) return false;
      if (!ParseBody(&branch.body, kEnds)) return false;
      stmt->branches.push_back(std::move(branch));
    }
    open_tag_ = outer;
    if (SkipName("else")) {
      Branch branch;
      if (!ParseBodyUntil(&branch.body, "endif")) return false;
      stmt->branches.push_back(std::move(branch));
    } else {
      Next();  // endif
    }
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseFor(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kFor);
    Next();
    if (!ParseTarget(&stmt->target, false)) return false;
    if (!SkipName("in")) {
      return Fail("expected token 'in', got '" + Describe(Current()) + "'");
    }
    stmt->expr = ParseIterable();
    if (stmt->expr == nullptr) return false;
    if (SkipName("if")) {
      stmt->condition = ParseExpression();
      if (stmt->condition == nullptr) return false;
    }
    stmt->recursive = SkipName("recursive");
    static constexpr std::string_view kEnds[] = {"endfor", "else"};
    const std::string outer = open_tag_;
    open_tag_ = "for";
    if (!ExpectBlockEnd()) return false;
    ++loop_depth_;
    if (!ParseBody(&stmt->body, kEnds)) return false;
    --loop_depth_;
    open_tag_ = outer;
    if (SkipName("else")) {
      if (!ParseBodyUntil(&stmt->otherwise, "endfor")) return false;
    } else {
      Next();  // endfor
    }
    body->push_back(std::move(stmt));
    return true;
  }

  // What a loop runs over: "a, b, c" is a tuple; "recursive" ends it.
  ExprPtr ParseIterable() {
    ExprPtr first = ParseExpression(false);
    if (first == nullptr || !IsOperator(",")) return first;
    ExprPtr tuple = NewExpr(ExprKind::kTuple, first->line);
    tuple->items.push_back(std::move(first));
    while (SkipOperator(",")) {
      if (Current().kind == TokenKind::kBlockEnd || IsNameToken("recursive")) break;
      tuple->items.push_back(ParseExpression(false));
      if (tuple->items.back() == nullptr) return nullptr;
    }
    return Finish(std::move(tuple));
  }

  bool ParseTargetName(uint32_t* symbol) {
    if (Current().kind != TokenKind::kName) {
      return Fail("expected token 'name', got '" + Describe(Current()) + "'");
    }
    const std::string& name = Current().text;
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name == reserved) return Fail("can't assign to 'const'");
    }
    *symbol = Symbol(name);
    Bind(*symbol);
    Next();
    return true;
  }

  bool ParseTargetItem(Target* target, bool with_namespace) {
    if (SkipOperator("(")) {
      if (!Enter()) return false;
      const bool good = ParseTarget(target, false) && ExpectOperator(")");
      Leave();
      return good;
    }
    if (with_namespace && Ahead().kind == TokenKind::kOperator && Ahead().text == ".") {
      if (Current().kind != TokenKind::kName) return Fail("expected token 'name'");
      target->kind = Target::Kind::kNamespace;
      target->symbol = Symbol(Current().text);
      Next();
      Next();
      if (Current().kind != TokenKind::kName) {
        return Fail("expected token 'name', got '" + Describe(Current()) + "'");
      }
      target->attribute = Current().text;
      Next();
      return true;
    }
    if (Current().kind != TokenKind::kName) {
      return Current().kind == TokenKind::kBlockEnd
                 ? Fail("Expected an expression, got 'end of statement block'")
                 : Fail("can't assign to '" + Describe(Current()) + "'");
    }
    return ParseTargetName(&target->symbol);
  }

  bool ParseTarget(Target* target, bool with_namespace) {
    if (!ParseTargetItem(target, with_namespace)) return false;
    if (!IsOperator(",")) return true;
    Target tuple;
    tuple.kind = Target::Kind::kTuple;
    tuple.items.push_back(std::move(*target));
    while (SkipOperator(",")) {
      if (IsOperator(")")) break;
      tuple.items.emplace_back();
      if (!ParseTargetItem(&tuple.items.back(), with_namespace)) return false;
    }
    *target = std::move(tuple);
    return true;
  }

  bool ParseSet(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kSet);
    Next();
    if (!ParseTarget(&stmt->target, true)) return false;
    if (SkipOperator("=")) {
      stmt->expr = ParseTuple(true, false);
      if (stmt->expr == nullptr) return false;
    } else {
      stmt->kind = StmtKind::kSetBlock;
      if (SkipOperator("|")) {
        stmt->filter = ParseFilterChain(nullptr, true);
        if (stmt->filter == nullptr) return false;
      }
      if (!ParseBodyUntil(&stmt->body, "endset")) return false;
    }
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseSignature(Stmt* stmt) {
    if (!ExpectOperator("(")) return false;
    while (!IsOperator(")")) {
      if (!stmt->parameters.empty() && !ExpectOperator(",")) return false;
      uint32_t symbol = 0;
      if (!ParseTargetName(&symbol)) return false;
      for (const uint32_t other : stmt->parameters) {
        if (other == symbol) {
          return Fail("duplicate argument '" + out_->symbols[symbol] + "' in macro definition");
        }
      }
      if (SkipOperator("=")) {
        stmt->defaults.push_back(ParseExpression());
        if (stmt->defaults.back() == nullptr) return false;
      } else if (!stmt->defaults.empty()) {
        return Fail("non-default argument follows default argument");
      }
      stmt->parameters.push_back(symbol);
    }
    Next();
    return true;
  }

  // The body of something callable: no "break" out of it, and what it mentions of the special
  // names decides which arguments it takes.
  bool ParseCallableBody(Stmt* stmt, std::string_view end) {
    const int loops = loop_depth_;
    const int varargs = varargs_mentions_;
    const int kwargs = kwargs_mentions_;
    const int caller = caller_mentions_;
    loop_depth_ = 0;
    if (!ParseBodyUntil(&stmt->body, end)) return false;
    loop_depth_ = loops;
    stmt->uses_varargs = varargs_mentions_ > varargs;
    stmt->uses_kwargs = kwargs_mentions_ > kwargs;
    stmt->uses_caller = caller_mentions_ > caller;
    return true;
  }

  bool ParseMacro(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kMacro);
    Next();
    if (!ParseTargetName(&stmt->symbol) || !ParseSignature(stmt.get())) return false;
    if (!ParseCallableBody(stmt.get(), "endmacro")) return false;
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseCallBlock(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kCallBlock);
    Next();
    if (IsOperator("(") && !ParseSignature(stmt.get())) return false;
    stmt->symbol = kSymbolCaller;
    stmt->expr = ParseExpression();
    if (stmt->expr == nullptr) return false;
    if (stmt->expr->kind != ExprKind::kCall) return Fail("expected call", stmt->line);
    if (!ParseCallableBody(stmt.get(), "endcall")) return false;
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseFilterBlock(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kFilterBlock);
    Next();
    stmt->filter = ParseFilterChain(nullptr, true);
    if (stmt->filter == nullptr || !ParseBodyUntil(&stmt->body, "endfilter")) return false;
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseWith(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kWith);
    Next();
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!stmt->targets.empty() && !ExpectOperator(",")) return false;
      stmt->targets.emplace_back();
      if (!ParseTargetItem(&stmt->targets.back(), false) || !ExpectOperator("=")) return false;
      stmt->values.push_back(ParseExpression());
      if (stmt->values.back() == nullptr) return false;
    }
    if (!ParseBodyUntil(&stmt->body, "endwith")) return false;
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParsePrintStatement(Body* body) {
    Next();
    bool first = true;
    while (Current().kind != TokenKind::kBlockEnd) {
      if (!first && !ExpectOperator(",")) return false;
      first = false;
      StmtPtr stmt = NewStmt(StmtKind::kPrint);
      stmt->expr = ParseExpression();
      if (stmt->expr == nullptr) return false;
      body->push_back(std::move(stmt));
    }
    return true;
  }

  bool ParseBlock(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kRootBlock);
    Next();
    if (Current().kind != TokenKind::kName) {
      return Fail("expected token 'name', got '" + Describe(Current()) + "'");
    }
    const std::string name = Current().text;
    Next();
    if (SkipName("scoped")) stmt->kind = StmtKind::kScopeBlock;
    SkipName("required");
    const int loops = loop_depth_;
    loop_depth_ = 0;
    if (!ParseBodyUntil(&stmt->body, "endblock")) return false;
    loop_depth_ = loops;
    SkipName(name);  // {% endblock name %}
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseAutoescape(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kAutoescape);
    Next();
    stmt->expr = ParseExpression();
    if (stmt->expr == nullptr || !ParseBodyUntil(&stmt->body, "endautoescape")) return false;
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseGeneration(Body* body) {
    StmtPtr stmt = NewStmt(StmtKind::kScopeBlock);
    Next();
    if (!ParseCallableBody(stmt.get(), "endgeneration")) return false;
    body->push_back(std::move(stmt));
    return true;
  }

  bool ParseLoopControl(Body* body, StmtKind kind) {
    if (loop_depth_ == 0) return Fail("'" + Current().text + "' outside loop");
    body->push_back(NewStmt(kind));
    Next();
    return true;
  }
  bool ParseBreak(Body* body) { return ParseLoopControl(body, StmtKind::kBreak); }
  bool ParseContinue(Body* body) { return ParseLoopControl(body, StmtKind::kContinue); }

  std::string open_tag_;
  int loop_depth_ = 0;
};

}  // namespace

std::unique_ptr<ParsedTemplate> ParseTemplate(std::string_view source, std::string_view name,
                                              Error* error) {
  *error = Error();
  auto parsed = std::make_unique<ParsedTemplate>();
  parsed->name = name;
  std::vector<Token> tokens;
  SyntaxError syntax;
  if (!IsValidUtf8(source)) {
    *error = {ErrorKind::kTemplateSyntaxError, "the template is not UTF-8", 0};
    return nullptr;
  }
  if (!Tokenize(source, &tokens, &syntax)) {
    *error = {ErrorKind::kTemplateSyntaxError, syntax.message, syntax.line};
    return nullptr;
  }
  Parser parser(parsed.get(), std::move(tokens), error);
  if (!parser.Run()) return nullptr;
  return parsed;
}

}  // namespace cellm::jinja
