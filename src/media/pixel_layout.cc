// What the families share: sizes within an area, bytes to floats, and the layouts of patches.

#include <cmath>

#include "media/families.h"

namespace cellm::media {

int64_t RoundToUnit(int32_t value, int32_t unit) {
  return static_cast<int64_t>(std::nearbyint(static_cast<double>(value) / unit)) * unit;
}

Size FitArea(Size picture, int32_t unit, int64_t min_area, int64_t max_area) {
  const double width = picture.width;
  const double height = picture.height;
  const double step = unit;
  double new_width = std::max<double>(step, static_cast<double>(RoundToUnit(picture.width, unit)));
  double new_height =
      std::max<double>(step, static_cast<double>(RoundToUnit(picture.height, unit)));
  if (new_width * new_height > static_cast<double>(max_area)) {
    const double shrink = std::sqrt(height * width / static_cast<double>(max_area));
    new_height = std::max(step, std::floor(height / shrink / step) * step);
    new_width = std::max(step, std::floor(width / shrink / step) * step);
  } else if (new_width * new_height < static_cast<double>(min_area)) {
    const double grow = std::sqrt(static_cast<double>(min_area) / (height * width));
    new_height = std::ceil(height * grow / step) * step;
    new_width = std::ceil(width * grow / step) * step;
  }
  return {static_cast<int32_t>(new_width), static_cast<int32_t>(new_height)};
}

ScalingTable MakeScalingTable(const Scaling& scaling, Backend backend) {
  ScalingTable table;
  for (int channel = 0; channel < 3; ++channel) {
    const float mean = static_cast<float>(scaling.mean[channel]);
    const float deviation = static_cast<float>(scaling.std[channel]);
    const float inverse = static_cast<float>(1.0 / scaling.rescale);
    for (int byte = 0; byte < 256; ++byte) {
      float& value = table.value[channel][byte];
      const float plain = static_cast<float>(byte);
      if (backend == Backend::kPil) {
        value = static_cast<float>(byte * scaling.rescale);
        if (scaling.normalize) value = (value - mean) / deviation;
      } else if (scaling.normalize) {
        value = (plain - mean * inverse) / (deviation * inverse);
      } else {
        value = plain * static_cast<float>(scaling.rescale);
      }
    }
  }
  return table;
}

float* WritePlanes(const PictureView& picture, const Rect& rect, const ScalingTable& table,
                   float* out) {
  for (int32_t channel = 0; channel < 3; ++channel) {
    const float* value = table.value[channel];
    for (int32_t y = rect.y; y < rect.y + rect.height; ++y) {
      const uint8_t* pixel = picture.rgb +
                             (static_cast<size_t>(y) * static_cast<size_t>(picture.width) +
                              static_cast<size_t>(rect.x)) *
                                 3 +
                             channel;
      for (int32_t x = 0; x < rect.width; ++x, pixel += 3) *out++ = value[*pixel];
    }
  }
  return out;
}

float* WritePatchRows(const PictureView& picture, const Rect& rect, int32_t patch,
                      const ScalingTable& table, float* out) {
  for (int32_t top = rect.y; top < rect.y + rect.height; top += patch) {
    for (int32_t left = rect.x; left < rect.x + rect.width; left += patch) {
      for (int32_t y = top; y < top + patch; ++y) {
        const uint8_t* pixel =
            picture.rgb + (static_cast<size_t>(y) * static_cast<size_t>(picture.width) +
                           static_cast<size_t>(left)) *
                              3;
        for (int32_t x = 0; x < patch; ++x, pixel += 3) {
          for (int32_t channel = 0; channel < 3; ++channel) {
            *out++ = table.value[channel][pixel[channel]];
          }
        }
      }
    }
  }
  return out;
}

void Repeat(std::string_view text, int64_t count, std::string* out) {
  out->reserve(out->size() + text.size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out->append(text);
}

}  // namespace cellm::media
