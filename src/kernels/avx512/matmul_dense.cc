// Products of row-major float weights.
//
// An output owns one zmm of 16 running sums along k, so tiles of several rows and tokens give the
// FMA units independent chains and reuse every load: 6 rows x 4 tokens keep 24 sums in registers.
// Tokens go in blocks whose activations stay in L2 while all rows pass by.

#include "kernels/avx512/avx512.h"
#include "kernels/avx512/simd.h"

namespace cellm::avx512 {
namespace {

struct F32 {
  using Stored = float;
  static CELLM_INLINE __m512 Load(const float* p) { return _mm512_loadu_ps(p); }
  static CELLM_INLINE __m512 Load(const float* p, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, p);
  }
};
struct F16 {
  using Stored = uint16_t;
  static CELLM_INLINE __m512 Load(const uint16_t* p) { return LoadHalves(p); }
  static CELLM_INLINE __m512 Load(const uint16_t* p, __mmask16 mask) { return LoadHalves(p, mask); }
};
struct Bf16 {
  using Stored = uint16_t;
  static CELLM_INLINE __m512 Load(const uint16_t* p) { return LoadBrains(p); }
  static CELLM_INLINE __m512 Load(const uint16_t* p, __mmask16 mask) { return LoadBrains(p, mask); }
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

// Rows [row, row + R) times tokens [token, token + T).
template <typename W, int R, int T>
void Tile(const Job<W>& job, int32_t row, int32_t token) {
  __m512 sums[R][T];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[r][t] = _mm512_setzero_ps();
  }
  const typename W::Stored* w = job.w + row * job.w_stride;
  const float* x = job.x + token * job.x_stride;
  const int64_t w_stride = job.w_stride;
  const int64_t x_stride = job.x_stride;
  const int32_t cols = job.cols;
  // One token: the lines of the next R rows (or further ones, kAheadBytes at least) come in the
  // order of memory, which is what hardware prefetchers follow; rows that fill L1 go to L2 only.
  const char* stream = reinterpret_cast<const char*>(w) + job.ahead;
  int32_t c = 0;
  for (; c + 16 <= cols; c += 16) {
    if (T == 1) {
#pragma GCC unroll 8
      for (size_t i = 0; i < R * 16 * sizeof(*w); i += 64) {
        _mm_prefetch(stream + i, R == 8 ? _MM_HINT_T1 : _MM_HINT_T0);
      }
      stream += R * 16 * sizeof(*w);
    }
    __m512 xs[T];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) xs[t] = _mm512_loadu_ps(x + t * x_stride + c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 weight = W::Load(w + r * w_stride + c);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) sums[r][t] = _mm512_fmadd_ps(weight, xs[t], sums[r][t]);
    }
  }
  if (c < cols) {
    const __mmask16 mask = LaneMask(cols - c);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 weight = W::Load(w + r * w_stride + c, mask);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        const __m512 xt = _mm512_maskz_loadu_ps(mask, x + t * x_stride + c);
        // Lanes past the end keep their sum: fma(0, 0, s) could turn -0 into +0 only there, and
        // the scalar twin does not touch them.
        sums[r][t] = _mm512_mask3_fmadd_ps(weight, xt, sums[r][t], mask);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      job.out[(token + t) * job.out_stride + row + r] = FoldLanes(sums[r][t]);
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

// One token, weights from memory: four rows at a time, or eight where four would not leave room in
// L1 for those to come.
template <typename W>
void OneToken(Job<W> job, int32_t rows, int32_t token) {
  constexpr int64_t kAheadBytes = 8192;
  const int64_t row_bytes = job.w_stride * static_cast<int64_t>(sizeof(*job.w));
  const int64_t four_rows = row_bytes > 0 ? 4 * row_bytes : 4;
  if (four_rows <= 2 * kAheadBytes) {
    job.ahead = (kAheadBytes + four_rows - 1) / four_rows * four_rows;
    Rows<W, 4, 1>(job, rows, token);
  } else {
    job.ahead = 2 * four_rows;
    Rows<W, 8, 1>(job, rows, token);
  }
}

template <typename W>
void Matmul(const Job<W>& job, int32_t rows, int32_t tokens) {
  constexpr int64_t kBlockBytes = 384 * 1024;
  const int64_t row_bytes = int64_t{job.cols} * 4 + 1;
  int64_t block = kBlockBytes / row_bytes / 4 * 4;
  if (block < 4) block = 4;
  for (int32_t begin = 0; begin < tokens;) {
    const int32_t end = tokens - begin <= block ? tokens : begin + static_cast<int32_t>(block);
    if (end - begin <= 4) {
      switch (end - begin) {
        case 1:
          OneToken<W>(job, rows, begin);
          break;
        case 2:
          Rows<W, 8, 2>(job, rows, begin);
          break;
        case 3:
          Rows<W, 6, 3>(job, rows, begin);
          break;
        default:
          Rows<W, 6, 4>(job, rows, begin);
          break;
      }
      begin = end;
      continue;
    }
    // Six rows stay in L1 while the block's tokens pass by.
    for (int32_t row = 0; row < rows; row += 6) {
      const int32_t count = rows - row < 6 ? rows - row : 6;
      Job<W> part = job;
      part.w += row * job.w_stride;
      part.out += row;
      int32_t token = begin;
      for (; token + 4 <= end; token += 4) Rows<W, 6, 4>(part, count, token);
      switch (end - token) {
        case 1:
          Rows<W, 6, 1>(part, count, token);
          break;
        case 2:
          Rows<W, 6, 2>(part, count, token);
          break;
        case 3:
          Rows<W, 6, 3>(part, count, token);
          break;
        default:
          break;
      }
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

}  // namespace cellm::avx512
