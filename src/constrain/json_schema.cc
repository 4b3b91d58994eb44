#include "constrain/json_schema.h"

#include <algorithm>
#include <memory>

#include "constrain/json_formats.h"
#include "constrain/regex.h"
#include "constrain/schema_compiler.h"

namespace cellm::constrain {
namespace {

constexpr int kMaxCompileDepth = 200;
constexpr size_t kMaxRules = 20'000;
constexpr size_t kMaxGrammarSize = 2'000'000;
// Spaces and tabs after a line break.
constexpr int32_t kMaxIndent = 20;

}  // namespace

SchemaCompiler::SchemaCompiler(json::Value root, Grammar* grammar)
    : document_(root), grammar_(grammar) {
  colon_space_ = grammar->Optional(grammar->Bytes(" "));
}

Status SchemaCompiler::Impossible(const std::string& where, const char* why) {
  impossible_ = true;
  return InvalidArgument("%s: %s: no value is possible", where.c_str(), why);
}

ExprId SchemaCompiler::Space() {
  if (space_ < 0) {
    space_ = grammar_->AddRule("white space");
    const ExprId indent = grammar_->Repeat(grammar_->Chars(CodePoints::Of(" \t")), 0, kMaxIndent);
    grammar_->SetRule(
        space_, grammar_->Alternatives({grammar_->Empty(), grammar_->Bytes(" "),
                                        grammar_->Sequence({grammar_->Bytes("\n"), indent})}));
  }
  return grammar_->UseRule(space_);
}

ExprId SchemaCompiler::AnyString() {
  if (any_string_ < 0) {
    any_string_ = grammar_->AddRule("any string");
    const ExprId c = SpellChars(CodePoints::Any(), Spelling::kJsonFree, grammar_);
    grammar_->SetRule(any_string_,
                      grammar_->Sequence({grammar_->Bytes("\""), grammar_->Repeat(c, 0, kUnbounded),
                                          grammar_->Bytes("\"")}));
  }
  return grammar_->UseRule(any_string_);
}

Result<ExprId> SchemaCompiler::AnyValue() {
  if (any_value_ >= 0) return grammar_->UseRule(any_value_);
  any_value_ = grammar_->AddRule("any value");
  CELLM_ASSIGN_OR_RETURN(const ExprId number, NumberExpr(NumberBounds(), grammar_));
  const ExprId value = grammar_->UseRule(any_value_);
  const ExprId next = grammar_->Sequence({grammar_->Bytes(","), Space()});
  const auto list = [&](const char* open, ExprId item, const char* close) {
    const ExprId more = grammar_->Repeat(grammar_->Sequence({next, item}), 0, kUnbounded);
    const ExprId some = grammar_->Sequence({Space(), item, more, Space()});
    return grammar_->Sequence(
        {grammar_->Bytes(open), grammar_->Optional(some), grammar_->Bytes(close)});
  };
  const ExprId member =
      grammar_->Sequence({AnyString(), grammar_->Bytes(":"), ColonSpace(), value});
  grammar_->SetRule(any_value_, grammar_->Alternatives({grammar_->Texts({"null", "true", "false"}),
                                                        number, AnyString(), list("[", value, "]"),
                                                        list("{", member, "}")}));
  return grammar_->UseRule(any_value_);
}

Result<ExprId> SchemaCompiler::Compile(json::Value schema, const std::string& where) {
  if (!schema.exists()) return AnyValue();
  return CompileAll({schema}, where);
}

Result<ExprId> SchemaCompiler::CompileAll(const std::vector<json::Value>& schemas,
                                          const std::string& where) {
  Members members;
  bool never = false;
  for (const json::Value schema : schemas) {
    CELLM_RETURN_IF_ERROR(document_.Flatten(schema, where, &members, &never));
  }
  if (never) return Impossible(where, "the schema is false");
  return CompileMembers(std::move(members), where);
}

Result<ExprId> SchemaCompiler::CompileMembers(Members members, const std::string& where) {
  std::vector<std::pair<uint64_t, int>> key;
  for (const Member& member : members) {
    key.emplace_back(member.key, (member.without_any_of ? 1 : 0) + (member.without_one_of ? 2 : 0));
  }
  std::sort(key.begin(), key.end());
  const auto known = rules_.find(key);
  if (known != rules_.end()) return grammar_->UseRule(known->second);
  if (rules_.size() >= kMaxRules || grammar_->size() >= kMaxGrammarSize) {
    return OutOfRange("%s: the schema is too large: more than %zu rules or %zu parts",
                      where.c_str(), kMaxRules, kMaxGrammarSize);
  }
  if (depth_ >= kMaxCompileDepth) {
    return OutOfRange("%s: the schema nests deeper than %d", where.c_str(), kMaxCompileDepth);
  }
  const RuleId rule = grammar_->AddRule(where);
  rules_.emplace(key, rule);
  ++depth_;
  Result<ExprId> body = Body(members, where);
  --depth_;
  // A rule of an alternative that is left out must still say something.
  grammar_->SetRule(rule, body.ok() ? body.value() : grammar_->Never());
  if (!body.ok()) {
    rules_.erase(key);  // whoever asks again is to hear why
    return body.status();
  }
  return grammar_->UseRule(rule);
}

Result<ExprId> SchemaCompiler::Body(const Members& members, const std::string& where) {
  for (size_t i = 0; i < members.size(); ++i) {
    const json::Value schema = members[i].schema;
    if (!members[i].without_any_of && schema.Find("anyOf").exists()) {
      return Choice(members, i, false, where);
    }
    if (!members[i].without_one_of && schema.Find("oneOf").exists()) {
      return Choice(members, i, true, where);
    }
  }
  for (const Member& member : members) {
    if (member.schema.Find("enum").exists() || member.schema.Find("const").exists()) {
      return Listed(members, where);
    }
  }
  return ByType(members, where);
}

// One of the alternatives of a member, together with everything else that holds.
Result<ExprId> SchemaCompiler::Choice(const Members& members, size_t index, bool one_of,
                                      const std::string& where) {
  const char* const keyword = one_of ? "oneOf" : "anyOf";
  const json::Value list = members[index].schema.Find(keyword);
  if (!list.is_array() || list.size() == 0) {
    return InvalidArgument("%s: \"%s\" must be a list of schemas, not empty", where.c_str(),
                           keyword);
  }
  Members rest = members;
  (one_of ? rest[index].without_one_of : rest[index].without_any_of) = true;
  std::vector<ExprId> choices;
  std::vector<Members> possible;
  std::vector<size_t> numbers;
  Status first_failure;
  size_t number = 0;
  for (json::Value alternative = list.First(); alternative.exists();
       alternative = list.Next(alternative), ++number) {
    const std::string place = where + "/" + keyword + "/" + std::to_string(number);
    Members together = rest;
    bool never = false;
    const Status flat = document_.Flatten(alternative, place, &together, &never);
    impossible_ = false;
    const Result<ExprId> expr = !flat.ok() ? Result<ExprId>(flat)
                                : never    ? Impossible(place, "the schema is false")
                                           : CompileMembers(together, place);
    if (!expr.ok()) {
      // Without an alternative of anyOf there is less to say and nothing wrong.
      const bool left_out =
          impossible_ || (!one_of && expr.status().code() == StatusCode::kUnsupported);
      if (!left_out) return expr.status();
      if (first_failure.ok()) first_failure = expr.status();
      continue;
    }
    choices.push_back(expr.value());
    possible.push_back(std::move(together));
    numbers.push_back(number);
  }
  if (choices.empty()) {
    impossible_ = first_failure.code() == StatusCode::kInvalidArgument;
    return first_failure;
  }
  for (size_t i = 0; one_of && i < possible.size(); ++i) {
    for (size_t k = 0; k < possible.size(); ++k) {
      if (i == k) continue;
      CELLM_ASSIGN_OR_RETURN(const bool apart, ToldApart(possible[i], possible[k], where, 0));
      if (apart) continue;
      return Unsupported(
          "%s: \"oneOf\": a value of alternative %zu might also be one of alternative %zu; give "
          "both a required property with a \"const\" of its own, or use \"anyOf\"",
          where.c_str(), numbers[i], numbers[k]);
    }
  }
  return grammar_->Alternatives(std::move(choices));
}

// "enum" and "const": the values that everything else accepts, too.
Result<ExprId> SchemaCompiler::Listed(const Members& members, const std::string& where) {
  std::vector<json::Value> values;
  bool found = false;
  for (const Member& member : members) {
    const json::Value list = member.schema.Find("enum");
    const json::Value constant = member.schema.Find("const");
    if (list.exists() && (!list.is_array() || list.size() == 0)) {
      return Impossible(where, "\"enum\" must be a list of values, not empty");
    }
    if (found || (!list.exists() && !constant.exists())) continue;
    found = true;
    if (constant.exists()) {
      values.push_back(constant);
      continue;
    }
    for (json::Value item = list.First(); item.exists(); item = list.Next(item)) {
      values.push_back(item);
    }
  }
  std::vector<std::string> texts;
  for (const json::Value value : values) {
    bool good = true;
    for (const Member& member : members) {
      const Result<bool> accepts = document_.MemberAccepts(member, value, 0);
      if (!accepts.ok()) return Status(accepts.status()).WithContext(where);
      good &= accepts.value();
    }
    double number = 0;
    if (value.is_number() && value.GetDouble(&number) && number - number != 0) {
      return InvalidArgument("%s: a value of \"enum\" or \"const\" is not finite", where.c_str());
    }
    if (good) texts.push_back(json::Serialize(value));
  }
  if (texts.empty()) {
    return Impossible(where, "no value of \"enum\" or \"const\" is accepted by the other keywords");
  }
  return grammar_->Texts(std::move(texts));
}

// Types that the keywords speak about, when no "type" says so. Values of other types are accepted
// as well, but nobody who writes "properties" is waiting for a number.
Result<uint32_t> SchemaCompiler::ImpliedTypes(const Members& members,
                                              const std::string& where) const {
  CELLM_ASSIGN_OR_RETURN(const uint32_t types, document_.Types(members, where));
  struct Implied {
    const char* keyword;
    uint32_t type;
  };
  constexpr Implied kImplied[] = {{"properties", kTypeObject},
                                  {"required", kTypeObject},
                                  {"additionalProperties", kTypeObject},
                                  {"patternProperties", kTypeObject},
                                  {"propertyNames", kTypeObject},
                                  {"minProperties", kTypeObject},
                                  {"maxProperties", kTypeObject},
                                  {"items", kTypeArray},
                                  {"prefixItems", kTypeArray},
                                  {"minItems", kTypeArray},
                                  {"maxItems", kTypeArray},
                                  {"uniqueItems", kTypeArray},
                                  {"minLength", kTypeString},
                                  {"maxLength", kTypeString},
                                  {"pattern", kTypeString},
                                  {"format", kTypeString},
                                  {"minimum", kTypeInteger | kTypeFraction},
                                  {"maximum", kTypeInteger | kTypeFraction},
                                  {"exclusiveMinimum", kTypeInteger | kTypeFraction},
                                  {"exclusiveMaximum", kTypeInteger | kTypeFraction},
                                  {"multipleOf", kTypeInteger | kTypeFraction}};
  uint32_t implied = 0;
  for (const Member& member : members) {
    if (member.schema.Find("type").exists()) return types;
    for (const Implied& row : kImplied) {
      if (member.schema.Find(row.keyword).exists()) implied |= row.type;
    }
  }
  return implied == 0 ? types : types & implied;
}

Result<ExprId> SchemaCompiler::ByType(const Members& members, const std::string& where) {
  CELLM_ASSIGN_OR_RETURN(const uint32_t types, ImpliedTypes(members, where));
  if (types == 0) return Impossible(where, "the types contradict each other");
  if (types == kAllTypes) return AnyValue();
  std::vector<ExprId> choices;
  Status first_failure;
  const auto add = [&](Result<ExprId> expr) -> Status {
    if (expr.ok()) {
      choices.push_back(expr.value());
    } else if (!impossible_) {
      return expr.status();
    } else if (first_failure.ok()) {
      first_failure = expr.status();
    }
    return OkStatus();
  };
  impossible_ = false;
  if ((types & kTypeNull) != 0) choices.push_back(grammar_->Bytes("null"));
  if ((types & kTypeBool) != 0) choices.push_back(grammar_->Texts({"true", "false"}));
  if ((types & (kTypeInteger | kTypeFraction)) != 0) {
    CELLM_RETURN_IF_ERROR(add(Number(members, (types & kTypeFraction) == 0, where)));
  }
  if ((types & kTypeString) != 0) CELLM_RETURN_IF_ERROR(add(String(members, where)));
  if ((types & kTypeArray) != 0) CELLM_RETURN_IF_ERROR(add(ArrayValue(members, where)));
  if ((types & kTypeObject) != 0) CELLM_RETURN_IF_ERROR(add(ObjectValue(members, where)));
  if (choices.empty()) {
    impossible_ = true;
    return first_failure;
  }
  impossible_ = false;
  return grammar_->Alternatives(std::move(choices));
}

Result<ExprId> SchemaCompiler::Number(const Members& members, bool integer,
                                      const std::string& where) {
  NumberBounds bounds;
  for (const Member& member : members) {
    struct Row {
      const char* keyword;
      bool low, open;
    };
    constexpr Row kRows[] = {{"minimum", true, false},
                             {"exclusiveMinimum", true, true},
                             {"maximum", false, false},
                             {"exclusiveMaximum", false, true}};
    for (const Row& row : kRows) {
      const json::Value value = member.schema.Find(row.keyword);
      if (!value.exists()) continue;
      if (!value.is_number()) {
        return InvalidArgument("%s: \"%s\" must be a number", where.c_str(), row.keyword);
      }
      Decimal bound;
      if (!ParseDecimal(json::Serialize(value), &bound)) {
        return Unsupported("%s: \"%s\" has more than 30 digits or is not finite", where.c_str(),
                           row.keyword);
      }
      if (row.low) {
        bounds.RaiseLow(bound, row.open);
      } else {
        bounds.LowerHigh(bound, row.open);
      }
    }
    const json::Value multiple = member.schema.Find("multipleOf");
    if (!multiple.exists()) continue;
    int64_t factor = 0;
    if (!multiple.is_number()) {
      return InvalidArgument("%s: \"multipleOf\" must be a number", where.c_str());
    }
    const bool is_whole = multiple.GetInt64(&factor) && factor > 0;
    Decimal fraction;
    NumberBounds with_step;
    if (!is_whole &&
        !(ParseDecimal(json::Serialize(multiple), &fraction) && with_step.SetStep(fraction))) {
      return Unsupported(
          "%s: \"multipleOf\" can be ensured for whole numbers above 0 and for fractions that "
          "divide 1, such as 0.5 and 0.01",
          where.c_str());
    }
    const bool others = bounds.multiple_of != 0 || bounds.step != 0;
    if (others && (bounds.multiple_of != factor || bounds.step != with_step.step ||
                   bounds.step_digits != with_step.step_digits)) {
      return Unsupported("%s: two different \"multipleOf\" at the same time", where.c_str());
    }
    bounds.multiple_of = factor;
    bounds.step = with_step.step;
    bounds.step_digits = with_step.step_digits;
  }
  const Result<ExprId> expr =
      integer ? IntegerExpr(bounds, grammar_) : NumberExpr(bounds, grammar_);
  if (expr.ok()) return expr;
  if (expr.status().code() == StatusCode::kInvalidArgument) {
    return Impossible(where, expr.status().message().c_str());
  }
  return Status(expr.status()).WithContext(where);
}

Result<CharAutomaton> SchemaCompiler::StringLanguage(const Members& members,
                                                     const std::string& where, int64_t* min,
                                                     int64_t* max, bool* free) {
  CharAutomaton language = AllTexts(CodePoints::Any());
  *free = true;
  const auto hold = [&](const Result<const CharAutomaton*>& also, const char* keyword) -> Status {
    if (!also.ok()) return Status(also.status()).WithContext(where + ": " + keyword);
    if (*free) {
      language = *also.value();
      *free = false;
      return OkStatus();
    }
    CELLM_ASSIGN_OR_RETURN(language, Intersect(language, *also.value()));
    return OkStatus();
  };
  for (const Member& member : members) {
    int64_t low = 0;
    int64_t high = kUnbounded;
    CELLM_RETURN_IF_ERROR(ReadCount(member.schema, "minLength", where, &low));
    CELLM_RETURN_IF_ERROR(ReadCount(member.schema, "maxLength", where, &high));
    *min = std::max(*min, low);
    if (high != kUnbounded) *max = *max == kUnbounded ? high : std::min(*max, high);
    const json::Value pattern = member.schema.Find("pattern");
    std::string_view text;
    if (pattern.exists()) {
      if (!pattern.GetString(&text)) {
        return InvalidArgument("%s: \"pattern\" must be a string", where.c_str());
      }
      CELLM_RETURN_IF_ERROR(hold(document_.Pattern(text, RegexUse::kSearch), "pattern"));
    }
    if (member.schema.Find("format").GetString(&text) && !FormatRegex(text).empty()) {
      CELLM_RETURN_IF_ERROR(hold(document_.Pattern(FormatRegex(text), RegexUse::kWhole), "format"));
    }
  }
  if (*max != kUnbounded && *min > *max) return Impossible(where, "minLength is above maxLength");
  if (std::max(*min, *max) > static_cast<int64_t>(kMaxCharEdges)) {
    return OutOfRange("%s: a length bound above %zu", where.c_str(), kMaxCharEdges);
  }
  return language;
}

Result<ExprId> SchemaCompiler::String(const Members& members, const std::string& where) {
  int64_t min = 0;
  int64_t max = kUnbounded;
  bool free = true;
  CELLM_ASSIGN_OR_RETURN(CharAutomaton language, StringLanguage(members, where, &min, &max, &free));
  const ExprId quote = grammar_->Bytes("\"");
  if (free) {
    if (min == 0 && max == kUnbounded) return AnyString();
    const ExprId c = SpellChars(CodePoints::Any(), Spelling::kJsonFree, grammar_);
    return grammar_->Sequence(
        {quote, grammar_->Repeat(c, static_cast<int32_t>(min), static_cast<int32_t>(max)), quote});
  }
  if (min > 0 || max != kUnbounded) {
    const Result<CharAutomaton> both = Intersect(language, TextsOfLength(min, max));
    if (!both.ok()) return Status(both.status()).WithContext(where);
    language = both.value();
  }
  if (!Trim(&language)) return Impossible(where, "no string has this pattern, format and length");
  return grammar_->Sequence({quote, SpellAutomaton(language, Spelling::kJson, grammar_), quote});
}

// ---- the door ---------------------------------------------------------------------------------

Result<ExprId> AddJsonSchema(json::Value root, json::Value schema, Grammar* grammar) {
  return SchemaCompiler(root, grammar).Compile(schema, "#");
}

Result<Grammar> JsonSchemaGrammar(std::string_view text) {
  Result<std::unique_ptr<json::Document>> document = json::Document::Parse(text, "the schema");
  if (!document.ok()) {
    const StatusCode code = document.status().code();
    return Status(code == StatusCode::kCorrupt ? StatusCode::kInvalidArgument : code,
                  document.status().message());
  }
  Grammar grammar;
  grammar.root = grammar.AddRule("#");
  const json::Value root = document.value()->root();
  CELLM_ASSIGN_OR_RETURN(const ExprId expr, AddJsonSchema(root, root, &grammar));
  grammar.SetRule(grammar.root, expr);
  return grammar;
}

}  // namespace cellm::constrain
