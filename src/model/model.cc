#include "model/model.h"

#include <utility>

#include "base/limits.h"
#include "model/config.h"

namespace cellm {
namespace {

// The object that describes the text model, and its model_type: the root, or text_config inside a
// multimodal wrapper. `merged` holds the document when it is neither as it stands.
struct TextConfig {
  json::Value object;
  std::string model_type;
  std::unique_ptr<json::Document> merged;
};

// The text model of a wrapper. Two keys belong to the wrapper: tie_word_embeddings is the
// wrapper's, also by its silence, and quantization_config is the wrapper's where it has one.
Status MergeWrapper(json::Value root, json::Value text, TextConfig* config) {
  constexpr std::string_view kTie = "tie_word_embeddings";
  constexpr std::string_view kQuantization = "quantization_config";
  const json::Value quantization = root.Find(kQuantization);
  std::string merged = "{";
  const auto add = [&merged](std::string_view key, json::Value value) {
    if (merged.size() > 1) merged.push_back(',');
    merged.append(json::Quote(key)).append(1, ':').append(json::Serialize(value));
  };
  for (json::Value v = text.First(); v.exists(); v = text.Next(v)) {
    const std::string_view key = text.KeyOf(v);
    if (key == kTie || (key == kQuantization && quantization.has_value())) continue;
    add(key, v);
  }
  if (root.Find(kTie).has_value()) add(kTie, root.Find(kTie));
  if (quantization.has_value()) add(kQuantization, quantization);
  merged.push_back('}');
  CELLM_ASSIGN_OR_RETURN(config->merged, json::Document::Parse(merged, "config.json"));
  config->object = config->merged->root();
  return OkStatus();
}

Status FindTextConfig(json::Value root, TextConfig* config) {
  if (!root.is_object()) return Corrupt("config: not a JSON object");
  const json::Value text = root.Find("text_config");
  std::string_view root_type;
  std::string_view text_type;
  root.Find("model_type").GetString(&root_type);
  text.Find("model_type").GetString(&text_type);
  config->object = root;
  config->model_type = root_type;
  if (text.is_object() && FindFamily(text_type) != nullptr) {
    config->model_type = text_type;
    return MergeWrapper(root, text, config);
  }
  if (config->model_type.empty()) return Corrupt("config: \"model_type\" is missing");
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
                                               const LogSink& log, const HoldingOptions& holding) {
  auto model = std::make_shared<Model>();
  model->file = std::move(file);
  const std::string& path = model->file->path;
  TextConfig config;
  CELLM_RETURN_IF_ERROR(FindTextConfig(model->file->config->root(), &config).WithContext(path));
  model->info.model_type = config.model_type;
  model->family = FindFamily(model->info.model_type);
  if (model->family == nullptr) {
    return Unsupported("%s: config: model_type \"%s\" is not supported", path.c_str(),
                       model->info.model_type.c_str());
  }
  model->info.family = model->family->name;
  model->info.notes = model->file->notes;
  WeightHolder holder(*model->file, holding, allocator);
  const LoadContext context{*model->file, config.object, backend, allocator, holder};
  Status loaded = model->family->load(context, model.get());
  // Errors about tensors name the file already, those about the configuration do not.
  if (!loaded.ok() && loaded.message().compare(0, path.size(), path) == 0) return loaded;
  CELLM_RETURN_IF_ERROR(std::move(loaded).WithContext(path));
  CELLM_RETURN_IF_ERROR(holder.Finish());
  model->info.holding = holder.report();
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
