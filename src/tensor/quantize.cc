#include "tensor/quantize.h"

#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checked.h"
#include "tensor/half.h"
#include "tensor/quantize_group.h"

namespace cellm {
namespace {

float LargestMagnitude(const float* values, int32_t count) {
  float largest = 0;
  for (int32_t i = 0; i < count; ++i) largest = std::fmax(largest, std::fabs(values[i]));
  return largest;
}

// round-half-away-from-zero of value / scale into [-limit, limit], as version 1 has it.
int32_t V1Code(float value, float scale, int32_t limit) {
  const float bound = static_cast<float>(limit);
  const float scaled = std::round(value / scale);
  return static_cast<int32_t>(scaled < -bound ? -bound : scaled > bound ? bound : scaled);
}

}  // namespace

bool IsAllFinite(const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) return false;
  }
  return true;
}

void QuantizeRow(const PackedLayout& layout, const float* row, const float* importance,
                 uint8_t* codes, float* scales, float* mins) {
  const CodeRange range = RangeOf(layout);
  CELLM_CHECK(!layout.has_min || mins != nullptr, "a layout with mins needs a place for them");
  const int32_t group_cols = layout.group == 0 ? layout.cols : layout.group;
  for (int32_t g = 0; g < layout.groups(); ++g) {
    const int32_t begin = g * group_cols;
    const int32_t count = layout.cols - begin < group_cols ? layout.cols - begin : group_cols;
    const GroupFit fit =
        FitGroup(range, row + begin, importance == nullptr ? nullptr : importance + begin, count);
    for (int32_t i = begin; i < begin + count; ++i) {
      codes[i] = static_cast<uint8_t>(NearestLevel(range, fit, row[i]) + range.zero);
    }
    scales[g] = fit.scale;
    if (layout.has_min) mins[g] = fit.min;
  }
}

bool TernaryScale(const float* values, int64_t count, float* scale) {
  float magnitude = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float value = std::fabs(values[i]);
    if (value == 0 || value == magnitude) continue;
    if (magnitude != 0 || !std::isfinite(value)) return false;
    magnitude = value;
  }
  *scale = magnitude;
  return true;
}

void EncodeV1I8Row(const float* row, int32_t cols, uint8_t* codes, uint16_t* scale) {
  const float largest = LargestMagnitude(row, cols);
  const float step = largest == 0 ? 1.0f : largest / 127.0f;
  for (int32_t i = 0; i < cols; ++i) codes[i] = static_cast<uint8_t>(V1Code(row[i], step, 127));
  *scale = FloatToF16(step);
}

void EncodeV1I4Row(const float* row, int32_t cols, int32_t group, uint8_t* codes,
                   uint16_t* scales) {
  const int32_t group_cols = group == 0 ? cols : group;
  std::memset(codes, 0, CeilDiv(static_cast<size_t>(cols), 2));
  for (int32_t begin = 0; begin < cols; begin += group_cols) {
    const int32_t count = cols - begin < group_cols ? cols - begin : group_cols;
    const float largest = LargestMagnitude(row + begin, count);
    const float step = largest == 0 ? 1.0f : largest / 7.0f;
    for (int32_t i = begin; i < begin + count; ++i) {
      const int32_t nibble = V1Code(row[i], step, 7) + 8;
      codes[i / 2] = static_cast<uint8_t>(codes[i / 2] | (nibble << (i % 2 * 4)));
    }
    scales[begin / group_cols] = FloatToF16(step);
  }
  // The spare nibble of an odd row means zero.
  if (cols % 2 != 0) codes[cols / 2] = static_cast<uint8_t>(codes[cols / 2] | 0x80u);
}

void EncodeV1I2Row(const float* row, int32_t cols, uint8_t* codes, uint16_t* scale) {
  const float largest = LargestMagnitude(row, cols);
  const float step = largest == 0 ? 1.0f : largest / 1.5f;
  std::memset(codes, 0, CeilDiv(static_cast<size_t>(cols), 4));
  for (int32_t i = 0; i < (cols + 3) / 4 * 4; ++i) {
    int code = 1;  // pads
    if (i < cols) {
      const float scaled = row[i] / step;
      code = scaled < -1.0f ? 0 : scaled < 0.0f ? 1 : scaled < 1.0f ? 2 : 3;
    }
    codes[i / 4] = static_cast<uint8_t>(codes[i / 4] | (code << (i % 4 * 2)));
  }
  *scale = FloatToF16(step);
}

void EncodeQ10Row(const float* row, int32_t cols, uint8_t* blocks) {
  for (int32_t begin = 0; begin < cols; begin += 128, blocks += 18) {
    const int32_t count = cols - begin < 128 ? cols - begin : 128;
    double sum = 0;
    std::memset(blocks, 0, 18);
    for (int32_t i = 0; i < count; ++i) {
      sum += std::fabs(double{row[begin + i]});
      if (row[begin + i] > 0) {
        blocks[2 + i / 8] = static_cast<uint8_t>(blocks[2 + i / 8] | (1 << (i % 8)));
      }
    }
    StoreLe(blocks, FloatToF16(static_cast<float>(sum / count)));
  }
}

uint8_t EncodeF8E4M3V1(float value) {
  const uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  if (!std::isfinite(value)) return static_cast<uint8_t>(sign | 0x7Fu);
  const float magnitude = std::fabs(value);
  if (magnitude >= 240.0f) return static_cast<uint8_t>(sign | 0x77u);
  if (magnitude < 0x1.0p-6f) {
    // Subnormal: mantissa / 8 * 2^-6, and never rounded up to a normal number.
    const float mantissa = std::fmin(std::round(magnitude * 0x1.0p9f), 7.0f);
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(mantissa));
  }
  int exponent = 0;
  const float fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  uint32_t mantissa = static_cast<uint32_t>(std::round((fraction * 2 - 1) * 8));
  int biased = exponent - 1 + 7;
  if (mantissa == 8) {
    mantissa = 0;
    ++biased;
  }
  if (biased > 14) return static_cast<uint8_t>(sign | 0x77u);
  return static_cast<uint8_t>(sign | static_cast<uint32_t>(biased) << 3 | mantissa);
}

}  // namespace cellm
