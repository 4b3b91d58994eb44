// Attention over pages, two queries (heads of a row) at a time.
//
// For each block of 64 keys: scores of 32 keys at once (4 ymm a query), one fused sum along the
// dimensions; then 4 ymm of output dimensions a query take the keys in order. The running maximum
// and the 16 denominator lanes of each query wait in scratch; the sums of V wait in the output.

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace cellm::avx2 {
namespace {

constexpr int kQueries = 2;
constexpr int32_t kBlock = 64;

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

// The state of one query in scratch.
struct State {
  float maximum;
  float padding[15];
  float lanes[16];
};

// The keys of one block, 16 at a time: K in lanes, V row by row.
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

template <typename C, int N>
void Scores(const AttendArgs& args, const Block<typename C::Stored>& block, const Query* queries,
            float scores[][kBlock]) {
  const __m256 scale = _mm256_set1_ps(args.scale);
  const __m256 cap = _mm256_set1_ps(args.softcap);
  for (int pair = 0; pair < 2; ++pair) {
    const typename C::Stored* k0 = block.k[2 * pair];
    const typename C::Stored* k1 = block.k[2 * pair + 1];
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
  State& state = *query.state;
  __m256 lanes[2] = {_mm256_loadu_ps(state.lanes), _mm256_loadu_ps(state.lanes + 8)};
  if (block_maximum > state.maximum) {
    const __m256 factor = Exp(_mm256_set1_ps(state.maximum - block_maximum));
    lanes[0] = _mm256_mul_ps(lanes[0], factor);
    lanes[1] = _mm256_mul_ps(lanes[1], factor);
    for (int32_t d = 0; d < args.head_dim_v; d += 8) {
      const int64_t left = args.head_dim_v - d;
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

// D vectors of output dimensions from `dim` (the last with `last` elements), keys in order.
template <typename C, int N, int D>
CELLM_INLINE void AddValuesTile(const AttendArgs& args, const Block<typename C::Stored>& block,
                                const Query* queries, const float weights[][kBlock], int32_t low,
                                int32_t high, int32_t dim, int32_t last) {
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
    const typename C::Stored* v = block.v[group] + dim + int64_t{first} * args.head_dim_v;
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
void AddValues(const AttendArgs& args, const Block<typename C::Stored>& block, const Query* queries,
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

// N queries against one block. Keys that all of them see go together; a key that only some see is
// added for those alone, so that a neighbour's future (perhaps not finite) cannot touch the sum.
template <typename C, int N>
void QueryTile(const AttendArgs& args, const Block<typename C::Stored>& block,
               const Query* queries) {
  alignas(32) float scores[N][kBlock];
  Scores<C, N>(args, block, queries, scores);
  int32_t low = 0;
  int32_t high = kBlock;
  for (int n = 0; n < N; ++n) {
    Weights(args, queries[n], scores[n]);
    if (queries[n].low > low) low = queries[n].low;
    if (queries[n].high < high) high = queries[n].high;
  }
  if (N == 1 || low >= high) {
    for (int n = 0; n < N; ++n) {
      AddValues<C, 1>(args, block, queries + n, scores + n, queries[n].low, queries[n].high);
    }
    return;
  }
  for (int n = 0; n < N; ++n) {
    if (queries[n].low < low) {
      AddValues<C, 1>(args, block, queries + n, scores + n, queries[n].low, low);
    }
  }
  AddValues<C, N>(args, block, queries, scores, low, high);
  for (int n = 0; n < N; ++n) {
    if (queries[n].high > high) {
      AddValues<C, 1>(args, block, queries + n, scores + n, high, queries[n].high);
    }
  }
}

// All queries that look into `block_index`.
template <typename C>
void RunBlock(const AttendArgs& args, int32_t block_index, int32_t begin, int32_t end,
              State* states) {
  const Block<typename C::Stored> block =
      FindBlock<typename C::Stored>(args, block_index, begin, end);
  const int32_t first_key = block_index * kBlock;
  Query tile[kQueries];
  int count = 0;
  for (int32_t row = 0; row < args.rows; ++row) {
    const int32_t low = args.key_begin[row] - first_key;
    const int32_t high = args.key_end[row] - first_key;
    if (low >= kBlock || high <= 0) continue;
    for (int32_t head = 0; head < args.heads; ++head) {
      tile[count++] = {args.q + row * args.q_row_stride + head * args.head_dim,
                       args.out + row * args.out_row_stride + head * args.head_dim_v,
                       states + row * args.heads + head, low < 0 ? 0 : low,
                       high > kBlock ? kBlock : high};
      if (count == kQueries) {
        QueryTile<C, kQueries>(args, block, tile);
        count = 0;
      }
    }
  }
  if (count > 0) QueryTile<C, 1>(args, block, tile);
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
      const float* lanes = states[row * args.heads + head].lanes;
      const __m256 denominator =
          _mm256_set1_ps(FoldLanes(_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8)));
      float* out = args.out + row * args.out_row_stride + head * args.head_dim_v;
      for (int32_t d = 0; d < args.head_dim_v; d += 8) {
        const int64_t left = args.head_dim_v - d;
        StorePart(out + d, left, _mm256_div_ps(LoadPart(out + d, left), denominator));
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
  for (int32_t block = begin / kBlock; block * kBlock < end; ++block) {
    RunBlock<C>(args, block, begin, end, states);
  }
  Normalise(args, states);
}

}  // namespace

void attend_f32(const AttendArgs* args) { Attend<F32>(*args); }
void attend_f16(const AttendArgs* args) { Attend<F16>(*args); }

}  // namespace cellm::avx2
