#include "format/gguf_keys.h"

#include <cinttypes>
#include <cmath>

namespace cellm::format {

const GgufValue* GgufKeys::Find(std::string_view key) const {
  return file_.Find(std::string(arch_) + "." + std::string(key));
}

const GgufValue* GgufKeys::Need(std::string_view key) {
  const GgufValue* value = Find(key);
  if (value == nullptr) Refuse(StatusCode::kNotFound, key, "is missing");
  return value;
}

bool GgufKeys::IsArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value != nullptr && value->is_array();
}

void GgufKeys::Refuse(StatusCode code, std::string_view key, const std::string& what) {
  if (!status_.ok()) return;
  status_ = Status(code, std::string(file_.name) + ": key \"" + std::string(arch_) + "." +
                             std::string(key) + "\" " + what);
}

int64_t GgufKeys::NeedInt(std::string_view key, int64_t low, int64_t high) {
  return Need(key) == nullptr ? low : Int(key, low, low, high);
}

int64_t GgufKeys::Int(std::string_view key, int64_t absent, int64_t low, int64_t high) {
  const GgufValue* value = Find(key);
  if (value == nullptr) return absent;
  int64_t number = 0;
  if (!value->GetInt(&number)) {
    Refuse(StatusCode::kCorrupt, key, "is no integer");
    return absent;
  }
  if (number < low || number > high) {
    Refuse(StatusCode::kCorrupt, key,
           StrFormat("is %" PRId64 ", allowed are %" PRId64 " to %" PRId64, number, low, high));
    return absent;
  }
  return number;
}

double GgufKeys::NeedFloat(std::string_view key) {
  return Need(key) == nullptr ? 0 : Float(key, 0);
}

double GgufKeys::Float(std::string_view key, double absent) {
  const GgufValue* value = Find(key);
  if (value == nullptr) return absent;
  double number = 0;
  if (!value->GetFloat(&number) || !std::isfinite(number)) {
    Refuse(StatusCode::kCorrupt, key, "is no finite number");
    return absent;
  }
  return number;
}

bool GgufKeys::Bool(std::string_view key, bool absent) {
  const GgufValue* value = Find(key);
  if (value == nullptr) return absent;
  bool flag = false;
  if (!value->GetBool(&flag)) Refuse(StatusCode::kCorrupt, key, "is neither true nor false");
  return flag;
}

std::string_view GgufKeys::Text(std::string_view key, std::string_view absent) {
  const GgufValue* value = Find(key);
  if (value == nullptr) return absent;
  std::string_view text;
  if (!value->GetString(&text)) Refuse(StatusCode::kCorrupt, key, "is no string");
  return text;
}

std::vector<int64_t> GgufKeys::Ints(std::string_view key, size_t count, int64_t low, int64_t high) {
  const GgufValue* value = Need(key);
  if (value == nullptr) return std::vector<int64_t>(count, low);
  if (!value->is_array()) return std::vector<int64_t>(count, Int(key, low, low, high));
  std::vector<int64_t> numbers;
  if (!value->GetInts(&numbers) || numbers.size() < count) {
    Refuse(StatusCode::kCorrupt, key, StrFormat("is no array of %zu integers", count));
    return std::vector<int64_t>(count, low);
  }
  numbers.resize(count);
  for (int64_t& number : numbers) {
    if (number >= low && number <= high) continue;
    Refuse(StatusCode::kCorrupt, key,
           StrFormat("has %" PRId64 ", allowed are %" PRId64 " to %" PRId64, number, low, high));
    number = low;
  }
  return numbers;
}

std::vector<double> GgufKeys::Floats(std::string_view key, size_t count) {
  const GgufValue* value = Need(key);
  if (value == nullptr) return std::vector<double>(count, 0.0);
  if (!value->is_array()) return std::vector<double>(count, Float(key, 0.0));
  std::vector<double> numbers;
  bool good = value->GetFloats(&numbers) && numbers.size() >= count;
  numbers.resize(count);
  for (const double number : numbers) good = good && std::isfinite(number);
  if (!good) {
    Refuse(StatusCode::kCorrupt, key, StrFormat("is no array of %zu finite numbers", count));
  }
  return numbers;
}

}  // namespace cellm::format
