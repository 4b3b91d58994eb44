#include "tensor/kv_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "base/bytes.h"
#include "tensor/half.h"

namespace cellm {
namespace {

constexpr std::string_view kNames[kKvTypeCount] = {"f32",   "f16",   "q8", "q4",
                                                   "tq2.5", "tq3.5", "tq4"};

// Levels + 128. Lloyd-Max for a standard normal variable, in units of one standard deviation:
//   4 bits  0.1284 0.3881 0.6568 0.9424 1.2562 1.6181 2.0690 2.7326 and their negatives
//   3 bits  0.2451 0.7560 1.3439 2.1519
//   2 bits  0.4528 1.5104
// (Max, "Quantizing for minimum distortion", 1960, table 1), times the unit that takes the largest
// level of the wide half to 127. Both halves of a row share it: they share a scale.
constexpr float kUnit4 = 127.0f / 2.7326f;
constexpr float kUnit3 = 127.0f / 2.1519f;
#define CELLM_PAIR_8(a, b, c, d, e, f, g, h)                                                  \
  {                                                                                           \
    128 - h, 128 - g, 128 - f, 128 - e, 128 - d, 128 - c, 128 - b, 128 - a, 128 + a, 128 + b, \
        128 + c, 128 + d, 128 + e, 128 + f, 128 + g, 128 + h                                  \
  }
constexpr uint8_t kEven4[16] = CELLM_PAIR_8(8, 25, 42, 59, 76, 93, 110, 127);
constexpr uint8_t kMax4[16] = CELLM_PAIR_8(6, 18, 31, 44, 58, 75, 96, 127);
#undef CELLM_PAIR_8
constexpr uint8_t kMax3Narrow[16] = {28, 66, 93, 117, 139, 163, 190, 228};  // beside 4 bits
constexpr uint8_t kMax3Wide[16] = {1, 49, 83, 114, 142, 173, 207, 255};
constexpr uint8_t kMax2Narrow[16] = {39, 101, 155, 217};  // beside 3 bits

// Seeds of the signs before each Hadamard product: part of the format.
constexpr uint64_t kSignSeeds[3] = {0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u, 0x8CB92BA72F3D8DD7u};

// 64 signs, by splitmix64.
uint64_t SignWord(uint64_t seed, int32_t word) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u * static_cast<uint64_t>(word + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void FlipSigns(float* x, int32_t count, uint64_t seed) {
  for (int32_t word = 0; word * 64 < count; ++word) {
    const uint64_t signs = SignWord(seed, word);
    const int32_t left = std::min(64, count - word * 64);
    for (int32_t i = 0; i < left; ++i) {
      if ((signs >> i & 1u) != 0) x[word * 64 + i] = -x[word * 64 + i];
    }
  }
}

// x *= H / sqrt(count), H the Hadamard matrix in natural order; count a power of two, at least 16.
void Hadamard(float* x, int32_t count) {
  for (int32_t half = 1; half < count; half *= 2) {
    for (int32_t begin = 0; begin < count; begin += 2 * half) {
      float* const a = x + begin;
      float* const b = a + half;
      for (int32_t i = 0; i < half; ++i) {
        const float sum = a[i] + b[i];
        b[i] = a[i] - b[i];
        a[i] = sum;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(count));
  for (int32_t i = 0; i < count; ++i) x[i] *= scale;
}

// The code of least distance, by counting the borders (half way between levels, in value space)
// that lie below.
void NearestCodes(const float* x, int32_t count, const uint8_t* levels, int32_t bits, float scale,
                  uint8_t* codes) {
  float borders[15];
  const int32_t last = (1 << bits) - 1;
  for (int32_t i = 0; i < last; ++i) {
    borders[i] = 0.5f * static_cast<float>(levels[i] + levels[i + 1] - 256) * scale;
  }
  int32_t counts[16];
  for (int32_t begin = 0; begin < count; begin += 16) {
    for (int32_t& c : counts) c = 0;
    for (int32_t b = 0; b < last; ++b) {
      for (int32_t i = 0; i < 16; ++i) counts[i] += x[begin + i] > borders[b] ? 1 : 0;
    }
    for (int32_t i = 0; i < 16; ++i) codes[begin + i] = static_cast<uint8_t>(counts[i]);
  }
}

bool AllFinite(const float* x, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    if (!(std::fabs(x[i]) <= std::numeric_limits<float>::max())) return false;
  }
  return true;
}

float LargestMagnitude(const float* x, int32_t count) {
  float largest = 0.0f;
  for (int32_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// The row's inner products with its levels.
struct Fit {
  float xx = 0.0f, xl = 0.0f, ll = 0.0f;
};

void CodesAt(const KvLayout& layout, const float* x, float scale, uint8_t* codes) {
  const int32_t wide = layout.wide_tiles * 16;
  NearestCodes(x, wide, layout.wide_levels, layout.wide_bits, scale, codes);
  NearestCodes(x + wide, layout.padded - wide, layout.narrow_levels, layout.narrow_bits, scale,
               codes + wide);
}

Fit FitOf(const KvLayout& layout, const float* x, const uint8_t* codes) {
  Fit fit;
  for (int32_t i = 0; i < layout.padded; ++i) {
    const uint8_t* const levels =
        i < layout.wide_tiles * 16 ? layout.wide_levels : layout.narrow_levels;
    const float level = static_cast<float>(levels[codes[i]] - 128);
    fit.xx += x[i] * x[i];
    fit.xl += x[i] * level;
    fit.ll += level * level;
  }
  return fit;
}

int32_t BitsOf(const KvLayout& layout, int32_t tile) {
  return tile < layout.wide_tiles ? layout.wide_bits : layout.narrow_bits;
}

size_t TileOffset(const KvLayout& layout, int32_t tile) {
  const int32_t wide = std::min(tile, layout.wide_tiles);
  return static_cast<size_t>(wide) * KvTileBytes(layout.wide_bits) +
         static_cast<size_t>(tile - wide) * KvTileBytes(layout.narrow_bits);
}

void PutBits(uint8_t* byte, int32_t shift, int32_t bits, uint32_t value) {
  const uint32_t mask = ((1u << bits) - 1u) << shift;
  *byte = static_cast<uint8_t>((*byte & ~mask) | (value << shift));
}

void PutCode(uint8_t* tile, int32_t bits, int32_t lane, int32_t i, uint32_t code) {
  const int32_t at = 4 * lane + i % 4;
  switch (bits) {
    case 8:
      tile[64 * (i / 4) + at] = static_cast<uint8_t>(code);
      return;
    case 4:
      PutBits(tile + 64 * (i / 8) + at, (i & 4) != 0 ? 4 : 0, 4, code);
      return;
    default:
      PutBits(tile + at, 2 * (i / 4), 2, code & 3u);
      if (bits == 3) PutBits(tile + 64 + 8 * (i / 4) + at / 8, at % 8, 1, code >> 2);
  }
}

uint32_t CodeAt(const uint8_t* tile, int32_t bits, int32_t lane, int32_t i) {
  const int32_t at = 4 * lane + i % 4;
  if (bits == 8) return tile[64 * (i / 4) + at];
  if (bits == 4) return (tile[64 * (i / 8) + at] >> ((i & 4) != 0 ? 4 : 0)) & 15u;
  const uint32_t low = (tile[at] >> (2 * (i / 4))) & 3u;
  if (bits == 2) return low;
  return low | (((tile[64 + 8 * (i / 4) + at / 8] >> (at % 8)) & 1u) << 2);
}

Result<KvType> ParseKvType(std::string_view name) {
  for (int i = 0; i < kKvTypeCount; ++i) {
    if (name == kNames[i]) return static_cast<KvType>(i);
  }
  return InvalidArgument(
      "'%.*s' is no K/V format; there are f32, f16, q8, q4, tq2.5, tq3.5 and tq4, for both or as "
      "k=q8,v=q4",
      static_cast<int>(std::min<size_t>(name.size(), 40)), name.data());
}

}  // namespace

std::string_view KvTypeName(KvType type) { return kNames[static_cast<size_t>(type)]; }

std::string KvTypesName(KvTypes types) {
  if (types.k == types.v) return std::string(KvTypeName(types.k));
  return "k=" + std::string(KvTypeName(types.k)) + ",v=" + std::string(KvTypeName(types.v));
}

Result<KvTypes> ParseKvTypes(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    CELLM_ASSIGN_OR_RETURN(const KvType both, ParseKvType(text));
    return KvTypes(both);
  }
  std::string_view parts[2] = {text.substr(0, comma), text.substr(comma + 1)};
  if (parts[0].substr(0, 2) == "v=") std::swap(parts[0], parts[1]);
  if (parts[0].substr(0, 2) != "k=" || parts[1].substr(0, 2) != "v=")
    return ParseKvType(text).status();
  CELLM_ASSIGN_OR_RETURN(const KvType k, ParseKvType(parts[0].substr(2)));
  CELLM_ASSIGN_OR_RETURN(const KvType v, ParseKvType(parts[1].substr(2)));
  return KvTypes(k, v);
}

KvLayout MakeKvLayout(KvType type, int32_t dim) {
  KvLayout layout;
  layout.type = type;
  layout.dim = dim;
  layout.padded = dim;
  if (!KvIsCoded(type)) return layout;
  layout.tiles = (dim + 15) / 16;
  layout.padded = layout.tiles * 16;
  layout.wide_tiles = layout.tiles;
  switch (type) {
    case KvType::kQ4:
      layout.wide_bits = layout.narrow_bits = 4;
      layout.wide_levels = layout.narrow_levels = kEven4;
      break;
    case KvType::kTq4:
      layout.wide_bits = layout.narrow_bits = 4;
      layout.wide_levels = layout.narrow_levels = kMax4;
      break;
    case KvType::kTq3_5:
      layout.wide_tiles = layout.tiles / 2;
      layout.wide_bits = 4;
      layout.narrow_bits = 3;
      layout.wide_levels = kMax4;
      layout.narrow_levels = kMax3Narrow;
      break;
    case KvType::kTq2_5:
      layout.wide_tiles = layout.tiles / 2;
      layout.wide_bits = 3;
      layout.narrow_bits = 2;
      layout.wide_levels = kMax3Wide;
      layout.narrow_levels = kMax2Narrow;
      break;
    default:
      layout.wide_bits = layout.narrow_bits = 8;
  }
  return layout;
}

size_t KvLayout::group_bytes() const { return TileOffset(*this, tiles); }

size_t KvTokenBytes(KvType type, int32_t dim) {
  if (type == KvType::kF32) return static_cast<size_t>(dim) * 4;
  if (type == KvType::kF16) return static_cast<size_t>(dim) * 2;
  return MakeKvLayout(type, dim).group_bytes() / 16 + 2;
}

void RotateKvRow(float* x, int32_t count, bool inverse) {
  int32_t power = 16;
  while (power * 2 <= count) power *= 2;
  // Where the count is no power of two, products over its first and its last `power` columns take
  // turns; each is orthogonal.
  const int32_t begins[3] = {0, count - power, 0};
  const int32_t stages = power == count ? 2 : 3;
  for (int32_t i = 0; i < stages; ++i) {
    const int32_t stage = inverse ? stages - 1 - i : i;
    if (!inverse) FlipSigns(x, count, kSignSeeds[stage]);
    Hadamard(x + begins[stage], power);
    if (inverse) FlipSigns(x, count, kSignSeeds[stage]);
  }
}

uint16_t EncodeKvRow(const KvLayout& layout, KvRole role, const float* x, float* work,
                     uint8_t* codes) {
  std::copy_n(x, layout.dim, work);
  std::fill(work + layout.dim, work + layout.padded, 0.0f);
  if (!AllFinite(x, layout.dim)) {
    std::fill_n(codes, layout.padded, uint8_t{0});
    return FloatToF16(std::numeric_limits<float>::quiet_NaN());
  }
  if (layout.type == KvType::kQ8) {
    const uint16_t scale = FloatToF16(LargestMagnitude(work, layout.padded) / 127.0f);
    const float factor = F16ToFloat(scale) > 0.0f ? 1.0f / F16ToFloat(scale) : 0.0f;
    for (int32_t i = 0; i < layout.padded; ++i) {
      // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer, ties to even.
      const float level = std::clamp(work[i] * factor, -127.0f, 127.0f) + 0x1.8p23f - 0x1.8p23f;
      codes[i] = static_cast<uint8_t>(static_cast<int32_t>(level) + 128);
    }
    return scale;
  }
  RotateKvRow(work, layout.padded, false);
  float scale;
  if (layout.type == KvType::kQ4) {
    // A few ranges; the one of least squared error after the scale is fitted. That error is
    // xx - xl^2 / ll.
    const float largest = LargestMagnitude(work, layout.padded) / 127.0f;
    float best = -1.0f;
    scale = largest;
    for (const float part : {1.0f, 0.925f, 0.85f}) {
      CodesAt(layout, work, largest * part, codes);
      const Fit fit = FitOf(layout, work, codes);
      if (fit.xl * fit.xl > best * fit.ll) {
        best = fit.xl * fit.xl / fit.ll;
        scale = largest * part;
      }
    }
  } else {
    float squares = 0.0f;
    for (int32_t i = 0; i < layout.padded; ++i) squares += work[i] * work[i];
    const float unit = layout.wide_bits == 4 ? kUnit4 : kUnit3;
    scale = std::sqrt(squares / static_cast<float>(layout.padded)) / unit;
  }
  CodesAt(layout, work, scale, codes);
  const Fit fit = FitOf(layout, work, codes);
  if (!(fit.xl > 0.0f)) return 0;
  return FloatToF16(role == KvRole::kKey ? fit.xx / fit.xl : fit.xl / fit.ll);
}

void PutKvRow(const KvLayout& layout, KvRole role, const uint8_t* codes, uint16_t scale,
              int32_t page_tokens, int32_t slot, uint8_t* head) {
  uint8_t* const group = head + static_cast<size_t>(slot / 16) * layout.group_bytes();
  for (int32_t tile = 0; tile < layout.tiles; ++tile) {
    uint8_t* const bytes = group + TileOffset(layout, tile);
    const int32_t bits = BitsOf(layout, tile);
    for (int32_t i = 0; i < 16; ++i) {
      const bool key = role == KvRole::kKey;
      PutCode(bytes, bits, key ? slot % 16 : i, key ? i : slot % 16, codes[tile * 16 + i]);
    }
  }
  StoreLe<uint16_t>(head + layout.scales_offset(page_tokens) + 2 * static_cast<size_t>(slot),
                    scale);
}

void ReadKvRow(const KvLayout& layout, KvRole role, int32_t page_tokens, int32_t slot,
               const uint8_t* head, float* out) {
  const uint8_t* const group = head + static_cast<size_t>(slot / 16) * layout.group_bytes();
  const float scale = F16ToFloat(
      LoadLe<uint16_t>(head + layout.scales_offset(page_tokens) + 2 * static_cast<size_t>(slot)));
  for (int32_t tile = 0; tile < layout.tiles; ++tile) {
    const uint8_t* const bytes = group + TileOffset(layout, tile);
    const int32_t bits = BitsOf(layout, tile);
    const uint8_t* const levels =
        tile < layout.wide_tiles ? layout.wide_levels : layout.narrow_levels;
    for (int32_t i = 0; i < 16; ++i) {
      const bool key = role == KvRole::kKey;
      const uint32_t code = CodeAt(bytes, bits, key ? slot % 16 : i, key ? i : slot % 16);
      const int32_t level = static_cast<int32_t>(bits == 8 ? code : levels[code]) - 128;
      out[tile * 16 + i] = static_cast<float>(level) * scale;
    }
  }
  if (KvIsRotated(layout.type)) RotateKvRow(out, layout.padded, true);
}

}  // namespace cellm
