#include "format/safetensors.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/checked.h"
#include "base/limits.h"
#include "format/tensor_index.h"
#include "json/json.h"

namespace cellm::format {
namespace {

constexpr uint64_t kLengthBytes = 8;

struct DtypeName {
  std::string_view name;
  Format format;
};
constexpr DtypeName kDtypes[] = {
    {"F32", Format::kF32},   {"F16", Format::kF16},        {"BF16", Format::kBF16},
    {"F64", Format::kF64},   {"I8", Format::kI8},          {"U8", Format::kU8},
    {"I16", Format::kI16},   {"U16", Format::kU16},        {"I32", Format::kI32},
    {"U32", Format::kU32},   {"I64", Format::kI64},        {"U64", Format::kU64},
    {"BOOL", Format::kBool}, {"F8_E4M3", Format::kF8E4M3}, {"F8_E5M2", Format::kF8E5M2},
};

Status ReadEntry(std::string_view name, json::Value entry, std::span<const uint8_t> payload,
                 uint64_t payload_offset, const std::string& path, Tensor* tensor) {
  const std::string where = TensorPlace(path, name);
  if (name.size() > limits::kMaxTensorNameBytes) {
    return Corrupt("%s: a name of %zu bytes, expected at most %zu", where.c_str(), name.size(),
                   limits::kMaxTensorNameBytes);
  }
  tensor->name = name;
  std::string_view dtype;
  if (!entry.is_object() || !entry.Find("dtype").GetString(&dtype)) {
    return Corrupt("%s: no dtype", where.c_str());
  }
  const DtypeName* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                        [&](const DtypeName& d) { return d.name == dtype; });
  if (known == std::end(kDtypes)) {
    return Unsupported("%s: element type \"%.*s\" is not supported", where.c_str(),
                       static_cast<int>(std::min<size_t>(dtype.size(), 40)), dtype.data());
  }
  tensor->format = known->format;
  CELLM_RETURN_IF_ERROR(ReadShape(entry.Find("shape"), where, &tensor->shape));
  const json::Value offsets = entry.Find("data_offsets");
  uint64_t begin = 0;
  uint64_t end = 0;
  if (offsets.size() != 2 || !offsets.At(0).GetUint64(&begin) || !offsets.At(1).GetUint64(&end)) {
    return Corrupt("%s: data_offsets is not a list of two byte offsets", where.c_str());
  }
  if (begin > end) {
    return Corrupt("%s: data begins at %llu and ends at %llu", where.c_str(),
                   static_cast<unsigned long long>(begin), static_cast<unsigned long long>(end));
  }
  uint64_t absolute = 0;
  if (!CheckedAdd(begin, payload_offset, &absolute)) {
    return Corrupt("%s: offset %llu overflows", where.c_str(),
                   static_cast<unsigned long long>(begin));
  }
  CELLM_RETURN_IF_ERROR(CheckRange(where, absolute, end - begin, payload_offset + payload.size()));
  auto expected = TensorBytes(tensor->format, {}, tensor->shape);
  if (!expected.ok()) return Corrupt("%s: %s", where.c_str(), expected.status().message().c_str());
  if (*expected != end - begin) {
    return Corrupt("%s: %llu bytes, expected %llu for %.*s %s", where.c_str(),
                   static_cast<unsigned long long>(end - begin),
                   static_cast<unsigned long long>(*expected), static_cast<int>(dtype.size()),
                   dtype.data(), ShapeText(tensor->shape).c_str());
  }
  tensor->data = payload.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  tensor->file_offset = absolute;
  return OkStatus();
}

// What the weight_map of an index says: pairs (tensor, shard), sorted by tensor.
struct IndexEntry {
  std::string_view tensor, shard;
};

Status ReadWeightMap(const std::string& path, json::Value root, std::vector<IndexEntry>* entries) {
  const json::Value map = root.Find("weight_map");
  if (!map.is_object()) return Corrupt("%s: no \"weight_map\"", path.c_str());
  if (map.size() > limits::kMaxTensors) {
    return OutOfRange("%s: %zu tensors, expected at most %llu", path.c_str(), map.size(),
                      static_cast<unsigned long long>(limits::kMaxTensors));
  }
  for (json::Value v = map.First(); v.exists(); v = map.Next(v)) {
    IndexEntry entry;
    entry.tensor = map.KeyOf(v);
    // A shard lies beside its index: a path that leads elsewhere is not followed.
    if (!v.GetString(&entry.shard) || entry.shard.empty() ||
        entry.shard.find('/') != std::string_view::npos ||
        entry.shard.find('\\') != std::string_view::npos ||
        entry.shard.find('\0') != std::string_view::npos) {
      return Corrupt("%s: \"weight_map\" does not name a file in the same folder",
                     TensorPlace(path, entry.tensor).c_str());
    }
    entries->push_back(entry);
  }
  std::sort(entries->begin(), entries->end(),
            [](const IndexEntry& a, const IndexEntry& b) { return a.tensor < b.tensor; });
  for (size_t i = 1; i < entries->size(); ++i) {
    if ((*entries)[i].tensor == (*entries)[i - 1].tensor) {
      return Corrupt("%s: named twice", TensorPlace(path, (*entries)[i].tensor).c_str());
    }
  }
  return OkStatus();
}

// Keeps of each shard what the index says it holds. `shards` are in the order of model->files.
Status ApplyWeightMap(const std::string& path, const std::vector<IndexEntry>& entries,
                      const std::vector<std::string>& shards, ModelFile* model) {
  std::vector<Tensor> kept;
  std::vector<bool> seen(entries.size(), false);
  size_t extra = 0;
  for (Tensor& tensor : model->tensors) {
    const auto found = std::lower_bound(
        entries.begin(), entries.end(), tensor.name,
        [](const IndexEntry& entry, const std::string& name) { return entry.tensor < name; });
    if (found == entries.end() || found->tensor != tensor.name ||
        found->shard != shards[tensor.file_index]) {
      ++extra;
      continue;
    }
    seen[static_cast<size_t>(found - entries.begin())] = true;
    kept.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!seen[i]) {
      return Corrupt("%s: said to be in \"%.*s\", which does not have it",
                     TensorPlace(path, entries[i].tensor).c_str(),
                     static_cast<int>(entries[i].shard.size()), entries[i].shard.data());
    }
  }
  if (extra != 0) {
    model->notes.push_back(std::to_string(extra) +
                           " tensors that the index does not list are "
                           "ignored");
  }
  model->tensors = std::move(kept);
  return OkStatus();
}

Status AppendShards(platform::FileSystem& files, const std::string& path, std::string_view text,
                    ModelFile* model) {
  CELLM_ASSIGN_OR_RETURN(const auto index, json::Document::Parse(text, path));
  std::vector<IndexEntry> entries;
  CELLM_RETURN_IF_ERROR(ReadWeightMap(path, index->root(), &entries));
  std::vector<std::string> shards;
  for (const IndexEntry& entry : entries) shards.emplace_back(entry.shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  for (const std::string& shard : shards) {
    auto mapping = files.Map(platform::JoinPath(platform::ParentPath(path), shard));
    if (!mapping.ok()) {
      return Status(mapping.status().code(),
                    path + ": names the shard \"" + shard + "\": " + mapping.status().message());
    }
    CELLM_RETURN_IF_ERROR(AppendSafetensors(std::move(mapping).value(), model));
  }
  return ApplyWeightMap(path, entries, shards, model);
}

std::unique_ptr<ModelFile> NewModel(const std::string& path) {
  auto model = std::make_unique<ModelFile>();
  model->path = path;
  model->container = "safetensors";
  return model;
}

bool EndsWith(std::string_view text, std::string_view end) { return text.ends_with(end); }

Status AppendFolderWeights(platform::FileSystem& files, const std::string& folder,
                           ModelFile* model) {
  const std::string index = platform::JoinPath(folder, "model.safetensors.index.json");
  if (files.IsFile(index)) {
    CELLM_ASSIGN_OR_RETURN(const std::string text, files.Read(index, limits::kMaxHeaderBytes));
    return AppendShards(files, index, text, model);
  }
  CELLM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  std::vector<std::string> weights;
  for (const std::string& name : names) {
    if (name == "model.safetensors") weights.assign(1, name);
    if (EndsWith(name, ".safetensors") &&
        (weights.size() != 1 || weights[0] != "model.safetensors")) {
      weights.push_back(name);
    }
  }
  if (weights.empty()) {
    return NotFound("%s: no *.safetensors in this folder", folder.c_str());
  }
  for (const std::string& name : weights) {
    CELLM_ASSIGN_OR_RETURN(auto mapping, files.Map(platform::JoinPath(folder, name)));
    CELLM_RETURN_IF_ERROR(AppendSafetensors(std::move(mapping), model));
  }
  for (const std::string& name : names) {
    if (EndsWith(name, ".gguf") || EndsWith(name, ".bin")) {
      model->notes.push_back("the safetensors files are used; \"" + name + "\" is not");
    }
  }
  return OkStatus();
}

}  // namespace

Status AppendSafetensors(platform::FileMapping mapping, ModelFile* model) {
  const std::span<const uint8_t> bytes = mapping.bytes();
  const std::string path = mapping.path();
  if (bytes.size() < kLengthBytes) {
    return Corrupt("%s: %zu bytes, expected at least 8", path.c_str(), bytes.size());
  }
  const uint64_t header_bytes = LoadLe64(bytes.data());
  if (header_bytes > bytes.size() - kLengthBytes) {
    return Corrupt("%s: header of %llu bytes, file has %zu; the file is cut short", path.c_str(),
                   static_cast<unsigned long long>(header_bytes), bytes.size());
  }
  if (header_bytes > limits::kMaxHeaderBytes) {
    return OutOfRange("%s: header of %llu bytes, expected at most %llu", path.c_str(),
                      static_cast<unsigned long long>(header_bytes),
                      static_cast<unsigned long long>(limits::kMaxHeaderBytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              static_cast<size_t>(header_bytes));
  CELLM_ASSIGN_OR_RETURN(const auto header, json::Document::Parse(text, path + ": header"));
  const json::Value root = header->root();
  if (!root.is_object()) return Corrupt("%s: header is not a JSON object", path.c_str());
  if (root.size() > limits::kMaxTensors) {
    return OutOfRange("%s: %zu tensors, expected at most %llu", path.c_str(), root.size(),
                      static_cast<unsigned long long>(limits::kMaxTensors));
  }
  const uint64_t payload_offset = kLengthBytes + header_bytes;
  const std::span<const uint8_t> payload = bytes.subspan(static_cast<size_t>(payload_offset));
  for (json::Value v = root.First(); v.exists(); v = root.Next(v)) {
    const std::string_view name = root.KeyOf(v);
    if (name == "__metadata__") continue;
    Tensor tensor;
    tensor.file_index = static_cast<uint32_t>(model->files.size());
    CELLM_RETURN_IF_ERROR(ReadEntry(name, v, payload, payload_offset, path, &tensor));
    model->tensors.push_back(std::move(tensor));
  }
  model->files.push_back(std::move(mapping));
  return OkStatus();
}

Result<std::unique_ptr<ModelFile>> OpenHuggingFaceFolder(platform::FileSystem& files,
                                                         const std::string& folder) {
  auto model = NewModel(folder);
  CELLM_RETURN_IF_ERROR(AppendFolderWeights(files, folder, model.get()));
  CELLM_RETURN_IF_ERROR(SortAndCheckTensors(folder, &model->tensors));
  CELLM_RETURN_IF_ERROR(ReadTexts(files, folder, true, model.get()));
  return model;
}

Result<std::unique_ptr<ModelFile>> OpenSafetensorsFile(platform::FileSystem& files,
                                                       const std::string& path,
                                                       platform::FileMapping mapping) {
  auto model = NewModel(path);
  CELLM_RETURN_IF_ERROR(AppendSafetensors(std::move(mapping), model.get()));
  CELLM_RETURN_IF_ERROR(SortAndCheckTensors(path, &model->tensors));
  CELLM_RETURN_IF_ERROR(ReadTexts(files, platform::ParentPath(path), false, model.get()));
  return model;
}

Result<std::unique_ptr<ModelFile>> OpenSafetensorsIndex(platform::FileSystem& files,
                                                        const std::string& path,
                                                        platform::FileMapping mapping) {
  auto model = NewModel(path);
  const std::span<const uint8_t> bytes = mapping.bytes();
  CELLM_RETURN_IF_ERROR(AppendShards(
      files, path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, model.get()));
  CELLM_RETURN_IF_ERROR(SortAndCheckTensors(path, &model->tensors));
  CELLM_RETURN_IF_ERROR(ReadTexts(files, platform::ParentPath(path), true, model.get()));
  return model;
}

}  // namespace cellm::format
