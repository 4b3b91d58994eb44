// Gemma 4, pictures: one picture at its own ratio, scaled so that its patches fill the budget of
// max_tokens cells of pool x pool patches; sides are floored to whole cells. A side that would
// vanish becomes one cell. Values are only rescaled to [0, 1]; the tower does the rest.

#include <algorithm>
#include <cmath>

#include "media/families.h"

namespace cellm::media {

Status ReadGemma4(ProcessorSources* sources, Processor* processor) {
  processor->filter = Filter::kBicubic;
  processor->scaling.normalize = false;
  for (int i = 0; i < 3; ++i) {
    processor->scaling.mean[i] = 0.0;
    processor->scaling.std[i] = 1.0;
  }
  ReadSharedKeys({"Gemma4ImageProcessor"}, sources, processor);
  Gemma4Settings& settings = processor->gemma4;
  CELLM_ASSIGN_OR_RETURN(const int32_t patch,
                         ConfigNumber(sources->config, "vision_config.patch_size", 16));
  CELLM_ASSIGN_OR_RETURN(const int32_t pool,
                         ConfigNumber(sources->config, "vision_config.pooling_kernel_size", 3));
  settings.patch = std::min(patch, 1024);
  settings.pool = std::min(pool, 64);
  Settings& picture = sources->picture;
  picture.Int("patch_size", 1, 1024, &settings.patch);
  picture.Int("pooling_kernel_size", 1, 64, &settings.pool);
  picture.Int("max_soft_tokens", 1, 1 << 16, &settings.max_tokens);
  int32_t tokens = settings.max_tokens;
  int32_t whole_tokens = settings.max_tokens;
  picture.Int("image_seq_length", 1, 1 << 16, &tokens);
  picture.Ignore({"do_pad", "size"});
  sources->whole.Int("image_seq_length", 1, 1 << 16, &whole_tokens);
  if (sources->config.Find("audio_config").is_object()) ReadGemma4Sound(sources, &settings);
  CELLM_RETURN_IF_ERROR(picture.Finish());
  CELLM_RETURN_IF_ERROR(sources->whole.Finish());
  if (settings.sound) CELLM_RETURN_IF_ERROR(sources->sound.Finish());
  if (settings.patch != patch || settings.pool != pool) {
    return Corrupt(
        "patch_size %d and pooling_kernel_size %d in the processor's file, %d and %d in "
        "config.json; make them agree",
        settings.patch, settings.pool, patch, pool);
  }
  const int64_t cell = int64_t{patch} * pool;
  if (settings.max_tokens * cell * cell > limits::kMaxPicturePixels) {
    return Unsupported("max_soft_tokens %d of %lld x %lld pixels each are more than %lld pixels",
                       settings.max_tokens, static_cast<long long>(cell),
                       static_cast<long long>(cell),
                       static_cast<long long>(limits::kMaxPicturePixels));
  }
  if (tokens != settings.max_tokens || whole_tokens != settings.max_tokens) {
    return Corrupt(
        "the processor's file has max_soft_tokens %d and image_seq_length %d; make them "
        "agree",
        settings.max_tokens, tokens != settings.max_tokens ? tokens : whole_tokens);
  }
  return OkStatus();
}

Result<PicturePlan> PlanGemma4(const Gemma4Settings& settings, Size picture) {
  const int32_t cell = settings.patch * settings.pool;
  const double area = static_cast<double>(settings.max_tokens) * cell * cell;
  const double factor =
      std::sqrt(area / (static_cast<double>(picture.width) * static_cast<double>(picture.height)));
  const double cells_wide = std::floor(factor * picture.width / cell);
  const double cells_high = std::floor(factor * picture.height / cell);
  if (cells_wide < 1.0 && cells_high < 1.0) {
    return OutOfRange("a budget of %d tokens leaves nothing of a picture of %d x %d pixels",
                      settings.max_tokens, picture.width, picture.height);
  }
  PicturePlan plan;
  const double most = settings.max_tokens;
  if (cells_high < 1.0) {
    const double wide = std::min<double>(picture.width / picture.height, most);
    plan.canvas = {static_cast<int32_t>(wide) * cell, cell};
  } else if (cells_wide < 1.0) {
    const double high = std::min<double>(picture.height / picture.width, most);
    plan.canvas = {cell, static_cast<int32_t>(high) * cell};
  } else {
    plan.canvas = {static_cast<int32_t>(cells_wide) * cell,
                   static_cast<int32_t>(cells_high) * cell};
  }
  plan.first = plan.canvas;
  const int64_t pixels = int64_t{plan.canvas.width} * plan.canvas.height;
  plan.feature_rows = pixels / (int64_t{cell} * cell);
  plan.tower_values = pixels * 3;
  return plan;
}

Status ProcessGemma4(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out) {
  const int32_t patch = processor.gemma4.patch;
  CELLM_ASSIGN_OR_RETURN(const Picture canvas,
                         Resize(picture, plan.canvas.width, plan.canvas.height, processor.filter,
                                processor.backend, allocator));
  WritePatchRows(canvas.view(), {0, 0, canvas.width, canvas.height}, patch,
                 MakeScalingTable(processor.scaling, processor.backend), out->storage.data());
  out->grids = {{canvas.height / patch, canvas.width / patch}};
  out->shape = {out->grids[0].patches(), int64_t{patch} * patch * 3};
  return OkStatus();
}

}  // namespace cellm::media
