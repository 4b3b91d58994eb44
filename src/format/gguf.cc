#include "format/gguf.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "format/gguf_config.h"
#include "format/gguf_metadata.h"
#include "format/gguf_names.h"
#include "format/gguf_reader.h"
#include "format/gguf_tensors.h"
#include "json/json.h"

namespace cellm::format {
namespace {

constexpr int64_t kMaxParts = 1000;

// "<stem>-00002-of-00005.gguf" -> stem, 2, 5.
struct PartName {
  std::string stem;
  int64_t number = 0;
  int64_t count = 0;
};

bool ParsePartName(const std::string& path, PartName* out) {
  constexpr std::string_view kEnd = ".gguf";
  constexpr size_t kTail = 20;  // "-00002-of-00005.gguf"
  if (path.size() < kTail || !path.ends_with(kEnd)) return false;
  const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return false;
  int64_t numbers[2] = {0, 0};
  for (size_t i = 0; i < 5; ++i) {
    const char digits[2] = {tail[1 + i], tail[10 + i]};
    for (int n = 0; n < 2; ++n) {
      if (digits[n] < '0' || digits[n] > '9') return false;
      numbers[n] = numbers[n] * 10 + (digits[n] - '0');
    }
  }
  out->stem = path.substr(0, path.size() - kTail);
  out->number = numbers[0];
  out->count = numbers[1];
  return true;
}

Status CheckPart(const GgufFile& file, int64_t number, int64_t count) {
  const GgufValue* no = file.Find("split.no");
  const GgufValue* total = file.Find("split.count");
  int64_t found_number = 0;
  int64_t found_count = 1;
  if ((no != nullptr && !no->GetInt(&found_number)) ||
      (total != nullptr && !total->GetInt(&found_count))) {
    return Corrupt("%.*s: split.no or split.count is no integer",
                   static_cast<int>(file.name.size()), file.name.data());
  }
  if (found_count == 0) found_count = 1;  // "not split", in some files
  if (found_number == number && found_count == count) return OkStatus();
  return Corrupt("%.*s: is part %" PRId64 " of %" PRId64 ", expected part %" PRId64 " of %" PRId64,
                 static_cast<int>(file.name.size()), file.name.data(), found_number + 1,
                 found_count, number + 1, count);
}

Status CheckTensorCount(const GgufFile& first, size_t tensor_count) {
  const GgufValue* value = first.Find("split.tensors.count");
  int64_t expected = 0;
  if (value == nullptr) return OkStatus();
  if (value->GetInt(&expected) && expected == static_cast<int64_t>(tensor_count)) return OkStatus();
  return Corrupt("%.*s: split.tensors.count is not %zu, the number of tensors in all parts",
                 static_cast<int>(first.name.size()), first.name.data(), tensor_count);
}

// How many parts the model has, by the file that was named.
Result<int64_t> CountParts(platform::FileMapping& mapping) {
  CELLM_ASSIGN_OR_RETURN(const GgufFile file, ReadGguf(mapping.bytes(), mapping.path()));
  const GgufValue* value = file.Find("split.count");
  int64_t count = 1;
  if (value != nullptr && (!value->GetInt(&count) || count < 0 || count > kMaxParts)) {
    return Corrupt("%s: split.count is no number up to %" PRId64, mapping.path().c_str(),
                   kMaxParts);
  }
  return count == 0 ? 1 : count;
}

}  // namespace

Status LoadGguf(std::span<const GgufPart> parts, ModelFile* model) {
  std::vector<GgufFile> files;
  size_t tensor_count = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    CELLM_ASSIGN_OR_RETURN(GgufFile file, ReadGguf(parts[i].bytes, parts[i].name));
    CELLM_RETURN_IF_ERROR(
        CheckPart(file, static_cast<int64_t>(i), static_cast<int64_t>(parts.size())));
    tensor_count += file.tensors.size();
    files.push_back(std::move(file));
  }
  if (files.empty()) return InvalidArgument("a GGUF model of no parts");
  const GgufFile& first = files[0];
  if (parts.size() > 1) CELLM_RETURN_IF_ERROR(CheckTensorCount(first, tensor_count));

  const GgufValue* name = first.Find("general.architecture");
  std::string_view arch_name;
  if (name == nullptr || !name->GetString(&arch_name)) {
    return Corrupt("%s: key \"general.architecture\" is missing or no string",
                   parts[0].name.c_str());
  }
  const GgufArch* arch = FindGgufArch(arch_name);
  if (arch == nullptr) {
    return Unsupported("%s: the architecture \"%.*s\" is not run here; known are %s",
                       parts[0].name.c_str(),
                       static_cast<int>(std::min<size_t>(arch_name.size(), 80)), arch_name.data(),
                       GgufArchNames().c_str());
  }
  GgufIndex index;
  for (const GgufFile& file : files) {
    for (const GgufTensor& tensor : file.tensors) index.Add(&tensor);
  }
  index.Sort();

  CELLM_ASSIGN_OR_RETURN(const GgufShape shape, ReadGgufShape(*arch, first, index));
  CELLM_ASSIGN_OR_RETURN(const std::string config, GgufConfigJson(*arch, first, index, shape));
  CELLM_ASSIGN_OR_RETURN(model->config,
                         json::Document::Parse(config, parts[0].name + ": configuration"));
  CELLM_RETURN_IF_ERROR(AddGgufTensors(*arch, files, index, shape, model));
  CELLM_RETURN_IF_ERROR(AddGgufTexts(first, shape.vocabulary, model));
  model->container = "gguf";
  return OkStatus();
}

Result<std::unique_ptr<ModelFile>> OpenGguf(platform::FileSystem& files, const std::string& path,
                                            platform::FileMapping mapping) {
  auto model = std::make_unique<ModelFile>();
  model->path = path;
  CELLM_ASSIGN_OR_RETURN(const int64_t count, CountParts(mapping));
  if (count == 1) {
    model->files.push_back(std::move(mapping));
  } else {
    PartName part;
    if (!ParsePartName(path, &part) || part.count != count) {
      return Corrupt("%s: is one of %" PRId64
                     " parts, but its name does not end in -NNNNN-of-%05" PRId64 ".gguf",
                     path.c_str(), count, count);
    }
    for (int64_t i = 1; i <= count; ++i) {
      const std::string sibling =
          part.stem + StrFormat("-%05" PRId64 "-of-%05" PRId64 ".gguf", i, count);
      if (i == part.number) {
        model->files.push_back(std::move(mapping));
        continue;
      }
      CELLM_ASSIGN_OR_RETURN(platform::FileMapping other, files.Map(sibling));
      model->files.push_back(std::move(other));
    }
  }
  std::vector<GgufPart> parts;
  for (const platform::FileMapping& file : model->files) {
    parts.push_back({file.path(), file.bytes()});
  }
  CELLM_RETURN_IF_ERROR(LoadGguf(parts, model.get()));
  return model;
}

}  // namespace cellm::format
