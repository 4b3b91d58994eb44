#ifndef CELLM_SRC_MEDIA_SETTINGS_H_
#define CELLM_SRC_MEDIA_SETTINGS_H_

// Reading processor files strictly.
//
// The same settings may stand in preprocessor_config.json and inside of processor_config.json; a
// Settings looks into all of its sources at once, refuses a key on which they differ, and at the
// end refuses every key that nobody asked for: a key that we do not know may change the pixels.
// The first error is kept and everything after it does nothing, so that a reader is a plain list.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "json/json.h"

namespace cellm::media {

class Settings {
 public:
  // `object` is a JSON object that outlives this; `name` is the file for messages. Missing and null
  // values are no source.
  void AddSource(json::Value object, std::string name);
  bool empty() const { return sources_.empty(); }

  // Each leaves *value alone when the key is absent or null. `key` is a name, or "name.member" for
  // a member of an object. Outside of [low, high] is an error.
  void Int(std::string_view key, int32_t low, int32_t high, int32_t* value);
  void Real(std::string_view key, double low, double high, double* value);
  void Bool(std::string_view key, bool* value);
  // A list of exactly three numbers.
  void Three(std::string_view key, double low, double high, double value[3]);
  // A key whose value we cannot follow unless it is `only` (absent and null are fine).
  void Only(std::string_view key, bool only);
  void OnlyNumber(std::string_view key, double only);
  void OnlyNull(std::string_view key);
  // A text that begins with one of `beginnings`.
  void Text(std::string_view key, std::initializer_list<std::string_view> beginnings);
  // Keys that change nothing here.
  void Ignore(std::initializer_list<std::string_view> keys);
  bool Has(std::string_view key);

  // An error that the reader found itself, kept like the others.
  void Refuse(Status status);

  // The first error; or Unsupported for a key that was not asked for.
  Status Finish();

 private:
  struct Source {
    json::Value object;
    std::string name;
  };
  // The value under `key` and in *name the file it came from; missing when absent, null or after an
  // error.
  json::Value Find(std::string_view key, const char** name);
  bool IsKnown(std::string_view key) const;

  std::vector<Source> sources_;
  std::vector<std::string> known_;
  Status status_;
};

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_SETTINGS_H_
