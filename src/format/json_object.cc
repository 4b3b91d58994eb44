#include "format/json_object.h"

#include <cmath>
#include <cstdio>

#include "base/numbers.h"
#include "json/json.h"

namespace cellm::format {
namespace {

void AppendFinite(double value, std::string* out) {
  if (std::isfinite(value)) {
    AppendDouble(value, out);
  } else {
    *out += "null";
  }
}

}  // namespace

void JsonObject::Key(std::string_view key) {
  text_ += text_.empty() ? "{" : ", ";
  text_ += json::Quote(key);
  text_ += ": ";
}

void JsonObject::Int(std::string_view key, int64_t value) {
  Key(key);
  text_ += std::to_string(value);
}

void JsonObject::Float(std::string_view key, double value) {
  Key(key);
  AppendFinite(value, &text_);
}

void JsonObject::Bool(std::string_view key, bool value) {
  Key(key);
  text_ += value ? "true" : "false";
}

void JsonObject::Text(std::string_view key, std::string_view value) {
  Key(key);
  text_ += json::Quote(value);
}

void JsonObject::Raw(std::string_view key, std::string_view json) {
  Key(key);
  text_ += json;
}

std::string JsonInts(std::span<const int64_t> values) {
  std::string text = "[";
  for (const int64_t value : values) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(value);
  }
  return text + "]";
}

std::string JsonFloats(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) {
    if (text.size() > 1) text += ", ";
    AppendFinite(std::isfinite(value) ? ShortestDouble(value) : HUGE_VAL, &text);
  }
  return text + "]";
}

std::string JsonTexts(std::span<const std::string_view> values) {
  std::string text = "[";
  for (const std::string_view value : values) {
    if (text.size() > 1) text += ", ";
    text += json::Quote(value);
  }
  return text + "]";
}

double ShortestDouble(float value) {
  for (int digits = 1; digits < 9; ++digits) {
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.*e", digits - 1, static_cast<double>(value));
    for (char& c : buffer) {
      if (c == ',') c = '.';  // some locales' decimal point
    }
    double parsed = 0;
    if (ParseDouble(buffer, &parsed) && static_cast<float>(parsed) == value) return parsed;
  }
  return static_cast<double>(value);
}

}  // namespace cellm::format
