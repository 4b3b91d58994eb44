// Packed products with base NEON: byte products in 16 bits, added in pairs to 32.

#include "kernels/neon/neon.h"
#include "kernels/neon/packed.h"

namespace cellm::neon {
namespace {

struct PairDot {
  // Two registers: of rows 0, 1 and of rows 2, 3; each row has two lanes.
  struct Sums {
    int32x4_t low, high;
  };
  static CELLM_INLINE Sums Zero() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static CELLM_INLINE int32x4_t Total(const Sums& sums) { return vpaddq_s32(sums.low, sums.high); }
  // Two products of at most 128 * 127 fit in 16 bits; the pair addition widens them.
  template <int kLane>
  static CELLM_INLINE Sums Add2(Sums sums, int8x16_t a, int8x16_t b, int8x16_t x) {
    const int32x4_t words = vreinterpretq_s32_s8(x);
    const int8x8_t xa = vreinterpret_s8_s32(vdup_laneq_s32(words, kLane));
    const int8x8_t xb = vreinterpret_s8_s32(vdup_laneq_s32(words, kLane + 1));
    int16x8_t low = vmull_s8(vget_low_s8(a), xa);
    int16x8_t high = vmull_s8(vget_high_s8(a), xa);
    low = vmlal_s8(low, vget_low_s8(b), xb);
    high = vmlal_s8(high, vget_high_s8(b), xb);
    return {vpadalq_s16(sums.low, low), vpadalq_s16(sums.high, high)};
  }
};

}  // namespace

void matmul_packed_a8(const PackedTiles* w, const QuantRows* x, int32_t tile_begin,
                      int32_t tile_end, float* out, int64_t out_stride) {
  MatmulPacked<PairDot>(w, x, tile_begin, tile_end, out, out_stride);
}

void unpack_tile_f32(const PackedTiles* w, int32_t tile, float* out) {
  uint8_t widened[512];
  float scales[2][16];
  float mins[2][16] = {};
  const uint8_t* data = w->data + static_cast<size_t>(tile) * w->tile_bytes;
  const bool has_min = w->has_min != 0;
  for (int32_t chunk = 0; chunk < w->chunks; ++chunk) {
    const uint8_t* codes =
        data + w->codes_offset + static_cast<size_t>(chunk) * 64u * static_cast<size_t>(w->bits);
    const uint8_t* bytes = codes;
    if (w->bits != 8) {
      WidenCodes(*w, codes, 1, widened);
      bytes = widened;
    }
    for (int part = 0; part < 2; ++part) {
      const int32_t group = (chunk * 32 + 16 * part) / w->group;
      for (int quarter = 0; quarter < 4; ++quarter) {
        vst1q_f32(scales[part] + 4 * quarter,
                  vmulq_f32(LoadScales(*w, data, group, quarter), vdupq_n_f32(0.5f)));
        if (has_min) {
          vst1q_f32(mins[part] + 4 * quarter, LoadMins(*w, data, group, quarter));
        }
      }
    }
    const int32_t left = w->cols - chunk * 32;
    for (int32_t row = 0; row < 16; ++row) {
      float* to = out + static_cast<int64_t>(row) * w->cols + chunk * 32;
      for (int32_t v = 0; v < 8 && left > 4 * v; ++v) {
        uint32_t four;
        __builtin_memcpy(&four, bytes + 64 * v + 4 * row, sizeof(four));
        const uint8x8_t narrow = vreinterpret_u8_u32(vdup_n_u32(four));
        const int32x4_t code = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(narrow))));
        const int32x4_t level = vsubq_s32(vaddq_s32(code, code), vdupq_n_s32(w->zero2));
        float32x4_t value = vmulq_f32(vcvtq_f32_s32(level), vdupq_n_f32(scales[v / 4][row]));
        if (has_min) value = vaddq_f32(value, vdupq_n_f32(mins[v / 4][row]));
        StorePart(to + 4 * v, left - 4 * v, value);
      }
    }
  }
}

}  // namespace cellm::neon
