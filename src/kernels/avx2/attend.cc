// Attention over pages, two queries (heads of a row) at a time.
//
// For each block of 64 keys: scores of 32 keys at once (4 ymm a query), one fused sum along the
// columns; then 4 ymm of output columns a query take the keys in order. Coded keys and values
// become signed bytes of levels first, once a block, in the lanes that byte products want. The
// running maximum and the denominator lanes of each query wait in its state, the sums of V in the
// output.

#include "kernels/attend_block.h"
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace cellm::avx2 {
namespace {

constexpr int kQueries = 2;

struct F32 {
  using Stored = float;
  static CELLM_INLINE __m256 Load(const float* p) { return _mm256_loadu_ps(p); }
  static CELLM_INLINE __m256 Load(const float* p, int64_t count) { return LoadPart(p, count); }
};
struct F16 {
  using Stored = uint16_t;
  static CELLM_INLINE __m256 Load(const uint16_t* p) { return _mm256_cvtph_ps(Load16(p)); }
  static CELLM_INLINE __m256 Load(const uint16_t* p, int64_t count) {
    return _mm256_cvtph_ps(LoadPart16(p, count));
  }
};

// Codes of one tile to signed levels, [4][64].
void TileLevels(const uint8_t* tile, int32_t bits, const uint8_t* table, uint8_t* out) {
  const __m256i offset = _mm256_set1_epi8(-128);
  const auto load = [&](int i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + 32 * i));
  };
  const auto store = [&](int i, __m256i levels) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32 * i), _mm256_xor_si256(levels, offset));
  };
  if (bits == 8) {
    for (int i = 0; i < 8; ++i) store(i, load(i));
    return;
  }
  const __m256i levels =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  if (bits == 4) {
    const __m256i mask = _mm256_set1_epi8(15);
    for (int i = 0; i < 4; ++i) {
      const __m256i codes = load(i);
      const int at = i / 2 * 4 + i % 2;
      store(at, _mm256_shuffle_epi8(levels, _mm256_and_si256(codes, mask)));
      store(at + 2,
            _mm256_shuffle_epi8(levels, _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask)));
    }
    return;
  }
  const __m256i mask = _mm256_set1_epi8(3);
  // Byte j of 32 gets byte j / 8 of the plane's four, of which bit j % 8 is meant.
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                          2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  for (int half = 0; half < 2; ++half) {
    __m256i codes = load(half);
    for (int i = 0; i < 4; ++i) {
      __m256i code = _mm256_and_si256(codes, mask);
      if (bits == 3) {
        int32_t plane;
        __builtin_memcpy(&plane, tile + 64 + 8 * i + 4 * half, sizeof(plane));
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(plane), spread);
        const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
        code = _mm256_or_si256(code, _mm256_and_si256(set, _mm256_set1_epi8(4)));
      }
      store(2 * i + half, _mm256_shuffle_epi8(levels, code));
      codes = _mm256_srli_epi16(codes, 2);
    }
  }
}

// The side's codes as signed levels in `out`, [4][tiles][256].
void Levels(const KvCodes& codes, uint8_t* out, Side* side) {
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
struct alignas(32) CodedWeights {
  int8_t high[kBlock], low[kBlock];  // 256 * high + low
  float factor;
};

// Scores against float keys.
template <typename C, int N>
void Scores(const AttendArgs& args, const Block& block, const Query* queries,
            float scores[][kBlock]) {
  const __m256 scale = _mm256_set1_ps(args.scale);
  const __m256 cap = _mm256_set1_ps(args.softcap);
  for (int pair = 0; pair < 2; ++pair) {
    using T = typename C::Stored;
    const T* k0 = reinterpret_cast<const T*>(block.k.tokens[2 * pair]);
    const T* k1 = reinterpret_cast<const T*>(block.k.tokens[2 * pair + 1]);
    const float* q[N];
    __m256 sums[N][4];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      q[n] = queries[n].q;
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) sums[n][g] = _mm256_setzero_ps();
    }
    for (int32_t d = 0; d < args.head_dim; ++d) {
      const __m256 keys[4] = {C::Load(k0 + 16 * d), C::Load(k0 + 16 * d + 8), C::Load(k1 + 16 * d),
                              C::Load(k1 + 16 * d + 8)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m256 x = _mm256_set1_ps(q[n][d]);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) sums[n][g] = _mm256_fmadd_ps(x, keys[g], sums[n][g]);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        __m256 s = _mm256_mul_ps(sums[n][g], scale);
        if (args.softcap > 0.0f) s = _mm256_mul_ps(cap, Tanh(_mm256_div_ps(s, cap)));
        _mm256_store_ps(scores[n] + 32 * pair + 8 * g, s);
      }
    }
  }
}

// Four signed byte products into each lane: |x| as the unsigned side, its sign moved to the levels,
// which are above -128. Two products of at most 127 * 128 fit 16 bits.
struct SignDot {
  static CELLM_INLINE __m256i Add(__m256i sums, __m256i levels, __m256i x, __m256i magnitude) {
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(levels, x));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

CELLM_INLINE __m256i Four(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi32(four);
}
CELLM_INLINE __m256i LoadLevels(const uint8_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
CELLM_INLINE __m256 LoadScales(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Scores against coded keys.
template <typename Dot, int N>
void CodedScores(const AttendArgs& args, const Block& block, const Query* queries,
                 float scores[][kBlock]) {
  const __m256 cap = _mm256_set1_ps(args.softcap);
  const int32_t columns = args.kv.k.tiles * 16;
  for (int pair = 0; pair < 2; ++pair) {
    const uint8_t* k0 = block.k.tokens[2 * pair];
    const uint8_t* k1 = block.k.tokens[2 * pair + 1];
    __m256i sums[N][4];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) sums[n][g] = _mm256_setzero_si256();
    }
    for (int32_t d = 0; d < columns; d += 4) {
      const __m256i keys[4] = {LoadLevels(k0 + 16 * d), LoadLevels(k0 + 16 * d + 32),
                               LoadLevels(k1 + 16 * d), LoadLevels(k1 + 16 * d + 32)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m256i x = Four(queries[n].q8 + d);
        const __m256i magnitude = _mm256_abs_epi8(x);
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) sums[n][g] = Dot::Add(sums[n][g], keys[g], x, magnitude);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m256 key_scales = LoadScales(block.k.scales[2 * pair + g / 2] + 16 * (g % 2));
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m256 scale = _mm256_set1_ps(queries[n].q_scale * args.scale);
        __m256 s = _mm256_mul_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums[n][g]), key_scales), scale);
        if (args.softcap > 0.0f) s = _mm256_mul_ps(cap, Tanh(_mm256_div_ps(s, cap)));
        _mm256_store_ps(scores[n] + 32 * pair + 8 * g, s);
      }
    }
  }
}

// -1 in the lanes of keys 8 * g .. + 7 that lie in [low, high).
CELLM_INLINE __m256 ValidMask(const Query& query, int g) {
  const __m256i key =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8 * g));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(query.high), key),
                       _mm256_cmpgt_epi32(key, _mm256_set1_epi32(query.low - 1))));
}

// Scores to weights exp(s - m), zero outside [low, high); keeps maximum, lanes and the sums in out.
void Weights(const AttendArgs& args, const Query& query, float* scores) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 most = lowest;
  for (int g = 0; g < 8; ++g) {
    const __m256 s = _mm256_blendv_ps(lowest, _mm256_load_ps(scores + 8 * g), ValidMask(query, g));
    most = _mm256_max_ps(most, s);
  }
  const float block_maximum = MaxOf(most);
  AttendState& state = *query.state;
  __m256 lanes[2] = {_mm256_loadu_ps(state.lanes), _mm256_loadu_ps(state.lanes + 8)};
  if (block_maximum > state.maximum) {
    const __m256 factor = Exp(_mm256_set1_ps(state.maximum - block_maximum));
    lanes[0] = _mm256_mul_ps(lanes[0], factor);
    lanes[1] = _mm256_mul_ps(lanes[1], factor);
    const int32_t columns = OutColumns(args);
    for (int32_t d = 0; d < columns; d += 8) {
      const int64_t left = columns - d;
      StorePart(query.out + d, left, _mm256_mul_ps(LoadPart(query.out + d, left), factor));
    }
    state.maximum = block_maximum;
  }
  const __m256 maximum = _mm256_set1_ps(state.maximum);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256 mask = ValidMask(query, g);
    const __m256 p =
        _mm256_and_ps(mask, Exp(_mm256_sub_ps(_mm256_load_ps(scores + 8 * g), maximum)));
    lanes[g % 2] = _mm256_blendv_ps(lanes[g % 2], _mm256_add_ps(lanes[g % 2], p), mask);
    _mm256_store_ps(scores + 8 * g, p);
  }
  _mm256_storeu_ps(state.lanes, lanes[0]);
  _mm256_storeu_ps(state.lanes + 8, lanes[1]);
}

// The low bytes of 32 integers that are not negative.
CELLM_INLINE __m256i PackBytes(const __m256i* codes) {
  const __m256i mask = _mm256_set1_epi32(255);
  const __m256i a =
      _mm256_packus_epi32(_mm256_and_si256(codes[0], mask), _mm256_and_si256(codes[1], mask));
  const __m256i b =
      _mm256_packus_epi32(_mm256_and_si256(codes[2], mask), _mm256_and_si256(codes[3], mask));
  return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Weights times the values' scales as 15-bit integers.
void CodeWeights(const Block& block, const Query& query, const float* weights,
                 CodedWeights* coded) {
  const __m256 largest_float = _mm256_set1_ps(__FLT_MAX__);
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 w[8];
  __m256 most = _mm256_setzero_ps();
  int bad = 0;
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256 scales = LoadScales(block.v.scales[g / 2] + 16 * (g % 2));
    w[g] =
        _mm256_and_ps(ValidMask(query, g), _mm256_mul_ps(_mm256_load_ps(weights + 8 * g), scales));
    bad |=
        _mm256_movemask_ps(_mm256_cmp_ps(_mm256_andnot_ps(sign, w[g]), largest_float, _CMP_NLE_UQ));
    most = _mm256_max_ps(most, w[g]);
  }
  float largest = MaxOf(most);
  if (largest < kernels::kQuantTiny) largest = 0.0f;
  const float inverse = largest > 0.0f ? kernels::kWeightMost / largest : 0.0f;
  coded->factor = largest / kernels::kWeightMost;
  if (bad != 0) {
    coded->factor = __builtin_nanf("");
    for (int i = 0; i < kBlock; ++i) coded->high[i] = coded->low[i] = 0;
    return;
  }
  for (int half = 0; half < 2; ++half) {
    __m256i codes[4];
    __m256i highs[4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      codes[g] = _mm256_cvtps_epi32(_mm256_mul_ps(w[4 * half + g], _mm256_set1_ps(inverse)));
      highs[g] = _mm256_srai_epi32(_mm256_add_epi32(codes[g], _mm256_set1_epi32(128)), 8);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(coded->high + 32 * half), PackBytes(highs));
    _mm256_store_si256(reinterpret_cast<__m256i*>(coded->low + 32 * half), PackBytes(codes));
  }
}

// D vectors of output dimensions from `dim` (the last with `last` elements), keys in order.
template <typename C, int N, int D>
CELLM_INLINE void AddValuesTile(const AttendArgs& args, const Block& block, const Query* queries,
                                const float weights[][kBlock], int32_t low, int32_t high,
                                int32_t dim, int32_t last) {
  __m256 sums[N][D];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) {
      sums[n][i] = D == 1 ? LoadPart(queries[n].out + dim, last)
                          : _mm256_loadu_ps(queries[n].out + dim + 8 * i);
    }
  }
  for (int32_t group = low / 16; group * 16 < high; ++group) {
    const int32_t first = group * 16 < low ? low - group * 16 : 0;
    const int32_t end = high - group * 16 < 16 ? high - group * 16 : 16;
    using T = typename C::Stored;
    const T* v =
        reinterpret_cast<const T*>(block.v.tokens[group]) + dim + int64_t{first} * args.head_dim_v;
    for (int32_t j = first; j < end; ++j) {
      __m256 value[D];
#pragma GCC unroll 4
      for (int i = 0; i < D; ++i) {
        value[i] = D == 1 && last < 8 ? C::Load(v, last) : C::Load(v + 8 * i);
      }
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m256 p = _mm256_set1_ps(weights[n][group * 16 + j]);
#pragma GCC unroll 4
        for (int i = 0; i < D; ++i) sums[n][i] = _mm256_fmadd_ps(p, value[i], sums[n][i]);
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
        _mm256_storeu_ps(queries[n].out + dim + 8 * i, sums[n][i]);
      }
    }
  }
}

template <typename C, int N>
void AddValues(const AttendArgs& args, const Block& block, const Query* queries,
               const float weights[][kBlock], int32_t low, int32_t high) {
  const int32_t dims = args.head_dim_v;
  int32_t dim = 0;
  for (; dim + 32 <= dims; dim += 32) {
    AddValuesTile<C, N, 4>(args, block, queries, weights, low, high, dim, 8);
  }
  for (; dim < dims; dim += 8) {
    const int32_t last = dims - dim < 8 ? dims - dim : 8;
    AddValuesTile<C, N, 1>(args, block, queries, weights, low, high, dim, last);
  }
}

// Keys outside a query's own have the weight 0, which adds nothing: levels are finite.
template <typename Dot, int N>
void AddCodedValues(const AttendArgs& args, const Block& block, const Query* queries,
                    const float weights[][kBlock], int32_t low, int32_t high) {
  CodedWeights coded[N];
  for (int n = 0; n < N; ++n) CodeWeights(block, queries[n], weights[n], coded + n);
  for (int32_t tile = 0; tile < args.kv.v.tiles; ++tile) {
    __m256i highs[N][2];
    __m256i lows[N][2];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) highs[n][i] = lows[n][i] = _mm256_setzero_si256();
    }
    for (int32_t quad = low / 4; quad * 4 < high; ++quad) {
      const uint8_t* levels = block.v.tokens[quad / 4] + 256 * tile + 64 * (quad % 4);
      const __m256i value[2] = {LoadLevels(levels), LoadLevels(levels + 32)};
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        const __m256i x = Four(coded[n].high + 4 * quad);  // not negative
        const __m256i y = Four(coded[n].low + 4 * quad);
        const __m256i magnitude = _mm256_abs_epi8(y);
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          highs[n][i] = Dot::Add(highs[n][i], value[i], x, x);
          lows[n][i] = Dot::Add(lows[n][i], value[i], y, magnitude);
        }
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      const __m256 factor = _mm256_set1_ps(coded[n].factor);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        float* out = queries[n].out + 16 * tile + 8 * i;
        const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(highs[n][i], 8), lows[n][i]);
        _mm256_storeu_ps(out,
                         _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), factor, _mm256_loadu_ps(out)));
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
  alignas(32) float scores[N][kBlock];
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
  if (count > 0) QueryTile<Dot, 1>(args, block, tile);
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

void attend(const AttendArgs* args) { Attend<SignDot>(*args); }

}  // namespace cellm::avx2
