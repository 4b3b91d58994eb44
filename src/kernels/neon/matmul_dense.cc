// Products of row-major float weights.
//
// An output owns four q registers of running sums along k. Tiles of 2 rows x 2 tokens (or 4 x 1)
// keep 16 in registers. Tokens go in blocks whose activations stay in L2.

#include "kernels/neon/neon.h"
#include "kernels/neon/simd.h"

namespace cellm::neon {
namespace {

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
struct Bf16 {
  using Stored = uint16_t;
  static CELLM_INLINE float32x4_t Load(const uint16_t* p) { return WidenBrains(vld1_u16(p)); }
  static CELLM_INLINE float32x4_t Load(const uint16_t* p, int64_t count) {
    return WidenBrains(LoadPart(p, count));
  }
};

template <typename W>
struct Job {
  const typename W::Stored* w;
  int64_t w_stride;
  const float* x;
  int64_t x_stride;
  int32_t cols;
  float* out;
  int64_t out_stride;
};

// The last cols % 16 columns; lanes past the end keep their sums as they are.
template <typename W>
CELLM_INLINE void AddTail(const typename W::Stored* w, const float* x, int32_t count,
                          float32x4_t sums[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int32_t left = count - 4 * i;
    if (left <= 0) continue;
    const float32x4_t sum = vfmaq_f32(sums[i], W::Load(w + 4 * i, left), LoadPart(x + 4 * i, left));
    sums[i] = vbslq_f32(LaneMask(left), sum, sums[i]);
  }
}

// Rows [row, row + R) times tokens [token, token + T).
template <typename W, int R, int T>
void Tile(const Job<W>& job, int32_t row, int32_t token) {
  float32x4_t sums[R][T][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[r][t][i] = vdupq_n_f32(0.0f);
    }
  }
  const typename W::Stored* w = job.w + row * job.w_stride;
  const float* x = job.x + token * job.x_stride;
  const int64_t w_stride = job.w_stride;
  const int64_t x_stride = job.x_stride;
  const int32_t cols = job.cols;
  int32_t c = 0;
  for (; c + 16 <= cols; c += 16) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      float32x4_t xs[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) xs[t] = vld1q_f32(x + t * x_stride + c + 4 * i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const float32x4_t weight = W::Load(w + r * w_stride + c + 4 * i);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) sums[r][t][i] = vfmaq_f32(sums[r][t][i], weight, xs[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      float32x4_t* s = sums[r][t];
      if (c < cols) AddTail<W>(w + r * w_stride + c, x + t * x_stride + c, cols - c, s);
      job.out[(token + t) * job.out_stride + row + r] = FoldLanes(s[0], s[1], s[2], s[3]);
    }
  }
}

// All rows times T tokens, R rows at a time and the rest one by one.
template <typename W, int R, int T>
void Rows(const Job<W>& job, int32_t rows, int32_t token) {
  int32_t row = 0;
  for (; row + R <= rows; row += R) Tile<W, R, T>(job, row, token);
  for (; row < rows; ++row) Tile<W, 1, T>(job, row, token);
}

template <typename W>
void Matmul(const Job<W>& job, int32_t rows, int32_t tokens) {
  constexpr int64_t kBlockBytes = 128 * 1024;
  int64_t block = kBlockBytes / (int64_t{job.cols} * 4 + 1) / 2 * 2;
  if (block < 2) block = 2;
  for (int32_t begin = 0; begin < tokens;) {
    const int32_t end = tokens - begin <= block ? tokens : begin + static_cast<int32_t>(block);
    if (end - begin == 1) {
      Rows<W, 4, 1>(job, rows, begin);
      begin = end;
      continue;
    }
    // Two rows stay in L1 while the block's tokens pass by.
    for (int32_t row = 0; row < rows; row += 2) {
      const int32_t count = rows - row < 2 ? rows - row : 2;
      Job<W> part = job;
      part.w += row * job.w_stride;
      part.out += row;
      int32_t token = begin;
      for (; token + 2 <= end; token += 2) Rows<W, 2, 2>(part, count, token);
      if (token < end) Rows<W, 2, 1>(part, count, token);
    }
    begin = end;
  }
}

}  // namespace

void matmul_f32_f32(const float* w, int64_t w_stride, const float* x, int64_t x_stride,
                    int32_t rows, int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  Matmul<F32>({w, w_stride, x, x_stride, cols, out, out_stride}, rows, tokens);
}

void matmul_f16_f32(const uint16_t* w, int64_t w_stride, const float* x, int64_t x_stride,
                    int32_t rows, int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  Matmul<F16>({w, w_stride, x, x_stride, cols, out, out_stride}, rows, tokens);
}

void matmul_bf16_f32(const uint16_t* w, int64_t w_stride, const float* x, int64_t x_stride,
                     int32_t rows, int32_t cols, int32_t tokens, float* out, int64_t out_stride) {
  Matmul<Bf16>({w, w_stride, x, x_stride, cols, out, out_stride}, rows, tokens);
}

float dot_f32(const float* a, const float* b, int32_t count) {
  float result = 0.0f;
  Tile<F32, 1, 1>({a, 0, b, 0, count, &result, 1}, 0, 0);
  return result;
}

}  // namespace cellm::neon
