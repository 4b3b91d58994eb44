// Qwen3.5 and Qwen3-VL: one picture at its own ratio within a budget of pixels.
//
// Sides become multiples of patch * merge. Patches are written in the order in which the merger
// reads them: block row, block column, then row and column inside of the block; each patch is
// [3, patch, patch]. A still picture is doubled in time by the published processor; the two slices
// are equal and one is written.

#include "media/families.h"

namespace cellm::media {
namespace {

// Of the longer side to the shorter: the published limit.
constexpr int32_t kMaxRatio = 200;

}  // namespace

Status ReadQwenVl(ProcessorSources* sources, Processor* processor) {
  processor->filter = Filter::kBicubic;
  // The class's own values, where a file has none.
  constexpr double kMean[3] = {0.48145466, 0.4578275, 0.40821073};
  constexpr double kStd[3] = {0.26862954, 0.26130258, 0.27577711};
  for (int i = 0; i < 3; ++i) {
    processor->scaling.mean[i] = kMean[i];
    processor->scaling.std[i] = kStd[i];
  }
  ReadSharedKeys({"Qwen2VLImageProcessor", "Qwen3VLImageProcessor"}, sources, processor);
  QwenVlSettings& settings = processor->qwen_vl;
  CELLM_ASSIGN_OR_RETURN(const int32_t patch,
                         ConfigNumber(sources->config, "vision_config.patch_size", 16));
  CELLM_ASSIGN_OR_RETURN(const int32_t merge,
                         ConfigNumber(sources->config, "vision_config.spatial_merge_size", 2));
  CELLM_ASSIGN_OR_RETURN(const int32_t slices,
                         ConfigNumber(sources->config, "vision_config.temporal_patch_size", 2));
  if (patch > 1024 || merge > 64) {
    return Unsupported("config.json: patches of %d pixels merged by %d; at most 1024 and 64", patch,
                       merge);
  }
  settings.patch = patch;
  settings.merge = merge;
  int32_t file_slices = slices;
  Settings& picture = sources->picture;
  picture.Int("patch_size", 1, 1024, &settings.patch);
  picture.Int("merge_size", 1, 64, &settings.merge);
  picture.Int("temporal_patch_size", 1, 64, &file_slices);
  picture.Int("size.shortest_edge", 1, limits::kMaxPicturePixels, &settings.min_pixels);
  picture.Int("size.longest_edge", 1, limits::kMaxPicturePixels, &settings.max_pixels);
  // The older names of the same two; a file that has both must mean the same.
  int32_t min_pixels = settings.min_pixels;
  int32_t max_pixels = settings.max_pixels;
  picture.Int("min_pixels", 1, limits::kMaxPicturePixels, &min_pixels);
  picture.Int("max_pixels", 1, limits::kMaxPicturePixels, &max_pixels);
  const bool both = picture.Has("size.longest_edge") || picture.Has("size.shortest_edge");
  CELLM_RETURN_IF_ERROR(picture.Finish());
  CELLM_RETURN_IF_ERROR(sources->whole.Finish());
  if (both && (min_pixels != settings.min_pixels || max_pixels != settings.max_pixels)) {
    return Corrupt(
        "preprocessor_config.json: size says %d to %d pixels, min_pixels and max_pixels "
        "say %d to %d; make them agree",
        settings.min_pixels, settings.max_pixels, min_pixels, max_pixels);
  }
  settings.min_pixels = min_pixels;
  settings.max_pixels = max_pixels;
  if (settings.patch != patch || settings.merge != merge || file_slices != slices) {
    return Corrupt(
        "patch_size %d, merge_size %d, temporal_patch_size %d in the processor's file, "
        "%d, %d, %d in config.json; make them agree",
        settings.patch, settings.merge, file_slices, patch, merge, slices);
  }
  if (slices != 2) {
    return Unsupported("config.json: temporal_patch_size is %d; only 2 is supported", slices);
  }
  if (min_pixels > max_pixels) {
    return Corrupt("preprocessor_config.json: at least %d and at most %d pixels", min_pixels,
                   max_pixels);
  }
  return OkStatus();
}

Result<PicturePlan> PlanQwenVl(const QwenVlSettings& settings, Size picture) {
  const int32_t longer = std::max(picture.width, picture.height);
  const int32_t shorter = std::min(picture.width, picture.height);
  if (int64_t{shorter} * kMaxRatio < longer) {
    return OutOfRange(
        "a picture of %d x %d pixels is too narrow: one side may be at most %d times "
        "the other; crop it",
        picture.width, picture.height, kMaxRatio);
  }
  PicturePlan plan;
  const int32_t unit = settings.patch * settings.merge;
  plan.canvas = FitArea(picture, unit, settings.min_pixels, settings.max_pixels);
  plan.first = plan.canvas;
  const int64_t pixels = int64_t{plan.canvas.width} * plan.canvas.height;
  plan.feature_rows = pixels / (int64_t{unit} * unit);
  plan.tower_values = pixels * 3;
  return plan;
}

Status ProcessQwenVl(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out) {
  const int32_t patch = processor.qwen_vl.patch;
  const int32_t unit = patch * processor.qwen_vl.merge;
  const ScalingTable table = MakeScalingTable(processor.scaling, processor.backend);
  CELLM_ASSIGN_OR_RETURN(const Picture canvas,
                         Resize(picture, plan.canvas.width, plan.canvas.height, processor.filter,
                                processor.backend, allocator));
  float* values = out->storage.data();
  for (int32_t block_y = 0; block_y < canvas.height; block_y += unit) {
    for (int32_t block_x = 0; block_x < canvas.width; block_x += unit) {
      for (int32_t y = block_y; y < block_y + unit; y += patch) {
        for (int32_t x = block_x; x < block_x + unit; x += patch) {
          values = WritePlanes(canvas.view(), {x, y, patch, patch}, table, values);
        }
      }
    }
  }
  out->grids = {{canvas.height / patch, canvas.width / patch}};
  out->shape = {out->grids[0].patches(), 3, patch, patch};
  return OkStatus();
}

}  // namespace cellm::media
