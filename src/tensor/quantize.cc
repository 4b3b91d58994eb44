#include "tensor/quantize.h"

#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checked.h"
#include "tensor/half.h"

namespace cellm {
namespace {

float RoundScale(ScaleType type, float scale) {
  if (type == ScaleType::kF32) return scale;
  const float rounded = F16ToFloat(FloatToF16(scale));
  return std::isinf(rounded) ? std::copysign(65504.0f, scale) : rounded;
}

// The group of weights under search and what has been found best.
struct Group {
  const float* values;
  const float* importance;  // or null
  int32_t count;
  int32_t lowest, highest;  // signed codes
  ScaleType scale_type;
  float best_scale = 0;
  float best_error = 0;
};

// Adding and taking away 1.5 * 2^23 rounds a float below 2^22 to the nearest integer, ties to even,
// in two instructions that vectorise everywhere.
constexpr float kRounder = 12582912.0f;

// The code of `value` as a float: rounded, then inside [low, high]. (Clamped first: the product
// may be beyond any integer.)
inline float NearestCode(float value, float inverse, float low, float high) {
  float scaled = value * inverse;
  scaled = scaled < low ? low : scaled;
  scaled = scaled > high ? high : scaled;
  return (scaled + kRounder) - kRounder;
}

// Sums over a group for one scale.
struct Fit {
  float error = 0;       // weighted squared error with this scale
  float value_code = 0;  // sums for the best scale of these codes
  float code_code = 0;
};

// Eight running sums, element i to sum i % 8, folded in a fixed tree: the same on every machine.
template <bool kWeighted>
Fit Measure(const Group& group, float scale) {
  constexpr int32_t kLanes = 8;
  float error[kLanes] = {};
  float value_code[kLanes] = {};
  float code_code[kLanes] = {};
  const float inverse = 1.0f / scale;
  const float low = static_cast<float>(group.lowest);
  const float high = static_cast<float>(group.highest);
  const float* values = group.values;
  const float* importance = group.importance;
  const auto add = [&](int32_t i, int32_t lane) {
    const float value = values[i];
    const float code = NearestCode(value, inverse, low, high);
    const float difference = value - code * scale;
    const float weight = kWeighted ? importance[i] : 1.0f;
    error[lane] += weight * (difference * difference);
    value_code[lane] += weight * (value * code);
    code_code[lane] += weight * (code * code);
  };
  int32_t i = 0;
  for (; i + kLanes <= group.count; i += kLanes) {
    for (int32_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (; i < group.count; ++i) add(i, i % kLanes);
  for (int32_t width = kLanes / 2; width > 0; width /= 2) {
    for (int32_t lane = 0; lane < width; ++lane) {
      error[lane] += error[lane + width];
      value_code[lane] += value_code[lane + width];
      code_code[lane] += code_code[lane + width];
    }
  }
  return {error[0], value_code[0], code_code[0]};
}

// Tries `scale` as it would be stored; returns the scale that is best for the codes it gives (least
// squares), or 0 when it cannot be tried.
float Try(Group* group, float scale) {
  const float rounded = RoundScale(group->scale_type, scale);
  if (rounded == 0 || !std::isfinite(1.0f / rounded)) return 0;
  const Fit fit = group->importance == nullptr ? Measure<false>(*group, rounded)
                                               : Measure<true>(*group, rounded);
  // Strictly better: among equals the first candidate stays.
  if (fit.error < group->best_error) {
    group->best_error = fit.error;
    group->best_scale = rounded;
  }
  return fit.code_code == 0 ? 0 : fit.value_code / fit.code_code;
}

float SearchScale(Group* group) {
  float largest = 0;  // with its sign
  float energy = 0;
  for (int32_t i = 0; i < group->count; ++i) {
    const float value = group->values[i];
    if (std::fabs(value) > std::fabs(largest)) largest = value;
    energy += (group->importance == nullptr ? 1.0f : group->importance[i]) * (value * value);
  }
  if (largest == 0) return 0;
  // The error of scale 0. A candidate must beat it; very small values may not.
  group->best_error = energy;
  group->best_scale = 0;
  // The largest value onto the top code, a little below it and above. With an uneven range the side
  // with one more level (the negative one) is tried for the largest value too.
  const float top = static_cast<float>(group->highest);
  const float bottom = static_cast<float>(group->lowest);
  const float steps = group->highest > 16 ? 0.01f : 0.025f;
  for (int step = -4; step <= 12; ++step) {
    const float shrink = 1.0f - steps * static_cast<float>(step);
    (void)Try(group, std::fabs(largest) / top * shrink);
    if (group->lowest != -group->highest) (void)Try(group, largest / bottom * shrink);
  }
  // From the best onwards: codes give a scale, the scale gives codes.
  float scale = group->best_scale;
  for (int round = 0; round < 3 && scale != 0; ++round) scale = Try(group, scale);
  return group->best_scale;
}

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
                 uint8_t* codes, float* scales) {
  CELLM_CHECK(layout.bits >= 2 && layout.zero2 == 1 << layout.bits && !layout.has_min,
              "QuantizeRow needs a symmetric layout");
  const int32_t zero = layout.zero2 / 2;
  const int32_t group_cols = layout.group == 0 ? layout.cols : layout.group;
  for (int32_t g = 0; g < layout.groups(); ++g) {
    const int32_t begin = g * group_cols;
    Group group{};
    group.values = row + begin;
    group.importance = importance == nullptr ? nullptr : importance + begin;
    group.count = layout.cols - begin < group_cols ? layout.cols - begin : group_cols;
    group.highest = zero - 1;
    group.lowest = layout.bits == 8 ? -group.highest : -zero;
    group.scale_type = layout.scale_type;
    scales[g] = SearchScale(&group);
    const float inverse = scales[g] == 0 ? 0.0f : 1.0f / scales[g];
    for (int32_t i = 0; i < group.count; ++i) {
      const float code = NearestCode(group.values[i], inverse, static_cast<float>(group.lowest),
                                     static_cast<float>(group.highest));
      codes[begin + i] = static_cast<uint8_t>(static_cast<int32_t>(code) + zero);
    }
  }
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
