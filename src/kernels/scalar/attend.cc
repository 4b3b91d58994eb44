// Attention over pages, one query row and head at a time, in the order that AttendArgs states.

#include "kernels/scalar/scalar.h"
#include "kernels/scalar/simd.h"

namespace cellm::scalar {
namespace {

float Element(const float* p, int64_t i) { return p[i]; }
float Element(const uint16_t* p, int64_t i) { return F16ToFloat(p[i]); }

// One (row, head): where its keys and values are and what has been summed so far.
template <typename T>
struct Query {
  const AttendArgs& args;
  const float* q;
  float* out;
  float maximum;
  float lanes[16];

  const uint8_t* Page(int32_t key) const { return args.kv.pages[key / args.kv.page_tokens]; }

  float Score(int32_t key) const {
    const KvPages& kv = args.kv;
    const int32_t slot = key % kv.page_tokens;
    const T* k = reinterpret_cast<const T*>(Page(key) + kv.k_offset +
                                            kv.k_head_stride * static_cast<size_t>(args.kv_head)) +
                 static_cast<int64_t>(slot / 16) * args.head_dim * 16 + slot % 16;
    float sum = 0.0f;
    for (int32_t d = 0; d < args.head_dim; ++d) sum = Fma(q[d], Element(k, d * 16), sum);
    float score = sum * args.scale;
    if (args.softcap > 0.0f) score = args.softcap * Tanh(score / args.softcap);
    return score;
  }

  const T* Value(int32_t key) const {
    const KvPages& kv = args.kv;
    return reinterpret_cast<const T*>(Page(key) + kv.v_offset +
                                      kv.v_head_stride * static_cast<size_t>(args.kv_head)) +
           static_cast<int64_t>(key % kv.page_tokens) * args.head_dim_v;
  }

  // Keys [begin, end) of one block of 64.
  void AddBlock(int32_t begin, int32_t end) {
    float scores[64];
    float largest = maximum;
    for (int32_t key = begin; key < end; ++key) {
      scores[key % 64] = Score(key);
      if (scores[key % 64] > largest) largest = scores[key % 64];
    }
    if (largest > maximum) {
      const float factor = Exp(maximum - largest);
      for (float& lane : lanes) lane *= factor;
      for (int32_t d = 0; d < args.head_dim_v; ++d) out[d] *= factor;
      maximum = largest;
    }
    for (int32_t key = begin; key < end; ++key) {
      const float p = Exp(scores[key % 64] - maximum);
      lanes[key % 16] += p;
      const T* v = Value(key);
      for (int32_t d = 0; d < args.head_dim_v; ++d) out[d] = Fma(p, Element(v, d), out[d]);
    }
  }
};

template <typename T>
void Attend(const AttendArgs& args) {
  for (int32_t row = 0; row < args.rows; ++row) {
    for (int32_t head = 0; head < args.heads; ++head) {
      Query<T> query = {args,
                        args.q + row * args.q_row_stride + head * args.head_dim,
                        args.out + row * args.out_row_stride + head * args.head_dim_v,
                        -__builtin_inff(),
                        {}};
      if (args.sinks != nullptr) {
        query.maximum = args.sinks[head];
        query.lanes[0] = 1.0f;
      }
      for (int32_t d = 0; d < args.head_dim_v; ++d) query.out[d] = 0.0f;
      const int32_t end = args.key_end[row];
      for (int32_t key = args.key_begin[row]; key < end;) {
        const int32_t block_end = key / 64 * 64 + 64;
        query.AddBlock(key, block_end < end ? block_end : end);
        key = block_end;
      }
      const float denominator = FoldLanes(query.lanes);
      for (int32_t d = 0; d < args.head_dim_v; ++d) query.out[d] /= denominator;
    }
  }
}

}  // namespace

void attend_f32(const AttendArgs* args) { Attend<float>(*args); }
void attend_f16(const AttendArgs* args) { Attend<uint16_t>(*args); }

}  // namespace cellm::scalar
