#include "format/cellm_file.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/limits.h"
#include "format/safetensors.h"
#include "format/tensor_index.h"

namespace cellm::format {
namespace {

unsigned long long Printable(uint64_t value) { return static_cast<unsigned long long>(value); }

Result<std::string_view> ReadHeaderText(std::span<const uint8_t> bytes, const std::string& path) {
  if (bytes.size() < kCellmPreludeBytes) {
    return Corrupt("%s: %zu bytes, expected at least 10", path.c_str(), bytes.size());
  }
  const uint8_t version = bytes[5];
  if (version != 1) {
    return Unsupported("%s: version %d of the .cellm format, expected 1", path.c_str(), version);
  }
  const uint64_t header_bytes = LoadLe32(bytes.data() + 6);
  if (header_bytes > bytes.size() - kCellmPreludeBytes) {
    return Corrupt("%s: header ends at byte %llu, file has %zu; the file is cut short",
                   path.c_str(), Printable(header_bytes + kCellmPreludeBytes), bytes.size());
  }
  if (header_bytes > limits::kMaxHeaderBytes) {
    return OutOfRange("%s: header of %llu bytes, expected at most %llu", path.c_str(),
                      Printable(header_bytes), Printable(limits::kMaxHeaderBytes));
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kCellmPreludeBytes,
                          static_cast<size_t>(header_bytes));
}

// Format and layout of a dtype string.
Status ReadDtype(std::string_view dtype, const std::string& where, Tensor* tensor) {
  tensor->format = FormatByName(dtype);
  if (tensor->format == Format::kPacked) tensor->format = Format::kCount;
  if (tensor->format != Format::kCount) return OkStatus();
  // Rows and columns come from the shape; 1 x 1 stands in for the check of the rest.
  auto packed = ParsePackedName(dtype, 1, 1);
  if (!packed.ok()) {
    return Unsupported("%s: element type \"%.*s\" is not supported", where.c_str(),
                       static_cast<int>(std::min<size_t>(dtype.size(), 40)), dtype.data());
  }
  tensor->format = Format::kPacked;
  tensor->packed = *packed;
  tensor->packed.rows = 0;
  tensor->packed.cols = 0;
  return OkStatus();
}

// Version-1 writers state some shapes otherwise than the bytes have them: scales with the shape of
// their weight, words of packed nibbles with the shape of the weights. The byte count is right.
bool MendV1Shape(uint64_t byte_count, Tensor* tensor) {
  if (tensor->name.ends_with(".qscale") && IsDenseFloat(tensor->format)) {
    const uint64_t item = static_cast<uint64_t>(GetFormatInfo(tensor->format).block_bytes);
    if (byte_count % item != 0) return false;
    tensor->shape = {static_cast<int64_t>(byte_count / item)};
    return true;
  }
  if (tensor->format == Format::kU32 && tensor->shape.size() == 2 && tensor->shape[0] > 0) {
    const uint64_t row_unit = static_cast<uint64_t>(tensor->shape[0]);
    if (byte_count % 4 != 0 || byte_count / 4 % row_unit != 0) return false;
    const int64_t words = static_cast<int64_t>(byte_count / 4 / row_unit);
    if (words >= tensor->shape[1]) return false;
    tensor->shape[1] = words;
    return true;
  }
  return false;
}

Status ReadEntry(json::Value entry, size_t index, bool ours, std::span<const uint8_t> bytes,
                 uint64_t header_end, const std::string& path, Tensor* tensor) {
  std::string_view name;
  if (!entry.is_object() || !entry.Find("name").GetString(&name)) {
    return Corrupt("%s: entry %zu of \"tensors\" has no name", path.c_str(), index);
  }
  const std::string where = TensorPlace(path, name);
  if (name.size() > limits::kMaxTensorNameBytes) {
    return Corrupt("%s: a name of %zu bytes, expected at most %zu", where.c_str(), name.size(),
                   limits::kMaxTensorNameBytes);
  }
  tensor->name = name;
  std::string_view dtype;
  if (!entry.Find("dtype").GetString(&dtype)) return Corrupt("%s: no dtype", where.c_str());
  CELLM_RETURN_IF_ERROR(ReadDtype(dtype, where, tensor));
  CELLM_RETURN_IF_ERROR(ReadShape(entry.Find("shape"), where, &tensor->shape));
  uint64_t byte_count = 0;
  if (!entry.Find("offset_bytes").GetUint64(&tensor->file_offset)) {
    return Corrupt("%s: offset_bytes is not a non-negative integer", where.c_str());
  }
  if (!entry.Find("nbytes").GetUint64(&byte_count)) {
    return Corrupt("%s: nbytes is not a non-negative integer", where.c_str());
  }
  CELLM_RETURN_IF_ERROR(CheckRange(where, tensor->file_offset, byte_count, bytes.size()));
  if (byte_count != 0 && tensor->file_offset < header_end) {
    return Corrupt("%s: data begins at byte %llu, inside the header, which ends at %llu",
                   where.c_str(), Printable(tensor->file_offset), Printable(header_end));
  }
  if (ours && tensor->file_offset % kCellmAlignment != 0) {
    return Corrupt("%s: data begins at byte %llu, expected a multiple of %llu", where.c_str(),
                   Printable(tensor->file_offset), Printable(kCellmAlignment));
  }
  auto expected = TensorBytes(tensor->format, tensor->packed, tensor->shape);
  if (!expected.ok() || *expected != byte_count) {
    const std::string stated = ShapeText(tensor->shape);
    if (ours || !MendV1Shape(byte_count, tensor)) {
      if (!expected.ok()) {
        return Corrupt("%s: %s", where.c_str(), expected.status().message().c_str());
      }
      return Corrupt("%s: %llu bytes, expected %llu for %.*s %s", where.c_str(),
                     Printable(byte_count), Printable(*expected), static_cast<int>(dtype.size()),
                     dtype.data(), stated.c_str());
    }
  }
  tensor->data =
      bytes.subspan(static_cast<size_t>(tensor->file_offset), static_cast<size_t>(byte_count));
  const json::Value checksum = entry.Find("xxh3");
  if (!checksum.exists()) return OkStatus();
  std::string_view digits;
  if (!checksum.GetString(&digits) || !ParseHex(digits, &tensor->checksum)) {
    return Corrupt("%s: xxh3 is not 16 hexadecimal digits", where.c_str());
  }
  tensor->has_checksum = true;
  return OkStatus();
}

Status ReadTensors(json::Value header, bool ours, uint64_t header_end, const std::string& path,
                   ModelFile* model) {
  const json::Value list = header.Find("tensors");
  if (!list.is_array()) return Corrupt("%s: header has no list \"tensors\"", path.c_str());
  const size_t count = list.size();
  if (count > limits::kMaxTensors) {
    return OutOfRange("%s: %zu tensors, expected at most %llu", path.c_str(), count,
                      Printable(limits::kMaxTensors));
  }
  size_t index = 0;
  for (json::Value v = list.First(); v.exists(); v = list.Next(v), ++index) {
    Tensor tensor;
    CELLM_RETURN_IF_ERROR(
        ReadEntry(v, index, ours, model->files[0].bytes(), header_end, path, &tensor));
    model->tensors.push_back(std::move(tensor));
  }
  return SortAndCheckTensors(path, &model->tensors);
}

// The keys of ours, whose presence makes a file ours.
Status ReadOwnKeys(std::string_view text, json::Value header, const std::string& path,
                   ModelFile* model) {
  int64_t revision = 0;
  const json::Value stated = header.Find("cellm_revision");
  if (!stated.GetInt64(&revision) || revision < 1) {
    return Corrupt("%s: cellm_revision is not a positive integer", path.c_str());
  }
  if (revision > kCellmRevision) {
    return Unsupported("%s: revision %lld of our additions, this version reads up to %lld",
                       path.c_str(), static_cast<long long>(revision),
                       static_cast<long long>(kCellmRevision));
  }
  const std::string_view digits = text.substr(kCellmIdentityStart.size(), 16);
  uint64_t number = 0;
  if (!ParseHex(digits, &number)) {
    return Corrupt("%s: cellm_file_hash is not 16 hexadecimal digits", path.c_str());
  }
  const std::string computed = CellmIdentity(text);
  if (computed != digits) {
    return Corrupt("%s: the header's hash is %s, it states %.*s; the header was changed",
                   path.c_str(), computed.c_str(), static_cast<int>(digits.size()), digits.data());
  }
  model->identity = computed;
  const json::Value quantization = header.Find("cellm_quantization");
  if (quantization.has_value()) {
    model->owned_texts.push_back(std::make_unique<std::string>(json::Serialize(quantization)));
    model->quantization_json = *model->owned_texts.back();
  }
  const json::Value quality = header.Find("cellm_quality");
  if (quality.has_value()) {
    model->owned_texts.push_back(std::make_unique<std::string>(json::Serialize(quality)));
    model->quality_json = *model->owned_texts.back();
  }
  return OkStatus();
}

Status ReadTextTensors(const std::string& path, ModelFile* model) {
  for (const TextSlot& slot : kTextSlots) {
    const Tensor* tensor = model->Find(std::string(kTextPrefix).append(slot.name));
    if (tensor == nullptr) continue;
    if (tensor->format != Format::kU8 || tensor->shape.size() != 1) {
      return Corrupt("%s: expected u8 with one dimension", TensorPlace(path, tensor->name).c_str());
    }
    model->*slot.view = {reinterpret_cast<const char*>(tensor->data.data()), tensor->data.size()};
  }
  return OkStatus();
}

}  // namespace

std::string HexOf(uint64_t value) { return StrFormat("%016llx", Printable(value)); }

bool ParseHex(std::string_view digits, uint64_t* value) {
  if (digits.size() != 16) return false;
  uint64_t result = 0;
  for (const char c : digits) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c >= 'a' && c <= 'f')) return false;
    result = result << 4 | static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  *value = result;
  return true;
}

std::string CellmIdentity(std::string_view header) {
  const size_t begin = kCellmIdentityStart.size();
  if (header.size() < begin + 16) return std::string();
  static constexpr std::string_view kZeros = "0000000000000000";
  const auto bytes = [](std::string_view text) {
    return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  Xxh3Stream hash;
  hash.Update(bytes(header.substr(0, begin)));
  hash.Update(bytes(kZeros));
  hash.Update(bytes(header.substr(begin + 16)));
  return HexOf(hash.Digest());
}

Result<std::unique_ptr<ModelFile>> OpenCellmFile(platform::FileSystem& files,
                                                 const std::string& path,
                                                 platform::FileMapping mapping) {
  auto model = std::make_unique<ModelFile>();
  model->path = path;
  model->container = "cellm";
  model->files.push_back(std::move(mapping));
  CELLM_ASSIGN_OR_RETURN(const std::string_view text,
                         ReadHeaderText(model->files[0].bytes(), path));
  CELLM_ASSIGN_OR_RETURN(const auto document, json::Document::Parse(text, path + ": header"));
  const json::Value header = document->root();
  if (!header.is_object()) return Corrupt("%s: header is not a JSON object", path.c_str());
  // Our keys anywhere else than at the start would leave the hash without a place.
  const bool ours = text.starts_with(kCellmIdentityStart);
  if (!ours &&
      (header.Find("cellm_file_hash").exists() || header.Find("cellm_revision").exists())) {
    return Corrupt("%s: cellm_file_hash is not the header's first key", path.c_str());
  }
  if (ours) CELLM_RETURN_IF_ERROR(ReadOwnKeys(text, header, path, model.get()));
  CELLM_RETURN_IF_ERROR(
      ReadTensors(header, ours, kCellmPreludeBytes + text.size(), path, model.get()));
  CELLM_RETURN_IF_ERROR(ReadTextTensors(path, model.get()));

  const json::Value source = header.Find("cellm_source_config");
  std::string config;
  if (ours && source.is_object()) {
    config = json::Serialize(source);
    (void)header.Find("rope_interleaved").GetBool(&model->rope_interleaved);
  } else {
    CELLM_ASSIGN_OR_RETURN(config, ConfigOfV1Header(header, path, model.get()));
  }
  CELLM_ASSIGN_OR_RETURN(model->config, json::Document::Parse(config, path + ": configuration"));
  if (model->tokenizer_json.empty() && model->tokenizer_gguf.empty()) {
    // Version-1 files keep their tokenizer beside them; its absence is not an error here.
    CELLM_RETURN_IF_ERROR(ReadLooseTexts(files, platform::ParentPath(path), model.get()));
  }
  return model;
}

Status VerifyCellmStructure(const ModelFile& file) {
  if (file.identity.empty()) return OkStatus();
  const std::span<const uint8_t> bytes = file.files[0].bytes();
  CELLM_ASSIGN_OR_RETURN(const std::string_view text, ReadHeaderText(bytes, file.path));
  if (CellmIdentity(text) != file.identity) {
    return Corrupt("%s: the header changed after it was opened", file.path.c_str());
  }
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : file.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const Tensor* a, const Tensor* b) { return a->file_offset < b->file_offset; });
  uint64_t position = kCellmPreludeBytes + text.size();
  const auto zeros_until = [&](uint64_t end) -> Status {
    for (; position < end; ++position) {
      if (bytes[static_cast<size_t>(position)] != 0) {
        return Corrupt("%s: byte %llu between tensors is %d, expected 0", file.path.c_str(),
                       Printable(position), bytes[static_cast<size_t>(position)]);
      }
    }
    return OkStatus();
  };
  for (const Tensor* tensor : order) {
    CELLM_RETURN_IF_ERROR(zeros_until(tensor->file_offset));
    position = std::max(position, tensor->file_offset + tensor->data.size());
  }
  return zeros_until(bytes.size());
}

}  // namespace cellm::format
