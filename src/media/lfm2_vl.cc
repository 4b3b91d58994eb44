// LFM2-VL: one picture within a budget of tokens at its own ratio, or tiles and a thumbnail.
//
// Sides become multiples of patch * downsample within [min, max] tokens. A picture whose rounded
// area is more than `tolerance` times the largest budget is cut instead: the grid of min to max
// tiles whose ratio is nearest to the picture's, resized to it and cut row by row; the budgeted
// picture follows as a thumbnail. Rows are patches in reading order.

#include <algorithm>
#include <cmath>
#include <limits>

#include "media/families.h"

namespace cellm::media {
namespace {

// More would only serve a hostile file; published ones say 10.
constexpr int32_t kMaxTiles = 64;

// Columns and rows of the grid nearest in ratio. Grids are tried by number of tiles; of two equally
// near the later one is taken when the picture fills more than half of it.
Size NearestGrid(const Lfm2VlSettings& settings, Size picture) {
  const double ratio = static_cast<double>(picture.width) / picture.height;
  const double area = static_cast<double>(picture.width) * picture.height;
  double nearest = std::numeric_limits<double>::infinity();
  Size best = {1, 1};
  for (int32_t tiles = settings.min_tiles; tiles <= settings.max_tiles; ++tiles) {
    for (int32_t cols = 1; cols <= tiles; ++cols) {
      if (tiles % cols != 0) continue;
      const int32_t rows = tiles / cols;
      const double distance = std::fabs(ratio - static_cast<double>(cols) / rows);
      const double half = 0.5 * settings.tile * settings.tile * tiles;
      if (distance < nearest || (distance == nearest && area > half)) best = {cols, rows};
      nearest = std::min(nearest, distance);
    }
  }
  return best;
}

}  // namespace

Status ReadLfm2Vl(ProcessorSources* sources, const ProcessorOverrides& overrides,
                  Processor* processor) {
  processor->filter = Filter::kBilinear;
  ReadSharedKeys({"Lfm2VlImageProcessor"}, sources, processor);
  Lfm2VlSettings& settings = processor->lfm2_vl;
  Settings& picture = sources->picture;
  picture.Int("encoder_patch_size", 1, 1024, &settings.patch);
  picture.Int("downsample_factor", 1, 64, &settings.downsample);
  picture.Int("min_image_tokens", 1, limits::kMaxContext, &settings.min_tokens);
  picture.Int("max_image_tokens", 1, limits::kMaxContext, &settings.max_tokens);
  picture.Int("tile_size", 1, limits::kMaxPictureSide, &settings.tile);
  picture.Int("min_tiles", 1, kMaxTiles, &settings.min_tiles);
  picture.Int("max_tiles", 1, kMaxTiles, &settings.max_tiles);
  picture.Real("max_pixels_tolerance", 0.0, 1e6, &settings.tolerance);
  picture.Bool("do_image_splitting", &settings.split);
  picture.Bool("use_thumbnail", &settings.thumbnail);
  // Follow from the others: how far rows are padded, and a size that is never used.
  picture.Ignore({"do_pad", "max_num_patches", "patch_size", "size", "return_row_col_info"});
  sources->whole.Only("use_image_special_tokens", true);
  CELLM_RETURN_IF_ERROR(picture.Finish());
  CELLM_RETURN_IF_ERROR(sources->whole.Finish());
  CELLM_ASSIGN_OR_RETURN(const int32_t patch,
                         ConfigNumber(sources->config, "vision_config.patch_size", 16));
  CELLM_ASSIGN_OR_RETURN(const int32_t downsample,
                         ConfigNumber(sources->config, "downsample_factor", 2));
  if (patch != settings.patch || downsample != settings.downsample) {
    return Corrupt(
        "patches are %d wide and merged by %d in the processor's file, %d and %d in "
        "config.json; make them agree",
        settings.patch, settings.downsample, patch, downsample);
  }
  if (settings.tile % (patch * downsample) != 0) {
    return Corrupt("tile_size %d is not a multiple of encoder_patch_size * downsample_factor = %d",
                   settings.tile, patch * downsample);
  }
  if (settings.min_tokens > settings.max_tokens || settings.min_tiles > settings.max_tiles) {
    return Corrupt(
        "image tokens from %d to %d, tiles from %d to %d: a minimum is above its maximum",
        settings.min_tokens, settings.max_tokens, settings.min_tiles, settings.max_tiles);
  }
  if (int64_t{settings.max_tokens} * patch * downsample * patch * downsample >
      limits::kMaxPicturePixels) {
    return Unsupported("max_image_tokens %d of %d x %d pixels each are more than %lld pixels",
                       settings.max_tokens, patch * downsample, patch * downsample,
                       static_cast<long long>(limits::kMaxPicturePixels));
  }
  settings.split = overrides.split.value_or(settings.split);
  return OkStatus();
}

Result<PicturePlan> PlanLfm2Vl(const Lfm2VlSettings& settings, Size picture) {
  const int32_t unit = settings.patch * settings.downsample;
  const int64_t unit_area = int64_t{unit} * unit;
  const int64_t max_area = settings.max_tokens * unit_area;
  const Size budgeted = FitArea(picture, unit, settings.min_tokens * unit_area, max_area);
  // A picture that is one unit high can pass the budget: the published code fails on it too.
  if (int64_t{budgeted.width} * budgeted.height > max_area) {
    return OutOfRange(
        "a picture of %d x %d pixels is too narrow: at one patch of height it needs "
        "more than %d tokens; crop it",
        picture.width, picture.height, settings.max_tokens);
  }
  const int64_t rounded_area = std::max<int64_t>(settings.patch, RoundToUnit(picture.width, unit)) *
                               std::max<int64_t>(settings.patch, RoundToUnit(picture.height, unit));
  PicturePlan plan;
  const bool large =
      static_cast<double>(rounded_area) > static_cast<double>(max_area) * settings.tolerance;
  if (large && settings.split && settings.max_tiles > 1) {
    const Size grid = NearestGrid(settings, picture);
    plan.canvas = {settings.tile * grid.width, settings.tile * grid.height};
    plan.tile_cols = grid.width;
    plan.tile_rows = grid.height;
    if (plan.tiled() && settings.thumbnail) plan.overview = budgeted;
  } else {
    plan.canvas = budgeted;
  }
  plan.first = plan.canvas;
  const int64_t pixels = int64_t{plan.canvas.width} * plan.canvas.height +
                         int64_t{plan.overview.width} * plan.overview.height;
  plan.feature_rows = pixels / unit_area;
  plan.tower_values = pixels * 3;
  return plan;
}

Status ProcessLfm2Vl(const Processor& processor, const PicturePlan& plan,
                     const PictureView& picture, Allocator& allocator, TowerInput* out) {
  const int32_t patch = processor.lfm2_vl.patch;
  const ScalingTable table = MakeScalingTable(processor.scaling, processor.backend);
  float* values = out->storage.data();
  {
    CELLM_ASSIGN_OR_RETURN(const Picture canvas,
                           Resize(picture, plan.canvas.width, plan.canvas.height, processor.filter,
                                  processor.backend, allocator));
    const int32_t width = plan.canvas.width / plan.tile_cols;
    const int32_t height = plan.canvas.height / plan.tile_rows;
    for (int32_t row = 0; row < plan.tile_rows; ++row) {
      for (int32_t col = 0; col < plan.tile_cols; ++col) {
        const Rect rect = {col * width, row * height, width, height};
        values = WritePatchRows(canvas.view(), rect, patch, table, values);
        out->grids.push_back({height / patch, width / patch});
      }
    }
  }
  if (plan.overview.width > 0) {
    CELLM_ASSIGN_OR_RETURN(const Picture thumbnail,
                           Resize(picture, plan.overview.width, plan.overview.height,
                                  processor.filter, processor.backend, allocator));
    WritePatchRows(thumbnail.view(), {0, 0, thumbnail.width, thumbnail.height}, patch, table,
                   values);
    out->grids.push_back({thumbnail.height / patch, thumbnail.width / patch});
  }
  const int64_t row_values = int64_t{patch} * patch * 3;
  out->shape = {plan.tower_values / row_values, row_values};
  return OkStatus();
}

std::string ExpandLfm2Vl(const Lfm2VlSettings& settings, const PicturePlan& plan) {
  const int64_t unit_area =
      int64_t{settings.patch} * settings.patch * settings.downsample * settings.downsample;
  std::string text = "<|image_start|>";
  if (plan.tiled()) {
    const int64_t tokens = int64_t{settings.tile} * settings.tile / unit_area;
    for (int32_t row = 1; row <= plan.tile_rows; ++row) {
      for (int32_t col = 1; col <= plan.tile_cols; ++col) {
        text += StrFormat("<|img_row_%d_col_%d|>", row, col);
        Repeat("<image>", tokens, &text);
      }
    }
    if (plan.overview.width > 0) {
      text += "<|img_thumbnail|>";
      Repeat("<image>", int64_t{plan.overview.width} * plan.overview.height / unit_area, &text);
    }
  } else {
    Repeat("<image>", plan.feature_rows, &text);
  }
  return text + "<|image_end|>";
}

}  // namespace cellm::media
