#ifndef CELLM_SRC_JINJA_OBJECTS_H_
#define CELLM_SRC_JINJA_OBJECTS_H_

// What a Value can refer to. Internal to src/jinja; see value.h for the rules of ownership.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/bigint.h"
#include "jinja/text.h"
#include "jinja/value.h"

namespace cellm::jinja {

struct Stmt;

// Bytes alive in one render. Objects charge what they hold at creation and give it back when they
// die; the interpreter compares with its limit between steps.
struct Budget {
  size_t live_bytes = 0;
};

struct Object {
  explicit Object(Kind k) : kind(k) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  void Charge(Budget* to, size_t bytes) {
    budget = to;
    charged = bytes;
    if (budget != nullptr) budget->live_bytes += charged;
  }

  Kind kind;
  // Constants of a parsed template: shared by renders on any thread, so never counted or changed.
  bool immortal = false;
  uint32_t refs = 1;
  Budget* budget = nullptr;
  size_t charged = 0;
};

struct UndefinedObject : Object {
  UndefinedObject() : Object(Kind::kUndefined) {}
  bool security = false;  // using it raises SecurityError, not UndefinedError
  std::string message;
};

struct BigIntObject : Object {
  BigIntObject() : Object(Kind::kBigInt) {}
  BigInt value;
};

struct StringObject : Object {
  explicit StringObject(Kind k) : Object(k) {}
  Text text;
  bool markup = false;  // marked as safe HTML: the other side of + is escaped
  // Characters (code points); -1 until counted. Equal to the byte count for ASCII.
  int64_t char_count = -1;
};

struct SequenceObject : Object {
  enum class Flavor : uint8_t { kList, kTuple, kGenerator, kKeys, kValues, kItems, kGroup };
  SequenceObject() : Object(Kind::kSequence) {}
  Flavor flavor = Flavor::kList;
  bool consumed = false;  // generators yield once
  std::vector<Value> items;
};

struct RangeObject : Object {
  RangeObject() : Object(Kind::kRange) {}
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// Insertion-ordered, keys unique by Python's equality (1 == 1.0 == true).
class DictTable {
 public:
  struct Entry {
    Value key;
    Value value;
  };
  // The key must be hashable (IsHashable).
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // A repeated key keeps its place and its first spelling.
  void Set(Value key, Value value);
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& mutable_entries() { return entries_; }
  size_t size() const { return entries_.size(); }
  size_t HeapBytes() const;

 private:
  template <typename Match>
  const Entry* Probe(uint64_t hash, const Match& match) const;
  void Rehash();
  std::vector<Entry> entries_;
  // Open addressing over entry numbers + 1, a power of two in size; empty below kSmall entries.
  std::vector<uint32_t> slots_;
};

struct DictObject : Object {
  DictObject() : Object(Kind::kDict) {}
  DictTable table;
};

struct NamespaceObject : Object {
  NamespaceObject() : Object(Kind::kNamespace) {}
  DictTable table;
};

struct MethodObject : Object {
  MethodObject() : Object(Kind::kMethod) {}
  Value self;
  std::string_view name;  // from a static table
};

// Variables of one block, linked to the block around it.
struct ScopeObject : Object {
  struct Slot {
    uint32_t symbol;
    Value value;
  };
  ScopeObject() : Object(Kind::kScope) {}
  Value parent;  // kScope or missing
  std::vector<Slot> slots;
};

struct MacroObject : Object {
  MacroObject() : Object(Kind::kMacro) {}
  const Stmt* node = nullptr;  // lives in the template
  Value scope;                 // where it was defined
};

struct LoopObject : Object {
  LoopObject() : Object(Kind::kLoop) {}
  std::vector<Value> items;
  size_t index0 = 0;
  int64_t depth0 = 0;
  Value changed;                    // what changed() saw last; missing at first
  const Stmt* recursive = nullptr;  // the loop itself, when it may be called
  Value scope;                      // and the scope around it
};

struct CyclerObject : Object {
  CyclerObject() : Object(Kind::kCycler) {}
  std::vector<Value> items;
  size_t position = 0;
};

struct JoinerObject : Object {
  JoinerObject() : Object(Kind::kJoiner) {}
  Value separator;
  bool used = false;
};

inline const StringObject& AsString(const Value& value) {
  return *static_cast<const StringObject*>(value.object());
}
inline SequenceObject& AsSequence(const Value& value) {
  return *static_cast<SequenceObject*>(value.object());
}
inline const BigInt& AsBigInt(const Value& value) {
  return static_cast<const BigIntObject*>(value.object())->value;
}
inline const RangeObject& AsRange(const Value& value) {
  return *static_cast<const RangeObject*>(value.object());
}
inline DictTable& AsDict(const Value& value) {
  return static_cast<DictObject*>(value.object())->table;
}
inline DictTable& AsNamespace(const Value& value) {
  return static_cast<NamespaceObject*>(value.object())->table;
}
inline ScopeObject& AsScope(const Value& value) {
  return *static_cast<ScopeObject*>(value.object());
}
inline LoopObject& AsLoop(const Value& value) { return *static_cast<LoopObject*>(value.object()); }

// Makers; `budget` may be null for values that are not part of a render.
Value MakeString(Text text, Budget* budget, bool markup = false);
Value MakeBigInt(BigInt value, Budget* budget);  // kInt when it fits
Value MakeSequence(SequenceObject::Flavor flavor, std::vector<Value> items, Budget* budget);
Value MakeDict(DictTable table, Budget* budget);
Value MakeUndefined(std::string message, Budget* budget, bool security = false);

// Marks a constant of a template as shared. Scalars need nothing. The caller frees it with
// FreeImmortal() when nobody uses it any more.
void MakeImmortal(const Value& value);
void FreeImmortal(Object* object);

bool IsSequence(const Value& value, SequenceObject::Flavor flavor);
inline bool IsList(const Value& v) { return IsSequence(v, SequenceObject::Flavor::kList); }
// Named groups are tuples too.
bool IsTuple(const Value& value);
inline bool IsNumber(const Value& v) {
  return v.Is(Kind::kInt) || v.Is(Kind::kFloat) || v.Is(Kind::kBool) || v.Is(Kind::kBigInt);
}
inline bool IsInteger(const Value& v) {
  return v.Is(Kind::kInt) || v.Is(Kind::kBool) || v.Is(Kind::kBigInt);
}
// An int or bool that fits 64 bits.
bool GetInt64(const Value& value, int64_t* out);
double ToDouble(const Value& number);
BigInt ToBigInt(const Value& integer);
// Python's name of the value's type: "str", "NoneType", "dict_items".
const char* TypeName(const Value& value);
int64_t CharCount(const StringObject& string);

// Work and depth of a comparison, so that hostile values can neither hang nor overflow the stack.
// Past max_steps the answer means nothing; the caller looks at `steps`.
struct CompareCost {
  int64_t steps = 0;
  int64_t max_steps = 1 << 20;
  int depth_left = 100;
  bool too_deep = false;
};
// Python's ==. Sets cost->too_deep and returns false where Python would run out of recursion.
bool Equal(const Value& a, const Value& b, CompareCost* cost);
// Numbers only: -1, 0, 1, or 2 when one is NaN. Exact, also between int and float.
int CompareNumbers(const Value& a, const Value& b);
// Scalars, strings, callables and tuples of such (at most 256 in all, 16 deep).
bool IsHashable(const Value& value);
uint64_t HashOf(const Value& hashable);

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_OBJECTS_H_
