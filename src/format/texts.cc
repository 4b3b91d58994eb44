// The small files beside a checkpoint.
#include "base/limits.h"
#include "base/utf8.h"
#include "format/safetensors.h"
#include "json/json.h"

namespace cellm::format {
namespace {

// A template has some 10 kB; the cap keeps a wrong file out.
constexpr uint64_t kMaxSmallTextBytes = uint64_t{16} << 20;

std::string_view Own(std::string text, ModelFile* model) {
  model->owned_texts.push_back(std::make_unique<std::string>(std::move(text)));
  return *model->owned_texts.back();
}

// Leaves *view empty when the file does not exist.
Status ReadSmall(platform::FileSystem& files, const std::string& folder, const char* name,
                 ModelFile* model, std::string_view* view) {
  const std::string path = platform::JoinPath(folder, name);
  if (!files.IsFile(path)) return OkStatus();
  CELLM_ASSIGN_OR_RETURN(std::string text, files.Read(path, kMaxSmallTextBytes));
  *view = Own(std::move(text), model);
  return OkStatus();
}

// Mapped, not read: it may have 35 MB and is not wanted by everyone who opens a model.
Status MapTokenizer(platform::FileSystem& files, const std::string& folder, ModelFile* model) {
  const std::string path = platform::JoinPath(folder, "tokenizer.json");
  if (!files.IsFile(path)) return OkStatus();
  CELLM_ASSIGN_OR_RETURN(platform::FileMapping mapping, files.Map(path));
  const std::span<const uint8_t> bytes = mapping.bytes();
  // As good as none, but never meant: a download or a disk that failed.
  if (bytes.empty()) return Corrupt("%s: the file is empty", path.c_str());
  if (bytes.size() > limits::kMaxJsonBytes) {
    return OutOfRange("%s: %zu bytes, expected at most %zu", path.c_str(), bytes.size(),
                      limits::kMaxJsonBytes);
  }
  model->tokenizer_json = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  model->files.push_back(std::move(mapping));
  return OkStatus();
}

Status ReadTemplate(platform::FileSystem& files, const std::string& folder, ModelFile* model) {
  CELLM_RETURN_IF_ERROR(
      ReadSmall(files, folder, "chat_template.jinja", model, &model->chat_template));
  if (!model->chat_template.empty()) return OkStatus();
  // Older processors keep {"chat_template": "..."} in a file of its own.
  std::string_view json_text;
  CELLM_RETURN_IF_ERROR(ReadSmall(files, folder, "chat_template.json", model, &json_text));
  for (const auto& [text, name] :
       {std::pair(json_text, "chat_template.json"),
        std::pair(model->tokenizer_config_json, "tokenizer_config.json")}) {
    if (text.empty() || !model->chat_template.empty()) continue;
    CELLM_ASSIGN_OR_RETURN(std::string found,
                           TemplateOfTokenizerConfig(text, platform::JoinPath(folder, name)));
    if (!found.empty()) model->chat_template = Own(std::move(found), model);
  }
  return OkStatus();
}

}  // namespace

Result<std::string> TemplateOfTokenizerConfig(std::string_view tokenizer_config_json,
                                              const std::string& place) {
  CELLM_ASSIGN_OR_RETURN(const auto document, json::Document::Parse(tokenizer_config_json, place));
  const json::Value value = document->root().Find("chat_template");
  std::string_view text;
  if (value.GetString(&text)) return std::string(text);
  std::string chosen;
  for (json::Value entry = value.First(); entry.exists(); entry = value.Next(entry)) {
    std::string_view name;
    if (!entry.Find("name").GetString(&name) || !entry.Find("template").GetString(&text)) {
      return Corrupt("%s: \"chat_template\" is a list whose entries lack \"name\" or \"template\"",
                     place.c_str());
    }
    if (name == "default") chosen = text;
  }
  return chosen;
}

Status ReadTexts(platform::FileSystem& files, const std::string& folder, bool need_config,
                 ModelFile* model) {
  const std::string config = platform::JoinPath(folder, "config.json");
  std::string config_text = "{}";
  if (need_config || files.IsFile(config)) {
    CELLM_ASSIGN_OR_RETURN(config_text, files.Read(config, kMaxSmallTextBytes));
  } else {
    model->notes.push_back("there is no config.json beside the file");
  }
  CELLM_ASSIGN_OR_RETURN(model->config, json::Document::Parse(config_text, config));
  if (!model->config->root().is_object()) {
    return Corrupt("%s: not a JSON object", config.c_str());
  }
  return ReadLooseTexts(files, folder, model);
}

Status ReadLooseTexts(platform::FileSystem& files, const std::string& folder, ModelFile* model) {
  CELLM_RETURN_IF_ERROR(MapTokenizer(files, folder, model));
  CELLM_RETURN_IF_ERROR(
      ReadSmall(files, folder, "tokenizer_config.json", model, &model->tokenizer_config_json));
  CELLM_RETURN_IF_ERROR(
      ReadSmall(files, folder, "generation_config.json", model, &model->generation_config_json));
  CELLM_RETURN_IF_ERROR(
      ReadSmall(files, folder, "processor_config.json", model, &model->processor_config_json));
  CELLM_RETURN_IF_ERROR(ReadSmall(files, folder, "preprocessor_config.json", model,
                                  &model->preprocessor_config_json));
  return ReadTemplate(files, folder, model);
}

}  // namespace cellm::format
