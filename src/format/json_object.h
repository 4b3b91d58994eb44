#ifndef CELLM_SRC_FORMAT_JSON_OBJECT_H_
#define CELLM_SRC_FORMAT_JSON_OBJECT_H_

// Writes one JSON object, member by member, for configurations that are rebuilt from other keys.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cellm::format {

class JsonObject {
 public:
  void Int(std::string_view key, int64_t value);
  // Finite values only; others become null.
  void Float(std::string_view key, double value);
  void Bool(std::string_view key, bool value);
  void Text(std::string_view key, std::string_view value);
  // `json` is a value already written: an object, a list, null.
  void Raw(std::string_view key, std::string_view json);
  // The object so far, closed.
  std::string Take() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  void Key(std::string_view key);
  std::string text_;
};

std::string JsonInts(std::span<const int64_t> values);
std::string JsonFloats(std::span<const float> values);
std::string JsonTexts(std::span<const std::string_view> values);

// The double with the fewest digits that is `value` when rounded to float, so that 1e-6 stored as a
// float is written 1e-06 and not 9.999999974752427e-07. Finite values only.
double ShortestDouble(float value);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_JSON_OBJECT_H_
