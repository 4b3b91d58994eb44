#include "tensor/gguf_blocks.h"

#include <cmath>
#include <cstddef>

#include "base/bytes.h"
#include "tensor/half.h"

namespace cellm {
namespace {

float LoadHalf(const uint8_t* bytes) { return F16ToFloat(LoadLe16(bytes)); }

// Blocks of 32 hold weights 0..15 in the low nibbles of 16 bytes and 16..31 in the high ones.
void SplitNibbles(const uint8_t* bytes, int32_t byte_count, uint8_t* codes) {
  for (int32_t i = 0; i < byte_count; ++i) {
    codes[i] = bytes[i] & 15;
    codes[byte_count + i] = bytes[i] >> 4;
  }
}

// half d, nibbles: value (q - 8) d
void DecodeQ40(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = LoadHalf(block);
  SplitNibbles(block + 2, 16, codes);
}

// half d, half m, nibbles: value q d + m
void DecodeQ41(const uint8_t* block, uint8_t* codes, float* scales, float* mins) {
  scales[0] = LoadHalf(block);
  mins[0] = LoadHalf(block + 2);
  SplitNibbles(block + 4, 16, codes);
}

// Bit i of a 32-bit word is bit 4 of weight i.
void AddFifthBits(const uint8_t* word, uint8_t* codes) {
  const uint32_t high = LoadLe32(word);
  for (uint32_t i = 0; i < 32; ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (((high >> i) & 1) << 4));
  }
}

// half d, u32 fifth bits, nibbles: value (q - 16) d
void DecodeQ50(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = LoadHalf(block);
  SplitNibbles(block + 6, 16, codes);
  AddFifthBits(block + 2, codes);
}

// half d, half m, u32 fifth bits, nibbles: value q d + m
void DecodeQ51(const uint8_t* block, uint8_t* codes, float* scales, float* mins) {
  scales[0] = LoadHalf(block);
  mins[0] = LoadHalf(block + 2);
  SplitNibbles(block + 8, 16, codes);
  AddFifthBits(block + 4, codes);
}

// half d, int8 q: value q d
void DecodeQ80(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = LoadHalf(block);
  for (int32_t i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 0x80;  // q + 128
}

// half d, 128 bits: a set bit is +d, a clear one -d
void DecodeQ10(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = 2.0f * LoadHalf(block);
  for (int32_t i = 0; i < 128; ++i) codes[i] = (block[2 + i / 8] >> (i % 8)) & 1;
}

// half d, four a byte, lowest bits first: value (q - 1) d
void DecodeQ20(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = LoadHalf(block);
  for (int32_t i = 0; i < 64; ++i) codes[i] = (block[2 + i / 4] >> (i % 4 * 2)) & 3;
}

// Ternary digits, most significant first, as fixed-point fractions of 256: digit n of a byte is
// the integer part of 3 * (byte * 3^n mod 256) / 256. Bytes 0..31 hold five digits each, weight
// 32 n + i; bytes 32..47 five, weight 160 + 16 n + i; bytes 48..51 four, weight 240 + 4 n + i.
void DecodeTq10(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  struct Run {
    int32_t first_byte, byte_count, digits;
  };
  constexpr Run kRuns[] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
  uint8_t* out = codes;
  for (const Run& run : kRuns) {
    uint32_t power = 1;
    for (int32_t n = 0; n < run.digits; ++n) {
      for (int32_t i = 0; i < run.byte_count; ++i) {
        const uint32_t fraction = (block[run.first_byte + i] * power) & 0xFF;
        *out++ = static_cast<uint8_t>((fraction * 3) >> 8);
      }
      power *= 3;
    }
  }
  scales[0] = LoadHalf(block + 52);
}

// 64 bytes, half d: weight 128 h + 32 j + i in bits 2j of byte 32 h + i, value (q - 1) d
void DecodeTq20(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  for (int32_t i = 0; i < 256; ++i) {
    codes[i] = (block[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
  }
  scales[0] = LoadHalf(block + 64);
}

// Twice the values of a 4-bit float (1 sign, 2 exponent, 1 mantissa bit), plus 12.
constexpr uint8_t kE2M1Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

void DecodeE2M1(const uint8_t* bytes, int32_t byte_count, uint8_t* codes) {
  SplitNibbles(bytes, byte_count, codes);
  for (int32_t i = 0; i < 2 * byte_count; ++i) codes[i] = kE2M1Codes[codes[i]];
}

// u8 exponent e, 16 bytes of 4-bit floats f: value 2 f * 2^(e - 128). e = 255 is read as a number,
// as the reference does.
void DecodeMxfp4(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = std::ldexp(1.0f, int{block[0]} - 128);
  DecodeE2M1(block + 1, 16, codes);
}

// An unsigned float of 4 exponent bits (bias 7) and 3 mantissa bits; bit 7 is not looked at.
// 0x7F (NaN in the published format) counts as 0, as in the reference.
float LoadUE4M3(uint8_t bits) {
  if (bits == 0x7F) return 0.0f;
  const int exponent = (bits >> 3) & 15;
  const float mantissa = static_cast<float>(bits & 7);
  if (exponent == 0) return std::ldexp(mantissa, -9);
  return std::ldexp(8.0f + mantissa, exponent - 10);
}

// Four unsigned 8-bit float scales s, then 4 x 8 bytes of 4-bit floats f: value f s
void DecodeNvfp4(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  for (int32_t g = 0; g < 4; ++g) {
    scales[g] = 0.5f * LoadUE4M3(block[g]);
    DecodeE2M1(block + 4 + 8 * g, 8, codes + 16 * g);
  }
}

// Super-scales: where a block has its half, times what the decoder multiplies it by.
template <int kAt, int kNumerator = 1, int kDenominator = 1>
void OneSuper(const uint8_t* block, float* super, float*) {
  *super = LoadHalf(block + kAt) * (float{kNumerator} / float{kDenominator});
}
template <int kAt, int kMinAt>
void SuperAndMin(const uint8_t* block, float* super, float* super_min) {
  *super = LoadHalf(block + kAt);
  *super_min = -LoadHalf(block + kMinAt);
}
// IQ1_S: the minimum is an eighth of the scale, of either sign.
void SuperAndEighth(const uint8_t* block, float* super, float* super_min) {
  *super = LoadHalf(block);
  *super_min = 0.125f * *super;
}
// IQ1_M: the top nibbles of four words, and scales of quarters.
void SuperOfNibbles(const uint8_t* block, float* super, float*) {
  uint32_t half = 0;
  for (int32_t w = 0; w < 4; ++w) half |= uint32_t{LoadLe16(block + 48 + 2 * w)} >> 12 << (4 * w);
  *super = 0.25f * F16ToFloat(static_cast<uint16_t>(half));
}

using enum Format;
constexpr ScaleType kHalf = ScaleType::kF16;
constexpr ScaleType kFloat = ScaleType::kF32;
constexpr SubScale kI8Sub = SubScale::kI8;
constexpr SubScale kN4Sub = SubScale::kN4;
constexpr SubScale kNoSub = SubScale::kNone;

// format, id, weights, bytes, bits, group, zero2, scale type, has min, decoder
// [, sub-scales, type of super-scales, their decoder [, book, bits of its indexes]]
constexpr GgufBlock kBlocks[] = {
    {kQ4_0, 2, 32, 18, 4, 32, 16, kHalf, false, DecodeQ40},
    {kQ4_1, 3, 32, 20, 4, 32, 0, kHalf, true, DecodeQ41},
    {kQ5_0, 6, 32, 22, 5, 32, 32, kHalf, false, DecodeQ50},
    {kQ5_1, 7, 32, 24, 5, 32, 0, kHalf, true, DecodeQ51},
    {kQ8_0, 8, 32, 34, 8, 32, 256, kHalf, false, DecodeQ80},
    {kQ2_K, 10, 256, 84, 2, 16, 0, kFloat, true, gguf::DecodeQ2K, kN4Sub, kHalf,
     SuperAndMin<80, 82>},
    {kQ3_K, 11, 256, 110, 3, 16, 8, kFloat, false, gguf::DecodeQ3K, kI8Sub, kHalf, OneSuper<108>},
    {kQ4_K, 12, 256, 144, 4, 32, 0, kFloat, true, gguf::DecodeQ4K, kI8Sub, kHalf,
     SuperAndMin<0, 2>},
    {kQ5_K, 13, 256, 176, 5, 32, 0, kFloat, true, gguf::DecodeQ5K, kI8Sub, kHalf,
     SuperAndMin<0, 2>},
    {kQ6_K, 14, 256, 210, 6, 16, 64, kFloat, false, gguf::DecodeQ6K, kI8Sub, kHalf, OneSuper<208>},
    {kIQ1_S, 19, 256, 50, 2, 32, 2, kFloat, true, gguf::DecodeIq1S, kI8Sub, kFloat, SuperAndEighth},
    {kIQ1_M, 29, 256, 56, 4, 16, 9, kFloat, false, gguf::DecodeIq1M, kI8Sub, kFloat,
     SuperOfNibbles},
    {kIQ2_XXS, 16, 256, 66, 8, 32, 256, kFloat, false, gguf::DecodeIq2Xxs, kI8Sub, kFloat,
     OneSuper<0, 1, 8>, CodeBook::kIq2, 3},
    {kIQ2_XS, 17, 256, 74, 8, 16, 256, kFloat, false, gguf::DecodeIq2Xs, kI8Sub, kFloat,
     OneSuper<0, 1, 8>, CodeBook::kIq2, 3},
    {kIQ2_S, 22, 256, 82, 8, 16, 256, kFloat, false, gguf::DecodeIq2S, kI8Sub, kFloat,
     OneSuper<0, 1, 8>, CodeBook::kIq2, 3},
    {kIQ3_XXS, 18, 256, 98, 6, 32, 64, kFloat, false, gguf::DecodeIq3Xxs, kI8Sub, kFloat,
     OneSuper<0, 1, 2>, CodeBook::kIq3, 4},
    {kIQ3_S, 21, 256, 110, 4, 32, 15, kFloat, false, gguf::DecodeIq3S, kI8Sub, kFloat,
     OneSuper<0, 2>},
    {kIQ4_NL, 20, 32, 18, 8, 32, 256, kHalf, false, gguf::DecodeIq4Nl, kNoSub, kHalf, nullptr,
     CodeBook::kIq4, 4},
    {kIQ4_XS, 23, 256, 136, 8, 32, 256, kFloat, false, gguf::DecodeIq4Xs, kI8Sub, kHalf,
     OneSuper<0>, CodeBook::kIq4, 4},
    {kTQ1_0, 34, 256, 54, 2, 256, 2, kHalf, false, DecodeTq10},
    {kTQ2_0, 35, 256, 66, 2, 256, 2, kHalf, false, DecodeTq20},
    {kMXFP4, 39, 32, 17, 5, 32, 24, kFloat, false, DecodeMxfp4, kNoSub, kHalf, nullptr,
     CodeBook::kE2M1, 4},
    {kQ1_0, 41, 128, 18, 1, 128, 1, kHalf, false, DecodeQ10},
    {kQ2_0, 42, 64, 18, 2, 64, 2, kHalf, false, DecodeQ20},
    {kNVFP4, 40, 64, 36, 5, 16, 24, kHalf, false, DecodeNvfp4, kNoSub, kHalf, nullptr,
     CodeBook::kE2M1, 4},
};

struct PlainType {
  uint32_t type_id;
  Format format;
};
constexpr PlainType kPlainTypes[] = {{0, kF32},  {1, kF16},  {24, kI8},  {25, kI16},
                                     {26, kI32}, {27, kI64}, {28, kF64}, {30, kBF16}};

constexpr int32_t kLargestBlock = 256;

}  // namespace

std::span<const GgufBlock> GgufBlocks() { return kBlocks; }

const GgufBlock* FindGgufBlock(Format format) {
  for (const GgufBlock& block : kBlocks) {
    if (block.format == format) return &block;
  }
  return nullptr;
}

Format FormatOfGgufType(uint32_t type_id) {
  for (const PlainType& plain : kPlainTypes) {
    if (plain.type_id == type_id) return plain.format;
  }
  for (const GgufBlock& block : kBlocks) {
    if (block.type_id == type_id) return block.format;
  }
  return kCount;
}

void DecodeGgufRowCodes(const GgufBlock& block, const uint8_t* row, int32_t cols, uint8_t* codes,
                        float* scales, float* mins) {
  const ptrdiff_t groups = block.weights / block.group;
  for (int32_t done = 0; done < cols; done += block.weights) {
    block.decode(row, codes, scales, mins);
    row += block.bytes;
    codes += block.weights;
    scales += groups;
    if (block.has_min) mins += groups;
  }
}

void DecodeGgufRowSupers(const GgufBlock& block, const uint8_t* row, int32_t cols, float* supers,
                         float* super_mins) {
  for (int32_t done = 0; done < cols; done += block.weights) {
    block.supers(row, supers++, super_mins);
    if (block.has_min) ++super_mins;
    row += block.bytes;
  }
}

void DecodeGgufRow(const GgufBlock& block, const uint8_t* row, int32_t cols, float* out) {
  uint8_t codes[kLargestBlock];
  float scales[kLargestBlock / 16];
  float mins[kLargestBlock / 16];
  for (int32_t done = 0; done < cols; done += block.weights) {
    block.decode(row, codes, scales, mins);
    for (int32_t i = 0; i < block.weights; ++i) {
      const int32_t group = i / block.group;
      const float twice = static_cast<float>(2 * codes[i] - block.zero2);
      const float product = twice * (0.5f * scales[group]);
      out[i] = block.has_min ? product + mins[group] : product;
    }
    row += block.bytes;
    out += block.weights;
  }
}

PackedLayout GgufPackedLayout(const GgufBlock& block, int32_t rows, int32_t cols,
                              std::span<const uint8_t> data) {
  PackedLayout layout;
  layout.rows = rows;
  layout.cols = cols;
  layout.bits = block.bits;
  layout.group = block.group;
  layout.zero2 = block.zero2;
  layout.scale_type = block.scale_type;
  layout.has_min = block.has_min;
  if (block.book != CodeBook::kNone) {
    layout.book = block.book;
    layout.bits = block.book_bits;
  }
  if (block.sub != SubScale::kNone) {
    layout.sub = block.sub;
    layout.super = block.weights;
    layout.scale_type = block.super_type;
  }
  if (block.format == kQ1_0) {
    for (size_t at = 0; at + 2 <= data.size(); at += static_cast<size_t>(block.bytes)) {
      // A finite d of at least 2^15: twice that is no half.
      const uint32_t magnitude = LoadLe16(data.data() + at) & 0x7FFFu;
      if (magnitude >= 0x7800 && magnitude < 0x7C00) layout.scale_type = ScaleType::kF32;
    }
  }
  return layout;
}

}  // namespace cellm
