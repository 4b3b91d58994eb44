#include "model/model.h"

#include <utility>

#include "base/limits.h"
#include "model/config.h"

namespace cellm {
namespace {

// The object that describes the text model, and its model_type: the root, or text_config inside a
// multimodal wrapper.
Status FindTextConfig(json::Value root, json::Value* config, std::string* model_type) {
  if (!root.is_object()) return Corrupt("config: not a JSON object");
  const json::Value text = root.Find("text_config");
  std::string_view root_type;
  std::string_view text_type;
  root.Find("model_type").GetString(&root_type);
  text.Find("model_type").GetString(&text_type);
  *config = root;
  *model_type = root_type;
  if (text.is_object() && FindFamily(text_type) != nullptr) {
    *config = text;
    *model_type = text_type;
  }
  if (model_type->empty()) return Corrupt("config: \"model_type\" is missing");
  return OkStatus();
}

// generation_config.json decides what ends a text, where it says something.
void ReadGenerationConfig(const format::ModelFile& file, ModelInfo* info) {
  if (file.generation_config_json.empty()) return;
  const auto parsed = json::Document::Parse(file.generation_config_json, "generation_config.json");
  if (!parsed.ok()) {
    info->notes.push_back("generation_config.json is not valid: " + parsed.status().message());
    return;
  }
  Config config((*parsed)->root());
  std::vector<int32_t> ids = EosIds(config);
  if (!ids.empty()) info->eos_ids = std::move(ids);
}

}  // namespace

Result<std::shared_ptr<const Model>> LoadModel(std::unique_ptr<format::ModelFile> file,
                                               Backend& backend, Allocator& allocator,
                                               const LogSink& log) {
  auto model = std::make_shared<Model>();
  model->file = std::move(file);
  const std::string& path = model->file->path;
  json::Value config;
  CELLM_RETURN_IF_ERROR(
      FindTextConfig(model->file->config->root(), &config, &model->info.model_type)
          .WithContext(path));
  model->family = FindFamily(model->info.model_type);
  if (model->family == nullptr) {
    return Unsupported("%s: config: model_type \"%s\" is not supported", path.c_str(),
                       model->info.model_type.c_str());
  }
  model->info.family = model->family->name;
  model->info.notes = model->file->notes;
  const LoadContext context{*model->file, config, backend, allocator};
  Status loaded = model->family->load(context, model.get());
  // Errors about tensors name the file already, those about the configuration do not.
  if (!loaded.ok() && loaded.message().compare(0, path.size(), path) == 0) return loaded;
  CELLM_RETURN_IF_ERROR(std::move(loaded).WithContext(path));
  ReadGenerationConfig(*model->file, &model->info);
  const ModelInfo& info = model->info;
  if (info.max_context < 1 || info.max_context > limits::kMaxContext) {
    return Unsupported("%s: config: a context of %d tokens", path.c_str(), info.max_context);
  }
  CELLM_CHECK(info.vocab_size > 0 && info.vocab_size <= limits::kMaxDimension,
              "a family filled in no vocabulary size");
  for (const std::string& note : info.notes) log.Write(LogLevel::kInfo, "model", note);
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace cellm
