// The header keys of version-1 .cellm files as a Hugging Face configuration.
#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "format/cellm_file.h"

namespace cellm::format {
namespace {

// An object under construction: members in order, values already written.
class Members {
 public:
  bool Has(std::string_view key) const {
    return std::any_of(members_.begin(), members_.end(),
                       [&](const auto& member) { return member.first == key; });
  }
  void Set(std::string_view key, std::string value) {
    for (auto& member : members_) {
      if (member.first == key) {
        member.second = std::move(value);
        return;
      }
    }
    members_.emplace_back(key, std::move(value));
  }
  void SetIfAbsent(std::string_view key, json::Value value) {
    if (value.has_value() && !Has(key)) Set(key, json::Serialize(value));
  }
  std::string Text() const {
    std::string text = "{";
    for (const auto& [key, value] : members_) {
      if (text.size() > 1) text += ',';
      text += json::Quote(key) + ':' + value;
    }
    return text + '}';
  }

 private:
  std::vector<std::pair<std::string, std::string>> members_;
};

struct IntegerKey {
  const char* v1;
  const char* hugging_face;
  int64_t highest;
};
constexpr IntegerKey kRequiredIntegers[] = {
    {"vocab_size", "vocab_size", limits::kMaxVocabulary},
    {"hidden_dim", "hidden_size", limits::kMaxDimension},
    {"intermediate_size", "intermediate_size", limits::kMaxDimension},
    {"num_layers", "num_hidden_layers", limits::kMaxLayers},
    {"num_heads", "num_attention_heads", limits::kMaxDimension},
    {"num_kv_heads", "num_key_value_heads", limits::kMaxDimension},
};

struct RenamedKey {
  const char* v1;
  const char* hugging_face;
};
constexpr RenamedKey kOptional[] = {
    {"model_type", "model_type"},
    {"head_dim", "head_dim"},
    {"rms_norm_eps", "rms_norm_eps"},
    {"bos_token_id", "bos_token_id"},
    {"eos_token_id", "eos_token_id"},
    {"max_position_embeddings", "max_position_embeddings"},
    {"source_torch_dtype", "torch_dtype"},
    {"source_architectures", "architectures"},
    {"source_vision_config", "vision_config"},
    // Keys of later writers that Hugging Face spells alike.
    {"hc_mult", "hc_mult"},
    {"hc_sinkhorn_iters", "hc_sinkhorn_iters"},
    {"hc_eps", "hc_eps"},
    {"o_groups", "o_groups"},
    {"o_lora_rank", "o_lora_rank"},
    {"q_lora_rank", "q_lora_rank"},
    {"qk_rope_head_dim", "qk_rope_head_dim"},
    {"n_routed_experts", "n_routed_experts"},
    {"num_experts_per_tok", "num_experts_per_tok"},
    {"moe_intermediate_size", "moe_intermediate_size"},
};
constexpr RenamedKey kRopeScaling[] = {
    {"rope_scaling_type", "rope_type"},
    {"rope_scaling_factor", "factor"},
    {"rope_scaling_original_max_position_embeddings", "original_max_position_embeddings"},
    {"rope_scaling_low_freq_factor", "low_freq_factor"},
    {"rope_scaling_high_freq_factor", "high_freq_factor"},
};

Status CheckRequired(json::Value header, const std::string& path) {
  std::string_view model_type;
  if (!header.Find("model_type").GetString(&model_type)) {
    return Corrupt("%s: header key \"model_type\" is not a string", path.c_str());
  }
  // A bundle for another runtime in a .cellm coat: the numbers mean nothing, the type says it all.
  if (model_type == "litertlm_proxy") return OkStatus();
  for (const IntegerKey& key : kRequiredIntegers) {
    int64_t value = 0;
    if (!header.Find(key.v1).GetInt64(&value) || value < 1 || value > key.highest) {
      return Corrupt(
          "%s: header key \"%s\" is %s, expected an integer from 1 to %lld", path.c_str(), key.v1,
          header.Find(key.v1).exists() ? json::Serialize(header.Find(key.v1)).substr(0, 40).c_str()
                                       : "missing",
          static_cast<long long>(key.highest));
    }
  }
  for (const char* key : {"rms_norm_eps", "rope_theta"}) {
    double value = 0;
    if (!header.Find(key).GetDouble(&value)) {
      return Corrupt("%s: header key \"%s\" is not a number", path.c_str(), key);
    }
  }
  return OkStatus();
}

void SetRope(json::Value header, Members* members) {
  if (members->Has("rope_parameters")) return;
  members->SetIfAbsent("rope_theta", header.Find("rope_theta"));
  if (members->Has("rope_scaling") || !header.Find("rope_scaling_type").has_value()) return;
  Members scaling;
  for (const RenamedKey& key : kRopeScaling) {
    scaling.SetIfAbsent(key.hugging_face, header.Find(key.v1));
  }
  members->Set("rope_scaling", scaling.Text());
}

// heads * head_dim need not be the hidden width; where nothing says head_dim, a key projection
// does.
void InferHeadDim(json::Value header, const ModelFile& file, Members* members) {
  int64_t kv_heads = 0;
  if (members->Has("head_dim") || !header.Find("num_kv_heads").GetInt64(&kv_heads) ||
      kv_heads < 1) {
    return;
  }
  for (const Tensor& tensor : file.tensors) {
    if (!tensor.name.ends_with("self_attn.k_proj.weight") || tensor.shape.size() != 2) continue;
    if (tensor.shape[0] > 0 && tensor.shape[0] % kv_heads == 0) {
      members->Set("head_dim", std::to_string(tensor.shape[0] / kv_heads));
    }
    return;
  }
}

// Files made from GGUF keep that container's row order of q and k, which pairs neighbours, and
// early ones do not say so. They are known by what only they lack: the source's configuration and
// container.
void SetRopeInterleaved(json::Value header, ModelFile* file) {
  const json::Value stated = header.Find("rope_interleaved");
  if (stated.is_bool()) {
    (void)stated.GetBool(&file->rope_interleaved);
    return;
  }
  std::string_view model_type;
  (void)header.Find("model_type").GetString(&model_type);
  const auto lacks = [&](const char* key) { return !header.Find(key).has_value(); };
  if (model_type == "llama" && lacks("source_text_config") && lacks("source_safetensors_format") &&
      lacks("source_torch_dtype")) {
    file->rope_interleaved = true;
    file->notes.push_back(
        "the file seems to be made from a GGUF file: q and k rows are taken as interleaved");
  }
}

}  // namespace

Result<std::string> ConfigOfV1Header(json::Value header, const std::string& path, ModelFile* file) {
  CELLM_RETURN_IF_ERROR(CheckRequired(header, path));
  Members members;
  const json::Value source = header.Find("source_text_config");
  for (json::Value v = source.is_object() ? source.First() : json::Value(); v.exists();
       v = source.Next(v)) {
    const std::string_view key = source.KeyOf(v);
    // How the source was quantised says nothing about these tensors: their own types do.
    if (key == "quantization" || key == "quantization_config" || v.is_null()) continue;
    members.Set(key, json::Serialize(v));
  }
  for (const RenamedKey& key : kOptional) {
    members.SetIfAbsent(key.hugging_face, header.Find(key.v1));
  }
  for (const IntegerKey& key : kRequiredIntegers) {
    members.SetIfAbsent(key.hugging_face, header.Find(key.v1));
  }
  // One converter writes the source's whole list here; every id of it ends a text.
  if (header.Find("eos_token_id").is_array()) {
    members.Set("eos_token_id", json::Serialize(header.Find("eos_token_id")));
  }
  SetRope(header, &members);
  InferHeadDim(header, *file, &members);
  // The header's own flag is not trustworthy: a head that exists is the head.
  const bool has_head = FindByRole(*file, "lm_head.weight") != nullptr;
  members.Set("tie_word_embeddings", has_head ? "false" : "true");
  SetRopeInterleaved(header, file);
  return members.Text();
}

}  // namespace cellm::format
