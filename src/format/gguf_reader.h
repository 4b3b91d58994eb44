#ifndef CELLM_SRC_FORMAT_GGUF_READER_H_
#define CELLM_SRC_FORMAT_GGUF_READER_H_

// The GGUF container, versions 2 and 3: key/value pairs, then a table of tensors, then their data.
//
//   "GGUF" | u32 version | u64 tensors | u64 pairs
//   pair     string key | u32 type | value          string: u64 length, bytes
//            array value: u32 item type | u64 count | items
//   tensor   string name | u32 rank | u64 dims[rank], fastest first | u32 type | u64 offset
//   padding to general.alignment (a power of two, 32 unless the pair says otherwise)
//   data     offsets count from here
//
// This file knows the container and nothing about models. Everything is checked against the bytes
// at hand before it is used, and memory is bounded by a small multiple of the header's own size.
// Source: the published GGUF description (ggml project, docs/gguf.md).

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/format.h"

namespace cellm::format {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// One value, a view of the file. For arrays `item` is the type of the items and `count` their
// number; arrays of arrays do not occur (the reader refuses them).
struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::kU8;
  GgufType item = GgufType::kU8;
  uint64_t count = 0;              // items of an array; 1 otherwise
  std::span<const uint8_t> bytes;  // the value, or all items
  std::span<const uint8_t> pair;   // key, type and value as they lie in the file

  bool is_array() const { return type == GgufType::kArray; }
  // Each returns false and leaves *out alone when the value is of another kind or does not fit.
  // Integers of every width and sign are one kind; floats another (an integer is a float too).
  bool GetInt(int64_t* out) const;
  bool GetFloat(double* out) const;
  bool GetBool(bool* out) const;
  bool GetString(std::string_view* out) const;
  // Arrays: of integers or bools (0 and 1), of floats or integers, of strings.
  bool GetInts(std::vector<int64_t>* out) const;
  bool GetFloats(std::vector<double>* out) const;
  bool GetStrings(std::vector<std::string_view>* out) const;
};

struct GgufTensor {
  std::string_view name;
  uint32_t rank = 0;
  uint64_t dims[4] = {1, 1, 1, 1};  // fastest first, as stored; 1 beyond the rank
  Format format = Format::kF32;
  uint64_t file_offset = 0;  // of the data, from the start of the file
  std::span<const uint8_t> data;
};

struct GgufFile {
  std::string_view name;  // for messages; the caller keeps it alive
  uint32_t version = 0;
  std::vector<GgufValue> values;    // in the order of the file, keys unique
  std::vector<GgufTensor> tensors;  // likewise, names unique

  const GgufValue* Find(std::string_view key) const;  // null when absent

 private:
  friend Result<GgufFile> ReadGguf(std::span<const uint8_t> bytes, std::string_view name);
  std::vector<uint32_t> by_key_;  // indexes of values in key order
};

// True when the bytes start like a GGUF file, of whatever version or byte order.
bool LooksLikeGguf(std::span<const uint8_t> bytes);

// Reads pairs and tensor table; on success every span lies inside `bytes`, which must outlive the
// result, and every tensor has the size that its type and dimensions demand.
//   Corrupt      a count, length, offset or dimension that cannot be
//   Unsupported  version 1 or above 3, big-endian, a tensor type that we do not decode (by name)
// Messages start with `name`. O(header). Any thread.
Result<GgufFile> ReadGguf(std::span<const uint8_t> bytes, std::string_view name);

}  // namespace cellm::format

#endif  // CELLM_SRC_FORMAT_GGUF_READER_H_
