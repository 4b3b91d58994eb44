#include "format/pytorch.h"

#include <algorithm>
#include <cinttypes>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/limits.h"
#include "format/pytorch_pickle.h"
#include "format/pytorch_zip.h"
#include "format/safetensors.h"
#include "format/tensor_index.h"
#include "json/json.h"
#include "tensor/format.h"

namespace cellm::format {
namespace {

// Row-major without gaps. A dimension of 1 may have any stride.
bool IsContiguous(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i > 0; --i) {
    if (tensor.shape[i - 1] != 1 && tensor.stride[i - 1] != expected) return false;
    if (!CheckedMul(expected, tensor.shape[i - 1], &expected)) return false;
  }
  return true;
}

// Entries of the archive by the part of their name after the first folder.
class Entries {
 public:
  explicit Entries(std::vector<ZipEntry> entries) : entries_(std::move(entries)) {
    for (ZipEntry& entry : entries_) {
      const size_t slash = entry.name.find('/');
      if (slash != std::string_view::npos) entry.name.remove_prefix(slash + 1);
    }
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  }
  const ZipEntry* Find(std::string_view name) const {
    const auto at =
        std::lower_bound(entries_.begin(), entries_.end(), name,
                         [](const ZipEntry& entry, std::string_view n) { return entry.name < n; });
    return at == entries_.end() || at->name != name ? nullptr : &*at;
  }

 private:
  std::vector<ZipEntry> entries_;
};

Result<Tensor> MakeTensor(const PickledTensor& pickled, const Entries& entries,
                          const std::string& file_name) {
  const std::string where = TensorPlace(file_name, pickled.name);
  const ZipEntry* storage = entries.Find("data/" + std::string(pickled.storage));
  if (storage == nullptr) {
    return Corrupt("%s: its storage \"%.*s\" is not in the archive", where.c_str(),
                   static_cast<int>(std::min<size_t>(pickled.storage.size(), 100)),
                   pickled.storage.data());
  }
  const uint64_t item = static_cast<uint64_t>(GetFormatInfo(pickled.format).block_bytes);
  uint64_t count = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  if (!ElementCount(pickled.shape, &count) || !CheckedMul(count, item, &bytes) ||
      !CheckedMul(pickled.storage_offset, item, &offset) ||
      !RangeFits(offset, bytes, storage->data.size())) {
    return Corrupt("%s: %s elements from element %" PRIu64 " of a storage of %zu bytes",
                   where.c_str(), ShapeText(pickled.shape).c_str(), pickled.storage_offset,
                   storage->data.size());
  }
  if (!IsContiguous(pickled)) {
    return Unsupported("%s: is not stored row by row", where.c_str());
  }
  Tensor tensor;
  tensor.name = pickled.name;
  tensor.format = pickled.format;
  tensor.shape = pickled.shape;
  tensor.data = storage->data.subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  tensor.file_offset = storage->offset + offset;
  return tensor;
}

// Sorted, names unique. Tensors may share bytes here: tied weights do.
Status SortTensors(ModelFile* model) {
  std::sort(model->tensors.begin(), model->tensors.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < model->tensors.size(); ++i) {
    if (model->tensors[i].name != model->tensors[i - 1].name) continue;
    return Corrupt("%s: occurs twice", TensorPlace(model->path, model->tensors[i].name).c_str());
  }
  return OkStatus();
}

// The names of the shards in an index, each once.
Result<std::set<std::string>> ShardNames(platform::FileSystem& files, const std::string& path) {
  CELLM_ASSIGN_OR_RETURN(const std::string text, files.Read(path, limits::kMaxJsonBytes));
  CELLM_ASSIGN_OR_RETURN(const std::unique_ptr<json::Document> index,
                         json::Document::Parse(text, path));
  const json::Value map = index->root().Find("weight_map");
  if (!map.is_object() || map.size() == 0) {
    return Corrupt("%s: no \"weight_map\" of tensors to files", path.c_str());
  }
  std::set<std::string> names;
  for (json::Value value = map.First(); value.exists(); value = map.Next(value)) {
    std::string_view name;
    // A shard is a file beside the index, wherever its name tries to point.
    if (!value.GetString(&name) || name.empty() || name.find('/') != std::string_view::npos ||
        name.find('\\') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
      return Corrupt("%s: a shard's name is no name of a file beside it", path.c_str());
    }
    names.insert(std::string(name));
  }
  return names;
}

}  // namespace

Status AppendPyTorch(std::span<const uint8_t> bytes, const std::string& file_name,
                     uint32_t file_index, ModelFile* model) {
  // The old form begins with a pickle of its magic number.
  if (bytes.size() >= 2 && bytes[0] == 0x80 && bytes[1] <= 5) {
    return Unsupported(
        "%s: a PyTorch file of before version 1.6 (bare pickles); save it again, or "
        "use safetensors",
        file_name.c_str());
  }
  CELLM_ASSIGN_OR_RETURN(std::vector<ZipEntry> list, ReadZip(bytes, file_name));
  const Entries entries(std::move(list));
  const ZipEntry* pickle = entries.Find("data.pkl");
  if (pickle == nullptr) {
    return Unsupported("%s: a ZIP archive without data.pkl, so no PyTorch checkpoint",
                       file_name.c_str());
  }
  if (const ZipEntry* order = entries.Find("byteorder"); order != nullptr) {
    const std::string_view text(reinterpret_cast<const char*>(order->data.data()),
                                order->data.size());
    if (text != "little") return Unsupported("%s: not little-endian", file_name.c_str());
  }
  int skipped = 0;
  CELLM_ASSIGN_OR_RETURN(const std::vector<PickledTensor> tensors,
                         ReadPickledTensors(pickle->data, file_name, &skipped));
  for (const PickledTensor& pickled : tensors) {
    CELLM_ASSIGN_OR_RETURN(Tensor tensor, MakeTensor(pickled, entries, file_name));
    tensor.file_index = file_index;
    model->tensors.push_back(std::move(tensor));
  }
  if (skipped > 0) {
    model->notes.push_back(
        StrFormat("%s: %d values that are no tensors are not used", file_name.c_str(), skipped));
  }
  return OkStatus();
}

Result<std::unique_ptr<ModelFile>> OpenPyTorchFile(platform::FileSystem& files,
                                                   const std::string& path,
                                                   platform::FileMapping mapping) {
  auto model = std::make_unique<ModelFile>();
  model->path = path;
  model->container = "pytorch";
  CELLM_RETURN_IF_ERROR(AppendPyTorch(mapping.bytes(), path, 0, model.get()));
  model->files.push_back(std::move(mapping));
  CELLM_RETURN_IF_ERROR(SortTensors(model.get()));
  CELLM_RETURN_IF_ERROR(ReadTexts(files, platform::ParentPath(path), false, model.get()));
  return model;
}

Result<std::unique_ptr<ModelFile>> OpenPyTorchIndex(platform::FileSystem& files,
                                                    const std::string& index_path) {
  auto model = std::make_unique<ModelFile>();
  model->path = index_path;
  model->container = "pytorch";
  CELLM_ASSIGN_OR_RETURN(const std::set<std::string> names, ShardNames(files, index_path));
  const std::string folder = platform::ParentPath(index_path);
  for (const std::string& name : names) {
    const std::string path = platform::JoinPath(folder, name);
    CELLM_ASSIGN_OR_RETURN(platform::FileMapping mapping, files.Map(path));
    CELLM_RETURN_IF_ERROR(AppendPyTorch(mapping.bytes(), path,
                                        static_cast<uint32_t>(model->files.size()), model.get()));
    model->files.push_back(std::move(mapping));
  }
  CELLM_RETURN_IF_ERROR(SortTensors(model.get()));
  CELLM_RETURN_IF_ERROR(ReadTexts(files, folder, true, model.get()));
  return model;
}

}  // namespace cellm::format
