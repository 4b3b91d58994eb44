#ifndef CELLM_SRC_CONSTRAIN_SCHEMA_COMPILER_H_
#define CELLM_SRC_CONSTRAIN_SCHEMA_COMPILER_H_

// From JSON schema to grammar. Each set of schemas that hold at the same time becomes one rule, so
// that recursive schemas become recursive rules:
//
//   schema --Flatten--> members --one alternative of anyOf/oneOf chosen--> members
//          --by type--> null | true, false | number | string | array | object
//
// "Impossible" below means: the schemas that hold accept no value. Within anyOf and oneOf such an
// alternative is left out; anywhere else it is an error that names the place.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "constrain/char_automaton.h"
#include "constrain/grammar.h"
#include "constrain/json_numbers.h"
#include "constrain/schema_document.h"
#include "json/json.h"

namespace cellm::constrain {

class SchemaCompiler {
 public:
  SchemaCompiler(json::Value root, Grammar* grammar);
  Result<ExprId> Compile(json::Value schema, const std::string& where);

 private:
  // What an object's properties are.
  struct Property {
    std::string name;
    std::vector<json::Value> schemas;  // all of them hold
    bool required = false;
    bool forbidden = false;
  };
  struct ObjectShape {
    std::vector<Property> properties;
    std::vector<json::Value> others;  // hold for properties that are not named
    bool has_others = false;
    std::string_view pattern;  // of the other names; empty: any
    std::vector<json::Value> names;
    int64_t min = 0, max = kUnbounded;
  };

  Status Impossible(const std::string& where, const char* why);
  Result<ExprId> CompileAll(const std::vector<json::Value>& schemas, const std::string& where);
  Result<ExprId> CompileMembers(Members members, const std::string& where);
  Result<ExprId> Body(const Members& members, const std::string& where);
  Result<ExprId> Choice(const Members& members, size_t index, bool one_of,
                        const std::string& where);
  Result<ExprId> Listed(const Members& members, const std::string& where);
  Result<ExprId> ByType(const Members& members, const std::string& where);
  Result<uint32_t> ImpliedTypes(const Members& members, const std::string& where) const;

  Result<ExprId> Number(const Members& members, bool integer, const std::string& where);
  Result<ExprId> String(const Members& members, const std::string& where);
  // The strings that members allow, "enum" and "const" included; *free when all are.
  Result<CharAutomaton> StringLanguage(const Members& members, const std::string& where,
                                       int64_t* min, int64_t* max, bool* free);
  Result<ExprId> ArrayValue(const Members& members, const std::string& where);
  Result<ExprId> UniqueItems(json::Value items, int64_t min, int64_t max, const std::string& where);
  Result<ExprId> ObjectValue(const Members& members, const std::string& where);
  Status ReadShape(const Members& members, const std::string& where, ObjectShape* shape);
  Status ReadOthers(const Members& members, const std::string& where, ObjectShape* shape);
  Result<ExprId> OtherName(const ObjectShape& shape, const std::string& where);
  Result<ExprId> WriteObject(const ObjectShape& shape, const std::string& where);

  // True when no value that the grammar makes for `a` is accepted by `b`.
  Result<bool> ToldApart(const Members& a, const Members& b, const std::string& where, int depth);
  Result<bool> ObjectsToldApart(const Members& a, const Members& b, const std::string& where,
                                int depth);

  // White space inside of containers, and behind a colon.
  ExprId Space();
  ExprId ColonSpace() { return colon_space_; }
  ExprId AnyString();
  Result<ExprId> AnyValue();

  SchemaDocument document_;
  Grammar* grammar_;
  std::map<std::vector<std::pair<uint64_t, int>>, RuleId> rules_;  // by members
  int depth_ = 0;
  bool impossible_ = false;  // why the last error was one
  RuleId space_ = -1;
  RuleId any_string_ = -1;
  RuleId any_value_ = -1;
  ExprId colon_space_ = -1;
};

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_SCHEMA_COMPILER_H_
