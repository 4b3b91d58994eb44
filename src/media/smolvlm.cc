// SmolVLM and Idefics3: tiles of a square side, and a global picture.
//
//   1. the longest edge becomes size.longest_edge, smaller pictures are enlarged; the other side is
//      cut to a whole number and made even
//   2. the longer side is rounded up to whole tiles, the other follows the ratio of step 1 and is
//      rounded up as well, which distorts a little
//   3. more than one tile: they are cut row by row, and the result of step 2, not the original, is
//      squeezed into one more tile, the global picture, which comes last
// Without splitting step 2 is the squeeze into one tile. Each resize rounds to 8 bits, so that the
// number of resizes can be seen in the pixels.

#include <algorithm>
#include <cmath>

#include "media/families.h"

namespace cellm::media {
namespace {

// The published code never goes beyond this after step 1.
constexpr int32_t kMaxSide = 4096;

int32_t RoundUpTo(double value, int32_t unit) {
  return static_cast<int32_t>(std::ceil(value / unit)) * unit;
}

Size FirstResize(Size picture, int32_t longest) {
  const double ratio = static_cast<double>(picture.width) / picture.height;
  Size size;
  if (picture.width >= picture.height) {
    size = {longest, static_cast<int32_t>(longest / ratio)};
    size.height += size.height % 2;
  } else {
    size = {static_cast<int32_t>(longest * ratio), longest};
    size.width += size.width % 2;
  }
  size = {std::max(size.width, 1), std::max(size.height, 1)};
  const double new_ratio = static_cast<double>(size.width) / size.height;
  if (size.width >= size.height && size.width > kMaxSide) {
    size = {kMaxSide, static_cast<int32_t>(kMaxSide / new_ratio)};
  } else if (size.height > size.width && size.height > kMaxSide) {
    size = {static_cast<int32_t>(kMaxSide * new_ratio), kMaxSide};
  }
  return {std::max(size.width, 1), std::max(size.height, 1)};
}

}  // namespace

Status ReadSmolVlm(ProcessorSources* sources, const ProcessorOverrides& overrides,
                   Processor* processor) {
  processor->filter = Filter::kLanczos;
  ReadSharedKeys({"SmolVLMImageProcessor", "Idefics3ImageProcessor"}, sources, processor);
  SmolVlmSettings& settings = processor->smolvlm;
  Settings& picture = sources->picture;
  picture.Int("size.longest_edge", 1, limits::kMaxPictureSide, &settings.longest_edge);
  picture.Int("max_image_size.longest_edge", 1, limits::kMaxPictureSide, &settings.tile);
  picture.Bool("do_image_splitting", &settings.split);
  picture.Ignore({"do_pad", "video_sampling", "return_row_col_info"});
  CELLM_ASSIGN_OR_RETURN(settings.patch,
                         ConfigNumber(sources->config, "vision_config.patch_size", 32));
  CELLM_ASSIGN_OR_RETURN(const int32_t side,
                         ConfigNumber(sources->config, "vision_config.image_size", 224));
  CELLM_ASSIGN_OR_RETURN(settings.shuffle, ConfigNumber(sources->config, "scale_factor", 2));
  int32_t tokens = 0;
  sources->whole.Int("image_seq_len", 1, limits::kMaxContext, &tokens);
  CELLM_RETURN_IF_ERROR(picture.Finish());
  CELLM_RETURN_IF_ERROR(sources->whole.Finish());
  if (settings.tile != side) {
    return Corrupt(
        "max_image_size.longest_edge is %d in the processor's file, and config.json's "
        "vision_config.image_size is %d; make them agree",
        settings.tile, side);
  }
  const int32_t grid = side / settings.patch;
  if (grid < 1 || grid % settings.shuffle != 0) {
    return Corrupt(
        "config.json: %d patches a side (image_size %d, patch_size %d) cannot be merged "
        "by scale_factor %d",
        grid, side, settings.patch, settings.shuffle);
  }
  const int32_t merged = grid / settings.shuffle;
  if (tokens != 0 && int64_t{merged} * merged != tokens) {
    return Corrupt(
        "processor_config.json: image_seq_len is %d, but the tower of config.json makes "
        "%lld rows a tile",
        tokens, static_cast<long long>(int64_t{merged} * merged));
  }
  settings.longest_edge = overrides.longest_edge.value_or(settings.longest_edge);
  settings.split = overrides.split.value_or(settings.split);
  return OkStatus();
}

Result<PicturePlan> PlanSmolVlm(const SmolVlmSettings& settings, Size picture) {
  PicturePlan plan;
  const int32_t tile = settings.tile;
  plan.first = FirstResize(picture, settings.longest_edge);
  plan.canvas = {tile, tile};
  if (settings.split) {
    const double ratio = static_cast<double>(plan.first.width) / plan.first.height;
    if (plan.first.width >= plan.first.height) {
      plan.canvas.width = RoundUpTo(plan.first.width, tile);
      plan.canvas.height = RoundUpTo(std::floor(plan.canvas.width / ratio), tile);
    } else {
      plan.canvas.height = RoundUpTo(plan.first.height, tile);
      plan.canvas.width = RoundUpTo(std::floor(plan.canvas.height * ratio), tile);
    }
    plan.tile_rows = plan.canvas.height / tile;
    plan.tile_cols = plan.canvas.width / tile;
  }
  if (plan.tiled()) plan.overview = {tile, tile};
  const int64_t tiles = int64_t{plan.tile_rows} * plan.tile_cols + (plan.tiled() ? 1 : 0);
  const int64_t merged = tile / settings.patch / settings.shuffle;
  plan.feature_rows = tiles * merged * merged;
  plan.tower_values = tiles * 3 * tile * tile;
  return plan;
}

Status ProcessSmolVlm(const Processor& processor, const PicturePlan& plan,
                      const PictureView& picture, Allocator& allocator, TowerInput* out) {
  const int32_t tile = processor.smolvlm.tile;
  const int32_t grid = tile / processor.smolvlm.patch;
  // torchvision has no Lanczos and falls back to bicubic.
  const bool pil = processor.backend == Backend::kPil;
  const Filter filter =
      processor.filter == Filter::kLanczos && !pil ? Filter::kBicubic : processor.filter;
  const ScalingTable table = MakeScalingTable(processor.scaling, processor.backend);
  CELLM_ASSIGN_OR_RETURN(Picture first, Resize(picture, plan.first.width, plan.first.height, filter,
                                               processor.backend, allocator));
  CELLM_ASSIGN_OR_RETURN(const Picture canvas,
                         Resize(first.view(), plan.canvas.width, plan.canvas.height, filter,
                                processor.backend, allocator));
  first = Picture();
  float* values = out->storage.data();
  for (int32_t row = 0; row < plan.tile_rows; ++row) {
    for (int32_t col = 0; col < plan.tile_cols; ++col) {
      values = WritePlanes(canvas.view(), {col * tile, row * tile, tile, tile}, table, values);
      out->grids.push_back({grid, grid});
    }
  }
  if (plan.tiled()) {
    CELLM_ASSIGN_OR_RETURN(const Picture global,
                           Resize(canvas.view(), tile, tile, filter, processor.backend, allocator));
    WritePlanes(global.view(), {0, 0, tile, tile}, table, values);
    out->grids.push_back({grid, grid});
  }
  out->shape = {static_cast<int64_t>(out->grids.size()), 3, tile, tile};
  return OkStatus();
}

std::string ExpandSmolVlm(const SmolVlmSettings& settings, const PicturePlan& plan) {
  const int64_t merged = settings.tile / settings.patch / settings.shuffle;
  const int64_t tokens = merged * merged;
  constexpr std::string_view kAround = "<fake_token_around_image>";
  std::string text;
  if (plan.tiled()) {
    for (int32_t row = 1; row <= plan.tile_rows; ++row) {
      for (int32_t col = 1; col <= plan.tile_cols; ++col) {
        text += kAround;
        text += StrFormat("<row_%d_col_%d>", row, col);
        Repeat("<image>", tokens, &text);
      }
      text += "\n";
    }
    text += "\n";
  }
  text += kAround;
  text += "<global-img>";
  Repeat("<image>", tokens, &text);
  text += kAround;
  return text;
}

}  // namespace cellm::media
