#include "jinja/value.h"

#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/utf8.h"
#include "jinja/objects.h"

namespace cellm::jinja {

using Flavor = SequenceObject::Flavor;

void Value::Retain() const {
  if (!data_.object->immortal) ++data_.object->refs;
}

// Frees objects whose count reached zero, one after the other, without recursion.
class ValueReleaser {
 public:
  void Run(Object* object) {
    Destroy(object);
    while (!pending_.empty()) {
      Object* next = pending_.back();
      pending_.pop_back();
      Destroy(next);
    }
  }

 private:
  // Gives up the reference that `value` holds; the object is queued when it was the last.
  void Take(Value* value) {
    if (value->IsObject()) {
      Object* object = value->data_.object;
      if (!object->immortal && --object->refs == 0) pending_.push_back(object);
    }
    value->kind_ = Kind::kMissing;
  }
  void TakeAll(std::vector<Value>* values) {
    for (Value& value : *values) Take(&value);
  }
  void TakeTable(DictTable* table) {
    for (DictTable::Entry& entry : table->mutable_entries()) {
      Take(&entry.key);
      Take(&entry.value);
    }
  }

  void Destroy(Object* object);
  std::vector<Object*> pending_;
};

void ValueReleaser::Destroy(Object* object) {
  if (object->budget != nullptr) object->budget->live_bytes -= object->charged;
  switch (object->kind) {
    case Kind::kUndefined:
      delete static_cast<UndefinedObject*>(object);
      return;
    case Kind::kBigInt:
      delete static_cast<BigIntObject*>(object);
      return;
    case Kind::kString:
    case Kind::kBytes:
      delete static_cast<StringObject*>(object);
      return;
    case Kind::kRange:
      delete static_cast<RangeObject*>(object);
      return;
    case Kind::kSequence: {
      auto* sequence = static_cast<SequenceObject*>(object);
      TakeAll(&sequence->items);
      delete sequence;
      return;
    }
    case Kind::kDict: {
      auto* dict = static_cast<DictObject*>(object);
      TakeTable(&dict->table);
      delete dict;
      return;
    }
    case Kind::kNamespace: {
      auto* space = static_cast<NamespaceObject*>(object);
      TakeTable(&space->table);
      delete space;
      return;
    }
    case Kind::kMethod: {
      auto* method = static_cast<MethodObject*>(object);
      Take(&method->self);
      delete method;
      return;
    }
    case Kind::kMacro: {
      auto* macro = static_cast<MacroObject*>(object);
      Take(&macro->scope);
      delete macro;
      return;
    }
    case Kind::kLoop: {
      auto* loop = static_cast<LoopObject*>(object);
      TakeAll(&loop->items);
      Take(&loop->changed);
      Take(&loop->scope);
      delete loop;
      return;
    }
    case Kind::kCycler: {
      auto* cycler = static_cast<CyclerObject*>(object);
      TakeAll(&cycler->items);
      delete cycler;
      return;
    }
    case Kind::kJoiner: {
      auto* joiner = static_cast<JoinerObject*>(object);
      Take(&joiner->separator);
      delete joiner;
      return;
    }
    case Kind::kScope: {
      auto* scope = static_cast<ScopeObject*>(object);
      Take(&scope->parent);
      for (ScopeObject::Slot& slot : scope->slots) Take(&slot.value);
      delete scope;
      return;
    }
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kFunction:
      return;
  }
}

void Value::Release() {
  Object* object = data_.object;
  if (object->immortal || --object->refs != 0) return;
  ValueReleaser().Run(object);
}

Value MakeString(Text text, Budget* budget, bool markup) {
  auto* object = new StringObject(Kind::kString);
  object->text = std::move(text);
  object->markup = markup;
  if (budget != nullptr) object->Charge(budget, sizeof(StringObject) + object->text.HeapBytes());
  return Value::Adopt(Kind::kString, object);
}

Value MakeBigInt(BigInt value, Budget* budget) {
  int64_t small = 0;
  if (value.FitsInt64(&small)) return Value::Int(small);
  auto* object = new BigIntObject;
  object->Charge(budget, sizeof(BigIntObject) + value.BitCount() / 8);
  object->value = std::move(value);
  return Value::Adopt(Kind::kBigInt, object);
}

Value MakeSequence(Flavor flavor, std::vector<Value> items, Budget* budget) {
  auto* object = new SequenceObject;
  object->flavor = flavor;
  object->items = std::move(items);
  object->Charge(budget, sizeof(SequenceObject) + object->items.capacity() * sizeof(Value));
  return Value::Adopt(Kind::kSequence, object);
}

Value MakeDict(DictTable table, Budget* budget) {
  auto* object = new DictObject;
  object->table = std::move(table);
  object->Charge(budget, sizeof(DictObject) + object->table.HeapBytes());
  return Value::Adopt(Kind::kDict, object);
}

Value MakeUndefined(std::string message, Budget* budget, bool security) {
  auto* object = new UndefinedObject;
  object->message = std::move(message);
  object->security = security;
  object->Charge(budget, sizeof(UndefinedObject) + object->message.capacity());
  return Value::Adopt(Kind::kUndefined, object);
}

void MakeImmortal(const Value& value) {
  if (!value.IsObject()) return;
  if (value.Is(Kind::kString)) {
    auto* string = static_cast<StringObject*>(value.object());
    string->char_count = CharCount(*string);  // now: later would be a race
  }
  value.object()->immortal = true;
}

void FreeImmortal(Object* object) { ValueReleaser().Run(object); }

Value Value::String(std::string_view bytes, bool trusted) {
  std::string text = IsValidUtf8(bytes) ? std::string(bytes) : ReplaceInvalidUtf8(bytes);
  return MakeString(Text(std::move(text), trusted), nullptr);
}

Value Value::List(std::vector<Value> items) {
  return MakeSequence(Flavor::kList, std::move(items), nullptr);
}

Value Value::Dict(std::vector<std::pair<std::string, Value>> members) {
  DictTable table;
  for (auto& [key, value] : members) table.Set(String(key, false), std::move(value));
  return MakeDict(std::move(table), nullptr);
}

namespace {

Result<Value> NumberFromJson(json::Value json) {
  int64_t integer = 0;
  if (json.is_integer()) {
    if (json.GetInt64(&integer)) return Value::Int(integer);
    uint64_t wide = 0;
    if (json.GetUint64(&wide)) {
      BigInt big;
      if (BigInt::Parse(std::to_string(wide), 10, &big)) return MakeBigInt(std::move(big), nullptr);
    }
    const std::string_view digits = json.NumberText();
    if (digits.size() > kMaxIntegerDigits) {
      return OutOfRange("an integer has %zu digits, at most %zu are allowed", digits.size(),
                        kMaxIntegerDigits);
    }
    BigInt big;
    if (BigInt::Parse(digits, 10, &big)) return MakeBigInt(std::move(big), nullptr);
  }
  double real = 0;
  if (!json.GetDouble(&real)) return Internal("a JSON number has no value");
  return Value::Float(real);
}

}  // namespace

// Recursion is bounded by limits::kMaxJsonDepth, which the parser enforces.
Result<Value> Value::FromJson(json::Value json, bool trusted) {
  switch (json.kind()) {
    case json::Kind::kNull:
      return Value::None().WithTrust(trusted);
    case json::Kind::kBool: {
      bool boolean = false;
      json.GetBool(&boolean);
      return Value::Bool(boolean).WithTrust(trusted);
    }
    case json::Kind::kNumber: {
      CELLM_ASSIGN_OR_RETURN(Value number, NumberFromJson(json));
      return std::move(number).WithTrust(trusted);
    }
    case json::Kind::kString: {
      std::string_view text;
      json.GetString(&text);
      return String(text, trusted);
    }
    case json::Kind::kArray: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (json::Value v = json.First(); v.exists(); v = json.Next(v)) {
        CELLM_ASSIGN_OR_RETURN(Value item, FromJson(v, trusted));
        items.push_back(std::move(item));
      }
      return List(std::move(items));
    }
    case json::Kind::kObject: {
      DictTable table;
      for (json::Value v = json.First(); v.exists(); v = json.Next(v)) {
        CELLM_ASSIGN_OR_RETURN(Value member, FromJson(v, trusted));
        table.Set(String(json.KeyOf(v), trusted), std::move(member));
      }
      return MakeDict(std::move(table), nullptr);
    }
  }
  return Internal("a JSON value of unknown kind");
}

Value Value::Member(std::string_view key) const {
  if (kind_ != Kind::kDict) return Value();
  const Value* found = AsDict(*this).Find(key);
  return found == nullptr ? Value() : *found;
}

size_t Value::ItemCount() const {
  return kind_ == Kind::kSequence ? AsSequence(*this).items.size() : 0;
}

Value Value::Item(size_t index) const {
  return index < ItemCount() ? AsSequence(*this).items[index] : Value();
}

const Text* Value::text() const { return kind_ == Kind::kString ? &AsString(*this).text : nullptr; }

Value Value::WithMember(std::string_view key, Value value) const {
  DictTable table;
  if (kind_ == Kind::kDict) table = AsDict(*this);
  table.Set(String(key, false), std::move(value));
  return MakeDict(std::move(table), nullptr);
}

Value Value::MergedWith(const Value& other) const {
  DictTable table;
  if (kind_ == Kind::kDict) table = AsDict(*this);
  if (other.kind_ == Kind::kDict) {
    for (const DictTable::Entry& entry : AsDict(other).entries()) table.Set(entry.key, entry.value);
  }
  return MakeDict(std::move(table), nullptr);
}

// ---- Tables ----

namespace {
constexpr size_t kSmall = 8;  // up to here a linear search beats hashing
}

template <typename Match>
const DictTable::Entry* DictTable::Probe(uint64_t hash, const Match& match) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    const uint32_t slot = slots_[at];
    if (slot == 0) return nullptr;
    if (match(entries_[slot - 1].key)) return &entries_[slot - 1];
  }
}

void DictTable::Rehash() {
  size_t size = 32;
  while (size < entries_.size() * 2 + 2) size *= 2;
  slots_.assign(size, 0);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t at = HashOf(entries_[i].key) & (size - 1);
    while (slots_[at] != 0) at = (at + 1) & (size - 1);
    slots_[at] = static_cast<uint32_t>(i + 1);
  }
}

const Value* DictTable::Find(const Value& key) const {
  const auto match = [&](const Value& other) {
    CompareCost cost;
    return Equal(key, other, &cost);
  };
  if (!slots_.empty()) {
    const Entry* entry = Probe(HashOf(key), match);
    return entry == nullptr ? nullptr : &entry->value;
  }
  for (const Entry& entry : entries_) {
    if (match(entry.key)) return &entry.value;
  }
  return nullptr;
}

const Value* DictTable::Find(std::string_view key) const {
  const auto match = [&](const Value& other) {
    return other.Is(Kind::kString) && AsString(other).text.bytes() == key;
  };
  if (!slots_.empty()) {
    const Entry* entry = Probe(HashXxh3(key), match);
    return entry == nullptr ? nullptr : &entry->value;
  }
  for (const Entry& entry : entries_) {
    if (match(entry.key)) return &entry.value;
  }
  return nullptr;
}

void DictTable::Set(Value key, Value value) {
  if (const Value* found = Find(key); found != nullptr) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  entries_.push_back({std::move(key), std::move(value)});
  if (entries_.size() <= kSmall) return;
  if (slots_.size() < entries_.size() * 2) {
    Rehash();
    return;
  }
  size_t at = HashOf(entries_.back().key) & (slots_.size() - 1);
  while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
  slots_[at] = static_cast<uint32_t>(entries_.size());
}

size_t DictTable::HeapBytes() const {
  return entries_.capacity() * sizeof(Entry) + slots_.capacity() * sizeof(uint32_t);
}

// ---- Questions ----

bool IsSequence(const Value& value, Flavor flavor) {
  return value.Is(Kind::kSequence) && AsSequence(value).flavor == flavor;
}

bool IsTuple(const Value& value) {
  return IsSequence(value, Flavor::kTuple) || IsSequence(value, Flavor::kGroup);
}

bool GetInt64(const Value& value, int64_t* out) {
  if (value.Is(Kind::kInt)) {
    *out = value.integer();
    return true;
  }
  if (value.Is(Kind::kBool)) {
    *out = value.boolean() ? 1 : 0;
    return true;
  }
  return false;
}

double ToDouble(const Value& number) {
  switch (number.kind()) {
    case Kind::kInt:
      return static_cast<double>(number.integer());
    case Kind::kBool:
      return number.boolean() ? 1.0 : 0.0;
    case Kind::kBigInt:
      return AsBigInt(number).ToDouble();
    default:
      return number.real();
  }
}

BigInt ToBigInt(const Value& integer) {
  int64_t small = 0;
  return GetInt64(integer, &small) ? BigInt(small) : AsBigInt(integer);
}

int64_t CharCount(const StringObject& string) {
  if (string.char_count >= 0) return string.char_count;
  int64_t count = 0;
  for (const char c : string.text.bytes()) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  if (!string.immortal) const_cast<StringObject&>(string).char_count = count;
  return count;
}

const char* TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kScope:
      return "missing";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kFunction:
      return "function";
    case Kind::kString:
      return AsString(value).markup ? "Markup" : "str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kRange:
      return "range";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
    case Kind::kSequence:
      break;
  }
  switch (AsSequence(value).flavor) {
    case Flavor::kList:
      return "list";
    case Flavor::kTuple:
      return "tuple";
    case Flavor::kGenerator:
      return "generator";
    case Flavor::kKeys:
      return "dict_keys";
    case Flavor::kValues:
      return "dict_values";
    case Flavor::kItems:
      return "dict_items";
    case Flavor::kGroup:
      return "_GroupTuple";
  }
  return "list";
}

int CompareNumbers(const Value& a, const Value& b) {
  int64_t x = 0;
  int64_t y = 0;
  if (GetInt64(a, &x) && GetInt64(b, &y)) return x < y ? -1 : (x > y ? 1 : 0);
  if (IsInteger(a) && IsInteger(b)) return BigInt::Compare(ToBigInt(a), ToBigInt(b));
  if (!IsInteger(a) && !IsInteger(b)) {
    const double p = a.real();
    const double q = b.real();
    if (std::isnan(p) || std::isnan(q)) return 2;
    return p < q ? -1 : (p > q ? 1 : 0);
  }
  if (IsInteger(b)) {
    const int reversed = CompareNumbers(b, a);
    return reversed == 2 ? 2 : -reversed;
  }
  // Integer against float: exactly, through the float's integral part and what is left of it.
  const double q = b.real();
  if (std::isnan(q)) return 2;
  if (std::isinf(q)) return q > 0 ? -1 : 1;
  const int whole = BigInt::Compare(ToBigInt(a), BigInt::FromDouble(q));
  if (whole != 0) return whole;
  const double rest = q - std::trunc(q);
  return rest > 0 ? -1 : (rest < 0 ? 1 : 0);
}

namespace {

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b, CompareCost* cost) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(a[i], b[i], cost)) return false;
  }
  return true;
}

bool EqualDicts(const DictTable& a, const DictTable& b, CompareCost* cost) {
  if (a.size() != b.size()) return false;
  for (const DictTable::Entry& entry : a.entries()) {
    const Value* other = b.Find(entry.key);
    if (other == nullptr || !Equal(entry.value, *other, cost)) return false;
  }
  return true;
}

bool EqualSequences(const Value& a, const Value& b, CompareCost* cost) {
  const SequenceObject& x = AsSequence(a);
  const SequenceObject& y = AsSequence(b);
  const bool tuples = IsTuple(a) && IsTuple(b);
  if (!tuples &&
      (x.flavor != y.flavor || x.flavor == Flavor::kGenerator || x.flavor == Flavor::kValues)) {
    return false;
  }
  return EqualItems(x.items, y.items, cost);
}

}  // namespace

bool Equal(const Value& a, const Value& b, CompareCost* cost) {
  if (++cost->steps > cost->max_steps) return false;
  if (IsNumber(a) && IsNumber(b)) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (cost->depth_left == 0) {
    cost->too_deep = true;
    return false;
  }
  --cost->depth_left;
  bool equal = false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      equal = true;
      break;
    case Kind::kFunction:
      equal = a.integer() == b.integer();
      break;
    case Kind::kString:
    case Kind::kBytes:
      cost->steps += static_cast<int64_t>(AsString(a).text.size() / 256);
      equal = AsString(a).text.bytes() == AsString(b).text.bytes();
      break;
    case Kind::kSequence:
      equal = a.object() == b.object() || EqualSequences(a, b, cost);
      break;
    case Kind::kRange: {
      const RangeObject& x = AsRange(a);
      const RangeObject& y = AsRange(b);
      equal = x.count == y.count &&
              (x.count == 0 || (x.start == y.start && (x.count == 1 || x.step == y.step)));
      break;
    }
    case Kind::kDict:
      equal = a.object() == b.object() || EqualDicts(AsDict(a), AsDict(b), cost);
      break;
    default:
      equal = a.object() == b.object();
      break;
  }
  ++cost->depth_left;
  return equal;
}

namespace {

bool IsHashableTo(const Value& value, int depth, int* parts_left) {
  if (--*parts_left < 0) return false;
  switch (value.kind()) {
    case Kind::kDict:
    case Kind::kMissing:
      return false;
    case Kind::kSequence:
      if (!IsTuple(value)) return AsSequence(value).flavor == Flavor::kGenerator;
      if (depth == 0) return false;
      for (const Value& item : AsSequence(value).items) {
        if (!IsHashableTo(item, depth - 1, parts_left)) return false;
      }
      return true;
    default:
      return true;
  }
}

}  // namespace

bool IsHashable(const Value& value) {
  int parts = 256;
  return IsHashableTo(value, 16, &parts);
}

uint64_t HashOf(const Value& value) {
  const auto mix = [](uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    return x ^ (x >> 33);
  };
  switch (value.kind()) {
    case Kind::kString:
    case Kind::kBytes:
      return HashXxh3(AsString(value).text.bytes());
    case Kind::kInt:
      return mix(static_cast<uint64_t>(value.integer()));
    case Kind::kBool:
      return mix(value.boolean() ? 1 : 0);
    case Kind::kFloat: {
      // A float equal to an integer must hash like it.
      const double real = value.real();
      if (std::isfinite(real) && real == std::trunc(real)) {
        int64_t integer = 0;
        const BigInt whole = BigInt::FromDouble(real);
        if (whole.FitsInt64(&integer)) return mix(static_cast<uint64_t>(integer));
        return HashXxh3(whole.ToString());
      }
      uint64_t bits = 0;
      std::memcpy(&bits, &real, sizeof(bits));
      return mix(bits);
    }
    case Kind::kBigInt:
      return HashXxh3(AsBigInt(value).ToString());
    case Kind::kSequence: {
      if (!IsTuple(value)) return mix(reinterpret_cast<uintptr_t>(value.object()));
      uint64_t hash = 0x9E3779B97F4A7C15u;
      for (const Value& item : AsSequence(value).items) hash = mix(hash ^ HashOf(item)) * 31;
      return hash;
    }
    case Kind::kFunction:
      return mix(static_cast<uint64_t>(value.integer()) + 77);
    case Kind::kRange:
      return mix(static_cast<uint64_t>(AsRange(value).count));
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return 42;
    default:
      return mix(reinterpret_cast<uintptr_t>(value.object()));
  }
}

}  // namespace cellm::jinja
