#include "format/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/limits.h"
#include "tensor/gguf_blocks.h"

namespace cellm::format {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
// A key is dotted lower-case words; the longest published one has 60 characters.
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMinPairBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

// Bytes of one value of a fixed-size type; 0 for strings and arrays, and for unknown numbers.
uint64_t FixedSize(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

bool LoadInt(GgufType type, const uint8_t* bytes, int64_t* out) {
  switch (type) {
    case GgufType::kU8:
      *out = bytes[0];
      return true;
    case GgufType::kI8:
      *out = static_cast<int8_t>(bytes[0]);
      return true;
    case GgufType::kU16:
      *out = LoadLe16(bytes);
      return true;
    case GgufType::kI16:
      *out = LoadLe<int16_t>(bytes);
      return true;
    case GgufType::kU32:
      *out = LoadLe32(bytes);
      return true;
    case GgufType::kI32:
      *out = LoadLe<int32_t>(bytes);
      return true;
    case GgufType::kU64: {
      int64_t value = 0;
      if (!CheckedCast(LoadLe64(bytes), &value)) return false;
      *out = value;
      return true;
    }
    case GgufType::kI64:
      *out = LoadLe<int64_t>(bytes);
      return true;
    default:
      return false;
  }
}

bool LoadFloat(GgufType type, const uint8_t* bytes, double* out) {
  if (type == GgufType::kF32) {
    *out = static_cast<double>(LoadLe<float>(bytes));
    return true;
  }
  if (type == GgufType::kF64) {
    *out = LoadLe<double>(bytes);
    return true;
  }
  int64_t integer = 0;
  if (!LoadInt(type, bytes, &integer)) return false;
  *out = static_cast<double>(integer);
  return true;
}

// Reads forward through the header and never past its end.
class Cursor {
 public:
  Cursor(std::span<const uint8_t> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  uint64_t position() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  Result<std::span<const uint8_t>> Take(uint64_t count, const char* what) {
    if (count > left()) {
      return Corrupt("%.*s: %s of %" PRIu64 " bytes at byte %" PRIu64
                     " reaches past the end, the file has %zu",
                     Width(), name_.data(), what, count, at_, bytes_.size());
    }
    const std::span<const uint8_t> taken =
        bytes_.subspan(static_cast<size_t>(at_), static_cast<size_t>(count));
    at_ += count;
    return taken;
  }
  Result<uint32_t> TakeU32(const char* what) {
    CELLM_ASSIGN_OR_RETURN(const std::span<const uint8_t> taken, Take(4, what));
    return LoadLe32(taken.data());
  }
  Result<uint64_t> TakeU64(const char* what) {
    CELLM_ASSIGN_OR_RETURN(const std::span<const uint8_t> taken, Take(8, what));
    return LoadLe64(taken.data());
  }
  Result<std::string_view> TakeString(const char* what) {
    CELLM_ASSIGN_OR_RETURN(const uint64_t length, TakeU64(what));
    CELLM_ASSIGN_OR_RETURN(const std::span<const uint8_t> taken, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(taken.data()), taken.size());
  }

 private:
  int Width() const { return static_cast<int>(name_.size()); }
  std::span<const uint8_t> bytes_;
  std::string_view name_;
  uint64_t at_ = 0;
};

int Width(std::string_view text) { return static_cast<int>(std::min<size_t>(text.size(), 200)); }

Result<std::span<const uint8_t>> TakeArray(Cursor& cursor, std::string_view name,
                                           GgufValue* value) {
  CELLM_ASSIGN_OR_RETURN(const uint32_t item, cursor.TakeU32("array item type"));
  CELLM_ASSIGN_OR_RETURN(value->count, cursor.TakeU64("array length"));
  value->item = static_cast<GgufType>(item);
  const uint64_t start = cursor.position();
  if (item == static_cast<uint32_t>(GgufType::kString)) {
    Cursor first = cursor;
    if (value->count > cursor.left() / 8) {
      return Corrupt("%.*s: key \"%.*s\": an array of %" PRIu64 " strings in %" PRIu64 " bytes",
                     Width(name), name.data(), Width(value->key), value->key.data(), value->count,
                     cursor.left());
    }
    for (uint64_t i = 0; i < value->count; ++i) {
      CELLM_RETURN_IF_ERROR(cursor.TakeString("string in an array").status());
    }
    return first.Take(cursor.position() - start, "array");
  }
  const uint64_t size = FixedSize(value->item);
  if (size == 0) {
    return Corrupt("%.*s: key \"%.*s\": an array of type %" PRIu32
                   ", known are numbers, bools and strings",
                   Width(name), name.data(), Width(value->key), value->key.data(), item);
  }
  uint64_t total = 0;
  if (!CheckedMul(value->count, size, &total)) {
    return Corrupt("%.*s: key \"%.*s\": %" PRIu64 " array items overflow", Width(name), name.data(),
                   Width(value->key), value->key.data(), value->count);
  }
  return cursor.Take(total, "array");
}

Result<GgufValue> TakePair(Cursor& cursor, std::string_view name) {
  GgufValue value;
  Cursor start = cursor;
  CELLM_ASSIGN_OR_RETURN(value.key, cursor.TakeString("key"));
  if (value.key.empty() || value.key.size() > kMaxKeyBytes) {
    return Corrupt("%.*s: a key of %zu bytes before byte %" PRIu64 ", a key has 1 to %" PRIu64,
                   Width(name), name.data(), value.key.size(), cursor.position(), kMaxKeyBytes);
  }
  CELLM_ASSIGN_OR_RETURN(const uint32_t type, cursor.TakeU32("value type"));
  value.type = static_cast<GgufType>(type);
  value.count = 1;
  if (value.type == GgufType::kString) {
    CELLM_ASSIGN_OR_RETURN(const std::string_view text, cursor.TakeString("string"));
    value.bytes = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  } else if (value.type == GgufType::kArray) {
    CELLM_ASSIGN_OR_RETURN(value.bytes, TakeArray(cursor, name, &value));
  } else {
    const uint64_t size = FixedSize(value.type);
    if (size == 0) {
      return Corrupt("%.*s: key \"%.*s\" has a value of type %" PRIu32 ", known are 0 to 12",
                     Width(name), name.data(), Width(value.key), value.key.data(), type);
    }
    CELLM_ASSIGN_OR_RETURN(value.bytes, cursor.Take(size, "value"));
  }
  CELLM_ASSIGN_OR_RETURN(value.pair, start.Take(cursor.position() - start.position(), "pair"));
  return value;
}

// A type number for people: what a file may hold that we do not decode.
std::string TypeName(uint32_t type_id) {
  switch (type_id) {
    case 4:
      return "Q4_2 (withdrawn)";
    case 5:
      return "Q4_3 (withdrawn)";
    case 9:
      return "Q8_1 (not for files)";
    case 15:
      return "Q8_K (not for files)";
    case 31:
    case 32:
    case 33:
      return "Q4_0 repacked for one kind of machine (withdrawn)";
    case 36:
    case 37:
    case 38:
      return "IQ4_NL repacked for one kind of machine (withdrawn)";
    default:
      return StrFormat("number %" PRIu32, type_id);
  }
}

Result<GgufTensor> TakeTensor(Cursor& cursor, std::string_view name, uint64_t* relative_offset,
                              uint64_t* byte_count) {
  GgufTensor tensor;
  CELLM_ASSIGN_OR_RETURN(tensor.name, cursor.TakeString("tensor name"));
  if (tensor.name.empty() || tensor.name.size() > limits::kMaxTensorNameBytes) {
    return Corrupt("%.*s: a tensor name of %zu bytes, a name has 1 to %zu", Width(name),
                   name.data(), tensor.name.size(), limits::kMaxTensorNameBytes);
  }
  const std::string where = StrFormat("%.*s: tensor \"%.*s\"", Width(name), name.data(),
                                      Width(tensor.name), tensor.name.data());
  CELLM_ASSIGN_OR_RETURN(tensor.rank, cursor.TakeU32("tensor rank"));
  if (tensor.rank < 1 || tensor.rank > 4) {
    return Corrupt("%s has %" PRIu32 " dimensions, GGUF has 1 to 4", where.c_str(), tensor.rank);
  }
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    CELLM_ASSIGN_OR_RETURN(tensor.dims[i], cursor.TakeU64("tensor dimension"));
    if (tensor.dims[i] == 0) return Corrupt("%s: dimension %" PRIu32 " is 0", where.c_str(), i);
  }
  CELLM_ASSIGN_OR_RETURN(const uint32_t type_id, cursor.TakeU32("tensor type"));
  CELLM_ASSIGN_OR_RETURN(*relative_offset, cursor.TakeU64("tensor offset"));
  tensor.format = FormatOfGgufType(type_id);
  if (tensor.format == Format::kCount) {
    return Unsupported("%s has the type %s, which is not decoded here", where.c_str(),
                       TypeName(type_id).c_str());
  }

  const GgufBlock* block = FindGgufBlock(tensor.format);
  const FormatInfo& info = GetFormatInfo(tensor.format);
  const uint64_t weights = block != nullptr ? static_cast<uint64_t>(block->weights) : 1;
  const uint64_t bytes = static_cast<uint64_t>(block != nullptr ? block->bytes : info.block_bytes);
  if (tensor.dims[0] % weights != 0) {
    return Corrupt("%s: rows of %" PRIu64 " are no whole blocks of %" PRIu64, where.c_str(),
                   tensor.dims[0], weights);
  }
  uint64_t total = tensor.dims[0] / weights;
  bool fits = CheckedMul(total, bytes, &total);
  for (uint32_t i = 1; i < 4; ++i) fits = fits && CheckedMul(total, tensor.dims[i], &total);
  if (!fits) return Corrupt("%s: the dimensions overflow", where.c_str());
  *byte_count = total;
  return tensor;
}

Result<uint64_t> Alignment(const GgufFile& file) {
  const GgufValue* value = file.Find("general.alignment");
  if (value == nullptr) return uint64_t{32};
  int64_t alignment = 0;
  if (!value->GetInt(&alignment) || alignment <= 0 ||
      !std::has_single_bit(static_cast<uint64_t>(alignment)) ||
      static_cast<uint64_t>(alignment) > kMaxAlignment) {
    return Corrupt("%.*s: general.alignment is not a power of two up to %" PRIu64, Width(file.name),
                   file.name.data(), kMaxAlignment);
  }
  return static_cast<uint64_t>(alignment);
}

// Names must be unique and data must not overlap: a file that says otherwise is damaged.
Status CheckTensors(const GgufFile& file) {
  std::vector<uint32_t> order(file.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return file.tensors[a].name < file.tensors[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string_view name = file.tensors[order[i]].name;
    if (name != file.tensors[order[i - 1]].name) continue;
    return Corrupt("%.*s: two tensors are called \"%.*s\"", Width(file.name), file.name.data(),
                   Width(name), name.data());
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return file.tensors[a].file_offset < file.tensors[b].file_offset;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const GgufTensor& before = file.tensors[order[i - 1]];
    const GgufTensor& after = file.tensors[order[i]];
    if (before.file_offset + before.data.size() <= after.file_offset) continue;
    return Corrupt("%.*s: tensors \"%.*s\" and \"%.*s\" overlap", Width(file.name),
                   file.name.data(), Width(before.name), before.name.data(), Width(after.name),
                   after.name.data());
  }
  return OkStatus();
}

Status CheckStart(Cursor& cursor, std::string_view name, uint32_t* version) {
  CELLM_ASSIGN_OR_RETURN(const uint32_t magic, cursor.TakeU32("magic"));
  if (magic != kMagic) {
    return Corrupt("%.*s: does not start with \"GGUF\"", Width(name), name.data());
  }
  CELLM_ASSIGN_OR_RETURN(*version, cursor.TakeU32("version"));
  if (*version == 2 || *version == 3) return OkStatus();
  if ((*version & 0xFFFFu) == 0 && *version != 0) {
    return Unsupported("%.*s: big-endian GGUF is not read here", Width(name), name.data());
  }
  return Unsupported("%.*s: GGUF version %" PRIu32 ", 2 and 3 are read here", Width(name),
                     name.data(), *version);
}

}  // namespace

bool GgufValue::GetInt(int64_t* out) const {
  return !is_array() && LoadInt(type, bytes.data(), out);
}

bool GgufValue::GetFloat(double* out) const {
  return !is_array() && LoadFloat(type, bytes.data(), out);
}

bool GgufValue::GetBool(bool* out) const {
  if (type != GgufType::kBool || bytes[0] > 1) return false;
  *out = bytes[0] != 0;
  return true;
}

bool GgufValue::GetString(std::string_view* out) const {
  if (type != GgufType::kString) return false;
  *out = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return true;
}

bool GgufValue::GetInts(std::vector<int64_t>* out) const {
  const uint64_t size = FixedSize(item);
  if (!is_array() || size == 0) return false;
  std::vector<int64_t> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t* at = bytes.data() + i * size;
    if (item == GgufType::kBool) {
      values[i] = at[0] != 0;
    } else if (!LoadInt(item, at, &values[i])) {
      return false;
    }
  }
  *out = std::move(values);
  return true;
}

bool GgufValue::GetFloats(std::vector<double>* out) const {
  const uint64_t size = FixedSize(item);
  if (!is_array() || size == 0) return false;
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!LoadFloat(item, bytes.data() + i * size, &values[i])) return false;
  }
  *out = std::move(values);
  return true;
}

bool GgufValue::GetStrings(std::vector<std::string_view>* out) const {
  if (!is_array() || item != GgufType::kString) return false;
  std::vector<std::string_view> values(static_cast<size_t>(count));
  const uint8_t* at = bytes.data();
  for (std::string_view& value : values) {
    const uint64_t length = LoadLe64(at);  // checked when the array was read
    value = {reinterpret_cast<const char*>(at + 8), static_cast<size_t>(length)};
    at += 8 + length;
  }
  *out = std::move(values);
  return true;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto at =
      std::lower_bound(by_key_.begin(), by_key_.end(), key,
                       [&](uint32_t index, std::string_view k) { return values[index].key < k; });
  if (at == by_key_.end() || values[*at].key != key) return nullptr;
  return &values[*at];
}

bool LooksLikeGguf(std::span<const uint8_t> bytes) {
  return bytes.size() >= 4 && LoadLe32(bytes.data()) == kMagic;
}

Result<GgufFile> ReadGguf(std::span<const uint8_t> bytes, std::string_view name) {
  GgufFile file;
  file.name = name;
  Cursor cursor(bytes, name);
  CELLM_RETURN_IF_ERROR(CheckStart(cursor, name, &file.version));
  CELLM_ASSIGN_OR_RETURN(const uint64_t tensor_count, cursor.TakeU64("tensor count"));
  CELLM_ASSIGN_OR_RETURN(const uint64_t pair_count, cursor.TakeU64("pair count"));
  if (tensor_count > limits::kMaxTensors || tensor_count > cursor.left() / kMinTensorBytes ||
      pair_count > cursor.left() / kMinPairBytes) {
    return Corrupt("%.*s: %" PRIu64 " pairs and %" PRIu64 " tensors do not fit in %zu bytes",
                   Width(name), name.data(), pair_count, tensor_count, bytes.size());
  }

  for (uint64_t i = 0; i < pair_count; ++i) {
    CELLM_ASSIGN_OR_RETURN(GgufValue value, TakePair(cursor, name));
    file.values.push_back(value);
  }
  file.by_key_.resize(file.values.size());
  std::iota(file.by_key_.begin(), file.by_key_.end(), 0u);
  std::sort(file.by_key_.begin(), file.by_key_.end(),
            [&](uint32_t a, uint32_t b) { return file.values[a].key < file.values[b].key; });
  for (size_t i = 1; i < file.by_key_.size(); ++i) {
    const std::string_view key = file.values[file.by_key_[i]].key;
    if (key != file.values[file.by_key_[i - 1]].key) continue;
    return Corrupt("%.*s: the key \"%.*s\" occurs twice", Width(name), name.data(), Width(key),
                   key.data());
  }
  CELLM_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment(file));

  std::vector<uint64_t> offsets(static_cast<size_t>(tensor_count));
  std::vector<uint64_t> sizes(static_cast<size_t>(tensor_count));
  for (size_t i = 0; i < offsets.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(GgufTensor tensor, TakeTensor(cursor, name, &offsets[i], &sizes[i]));
    file.tensors.push_back(tensor);
  }

  const uint64_t data_start = RoundUp(cursor.position(), alignment);
  for (size_t i = 0; i < offsets.size(); ++i) {
    GgufTensor& tensor = file.tensors[i];
    uint64_t start = 0;
    if (offsets[i] % alignment != 0 || !CheckedAdd(data_start, offsets[i], &start) ||
        !RangeFits(start, sizes[i], bytes.size())) {
      return Corrupt("%.*s: tensor \"%.*s\": %" PRIu64 " bytes at offset %" PRIu64
                     " of the data, which starts at byte %" PRIu64 "; the file has %zu",
                     Width(name), name.data(), Width(tensor.name), tensor.name.data(), sizes[i],
                     offsets[i], data_start, bytes.size());
    }
    tensor.file_offset = start;
    tensor.data = bytes.subspan(static_cast<size_t>(start), static_cast<size_t>(sizes[i]));
  }
  CELLM_RETURN_IF_ERROR(CheckTensors(file));
  return file;
}

}  // namespace cellm::format
