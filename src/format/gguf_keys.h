#ifndef CELLM_SRC_FORMAT_GGUF_KEYS_H_
#define CELLM_SRC_FORMAT_GGUF_KEYS_H_

// Reads the pairs of one architecture ("<arch>.<key>") with ranges checked.
//
// The first thing that is wrong is kept in status() and everything after it yields defaults, so
// that a family's keys can be read one a line and checked once.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/gguf_reader.h"

namespace cellm::format {

class GgufKeys {
 public:
  // Both are kept by reference.
  GgufKeys(const GgufFile& file, std::string_view arch) : file_(file), arch_(arch) {}

  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // Present or an error. `low` and `high` are the allowed range, inclusive.
  int64_t NeedInt(std::string_view key, int64_t low, int64_t high);
  int64_t Int(std::string_view key, int64_t absent, int64_t low, int64_t high);
  // Finite.
  double NeedFloat(std::string_view key);
  double Float(std::string_view key, double absent);
  bool Bool(std::string_view key, bool absent);
  std::string_view Text(std::string_view key, std::string_view absent);
  // An array of at least `count` integers or bools, cut to `count`; a single one is repeated.
  std::vector<int64_t> Ints(std::string_view key, size_t count, int64_t low, int64_t high);
  // The same of floats.
  std::vector<double> Floats(std::string_view key, size_t count);

  bool IsArray(std::string_view key) const;
  const Status& status() const { return status_; }
  // Notes an error that the caller found in `key`; the first error wins.
  void Refuse(StatusCode code, std::string_view key, const std::string& what);

 private:
  const GgufValue* Find(std::string_view key) const;
  const GgufValue* Need(std::string_view key);

  const GgufFile& file_;
  std::string_view arch_;
  Status status_;
};

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_KEYS_H_
