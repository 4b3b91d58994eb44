// Attention over pages, one query at a time, in the order that AttendArgs states.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {
namespace {

float Half(const uint8_t* bytes, int64_t i) {
  uint16_t bits;
  memcpy(&bits, bytes + 2 * i, sizeof(bits));
  return F16ToFloat(bits);
}
float Float(const uint8_t* bytes, int64_t i) {
  float value;
  memcpy(&value, bytes + 4 * i, sizeof(value));
  return value;
}

// Lane `lane`, place `i` of column tile `tile` of the 16 tokens at `group` (tensor/kv_type.h).
int32_t Level(const KvCodes& codes, const uint8_t* group, int32_t tile, int32_t lane, int32_t i) {
  const bool is_wide = tile < codes.wide_tiles;
  const int32_t bits = is_wide ? codes.wide_bits : codes.narrow_bits;
  const uint8_t* levels = is_wide ? codes.wide_levels : codes.narrow_levels;
  const int32_t wide_before = is_wide ? tile : codes.wide_tiles;
  group += 32 * (wide_before * codes.wide_bits + (tile - wide_before) * codes.narrow_bits);
  const int32_t at = 4 * lane + i % 4;
  if (bits == 8) return group[64 * (i / 4) + at] - 128;
  if (bits == 4) return levels[(group[64 * (i / 8) + at] >> (i & 4)) & 15] - 128;
  int32_t code = (group[at] >> (2 * (i / 4))) & 3;
  if (bits == 3) code |= ((group[64 + 8 * (i / 4) + at / 8] >> (at % 8)) & 1) << 2;
  return levels[code] - 128;
}

// One query: where its keys and values are and what has been summed so far.
struct Query {
  const AttendArgs& args;
  int32_t row, head;
  float* out;
  AttendState& state;

  const uint8_t* HeadPart(int32_t key, size_t offset, size_t stride) const {
    return args.kv.pages[key / args.kv.page_tokens] + offset +
           stride * static_cast<size_t>(args.kv_head);
  }
  const uint8_t* Keys(int32_t key) const {
    return HeadPart(key, args.kv.k_offset, args.kv.k_head_stride);
  }
  const uint8_t* Values(int32_t key) const {
    return HeadPart(key, args.kv.v_offset, args.kv.v_head_stride);
  }

  float FloatDot(int32_t key) const {
    const float* q = args.q + row * args.q_row_stride + int64_t{head} * args.head_dim;
    const int32_t slot = key % args.kv.page_tokens;
    const uint8_t* keys = Keys(key);
    float sum = 0.0f;
    for (int32_t d = 0; d < args.head_dim; ++d) {
      const int64_t i = (int64_t{slot / 16} * args.head_dim + d) * 16 + slot % 16;
      sum = Fma(q[d], args.kv.k.kind == kernels::kKvF16 ? Half(keys, i) : Float(keys, i), sum);
    }
    return sum * args.scale;
  }
  float CodedDot(int32_t key) const {
    const KvCodes& codes = args.kv.k;
    const int64_t query = int64_t{row} * args.heads + head;
    const int8_t* q8 = args.q8 + query * codes.tiles * 16;
    const int32_t slot = key % args.kv.page_tokens;
    const uint8_t* keys = Keys(key);
    const uint8_t* group = keys + static_cast<size_t>(slot / 16) * codes.group_bytes;
    int32_t sum = 0;
    for (int32_t d = 0; d < codes.tiles * 16; ++d) {
      sum += Level(codes, group, d / 16, slot % 16, d % 16) * q8[d];
    }
    return (static_cast<float>(sum) * Half(keys + codes.scales_offset, slot)) *
           (args.q_scales[query] * args.scale);
  }
  float Score(int32_t key) const {
    const float score = args.kv.k.kind == kernels::kKvCoded ? CodedDot(key) : FloatDot(key);
    return args.softcap > 0.0f ? args.softcap * Tanh(score / args.softcap) : score;
  }

  void AddFloatValue(int32_t key, float p) {
    const uint8_t* values = Values(key);
    const int64_t first = int64_t{key % args.kv.page_tokens} * args.head_dim_v;
    for (int32_t d = 0; d < args.head_dim_v; ++d) {
      const float v =
          args.kv.v.kind == kernels::kKvF16 ? Half(values, first + d) : Float(values, first + d);
      out[d] = Fma(p, v, out[d]);
    }
  }

  // p[key % 64] of keys [begin, end).
  void AddCodedValues(int32_t begin, int32_t end, const float* p) {
    const KvCodes& codes = args.kv.v;
    float weights[64];
    float most = 0.0f;
    bool finite = true;
    for (int32_t key = begin; key < end; ++key) {
      const int32_t slot = key % args.kv.page_tokens;
      const float w = p[key % 64] * Half(Values(key) + codes.scales_offset, slot);
      weights[key % 64] = w;
      if (!(__builtin_fabsf(w) <= __FLT_MAX__)) finite = false;
      if (w > most) most = w;
    }
    if (most < kernels::kQuantTiny) most = 0.0f;
    const float inverse = most > 0.0f ? kernels::kWeightMost / most : 0.0f;
    const float factor = finite ? most / kernels::kWeightMost : __builtin_nanf("");
    for (int32_t d = 0; d < codes.tiles * 16; ++d) {
      int32_t sum = 0;
      for (int32_t key = begin; finite && key < end; ++key) {
        const int32_t slot = key % args.kv.page_tokens;
        const uint8_t* group = Values(key) + static_cast<size_t>(slot / 16) * codes.group_bytes;
        const float rounded = weights[key % 64] * inverse + 0x1.8p23f - 0x1.8p23f;
        sum += Level(codes, group, d / 16, d % 16, slot % 16) * static_cast<int32_t>(rounded);
      }
      out[d] = Fma(static_cast<float>(sum), factor, out[d]);
    }
  }

  int32_t Columns() const {
    return args.kv.v.kind == kernels::kKvCoded ? args.kv.v.tiles * 16 : args.head_dim_v;
  }

  // Keys [begin, end) of one block of 64.
  void AddBlock(int32_t begin, int32_t end) {
    float p[64];
    float largest = state.maximum;
    for (int32_t key = begin; key < end; ++key) {
      p[key % 64] = Score(key);
      if (p[key % 64] > largest) largest = p[key % 64];
    }
    if (largest > state.maximum) {
      const float factor = Exp(state.maximum - largest);
      for (float& lane : state.lanes) lane *= factor;
      for (int32_t d = 0; d < Columns(); ++d) out[d] *= factor;
      state.maximum = largest;
    }
    for (int32_t key = begin; key < end; ++key) {
      p[key % 64] = Exp(p[key % 64] - state.maximum);
      state.lanes[key % 16] += p[key % 64];
      if (args.kv.v.kind != kernels::kKvCoded) AddFloatValue(key, p[key % 64]);
    }
    if (args.kv.v.kind == kernels::kKvCoded) AddCodedValues(begin, end, p);
  }
};

}  // namespace

void attend(const AttendArgs* args) {
  for (int32_t row = 0; row < args->rows; ++row) {
    for (int32_t head = 0; head < args->heads; ++head) {
      const int64_t index = int64_t{row} * args->heads + head;
      Query query = {*args, row, head, args->out + index * args->out_stride, args->states[index]};
      query.state = {-__builtin_inff(), {}, {}};
      for (int32_t d = 0; d < query.Columns(); ++d) query.out[d] = 0.0f;
      const int32_t end = args->key_end[row];
      for (int32_t key = args->key_begin[row]; key < end;) {
        const int32_t block_end = key / 64 * 64 + 64;
        query.AddBlock(key, block_end < end ? block_end : end);
        key = block_end;
      }
    }
  }
}

}  // namespace cellm::scalar
