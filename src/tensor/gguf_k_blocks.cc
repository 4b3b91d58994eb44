// The K formats: 256 weights a block, with a half (or two) that scales small integer scales.
//
// Bit fields interleave so that vector code reads them in runs of 32 bytes: weight i of the block
// has its two low bits in byte i / 128 * 32 + i % 32 at position 2 * (i / 32 % 4), and so on.
// Q2_K, Q4_K and Q5_K subtract a minimum, which is kept here as a negative one to add.

#include <cstdint>

#include "base/bytes.h"
#include "tensor/gguf_blocks.h"
#include "tensor/half.h"

namespace cellm::gguf {
namespace {

float LoadHalf(const uint8_t* bytes) { return F16ToFloat(LoadLe16(bytes)); }

// Two bits of weight i out of the 64 bytes described above.
uint32_t TwoBits(const uint8_t* bytes, int32_t i) {
  return (uint32_t{bytes[i / 128 * 32 + i % 32]} >> (i / 32 % 4 * 2)) & 3;
}

// Four bits of weight i: bytes hold the 32-weight runs 2k (low nibble) and 2k + 1 (high).
uint32_t FourBits(const uint8_t* bytes, int32_t i) {
  return (uint32_t{bytes[i / 64 * 32 + i % 32]} >> (i / 32 % 2 * 4)) & 15;
}

// Eight 6-bit scales and eight 6-bit minimums in 12 bytes. Bytes 0..3 and 4..7 hold the first four
// of each in their low six bits; bytes 8..11 hold the low four bits of the other scales and
// minimums, whose top two bits are the top bits of bytes 0..3 and 4..7.
void SixBitPairs(const uint8_t* bytes, float d, float dmin, float* scales, float* mins) {
  for (int32_t g = 0; g < 8; ++g) {
    uint32_t scale = 0;
    uint32_t min = 0;
    if (g < 4) {
      scale = bytes[g] & 63u;
      min = bytes[g + 4] & 63u;
    } else {
      scale = (bytes[g + 4] & 15u) | (uint32_t{bytes[g - 4]} >> 6 << 4);
      min = (uint32_t{bytes[g + 4]} >> 4) | (uint32_t{bytes[g]} >> 6 << 4);
    }
    scales[g] = d * static_cast<float>(scale);
    mins[g] = -(dmin * static_cast<float>(min));
  }
}

}  // namespace

// 16 bytes (scale | min << 4), 64 bytes of two bits, half d, half dmin
void DecodeQ2K(const uint8_t* block, uint8_t* codes, float* scales, float* mins) {
  const float d = LoadHalf(block + 80);
  const float dmin = LoadHalf(block + 82);
  for (int32_t g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(block[g] & 15);
    mins[g] = -(dmin * static_cast<float>(block[g] >> 4));
  }
  for (int32_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(TwoBits(block + 16, i));
}

// 32 bytes of third bits, 64 bytes of two bits, 12 bytes of 6-bit scales plus 32, half d.
// Scale g: low four bits in nibble g / 8 of byte g % 8, top two at 2 * (g / 4) of byte 8 + g % 4.
void DecodeQ3K(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  const float d = LoadHalf(block + 108);
  const uint8_t* packed = block + 96;
  for (int32_t g = 0; g < 16; ++g) {
    const int32_t low = (packed[g % 8] >> (g / 8 * 4)) & 15;
    const int32_t high = (packed[8 + g % 4] >> (g / 4 * 2)) & 3;
    scales[g] = d * static_cast<float>((low | (high << 4)) - 32);
  }
  for (int32_t i = 0; i < 256; ++i) {
    const uint32_t third = (uint32_t{block[i % 32]} >> (i / 32)) & 1;
    codes[i] = static_cast<uint8_t>(TwoBits(block + 32, i) | (third << 2));
  }
}

// half d, half dmin, 12 bytes of scales and minimums, 128 bytes of nibbles
void DecodeQ4K(const uint8_t* block, uint8_t* codes, float* scales, float* mins) {
  SixBitPairs(block + 4, LoadHalf(block), LoadHalf(block + 2), scales, mins);
  for (int32_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(FourBits(block + 16, i));
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit g of byte i is weight 32 g + i's.
void DecodeQ5K(const uint8_t* block, uint8_t* codes, float* scales, float* mins) {
  SixBitPairs(block + 4, LoadHalf(block), LoadHalf(block + 2), scales, mins);
  for (int32_t i = 0; i < 256; ++i) {
    const uint32_t fifth = (uint32_t{block[16 + i % 32]} >> (i / 32)) & 1;
    codes[i] = static_cast<uint8_t>(FourBits(block + 48, i) | (fifth << 4));
  }
}

// 128 bytes of low nibbles, 64 bytes of two high bits, 16 int8 scales, half d. In each half of 128
// weights, nibbles of bytes 0..63 are weights 0..63 (low) and 64..127 (high).
void DecodeQ6K(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  const float d = LoadHalf(block + 208);
  for (int32_t g = 0; g < 16; ++g) {
    scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
  }
  for (int32_t i = 0; i < 256; ++i) {
    const uint32_t low = (uint32_t{block[i / 128 * 64 + i % 64]} >> (i / 64 % 2 * 4)) & 15;
    codes[i] = static_cast<uint8_t>(low | (TwoBits(block + 128, i) << 4));
  }
}

}  // namespace cellm::gguf
