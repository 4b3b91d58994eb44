// Gemma 3: every picture is squeezed into one square. Pan and scan (crops beside it) is off in the
// published files and refused here.

#include "media/families.h"

namespace cellm::media {

Status ReadGemma3(ProcessorSources* sources, Processor* processor) {
  processor->filter = Filter::kBilinear;
  ReadSharedKeys({"Gemma3ImageProcessor"}, sources, processor);
  Gemma3Settings& settings = processor->gemma3;
  CELLM_ASSIGN_OR_RETURN(const int32_t side,
                         ConfigNumber(sources->config, "vision_config.image_size", 896));
  CELLM_ASSIGN_OR_RETURN(settings.patch,
                         ConfigNumber(sources->config, "vision_config.patch_size", 14));
  CELLM_ASSIGN_OR_RETURN(settings.tokens,
                         ConfigNumber(sources->config, "mm_tokens_per_image", 256));
  int32_t width = side;
  int32_t height = side;
  int32_t tokens = settings.tokens;
  int32_t whole_tokens = settings.tokens;
  Settings& picture = sources->picture;
  picture.Int("size.width", 1, limits::kMaxPictureSide, &width);
  picture.Int("size.height", 1, limits::kMaxPictureSide, &height);
  picture.Int("image_seq_length", 1, limits::kMaxContext, &tokens);
  sources->whole.Int("image_seq_length", 1, limits::kMaxContext, &whole_tokens);
  picture.Only("do_pan_and_scan", false);
  picture.Ignore({"pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
                  "pan_and_scan_min_ratio_to_activate", "do_pad"});
  CELLM_RETURN_IF_ERROR(picture.Finish());
  CELLM_RETURN_IF_ERROR(sources->whole.Finish());
  if (width != side || height != side) {
    return Corrupt(
        "size is %d x %d in the processor's file, and config.json's "
        "vision_config.image_size is %d; make them agree",
        width, height, side);
  }
  if (tokens != settings.tokens || whole_tokens != settings.tokens) {
    return Corrupt(
        "image_seq_length is %d in the processor's file, and config.json's "
        "mm_tokens_per_image is %d; make them agree",
        tokens != settings.tokens ? tokens : whole_tokens, settings.tokens);
  }
  if (side > limits::kMaxPictureSide || side < settings.patch) {
    return Corrupt("config.json: vision_config.image_size %d with patches of %d", side,
                   settings.patch);
  }
  settings.side = side;
  return OkStatus();
}

Result<PicturePlan> PlanGemma3(const Gemma3Settings& settings, Size) {
  PicturePlan plan;
  plan.canvas = {settings.side, settings.side};
  plan.first = plan.canvas;
  plan.feature_rows = settings.tokens;
  plan.tower_values = int64_t{3} * settings.side * settings.side;
  return plan;
}

Status ProcessGemma3(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out) {
  const int32_t side = plan.canvas.width;
  CELLM_ASSIGN_OR_RETURN(const Picture square, Resize(picture, side, side, processor.filter,
                                                      processor.backend, allocator));
  WritePlanes(square.view(), {0, 0, side, side},
              MakeScalingTable(processor.scaling, processor.backend), out->storage.data());
  const int32_t grid = side / processor.gemma3.patch;
  out->grids = {{grid, grid}};
  out->shape = {1, 3, side, side};
  return OkStatus();
}

}  // namespace cellm::media
