// Products of packed weights (tensor/packed.h) with 8-bit activations, and tiles back in float.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {
namespace {

// What is stored for (row in tile, column in chunk): the planes of tensor/packed.h put together.
uint32_t StoredCode(const uint8_t* chunk, int32_t bits, int32_t row, int32_t column) {
  uint32_t code = 0;
  int32_t shift = 0;
  const int32_t vector = column / 4;  // of 8: which four columns
  const int32_t byte = 4 * row + column % 4;
  if (bits == 8) return chunk[64 * vector + byte];
  if ((bits & 4) != 0) {
    const uint32_t packed = chunk[64 * (vector % 4) + byte];
    code |= vector < 4 ? packed & 15u : packed >> 4;
    shift += 4;
    chunk += 4 * 64;
  }
  if ((bits & 2) != 0) {
    const uint32_t packed = chunk[64 * (vector % 2) + byte];
    code |= ((packed >> (2 * (vector / 2))) & 3u) << shift;
    shift += 2;
    chunk += 2 * 64;
  }
  if ((bits & 1) != 0) {
    const uint32_t packed = chunk[byte];
    code |= ((packed >> vector) & 1u) << shift;
  }
  return code;
}

uint32_t Code(const PackedTiles& w, const uint8_t* chunk, int32_t row, int32_t column) {
  const uint32_t stored = StoredCode(chunk, w.bits, row, column);
  return w.book == nullptr ? stored : w.book[stored];
}

float LoadFloat(const PackedTiles& w, const uint8_t* scales, int32_t group, int32_t row) {
  const size_t index = static_cast<size_t>(group) * 16 + static_cast<size_t>(row);
  if (w.scales_are_f32 != 0) {
    float value;
    memcpy(&value, scales + index * 4, sizeof(value));
    return value;
  }
  uint16_t half;
  memcpy(&half, scales + index * 2, sizeof(half));
  return F16ToFloat(half);
}

float Scale(const PackedTiles& w, const uint8_t* tile, int32_t group, int32_t row) {
  if (w.sub == kernels::kSubNone) return LoadFloat(w, tile, group, row);
  const float super = LoadFloat(w, tile, group >> w.super_shift, row);
  const uint8_t sub = tile[w.subs_offset + static_cast<size_t>(group * 16 + row)];
  return super * static_cast<float>(w.sub == kernels::kSubN4 ? sub & 15 : static_cast<int8_t>(sub));
}

float Min(const PackedTiles& w, const uint8_t* tile, int32_t group, int32_t row) {
  const uint8_t* const mins = tile + w.mins_offset;
  if (w.sub == kernels::kSubNone) return LoadFloat(w, mins, group, row);
  const float super = LoadFloat(w, mins, group >> w.super_shift, row);
  const size_t at = static_cast<size_t>(group * 16 + row);
  if (w.sub == kernels::kSubN4) return super * static_cast<float>(tile[w.subs_offset + at] >> 4);
  return super * static_cast<float>(static_cast<int8_t>(tile[w.sub_mins_offset + at]));
}

// One output: the running sum that kernel_list.inc describes.
float Output(const PackedTiles& w, const QuantRows& x, const uint8_t* tile, int32_t row,
             int32_t token) {
  const int8_t* values = x.values + static_cast<int64_t>(token) * x.chunks * 32;
  const float* xscales = x.scales + static_cast<int64_t>(token) * x.chunks;
  const int32_t* sums = x.sums + static_cast<int64_t>(token) * x.chunks * 2;
  const bool even = w.zero2 % 2 == 0;
  const int32_t parts = w.group == 16 ? 2 : 1;  // pieces of a chunk with their own scale
  const int32_t width = 32 / parts;
  float f = 0.0f;
  for (int32_t chunk = 0; chunk < w.chunks; ++chunk) {
    const uint8_t* codes =
        tile + w.codes_offset + static_cast<size_t>(chunk) * 64u * static_cast<size_t>(w.bits);
    for (int32_t part = 0; part < parts; ++part) {
      // With an odd number of 16-wide groups the last half chunk is padding and has none: its
      // codes, values and sum are zero, so any finite scale does.
      const int32_t index = (chunk * 32 + part * width) / w.group;
      const int32_t group = index < w.groups ? index : w.groups - 1;
      int32_t product = 0;
      for (int32_t i = part * width; i < (part + 1) * width; ++i) {
        product += static_cast<int32_t>(Code(w, codes, row, i)) * values[chunk * 32 + i];
      }
      const int32_t sum =
          parts == 2 ? sums[2 * chunk + part] : sums[2 * chunk] + sums[2 * chunk + 1];
      const float scale = Scale(w, tile, group, row);
      if (even) {
        const int32_t t = product - w.zero2 / 2 * sum;
        f = Fma(static_cast<float>(t), scale * xscales[chunk], f);
      } else {
        const int32_t t = 2 * product - w.zero2 * sum;
        f = Fma(static_cast<float>(t), (0.5f * scale) * xscales[chunk], f);
      }
      if (w.has_min != 0) {
        const float min = Min(w, tile, group, row);
        f = Fma(min, xscales[chunk] * static_cast<float>(sum), f);
      }
    }
  }
  return f;
}

}  // namespace

void matmul_packed_a8(const PackedTiles* w, const QuantRows* x, int32_t tile_begin,
                      int32_t tile_end, float* out, int64_t out_stride) {
  for (int32_t tile = tile_begin; tile < tile_end; ++tile) {
    const uint8_t* data = w->data + static_cast<size_t>(tile) * w->tile_bytes;
    for (int32_t token = 0; token < x->rows; ++token) {
      for (int32_t row = 0; row < 16 && tile * 16 + row < w->rows; ++row) {
        out[token * out_stride + tile * 16 + row] = Output(*w, *x, data, row, token);
      }
    }
  }
}

void unpack_tile_f32(const PackedTiles* w, int32_t tile, float* out) {
  const uint8_t* data = w->data + static_cast<size_t>(tile) * w->tile_bytes;
  for (int32_t row = 0; row < 16; ++row) {
    for (int32_t c = 0; c < w->cols; ++c) {
      const uint8_t* codes =
          data + w->codes_offset + static_cast<size_t>(c / 32) * 64u * static_cast<size_t>(w->bits);
      const int32_t code = static_cast<int32_t>(Code(*w, codes, row, c % 32));
      const float level = static_cast<float>(2 * code - w->zero2);
      float value = level * (0.5f * Scale(*w, data, c / w->group, row));
      if (w->has_min != 0) value = value + Min(*w, data, c / w->group, row);
      out[static_cast<int64_t>(row) * w->cols + c] = value;
    }
  }
}

}  // namespace cellm::scalar
