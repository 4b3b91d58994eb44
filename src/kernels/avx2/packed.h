#ifndef CELLM_SRC_KERNELS_AVX2_PACKED_H_
#define CELLM_SRC_KERNELS_AVX2_PACKED_H_

// Chunks of packed weights for 256-bit code: any number of bits to one byte a code, in the order of
// the 8-bit layout (byte 4*row+i of vector v is the code of column 4v+i).

#include <immintrin.h>

#include "kernels/avx2/simd.h"
#include "kernels/kernel_types.h"

namespace cellm {
namespace {

CELLM_INLINE __m256i LoadBytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// (v >> kShift) & kMask of every byte, moved up by kUp.
template <int kShift, int kMask, int kUp>
CELLM_INLINE __m256i Field(__m256i v) {
  if constexpr (kShift > kUp) v = _mm256_srli_epi16(v, kShift - kUp);
  if constexpr (kShift < kUp) v = _mm256_slli_epi16(v, kUp - kShift);
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(kMask << kUp)));
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane2(const uint8_t* p, __m256i w[8]) {
  const __m256i a = LoadBytes(p);
  const __m256i b = LoadBytes(p + 64);
  const __m256i fields[8] = {Field<0, 3, kUp>(a), Field<0, 3, kUp>(b), Field<2, 3, kUp>(a),
                             Field<2, 3, kUp>(b), Field<4, 3, kUp>(a), Field<4, 3, kUp>(b),
                             Field<6, 3, kUp>(a), Field<6, 3, kUp>(b)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : _mm256_or_si256(w[v], fields[v]);
}

template <int kUp, bool kFirst>
CELLM_INLINE void AddPlane1(const uint8_t* p, __m256i w[8]) {
  const __m256i a = LoadBytes(p);
  const __m256i fields[8] = {Field<0, 1, kUp>(a), Field<1, 1, kUp>(a), Field<2, 1, kUp>(a),
                             Field<3, 1, kUp>(a), Field<4, 1, kUp>(a), Field<5, 1, kUp>(a),
                             Field<6, 1, kUp>(a), Field<7, 1, kUp>(a)};
#pragma GCC unroll 8
  for (int v = 0; v < 8; ++v) w[v] = kFirst ? fields[v] : _mm256_or_si256(w[v], fields[v]);
}

// Half a chunk: 8 rows x 32 columns; the second half of the rows starts 32 bytes further on.
template <int kBits>
CELLM_INLINE void LoadHalfChunk(const uint8_t* p, __m256i w[8]) {
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) w[v] = LoadBytes(p + 64 * v);
  } else {
    if constexpr ((kBits & 4) != 0) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        const __m256i nibbles = LoadBytes(p + 64 * v);
        w[v] = Field<0, 15, 0>(nibbles);
        w[v + 4] = Field<4, 15, 0>(nibbles);
      }
      p += 4 * 64;
    }
    if constexpr ((kBits & 2) != 0) {
      AddPlane2<kBits & 4, (kBits & 4) == 0>(p, w);
      p += 2 * 64;
    }
    if constexpr ((kBits & 1) != 0) AddPlane1<kBits & 6, (kBits & 6) == 0>(p, w);
  }
}

// Where decode reads ahead: a tile's bytes at an even pace a chunk, 8 KB before their use, so that
// the prefetches of all tiles together touch every line once and in the order of memory.
struct Ahead {
  const char* next;
  size_t step;  // bytes a chunk; 0: none
};

CELLM_INLINE void PrefetchStep(Ahead& ahead) {
  if (ahead.step == 0) return;
  for (size_t i = 0; i < ahead.step + 63; i += 64) _mm_prefetch(ahead.next + i, _MM_HINT_T0);
  ahead.next += ahead.step;
}

// `chunks` chunks to 512 bytes each.
template <int kBits>
void Widen(const uint8_t* codes, int32_t chunks, uint8_t* bytes, Ahead& ahead) {
  for (int32_t chunk = 0; chunk < chunks; ++chunk) {
    PrefetchStep(ahead);
    for (int half = 0; half < 2; ++half) {
      __m256i w[8];
      LoadHalfChunk<kBits>(codes + 32 * half, w);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 64 * v + 32 * half), w[v]);
      }
    }
    codes += 64 * kBits;
    bytes += 512;
  }
}

CELLM_INLINE void WidenBits(int32_t bits, const uint8_t* codes, int32_t chunks, uint8_t* bytes,
                            Ahead& ahead) {
  switch (bits) {
    case 8:
      return Widen<8>(codes, chunks, bytes, ahead);
    case 6:
      return Widen<6>(codes, chunks, bytes, ahead);
    case 5:
      return Widen<5>(codes, chunks, bytes, ahead);
    case 4:
      return Widen<4>(codes, chunks, bytes, ahead);
    case 3:
      return Widen<3>(codes, chunks, bytes, ahead);
    case 2:
      return Widen<2>(codes, chunks, bytes, ahead);
    default:
      return Widen<1>(codes, chunks, bytes, ahead);
  }
}

// Scales (or mins) of rows 8 * half .. + 7 of one group. With an odd number of 16-wide groups the
// last half chunk is padding and takes the scale before it, which multiplies zero.
CELLM_INLINE __m256 LoadScales(const kernels::PackedTiles& w, const uint8_t* scales, int32_t group,
                               int half) {
  const int32_t own = group < w.groups ? group : w.groups - 1;
  const size_t first = static_cast<size_t>(own) * 16u + static_cast<size_t>(half) * 8u;
  if (w.scales_are_f32 != 0) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(scales) + first);
  }
  return _mm256_cvtph_ps(Load16(reinterpret_cast<const uint16_t*>(scales) + first));
}

}  // namespace
}  // namespace cellm

#endif  // CELLM_SRC_KERNELS_AVX2_PACKED_H_
