// Products of row-major float weights.
//
// An output owns two ymm of 8 running sums along k: lanes 0..7 and 8..15. Tiles of 3 rows x 2
// tokens (or 4 x 1) keep 12 (8) sums in registers. Tokens go in blocks whose activations stay in
// L2.

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/simd.h"

namespace cellm::avx2 {
namespace {

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
struct Bf16 {
  using Stored = uint16_t;
  static CELLM_INLINE __m256 Load(const uint16_t* p) { return WidenBrains(Load16(p)); }
  static CELLM_INLINE __m256 Load(const uint16_t* p, int64_t count) {
    return WidenBrains(LoadPart16(p, count));
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
  int64_t ahead = 0;  // bytes from a weight to the one to prefetch
};

// The last cols % 16 columns; lanes past the end keep their sums as they are.
template <typename W>
CELLM_INLINE void AddTail(const typename W::Stored* w, const float* x, int32_t count,
                          __m256 sums[2]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const int32_t left = count - 8 * half;
    if (left <= 0) continue;
    const __m256 sum =
        _mm256_fmadd_ps(W::Load(w + 8 * half, left), LoadPart(x + 8 * half, left), sums[half]);
    sums[half] = _mm256_blendv_ps(sums[half], sum, _mm256_castsi256_ps(LaneMask(left)));
  }
}

// Rows [row, row + R) times tokens [token, token + T).
template <typename W, int R, int T>
void Tile(const Job<W>& job, int32_t row, int32_t token) {
  __m256 sums[R][T][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[r][t][0] = sums[r][t][1] = _mm256_setzero_ps();
  }
  const typename W::Stored* w = job.w + row * job.w_stride;
  const float* x = job.x + token * job.x_stride;
  const int64_t w_stride = job.w_stride;
  const int64_t x_stride = job.x_stride;
  const int32_t cols = job.cols;
  // One token: the lines of the next R rows (or further ones) come in the order of memory, which is
  // what hardware prefetchers follow.
  const char* stream = reinterpret_cast<const char*>(w) + job.ahead;
  int32_t c = 0;
  for (; c + 16 <= cols; c += 16) {
    if (T == 1) {
#pragma GCC unroll 4
      for (size_t i = 0; i < R * 16 * sizeof(*w); i += 64) _mm_prefetch(stream + i, _MM_HINT_T0);
      stream += R * 16 * sizeof(*w);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m256 xs[T];
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) xs[t] = _mm256_loadu_ps(x + t * x_stride + c + 8 * half);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename W::Stored* p = w + r * w_stride + c + 8 * half;
        const __m256 weight = W::Load(p);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          sums[r][t][half] = _mm256_fmadd_ps(weight, xs[t], sums[r][t][half]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      if (c < cols) AddTail<W>(w + r * w_stride + c, x + t * x_stride + c, cols - c, sums[r][t]);
      job.out[(token + t) * job.out_stride + row + r] = FoldLanes(sums[r][t][0], sums[r][t][1]);
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
  constexpr int64_t kBlockBytes = 192 * 1024;
  int64_t block = kBlockBytes / (int64_t{job.cols} * 4 + 1) / 2 * 2;
  if (block < 2) block = 2;
  for (int32_t begin = 0; begin < tokens;) {
    const int32_t end = tokens - begin <= block ? tokens : begin + static_cast<int32_t>(block);
    if (end - begin == 1) {
      constexpr int64_t kAheadBytes = 8192;
      const int64_t row_bytes = job.w_stride * static_cast<int64_t>(sizeof(*job.w));
      const int64_t four_rows = row_bytes > 0 ? 4 * row_bytes : 4;
      Job<W> one = job;
      one.ahead = (kAheadBytes + four_rows - 1) / four_rows * four_rows;
      Rows<W, 4, 1>(one, rows, begin);
      begin = end;
      continue;
    }
    // Three rows stay in L1 while the block's tokens pass by.
    for (int32_t row = 0; row < rows; row += 3) {
      const int32_t count = rows - row < 3 ? rows - row : 3;
      Job<W> part = job;
      part.w += row * job.w_stride;
      part.out += row;
      int32_t token = begin;
      for (; token + 2 <= end; token += 2) Rows<W, 3, 2>(part, count, token);
      if (token < end) Rows<W, 3, 1>(part, count, token);
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

}  // namespace cellm::avx2
