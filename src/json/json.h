#ifndef CELLM_SRC_JSON_JSON_H_
#define CELLM_SRC_JSON_JSON_H_

// JSON for the library: a read-only view over a parsed document, and escaping for writers.
//
// simdjson parses (tape.h tells how); nothing outside this folder knows. A Document owns the
// parsed tape (about the size of the text); a Value is a small view into it and copies nothing
// until asked. Objects keep the file's key order, duplicate keys included (Find() returns the last
// one, as Python does).
//
// Beyond standard JSON, Infinity, -Infinity and NaN are accepted as numbers, because published
// config.json files contain them. Integers outside int64/uint64 keep their digits (NumberText).
// Strings are well-formed UTF-8: lone surrogate escapes are Corrupt.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cellm::json {

enum class Kind : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject };

class Document;

// A view into a Document, valid as long as it lives. Cheap to copy. A default Value is "missing":
// every question answers no.
class Value {
 public:
  Value() = default;

  bool exists() const { return document_ != nullptr; }
  Kind kind() const;  // kNull when missing
  bool is_null() const { return exists() && kind() == Kind::kNull; }
  bool is_bool() const { return exists() && kind() == Kind::kBool; }
  bool is_number() const { return exists() && kind() == Kind::kNumber; }
  bool is_string() const { return exists() && kind() == Kind::kString; }
  bool is_array() const { return exists() && kind() == Kind::kArray; }
  bool is_object() const { return exists() && kind() == Kind::kObject; }
  // Neither missing nor null.
  bool has_value() const { return exists() && kind() != Kind::kNull; }

  // True when the number is written without fraction or exponent (3 is, 3.0 is not).
  bool is_integer() const;

  // Each returns false and leaves *out alone when the value is of another kind or does not fit.
  bool GetBool(bool* out) const;
  bool GetInt64(int64_t* out) const;    // integers, and floats with an integral value (128.0)
  bool GetUint64(uint64_t* out) const;  // likewise
  bool GetDouble(double* out) const;    // any number; 1e999 and longer integers may be infinite
  bool GetString(std::string_view* out) const;  // UTF-8, unescaped; may contain NUL
  // The digits of an integer as written, for those beyond 64 bits; empty for anything else.
  std::string_view NumberText() const;

  // Arrays and objects. Iteration is O(1) a step: for (Value v = a.First(); v.exists(); v =
  // a.Next(v)). For objects the views are of the members' values and KeyOf(v) is the key.
  size_t size() const;
  Value First() const;
  Value Next(Value member) const;
  std::string_view KeyOf(Value member) const;
  // The member of an object with this key (the last one if repeated); missing otherwise. O(size).
  Value Find(std::string_view key) const;
  // Element of an array; missing when out of range. O(index).
  Value At(size_t index) const;

 private:
  friend class Document;
  Value(const Document* document, size_t index, bool in_object)
      : document_(document), index_(index), in_object_(in_object) {}
  uint64_t Word() const;
  char Type() const;
  std::string_view StringAt(uint64_t word) const;

  const Document* document_ = nullptr;
  size_t index_ = 0;        // of the value's first word on the tape
  bool in_object_ = false;  // a member of an object: its key stands just before
};

// A parsed text. Move-only; Values point to it by address of its heap part and survive moves.
class Document {
 public:
  // Parses `text` (copied as needed; need not outlive the call).
  //   Corrupt    not JSON: the message has the byte offset and what was expected
  //   OutOfRange larger than limits::kMaxJsonBytes or deeper than limits::kMaxJsonDepth
  //   OutOfMemory
  // `name` is the file or field for messages.
  static Result<std::unique_ptr<Document>> Parse(std::string_view text, std::string_view name);
  ~Document();
  Value root() const;

 private:
  friend class Value;
  Document();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// `text` as a JSON string with quotes. Escapes what JSON requires and nothing else (UTF-8 stays);
// ill-formed UTF-8 becomes U+FFFD.
std::string Quote(std::string_view text);

// The value serialised again: compact, key order kept, integers with their digits, floats in the
// shortest form that reads back the same, NaN and infinities as Python writes them. A missing value
// is null. Used to carry config sections from file to file.
std::string Serialize(Value value);

}  // namespace cellm::json

#endif  // CELLM_SRC_JSON_JSON_H_
