#include "media/processor.h"

#include <cmath>
#include <memory>
#include <string>

#include "media/families.h"

namespace cellm::media {
namespace {

using Document = std::unique_ptr<json::Document>;

// Null for an empty text.
Result<Document> ParseObject(std::string_view text, const char* name) {
  if (text.empty()) return Document();
  CELLM_ASSIGN_OR_RETURN(Document document, json::Document::Parse(text, name));
  if (!document->root().is_object()) {
    return Corrupt("%s: an object was expected at the top", name);
  }
  return document;
}

Result<Family> FamilyOf(json::Value config) {
  std::string_view type;
  if (!config.Find("model_type").GetString(&type)) {
    return Corrupt("config.json: model_type is missing or not a text");
  }
  if (type == "smolvlm" || type == "idefics3") return Family::kSmolVlm;
  if (type == "lfm2_vl") return Family::kLfm2Vl;
  if (type == "qwen3_5" || type == "qwen3_vl") return Family::kQwenVl;
  if (type == "gemma3") return Family::kGemma3;
  if (type == "gemma4") return Family::kGemma4;
  return Unsupported(
      "config.json: model_type %s takes no pictures or sounds here (smolvlm, "
      "idefics3, lfm2_vl, qwen3_5, qwen3_vl, gemma3 and gemma4 do)",
      json::Quote(type).c_str());
}

// The three places where settings stand.
void CollectSources(json::Value preprocessor, json::Value processor, ProcessorSources* sources) {
  sources->picture.AddSource(preprocessor, "preprocessor_config.json");
  if (!processor.exists()) return;
  sources->picture.AddSource(processor.Find("image_processor"), "processor_config.json");
  sources->sound.AddSource(processor.Find("feature_extractor"), "processor_config.json");
  sources->whole.AddSource(processor, "processor_config.json");
  sources->whole.Ignore({"image_processor", "feature_extractor", "video_processor",
                         "processor_class", "chat_template", "auto_map"});
}

Status CheckOverrides(const ProcessorOverrides& overrides, Family family) {
  const bool smolvlm = family == Family::kSmolVlm;
  if (overrides.split.has_value() && !smolvlm && family != Family::kLfm2Vl) {
    return InvalidArgument(
        "this family does not cut pictures into tiles, so there is no splitting "
        "to choose");
  }
  if (!overrides.longest_edge.has_value()) return OkStatus();
  if (!smolvlm) {
    return InvalidArgument("only smolvlm and idefics3 have a longest edge to choose");
  }
  if (*overrides.longest_edge < 1 || *overrides.longest_edge > limits::kMaxPictureSide) {
    return InvalidArgument("a longest edge of %d; 1 to %d can be chosen", *overrides.longest_edge,
                           limits::kMaxPictureSide);
  }
  return OkStatus();
}

Status ReadFamily(ProcessorSources* sources, const ProcessorOverrides& overrides,
                  Processor* processor) {
  switch (processor->family) {
    case Family::kSmolVlm:
      return ReadSmolVlm(sources, overrides, processor);
    case Family::kLfm2Vl:
      return ReadLfm2Vl(sources, overrides, processor);
    case Family::kQwenVl:
      return ReadQwenVl(sources, processor);
    case Family::kGemma3:
      return ReadGemma3(sources, processor);
    case Family::kGemma4:
      return ReadGemma4(sources, processor);
  }
  return Internal("a family without a processor");
}

Result<PicturePlan> PlanFamily(const Processor& processor, Size picture) {
  switch (processor.family) {
    case Family::kSmolVlm:
      return PlanSmolVlm(processor.smolvlm, picture);
    case Family::kLfm2Vl:
      return PlanLfm2Vl(processor.lfm2_vl, picture);
    case Family::kQwenVl:
      return PlanQwenVl(processor.qwen_vl, picture);
    case Family::kGemma3:
      return PlanGemma3(processor.gemma3, picture);
    case Family::kGemma4:
      return PlanGemma4(processor.gemma4, picture);
  }
  return Internal("a family without a processor");
}

bool SizeFits(Size size) {
  return size.width > 0 && size.height > 0 && size.width <= limits::kMaxPictureSide &&
         size.height <= limits::kMaxPictureSide &&
         int64_t{size.width} * size.height <= limits::kMaxPicturePixels;
}

}  // namespace

void ReadSharedKeys(std::initializer_list<std::string_view> classes, ProcessorSources* sources,
                    Processor* processor) {
  Settings& picture = sources->picture;
  picture.Text("image_processor_type", classes);
  int32_t filter = 0;
  picture.Int("resample", 1, 3, &filter);
  if (filter == 1) processor->filter = Filter::kLanczos;
  if (filter == 2) processor->filter = Filter::kBilinear;
  if (filter == 3) processor->filter = Filter::kBicubic;
  picture.Real("rescale_factor", 1e-6, 1e6, &processor->scaling.rescale);
  picture.Three("image_mean", -1e3, 1e3, processor->scaling.mean);
  picture.Three("image_std", 1e-6, 1e3, processor->scaling.std);
  picture.Bool("do_normalize", &processor->scaling.normalize);
  // The published LFM2-VL processor resizes whatever this says, and files say false.
  if (processor->family == Family::kLfm2Vl) {
    picture.Ignore({"do_resize"});
  } else {
    picture.Only("do_resize", true);
  }
  picture.Only("do_rescale", true);
  picture.Only("do_center_crop", false);
  // Decoding always yields RGB; the rest is about batches and devices of the published library.
  picture.Ignore({"do_convert_rgb", "crop_size", "data_format", "input_data_format",
                  "return_tensors", "device", "disable_grouping", "default_to_square", "pad_size",
                  "processor_class", "auto_map"});
}

Result<int32_t> ConfigNumber(json::Value config, std::string_view key, int32_t otherwise) {
  const size_t dot = key.find('.');
  json::Value found = dot == std::string_view::npos ? config.Find(key) : json::Value();
  if (dot != std::string_view::npos) {
    const json::Value section = config.Find(key.substr(0, dot));
    if (section.is_object()) found = section.Find(key.substr(dot + 1));
  }
  if (!found.has_value()) return otherwise;
  int64_t number = 0;
  if (!found.GetInt64(&number) || number < 1 || number > limits::kMaxDimension) {
    return Corrupt("config.json: %.*s is not a whole number from 1 to %d",
                   static_cast<int>(key.size()), key.data(), limits::kMaxDimension);
  }
  return static_cast<int32_t>(number);
}

Result<Processor> ReadProcessor(const ProcessorFiles& files, const ProcessorOverrides& overrides) {
  CELLM_ASSIGN_OR_RETURN(const Document config, ParseObject(files.config, "config.json"));
  CELLM_ASSIGN_OR_RETURN(const Document preprocessor,
                         ParseObject(files.preprocessor, "preprocessor_config.json"));
  CELLM_ASSIGN_OR_RETURN(const Document whole,
                         ParseObject(files.processor, "processor_config.json"));
  if (config == nullptr) return NotFound("config.json is empty");
  Processor processor;
  CELLM_ASSIGN_OR_RETURN(processor.family, FamilyOf(config->root()));
  CELLM_RETURN_IF_ERROR(CheckOverrides(overrides, processor.family));
  ProcessorSources sources;
  sources.config = config->root();
  CollectSources(preprocessor == nullptr ? json::Value() : preprocessor->root(),
                 whole == nullptr ? json::Value() : whole->root(), &sources);
  if (sources.picture.empty()) {
    return NotFound(
        "the checkpoint says nothing of how pictures are prepared: it needs a "
        "preprocessor_config.json, or a processor_config.json with image_processor");
  }
  processor.backend = processor.family == Family::kSmolVlm ? Backend::kPil : Backend::kTorchvision;
  processor.backend = overrides.backend.value_or(processor.backend);
  if (processor.family == Family::kLfm2Vl && processor.backend == Backend::kPil) {
    return InvalidArgument(
        "lfm2_vl is published for torchvision only; there is no PIL arithmetic "
        "to choose");
  }
  CELLM_RETURN_IF_ERROR(ReadFamily(&sources, overrides, &processor));
  return processor;
}

Result<PicturePlan> PlanPicture(const Processor& processor, Size picture) {
  if (!SizeFits(picture)) {
    return OutOfRange(
        "a picture of %d x %d pixels; sides from 1 to %d and at most %d pixels are "
        "taken",
        picture.width, picture.height, limits::kMaxPictureSide, limits::kMaxPicturePixels);
  }
  CELLM_ASSIGN_OR_RETURN(PicturePlan plan, PlanFamily(processor, picture));
  // The columns are resized first: the picture between the passes must fit as well.
  const Size between = {plan.first.width, picture.height};
  if (!SizeFits(plan.first) || !SizeFits(plan.canvas) || !SizeFits(between) ||
      int64_t{plan.tile_rows} * plan.tile_cols > limits::kMaxPictureTiles ||
      plan.feature_rows > limits::kMaxFeatureRows ||
      plan.tower_values > 4 * int64_t{limits::kMaxPicturePixels}) {
    return OutOfRange(
        "a picture of %d x %d pixels would be enlarged to %d x %d in %d x %d tiles, "
        "beyond what is taken; crop it",
        picture.width, picture.height, plan.canvas.width, plan.canvas.height, plan.tile_cols,
        plan.tile_rows);
  }
  return plan;
}

Result<TowerInput> ProcessPicture(const Processor& processor, const PictureView& picture,
                                  Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(const PicturePlan plan,
                         PlanPicture(processor, {picture.width, picture.height}));
  TowerInput out;
  out.kind = MediaKind::kPicture;
  out.storage.resize(static_cast<size_t>(plan.tower_values));
  Status status;
  switch (processor.family) {
    case Family::kSmolVlm:
      status = ProcessSmolVlm(processor, plan, picture, allocator, &out);
      break;
    case Family::kLfm2Vl:
      status = ProcessLfm2Vl(processor, plan, picture, allocator, &out);
      break;
    case Family::kQwenVl:
      status = ProcessQwenVl(processor, plan, picture, allocator, &out);
      break;
    case Family::kGemma3:
      status = ProcessGemma3(processor, plan, picture, allocator, &out);
      break;
    case Family::kGemma4:
      status = ProcessGemma4(processor, plan, picture, allocator, &out);
      break;
  }
  CELLM_RETURN_IF_ERROR(status);
  return out;
}

int32_t SoundRate(const Processor& processor) {
  return processor.family == Family::kGemma4 && processor.gemma4.sound ? processor.gemma4.rate_hz
                                                                       : 0;
}

Result<SoundPlan> PlanSound(const Processor& processor, int64_t samples) {
  if (SoundRate(processor) == 0) return Unsupported("this model does not take sound");
  return PlanGemma4Sound(processor.gemma4, samples);
}

Result<TowerInput> ProcessSound(const Processor& processor, std::span<const float> samples,
                                Allocator& allocator) {
  CELLM_ASSIGN_OR_RETURN(const SoundPlan plan,
                         PlanSound(processor, static_cast<int64_t>(samples.size())));
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!std::isfinite(samples[i])) {
      return InvalidArgument("sample %zu of the clip is not a finite number", i);
    }
  }
  TowerInput out;
  out.kind = MediaKind::kSound;
  out.storage.resize(static_cast<size_t>(plan.frames * processor.gemma4.mel_bins));
  CELLM_RETURN_IF_ERROR(ProcessGemma4Sound(processor.gemma4, plan, samples, allocator, &out));
  return out;
}

}  // namespace cellm::media
