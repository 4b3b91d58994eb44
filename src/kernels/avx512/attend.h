#ifndef CELLM_SRC_KERNELS_AVX512_ATTEND_H_
#define CELLM_SRC_KERNELS_AVX512_ATTEND_H_

// Attention over pages, several query rows and heads at a time; the 512-bit tiers share it.
//
// For each block of 64 keys, tiles of up to 6 queries (a query is one head of one row) share every
// load of K and V. Float keys: 4 zmm of 16 keys a query, one fused sum along the columns. Float
// values: 4 zmm of output columns a query take the 64 keys in order. Coded keys and values become
// bytes of levels first, once a block, in the lanes that byte products want; Dot::Add<8>() is such
// a product. The running maximum and the denominator lanes of each query wait in its state, the
// sums of V in the output.

#include "kernels/attend_block.h"
#include "kernels/avx512/avx512.h"
#include "kernels/avx512/simd.h"

namespace cellm {
namespace {

constexpr int kQueries = 6;

struct F32 {
  using Stored = float;
  static CELLM_INLINE __m512 Load(const float* p) { return _mm512_loadu_ps(p); }
  static CELLM_INLINE __m512 Load(const float* p, __mmask16 m) {
    return _mm512_maskz_loadu_ps(m, p);
  }
};
struct F16 {
  using Stored = uint16_t;
  static CELLM_INLINE __m512 Load(const uint16_t* p) { return LoadHalves(p); }
  static CELLM_INLINE __m512 Load(const uint16_t* p, __mmask16 m) { return LoadHalves(p, m); }
};

// Codes of `bits` bits of one tile to 4 zmm of levels.
CELLM_INLINE void TileLevels(const uint8_t* tile, int32_t bits, __m512i levels, uint8_t* out) {
  const __m512i first = _mm512_loadu_si512(tile);
  __m512i codes[4];
  if (bits == 4) {
    const __m512i mask = _mm512_set1_epi8(15);
    const __m512i second = _mm512_loadu_si512(tile + 64);
    codes[0] = _mm512_and_si512(first, mask);
    codes[1] = _mm512_and_si512(_mm512_srli_epi16(first, 4), mask);
    codes[2] = _mm512_and_si512(second, mask);
    codes[3] = _mm512_and_si512(_mm512_srli_epi16(second, 4), mask);
  } else {
    const __m512i mask = _mm512_set1_epi8(3);
    codes[0] = _mm512_and_si512(first, mask);
    codes[1] = _mm512_and_si512(_mm512_srli_epi16(first, 2), mask);
    codes[2] = _mm512_and_si512(_mm512_srli_epi16(first, 4), mask);
    codes[3] = _mm512_and_si512(_mm512_srli_epi16(first, 6), mask);
    if (bits == 3) {
      const __m512i third = _mm512_set1_epi8(4);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        uint64_t plane;
        __builtin_memcpy(&plane, tile + 64 + 8 * i, sizeof(plane));
        codes[i] = _mm512_or_si512(codes[i], _mm512_maskz_mov_epi8(plane, third));
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm512_store_si512(out + 64 * i, _mm512_shuffle_epi8(levels, codes[i]));
  }
}

CELLM_INLINE __m512i LoadLevels(const uint8_t* levels) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
}

// The side's codes as levels; below 8 bits they go to `out`, [4][tiles][256].
inline void Levels(const KvCodes& codes, uint8_t* out, Side* side) {
  if (codes.kind != kernels::kKvCoded || codes.wide_bits == 8) return;
  const __m512i wide = LoadLevels(codes.wide_levels);
  const __m512i narrow = LoadLevels(codes.narrow_levels);
  for (int g = 0; g < 4; ++g) {
    const uint8_t* from = side->tokens[g];
    side->tokens[g] = out;
    for (int32_t tile = 0; tile < codes.wide_tiles; ++tile, out += 256) {
      TileLevels(from, codes.wide_bits, wide, out);
      from += 32 * codes.wide_bits;
    }
    for (int32_t tile = codes.wide_tiles; tile < codes.tiles; ++tile, out += 256) {
      TileLevels(from, codes.narrow_bits, narrow, out);
      from += 32 * codes.narrow_bits;
    }
  }
}

// Asks for the codes of the next block, some lines at each call.
struct Ahead {
  const uint8_t* const* tokens;
  size_t bytes, at;  // of a group
  int group;
  Ahead(const KvCodes& codes, const Side& next)
      : tokens(next.tokens), bytes(codes.group_bytes), at(0), group(0) {
    for (int g = 0; g < 4; ++g) _mm_prefetch(next.scales[g], _MM_HINT_T0);
  }
  CELLM_INLINE void Next() {
    if (group == 4) return;
    _mm_prefetch(tokens[group] + at, _MM_HINT_T0);
    at += 64;
    if (at >= bytes) {
      at = 0;
      ++group;
    }
  }
  // So often a call of `calls` in all.
  int32_t Lines(int32_t calls) const {
    return (static_cast<int32_t>(bytes / 64 * 4) + calls - 1) / calls;
  }
};

// What a tile of queries knows of its weights beside the floats; coded values only.
struct alignas(64) CodedWeights {
  int8_t high[kBlock], low[kBlock];  // 256 * high + low
  int32_t bias;                      // -128 * their sum
  float factor;
};

// Scores against float keys. With kAhead the block's values are asked for meanwhile.
template <typename C, int N, bool kAhead>
void Scores(const AttendArgs& args, const Block& block, const Query* queries,
            float scores[][kBlock]) {
  __m512 sums[N][4];
  const float* q[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    q[n] = queries[n].q;
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) sums[n][g] = _mm512_setzero_ps();
  }
  using T = typename C::Stored;
  const T* k0 = reinterpret_cast<const T*>(block.k.tokens[0]);
  const T* k1 = reinterpret_cast<const T*>(block.k.tokens[1]);
  const T* k2 = reinterpret_cast<const T*>(block.k.tokens[2]);
  const T* k3 = reinterpret_cast<const T*>(block.k.tokens[3]);
  // Meanwhile the block's values come, in the order of memory: a quarter of the dimensions a group.
  constexpr size_t kStep = 64 * sizeof(T);  // bytes of V a dimension of K
  const int32_t quarter = (args.head_dim + 3) / 4;
  for (int32_t group = 0; group < 4; ++group) {
    const uint8_t* ahead = block.v.tokens[group];
    const int32_t end =
        quarter * (group + 1) < args.head_dim ? quarter * (group + 1) : args.head_dim;
    for (int32_t d = quarter * group; d < end; ++d) {
      if (kAhead) {
#pragma GCC unroll 4
        for (size_t i = 0; i < kStep; i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
        ahead += kStep;
      }
      const __m512 keys[4] = {C::Load(k0 + 16 * d), C::Load(k1 + 16 * d), C::Load(k2 + 16 * d),
                              C::Load(k3 + 16 * d)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m512 x = _mm512_set1_ps(q[n][d]);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) sums[n][g] = _mm512_fmadd_ps(x, keys[g], sums[n][g]);
      }
    }
  }
  const __m512 scale = _mm512_set1_ps(args.scale);
  const __m512 cap = _mm512_set1_ps(args.softcap);
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      __m512 s = _mm512_mul_ps(sums[n][g], scale);
      if (args.softcap > 0.0f) s = _mm512_mul_ps(cap, Tanh(_mm512_div_ps(s, cap)));
      _mm512_store_ps(scores[n] + 16 * g, s);
    }
  }
}

// Scores against coded keys. With kAhead the next block's keys are asked for meanwhile.
template <typename Dot, int N, bool kAhead>
void CodedScores(const AttendArgs& args, const Block& block, const Block& next,
                 const Query* queries, float scores[][kBlock]) {
  __m512i sums[N][4];
  const int8_t* q[N];
  const int32_t columns = args.kv.k.tiles * 16;
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    q[n] = queries[n].q8;
    // Levels come with 128 added.
    __m512i all = _mm512_setzero_si512();
    for (int32_t d = 0; d < columns; d += 16) {
      all = _mm512_add_epi32(
          all, _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(q[n] + d))));
    }
    const __m512i start = _mm512_set1_epi32(-128 * _mm512_reduce_add_epi32(all));
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) sums[n][g] = start;
  }
  Ahead ahead(args.kv.k, next.k);
  const int32_t lines = kAhead ? ahead.Lines(columns / 4) : 0;
  for (int32_t d = 0; d < columns; d += 4) {
    if (kAhead) {
      for (int32_t i = 0; i < lines; ++i) ahead.Next();
    }
    __m512i keys[4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) keys[g] = _mm512_loadu_si512(block.k.tokens[g] + 16 * d);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      int32_t four;
      __builtin_memcpy(&four, q[n] + d, sizeof(four));
      const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) sums[n][g] = Dot::template Add<8>(sums[n][g], keys[g], x);
    }
  }
  const __m512 cap = _mm512_set1_ps(args.softcap);
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __m512 key_scales = LoadHalves(reinterpret_cast<const uint16_t*>(block.k.scales[g]));
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const __m512 scale = _mm512_set1_ps(queries[n].q_scale * args.scale);
      __m512 s = _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sums[n][g]), key_scales), scale);
      if (args.softcap > 0.0f) s = _mm512_mul_ps(cap, Tanh(_mm512_div_ps(s, cap)));
      _mm512_store_ps(scores[n] + 16 * g, s);
    }
  }
}

// Scores to weights exp(s - m), zero outside [low, high); keeps maximum, lanes and the sums in out.
inline void Weights(const AttendArgs& args, const Query& query, float* scores) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  const uint64_t below_high =
      query.high >= 64 ? ~uint64_t{0} : (uint64_t{1} << static_cast<uint32_t>(query.high)) - 1u;
  const uint64_t valid = below_high & (~uint64_t{0} << static_cast<uint32_t>(query.low));
  __m512 s[4];
  __m512 most = lowest;
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __mmask16 mask = static_cast<__mmask16>(valid >> (16 * g));
    s[g] = _mm512_mask_loadu_ps(lowest, mask, scores + 16 * g);
    most = _mm512_max_ps(most, s[g]);
  }
  const float block_maximum = _mm512_reduce_max_ps(most);
  AttendState& state = *query.state;
  __m512 lanes = _mm512_loadu_ps(state.lanes);
  if (block_maximum > state.maximum) {
    const __m512 factor = Exp(_mm512_set1_ps(state.maximum - block_maximum));
    lanes = _mm512_mul_ps(lanes, factor);
    const int32_t columns = OutColumns(args);
    for (int32_t d = 0; d < columns; d += 16) {
      const __mmask16 mask = LaneMask(columns - d);
      _mm512_mask_storeu_ps(query.out + d, mask,
                            _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, query.out + d), factor));
    }
    state.maximum = block_maximum;
  }
  const __m512 maximum = _mm512_set1_ps(state.maximum);
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __mmask16 mask = static_cast<__mmask16>(valid >> (16 * g));
    const __m512 p = _mm512_maskz_mov_ps(mask, Exp(_mm512_sub_ps(s[g], maximum)));
    lanes = _mm512_mask_add_ps(lanes, mask, lanes, p);
    _mm512_store_ps(scores + 16 * g, p);
  }
  _mm512_storeu_ps(state.lanes, lanes);
}

// Weights times the values' scales as 15-bit integers.
inline void CodeWeights(const Block& block, const Query& query, const float* weights,
                        CodedWeights* coded) {
  const uint64_t below_high =
      query.high >= 64 ? ~uint64_t{0} : (uint64_t{1} << static_cast<uint32_t>(query.high)) - 1u;
  const uint64_t valid = below_high & (~uint64_t{0} << static_cast<uint32_t>(query.low));
  const __m512 largest_float = _mm512_set1_ps(__FLT_MAX__);
  __m512 w[4];
  __m512 most = _mm512_setzero_ps();
  uint32_t bad = 0;
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __mmask16 mask = static_cast<__mmask16>(valid >> (16 * g));
    w[g] = _mm512_maskz_mul_ps(mask, _mm512_load_ps(weights + 16 * g),
                               LoadHalves(reinterpret_cast<const uint16_t*>(block.v.scales[g])));
    bad |= _mm512_cmp_ps_mask(_mm512_abs_ps(w[g]), largest_float, _CMP_NLE_UQ);
    most = _mm512_max_ps(most, w[g]);
  }
  float largest = _mm512_reduce_max_ps(most);
  if (largest < kernels::kQuantTiny) largest = 0.0f;
  const float inverse = largest > 0.0f && bad == 0 ? kernels::kWeightMost / largest : 0.0f;
  coded->factor = bad == 0 ? largest / kernels::kWeightMost : __builtin_nanf("");
  __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __m512i code = _mm512_maskz_cvtps_epi32(bad == 0 ? 0xFFFF : 0,
                                                  _mm512_mul_ps(w[g], _mm512_set1_ps(inverse)));
    all = _mm512_add_epi32(all, code);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
    _mm_store_si128(reinterpret_cast<__m128i*>(coded->high + 16 * g), _mm512_cvtepi32_epi8(high));
    _mm_store_si128(reinterpret_cast<__m128i*>(coded->low + 16 * g), _mm512_cvtepi32_epi8(code));
  }
  coded->bias = -128 * _mm512_reduce_add_epi32(all);
}

// D vectors of output dimensions from `dim`, keys [low, high) in order.
template <typename C, int N, int D, bool kAhead>
CELLM_INLINE void AddValuesTile(const AttendArgs& args, const Block& block, const Block& next,
                                const Query* queries, const float weights[][kBlock], int32_t low,
                                int32_t high, int32_t dim, __mmask16 last) {
  using T = typename C::Stored;
  __m512 sums[N][D];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) {
      sums[n][i] = i == D - 1 ? _mm512_maskz_loadu_ps(last, queries[n].out + dim + 16 * i)
                              : _mm512_loadu_ps(queries[n].out + dim + 16 * i);
    }
  }
  for (int32_t group = low / 16; group * 16 < high; ++group) {
    const int32_t first = group * 16 < low ? low - group * 16 : 0;
    const int32_t end = high - group * 16 < 16 ? high - group * 16 : 16;
    const int64_t start = dim + int64_t{first} * args.head_dim_v;
    const T* v = reinterpret_cast<const T*>(block.v.tokens[group]) + start;
    // Meanwhile the next block's keys come in the order of memory: each pass over 64 output
    // dimensions asks for its share of them, 64 elements a key.
    const int32_t passes = args.head_dim_v / 64 > 0 ? args.head_dim_v / 64 : 1;
    const int32_t share = dim / 64 * 4 + group;
    const uint8_t* ahead = next.k.tokens[share / passes % 4] +
                           static_cast<size_t>((share % passes * 16 + first) * 64) * sizeof(T);
    for (int32_t j = first; j < end; ++j) {
      if (kAhead) {
#pragma GCC unroll 4
        for (size_t i = 0; i < D * 16 * sizeof(*v); i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
        ahead += 64 * sizeof(*v);
      }
      __m512 value[D];
#pragma GCC unroll 4
      for (int i = 0; i < D; ++i) {
        value[i] = i == D - 1 ? C::Load(v + 16 * i, last) : C::Load(v + 16 * i);
      }
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m512 p = _mm512_set1_ps(weights[n][group * 16 + j]);
#pragma GCC unroll 4
        for (int i = 0; i < D; ++i) sums[n][i] = _mm512_fmadd_ps(p, value[i], sums[n][i]);
      }
      v += args.head_dim_v;
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) {
      if (i == D - 1) {
        _mm512_mask_storeu_ps(queries[n].out + dim + 16 * i, last, sums[n][i]);
      } else {
        _mm512_storeu_ps(queries[n].out + dim + 16 * i, sums[n][i]);
      }
    }
  }
}

template <typename C, int N, bool kAhead>
void AddValues(const AttendArgs& args, const Block& block, const Block& next, const Query* queries,
               const float weights[][kBlock], int32_t low, int32_t high) {
  const int32_t dims = args.head_dim_v;
  const __mmask16 all = static_cast<__mmask16>(0xFFFF);
  int32_t dim = 0;
  for (; dim + 64 <= dims; dim += 64) {
    AddValuesTile<C, N, 4, kAhead>(args, block, next, queries, weights, low, high, dim, all);
  }
  for (; dim < dims; dim += 16) {
    AddValuesTile<C, N, 1, kAhead>(args, block, next, queries, weights, low, high, dim,
                                   LaneMask(dims - dim));
  }
}

// T tiles of 16 output columns from tile `tile` of coded values.
template <typename Dot, int N, int T, bool kAhead>
CELLM_INLINE void AddCodedTile(const Block& block, const Query* queries,
                               const CodedWeights* weights, int32_t low, int32_t high, int32_t tile,
                               int32_t lines, Ahead* ahead) {
  __m512i highs[N][T], lows[N][T];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) {
      highs[n][i] = _mm512_setzero_si512();
      lows[n][i] = _mm512_set1_epi32(weights[n].bias);
    }
  }
  for (int32_t quad = low / 4; quad * 4 < high; ++quad) {
    if (kAhead) {
      for (int32_t i = 0; i < lines; ++i) ahead->Next();
    }
    const uint8_t* levels = block.v.tokens[quad / 4] + 256 * tile + 64 * (quad % 4);
    __m512i value[T];
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) value[i] = _mm512_loadu_si512(levels + 256 * i);
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      int32_t four;
      __builtin_memcpy(&four, weights[n].high + 4 * quad, sizeof(four));
      const __m512i x = _mm512_set1_epi32(four);
      __builtin_memcpy(&four, weights[n].low + 4 * quad, sizeof(four));
      const __m512i y = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int i = 0; i < T; ++i) {
        highs[n][i] = Dot::template Add<8>(highs[n][i], value[i], x);
        lows[n][i] = Dot::template Add<8>(lows[n][i], value[i], y);
      }
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    const __m512 factor = _mm512_set1_ps(weights[n].factor);
#pragma GCC unroll 4
    for (int i = 0; i < T; ++i) {
      float* out = queries[n].out + 16 * (tile + i);
      const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(highs[n][i], 8), lows[n][i]);
      _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), factor, _mm512_loadu_ps(out)));
    }
  }
}

// Keys outside a query's own have the weight 0, which adds nothing: levels are finite.
template <typename Dot, int N, bool kAhead>
void AddCodedValues(const AttendArgs& args, const Block& block, const Block& next,
                    const Query* queries, const float weights[][kBlock], int32_t low,
                    int32_t high) {
  CodedWeights coded[N];
  for (int n = 0; n < N; ++n) CodeWeights(block, queries[n], weights[n], coded + n);
  Ahead ahead(args.kv.v, next.v);
  const int32_t tiles = args.kv.v.tiles;
  const int32_t lines = kAhead ? ahead.Lines(16 * ((tiles + 1) / 2)) : 0;
  int32_t tile = 0;
  for (; tile + 2 <= tiles; tile += 2) {
    AddCodedTile<Dot, N, 2, kAhead>(block, queries, coded, low, high, tile, lines, &ahead);
  }
  if (tile < tiles) {
    AddCodedTile<Dot, N, 1, kAhead>(block, queries, coded, low, high, tile, lines, &ahead);
  }
}

// N queries against float values. Keys that all of them see go together; a key that only some see
// is added for those alone, so that a neighbour's future (perhaps not finite) cannot touch the sum.
template <typename C, int N, bool kAhead>
void AddFloatValues(const AttendArgs& args, const Block& block, const Block& next,
                    const Query* queries, const float weights[][kBlock]) {
  int32_t low = 0;
  int32_t high = kBlock;
  for (int n = 0; n < N; ++n) {
    if (queries[n].low > low) low = queries[n].low;
    if (queries[n].high < high) high = queries[n].high;
  }
  if (N == 1 || low >= high) {
    for (int n = 0; n < N; ++n) {
      AddValues<C, 1, kAhead>(args, block, next, queries + n, weights + n, queries[n].low,
                              queries[n].high);
    }
    return;
  }
  for (int n = 0; n < N; ++n) {
    if (queries[n].low < low) {
      AddValues<C, 1, false>(args, block, next, queries + n, weights + n, queries[n].low, low);
    }
  }
  AddValues<C, N, kAhead>(args, block, next, queries, weights, low, high);
  for (int n = 0; n < N; ++n) {
    if (queries[n].high > high) {
      AddValues<C, 1, false>(args, block, next, queries + n, weights + n, high, queries[n].high);
    }
  }
}

// N queries against one block.
template <typename Dot, int N, bool kAhead>
void QueryTile(const AttendArgs& args, const Block& block, const Block& next,
               const Query* queries) {
  alignas(64) float scores[N][kBlock];
  switch (args.kv.k.kind) {
    case kernels::kKvF32:
      Scores<F32, N, kAhead>(args, block, queries, scores);
      break;
    case kernels::kKvF16:
      Scores<F16, N, kAhead>(args, block, queries, scores);
      break;
    default:
      CodedScores<Dot, N, kAhead>(args, block, next, queries, scores);
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
      return AddFloatValues<F32, N, kAhead>(args, block, next, queries, scores);
    case kernels::kKvF16:
      return AddFloatValues<F16, N, kAhead>(args, block, next, queries, scores);
    default:
      return AddCodedValues<Dot, N, kAhead>(args, block, next, queries, scores, low, high);
  }
}

// The first tile of a block reads ahead.
template <typename Dot, bool kAhead>
void RunTile(const AttendArgs& args, const Block& block, const Block& next, const Query* queries,
             int count) {
  switch (count) {
    case 1:
      return QueryTile<Dot, 1, kAhead>(args, block, next, queries);
    case 2:
      return QueryTile<Dot, 2, kAhead>(args, block, next, queries);
    case 3:
      return QueryTile<Dot, 3, kAhead>(args, block, next, queries);
    case 4:
      return QueryTile<Dot, 4, kAhead>(args, block, next, queries);
    case 5:
      return QueryTile<Dot, 5, kAhead>(args, block, next, queries);
    default:
      return QueryTile<Dot, 6, kAhead>(args, block, next, queries);
  }
}

// All queries that look into the block of keys from first_key, in tiles of like size: 7 heads go
// as 4 + 3.
template <typename Dot>
void RunBlock(const AttendArgs& args, int32_t first_key, const Block& block, const Block& next) {
  int32_t rows = 0;
  for (int32_t row = 0; row < args.rows; ++row) rows += SeesBlock(args, row, first_key) ? 1 : 0;
  const int64_t queries = int64_t{rows} * args.heads;
  const int64_t tiles = (queries + kQueries - 1) / kQueries;
  if (tiles == 0) return;
  const int size = static_cast<int>((queries + tiles - 1) / tiles);
  Query tile[kQueries];
  int count = 0;
  bool ahead = true;
  const auto run = [&] {
    if (ahead) {
      RunTile<Dot, true>(args, block, next, tile, count);
    } else {
      RunTile<Dot, false>(args, block, next, tile, count);
    }
    ahead = false;
    count = 0;
  };
  for (int32_t row = 0; row < args.rows; ++row) {
    if (!SeesBlock(args, row, first_key)) continue;
    for (int32_t head = 0; head < args.heads; ++head) {
      tile[count++] = QueryOf(args, row, head, first_key);
      if (count == size) run();
    }
  }
  if (count > 0) run();
}

template <typename Dot>
void Attend(const AttendArgs& args) {
  if (args.rows <= 0) return;
  ResetQueries(args);
  const KeyRange keys = AllKeys(args);
  const bool coded = args.kv.k.kind == kernels::kKvCoded;
  uint8_t* v_levels = args.scratch + (coded ? 64 * 16 * args.kv.k.tiles : 0);
  int32_t index = keys.begin / kBlock;
  Block block = FindBlock(args, index, keys.begin, keys.end);
  for (; index * kBlock < keys.end; ++index) {
    const bool last = (index + 1) * kBlock >= keys.end;
    const Block next = last ? block : FindBlock(args, index + 1, keys.begin, keys.end);
    Block levels = block;
    Levels(args.kv.k, args.scratch, &levels.k);
    Levels(args.kv.v, v_levels, &levels.v);
    RunBlock<Dot>(args, index * kBlock, levels, next);
    block = next;
  }
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX512_ATTEND_H_
