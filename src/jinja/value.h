#ifndef CELLM_SRC_JINJA_VALUE_H_
#define CELLM_SRC_JINJA_VALUE_H_

// Values that templates compute with: Python's scalars, strings, lists, dicts, and the engine's own
// callables.
//
// A Value is 16 bytes: a kind, a mark of origin for scalars (strings carry their own, see text.h)
// and either the scalar itself or a counted reference to an object (objects.h). Lists, tuples and
// dicts never change after they are made, as in the reference's immutable sandbox; so a value can
// only be part of a cycle through a namespace or a scope, and the interpreter clears those when it
// ends.
//
// Counts are not atomic: a Value and everything it refers to belongs to one thread at a time.
// Dropping the last reference never recurses, however deep the value is nested.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/text.h"
#include "json/json.h"

namespace cellm::jinja {

enum class Kind : uint8_t {
  kMissing,    // no value at all: an argument that was not given
  kUndefined,  // Jinja's undefined, with the message that using it would raise
  kNone,
  kBool,
  kInt,  // fits 64 bits; larger ones are kBigInt
  kFloat,
  kFunction,  // a built-in global, by number
  // From here on: objects.
  kBigInt,
  kString,
  kBytes,     // what str.encode() gives; good for length and comparison only
  kSequence,  // list, tuple, generator and the views of a dict
  kRange,
  kDict,
  kNamespace,
  kMethod,  // an object and the name of one of its methods
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
  kScope,  // internal: variables of a block; never seen by templates
};

struct Object;
struct Budget;

class Value {
 public:
  Value() = default;
  Value(const Value& other) : kind_(other.kind_), trusted_(other.trusted_), data_(other.data_) {
    if (IsObject()) Retain();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), trusted_(other.trusted_), data_(other.data_) {
    other.kind_ = Kind::kMissing;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(trusted_, other.trusted_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Value() {
    if (IsObject()) Release();
  }

  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value) {
    Value result(Kind::kBool);
    result.data_.boolean = value;
    return result;
  }
  static Value Int(int64_t value) {
    Value result(Kind::kInt);
    result.data_.integer = value;
    return result;
  }
  static Value Float(double value) {
    Value result(Kind::kFloat);
    result.data_.real = value;
    return result;
  }
  static Value Function(int id) {
    Value result(Kind::kFunction);
    result.data_.integer = id;
    return result;
  }
  // A string whose characters all have one origin. Ill-formed UTF-8 becomes U+FFFD.
  static Value String(std::string_view bytes, bool trusted);
  static Value List(std::vector<Value> items);
  // A dict with string keys, in this order; a later key replaces an earlier one.
  static Value Dict(std::vector<std::pair<std::string, Value>> members);
  // Everything that JSON can say; strings, keys and numbers get the mark `trusted`.
  //   OutOfRange  an integer with more than kMaxIntegerDigits digits
  static Result<Value> FromJson(json::Value json, bool trusted);
  // Takes over an object whose count already includes this reference.
  static Value Adopt(Kind kind, Object* object) {
    Value result(kind);
    result.data_.object = object;
    return result;
  }

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool missing() const { return kind_ == Kind::kMissing; }
  bool IsObject() const {
    return kind_ >= Kind::kBigInt || (kind_ == Kind::kUndefined && data_.object != nullptr);
  }
  bool boolean() const { return data_.boolean; }
  int64_t integer() const { return data_.integer; }
  double real() const { return data_.real; }
  Object* object() const { return data_.object; }
  // Where a scalar came from; false for objects, which know better themselves.
  bool trusted() const { return trusted_; }
  Value WithTrust(bool trusted) && {
    trusted_ = trusted;
    return std::move(*this);
  }

  // For callers that build or look into variables. Missing when there is no such member.
  Value Member(std::string_view key) const;  // of a dict
  size_t ItemCount() const;                  // of a list
  Value Item(size_t index) const;            // of a list
  const Text* text() const;                  // of a string, else null
  // This dict with one member set or added; other holders of the dict do not see the change.
  Value WithMember(std::string_view key, Value value) const;
  // This dict with all members of another.
  Value MergedWith(const Value& other) const;

 private:
  friend class ValueReleaser;
  explicit Value(Kind kind) : kind_(kind) {}
  void Retain() const;
  void Release();

  Kind kind_ = Kind::kMissing;
  bool trusted_ = false;
  union Data {
    bool boolean;
    int64_t integer;
    double real;
    Object* object = nullptr;
  } data_;
};

// Python's own cap on integers written in text.
inline constexpr size_t kMaxIntegerDigits = 4300;

}  // namespace cellm::jinja

#endif  // CELLM_SRC_JINJA_VALUE_H_
