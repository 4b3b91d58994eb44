#include "cellm/serve/fields.h"

#include <cinttypes>
#include <cmath>
#include <utility>

namespace cellm::tools::serve {
namespace {

const char* KindName(json::Kind kind) {
  switch (kind) {
    case json::Kind::kNull:
      return "null";
    case json::Kind::kBool:
      return "a boolean";
    case json::Kind::kNumber:
      return "a number";
    case json::Kind::kString:
      return "a string";
    case json::Kind::kArray:
      return "an array";
    case json::Kind::kObject:
      return "an object";
  }
  return "something else";
}

}  // namespace

Fields::Fields(json::Value object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)) {}

json::Value Fields::Find(std::string_view name) {
  asked_.emplace(name);
  if (!ok()) return {};
  const json::Value value = object_.Find(name);
  return value.has_value() ? value : json::Value();
}

void Fields::Fail(std::string_view name, std::string message, std::string code) {
  if (!ok()) return;
  const std::string param = prefix_ + std::string(name);
  error_ = BadField(param, param + ": " + message, std::move(code));
}

bool Fields::Bool(std::string_view name, bool* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  if (value.GetBool(out)) return true;
  Fail(name, StrFormat("expected true or false, found %s", KindName(value.kind())), "invalid_type");
  return false;
}

bool Fields::Integer(std::string_view name, int64_t least, int64_t most, int64_t* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  int64_t number = 0;
  if (!value.is_number()) {
    Fail(name, StrFormat("expected an integer, found %s", KindName(value.kind())), "invalid_type");
  } else if (!value.GetInt64(&number)) {
    Fail(name, "expected an integer of 64 bits", "invalid_type");
  } else if (number < least || number > most) {
    Fail(name,
         StrFormat("%" PRId64 " is not between %" PRId64 " and %" PRId64, number, least, most),
         "invalid_value");
  } else {
    *out = number;
    return true;
  }
  return false;
}

bool Fields::Number(std::string_view name, double least, double most, double* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  double number = 0;
  if (!value.GetDouble(&number)) {
    Fail(name, StrFormat("expected a number, found %s", KindName(value.kind())), "invalid_type");
  } else if (!(number >= least && number <= most)) {
    Fail(name, StrFormat("%g is not between %g and %g", number, least, most), "invalid_value");
  } else {
    *out = number;
    return true;
  }
  return false;
}

bool Fields::Text(std::string_view name, std::string* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  std::string_view text;
  if (value.GetString(&text)) {
    *out = text;
    return true;
  }
  Fail(name, StrFormat("expected a string, found %s", KindName(value.kind())), "invalid_type");
  return false;
}

bool Fields::Array(std::string_view name, json::Value* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  if (value.is_array()) {
    *out = value;
    return true;
  }
  Fail(name, StrFormat("expected an array, found %s", KindName(value.kind())), "invalid_type");
  return false;
}

bool Fields::Object(std::string_view name, json::Value* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  if (value.is_object()) {
    *out = value;
    return true;
  }
  Fail(name, StrFormat("expected an object, found %s", KindName(value.kind())), "invalid_type");
  return false;
}

bool Fields::Any(std::string_view name, json::Value* out) {
  const json::Value value = Find(name);
  if (!value.exists()) return false;
  *out = value;
  return true;
}

std::vector<std::string> Fields::Unknown() const {
  std::vector<std::string> names;
  for (json::Value v = object_.First(); v.exists(); v = object_.Next(v)) {
    const std::string_view key = object_.KeyOf(v);
    if (asked_.find(key) == asked_.end()) names.push_back(prefix_ + std::string(key));
  }
  return names;
}

}  // namespace cellm::tools::serve
