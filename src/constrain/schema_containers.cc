// The containers of a JSON schema: arrays and objects, and which of two schemas a value is of.
#include <algorithm>
#include <memory>

#include "constrain/schema_compiler.h"

namespace cellm::constrain {
namespace {

// Larger bounds are written out and would only end at the automaton's limit, much later.
constexpr int64_t kMaxCount = 100'000;

// Each optional property that may come next is a place of its own in the automaton's states.
constexpr size_t kMaxProperties = 10'000;

Status TooMany(const std::string& where, const char* keyword, size_t most = kMaxCount) {
  return OutOfRange("%s: \"%s\" is above %zu", where.c_str(), keyword, most);
}

}  // namespace

// ---- arrays -----------------------------------------------------------------------------------

// Items in the order of a list of values, each at most once: then all are different.
Result<ExprId> SchemaCompiler::UniqueItems(json::Value items, int64_t min, int64_t max,
                                           const std::string& where) {
  const auto refused = [&]() {
    return Unsupported(
        "%s: \"uniqueItems\" can be ensured for items with an \"enum\" or \"const\" only",
        where.c_str());
  };
  if (!items.exists()) return refused();
  Members parts;
  bool never = false;
  CELLM_RETURN_IF_ERROR(document_.Flatten(items, where + "/items", &parts, &never));
  json::Value list;
  for (const Member& part : parts) {
    if (part.schema.Find("enum").is_array()) list = part.schema.Find("enum");
  }
  if (!list.exists()) return refused();
  std::vector<std::string> texts;
  std::vector<json::Value> values;
  for (json::Value item = list.First(); item.exists(); item = list.Next(item)) {
    bool good = !never;
    for (const Member& part : parts) {
      CELLM_ASSIGN_OR_RETURN(const bool accepts, document_.MemberAccepts(part, item, 0));
      good &= accepts;
    }
    CELLM_RETURN_IF_ERROR(document_.Spend(values.size()));
    for (const json::Value other : values) good &= !SameValue(item, other);
    if (!good) continue;
    values.push_back(item);
    texts.push_back(json::Serialize(item));
  }
  const int64_t count = static_cast<int64_t>(texts.size());
  if (min > count) return Impossible(where, "\"minItems\" is above the number of different items");
  max = max == kUnbounded ? count : std::min(max, count);
  if (count * max > kMaxCount) return TooMany(where, "maxItems");
  // Node (i, taken): values before i were looked at, `taken` of them stand in the array.
  Graph graph;
  std::vector<std::vector<int32_t>> nodes(texts.size() + 1);
  for (size_t i = 0; i <= texts.size(); ++i) {
    for (int64_t taken = 0; taken <= max; ++taken) {
      nodes[i].push_back(i == 0 && taken == 0 ? 0 : graph.AddNode());
    }
  }
  const ExprId open = Space();
  const ExprId next = grammar_->Sequence({grammar_->Bytes(","), Space()});
  for (size_t i = 0; i < texts.size(); ++i) {
    const ExprId text = grammar_->Bytes(texts[i]);
    for (int64_t taken = 0; taken <= max; ++taken) {
      const size_t t = static_cast<size_t>(taken);
      graph.AddEdge(nodes[i][t], nodes[i + 1][t], -1);
      if (taken == max) continue;
      graph.AddEdge(nodes[i][t], nodes[i + 1][t + 1],
                    grammar_->Sequence({taken == 0 ? open : next, text}));
    }
  }
  const int32_t end = graph.AddNode();
  for (int64_t taken = std::max<int64_t>(min, 1); taken <= max; ++taken) {
    graph.AddEdge(nodes[texts.size()][static_cast<size_t>(taken)], end, Space());
  }
  if (min == 0) graph.AddEdge(0, end, -1);
  graph.finals = {end};
  return grammar_->Sequence(
      {grammar_->Bytes("["), grammar_->AddGraph(std::move(graph)), grammar_->Bytes("]")});
}

Result<ExprId> SchemaCompiler::ArrayValue(const Members& members, const std::string& where) {
  int64_t min = 0;
  int64_t max = kUnbounded;
  size_t prefix_count = 0;
  bool unique = false;
  json::Value unique_items;
  size_t rules_about_items = 0;
  // Draft 7 has the prefix as a list in "items", and what follows in "additionalItems".
  const auto prefix_of = [](json::Value schema) {
    const json::Value items = schema.Find("items");
    return items.is_array() ? items : schema.Find("prefixItems");
  };
  const auto rest_of = [](json::Value schema) {
    const json::Value items = schema.Find("items");
    return items.is_array() ? schema.Find("additionalItems") : items;
  };
  for (const Member& member : members) {
    int64_t low = 0;
    int64_t high = kUnbounded;
    CELLM_RETURN_IF_ERROR(ReadCount(member.schema, "minItems", where, &low));
    CELLM_RETURN_IF_ERROR(ReadCount(member.schema, "maxItems", where, &high));
    min = std::max(min, low);
    if (high != kUnbounded) max = max == kUnbounded ? high : std::min(max, high);
    const json::Value prefix = prefix_of(member.schema);
    if (prefix.exists() && !prefix.is_array()) {
      return InvalidArgument("%s: \"prefixItems\" must be a list", where.c_str());
    }
    if (prefix.is_array()) prefix_count = std::max(prefix_count, prefix.size());
    bool flag = false;
    unique |= member.schema.Find("uniqueItems").GetBool(&flag) && flag;
    const json::Value rest = rest_of(member.schema);
    if (rest.exists()) {
      unique_items = rest;
      ++rules_about_items;
    }
    const json::Value unevaluated = member.schema.Find("unevaluatedItems");
    if (unevaluated.exists() && !(unevaluated.GetBool(&flag) && flag)) {
      return Unsupported("%s: the keyword \"unevaluatedItems\" cannot be ensured; use \"items\"",
                         where.c_str());
    }
  }
  if (max != kUnbounded && min > max) return Impossible(where, "minItems is above maxItems");
  if (std::max(min, max) > kMaxCount) return TooMany(where, "minItems or maxItems");
  if (unique && max != 0 && max != 1) {
    if (prefix_count > 0 || rules_about_items > 1) {
      return Unsupported("%s: \"uniqueItems\" together with \"prefixItems\" or \"allOf\"",
                         where.c_str());
    }
    return UniqueItems(unique_items, min, max, where);
  }
  const auto item = [&](size_t index) -> Result<ExprId> {
    std::vector<json::Value> schemas;
    for (const Member& member : members) {
      const json::Value prefix = prefix_of(member.schema);
      const bool in_prefix = prefix.is_array() && index < prefix.size();
      const json::Value schema = in_prefix ? prefix.At(index) : rest_of(member.schema);
      if (schema.exists()) schemas.push_back(schema);
    }
    if (schemas.empty()) return AnyValue();
    return CompileAll(schemas,
                      where + (index < prefix_count ? "/prefixItems/" + std::to_string(index)
                                                    : std::string("/items")));
  };
  // Nodes: 0 behind '[', i behind i items; the last one is where ']' comes.
  Graph graph;
  const ExprId next = grammar_->Sequence({grammar_->Bytes(","), Space()});
  std::vector<int32_t> behind = {0};
  const size_t fixed = std::max(static_cast<size_t>(min), prefix_count);
  const size_t count = max == kUnbounded ? fixed : static_cast<size_t>(max);
  ExprId rest = -1;
  for (size_t i = 0; i <= count; ++i) {
    const bool loops = i == count;
    if (loops && max != kUnbounded) break;
    ExprId expr = rest;
    if (i < prefix_count || rest < 0) {
      impossible_ = false;
      const Result<ExprId> made = item(i);
      if (!made.ok()) {
        if (!impossible_) return made.status();
        // No item can stand here: the array ends before it.
        if (static_cast<int64_t>(i) < min) return made.status();
        impossible_ = false;
        break;
      }
      expr = made.value();
      if (i >= prefix_count) rest = expr;
    }
    const ExprId read = grammar_->Sequence({i == 0 ? Space() : next, expr});
    if (loops && i > 0) {
      graph.AddEdge(behind[i], behind[i], read);
      break;
    }
    behind.push_back(graph.AddNode());
    graph.AddEdge(behind[i], behind[i + 1], read);
    if (loops) graph.AddEdge(behind[1], behind[1], grammar_->Sequence({next, expr}));
  }
  const int32_t end = graph.AddNode();
  for (size_t i = static_cast<size_t>(min); i < behind.size(); ++i) {
    graph.AddEdge(behind[i], end, i == 0 ? -1 : Space());
  }
  graph.finals = {end};
  return grammar_->Sequence(
      {grammar_->Bytes("["), grammar_->AddGraph(std::move(graph)), grammar_->Bytes("]")});
}

// ---- objects ----------------------------------------------------------------------------------

// What holds for properties that nobody named, and whether there are any.
Status SchemaCompiler::ReadOthers(const Members& members, const std::string& where,
                                  ObjectShape* shape) {
  bool asked = false;
  bool forbidden = false;
  bool says_something = false;
  bool forbidden_beside = false;  // by a schema that the pattern is not part of
  size_t patterns = 0;
  for (const Member& member : members) {
    const json::Value additional = member.schema.Find("additionalProperties");
    bool flag = false;
    if (additional.GetBool(&flag)) {
      (flag ? asked : forbidden) = true;
      forbidden_beside |= !flag && !member.schema.Find("patternProperties").exists();
    } else if (additional.exists()) {
      asked = true;
      shape->others.push_back(additional);
    }
    const json::Value unevaluated = member.schema.Find("unevaluatedProperties");
    if (unevaluated.exists() && !unevaluated.GetBool(&flag)) {
      return Unsupported(
          "%s: \"unevaluatedProperties\" with a schema; use \"additionalProperties\"",
          where.c_str());
    }
    forbidden |= unevaluated.exists() && !flag;
    for (const char* const keyword : {"properties", "required"}) {
      const json::Value list = member.schema.Find(keyword);
      says_something |= list.exists() && list.size() > 0;
    }
    const json::Value pattern = member.schema.Find("patternProperties");
    if (pattern.exists() && !pattern.is_object()) {
      return InvalidArgument("%s: \"patternProperties\" must be an object", where.c_str());
    }
    for (json::Value p = pattern.is_object() ? pattern.First() : json::Value(); p.exists();
         p = pattern.Next(p)) {
      shape->pattern = pattern.KeyOf(p);
      shape->others.push_back(p);
      ++patterns;
    }
    const json::Value names = member.schema.Find("propertyNames");
    if (names.exists()) shape->names.push_back(names);
  }
  if (patterns > 1 || (patterns == 1 && asked)) {
    return Unsupported(
        "%s: several \"patternProperties\", or one together with "
        "\"additionalProperties\"; name the properties instead",
        where.c_str());
  }
  shape->has_others = patterns == 1 ? !forbidden_beside : !forbidden && (asked || !says_something);
  if (patterns == 1 && shape->pattern.empty()) shape->pattern = ".*";
  return OkStatus();
}

Status SchemaCompiler::ReadShape(const Members& members, const std::string& where,
                                 ObjectShape* shape) {
  std::map<std::string, size_t, std::less<>> index;  // in shape->properties
  const auto find = [&](std::string_view name) -> Property& {
    const auto [at, is_new] = index.emplace(name, shape->properties.size());
    if (is_new) shape->properties.push_back({std::string(name), {}, false, false});
    return shape->properties[at->second];
  };
  // What each schema says about each name.
  std::vector<std::map<std::string_view, json::Value>> named(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    const json::Value properties = members[m].schema.Find("properties");
    if (properties.exists() && !properties.is_object()) {
      return InvalidArgument("%s: \"properties\" must be an object", where.c_str());
    }
    if (properties.size() > kMaxProperties) return TooMany(where, "properties", kMaxProperties);
    for (json::Value p = properties.exists() ? properties.First() : json::Value(); p.exists();
         p = properties.Next(p)) {
      named[m][properties.KeyOf(p)] = p;
      (void)find(properties.KeyOf(p));
    }
  }
  for (const Member& member : members) {
    const json::Value required = member.schema.Find("required");
    if (required.exists() && !required.is_array()) {
      return InvalidArgument("%s: \"required\" must be a list of names", where.c_str());
    }
    if (required.size() > kMaxProperties) return TooMany(where, "required", kMaxProperties);
    for (json::Value r = required.exists() ? required.First() : json::Value(); r.exists();
         r = required.Next(r)) {
      std::string_view name;
      if (!r.GetString(&name)) {
        return InvalidArgument("%s: \"required\" must be a list of names", where.c_str());
      }
      find(name).required = true;
    }
    int64_t low = 0;
    int64_t high = kUnbounded;
    CELLM_RETURN_IF_ERROR(ReadCount(member.schema, "minProperties", where, &low));
    CELLM_RETURN_IF_ERROR(ReadCount(member.schema, "maxProperties", where, &high));
    shape->min = std::max(shape->min, low);
    if (high != kUnbounded) {
      shape->max = shape->max == kUnbounded ? high : std::min(shape->max, high);
    }
  }
  CELLM_RETURN_IF_ERROR(ReadOthers(members, where, shape));
  for (Property& property : shape->properties) {
    CELLM_RETURN_IF_ERROR(document_.Spend(members.size()));
    for (size_t m = 0; m < members.size(); ++m) {
      const Member& member = members[m];
      const auto own = named[m].find(property.name);
      bool is_named = own != named[m].end();
      if (is_named) property.schemas.push_back(own->second);
      const json::Value patterns = member.schema.Find("patternProperties");
      for (json::Value p = patterns.exists() ? patterns.First() : json::Value(); p.exists();
           p = patterns.Next(p)) {
        CELLM_ASSIGN_OR_RETURN(const CharAutomaton* const automaton,
                               document_.Pattern(patterns.KeyOf(p), RegexUse::kSearch));
        if (!automaton->Accepts(property.name)) continue;
        property.schemas.push_back(p);
        is_named = true;
      }
      const json::Value additional = member.schema.Find("additionalProperties");
      if (!is_named && additional.exists()) property.schemas.push_back(additional);
    }
    for (const json::Value names : shape->names) {
      const std::string quoted = json::Quote(property.name);
      CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> text,
                             json::Document::Parse(quoted, "a property's name"));
      CELLM_ASSIGN_OR_RETURN(const bool accepts, document_.Accepts(names, text->root()));
      property.forbidden |= !accepts;
    }
  }
  return OkStatus();
}

// A name in quotes that is none of those named, and has the pattern and the length asked for.
Result<ExprId> SchemaCompiler::OtherName(const ObjectShape& shape, const std::string& where) {
  if (shape.properties.empty() && shape.pattern.empty() && shape.names.empty()) {
    return AnyString();
  }
  std::vector<std::string> named;
  for (const Property& property : shape.properties) named.push_back(property.name);
  CharAutomaton language = AllTextsBut(named);
  const auto hold = [&](const Result<CharAutomaton>& also) -> Status {
    if (!also.ok()) return Status(also.status()).WithContext(where);
    CELLM_ASSIGN_OR_RETURN(language, Intersect(language, also.value()));
    return OkStatus();
  };
  if (!shape.pattern.empty()) {
    CELLM_ASSIGN_OR_RETURN(const CharAutomaton* const pattern,
                           document_.Pattern(shape.pattern, RegexUse::kSearch));
    CELLM_RETURN_IF_ERROR(hold(*pattern));
  }
  for (const json::Value names : shape.names) {
    Members members;
    bool never = false;
    CELLM_RETURN_IF_ERROR(document_.Flatten(names, where + "/propertyNames", &members, &never));
    if (never) return Impossible(where, "\"propertyNames\" is false");
    std::vector<std::string> listed;
    bool has_list = false;
    for (const Member& member : members) {
      if (member.schema.Find("anyOf").exists() || member.schema.Find("oneOf").exists()) {
        return Unsupported("%s: \"propertyNames\" with alternatives", where.c_str());
      }
      const json::Value list = member.schema.Find("enum");
      const json::Value constant = member.schema.Find("const");
      if (!list.is_array() && !constant.exists()) continue;
      has_list = true;
      std::string_view name;
      if (constant.GetString(&name)) listed.emplace_back(name);
      for (json::Value item = list.is_array() ? list.First() : json::Value(); item.exists();
           item = list.Next(item)) {
        CELLM_ASSIGN_OR_RETURN(const bool accepts, document_.Accepts(names, item));
        if (accepts && item.GetString(&name)) listed.emplace_back(name);
      }
    }
    if (has_list) {
      CELLM_RETURN_IF_ERROR(hold(OnlyTexts(listed)));
    }
    int64_t min = 0;
    int64_t max = kUnbounded;
    bool free = true;
    CELLM_ASSIGN_OR_RETURN(CharAutomaton strings,
                           StringLanguage(members, where + "/propertyNames", &min, &max, &free));
    if (!free) CELLM_RETURN_IF_ERROR(hold(std::move(strings)));
    if (min > 0 || max != kUnbounded) CELLM_RETURN_IF_ERROR(hold(TextsOfLength(min, max)));
  }
  if (!Trim(&language)) return Impossible(where, "no further property can have a name");
  return grammar_->Sequence({grammar_->Bytes("\""),
                             SpellAutomaton(language, Spelling::kJson, grammar_),
                             grammar_->Bytes("\"")});
}

Result<ExprId> SchemaCompiler::ObjectValue(const Members& members, const std::string& where) {
  ObjectShape shape;
  CELLM_RETURN_IF_ERROR(ReadShape(members, where, &shape));
  return WriteObject(shape, where);
}

// Named properties in their order, each there or not, then the others:
//
//   '{' -- (0, first) --name: value--> (1, later) --','--> ...        (i, first) -> (i + 1, first)
//
// Node (i, first): properties before i were looked at and none is there yet.
Result<ExprId> SchemaCompiler::WriteObject(const ObjectShape& shape, const std::string& where) {
  Graph graph;
  int32_t first = 0;
  int32_t later = graph.AddNode();
  const ExprId next = grammar_->Bytes(",");
  const ExprId space = Space();
  const ExprId colon = grammar_->Sequence({grammar_->Bytes(":"), ColonSpace()});
  int64_t required = 0;
  int64_t possible = 0;
  for (const Property& property : shape.properties) {
    impossible_ = false;
    Result<ExprId> value = Impossible(where, "a name is not allowed by \"propertyNames\"");
    if (!property.forbidden) {
      impossible_ = false;
      value = property.schemas.empty()
                  ? AnyValue()
                  : CompileAll(property.schemas, where + "/properties/" + property.name);
    }
    if (!value.ok()) {
      if (!impossible_ || property.required) return value.status();
      // `false` is how schemas say that a property must not be there; anything else is a mistake.
      bool flag = true;
      for (const json::Value schema : property.schemas) {
        bool allowed = true;
        if (schema.GetBool(&allowed) && !allowed) flag = false;
      }
      if (flag && !property.forbidden) return value.status();
      impossible_ = false;
      continue;
    }
    ++possible;
    required += property.required ? 1 : 0;
    const int32_t name = graph.AddNode();
    const int32_t first_after = graph.AddNode();
    const int32_t later_after = graph.AddNode();
    graph.AddEdge(first, name, -1);
    graph.AddEdge(later, name, next);
    graph.AddEdge(name, later_after,
                  grammar_->Sequence(
                      {space, grammar_->Bytes(json::Quote(property.name)), colon, value.value()}));
    if (!property.required) {
      graph.AddEdge(first, first_after, -1);
      graph.AddEdge(later, later_after, -1);
    }
    first = first_after;
    later = later_after;
  }
  const int32_t end = graph.AddNode();
  graph.finals = {end};
  bool counted = false;
  if (shape.has_others) {
    impossible_ = false;
    Result<ExprId> name = OtherName(shape, where);
    Result<ExprId> value = shape.others.empty()
                               ? AnyValue()
                               : CompileAll(shape.others, where + "/additionalProperties");
    if (!name.ok() || !value.ok()) {
      if (!impossible_) return name.ok() ? value.status() : name.status();
      impossible_ = false;  // none can be there
    } else {
      const ExprId pair = grammar_->Sequence({space, name.value(), colon, value.value()});
      if (shape.properties.empty() && (shape.min > 0 || shape.max != kUnbounded)) {
        // The same name might come twice, so more than one is never sure to be there.
        if (shape.min > 1) {
          return Unsupported("%s: \"minProperties\" above 1 needs named properties", where.c_str());
        }
        if (shape.max > kMaxCount) return TooMany(where, "maxProperties");
        const ExprId more = grammar_->Repeat(
            grammar_->Sequence({next, pair}), 0,
            shape.max == kUnbounded ? kUnbounded
                                    : static_cast<int32_t>(std::max<int64_t>(shape.max - 1, 0)));
        if (shape.max != 0) {
          graph.AddEdge(first, end, grammar_->Sequence({pair, more, space}));
        }
        if (shape.min == 0) graph.AddEdge(first, end, -1);
        counted = true;
      } else {
        const int32_t other = graph.AddNode();
        graph.AddEdge(first, other, -1);
        graph.AddEdge(later, other, next);
        graph.AddEdge(other, later, pair);
        possible = INT64_MAX;
      }
    }
  }
  if (!counted) {
    if (shape.max != kUnbounded && required > shape.max) {
      return Impossible(where, "more properties are required than \"maxProperties\" allows");
    }
    if (shape.min > possible) {
      return Impossible(where, "\"minProperties\" is above the number of properties");
    }
    if (shape.min > required || (shape.max != kUnbounded && possible > shape.max)) {
      return Unsupported(
          "%s: \"minProperties\" and \"maxProperties\" cannot be ensured where "
          "properties have names; use \"required\"",
          where.c_str());
    }
    graph.AddEdge(first, end, -1);
    graph.AddEdge(later, end, space);
  }
  return grammar_->Sequence(
      {grammar_->Bytes("{"), grammar_->AddGraph(std::move(graph)), grammar_->Bytes("}")});
}

// ---- telling alternatives apart ---------------------------------------------------------------

Result<bool> SchemaCompiler::ToldApart(const Members& a, const Members& b, const std::string& where,
                                       int depth) {
  if (depth > 20) return false;
  // Everything that the grammar makes for `a` is in a list of values, when there is one.
  for (const Member& member : a) {
    json::Value list = member.schema.Find("enum");
    const json::Value constant = member.schema.Find("const");
    if (!constant.exists() && !list.is_array()) continue;
    for (json::Value value = constant.exists() ? constant : list.First(); value.exists();
         value = constant.exists() ? json::Value() : list.Next(value)) {
      bool accepted = true;
      for (const Member& other : b) {
        CELLM_ASSIGN_OR_RETURN(const bool accepts, document_.MemberAccepts(other, value, 0));
        accepted &= accepts;
      }
      if (accepted) return false;
    }
    return true;
  }
  CELLM_ASSIGN_OR_RETURN(const uint32_t made, ImpliedTypes(a, where));
  CELLM_ASSIGN_OR_RETURN(uint32_t accepted, document_.Types(b, where));
  for (const Member& member : b) {
    // A list of values narrows the types as well.
    const json::Value list = member.schema.Find("enum");
    const json::Value constant = member.schema.Find("const");
    if (!constant.exists() && !list.is_array()) continue;
    uint32_t types = constant.exists() ? TypeOfValue(constant) : 0;
    for (json::Value v = list.is_array() ? list.First() : json::Value(); v.exists();
         v = list.Next(v)) {
      types |= TypeOfValue(v);
    }
    accepted &= types;
  }
  if ((made & accepted) == 0) return true;
  if ((made & accepted) != kTypeObject) return false;
  return ObjectsToldApart(a, b, where, depth);
}

Result<bool> SchemaCompiler::ObjectsToldApart(const Members& a, const Members& b,
                                              const std::string& where, int depth) {
  for (const Members* side : {&a, &b}) {
    for (const Member& member : *side) {
      // Alternatives within alternatives are not followed, references are.
      const bool choice = (!member.without_any_of && member.schema.Find("anyOf").exists()) ||
                          (!member.without_one_of && member.schema.Find("oneOf").exists());
      if (choice && side == &a) return false;
    }
  }
  ObjectShape made;
  CELLM_RETURN_IF_ERROR(ReadShape(a, where, &made));
  CELLM_RETURN_IF_ERROR(document_.Spend(10 * made.properties.size()));
  const auto property_of = [&](std::string_view name) -> const Property* {
    for (const Property& property : made.properties) {
      if (property.name == name) return &property;
    }
    return nullptr;
  };
  for (const Member& member : b) {
    const json::Value required = member.schema.Find("required");
    for (json::Value r = required.is_array() ? required.First() : json::Value(); r.exists();
         r = required.Next(r)) {
      std::string_view name;
      if (r.GetString(&name) && property_of(name) == nullptr && !made.has_others) return true;
    }
    const json::Value properties = member.schema.Find("properties");
    bool closed = false;
    closed = member.schema.Find("additionalProperties").GetBool(&closed) && !closed &&
             !member.schema.Find("patternProperties").exists();
    for (const Property& property : made.properties) {
      if (!property.required) continue;
      const json::Value theirs =
          properties.is_object() ? properties.Find(property.name) : json::Value();
      if (!theirs.exists()) {
        if (closed) return true;
        continue;
      }
      Members mine;
      Members other;
      bool never = false;
      for (const json::Value schema : property.schemas) {
        CELLM_RETURN_IF_ERROR(document_.Flatten(schema, where, &mine, &never));
      }
      CELLM_RETURN_IF_ERROR(document_.Flatten(theirs, where, &other, &never));
      if (never) return true;
      CELLM_ASSIGN_OR_RETURN(const bool apart, ToldApart(mine, other, where, depth + 1));
      if (apart) return true;
    }
  }
  return false;
}

}  // namespace cellm::constrain
