// Testers of attention over pages.

#include <algorithm>
#include <memory>

#include "kernels/kernel_testers.h"
#include "tensor/half.h"

namespace cellm::kernels {
namespace {

struct AttendCase {
  int32_t rows, heads, head_dim, head_dim_v, page_tokens;
  int32_t first_end;  // key_end of row 0; row r sees r keys more
  int32_t window;     // 0: all keys from 0
  float softcap;
  bool sinks;
};

// A cache in pages whose bytes past the last key are NaN; pages before the window are absent.
template <typename T>
class Cache {
 public:
  Cache(const AttendCase& c, int32_t first_key, int32_t end_key, Rng& rng) {
    const int32_t kv_heads = 2;
    const size_t k_elements = static_cast<size_t>(c.page_tokens * c.head_dim);
    const size_t v_elements = static_cast<size_t>(c.page_tokens * c.head_dim_v);
    kv.page_tokens = c.page_tokens;
    kv.k_offset = 0;
    kv.k_head_stride = k_elements * sizeof(T);
    kv.v_offset = kv_heads * k_elements * sizeof(T);
    kv.v_head_stride = v_elements * sizeof(T);
    for (int32_t page = 0; page * c.page_tokens < end_key; ++page) {
      if ((page + 1) * c.page_tokens <= first_key) {
        pointers_.push_back(nullptr);
        continue;
      }
      pages_.push_back(std::make_unique<Guarded<T>>(kv_heads * (k_elements + v_elements)));
      T* data = pages_.back()->data();
      const float nan = std::numeric_limits<float>::quiet_NaN();
      for (int32_t head = 0; head < kv_heads; ++head) {
        T* k = data + static_cast<size_t>(head) * k_elements;
        T* v = data + kv_heads * k_elements + static_cast<size_t>(head) * v_elements;
        for (int32_t slot = 0; slot < c.page_tokens; ++slot) {
          const int32_t key = page * c.page_tokens + slot;
          const bool written = key >= first_key && key < end_key;
          for (int32_t d = 0; d < c.head_dim; ++d) {
            Store(k + (slot / 16 * c.head_dim + d) * 16 + slot % 16,
                  written ? rng.NextFloat() * 2.0f - 1.0f : nan);
          }
          for (int32_t d = 0; d < c.head_dim_v; ++d) {
            float value = written ? rng.NextFloat() * 2.0f - 1.0f : nan;
            // Only the last row sees the last key: its infinity must not reach the others, not even
            // times a weight of zero.
            if (key == end_key - 1 && c.rows > 1 && d == 0) {
              value = std::numeric_limits<float>::infinity();
            }
            Store(v + slot * c.head_dim_v + d, value);
          }
        }
      }
      pointers_.push_back(reinterpret_cast<const uint8_t*>(data));
    }
    kv.pages = pointers_.data();
  }

  KvPages kv = {};

 private:
  static void Store(float* to, float value) { *to = value; }
  static void Store(uint16_t* to, float value) { *to = FloatToF16(value); }
  std::vector<std::unique_ptr<Guarded<T>>> pages_;
  std::vector<const uint8_t*> pointers_;
};

std::vector<AttendCase> Cases() {
  std::vector<AttendCase> cases = {
      {1, 1, 64, 64, 32, 1, 0, 0.0f, false},       {1, 3, 64, 64, 32, 130, 0, 0.0f, false},
      {1, 7, 64, 64, 16, 64, 0, 0.0f, false},      {1, 4, 128, 128, 64, 65, 0, 30.0f, false},
      {1, 8, 96, 96, 128, 300, 0, 0.0f, true},     {5, 3, 64, 64, 32, 60, 0, 0.0f, false},
      {9, 2, 64, 64, 32, 1, 0, 0.0f, true},        {17, 3, 80, 80, 16, 50, 40, 0.0f, false},
      {70, 1, 64, 64, 32, 1, 33, 50.0f, true},     {4, 5, 24, 40, 48, 100, 7, 0.0f, false},
      {3, 2, 1, 1, 16, 30, 0, 0.0f, false},        {2, 6, 17, 33, 16, 127, 0, 0.0f, false},
      {13, 1, 256, 256, 32, 190, 64, 0.0f, false},
  };
  if (LongTests()) cases.push_back({64, 7, 64, 64, 32, 4000, 0, 0.0f, false});
  return cases;
}

template <typename T>
void CheckAttend(void (*kernel)(const AttendArgs*), void (*reference)(const AttendArgs*)) {
  Rng rng(30);
  for (const AttendCase& c : Cases()) {
    std::vector<int32_t> begin(static_cast<size_t>(c.rows));
    std::vector<int32_t> end(static_cast<size_t>(c.rows));
    for (int32_t r = 0; r < c.rows; ++r) {
      end[static_cast<size_t>(r)] = c.first_end + r;
      begin[static_cast<size_t>(r)] = c.window == 0 ? 0 : std::max(0, c.first_end + r - c.window);
    }
    const Cache<T> cache(c, begin[0], end.back(), rng);
    const int64_t q_stride = c.heads * c.head_dim + 3;
    const int64_t out_stride = c.heads * c.head_dim_v + 5;
    Guarded<float> q(static_cast<size_t>((c.rows - 1) * q_stride + c.heads * c.head_dim));
    for (size_t i = 0; i < q.size(); ++i) q[i] = (rng.NextFloat() - 0.5f) * 8.0f;
    std::vector<float> sinks(static_cast<size_t>(c.heads));
    for (float& sink : sinks) sink = rng.NextFloat() * 4.0f - 2.0f;
    const size_t out_size = static_cast<size_t>((c.rows - 1) * out_stride + c.heads * c.head_dim_v);
    std::vector<float> want(out_size, 0.0f);
    Guarded<float> got(out_size);
    for (size_t i = 0; i < out_size; ++i) got[i] = 0.0f;
    Guarded<float> scratch(AttendScratchFloats(c.heads, c.rows, c.head_dim_v));

    AttendArgs args = {};
    args.q = q.data();
    args.q_row_stride = q_stride;
    args.out_row_stride = out_stride;
    args.rows = c.rows;
    args.heads = c.heads;
    args.head_dim = c.head_dim;
    args.head_dim_v = c.head_dim_v;
    args.kv_head = 1;
    args.key_begin = begin.data();
    args.key_end = end.data();
    args.scale = 0.125f;
    args.softcap = c.softcap;
    args.sinks = c.sinks ? sinks.data() : nullptr;
    args.kv = cache.kv;
    args.scratch = scratch.data();
    args.out = want.data();
    reference(&args);
    args.out = got.data();
    kernel(&args);
    const std::string where = std::to_string(c.rows) + " rows, " + std::to_string(c.heads) +
                              " heads, keys to " + std::to_string(c.first_end);
    ExpectSame(want, got, out_size, where);
    for (size_t i = 0; i < out_size; ++i) ASSERT_FALSE(std::isnan(want[i])) << where;

    // Each row alone gives the same bits as all rows together.
    for (int32_t r = 0; r < c.rows; ++r) {
      std::vector<float> alone(static_cast<size_t>(c.heads * c.head_dim_v));
      AttendArgs one = args;
      one.q = q.data() + r * q_stride;
      one.out = alone.data();
      one.rows = 1;
      one.key_begin = begin.data() + r;
      one.key_end = end.data() + r;
      kernel(&one);
      ExpectSame(want.data() + r * out_stride, alone, alone.size(), where + ", one row");
    }
  }
}

}  // namespace

void Check_attend_f32(const KernelTable& tier) {
  CheckAttend<float>(tier.attend_f32, &scalar::attend_f32);
}
void Check_attend_f16(const KernelTable& tier) {
  CheckAttend<uint16_t>(tier.attend_f16, &scalar::attend_f16);
}

}  // namespace cellm::kernels
