#include "format/model_file.h"

#include <algorithm>

#include "base/hash.h"
#include "base/limits.h"
#include "format/cellm_file.h"
#include "format/gguf.h"
#include "format/pytorch.h"
#include "format/safetensors.h"
#include "format/tensor_index.h"

namespace cellm::format {
namespace {

using Opener = Result<std::unique_ptr<ModelFile>> (*)(platform::FileSystem& files,
                                                      const std::string& path,
                                                      platform::FileMapping mapping);

// A JSON text: the index of a sharded checkpoint, of either kind.
Result<std::unique_ptr<ModelFile>> OpenIndex(platform::FileSystem& files, const std::string& path,
                                             platform::FileMapping mapping) {
  if (path.ends_with(".bin.index.json")) return OpenPyTorchIndex(files, path);
  return OpenSafetensorsIndex(files, path, std::move(mapping));
}

// Containers by how their first bytes look. A reader is added by a row.
struct Container {
  bool (*matches)(std::string_view head);
  Opener open;
};
constexpr Container kContainers[] = {
    {[](std::string_view head) { return head.starts_with(kCellmMagic); }, OpenCellmFile},
    {[](std::string_view head) { return head.starts_with("GGUF"); }, OpenGguf},
    {[](std::string_view head) {
       return head.starts_with("PK\x03\x04") || head.starts_with("\x80\x02");
     },
     OpenPyTorchFile},
    // Eight bytes of length, then an object.
    {[](std::string_view head) { return head.size() > 8 && head[8] == '{'; }, OpenSafetensorsFile},
    {[](std::string_view head) { return head.starts_with('{'); }, OpenIndex},
};

// Files that people hand over by mistake.
Status NotAModel(const std::string& path, std::string_view head, size_t file_bytes) {
  if (file_bytes == 0) return Corrupt("%s: the file is empty", path.c_str());
  if (head.starts_with("version https://git-lfs")) {
    return Corrupt("%s: a Git LFS pointer, not the file itself; fetch it with \"git lfs pull\"",
                   path.c_str());
  }
  std::string lower(head.substr(0, 16));
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower.starts_with("<!doctype") || lower.starts_with("<html")) {
    return Corrupt("%s: a web page, not a model; the download went wrong", path.c_str());
  }
  return Unsupported("%s: not a model file: expected .cellm, safetensors or GGUF", path.c_str());
}

Result<std::unique_ptr<ModelFile>> OpenFolder(platform::FileSystem& files,
                                              const std::string& folder) {
  CELLM_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  const auto with_end = [&](std::string_view end) {
    std::vector<std::string> found;
    for (const std::string& name : names) {
      if (std::string_view(name).ends_with(end)) found.push_back(name);
    }
    return found;
  };
  if (!with_end(".safetensors").empty() || !with_end(".safetensors.index.json").empty()) {
    return OpenHuggingFaceFolder(files, folder);
  }
  const std::vector<std::string> indexes = with_end(".bin.index.json");
  if (indexes.size() == 1) {
    return OpenPyTorchIndex(files, platform::JoinPath(folder, indexes[0]));
  }
  // No safetensors: one file of another kind is as good as its name.
  for (const std::string_view end : {".cellm", ".cellmd", ".gguf", ".bin"}) {
    std::vector<std::string> found = with_end(end);
    // Parts of one GGUF model count as one, and a projector beside a model is not a model.
    std::erase_if(found, [](const std::string& name) {
      const size_t part = name.find("-of-");
      return name.starts_with("mmproj") ||
             (part != std::string::npos && name.ends_with(".gguf") &&
              !std::string_view(name).substr(0, part).ends_with("-00001"));
    });
    if (found.size() == 1) return OpenModelFile(files, platform::JoinPath(folder, found[0]));
    if (found.size() > 1) {
      return InvalidArgument("%s: holds %zu *%.*s files; name one of them", folder.c_str(),
                             found.size(), static_cast<int>(end.size()), end.data());
    }
  }
  return NotFound("%s: no model file in this folder", folder.c_str());
}

}  // namespace

const Tensor* ModelFile::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const Tensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

Result<std::unique_ptr<ModelFile>> OpenModelFile(platform::FileSystem& files,
                                                 const std::string& path) {
  if (files.IsDirectory(path)) return OpenFolder(files, path);
  CELLM_ASSIGN_OR_RETURN(platform::FileMapping mapping, files.Map(path));
  const std::span<const uint8_t> bytes = mapping.bytes();
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 64));
  for (const Container& container : kContainers) {
    if (container.matches(head)) return container.open(files, path, std::move(mapping));
  }
  return NotAModel(path, head, bytes.size());
}

Status VerifyChecksums(const ModelFile& file) {
  CELLM_RETURN_IF_ERROR(VerifyCellmStructure(file));
  for (const Tensor& tensor : file.tensors) {
    if (!tensor.has_checksum) continue;
    const uint64_t found = HashXxh3(tensor.data);
    if (found != tensor.checksum) {
      return Corrupt("%s: checksum is %s, expected %s", TensorPlace(file.path, tensor.name).c_str(),
                     HexOf(found).c_str(), HexOf(tensor.checksum).c_str());
    }
  }
  return OkStatus();
}

}  // namespace cellm::format
