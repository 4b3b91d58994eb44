#ifndef CELLM_SRC_KERNELS_NEON_ATTEND_H_
#define CELLM_SRC_KERNELS_NEON_ATTEND_H_

// Attention over pages, four queries (heads of a row) at a time; the NEON tiers share it.
//
// For each block of 64 keys: scores of 16 keys at once (4 q registers a query), one fused sum along
// the columns; then 4 registers of output columns a query take the keys in order. Coded keys and
// values become signed bytes of levels first, once a block, in the lanes that Dot::AddFour() wants:
// four products of bytes into each lane, exact. The running maximum and the denominator lanes of
// each query wait in its state, the sums of V in the output.

#include "kernels/attend_block.h"
#include "kernels/neon/neon.h"
#include "kernels/neon/simd.h"

namespace cellm {
namespace {

constexpr int kQueries = 4;

struct F32 {
  using Stored = float;
  static CELLM_INLINE float32x4_t Load(const float* p) { return vld1q_f32(p); }
  static CELLM_INLINE float32x4_t Load(const float* p, int64_t count) { return LoadPart(p, count); }
};
struct F16 {
  using Stored = uint16_t;
  static CELLM_INLINE float32x4_t Load(const uint16_t* p) { return WidenHalves(vld1_u16(p)); }
  static CELLM_INLINE float32x4_t Load(const uint16_t* p, int64_t count) {
    return WidenHalves(LoadPart(p, count));
  }
};

// Codes of one tile to signed levels, [4][64].
inline void TileLevels(const uint8_t* tile, int32_t bits, const uint8_t* table, uint8_t* out) {
  const uint8x16_t offset = vdupq_n_u8(128);
  if (bits == 8) {
    for (int i = 0; i < 16; ++i) {
      vst1q_u8(out + 16 * i, veorq_u8(vld1q_u8(tile + 16 * i), offset));
    }
    return;
  }
  const uint8x16_t levels = veorq_u8(vld1q_u8(table), offset);
  if (bits == 4) {
    for (int i = 0; i < 8; ++i) {
      const uint8x16_t codes = vld1q_u8(tile + 16 * i);
      uint8_t* low = out + 128 * (i / 4) + 16 * (i % 4);
      vst1q_u8(low, vqtbl1q_u8(levels, vandq_u8(codes, vdupq_n_u8(15))));
      vst1q_u8(low + 64, vqtbl1q_u8(levels, vshrq_n_u8(codes, 4)));
    }
    return;
  }
  // Byte j of 16 gets byte j / 8 of the plane's two, of which bit j % 8 is meant.
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u));
  for (int part = 0; part < 4; ++part) {
    uint8x16_t codes = vld1q_u8(tile + 16 * part);
    for (int i = 0; i < 4; ++i) {
      uint8x16_t code = vandq_u8(codes, vdupq_n_u8(3));
      if (bits == 3) {
        const uint8_t* plane = tile + 64 + 8 * i + 2 * part;
        const uint8x16_t bytes = vcombine_u8(vdup_n_u8(plane[0]), vdup_n_u8(plane[1]));
        code = vorrq_u8(code, vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(4)));
      }
      vst1q_u8(out + 64 * i + 16 * part, vqtbl1q_u8(levels, code));
      codes = vshrq_n_u8(codes, 2);
    }
  }
}

// The side's codes as signed levels in `out`, [4][tiles][256].
inline void Levels(const KvCodes& codes, uint8_t* out, Side* side) {
  if (codes.kind != kernels::kKvCoded) return;
  for (int g = 0; g < 4; ++g) {
    const uint8_t* from = side->tokens[g];
    side->tokens[g] = out;
    for (int32_t tile = 0; tile < codes.tiles; ++tile, out += 256) {
      const bool wide = tile < codes.wide_tiles;
      const int32_t bits = wide ? codes.wide_bits : codes.narrow_bits;
      TileLevels(from, bits, wide ? codes.wide_levels : codes.narrow_levels, out);
      from += 32 * bits;
    }
  }
}

// What is known of a query's weights beside the floats; coded values only.
struct CodedWeights {
  int8_t high[kBlock], low[kBlock];  // 256 * high + low
  float factor;
};

// Scores against float keys.
template <typename C, int N>
void Scores(const AttendArgs& args, const Block& block, const Query* queries,
            float scores[][kBlock]) {
  const float32x4_t scale = vdupq_n_f32(args.scale);
  const float32x4_t cap = vdupq_n_f32(args.softcap);
  for (int group = 0; group < 4; ++group) {
    using T = typename C::Stored;
    const T* k = reinterpret_cast<const T*>(block.k.tokens[group]);
    const float* q[N];
    float32x4_t sums[N][4];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      q[n] = queries[n].q;
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) sums[n][g] = vdupq_n_f32(0.0f);
    }
    for (int32_t d = 0; d < args.head_dim; ++d) {
      const float32x4_t keys[4] = {C::Load(k + 16 * d), C::Load(k + 16 * d + 4),
                                   C::Load(k + 16 * d + 8), C::Load(k + 16 * d + 12)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const float32x4_t x = vdupq_n_f32(q[n][d]);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) sums[n][g] = vfmaq_f32(sums[n][g], x, keys[g]);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        float32x4_t s = vmulq_f32(sums[n][g], scale);
        if (args.softcap > 0.0f) s = vmulq_f32(cap, Tanh(vdivq_f32(s, cap)));
        vst1q_f32(scores[n] + 16 * group + 4 * g, s);
      }
    }
  }
}

CELLM_INLINE int8x16_t Four(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
CELLM_INLINE int8x16_t LoadLevels(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
CELLM_INLINE float32x4_t LoadScales(const uint8_t* p) {
  uint16_t halves[4];
  __builtin_memcpy(halves, p, sizeof(halves));
  return WidenHalves(vld1_u16(halves));
}

// Scores against coded keys.
template <typename Dot, int N>
void CodedScores(const AttendArgs& args, const Block& block, const Query* queries,
                 float scores[][kBlock]) {
  const float32x4_t cap = vdupq_n_f32(args.softcap);
  const int32_t columns = args.kv.k.tiles * 16;
  for (int group = 0; group < 4; ++group) {
    const uint8_t* k = block.k.tokens[group];
    int32x4_t sums[N][4];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) sums[n][g] = vdupq_n_s32(0);
    }
    for (int32_t d = 0; d < columns; d += 4) {
      const int8x16_t keys[4] = {LoadLevels(k + 16 * d), LoadLevels(k + 16 * d + 16),
                                 LoadLevels(k + 16 * d + 32), LoadLevels(k + 16 * d + 48)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const int8x16_t x = Four(queries[n].q8 + d);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) sums[n][g] = Dot::AddFour(sums[n][g], keys[g], x);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const float32x4_t key_scales = LoadScales(block.k.scales[group] + 8 * g);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const float32x4_t scale = vdupq_n_f32(queries[n].q_scale * args.scale);
        float32x4_t s = vmulq_f32(vmulq_f32(vcvtq_f32_s32(sums[n][g]), key_scales), scale);
        if (args.softcap > 0.0f) s = vmulq_f32(cap, Tanh(vdivq_f32(s, cap)));
        vst1q_f32(scores[n] + 16 * group + 4 * g, s);
      }
    }
  }
}

// All ones in the lanes of keys 4 * g .. + 3 that lie in [low, high).
CELLM_INLINE uint32x4_t ValidMask(const Query& query, int g) {
  return vbicq_u32(LaneMask(query.high - 4 * g), LaneMask(query.low - 4 * g));
}

// Scores to weights exp(s - m), zero outside [low, high); keeps maximum, lanes and the sums in out.
inline void Weights(const AttendArgs& args, const Query& query, float* scores) {
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t most = lowest;
  for (int g = 0; g < 16; ++g) {
    const float32x4_t s = vbslq_f32(ValidMask(query, g), vld1q_f32(scores + 4 * g), lowest);
    // As `a > b ? a : b`, which like the scalar twin passes a NaN by.
    most = vbslq_f32(vcgtq_f32(s, most), s, most);
  }
  const float block_maximum = vmaxvq_f32(most);
  AttendState& state = *query.state;
  float32x4_t lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = vld1q_f32(state.lanes + 4 * i);
  if (block_maximum > state.maximum) {
    const float32x4_t factor = Exp(vdupq_n_f32(state.maximum - block_maximum));
    for (int i = 0; i < 4; ++i) lanes[i] = vmulq_f32(lanes[i], factor);
    const int32_t columns = OutColumns(args);
    for (int32_t d = 0; d < columns; d += 4) {
      const int64_t left = columns - d;
      StorePart(query.out + d, left, vmulq_f32(LoadPart(query.out + d, left), factor));
    }
    state.maximum = block_maximum;
  }
  const float32x4_t maximum = vdupq_n_f32(state.maximum);
  for (int g = 0; g < 16; ++g) {
    const uint32x4_t mask = ValidMask(query, g);
    const float32x4_t p = vreinterpretq_f32_u32(
        vandq_u32(mask, vreinterpretq_u32_f32(Exp(vsubq_f32(vld1q_f32(scores + 4 * g), maximum)))));
    lanes[g % 4] = vbslq_f32(mask, vaddq_f32(lanes[g % 4], p), lanes[g % 4]);
    vst1q_f32(scores + 4 * g, p);
  }
  for (int i = 0; i < 4; ++i) vst1q_f32(state.lanes + 4 * i, lanes[i]);
}

// Weights times the values' scales as 15-bit integers.
inline void CodeWeights(const Block& block, const Query& query, const float* weights,
                        CodedWeights* coded) {
  float32x4_t w[16];
  float32x4_t most = vdupq_n_f32(0.0f);
  uint32x4_t good = vdupq_n_u32(0xFFFFFFFF);
  for (int g = 0; g < 16; ++g) {
    const float32x4_t scales = LoadScales(block.v.scales[g / 4] + 8 * (g % 4));
    w[g] = vreinterpretq_f32_u32(vandq_u32(
        ValidMask(query, g), vreinterpretq_u32_f32(vmulq_f32(vld1q_f32(weights + 4 * g), scales))));
    good = vandq_u32(good, vcleq_f32(vabsq_f32(w[g]), vdupq_n_f32(__FLT_MAX__)));
    most = vmaxq_f32(most, w[g]);
  }
  const bool finite = vminvq_u32(good) != 0;
  float largest = vmaxvq_f32(most);
  if (!(largest >= kernels::kQuantTiny)) largest = 0.0f;
  const float inverse = largest > 0.0f && finite ? kernels::kWeightMost / largest : 0.0f;
  coded->factor = finite ? largest / kernels::kWeightMost : __builtin_nanf("");
  for (int g = 0; g < 16; ++g) {
    int32x4_t code = vcvtnq_s32_f32(vmulq_f32(w[g], vdupq_n_f32(inverse)));
    if (!finite) code = vdupq_n_s32(0);
    const int32x4_t high = vshrq_n_s32(vaddq_s32(code, vdupq_n_s32(128)), 8);
    int32_t codes[4], highs[4];
    vst1q_s32(codes, code);
    vst1q_s32(highs, high);
    for (int i = 0; i < 4; ++i) {
      coded->high[4 * g + i] = static_cast<int8_t>(highs[i]);
      coded->low[4 * g + i] = static_cast<int8_t>(codes[i] - 256 * highs[i]);
    }
  }
}

// D vectors of output dimensions from `dim` (a single one has `last` elements), keys in order.
template <typename C, int N, int D>
CELLM_INLINE void AddValuesTile(const AttendArgs& args, const Block& block, const Query* queries,
                                const float weights[][kBlock], int32_t low, int32_t high,
                                int32_t dim, int32_t last) {
  float32x4_t sums[N][D];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) {
      sums[n][i] =
          D == 1 ? LoadPart(queries[n].out + dim, last) : vld1q_f32(queries[n].out + dim + 4 * i);
    }
  }
  for (int32_t group = low / 16; group * 16 < high; ++group) {
    const int32_t first = group * 16 < low ? low - group * 16 : 0;
    const int32_t end = high - group * 16 < 16 ? high - group * 16 : 16;
    using T = typename C::Stored;
    const T* v =
        reinterpret_cast<const T*>(block.v.tokens[group]) + dim + int64_t{first} * args.head_dim_v;
    for (int32_t j = first; j < end; ++j) {
      float32x4_t value[D];
#pragma GCC unroll 4
      for (int i = 0; i < D; ++i) value[i] = D == 1 ? C::Load(v, last) : C::Load(v + 4 * i);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const float32x4_t p = vdupq_n_f32(weights[n][group * 16 + j]);
#pragma GCC unroll 4
        for (int i = 0; i < D; ++i) sums[n][i] = vfmaq_f32(sums[n][i], p, value[i]);
      }
      v += args.head_dim_v;
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) {
      if (D == 1) {
        StorePart(queries[n].out + dim, last, sums[n][i]);
      } else {
        vst1q_f32(queries[n].out + dim + 4 * i, sums[n][i]);
      }
    }
  }
}

template <typename C, int N>
void AddValues(const AttendArgs& args, const Block& block, const Query* queries,
               const float weights[][kBlock], int32_t low, int32_t high) {
  const int32_t dims = args.head_dim_v;
  int32_t dim = 0;
  for (; dim + 16 <= dims; dim += 16) {
    AddValuesTile<C, N, 4>(args, block, queries, weights, low, high, dim, 4);
  }
  for (; dim < dims; dim += 4) {
    const int32_t last = dims - dim < 4 ? dims - dim : 4;
    AddValuesTile<C, N, 1>(args, block, queries, weights, low, high, dim, last);
  }
}

// Keys outside a query's own have the weight 0, which adds nothing: levels are finite.
template <typename Dot, int N>
void AddCodedValues(const AttendArgs& args, const Block& block, const Query* queries,
                    const float weights[][kBlock], int32_t low, int32_t high) {
  CodedWeights coded[N];
  for (int n = 0; n < N; ++n) CodeWeights(block, queries[n], weights[n], coded + n);
  for (int32_t half = 0; half < 2 * args.kv.v.tiles; ++half) {  // 8 columns
    int32x4_t highs[N][2];
    int32x4_t lows[N][2];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) highs[n][i] = lows[n][i] = vdupq_n_s32(0);
    }
    for (int32_t quad = low / 4; quad * 4 < high; ++quad) {
      const uint8_t* levels =
          block.v.tokens[quad / 4] + 256 * (half / 2) + 64 * (quad % 4) + 32 * (half % 2);
      const int8x16_t value[2] = {LoadLevels(levels), LoadLevels(levels + 16)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const int8x16_t x = Four(coded[n].high + 4 * quad);
        const int8x16_t y = Four(coded[n].low + 4 * quad);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          highs[n][i] = Dot::AddFour(highs[n][i], value[i], x);
          lows[n][i] = Dot::AddFour(lows[n][i], value[i], y);
        }
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const float32x4_t factor = vdupq_n_f32(coded[n].factor);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        float* out = queries[n].out + 8 * half + 4 * i;
        const int32x4_t sum = vaddq_s32(vshlq_n_s32(highs[n][i], 8), lows[n][i]);
        vst1q_f32(out, vfmaq_f32(vld1q_f32(out), vcvtq_f32_s32(sum), factor));
      }
    }
  }
}

// N queries against float values. Keys that all of them see go together; a key that only some see
// is added for those alone, so that a neighbour's future (perhaps not finite) cannot touch the sum.
template <typename C, int N>
void AddFloatValues(const AttendArgs& args, const Block& block, const Query* queries,
                    const float weights[][kBlock]) {
  int32_t low = 0;
  int32_t high = kBlock;
  for (int n = 0; n < N; ++n) {
    if (queries[n].low > low) low = queries[n].low;
    if (queries[n].high < high) high = queries[n].high;
  }
  if (N == 1 || low >= high) {
    for (int n = 0; n < N; ++n) {
      AddValues<C, 1>(args, block, queries + n, weights + n, queries[n].low, queries[n].high);
    }
    return;
  }
  for (int n = 0; n < N; ++n) {
    if (queries[n].low < low) {
      AddValues<C, 1>(args, block, queries + n, weights + n, queries[n].low, low);
    }
  }
  AddValues<C, N>(args, block, queries, weights, low, high);
  for (int n = 0; n < N; ++n) {
    if (queries[n].high > high) {
      AddValues<C, 1>(args, block, queries + n, weights + n, high, queries[n].high);
    }
  }
}

// N queries against one block.
template <typename Dot, int N>
void QueryTile(const AttendArgs& args, const Block& block, const Query* queries) {
  float scores[N][kBlock];
  switch (args.kv.k.kind) {
    case kernels::kKvF32:
      Scores<F32, N>(args, block, queries, scores);
      break;
    case kernels::kKvF16:
      Scores<F16, N>(args, block, queries, scores);
      break;
    default:
      CodedScores<Dot, N>(args, block, queries, scores);
  }
  int32_t low = kBlock;
  int32_t high = 0;
  for (int n = 0; n < N; ++n) {
    Weights(args, queries[n], scores[n]);
    if (queries[n].low < low) low = queries[n].low;
    if (queries[n].high > high) high = queries[n].high;
  }
  switch (args.kv.v.kind) {
    case kernels::kKvF32:
      return AddFloatValues<F32, N>(args, block, queries, scores);
    case kernels::kKvF16:
      return AddFloatValues<F16, N>(args, block, queries, scores);
    default:
      return AddCodedValues<Dot, N>(args, block, queries, scores, low, high);
  }
}

// All queries that look into the block of keys from first_key.
template <typename Dot>
void RunBlock(const AttendArgs& args, int32_t first_key, const Block& block) {
  Query tile[kQueries];
  int count = 0;
  for (int32_t row = 0; row < args.rows; ++row) {
    if (!SeesBlock(args, row, first_key)) continue;
    for (int32_t head = 0; head < args.heads; ++head) {
      tile[count++] = QueryOf(args, row, head, first_key);
      if (count == kQueries) {
        QueryTile<Dot, kQueries>(args, block, tile);
        count = 0;
      }
    }
  }
  switch (count) {
    case 1:
      return QueryTile<Dot, 1>(args, block, tile);
    case 2:
      return QueryTile<Dot, 2>(args, block, tile);
    case 3:
      return QueryTile<Dot, 3>(args, block, tile);
    default:
      return;
  }
}

template <typename Dot>
void Attend(const AttendArgs& args) {
  if (args.rows <= 0) return;
  ResetQueries(args);
  const KeyRange keys = AllKeys(args);
  const bool coded = args.kv.k.kind == kernels::kKvCoded;
  uint8_t* v_levels = args.scratch + (coded ? 64 * 16 * args.kv.k.tiles : 0);
  for (int32_t index = keys.begin / kBlock; index * kBlock < keys.end; ++index) {
    Block block = FindBlock(args, index, keys.begin, keys.end);
    Levels(args.kv.k, args.scratch, &block.k);
    Levels(args.kv.v, v_levels, &block.v);
    RunBlock<Dot>(args, index * kBlock, block);
  }
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_NEON_ATTEND_H_
