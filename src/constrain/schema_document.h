#ifndef CELLM_SRC_CONSTRAIN_SCHEMA_DOCUMENT_H_
#define CELLM_SRC_CONSTRAIN_SCHEMA_DOCUMENT_H_

// What a JSON schema says, before it becomes a grammar: references, several schemas that hold at
// the same time, and whether a given value is accepted.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "constrain/char_automaton.h"
#include "constrain/regex.h"
#include "json/json.h"

namespace cellm::constrain {

// Types as a set.
enum SchemaType : uint32_t {
  kTypeNull = 1,
  kTypeBool = 2,
  kTypeInteger = 4,
  kTypeFraction = 8,  // numbers that are no integers; "number" is both
  kTypeString = 16,
  kTypeArray = 32,
  kTypeObject = 64,
  kAllTypes = 127,
};

// One of the schemas that hold at the same time. Those that a "$ref" or an "allOf" leads to are
// members of their own.
struct Member {
  json::Value schema;
  uint64_t key = 0;             // hash of its text: schemas of one text say the same
  bool without_any_of = false;  // its "anyOf" was dealt with
  bool without_one_of = false;
  bool operator==(const Member& other) const {
    return key == other.key && without_any_of == other.without_any_of &&
           without_one_of == other.without_one_of;
  }
};
using Members = std::vector<Member>;

// Not for several threads: it remembers compiled patterns and counts its work.
class SchemaDocument {
 public:
  explicit SchemaDocument(json::Value root) : root_(root) {}

  // Adds the members that `schema` stands for. *never is set when one of them is `false`.
  //   InvalidArgument  a reference that leads nowhere or to itself; a keyword of the wrong kind
  //   Unsupported      a reference to another document; a keyword that cannot be ensured
  Status Flatten(json::Value schema, const std::string& where, Members* members, bool* never) const;

  // Types that all members allow, by "type" alone.
  Result<uint32_t> Types(const Members& members, const std::string& where) const;

  // Whether the schema accepts the value. Errors as for Flatten().
  Result<bool> Accepts(json::Value schema, json::Value value, int depth = 0) const;
  Result<bool> MemberAccepts(const Member& member, json::Value value, int depth) const;

  // The automaton of a pattern, compiled once. Errors as CompileRegex(). Valid as long as this.
  Result<const CharAutomaton*> Pattern(std::string_view pattern, RegexUse use) const;
  // Counts steps whose number a small schema can make large. OutOfRange past the limit.
  Status Spend(size_t steps) const;

 private:
  Result<json::Value> Resolve(std::string_view reference, const std::string& where) const;
  Status FlattenInto(json::Value schema, const std::string& where, std::vector<uint64_t>* path,
                     Members* members, bool* never) const;
  Result<bool> StringAccepts(json::Value schema, std::string_view text) const;
  Result<bool> NumberAccepts(json::Value schema, json::Value value) const;
  Result<bool> ArrayAccepts(json::Value schema, json::Value value, int depth) const;
  Result<bool> ObjectAccepts(json::Value schema, json::Value value, int depth) const;

  json::Value root_;
  mutable std::map<std::pair<std::string, RegexUse>, CharAutomaton> patterns_;
  mutable size_t pattern_edges_ = 0;
  mutable size_t spent_ = 0;
};

// True when two values are equal as JSON Schema sees it (1 and 1.0 are; key order does not count).
bool SameValue(json::Value a, json::Value b);
uint32_t TypeOfValue(json::Value value);
// Characters of a text.
int64_t CountCharacters(std::string_view utf8);
// A keyword that is a whole number >= 0. *out keeps its value when the keyword is not there.
Status ReadCount(json::Value schema, const char* keyword, const std::string& where, int64_t* out);

}  // namespace cellm::constrain

#endif  // CELLM_SRC_CONSTRAIN_SCHEMA_DOCUMENT_H_
