#ifndef CELLM_SRC_MODEL_CONFIG_H_
#define CELLM_SRC_MODEL_CONFIG_H_

// Reading a model's configuration: typed, bounded, and nothing overlooked.
//
// A Config remembers the first error and every key that was asked for. After a family has read what
// it knows, Finish() refuses, by name, keys that are left over and could change the mathematics.
// An absent key and an explicit null both mean "the family's default", except where a getter says
// otherwise. Numbers may be written as int or float.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "json/json.h"

namespace cellm {

class Config {
 public:
  explicit Config(json::Value object) : object_(object) {}

  // The first error so far. Getters return their default after an error.
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // True when the key is there and not null. Marks it as known.
  bool Has(std::string_view key);
  // True when the key is there and null (for keys whose absence means something else).
  bool IsNull(std::string_view key);
  json::Value Raw(std::string_view key);  // marks it as known; missing when absent

  // A dimension or count: [minimum, limits::kMaxDimension].
  int32_t Int(std::string_view key, int32_t fallback, int32_t minimum = 1);
  // No default: absent or null is an error.
  int32_t RequiredInt(std::string_view key, int32_t minimum = 1);
  double Float(std::string_view key, double fallback);
  bool Bool(std::string_view key, bool fallback);
  std::string String(std::string_view key, std::string_view fallback);
  // A list of strings or of ints; empty when absent or null.
  std::vector<std::string> StringList(std::string_view key);
  std::vector<int32_t> IntList(std::string_view key);
  // "silu", "gelu_pytorch_tanh", ... Unsupported names key and value.
  Activation ActivationOf(std::string_view key, std::string_view fallback);

  // Refuses the key when it is there with another value than the one that we run ("absent" and
  // null pass). Unsupported: `key: true is not supported (reason)`.
  void RefuseTrue(std::string_view key, const char* reason);
  void RefuseIfPresent(std::string_view key, const char* reason);
  // Keys that cannot change the result here.
  void Ignore(std::initializer_list<std::string_view> keys);

  // Unsupported with the names of all left-over keys that hold true, a non-zero number, a list or
  // an object, unless they are on the list of keys known to be harmless for every family. Left-over
  // strings, false, 0, null and empty values are not settings that can be on. Returns status().
  Status Finish();

 private:
  void Know(std::string_view key) { known_.emplace_back(key); }
  json::Value object_;
  std::vector<std::string> known_;
  Status status_;
};

// head_dim: the key when present and not null, else hidden / heads, which must then divide.
int32_t HeadDim(Config& config, int32_t hidden, int32_t heads);
// num_key_value_heads: null or absent means `fallback` (0: = heads). Must divide heads.
int32_t KvHeads(Config& config, int32_t heads, int32_t fallback = 0);
// "quantization_config" and "quantization" (MLX): passes the methods whose weights format/ resolves
// (gptq, awq, compressed-tensors, affine groups); Unsupported names any other.
void CheckQuantization(Config& config);
// "bos_token_id" (int or null) and "eos_token_id" (int, list or null).
int32_t BosId(Config& config);
std::vector<int32_t> EosIds(Config& config);

}  // namespace cellm

#endif  // CELLM_SRC_MODEL_CONFIG_H_
