#include "tensor/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "base/rng.h"
#include "tensor/gguf_blocks.h"
#include "tensor/half.h"
#include "tensor/plain_formats.h"
#include "tensor/quantize.h"

namespace cellm {
namespace {

TEST(FormatTable, IsInEnumeratorOrderWithUniqueNames) {
  std::set<std::string> names;
  for (int i = 0; i < static_cast<int>(Format::kCount); ++i) {
    const FormatInfo& info = GetFormatInfo(static_cast<Format>(i));
    EXPECT_EQ(static_cast<int>(info.format), i);
    EXPECT_TRUE(names.insert(std::string(info.name)).second) << info.name;
    EXPECT_EQ(FormatByName(info.name), info.format);
    EXPECT_EQ(info.block_weights == 0, info.block_bytes == 0) << info.name;
  }
  EXPECT_EQ(FormatByName("q1_0_g128"), Format::kQ1_0);
  EXPECT_EQ(FormatByName("nothing"), Format::kCount);
  EXPECT_EQ(FormatByName(""), Format::kCount);
}

TEST(FormatTable, AgreesWithTheGgufDecoders) {
  for (const GgufBlock& block : GgufBlocks()) {
    const FormatInfo& info = GetFormatInfo(block.format);
    EXPECT_EQ(info.block_weights, block.weights) << info.name;
    EXPECT_EQ(info.block_bytes, block.bytes) << info.name;
  }
}

// The published value tables of OCP 8-bit floats: a few points that fix every rule.
TEST(PlainFormats, EightBitFloats) {
  EXPECT_EQ(F8E4M3ToFloat(0x00), 0.0f);
  EXPECT_EQ(F8E4M3ToFloat(0x01), 0x1.0p-9f);
  EXPECT_EQ(F8E4M3ToFloat(0x07), 0.875f * 0x1.0p-6f);
  EXPECT_EQ(F8E4M3ToFloat(0x08), 0x1.0p-6f);
  EXPECT_EQ(F8E4M3ToFloat(0x38), 1.0f);
  EXPECT_EQ(F8E4M3ToFloat(0x7E), 448.0f);
  EXPECT_EQ(F8E4M3ToFloat(0xFE), -448.0f);
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0x7F)));
  EXPECT_TRUE(std::isnan(F8E4M3ToFloat(0xFF)));
  EXPECT_EQ(F8E5M2ToFloat(0x01), 0x1.0p-16f);
  EXPECT_EQ(F8E5M2ToFloat(0x3C), 1.0f);
  EXPECT_EQ(F8E5M2ToFloat(0x7B), 57344.0f);
  EXPECT_TRUE(std::isinf(F8E5M2ToFloat(0x7C)));
  EXPECT_TRUE(std::isnan(F8E5M2ToFloat(0x7D)));
}

TEST(PlainFormats, F8V1EncodesToTheNearestValue) {
  EXPECT_EQ(EncodeF8E4M3V1(0.0f), 0x00);
  EXPECT_EQ(EncodeF8E4M3V1(-1.0f), 0xB8);
  EXPECT_EQ(EncodeF8E4M3V1(1e9f), 0x77);
  EXPECT_EQ(EncodeF8E4M3V1(-1e9f), 0xF7);
  EXPECT_EQ(EncodeF8E4M3V1(std::nanf("")), 0x7F);
  EXPECT_EQ(EncodeF8E4M3V1(-INFINITY), 0xFF);
  EXPECT_EQ(EncodeF8E4M3V1(0.0155f), 0x07);  // just below 2^-6 stays subnormal
  for (int bits = 0; bits < 256; ++bits) {
    const uint8_t byte = static_cast<uint8_t>(bits);
    if ((byte & 0x7F) > 0x77 || byte == 0x80) continue;
    EXPECT_EQ(EncodeF8E4M3V1(F8E4M3V1ToFloat(byte)), byte) << bits;
  }
}

TEST(Half, RoundTripsAndRoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
    } else {
      EXPECT_EQ(FloatToF16(value), half);
    }
    const float wide = Bf16ToFloat(half);
    if (!std::isnan(wide)) {
      EXPECT_EQ(FloatToBf16(wide), half);
    }
  }
  // Against the definition: the nearest of the two neighbours, ties to the even one.
  Rng rng(7);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::ldexp(static_cast<float>(rng.NextDouble() * 2 - 1),
                                   static_cast<int>(rng.NextBelow(44)) - 28);
    const uint16_t got = FloatToF16(value);
    const double distance = std::fabs(double{F16ToFloat(got)} - double{value});
    if (std::isinf(F16ToFloat(got))) {
      EXPECT_GE(std::fabs(value), 65520.0f);
      continue;
    }
    for (const int step : {-1, 1}) {
      const uint16_t other = static_cast<uint16_t>(got + step);
      const float neighbour = F16ToFloat(other);
      if (std::isnan(neighbour) || std::isinf(neighbour) || (other ^ got) & 0x8000) continue;
      const double theirs = std::fabs(double{neighbour} - double{value});
      EXPECT_LE(distance, theirs);
      if (distance == theirs) {
        EXPECT_EQ(got % 2, 0);
      }
    }
  }
}

TEST(PlainFormats, ReportsWhatAConversionLoses) {
  const float values[] = {1.0f, 1e6f, -1e6f, 1e-30f, 0.0f, INFINITY, std::nanf("")};
  uint8_t out[4 * 7];
  FloatLosses losses;
  EncodeDenseFloat(Format::kF16, values, 7, out, &losses);
  EXPECT_EQ(losses.overflowed, 2);
  EXPECT_EQ(losses.underflowed, 1);
  EXPECT_EQ(losses.not_finite, 2);
  FloatLosses none;
  EncodeDenseFloat(Format::kBF16, values, 7, out, &none);
  EXPECT_EQ(none.overflowed + none.underflowed, 0);
  float back[7];
  EncodeDenseFloat(Format::kF32, values, 7, out, &none);
  DecodePlain(Format::kF32, out, 7, back);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(back[i], values[i]);
}

TEST(PlainFormats, DecodesIntegersAndDoubles) {
  const uint8_t bytes[] = {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  float value = 0;
  const struct {
    Format format;
    float expected;
  } cases[] = {{Format::kI8, -2.0f},  {Format::kU8, 254.0f},
               {Format::kI16, -2.0f}, {Format::kU16, 65534.0f},
               {Format::kI32, -2.0f}, {Format::kU32, 4294967294.0f},
               {Format::kI64, -2.0f}, {Format::kU64, 18446744073709551614.0f},
               {Format::kBool, 1.0f}};
  for (const auto& c : cases) {
    DecodePlain(c.format, bytes, 1, &value);
    EXPECT_EQ(value, c.expected) << GetFormatInfo(c.format).name;
  }
  const double pi = 3.141592653589793;
  uint8_t wide[8];
  memcpy(wide, &pi, 8);
  DecodePlain(Format::kF64, wide, 1, &value);
  EXPECT_EQ(value, static_cast<float>(pi));
}

}  // namespace
}  // namespace cellm
