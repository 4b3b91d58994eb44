#ifndef CELLM_SRC_MEDIA_FAMILIES_H_
#define CELLM_SRC_MEDIA_FAMILIES_H_

// The families' parts, and what they share. Private to src/media; contracts are those of
// processor.h and placeholders.h.

#include <cstdint>
#include <string>

#include "json/json.h"
#include "media/processor.h"
#include "media/settings.h"

namespace cellm::media {

// The parsed files of one checkpoint.
struct ProcessorSources {
  json::Value config;  // root of config.json
  Settings picture;    // preprocessor_config.json and processor_config.json's image_processor
  Settings sound;      // processor_config.json's feature_extractor
  Settings whole;      // the rest of processor_config.json
};

// Keys that all picture processors share: rescaling, normalising, the filter, and those that change
// nothing. `classes` are the names that image_processor_type may begin with.
void ReadSharedKeys(std::initializer_list<std::string_view> classes, ProcessorSources* sources,
                    Processor* processor);
// A number of config.json, "section.key" or "key"; `otherwise` when absent. Corrupt for anything
// that is not a whole number in [1, limits::kMaxDimension].
Result<int32_t> ConfigNumber(json::Value config, std::string_view key, int32_t otherwise);

Status ReadSmolVlm(ProcessorSources* sources, const ProcessorOverrides& overrides,
                   Processor* processor);
Status ReadLfm2Vl(ProcessorSources* sources, const ProcessorOverrides& overrides,
                  Processor* processor);
Status ReadQwenVl(ProcessorSources* sources, Processor* processor);
Status ReadGemma3(ProcessorSources* sources, Processor* processor);
Status ReadGemma4(ProcessorSources* sources, Processor* processor);
void ReadGemma4Sound(ProcessorSources* sources, Gemma4Settings* settings);

Result<PicturePlan> PlanSmolVlm(const SmolVlmSettings& settings, Size picture);
Result<PicturePlan> PlanLfm2Vl(const Lfm2VlSettings& settings, Size picture);
Result<PicturePlan> PlanQwenVl(const QwenVlSettings& settings, Size picture);
Result<PicturePlan> PlanGemma3(const Gemma3Settings& settings, Size picture);
Result<PicturePlan> PlanGemma4(const Gemma4Settings& settings, Size picture);
Result<SoundPlan> PlanGemma4Sound(const Gemma4Settings& settings, int64_t samples);

// `out` has its shape, and storage of plan.tower_values.
Status ProcessSmolVlm(const Processor& processor, const PicturePlan& plan,
                      const PictureView& picture, Allocator& allocator, TowerInput* out);
Status ProcessLfm2Vl(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out);
Status ProcessQwenVl(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out);
Status ProcessGemma3(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out);
Status ProcessGemma4(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out);
Status ProcessGemma4Sound(const Gemma4Settings& settings, const SoundPlan& plan,
                          std::span<const float> samples, Allocator& allocator, TowerInput* out);

std::string ExpandSmolVlm(const SmolVlmSettings& settings, const PicturePlan& plan);
std::string ExpandLfm2Vl(const Lfm2VlSettings& settings, const PicturePlan& plan);

// Appends `text` `count` times.
void Repeat(std::string_view text, int64_t count, std::string* out);

// Sides as multiples of `unit` near the picture's with an area inside [min_area, max_area]: rounded
// half to even, at least one unit; too large an area is scaled down and floored, too small a one
// scaled up and ceiled. The aspect ratio is kept only roughly.
Size FitArea(Size picture, int32_t unit, int64_t min_area, int64_t max_area);
// `value` / `unit` rounded half to even, times `unit`.
int64_t RoundToUnit(int32_t value, int32_t unit);

// The 256 floats of each channel. Both libraries work in float32 and differ in the last bit:
// torchvision folds mean and std into one step, PIL rescales first.
struct ScalingTable {
  float value[3][256];
};
ScalingTable MakeScalingTable(const Scaling& scaling, Backend backend);

// The rectangle of `picture` at (x, y), each as its family's layout; returns the end of what was
// written. The rectangle lies inside of the picture, and sides are multiples of `patch`.
struct Rect {
  int32_t x, y, width, height;
};
// [3, height, width]
float* WritePlanes(const PictureView& picture, const Rect& rect, const ScalingTable& table,
                   float* out);
// [patches, patch * patch * 3], channel fastest
float* WritePatchRows(const PictureView& picture, const Rect& rect, int32_t patch,
                      const ScalingTable& table, float* out);

}  // namespace cellm::media

#endif  // CELLM_SRC_MEDIA_FAMILIES_H_
