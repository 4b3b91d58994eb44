#include "format/convert.h"

#include <cmath>

#include "format/convert_plan.h"

namespace cellm::format {
namespace {

std::string SchemeText(const QuantScheme& scheme) {
  if (scheme.bits == 0) return "null";
  return StrFormat("{\"bits\":%d,\"group\":%d,\"format\":\"%s\"}", scheme.bits, scheme.group,
                   QuantSchemeName(scheme).c_str());
}

// "cellm_quantization": where the weights come from and how they were rounded.
std::string QuantizationMember(const ModelFile& in, const ConvertOptions& options) {
  if (options.keep_description) {
    return ",\"cellm_quantization\":" +
           (in.quantization_json.empty() ? std::string("{}") : std::string(in.quantization_json));
  }
  const std::string dtype = options.dtype == Format::kCount
                                ? std::string("as in the source")
                                : std::string(GetFormatInfo(options.dtype).name);
  std::string text = ",\"cellm_quantization\":{\"method\":";
  text += options.calibration == nullptr
              ? json::Quote("scale search for the least squared error")
              : json::Quote("error feedback over the inputs of a calibration text");
  text += ",\"source\":" + json::Quote(in.container);
  text += ",\"floats\":" + json::Quote(dtype);
  text += ",\"attention\":" + SchemeText(options.attention);
  text += ",\"mlp\":" + SchemeText(options.mlp);
  text += ",\"embedding\":" + SchemeText(options.embedding);
  text += ",\"head\":" + SchemeText(options.head);
  if (!options.recipe.rules.empty()) {
    text += ",\"recipe\":" + json::Quote(options.recipe.name) + ",\"rules\":[";
    for (const QuantRule& rule : options.recipe.rules) {
      text += &rule == options.recipe.rules.data() ? "" : ",";
      text += json::Quote(rule.pattern + " " + QuantSchemeName(rule.scheme));
    }
    text += "]";
  }
  if (!in.quantization_json.empty()) {
    text += ",\"of_source\":" + std::string(in.quantization_json);
  }
  return text + "}";
}

// The header's members of ours.
std::string OwnMembers(const ModelFile& in, const ConvertOptions& options) {
  std::string text = "\"cellm_version\":" + json::Quote(options.version);
  text += QuantizationMember(in, options);
  if (!options.quality_json.empty()) text += ",\"cellm_quality\":" + options.quality_json;
  return text + ",\"cellm_source_config\":" + json::Serialize(in.config->root());
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

double RoleReport::RelativeError() const {
  return squared_weights == 0 ? 0 : std::sqrt(squared_error / squared_weights);
}

double ConvertReport::BitsPerWeight() const {
  uint64_t bytes = 0;
  uint64_t weights = 0;
  for (const RoleReport& role : roles) {
    bytes += role.bytes;
    weights += role.weights;
  }
  return weights == 0 ? 0 : static_cast<double>(bytes) * 8 / static_cast<double>(weights);
}

ConvertOptions Int8Options() {
  ConvertOptions options;
  options.attention = options.mlp = options.embedding = options.head = {8, 0};
  return options;
}

ConvertOptions Int4Options(int32_t group) {
  ConvertOptions options = Int8Options();
  options.attention = options.mlp = options.head = {4, group};
  return options;
}

const char* RoleName(TensorRole role) {
  switch (role) {
    case TensorRole::kAttention:
      return "attention";
    case TensorRole::kMlp:
      return "mlp";
    case TensorRole::kEmbedding:
      return "embedding";
    case TensorRole::kHead:
      return "head";
    case TensorRole::kOtherMatrix:
      return "other matrices";
    default:
      return "kept";
  }
}

bool IsTowerTensor(std::string_view name) {
  for (const std::string_view part :
       {"vision_tower", "vision_model", "visual.", "vision_embed", "embed_vision", "audio_tower",
        "audio_model", "audio_encoder", "embed_audio", "multi_modal_projector", "mm_projector",
        "connector.", "image_newline"}) {
    if (Contains(name, part)) return true;
  }
  return false;
}

TensorRole RoleOf(std::string_view name, size_t rank) {
  if (rank < 2 || rank > 3 || IsTowerTensor(name)) return TensorRole::kKept;
  const bool is_weight = name.ends_with(".weight") || (rank == 3 && Contains(name, ".experts."));
  // Routers and the gates of a recurrence are small, and every later number hangs on them.
  if (!is_weight || Contains(name, "norm") || Contains(name, "conv1d") ||
      Contains(name, ".conv.conv.") || Contains(name, "router") || Contains(name, "position") ||
      name.ends_with(".gate.weight") || Contains(name, "shared_expert_gate") ||
      Contains(name, "in_proj_a.") || Contains(name, "in_proj_b.") ||
      Contains(name, "in_proj_ba.")) {
    return TensorRole::kKept;
  }
  if (Contains(name, "lm_head")) return TensorRole::kHead;
  if (Contains(name, "embed_tokens") || Contains(name, "word_embeddings") ||
      Contains(name, "wte.") || Contains(name, "per_layer_token_embd")) {
    return TensorRole::kEmbedding;
  }
  for (const std::string_view part :
       {".mlp.", ".feed_forward.", "shared_mlp.", ".experts.", ".ffn.", ".block_sparse_moe."}) {
    if (Contains(name, part)) return TensorRole::kMlp;
  }
  for (const std::string_view part : {"attn.", ".attention."}) {
    if (Contains(name, part)) return TensorRole::kAttention;
  }
  return TensorRole::kOtherMatrix;
}

Result<ConvertReport> RewriteWithQuality(const ModelFile& in, std::string version,
                                         std::string quality_json, ConvertCheck check,
                                         platform::FileWriter* out) {
  if (in.identity.empty()) {
    return InvalidArgument("%s: only a .cellm file of ours has a quality ledger", in.path.c_str());
  }
  ConvertOptions options;
  options.version = std::move(version);
  options.quality_json = std::move(quality_json);
  options.keep_description = true;
  options.check = check;
  return ConvertModel(in, options, out);
}

Result<ConvertReport> ConvertModel(const ModelFile& in, const ConvertOptions& options,
                                   platform::FileWriter* out) {
  ConvertReport report;
  const bool plain = options.layout == ConvertLayout::kV1;
  CELLM_ASSIGN_OR_RETURN(const std::vector<Item> items, PlanItems(in, options, &report));
  CELLM_ASSIGN_OR_RETURN(std::string members, V1HeaderMembers(in, plain));
  if (!plain) members = OwnMembers(in, options) + "," + members;
  std::vector<CellmTensorPlan> plans;
  for (const Item& item : items) plans.push_back(item.plan);
  CELLM_ASSIGN_OR_RETURN(const auto writer,
                         CellmWriter::Begin(out, std::move(members), std::move(plans), plain));
  CELLM_RETURN_IF_ERROR(ProduceItems(in, options, items, writer.get(), &report));
  CELLM_RETURN_IF_ERROR(writer->Finish());
  report.file_bytes = out->position();
  if (options.check.check != nullptr) {
    CELLM_RETURN_IF_ERROR(options.check.check(options.check.user, out->draft_path()));
  }
  CELLM_RETURN_IF_ERROR(out->Commit());
  if (report.losses.overflowed != 0) {
    report.notes.push_back(std::to_string(report.losses.overflowed) +
                           " values are too large for the float type and became infinite");
  }
  if (report.losses.underflowed != 0) {
    report.notes.push_back(std::to_string(report.losses.underflowed) +
                           " values are too small for the float type and became zero");
  }
  return report;
}

}  // namespace cellm::format
