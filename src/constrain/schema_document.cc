#include "constrain/schema_document.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "base/utf8.h"
#include "constrain/json_formats.h"
#include "constrain/json_numbers.h"

namespace cellm::constrain {
namespace {

constexpr int kMaxReferences = 64;  // one after the other, without anything between
constexpr int kMaxValueDepth = 100;
constexpr size_t kMaxMembers = 1000;
constexpr size_t kMaxPatterns = 2000;
constexpr size_t kMaxPatternEdges = 1'000'000;
// Values compared with schemas, schemas with each other: a few seconds.
constexpr size_t kMaxSteps = 5'000'000;

struct TypeName {
  std::string_view name;
  uint32_t types;
};
constexpr TypeName kTypeNames[] = {
    {"null", kTypeNull},       {"boolean", kTypeBool},
    {"integer", kTypeInteger}, {"number", kTypeInteger | kTypeFraction},
    {"string", kTypeString},   {"array", kTypeArray},
    {"object", kTypeObject}};

// Keywords that restrict and that we do not ensure.
constexpr const char* kRefused[] = {
    "not",          "if",          "contains",      "dependentRequired", "dependentSchemas",
    "dependencies", "$dynamicRef", "$recursiveRef", "minContains",       "propertyDependencies",
    "divisibleBy",  "disallow",    "extends",
};

Status WrongKind(const std::string& where, const char* keyword, const char* expected) {
  return InvalidArgument("%s: \"%s\" must be %s", where.c_str(), keyword, expected);
}

Result<uint32_t> TypesOf(json::Value type, const std::string& where) {
  if (!type.exists()) return uint32_t{kAllTypes};
  uint32_t types = 0;
  const auto add = [&](json::Value name) -> Status {
    std::string_view text;
    if (!name.GetString(&text)) return WrongKind(where, "type", "a name or a list of names");
    for (const TypeName& known : kTypeNames) {
      if (known.name == text) {
        types |= known.types;
        return OkStatus();
      }
    }
    return InvalidArgument("%s: \"%.*s\" is no type", where.c_str(),
                           static_cast<int>(std::min<size_t>(text.size(), 60)), text.data());
  };
  if (!type.is_array()) {
    CELLM_RETURN_IF_ERROR(add(type));
    return types;
  }
  for (json::Value name = type.First(); name.exists(); name = type.Next(name)) {
    CELLM_RETURN_IF_ERROR(add(name));
  }
  if (types == 0) return InvalidArgument("%s: the list of types is empty", where.c_str());
  return types;
}

// The keys of JSON pointers: "~1" is '/', "~0" is '~', and URIs have %HH.
std::string DecodePointerKey(std::string_view key) {
  std::string out;
  for (size_t i = 0; i < key.size(); ++i) {
    const std::string_view rest = key.substr(i);
    const auto hex = [&](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
      return -1;
    };
    if (rest.substr(0, 2) == "~1") {
      out += '/';
      ++i;
    } else if (rest.substr(0, 2) == "~0") {
      out += '~';
      ++i;
    } else if (rest[0] == '%' && rest.size() >= 3 && hex(rest[1]) >= 0 && hex(rest[2]) >= 0) {
      out += static_cast<char>(hex(rest[1]) * 16 + hex(rest[2]));
      i += 2;
    } else {
      out += rest[0];
    }
  }
  return out;
}

}  // namespace

Status ReadCount(json::Value schema, const char* keyword, const std::string& where, int64_t* out) {
  const json::Value value = schema.Find(keyword);
  if (!value.exists()) return OkStatus();
  int64_t count = 0;
  if (!value.GetInt64(&count) || count < 0) {
    return WrongKind(where, keyword, "a whole number, not below 0");
  }
  *out = count;
  return OkStatus();
}

int64_t CountCharacters(std::string_view utf8) {
  int64_t count = 0;
  for (const char c : utf8) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

uint32_t TypeOfValue(json::Value value) {
  switch (value.kind()) {
    case json::Kind::kNull:
      return kTypeNull;
    case json::Kind::kBool:
      return kTypeBool;
    case json::Kind::kString:
      return kTypeString;
    case json::Kind::kArray:
      return kTypeArray;
    case json::Kind::kObject:
      return kTypeObject;
    case json::Kind::kNumber:
      break;
  }
  double number = 0;
  value.GetDouble(&number);
  return value.is_integer() || number == std::floor(number) ? kTypeInteger : kTypeFraction;
}

bool SameValue(json::Value a, json::Value b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_number()) {
    int64_t x = 0;
    int64_t y = 0;
    if (a.GetInt64(&x) && b.GetInt64(&y)) return x == y;
    double p = 0;
    double q = 0;
    return a.GetDouble(&p) && b.GetDouble(&q) && p == q;
  }
  if (a.is_array()) {
    if (a.size() != b.size()) return false;
    json::Value y = b.First();
    for (json::Value x = a.First(); x.exists(); x = a.Next(x), y = b.Next(y)) {
      if (!SameValue(x, y)) return false;
    }
    return true;
  }
  if (a.is_object()) {
    if (a.size() != b.size()) return false;
    for (json::Value x = a.First(); x.exists(); x = a.Next(x)) {
      const json::Value y = b.Find(a.KeyOf(x));
      if (!y.exists() || !SameValue(x, y)) return false;
    }
    return true;
  }
  return json::Serialize(a) == json::Serialize(b);
}

Status SchemaDocument::Spend(size_t steps) const {
  spent_ += steps;
  if (spent_ <= kMaxSteps) return OkStatus();
  return OutOfRange("the schema takes more than %zu steps to look through; make it simpler",
                    kMaxSteps);
}

Result<const CharAutomaton*> SchemaDocument::Pattern(std::string_view pattern, RegexUse use) const {
  auto key = std::make_pair(std::string(pattern), use);
  const auto known = patterns_.find(key);
  if (known != patterns_.end()) return &known->second;
  if (patterns_.size() >= kMaxPatterns || pattern_edges_ > kMaxPatternEdges) {
    return OutOfRange("the schema has more than %zu patterns, or too large ones", kMaxPatterns);
  }
  CELLM_ASSIGN_OR_RETURN(CharAutomaton automaton, CompileRegex(pattern, use));
  pattern_edges_ += automaton.edge_count();
  return &patterns_.emplace(std::move(key), std::move(automaton)).first->second;
}

Result<json::Value> SchemaDocument::Resolve(std::string_view reference,
                                            const std::string& where) const {
  const std::string shown(reference.substr(0, 100));
  if (reference.empty() || reference[0] != '#') {
    return Unsupported("%s: \"$ref\" to \"%s\": only places of the same schema (#/...) are known",
                       where.c_str(), shown.c_str());
  }
  json::Value at = root_;
  std::string_view rest = reference.substr(1);
  if (!rest.empty() && rest[0] != '/') {
    return Unsupported("%s: \"$ref\" to the anchor \"%s\": write it as a path (#/$defs/...)",
                       where.c_str(), shown.c_str());
  }
  while (!rest.empty() && at.exists()) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string key = DecodePointerKey(rest.substr(0, end));
    rest.remove_prefix(end);
    if (at.is_array()) {
      size_t index = 0;
      bool is_number = !key.empty() && key.size() < 10;
      for (const char c : key) {
        is_number &= c >= '0' && c <= '9';
        index = index * 10 + static_cast<size_t>(c - '0');
      }
      at = is_number ? at.At(index) : json::Value();
    } else {
      at = at.is_object() ? at.Find(key) : json::Value();
    }
  }
  if (!at.exists()) {
    return InvalidArgument("%s: \"$ref\" to \"%s\" leads nowhere", where.c_str(), shown.c_str());
  }
  return at;
}

Status SchemaDocument::FlattenInto(json::Value schema, const std::string& where,
                                   std::vector<uint64_t>* path, Members* members,
                                   bool* never) const {
  bool flag = false;
  if (schema.GetBool(&flag)) {
    if (!flag) *never = true;
    return OkStatus();
  }
  if (!schema.is_object()) {
    return InvalidArgument("%s: a schema is an object, true or false", where.c_str());
  }
  const std::string text = json::Serialize(schema);
  CELLM_RETURN_IF_ERROR(Spend(text.size() / 64));
  const uint64_t key = HashXxh3(text);
  if (std::find(path->begin(), path->end(), key) != path->end()) {
    return InvalidArgument("%s: a reference leads to itself", where.c_str());
  }
  if (path->size() >= kMaxReferences || members->size() >= kMaxMembers) {
    return OutOfRange("%s: too many references and \"allOf\" one inside the other", where.c_str());
  }
  const Member member{schema, key};
  if (std::find(members->begin(), members->end(), member) != members->end()) return OkStatus();
  for (const char* const keyword : kRefused) {
    if (schema.Find(keyword).exists()) {
      return Unsupported("%s: the keyword \"%s\" cannot be ensured in constrained output",
                         where.c_str(), keyword);
    }
  }
  members->push_back(member);
  path->push_back(key);
  const json::Value reference = schema.Find("$ref");
  if (reference.exists()) {
    std::string_view name;
    if (!reference.GetString(&name)) return WrongKind(where, "$ref", "a string");
    CELLM_ASSIGN_OR_RETURN(const json::Value target, Resolve(name, where));
    CELLM_RETURN_IF_ERROR(FlattenInto(target, std::string(name), path, members, never));
  }
  const json::Value all_of = schema.Find("allOf");
  if (all_of.exists()) {
    if (!all_of.is_array() || all_of.size() == 0) {
      return WrongKind(where, "allOf", "a list of schemas, not empty");
    }
    size_t index = 0;
    for (json::Value part = all_of.First(); part.exists(); part = all_of.Next(part)) {
      CELLM_RETURN_IF_ERROR(
          FlattenInto(part, where + "/allOf/" + std::to_string(index++), path, members, never));
    }
  }
  path->pop_back();
  return OkStatus();
}

Status SchemaDocument::Flatten(json::Value schema, const std::string& where, Members* members,
                               bool* never) const {
  std::vector<uint64_t> path;
  return FlattenInto(schema, where, &path, members, never);
}

Result<uint32_t> SchemaDocument::Types(const Members& members, const std::string& where) const {
  uint32_t types = kAllTypes;
  for (const Member& member : members) {
    CELLM_ASSIGN_OR_RETURN(const uint32_t allowed, TypesOf(member.schema.Find("type"), where));
    types &= allowed;
  }
  return types;
}

Result<bool> SchemaDocument::Accepts(json::Value schema, json::Value value, int depth) const {
  if (depth > kMaxValueDepth) return OutOfRange("a value or schema nests too deep to be checked");
  Members members;
  bool never = false;
  CELLM_RETURN_IF_ERROR(Flatten(schema, "a schema of a value", &members, &never));
  if (never) return false;
  for (const Member& member : members) {
    CELLM_ASSIGN_OR_RETURN(const bool accepts, MemberAccepts(member, value, depth));
    if (!accepts) return false;
  }
  return true;
}

Result<bool> SchemaDocument::MemberAccepts(const Member& member, json::Value value,
                                           int depth) const {
  const json::Value schema = member.schema;
  CELLM_RETURN_IF_ERROR(Spend(1));
  CELLM_ASSIGN_OR_RETURN(const uint32_t types, TypesOf(schema.Find("type"), "a schema of a value"));
  const uint32_t type = TypeOfValue(value);
  if ((types & type) == 0) return false;
  const json::Value constant = schema.Find("const");
  if (constant.exists() && !SameValue(constant, value)) return false;
  const json::Value list = schema.Find("enum");
  if (list.is_array()) {
    bool found = false;
    CELLM_RETURN_IF_ERROR(Spend(list.size()));
    for (json::Value item = list.First(); item.exists(); item = list.Next(item)) {
      found |= SameValue(item, value);
    }
    if (!found) return false;
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    const bool one = std::string_view(keyword) == "oneOf";
    if (one ? member.without_one_of : member.without_any_of) continue;
    const json::Value alternatives = schema.Find(keyword);
    if (!alternatives.is_array()) continue;
    size_t accepted = 0;
    for (json::Value a = alternatives.First(); a.exists(); a = alternatives.Next(a)) {
      CELLM_ASSIGN_OR_RETURN(const bool accepts, Accepts(a, value, depth + 1));
      accepted += accepts ? 1 : 0;
    }
    if (accepted == 0 || (one && accepted > 1)) return false;
  }
  std::string_view text;
  if (value.GetString(&text)) return StringAccepts(schema, text);
  if (value.is_number()) return NumberAccepts(schema, value);
  if (value.is_array()) return ArrayAccepts(schema, value, depth);
  if (value.is_object()) return ObjectAccepts(schema, value, depth);
  return true;
}

Result<bool> SchemaDocument::StringAccepts(json::Value schema, std::string_view text) const {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  CELLM_RETURN_IF_ERROR(ReadCount(schema, "minLength", "a schema of a value", &min));
  CELLM_RETURN_IF_ERROR(ReadCount(schema, "maxLength", "a schema of a value", &max));
  const int64_t length = CountCharacters(text);
  if (length < min || length > max) return false;
  std::string_view pattern;
  if (schema.Find("pattern").GetString(&pattern)) {
    CELLM_ASSIGN_OR_RETURN(const CharAutomaton* const automaton,
                           Pattern(pattern, RegexUse::kSearch));
    CELLM_RETURN_IF_ERROR(Spend(text.size()));
    if (!automaton->Accepts(text)) return false;
  }
  std::string_view format;
  if (schema.Find("format").GetString(&format)) {
    const std::string_view regex = FormatRegex(format);
    if (!regex.empty()) {
      CELLM_ASSIGN_OR_RETURN(const CharAutomaton* const automaton,
                             Pattern(regex, RegexUse::kWhole));
      CELLM_RETURN_IF_ERROR(Spend(text.size()));
      if (!automaton->Accepts(text)) return false;
    }
  }
  return true;
}

Result<bool> SchemaDocument::NumberAccepts(json::Value schema, json::Value value) const {
  double number = 0;
  double bound = 0;
  value.GetDouble(&number);
  if (schema.Find("minimum").GetDouble(&bound) && number < bound) return false;
  if (schema.Find("maximum").GetDouble(&bound) && number > bound) return false;
  if (schema.Find("exclusiveMinimum").GetDouble(&bound) && number <= bound) return false;
  if (schema.Find("exclusiveMaximum").GetDouble(&bound) && number >= bound) return false;
  const json::Value multiple = schema.Find("multipleOf");
  if (!multiple.is_number()) return true;
  Decimal dividend;
  Decimal divisor;
  return ParseDecimal(json::Serialize(value), &dividend) &&
         ParseDecimal(json::Serialize(multiple), &divisor) && IsMultiple(dividend, divisor);
}

Result<bool> SchemaDocument::ArrayAccepts(json::Value schema, json::Value value, int depth) const {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  CELLM_RETURN_IF_ERROR(ReadCount(schema, "minItems", "a schema of a value", &min));
  CELLM_RETURN_IF_ERROR(ReadCount(schema, "maxItems", "a schema of a value", &max));
  const int64_t count = static_cast<int64_t>(value.size());
  if (count < min || count > max) return false;
  json::Value items = schema.Find("items");
  json::Value prefix = schema.Find("prefixItems");
  if (items.is_array()) {
    prefix = items;
    items = schema.Find("additionalItems");
  }
  size_t index = 0;
  for (json::Value item = value.First(); item.exists(); item = value.Next(item), ++index) {
    const bool in_prefix = prefix.is_array() && index < prefix.size();
    const json::Value rule = in_prefix ? prefix.At(index) : items;
    if (rule.exists()) {
      CELLM_ASSIGN_OR_RETURN(const bool accepts, Accepts(rule, item, depth + 1));
      if (!accepts) return false;
    }
    bool unique = false;
    if (!schema.Find("uniqueItems").GetBool(&unique) || !unique) continue;
    CELLM_RETURN_IF_ERROR(Spend(index));
    json::Value other = value.First();
    for (size_t before = 0; before < index; ++before, other = value.Next(other)) {
      if (SameValue(other, item)) return false;
    }
  }
  return true;
}

Result<bool> SchemaDocument::ObjectAccepts(json::Value schema, json::Value value, int depth) const {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  CELLM_RETURN_IF_ERROR(ReadCount(schema, "minProperties", "a schema of a value", &min));
  CELLM_RETURN_IF_ERROR(ReadCount(schema, "maxProperties", "a schema of a value", &max));
  const int64_t count = static_cast<int64_t>(value.size());
  if (count < min || count > max) return false;
  const json::Value required = schema.Find("required");
  for (json::Value name = required.is_array() ? required.First() : json::Value(); name.exists();
       name = required.Next(name)) {
    std::string_view key;
    if (name.GetString(&key) && !value.Find(key).exists()) return false;
  }
  const json::Value properties = schema.Find("properties");
  const json::Value patterns = schema.Find("patternProperties");
  const json::Value names = schema.Find("propertyNames");
  for (json::Value item = value.First(); item.exists(); item = value.Next(item)) {
    const std::string_view key = value.KeyOf(item);
    bool named = false;
    const json::Value rule = properties.is_object() ? properties.Find(key) : json::Value();
    if (rule.exists()) {
      named = true;
      CELLM_ASSIGN_OR_RETURN(const bool accepts, Accepts(rule, item, depth + 1));
      if (!accepts) return false;
    }
    for (json::Value p = patterns.is_object() ? patterns.First() : json::Value(); p.exists();
         p = patterns.Next(p)) {
      CELLM_ASSIGN_OR_RETURN(const CharAutomaton* const automaton,
                             Pattern(patterns.KeyOf(p), RegexUse::kSearch));
      if (!automaton->Accepts(key)) continue;
      named = true;
      CELLM_ASSIGN_OR_RETURN(const bool accepts, Accepts(p, item, depth + 1));
      if (!accepts) return false;
    }
    const json::Value additional = schema.Find("additionalProperties");
    if (!named && additional.exists()) {
      CELLM_ASSIGN_OR_RETURN(const bool accepts, Accepts(additional, item, depth + 1));
      if (!accepts) return false;
    }
    if (names.exists()) {
      const std::string quoted = json::Quote(key);
      CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> text,
                             json::Document::Parse(quoted, "a property's name"));
      CELLM_ASSIGN_OR_RETURN(const bool accepts, Accepts(names, text->root(), depth + 1));
      if (!accepts) return false;
    }
  }
  return true;
}

}  // namespace cellm::constrain
