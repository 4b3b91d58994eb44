#ifndef CELLM_SRC_KERNELS_NEON_PACKED_H_
#define CELLM_SRC_KERNELS_NEON_PACKED_H_

// The packed product for NEON tiers, apart from the byte products, which a tier gives as `Dot`:
//   Dot::Sums                      running integer sums of 4 rows
//   Dot::Zero(), Dot::Total()      start, and the 4 sums
//   Dot::Add2<kLane>(sums, a, b, x)
//     adds the products of operand a with bytes 4 * kLane .. + 3 of x, and of b with the four after
//
// Blocks of up to 16 chunks of a tile become bytes (8-bit weights are read where they are); groups
// of up to 4 tokens run over them, 8 rows (two q registers) at a time. Codes are signed operands:
// bytes are moved down by 128, which leaves 128 * sum(x) to be added back.

#include <arm_neon.h>

#include "kernels/kernel_types.h"
#include "kernels/neon/simd.h"

namespace cellm {
namespace {

using kernels::PackedTiles;
using kernels::QuantRows;

constexpr int32_t kBlockTokens = 4;
constexpr int32_t kBlockChunks = 16;

// (v >> kShift) & kMask of every byte, moved up by kUp.
template <int kShift, int kMask, int kUp>
CELLM_INLINE uint8x16_t Field(uint8x16_t v) {
  if constexpr (kShift > kUp) v = vshrq_n_u8(v, kShift - kUp);
  if constexpr (kShift < kUp) v = vshlq_n_u8(v, kUp - kShift);
  return vandq_u8(v, vdupq_n_u8(static_cast<uint8_t>(kMask << kUp)));
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane2(const uint8_t* p, uint8x16_t w[8]) {
  const uint8x16_t a = vld1q_u8(p);
  const uint8x16_t b = vld1q_u8(p + 64);
  const uint8x16_t fields[8] = {Field<0, 3, kUp>(a), Field<0, 3, kUp>(b), Field<2, 3, kUp>(a),
                                Field<2, 3, kUp>(b), Field<4, 3, kUp>(a), Field<4, 3, kUp>(b),
                                Field<6, 3, kUp>(a), Field<6, 3, kUp>(b)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : vorrq_u8(w[v], fields[v]);
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane1(const uint8_t* p, uint8x16_t w[8]) {
  const uint8x16_t a = vld1q_u8(p);
  const uint8x16_t fields[8] = {Field<0, 1, kUp>(a), Field<1, 1, kUp>(a), Field<2, 1, kUp>(a),
                                Field<3, 1, kUp>(a), Field<4, 1, kUp>(a), Field<5, 1, kUp>(a),
                                Field<6, 1, kUp>(a), Field<7, 1, kUp>(a)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : vorrq_u8(w[v], fields[v]);
}

// What a chunk stores: codes of `kCode` bits, or with kBook added indexes into a book of bytes.
constexpr int kBook = 16;

CELLM_INLINE uint8x16_t LoadBook(const PackedTiles& w) {
  if (w.book == nullptr) return vdupq_n_u8(0);
  if (w.bits == 3) return vcombine_u8(vld1_u8(w.book), vdup_n_u8(0));
  return vld1q_u8(w.book);
}

// `chunks` chunks to 512 bytes each, 4 rows (16 bytes of each vector) at a time.
template <int kCode>
void Widen(const PackedTiles& tiles, const uint8_t* codes, int32_t chunks, uint8_t* bytes) {
  constexpr int kBits = kCode & 15;
  const uint8x16_t book = LoadBook(tiles);
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8_t* p = codes + 16 * quarter;
      uint8x16_t w[8];
      if constexpr ((kBits & 4) != 0) {
#pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
          const uint8x16_t nibbles = vld1q_u8(p + 64 * v);
          w[v] = Field<0, 15, 0>(nibbles);
          w[v + 4] = Field<4, 15, 0>(nibbles);
        }
        p += 4 * 64;
      }
      if constexpr ((kBits & 2) != 0) {
        AddPlane2<kBits & 4, (kBits & 4) == 0>(p, w);
        p += 2 * 64;
      }
      if constexpr ((kBits & 1) != 0) AddPlane1<kBits & 6, (kBits & 6) == 0>(p, w);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        if constexpr (kCode >= kBook) w[v] = vqtbl1q_u8(book, w[v]);
        vst1q_u8(bytes + 64 * v + 16 * quarter, w[v]);
      }
    }
    codes += 64 * kBits;
    bytes += 512;
  }
}

CELLM_INLINE void WidenCodes(const PackedTiles& w, const uint8_t* codes, int32_t chunks,
                             uint8_t* bytes) {
  switch (w.bits + (w.book == nullptr ? 0 : kBook)) {
    case kBook + 4:
      return Widen<kBook + 4>(w, codes, chunks, bytes);
    case kBook + 3:
      return Widen<kBook + 3>(w, codes, chunks, bytes);
    case 6:
      return Widen<6>(w, codes, chunks, bytes);
    case 5:
      return Widen<5>(w, codes, chunks, bytes);
    case 4:
      return Widen<4>(w, codes, chunks, bytes);
    case 3:
      return Widen<3>(w, codes, chunks, bytes);
    case 2:
      return Widen<2>(w, codes, chunks, bytes);
    default:
      return Widen<1>(w, codes, chunks, bytes);
  }
}

// Floats of rows 4 * quarter .. + 3 of one group.
CELLM_INLINE float32x4_t LoadFloats(const PackedTiles& w, const uint8_t* scales, int32_t group,
                                    int quarter) {
  const size_t first = static_cast<size_t>(group) * 16u + static_cast<size_t>(quarter) * 4u;
  if (w.scales_are_f32 != 0) return vld1q_f32(reinterpret_cast<const float*>(scales) + first);
  return WidenHalves(vld1_u16(reinterpret_cast<const uint16_t*>(scales) + first));
}
// Four int8 sub-scales, or (kSubN4) four bytes of two nibbles of which `shift` picks one, in float.
CELLM_INLINE float32x4_t LoadSubs(const PackedTiles& w, const uint8_t* subs, int32_t group,
                                  int quarter, int shift) {
  uint32_t four;
  __builtin_memcpy(&four,
                   subs + static_cast<size_t>(group) * 16u + static_cast<size_t>(quarter) * 4u,
                   sizeof(four));
  if (w.sub == kernels::kSubN4) four = (four >> shift) & 0x0F0F0F0Fu;
  const int8x8_t narrow = vreinterpret_s8_u32(vdup_n_u32(four));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(narrow))));
}

// Scales and mins of rows 4 * quarter .. + 3 of one group; `tile` is where the tile begins. With
// an odd number of 16-wide groups the last half chunk is padding and takes the scale before it,
// which multiplies zero.
CELLM_INLINE float32x4_t LoadScales(const PackedTiles& w, const uint8_t* tile, int32_t group,
                                    int quarter) {
  const int32_t own = group < w.groups ? group : w.groups - 1;
  if (w.sub == kernels::kSubNone) return LoadFloats(w, tile, own, quarter);
  return vmulq_f32(LoadFloats(w, tile, own >> w.super_shift, quarter),
                   LoadSubs(w, tile + w.subs_offset, own, quarter, 0));
}
CELLM_INLINE float32x4_t LoadMins(const PackedTiles& w, const uint8_t* tile, int32_t group,
                                  int quarter) {
  const int32_t own = group < w.groups ? group : w.groups - 1;
  const uint8_t* mins = tile + w.mins_offset;
  if (w.sub == kernels::kSubNone) return LoadFloats(w, mins, own, quarter);
  const uint8_t* subs = tile + (w.sub == kernels::kSubN4 ? w.subs_offset : w.sub_mins_offset);
  return vmulq_f32(LoadFloats(w, mins, own >> w.super_shift, quarter),
                   LoadSubs(w, subs, own, quarter, 4));
}

struct Block {
  const PackedTiles* w;
  const QuantRows* x;
  const uint8_t* tile;   // its scales
  const uint8_t* bytes;  // codes of the block's chunks, 512 bytes each
  int32_t chunk_begin;
  int32_t chunks;
  bool odd;            // zero2 is odd: products count twice and scales half
  int32_t correction;  // times sum(x), added to the integer sum
};

template <bool kByte>
CELLM_INLINE int8x16_t Operand(const uint8_t* p) {
  uint8x16_t code = vld1q_u8(p);
  if constexpr (kByte) code = veorq_u8(code, vdupq_n_u8(0x80));
  return vreinterpretq_s8_u8(code);
}

// Rows 8 * half .. + 7 of the tile times T tokens from `token`; running sums wait in out.
template <typename Dot, bool kByte, int T, bool kHalves>
void HalfTile(const Block& block, int half, int32_t token, float* out, int64_t out_stride,
              int32_t rows_left) {
  const PackedTiles& w = *block.w;
  const int64_t chunks = w.chunks;
  constexpr int kPieces = kHalves ? 2 : 1;
  const int8_t* values = block.x->values + (token * chunks + block.chunk_begin) * 32;
  const float* xscales = block.x->scales + token * chunks + block.chunk_begin;
  const int32_t* xsums = block.x->sums + (token * chunks + block.chunk_begin) * 2;
  const int32_t part_group = kHalves ? 1 : w.group / 32;
  const bool has_min = w.has_min != 0;

  float32x4_t f[T][2];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      f[t][q] = block.chunk_begin == 0 ? vdupq_n_f32(0.0f)
                                       : LoadPart(out + t * out_stride + 4 * q, rows_left - 4 * q);
    }
  }
  int32_t group = block.chunk_begin * kPieces / part_group;
  int32_t left = part_group - block.chunk_begin * kPieces % part_group;
  for (int32_t chunk = 0; chunk < block.chunks; ++chunk) {
#pragma GCC unroll 2
    for (int piece = 0; piece < kPieces; ++piece) {
      if (left == 0) {
        ++group;
        left = part_group;
      }
      --left;
      typename Dot::Sums sums[T][2];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[t][0] = sums[t][1] = Dot::Zero();
        // Four operands (16 columns) share one register of activations.
#pragma GCC unroll 2
      for (int part = 0; part < 2 / kPieces; ++part) {
        const int column = 16 * (piece + part);
        const uint8_t* codes = block.bytes + chunk * 512 + column * 16 + 32 * half;
        int8x16_t x[T];
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) x[t] = vld1q_s8(values + (t * chunks + chunk) * 32 + column);
#pragma GCC unroll 2
        for (int q = 0; q < 2; ++q) {
          const int8x16_t w0 = Operand<kByte>(codes + 16 * q);
          const int8x16_t w1 = Operand<kByte>(codes + 16 * q + 64);
          const int8x16_t w2 = Operand<kByte>(codes + 16 * q + 128);
          const int8x16_t w3 = Operand<kByte>(codes + 16 * q + 192);
#pragma GCC unroll 8
          for (int t = 0; t < T; ++t) {
            sums[t][q] = Dot::template Add2<0>(sums[t][q], w0, w1, x[t]);
            sums[t][q] = Dot::template Add2<2>(sums[t][q], w2, w3, x[t]);
          }
        }
      }
#pragma GCC unroll 2
      for (int q = 0; q < 2; ++q) {
        float32x4_t scale = LoadScales(w, block.tile, group, 2 * half + q);
        if (block.odd) scale = vmulq_f32(scale, vdupq_n_f32(0.5f));
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          const int32_t* s = xsums + (t * chunks + chunk) * 2;
          const int32_t sum = kHalves ? s[piece] : s[0] + s[1];
          const float xscale = xscales[t * chunks + chunk];
          int32x4_t total = Dot::Total(sums[t][q]);
          if (block.odd) total = vaddq_s32(total, total);
          total = vaddq_s32(total, vdupq_n_s32(block.correction * sum));
          f[t][q] = vfmaq_f32(f[t][q], vcvtq_f32_s32(total), vmulq_f32(scale, vdupq_n_f32(xscale)));
          if (has_min) {
            f[t][q] = vfmaq_f32(f[t][q], LoadMins(w, block.tile, group, 2 * half + q),
                                vdupq_n_f32(xscale * static_cast<float>(sum)));
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      if (rows_left > 4 * q) {
        StorePart(out + t * out_stride + 4 * q, rows_left - 4 * q, f[t][q]);
      }
    }
  }
}

template <typename Dot, bool kByte, bool kHalves>
void RunBlock(const Block& block, int32_t tile, float* out, int64_t out_stride) {
  for (int32_t token = 0; token < block.x->rows; token += kBlockTokens) {
    const int32_t count = block.x->rows - token;
    for (int half = 0; half < 2; ++half) {
      const int32_t row = tile * 16 + half * 8;
      const int32_t rows_left = block.w->rows - row;
      if (rows_left <= 0) break;
      float* to = out + token * out_stride + row;
      switch (count) {
        case 1:
          HalfTile<Dot, kByte, 1, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
        case 2:
          HalfTile<Dot, kByte, 2, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
        case 3:
          HalfTile<Dot, kByte, 3, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
        default:
          HalfTile<Dot, kByte, 4, kHalves>(block, half, token, to, out_stride, rows_left);
          break;
      }
    }
  }
}

template <typename Dot, bool kHalves>
void RunTile(Block& block, int32_t tile, float* out, int64_t out_stride) {
  uint8_t bytes[kBlockChunks * 512];
  const PackedTiles& w = *block.w;
  block.tile = w.data + static_cast<size_t>(tile) * w.tile_bytes;
  for (int32_t begin = 0; begin < w.chunks; begin += kBlockChunks) {
    block.chunk_begin = begin;
    block.chunks = w.chunks - begin < kBlockChunks ? w.chunks - begin : kBlockChunks;
    const uint8_t* codes = block.tile + w.codes_offset +
                           static_cast<size_t>(begin) * 64u * static_cast<size_t>(w.bits);
    block.bytes = codes;
    if (w.bits != 8) {
      WidenCodes(w, codes, block.chunks, bytes);
      block.bytes = bytes;
    }
    if (w.bits == 8 || w.book != nullptr) {
      RunBlock<Dot, true, kHalves>(block, tile, out, out_stride);
    } else {
      RunBlock<Dot, false, kHalves>(block, tile, out, out_stride);
    }
  }
}

template <typename Dot>
void MatmulPacked(const PackedTiles* w, const QuantRows* x, int32_t tile_begin, int32_t tile_end,
                  float* out, int64_t out_stride) {
  Block block = {w, x, nullptr, nullptr, 0, 0, w->zero2 % 2 != 0, 0};
  const int32_t moved = w->bits == 8 || w->book != nullptr ? 128 : 0;
  block.correction = block.odd ? 2 * moved - w->zero2 : moved - w->zero2 / 2;
  for (int32_t tile = tile_begin; tile < tile_end; ++tile) {
    if (w->group == 16) {
      RunTile<Dot, true>(block, tile, out, out_stride);
    } else {
      RunTile<Dot, false>(block, tile, out, out_stride);
    }
  }
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_NEON_PACKED_H_
