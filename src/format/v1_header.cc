// The header keys that version-1 readers look for, from a Hugging Face configuration. The other
// direction is v1_config.cc.
#include <string>

#include "base/numbers.h"
#include "format/convert.h"

namespace cellm::format {
namespace {

// Looks in the text part of a multimodal configuration first, then at the top.
class ConfigView {
 public:
  explicit ConfigView(json::Value root) : root_(root) {
    text_ = root.Find("text_config");
    if (!text_.is_object()) text_ = root;
  }
  json::Value text() const { return text_; }
  json::Value root() const { return root_; }
  json::Value Get(std::string_view key) const {
    const json::Value value = text_.Find(key);
    return value.has_value() ? value : root_.Find(key);
  }
  // The first of these that has a value.
  json::Value GetAny(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) {
      const json::Value value = Get(key);
      if (value.has_value()) return value;
    }
    return {};
  }

 private:
  json::Value root_, text_;
};

void Add(std::string_view key, const std::string& value, std::string* members) {
  if (!members->empty()) *members += ',';
  *members += json::Quote(key) + ':' + value;
}

std::string OrNull(json::Value value) { return json::Serialize(value); }

// Old readers want one number where newer configurations have a list.
std::string FirstId(json::Value value) {
  return value.is_array() ? OrNull(value.First()) : OrNull(value);
}

json::Value RopeTheta(const ConfigView& config) {
  const json::Value plain = config.Get("rope_theta");
  if (plain.is_number()) return plain;
  const json::Value parameters = config.Get("rope_parameters");
  if (parameters.Find("rope_theta").is_number()) return parameters.Find("rope_theta");
  // One set of parameters a kind of layer; the global one is what old readers mean.
  return parameters.Find("full_attention").Find("rope_theta");
}

const char* PrefixOf(const ModelFile& in, std::initializer_list<const char*> prefixes) {
  for (const char* prefix : prefixes) {
    for (const Tensor& tensor : in.tensors) {
      if (tensor.name.starts_with(prefix)) return prefix;
    }
  }
  return nullptr;
}

std::string PrefixText(const char* prefix) {
  return prefix == nullptr ? "null" : json::Quote(prefix);
}

}  // namespace

Result<std::string> V1HeaderMembers(const ModelFile& in, bool required) {
  const ConfigView config(in.config->root());
  std::string members;
  Status missing;
  // A key that old readers insist on: a number of the configuration or `fallback`.
  const auto need = [&](const char* key, json::Value value, const char* fallback) {
    if (value.is_number()) {
      Add(key, json::Serialize(value), &members);
    } else if (fallback != nullptr) {
      Add(key, fallback, &members);
    } else if (missing.ok()) {
      missing = Unsupported("%s: the configuration has no number for \"%s\"", in.path.c_str(), key);
    }
  };
  const json::Value model_type = config.root().Find("model_type");
  std::string_view type_text;
  if (model_type.GetString(&type_text)) {
    Add("model_type", json::Quote(type_text), &members);
  } else {
    missing = Unsupported("%s: the configuration has no \"model_type\"", in.path.c_str());
  }
  Add("source_model_type", OrNull(model_type), &members);
  Add("source_safetensors_format", in.container == "safetensors" ? "\"pt\"" : "null", &members);
  Add("text_tensor_prefix",
      PrefixText(PrefixOf(in, {"model.text_model.", "language_model.", "model."})), &members);
  Add("vision_tensor_prefix",
      PrefixText(PrefixOf(in, {"model.vision_tower.vision_model.", "vision_tower.vision_model.",
                               "model.vision_model.", "vision_model."})),
      &members);
  Add("projector_tensor_prefix",
      PrefixText(PrefixOf(in, {"model.connector.", "connector.", "multi_modal_projector."})),
      &members);
  const json::Value heads = config.GetAny({"num_attention_heads", "num_heads"});
  const std::string heads_text = json::Serialize(heads);
  need("vocab_size", config.Get("vocab_size"), nullptr);
  need("hidden_dim", config.Get("hidden_size"), nullptr);
  need("intermediate_size", config.GetAny({"intermediate_size", "block_ff_dim"}), nullptr);
  need("num_layers", config.Get("num_hidden_layers"), nullptr);
  need("num_heads", heads, nullptr);
  need("num_kv_heads", config.Get("num_key_value_heads"),
       heads.is_number() ? heads_text.c_str() : nullptr);
  Add("head_dim", OrNull(config.Get("head_dim")), &members);
  need("rms_norm_eps", config.GetAny({"rms_norm_eps", "norm_eps", "layer_norm_eps"}), "1e-06");
  need("rope_theta", RopeTheta(config), "10000.0");
  Add("bos_token_id", FirstId(config.Get("bos_token_id")), &members);
  Add("eos_token_id", FirstId(config.Get("eos_token_id")), &members);
  Add("max_position_embeddings", OrNull(config.Get("max_position_embeddings")), &members);
  Add("tie_word_embeddings", OrNull(config.Get("tie_word_embeddings")), &members);
  Add("source_torch_dtype", OrNull(config.GetAny({"torch_dtype", "dtype"})), &members);
  Add("source_architectures", OrNull(config.root().Find("architectures")), &members);
  Add("source_quantization", OrNull(config.Get("quantization")), &members);
  Add("source_quantization_config", OrNull(config.Get("quantization_config")), &members);
  Add("source_text_config", OrNull(config.text()), &members);
  Add("source_vision_config", OrNull(config.root().Find("vision_config")), &members);
  Add("source_projector_config", OrNull(config.root().Find("connector_config")), &members);
  if (in.rope_interleaved) Add("rope_interleaved", "true", &members);
  if (required && !missing.ok()) return missing;
  return members;
}

}  // namespace cellm::format
