#include "tensor/plain_formats.h"

#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/half.h"

namespace cellm {
namespace {

template <typename T>
void DecodeNumbers(const uint8_t* bytes, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(LoadLe<T>(bytes + static_cast<size_t>(i) * sizeof(T)));
  }
}

}  // namespace

bool IsPlain(Format format) { return format <= Format::kF8E4M3V1; }

float F8E4M3ToFloat(uint8_t bits) {
  const uint32_t exponent = (bits >> 3) & 15u;
  const uint32_t mantissa = bits & 7u;
  const float sign = (bits & 0x80u) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(0x7FC00000u);
  if (exponent == 0) return sign * static_cast<float>(mantissa) * 0x1.0p-9f;
  return sign * std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
}

float F8E5M2ToFloat(uint8_t bits) {
  // The upper byte of a half.
  return F16ToFloat(static_cast<uint16_t>(bits << 8));
}

float F8E4M3V1ToFloat(uint8_t bits) {
  const uint32_t exponent = (bits >> 3) & 15u;
  if (exponent == 15) return (bits & 0x80u) != 0 ? -240.0f : 240.0f;
  return F8E4M3ToFloat(bits);
}

void DecodePlain(Format format, const uint8_t* bytes, int64_t count, float* out) {
  using enum Format;
  switch (format) {
    case kF32:
      return DecodeNumbers<float>(bytes, count, out);
    case kF64:
      return DecodeNumbers<double>(bytes, count, out);
    case kF16:
      for (int64_t i = 0; i < count; ++i) out[i] = F16ToFloat(LoadLe16(bytes + 2 * i));
      return;
    case kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = Bf16ToFloat(LoadLe16(bytes + 2 * i));
      return;
    case kI8:
      return DecodeNumbers<int8_t>(bytes, count, out);
    case kU8:
      return DecodeNumbers<uint8_t>(bytes, count, out);
    case kI16:
      return DecodeNumbers<int16_t>(bytes, count, out);
    case kU16:
      return DecodeNumbers<uint16_t>(bytes, count, out);
    case kI32:
      return DecodeNumbers<int32_t>(bytes, count, out);
    case kU32:
      return DecodeNumbers<uint32_t>(bytes, count, out);
    case kI64:
      return DecodeNumbers<int64_t>(bytes, count, out);
    case kU64:
      return DecodeNumbers<uint64_t>(bytes, count, out);
    case kBool:
      for (int64_t i = 0; i < count; ++i) out[i] = bytes[i] != 0 ? 1.0f : 0.0f;
      return;
    case kF8E4M3:
      for (int64_t i = 0; i < count; ++i) out[i] = F8E4M3ToFloat(bytes[i]);
      return;
    case kF8E5M2:
      for (int64_t i = 0; i < count; ++i) out[i] = F8E5M2ToFloat(bytes[i]);
      return;
    case kF8E4M3V1:
      for (int64_t i = 0; i < count; ++i) out[i] = F8E4M3V1ToFloat(bytes[i]);
      return;
    default:
      break;
  }
  CELLM_CHECK(false, "DecodePlain was given a format with scales");
}

void EncodeDenseFloat(Format format, const float* values, int64_t count, uint8_t* out,
                      FloatLosses* losses) {
  CELLM_CHECK(IsDenseFloat(format), "EncodeDenseFloat writes f32, f16 and bf16 only");
  for (int64_t i = 0; i < count; ++i) {
    const float value = values[i];
    float stored = value;
    if (format == Format::kF32) {
      StoreLe(out + 4 * i, value);
    } else if (format == Format::kF16) {
      const uint16_t half = FloatToF16(value);
      StoreLe(out + 2 * i, half);
      stored = F16ToFloat(half);
    } else {
      const uint16_t half = FloatToBf16(value);
      StoreLe(out + 2 * i, half);
      stored = Bf16ToFloat(half);
    }
    if (!std::isfinite(value)) {
      ++losses->not_finite;
    } else if (std::isinf(stored)) {
      ++losses->overflowed;
    } else if (stored == 0 && value != 0) {
      ++losses->underflowed;
    }
  }
}

}  // namespace cellm
