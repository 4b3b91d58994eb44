// cellm_model: opening a model for its texts; weights wait for an engine.
#include <algorithm>
#include <cinttypes>
#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "capi/chat.h"
#include "capi/convert_args.h"
#include "capi/generation_config.h"
#include "capi/handles.h"
#include "format/gguf_metadata.h"
#include "json/json.h"
#include "platform/file.h"

namespace cellm::capi {
namespace {

constexpr size_t kMaxTextFileBytes = limits::kMaxJsonBytes;

// The texts of a model before they are understood. A tokenizer.json has up to 35 MB, so texts stay
// in the mappings of their files: of the model's, or of those here.
struct Texts {
  std::string_view tokenizer_json, tokenizer_config, chat_template, generation_config;
  std::vector<platform::FileMapping> files;

  // The content of a file, if there is one.
  Status Map(const std::string& path, std::string_view* text) {
    CELLM_ASSIGN_OR_RETURN(platform::FileMapping mapping, platform::SystemFiles().Map(path));
    if (mapping.bytes().size() > kMaxTextFileBytes) {
      return OutOfRange("%s has %zu bytes; at most %zu are read", path.c_str(),
                        mapping.bytes().size(), kMaxTextFileBytes);
    }
    *text = {reinterpret_cast<const char*>(mapping.bytes().data()), mapping.bytes().size()};
    files.push_back(std::move(mapping));
    return OkStatus();
  }
  Status MapTokenizer(const std::string& path) {
    CELLM_RETURN_IF_ERROR(Map(path, &tokenizer_json));
    if (tokenizer_json.empty()) return Corrupt("%s: the file is empty", path.c_str());
    return OkStatus();
  }
};

// What lies in the folder of a tokenizer.json, or of a model file that has no texts inside.
Status ReadBeside(const std::string& folder, Texts* texts) {
  const struct {
    const char* name;
    std::string_view* text;
  } rows[] = {{"tokenizer.json", &texts->tokenizer_json},
              {"tokenizer_config.json", &texts->tokenizer_config},
              {"chat_template.jinja", &texts->chat_template},
              {"generation_config.json", &texts->generation_config}};
  for (const auto& row : rows) {
    const std::string path = platform::JoinPath(folder, row.name);
    if (!row.text->empty() || !platform::SystemFiles().IsFile(path)) continue;
    CELLM_RETURN_IF_ERROR(row.text == &texts->tokenizer_json ? texts->MapTokenizer(path)
                                                             : texts->Map(path, row.text));
  }
  return OkStatus();
}

// The templates inside tokenizer_config.json: one, or a list under names.
std::vector<std::pair<std::string, std::string>> TemplatesOf(json::Value config) {
  const json::Value value = config.Find("chat_template");
  std::string_view text;
  if (value.GetString(&text)) return {{"default", std::string(text)}};
  std::vector<std::pair<std::string, std::string>> named;
  for (json::Value entry = value.is_array() ? value.First() : json::Value(); entry.exists();
       entry = value.Next(entry)) {
    std::string_view name;
    if (entry.Find("name").GetString(&name) && entry.Find("template").GetString(&text)) {
      named.emplace_back(name, text);
    }
  }
  return named;
}

// The lists of a GGUF header in the tokenizer's terms.
tokenizer::TokenizerSpec SpecOf(const format::GgufTokenizer& gguf) {
  tokenizer::TokenizerSpec spec;
  spec.model = gguf.model;
  spec.pre = gguf.pre;
  spec.tokens = gguf.tokens;
  spec.scores = gguf.scores;
  spec.token_types = gguf.types;
  spec.merges = gguf.merges;
  spec.bos_id = gguf.bos_id;
  spec.eos_id = gguf.eos_id;
  spec.unknown_id = gguf.unknown_id;
  spec.separator_id = gguf.separator_id;
  spec.padding_id = gguf.padding_id;
  const auto flag = [](const std::optional<bool>& value) {
    return value.has_value() ? (*value ? 1 : 0) : -1;
  };
  spec.add_bos = flag(gguf.add_bos);
  spec.add_eos = flag(gguf.add_eos);
  spec.add_space_prefix = flag(gguf.add_space_prefix);
  return spec;
}

// `given` is the path of a tokenizer that was asked for instead of the model's own, or empty.
Status BuildTokenizer(ModelState* model, const Texts& texts, const format::GgufTokenizer* gguf,
                      const std::string& given) {
  if (!texts.tokenizer_json.empty()) {
    Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer = tokenizer::Tokenizer::FromJson(
        texts.tokenizer_json, texts.tokenizer_config, model->tokenizer_memory);
    if (!tokenizer.ok()) {
      return Status(tokenizer.status()).WithContext(given.empty() ? model->path : given);
    }
    model->tokenizer = std::move(tokenizer).value();
    return OkStatus();
  }
  if (gguf != nullptr) {
    Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer =
        tokenizer::Tokenizer::FromSpec(SpecOf(*gguf), model->tokenizer_memory);
    if (!tokenizer.ok()) return Status(tokenizer.status()).WithContext(model->path);
    model->tokenizer = std::move(tokenizer).value();
    return OkStatus();
  }
  model->notes.push_back("the model has no tokenizer: only token ids can be used");
  return OkStatus();
}

// bos_token, eos_token and the like for templates: the texts that tokenizer_config.json names.
jinja::SpecialTokens ReadSpecialTokens(json::Value config) {
  jinja::SpecialTokens tokens;
  const struct {
    const char* name;
    std::optional<std::string>* text;
  } rows[] = {{"bos_token", &tokens.bos_token},  {"eos_token", &tokens.eos_token},
              {"unk_token", &tokens.unk_token},  {"sep_token", &tokens.sep_token},
              {"pad_token", &tokens.pad_token},  {"cls_token", &tokens.cls_token},
              {"mask_token", &tokens.mask_token}};
  std::string_view text;
  for (const auto& row : rows) {
    const json::Value value = config.Find(row.name);
    if (value.GetString(&text) || value.Find("content").GetString(&text)) *row.text = text;
  }
  const json::Value more = config.Find("additional_special_tokens");
  for (json::Value item = more.is_array() ? more.First() : json::Value(); item.exists();
       item = more.Next(item)) {
    if (item.GetString(&text) || item.Find("content").GetString(&text)) {
      tokens.additional_special_tokens.emplace_back(text);
    }
  }
  return tokens;
}

// The numbers that the configuration holds before weights are bound.
void ReadConfigNumbers(json::Value root, ModelState* model) {
  const json::Value text_config = root.Find("text_config");
  const auto number = [&](const char* key) {
    int64_t value = 0;
    for (const json::Value& place : {text_config, root}) {
      if (place.is_object() && place.Find(key).GetInt64(&value) && value > 0 &&
          value <= INT32_MAX) {
        return static_cast<int32_t>(value);
      }
    }
    return 0;
  };
  model->vocabulary = number("vocab_size");
  model->max_context = number("max_position_embeddings");
  model->layers = number("num_hidden_layers");
  model->hidden = number("hidden_size");
  std::string_view type;
  if (root.Find("model_type").GetString(&type)) model->model_type = type;
}

// Every end id of the files is a control token: text that a user wrote cannot spell it.
void MarkEnds(ModelState* model, const Texts& texts, json::Value config) {
  std::vector<int32_t> ends;
  const auto add = [&](json::Value value) {
    int64_t id = 0;
    if (value.is_number() && value.GetInt64(&id)) ends.push_back(static_cast<int32_t>(id));
    for (json::Value item = value.is_array() ? value.First() : json::Value(); item.exists();
         item = value.Next(item)) {
      if (item.GetInt64(&id)) ends.push_back(static_cast<int32_t>(id));
    }
  };
  if (!texts.generation_config.empty()) {
    Result<std::unique_ptr<json::Document>> document =
        json::Document::Parse(texts.generation_config, "generation_config.json");
    if (document.ok()) add((*document)->root().Find("eos_token_id"));
  }
  if (config.is_object()) {
    add(config.Find("eos_token_id"));
    if (config.Find("text_config").is_object())
      add(config.Find("text_config").Find("eos_token_id"));
  }
  if (model->tokenizer->eos_id() >= 0) ends.push_back(model->tokenizer->eos_id());
  for (const int32_t id : ends) {
    if (id >= 0 && id < model->tokenizer->vocab_size()) model->tokenizer->MarkControl(id);
  }
  for (const int32_t id : model->chat_template.end_ids) model->tokenizer->MarkControl(id);
}

struct OpenOptions {
  bool text_only = false;
  std::string_view tokenizer_path, chat_format, chat_template;
  HoldingOptions holding;
};

// Reads the texts of `model->path`: a tokenizer.json or folder when only text is wanted, else a
// model in any container.
Status ReadModelTexts(ModelState* model, const OpenOptions& options, Texts* texts) {
  platform::FileSystem& files = platform::SystemFiles();
  const std::string& path = model->path;
  if (options.text_only && files.IsFile(path) && path.ends_with(".json")) {
    CELLM_RETURN_IF_ERROR(texts->MapTokenizer(path));
    return ReadBeside(platform::ParentPath(path), texts);
  }
  if (options.text_only && files.IsDirectory(path) &&
      files.IsFile(platform::JoinPath(path, "tokenizer.json"))) {
    return ReadBeside(path, texts);
  }
  CELLM_ASSIGN_OR_RETURN(model->file, format::OpenModelFile(files, path));
  texts->tokenizer_json = model->file->tokenizer_json;
  texts->tokenizer_config = model->file->tokenizer_config_json;
  texts->chat_template = model->file->chat_template;
  texts->generation_config = model->file->generation_config_json;
  model->container = model->file->container;
  model->notes = model->file->notes;
  if (texts->tokenizer_json.empty() && !model->file->tokenizer_gguf.empty()) {
    CELLM_ASSIGN_OR_RETURN(
        model->file->gguf_tokenizer,
        format::ReadGgufTokenizer(model->file->tokenizer_gguf, path + ": tokenizer.gguf"));
  }
  // Version-1 files carry no texts; they lie beside the model.
  if (texts->tokenizer_json.empty() && model->file->gguf_tokenizer == nullptr) {
    return ReadBeside(files.IsDirectory(path) ? path : platform::ParentPath(path), texts);
  }
  return OkStatus();
}

Status OpenInto(ModelState* model, const OpenOptions& options) {
  Texts texts;
  CELLM_RETURN_IF_ERROR(ReadModelTexts(model, options, &texts));
  if (!options.tokenizer_path.empty()) {
    const std::string path(options.tokenizer_path);
    CELLM_RETURN_IF_ERROR(texts.MapTokenizer(path));
    if (texts.tokenizer_config.empty()) {
      CELLM_RETURN_IF_ERROR(ReadBeside(platform::ParentPath(path), &texts));
    }
  }
  const format::GgufTokenizer* gguf =
      model->file != nullptr ? model->file->gguf_tokenizer.get() : nullptr;
  CELLM_RETURN_IF_ERROR(BuildTokenizer(model, texts, gguf, std::string(options.tokenizer_path)));

  std::unique_ptr<json::Document> tokenizer_config;
  jinja::SpecialTokens special;
  TemplateSources sources;
  if (!texts.chat_template.empty()) {
    sources.own = {{"default", std::string(texts.chat_template)}};
  }
  if (!texts.tokenizer_config.empty()) {
    CELLM_ASSIGN_OR_RETURN(tokenizer_config,
                           json::Document::Parse(texts.tokenizer_config, "tokenizer_config.json"));
    special = ReadSpecialTokens(tokenizer_config->root());
    std::vector<std::pair<std::string, std::string>> named = TemplatesOf(tokenizer_config->root());
    if (sources.own.empty() || named.size() > 1) sources.own = std::move(named);
  }
  const json::Value config = model->file != nullptr && model->file->config != nullptr
                                 ? model->file->config->root()
                                 : json::Value();
  if (config.exists()) ReadConfigNumbers(config, model);
  Result<sample::SamplingOptions> sampling = ReadGenerationConfig(texts.generation_config);
  if (!sampling.ok()) return Status(sampling.status()).WithContext(model->path);
  model->sampling = std::move(sampling).value();
  model->has_own_template = !sources.own.empty();
  if (model->tokenizer != nullptr) {
    sources.given = options.chat_template;
    sources.format = options.chat_format;
    Status status = ChooseTemplate(sources, special, *model->tokenizer, &model->chat_template);
    if (!status.ok()) {
      status = std::move(status).WithContext(model->path);
      // Who wants token ids only need not mind; rendering will say it.
      if (!options.text_only) return status;
      model->template_status = std::move(status);
    }
    MarkEnds(model, texts, config);
  }
  return OkStatus();
}

Status ReadModelOptions(const cellm_model_options* given, cellm_model_options* known,
                        OpenOptions* out) {
  CELLM_RETURN_IF_ERROR(ReadSized(given, "model options", known));
  constexpr uint32_t kFlags = CELLM_MODEL_TOKENIZER_ONLY | CELLM_MODEL_LOCK_WEIGHTS |
                              CELLM_MODEL_EMBEDDING_ON_FLASH | CELLM_MODEL_EMBEDDING_RESIDENT;
  if ((known->flags & ~kFlags) != 0) {
    return Unsupported("model options: unknown flags 0x%x", known->flags & ~kFlags);
  }
  if (known->weights < CELLM_WEIGHTS_AUTO || known->weights > CELLM_WEIGHTS_LOAD) {
    return InvalidArgument("weights is %d, which is no CELLM_WEIGHTS_ constant", known->weights);
  }
  out->holding.holding = known->weights == CELLM_WEIGHTS_MAP    ? Holding::kMapped
                         : known->weights == CELLM_WEIGHTS_LOAD ? Holding::kLoaded
                                                                : Holding::kAuto;
  out->holding.lock = (known->flags & CELLM_MODEL_LOCK_WEIGHTS) != 0;
  const bool on_flash = (known->flags & CELLM_MODEL_EMBEDDING_ON_FLASH) != 0;
  const bool resident = (known->flags & CELLM_MODEL_EMBEDDING_RESIDENT) != 0;
  if (on_flash && resident) {
    return InvalidArgument("the embedding cannot be both on flash and resident");
  }
  out->holding.embedding_on_flash = on_flash   ? FlashTable::kYes
                                    : resident ? FlashTable::kNo
                                               : FlashTable::kDefault;
  out->text_only = (known->flags & CELLM_MODEL_TOKENIZER_ONLY) != 0;
  CELLM_RETURN_IF_ERROR(ReadText(known->tokenizer, "tokenizer", &out->tokenizer_path));
  CELLM_RETURN_IF_ERROR(ReadText(known->chat_format, "chat_format", &out->chat_format));
  return ReadText(known->chat_template, "chat_template", &out->chat_template);
}

// A caller's log callback behind the library's sink. Lives in the model state.
void ForwardLog(void* user, LogLevel level, std::string_view component, std::string_view text) {
  const LogTarget* target = static_cast<const LogTarget*>(user);
  target->write(static_cast<int32_t>(level), {component.data(), component.size()},
                {text.data(), text.size()}, target->user);
}

void FillInfo(const ModelState& model, cellm_model_info* info) {
  *info = CELLM_MODEL_INFO_INIT;
  info->vocabulary = model.vocabulary;
  info->max_context = model.max_context > 0 ? model.max_context : -1;
  info->layers = model.layers;
  info->hidden = model.hidden;
  info->bos_id = -1;
  if (model.tokenizer != nullptr) {
    info->tokenizer_size = model.tokenizer->vocab_size();
    info->bos_id = model.tokenizer->bos_id();
  }
  info->has_chat_template = model.has_own_template ? 1 : 0;
  info->chat_template_hash = model.chat_template.hash;
  if (model.bound != nullptr) {
    const ModelInfo& bound = model.bound->model->info;
    info->vocabulary = bound.vocab_size;
    info->max_context = bound.max_context;
    info->layers = bound.layer_count;
    info->hidden = bound.hidden_size;
    info->parameters = static_cast<uint64_t>(bound.parameter_count);
    info->weight_bytes = bound.weight_bytes;
  }
}

std::string InfoJson(const ModelState& model) {
  cellm_model_info info;
  FillInfo(model, &info);
  const sample::SamplingOptions& s = model.sampling;
  const auto real = [](float value) { return static_cast<double>(value); };
  std::string out = "{\"path\": " + json::Quote(model.path);
  out += ", \"container\": " + json::Quote(model.container);
  out += ", \"model_type\": " + json::Quote(model.model_type);
  out += StrFormat(
      ", \"vocabulary\": %d, \"tokenizer_size\": %d, \"max_context\": %d, \"layers\": %d, "
      "\"hidden\": %d, \"bos_id\": %d, \"parameters\": %" PRIu64 ", \"weight_bytes\": %" PRIu64,
      info.vocabulary, info.tokenizer_size, info.max_context, info.layers, info.hidden, info.bos_id,
      info.parameters, info.weight_bytes);
  out += StrFormat(", \"chat_template\": {\"own\": %s, \"hash\": \"%016" PRIx64 "\", \"name\": ",
                   model.has_own_template ? "true" : "false", info.chat_template_hash);
  out += json::Quote(model.chat_template.name) + "}";
  out += StrFormat(
      ", \"sampling\": {\"temperature\": %.9g, \"top_k\": %d, \"top_p\": %.9g, \"min_p\": %.9g, "
      "\"typical_p\": %.9g, \"repetition_penalty\": %.9g}",
      real(s.temperature), s.top_k, real(s.top_p), real(s.min_p), real(s.typical_p),
      real(s.repetition_penalty));
  out += ", \"notes\": [";
  for (size_t i = 0; i < model.notes.size(); ++i) {
    if (i > 0) out += ", ";
    out += json::Quote(model.notes[i]);
  }
  return out + "]}";
}

}  // namespace
}  // namespace cellm::capi

using cellm::InvalidArgument;
using cellm::Status;
using namespace cellm::capi;  // NOLINT: the C functions stand outside of namespaces

extern "C" {

cellm_status cellm_model_open(const char* path, size_t path_bytes,
                              const cellm_model_options* options, cellm_model** out,
                              cellm_error* error) {
  if (out == nullptr) return Report(InvalidArgument("cellm_model_open: out is null"), error);
  std::string_view view;
  Status status = ReadText(path, path_bytes, "path", &view);
  if (status.ok() && (view.empty() || view.find('\0') != std::string_view::npos)) {
    status = InvalidArgument("the path is empty or has a NUL byte");
  }
  cellm_model_options known;
  OpenOptions open;
  if (status.ok()) status = ReadModelOptions(options, &known, &open);
  if (!status.ok()) return Report(status, error);
  auto state = std::make_shared<ModelState>();
  state->path = view;
  state->text_only = open.text_only;
  state->holding = open.holding;
  state->log_target = {known.log, known.log_user};
  if (known.log != nullptr) state->log = {ForwardLog, &state->log_target};
  status = OpenInto(state.get(), open);
  if (!status.ok()) return Report(status, error);
  cellm_model* const handle = Models().Open(std::move(state));
  if (handle == nullptr) return Report(cellm::Busy("too many models are open"), error);
  *out = handle;
  return CELLM_OK;
}

void cellm_model_close(cellm_model* model) { (void)Models().Close(model); }

cellm_status cellm_model_get_info(const cellm_model* model, cellm_model_info* info,
                                  cellm_error* error) {
  const std::shared_ptr<ModelState> state = Find(model);
  if (state == nullptr) return Report(NotOpen("model", model), error);
  cellm_model_info filled;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    FillInfo(*state, &filled);
  }
  return Report(WriteSized(filled, "info", info), error);
}

cellm_status cellm_model_get_info_json(const cellm_model* model, char* buffer, size_t capacity,
                                       size_t* bytes, cellm_error* error) {
  const std::shared_ptr<ModelState> state = Find(model);
  if (state == nullptr) return Report(NotOpen("model", model), error);
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    text = InfoJson(*state);
  }
  return Report(WriteBytes(text, buffer, capacity, bytes), error);
}

cellm_status cellm_model_get_sampling(const cellm_model* model, cellm_sampling* sampling,
                                      cellm_error* error) {
  const std::shared_ptr<ModelState> state = Find(model);
  if (state == nullptr) return Report(NotOpen("model", model), error);
  const cellm::sample::SamplingOptions& from = state->sampling;
  cellm_sampling filled = CELLM_SAMPLING_INIT;
  filled.given = CELLM_SAMPLING_SEED - 1;  // every bit below it
  filled.temperature = from.temperature;
  filled.top_k = from.top_k;
  filled.top_p = from.top_p;
  filled.min_p = from.min_p;
  filled.typical_p = from.typical_p;
  filled.repetition_penalty = from.repetition_penalty;
  filled.frequency_penalty = from.frequency_penalty;
  filled.presence_penalty = from.presence_penalty;
  filled.penalty_window = from.penalty_window;
  return Report(WriteSized(filled, "sampling", sampling), error);
}

}  // extern "C"
