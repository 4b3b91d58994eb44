// Attention over pages, several query rows and heads at a time.
//
// For each block of 64 keys, tiles of up to 6 queries (a query is one head of one row) share every
// load of K and V: scores are 4 zmm of 16 keys a query, one fused sum along the dimensions; then
// 4 zmm of output dimensions a query take the 64 keys in order. The running maximum and the 16
// denominator lanes of each query wait in scratch; the sums of V wait in the output.

#include "kernels/avx512/avx512.h"
#include "kernels/avx512/simd.h"

namespace cellm::avx512 {
namespace {

constexpr int kQueries = 6;
constexpr int32_t kBlock = 64;

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

// The state of one query in scratch.
struct alignas(4) State {
  float maximum;
  float padding[15];
  float lanes[16];
};

// The keys of one block: 16 at a time, K in lanes, V row by row.
template <typename T>
struct Block {
  const T* k[4];
  const T* v[4];
};

template <typename T>
Block<T> FindBlock(const AttendArgs& args, int32_t block, int32_t begin, int32_t end) {
  const KvPages& kv = args.kv;
  const size_t head = static_cast<size_t>(args.kv_head);
  Block<T> found = {};
  int first = -1;
  for (int g = 0; g < 4; ++g) {
    const int32_t key = block * kBlock + g * 16;
    if (key + 16 <= begin || key >= end) continue;
    const uint8_t* page = kv.pages[key / kv.page_tokens];
    const int64_t slot = key % kv.page_tokens;
    found.k[g] = reinterpret_cast<const T*>(page + kv.k_offset + kv.k_head_stride * head) +
                 slot * args.head_dim;
    found.v[g] = reinterpret_cast<const T*>(page + kv.v_offset + kv.v_head_stride * head) +
                 slot * args.head_dim_v;
    if (first < 0) first = g;
  }
  // Keys that no row looks at may have no page; any readable address does for them.
  for (int g = 0; g < 4; ++g) {
    if (found.k[g] == nullptr) {
      found.k[g] = found.k[first];
      found.v[g] = found.v[first];
    }
  }
  return found;
}

// One query of a tile within one block: keys [low, high) of 64.
struct Query {
  const float* q;
  float* out;
  State* state;
  int32_t low, high;
};

template <typename C, int N, bool kAhead>
void Scores(const AttendArgs& args, const Block<typename C::Stored>& block, const Query* queries,
            float scores[][kBlock]) {
  __m512 sums[N][4];
  const float* q[N];
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    q[n] = queries[n].q;
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) sums[n][g] = _mm512_setzero_ps();
  }
  const typename C::Stored* k0 = block.k[0];
  const typename C::Stored* k1 = block.k[1];
  const typename C::Stored* k2 = block.k[2];
  const typename C::Stored* k3 = block.k[3];
  // Meanwhile the block's values come, in the order of memory: a quarter of the dimensions a group.
  constexpr size_t kStep = 64 * sizeof(typename C::Stored);  // bytes of V a dimension of K
  const int32_t quarter = (args.head_dim + 3) / 4;
  for (int32_t group = 0; group < 4; ++group) {
    const char* ahead = reinterpret_cast<const char*>(block.v[group]);
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

// Scores to weights exp(s - m), zero outside [low, high); keeps maximum, lanes and the sums in out.
void Weights(const AttendArgs& args, const Query& query, float* scores) {
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
  State& state = *query.state;
  __m512 lanes = _mm512_loadu_ps(state.lanes);
  if (block_maximum > state.maximum) {
    const __m512 factor = Exp(_mm512_set1_ps(state.maximum - block_maximum));
    lanes = _mm512_mul_ps(lanes, factor);
    for (int32_t d = 0; d < args.head_dim_v; d += 16) {
      const __mmask16 mask = LaneMask(args.head_dim_v - d);
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

// D vectors of output dimensions from `dim`, keys [low, high) in order.
template <typename C, int N, int D, bool kAhead>
CELLM_INLINE void AddValuesTile(const AttendArgs& args, const Block<typename C::Stored>& block,
                                const Block<typename C::Stored>& next, const Query* queries,
                                const float weights[][kBlock], int32_t low, int32_t high,
                                int32_t dim, __mmask16 last) {
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
    const typename C::Stored* v = block.v[group] + start;
    // Meanwhile the next block's keys come in the order of memory: each pass over 64 output
    // dimensions asks for its share of them, 64 elements a key.
    const int32_t passes = args.head_dim_v / 64 > 0 ? args.head_dim_v / 64 : 1;
    const int32_t share = dim / 64 * 4 + group;
    const char* ahead = reinterpret_cast<const char*>(next.k[share / passes % 4] +
                                                      (share % passes * 16 + first) * 64);
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
void AddValues(const AttendArgs& args, const Block<typename C::Stored>& block,
               const Block<typename C::Stored>& next, const Query* queries,
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

// N queries against one block. Keys that all of them see go together; a key that only some see is
// added for those alone, so that a neighbour's future (perhaps not finite) cannot touch the sum.
template <typename C, int N, bool kAhead>
void QueryTile(const AttendArgs& args, const Block<typename C::Stored>& block,
               const Block<typename C::Stored>& next, const Query* queries) {
  alignas(64) float scores[N][kBlock];
  Scores<C, N, kAhead>(args, block, queries, scores);
  int32_t low = 0;
  int32_t high = kBlock;
  for (int n = 0; n < N; ++n) {
    Weights(args, queries[n], scores[n]);
    if (queries[n].low > low) low = queries[n].low;
    if (queries[n].high < high) high = queries[n].high;
  }
  if (N == 1 || low >= high) {
    for (int n = 0; n < N; ++n) {
      AddValues<C, 1, kAhead>(args, block, next, queries + n, scores + n, queries[n].low,
                              queries[n].high);
    }
    return;
  }
  for (int n = 0; n < N; ++n) {
    if (queries[n].low < low) {
      AddValues<C, 1, false>(args, block, next, queries + n, scores + n, queries[n].low, low);
    }
  }
  AddValues<C, N, kAhead>(args, block, next, queries, scores, low, high);
  for (int n = 0; n < N; ++n) {
    if (queries[n].high > high) {
      AddValues<C, 1, false>(args, block, next, queries + n, scores + n, high, queries[n].high);
    }
  }
}

// The first tile of a block reads ahead: the values while it works on keys, then the next keys.
template <typename C, bool kAhead>
void RunTile(const AttendArgs& args, const Block<typename C::Stored>& block,
             const Block<typename C::Stored>& next, const Query* queries, int count) {
  switch (count) {
    case 1:
      return QueryTile<C, 1, kAhead>(args, block, next, queries);
    case 2:
      return QueryTile<C, 2, kAhead>(args, block, next, queries);
    case 3:
      return QueryTile<C, 3, kAhead>(args, block, next, queries);
    case 4:
      return QueryTile<C, 4, kAhead>(args, block, next, queries);
    case 5:
      return QueryTile<C, 5, kAhead>(args, block, next, queries);
    default:
      return QueryTile<C, 6, kAhead>(args, block, next, queries);
  }
}

// All queries that look into the block of keys from first_key, in tiles of like size: 7 heads go
// as 4 + 3.
template <typename C>
void RunBlock(const AttendArgs& args, int32_t first_key, const Block<typename C::Stored>& block,
              const Block<typename C::Stored>& next, State* states) {
  int32_t rows = 0;
  for (int32_t row = 0; row < args.rows; ++row) {
    if (args.key_begin[row] < first_key + kBlock && args.key_end[row] > first_key) ++rows;
  }
  const int64_t queries = int64_t{rows} * args.heads;
  const int64_t tiles = (queries + kQueries - 1) / kQueries;
  if (tiles == 0) return;
  const int size = static_cast<int>((queries + tiles - 1) / tiles);
  Query tile[kQueries];
  int count = 0;
  bool ahead = true;
  const auto run = [&] {
    if (ahead) {
      RunTile<C, true>(args, block, next, tile, count);
    } else {
      RunTile<C, false>(args, block, next, tile, count);
    }
    ahead = false;
    count = 0;
  };
  for (int32_t row = 0; row < args.rows; ++row) {
    const int32_t low = args.key_begin[row] - first_key;
    const int32_t high = args.key_end[row] - first_key;
    if (low >= kBlock || high <= 0) continue;
    for (int32_t head = 0; head < args.heads; ++head) {
      tile[count++] = {args.q + row * args.q_row_stride + head * args.head_dim,
                       args.out + row * args.out_row_stride + head * args.head_dim_v,
                       states + row * args.heads + head, low < 0 ? 0 : low,
                       high > kBlock ? kBlock : high};
      if (count == size) run();
    }
  }
  if (count > 0) run();
}

State* PrepareStates(const AttendArgs& args) {
  State* states = reinterpret_cast<State*>(args.scratch);
  for (int32_t row = 0; row < args.rows; ++row) {
    for (int32_t head = 0; head < args.heads; ++head) {
      State& state = states[row * args.heads + head];
      state.maximum = args.sinks != nullptr ? args.sinks[head] : -__builtin_inff();
      for (float& lane : state.lanes) lane = 0.0f;
      if (args.sinks != nullptr) state.lanes[0] = 1.0f;
      float* out = args.out + row * args.out_row_stride + head * args.head_dim_v;
      for (int32_t d = 0; d < args.head_dim_v; ++d) out[d] = 0.0f;
    }
  }
  return states;
}

void Normalise(const AttendArgs& args, const State* states) {
  for (int32_t row = 0; row < args.rows; ++row) {
    for (int32_t head = 0; head < args.heads; ++head) {
      const __m512 denominator =
          _mm512_set1_ps(FoldLanes(_mm512_loadu_ps(states[row * args.heads + head].lanes)));
      float* out = args.out + row * args.out_row_stride + head * args.head_dim_v;
      for (int32_t d = 0; d < args.head_dim_v; d += 16) {
        const __mmask16 mask = LaneMask(args.head_dim_v - d);
        _mm512_mask_storeu_ps(out + d, mask,
                              _mm512_div_ps(_mm512_maskz_loadu_ps(mask, out + d), denominator));
      }
    }
  }
}

template <typename C>
void Attend(const AttendArgs& args) {
  if (args.rows <= 0) return;
  State* states = PrepareStates(args);
  int32_t begin = args.key_begin[0];
  int32_t end = args.key_end[0];
  for (int32_t row = 1; row < args.rows; ++row) {
    if (args.key_begin[row] < begin) begin = args.key_begin[row];
    if (args.key_end[row] > end) end = args.key_end[row];
  }
  int32_t index = begin / kBlock;
  Block<typename C::Stored> block = FindBlock<typename C::Stored>(args, index, begin, end);
  for (; index * kBlock < end; ++index) {
    const bool last = (index + 1) * kBlock >= end;
    const Block<typename C::Stored> next =
        last ? block : FindBlock<typename C::Stored>(args, index + 1, begin, end);
    RunBlock<C>(args, index * kBlock, block, next, states);
    block = next;
  }
  Normalise(args, states);
}

}  // namespace

void attend_f32(const AttendArgs* args) { Attend<F32>(*args); }
void attend_f16(const AttendArgs* args) { Attend<F16>(*args); }

}  // namespace cellm::avx512
