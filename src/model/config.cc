#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/limits.h"

namespace cellm {
namespace {

// Keys that published configurations carry and that do not change what a forward pass computes
// (training, tooling, ids of the tokenizer, and heads that are not run).
constexpr std::string_view kHarmless[] = {
    "architectures",
    "auto_map",
    "attention_dropout",
    "attn_implementation",
    "attn_pdrop",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "embedding_dropout",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "finetuning_task",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_logits_to_keep",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "residual_dropout",
    "return_dict",
    "return_dict_in_generate",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "vocab_size",
};

// Could a key with this value switch something on?
bool IsSetting(json::Value value) {
  switch (value.kind()) {
    case json::Kind::kNull:
    case json::Kind::kString:
      return false;
    case json::Kind::kBool: {
      bool on = false;
      return value.GetBool(&on) && on;
    }
    case json::Kind::kNumber: {
      double number = 0.0;
      return !value.GetDouble(&number) || number != 0.0;
    }
    case json::Kind::kArray:
    case json::Kind::kObject:
      return value.size() > 0;
  }
  return true;
}

// The value as a message shows it, cut to a line's length.
std::string Shown(json::Value value) {
  std::string text = json::Serialize(value);
  if (text.size() > 60) {
    text.resize(57);
    text.append("...");
  }
  return text;
}

}  // namespace

json::Value Config::Raw(std::string_view key) {
  Know(key);
  return object_.Find(key);
}

bool Config::Has(std::string_view key) { return Raw(key).has_value(); }

bool Config::IsNull(std::string_view key) { return Raw(key).is_null(); }

int32_t Config::Int(std::string_view key, int32_t fallback, int32_t minimum) {
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return fallback;
  int64_t number = 0;
  if (!value.GetInt64(&number) || number < minimum || number > limits::kMaxDimension) {
    const std::string name(key);
    Fail(Corrupt("config: \"%s\": %s is not an integer in [%d, %d]", name.c_str(),
                 Shown(value).c_str(), minimum, limits::kMaxDimension));
    return fallback;
  }
  return static_cast<int32_t>(number);
}

int32_t Config::RequiredInt(std::string_view key, int32_t minimum) {
  if (ok() && !Has(key)) {
    const std::string name(key);
    Fail(Corrupt("config: \"%s\" is missing", name.c_str()));
  }
  return Int(key, minimum, minimum);
}

double Config::Float(std::string_view key, double fallback) {
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return fallback;
  double number = 0.0;
  if (!value.GetDouble(&number) || !std::isfinite(number)) {
    const std::string name(key);
    Fail(Corrupt("config: \"%s\": %s is not a finite number", name.c_str(), Shown(value).c_str()));
    return fallback;
  }
  return number;
}

bool Config::Bool(std::string_view key, bool fallback) {
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return fallback;
  bool on = false;
  if (!value.GetBool(&on)) {
    const std::string name(key);
    Fail(Corrupt("config: \"%s\": %s is not true or false", name.c_str(), Shown(value).c_str()));
    return fallback;
  }
  return on;
}

std::string Config::String(std::string_view key, std::string_view fallback) {
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return std::string(fallback);
  std::string_view text;
  if (!value.GetString(&text)) {
    const std::string name(key);
    Fail(Corrupt("config: \"%s\": %s is not a string", name.c_str(), Shown(value).c_str()));
    return std::string(fallback);
  }
  return std::string(text);
}

std::vector<std::string> Config::StringList(std::string_view key) {
  std::vector<std::string> list;
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return list;
  const std::string name(key);
  if (!value.is_array() || value.size() > limits::kMaxLayers) {
    Fail(Corrupt("config: \"%s\" is not a list of at most %d strings", name.c_str(),
                 limits::kMaxLayers));
    return list;
  }
  for (json::Value v = value.First(); v.exists(); v = value.Next(v)) {
    std::string_view text;
    if (!v.GetString(&text)) {
      Fail(Corrupt("config: \"%s\": %s is not a string", name.c_str(), Shown(v).c_str()));
      return {};
    }
    list.emplace_back(text);
  }
  return list;
}

std::vector<int32_t> Config::IntList(std::string_view key) {
  std::vector<int32_t> list;
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return list;
  const std::string name(key);
  if (!value.is_array() || value.size() > limits::kMaxLayers) {
    Fail(Corrupt("config: \"%s\" is not a list of at most %d integers", name.c_str(),
                 limits::kMaxLayers));
    return list;
  }
  for (json::Value v = value.First(); v.exists(); v = value.Next(v)) {
    int64_t number = 0;
    if (!v.GetInt64(&number) || number < -limits::kMaxDimension || number > limits::kMaxDimension) {
      Fail(Corrupt("config: \"%s\": %s is not an integer that we can take", name.c_str(),
                   Shown(v).c_str()));
      return {};
    }
    list.push_back(static_cast<int32_t>(number));
  }
  return list;
}

Activation Config::ActivationOf(std::string_view key, std::string_view fallback) {
  constexpr struct {
    std::string_view name;
    Activation activation;
  } kNames[] = {
      {"silu", Activation::kSilu},         {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},         {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh}, {"quick_gelu", Activation::kQuickGelu},
      {"relu", Activation::kRelu},         {"relu2", Activation::kRelu2},
  };
  const std::string value = String(key, fallback);
  for (const auto& row : kNames) {
    if (row.name == value) return row.activation;
  }
  const std::string name(key);
  Fail(Unsupported("config: \"%s\": activation \"%s\" is not supported", name.c_str(),
                   value.c_str()));
  return Activation::kSilu;
}

void Config::RefuseTrue(std::string_view key, const char* reason) {
  if (!Bool(key, false)) return;
  const std::string name(key);
  Fail(Unsupported("config: \"%s\": true is not supported (%s)", name.c_str(), reason));
}

void Config::RefuseIfPresent(std::string_view key, const char* reason) {
  const json::Value value = Raw(key);
  if (!ok() || !value.has_value()) return;
  const std::string name(key);
  Fail(Unsupported("config: \"%s\": %s is not supported (%s)", name.c_str(), Shown(value).c_str(),
                   reason));
}

void Config::Ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) Know(key);
}

Status Config::Finish() {
  if (!ok()) return status_;
  std::string unknown;
  for (json::Value v = object_.First(); v.exists(); v = object_.Next(v)) {
    const std::string_view key = object_.KeyOf(v);
    if (!IsSetting(v) || (!key.empty() && key[0] == '_')) continue;
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    if (std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) continue;
    if (key.size() >= 4 && key.substr(0, 4) == "mtp_") continue;  // multi-token prediction heads
    if (key.ends_with("_token_id")) continue;                     // the tokenizer's business
    if (!unknown.empty()) unknown.append(", ");
    unknown.append(1, '"').append(key).append("\": ").append(Shown(v));
    if (unknown.size() > 400) break;
  }
  if (!unknown.empty()) {
    Fail(Unsupported("config: not understood: %s; running without it could give wrong answers",
                     unknown.c_str()));
  }
  return status_;
}

int32_t HeadDim(Config& config, int32_t hidden, int32_t heads) {
  if (config.Has("head_dim")) return config.Int("head_dim", 1);
  if (config.ok() && hidden % heads != 0) {
    config.Fail(
        Unsupported("config: \"hidden_size\" %d is no multiple of \"num_attention_heads\" "
                    "%d and there is no \"head_dim\"",
                    hidden, heads));
  }
  return std::max(1, hidden / heads);
}

int32_t KvHeads(Config& config, int32_t heads, int32_t fallback) {
  const int32_t kv_heads =
      config.Int("num_key_value_heads",
                 fallback > 0 && !config.IsNull("num_key_value_heads") ? fallback : heads);
  if (config.ok() && heads % kv_heads != 0) {
    config.Fail(Unsupported(
        "config: \"num_attention_heads\" %d is no multiple of \"num_key_value_heads\" %d", heads,
        kv_heads));
  }
  return kv_heads;
}

void CheckQuantization(Config& config) {
  config.Ignore({"quantization"});
  const json::Value value = config.Raw("quantization_config");
  if (!value.has_value()) return;
  std::string_view method;
  value.Find("quant_method").GetString(&method);
  for (const std::string_view known : {"", "gptq", "awq", "compressed-tensors"}) {
    if (method == known) return;
  }
  config.Fail(Unsupported("config: \"quantization_config\": method \"%s\" is not supported",
                          std::string(method).c_str()));
}

int32_t BosId(Config& config) {
  const json::Value value = config.Raw("bos_token_id");
  int64_t id = -1;
  if (!value.GetInt64(&id) || id < 0 || id >= limits::kMaxVocabulary) return -1;
  return static_cast<int32_t>(id);
}

std::vector<int32_t> EosIds(Config& config) {
  const json::Value value = config.Raw("eos_token_id");
  std::vector<int32_t> ids;
  const auto add = [&ids](json::Value v) {
    int64_t id = -1;
    if (v.GetInt64(&id) && id >= 0 && id < limits::kMaxVocabulary && ids.size() < 64) {
      ids.push_back(static_cast<int32_t>(id));
    }
  };
  if (value.is_number()) add(value);
  if (value.is_array()) {
    for (json::Value v = value.First(); v.exists(); v = value.Next(v)) add(v);
  }
  return ids;
}

}  // namespace cellm
