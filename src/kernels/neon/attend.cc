// Attention over pages, four queries (heads of a row) at a time.
//
// For each block of 64 keys: scores of 16 keys at once (4 q registers a query), one fused sum along
// the dimensions; then 4 registers of output dimensions a query take the keys in order. The running
// maximum and the 16 denominator lanes of each query wait in scratch; the sums of V wait in the
// output.

#include "kernels/neon/neon.h"
#include "kernels/neon/simd.h"

namespace cellm::neon {
namespace {

constexpr int kQueries = 4;
constexpr int32_t kBlock = 64;

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
  const float32x4_t scale = vdupq_n_f32(args.scale);
  const float32x4_t cap = vdupq_n_f32(args.softcap);
  for (int group = 0; group < 4; ++group) {
    const typename C::Stored* k = block.k[group];
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

// All ones in the lanes of keys 4 * g .. + 3 that lie in [low, high).
CELLM_INLINE uint32x4_t ValidMask(const Query& query, int g) {
  return vbicq_u32(LaneMask(query.high - 4 * g), LaneMask(query.low - 4 * g));
}

// Scores to weights exp(s - m), zero outside [low, high); keeps maximum, lanes and the sums in out.
void Weights(const AttendArgs& args, const Query& query, float* scores) {
  const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
  float32x4_t most = lowest;
  for (int g = 0; g < 16; ++g) {
    const float32x4_t s = vbslq_f32(ValidMask(query, g), vld1q_f32(scores + 4 * g), lowest);
    // As `a > b ? a : b`, which like the scalar twin passes a NaN by.
    most = vbslq_f32(vcgtq_f32(s, most), s, most);
  }
  const float block_maximum = vmaxvq_f32(most);
  State& state = *query.state;
  float32x4_t lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = vld1q_f32(state.lanes + 4 * i);
  if (block_maximum > state.maximum) {
    const float32x4_t factor = Exp(vdupq_n_f32(state.maximum - block_maximum));
    for (int i = 0; i < 4; ++i) lanes[i] = vmulq_f32(lanes[i], factor);
    for (int32_t d = 0; d < args.head_dim_v; d += 4) {
      const int64_t left = args.head_dim_v - d;
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

// D vectors of output dimensions from `dim` (a single one has `last` elements), keys in order.
template <typename C, int N, int D>
CELLM_INLINE void AddValuesTile(const AttendArgs& args, const Block<typename C::Stored>& block,
                                const Query* queries, const float weights[][kBlock], int32_t low,
                                int32_t high, int32_t dim, int32_t last) {
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
    const typename C::Stored* v = block.v[group] + dim + int64_t{first} * args.head_dim_v;
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
void AddValues(const AttendArgs& args, const Block<typename C::Stored>& block, const Query* queries,
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

// N queries against one block. Keys that all of them see go together; a key that only some see is
// added for those alone, so that a neighbour's future (perhaps not finite) cannot touch the sum.
template <typename C, int N>
void QueryTile(const AttendArgs& args, const Block<typename C::Stored>& block,
               const Query* queries) {
  float scores[N][kBlock];
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
  switch (count) {
    case 1:
      return QueryTile<C, 1>(args, block, tile);
    case 2:
      return QueryTile<C, 2>(args, block, tile);
    case 3:
      return QueryTile<C, 3>(args, block, tile);
    default:
      return;
  }
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
      const float32x4_t denominator = vdupq_n_f32(FoldLanes(
          vld1q_f32(lanes), vld1q_f32(lanes + 4), vld1q_f32(lanes + 8), vld1q_f32(lanes + 12)));
      float* out = args.out + row * args.out_row_stride + head * args.head_dim_v;
      for (int32_t d = 0; d < args.head_dim_v; d += 4) {
        const int64_t left = args.head_dim_v - d;
        StorePart(out + d, left, vdivq_f32(LoadPart(out + d, left), denominator));
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

}  // namespace cellm::neon
